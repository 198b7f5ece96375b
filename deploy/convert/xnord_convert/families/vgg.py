"""Hubara's VGG for CIFAR-10: binary weights in every layer, real inputs in the first. Its
LogSoftmax is left out: it changes no order of classes."""

from ..checkpoint import Checkpoint
from ..network import Network
from .common import EPS, finish


def build(net: Network, checkpoint: Checkpoint, x: str) -> None:
    x = _sequence(net, checkpoint, x, "features", padding=1)
    elements = checkpoint.take("classifier.0.weight").shape[1]
    finish(net, _sequence(net, checkpoint, net.flatten("flatten", x, elements), "classifier"))


def _sequence(net: Network, checkpoint: Checkpoint, x: str, prefix: str, **window: int) -> str:
    """Weights, where the next number is free a pool, batch norm, hardtanh; none behind the last."""
    numbers = [int(number) for number in checkpoint.children(f"{prefix}.")]
    pairs = list(zip(numbers[::2], numbers[1::2]))
    for conv, norm in pairs:
        name = f"{prefix}.{conv}"
        first = prefix == "features" and conv == 0
        x = net.conv(
            name,
            x,
            checkpoint.take(f"{name}.weight"),
            "bwn" if first else "xnor",
            bias=checkpoint.maybe(f"{name}.bias"),
            **window,
        )
        if norm - conv == 2:
            x = net.max_pool(f"{prefix}.{conv + 1}", x, 2)
        x = net.norm(f"{prefix}.{norm}", x, checkpoint.norm(f"{prefix}.{norm}"), EPS)
        if (conv, norm) != pairs[-1] or prefix == "features":
            x = net.clip(f"{prefix}.{norm + 1}", x, -1, 1)
    return x
