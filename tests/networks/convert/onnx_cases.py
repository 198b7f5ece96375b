"""ONNX files of whole networks, exported by PyTorch, and QONNX as brevitas writes it; with images,
and what onnxruntime makes of them (PyTorch, of QONNX)."""

import io
import logging
import warnings
from contextlib import redirect_stdout
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import parameters
import torch
from cases import CASES, Case, images, model
from definitions import sign
from graphs import nodes
from onnx import TensorProto, helper, numpy_helper
from torch import nn

NAMES = [
    f"{name} onnx"
    for name in ("nin", "birealnet18", "reactnet-a", "vgg-cifar10", "lfc", "real-to-binary")
] + ["qonnx"]
COUNT = 12
Made = tuple[str, Path, np.ndarray, np.ndarray]


def made(name: str, files: Path, seed: int) -> Made:
    if name == "qonnx":
        return qonnx(files / "qonnx.onnx", seed)
    case = next(case for case in CASES if name == f"{case.name} onnx")
    return exported(case, name, files / (name.replace(" ", "-") + ".onnx"), seed)


def exported(case: Case, name: str, path: Path, seed: int) -> Made:
    found = model(case, False, seed).float().eval()
    example = torch.from_numpy(images(case, 2, False, seed))
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    with warnings.catch_warnings(), redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        torch.onnx.export(
            found,
            (example,),
            path,
            input_names=["image"],
            output_names=["logits"],
            dynamic_shapes=({0: torch.export.Dim("batch", min=1, max=64)},),
            verbose=False,
        )
    sent = images(case, COUNT, False, seed + 2)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return name, path, sent, session.run(None, {"image": sent})[0]


class Small(nn.Module):
    """A binary network as brevitas builds one: a quantised input, binary weights, 1-bit activations
    with a scale, a norm of one value."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 16, 3, bias=False), nn.BatchNorm2d(16, 1e-4)
        self.conv2, self.bn2 = nn.Conv2d(16, 32, 3, padding=1, bias=False), nn.BatchNorm2d(32)
        self.dense = nn.Linear(32 * 36, 10, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = (x * 16).round().clamp(-8, 7) / 16
        x = 0.5 * sign(self.bn1(nn.functional.conv2d(x, 0.25 * sign(self.conv1.weight))))
        x = nn.functional.conv2d(x, sign(self.conv2.weight), padding=1)
        x = nn.functional.max_pool2d(sign(self.bn2(x)), 2)
        return nn.functional.linear(x.flatten(1), sign(self.dense.weight)) * 0.125 - 0.5


def qonnx(path: Path, seed: int) -> Made:
    torch.manual_seed(seed)
    net = Small()
    parameters.randomise(net)
    images_ = np.random.default_rng(seed).standard_normal((COUNT, 3, 14, 14)).astype("f4")
    parameters.measure(net, torch.from_numpy(images_))
    onnx.save(qonnx_model(net), path)
    with torch.no_grad():
        return "qonnx", path, images_, net.double()(torch.from_numpy(images_).double()).numpy()


def qonnx_model(net: Small) -> onnx.ModelProto:
    weights = {
        name.replace(".", "_"): values.numpy().astype("f4")
        for name, values in net.state_dict().items()
        if not name.endswith("num_batches_tracked")
    }
    scalars = {
        "one": 1.0,
        "half": 0.5,
        "quarter": 0.25,
        "eighth": 0.125,
        "zero": 0.0,
        "four": 4.0,
        "sixteenth": 1 / 16,
    }
    constants = weights | {name: np.array(value, "f4") for name, value in scalars.items()}
    constants["flat"] = np.array([0, -1], np.int64)

    def norm(name: str) -> str:
        return ", ".join(
            f"{name}_{part}" for part in ("weight", "bias", "running_mean", "running_var")
        )

    own = "qonnx.custom_op.general"
    made = nodes(
        f'q = {own}.Quant<signed=1, narrow=0, rounding_mode="ROUND">(image, sixteenth, zero, four);'
        f"w1 = {own}.BipolarQuant(conv1_weight, quarter);"
        "c1 = Conv<kernel_shape=[3, 3]>(q, w1);"
        f"n1 = BatchNormalization<epsilon=1e-4>(c1, {norm('bn1')});"
        f"s1 = {own}.BipolarQuant(n1, half);"
        f"w2 = {own}.BipolarQuant(conv2_weight, one);"
        "c2 = Conv<kernel_shape=[3, 3], pads=[1, 1, 1, 1]>(s1, w2);"
        f"n2 = BatchNormalization<epsilon=1e-5>(c2, {norm('bn2')});"
        f"s2 = {own}.BipolarQuant(n2, one);"
        "p = MaxPool<kernel_shape=[2, 2], strides=[2, 2]>(s2);"
        "f = Reshape(p, flat);"
        f"w3 = {own}.BipolarQuant(dense_weight, one);"
        "d = Gemm<transB=1>(f, w3);"
        "m = Mul(d, eighth);"
        "logits = Sub(m, half)"
    )
    graph = helper.make_graph(
        made,
        "small",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["N", 3, 14, 14])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["N", 10])],
        [numpy_helper.from_array(values, name) for name, values in constants.items()],
    )
    return helper.make_model(
        graph,
        opset_imports=[
            helper.make_opsetid("", 17),
            helper.make_opsetid("qonnx.custom_op.general", 1),
        ],
    )
