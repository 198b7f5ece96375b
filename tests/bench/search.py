#!/usr/bin/env python3
"""Exact Hamming search beside FAISS' IndexBinaryFlat: the same random codes, queries and threads,
in turns. FAISS is called in this process; xnord is asked over HTTP on loopback, on one connection,
and that is in its time. Distances are compared row by row; a difference ends with exit status 1.

make bench-search"""

import argparse
import http.client
import json
import os
import statistics
import sys
import time
from pathlib import Path

import faiss
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "deploy/convert"))
from xnord_convert import index  # noqa: E402
from xnord_convert.check import Daemon  # noqa: E402


class Peer:
    def __init__(self, codes: np.ndarray, threads: int):
        faiss.omp_set_num_threads(threads)
        self._index = faiss.IndexBinaryFlat(8 * codes.shape[1])
        self._index.add(codes)

    def search(self, queries: np.ndarray, k: int) -> tuple[np.ndarray, float]:
        return self._index.search(queries, k)[0], 0


class Served:
    """The model `codes` of a daemon."""

    def __init__(self, url: str):
        self._connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=600)

    def search(self, queries: np.ndarray, k: int) -> tuple[np.ndarray, float]:
        """Distances, and the seconds that the daemon says it computed."""
        shape = list(queries.shape)
        tensor = {"name": "query", "datatype": "UINT8", "shape": shape}
        tensor["parameters"] = {"binary_data_size": queries.nbytes}
        request = {"inputs": [tensor], "parameters": {"binary_data_output": True}}
        header = json.dumps(request).encode()
        self._connection.request(
            "POST",
            "/v2/models/codes/infer",
            header + queries.tobytes(),
            {"Inference-Header-Content-Length": str(len(header))},
        )
        answer = self._connection.getresponse()
        content = answer.read()
        if answer.status != 200:
            sys.exit(f"{answer.status} {content[:300].decode()}")
        length = int(answer.headers["Inference-Header-Content-Length"])
        values = np.frombuffer(content, "<f4", len(queries) * k, length)
        stages = answer.headers["Server-Timing"].split("compute;dur=")
        return values.reshape(-1, k), float(stages[1].split(",")[0]) / 1e3


def resident(pid: int) -> dict[str, int]:
    """Bytes of the process: all, and those of files."""
    text = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    fields = dict(line.split(":", 1) for line in text.splitlines())
    return {name: int(fields[name].split()[0]) * 1024 for name in ("VmRSS", "RssFile", "VmHWM")}


def measure(o: argparse.Namespace, codes: np.ndarray, peer: Peer, served: Served) -> list[dict]:
    rows = []
    random = np.random.default_rng(2)
    for count in o.queries:
        times: dict[str, list[float]] = {"faiss": [], "xnord": [], "compute": []}
        for turn in range(o.rounds + 1):
            queries = random.integers(0, 256, (count, codes.shape[1]), np.uint8)
            began = time.perf_counter()
            want, _ = peer.search(queries, o.k)
            between = time.perf_counter()
            got, computed = served.search(queries, o.k)
            ended = time.perf_counter()
            if not np.array_equal(got, want):
                sys.exit(f"{count} queries: distances are not those of FAISS")
            if turn:  # the first warms up
                times["faiss"].append(between - began)
                times["xnord"].append(ended - between)
                times["compute"].append(computed)
        row = {name: 1e3 * statistics.median(found) for name, found in times.items()}
        row |= {f"{name}_least": 1e3 * min(found) for name, found in times.items()}
        rows.append({"queries": count, **row})
        print(
            f"{count:>8}{row['faiss']:>10.2f} ({row['faiss_least']:.2f})"
            f"{row['xnord']:>10.2f} ({row['xnord_least']:.2f}){row['compute']:>10.2f}"
            f"{row['faiss'] / row['xnord']:>8.2f}",
            flush=True,
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("xnord", type=Path)
    parser.add_argument("folder", type=Path, help="for codes and the index")
    parser.add_argument("--codes", type=int, default=1_000_000)
    parser.add_argument("--bits", type=int, default=1024)
    parser.add_argument("--k", type=int, default=10)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--queries", type=int, nargs="+", default=[1, 16, 256])
    parser.add_argument("--backend", default="cpu")
    parser.add_argument("--json", type=Path)
    o = parser.parse_args()
    o.folder.mkdir(parents=True, exist_ok=True)
    source = o.folder / "codes.npy"
    np.save(source, np.random.default_rng(1).integers(0, 256, (o.codes, o.bits // 8), np.uint8))
    shards = index.read([source], None, o.k)
    index.write(o.folder / "codes", shards, index.config_of(shards, "codes", o.k, None))
    codes = np.load(source)
    file = o.folder / "codes/model.safetensors"
    began = time.perf_counter()
    room = bytearray(8 << 20)
    with open(file, "rb", buffering=0) as opened:
        while opened.readinto(room):
            pass
    reading = time.perf_counter() - began
    where = ["--model", f"codes={o.folder.resolve() / 'codes'}", *index.LIMITS]
    where += ["--threads", str(o.threads)]
    began = time.perf_counter()
    with Daemon(o.xnord, where, ["codes"], o.backend) as daemon:
        loading = time.perf_counter() - began
        memory = resident(daemon.pid)
        print(
            f"{o.codes} codes of {o.bits} bits, top {o.k}, {o.threads} threads of "
            f"{os.cpu_count()}; FAISS {faiss.__version__}\n"
            f"a file of {file.stat().st_size / 1e6:.0f} MB: read in {reading:.2f} s, served after "
            f"{loading:.2f} s, resident {memory['VmRSS'] / 1e6:.0f} MB, of it the file "
            f"{memory['RssFile'] / 1e6:.0f}, at most {memory['VmHWM'] / 1e6:.0f}\n"
            " queries   FAISS ms (least)  xnord ms (least)   compute    FAISS / xnord"
        )
        rows = measure(o, codes, Peer(codes, o.threads), Served(daemon.url))
    if o.json:
        o.json.parent.mkdir(parents=True, exist_ok=True)
        about = {"codes": o.codes, "bits": o.bits, "k": o.k, "threads": o.threads}
        about |= {"reading_s": reading, "loading_s": loading, "memory": memory, "rows": rows}
        o.json.write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
