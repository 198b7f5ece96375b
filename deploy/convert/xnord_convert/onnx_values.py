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

    @property
    def title(self) -> str:
        return f'node "{self.name}" ({self.op})'

    def text(self, name: str, default: str) -> str:
        value = self.attributes.get(name, default)
        return value.decode() if isinstance(value, bytes) else value


@dataclass(frozen=True)
class Padding:
    """A Pad node that the next window takes."""

    edges: tuple[int, int, int, int]  # top, left, bottom, right
    value: float


Levels = tuple[float, float, float]  # below 0, at 0, above 0


@dataclass(frozen=True)
class Value:
    """A tensor that depends on the image.

    With levels it has three values at most: what the sign layer `layer` reads is below 0, exactly
    0, or above. ONNX' sign has (-1, 0, 1), a layer always the same for the last two: Walk.settled
    makes them so. Comparisons are such too, with 0 and 1. That a value is channels-last means that
    ONNX sees [H, W, C] where the layer has [C, H, W], the shape here; flat_from, that it is the
    flattening of such a one; spread, that ONNX has repeated [C, 1, 1] over so many pixels."""

    layer: str
    shape: tuple[int, ...]  # [C, H, W] or [C], without the batch; [C, 1] between two Unsqueeze
    levels: Optional[Levels] = None
    padding: Optional[Padding] = None
    channels_last: bool = False
    flat_from: Optional[tuple[int, int, int]] = None
    spread: Optional[tuple[int, int]] = None

    def but(self, **changes: Any) -> "Value":
        return replace(self, **changes)


Found = Union[Value, np.ndarray]


@dataclass(frozen=True)
class Signed:
    """What a sign layer was made for."""

    node: Node
    x: str
    shift: Optional[np.ndarray]


@dataclass
class Walk:
    net: Network
    batch: int = 1  # as the graph has it
    opset: int = 20
    last: set[str] = field(default_factory=set)  # outputs that no node reads
    values: dict[str, Found] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    _real: dict[tuple[str, Levels], str] = field(default_factory=dict)
    _signs: dict[tuple[str, bytes], str] = field(default_factory=dict)
    _signed: dict[str, Signed] = field(default_factory=dict)

    def value(self, node: Node, index: int, spread: bool = False) -> Value:
        """An input that must depend on the image."""
        found = self.values[node.inputs[index]]
        if not isinstance(found, Value):
            raise Unexpressible(f"its input {index} is a constant")
        if found.spread and not spread:
            raise Unexpressible("it reads what an Expand made, which only Mul may here")
        return found

    def plain(self, node: Node, index: int, spread: bool = False) -> Value:
        """The same, which is not padded and channels-first."""
        found = self.value(node, index, spread)
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

    def sign(self, node: Node, x: str, shift: Optional[np.ndarray] = None) -> str:
        """The one layer that has the signs of x + shift."""
        if shift is not None and not shift.any():
            shift = None
        key = (x, b"" if shift is None else shift.tobytes())
        if key not in self._signs:
            name = self.net.sign(self.name(node), x, shift)
            self._signs[key] = name
            self._signed[name] = Signed(node, x, shift)
        return self._signs[key]

    def settled(self, value: Value) -> Value:
        """With the same level at 0 as above 0, as layers have it. Where ONNX has the one below, it
        is the sign of -x. Where it has a third, as of sign(0), the network remembers the layer."""
        if not value.levels or value.levels[1] == value.levels[2]:
            return value
        below, at, above = value.levels
        if at == below:
            return value.but(layer=self._turned(value.layer), levels=(above, below, below))
        if below == above:
            raise Unexpressible(
                f'"{self._signed[value.layer].node.name}" tells where a value is exactly 0, which '
                "has no layer but inside of a sign"
            )
        self.net.doubtful[value.layer] = self._signed[value.layer].node.title
        return value.but(levels=(below, above, above))

    def _turned(self, layer: str) -> str:
        key = (layer, b"turned")
        if key not in self._signs:
            signed = self._signed[layer]
            minus = None if signed.shift is None else -signed.shift
            name = self.net.unused_name(f"{layer}.negated")
            x = self.net.affine(name, signed.x, np.array([-1.0]), minus)
            self._signs[key] = self.net.sign(self.net.unused_name(f"{layer}.turned"), x)
        return self._signs[key]

    def real(self, value: Value) -> str:
        """The layer with its values."""
        value = self.settled(value)
        if value.levels is None or value.levels == (-1, 1, 1):
            return value.layer
        key = (value.layer, value.levels)
        if key not in self._real:
            low, _, high = value.levels
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
    if constant.size == 1 or uniform(value, constant):
        return True, double(constant).reshape(-1)[:1]
    wanted = (value.shape[0], 1, 1) if len(value.shape) == 3 else value.shape
    return without_batch(value, constant.shape) == wanted, double(constant).reshape(-1)


def without_batch(value: Value, shape: tuple[int, ...]) -> tuple[int, ...]:
    while len(shape) > len(value.shape) and shape[0] == 1:
        shape = shape[1:]
    return shape


def uniform(value: Value, constant: np.ndarray) -> bool:
    """Whether it is a tensor no larger than the value, with one number everywhere, as exporters
    make of ones_like."""
    seen, shape = seen_shape(value), without_batch(value, constant.shape)
    fits = len(shape) <= len(seen) and all(a in (1, b) for a, b in zip(shape[::-1], seen[::-1]))
    return fits and constant.size > 0 and bool((constant == constant.flat[0]).all())


def mapped(value: Value, function: Callable[[float], float]) -> Value:
    """A function of each level, and of what is padded."""
    below, at, above = value.levels  # type: ignore[misc]
    return value.but(
        levels=(float(function(below)), float(function(at)), float(function(above))),
        padding=value.padding
        and Padding(value.padding.edges, float(function(value.padding.value))),
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
