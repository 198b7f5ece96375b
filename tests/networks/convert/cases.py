"""The networks that are built, converted, served and compared: one row each."""

from dataclasses import dataclass
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
    make: Callable[[], nn.Module]
    save: Save
    file: str
    side: int
    family: str = ""  # the name, where nothing else is said
    channels: int = 3
    softmax: bool = False  # the model's last layer, unless --logits
    unit: bool = False  # images are of 0 to 1

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.channels, self.side, self.side


def plain(prefix: str = "") -> Save:
    return partial(save.torch_file, wrapped=False, prefix=prefix)


def dense(depth: str, width: int, of: str, how: Save, file: str) -> Case:
    def make() -> nn.Module:
        return d.DenseNet(depth, width, CLASSES, of == "larq")

    family = f"binarydensenet{depth}"
    return Case(f"densenet{depth} {of}", make, how, file, 64, family, softmax=of == "larq")


def keras(name: str, make: Callable[..., nn.Module]) -> Case:
    return Case(name, lambda: make(16, CLASSES), save.keras_net, "a.h5", 64, softmax=True)


WRAPPED: Save = partial(save.torch_file, wrapped=True)
FOUR = (4, 4, 4, 4)

CASES = [
    Case("xnor-alexnet", lambda: d.XnorAlexNet(8, CLASSES, 2), plain(), "a.pth", 95),
    Case("alexnet", lambda: d.AlexNet(8, CLASSES, 2), WRAPPED, "a.pth.tar", 99),
    Case("nin", lambda: d.Nin(4, CLASSES), WRAPPED, "a.pth.tar", 32),
    Case("birealnet18", lambda: d.BiRealNet(FOUR, 16, CLASSES), WRAPPED, "a.pth.tar", 64),
    Case("birealnet34", lambda: d.BiRealNet((6, 8, 12, 6), 8, CLASSES), WRAPPED, "a.pth.tar", 64),
    Case("reactnet18", lambda: d.BiRealNet(FOUR, 16, CLASSES, moves=True), plain(), "a.pth", 64),
    Case("reactnet-a", lambda: d.ReActNetA(8, CLASSES), WRAPPED, "a.pth.tar", 64),
    dense("28", 16, "bitorch", plain("_model."), "a.pth"),
    dense("37", 8, "mxnet", save.mxnet_file, "a.params"),
    dense("37-dilated", 8, "bitorch", plain(), "a.pth"),
    dense("28", 16, "larq", save.keras_densenet, "a.h5"),
    dense("37-dilated", 8, "larq", save.keras_densenet, "a.h5"),
    keras("quicknet", d.QuickNet),
    keras("meliusnet22", d.MeliusNet),
    keras("real-to-binary", d.RealToBinary),
    Case("vgg-cifar10", lambda: d.Vgg(16, CLASSES), plain(), "a.pth", 32),
    Case("cnv", lambda: d.Cnv(16, CLASSES), plain(), "a.tar", 32, unit=True),
    Case("lfc", lambda: d.Lfc(128, CLASSES), plain(), "a.tar", 28, channels=1, unit=True),
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
