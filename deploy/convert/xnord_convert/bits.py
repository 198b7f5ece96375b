"""Signs as packed bits (MODELS.md, section 6): 1 is +1, channels last, least significant first."""

import numpy as np


def pack(weight: np.ndarray) -> np.ndarray:
    """[O, C, KH, KW] as [O, KH, KW, ceil(C/8)], or [O, I] as [O, ceil(I/8)]. Zero is +1."""
    signs = weight >= 0
    if weight.ndim == 4:
        signs = signs.transpose(0, 2, 3, 1)
    return np.packbits(signs, axis=-1, bitorder="little")


def unpack(packed: np.ndarray, channels: int) -> np.ndarray:
    """The signs, +1 and -1, of what pack made of so many channels."""
    signs = np.unpackbits(packed, axis=-1, count=channels, bitorder="little") * 2.0 - 1.0
    return signs.transpose(0, 3, 1, 2) if packed.ndim == 4 else signs
