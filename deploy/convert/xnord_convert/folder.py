"""The model folder: config.json, model.safetensors and labels (proto/MODELS.md)."""

import json
import os
import struct
from pathlib import Path
from typing import Any, Optional, Union

import numpy as np

from . import ConvertError
from .network import Network

DTYPES = {"float32": "F32", "float16": "F16", "int8": "I8", "uint8": "U8"}
NUMPY = {"F32": "<f4", "F16": "<f2", "I8": "i1", "U8": "u1"}


def write(
    folder: Path,
    network: Network,
    name: str,
    max_batch_size: Optional[int],
    precision: str,
    labels: Optional[list[str]],
) -> None:
    """config.json is written last, so that a folder without it is an unfinished one."""
    folder.mkdir(parents=True, exist_ok=True)
    config = folder / "config.json"
    config.unlink(missing_ok=True)
    write_tensors(folder / "model.safetensors", network.tensors)
    if labels:
        replace(folder / "labels.txt", "".join(f"{label}\n" for label in labels).encode())
    text = config_text(config_of(network, name, max_batch_size, precision, bool(labels)))
    replace(config, text.encode())


def config_of(
    network: Network, name: str, max_batch_size: Optional[int], precision: str, labels: bool
) -> dict[str, Any]:
    channels, height, width = network.shape
    shape = [height, width, channels] if network.layout == "NHWC" else [channels, height, width]
    if height == width == 1 and network.layout == "NCHW":
        shape = [channels]
    config: dict[str, Any] = {"format": "xnord-network/1", "name": name}
    if max_batch_size is not None:
        config["max_batch_size"] = max_batch_size
    config["precision"] = precision
    config["input"] = {
        "name": network.input,
        "datatype": network.datatype,
        "shape": shape,
        "layout": network.layout,
    }
    if network.picture:
        config["input"]["picture"] = network.picture
    outputs = [{"name": output, "layer": layer} for output, layer in network.outputs]
    if labels:
        outputs[0]["labels"] = "labels.txt"
    if len(outputs) == 1:
        config["output"] = outputs[0]
    else:
        config["outputs"] = outputs
    config["layers"] = network.layers
    return config


def config_text(config: dict[str, Any]) -> str:
    """A member and a layer a line."""
    head = [
        f" {json.dumps(key)}: {json.dumps(value)}"
        for key, value in config.items()
        if key != "layers"
    ]
    layers = ",\n".join(f"  {json.dumps(layer, ensure_ascii=False)}" for layer in config["layers"])
    return "{\n" + ",\n".join(head) + f',\n "layers": [\n{layers}]}}\n'


def write_tensors(path: Path, tensors: dict[str, np.ndarray]) -> None:
    """A safetensors file; the header is filled up with spaces, so that tensors lie on multiples of
    64 where their sizes allow."""
    header, at = {}, 0
    for name, values in tensors.items():
        header[name] = {
            "dtype": DTYPES[values.dtype.name],
            "shape": list(values.shape),
            "data_offsets": [at, at + values.nbytes],
        }
        at += values.nbytes
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-(len(text) + 8) % 64)
    replace(
        path,
        struct.pack("<Q", len(text)) + text,
        *(np.ascontiguousarray(values).reshape(-1).view(np.uint8).data for values in tensors.values()),
    )


def read_tensors(path: Path) -> dict[str, np.ndarray]:
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header, values = json.loads(content[8 : 8 + length]), content[8 + length :]
    header.pop("__metadata__", None)
    return {
        name: np.frombuffer(values[slice(*about["data_offsets"])], NUMPY[about["dtype"]]).reshape(
            about["shape"]
        )
        for name, about in header.items()
    }


def replace(path: Path, *contents: Union[bytes, memoryview]) -> None:
    """Whole or not at all."""
    unfinished = path.with_name(path.name + ".part")
    with open(unfinished, "wb") as file:
        for content in contents:
            file.write(content)
    os.replace(unfinished, path)


def read_labels(path: Path) -> list[str]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ConvertError(f"{path}: {error}") from error
    if "\0" in text:
        raise ConvertError(f"{path}: it has a NUL")
    return [label.removesuffix("\r") for label in text.removesuffix("\n").split("\n")]
