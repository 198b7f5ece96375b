"""Channels, and shapes."""

import numpy as np
from onnx import TensorProto

from .onnx_values import Node, Padding, Unexpressible, Value, Walk, check_axis, seen_shape, single

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


def cast(walk: Walk, node: Node) -> Value:
    """Of values that it does not change."""
    value, to = walk.value(node, 0), int(node.attributes["to"])
    whole = value.levels is not None and all(level in (0, 1) for level in value.levels)
    if to in (TensorProto.FLOAT, TensorProto.DOUBLE) or whole:
        return value
    raise Unexpressible(f"it makes {TensorProto.DataType.Name(to)} of real values")
