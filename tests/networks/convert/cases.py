"""The networks that are built, converted, served and compared: one row each."""

from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Callable

import definitions as d
import numpy as np
import parameters
import save
import torch
from torch import nn

CLASSES = 10
Save = Callable[[nn.Module, Path], None]


@dataclass(frozen=True)
class Case:
    name: str
    family: str
    make: Callable[[], nn.Module]
    save: Save
    file: str
    shape: tuple[int, int, int]
    options: tuple[str, ...] = ()
    softmax: bool = False  # the model's last layer, unless --logits
    unit: bool = False  # images are of 0 to 1
    exact: bool = True  # has an exact variant
    variants: tuple[str, ...] = field(default=("exact", "random"))


def plain(prefix: str = "") -> Save:
    return partial(save.torch_file, wrapped=False, prefix=prefix)


WRAPPED: Save = partial(save.torch_file, wrapped=True)

CASES = [
    Case(
        "xnor-alexnet",
        "xnor-alexnet",
        lambda: d.XnorAlexNet(8, CLASSES, 2),
        plain(),
        "a.pth",
        (3, 95, 95),
    ),
    Case("alexnet", "alexnet", lambda: d.AlexNet(8, CLASSES, 2), WRAPPED, "a.pth.tar", (3, 99, 99)),
    Case("nin", "nin", lambda: d.Nin(4, CLASSES), WRAPPED, "a.pth.tar", (3, 32, 32)),
    Case(
        "birealnet18",
        "birealnet18",
        lambda: d.BiRealNet((4, 4, 4, 4), 16, CLASSES),
        WRAPPED,
        "a.pth.tar",
        (3, 64, 64),
    ),
    Case(
        "birealnet34",
        "birealnet34",
        lambda: d.BiRealNet((6, 8, 12, 6), 8, CLASSES),
        WRAPPED,
        "a.pth.tar",
        (3, 64, 64),
    ),
    Case(
        "reactnet18",
        "reactnet18",
        lambda: d.BiRealNet((4, 4, 4, 4), 16, CLASSES, moves=True),
        plain(),
        "a.pth",
        (3, 64, 64),
    ),
    Case(
        "reactnet-a",
        "reactnet-a",
        lambda: d.ReActNetA(8, CLASSES),
        WRAPPED,
        "a.pth.tar",
        (3, 64, 64),
    ),
    Case(
        "densenet28 bitorch",
        "binarydensenet28",
        lambda: d.DenseNet("28", 16, CLASSES, False),
        plain("_model."),
        "a.pth",
        (3, 64, 64),
    ),
    Case(
        "densenet37 mxnet",
        "binarydensenet37",
        lambda: d.DenseNet("37", 8, CLASSES, False),
        save.mxnet_file,
        "a.params",
        (3, 64, 64),
    ),
    Case(
        "densenet37d bitorch",
        "binarydensenet37-dilated",
        lambda: d.DenseNet("37-dilated", 8, CLASSES, False),
        plain(),
        "a.pth",
        (3, 64, 64),
    ),
    Case(
        "densenet28 larq",
        "binarydensenet28",
        lambda: d.DenseNet("28", 16, CLASSES, True),
        save.keras_densenet,
        "a.h5",
        (3, 64, 64),
        softmax=True,
    ),
    Case(
        "densenet37d larq",
        "binarydensenet37-dilated",
        lambda: d.DenseNet("37-dilated", 8, CLASSES, True),
        save.keras_densenet,
        "a.h5",
        (3, 64, 64),
        softmax=True,
    ),
    Case(
        "quicknet",
        "quicknet",
        lambda: d.QuickNet(16, CLASSES),
        save.keras_net,
        "a.h5",
        (3, 64, 64),
        softmax=True,
    ),
    Case(
        "meliusnet22",
        "meliusnet22",
        lambda: d.MeliusNet(16, CLASSES),
        save.keras_net,
        "a.h5",
        (3, 64, 64),
        softmax=True,
    ),
    Case(
        "real-to-binary",
        "real-to-binary",
        lambda: d.RealToBinary(16, CLASSES),
        save.keras_net,
        "a.h5",
        (3, 64, 64),
        softmax=True,
    ),
    Case("vgg-cifar10", "vgg-cifar10", lambda: d.Vgg(16, CLASSES), plain(), "a.pth", (3, 32, 32)),
    Case("cnv", "cnv", lambda: d.Cnv(16, CLASSES), plain(), "a.tar", (3, 32, 32), unit=True),
    Case("lfc", "lfc", lambda: d.Lfc(128, CLASSES), plain(), "a.tar", (1, 28, 28), unit=True),
]


def images(case: Case, count: int, exact: bool, seed: int) -> np.ndarray:
    random = np.random.default_rng(seed)
    shape = (count, *case.shape)
    if case.unit:
        return (random.integers(0, 257, shape) / 256 if exact else random.random(shape)).astype(
            "f4"
        )
    values = random.standard_normal(shape)
    return (np.clip(np.round(values * 4), -8, 8) / 4 if exact else values).astype("f4")


def model(case: Case, exact: bool, seed: int) -> nn.Module:
    """In double precision, with parameters that the checkpoint holds."""
    torch.manual_seed(seed)
    made = case.make().double()
    parameters.randomise(made)
    measuring = torch.from_numpy(images(case, 16, exact, seed + 1)).double()
    parameters.measure(made, measuring)
    if exact:
        parameters.make_exact(made)
        return made.eval()
    return made.float().double().eval()


def save_model(case: Case, made: nn.Module, exact: bool, path: Path) -> None:
    """Random ones in FP32, as trained ones are."""
    case.save(made if exact else made.float(), path)
    made.double()


@torch.no_grad()
def logits(case: Case, made: nn.Module, values: np.ndarray, exact: bool) -> np.ndarray:
    found = made(torch.from_numpy(values).double())
    return (found.softmax(1) if case.softmax and not exact else found).numpy()
