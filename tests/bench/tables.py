#!/usr/bin/env python3
"""Prints, as Markdown, what `tests/gpu.sh FOLDER times` measured: single layers, one channel beside a
copy, layers of networks beside their floors, a network over HTTP, networks and their peers.

    tables.py FOLDER [BEFORE]     BEFORE: an older FOLDER, whose single layers are compared
"""
import json
import math
import pathlib
import re
import sys

MOST_TIMES = 4
BATCHES = (1, 8, 64, 512)


def rows(folder, name):
    """Those that are whole, where the measurement was ended."""
    file = folder / f"{name}.json"
    lines = file.read_text().splitlines() if file.exists() else []
    return [json.loads(text.strip(" ,[]")) for text in lines if text.strip(" ,[]").endswith("}")]


def speed(images, us):
    return f"{us:,.0f} us" if images < 64 else f"{1e6 * images / us:,.0f}/s"


def line(*cells):
    print("|", " | ".join(str(cell) for cell in cells), "|")


def head(*cells):
    print()
    line(*cells)
    line(*["---"] * len(cells))


def networks(folder):
    found = {}
    for r in rows(folder, "network") + rows(folder, "network_cpu"):
        if r["kind"] == "all":
            what = f'{r["network"]}, {r["precision"]}, {r["backend"]}{" WRONG" * bool(r["verdict"])}'
            found.setdefault(what, {})[r["images"]] = r["median_us"]
    peer = folder / "peer.log"
    pattern = r"(.*), graph +batch +(\d+) median +([\d.]+) us"
    for what, images, us in re.findall(pattern, peer.read_text() if peer.exists() else ""):
        found.setdefault(f"ResNet-18, PyTorch, {what}", {})[int(images)] = float(us)
    head("images at a time", *BATCHES)
    for what, times in found.items():
        line(what, *[speed(n, times[n]) if n in times else "" for n in BATCHES])
    line("ResNet-50, TensorRT, INT8, MLPerf Inference v4.1 offline, an eighth of 8 H200", "", "", "",
         f"{756960 / 8:,.0f}/s")


def layers(folder):
    """Of the largest batch: how many rows are far from their floors, and the time in them."""
    timed = [r for r in rows(folder, "network") if r.get("floor_us")]
    of = {}
    for r in timed:
        of.setdefault((r["network"], r["precision"]), []).append(r)
    head("network", "edges", "rows", f"above {MOST_TIMES}", "us", "of them above", "floors, us")
    for (network, precision), all_rows in of.items():
        slow = [r for r in all_rows if r["over_floor"] > MOST_TIMES]
        line(network, precision, len(all_rows), len(slow),
             *[f"{sum(r[key] for r in some):,.0f}" for some, key in
               ((all_rows, "median_us"), (slow, "median_us"), (all_rows, "floor_us"))])
    head(f"above {MOST_TIMES} times its floor", "layer", "path", "us", "floor", "times")
    for r in sorted(timed, key=lambda r: -r["median_us"]):
        if r["over_floor"] > MOST_TIMES:
            line(f'{r["network"]}, {r["precision"]}, {r["step"]}', f'{r["kind"]} {r["shape"]}',
                 r["path"], *[f'{r[key]:.1f}' for key in ("median_us", "floor_us", "over_floor")])


def single(folder, before):
    now = {r["shape"]: r["us"] for r in rows(folder, "shapes") if r.get("us")}
    then = {r["shape"]: r["us"] for r in rows(before, "shapes") if r.get("us")} if before else {}
    both = {shape: us / then[shape] for shape, us in now.items() if shape in then}
    if both:
        mean = math.exp(sum(map(math.log, both.values())) / len(both))
        print(f"\n{len(both)} single layers, over before: {mean:.3f} in geometric mean, "
              f"{min(both.values()):.2f} to {max(both.values()):.2f}")
    head("single layer", "us", "over before")
    for shape, us in now.items():
        line(shape, f"{us:.1f}", f"{both[shape]:.2f}" if shape in both else "")


def one_channel(folder):
    head("one channel, fp32", "us", "copy", "times")
    for r in rows(folder, "one_channel"):
        line(r["workload"], *[f"{r[key]:.2f}" for key in ("median_us", "copy_us", "copies")])


def http(folder):
    found = rows(folder, "http")
    device = next((r["images_a_second"] for r in rows(folder, "network") if
                   (r["network"], r["precision"], r["images"]) == ("birealnet18", "fp16", 512)
                   and r["kind"] == "all"), math.nan)
    echo = next((r["images_per_second"] for r in found if r["side"] == "echo"), math.nan)
    head("over HTTP, 8 pictures a request", "connections", "images/s", "of echo", "of the device",
         "p50, p99 ms", "p99 / p50")
    for r in found:
        rate, p50, p99 = r["images_per_second"], r["p50_us"], r["p99_us"]
        line(r["side"], r["connections"], f"{rate:,.0f}", f"{rate / echo:.2f}",
             f"{rate / device:.2f}", f"{p50 / 1e3:.2f}, {p99 / 1e3:.2f}", f"{p99 / p50:.1f}" if p50 else "")


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    folder = pathlib.Path(sys.argv[1])
    single(folder, pathlib.Path(sys.argv[2]) if len(sys.argv) == 3 else None)
    one_channel(folder)
    layers(folder)
    http(folder)
    networks(folder)


main()
