#!/usr/bin/env python3
"""Model folders (proto/MODELS.md) of known networks with random parameters, for benchmarks: pictures
of 224x224 as bytes, RGB after RGB, to 1,000 logits.

    networks.py FOLDER [fp32|fp16]     FOLDER/birealnet18, reactnet-a, quicknet, binarydensenet28

Sums of real convolutions up to the last layer are exact in fp32: their weights pick one value each,
or are small multiples of 1/8 behind the picture. So all backends take the same signs.
"""
import array
import json
import math
import pathlib
import random
import struct
import sys

SIDE, CLASSES = 224, 1000


class Network:
    """Layers are named by their numbers. A method adds one, which reads `x`, and gives its name."""

    def __init__(self):
        self.random, self.layers, self.tensors = random.Random(18), [], []
        self.channels = {"input": 3}
        x = self.add("affine", "input", 3)
        self.tensor(x, "scale", [3], [1 / 64] * 3)
        self.tensor(x, "bias", [3], [-2.0] * 3)

    def add(self, op, x, channels=None, **members):
        inputs = x if isinstance(x, list) else [x]
        name = str(len(self.layers))
        self.layers.append({"op": op, "name": name, "inputs": inputs, **members})
        self.channels[name] = channels or self.channels[inputs[0]]
        return name

    def tensor(self, name, part, shape, values):
        data = values if isinstance(values, bytes) else array.array("f", values).tobytes()
        dtype = "U8" if isinstance(values, bytes) else "F32"
        self.tensors.append((f"{name}.{part}", dtype, shape, data))

    def draw(self, count, reach, step):
        """Multiples of step in [-reach, reach]."""
        steps = int(reach / step)
        return self.random.choices([step * i for i in range(-steps, steps + 1)], k=count)

    # ---- layers ----

    def binary(self, x, filters, kernel=3, **members):
        channels = self.channels[x]
        x = self.add("conv", x, filters, mode="xnor", padding=kernel // 2, packed_channels=channels,
                     **members)
        shape = [filters, kernel, kernel, channels // 8]
        self.tensor(x, "weight", shape, self.random.randbytes(math.prod(shape)))
        return x

    def stem(self, filters, kernel):
        x = self.add("conv", "0", filters, stride=2, padding=kernel // 2)
        shape = [filters, 3, kernel, kernel]
        self.tensor(x, "weight", shape, self.draw(math.prod(shape), 1, 1 / 8))
        return x

    def picks(self, x, filters, kernel=1, groups=1, **members):
        """A real convolution: one weight of each filter is 1."""
        each = self.channels[x] // groups * kernel * kernel
        x = self.add("conv", x, filters, groups=groups, **members)
        values = [0.0] * (filters * each)
        for i in range(filters):
            values[i * each + self.random.randrange(each)] = 1.0
        self.tensor(x, "weight", [filters, each // kernel**2, kernel, kernel], values)
        return x

    def norm(self, x, terms=1):
        """A batch norm of sums of so many terms; every fourth turns its channel round."""
        scale, channels = 2.0 ** -round(math.log2(terms) / 2), self.channels[x]
        x = self.add("affine", x)
        self.tensor(x, "scale", [channels], [-scale if i % 4 == 3 else scale for i in range(channels)])
        self.tensor(x, "bias", [channels], self.draw(channels, 0.5, 1 / 64))
        return x

    def moved(self, op, part, x):
        x = self.add(op, x)
        self.tensor(x, part, [self.channels[x]], self.draw(self.channels[x], 0.5, 1 / 64))
        return x

    def relu(self, x):
        return self.add("prelu", x, slope=0)

    def classify(self, x):
        x = self.add("flatten", self.add("avg_pool", x, kernel="global"))
        channels = self.channels[x]
        x = self.add("conv", x, CLASSES)
        self.tensor(x, "weight", [CLASSES, channels], self.draw(CLASSES * channels, 0.05, 1e-4))
        self.tensor(x, "bias", [CLASSES], self.draw(CLASSES, 0.05, 1e-4))

    # ---- the folder ----

    def write(self, folder, precision):
        folder.mkdir(parents=True, exist_ok=True)
        header, at = {}, 0
        for name, dtype, shape, data in self.tensors:
            header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
            at += len(data)
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)  # values are aligned
        data = b"".join(data for _, _, _, data in self.tensors)
        (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
        about = {"name": "input", "datatype": "UINT8", "shape": [SIDE, SIDE, 3], "layout": "NHWC"}
        config = {"format": "xnord-network/1", "name": folder.name, "precision": precision,
                  "input": about, "output": {"name": "logits"}, "layers": self.layers}
        (folder / "config.json").write_text(json.dumps(config))


def birealnet18(n):
    x = n.norm(n.stem(64, 7), 147)
    x = n.add("max_pool", x, kernel=3, stride=2, padding=1)
    for filters in [64] * 4 + [128] * 4 + [256] * 4 + [512] * 4:
        channels = n.channels[x]
        widens = filters != channels
        y = n.norm(n.binary(x, filters, stride=2 if widens else 1), 9 * channels)
        if widens:
            x = n.norm(n.picks(n.add("avg_pool", x, kernel=2), filters))
        x = n.add("add", [y, x])
    n.classify(x)


def reactnet_a(n):
    def activation(x):
        x = n.moved("prelu", "slope", n.moved("affine", "bias", x))
        return n.moved("affine", "bias", x)

    x = n.norm(n.stem(32, 3), 27)
    for index, filters in enumerate([64] + [128] * 2 + [256] * 2 + [512] * 6 + [1024] * 2):
        channels = n.channels[x]
        widens = filters != channels
        stride = 2 if widens and index else 1
        y = n.norm(n.binary(n.moved("sign", "shift", x), channels, stride=stride), 9 * channels)
        x = activation(n.add("add", [y, n.add("avg_pool", x, kernel=2) if stride == 2 else x]))
        bits = n.moved("sign", "shift", x)
        halves = [n.add("add", [n.norm(n.binary(bits, channels, 1), channels), x])
                  for _ in range(2 if widens else 1)]
        x = activation(n.add("concat", halves, filters) if widens else halves[0])
    n.classify(x)


def quicknet(n):
    x = n.relu(n.norm(n.stem(16, 3), 27))
    x = n.norm(n.picks(x, 16, 3, 16, stride=2, padding="same"))
    x = n.norm(n.picks(x, 64))
    for filters in (64, 128, 256, 512):
        if filters > 64:
            channels = n.channels[x]
            x = n.add("max_pool", n.relu(x), kernel=2, stride=1)
            x = n.picks(x, channels, 3, channels, stride=2, padding="same")
            x = n.norm(n.picks(x, filters))
        for _ in range(4):
            y = n.relu(n.binary(n.add("sign", x), filters, pad_value=1))
            x = n.add("add", [n.norm(y, 9 * filters), x])
    n.classify(n.relu(x))


def binarydensenet28(n):
    x = n.relu(n.norm(n.stem(64, 7), 147))
    x = n.add("max_pool", x, kernel=3, stride=2, padding=1)
    for count, filters in ((6, 160), (6, 192), (6, 256), (5, 0)):
        for _ in range(count):
            y = n.binary(n.add("sign", n.norm(x)), 64)
            x = n.add("concat", [x, y], n.channels[x] + 64)
        if filters:
            x = n.picks(n.relu(n.add("max_pool", n.norm(x), kernel=2)), filters)
    n.classify(n.relu(n.norm(x)))


NETWORKS = {"birealnet18": birealnet18, "reactnet-a": reactnet_a, "quicknet": quicknet,
            "binarydensenet28": binarydensenet28}

if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    for name, build in NETWORKS.items():
        network = Network()
        build(network)
        network.write(pathlib.Path(sys.argv[1]) / name, (sys.argv[2:] or ["fp32"])[0])
