"""The operators of ONNX and QONNX that there are layers for."""

import operator

from . import onnx_arithmetic as arithmetic
from . import onnx_shapes as shapes
from . import onnx_signs as signs
from . import onnx_windows as windows
from .onnx_values import Op

FOLDED: dict[str, Op] = {
    "Sign": signs.folded_sign,
    "BipolarQuant": signs.folded_bipolar,
    "Quant": signs.folded_quant,
}

OPS: dict[str, Op] = {
    "Conv": windows.conv,
    "Gemm": windows.gemm,
    "MatMul": windows.matmul,
    "Sign": signs.sign,
    "BipolarQuant": signs.bipolar_quant,
    "Equal": signs.comparison(operator.eq),
    "Greater": signs.comparison(operator.gt),
    "GreaterOrEqual": signs.comparison(operator.ge),
    "Less": signs.comparison(operator.lt),
    "LessOrEqual": signs.comparison(operator.le),
    "Not": signs.negate,
    "Where": signs.where,
    "Cast": shapes.cast,
    "Add": arithmetic.add,
    "Sub": arithmetic.sub,
    "Mul": arithmetic.mul,
    "Div": arithmetic.div,
    "Neg": arithmetic.neg,
    "BatchNormalization": arithmetic.batch_norm,
    "LeakyRelu": arithmetic.leaky_relu,
    "PRelu": arithmetic.prelu,
    "Clip": arithmetic.clip,
    "Relu": arithmetic.layer(lambda walk, name, x: walk.net.relu(name, x)),
    "Sigmoid": arithmetic.layer(lambda walk, name, x: walk.net.sigmoid(name, x)),
    "Quant": signs.quant,
    "Round": signs.round_,
    "Softmax": arithmetic.softmax,
    "LogSoftmax": arithmetic.log_softmax,
    "Concat": shapes.concat,
    "Slice": shapes.slice_,
    "Split": shapes.split,
    "MaxPool": windows.pool,
    "AveragePool": windows.pool,
    "GlobalAveragePool": windows.global_pool,
    "GlobalMaxPool": windows.global_pool,
    "ReduceMean": windows.reduce_mean,
    "Flatten": shapes.flatten,
    "Reshape": shapes.reshape,
    "Squeeze": shapes.squeeze,
    "Unsqueeze": shapes.unsqueeze,
    "Transpose": shapes.transpose,
    "Pad": shapes.pad,
    "Shape": shapes.shape,
    "Expand": shapes.expand,
}
