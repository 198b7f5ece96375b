#!/usr/bin/env python3
"""The converter changes no network silently: the sign of 0, checkpoints of other architectures,
--check's verdict, and errors that are one line. And it takes what people export.

make test-networks
"""

import io
import json
import logging
import os
import re
import stat
import subprocess
import sys
import unittest
import warnings
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, Callable, Optional

import numpy as np
import onnx
import onnxruntime
import save
import torch
import torch.nn.functional as F
from definitions import QuickNet, ReActNetA
from graphs import ROOT, Case, Graphs, nodes
from onnx import helper
from torch import Tensor, nn
from xnord_convert import ConvertError, check, cli, zeros
from xnord_convert.network import Network
from xnord_convert.onnx_file import convert
from xnord_convert.preprocess import Preprocessing

XNORD = Path(os.environ.get("XNORD_BIN", ROOT / "build/xnord"))


def run(*arguments: Any) -> tuple[int, str, str]:
    """The converter's exit status, and what it prints."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        status = cli.main(list(map(str, arguments)))
    return status, out.getvalue(), err.getvalue()


class SignOfZero(Graphs):
    """Each graph makes "t", which "odd" takes the sign of. What the analysis says is compared with
    what ONNX Runtime computes: exact zeros, or none."""

    def setUp(self) -> None:
        super().setUp()
        self.constants = {
            "w": self.weight(4, 4, 3, 3),
            "binary": self.signs(4, 4, 3, 3),
            "binary27": self.signs(4, 3, 3, 3),
            "gamma": self.weight(4) + 2,
            "beta": self.weight(4),
            "mean": self.weight(4),
            "variance": np.abs(self.weight(4)) + 1,
            "some": self.weight(1, 4, 1, 1),
            "quarter": np.float32(0.25),
            "four": np.float32(4),
            "none": np.float32(0),
            "one": np.float32(1),
            "minus": np.float32(-1),
            "first": np.array([0]),
            "third": np.array([3]),
            "last": np.array([4]),
            "axis": np.array([1]),
        }

    real = "c = Conv(x, w); r = BatchNormalization(c, gamma, beta, mean, variance); "
    relu = real + "u = Relu(r); "
    dots = real + "g = GreaterOrEqual(r, none); b = Where(g, one, minus); "
    norm = "gamma, beta, mean, variance"
    # Whether it can be 0.
    graphs = {
        "the input": (True, "t = Neg(x)"),
        "a convolution without a bias": (True, "t = Conv(x, w)"),
        "a norm": (False, real + "t = Neg(r)"),
        "ReLU": (True, relu + "t = Mul(u, some)"),
        "ReLU and a norm": (False, relu + f"t = BatchNormalization(u, {norm})"),
        "hardtanh": (False, real + "t = Clip(r, minus, one)"),
        "a clip to 0": (True, real + "t = Clip(r, none, one)"),
        "a clip, less 1": (True, real + "h = Clip(r, minus, one); t = Sub(h, one)"),
        "integers": (True, real + "i = Round(r); t = Add(i, four)"),
        "others": (False, real + "i = Round(r); t = Add(i, quarter)"),
        "largest": (True, relu + "t = MaxPool<kernel_shape=[2, 2]>(u)"),
        "means": (True, relu + "t = AveragePool<kernel_shape=[2, 2]>(u)"),
        "both": (True, relu + "t = Concat<axis=1>(r, u)"),
        "the first": (False, relu + "a = Concat<axis=1>(r, u); t = Slice(a, first, last, axis)"),
        "a flattening": (True, relu + "t = Flatten(u)"),
        "dots": (True, dots + "t = Conv(b, binary)"),
        "odd dots": (False, dots + "s = Slice(b, first, third, axis); t = Conv(s, binary27)"),
        "odd dots, padded": (
            True,
            dots + "s = Slice(b, first, third, axis); t = Conv<pads=[1, 1, 1, 1]>(s, binary27)",
        ),
        "dots, normalised": (
            False,
            dots + f"d = Conv(b, binary); t = BatchNormalization(d, {norm})",
        ),
        "dots, moved by an integer": (True, dots + "d = Conv(b, binary); t = Add(d, four)"),
        "a difference": (True, relu + "t = Sub(r, u)"),
        "a sum": (
            False,
            relu + f"x2 = Conv(x, w); b2 = BatchNormalization(x2, {norm}); t = Add(r, b2)",
        ),
        "two signs": (
            True,
            dots + "l = Less(r, quarter); m = Where(l, one, minus); t = Add(b, m)",
        ),
        "a gate": (True, relu + "p = GlobalMaxPool(u); t = Mul(u, p)"),
    }

    def test_what_can_be_zero(self) -> None:
        images = self.random.standard_normal((40, 4, 6, 5)).astype("f4")
        images[0], images[1, :, :3] = 0, 0
        for name, (zero, text) in self.graphs.items():
            with self.subTest(name):
                path = self.graph(f"{text}; y = Identity(t)", **self.constants)
                session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
                (values,) = session.run(None, {"x": images})
                self.assertEqual(bool((values == 0).any()), zero, "the test's own claim")
                path = self.graph(f"{text}; odd: s = Sign(t); y = Neg(s)", **self.constants)
                net = convert(path, Preprocessing())
                net.drop_unread()
                if not zero:
                    zeros.check(net, plus=False)
                    continue
                with self.assertRaisesRegex(ConvertError, '"odd" .Sign.*--sign-zero=plus'):
                    zeros.check(net, plus=False)
                zeros.check(net, plus=True)
                self.assertIn("becomes +1", net.notes[-1])

    def test_numbers_and_their_sum(self) -> None:
        """Dots and pixels of 0 through a clip: one of the graphs that chance found."""
        net = Network("x", 4, 6, 5)
        net.affine("a", net.clip("t", "x", -1, 1), np.array([1.6, -0.1, -0.4, 0.4]))
        net.conv("c", net.sign("g", "t"), np.ones((4, 4, 3, 3)), "xnor", padding=1)
        net.sign("odd", net.sum("s", "c", "a"))
        net.doubtful = {"odd": 'layer "odd"'}
        with self.assertRaisesRegex(ConvertError, 'layer "odd" behind'):
            zeros.check(net, plus=False)

    def test_pixels_are_known(self) -> None:
        """UINT8 is 0 to 255: whether its sign can be that of 0 depends on what is subtracted."""
        path = self.graph("s = Sign(x); y = Neg(s)")
        zeros.check(convert(path, Preprocessing("UINT8", mean=[0.5], std=[0.5])), plus=False)
        with self.assertRaisesRegex(ConvertError, "Sign"):
            zeros.check(convert(path, Preprocessing("UINT8")), plus=False)

    def test_families(self) -> None:
        """Their sign(0) is their authors': a dead channel in front of torch.sign is an error."""
        net = Network("x", 2, 1, 1)
        net.affine("bn", net.relu("relu", "x"), np.array([1.0, 1]), np.array([0.5, 0]))
        net.conv("c", "bn", np.ones((3, 2)), "xnor")
        net.doubtful = {"c": 'layer "c"'}
        with self.assertRaisesRegex(ConvertError, 'layer "c" behind'):
            zeros.check(net, plus=False)
        net.tensors["bn.bias"][1] = 0.25
        zeros.check(net, plus=False)

    def test_a_pad_of_zeros_stays_one(self) -> None:
        """torch.sign behind F.pad leaves 0 outside, which counts nothing."""
        layers = self.both(
            "p = Pad(x, pads); s = Sign(p); y = Conv(s, w)",
            images=self.random.standard_normal((2, 4, 6, 5)).astype("f4"),
            pads=np.array([0, 0, 1, 1, 0, 0, 1, 1]),
            w=self.signs(3, 4, 3, 3),
        )
        self.assertEqual(self.ops(layers), ["sign", "conv xnor"])

    def test_command_line(self) -> None:
        path = self.graph(
            "r = Relu(x); odd: s = Sign(r); y = Conv(s, w)", w=self.signs(10, 4, 6, 5)
        )
        status, _, err = run(path, "-o", self.path / "m")
        self.assertEqual((status, (self.path / "m/config.json").exists()), (1, False))
        self.assertIn('node "odd" (Sign) behind "r" (prelu)', err)
        arguments = [path, "-o", self.path / "m", "--sign-zero=plus", "--xnord", XNORD]
        status, _, err = run(*arguments)
        self.assertEqual(status, 0)
        self.assertIn("sign(0) becomes +1", err)
        status, out, err = run(*arguments, "--check", "--check-images", 12)
        self.assertEqual(status, 1)
        self.assertRegex(out, r"Verdict: DIFFERENT\. \d+ of 12 images")
        self.assertRegex(out, r"\d+ of 12 in another class")


