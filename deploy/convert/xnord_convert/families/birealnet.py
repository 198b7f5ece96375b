"""Bi-Real-Net 18 and 34, and ReActNet-18, which is the same with learned shifts (moves)."""

from ..checkpoint import Checkpoint
from ..network import Network
from ..numbers import mean_magnitude
from .common import EPS, binary_weight, check_blocks, classify


def build(
    net: Network, checkpoint: Checkpoint, x: str, blocks: tuple[int, ...], moves: bool = False
) -> None:
    x = net.conv("conv1", x, checkpoint.take("conv1.weight"), stride=2, padding=3)
    x = net.norm("bn1", x, checkpoint.norm("bn1"), EPS)
    x = net.max_pool("maxpool", x, 3, stride=2, padding=1)
    check_blocks([len(checkpoint.children(f"layer{stage}.")) for stage in range(1, 5)], blocks)
    for stage, count in enumerate(blocks, 1):
        for block in range(count):
            stride = 2 if stage > 1 and block == 0 else 1
            x = _block(net, checkpoint, x, f"layer{stage}.{block}", stride, moves)
    classify(net, x, checkpoint.take("fc.weight"), checkpoint.take("fc.bias"))


def _block(
    net: Network, checkpoint: Checkpoint, x: str, name: str, stride: int, moves: bool
) -> str:
    shortcut = x
    if checkpoint.has(f"{name}.downsample.1.weight"):
        if stride > 1:
            shortcut = net.avg_pool(f"{name}.downsample.0", x, 2, stride=stride)
        shortcut = net.conv(
            f"{name}.downsample.1", shortcut, checkpoint.take(f"{name}.downsample.1.weight")
        )
        shortcut = net.norm(
            f"{name}.downsample.2", shortcut, checkpoint.norm(f"{name}.downsample.2"), EPS
        )
    norm = checkpoint.norm(f"{name}.bn1")
    shift = checkpoint.take(f"{name}.move0.bias").reshape(-1) if moves else None
    y = net.sign(f"{name}.sign", x, shift)
    weight = binary_weight(
        checkpoint, f"{name}.binary_conv", len(norm.mean), net.channels(x), 3, column=not moves
    )
    y = net.conv(
        f"{name}.binary_conv", y, weight, "xnor", mean_magnitude(weight), stride=stride, padding=1
    )
    y = net.norm(f"{name}.bn1", y, norm, EPS)
    y = net.sum(f"{name}.add" if moves else name, y, shortcut)
    if not moves:
        return y
    y = net.affine(f"{name}.move1", y, bias=checkpoint.take(f"{name}.move1.bias").reshape(-1))
    y = net.prelu(f"{name}.prelu", y, checkpoint.take(f"{name}.prelu.weight"))
    return net.affine(f"{name}.move2", y, bias=checkpoint.take(f"{name}.move2.bias").reshape(-1))
