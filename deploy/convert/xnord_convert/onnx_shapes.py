"""Channels, and shapes."""

import numpy as np
from onnx import TensorProto

from .onnx_values import (
    Node,
    Padding,
    Unexpressible,
    Value,
    Walk,
    check_axis,
    seen_shape,
    single,
    uniform,
)

# ---- channels ----


def concat(walk: Walk, node: Node) -> Value:
    first = next(v for v in map(walk.values.get, node.inputs) if isinstance(v, Value))
    check_axis(node, first, int(node.attributes["axis"]))
    parts, channels = [], 0
    for index, name in enumerate(node.inputs):
        found = walk.values[name]
        if isinstance(found, np.ndarray):
            count = found.shape[1] if found.ndim == len(first.shape) + 1 else 0
            if not uniform(first.but(shape=(count, *first.shape[1:])), found):
                raise Unexpressible(f"its input {index} is a constant of several values")
            parts += constants(walk, node, first, count, float(found.flat[0]))
        else:
            value = walk.plain(node, index)
            parts.append(walk.real(value))
            count = value.shape[0]
        channels += count
    return Value(walk.net.concat(walk.name(node), *parts), (channels, *first.shape[1:]))


def constants(walk: Walk, node: Node, like: Value, count: int, number: float) -> list[str]:
    """So many channels of one number: layers that together have them. They are made of the
    channels of a value, all clipped to it."""
    if count == 0:
        return []
    name, channels = walk.name(node), like.shape[0]
    x = walk.net.clip(walk.net.unused_name(f"{name}.constant"), walk.real(like), number, number)
    whole, rest = divmod(count, channels)
    some = [x] * whole
    if rest:
        some.append(walk.net.slice(walk.net.unused_name(f"{name}.some"), x, 0, rest))
    return some


def cut(walk: Walk, node: Node, value: Value, begin: int, end: int) -> Value:
    value = walk.settled(value)
    x = value.layer if value.levels else walk.real(value)
    name = walk.net.slice(walk.name(node), x, begin, end)
    return Value(name, (end - begin, *value.shape[1:]), value.levels)


def slice_(walk: Walk, node: Node) -> Value:
    """Of channels in steps of 1, of height and width from the first pixel in any."""
    value = walk.settled(walk.plain(node, 0))
    starts, ends = (
        walk.needed(node, i, what).reshape(-1) for i, what in ((1, "starts"), (2, "ends"))
    )
    axes, steps = walk.constant(node, 3, "axes"), walk.constant(node, 4, "steps")
    axes = np.arange(len(starts)) if axes is None else axes.reshape(-1)
    steps = np.ones(len(starts), np.int64) if steps is None else steps.reshape(-1)
    strides, rank = [1, 1], len(value.shape) + 1
    for start, end, axis, step in zip(*(map(int, part) for part in (starts, ends, axes, steps))):
        axis %= rank
        if axis == 0:
            raise Unexpressible("it cuts the batch")
        size = value.shape[axis - 1]
        begin, stop, _ = slice(start, end, step).indices(size)
        if axis == 1 and step == 1 and begin < stop:
            value = cut(walk, node, value, begin, stop) if (begin, stop) != (0, size) else value
        elif axis > 1 and step >= 1 and (begin, stop) == (0, size):
            strides[axis - 2] = step
        else:
            raise Unexpressible(
                f"it takes {start}:{end}:{step} of axis {axis}; expected channels in steps of 1, "
                "or height and width from the first to the last pixel"
            )
    return value if strides == [1, 1] else thinned(walk, node, value, strides)


