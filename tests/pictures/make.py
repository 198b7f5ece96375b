#!/usr/bin/env python3
"""Makes the pictures of this folder and what Pillow makes of them: cases.txt has a line a case,
`file resize height width channels filter offset`; the values are in expected.bin from that offset
on, rows of pixels. Needs Pillow and numpy:

    python3 -m venv venv && venv/bin/pip install -r tests/pictures/requirements.txt
    venv/bin/python tests/pictures/make.py FOLDER [SCALE]
    venv/bin/python tests/pictures/make.py --corpus tests/fuzz/corpus

SCALE multiplies all sizes: the pictures in the repository have 1. --corpus writes small ones for
the fuzz targets jpeg and png. The tests of clients import this
file and send its pictures in other sizes to a daemon."""

import io
import struct
import sys
import zlib
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps

FILTERS = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}


def scene(width: int, height: int, channels: int, seed: int) -> np.ndarray:
    """Waves, edges and a little noise: [height, width, channels] in 0 to 255."""
    random = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width] / max(width, height)
    planes = []
    for _ in range(channels):
        a, b, c, d = random.uniform(2, 14, 4)
        wave = 0.5 + 0.25 * np.sin(a * x + b * y) + 0.25 * np.cos(c * x * y * 9 + d)
        wave = np.where((x - random.uniform()) ** 2 + (y - 0.4) ** 2 < 0.03, 1 - wave, wave)
        planes.append(wave + random.normal(0, 0.02, wave.shape))
    return (np.clip(np.stack(planes, -1), 0, 1) * 255).round().astype(np.uint8)


def encoded(picture: Image.Image, form: str, **options) -> bytes:
    file = io.BytesIO()
    picture.save(file, form, **options)
    return file.getvalue()


def turned(value: int) -> Image.Exif:
    exif = Image.Exif()
    exif[0x0112] = value
    return exif


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(width: int, height: int, depth: int, colour: int, rows: list[bytes], *more: bytes) -> bytes:
    """A PNG of a kind that Pillow does not write. rows: packed, without filters."""
    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    data = zlib.compress(b"".join(b"\0" + row for row in rows), 9)
    end = chunk(b"IDAT", data) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + b"".join(more) + end


PASSES = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2))


def interlaced(pixels: np.ndarray) -> bytes:
    """Adam7, RGB of 8 bits."""
    height, width, _ = pixels.shape
    rows = b""
    for x, y, dx, dy in PASSES:
        for row in pixels[y::dy, x::dx]:
            if row.size:
                rows += b"\0" + row.tobytes()
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 1)
    parts = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows, 9)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + parts


def packed(values: np.ndarray, depth: int) -> list[bytes]:
    """Rows of values of 1, 2 or 4 bits."""
    bits = np.unpackbits(values.astype(np.uint8)[..., None], axis=-1)[..., 8 - depth :]
    return [np.packbits(row.reshape(-1)).tobytes() for row in bits]


def jpegs(width: int, height: int) -> dict[str, bytes]:
    rgb = Image.fromarray(scene(width, height, 3, 1))
    grey = Image.fromarray(scene(width, height, 1, 2)[..., 0])
    inks = Image.merge("CMYK", Image.fromarray(scene(width, height, 4, 3), "RGBA").split())
    files = {
        "rgb420.jpg": encoded(rgb, "JPEG", quality=90, subsampling=2),
        "rgb422.jpg": encoded(rgb, "JPEG", quality=75, subsampling=1),
        "rgb444.jpg": encoded(rgb, "JPEG", quality=95, subsampling=0),
        "progressive.jpg": encoded(rgb, "JPEG", quality=85, progressive=True),
        "restart.jpg": encoded(rgb, "JPEG", quality=80, restart_marker_rows=1),
        "keeprgb.jpg": encoded(rgb, "JPEG", quality=90, keep_rgb=True),
        "grey.jpg": encoded(grey, "JPEG", quality=90),
        "cmyk.jpg": encoded(inks, "JPEG", quality=95),
    }
    for value in range(2, 9):
        files[f"turned{value}.jpg"] = encoded(rgb, "JPEG", quality=90, exif=turned(value))
    return files


