"""What several families have in common."""

from typing import Optional, Sequence

import numpy as np

from .. import ConvertError
from ..checkpoint import Checkpoint
from ..network import Network

EPS = 1e-5  # PyTorch's and the zoo's
KERAS_EPS = 1e-3


def binary_weight(
    checkpoint: Checkpoint, name: str, filters: int, channels: int, kernel: int, column: bool = True
) -> np.ndarray:
    """Of liuzechun's HardBinaryConv: `weights`, a column of all values, or `weight` in its shape,
    which elsewhere is that of a real convolution."""
    if column and checkpoint.has(f"{name}.weight"):
        raise ConvertError(
            f'"{name}.weight" is of a convolution with real weights, as in the first of two steps '
            f'of training; the family has "{name}.weights", a column, as the second step leaves it'
        )
    values = checkpoint.take(f"{name}.weights" if column else f"{name}.weight")
    shape = (filters, channels, kernel, kernel)
    if values.size != np.prod(shape):
        raise ConvertError(
            f'"{name}" has {values.size} weights; [{filters}, {channels}, {kernel}, '
            f"{kernel}] must come there"
        )
    return values.reshape(shape)


def check_blocks(found: Sequence[int], expected: Sequence[int]) -> None:
    if tuple(found) != tuple(expected):
        raise ConvertError(
            f"the file has {', '.join(map(str, found))} blocks in its stages; the "
            f"family has {', '.join(map(str, expected))}"
        )


def classify(
    net: Network, x: str, weight: np.ndarray, bias: Optional[np.ndarray], softmax: bool = False
) -> None:
    """The mean of each channel, and a dense layer."""
    x = net.avg_pool("mean", x, "global")
    x = net.flatten("flatten", x, net.channels(x))
    finish(net, net.conv("fc", x, weight, bias=bias), softmax)


def finish(net: Network, x: str, softmax: bool = False) -> None:
    if softmax:
        x = net.softmax("softmax", x)
    net.outputs = [("probabilities" if softmax else "logits", x)]
