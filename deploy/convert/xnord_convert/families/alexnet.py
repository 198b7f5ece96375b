"""XNOR-Net's AlexNet, from allenai (by order) and from jiecaoyu (by name)."""

import numpy as np

from .. import ConvertError
from ..checkpoint import Checkpoint
from ..network import Network
from ..numbers import centred, mean_magnitude
from .common import finish


def build_allenai(net: Network, checkpoint: Checkpoint, x: str) -> None:
    """A state dict whose order is that of the layers; what they are called does not matter. Its
    LogSoftMax is left out: it changes no order of classes."""
    parts = checkpoint.parts()
    stem = parts.conv()
    x = net.conv("conv1", x, stem.weight, bias=stem.bias, stride=4, padding=2)
    x = net.norm("bn1", x, parts.norm(), 1e-5)
    x = net.max_pool("pool1", net.relu("relu1", x), 3, stride=2)
    for index, padding, pool in (
        (2, 2, True),
        (3, 1, False),
        (4, 1, False),
        (5, 1, True),
        (6, 0, False),
        (7, 0, False),
    ):
        x = net.norm(f"bn{index}", x, parts.norm(), 1e-4)
        conv = parts.conv()
        x = net.conv(
            f"conv{index}",
            net.sign(f"sign{index}", x),
            conv.weight,
            "xnor",
            mean_magnitude(conv.weight),
            conv.bias,
            padding=padding,
        )
        if pool:
            x = net.max_pool(f"pool{index}", x, 3, stride=2)
    x = net.relu("relu8", net.norm("bn8", x, parts.norm(), 1e-3))
    last = parts.conv()
    finish(net, net.conv("conv8", x, last.weight, bias=last.bias))
    parts.end()


def build_jiecaoyu(net: Network, checkpoint: Checkpoint, x: str) -> None:
    x = net.conv(
        "features.0",
        x,
        checkpoint.take("features.0.weight"),
        bias=checkpoint.take("features.0.bias"),
        stride=4,
    )
    x = net.norm("features.1", x, checkpoint.norm("features.1"), 1e-4)
    x = net.max_pool("features.3", net.relu("features.2", x), 3, stride=2)
    x = binary(net, checkpoint, x, "features.4", "conv", padding=2)
    x = net.max_pool("features.5", x, 3, stride=2)
    for name in ("features.6", "features.7", "features.8"):
        x = binary(net, checkpoint, x, name, "conv", padding=1)
    x = net.max_pool("features.9", x, 3, stride=2)
    x = _flatten(net, checkpoint, x)
    x = binary(net, checkpoint, x, "classifier.0", "linear")
    x = binary(net, checkpoint, x, "classifier.1", "linear")
    x = net.norm("classifier.2", x, checkpoint.norm("classifier.2"), 1e-3)
    finish(
        net,
        net.conv(
            "classifier.4",
            x,
            checkpoint.take("classifier.4.weight"),
            bias=checkpoint.take("classifier.4.bias"),
        ),
    )


def _flatten(net: Network, checkpoint: Checkpoint, x: str) -> str:
    elements = checkpoint.take("classifier.0.linear.weight").shape[1]
    if elements % net.channels(x):
        raise ConvertError(
            f"classifier.0 takes {elements} values, which is no multiple of the "
            f"{net.channels(x)} channels before it"
        )
    return net.flatten("flatten", x, elements)


def binary(
    net: Network,
    checkpoint: Checkpoint,
    x: str,
    name: str,
    kind: str,
    least_gamma: float = -np.inf,
    **window: int,
) -> str:
    """jiecaoyu's BinConv2d: batch norm, sign, convolution, ReLU. Its weights are centred and
    limited before they are binarised; its NIN keeps gamma at 0.01 or more."""
    norm = checkpoint.norm(f"{name}.bn")
    if norm.gamma is not None:
        norm = type(norm)(norm.mean, norm.variance, np.maximum(norm.gamma, least_gamma), norm.beta)
    x = net.norm(f"{name}.bn", x, norm, 1e-4)
    weight = centred(checkpoint.take(f"{name}.{kind}.weight"))
    x = net.conv(
        f"{name}.{kind}",
        net.sign(f"{name}.sign", x),
        weight,
        "xnor",
        mean_magnitude(weight),
        checkpoint.take(f"{name}.{kind}.bias"),
        **window,
    )
    return net.relu(f"{name}.relu", x)
