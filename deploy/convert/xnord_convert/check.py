"""A converted folder, served by the daemon, beside another implementation of the same network."""

import json
import re
import subprocess
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, Callable, Optional

import numpy as np

from . import ConvertError

START_SECONDS = 60
NUMPY = {"FP32": "<f4", "FP16": "<f2", "UINT8": "u1"}


class Daemon:
    """xnord with models, on a free port of loopback; where says what models, as --model or
    --model-repository, and names are those to wait for."""

    def __init__(self, program: Path, where: list[str], names: list[str], backend: str = "ref"):
        self._names = names
        command = [
            str(program),
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
        self._lines: list[str] = []
        self._listening = threading.Event()
        self._url: Optional[str] = None
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> "Daemon":
        self._listening.wait(START_SECONDS)
        if not self._url:
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
                self._url = found[1].rstrip("/")
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
        with urllib.request.urlopen(self._url + path, timeout=START_SECONDS) as answer:
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
            f"{self._url}/v2/models/{name}/infer",
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
        found[output["name"]] = np.frombuffer(values[at : at + size], "<f4").reshape(
            output["shape"]
        )
        at += size
    return found


def random_images(about: dict[str, Any], count: int, seed: int) -> np.ndarray:
    """Of the input's datatype and shape: 0 to 255, or normally distributed."""
    random = np.random.default_rng(seed)
    shape = (count, *about["shape"])
    if about["datatype"] == "UINT8":
        return random.integers(0, 256, shape, np.uint8)
    return random.standard_normal(shape).astype(NUMPY[about["datatype"]])


def difference(got: np.ndarray, want: np.ndarray) -> tuple[float, float, float]:
    """The largest and the median difference of an image, relative to the standard deviation of what
    is wanted, and for how many images the largest value is the same one's."""
    got, want = (np.asarray(values, np.float64).reshape(len(values), -1) for values in (got, want))
    spread = float(want.std()) or 1.0
    apart = np.abs(got - want).max(1) / spread
    return (
        float(apart.max()),
        float(np.median(apart)),
        float(np.mean(got.argmax(1) == want.argmax(1))),
    )


def check(
    folder: Path,
    source: Optional[Path],
    program: Path,
    backend: str,
    images: int,
    seed: int,
    say: Callable[[str], None] = lambda text: None,
) -> str:
    """A line about the difference of each output. An ONNX file (source) is computed by onnxruntime,
    if that knows its operators; everything else by PyTorch, in double precision, from the
    folder."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    about, name = config["input"], config["name"]
    inputs = random_images(about, images, seed)
    say(f"computing {images} random images in Python")
    peer, wanted = _peer(folder, source, inputs, config)
    with Daemon(program, ["--model", f"{name}={folder.resolve()}"], [name], backend) as daemon:
        parts = []
        for i in range(images):
            say(f"image {i + 1} of {images} by the daemon's backend {backend}")
            parts.append(daemon.infer(name, inputs[i : i + 1], about))
    got = {output: np.concatenate([part[output] for part in parts]) for output in wanted}
    lines = []
    for output, want in wanted.items():
        most, median, same = difference(got[output], want)
        lines.append(
            f"{output}: {images} random images, beside {peer}: {median:.2g} of the standard "
            f"deviation apart (median; {most:.2g} at most), the same class for {same:.0%}"
        )
    return "\n".join(lines)


def _peer(
    folder: Path, source: Optional[Path], inputs: np.ndarray, config: dict[str, Any]
) -> tuple[str, dict[str, np.ndarray]]:
    if source and source.suffix == ".onnx" and config["input"]["datatype"] == "FP32":
        found = _onnxruntime(source, inputs, _names(config))
        if found is not None:
            return "onnxruntime", found
    from .run_folder import Folder

    return "PyTorch in double precision", Folder(folder).run(inputs)


def _names(config: dict[str, Any]) -> list[str]:
    return [output["name"] for output in config.get("outputs") or [config["output"]]]


def _onnxruntime(
    source: Path, inputs: np.ndarray, names: list[str]
) -> Optional[dict[str, np.ndarray]]:
    """None where it cannot: QONNX's operators, a batch that the images do not fill."""
    import onnxruntime

    onnxruntime.set_default_logger_severity(4)
    try:
        session = onnxruntime.InferenceSession(source, providers=["CPUExecutionProvider"])
    except Exception:  # it has many
        return None
    about = session.get_inputs()[0]
    size = about.shape[0] if isinstance(about.shape[0], int) else len(inputs)
    if len(inputs) % size:
        return None
    runs = [
        session.run(names, {about.name: inputs[i : i + size]}) for i in range(0, len(inputs), size)
    ]
    return {name: np.concatenate([run[i] for run in runs]) for i, name in enumerate(names)}
