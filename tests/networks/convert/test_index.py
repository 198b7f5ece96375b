#!/usr/bin/env python3
"""Indexes that xnord-convert makes of codes: what it refuses, and that a daemon finds in them what
numpy, or FAISS where it is installed, finds. Needs numpy alone.

make test-networks
"""

import io
import json
import os
import sys
import tempfile
import unittest
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "deploy/convert"))
from xnord_convert import cli, index  # noqa: E402
from xnord_convert.check import Daemon  # noqa: E402
from xnord_convert.folder import read_tensors  # noqa: E402

XNORD = Path(os.environ.get("XNORD_BIN", ROOT / "build/xnord"))


class Index(unittest.TestCase):
    def setUp(self) -> None:
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.path = Path(temporary.name)
        self.random = np.random.default_rng(20261128)

    def codes(self, rows: int, row: int, name: str = "codes") -> Path:
        path = self.path / f"{name}.npy"
        np.save(path, self.random.integers(0, 256, (rows, row), np.uint8))
        return path

    def ids(self, text: bytes) -> Path:
        path = self.path / "ids.txt"
        path.write_bytes(text)
        return path

    def convert(self, *arguments: object) -> tuple[int, str]:
        """The exit status, and what it says."""
        said = io.StringIO()
        with redirect_stderr(said), redirect_stdout(said):
            status = cli.main([*map(str, arguments), "-o", str(self.path / "made")])
        return status, said.getvalue()

    def assert_refused(self, text: str, *arguments: object) -> None:
        status, said = self.convert(*arguments)
        self.assertEqual((status, said.count("\n")), (1, 1), said)
        self.assertIn(text, said)
        self.assertFalse((self.path / "made").exists())

    def test_folder(self) -> None:
        codes = self.codes(20, 9)
        self.assertEqual(self.convert("--index", codes, "--k", 3, "--name", "x")[0], 0)
        tensors = read_tensors(self.path / "made/model.safetensors")
        np.testing.assert_array_equal(tensors["dot.weight"], np.load(codes))
        self.assertEqual((tensors["distance.scale"], tensors["distance.bias"]), ([-0.5], [36]))
        config = json.loads((self.path / "made/config.json").read_text(encoding="utf-8"))
        self.assertEqual((config["name"], config["input"]["shape"]), ("x", [9]))
        self.assertEqual(config["outputs"], [{"layer": "nearest"}])

    def test_what_is_refused(self) -> None:
        codes, other = self.codes(20, 16), self.codes(20, 8, "other")
        floats, row, text = (self.path / f"{name}.npy" for name in ("floats", "row", "text"))
        np.save(floats, np.zeros((4, 8), np.float32))
        np.save(row, np.zeros(8, np.uint8))
        text.write_text("no array", encoding="utf-8")
        self.assert_refused("float32 [4, 8]", "--index", floats)
        self.assert_refused("uint8 [8]", "--index", row)
        self.assert_refused("text.npy", "--index", text)
        self.assert_refused("none.npy", "--index", self.path / "none.npy")
        self.assert_refused("8 bytes, those of", "--index", codes, other)
        self.assert_refused("only 20 rows", "--index", codes, "--k", 21)
        self.assert_refused("from 1 to 1024", "--index", codes, "--k", 0)
        self.assert_refused("19 lines", "--index", codes, "--ids", self.ids(b"id\n" * 19))
        self.assert_refused("20 lines", "--index", codes, "--ids", self.ids(b"\0\n" * 20))
        self.assert_refused("utf-8", "--index", codes, "--ids", self.ids(b"\xff\n" * 20))
        self.assert_refused("2 files", "--index", codes, "--ids", self.ids(b"id\n" * 20), codes)
        self.assert_refused("--index takes", "--index", codes, "--family", "quicknet")
        self.assert_refused("FILE or --index", codes, "--index", codes)

    def test_finds_what_is_there(self) -> None:
        """Of any width, with ties, and all rows asked for."""
        for row in (1, 8, 13, 16, 32, 64, 128):
            codes = self.codes(300, row)
            status, said = self.convert(
                "--index", codes, "--k", 300, "--check", "--check-images", 6, "--xnord", XNORD
            )
            self.assertEqual(status, 0, said)
            self.assertIn("Verdict: the same.", said)

    def test_a_wrong_answer_is_seen(self) -> None:
        codes = self.codes(300, 8)
        self.assertEqual(self.convert("--index", codes)[0], 0)
        np.save(codes, np.load(codes)[::-1])
        shards = index.read([codes], None, 10)
        said, same = index.check(self.path / "made", shards, 10, XNORD, "ref", 4)
        self.assertFalse(same)
        self.assertIn("DIFFERENT", said)

    def test_shards_with_ids(self) -> None:
        shards = [self.codes(50, 16, "a"), self.codes(70, 16, "b")]
        ids = []
        for path, rows in zip(shards, (50, 70)):
            ids.append(path.with_suffix(".txt"))
            ids[-1].write_text("".join(f"{path.stem}-{i}\n" for i in range(rows)), "utf-8")
        status, said = self.convert(
            "--index", *shards, "--ids", *ids, "--k", 2, "--check", "--xnord", XNORD
        )
        self.assertEqual(status, 0, said)
        made = self.path / "made"
        about = json.loads((made / "config.json").read_text(encoding="utf-8"))["input"]
        with Daemon(XNORD, ["--model", f"made={made}"], ["made"]) as daemon:
            found = daemon.infer("made", np.load(shards[1])[33:34], about)
        self.assertEqual((found["nearest1.values"][0, 0], found["nearest1.indices"][0, 0]), (0, 33))
        self.assertEqual((made / "ids1.txt").read_text("utf-8").split()[33], "b-33")


if __name__ == "__main__":
    unittest.main()
