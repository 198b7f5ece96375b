"""BinaryDenseNet: Larq's, bitorch's and BMXNet-v2's, which differ in names and padding alone. Parts
come in the order of the layers in all of them."""

from dataclasses import dataclass

from ..checkpoint import Checkpoint, Parts
from ..network import Network
from .common import EPS, classify


@dataclass(frozen=True)
class Layout:
    layers: tuple[int, ...]
    dilation: tuple[int, ...] = (1, 1, 1, 1)


LAYOUTS = {
    "28": Layout((6, 6, 6, 5)),
    "37": Layout((6, 8, 12, 6)),
    "37-dilated": Layout((6, 8, 12, 6), (1, 1, 2, 4)),
    "45": Layout((6, 12, 14, 8)),
}


def build(net: Network, checkpoint: Checkpoint, x: str, name: str) -> None:
    layout, parts = LAYOUTS[name], checkpoint.parts()
    pad_value = 0 if checkpoint.keras else -1
    x = _stem(net, parts, x, checkpoint.keras)
    for stage, count in enumerate(layout.layers):
        if stage > 0:
            x = _transition(net, parts, x, stage, pool=layout.dilation[stage] == 1)
        for index in range(count):
            x = _layer(
                net, parts, x, f"stage{stage + 1}.{index}", layout.dilation[stage], pad_value
            )
    x = net.relu("relu", net.norm("bn", x, parts.norm(), EPS))
    last = parts.dense()
    classify(net, x, last.weight, last.bias, softmax=checkpoint.keras)
    parts.end()


def _stem(net: Network, parts: Parts, x: str, keras: bool) -> str:
    """7x7 with pooling; or, for small images, 3x3 alone."""
    weight = parts.conv().weight
    if weight.shape[-1] < 7:
        return net.conv("stem.conv", x, weight, padding="same" if keras else 1)
    x = net.conv("stem.conv", x, weight, stride=2, padding="same" if keras else 3)
    x = net.relu("stem.relu", net.norm("stem.bn", x, parts.norm(), EPS))
    return net.max_pool("stem.pool", x, 3, stride=2, padding="same" if keras else 1)


def _layer(net: Network, parts: Parts, x: str, name: str, dilation: int, pad_value: int) -> str:
    y = net.norm(f"{name}.bn", x, parts.norm(), EPS)
    y = net.conv(
        f"{name}.conv",
        net.sign(f"{name}.sign", y),
        parts.conv().weight,
        "xnor",
        padding=dilation,
        dilation=dilation,
        pad_value=pad_value,
    )
    return net.concat(name, x, y)


def _transition(net: Network, parts: Parts, x: str, stage: int, pool: bool) -> str:
    name = f"transition{stage}"
    x = net.norm(f"{name}.bn", x, parts.norm(), EPS)
    if pool:
        x = net.max_pool(f"{name}.pool", x, 2)
    return net.conv(f"{name}.conv", net.relu(f"{name}.relu", x), parts.conv().weight)
