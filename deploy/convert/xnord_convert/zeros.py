"""Whether what a sign reads can be exactly 0, where PyTorch and ONNX have 0 and xnord has +1.

Sums of real products are never exactly 0 by chance; what is exactly 0 comes from few layers. So for
each layer this has the numbers that a channel takes again and again (ReLU's 0, the bounds of a
clip, the integers of a binary convolution or a quantiser, the signs themselves), and where scales
and biases take those, in FP32. A zero is

- a network input of real numbers, and what convolutions without a bias make of it
- behind ReLU, clip, quantize, pools of those, as long as no bias moves it away
- a binary convolution's dot, of an even number of taps or with padding, behind a scale and bias
  under which some integer gives 0
- a sum of such, a product with such, and a difference of two functions of one value (x - relu(x))

What it does not see: sums that cancel because two weights or two inputs are the same.
"""

from dataclasses import dataclass
from typing import Any, Optional

import numpy as np

from . import ConvertError
from .network import Network

ZEROS = {"prelu", "clip", "quantize"}  # ops that make zeros of other values
EACH_ALONE = {"affine", "prelu", "clip", "quantize", "sigmoid"}
MANY = 16  # grids of a layer


@dataclass(frozen=True)
class Grid:
    """Of each channel, and pixel where those differ, [C, P], count numbers: start, start + step,
    ... start is NaN where there are none."""

    start: np.ndarray
    step: np.ndarray
    count: np.ndarray

    @staticmethod
    def of(channels: int, start: float, step: float = 0, count: int = 1) -> "Grid":
        return Grid(
            *(np.full((channels, 1), value) for value in (float(start), float(step), count))
        )

    @staticmethod
    def where(zero: np.ndarray) -> "Grid":
        """0 in these channels, nothing in the others."""
        none = np.zeros(zero.shape)
        return Grid(np.where(zero, 0.0, np.nan), none, none + 1)

    def map(self, function: Any) -> "Grid":
        return Grid(*(function(part) for part in (self.start, self.step, self.count)))

    def scaled(self, scale: np.ndarray, bias: np.ndarray) -> "Grid":
        start = self.start * scale + bias
        return Grid(start, *np.broadcast_arrays(self.step * scale, self.count + 0 * start)[:2])

    def zero(self) -> np.ndarray:
        """The channels that have a 0, [C]."""
        index = np.round(-self.start / np.where(self.step == 0, 1, self.step))
        index = np.clip(index, 0, self.count - 1)
        return (self.start + index * self.step == 0).any(-1)

    def plus(self, other: "Grid") -> "Grid":
        """Nothing where the steps have nothing to do with one another."""
        steps = [np.where(grid.count > 1, abs(grid.step), 0) for grid in (self, other)]
        small, large = np.minimum(*steps), np.maximum(*steps)
        small = np.where(small == 0, large, small)
        times = [step / np.where(small == 0, 1, small) for step in steps]
        whole = [t * (grid.count - 1) for t, grid in zip(times, (self, other))]
        alike = (times[0] == np.round(times[0])) & (times[1] == np.round(times[1]))
        low = [g.start + np.minimum(g.step, 0) * (g.count - 1) for g in (self, other)]
        return Grid(np.where(alike, low[0] + low[1], np.nan), small, whole[0] + whole[1] + 1)


Numbers = list[Grid]


def check(net: Network, plus: bool) -> None:
    """Refuses signs that would change, or notes them (plus)."""
    if not net.doubtful:
        return
    found = _Zeros(net).signs()
    texts = [f"{net.doubtful[layer]} behind {source}" for layer, source in found.items()]
    if texts and not plus:
        more = f", and of {len(texts) - 1} others," if len(texts) > 1 else ""
        raise ConvertError(
            f"{texts[0]}: its input{more} can be exactly 0, whose sign is 0 in the file and +1 in "
            "xnord. Train or export with +1 there (torch.where(x >= 0, 1.0, -1.0)); or convert "
            "with --sign-zero=plus, and look at what --check says"
        )
    if texts:
        net.notes.append(
            "sign(0) becomes +1 (--sign-zero=plus) where the input can be exactly 0: "
            f"{'; '.join(texts)}"
        )


