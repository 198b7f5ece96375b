"""What the walk over an ONNX graph knows of a tensor."""

from dataclasses import dataclass, field, replace
from typing import Any, Callable, Optional, Union

import numpy as np
import onnx

from .network import Network
from .numbers import double


class Unexpressible(Exception):
    """Why a node has no layer."""


@dataclass
class Node:
    op: str
    name: str
    inputs: list[str]  # "" where left out
    outputs: list[str]
    attributes: dict[str, Any]
    domain: str

    @staticmethod
    def of(node: onnx.NodeProto) -> "Node":
        attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        return Node(
            node.op_type,
            node.name or (node.output[0] if node.output else node.op_type),
            list(node.input),
            list(node.output),
            attributes,
            node.domain,
        )

    def proto(self) -> onnx.NodeProto:
        return onnx.helper.make_node(
            self.op, self.inputs, self.outputs, domain=self.domain, **self.attributes
        )

    def text(self, name: str, default: str) -> str:
        value = self.attributes.get(name, default)
        return value.decode() if isinstance(value, bytes) else value


@dataclass(frozen=True)
class Padding:
    """A Pad node that the next window takes."""

    edges: tuple[int, int, int, int]  # top, left, bottom, right
    value: float


@dataclass(frozen=True)
class Value:
    """A tensor that depends on the image.

    With levels it has two values only: levels[0] where the sign layer `layer` is -1, levels[1]
    where it is +1; comparisons are such, with 0 and 1. That a value is channels-last means that
    ONNX sees [H, W, C] where the layer has [C, H, W], the shape here; flat_from, that it is the
    flattening of such a one."""

    layer: str
    shape: tuple[int, ...]  # [C, H, W] or [C], without the batch
    levels: Optional[tuple[float, float]] = None
    padding: Optional[Padding] = None
    channels_last: bool = False
    flat_from: Optional[tuple[int, int, int]] = None

    def but(self, **changes: Any) -> "Value":
        return replace(self, **changes)


Found = Union[Value, np.ndarray]


@dataclass
class Walk:
    net: Network
    batch: int = 1  # as the graph has it
    opset: int = 20
    last: set[str] = field(default_factory=set)  # outputs that no node reads
    values: dict[str, Found] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    _real: dict[tuple[str, tuple[float, float]], str] = field(default_factory=dict)

    def value(self, node: Node, index: int) -> Value:
        """An input that must depend on the image."""
        found = self.values[node.inputs[index]]
        if not isinstance(found, Value):
            raise Unexpressible(f"its input {index} is a constant")
        return found

    def plain(self, node: Node, index: int) -> Value:
        """The same, which is not padded and channels-first."""
        found = self.value(node, index)
        if found.padding:
            raise Unexpressible(
                "it reads what a Pad made, which only Sign, convolutions and pools may here"
            )
        if found.channels_last:
            raise Unexpressible("it reads a tensor that was transposed to channels-last")
        return found

    def constant(self, node: Node, index: int, what: str) -> Optional[np.ndarray]:
        """None where it is left out."""
        if index >= len(node.inputs) or not node.inputs[index]:
            return None
        found = self.values[node.inputs[index]]
        if isinstance(found, Value):
            raise Unexpressible(f"its {what} depends on the image; it must be a constant")
        return found

    def needed(self, node: Node, index: int, what: str) -> np.ndarray:
        found = self.constant(node, index, what)
        if found is None:
            raise Unexpressible(f"its {what} is missing")
        return found

    def real(self, value: Value) -> str:
        """The layer with its values."""
        if value.levels is None or value.levels == (-1, 1):
            return value.layer
        key = (value.layer, value.levels)
        if key not in self._real:
            low, high = value.levels
            self._real[key] = self.net.affine(
                self.net.unused_name(f"{value.layer}.levels"),
                value.layer,
                np.array([(high - low) / 2]),
                np.array([(high + low) / 2]),
            )
        return self._real[key]

    def name(self, node: Node) -> str:
        """Of a layer for it; names of layers have no control characters and at most 255 bytes."""
        text = "".join(c for c in node.name.strip("/") if c.isprintable())
        return self.net.unused_name(text.encode()[:200].decode(errors="ignore") or node.op)


# ---- what several operators ask ----

Op = Callable[[Walk, Node], Any]


def single(values: np.ndarray, what: str) -> float:
    if values.size != 1:
        raise Unexpressible(f"its {what} has {values.size} values; it must have one")
    return float(values.reshape(()))


def channel_values(value: Value, constant: np.ndarray) -> tuple[bool, np.ndarray]:
    """Whether a constant is one value or one a channel, and as [1] or [C]."""
    spatial = len(value.shape) == 3
    shape = constant.shape
    while len(shape) > len(value.shape) and shape[0] == 1:
        shape = shape[1:]
    if constant.size == 1:
        return True, double(constant).reshape(1)
    wanted = (value.shape[0], 1, 1) if spatial else value.shape
    return shape == wanted, double(constant).reshape(-1)


def scaled_levels(value: Value, scale: float, bias: float) -> Value:
    low, high = value.levels  # type: ignore[misc]
    return value.but(
        levels=(low * scale + bias, high * scale + bias),
        padding=value.padding and Padding(value.padding.edges, value.padding.value * scale + bias),
    )


def check_axis(node: Node, value: Value, axis: int) -> None:
    rank = len(value.shape) + 1
    if axis % rank != 1:
        raise Unexpressible(f"its axis is {axis}; it must be 1, that of the channels")


def seen_shape(value: Value) -> tuple[int, ...]:
    """As ONNX sees it."""
    if value.channels_last:
        return (*value.shape[1:], value.shape[0])
    return value.shape


def pair(node: Node, name: str, default: int = 1) -> list[int]:
    found = [int(n) for n in node.attributes.get(name, [default] * 2)]
    if len(found) != 2:
        raise Unexpressible(f"its {name} is {found}; only windows of two dimensions have layers")
    return found


def decimal(value: float) -> float:
    """The decimal number that was meant by a value that is stored as FP32."""
    return float(np.format_float_positional(np.float32(value), unique=True))
