"""Pictures for the tests, and what the page makes of them, computed here anew in plain loops."""

import json
import os
import random
import struct
import zlib

HOSTILE = "<img src=x onerror=alert(1)>"  # a label


def png(width, height, pixel):
    """A PNG of 8-bit RGB; pixel(x, y) gives the three values."""
    def chunk(kind, data):
        return (struct.pack(">I", len(data)) + kind + data +
                struct.pack(">I", zlib.crc32(kind + data)))
    rows = b"".join(b"\0" + bytes(value for x in range(width) for value in pixel(x, y))
                    for y in range(height))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)) +
            chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def noise(seed, side):
    """Random squares over a gradient: edges and flat parts."""
    chance = random.Random(seed)
    squares = [(chance.randrange(side), chance.randrange(side), chance.randrange(4, side // 3),
                [chance.randrange(256) for _ in range(3)]) for _ in range(24)]
    rows = [[[x * 255 // side, y * 255 // side, 128] for x in range(side)] for y in range(side)]
    for left, top, size, colour in squares:
        for y in range(top, min(top + size, side)):
            for x in range(left, min(left + size, side)):
                rows[y][x] = colour
    return rows


def minus_local_mean(rows, radius=7):
    """Brightness minus the mean of the box around it, as floats row by row."""
    side = len(rows)
    light = [[(0.299 * r + 0.587 * g + 0.114 * b) / 255 for r, g, b in row] for row in rows]
    out = []
    for y in range(side):
        near = light[max(y - radius, 0):y + radius + 1]
        columns = [sum(row[x] for row in near) for x in range(side)]
        for x in range(side):
            part = columns[max(x - radius, 0):x + radius + 1]
            out.append(light[y][x] - sum(part) / (len(part) * len(near)))
    return out


def shades(values):
    """The grey of each value, as the page draws them: the least is black, the largest white."""
    low, high = min(values), max(values)
    return [(value - low) * 255 / (high - low) if high > low else 0 for value in values]


def write_colour_network(folder):
    """A network that says how red, green and blue a picture of 16 x 16 is on average."""
    os.makedirs(folder)
    weights = [0.02 if i == j else 0.0 for i in range(3) for j in range(3)]
    config = {"format": "xnord-network/1",
              "input": {"name": "input", "datatype": "UINT8", "shape": [16, 16, 3], "layout": "NHWC"},
              "output": {"name": "what it's like", "labels": "labels.txt"},
              "layers": [{"op": "avg_pool", "name": "mean", "kernel": "global"},
                         {"op": "conv", "name": "mix", "mode": "float"},
                         {"op": "softmax", "name": "share"}]}
    header = json.dumps({"mix.weight": {"dtype": "F32", "shape": [3, 3, 1, 1],
                                        "data_offsets": [0, 36]}}).encode()
    with open(f"{folder}/config.json", "w", encoding="utf-8") as out:
        json.dump(config, out)
    with open(f"{folder}/model.safetensors", "wb") as out:
        out.write(struct.pack("<Q", len(header)) + header + struct.pack("<9f", *weights))
    with open(f"{folder}/labels.txt", "w", encoding="utf-8") as out:
        out.write(f"red\n{HOSTILE}\nblue\n")
