"""jiecaoyu's Network in Network for CIFAR-10."""

from ..checkpoint import Checkpoint
from ..network import Network
from .alexnet import binary
from .common import finish

LEAST_GAMMA = 0.01  # its forward() limits every batch norm's weight so
EPS = 1e-4


def build(net: Network, checkpoint: Checkpoint, x: str) -> None:
    x = net.conv(
        "xnor.0",
        x,
        checkpoint.take("xnor.0.weight"),
        bias=checkpoint.take("xnor.0.bias"),
        padding=2,
    )
    x = net.relu("xnor.2", net.norm("xnor.1", x, checkpoint.norm("xnor.1"), EPS))
    x = _binary(net, checkpoint, x, 3)
    x = _binary(net, checkpoint, x, 4)
    x = net.max_pool("xnor.5", x, 3, stride=2, padding=1)
    x = _binary(net, checkpoint, x, 6, padding=2)
    x = _binary(net, checkpoint, x, 7)
    x = _binary(net, checkpoint, x, 8)
    x = net.avg_pool("xnor.9", x, 3, stride=2, padding=1, count_padding=True)
    x = _binary(net, checkpoint, x, 10, padding=1)
    x = _binary(net, checkpoint, x, 11)
    x = net.norm("xnor.12", x, checkpoint.norm("xnor.12"), EPS)
    x = net.conv(
        "xnor.13", x, checkpoint.take("xnor.13.weight"), bias=checkpoint.take("xnor.13.bias")
    )
    finish(net, net.avg_pool("xnor.15", net.relu("xnor.14", x), "global"))


def _binary(net: Network, checkpoint: Checkpoint, x: str, index: int, **window: int) -> str:
    return binary(net, checkpoint, x, f"xnor.{index}", "conv", LEAST_GAMMA, **window)
