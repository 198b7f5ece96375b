"""The networks that people train, in PyTorch: what deploy/convert must turn into layers. Written
from the facts of each (order of a block, padding, scale, eps, shortcuts), with their authors' names
of tensors, and any width. sign(0) is +1, as everywhere in xnord."""

from typing import Any, Optional

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def sign(x: Tensor) -> Tensor:
    return torch.where(x >= 0, 1.0, -1.0).to(x.dtype)


def alpha(weight: Tensor) -> Tensor:
    return weight.abs().flatten(1).mean(1).reshape(-1, *[1] * (weight.ndim - 1))


class Shift(nn.Module):
    def __init__(self, channels: int):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(1, channels, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.bias


# ---- Bi-Real-Net, ReActNet ----


class HardBinaryConv(nn.Module):
    """Weights in a column, as the older checkpoints have them, or in their shape."""

    def __init__(
        self, inputs: int, outputs: int, kernel: int = 3, stride: int = 1, column: bool = True
    ):
        super().__init__()
        self.shape, self.stride, self.padding = (
            (outputs, inputs, kernel, kernel),
            stride,
            kernel // 2,
        )
        values = torch.zeros(self.shape)
        self.name = "weights" if column else "weight"
        setattr(self, self.name, nn.Parameter(values.reshape(-1, 1) if column else values))

    def forward(self, x: Tensor) -> Tensor:
        weight = getattr(self, self.name).reshape(self.shape)
        return F.conv2d(sign(x), sign(weight) * alpha(weight), None, self.stride, self.padding)


class BiRealBlock(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int, moves: bool):
        super().__init__()
        self.moves = moves
        if moves:
            self.move0 = Shift(inputs)
        self.binary_conv = HardBinaryConv(inputs, outputs, 3, stride, column=not moves)
        self.bn1 = nn.BatchNorm2d(outputs)
        if moves:
            self.move1, self.prelu, self.move2 = Shift(outputs), nn.PReLU(outputs), Shift(outputs)
        self.downsample = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(
                nn.AvgPool2d(2, stride),
                nn.Conv2d(inputs, outputs, 1, bias=False),
                nn.BatchNorm2d(outputs),
            )

    def forward(self, x: Tensor) -> Tensor:
        shortcut = self.downsample(x) if self.downsample else x
        if not self.moves:
            return self.bn1(self.binary_conv(x)) + shortcut
        y = self.bn1(self.binary_conv(self.move0(x))) + shortcut
        return self.move2(self.prelu(self.move1(y)))


class BiRealNet(nn.Module):
    def __init__(self, blocks: tuple[int, ...], width: int, classes: int, moves: bool = False):
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        inputs = width
        for stage, count in enumerate(blocks):
            outputs, layers = width << stage, []
            for block in range(count):
                stride = 2 if stage and not block else 1
                layers.append(BiRealBlock(inputs, outputs, stride, moves))
                inputs = outputs
            setattr(self, f"layer{stage + 1}", nn.Sequential(*layers))
        self.fc = nn.Linear(inputs, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(self.bn1(self.conv1(x)), 3, 2, 1)
        for stage in (self.layer1, self.layer2, self.layer3, self.layer4):
            x = stage(x)
        return self.fc(x.mean((2, 3)))


class ReActStem(nn.Module):
    def __init__(self, outputs: int):
        super().__init__()
        self.conv1 = nn.Conv2d(3, outputs, 3, 2, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)

    def forward(self, x: Tensor) -> Tensor:
        return self.bn1(self.conv1(x))


class ReActBlock(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int):
        super().__init__()
        self.widening, self.stride = outputs != inputs, stride
        self.move11 = Shift(inputs)
        self.binary_3x3 = HardBinaryConv(inputs, inputs, 3, stride)
        self.bn1 = nn.BatchNorm2d(inputs)
        self.move12, self.prelu1, self.move13 = Shift(inputs), nn.PReLU(inputs), Shift(inputs)
        self.move21 = Shift(inputs)
        for half in ("down1", "down2") if self.widening else ("",):
            suffix = half.replace("down", "_")
            setattr(
                self, "binary_pw" + ("_" + half if half else ""), HardBinaryConv(inputs, inputs, 1)
            )
            setattr(self, f"bn2{suffix}", nn.BatchNorm2d(inputs))
        self.move22, self.prelu2, self.move23 = Shift(outputs), nn.PReLU(outputs), Shift(outputs)

    def forward(self, x: Tensor) -> Tensor:
        y = self.bn1(self.binary_3x3(self.move11(x)))
        y = y + (F.avg_pool2d(x, 2) if self.stride == 2 else x)
        x = self.move13(self.prelu1(self.move12(y)))
        shifted = self.move21(x)
        if self.widening:
            y = torch.cat(
                [
                    self.bn2_1(self.binary_pw_down1(shifted)) + x,
                    self.bn2_2(self.binary_pw_down2(shifted)) + x,
                ],
                1,
            )
        else:
            y = self.bn2(self.binary_pw(shifted)) + x
        return self.move23(self.prelu2(self.move22(y)))


class ReActNetA(nn.Module):
    def __init__(self, width: int, classes: int):
        super().__init__()
        widths = [width * times for times in [1, 2] + [4] * 2 + [8] * 2 + [16] * 6 + [32] * 2]
        self.feature = nn.ModuleList([ReActStem(width)])
        for index in range(1, len(widths)):
            widening = widths[index] != widths[index - 1]
            self.feature.append(
                ReActBlock(widths[index - 1], widths[index], 2 if widening and index > 1 else 1)
            )
        self.fc = nn.Linear(widths[-1], classes)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.feature:
            x = block(x)
        return self.fc(x.mean((2, 3)))


# ---- AlexNet and NIN ----


class XnorAlexNet(nn.Sequential):
    """allenai's, as a state dict in the order of the layers."""

    def __init__(self, width: int, classes: int, last_kernel: int):
        def binary(
            inputs: int, outputs: int, kernel: int, padding: int, pool: bool
        ) -> list[nn.Module]:
            layers = [nn.BatchNorm2d(inputs, 1e-4), AlphaConv(inputs, outputs, kernel, padding)]
            return layers + [nn.MaxPool2d(3, 2)] if pool else layers

        c = [width * times for times in (3, 8, 12, 12, 8)]
        dense = 16 * width
        super().__init__(
            nn.Conv2d(3, c[0], 11, 4, 2),
            nn.BatchNorm2d(c[0], 1e-5),
            nn.ReLU(),
            nn.MaxPool2d(3, 2),
            *binary(c[0], c[1], 5, 2, True),
            *binary(c[1], c[2], 3, 1, False),
            *binary(c[2], c[3], 3, 1, False),
            *binary(c[3], c[4], 3, 1, True),
            *binary(c[4], dense, last_kernel, 0, False),
            *binary(dense, dense, 1, 0, False),
            nn.BatchNorm2d(dense, 1e-3),
            nn.ReLU(),
            nn.Conv2d(dense, classes, 1),
            nn.Flatten(),
        )


class AlphaConv(nn.Conv2d):
    def __init__(self, inputs: int, outputs: int, kernel: int, padding: int):
        super().__init__(inputs, outputs, kernel, 1, padding)

    def forward(self, x: Tensor) -> Tensor:
        return F.conv2d(sign(x), sign(self.weight) * alpha(self.weight), self.bias, 1, self.padding)


class CentredBinary(nn.Module):
    """jiecaoyu's BinConv2d: batch norm, sign, convolution or dense layer, ReLU."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        kernel: Optional[int] = None,
        padding: int = 0,
        least_gamma: float = -float("inf"),
    ):
        super().__init__()
        self.least_gamma = least_gamma
        if kernel is None:
            self.bn: nn.Module = nn.BatchNorm1d(inputs, 1e-4)
            self.linear = nn.Linear(inputs, outputs)
        else:
            self.bn = nn.BatchNorm2d(inputs, 1e-4)
            self.conv = nn.Conv2d(inputs, outputs, kernel, 1, padding)

    def forward(self, x: Tensor) -> Tensor:
        bn = self.bn
        x = sign(
            F.batch_norm(
                x,
                bn.running_mean,
                bn.running_var,
                bn.weight.clamp(min=self.least_gamma),
                bn.bias,
                bn.training,
                bn.momentum,
                bn.eps,
            )
        )
        layer = self.conv if hasattr(self, "conv") else self.linear
        weight = (layer.weight - layer.weight.mean(1, keepdim=True)).clamp(-1, 1)
        weight = sign(weight) * alpha(weight)
        if hasattr(self, "linear"):
            return F.relu(F.linear(x, weight, layer.bias))
        return F.relu(F.conv2d(x, weight, layer.bias, 1, layer.padding))


class AlexNet(nn.Module):
    def __init__(self, width: int, classes: int, last: int):
        super().__init__()
        c = [width * times for times in (3, 8, 12, 12, 8)]
        dense = 16 * width
        self.features = nn.Sequential(
            nn.Conv2d(3, c[0], 11, 4),
            nn.BatchNorm2d(c[0], 1e-4),
            nn.ReLU(),
            nn.MaxPool2d(3, 2),
            CentredBinary(c[0], c[1], 5, 2),
            nn.MaxPool2d(3, 2),
            CentredBinary(c[1], c[2], 3, 1),
            CentredBinary(c[2], c[3], 3, 1),
            CentredBinary(c[3], c[4], 3, 1),
            nn.MaxPool2d(3, 2),
        )
        self.classifier = nn.Sequential(
            CentredBinary(c[4] * last * last, dense),
            CentredBinary(dense, dense),
            nn.BatchNorm1d(dense, 1e-3),
            nn.Dropout(0),
            nn.Linear(dense, classes),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.features(x).flatten(1))


class Nin(nn.Module):
    def __init__(self, width: int, classes: int):
        super().__init__()

        def binary(inputs: int, outputs: int, kernel: int = 1) -> CentredBinary:
            return CentredBinary(inputs, outputs, kernel, kernel // 2, 0.01)

        a, b, c = 12 * width, 10 * width, 6 * width
        self.xnor = nn.Sequential(
            nn.Conv2d(3, a, 5, 1, 2),
            nn.BatchNorm2d(a, 1e-4, affine=False),
            nn.ReLU(),
            binary(a, b),
            binary(b, c),
            nn.MaxPool2d(3, 2, 1),
            binary(c, a, 5),
            binary(a, a),
            binary(a, a),
            nn.AvgPool2d(3, 2, 1),
            binary(a, a, 3),
            binary(a, a),
            nn.BatchNorm2d(a, 1e-4, affine=False),
            nn.Conv2d(a, classes, 1),
            nn.ReLU(),
            nn.AvgPool2d(8, 1),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.xnor(x).flatten(1)


# ---- VGG, CNV, LFC ----


class PlainBinaryConv(nn.Conv2d):
    def forward(self, x: Tensor) -> Tensor:
        x = x if self.in_channels == 3 else sign(x)
        return F.conv2d(x, sign(self.weight), self.bias, 1, self.padding)


class PlainBinaryLinear(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return F.linear(sign(x), sign(self.weight), self.bias)


class Vgg(nn.Module):
    def __init__(self, width: int, classes: int):
        super().__init__()
        c = [width * times for times in (3, 3, 6, 6, 12, 4)]
        layers: list[nn.Module] = []
        for index, outputs in enumerate(c):
            layers.append(PlainBinaryConv(c[index - 1] if index else 3, outputs, 3, 1, 1))
            if index % 2:
                layers.append(nn.MaxPool2d(2))
            layers += [nn.BatchNorm2d(outputs), nn.Hardtanh()]
        self.features = nn.Sequential(*layers)
        dense = 8 * width
        self.classifier = nn.Sequential(
            PlainBinaryLinear(c[-1] * 16, dense),
            nn.BatchNorm1d(dense),
            nn.Hardtanh(),
            PlainBinaryLinear(dense, dense),
            nn.BatchNorm1d(dense),
            nn.Hardtanh(),
            PlainBinaryLinear(dense, classes),
            nn.BatchNorm1d(classes, affine=False),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.features(x).flatten(1))


class Sign(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return sign(x)


class Quantize(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return (x * 128).round().clamp(-128, 127) / 128


class TensorNorm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(1)), nn.Parameter(torch.zeros(1))
        self.register_buffer("running_mean", torch.zeros(1))
        self.register_buffer("running_var", torch.ones(1))
        self.eps = 1e-4

    def forward(self, x: Tensor) -> Tensor:
        normal = (x - self.running_mean) / (self.running_var + self.eps).sqrt()
        return normal * self.weight + self.bias


class BinaryWeights(nn.Conv2d):
    """What it reads is signs already, or real in the first layer."""

    def __init__(self, inputs: int, outputs: int):
        super().__init__(inputs, outputs, 3, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return F.conv2d(x, sign(self.weight))


class BinaryDense(nn.Linear):
    def __init__(self, inputs: int, outputs: int):
        super().__init__(inputs, outputs, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, sign(self.weight))


class Cnv(nn.Module):
    def __init__(self, width: int, classes: int):
        super().__init__()
        layers: list[nn.Module] = [Quantize()]
        inputs = 3
        for times, pool in ((1, False), (1, True), (2, False), (2, True), (4, False), (4, False)):
            outputs = width * times
            layers += [BinaryWeights(inputs, outputs), nn.BatchNorm2d(outputs, 1e-4), Sign()]
            layers += [nn.MaxPool2d(2)] if pool else []
            inputs = outputs
        self.conv_features = nn.Sequential(*layers)
        dense = 8 * width
        self.linear_features = nn.Sequential(
            BinaryDense(inputs, dense),
            nn.BatchNorm1d(dense, 1e-4),
            Sign(),
            BinaryDense(dense, dense),
            nn.BatchNorm1d(dense, 1e-4),
            Sign(),
            BinaryDense(dense, classes),
            TensorNorm(),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.linear_features(self.conv_features(2 * x - 1).flatten(1))


class Lfc(nn.Module):
    def __init__(self, width: int, classes: int):
        super().__init__()
        layers: list[nn.Module] = [Sign(), nn.Dropout(0)]
        inputs = 28 * 28
        for _ in range(3):
            layers += [BinaryDense(inputs, width), nn.BatchNorm1d(width), Sign(), nn.Dropout(0)]
            inputs = width
        self.features = nn.Sequential(*layers, BinaryDense(inputs, classes), TensorNorm())

    def forward(self, x: Tensor) -> Tensor:
        return self.features(2 * x.flatten(1) - 1)


# ---- BinaryDenseNet ----

LAYOUTS = {
    "28": ((6, 6, 6, 5), (2.7, 2.7, 2.2), (1, 1, 1, 1)),
    "37": ((6, 8, 12, 6), (3.3, 3.3, 4), (1, 1, 1, 1)),
    "37-dilated": ((6, 8, 12, 6), (3.3, 3.3, 4), (1, 1, 2, 4)),
}


class DenseLayer(nn.Module):
    def __init__(self, inputs: int, growth: int, dilation: int, pad_value: float):
        super().__init__()
        self.features = nn.Sequential(
            nn.BatchNorm2d(inputs),
            nn.Conv2d(inputs, growth, 3, padding=dilation, dilation=dilation, bias=False),
        )
        self.dilation, self.pad_value = dilation, pad_value

    def forward(self, x: Tensor) -> Tensor:
        norm, conv = self.features
        y = F.pad(sign(norm(x)), [self.dilation] * 4, value=self.pad_value)
        return torch.cat([x, F.conv2d(y, sign(conv.weight), dilation=self.dilation)], 1)


class DenseNet(nn.Module):
    """As bitorch builds it; keras says whose padding: TensorFlow's, and zeros around signs."""

    def __init__(self, layout: str, width: int, classes: int, keras: bool):
        super().__init__()
        blocks, reductions, dilations = LAYOUTS[layout]
        self.keras = keras
        channels = width
        self.features = nn.Sequential(
            nn.Conv2d(3, channels, 7, 2, 0 if keras else 3, bias=False),
            nn.BatchNorm2d(channels),
            nn.ReLU(),
            nn.MaxPool2d(3, 2, 0 if keras else 1),
        )
        for stage, count in enumerate(blocks):
            block = nn.Sequential()
            for layer in range(count):
                block.add_module(
                    f"DenseLayer_{layer + 1}",
                    DenseLayer(channels, width, dilations[stage], 0 if keras else -1),
                )
                channels += width
            self.features.add_module(f"DenseBlock_{stage + 1}", block)
            if stage + 1 < len(blocks):
                outputs = max(round(channels // reductions[stage] / width), 1) * width
                pool = [nn.MaxPool2d(2)] if dilations[stage + 1] == 1 else []
                self.features.add_module(
                    f"Transition_{stage + 1}",
                    nn.Sequential(
                        nn.BatchNorm2d(channels),
                        *pool,
                        nn.ReLU(),
                        nn.Conv2d(channels, outputs, 1, bias=False),
                    ),
                )
                channels = outputs
        self.finalize = nn.Sequential(
            nn.BatchNorm2d(channels), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()
        )
        self.output = nn.Linear(channels, classes)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.features:
            if self.keras and isinstance(layer, (nn.Conv2d, nn.MaxPool2d)):
                fill = 0 if isinstance(layer, nn.Conv2d) else -torch.inf
                x = same(x, layer.kernel_size, layer.stride, fill)
            x = layer(x)
        return self.output(self.finalize(x))


# ---- the Larq zoo ----


def same(x: Tensor, kernel: Any, stride: Any, value: float = 0) -> Tensor:
    """TensorFlow's padding, put around x."""
    kernel = kernel if isinstance(kernel, int) else kernel[0]
    stride = stride if isinstance(stride, int) else stride[0]
    edges = []
    for size in (x.shape[3], x.shape[2]):
        total = max((-(-size // stride) - 1) * stride + kernel - size, 0)
        edges += [total // 2, total - total // 2]
    return F.pad(x, edges, value=value)


class SameConv(nn.Conv2d):
    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1):
        super().__init__(inputs, outputs, kernel, stride, groups=groups, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(same(x, self.kernel_size, self.stride))


class SameBinaryConv(SameConv):
    pad_value = 0.0

    def forward(self, x: Tensor) -> Tensor:
        x = same(sign(x), self.kernel_size, self.stride, self.pad_value)
        return F.conv2d(x, sign(self.weight), None, self.stride)


class PaddedWithOnes(SameBinaryConv):
    pad_value = 1.0


class KerasNet(nn.Module):
    """Keeps its layers with weights in Keras' order, by their names there."""

    def __init__(self) -> None:
        super().__init__()
        self.order: list[tuple[str, nn.Module]] = []

    def layer(self, module: nn.Module, name: Optional[str] = None) -> nn.Module:
        name = name or f"layer_{len(self.order)}"
        self.order.append((name, module))
        self.add_module(name, module)
        return module

    def conv(self, *arguments: int, groups: int = 1, name: Optional[str] = None) -> nn.Module:
        return self.layer(SameConv(*arguments, groups=groups), name)

    def norm(
        self, channels: int, eps: float, name: Optional[str] = None, affine: bool = True
    ) -> nn.Module:
        return self.layer(nn.BatchNorm2d(channels, eps, affine=affine), name)


class QuickNet(KerasNet):
    def __init__(self, width: int, classes: int, blocks: tuple[int, ...] = (4, 4, 4, 4)):
        super().__init__()
        quarter = width // 4
        self.stem = [
            self.conv(3, quarter, 3, 2),
            self.norm(quarter, 1e-3),
            nn.ReLU(),
            self.conv(quarter, quarter, 3, 2, groups=quarter),
            self.norm(quarter, 1e-3, affine=False),
            self.conv(quarter, width, 1),
            self.norm(width, 1e-3),
        ]
        self.body: list[tuple[str, list[nn.Module]]] = []
        channels = width
        for section, count in enumerate(blocks):
            if section:
                blur = self.conv(channels, channels, 3, 2, groups=channels)
                outputs = width << section
                self.body.append(
                    (
                        "transition",
                        [blur, self.conv(channels, outputs, 1), self.norm(outputs, 1e-5)],
                    )
                )
                channels = outputs
            for _ in range(count):
                self.body.append(
                    (
                        "block",
                        [
                            self.layer(PaddedWithOnes(channels, channels, 3)),
                            self.norm(channels, 1e-5),
                        ],
                    )
                )
        self.dense = self.layer(nn.Linear(channels, classes))

    def blur(self) -> None:
        """The weights of its blurs, which are not trained."""
        line = torch.tensor([1.0, 2.0, 1.0])
        for kind, (blur, *_) in self.body:
            if kind == "transition":
                blur.weight.data[:] = torch.outer(line, line) / 16

    def forward(self, x: Tensor) -> Tensor:
        for module in self.stem:
            x = module(x)
        for kind, modules in self.body:
            if kind == "block":
                x = modules[1](F.relu(modules[0](x))) + x
            else:
                x = F.max_pool2d(F.relu(x), 2, 1)
                for module in modules:
                    x = module(x)
        return self.dense(F.relu(x).mean((2, 3)))


class MeliusNet(KerasNet):
    def __init__(self, growth: int, classes: int):
        super().__init__()
        channels = growth
        self.stem = []
        for index, (inputs, outputs, groups) in enumerate(
            ((3, growth // 2, 1), (growth // 2, growth // 2, 4), (growth // 2, growth, 8))
        ):
            convs = [
                self.conv(inputs // groups, outputs // groups, 3, 1 if index else 2)
                for _ in range(groups)
            ]
            self.stem.append((convs, self.norm(outputs, 1e-5)))
        self.sections: list[tuple[list, Optional[list]]] = []
        for count, outputs in zip((4, 5, 4, 4), (5 * growth // 2, 7 * growth // 2, 4 * growth, 0)):
            blocks = []
            for _ in range(count):
                dense = self._pair(channels, growth)
                channels += growth
                blocks.append((dense, self._pair(channels, growth)))
            transition = None
            if outputs:
                transition = [self.norm(channels, 1e-5), self.conv(channels, outputs, 1)]
                channels = outputs
            self.sections.append((blocks, transition))
        self.head = self.norm(channels, 1e-5)
        self.dense = self.layer(nn.Linear(channels, classes))

    def _pair(self, channels: int, growth: int) -> list[nn.Module]:
        return [self.norm(channels, 1e-5), self.layer(SameBinaryConv(channels, growth, 3))]

    def forward(self, x: Tensor) -> Tensor:
        for convs, norm in self.stem:
            parts = x.chunk(len(convs), 1)
            x = F.relu(norm(torch.cat([conv(part) for conv, part in zip(convs, parts)], 1)))
        x = F.max_pool2d(same(x, 2, 2, -torch.inf), 2)
        for blocks, transition in self.sections:
            for dense, improve in blocks:
                x = torch.cat([x, dense[1](dense[0](x))], 1)
                y = improve[1](improve[0](x))
                x = x + F.pad(y, (0, 0, 0, 0, x.shape[1] - y.shape[1], 0))
            if transition:
                x = F.max_pool2d(same(transition[0](x), 2, 2, -torch.inf), 2)
                x = transition[1](F.relu(x))
        return self.dense(F.relu(self.head(x)).mean((2, 3)))


class RealToBinary(KerasNet):
    def __init__(self, width: int, classes: int):
        super().__init__()
        self.prefix = "r2b_bnn_block_"
        self.conv("1_conv2d", 3, width, 7, 2)
        self.norm("1_batch_norm", width)
        self.named("1_prelu", nn.PReLU(width))
        channels = width
        for block in range(2, 10):
            for half in "ab":
                outputs = channels * 2 if half == "a" and block % 2 == 0 and block > 3 else channels
                self._half(f"{block}{half}", channels, outputs)
                channels = outputs
        self.named("10_logits", nn.Linear(channels, classes))

    def named(self, name: str, module: nn.Module) -> None:
        self.layer(module, self.prefix + name)

    def conv(self, name: str, *arguments: int) -> None:  # type: ignore[override]
        self.named(name, SameConv(*arguments))

    def norm(self, name: str, channels: int) -> None:  # type: ignore[override]
        self.named(name, nn.BatchNorm2d(channels, 1e-3))

    def _half(self, name: str, channels: int, outputs: int) -> None:
        self.norm(f"{name}_batch_norm", channels)
        self.named(f"{name}_scaling_dense_reduce", nn.Linear(channels, channels // 8, bias=False))
        self.named(f"{name}_scaling_dense_expand", nn.Linear(channels // 8, outputs, bias=False))
        self.named(
            f"{name}_conv2d", SameBinaryConv(channels, outputs, 3, 2 if outputs != channels else 1)
        )
        self.named(f"{name}_prelu", nn.PReLU(outputs))
        if outputs != channels:
            self.conv(f"{name}_shortcut_conv2d", channels, outputs, 1)
            self.norm(f"{name}_shortcut_batch_norm", outputs)

    def get(self, name: str) -> nn.Module:
        return self._modules[self.prefix + name]

    def forward(self, x: Tensor) -> Tensor:
        x = self.get("1_prelu")(self.get("1_batch_norm")(self.get("1_conv2d")(x)))
        x = F.max_pool2d(same(x, 3, 2, -torch.inf), 3, 2)
        for block in range(2, 10):
            for half in "ab":
                x = self._run_half(f"{block}{half}", x)
        return self.get("10_logits")(x.mean((2, 3)))

    def _run_half(self, name: str, x: Tensor) -> Tensor:
        shortcut = x
        if self.prefix + f"{name}_shortcut_conv2d" in self._modules:
            count = F.avg_pool2d(same(torch.ones_like(x), 2, 2), 2)
            shortcut = F.avg_pool2d(same(x, 2, 2), 2) / count
            shortcut = self.get(f"{name}_shortcut_conv2d")(shortcut)
            shortcut = self.get(f"{name}_shortcut_batch_norm")(shortcut)
        y = self.get(f"{name}_batch_norm")(x)
        gate = F.relu(self.get(f"{name}_scaling_dense_reduce")(y.mean((2, 3))))
        gate = self.get(f"{name}_scaling_dense_expand")(gate).sigmoid()
        y = self.get(f"{name}_conv2d")(y) * gate[:, :, None, None]
        return self.get(f"{name}_prelu")(y) + shortcut
