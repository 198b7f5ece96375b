"""MXNet's .params: what save_parameters of Gluon writes. Little-endian:

u64 0x112, u64 0, u64 number of arrays, the arrays, u64 number of names, each u64 length and text
an array: u32 0xF993FAC9, i32 storage (0, dense), shape, i32 i32 device, i32 datatype, values
a shape: u32 number of dimensions, an i64 each
"""

import struct
from pathlib import Path

import numpy as np

from . import ConvertError

FILE, ARRAY = 0x112, 0xF993FAC9
DATATYPES = {0: "<f4", 1: "<f8", 2: "<f2", 3: "u1", 4: "<i4", 5: "i1", 6: "<i8"}


class _Reader:
    def __init__(self, path: Path):
        self._path, self._bytes, self._at = path, path.read_bytes(), 0

    def take(self, length: int) -> bytes:
        if length < 0 or length > len(self._bytes) - self._at:
            raise self.error(f"it ends within {length} bytes at {self._at}")
        self._at += length
        return self._bytes[self._at - length : self._at]

    def numbers(self, form: str) -> tuple[int, ...]:
        return struct.unpack("<" + form, self.take(struct.calcsize("<" + form)))

    def error(self, text: str) -> ConvertError:
        return ConvertError(f"{self._path}: {text}; expected a .params of MXNet 1.5 or later")


def read(path: Path) -> dict[str, np.ndarray]:
    reader = _Reader(path)
    mark, _, count = reader.numbers("QQQ")
    if mark != FILE:
        raise reader.error(f"it begins with {mark:#x}")
    arrays = [_read_array(reader) for _ in range(count)]
    (names,) = reader.numbers("Q")
    if names != count:
        raise reader.error(f"it has {count} arrays and {names} names")
    found = {}
    for values in arrays:
        (length,) = reader.numbers("Q")
        name = reader.take(length).decode("utf-8", "replace")
        found[name.removeprefix("arg:").removeprefix("aux:")] = values
    return found


def _read_array(reader: _Reader) -> np.ndarray:
    mark, storage = reader.numbers("Ii")
    if mark != ARRAY or storage != 0:
        raise reader.error(f"an array begins with {mark:#x}, storage {storage}")
    (rank,) = reader.numbers("I")
    shape = reader.numbers(f"{rank}q") if rank <= 8 else ()
    _, _, datatype = reader.numbers("iii")
    if rank > 8 or min(shape, default=1) < 0 or datatype not in DATATYPES:
        raise reader.error(f"an array of {rank} dimensions, {shape}, and datatype {datatype}")
    dtype = np.dtype(DATATYPES[datatype])
    length = dtype.itemsize
    for size in shape:
        length *= size
    return np.frombuffer(reader.take(length), dtype).reshape(shape)
