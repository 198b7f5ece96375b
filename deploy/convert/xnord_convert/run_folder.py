"""A model folder, computed by PyTorch: a second reading of MODELS.md, layer by layer as it is
written there, with nothing folded. Slow; for checks and tests."""

import json
from pathlib import Path
from typing import Any, Callable, Optional

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from . import bits
from .folder import read_tensors


def pair(value: Any) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else tuple(value)


def pads(
    padding: Any, size: tuple[int, int], extent: tuple[int, int], stride: tuple[int, int]
) -> tuple[int, int, int, int]:
    """top, left, bottom, right; extent is what a dilated kernel spans."""
    if padding == "valid":
        return 0, 0, 0, 0
    if padding == "same":
        total = [max((-(-n // s) - 1) * s + e - n, 0) for n, e, s in zip(size, extent, stride)]
        return total[0] // 2, total[1] // 2, total[0] - total[0] // 2, total[1] - total[1] // 2
    if isinstance(padding, int) or len(padding) == 2:
        return pair(padding) * 2
    return tuple(padding)


def sign(x: Tensor) -> Tensor:
    return torch.where(x >= 0, 1.0, -1.0).to(x.dtype)


class Folder:
    """The network of a folder, computed in `dtype`."""

    def __init__(self, folder: Path, dtype: torch.dtype = torch.float64):
        self.config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        self.dtype = dtype
        self.packed = {
            layer["name"]: layer["packed_channels"]
            for layer in self.config["layers"]
            if "packed_channels" in layer
        }
        self.tensors = {
            name: self._tensor(name, values)
            for name, values in read_tensors(folder / "model.safetensors").items()
        }

    def _tensor(self, name: str, values: np.ndarray) -> Tensor:
        layer, _, part = name.rpartition(".")
        if part == "weight" and layer in self.packed:
            values = bits.unpack(values, self.packed[layer])
        return torch.from_numpy(values.astype(np.float64)).to(self.dtype)

    def outputs(self) -> list[tuple[str, str]]:
        """Name and layer of each."""
        given = self.config.get("outputs", [self.config.get("output", {})])
        last = self.config["layers"][-1]["name"]
        named = [{"layer": item} if isinstance(item, str) else item for item in given]
        return [
            (item.get("name", item.get("layer", last)), item.get("layer", last)) for item in named
        ]

    def run(self, images: np.ndarray, every: bool = False) -> dict[str, np.ndarray]:
        """Outputs by their names, [N, C] or [N, C, H, W]; with `every` all layers by theirs."""
        values = self.layers(images)
        wanted = [(name, name) for name in values] if every else self.outputs()
        return {name: squeezed(values[layer]).numpy() for name, layer in wanted}

    def layers(self, images: np.ndarray) -> dict[str, Tensor]:
        about = self.config["input"]
        x = torch.from_numpy(np.asarray(images, np.float64)).to(self.dtype)
        if x.ndim == 2:
            x = x[:, :, None, None]
        elif about.get("layout") == "NHWC":
            x = x.permute(0, 3, 1, 2).contiguous()
        name = about.get("name", "input")
        values = {name: x}
        for layer in self.config["layers"]:
            inputs = [values[source] for source in layer.get("inputs", [name])]
            name = layer["name"]
            values[name] = OPS[layer["op"]](self, layer, *inputs)
        return values

    def tensor(self, layer: dict[str, Any], part: str) -> Optional[Tensor]:
        """As [1, C, 1, 1], or [1, C, H, W], of [C] and [C, H, W]."""
        values = self.tensors.get(f"{layer['name']}.{part}")
        if values is None:
            return None
        return values.reshape(1, -1, 1, 1) if values.ndim == 1 else values[None]

    # ---- ops ----

    def conv(self, layer: dict[str, Any], x: Tensor) -> Tensor:
        weight = self.tensors[f"{layer['name']}.weight"]
        weight = weight[:, :, None, None] if weight.ndim == 2 else weight
        mode = layer.get("mode", "float")
        values = x
        if mode != "float":
            weight = sign(weight)
        if mode == "xnor":
            x = sign(x)
        stride, dilation = pair(layer.get("stride", 1)), pair(layer.get("dilation", 1))
        extent = tuple((k - 1) * d + 1 for k, d in zip(weight.shape[2:], dilation))
        edges = pads(layer.get("padding", 0), tuple(x.shape[2:]), extent, stride)
        x = padded(x, edges, layer.get("pad_value", 0))
        groups = layer.get("groups", 1)
        y = F.conv2d(x, weight, None, stride, 0, dilation, groups)
        if layer.get("k_map"):
            y = y * k_map(values, weight, edges, stride, dilation, groups)
        return self._scaled(layer, y)

    def _scaled(self, layer: dict[str, Any], x: Tensor) -> Tensor:
        scale, bias = self.tensor(layer, "scale"), self.tensor(layer, "bias")
        x = x if scale is None else x * scale
        return x if bias is None else x + bias

    def sign(self, layer: dict[str, Any], x: Tensor) -> Tensor:
        shift = self.tensor(layer, "shift")
        return sign(x if shift is None else x + shift)

    def prelu(self, layer: dict[str, Any], x: Tensor) -> Tensor:
        slope = layer["slope"] if "slope" in layer else self.tensor(layer, "slope")
        return torch.where(x >= 0, x, slope * x)

    def clip(self, layer: dict[str, Any], x: Tensor) -> Tensor:
        return x.clamp(layer.get("min", -1), layer.get("max", 1))

    def add(self, layer: dict[str, Any], *inputs: Tensor) -> Tensor:
        return sum(inputs[1:], inputs[0])

    def mul(self, layer: dict[str, Any], x: Tensor, gate: Tensor) -> Tensor:
        return x * gate

    def concat(self, layer: dict[str, Any], *inputs: Tensor) -> Tensor:
        return torch.cat(inputs, 1)

    def slice(self, layer: dict[str, Any], x: Tensor) -> Tensor:
        return x[:, layer["from"] : layer["to"]]

    def pool(self, layer: dict[str, Any], x: Tensor) -> Tensor:
        kernel = tuple(x.shape[2:]) if layer["kernel"] == "global" else pair(layer["kernel"])
        stride = pair(layer.get("stride", kernel))
        edges = pads(layer.get("padding", 0), tuple(x.shape[2:]), kernel, stride)
        if layer["op"] == "max_pool":
            return F.max_pool2d(padded(x, edges, -torch.inf), kernel, stride)
        ones = padded(torch.ones_like(x), edges, float(layer.get("count_padding", False)))
        return F.avg_pool2d(padded(x, edges, 0), kernel, stride) / F.avg_pool2d(
            ones, kernel, stride
        )

    def flatten(self, layer: dict[str, Any], x: Tensor) -> Tensor:
        return x.flatten(1)[:, :, None, None]

    def softmax(self, layer: dict[str, Any], x: Tensor) -> Tensor:
        return x.softmax(1)

    def sigmoid(self, layer: dict[str, Any], x: Tensor) -> Tensor:
        return x.sigmoid()

    def quantize(self, layer: dict[str, Any], x: Tensor) -> Tensor:
        return (x / layer["step"]).round().clamp(layer["min"], layer["max"]) * layer["step"]


OPS: dict[str, Callable[..., Tensor]] = {
    "conv": Folder.conv,
    "sign": Folder.sign,
    "affine": Folder._scaled,
    "prelu": Folder.prelu,
    "clip": Folder.clip,
    "add": Folder.add,
    "mul": Folder.mul,
    "concat": Folder.concat,
    "slice": Folder.slice,
    "max_pool": Folder.pool,
    "avg_pool": Folder.pool,
    "flatten": Folder.flatten,
    "softmax": Folder.softmax,
    "sigmoid": Folder.sigmoid,
    "quantize": Folder.quantize,
}


def padded(x: Tensor, edges: tuple[int, int, int, int], value: float) -> Tensor:
    top, left, bottom, right = edges
    return F.pad(x, (left, right, top, bottom), value=value) if any(edges) else x


def k_map(
    x: Tensor,
    weight: Tensor,
    edges: tuple[int, int, int, int],
    stride: tuple[int, int],
    dilation: tuple[int, int],
    groups: int,
) -> Tensor:
    """XNOR-Net's K: the mean magnitude of each group's channels, under a box of the kernel's
    size."""
    count, channels, height, width = x.shape
    mean = x.abs().reshape(count, groups, channels // groups, height, width).mean(2)
    kernel = tuple(weight.shape[2:])
    box = torch.full((groups, 1, *kernel), 1 / (kernel[0] * kernel[1]), dtype=x.dtype)
    k = F.conv2d(padded(mean, edges, 0), box, None, stride, 0, dilation, groups)
    return k.repeat_interleave(len(weight) // groups, 1)


def squeezed(x: Tensor) -> Tensor:
    return x[:, :, 0, 0] if x.ndim == 4 and x.shape[2] == x.shape[3] == 1 else x
