"""QuickNet of the Larq zoo, in its sizes: the blocks are counted in the file."""

from ..checkpoint import Checkpoint, Parts
from ..network import Network
from .common import EPS, KERAS_EPS, classify


def build(net: Network, checkpoint: Checkpoint, x: str) -> None:
    parts = checkpoint.parts()
    x = _stem(net, parts, x)
    section, index = 0, 0
    while (part := parts.peek()) and part.kind == "convolution":
        if part.weight.shape[1] == 1:  # depthwise: the blur of a transition
            section, index = section + 1, 0
            x = _transition(net, parts, x, f"transition{section}")
        x = _block(net, parts, x, f"section{section}.{index}")
        index += 1
    last = parts.dense()
    classify(net, net.relu("relu", x), last.weight, last.bias, softmax=True)
    parts.end()


def _stem(net: Network, parts: Parts, x: str) -> str:
    x = net.conv("stem.conv1", x, parts.conv().weight, stride=2, padding="same")
    x = net.relu("stem.relu", net.norm("stem.bn1", x, parts.norm(), KERAS_EPS))
    x = net.conv(
        "stem.depthwise", x, parts.conv().weight, stride=2, padding="same", groups=net.channels(x)
    )
    x = net.norm("stem.bn2", x, parts.norm(), KERAS_EPS)
    x = net.conv("stem.conv2", x, parts.conv().weight)
    return net.norm("stem.bn3", x, parts.norm(), KERAS_EPS)


def _block(net: Network, parts: Parts, x: str, name: str) -> str:
    y = net.conv(
        f"{name}.conv",
        net.sign(f"{name}.sign", x),
        parts.conv().weight,
        "xnor",
        padding="same",
        pad_value=1,
    )
    y = net.norm(f"{name}.bn", net.relu(f"{name}.relu", y), parts.norm(), EPS)
    return net.sum(name, y, x)


def _transition(net: Network, parts: Parts, x: str, name: str) -> str:
    x = net.max_pool(f"{name}.pool", net.relu(f"{name}.relu", x), 2, stride=1)
    x = net.conv(
        f"{name}.blur", x, parts.conv().weight, stride=2, padding="same", groups=net.channels(x)
    )
    x = net.conv(f"{name}.conv", x, parts.conv().weight)
    return net.norm(f"{name}.bn", x, parts.norm(), EPS)