class Verdict(Case):
    def difference(self, got: np.ndarray, want: np.ndarray) -> check.Difference:
        return check.Difference.of(got, want, check.CLOSE["fp32"])

    def test_rounding_and_a_turned_sign(self) -> None:
        want = self.random.standard_normal((8, 10))
        near = want + self.random.standard_normal((8, 10)) * 1e-6
        self.assertTrue(self.difference(near, want).same)
        near[3] += 0.2
        found = self.difference(near, want)
        self.assertEqual((found.apart, found.same), (1, True))
        self.assertIn("turned a sign in 1 of 8", check.verdict(1, 8, 1e-4, True))

    def test_more_is_different(self) -> None:
        want = self.random.standard_normal((8, 10))
        far = want + 0.01
        found = self.difference(far, want)
        self.assertEqual((found.apart, found.classes, found.same), (8, 0, False))
        self.assertFalse(self.difference(np.full((8, 10), np.nan), want).same)
        swapped = want[:, ::-1]
        self.assertGreater(self.difference(swapped, want).classes, 2)
        self.assertFalse(self.difference(swapped[:1], want[:1]).same)


class Exported(Case):
    """What both of PyTorch's exporters make of what people write."""

    def export(
        self, forward: Callable[[nn.Module, Tensor], Tensor], dynamo: bool, shape: tuple[int, ...]
    ) -> Path:
        class Net(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.conv, self.dense = nn.Conv2d(4, 6, 3, bias=False), nn.Linear(4, 4)
                self.conv.weight.data.sign_()

            def forward(self, x: Tensor) -> Tensor:
                return forward(self, x)

        path, example = self.path / "e.onnx", torch.randn(2, *shape)
        logging.getLogger("torch.onnx").setLevel(logging.ERROR)
        more: dict[str, Any] = {"dynamo": False, "dynamic_axes": {"image": {0: "batch"}}}
        if dynamo:
            more = {"dynamic_shapes": ({0: torch.export.Dim("batch", min=1, max=64)},)}
        with warnings.catch_warnings(), redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            torch.onnx.export(
                Net().eval(), (example,), path, input_names=["image"], verbose=False, **more
            )
        return path

    def compare(
        self, forward: Callable[[nn.Module, Tensor], Tensor], shape: tuple[int, ...] = (4, 8, 8)
    ) -> None:
        for dynamo in (True, False):
            with self.subTest(dynamo=dynamo):
                path = self.export(forward, dynamo, shape)
                images = self.random.integers(-2, 3, (3, *shape)).astype("f4") / 2
                session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
                (want,) = session.run(None, {"image": images})
                net = convert(path, Preprocessing())
                net.drop_unread()
                zeros.check(net, plus=False)
                self.modes = [layer.get("mode") for layer in net.layers if layer["op"] == "conv"]
                self.assert_close(self.run_network(net, images).reshape(want.shape), want, 1e-5)

    def test_signs_that_are_ours(self) -> None:
        def replaced(x: Tensor) -> Tensor:
            found = torch.sign(x).clone()
            found[found == 0] = 1
            return found

        forms: list[Callable[[Tensor], Tensor]] = [
            lambda x: torch.where(x == 0, 1.0, torch.sign(x)),
            lambda x: torch.where(x == 0, torch.ones_like(x), torch.sign(x)),
            lambda x: torch.where(x >= 0, torch.ones_like(x), -torch.ones_like(x)),
            lambda x: torch.where(x > 0, torch.ones_like(x), -torch.ones_like(x)),
            lambda x: torch.sign(x).masked_fill(x == 0, 1.0),
            lambda x: torch.where(x == 0, -torch.ones_like(x), torch.sign(x)),
            lambda x: torch.sign(x) + (x == 0).float(),
            lambda x: torch.sign(torch.sign(x) + 0.1),
            replaced,
        ]
        for index, form in enumerate(forms):
            with self.subTest(index):
                self.compare(lambda net, x, form=form: net.conv(form(x)))
                self.assertEqual(self.modes, ["xnor"])

    def test_option_a_shortcuts(self) -> None:
        self.compare(lambda net, x: F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, 2, 2)))
        self.compare(lambda net, x: F.pad(x[:, :, ::2, ::3], (0, 0, 0, 0, 5, 9)), (4, 7, 9))
        self.compare(lambda net, x: torch.cat([x, torch.zeros_like(x)], 1)[:, :, ::2, ::2])
        self.compare(lambda net, x: F.pad(x, (0, 0, 0, 0, 0, 4), value=1.5))

    def test_squeeze_and_excitation(self) -> None:
        def gate(net: nn.Module, x: Tensor) -> Tensor:
            return torch.sigmoid(net.dense(F.adaptive_avg_pool2d(x, 1).flatten(1)))

        self.compare(lambda net, x: x * gate(net, x)[:, :, None, None])
        self.compare(lambda net, x: x * gate(net, x).unsqueeze(-1).unsqueeze(-1))
        self.compare(lambda net, x: x * gate(net, x).view(-1, 4, 1, 1).expand_as(x))


