"""ReActNet-A: MobileNet's layout, a 3x3 and a 1x1 binary convolution a block."""

from ..checkpoint import Checkpoint
from ..network import Network
from ..numbers import mean_magnitude
from .common import EPS, binary_weight, classify


def build(net: Network, checkpoint: Checkpoint, x: str) -> None:
    x = net.conv(
        "feature.0.conv1", x, checkpoint.take("feature.0.conv1.weight"), stride=2, padding=1
    )
    x = net.norm("feature.0.bn1", x, checkpoint.norm("feature.0.bn1"), EPS)
    for index in range(1, len(checkpoint.children("feature."))):
        x = _block(net, checkpoint, x, f"feature.{index}", index)
    classify(net, x, checkpoint.take("fc.weight"), checkpoint.take("fc.bias"))


def _block(net: Network, checkpoint: Checkpoint, x: str, name: str, index: int) -> str:
    widening = checkpoint.has(f"{name}.bn2_1.running_mean")
    stride = 2 if widening and index > 1 else 1  # the first one widens without a stride
    shortcut = net.avg_pool(f"{name}.pooling", x, 2) if stride == 2 else x
    y = _binary(net, checkpoint, x, name, "move11", "binary_3x3", "bn1", stride)
    y = net.sum(f"{name}.add1", y, shortcut)
    x = _activation(net, checkpoint, y, name, "move12", "prelu1", "move13")
    if not widening:
        y = _binary(net, checkpoint, x, name, "move21", "binary_pw", "bn2")
        y = net.sum(f"{name}.add2", y, x)
    else:
        halves = []
        for half in "12":
            y = _binary(net, checkpoint, x, name, "move21", f"binary_pw_down{half}", f"bn2_{half}")
            halves.append(net.sum(f"{name}.add2_{half}", y, x))
        y = net.concat(f"{name}.concat", *halves)
    return _activation(net, checkpoint, y, name, "move22", "prelu2", "move23")


def _binary(
    net: Network,
    checkpoint: Checkpoint,
    x: str,
    name: str,
    move: str,
    conv: str,
    bn: str,
    stride: int = 1,
) -> str:
    norm = checkpoint.norm(f"{name}.{bn}")
    kernel = 3 if conv == "binary_3x3" else 1
    sign = net.unused_name(f"{name}.{move}")
    y = net.sign(sign, x, checkpoint.take(f"{name}.{move}.bias").reshape(-1))
    weight = binary_weight(checkpoint, f"{name}.{conv}", len(norm.mean), net.channels(x), kernel)
    y = net.conv(
        f"{name}.{conv}",
        y,
        weight,
        "xnor",
        mean_magnitude(weight),
        stride=stride,
        padding=kernel // 2,
    )
    return net.norm(f"{name}.{bn}", y, norm, EPS)


def _activation(
    net: Network, checkpoint: Checkpoint, x: str, name: str, before: str, prelu: str, behind: str
) -> str:
    x = net.affine(f"{name}.{before}", x, bias=checkpoint.take(f"{name}.{before}.bias").reshape(-1))
    x = net.prelu(f"{name}.{prelu}", x, checkpoint.take(f"{name}.{prelu}.weight"))
    return net.affine(
        f"{name}.{behind}", x, bias=checkpoint.take(f"{name}.{behind}.bias").reshape(-1)
    )
