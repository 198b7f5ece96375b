"""Checkpoints as their authors' tools write them."""

import struct
from pathlib import Path

import h5py
import numpy as np
import torch
from definitions import KerasNet
from torch import nn


def torch_file(model: nn.Module, path: Path, wrapped: bool, prefix: str = "") -> None:
    """A state dict; wrapped, inside a training run's dictionary and DataParallel's names."""
    tensors = {prefix + name: values for name, values in model.state_dict().items()}
    if wrapped:
        tensors = {f"module.{name}": values for name, values in tensors.items()}
        torch.save({"epoch": 3, "state_dict": tensors, "optimizer": {"state": {}}}, path)
    else:
        torch.save(tensors, path)


def keras_tensors(module: nn.Module) -> dict[str, np.ndarray]:
    """As Keras names and lays them out."""
    tensors = {name: values.numpy() for name, values in module.state_dict().items()}
    if isinstance(module, nn.BatchNorm2d):
        names = {
            "weight": "gamma",
            "bias": "beta",
            "running_mean": "moving_mean",
            "running_var": "moving_variance",
        }
        return {new: tensors[old] for old, new in names.items() if old in tensors}
    if isinstance(module, nn.PReLU):
        return {"alpha": tensors["weight"].reshape(1, 1, -1)}
    if isinstance(module, nn.Conv2d) and module.groups > 1:
        return {"depthwise_kernel": tensors["weight"].transpose(2, 3, 0, 1)}
    axes = (2, 3, 1, 0) if isinstance(module, nn.Conv2d) else (1, 0)
    found = {"kernel": tensors["weight"].transpose(axes)}
    return found | ({"bias": tensors["bias"]} if "bias" in tensors else {})


def keras_file(layers: list[tuple[str, nn.Module]], path: Path) -> None:
    """What save_weights writes: groups in groups, layers without weights among them."""
    names = ["input_1"] + [name for name, _ in layers] + ["activation"]
    with h5py.File(path, "w") as file:
        file.attrs["layer_names"] = [name.encode() for name in names]
        for name in ("input_1", "activation"):
            file.create_group(name).attrs["weight_names"] = np.zeros(0, "S1")
        for name, module in layers:
            group, tensors = file.create_group(name), keras_tensors(module)
            group.attrs["weight_names"] = [f"{name}/{part}:0".encode() for part in tensors]
            for part, values in tensors.items():
                group.create_dataset(f"{name}/{part}:0", data=values)


def keras_net(model: KerasNet, path: Path) -> None:
    keras_file(model.order, path)


def keras_densenet(model: nn.Module, path: Path) -> None:
    keras_file(
        [
            (f"layer_{index}", module)
            for index, module in enumerate(model.modules())
            if isinstance(module, (nn.Conv2d, nn.Linear, nn.BatchNorm2d))
        ],
        path,
    )


def mxnet_file(model: nn.Module, path: Path) -> None:
    """Gluon's save_parameters; of its names only the last component matters to the converter."""
    names = {"weight": "gamma", "bias": "beta"}
    arrays, texts = [], []
    for index, module in enumerate(model.modules()):
        norm = isinstance(module, nn.BatchNorm2d)
        if norm or isinstance(module, (nn.Conv2d, nn.Linear)):
            for name, values in module.state_dict().items():
                if name != "num_batches_tracked":
                    texts.append(f"layer{index}.{names.get(name, name) if norm else name}".encode())
                    arrays.append(_mxnet_array(values.numpy()))
    with open(path, "wb") as file:
        file.write(struct.pack("<QQQ", 0x112, 0, len(arrays)))
        file.write(b"".join(arrays))
        file.write(struct.pack("<Q", len(texts)))
        file.write(b"".join(struct.pack("<Q", len(text)) + text for text in texts))


def _mxnet_array(values: np.ndarray) -> bytes:
    datatype = {"float32": 0, "float64": 1}[values.dtype.name]
    return (
        struct.pack("<IiI", 0xF993FAC9, 0, values.ndim)
        + struct.pack(f"<{values.ndim}q", *values.shape)
        + struct.pack("<iii", 1, 0, datatype)
        + np.ascontiguousarray(values).tobytes()
    )
