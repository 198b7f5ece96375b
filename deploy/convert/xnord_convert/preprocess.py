"""The network's input, and the layer that brings its values to what the network was trained on."""

from dataclasses import dataclass
from typing import Optional, Sequence

import numpy as np

from . import ConvertError
from .network import Network


@dataclass(frozen=True)
class Preprocessing:
    """mean and std are of values in 0 to 1, as torchvision's Normalize has them; UINT8 is divided
    by 255 first."""

    datatype: str = "FP32"
    layout: Optional[str] = None
    mean: Optional[Sequence[float]] = None
    std: Optional[Sequence[float]] = None

    def begin(
        self, shape: tuple[int, int, int], name: str = "input", layout: str = "NCHW"
    ) -> tuple[Network, str]:
        """A network for images [C, H, W], and what its first layer reads. layout: what it is where
        the user does not say."""
        net = Network(name, *shape)
        net.datatype, net.layout = self.datatype, self.layout or layout
        if self.datatype != "UINT8" and self.mean is None and self.std is None:
            return net, net.input
        unit = 255.0 if self.datatype == "UINT8" else 1.0
        std = np.asarray(1.0 if self.std is None else self.std, np.float64).reshape(-1)
        mean = np.asarray(0.0 if self.mean is None else self.mean, np.float64).reshape(-1)
        for option, values in (("--mean", mean), ("--std", std)):
            if values.size not in (1, shape[0]) or not np.isfinite(values).all():
                raise ConvertError(
                    f"{option} has {values.size} numbers; images have {shape[0]} channels"
                )
        if not std.all():
            raise ConvertError("--std has a 0, by which nothing can be divided")
        return net, net.affine("normalise", net.input, 1 / (unit * std), -mean / std)
