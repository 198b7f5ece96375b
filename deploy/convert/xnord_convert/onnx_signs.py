"""Signs, comparisons and quantisers."""

from typing import Callable

import numpy as np

from .numbers import double
from .onnx_arithmetic import layer
from .onnx_values import (
    Levels,
    Node,
    Op,
    Padding,
    Unexpressible,
    Value,
    Walk,
    channel_values,
    mapped,
    single,
)

# ---- signs ----


def signs(walk: Walk, node: Node, value: Value, function: Callable[[float], float]) -> Value:
    """A function of signs, by what it is of -1, 0 and 1."""
    if value.levels:
        return mapped(value, function)
    found = value.but(layer=walk.sign(node, walk.real(value)), levels=(-1.0, 0.0, 1.0))
    return mapped(found, function)


def sign(walk: Walk, node: Node) -> Value:
    return signs(walk, node, walk.value(node, 0), np.sign)


def bipolar_quant(walk: Walk, node: Node) -> Value:
    scale = single(walk.needed(node, 1, "scale"), "scale")
    return signs(walk, node, walk.value(node, 0), lambda x: scale if x >= 0 else -scale)


def comparison(compare: Callable[[float, float], bool]) -> Op:
    """With a constant: what it is below, at and above it."""

    def make(walk: Walk, node: Node) -> Value:
        test = compare
        if isinstance(walk.values[node.inputs[0]], np.ndarray):  # c < x
            node.inputs = node.inputs[::-1]
            test = lambda x, c: compare(c, x)  # noqa: E731
        value, constant = walk.value(node, 0), walk.needed(node, 1, "second input")
        known, shift = channel_values(value, constant)
        if shift.size == 1:
            limit = float(shift[0])
            if value.levels:
                return mapped(value, lambda x: test(x, limit))
            padding = value.padding and Padding(
                value.padding.edges, float(test(value.padding.value, limit))
            )
        elif not known or value.padding or value.channels_last:
            raise Unexpressible(
                f"its constant is {list(constant.shape)}; it must be one value, or one a channel"
            )
        else:
            padding = None
        layer_name = walk.sign(node, walk.real(value), -shift)
        found = value.but(layer=layer_name, levels=(-1.0, 0.0, 1.0), padding=None)
        return mapped(found, lambda x: test(x, 0)).but(padding=padding)

    return make


def truth(walk: Walk, node: Node, text: str) -> Value:
    """The first input, which has to be a comparison."""
    value = walk.value(node, 0)
    if not value.levels or not set(value.levels) <= {0.0, 1.0}:
        raise Unexpressible(text)
    return value


def negate(walk: Walk, node: Node) -> Value:
    return mapped(truth(walk, node, "its input is no comparison"), lambda x: 1 - x)


def where(walk: Walk, node: Node) -> Value:
    condition = truth(walk, node, "its condition is no comparison with a constant")
    yes, no = (
        choice(walk, node, condition, index, what)
        for index, what in ((1, "value where true"), (2, "value where false"))
    )
    if condition.padding:
        raise Unexpressible("it reads what a Pad made")
    levels = tuple(y if c else n for c, y, n in zip(condition.levels or (), yes, no))
    return condition.but(levels=levels)


def choice(walk: Walk, node: Node, condition: Value, index: int, what: str) -> Levels:
    """A constant, or what is known where the condition is."""
    found = walk.values[node.inputs[index]]
    if isinstance(found, np.ndarray):
        return (single(channel_values(condition, found)[1], what),) * 3
    same = (found.layer, found.channels_last) == (condition.layer, condition.channels_last)
    if not found.levels or not same or found.padding:
        raise Unexpressible(f"its {what} is neither one constant nor a sign of what it compares")
    return found.levels


# ---- quantisers ----


def quant(walk: Walk, node: Node) -> Value:
    """QONNX's uniform quantiser, around 0."""
    step, zero, bits = (
        single(walk.needed(node, index, what), what)
        for index, what in enumerate(("scale", "zero point", "bit width"), 1)
    )
    if zero != 0:
        raise Unexpressible(f"its zero point is {zero}; expected 0")
    low, high = quant_levels(node, bits)
    return layer(lambda walk, name, x: walk.net.quantize(name, x, step, low, high))(walk, node)


def round_(walk: Walk, node: Node) -> Value:
    """To the integers that FP32 has exactly; beyond, every value is one already."""
    most = 2**24
    return layer(lambda walk, name, x: walk.net.quantize(name, x, 1.0, -most, most))(walk, node)


def quant_levels(node: Node, bits: float) -> tuple[int, int]:
    """The least and the largest integer."""
    rounding = node.text("rounding_mode", "ROUND").upper()
    if rounding not in ("ROUND", "HALF_EVEN") or bits != int(bits) or not 1 <= bits <= 24:
        raise Unexpressible(
            f"its rounding mode is {rounding}, its width {bits}; expected ROUND, and 1 to 24 bits"
        )
    narrow = int(node.attributes.get("narrow", 0))
    if not node.attributes.get("signed", 1):
        return 0, 2 ** int(bits) - 1 - narrow
    high = 2 ** (int(bits) - 1) - 1
    return narrow - high - 1, high


# ---- constants, which are not folded as ONNX has it ----


def folded_sign(walk: Walk, node: Node) -> np.ndarray:
    """Weights: 0 is +1."""
    weight = walk.needed(node, 0, "input")
    zeros = int(np.count_nonzero(weight == 0))
    if zeros:
        walk.notes.append(
            f'{zeros} values of "{node.inputs[0]}" are exactly 0: their signs are +1 '
            "here, 0 in ONNX"
        )
    return np.where(weight >= 0, 1, -1).astype(weight.dtype)


def folded_bipolar(walk: Walk, node: Node) -> np.ndarray:
    weight, scale = walk.needed(node, 0, "input"), walk.needed(node, 1, "scale")
    return np.where(weight >= 0, scale, -scale).astype(np.float32)


def folded_quant(walk: Walk, node: Node) -> np.ndarray:
    weight, scale = double(walk.needed(node, 0, "input")), double(walk.needed(node, 1, "scale"))
    zero = double(walk.needed(node, 2, "zero point"))
    low, high = quant_levels(node, single(walk.needed(node, 3, "bit width"), "bit width"))
    levels = np.clip(np.round(weight / scale + zero), low, high)
    return ((levels - zero) * scale).astype(np.float32)
