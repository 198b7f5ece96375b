"""The architectures that are known: how each one's checkpoint becomes layers.

A builder gets the network to add to, the checkpoint, and the name of the layer that the first one
reads; it takes every tensor of the checkpoint and sets the network's output. Sizes come from the
tensors, so that narrower networks and other numbers of classes convert as well.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any, Callable, Optional

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
    keras: Optional[bool] = False  # whether files are Keras', where not both are
    zero: int = 1  # its authors' sign(0)
    assumed: Optional[str] = None  # what tensors cannot tell

    def picture(self, size: tuple[int, int], normalised: bool) -> dict[str, Any]:
        """What its authors do with a picture before they test: of ImageNet the shorter side becomes
        256, by larq-zoo's bicubic filter or torchvision's bilinear one, and the middle is cut out.
        normalised: the network takes values that the client has normalised."""
        picture: dict[str, Any] = {}
        if size == self.shape[1:] and size in ((224, 224), (227, 227)):
            kind = "bicubic" if self.keras else "bilinear"
            picture = {"resize": 256, "crop": size[0], "filter": kind}
        if normalised and self.preprocessing:
            picture["mean"], picture["std"] = map(list, self.preprocessing)
        return picture


FAMILIES: dict[str, Family] = {
    "xnor-alexnet": Family(
        alexnet.build_allenai,
        "allenai/XNOR-Net, as a PyTorch state dict",
        (3, 224, 224),
        IMAGENET,
        zero=0,
    ),
    "alexnet": Family(
        alexnet.build_jiecaoyu, "jiecaoyu/XNOR-Net-PyTorch, ImageNet", (3, 227, 227), None, zero=0
    ),
    "nin": Family(nin.build, "jiecaoyu/XNOR-Net-PyTorch, CIFAR_10", (3, 32, 32), None, zero=0),
    "birealnet18": Family(
        partial(birealnet.build, blocks=(4, 4, 4, 4)),
        "liuzechun/Bi-Real-net",
        (3, 224, 224),
        IMAGENET,
        zero=0,
    ),
    "birealnet34": Family(
        partial(birealnet.build, blocks=(6, 8, 12, 6)),
        "liuzechun/Bi-Real-net",
        (3, 224, 224),
        IMAGENET,
        zero=0,
    ),
    "reactnet18": Family(
        partial(birealnet.build, blocks=(4, 4, 4, 4), moves=True),
        "liuzechun/ReActNet, resnet",
        (3, 224, 224),
        IMAGENET,
        zero=0,
        assumed="the file is of step 2: step 1, with real weights, has the same tensors",
    ),
    "reactnet-a": Family(
        reactnet.build, "liuzechun/ReActNet, mobilenet", (3, 224, 224), IMAGENET, zero=0
    ),
    "binarydensenet28": Family(
        partial(densenet.build, name="28"),
        "larq-zoo .h5, bitorch, BMXNet-v2 .params",
        (3, 224, 224),
        IMAGENET,
        keras=None,
    ),
    "binarydensenet37": Family(
        partial(densenet.build, name="37"),
        "larq-zoo .h5, bitorch, BMXNet-v2 .params",
        (3, 224, 224),
        IMAGENET,
        keras=None,
    ),
    "binarydensenet37-dilated": Family(
        partial(densenet.build, name="37-dilated"),
        "larq-zoo .h5, bitorch, BMXNet-v2 .params",
        (3, 224, 224),
        IMAGENET,
        keras=None,
    ),
    "binarydensenet45": Family(
        partial(densenet.build, name="45"),
        "larq-zoo .h5, bitorch, BMXNet-v2 .params",
        (3, 224, 224),
        IMAGENET,
        keras=None,
    ),
    "quicknet": Family(
        quicknet.build, "larq-zoo .h5: QuickNet, -Small, -Large", (3, 224, 224), HALF, keras=True
    ),
    "meliusnet22": Family(meliusnet.build, "larq-zoo .h5", (3, 224, 224), HALF, keras=True),
    "real-to-binary": Family(
        real_to_binary.build, "larq-zoo .h5: RealToBinaryNet", (3, 224, 224), HALF, keras=True
    ),
    "vgg-cifar10": Family(vgg.build, "itayhubara/BinaryNet.pytorch", (3, 32, 32), IMAGENET, zero=0),
    "cnv": Family(
        finn.build_cnv,
        "Xilinx/brevitas bnn_pynq: CNV 1w1a",
        (3, 32, 32),
        None,
        assumed="weights and activations have 1 bit: 1w2a and 2w2a have the same tensors",
    ),
    "lfc": Family(
        finn.build_lfc,
        "Xilinx/brevitas bnn_pynq: LFC, SFC, TFC 1w1a",
        (1, 28, 28),
        None,
        assumed="weights and activations have 1 bit: 1w2a and 2w2a have the same tensors",
    ),
}