def pngs(width: int, height: int) -> dict[str, bytes]:
    rgb, rgba = scene(width, height, 3, 4), scene(width, height, 4, 5)
    grey = scene(width, height, 1, 6)[..., 0]
    wide = (scene(width, height, 4, 7).astype(">u2") << 8) | scene(width, height, 4, 8)
    wide = wide.astype(">u2")
    palette = Image.fromarray(rgb).quantize(37)
    files = {
        "rgb.png": encoded(Image.fromarray(rgb), "PNG"),
        "rgba.png": encoded(Image.fromarray(rgba), "PNG"),
        "grey.png": encoded(Image.fromarray(grey), "PNG"),
        "greyalpha.png": encoded(Image.fromarray(rgba[..., :2], "LA"), "PNG"),
        "palette.png": encoded(palette, "PNG"),
        "clear.png": encoded(palette, "PNG", transparency=3),
        "cleargrey.png": encoded(Image.fromarray(grey), "PNG", transparency=int(grey[0, 0])),
        "one.png": png(width, height, 1, 0, packed(grey > 127, 1)),
        "two.png": png(width, height, 2, 0, packed(grey >> 6, 2)),
        "four.png": png(width, height, 4, 0, packed(grey >> 4, 4)),
        "grey16.png": png(width, height, 16, 0, [row.tobytes() for row in wide[..., 0]]),
        "greyalpha16.png": png(width, height, 16, 4, [row.tobytes() for row in wide[..., :2]]),
        "rgb16.png": png(width, height, 16, 2, [row.tobytes() for row in wide[..., :3]]),
        "rgba16.png": png(width, height, 16, 6, [row.tobytes() for row in wide]),
        "interlaced.png": interlaced(rgb),
        "turned6.png": encoded(Image.fromarray(rgb), "PNG", exif=turned(6)),
    }
    return files


def pictures(width: int, height: int) -> dict[str, bytes]:
    return jpegs(width, height) | pngs(width, height)


def converted(file: bytes, channels: int) -> Image.Image:
    """Upright, in the model's channels. Of grey in 16 bits the high byte counts, as of RGB in 16
    bits: Pillow alone would take all that is above 255 for white."""
    picture = Image.open(io.BytesIO(file))
    if picture.mode == "I;16":
        picture = Image.fromarray((np.asarray(picture) >> 8).astype(np.uint8))
    return ImageOps.exif_transpose(picture).convert("L" if channels == 1 else "RGB")


def expected(
    file: bytes, resize: int, height: int, width: int, channels: int, filter_name: str
) -> np.ndarray:
    """As torchvision's Resize(resize) and CenterCrop((height, width)): [height, width, channels]."""
    picture = converted(file, channels)
    short, long = sorted(picture.size)
    sides = resize, int(resize * long / short)
    size = sides if picture.width <= picture.height else sides[::-1]
    picture = picture.resize(size, FILTERS[filter_name])
    top, left = round((size[1] - height) / 2.0), round((size[0] - width) / 2.0)
    cut = picture.crop((left, top, left + width, top + height))
    return np.asarray(cut).reshape(height, width, channels)


def write_corpus(folder: Path) -> None:
    for name, file in pictures(19, 17).items():
        target = folder / {"jpg": "jpeg"}.get(name[-3:], name[-3:])
        target.mkdir(parents=True, exist_ok=True)
        (target / name).write_bytes(file)


def main() -> None:
    if sys.argv[1] == "--corpus":
        write_corpus(Path(sys.argv[2]))
        return
    folder = Path(sys.argv[1])
    scale = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    lines, values = [], bytearray()
    for number, (name, file) in enumerate(pictures(61 * scale, 47 * scale).items()):
        path = folder / name.rpartition(".")[2] / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(file)
        for channels in (1, 3):
            # smaller, equal, larger; square and not; both filters
            resize, height, width = ((24, 20, 20), (47, 44, 47), (64, 40, 64))[number % 3]
            filter_name = "bicubic" if number % 4 == 3 else "bilinear"
            rule = (resize * scale, height * scale, width * scale, channels, filter_name)
            line = (path.relative_to(folder), *rule, len(values))
            lines.append(" ".join(map(str, line)) + "\n")
            values += expected(file, *rule).tobytes()
    (folder / "cases.txt").write_text("".join(lines))
    (folder / "expected.bin").write_bytes(values)


if __name__ == "__main__":
    main()
