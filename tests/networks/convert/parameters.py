"""Parameters for networks that nobody trained: random ones, and ones with which nothing is rounded.

Random: weights, negative gammas and slopes, biases, and the running statistics that a batch of
random images has, so that signs come out both ways. Exact: the same with weights, scales and biases
that are small multiples of powers of two, and batch norms whose scale is a power of two, so that
FP32 and double precision compute the same, ties at 0 included."""

import math
from typing import Iterator

import torch
from definitions import AlphaConv, CentredBinary, HardBinaryConv, QuickNet, Shift, TensorNorm
from torch import Tensor, nn

Norms = (nn.BatchNorm1d, nn.BatchNorm2d)


def weights(model: nn.Module) -> Iterator[tuple[nn.Module, nn.Parameter]]:
    for module in model.modules():
        for name in ("weight", "weights"):
            if isinstance(module, (nn.Conv2d, nn.Linear, HardBinaryConv)) and hasattr(module, name):
                yield module, getattr(module, name)


def fan_in(module: nn.Module) -> int:
    shape = module.shape if isinstance(module, HardBinaryConv) else module.weight.shape
    return math.prod(shape[1:])


def normal(like: Tensor, scale: float = 1) -> Tensor:
    return torch.randn(like.shape, dtype=like.dtype) * scale


def uniform(like: Tensor, low: float, high: float) -> Tensor:
    return torch.rand(like.shape, dtype=like.dtype) * (high - low) + low


def random_signs(like: Tensor) -> Tensor:
    return torch.randint(0, 2, like.shape).to(like.dtype) * 2 - 1


@torch.no_grad()
def randomise(model: nn.Module) -> None:
    for module, weight in weights(model):
        weight[:] = normal(weight, 1 / math.sqrt(fan_in(module)))
        if getattr(module, "bias", None) is not None:
            module.bias[:] = uniform(module.bias, -0.3, 0.3)
    for module in model.modules():
        if isinstance(module, Norms) and module.affine:
            module.weight[:] = uniform(module.weight, 0.5, 1.5) * random_signs(module.weight)
            module.bias[:] = uniform(module.bias, -0.5, 0.5)
        elif isinstance(module, nn.PReLU):
            module.weight[:] = uniform(module.weight, -0.4, 1)
        elif isinstance(module, Shift):
            module.bias[:] = uniform(module.bias, -0.5, 0.5)
        elif isinstance(module, TensorNorm):
            module.running_mean[:], module.running_var[:] = 2.5, 30
            module.weight[:], module.bias[:] = -1.25, 0.5
    if isinstance(model, QuickNet):
        model.blur()


@torch.no_grad()
def measure(model: nn.Module, images: Tensor) -> None:
    """Running statistics are those of these images."""
    for module in model.modules():
        if isinstance(module, Norms):
            module.momentum = 1
    model.train()
    model(images)
    model.eval()


def powers(values: Tensor, low: int, high: int) -> Tensor:
    return 2.0 ** values.abs().clamp(1e-9).log2().round().clamp(low, high)


def steps(values: Tensor, step: float) -> Tensor:
    return (values / step).round() * step


@torch.no_grad()
def make_exact(model: nn.Module) -> None:
    """The parameters of a network that randomise and measure were at, made exact. In double."""
    for module, weight in weights(model):
        power = 2.0 ** -math.ceil(math.log2(math.sqrt(fan_in(module))))
        if isinstance(module, (HardBinaryConv, AlphaConv)):
            weight[:] = random_signs(weight) * power
        else:
            weight[:] = (normal(weight)).round().clamp(-2, 2) * power
            weight[weight == 0] = power
        if getattr(module, "bias", None) is not None:
            module.bias[:] = steps(module.bias, 1 / 8)
    for module in model.modules():
        if isinstance(module, CentredBinary):
            _balance(module.conv.weight if hasattr(module, "conv") else module.linear.weight)
            if module.least_gamma > 0:  # which is no power of two
                module.bn.weight[:] = module.bn.weight.abs()
        elif isinstance(module, Norms):
            _exact_norm(module)
        elif isinstance(module, nn.PReLU):
            choices = torch.tensor([1, 1, 0.5, -1, 0], dtype=module.weight.dtype)
            module.weight[:] = choices[torch.randint(0, len(choices), module.weight.shape)]
        elif isinstance(module, Shift):
            module.bias[:] = steps(module.bias, 1 / 8)
        elif isinstance(module, TensorNorm):
            module.running_var[:] = 16 - module.eps
    if isinstance(model, QuickNet):
        model.blur()


def _balance(weight: Tensor) -> None:
    """As many +p as -p along dimension 1, so that centring changes nothing."""
    power = 2.0 ** -math.ceil(math.log2(math.sqrt(weight[0].numel())))
    half = weight.shape[1] // 2
    if weight.shape[1] != 2 * half:
        raise ValueError("an odd number of channels cannot be balanced")
    order = torch.rand(weight.shape).argsort(1)
    weight[:] = torch.where(order < half, power, -power).to(weight.dtype)


def _exact_norm(norm: nn.Module) -> None:
    """The scale 1 / sqrt(variance + eps) a power of two, gamma one as well."""
    power = powers((norm.running_var + norm.eps).rsqrt(), -6, 4)
    norm.running_var[:] = power**-2 - norm.eps
    # Where the difference was rounded, one of its neighbours gives the power back.
    for _ in range(4):
        apart = norm.running_var + norm.eps - power**-2
        norm.running_var -= apart
    if not torch.equal((norm.running_var + norm.eps).rsqrt(), power):
        raise ValueError("a batch norm is not exact")
    norm.running_mean[:] = steps(norm.running_mean, 1 / 8)
    if norm.affine:
        norm.weight[:] = powers(norm.weight, -1, 0) * norm.weight.sign()
        norm.bias[:] = steps(norm.bias, 1 / 8)
