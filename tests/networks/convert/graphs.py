"""What the converter's tests have in common: networks that are run, small graphs of ONNX."""

import sys
import tempfile
import unittest
from pathlib import Path
from typing import Any, Optional

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper, parser

ROOT = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "deploy/convert")]

from xnord_convert import folder  # noqa: E402
from xnord_convert.network import Network  # noqa: E402
from xnord_convert.onnx_file import convert  # noqa: E402
from xnord_convert.preprocess import Preprocessing  # noqa: E402
from xnord_convert.run_folder import Folder  # noqa: E402

onnxruntime.set_default_logger_severity(3)


def nodes(text: str) -> list[onnx.NodeProto]:
    """Of a graph in ONNX' own text: "s = Sign(x); odd: y = Conv<pads=[1, 1, 1, 1]>(s, w)", where a
    name may stand in front of a node."""
    found = []
    for line in filter(None, map(str.strip, text.split(";"))):
        name, _, node = line.rpartition(": ")
        found.append(parser.parse_node(node))
        found[-1].name = name
    return found


class Case(unittest.TestCase):
    def setUp(self) -> None:
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.path = Path(temporary.name)
        self.random = np.random.default_rng(20260728)

    def run_network(self, net: Network, images: np.ndarray) -> np.ndarray:
        net.outputs = net.outputs or [("y", net.last)]
        folder.write(self.path / "m", net, "m", None, "fp32", None)
        return Folder(self.path / "m").run(images)[net.outputs[0][0]]

    def assert_close(self, got: Any, want: Any, tolerance: float = 1e-6) -> None:
        np.testing.assert_allclose(np.asarray(got), np.asarray(want), tolerance, tolerance)


class Graphs(Case):
    """Small graphs beside onnxruntime; x is [N, 4, 6, 5] where nothing else is said."""

    def graph(self, text: str, shape: tuple[int, ...] = (4, 6, 5), **constants: Any) -> Path:
        graph = helper.make_graph(
            nodes(text),
            "g",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", *shape])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
            [
                numpy_helper.from_array(np.asarray(values), name)
                for name, values in constants.items()
            ],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        onnx.save(model, self.path / "g.onnx")
        return self.path / "g.onnx"

    def both(
        self,
        text: str,
        shape: tuple[int, ...] = (4, 6, 5),
        images: Optional[np.ndarray] = None,
        **constants: Any,
    ) -> list[dict[str, Any]]:
        """Asserts that both give the same; the layers."""
        path = self.graph(text, shape, **constants)
        if images is None:
            images = self.random.integers(-4, 5, (3, *shape)).astype("f4") / 4
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        (want,) = session.run(None, {"x": images})
        net = convert(path, Preprocessing())
        net.drop_unread()
        got = self.run_network(net, images)
        self.assert_close(got.reshape(want.shape), want, 1e-5)
        return net.layers

    def ops(self, layers: list[dict[str, Any]]) -> list[str]:
        return [layer["op"] + (" " + layer["mode"] if "mode" in layer else "") for layer in layers]

    def weight(self, *shape: int) -> np.ndarray:
        return self.random.standard_normal(shape).astype("f4")

    def signs(self, *shape: int) -> np.ndarray:
        return (self.random.integers(0, 2, shape) * 2 - 1).astype("f4")
