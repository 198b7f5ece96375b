"""Signs, comparisons and quantisers."""

from typing import Optional

import numpy as np

from .numbers import double
from .onnx_arithmetic import layer
from .onnx_values import (
    Node,
    Op,
    Padding,
    Unexpressible,
    Value,
    Walk,
    channel_values,
    scaled_levels,
    single,
)

# ---- signs ----


def signed(walk: Walk, node: Node, value: Value, shift: Optional[np.ndarray] = None) -> Value:
    """+1 where value + shift >= 0, else -1."""
    if shift is None and value.levels:
        levels = tuple(1.0 if level >= 0 else -1.0 for level in value.levels)
        return value.but(levels=levels)
    name = walk.net.sign(walk.name(node), walk.real(value), shift)
    return value.but(layer=name, levels=(-1.0, 1.0))


def sign(walk: Walk, node: Node) -> Value:
    value = walk.value(node, 0)
    padding = value.padding
    if padding:
        padding = Padding(padding.edges, 1.0 if padding.value >= 0 else -1.0)
    return signed(walk, node, value.but(padding=None)).but(padding=padding)


def bipolar_quant(walk: Walk, node: Node) -> Value:
    scale = single(walk.needed(node, 1, "scale"), "scale")
    value = sign(walk, node)
    return scaled_levels(value, scale, 0)


def comparison(greater: bool, equal: bool) -> Op:
    """x >= c is sign(x - c) = +1; x > c is sign(c - x) = -1, and so on: ties are exact."""

    def compare(walk: Walk, node: Node) -> Value:
        up, same = greater, equal
        if isinstance(walk.values[node.inputs[0]], np.ndarray):  # c < x
            node.inputs, up = node.inputs[::-1], not greater
        value, constant = walk.plain(node, 0), walk.needed(node, 1, "second input")
        low, high = channel_values(value, constant)
        if not low:
            raise Unexpressible(
                f"its constant is {list(constant.shape)}; it must be one value, or one a channel"
            )
        if up == same:  # x >= c, and x < c where x >= c is not
            found = signed(walk, node, value, -high)
            return found.but(levels=(0.0, 1.0) if up else (1.0, 0.0))
        turned = walk.net.affine(
            walk.net.unused_name(f"{walk.name(node)}.negated"),
            walk.real(value),
            np.array([-1.0]),
            high,
        )
        found = signed(walk, node, Value(turned, value.shape))
        return found.but(levels=(1.0, 0.0) if up else (0.0, 1.0))

    return compare


def negate(walk: Walk, node: Node) -> Value:
    value = walk.plain(node, 0)
    if value.levels not in ((0.0, 1.0), (1.0, 0.0)):
        raise Unexpressible("its input is no comparison")
    return value.but(levels=value.levels[::-1])


def where(walk: Walk, node: Node) -> Value:
    condition = walk.plain(node, 0)
    if condition.levels not in ((0.0, 1.0), (1.0, 0.0)):
        raise Unexpressible("its condition is no comparison with a constant")
    yes = single(walk.needed(node, 1, "value where true"), "value where true")
    no = single(walk.needed(node, 2, "value where false"), "value where false")
    return condition.but(levels=(no, yes) if condition.levels == (0.0, 1.0) else (yes, no))


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