class _Zeros:
    def __init__(self, net: Network):
        self._net = net
        pixels = Grid.of(net.shape[0], 0, 1, 256 if net.datatype == "UINT8" else 1)
        self._numbers: dict[str, Numbers] = {net.input: [pixels]}
        self._source = {net.input: "the network's input"}
        self._root = {net.input: net.input}

    def signs(self) -> dict[str, str]:
        """The doubtful ones whose input can be 0, and where that comes from."""
        found, before = {}, self._net.input
        with np.errstate(all="ignore"):
            for layer in self._net.layers:
                inputs = layer.get("inputs", [before])
                before = layer["name"]
                if before in self._net.doubtful and self._reads_zero(layer, inputs[0]):
                    found[before] = self._source[inputs[0]]
                self._take(layer, inputs)
        return found

    def _reads_zero(self, layer: dict[str, Any], x: str) -> bool:
        shift, numbers = self._tensor(layer, "shift"), self._numbers[x]
        if shift is not None:
            numbers = [grid.scaled(np.ones((1, 1)), _rows(shift)) for grid in numbers]
        return any(grid.zero().any() for grid in numbers)

    def _take(self, layer: dict[str, Any], inputs: list[str]) -> None:
        name, given = layer["name"], [self._numbers[x] for x in inputs]
        self._numbers[name] = getattr(self, f"_{layer['op']}")(layer, inputs, *given)[:MANY]
        passed = [x for x, has in zip(inputs, given) if any(grid.zero().any() for grid in has)]
        own = not passed or layer["op"] in ZEROS or layer.get("mode") == "xnor"
        self._source[name] = f'"{name}" ({layer["op"]})' if own else self._source[passed[0]]
        self._root[name] = self._root[inputs[0]] if layer["op"] in EACH_ALONE else name

    def _tensor(self, layer: dict[str, Any], part: str) -> Optional[np.ndarray]:
        found = self._net.tensors.get(f"{layer['name']}.{part}")
        return found if found is None or part == "weight" else found.astype(np.float64)

    def _zero(self, x: str, numbers: Numbers) -> np.ndarray:
        """The channels that have a 0, [C]."""
        zero = np.zeros(self._net.channels(x), bool)
        for grid in numbers:
            zero |= grid.zero()
        return zero

    # ---- ops, as in MODELS.md ----

    def _conv(self, layer: dict[str, Any], inputs: list[str], x: Numbers) -> Numbers:
        weight = self._tensor(layer, "weight")
        assert weight is not None
        outputs, groups, mode = len(weight), layer.get("groups", 1), layer.get("mode", "float")
        signs = bool(x) and all((abs(g.start) == 1).all() and (abs(g.step) != 1).all() for g in x)
        if mode == "xnor" or (mode == "bwn" and signs):
            taps = layer["packed_channels"] * int(np.prod(weight.shape[1:-1]))
            padded = layer.get("padding", 0) != 0 and layer.get("pad_value", 0) == 0
            dots = Grid.of(outputs, -taps, 1 if padded else 2, 2 * taps + 1 if padded else taps + 1)
            if layer.get("k_map"):  # of which only 0 stays what it is
                dots = Grid.where(dots.zero()[:, None])
            return self._affine(layer, inputs, [dots])
        # 0 where all that a filter reads is 0, or the filter.
        zero = self._zero(inputs[0], x).reshape(groups, -1).all(1).repeat(outputs // groups)
        if mode == "float":
            zero |= ~weight.reshape(outputs, -1).any(1)
        return self._affine(layer, inputs, [Grid.where(zero[:, None])])

    def _affine(self, layer: dict[str, Any], inputs: list[str], x: Numbers) -> Numbers:
        scale, bias = (self._tensor(layer, part) for part in ("scale", "bias"))
        scale = np.ones((1, 1)) if scale is None else _rows(scale)
        bias = np.zeros((1, 1)) if bias is None else _rows(bias)
        if not scale.all():  # such channels have their bias alone
            channels = self._net.channels(layer["name"])
            zero = np.broadcast_to(scale == 0, (channels, scale.shape[1]))
            x = [*x, Grid.where(zero)]
        return [grid.scaled(scale, bias) for grid in x]

    def _sign(self, layer: dict[str, Any], inputs: list[str], x: Numbers) -> Numbers:
        return [Grid.of(self._net.channels(layer["name"]), -1, 2, 2)]

    def _prelu(self, layer: dict[str, Any], inputs: list[str], x: Numbers) -> Numbers:
        slope = self._tensor(layer, "slope")
        by = np.full((1, 1), float(layer["slope"])) if slope is None else _rows(slope)
        flat = np.broadcast_to(by == 0, (self._net.channels(layer["name"]), 1))
        below = [grid.scaled(by, np.zeros((1, 1))) for grid in x if (grid.step != 0).any()]
        return [Grid.where(flat), *x, *below]

    def _clip(self, layer: dict[str, Any], inputs: list[str], x: Numbers) -> Numbers:
        channels = self._net.channels(layer["name"])
        return [Grid.of(channels, layer["min"]), Grid.of(channels, layer["max"]), *x]

    def _quantize(self, layer: dict[str, Any], inputs: list[str], x: Numbers) -> Numbers:
        low, high, step = layer["min"], layer["max"], float(np.float32(layer["step"]))
        return [Grid.of(self._net.channels(layer["name"]), low * step, step, high - low + 1)]

    def _add(self, layer: dict[str, Any], inputs: list[str], *given: Numbers) -> Numbers:
        total = given[0]
        for one in given[1:]:
            total = [a.plus(b) for a in total[:MANY] for b in one]
        roots = [self._root[x] for x in set(inputs)]
        if len(set(roots)) < len(roots):  # x - relu(x)
            total = [Grid.of(self._net.channels(layer["name"]), 0), *total]
        return total

    def _mul(self, layer: dict[str, Any], inputs: list[str], x: Numbers, gate: Numbers) -> Numbers:
        zero = self._zero(inputs[0], x) | self._zero(inputs[1], gate)
        return [Grid.where(zero[:, None])]

    def _concat(self, layer: dict[str, Any], inputs: list[str], *given: Numbers) -> Numbers:
        found = []
        for index in range(max(map(len, given))):
            parts = [
                (
                    numbers[index]
                    if index < len(numbers)
                    else Grid.of(self._net.channels(x), float("nan"))
                )
                for x, numbers in zip(inputs, given)
            ]
            width = max(grid.start.shape[1] for grid in parts)
            parts = [g.map(lambda part: _wide(part, width)) for g in parts]
            found.append(
                Grid(
                    *(np.concatenate([getattr(g, n) for g in parts]) for n in Grid.__annotations__)
                )
            )
        return found

    def _slice(self, layer: dict[str, Any], inputs: list[str], x: Numbers) -> Numbers:
        return [grid.map(lambda part: part[layer["from"] : layer["to"]]) for grid in x]

    def _max_pool(self, layer: dict[str, Any], inputs: list[str], x: Numbers) -> Numbers:
        if all(grid.start.shape[1] == 1 for grid in x):
            return x
        return [Grid.where(self._zero(inputs[0], x)[:, None])]

    def _avg_pool(self, layer: dict[str, Any], inputs: list[str], x: Numbers) -> Numbers:
        # The mean of some that are below 0 and some above may be 0.
        ends = [e for g in x for e in (g.start, g.start + g.step * (g.count - 1))]
        mixed = np.zeros(self._net.channels(layer["name"]), bool)
        if ends:
            mixed |= np.any([(e < 0).any(1) for e in ends], 0)
            mixed &= np.any([(e > 0).any(1) for e in ends], 0)
        return [Grid.where(mixed[:, None]), *self._max_pool(layer, inputs, x)]

    def _flatten(self, layer: dict[str, Any], inputs: list[str], x: Numbers) -> Numbers:
        pixels = self._net.channels(layer["name"]) // self._net.channels(inputs[0])
        return [grid.map(lambda part: _wide(part, pixels).reshape(-1, 1)) for grid in x]

    def _sigmoid(self, layer: dict[str, Any], inputs: list[str], x: Numbers) -> Numbers:
        return []

    _softmax = _sigmoid


def _rows(values: np.ndarray) -> np.ndarray:
    """As [C, 1], or [C, H * W]."""
    return values[:, None] if values.ndim == 1 else values.reshape(len(values), -1)


def _wide(part: np.ndarray, pixels: int) -> np.ndarray:
    return np.broadcast_to(part, (len(part), pixels))
