"""What is served to the clients under test: a daemon on a free port, the digits network in all the
datatypes that an input can have, registered weights, and what must come out of them."""
import json
import pathlib
import shutil
import sys
import tempfile

import numpy

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import processes  # noqa: E402
from processes import ROOT, die_with_parent, request  # noqa: E402, F401

DIGITS = ROOT / "deploy/demo/digits"

_build = ROOT / "build"


def use(build):
    global _build
    _build = build


def build():
    return _build


# ---- the held-out digits ----

_records = numpy.fromfile(DIGITS / "held_out.u8", numpy.uint8).reshape(-1, 66)
PICTURES = numpy.ascontiguousarray(_records[:, :64]).reshape(-1, 8, 8, 1)
SHOWN = _records[:, 64]  # what the pictures show
RECOGNISED = _records[:, 65]  # what the network takes them for


# ---- the daemon ----


class Daemon(processes.Daemon):
    """A daemon on a free port of loopback, ready. Stopping checks that it ends well."""

    def __init__(self, *flags):
        super().__init__(_build / "xnord", *flags)


# ---- a repository of models ----


def write_model(folder, datatype, **members):
    """The digits network with another datatype of its input, or other members."""
    config = json.loads((DIGITS / "config.json").read_text())
    config["name"] = folder.name
    config["input"]["datatype"] = datatype
    config.update(members)
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config))
    for name in ("model.safetensors", "labels.txt"):
        shutil.copy(DIGITS / name, folder)


PIXELS_SIDE, PIXELS_RESIZE = 96, 112


def write_pixels(folder):
    """A network whose output is the picture that it takes, channels first."""
    side = PIXELS_SIDE
    config = {
        "format": "xnord-network/1",
        "input": {
            "datatype": "UINT8",
            "shape": [side, side, 3],
            "layout": "NHWC",
            "picture": {"resize": PIXELS_RESIZE, "crop": side, "filter": "bilinear"},
        },
        "layers": [{"op": "affine", "name": "same"}],
    }
    head = b'{"same.scale":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'
    values = numpy.ones(1, "<f4").tobytes()
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "model.safetensors").write_bytes(len(head).to_bytes(8, "little") + head + values)


def write_repository(folder):
    write_pixels(folder / "pixels")
    write_model(folder / "digits-fp32", "FP32")
    write_model(folder / "digits-fp16", "FP16")
    write_model(folder / "small", "UINT8", max_batch_size=4)
    write_model(folder / "tmp", "UINT8", name="versions")
    (folder / "versions").mkdir()
    for version in ("1", "3"):
        shutil.copytree(folder / "tmp", folder / "versions" / version)
    shutil.rmtree(folder / "tmp")
    (folder / "broken").mkdir()
    (folder / "broken" / "config.json").write_text('{"format": "of another kind"}')


class Served:
    """A daemon with the repository; as a context or by start and stop."""

    def __init__(self, *flags):
        self.folder = tempfile.TemporaryDirectory(prefix="xnord-models-")
        self.models = pathlib.Path(self.folder.name) / "models"
        write_repository(self.models)
        self.daemon = Daemon(
            "--model", f"digits={DIGITS}", "--model-repository", str(self.models), *flags
        )
        self.address, self.url = self.daemon.address, self.daemon.url

    def stop(self):
        self.daemon.stop()
        self.folder.cleanup()


_shared = None


def shared():
    """One daemon for all tests that leave it as they found it; ended with the process."""
    global _shared
    if _shared is None:
        _shared = Served("--allow-client-shm")
        register_edge(_shared.url)
    return _shared


def stop_shared():
    if _shared is not None:
        _shared.stop()


# ---- registered weights, which answer as a model ----

EDGE = numpy.where(numpy.arange(2 * 3 * 3 * 3).reshape(2, 3, 3, 3) % 5 < 2, 0.5, -0.25).astype("f")


def register_edge(url):
    weights = {"shape": list(EDGE.shape), "datatype": "FP32", "data": EDGE.ravel().tolist()}
    body = json.dumps({"weights": weights}).encode()
    got = request(f"{url}/weights/edge", body, "PUT", Content_Type="application/json")
    assert got.status in (200, 201), got.body


def edge_answer(image):
    """dot * alpha of a 3x3 convolution without padding, of the signs of image [N, 3, H, W]."""
    signs = numpy.where(image.astype("f") >= 0, 1.0, -1.0)
    weights = numpy.where(EDGE >= 0, 1.0, -1.0)
    windows = numpy.lib.stride_tricks.sliding_window_view(signs, (3, 3), axis=(2, 3))
    dots = numpy.einsum("nchwij,ocij->nohw", windows, weights)
    alpha = numpy.abs(EDGE).mean(axis=(1, 2, 3), dtype="d")
    return dots * alpha[None, :, None, None]
