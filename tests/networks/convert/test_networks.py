#!/usr/bin/env python3
"""Builds every network in PyTorch, converts its checkpoint, serves the folder, and compares.

    make test-networks

Each network has variants (parameters.py):

    exact   nothing is rounded anywhere: every image gives the same logits, within 1e-5
    random  FP32 rounds a sum near 0 to the other side now and then, and such a sign moves the
            logits of its image: three quarters of the images agree within 1e-4 of the logits'
            standard deviation, and in their class
    uint8   random, with images as clients have them
    fp16    exact, with half precision between layers

What is compared with PyTorch in double precision is the folder as MODELS.md reads (run_folder.py),
and what each backend of the daemon answers to requests of several sizes. Exit status 0: everything
holds."""

import argparse
import os
import shutil
import sys
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Callable

import numpy as np

ROOT = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "deploy/convert")]

import onnx_cases  # noqa: E402
import torch  # noqa: E402
from cases import CASES, Case, images, logits, model, save_model  # noqa: E402
from xnord_convert import check, cli  # noqa: E402
from xnord_convert.run_folder import Folder  # noqa: E402

BATCHES = (1, 3, 8)
EXACT, CLOSE, ROUNDED = 1e-5, 1e-4, 0.5
FLIPPED = 0.25  # of the images
# With fp16: those that have bits, dots or short sums between layers, which it holds exactly; and
# some whose real values it rounds.
BITS_BETWEEN = ("xnor-alexnet", "alexnet", "nin", "vgg-cifar10", "cnv", "lfc")
REAL_BETWEEN = ("birealnet18", "reactnet18", "densenet28 bitorch", "quicknet")


@dataclass
class Job:
    """A folder, the images to ask for, and what PyTorch makes of them."""

    name: str
    variant: str
    folder: Path
    images: np.ndarray
    wanted: np.ndarray
    close: float
    may_flip: float

    @property
    def model(self) -> str:
        return self.folder.name


def prepare(case: Case, variant: str, work: Path, seed: int) -> Job:
    exact = variant in ("exact", "fp16")
    made = model(case, exact, seed)
    name = f"{case.name}-{variant}".replace(" ", "-")
    folder, file = work / "models" / name, work / "files" / name / case.file
    file.parent.mkdir(parents=True)
    save_model(case, made, exact, file)
    arguments = [str(file), "-o", str(folder), "-q", "--family", case.family or case.name]
    arguments += ["--size", str(case.side)]
    arguments += ["--precision", "fp16" if variant == "fp16" else "fp32"]
    arguments += ["--logits"] if exact and case.softmax else []
    arguments += PREPROCESSED if variant == "uint8" else []
    # definitions.py has +1 there; sums of multiples of 1/8 are often 0, random ones never.
    arguments += ["--sign-zero=plus"] if exact else []
    if cli.main(arguments) != 0:
        raise RuntimeError(f"{name} was not converted")
    sent, values = asked(case, variant, seed + 2)
    wanted = logits(case, made, values, exact)
    close, flipped = tolerance(case, variant)
    return Job(case.name, variant, folder, sent, wanted, close, flipped)


def tolerance(case: Case, variant: str) -> tuple[float, float]:
    """How far apart an image's logits may be, and how many images may be farther apart, or of
    another class."""
    if variant == "fp16" and case.name not in BITS_BETWEEN:
        return ROUNDED, FLIPPED
    return (CLOSE, FLIPPED) if variant in ("random", "uint8") else (EXACT, 0)


MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
PREPROCESSED = "--input-datatype UINT8 --layout NHWC".split()
PREPROCESSED += [f"--mean={','.join(map(str, MEAN))}", f"--std={','.join(map(str, STD))}"]


