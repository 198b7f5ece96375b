"""The architectures that are known: how each one's checkpoint becomes layers.

A builder gets the network to add to, the checkpoint, and the name of the layer that the first one
reads; it takes every tensor of the checkpoint and sets the network's output. Sizes come from the
tensors, so that narrower networks and other numbers of classes convert as well.
"""

from dataclasses import dataclass
from functools import partial
from typing import Callable, Optional

from ..checkpoint import Checkpoint
from ..network import Network
from . import (
    alexnet,
    birealnet,
    densenet,
    finn,
    meliusnet,
    nin,
    quicknet,
    reactnet,
    real_to_binary,
    vgg,
)

Builder = Callable[[Network, Checkpoint, str], None]
Triple = tuple[float, float, float]

IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
HALF = ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))  # -1 to 1


@dataclass(frozen=True)
class Family:
    build: Builder
    source: str  # whose checkpoints
    shape: tuple[int, int, int]  # of an image, where --size does not say
    preprocessing: Optional[tuple[Triple, Triple]]  # mean and std of values in 0 to 1


FAMILIES: dict[str, Family] = {
    "xnor-alexnet": Family(
        alexnet.build_allenai, "allenai/XNOR-Net, as a PyTorch state dict", (3, 224, 224), IMAGENET
    ),
    "alexnet": Family(
        alexnet.build_jiecaoyu, "jiecaoyu/XNOR-Net-PyTorch, ImageNet", (3, 227, 227), None
    ),
    "nin": Family(nin.build, "jiecaoyu/XNOR-Net-PyTorch, CIFAR_10", (3, 32, 32), None),
    "birealnet18": Family(
        partial(birealnet.build, blocks=(4, 4, 4, 4)),
        "liuzechun/Bi-Real-net",
        (3, 224, 224),
        IMAGENET,
    ),
    "birealnet34": Family(
        partial(birealnet.build, blocks=(6, 8, 12, 6)),
        "liuzechun/Bi-Real-net",
        (3, 224, 224),
        IMAGENET,
    ),
    "reactnet18": Family(
        partial(birealnet.build, blocks=(4, 4, 4, 4), moves=True),
        "liuzechun/ReActNet, resnet",
        (3, 224, 224),
        IMAGENET,
    ),
    "reactnet-a": Family(reactnet.build, "liuzechun/ReActNet, mobilenet", (3, 224, 224), IMAGENET),
    "binarydensenet28": Family(
        partial(densenet.build, name="28"),
        "larq-zoo .h5, bitorch, BMXNet-v2 .params",
        (3, 224, 224),
        IMAGENET,
    ),
    "binarydensenet37": Family(
        partial(densenet.build, name="37"),
        "larq-zoo .h5, bitorch, BMXNet-v2 .params",
        (3, 224, 224),
        IMAGENET,
    ),
    "binarydensenet37-dilated": Family(
        partial(densenet.build, name="37-dilated"),
        "larq-zoo .h5, bitorch, BMXNet-v2 .params",
        (3, 224, 224),
        IMAGENET,
    ),
    "binarydensenet45": Family(
        partial(densenet.build, name="45"),
        "larq-zoo .h5, bitorch, BMXNet-v2 .params",
        (3, 224, 224),
        IMAGENET,
    ),
    "quicknet": Family(
        quicknet.build, "larq-zoo .h5: QuickNet, -Small, -Large", (3, 224, 224), HALF
    ),
    "meliusnet22": Family(meliusnet.build, "larq-zoo .h5", (3, 224, 224), HALF),
    "real-to-binary": Family(
        real_to_binary.build, "larq-zoo .h5: RealToBinaryNet", (3, 224, 224), HALF
    ),
    "vgg-cifar10": Family(vgg.build, "itayhubara/BinaryNet.pytorch", (3, 32, 32), IMAGENET),
    "cnv": Family(finn.build_cnv, "Xilinx/brevitas bnn_pynq: CNV 1w1a", (3, 32, 32), None),
    "lfc": Family(
        finn.build_lfc, "Xilinx/brevitas bnn_pynq: LFC, SFC, TFC 1w1a", (1, 28, 28), None
    ),
}
