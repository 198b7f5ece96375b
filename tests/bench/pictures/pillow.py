"""Pillow beside bench-pictures, with its files: pillow.py FOLDER [PROCESSES [SECONDS]]."""

import io
import multiprocessing
import pathlib
import statistics
import sys
import time

import numpy
import PIL
from PIL import Image

ROUNDS = 5


def read(file: bytes) -> numpy.ndarray:
    """Resize(256) and CenterCrop(224) of a file that is 500 x 375."""
    picture = Image.open(io.BytesIO(file)).convert("RGB")
    width, height = picture.size
    width, height = int(256 * width / height), 256
    left, top = round((width - 224) / 2.0), round((height - 224) / 2.0)
    picture = picture.resize((width, height), Image.Resampling.BILINEAR)
    return numpy.asarray(picture.crop((left, top, left + 224, top + 224)))


def work(arguments: tuple[list[bytes], float]) -> float:
    files, seconds = arguments
    count, begin = 0, time.monotonic()
    while time.monotonic() - begin < seconds:
        read(files[count % len(files)])
        count += 1
    return count / (time.monotonic() - begin)


def main() -> None:
    folder = pathlib.Path(sys.argv[1])
    processes = int(sys.argv[2]) if len(sys.argv) > 2 else 2
    seconds = float(sys.argv[3]) if len(sys.argv) > 3 else 1.0
    files = [path.read_bytes() for path in sorted(folder.glob("*.jpg"))]
    with multiprocessing.Pool(processes) as pool:
        rates = [sum(pool.map(work, [(files, seconds)] * processes)) for _ in range(ROUNDS)]
    name = f"Pillow {PIL.__version__}: the same"
    print(f"{name:30} {statistics.median(rates):8.0f} ({min(rates):.0f}, {max(rates):.0f})")


if __name__ == "__main__":
    main()