class Larq(Graphs):
    """The graphs that tf2onnx 1.17 makes of Larq's layers."""

    sign = "a = Sign(h); b = Add(a, tenth); s = Sign(b); "  # of h

    def test_pad_values(self) -> None:
        """The padding is a node of its own, of NHWC."""
        layers = self.both(
            "n = Transpose<perm=[0, 3, 1, 2]>(x); c = Conv<pads=[1, 1, 1, 1]>(n, w1);"
            f"h = Transpose<perm=[0, 2, 3, 1]>(c); {self.sign} p = Pad(s, pads, one);"
            "q = Transpose<perm=[0, 3, 1, 2]>(p); y = Conv<strides=[2, 2]>(q, w2)",
            (6, 5, 3),
            images=self.random.standard_normal((2, 6, 5, 3)).astype("f4"),
            w1=self.weight(4, 3, 3, 3),
            w2=self.signs(5, 4, 3, 3),
            tenth=np.float32(0.1),
            one=np.float32(1),
            pads=np.array([0, 0, 1, 0, 0, 1, 1, 0]),
        )
        self.assertEqual(self.ops(layers), ["conv float", "sign", "conv xnor"])
        self.assertEqual((layers[-1]["pad_value"], layers[-1]["padding"]), (1, [0, 1, 1, 1]))

    def test_one_channel(self) -> None:
        """It is reshaped where several are transposed, at the input and behind it."""
        self.both(
            "n = Reshape(x, first); c = Conv<pads=[1, 1, 1, 1]>(n, w1); h = Reshape(c, last);"
            f"{self.sign} q = Reshape(s, first); y = Conv(q, w2)",
            (6, 5, 1),
            images=self.random.standard_normal((2, 6, 5, 1)).astype("f4"),
            first=np.array([-1, 1, 6, 5]),
            last=np.array([-1, 6, 5, 1]),
            w1=self.weight(1, 1, 3, 3),
            w2=self.signs(5, 1, 3, 3),
            tenth=np.float32(0.1),
        )
        config = json.loads((self.path / "m/config.json").read_text())
        self.assertEqual((config["input"]["layout"], config["input"]["shape"]), ("NHWC", [6, 5, 1]))