def thinned(walk: Walk, node: Node, value: Value, strides: list[int]) -> Value:
    """The first of so many pixels: the largest of one."""
    stride = strides[0] if strides[0] == strides[1] else strides
    x = value.layer if value.levels else walk.real(value)
    name = walk.net.max_pool(walk.name(node), x, 1, stride=stride)
    sizes = tuple(-(-size // step) for size, step in zip(value.shape[1:], strides))
    return Value(name, (value.shape[0], *sizes), value.levels)


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


# ---- shapes ----


def flat(walk: Walk, node: Node, value: Value) -> Value:
    if len(value.shape) == 1:
        return value
    if value.padding:
        raise Unexpressible("it reads what a Pad made")
    value = walk.settled(value)
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
    """Only ones come or go, or all is flattened."""
    if target == seen:
        return value
    if len(target) == 1 and target[0] == int(np.prod(seen)):
        return flat(walk, node, value)
    channels, ones = value.shape[0], int(np.prod(seen)) == value.shape[0]
    if len(seen) < 3 and value.flat_from is None and ones:
        if target in ((channels, 1, 1), (channels, 1)):
            return value.but(shape=target)
        if target == (1, 1, channels):
            return value.but(shape=(channels, 1, 1), channels_last=True)
    if len(seen) == 3 and channels == 1:  # TensorFlow's way to transpose one channel
        height, width = value.shape[1:]
        if target in ((1, height, width), (height, width, 1)):
            return value.but(channels_last=target != (1, height, width))
    raise Unexpressible(
        f"it makes {list(target)} an image of {list(seen)}; only flattening has a layer"
    )


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
    seen = seen_shape(value)
    rank = len(seen) + 1 + len(given)
    found = {int(axis) % rank for axis in given}
    left = iter((0, *seen))
    target = tuple(1 if axis in found else next(left) for axis in range(rank))
    if 0 in found:
        raise Unexpressible("it puts a dimension in front of the batch")
    return reshaped(walk, node, value, target[1:], seen)


def expand(walk: Walk, node: Node) -> Value:
    """Of a value a channel to all pixels, for a Mul, which does so by itself."""
    value = walk.plain(node, 0)
    target = [int(n) for n in walk.needed(node, 1, "shape").reshape(-1)]
    known = [max(a, b) for a, b in zip(target[1:], value.shape)]
    if len(target) != 4 or len(value.shape) != 3 or known[0] != value.shape[0]:
        raise Unexpressible(f"it makes {target} of {list(value.shape)} an image")
    if tuple(known) == value.shape:
        return value
    if value.shape[1:] != (1, 1):
        raise Unexpressible("it repeats rows or columns")
    return value.but(spread=(known[1], known[2]))


def transpose(walk: Walk, node: Node) -> Value:
    value = walk.value(node, 0)
    order = [int(n) for n in node.attributes.get("perm", [])]
    if order == list(range(len(value.shape) + 1)):
        return value
    if len(value.shape) == 3 and order == ([0, 3, 1, 2] if value.channels_last else [0, 2, 3, 1]):
        return value.but(channels_last=not value.channels_last)
    raise Unexpressible(f"its order is {order}; only between NCHW and NHWC")


def pad(walk: Walk, node: Node) -> Value:
    value = walk.value(node, 0)
    amounts = walk.constant(node, 1, "pads")
    given = node.attributes.get("pads", []) if amounts is None else amounts.reshape(-1)
    constant, axes = walk.constant(node, 2, "value"), walk.constant(node, 3, "axes")
    fill = float(node.attributes.get("value", 0)) if constant is None else single(constant, "value")
    rank, mode = len(value.shape) + 1, node.text("mode", "constant")
    given = [int(n) for n in given]
    pads = np.zeros((2, rank), np.int64)  # before, after
    which = np.arange(rank) if axes is None else axes.reshape(-1) % rank
    if len(given) == 2 * len(which):
        pads[:, which] = np.reshape(given, (2, -1))
    order = [0, 3, 1, 2] if value.channels_last else list(range(rank))
    pads = pads[:, order]
    around = bool(pads[:, 2:].any())
    wrong = len(given) != 2 * len(which) or mode != "constant" or pads.min() < 0 or pads[:, 0].any()
    if wrong or value.padding or (around and (rank != 4 or pads[:, 1].any())):
        raise Unexpressible(
            f"its mode is {mode}, its pads {given}; only constants, around height and width or "
            "around the channels"
        )
    if around:
        (_, _, top, left), (_, _, bottom, right) = pads.tolist()
        return value.but(padding=Padding((top, left, bottom, right), fill))
    return more_channels(walk, node, value, *pads[:, 1].tolist(), fill)


def more_channels(
    walk: Walk, node: Node, value: Value, before: int, after: int, fill: float
) -> Value:
    if before == after == 0:
        return value
    if value.channels_last or value.flat_from:
        raise Unexpressible("it pads channels of a tensor that was transposed to channels-last")
    parts = constants(walk, node, value, before, fill)
    parts += [walk.real(value), *constants(walk, node, value, after, fill)]
    name = walk.net.concat(walk.name(node), *parts)
    return Value(name, (value.shape[0] + before + after, *value.shape[1:]))


def shape(walk: Walk, node: Node) -> np.ndarray:
    dims = [walk.batch, *seen_shape(walk.value(node, 0))]
    begin, end = (node.attributes.get(name) for name in ("start", "end"))
    return np.array(dims[begin:end], np.int64)


def cast(walk: Walk, node: Node) -> Value:
    """Of values that it does not change."""
    value, to = walk.value(node, 0), int(node.attributes["to"])
    whole = value.levels is not None and all(level in (0, 1) for level in value.levels)
    if to in (TensorProto.FLOAT, TensorProto.DOUBLE) or whole:
        return value
    raise Unexpressible(f"it makes {TensorProto.DataType.Name(to)} of real values")
