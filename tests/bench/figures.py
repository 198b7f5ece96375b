#!/usr/bin/env python3
"""Draws tests/bench/figures.svg from the tables of tests/bench/BENCHMARKS.md: run it when those
change. With --check it says whether the picture is that of the tables. All axes begin at 0."""

import re
import sys
from pathlib import Path

FOLDER = Path(__file__).parent
PICTURE = FOLDER / "figures.svg"
DARK, LIGHT, PEER = "#0b6e4f", "#7bc8a4", "#b0b0b0"
TOP, ROW, BAR, LABELS, BARS = 96, 50, 13, 130, 430


def table(*columns):
    """The rows of the table whose head has all these columns: {first cell: [those columns]}."""
    lines = (FOLDER / "BENCHMARKS.md").read_text(encoding="utf-8").splitlines()
    cells = [
        [c.strip() for c in line.strip("|").split("|")] if line.startswith("|") else []
        for line in lines
    ]
    start = next(i for i, row in enumerate(cells) if set(columns) <= set(row))
    rows = {}
    for row in cells[start + 2 :]:
        if not row:
            return rows
        if all(row[cells[start].index(c)] for c in columns):
            rows[row[0]] = [number(row[cells[start].index(c)]) for c in columns]
    return rows


def number(cell):
    return float(re.match(r"[0-9.,]+", cell).group().replace(",", ""))


def text(x, y, what, size=13, **more):
    attributes = "".join(f' {k.replace("_", "-")}="{v}"' for k, v in more.items())
    return f'<text x="{x:g}" y="{y:g}" font-size="{size}"{attributes}>{what}</text>'


def panel(left, title, subtitle, names, colours, rows, most, unit):
    """Bars of each row beside each other; every bar has its value."""
    yield text(left, 26, title, 16, font_weight="bold")
    yield text(left, 46, subtitle, 12, fill="#555")
    at = left
    for name, colour in zip(names, colours):
        yield f'<rect x="{at}" y="60" width="12" height="12" fill="{colour}"/>'
        yield text(at + 17, 70.5, name, 12)
        at += 34 + 6.6 * len(name)
    for i, (label, values) in enumerate(rows.items()):
        y = TOP + i * ROW
        yield text(left + LABELS - 10, y + BAR * len(values) / 2 + 4, label, text_anchor="end")
        for k, (value, colour) in enumerate(zip(values, colours)):
            width = value / most * (BARS - LABELS - 60)
            yield f'<rect x="{left + LABELS}" y="{y + k * BAR}" width="{width:.1f}" height="{BAR - 1}" fill="{colour}"/>'
            yield text(
                left + LABELS + width + 5, y + k * BAR + 10, f"{value:g}{unit}", 11, fill="#333"
            )


def draw():
    names = ("bits to bits", "fp32 to fp32", "cuDNN fp16")
    layers = table(*names)
    served = {
        label: [round(100 * xnord / echo, 1), round(100 * peer / echo, 1)]
        for label, (xnord, echo, peer) in table("xnord, H200", "echo", "peer").items()
    }
    assert len(layers) == 4 and len(served) == 3, "the tables have changed"
    parts = [
        *panel(
            16,
            "3x3 convolution, 64 images, one NVIDIA H200",
            "microseconds a layer (images x channels x side), less is better",
            ("xnord, bits to bits", "xnord, fp32 to fp32", "cuDNN, fp16"),
            (DARK, LIGHT, PEER),
            layers,
            max(max(v) for v in layers.values()),
            "",
        ),
        *panel(
            500,
            "Over HTTP, same GPU",
            "requests a second, of what the HTTP library does with no work at all",
            ("xnord", "aiohttp + PyTorch"),
            (DARK, PEER),
            served,
            100,
            "%",
        ),
        text(
            500,
            TOP + 3 * ROW + 20,
            "One channel, 3x3, bodies of that size, 32 connections; 2026-11-22.",
            12,
            fill="#555",
        ),
        text(
            500, TOP + 3 * ROW + 38, "Machine, dates and commands: BENCHMARKS.md", 12, fill="#555"
        ),
    ]
    height = TOP + 4 * ROW
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 960 {height}" width="960" height="{height}" '
            'font-family="sans-serif" fill="#111">',
            f'<rect width="960" height="{height}" fill="#fff"/>',
            *parts,
            "</svg>\n",
        ]
    )


def main():
    drawn = draw()
    if sys.argv[1:] == ["--check"]:
        if not PICTURE.exists() or PICTURE.read_text(encoding="utf-8") != drawn:
            sys.exit(f"{PICTURE} is not that of BENCHMARKS.md: run {Path(__file__)}")
    elif sys.argv[1:]:
        sys.exit("usage: figures.py [--check]")
    else:
        PICTURE.write_text(drawn, encoding="utf-8")


if __name__ == "__main__":
    main()
