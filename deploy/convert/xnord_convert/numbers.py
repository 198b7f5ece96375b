"""What a layer's numbers are made of: all of it in double precision, and rounded once."""

from dataclasses import dataclass
from typing import Optional

import numpy as np


@dataclass(frozen=True)
class Norm:
    """A batch normalisation: (x - mean) / sqrt(variance + eps) * gamma + beta."""

    mean: np.ndarray
    variance: np.ndarray
    gamma: Optional[np.ndarray] = None  # None: 1
    beta: Optional[np.ndarray] = None  # None: 0

    def fold(self, eps: float) -> tuple[np.ndarray, np.ndarray]:
        """scale and bias, so that it is x * scale + bias."""
        scale = 1 / np.sqrt(double(self.variance) + eps)
        if self.gamma is not None:
            scale = scale * double(self.gamma)
        bias = -double(self.mean) * scale
        if self.beta is not None:
            bias = bias + double(self.beta)
        return scale, bias


def double(values: np.ndarray) -> np.ndarray:
    return np.asarray(values, np.float64)


def mean_magnitude(weight: np.ndarray) -> np.ndarray:
    """XNOR-Net's alpha: the mean of |w| over each filter."""
    return np.abs(double(weight)).reshape(len(weight), -1).mean(1)


def centred(weight: np.ndarray) -> np.ndarray:
    """Without its mean over the input channels, and limited to -1 .. 1."""
    weight = double(weight)
    return np.clip(weight - weight.mean(1, keepdims=True), -1, 1)


def flat_columns(weight: np.ndarray, channels: int, height: int, width: int) -> np.ndarray:
    """A dense layer [O, H*W*C] behind a flatten of channels-last values, as one [O, C*H*W] behind a
    flatten of channels-first values."""
    weight = weight.reshape(len(weight), height, width, channels)
    return np.ascontiguousarray(weight.transpose(0, 3, 1, 2)).reshape(len(weight), -1)