class OtherArchitectures(Case):
    def refused(self, text: str, family: str, file: Path) -> None:
        status, _, err = run("--family", family, file, "-o", self.path / "m", "--size", "64")
        self.assertEqual(status, 1, err)
        self.assertRegex(err, text)
        self.assertFalse((self.path / "m").exists())

    def test_quicknet_that_is_not_keras(self) -> None:
        """bitorch's has the same parts in the same order, and other padding."""
        tensors = {}
        for name, module in QuickNet(16, 5).order:
            tensors |= {f"{name}.{part}": values for part, values in module.state_dict().items()}
        torch.save(tensors, self.path / "a.pth")
        self.refused("no file of Keras", "quicknet", self.path / "a.pth")

    def test_keras_where_it_is_not(self) -> None:
        save.keras_net(QuickNet(16, 5), self.path / "a.h5")
        self.refused("a file of Keras", "xnor-alexnet", self.path / "a.h5")

    def test_real_weights(self) -> None:
        """ReActNet's first step is the same but for convolutions of PyTorch's own."""
        tensors = ReActNetA(4, 5).state_dict()
        sizes = {
            name: module.shape
            for name, module in ReActNetA(4, 5).named_modules()
            if hasattr(module, "shape")
        }
        step1 = {
            name.replace(".weights", ".weight"): (
                values.reshape(sizes[name.rpartition(".")[0]])
                if name.endswith(".weights")
                else values
            )
            for name, values in tensors.items()
        }
        torch.save({"state_dict": step1}, self.path / "a.pth.tar")
        self.refused("first of two steps", "reactnet-a", self.path / "a.pth.tar")

    def test_bit_widths_in_the_name(self) -> None:
        torch.save({"features.2.weight": torch.ones(4, 784)}, self.path / "tfc_2W2A-1.pth")
        self.refused("by its name it is 2w2a", "lfc", self.path / "tfc_2W2A-1.pth")

    def test_what_is_assumed_is_said(self) -> None:
        for family in ("cnv", "lfc", "reactnet18"):
            self.assertRegex(cli.family_list(), rf"{family} .*\n +assumed: ")


