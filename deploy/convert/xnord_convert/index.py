"""Codes as an index: a network whose one layer of weights is the codes, and whose output is the k
nearest by Hamming distance (MODELS.md, "Hamming search"). A file of codes is a shard: an output.

    dot = bits - 2 * distance, so distance = bits / 2 - dot / 2

Rows are whole bytes, and the distance counts bits that differ: which bit of a byte comes first does
not matter, as long as queries have the codes' order. Bits that a width leaves over in the last byte
are equal in all (numpy.packbits has 0), and add nothing."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Optional

import numpy as np

from . import ConvertError
from .folder import config_text, replace, write_tensors

ROWS = 2**31 - 1
BYTES = 2**20  # a row; distances are exact in FP32
K = 1024


@dataclass(frozen=True)
class Shard:
    codes: np.ndarray  # UINT8 [rows, bytes], mapped
    ids: Optional[bytes]  # a line a row
    suffix: str  # of its layers' names

    @property
    def labels(self) -> str:
        return f"ids{self.suffix}.txt"


def read(codes: list[Path], ids: Optional[list[Path]], k: int) -> list[Shard]:
    if ids and len(ids) != len(codes):
        raise ConvertError(f"--ids has {len(ids)} files and --index {len(codes)}; give one for each")
    if not 1 <= k <= K:
        raise ConvertError(f"--k is {k}; it must be from 1 to {K}")
    shards = []
    for i, path in enumerate(codes):
        found = read_codes(path)
        if found.shape[1] != (shards or [Shard(found, None, "")])[0].codes.shape[1]:
            raise ConvertError(
                f"{path}: its rows have {found.shape[1]} bytes, those of {codes[0]} "
                f"{shards[0].codes.shape[1]}"
            )
        if k > len(found):
            raise ConvertError(f"--k is {k}, but {path} has only {len(found)} rows")
        lines = read_ids(ids[i], len(found)) if ids else None
        shards.append(Shard(found, lines, str(i) if len(codes) > 1 else ""))
    return shards


def read_codes(path: Path) -> np.ndarray:
    try:
        codes = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise ConvertError(f"{path}: {error}") from error
    if not isinstance(codes, np.ndarray) or codes.ndim != 2 or codes.dtype != np.uint8:
        what = f"{codes.dtype} {list(codes.shape)}" if isinstance(codes, np.ndarray) else "no array"
        raise ConvertError(
            f"{path}: it is {what}; it must be uint8 [rows, bytes], as numpy.packbits(x > 0, axis=1) "
            "and the precision ubinary of sentence-transformers have it"
        )
    if not 1 <= len(codes) <= ROWS or not 1 <= codes.shape[1] <= BYTES:
        raise ConvertError(
            f"{path}: it is {list(codes.shape)}; rows must be from 1 to {ROWS}, bytes to {BYTES}"
        )
    return codes


def read_ids(path: Path, rows: int) -> bytes:
    ids = path.read_bytes()
    lines = ids.count(b"\n") + (not ids.endswith(b"\n"))
    try:
        ids.decode()
    except UnicodeDecodeError as error:
        raise ConvertError(f"{path}: {error}") from error
    if b"\0" in ids or lines != rows:
        raise ConvertError(f"{path}: it has {lines} lines and the codes {rows} rows; NUL is refused")
    return ids


def layers_of(shards: list[Shard], k: int, bits: int) -> list[dict[str, Any]]:
    layers: list[dict[str, Any]] = []
    for s in shards:
        dot, distance = f"dot{s.suffix}", f"distance{s.suffix}"
        conv = {"op": "conv", "name": dot, "mode": "xnor", "packed_channels": bits}
        layers += [
            {**conv, "inputs": ["query"]},
            {"op": "affine", "name": distance},
            {"op": "top_k", "name": f"nearest{s.suffix}", "k": k, "largest": False},
        ]
    return layers


def config_of(
    shards: list[Shard], name: str, k: int, max_batch_size: Optional[int]
) -> dict[str, Any]:
    row = shards[0].codes.shape[1]
    config: dict[str, Any] = {"format": "xnord-network/1", "name": name}
    if max_batch_size is not None:
        config["max_batch_size"] = max_batch_size
    config["input"] = {
        "name": "query",
        "datatype": "UINT8",
        "shape": [row],
        "packed_channels": 8 * row,
    }
    config["outputs"] = [
        {"layer": f"nearest{s.suffix}"} | ({"labels": s.labels} if s.ids else {}) for s in shards
    ]
    config["layers"] = layers_of(shards, k, 8 * row)
    return config


def write(folder: Path, shards: list[Shard], config: dict[str, Any]) -> None:
    """Files get their names when they are whole, so that a daemon that serves the folder keeps
    what it has until it is told to load it again."""
    bits = 8 * shards[0].codes.shape[1]
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {f"dot{s.suffix}.weight": s.codes for s in shards}
    for s in shards:
        tensors[f"distance{s.suffix}.scale"] = np.array([-0.5], np.float32)
        tensors[f"distance{s.suffix}.bias"] = np.array([bits / 2], np.float32)
    write_tensors(folder / "model.safetensors", tensors)
    for s in shards:
        if s.ids:
            replace(folder / s.labels, s.ids)
    replace(folder / "config.json", config_text(config).encode())


def check(
    folder: Path, shards: list[Shard], k: int, program: Path, backend: str, queries: int
) -> tuple[str, bool]:
    """Distances of random queries, half of them codes with some bits turned, beside FAISS or, where
    it is not installed, numpy; and whether each position has the distance that is said."""
    from .check import Daemon

    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    random = np.random.default_rng(1)
    row = shards[0].codes.shape[1]
    sent = random.integers(0, 256, (queries, row), np.uint8)
    near = random.integers(0, len(shards[0].codes), queries // 2)
    sent[: len(near)] = shards[0].codes[near] ^ (sent[: len(near)] & 1)
    where = ["--model", f"{config['name']}={folder.resolve()}", *LIMITS]
    with Daemon(program, where, [config["name"]], backend) as daemon:
        got = daemon.infer(config["name"], sent, config["input"])
    peer, nearest = find_peer()
    lines, same = [], True
    for s in shards:
        values, indices = (got[f"nearest{s.suffix}.{part}"] for part in ("values", "indices"))
        wrong = np.count_nonzero((values != nearest(s.codes, sent, k)).any(1))
        for query, value, index in zip(sent, values, indices):
            wrong += not np.array_equal(distances(s.codes[index], query), value)
        same = same and not wrong
        lines.append(
            f"nearest{s.suffix}: {queries} queries of {len(s.codes)} codes beside {peer}: "
            f"{wrong} differ"
        )
    return "\n".join([*lines, f"Verdict: {'the same' if same else 'DIFFERENT'}."]), same


# Of the daemon that checks: an index may be larger than its defaults.
LIMITS = ["--max-elements", str(2**40), "--max-operations", str(10**15)]
LIMITS += ["--max-models-bytes", "65536G"]


def distances(codes: np.ndarray, query: np.ndarray) -> np.ndarray:
    return np.bitwise_count(codes ^ query).sum(1, dtype=np.int64)


def find_peer() -> tuple[str, Callable[[np.ndarray, np.ndarray, int], np.ndarray]]:
    try:
        import faiss
    except ModuleNotFoundError:
        return "numpy", lambda codes, queries, k: np.stack(
            [np.sort(distances(codes, query))[:k] for query in queries]
        )

    def search(codes: np.ndarray, queries: np.ndarray, k: int) -> np.ndarray:
        index = faiss.IndexBinaryFlat(8 * codes.shape[1])
        index.add(np.ascontiguousarray(codes))
        return index.search(queries, k)[0]

    return f"FAISS {faiss.__version__}", search
