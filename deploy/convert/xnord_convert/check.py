"""A converted folder, served by the daemon, beside another implementation of the same network."""

import json
import re
import subprocess
import threading
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Optional

import numpy as np

from . import ConvertError
from .folder import read_tensors

START_SECONDS = 60
# What rounding may do, of the standard deviation, by precision; and in one of how many images it may
# turn a sign.
CLOSE = {"fp32": 1e-4, "tf32": 1e-2, "fp16": 0.5}
FEW = 4
NUMPY = {"FP32": "<f4", "FP16": "<f2", "UINT8": "u1", "INT32": "<i4"}


class Daemon:
    """xnord with models, on a free port of loopback; where says what models, as --model or
    --model-repository, and names are those to wait for."""

    def __init__(self, program: Path, where: list[str], names: list[str], backend: str = "ref"):
        self._names = names
        command = [
            str(program.resolve() if program.is_file() else program),
            "--listen",
            "127.0.0.1",
            "--port",
            "0",
            "--backend",
            backend,
            *where,
        ]
        try:
            self._process = subprocess.Popen(
                command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
            )
        except OSError as error:
            raise ConvertError(
                f"{program}: {error.strerror}; build it, or name it by --xnord"
            ) from error
        self.pid = self._process.pid
        self._lines: list[str] = []
        self._listening = threading.Event()
        self.url: Optional[str] = None
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> "Daemon":
        self._listening.wait(START_SECONDS)
        if not self.url:
            self.stop()
            raise ConvertError("xnord did not start:\n" + "".join(self._lines[-10:]))
        try:
            for name in self._names:
                self._wait_ready(name)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: Any) -> None:
        self.stop()

    def stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join()

    def _read(self) -> None:
        """Its log, to the end, so that it never waits for a reader."""
        for line in self._process.stderr:
            self._lines.append(line)
            found = re.search(r"listening on (http\S+)", line)
            if found:
                self.url = found[1].rstrip("/")
                self._listening.set()
        self._listening.set()

    def _wait_ready(self, name: str) -> None:
        until = time.monotonic() + START_SECONDS
        while True:
            try:
                self._get(f"/v2/models/{name}/ready")
                return
            except urllib.error.HTTPError as error:
                if time.monotonic() > until:
                    raise ConvertError(
                        f"{name} is not ready: {error.read().decode()}\n"
                        + "".join(self._lines[-10:])
                    ) from error
            time.sleep(0.05)

    def _get(self, path: str) -> bytes:
        with urllib.request.urlopen(self.url + path, timeout=START_SECONDS) as answer:
            return answer.read()

    def infer(self, name: str, images: np.ndarray, about: dict[str, Any]) -> dict[str, np.ndarray]:
        """about: `input` of config.json. Values go and come in binary."""
        body = np.ascontiguousarray(images, NUMPY[about["datatype"]]).tobytes()
        header = json.dumps(
            {
                "inputs": [
                    {
                        "name": about["name"],
                        "datatype": about["datatype"],
                        "shape": list(images.shape),
                        "parameters": {"binary_data_size": len(body)},
                    }
                ],
                "parameters": {"binary_data_output": True},
            }
        ).encode()
        request = urllib.request.Request(
            f"{self.url}/v2/models/{name}/infer",
            header + body,
            {"Inference-Header-Content-Length": str(len(header))},
        )
        try:
            with urllib.request.urlopen(request, timeout=600) as answer:
                length = int(answer.headers["Inference-Header-Content-Length"])
                content = answer.read()
        except urllib.error.HTTPError as error:
            raise ConvertError(
                f"the daemon answers {error.code}: {error.read().decode()}"
            ) from error
        return _outputs(json.loads(content[:length]), content[length:])


def _outputs(header: dict[str, Any], values: bytes) -> dict[str, np.ndarray]:
    found, at = {}, 0
    for output in header["outputs"]:
        size = output["parameters"]["binary_data_size"]
        found[output["name"]] = np.frombuffer(
            values[at : at + size], NUMPY[output["datatype"]]
        ).reshape(output["shape"])
        at += size
    return found


def random_images(about: dict[str, Any], count: int, seed: int) -> np.ndarray:
    """Of the input's datatype and shape: 0 to 255, or normally distributed."""
    random = np.random.default_rng(seed)
    shape = (count, *about["shape"])
    if about["datatype"] == "UINT8":
        return random.integers(0, 256, shape, np.uint8)
    return random.standard_normal(shape).astype(NUMPY[about["datatype"]])


