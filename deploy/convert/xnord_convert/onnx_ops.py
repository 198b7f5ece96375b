"""The operators of ONNX and QONNX that there are layers for."""

from typing import Any, Callable, Optional

import numpy as np

from .numbers import Norm, double, flat_columns
from .onnx_values import Found, Node, Padding, Unexpressible, Value, Walk

Op = Callable[[Walk, Node], Any]
ALIKE = 1e-3  # weights of a filter this close in magnitude are a sign times a scale


# ---- windows ----


def pair(node: Node, name: str, default: int = 1) -> list[int]:
    found = [int(n) for n in node.attributes.get(name, [default] * 2)]
    if len(found) != 2:
        raise Unexpressible(f"its {name} is {found}; only windows of two dimensions have layers")
    return found


def edges(node: Node, padding: Optional[Padding]) -> tuple[Any, float]:
    """The layer's padding, and the value that it has."""
    kind = node.text("auto_pad", "NOTSET")
    own = [int(n) for n in node.attributes.get("pads", [0] * 4)]
    if kind in ("SAME_LOWER", "SAME_UPPER"):
        if kind == "SAME_LOWER" or padding:
            raise Unexpressible(
                f"its auto_pad is {kind}" + (", and a Pad is in front of it" if padding else "")
            )
        return "same", 0
    if padding and any(own) and padding.value != 0:
        raise Unexpressible(f"it pads with 0 what a Pad node has padded with {padding.value}")
    if padding:
        own = [a + b for a, b in zip(own, padding.edges)]
    return own, padding.value if padding else 0


