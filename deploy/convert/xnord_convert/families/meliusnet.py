"""MeliusNet-22 of the Larq zoo."""

import numpy as np

from ..checkpoint import Checkpoint, Parts
from ..network import Network
from .common import EPS, classify

BLOCKS = (4, 5, 4, 4)


def build(net: Network, checkpoint: Checkpoint, x: str) -> None:
    parts = checkpoint.parts()
    x = _stem(net, parts, x)
    for section, count in enumerate(BLOCKS):
        for index in range(count):
            name = f"section{section}.{index}"
            x = net.concat(f"{name}.dense", x, _binary(net, parts, x, f"{name}.dense"))
            x = _improve(net, parts, x, f"{name}.improve")
        if section + 1 < len(BLOCKS):
            x = _transition(net, parts, x, f"transition{section}")
    x = net.relu("head.relu", net.norm("head.bn", x, parts.norm(), EPS))
    last = parts.dense()
    classify(net, x, last.weight, last.bias, softmax=True)
    parts.end()


def _stem(net: Network, parts: Parts, x: str) -> str:
    for index, groups in enumerate((1, 4, 8)):
        # Keras has a convolution for each group.
        weight = np.concatenate([parts.conv().weight for _ in range(groups)])
        x = net.conv(
            f"stem.conv{index}", x, weight, stride=1 if index else 2, padding="same", groups=groups
        )
        x = net.relu(f"stem.relu{index}", net.norm(f"stem.bn{index}", x, parts.norm(), EPS))
    return net.max_pool("stem.pool", x, 2, padding="same")


def _binary(net: Network, parts: Parts, x: str, name: str) -> str:
    y = net.sign(f"{name}.sign", net.norm(f"{name}.bn", x, parts.norm(), EPS))
    return net.conv(f"{name}.conv", y, parts.conv().weight, "xnor", padding="same")


def _improve(net: Network, parts: Parts, x: str, name: str) -> str:
    """Adds to the last channels, those that the dense block made."""
    y = _binary(net, parts, x, name)
    old = net.channels(x) - net.channels(y)
    last = net.sum(f"{name}.add", net.slice(f"{name}.last", x, old, net.channels(x)), y)
    return net.concat(name, net.slice(f"{name}.first", x, 0, old), last)


def _transition(net: Network, parts: Parts, x: str, name: str) -> str:
    x = net.norm(f"{name}.bn", x, parts.norm(), EPS)
    x = net.max_pool(f"{name}.pool", x, 2, padding="same")
    return net.conv(f"{name}.conv", net.relu(f"{name}.relu", x), parts.conv().weight)