@dataclass(frozen=True)
class Difference:
    """Of one output, an image a row."""

    images: int
    most: float  # the largest of an image, relative to the standard deviation of what is wanted
    median: float
    apart: int  # images farther apart than rounding explains
    classes: int  # images whose largest value is another one's

    @staticmethod
    def of(got: np.ndarray, want: np.ndarray, close: float) -> "Difference":
        got, want = (np.asarray(v, np.float64).reshape(len(v), -1) for v in (got, want))
        distance = np.abs(got - want).max(1) / (float(want.std()) or 1.0)
        return Difference(
            len(got),
            float(distance.max()),
            float(np.median(distance)),
            int(np.count_nonzero(~(distance <= close))),
            int(np.count_nonzero(got.argmax(1) != want.argmax(1))),
        )

    @property
    def same(self) -> bool:
        """A sum close to 0 may round to the other side, and that sign moves its image."""
        return max(self.apart, self.classes) <= self.images // FEW

    def __str__(self) -> str:
        return (
            f"{self.median:.2g} of the standard deviation apart (median; {self.most:.2g} at most), "
            f"{self.classes} of {self.images} in another class"
        )


def check(
    folder: Path,
    source: Optional[Path],
    program: Path,
    backend: str,
    images: int,
    seed: int,
    say: Callable[[str], None] = lambda text: None,
) -> tuple[str, bool]:
    """What differs, with a verdict, and whether it is only rounding. An ONNX file (source) is
    computed by onnxruntime, if that knows its operators; everything else by PyTorch, in double
    precision, from the folder."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    about, name = config["input"], config["name"]
    inputs = random_images(about, images, seed)
    say(f"computing {images} random images in Python")
    wanted = None
    if source and source.suffix == ".onnx":
        wanted = _onnxruntime(source, inputs, folder, config)
    peer = "onnxruntime"
    if wanted is None:
        from .run_folder import Folder

        peer, wanted = "PyTorch in double precision", Folder(folder).run(inputs)
    with Daemon(program, ["--model", f"{name}={folder.resolve()}"], [name], backend) as daemon:
        parts = []
        for i in range(images):
            say(f"image {i + 1} of {images} by the daemon's backend {backend}")
            parts.append(daemon.infer(name, inputs[i : i + 1], about))
    got = {output: np.concatenate([part[output] for part in parts]) for output in wanted}
    close = CLOSE[config.get("precision", "fp32")]
    found = {output: Difference.of(got[output], want, close) for output, want in wanted.items()}
    lines = [f"{output}: {images} random images beside {peer}: {d}" for output, d in found.items()]
    same = all(difference.same for difference in found.values())
    lines.append(verdict(max(d.apart for d in found.values()), images, close, same))
    if peer != "onnxruntime":
        lines.append(
            "This compares the daemon with the folder. Whether the folder is the network that was "
            "trained, an ONNX file of it can tell."
        )
    return "\n".join(lines), same


def verdict(apart: int, images: int, close: float, same: bool) -> str:
    if same and apart == 0:
        return "Verdict: the same but for rounding."
    if same:
        return (
            f"Verdict: the same but for rounding, which turned a sign in {apart} of {images} "
            "images: a sum very close to 0."
        )
    return (
        f"Verdict: DIFFERENT. {apart} of {images} images are more than {close:g} of the standard "
        "deviation apart, which rounding does not explain."
    )


def _names(config: dict[str, Any]) -> list[str]:
    return [output["name"] for output in config.get("outputs") or [config["output"]]]


def _onnxruntime(
    source: Path, inputs: np.ndarray, folder: Path, config: dict[str, Any]
) -> Optional[dict[str, np.ndarray]]:
    """None where it cannot: QONNX's operators, a batch that the images do not fill."""
    import onnxruntime

    onnxruntime.set_default_logger_severity(4)
    try:
        session = onnxruntime.InferenceSession(source, providers=["CPUExecutionProvider"])
    except Exception:  # it has many
        return None
    about, names = session.get_inputs()[0], _names(config)
    size = about.shape[0] if isinstance(about.shape[0], int) else len(inputs)
    if len(inputs) % size:
        return None
    images = _as_exported(inputs, about.shape[1:], folder, config)
    runs = [
        session.run(names, {about.name: images[i : i + size]}) for i in range(0, len(images), size)
    ]
    return {name: np.concatenate([run[i] for run in runs]) for i, name in enumerate(names)}


def _as_exported(
    images: np.ndarray, shape: list[Any], folder: Path, config: dict[str, Any]
) -> np.ndarray:
    """What clients send as the file takes it: normalised, in its layout."""
    values = images.astype(np.float32)
    if images.ndim == 2:
        values = values[:, :, None, None]
    elif config["input"].get("layout") == "NHWC":
        values = values.transpose(0, 3, 1, 2)
    first = config["layers"][0]
    if first["name"] == "normalise" and "inputs" not in first:
        tensors = read_tensors(folder / "model.safetensors")
        for part, operation in (("scale", np.multiply), ("bias", np.add)):
            values = operation(values, tensors[f"normalise.{part}"].reshape(1, -1, 1, 1))
    if len(shape) == 1:
        values = values[:, :, 0, 0]
    elif tuple(shape) != values.shape[1:]:
        values = values.transpose(0, 2, 3, 1)
    return np.ascontiguousarray(values)
