#!/usr/bin/env python3
"""Trains the network of this folder and writes its files, held_out.u8 among them.

    pip install torch==2.15.0 scikit-learn==1.9.1 numpy==2.4.6
    python3 deploy/demo/digits/train.py [FOLDER]        one minute on two threads

The pictures are scikit-learn's digits: 1,797 of 8x8 pixels of 0 to 16, scanned from forms. The
first half trains the network. The second half is only looked at when training is over, and at least
97 of 100 of its pictures must be recognised. Other seeds came to 98.0 to 98.7.

The network is a small ReActNet (Liu et al., arXiv 2003.03488): a real first convolution, four
blocks whose 3x3 convolutions see nothing but signs of activations and of weights, and a dense layer:

    normalise  conv 3x3, 32  batch norm
    block 1, 2: 32 channels, 8x8        x -> RPReLU(batch norm(conv(sign(x + shift))) + shortcut)
    block 3, 4: 64 channels, 4x4        block 3's shortcut: mean of 2x2, conv 1x1, batch norm
    mean of the picture  dense 10       logits; softmax: scores

It is trained as those networks are: a sign passes gradients as if it were a piecewise parabola
(Bi-Real-net, arXiv 1808.00278), first with real weights, then with their signs times the mean of
their magnitudes, which goes into the file as `scale`. sign(0) is +1, as in xnord. Batch norms are
folded in double and rounded once.

held_out.u8 has 66 bytes a held-out picture: its pixels row by row, what it shows, what the network
takes it for.
"""
import math
import pathlib
import sys

import numpy
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "convert"))
from xnord_convert import folder as model_folder  # noqa: E402
from xnord_convert import network as convert  # noqa: E402
from xnord_convert.numbers import Norm, mean_magnitude  # noqa: E402
from xnord_convert.run_folder import Folder  # noqa: E402

SEED = 20200728
THREADS = 2
EPOCHS = (60, 120)  # with real weights, then with binary ones
BATCH = 64
RATE = 4e-3
LEAST_ACCURACY = 0.97


