"""A network in the making: layers and tensors as config.json and model.safetensors have them.

Every method adds a layer and gives its name back, by which later layers read it.
"""

from typing import Any, Optional

import numpy as np

from . import ConvertError, bits
from .numbers import Norm

Size = tuple[int, int]


class Network:
    def __init__(self, name: str, channels: int, height: int, width: int):
        self.input, self.shape = name, (channels, height, width)  # of an image
        self.datatype, self.layout = "FP32", "NCHW"
        self.picture: dict[str, Any] = {}  # how an encoded picture becomes the input
        self.layers: list[dict[str, Any]] = []
        self.tensors: dict[str, np.ndarray] = {}
        self.outputs: list[tuple[str, str]] = []  # name, layer; none: the last layer's
        self.zeros: dict[str, int] = {}  # binary weights that are exactly 0, by layer
        # Layers of whose input's sign the file has 0 at 0, and what the file calls them (zeros.py).
        self.doubtful: dict[str, str] = {}
        self.notes: list[str] = []
        self.same_outputs = True  # as the file's: nothing at the end was left out
        self._channels = {self.input: channels}

    @property
    def last(self) -> str:
        return self.layers[-1]["name"] if self.layers else self.input

    def channels(self, layer: str) -> int:
        return self._channels[layer]

    def add(
        self,
        op: str,
        name: str,
        inputs: list[str],
        channels: int,
        tensors: Optional[dict[str, Optional[np.ndarray]]] = None,
        **members: Any,
    ) -> str:
        if name in self._channels:
            raise ConvertError(f'two layers are called "{name}"')
        layer: dict[str, Any] = {"op": op, "name": name}
        if inputs != [self.last]:
            layer["inputs"] = inputs
        layer.update(members)
        for part, values in (tensors or {}).items():
            if values is not None:
                self.tensors[f"{name}.{part}"] = values
        self.layers.append(layer)
        self._channels[name] = channels
        return name

    def unused_name(self, name: str) -> str:
        if name not in self._channels:
            return name
        number = 2
        while f"{name}_{number}" in self._channels:
            number += 1
        return f"{name}_{number}"

    # ---- convolutions and dense layers ----

    def conv(
        self,
        name: str,
        x: str,
        weight: np.ndarray,
        mode: str = "float",
        scale: Optional[np.ndarray] = None,
        bias: Optional[np.ndarray] = None,
        **window: Any,
    ) -> str:
        """window: stride, padding, dilation, groups, pad_value, where they are not the default.
        A weight of rank 2 makes a dense layer."""
        if mode != "float":
            self._count_zeros(name, weight)
            window["packed_channels"] = weight.shape[1]
            weight = bits.pack(weight)
        else:
            weight = real(weight)
        members = {key: value for key, value in window.items() if value != DEFAULTS.get(key)}
        tensors = {"weight": weight, "scale": real(scale), "bias": real(bias)}
        return self.add("conv", name, [x], len(weight), tensors, mode=mode, **members)

    def _count_zeros(self, name: str, weight: np.ndarray) -> None:
        zeros = int(np.count_nonzero(weight == 0))
        if zeros:
            self.zeros[name] = zeros
        if not np.isfinite(weight).all():
            raise ConvertError(f'layer "{name}": its weight has values that are not finite')

    # ---- everything else ----

    def sign(self, name: str, x: str, shift: Optional[np.ndarray] = None) -> str:
        return self.add("sign", name, [x], self.channels(x), {"shift": real(shift)})

    def affine(
        self,
        name: str,
        x: str,
        scale: Optional[np.ndarray] = None,
        bias: Optional[np.ndarray] = None,
    ) -> str:
        return self.add(
            "affine", name, [x], self.channels(x), {"scale": real(scale), "bias": real(bias)}
        )

    def norm(self, name: str, x: str, norm: Norm, eps: float) -> str:
        return self.affine(name, x, *norm.fold(eps))

    def prelu(self, name: str, x: str, slope: np.ndarray) -> str:
        return self.add("prelu", name, [x], self.channels(x), {"slope": real(slope)})

    def leaky_relu(self, name: str, x: str, slope: float) -> str:
        return self.add("prelu", name, [x], self.channels(x), slope=slope)

    def relu(self, name: str, x: str) -> str:
        return self.leaky_relu(name, x, 0)

    def clip(self, name: str, x: str, low: float, high: float) -> str:
        return self.add("clip", name, [x], self.channels(x), min=low, max=high)

    def sum(self, name: str, *inputs: str) -> str:
        return self.add("add", name, list(inputs), self.channels(inputs[0]))

    def mul(self, name: str, x: str, gate: str) -> str:
        return self.add("mul", name, [x, gate], self.channels(x))

    def concat(self, name: str, *inputs: str) -> str:
        return self.add("concat", name, list(inputs), sum(self.channels(x) for x in inputs))

    def slice(self, name: str, x: str, begin: int, end: int) -> str:
        return self.add("slice", name, [x], end - begin, **{"from": begin, "to": end})

    def max_pool(self, name: str, x: str, kernel: Any, **window: Any) -> str:
        return self.add("max_pool", name, [x], self.channels(x), kernel=kernel, **window)

    def avg_pool(self, name: str, x: str, kernel: Any, **window: Any) -> str:
        return self.add("avg_pool", name, [x], self.channels(x), kernel=kernel, **window)

    def flatten(self, name: str, x: str, elements: int) -> str:
        return self.add("flatten", name, [x], elements)

    def softmax(self, name: str, x: str) -> str:
        return self.add("softmax", name, [x], self.channels(x))

    def sigmoid(self, name: str, x: str) -> str:
        return self.add("sigmoid", name, [x], self.channels(x))

    def quantize(self, name: str, x: str, step: float, low: int, high: int) -> str:
        return self.add("quantize", name, [x], self.channels(x), step=step, min=low, max=high)

    def top_k(self, name: str, x: str, k: int, largest: bool) -> str:
        return self.add("top_k", name, [x], 2, k=k, largest=largest)

    # ---- the whole ----

    def leave_softmax_out(self) -> None:
        """Of outputs that are a softmax: what that reads."""
        order = [self.input] + [layer["name"] for layer in self.layers]
        softmax = {
            layer["name"]: layer.get("inputs", [before])[0]
            for before, layer in zip(order, self.layers)
            if layer["op"] == "softmax"
        }
        self.same_outputs &= not any(layer in softmax for _, layer in self.outputs)
        self.outputs = [
            ("logits" if name == "probabilities" else name, softmax.get(layer, layer))
            for name, layer in self.outputs
        ]

    def drop_unread(self) -> None:
        """Takes out the layers that no output needs."""
        wanted = {layer for _, layer in self.outputs} or {self.last}
        order = [layer["name"] for layer in self.layers]
        before = dict(zip(order, [self.input] + order))
        kept = []
        for layer in reversed(self.layers):
            if layer["name"] in wanted:
                layer["inputs"] = layer.get("inputs") or [before[layer["name"]]]
                wanted.update(layer["inputs"])
                kept.append(layer)
        self.layers = kept[::-1]
        names = [layer["name"] for layer in self.layers]
        for layer, previous in zip(self.layers, [self.input] + names):
            if layer["inputs"] == [previous]:
                del layer["inputs"]
        self.tensors = {
            tensor: values
            for tensor, values in self.tensors.items()
            if tensor.rpartition(".")[0] in wanted
        }
        self.zeros = {name: count for name, count in self.zeros.items() if name in wanted}
        self.doubtful = {name: text for name, text in self.doubtful.items() if name in wanted}


DEFAULTS = {"stride": 1, "padding": 0, "dilation": 1, "groups": 1, "pad_value": 0}


def real(values: Optional[np.ndarray]) -> Optional[np.ndarray]:
    return None if values is None else np.ascontiguousarray(values, np.float32)
