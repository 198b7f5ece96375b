"""Real-to-Binary of the Larq zoo (RealToBinNetBNN). Its layers have names,
`r2b_bnn_block_2a_conv2d`; shortcuts lie beside the main path, so the order of the file says less
than they do."""

from typing import Optional

from .. import ConvertError
from ..checkpoint import Checkpoint, Part
from ..network import Network
from .common import KERAS_EPS, classify


class _Named:
    """Parts by what follows the model's name."""

    def __init__(self, checkpoint: Checkpoint):
        self._parts: dict[str, Part] = {}
        for part in checkpoint.parts():
            _, found, rest = part.name.partition("_block_")
            if not found:
                raise ConvertError(
                    f'layer "{part.name}" is not of a Real-to-Binary network, whose '
                    "layers are called NAME_block_1_conv2d, ..."
                )
            self._parts[rest] = part

    def maybe(self, name: str) -> Optional[Part]:
        return self._parts.pop(name, None)

    def take(self, name: str) -> Part:
        part = self.maybe(name)
        if not part:
            raise ConvertError(f'the file has no layer "..._block_{name}"')
        return part

    def end(self) -> None:
        if self._parts:
            raise ConvertError(
                f"the file has layers that a Real-to-Binary network does not: "
                f"{', '.join(list(self._parts)[:8])}"
            )


def build(net: Network, checkpoint: Checkpoint, x: str) -> None:
    parts = _Named(checkpoint)
    x = net.conv("1.conv2d", x, parts.take("1_conv2d").weight, stride=2, padding="same")
    x = _norm(net, parts, x, "1_batch_norm")
    x = net.prelu("1.prelu", x, parts.take("1_prelu").slope)
    x = net.max_pool("1.pool", x, 3, stride=2, padding="same")
    for block in range(2, 10):
        x = _half(net, parts, x, f"{block}a")
        x = _half(net, parts, x, f"{block}b")
    last = parts.take("10_logits")
    classify(net, x, last.weight, last.bias, softmax=True)
    parts.end()


def _norm(net: Network, parts: _Named, x: str, name: str) -> str:
    return net.norm(name.replace("_", ".", 1), x, parts.take(name).norm, KERAS_EPS)


def _half(net: Network, parts: _Named, x: str, name: str) -> str:
    shortcut, stride = x, 1
    narrow = parts.maybe(f"{name}_shortcut_conv2d")
    if narrow:
        stride = 2
        shortcut = net.avg_pool(f"{name}.shortcut_pool", x, 2, stride=2, padding="same")
        shortcut = net.conv(f"{name}.shortcut_conv2d", shortcut, narrow.weight)
        shortcut = _norm(net, parts, shortcut, f"{name}_shortcut_batch_norm")
    y = _norm(net, parts, x, f"{name}_batch_norm")
    gate = _gate(net, parts, y, name)
    y = net.conv(
        f"{name}.conv2d",
        net.sign(f"{name}.sign", y),
        parts.take(f"{name}_conv2d").weight,
        "xnor",
        stride=stride,
        padding="same",
    )
    y = net.mul(f"{name}.scaling", y, gate)
    slope = parts.take(f"{name}_prelu").slope
    return net.sum(f"{name}.add", net.prelu(f"{name}.prelu", y, slope), shortcut)


def _gate(net: Network, parts: _Named, x: str, name: str) -> str:
    """A scale for each channel, made of the convolution's real input."""
    x = net.avg_pool(f"{name}.scaling_pool", x, "global")
    x = net.flatten(f"{name}.scaling_flatten", x, net.channels(x))
    x = net.conv(f"{name}.scaling_reduce", x, parts.take(f"{name}_scaling_dense_reduce").weight)
    x = net.relu(f"{name}.scaling_relu", x)
    x = net.conv(f"{name}.scaling_expand", x, parts.take(f"{name}_scaling_dense_expand").weight)
    return net.sigmoid(f"{name}.scaling_sigmoid", x)
