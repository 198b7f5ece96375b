"""Arithmetic with constants and between tensors; activations."""

from typing import Callable, Optional

import numpy as np

from .numbers import Norm, double
from .onnx_values import (
    Found,
    Node,
    Op,
    Unexpressible,
    Value,
    Walk,
    channel_values,
    check_axis,
    decimal,
    mapped,
    single,
)

# ---- arithmetic ----


def affine(
    walk: Walk, node: Node, value: Value, scale: Optional[np.ndarray], bias: Optional[np.ndarray]
) -> Value:
    """x * scale + bias, with constants as ONNX has them."""
    parts = [None if c is None else channel_values(value, c) for c in (scale, bias)]
    one = all(part is None or part[1].size == 1 for part in parts)
    if value.levels and one:
        times = 1.0 if parts[0] is None else float(parts[0][1][0])
        plus = 0.0 if parts[1] is None else float(parts[1][1][0])
        return mapped(value, lambda x: x * times + plus)
    if value.padding or (value.channels_last and not one):
        raise Unexpressible("it changes what is padded or channels-last")
    values = [
        None if c is None else part[1] if part[0] else whole(value, c)
        for c, part in zip((scale, bias), parts)
    ]
    if value.flat_from and not one:
        raise Unexpressible("it has a value for each element of a channels-last flattening")
    return value.but(layer=walk.net.affine(walk.name(node), walk.real(value), *values), levels=None)


def whole(value: Value, constant: np.ndarray) -> np.ndarray:
    """A constant as [C, H, W]."""
    try:
        if len(value.shape) != 3:
            raise ValueError
        found = np.broadcast_to(constant, (1, *value.shape))
    except ValueError:
        raise Unexpressible(
            f"its constant is {list(constant.shape)}, the other input {list(value.shape)} an image"
        ) from None
    return found[0]


def operands(walk: Walk, node: Node) -> tuple[list[Value], Optional[np.ndarray], int]:
    """The inputs that depend on the image, the constant one, and its index."""
    found: list[Found] = [walk.values[name] for name in node.inputs]
    values = [value for value in found if isinstance(value, Value)]
    index = next((i for i, value in enumerate(found) if isinstance(value, np.ndarray)), -1)
    return values, None if index < 0 else found[index], index  # type: ignore[return-value]


def both(walk: Walk, node: Node) -> tuple[Value, Value]:
    a, b = walk.plain(node, 0), walk.plain(node, 1)
    if a.shape != b.shape:
        raise Unexpressible(f"its inputs are {list(a.shape)} and {list(b.shape)} an image")
    return a, b


def add(walk: Walk, node: Node) -> Value:
    values, constant, _ = operands(walk, node)
    if constant is not None:
        return affine(walk, node, values[0], None, constant)
    a, b = both(walk, node)
    if a.levels and b.levels and a.layer == b.layer:  # sign(x) + (x == 0)
        return a.but(levels=tuple(map(sum, zip(a.levels, b.levels))))
    return a.but(layer=walk.net.sum(walk.name(node), walk.real(a), walk.real(b)), levels=None)


def sub(walk: Walk, node: Node) -> Value:
    values, constant, index = operands(walk, node)
    if constant is not None and index == 1:
        return affine(walk, node, values[0], None, -constant)
    if constant is not None:
        return affine(walk, node, values[0], np.array(-1.0), constant)
    a, b = both(walk, node)
    name = walk.name(node)
    minus = walk.net.affine(walk.net.unused_name(f"{name}.negated"), walk.real(b), np.array([-1.0]))
    return a.but(layer=walk.net.sum(name, walk.real(a), minus), levels=None)