def spread(
    size: int, kernel: int, stride: int, dilation: int, before: int, after: int, ceil: bool = False
) -> int:
    span = size + before + after - ((kernel - 1) * dilation + 1)
    return (-(-span // stride) if ceil else span // stride) + 1


def window_shape(
    value: Value,
    kernel: list[int],
    stride: list[int],
    dilation: list[int],
    padding: Any,
    ceil: bool = False,
) -> tuple[int, int]:
    sizes = value.shape[1:]
    if padding == "same":
        return tuple(-(-n // s) for n, s in zip(sizes, stride))  # type: ignore[return-value]
    both = ((padding[0], padding[2]), (padding[1], padding[3]))
    found = tuple(
        spread(n, k, s, d, *p, ceil) for n, k, s, d, p in zip(sizes, kernel, stride, dilation, both)
    )
    if min(found) < 1:
        raise Unexpressible(f"its window of {kernel} does not fit into {list(sizes)}")
    return found  # type: ignore[return-value]


def members(
    stride: list[int], padding: Any, dilation: Optional[list[int]] = None
) -> dict[str, Any]:
    """Without what needs no saying, and as single numbers where both are the same."""
    found: dict[str, Any] = {}
    for name, values in (("stride", stride), ("dilation", dilation)):
        if values is not None:
            found[name] = values[0] if values[0] == values[1] else values
    if padding == "same" or any(padding):
        found["padding"] = padding if padding == "same" or len(set(padding)) > 1 else padding[0]
    return found


# ---- convolutions and dense layers ----


def alike(weight: np.ndarray) -> Optional[np.ndarray]:
    """The scale of each filter, where its weights are that times signs; None where they are not."""
    magnitudes = np.abs(double(weight)).reshape(len(weight), -1)
    count = magnitudes.shape[1]
    scale = magnitudes.mean(1)
    tolerance = ALIKE if count >= 8 else 0
    if count < 2 or not (scale > 0).all():
        return None
    apart = magnitudes.max(1) - magnitudes.min(1)
    return scale if (apart <= tolerance * scale).all() else None


def weighted(
    walk: Walk,
    node: Node,
    value: Value,
    weight: np.ndarray,
    bias: Optional[np.ndarray],
    **window: Any,
) -> str:
    """A conv layer in the mode that its operands allow."""
    scale, pad_value = alike(weight), window.pop("pad_value", 0)
    mode, x = "float", None
    if scale is not None:
        mode = "bwn"
        if value.levels and value.levels[0] == -value.levels[1]:
            mode, x = "xnor", value.layer
            scale, pad_value = scale * value.levels[1], pad_value / value.levels[1]
    if pad_value not in (-1, 0, 1):
        raise Unexpressible(f"a Pad in front of it pads with {pad_value}; it must be -1, 0 or 1")
    if scale is not None and (scale == 1).all():
        scale = None
    return walk.net.conv(
        walk.name(node),
        x or walk.real(value),
        weight,
        mode,
        scale,
        bias,
        pad_value=int(pad_value),
        **window,
    )


def conv(walk: Walk, node: Node) -> Value:
    value = walk.value(node, 0)
    weight, bias = walk.needed(node, 1, "weight"), walk.constant(node, 2, "bias")
    if weight.ndim != 4 or len(value.shape) != 3 or value.channels_last:
        raise Unexpressible(
            f"it is not of [N, C, H, W]: weight {list(weight.shape)}, input {list(value.shape)}"
        )
    groups = int(node.attributes.get("group", 1))
    if weight.shape[1] * groups != value.shape[0]:
        raise Unexpressible(
            f"it takes {weight.shape[1] * groups} channels, its input has "
            f"{value.shape[0]}; a channels-last input needs a Transpose in the graph"
        )
    stride, dilation = pair(node, "strides"), pair(node, "dilations")
    padding, pad_value = edges(node, value.padding)
    height, width = window_shape(value, list(weight.shape[2:]), stride, dilation, padding)
    name = weighted(
        walk,
        node,
        value.but(padding=None),
        weight,
        bias,
        pad_value=pad_value,
        groups=groups,
        **members(stride, padding, dilation),
    )
    return Value(name, (len(weight), height, width))


def dense(walk: Walk, node: Node, weight: np.ndarray, bias: Optional[np.ndarray]) -> Value:
    """weight [O, I]."""
    value = walk.plain(node, 0)
    if len(value.shape) != 1 or weight.ndim != 2 or weight.shape[1] != value.shape[0]:
        raise Unexpressible(
            f"its input is {list(value.shape)}, its weight {list(weight.shape)}; "
            "expected [I] an image, and [O, I]"
        )
    if value.flat_from:
        weight = flat_columns(weight, *value.flat_from)
    if bias is not None:
        bias = np.broadcast_to(bias.reshape(-1), len(weight))
    return Value(weighted(walk, node, value, weight, bias), (len(weight),))


def gemm(walk: Walk, node: Node) -> Value:
    attributes = node.attributes
    if attributes.get("transA", 0):
        raise Unexpressible("its transA is 1")
    weight = walk.needed(node, 1, "weight") * np.float32(attributes.get("alpha", 1.0))
    bias = walk.constant(node, 2, "bias")
    if bias is not None:
        bias = bias * np.float32(attributes.get("beta", 1.0))
    return dense(walk, node, weight if attributes.get("transB", 0) else weight.T, bias)


def matmul(walk: Walk, node: Node) -> Value:
    weight = walk.needed(node, 1, "weight")
    return dense(walk, node, weight.T, None)


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


def scaled_levels(value: Value, scale: float, bias: float) -> Value:
    low, high = value.levels  # type: ignore[misc]
    return value.but(
        levels=(low * scale + bias, high * scale + bias),
        padding=value.padding and Padding(value.padding.edges, value.padding.value * scale + bias),
    )


def single(values: np.ndarray, what: str) -> float:
    if values.size != 1:
        raise Unexpressible(f"its {what} has {values.size} values; it must have one")
    return float(values.reshape(()))


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


# ---- arithmetic with constants ----


def affine(
    walk: Walk, node: Node, value: Value, scale: Optional[np.ndarray], bias: Optional[np.ndarray]
) -> Value:
    """x * scale + bias, with constants as ONNX has them."""
    parts = [None if c is None else channel_values(value, c) for c in (scale, bias)]
    one = all(part is None or part[1].size == 1 for part in parts)
    if value.levels and one:
        return scaled_levels(
            value,
            1.0 if parts[0] is None else float(parts[0][1][0]),
            0.0 if parts[1] is None else float(parts[1][1][0]),
        )
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
    a, b = walk.plain(node, 0), walk.plain(node, 1)
    if len(a.shape) == len(b.shape) == 3 and a.shape[0] == b.shape[0]:
        for x, gate in ((a, b), (b, a)):
            if gate.shape[1:] == (1, 1):
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


def decimal(value: float) -> float:
    """The decimal number that was meant by a value that is stored as FP32."""
    return float(np.format_float_positional(np.float32(value), unique=True))


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


def check_axis(node: Node, value: Value, axis: int) -> None:
    rank = len(value.shape) + 1
    if axis % rank != 1:
        raise Unexpressible(f"its axis is {axis}; it must be 1, that of the channels")


# ---- channels ----


def concat(walk: Walk, node: Node) -> Value:
    values = [walk.plain(node, index) for index in range(len(node.inputs))]
    check_axis(node, values[0], int(node.attributes["axis"]))
    channels = sum(value.shape[0] for value in values)
    name = walk.net.concat(walk.name(node), *(walk.real(value) for value in values))
    return Value(name, (channels, *values[0].shape[1:]))


def cut(walk: Walk, node: Node, value: Value, begin: int, end: int) -> Value:
    name = walk.net.slice(walk.name(node), walk.real(value), begin, end)
    return Value(name, (end - begin, *value.shape[1:]))


def slice_(walk: Walk, node: Node) -> Value:
    value = walk.plain(node, 0)
    starts, ends = walk.needed(node, 1, "starts"), walk.needed(node, 2, "ends")
    axes, steps = walk.constant(node, 3, "axes"), walk.constant(node, 4, "steps")
    if starts.size != 1 or (steps is not None and single(steps, "steps") != 1):
        raise Unexpressible("it must cut one axis, in steps of 1")
    check_axis(node, value, 0 if axes is None else int(single(axes, "axes")))
    begin, end, _ = slice(int(starts.reshape(())), int(ends.reshape(()))).indices(value.shape[0])
    return cut(walk, node, value, begin, end)


def split(walk: Walk, node: Node) -> list[Value]:
    value = walk.plain(node, 0)
    check_axis(node, value, int(node.attributes.get("axis", 0)))
    sizes = walk.constant(node, 1, "sizes")
    count, channels = len(node.outputs), value.shape[0]
    part = -(-channels // count)
    lengths = (
        [min(part, channels - part * i) for i in range(count)]
        if sizes is None
        else [int(n) for n in sizes]
    )
    ends = np.cumsum(lengths)
    return [
        cut(walk, node, value, int(end) - length, int(end)) for end, length in zip(ends, lengths)
    ]


# ---- pools ----


def pool(walk: Walk, node: Node) -> Value:
    value = walk.value(node, 0)
    if value.channels_last:
        raise Unexpressible("it reads a tensor that was transposed to channels-last")
    largest = node.op == "MaxPool"
    kernel, stride = pair(node, "kernel_shape"), pair(node, "strides")
    padding, pad_value = edges(node, value.padding)
    if pair(node, "dilations") != [1, 1]:
        raise Unexpressible("its dilation is not 1")
    height, width = window_shape(value, kernel, stride, [1, 1], padding)
    ceil = bool(node.attributes.get("ceil_mode", 0))
    if ceil and window_shape(value, kernel, stride, [1, 1], padding, True) != (height, width):
        raise Unexpressible("its ceil_mode is 1, and its last window would not be whole")
    if value.padding and pad_value != (-np.inf if largest else 0) and not lowest(value, largest):
        raise Unexpressible(f"a Pad in front of it pads with {pad_value}")
    given = members(stride, padding)
    size = kernel[0] if kernel[0] == kernel[1] else kernel
    shape = (value.shape[0], height, width)
    if largest:
        bits = value.levels is not None and value.levels[0] < value.levels[1]
        x = value.layer if bits else walk.real(value)
        return Value(
            walk.net.max_pool(walk.name(node), x, size, **given),
            shape,
            value.levels if bits else None,
        )
    if "padding" in given and (value.padding or node.attributes.get("count_include_pad", 0)):
        given["count_padding"] = True
    return Value(walk.net.avg_pool(walk.name(node), walk.real(value), size, **given), shape)


def lowest(value: Value, largest: bool) -> bool:
    """Whether a Pad's value is one that a largest value never is."""
    assert value.padding
    if value.levels:
        return largest and value.padding.value <= min(value.levels)
    return largest and value.padding.value < -1e37


def global_pool(walk: Walk, node: Node) -> Value:
    value = walk.plain(node, 0)
    build = walk.net.max_pool if node.op == "GlobalMaxPool" else walk.net.avg_pool
    return Value(build(walk.name(node), walk.real(value), "global"), (value.shape[0], 1, 1))


def reduce_mean(walk: Walk, node: Node) -> Value:
    value = walk.value(node, 0)
    axes = walk.constant(node, 1, "axes")
    found = node.attributes.get("axes", []) if axes is None else axes.reshape(-1)
    spatial = [1, 2] if value.channels_last else [2, 3]
    if len(value.shape) != 3 or sorted(int(axis) % 4 for axis in found) != spatial:
        raise Unexpressible(f"its axes are {list(found)}; they must be those of height and width")
    x = value.but(channels_last=False)
    if x.padding:
        raise Unexpressible("it reads what a Pad made")
    channels = value.shape[0]
    name = walk.net.avg_pool(walk.name(node), walk.real(x), "global")
    if node.attributes.get("keepdims", 1):
        return Value(name, (channels, 1, 1), channels_last=value.channels_last)
    return Value(
        walk.net.flatten(walk.net.unused_name(f"{name}.flatten"), name, channels), (channels,)
    )


# ---- shapes ----


def flat(walk: Walk, node: Node, value: Value) -> Value:
    if len(value.shape) == 1:
        return value
    if value.padding:
        raise Unexpressible("it reads what a Pad made")
    elements = int(np.prod(value.shape))
    order = value.shape if value.channels_last and value.shape[1:] != (1, 1) else None
    name = walk.net.flatten(
        walk.name(node), value.layer if value.levels else walk.real(value), elements
    )
    return Value(name, (elements,), value.levels, flat_from=order)


def flatten(walk: Walk, node: Node) -> Value:
    value = walk.value(node, 0)
    if int(node.attributes.get("axis", 1)) % (len(value.shape) + 1) != 1:
        raise Unexpressible("its axis is not 1: the batch would be flattened too")
    return flat(walk, node, value)


def reshape(walk: Walk, node: Node) -> Value:
    value = walk.value(node, 0)
    target = [int(n) for n in walk.needed(node, 1, "shape")]
    seen = seen_shape(value)
    if not node.attributes.get("allowzero", 0):
        target = [seen[i - 1] if n == 0 and 0 < i <= len(seen) else n for i, n in enumerate(target)]
    rest = target[1:]
    if target[0] not in (-1, 0, walk.batch) or len([n for n in target if n < 0]) > 1 + (
        target[0] == -1
    ):
        raise Unexpressible(f"its shape is {target}; the first dimension must stay the batch")
    if -1 in rest:
        known = int(np.prod([n for n in rest if n != -1]))
        rest = [int(np.prod(seen)) // known if n == -1 else n for n in rest]
    return reshaped(walk, node, value, tuple(rest), seen)


def reshaped(
    walk: Walk, node: Node, value: Value, target: tuple[int, ...], seen: tuple[int, ...]
) -> Value:
    if target == seen:
        return value
    if len(target) == 1 and target[0] == int(np.prod(seen)):
        return flat(walk, node, value)
    if len(seen) == 1 and value.flat_from is None and target == (seen[0], 1, 1):
        return value.but(shape=target)
    if len(seen) == 1 and value.flat_from is None and target == (1, 1, seen[0]):
        return value.but(shape=(seen[0], 1, 1), channels_last=True)
    raise Unexpressible(
        f"it makes {list(target)} an image of {list(seen)}; only flattening has a layer"
    )


def seen_shape(value: Value) -> tuple[int, ...]:
    """As ONNX sees it."""
    if value.channels_last:
        return (*value.shape[1:], value.shape[0])
    return value.shape


def squeeze(walk: Walk, node: Node) -> Value:
    value = walk.value(node, 0)
    axes = walk.constant(node, 1, "axes")
    given = node.attributes.get("axes") if axes is None else axes.reshape(-1)
    seen = seen_shape(value)
    found = (
        {i + 1 for i, n in enumerate(seen) if n == 1}
        if given is None
        else {int(axis) % (len(seen) + 1) for axis in given}
    )
    left = tuple(n for i, n in enumerate(seen, 1) if i not in found)
    if 0 in found or any(seen[i - 1] != 1 for i in found):
        raise Unexpressible(f"its axes are {sorted(found)} of {list(seen)} an image")
    return reshaped(walk, node, value, left, seen)


def unsqueeze(walk: Walk, node: Node) -> Value:
    value = walk.value(node, 0)
    axes = walk.constant(node, 1, "axes")
    given = node.attributes.get("axes", []) if axes is None else axes.reshape(-1)
    if len(value.shape) != 1 or sorted(int(axis) % 4 for axis in given) not in ([2, 3], [1, 2]):
        raise Unexpressible("only [N, C] to [N, C, 1, 1] or [N, 1, 1, C] has a layer")
    last = sorted(int(axis) % 4 for axis in given) == [1, 2]
    return value.but(shape=(value.shape[0], 1, 1), channels_last=last)


def transpose(walk: Walk, node: Node) -> Value:
    value = walk.value(node, 0)
    order = [int(n) for n in node.attributes.get("perm", [])]
    if order == list(range(len(value.shape) + 1)):
        return value
    if len(value.shape) == 3 and order == ([0, 3, 1, 2] if value.channels_last else [0, 2, 3, 1]):
        return value.but(channels_last=not value.channels_last)
    raise Unexpressible(f"its order is {order}; only between NCHW and NHWC")


def pad(walk: Walk, node: Node) -> Value:
    value = walk.plain(node, 0)
    amounts = walk.constant(node, 1, "pads")
    given = node.attributes.get("pads", []) if amounts is None else amounts.reshape(-1)
    constant = walk.constant(node, 2, "value")
    fill = float(node.attributes.get("value", 0)) if constant is None else single(constant, "value")
    given = [int(n) for n in given]
    if not any(given):
        return value
    if (
        node.text("mode", "constant") != "constant"
        or len(given) != 8
        or min(given) < 0
        or any(given[i] for i in (0, 1, 4, 5))
    ):
        raise Unexpressible(
            f"its mode is {node.text('mode', 'constant')}, its pads {given}; only "
            "constants around height and width"
        )
    return value.but(padding=Padding((given[2], given[3], given[6], given[7]), fill))


def shape(walk: Walk, node: Node) -> np.ndarray:
    return np.array([walk.batch, *seen_shape(walk.value(node, 0))], np.int64)


def same(walk: Walk, node: Node) -> Value:
    return walk.value(node, 0)


# ---- constants that are not folded as ONNX has it ----


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


FOLDED: dict[str, Op] = {"Sign": folded_sign, "BipolarQuant": folded_bipolar, "Quant": folded_quant}

OPS: dict[str, Op] = {
    "Conv": conv,
    "Gemm": gemm,
    "MatMul": matmul,
    "Sign": sign,
    "BipolarQuant": bipolar_quant,
    "Greater": comparison(True, False),
    "GreaterOrEqual": comparison(True, True),
    "Less": comparison(False, False),
    "LessOrEqual": comparison(False, True),
    "Not": negate,
    "Where": where,
    "Cast": same,
    "Add": add,
    "Sub": sub,
    "Mul": mul,
    "Div": div,
    "Neg": neg,
    "BatchNormalization": batch_norm,
    "LeakyRelu": leaky_relu,
    "PRelu": prelu,
    "Clip": clip,
    "Relu": layer(lambda walk, name, x: walk.net.relu(name, x)),
    "Sigmoid": layer(lambda walk, name, x: walk.net.sigmoid(name, x)),
    "Quant": quant,
    "Round": round_,
    "Softmax": softmax,
    "LogSoftmax": log_softmax,
    "Concat": concat,
    "Slice": slice_,
    "Split": split,
    "MaxPool": pool,
    "AveragePool": pool,
    "GlobalAveragePool": global_pool,
    "GlobalMaxPool": global_pool,
    "ReduceMean": reduce_mean,
    "Flatten": flatten,
    "Reshape": reshape,
    "Squeeze": squeeze,
    "Unsqueeze": unsqueeze,
    "Transpose": transpose,
    "Pad": pad,
    "Shape": shape,
}
