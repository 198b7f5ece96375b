"""Convolutions, dense layers and pools."""

from typing import Any, Optional

import numpy as np

from .numbers import double, flat_columns
from .onnx_values import Node, Padding, Unexpressible, Value, Walk, pair

ALIKE = 1e-3  # weights of a filter this close in magnitude are a sign times a scale


# ---- windows ----


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
    mode, x, value = "float", None, walk.settled(value)
    if scale is not None:
        mode = "bwn"
        if value.levels and value.levels[0] == -value.levels[2] != 0:
            mode, x = "xnor", value.layer
            scale, pad_value = scale * value.levels[2], pad_value / value.levels[2]
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


# ---- pools ----


def pool(walk: Walk, node: Node) -> Value:
    value = walk.settled(walk.value(node, 0))
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
        bits = value.levels is not None and value.levels[0] < value.levels[2]
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
        raise Unexpressible(
            f"its axes are {[int(axis) for axis in found]}; they must be those of height and width"
        )
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
