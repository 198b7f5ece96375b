"""FINN's CNV and LFC as brevitas trains them, with 1-bit weights and activations (1w1a). Images are
of 0 to 1; the networks bring them to -1 to 1 themselves."""

import numpy as np

from .. import ConvertError
from ..checkpoint import Checkpoint
from ..network import Network
from ..numbers import Norm
from .common import EPS, finish

CNV_EPS = TENSOR_NORM_EPS = 1e-4


def build_cnv(net: Network, checkpoint: Checkpoint, x: str) -> None:
    x = _centre(net, x)
    x = net.quantize("conv_features.0", x, 1 / 128, -128, 127)
    x = _convolutions(net, checkpoint, x)
    elements = checkpoint.take("linear_features.0.weight").shape[1]
    x = net.flatten("flatten", x, elements)
    finish(net, _dense(net, checkpoint, x, "linear_features", CNV_EPS))


def build_lfc(net: Network, checkpoint: Checkpoint, x: str) -> None:
    elements = int(np.prod(net.shape))
    x = net.sign("features.0", _centre(net, net.flatten("flatten", x, elements)))
    finish(net, _dense(net, checkpoint, x, "features", EPS))


def _centre(net: Network, x: str) -> str:
    return net.affine("centre", x, np.array([2.0]), np.array([-1.0]))


def _weighted(checkpoint: Checkpoint, prefix: str) -> list[int]:
    """The numbers of the layers with weights."""
    return [
        int(number)
        for number in checkpoint.children(f"{prefix}.")
        if checkpoint.has(f"{prefix}.{number}.weight")
    ]


def _convolutions(net: Network, checkpoint: Checkpoint, x: str) -> str:
    """Convolution, batch norm, sign; a pool of the signs where the next number is free."""
    numbers = _weighted(checkpoint, "conv_features")
    convs, norms = numbers[::2], numbers[1::2]
    for conv, norm, following in zip(convs, norms, convs[1:] + [0]):
        name = f"conv_features.{conv}"
        x = net.conv(name, x, checkpoint.take(f"{name}.weight"), "xnor" if conv > 1 else "bwn")
        x = net.norm(f"conv_features.{norm}", x, checkpoint.norm(f"conv_features.{norm}"), CNV_EPS)
        x = net.sign(f"conv_features.{norm + 1}", x)
        if following > norm + 2:
            x = net.max_pool(f"conv_features.{norm + 2}", x, 2)
    return x


def _dense(net: Network, checkpoint: Checkpoint, x: str, prefix: str, eps: float) -> str:
    numbers = _weighted(checkpoint, prefix)
    for linear, norm in zip(numbers[::2], numbers[1::2]):
        name = f"{prefix}.{linear}"
        x = net.conv(name, x, checkpoint.take(f"{name}.weight"), "xnor")
        found = checkpoint.norm(f"{prefix}.{norm}")
        if norm == numbers[-1]:
            return net.norm(f"{prefix}.{norm}", x, _scalar(found), TENSOR_NORM_EPS)
        x = net.sign(f"{prefix}.{norm + 1}", net.norm(f"{prefix}.{norm}", x, found, eps))
    raise ConvertError(f'the file has no layers with weights below "{prefix}"')


def _scalar(norm: Norm) -> Norm:
    if norm.mean.size != 1:
        raise ConvertError(f"the last norm has {norm.mean.size} values; brevitas' TensorNorm has 1")
    return norm