class Sign(torch.autograd.Function):
    """+1 where x >= 0, else -1; the gradient is that of a parabola on each side of 0."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.where(x >= 0, 1.0, -1.0).to(x.dtype)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * (2 - 2 * x.abs()).clamp(min=0)


class BinaryConv(nn.Conv2d):
    """A 3x3 convolution without bias whose weights are, once `binary`, signs times a scale."""

    def __init__(self, channels_in, channels_out, stride):
        super().__init__(channels_in, channels_out, 3, stride, padding=1, bias=False)
        self.binary = False

    def scale(self):
        return self.weight.abs().mean(dim=(1, 2, 3), keepdim=True)

    def forward(self, x):
        weight = self.weight
        if self.binary:
            clipped = weight.clamp(-1, 1)  # its gradient is what reaches the weights
            signs = torch.where(weight >= 0, 1.0, -1.0).to(weight.dtype)
            weight = (signs - clipped).detach() + clipped
            weight = weight * self.scale().detach()
        return functional.conv2d(x, weight, None, self.stride, self.padding)


class Offset(nn.Module):
    """x + bias, a value a channel."""

    def __init__(self, channels):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(channels))

    def forward(self, x):
        return x + self.bias.view(1, -1, 1, 1)


class Block(nn.Module):
    def __init__(self, channels_in, channels_out, stride):
        super().__init__()
        self.shift = Offset(channels_in)
        self.conv = BinaryConv(channels_in, channels_out, stride)
        self.bn = nn.BatchNorm2d(channels_out)
        self.before, self.after = Offset(channels_out), Offset(channels_out)
        self.prelu = nn.PReLU(channels_out)
        self.shortcut = None
        if stride > 1:
            self.shortcut = nn.Sequential(
                nn.AvgPool2d(stride),
                nn.Conv2d(channels_in, channels_out, 1, bias=False),
                nn.BatchNorm2d(channels_out),
            )

    def forward(self, x):
        y = self.bn(self.conv(Sign.apply(self.shift(x))))
        y = y + (self.shortcut(x) if self.shortcut else x)
        return self.after(self.prelu(self.before(y)))


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(1, 32, 3, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(32)
        self.blocks = nn.Sequential(
            Block(32, 32, 1), Block(32, 32, 1), Block(32, 64, 2), Block(64, 64, 1)
        )
        self.dense = nn.Linear(64, 10)

    def forward(self, pixels):
        x = self.bn(self.stem(pixels / 8 - 1))
        return self.dense(self.blocks(x).mean(dim=(2, 3)))


# ---- training ----


def moved(pixels):
    """Each picture turned, scaled, slanted and shifted a little, at random."""
    n = len(pixels)

    def spread(width):
        return (torch.rand(n) * 2 - 1) * width

    angle, size, slant = spread(0.2), 1 + spread(0.12), spread(0.15)
    matrix = torch.stack(
        [
            torch.stack([size * angle.cos(), slant - angle.sin(), spread(0.2)], 1),
            torch.stack([angle.sin(), size * angle.cos(), spread(0.2)], 1),
        ],
        1,
    )
    grid = functional.affine_grid(matrix, list(pixels.shape), align_corners=False)
    return functional.grid_sample(pixels, grid, align_corners=False)


def train(network, pixels, classes, epochs, decay):
    optimizer = torch.optim.AdamW(network.parameters(), RATE, weight_decay=decay)
    batches = math.ceil(len(pixels) / BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, epochs * batches)
    network.train()
    for epoch in range(epochs):
        total = 0.0
        for batch in torch.randperm(len(pixels)).split(BATCH):
            logits = network(moved(pixels[batch]))
            loss = functional.cross_entropy(logits, classes[batch], label_smoothing=0.1)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            total += loss.item()
        if epoch % 50 == 49:
            print(f"epoch {epoch + 1} of {epochs}: loss {total / batches:.4f}", flush=True)


def trained(pixels, classes):
    network = Network()
    print(f"{sum(p.numel() for p in network.parameters())} parameters")
    train(network, pixels, classes, EPOCHS[0], 1e-4)
    for block in network.blocks:
        block.conv.binary = True
    train(network, pixels, classes, EPOCHS[1], 0)
    return network.eval()


# ---- the model folder ----


def array(tensor):
    return tensor.detach().double().numpy()


def fold(bn):
    """The batch norm as scale and bias."""
    parts = (bn.running_mean, bn.running_var, bn.weight, bn.bias)
    return Norm(*map(array, parts)).fold(bn.eps)


def add_block(layers, name, block, x):
    shortcut = x
    if block.shortcut:
        pool, conv, bn = block.shortcut
        shortcut = layers.avg_pool(f"{name}.mean", x, pool.kernel_size)
        shortcut = layers.conv(f"{name}.shortcut", shortcut, array(conv.weight))
        shortcut = layers.affine(f"{name}.shortcut.bn", shortcut, *fold(bn))
    weight = array(block.conv.weight)
    y = layers.sign(f"{name}.sign", x, array(block.shift.bias))
    y = layers.conv(f"{name}.conv", y, weight, "xnor", mean_magnitude(weight),
                    stride=block.conv.stride[0], padding=1)
    y = layers.affine(f"{name}.bn", y, *fold(block.bn))
    y = layers.sum(f"{name}.sum", y, shortcut)
    y = layers.affine(f"{name}.before", y, bias=array(block.before.bias))
    y = layers.prelu(f"{name}.prelu", y, array(block.prelu.weight))
    return layers.affine(name, y, bias=array(block.after.bias))


def layers_of(network):
    layers = convert.Network(1, 8, 8)
    layers.datatype, layers.layout = "UINT8", "NHWC"
    x = layers.affine("normalise", layers.input, numpy.array([1 / 8]), numpy.array([-1.0]))
    x = layers.conv("stem", x, array(network.stem.weight), padding=1)
    x = layers.affine("stem.bn", x, *fold(network.bn))
    for number, block in enumerate(network.blocks, 1):
        x = add_block(layers, f"block{number}", block, x)
    x = layers.avg_pool("mean", x, "global")
    dense = network.dense
    x = layers.conv("logits", x, array(dense.weight), bias=array(dense.bias))
    layers.outputs = [("scores", layers.softmax("scores", x)), ("logits", x)]
    return layers


def write_held_out(path, pixels, classes, answers):
    columns = [pixels.reshape(len(pixels), -1), classes[:, None], answers[:, None]]
    path.write_bytes(torch.cat(columns, dim=1).byte().numpy().tobytes())


def read_digits():
    digits = load_digits()
    pixels = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1)
    return pixels, torch.tensor(digits.target), len(pixels) // 2


def main():
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else HERE
    torch.set_num_threads(THREADS)
    torch.manual_seed(SEED)
    pixels, classes, half = read_digits()
    network = trained(pixels[:half], classes[:half]).double()
    pixels, classes = pixels[half:], classes[half:]
    with torch.no_grad():
        answers = network(pixels.double()).argmax(dim=1)
    right, asked = int((answers == classes).sum()), len(answers)
    print(f"held out: {right} of {asked} recognised, {100 * right / asked:.1f}%")
    if right < LEAST_ACCURACY * asked:
        sys.exit(f"fewer than {100 * LEAST_ACCURACY:.0f}%: nothing was written")

    labels = [str(digit) for digit in range(10)]
    model_folder.write(folder, layers_of(network), "digits", 1024, "fp32", labels)
    write_held_out(folder / "held_out.u8", pixels, classes, answers)
    scores = Folder(folder).run(pixels.permute(0, 2, 3, 1).numpy())["scores"]
    if (scores.argmax(axis=1) != answers.numpy()).any():
        sys.exit(f"{folder} does not answer as the network that was trained")


if __name__ == "__main__":
    main()
