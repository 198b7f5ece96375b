"""Files of trained tensors, read: by name, and as parts (a layer's tensors) in the file's order."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, Iterator, Optional

import numpy as np

from . import ConvertError, mxnet_file
from .numbers import Norm

NESTED = ("state_dict", "model_state_dict", "model", "net", "params")
WRAPPERS = {"module", "_orig_mod", "_model"}  # DataParallel's, torch.compile's, bitorch's
# Tensors that mean nothing at inference.
IGNORED = ("num_batches_tracked", ".act_quant.", ".weight_quant.", ".tensor_quant.", "scaling_impl")


EXPORT = (
    "export it to ONNX: torch.onnx.export(model.eval(), (torch.zeros(1, 3, 224, 224),), "
    "'model.onnx', dynamic_shapes=({0: torch.export.Dim('batch')},))"
)


class Part:
    """A layer's tensors, as PyTorch has them: weights [O, C/groups, KH, KW] or [O, I]."""

    def __init__(self, name: str, bias: Optional[np.ndarray] = None, **one: Any):
        """one: weight, norm or slope, by which it is a layer of its kind."""
        self.name, self.bias = name, bias
        ((self._is, self._has),) = one.items()
        if self._is == "weight" and self._has.ndim not in (2, 4):
            raise ConvertError(
                f'"{name}" has a weight of {self._has.ndim} dimensions; expected 4 or 2'
            )

    @property
    def kind(self) -> str:
        kinds = {"norm": "batch norm", "slope": "PReLU"}
        weighted = "dense layer" if self._is == "weight" and self._has.ndim == 2 else "convolution"
        return kinds.get(self._is, weighted)

    @property
    def weight(self) -> np.ndarray:
        return self._get("weight")

    @property
    def norm(self) -> Norm:
        return self._get("norm")

    @property
    def slope(self) -> np.ndarray:
        return self._get("slope")

    def _get(self, what: str) -> Any:
        if self._is != what:
            raise ConvertError(f'"{self.name}" is a {self.kind}; it has no {what}')
        return self._has


@dataclass
class Checkpoint:
    tensors: dict[str, np.ndarray]
    keras: bool = False
    _taken: set[str] = field(default_factory=set)

    # ---- by name ----

    def has(self, name: str) -> bool:
        return name in self.tensors

    def take(self, name: str) -> np.ndarray:
        if name not in self.tensors:
            raise ConvertError(f'the file has no tensor "{name}"{self._nearby(name)}')
        self._taken.add(name)
        return self.tensors[name]

    def maybe(self, name: str) -> Optional[np.ndarray]:
        return self.take(name) if name in self.tensors else None

    def norm(self, name: str) -> Norm:
        """PyTorch's four tensors of a batch norm; weight and bias may be missing."""
        return Norm(
            self.take(f"{name}.running_mean"),
            self.take(f"{name}.running_var"),
            self.maybe(f"{name}.weight"),
            self.maybe(f"{name}.bias"),
        )

    def children(self, prefix: str) -> list[str]:
        """The next components of names behind prefix, in the file's order."""
        found = dict.fromkeys(
            name[len(prefix) :].split(".")[0] for name in self.tensors if name.startswith(prefix)
        )
        return list(found)

    def not_taken(self) -> list[str]:
        return [name for name in self.tensors if name not in self._taken]

    def _nearby(self, name: str) -> str:
        prefix = name
        while "." in prefix:
            prefix = prefix.rpartition(".")[0]
            found = [other for other in self.tensors if other.startswith(prefix + ".")]
            if found:
                return f"; below {prefix} it has {', '.join(found[:6])}"
        return f"; it has {', '.join(list(self.tensors)[:6])}, ..."

    # ---- in order ----

    def parts(self) -> "Parts":
        groups: dict[str, dict[str, np.ndarray]] = {}
        for name, values in self.tensors.items():
            owner, _, part = name.rpartition(".")
            groups.setdefault(owner, {})[part] = values
            self._taken.add(name)
        make = _keras_part if self.keras else _torch_part
        return Parts([make(name, group) for name, group in groups.items()])


class Parts:
    """Parts taken one after the other, each of the kind that must come."""

    def __init__(self, parts: list[Part]):
        self._parts, self._next = parts, 0

    def conv(self, filters: Optional[int] = None) -> Part:
        return self._take("convolution", filters)

    def dense(self) -> Part:
        return self._take("dense layer", None)

    def norm(self) -> Norm:
        return self._take("batch norm", None).norm

    def peek(self) -> Optional[Part]:
        return self._parts[self._next] if self._next < len(self._parts) else None

    def __iter__(self) -> Iterator[Part]:
        return iter(self._parts)

    def end(self) -> None:
        part = self.peek()
        if part:
            raise ConvertError(
                f"the network is complete before part {self._next} of the file, the "
                f'{part.kind} "{part.name}": it is another network'
            )

    def _take(self, kind: str, filters: Optional[int]) -> Part:
        part = self.peek()
        if not part:
            raise ConvertError(f"the file ends where a {kind} must come")
        if part.kind != kind:
            raise ConvertError(
                f'part {self._next} of the file, "{part.name}", is a {part.kind}; a '
                f"{kind} must come there: it is another network"
            )
        if filters is not None and len(part.weight) != filters:
            raise ConvertError(
                f'"{part.name}" has {len(part.weight)} filters; {filters} must come '
                "there: it is another network"
            )
        self._next += 1
        return part