def mul(walk: Walk, node: Node) -> Value:
    values, constant, _ = operands(walk, node)
    if constant is not None:
        return affine(walk, node, values[0], constant, None)
    a, b = walk.plain(node, 0, spread=True), walk.plain(node, 1, spread=True)
    if len(a.shape) == len(b.shape) == 3 and a.shape[0] == b.shape[0]:
        for x, gate in ((a, b), (b, a)):
            if gate.shape[1:] == (1, 1) and not x.spread and gate.spread in (None, x.shape[1:]):
                return Value(walk.net.mul(walk.name(node), walk.real(x), walk.real(gate)), x.shape)
    raise Unexpressible(
        f"its inputs are {list(a.shape)} and {list(b.shape)} an image; one must be a "
        "constant, or have one value a channel"
    )


def div(walk: Walk, node: Node) -> Value:
    values, constant, index = operands(walk, node)
    if constant is None or index == 0:
        raise Unexpressible("what it divides by depends on the image")
    return affine(walk, node, values[0], 1 / double(constant), None)


def neg(walk: Walk, node: Node) -> Value:
    return affine(walk, node, walk.value(node, 0), np.array(-1.0), None)


def batch_norm(walk: Walk, node: Node) -> Value:
    value = walk.plain(node, 0)
    parts = [
        walk.needed(node, i, what)
        for i, what in enumerate(("scale", "bias", "mean", "variance"), 1)
    ]
    if value.flat_from:
        raise Unexpressible("it reads a channels-last flattening")
    norm = Norm(parts[2], parts[3], parts[0], parts[1])
    eps = float(node.attributes.get("epsilon", 1e-5))
    return value.but(
        layer=walk.net.norm(walk.name(node), walk.real(value), norm, decimal(eps)), levels=None
    )


# ---- activations ----


def layer(build: Callable[[Walk, str, str], str]) -> Op:
    """One that changes each value by itself, whatever the layout."""

    def make(walk: Walk, node: Node) -> Value:
        value = walk.value(node, 0)
        if value.padding:
            raise Unexpressible("it reads what a Pad made")
        return value.but(layer=build(walk, walk.name(node), walk.real(value)), levels=None)

    return make


def leaky_relu(walk: Walk, node: Node) -> Value:
    slope = decimal(float(node.attributes.get("alpha", 0.01)))
    return layer(lambda walk, name, x: walk.net.leaky_relu(name, x, slope))(walk, node)


def prelu(walk: Walk, node: Node) -> Value:
    value = walk.plain(node, 0)
    known, slope = channel_values(value, walk.needed(node, 1, "slope"))
    if not known or value.flat_from:
        raise Unexpressible("its slope must be one value, or one a channel")
    return value.but(layer=walk.net.prelu(walk.name(node), walk.real(value), slope), levels=None)


def clip(walk: Walk, node: Node) -> Value:
    bounds = [walk.constant(node, index, what) for index, what in ((1, "min"), (2, "max"))]
    low, high = (
        node.attributes.get(name) if bound is None else single(bound, name)
        for name, bound in zip(("min", "max"), bounds)
    )
    low = None if low is None or low < -1e38 else low
    high = None if high is None or high > 1e38 else high
    if low == 0 and high is None:
        return layer(lambda walk, name, x: walk.net.relu(name, x))(walk, node)
    if low is None or high is None:
        raise Unexpressible(f"its bounds are {low} and {high}; both must be given, or 0 alone")
    return layer(lambda walk, name, x: walk.net.clip(name, x, float(low), float(high)))(walk, node)


def softmax(walk: Walk, node: Node) -> Value:
    value = walk.plain(node, 0)
    check_axis(node, value, int(node.attributes.get("axis", -1)))
    return value.but(layer=walk.net.softmax(walk.name(node), walk.real(value)), levels=None)


def log_softmax(walk: Walk, node: Node) -> Value:
    value = walk.plain(node, 0)
    check_axis(node, value, int(node.attributes.get("axis", -1)))
    if node.outputs[0] not in walk.last:
        raise Unexpressible("there is no layer for it, and it can be left out at the end alone")
    walk.net.same_outputs = False
    walk.notes.append(f'"{node.name}" (LogSoftmax) is left out: it changes no order of classes')
    return value
