"""What the walk over an ONNX graph knows of a tensor."""

from dataclasses import dataclass, field, replace
from typing import Any, Optional, Union

import numpy as np
import onnx

from .network import Network


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