def _torch_part(name: str, group: dict[str, np.ndarray]) -> Part:
    mean = group.get("running_mean")
    if mean is not None:  # MXNet says gamma and beta
        return Part(
            name,
            norm=Norm(
                mean,
                group["running_var"],
                group.get("weight", group.get("gamma")),
                group.get("bias", group.get("beta")),
            ),
        )
    weight = group.get("weight")
    if weight is not None and weight.ndim == 1:
        return Part(name, slope=weight)
    if weight is None:
        raise ConvertError(f'"{name}" has {", ".join(group)}, and no weight')
    return Part(name, group.get("bias"), weight=weight)


def _keras_part(name: str, group: dict[str, np.ndarray]) -> Part:
    if "moving_mean" in group:
        return Part(
            name,
            norm=Norm(
                group["moving_mean"],
                group["moving_variance"],
                group.get("gamma"),
                group.get("beta"),
            ),
        )
    if "alpha" in group:
        return Part(name, slope=group["alpha"].reshape(-1))
    kernel = group.get("kernel", group.get("depthwise_kernel"))
    if kernel is None:
        raise ConvertError(f'layer "{name}" has {", ".join(group)}, which is nothing known')
    depthwise = "depthwise_kernel" in group
    return Part(name, group.get("bias"), weight=keras_weight(kernel, depthwise))


def keras_weight(kernel: np.ndarray, depthwise: bool = False) -> np.ndarray:
    """[KH, KW, I, O] or [I, O] as [O, I, KH, KW] or [O, I]; depthwise [KH, KW, C, M] as
    [C*M, 1, KH, KW], for C groups."""
    if kernel.ndim == 2:
        return np.ascontiguousarray(kernel.T)
    if depthwise:
        height, width, channels, times = kernel.shape
        return kernel.transpose(2, 3, 0, 1).reshape(channels * times, 1, height, width)
    return np.ascontiguousarray(kernel.transpose(3, 2, 0, 1))


# ---- files ----


def read(path: Path) -> Checkpoint:
    if not path.is_file():
        raise ConvertError(f"{path}: there is no such file")
    readers: dict[str, Callable[[Path], Checkpoint]] = {
        ".h5": _read_keras,
        ".hdf5": _read_keras,
        ".npz": _read_numpy,
        ".safetensors": _read_safetensors,
        ".params": _read_mxnet,
    }
    try:
        found = readers.get(path.suffix, _read_torch)(path)
    except (ConvertError, ImportError, OSError):
        raise
    except Exception as error:  # whatever a library throws
        raise ConvertError(f"{path}: it cannot be read: {first_line(error)}") from error
    if not found.tensors:
        raise ConvertError(f"{path}: it has no tensors")
    return found


def first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _named(tensors: dict[str, np.ndarray]) -> Checkpoint:
    """Without what wrappers put into names, and what inference does not need."""
    found = {}
    for name, values in tensors.items():
        name = ".".join(part for part in name.split(".") if part not in WRAPPERS)
        if not any(text in f".{name}." for text in IGNORED):
            found[name] = values
    return Checkpoint(found)


def _read_torch(path: Path) -> Checkpoint:
    import torch

    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # whatever unpickling throws
        raise ConvertError(
            f"{path}: PyTorch does not read it as tensors alone ({first_line(error)}). Where its "
            f"code is, save it again, torch.save(model.state_dict(), FILE), or {EXPORT}"
        ) from error
    return _named(_tensors_of(content, path))


def _tensors_of(content: Any, path: Path) -> dict[str, np.ndarray]:
    import torch

    while isinstance(content, dict):
        tensors = {
            str(name): values.detach()
            for name, values in content.items()
            if isinstance(values, torch.Tensor)
        }
        nested = next((key for key in NESTED if isinstance(content.get(key), dict)), None)
        if nested is None:
            return {name: _plain(values) for name, values in tensors.items()}
        content = content[nested]
    raise ConvertError(f"{path}: it holds a {type(content).__name__}, not a state dict")


def _plain(values: Any) -> np.ndarray:
    return values.double().numpy() if values.is_floating_point() else values.numpy()


def _read_safetensors(path: Path) -> Checkpoint:
    from safetensors.torch import load_file

    return _named({name: _plain(values) for name, values in load_file(path).items()})


def _read_numpy(path: Path) -> Checkpoint:
    with np.load(path, allow_pickle=False) as file:
        return _named(dict(file))


def _read_mxnet(path: Path) -> Checkpoint:
    return _named(mxnet_file.read(path))


def _read_keras(path: Path) -> Checkpoint:
    """The layers with weights, in the order of layer_names."""
    import h5py

    tensors: dict[str, np.ndarray] = {}
    with h5py.File(path, "r") as file:
        root = file["model_weights"] if "model_weights" in file else file
        if "layer_names" not in root.attrs:
            raise ConvertError(f'{path}: it has no layer_names: save it by save_weights("NAME.h5")')
        for layer in map(_text, root.attrs["layer_names"]):
            for weight in map(_text, root[layer].attrs["weight_names"]):
                part = weight.rpartition("/")[2].partition(":")[0]
                tensors[f"{layer}.{part}"] = np.asarray(root[layer][weight])
    return Checkpoint(tensors, keras=True)


def _text(name: Any) -> str:
    return name.decode() if isinstance(name, bytes) else str(name)