class OneLine(Case):
    """Errors, as a shell sees them."""

    def shell(self, *arguments: Any, without: str = "") -> str:
        """The line on stderr; `without` are modules that are not installed."""
        for name in without.split():
            (self.path / "none").mkdir(exist_ok=True)
            text = f"raise ModuleNotFoundError('No module named {name}', name='{name}')"
            (self.path / "none" / f"{name}.py").write_text(text)
        found = subprocess.run(
            [sys.executable, ROOT / "deploy/convert/xnord-convert", *map(str, arguments)],
            capture_output=True,
            text=True,
            cwd=self.path,
            env=os.environ | {"PYTHONPATH": str(self.path / "none")},
            check=False,
        )
        self.assertIn(found.returncode, (1, 2), found.stderr)
        self.assertNotIn("Traceback", found.stderr)
        return found.stderr.splitlines()[-1]

    def test_packages(self) -> None:
        (self.path / "a.onnx").write_bytes(b"")
        (self.path / "a.pth").write_bytes(b"")
        (self.path / "a.h5").write_bytes(b"")
        for module, file, family in (
            ("onnx", "a.onnx", ()),
            ("torch", "a.pth", ("--family", "nin")),
            ("h5py", "a.h5", ("--family", "quicknet")),
            ("numpy", "a.onnx", ()),
        ):
            line = self.shell(file, "-o", "m", "-q", *family, without=module)
            self.assertRegex(line, f"needs the Python package {module}: pip install {module}")

    def test_files(self) -> None:
        (self.path / "a.onnx").write_bytes(b"no protobuf")
        (self.path / "a.npz").write_bytes(b"no zip")
        (self.path / "a.pth").write_bytes(b"no pickle")
        (self.path / "a.safetensors").write_bytes(b"no header")
        (self.path / "file").write_bytes(b"")
        self.assertIn("No such file", self.shell("none.onnx", "-o", "m", "-q"))
        self.assertIn("no such file", self.shell("none.pth", "--family", "nin", "-o", "m", "-q"))
        self.assertIn("no ONNX file", self.shell("a.onnx", "-o", "m", "-q"))
        for name in ("a.npz", "a.pth", "a.safetensors"):
            self.assertIn(name, self.shell(name, "--family", "nin", "-o", "m", "-q"))
        self.assertIn("labels", self.shell("a.onnx", "-o", "m", "--labels", "labels"))
        self.assertIn("a 0", self.shell("--family", "nin", "a.npz", "-o", "m", "--std", "0,1,1"))
        self.assertIn("expected 1", self.shell("a.onnx", "-o", "m", "--check-images", "0"))

    def test_output_folder(self) -> None:
        made = QuickNet(16, 5)
        save.keras_net(made, self.path / "a.h5")
        (self.path / "file").write_bytes(b"")
        arguments = ["--family", "quicknet", "a.h5", "--size", "64", "-q"]
        self.assertIn("file", self.shell(*arguments, "-o", "file"))
        self.assertIn("file", self.shell(*arguments, "-o", "file/m"))
        if os.geteuid() != 0:
            self.path.chmod(stat.S_IRUSR | stat.S_IXUSR)
            self.assertIn("Permission denied", self.shell(*arguments, "-o", "m"))
            self.path.chmod(stat.S_IRWXU)

    def test_an_unknown_network_is_told_to_export(self) -> None:
        torch.save({"a.weight": torch.ones(2, 2)}, self.path / "a.pth")
        self.assertIn("torch.onnx.export(model", self.shell("a.pth", "-o", "m", "-q"))
        torch.save(nn.Linear(2, 2), self.path / "b.pth")
        self.assertIn("torch.onnx.export(", self.shell("b.pth", "-o", "m", "--family", "nin", "-q"))

    def test_a_graph_that_is_broken(self) -> None:
        graph = helper.make_graph(
            nodes("odd: y = Add(x, nowhere)"),
            "g",
            [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["N", 4, 6, 5])],
            [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)],
        )
        onnx.save(helper.make_model(graph), self.path / "g.onnx")
        self.assertIn('node "odd" (Add)', self.shell("g.onnx", "-o", "m", "-q"))


if __name__ == "__main__":
    unittest.main()