def asked(case: Case, variant: str, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """What is sent, and what that is to PyTorch."""
    if variant != "uint8":
        values = images(case, sum(BATCHES), variant in ("exact", "fp16"), seed)
        return values, values
    channels, *size = case.shape
    random = np.random.default_rng(seed)
    sent = random.integers(0, 256, (sum(BATCHES), *size, channels), np.uint8)
    return sent, ((sent / 255 - MEAN) / STD).transpose(0, 3, 1, 2)


# ---- comparing ----


@dataclass
class Judgement:
    most: float
    median: float
    apart: float  # of the images
    same_class: float
    right: bool


def judge(job: Job, got: np.ndarray) -> Judgement:
    if got.shape != job.wanted.shape or not np.isfinite(got).all():
        return Judgement(np.inf, np.inf, 1, 0, False)
    spread = float(job.wanted.std())
    distance = np.abs(got - job.wanted).max(1) / spread
    apart = float(np.mean(distance > job.close))
    same = float(np.mean(got.argmax(1) == job.wanted.argmax(1)))
    right = apart <= job.may_flip and same >= 1 - job.may_flip
    return Judgement(float(distance.max()), float(np.median(distance)), apart, same, right)


def batches(job: Job, run: Callable[[np.ndarray], dict[str, np.ndarray]]) -> np.ndarray:
    found, at = [], 0
    for count in BATCHES:
        (answer,) = run(job.images[at : at + count]).values()
        found.append(answer.astype(np.float64))
        at += count
    return np.concatenate(found)


class Table:
    def __init__(self) -> None:
        self.rows = self.wrong = 0
        print(
            f"{'network':<22}{'variant':<8}{'by':<8}{'most':>9}{'median':>9}{'apart':>7}"
            f"{'class':>7}"
        )

    def row(self, job: Job, by: str, found: Judgement) -> None:
        self.rows += 1
        self.wrong += not found.right
        print(
            f"{job.name:<22}{job.variant:<8}{by:<8}{found.most:9.1e}{found.median:9.1e}"
            f"{found.apart:7.0%}{found.same_class:7.0%}{'' if found.right else '  WRONG'}",
            flush=True,
        )


def ask(daemon: check.Daemon, job: Job) -> np.ndarray:
    about: dict[str, Any] = Folder(job.folder).config["input"]
    return batches(job, lambda part: daemon.infer(job.model, part, about))


def serve(table: Table, jobs: list[Job], program: Path, backend: str) -> None:
    where = ["--model-repository", str(jobs[0].folder.parent)]
    with check.Daemon(program, where, [job.model for job in jobs], backend) as daemon:
        with ThreadPoolExecutor(4) as pool:
            for job, got in zip(jobs, pool.map(lambda job: ask(daemon, job), jobs)):
                table.row(job, backend, judge(job, got))


# ---- all of it ----


def variants(case: Case) -> list[str]:
    found = ["exact", "random"]
    found += ["uint8"] if case.name in ("birealnet18", "reactnet18", "quicknet") else []
    found += ["fp16"] if case.name in BITS_BETWEEN + REAL_BETWEEN else []
    return found


Made = tuple[Job, np.ndarray]


def make(name: str, work: Path, seed: int) -> list[Made]:
    """In a process of its own: a network's folders, and what they mean."""
    torch.set_num_threads(1)
    jobs = []
    case = next((case for case in CASES if case.name == name), None)
    if case:
        jobs = [
            prepare(case, variant, work, seed + 10 * i) for i, variant in enumerate(variants(case))
        ]
    else:
        jobs = [prepare_onnx(onnx_cases.made(name, work / "files", seed), work)]
    return [(job, batches(job, Folder(job.folder, torch.float64).run)) for job in jobs]


def prepare_onnx(made: onnx_cases.Made, work: Path) -> Job:
    name, source, sent, wanted = made
    folder = work / "models" / source.stem
    if cli.main([str(source), "-o", str(folder), "-q"]) != 0:
        raise RuntimeError(f"{source} was not converted")
    return Job(name, "random", folder, sent, wanted, CLOSE, FLIPPED)


def make_all(only: str, work: Path, seed: int, processes: int) -> list[Made]:
    names = [case.name for case in CASES] + onnx_cases.NAMES
    (work / "files").mkdir(parents=True)
    with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
        found = [pool.submit(make, name, work, seed) for name in names if only in name]
        return [made for future in found for made in future.result()]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--xnord", type=Path, default=ROOT / "build/xnord")
    parser.add_argument("--backends", default="cpu,ref", help="of the daemon; empty: none")
    parser.add_argument("--work", type=Path, default=ROOT / "build/test-networks")
    parser.add_argument(
        "--only", metavar="TEXT", default="", help="networks with this in their names"
    )
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    begin = time.monotonic()
    shutil.rmtree(options.work, ignore_errors=True)
    made = make_all(options.only, options.work, options.seed, options.processes)
    jobs = [job for job, _ in made]
    print(
        f"seed {options.seed}: {len(jobs)} folders made in {time.monotonic() - begin:.0f} s, "
        f"{sum(BATCHES)} images each in requests of {', '.join(map(str, BATCHES))}"
    )
    table = Table()
    for job, got in made:
        table.row(job, "folder", judge(job, got))
    for backend in filter(None, options.backends.split(",")):
        serve(table, jobs, options.xnord, backend)
    print(f"{table.rows} comparisons, {table.wrong} wrong; {time.monotonic() - begin:.0f} s")
    return 1 if table.wrong or not table.rows else 0


if __name__ == "__main__":
    sys.exit(main())
