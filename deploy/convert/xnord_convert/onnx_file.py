"""ONNX and QONNX files: the graph read, tidied and walked, node by node (onnx_ops.py)."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from . import ConvertError
from .checkpoint import first_line
from .network import Network
from .onnx_ops import FOLDED, OPS
from .onnx_values import Node, Unexpressible, Value, Walk
from .preprocess import Preprocessing

PASSED = {"Identity", "Dropout"}  # at inference


def convert(path: Path, preprocessing: Preprocessing) -> Network:
    try:
        model = onnx.load(path)
    except OSError:
        raise
    except Exception as error:  # whatever protobuf throws
        raise ConvertError(f"{path}: it is no ONNX file: {first_line(error)}") from error
    graph = model.graph
    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    inputs = [value for value in graph.input if value.name not in constants]
    if len(inputs) != 1:
        raise ConvertError(
            f"{path}: it has the inputs {', '.join(v.name for v in inputs)}; a network has one"
        )
    outputs = [value.name for value in graph.output]
    nodes = [Node.of(node) for node in graph.node]
    outputs, nodes = tidy(nodes, outputs)
    walk, nodes = begin(inputs[0], nodes, constants, preprocessing)
    walk.opset = next((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), 20)
    walk.last = set(outputs) - {name for node in nodes for name in node.inputs}
    walk.values.update(constants)
    for node in nodes:
        visit(walk, node)
    finish(walk, outputs)
    return walk.net


# ---- before the walk ----


def tidy(nodes: list[Node], outputs: list[str]) -> tuple[list[str], list[Node]]:
    """Without nodes that pass their input on, straight-through estimators, and what nothing
    reads."""
    makers = {output: node for node in nodes for output in node.outputs}

    def resolve(name: str) -> str:
        node = makers.get(name)
        while node and node.op in PASSED and name == node.outputs[0]:
            name = node.inputs[0]
            node = makers.get(name)
        return name

    for node in nodes:
        node.inputs = [resolve(name) for name in node.inputs]
    # (a - b) + b, with b out of the gradient's way or in it, is a.
    same = {
        node.outputs[0]: a for node in nodes if node.op == "Add" for a in estimated(node, makers)
    }
    for node in nodes:
        node.inputs = [follow(same, name) for name in node.inputs]
    # Outputs keep their names.
    kept = [follow(same, resolve(name)) for name in outputs]
    wanted, found = set(kept), []
    for node in reversed(nodes):
        if wanted & set(node.outputs):
            found.append(node)
            wanted.update(node.inputs)
    rename = {new: old for old, new in zip(outputs, kept) if new != old and new in makers}
    for node in found:
        node.inputs = [rename.get(name, name) for name in node.inputs]
        node.outputs = [rename.get(name, name) for name in node.outputs]
    return [rename.get(name, name) for name in kept], found[::-1]


def follow(same: dict[str, str], name: str) -> str:
    while name in same:
        name = same[name]
    return name


def estimated(node: Node, makers: dict[str, Node]) -> list[str]:
    for difference, other in (node.inputs, node.inputs[::-1]):
        maker = makers.get(difference)
        if maker and maker.op == "Sub" and maker.inputs[1] == other:
            return [maker.inputs[0]]
    return []


def begin(
    about: Any, nodes: list[Node], constants: dict[str, np.ndarray], preprocessing: Preprocessing
) -> tuple[Walk, list[Node]]:
    """The network with its input. A transpose from NHWC that is the first node becomes the input's
    layout, unless the user says what clients send."""
    dims = [
        dim.dim_value if dim.HasField("dim_value") else 0
        for dim in about.type.tensor_type.shape.dim
    ]
    if len(dims) not in (2, 4) or min(dims[1:]) < 1:
        raise ConvertError(
            f'the input "{about.name}" is {dims}; expected [N, C, H, W] or [N, C], all but N known'
        )
    readers = [node for node in nodes if about.name in node.inputs]
    shape, layout, name = tuple(dims[1:]), "NCHW", about.name
    if len(dims) == 4 and len(readers) == 1 and transposes(readers[0], dims, constants):
        nodes = [node for node in nodes if node is not readers[0]]
        shape, layout, name = (shape[2], *shape[:2]), "NHWC", readers[0].outputs[0]
    image = shape if len(shape) == 3 else (shape[0], 1, 1)
    net, x = preprocessing.begin(image, about.name, layout)
    walk = Walk(net, dims[0] or 1)
    walk.values[name] = Value(x, shape)
    return walk, nodes


def transposes(node: Node, dims: list[int], constants: dict[str, np.ndarray]) -> bool:
    """Whether it makes NCHW of an NHWC input; tf2onnx reshapes where there is one channel."""
    if node.op == "Reshape" and dims[3] == 1 and node.inputs[1] in constants:
        target = constants[node.inputs[1]].reshape(-1).tolist()
        return len(target) == 4 and target[1:] == [1, *dims[1:3]]
    return node.op == "Transpose" and list(node.attributes.get("perm", [])) == [0, 3, 1, 2]


# ---- the walk ----


def visit(walk: Walk, node: Node) -> None:
    try:
        given = [walk.values[name] for name in node.inputs if name]
        if all(isinstance(value, np.ndarray) for value in given) and node.op in FOLDED:
            results: Any = FOLDED[node.op](walk, node)
        elif all(isinstance(value, np.ndarray) for value in given):
            results = evaluate(walk, node, given)
        elif node.op in OPS:
            results = OPS[node.op](walk, node)
        else:
            raise Unexpressible(f"there is no layer for it; there are for {', '.join(sorted(OPS))}")
    except Unexpressible as error:
        raise ConvertError(f"{node.title}: {error}") from error
    except (ArithmeticError, IndexError, KeyError, TypeError, ValueError) as error:
        # Of a graph that breaks ONNX' own rules.
        reason = f"{type(error).__name__}: {error}"
        raise ConvertError(f"{node.title}: it is not what ONNX has there ({reason})") from error
    results = results if isinstance(results, list) else [results]
    walk.values.update(zip(node.outputs, results))


def evaluate(walk: Walk, node: Node, given: list[np.ndarray]) -> list[np.ndarray]:
    """A node of constants."""
    from onnx.reference import ReferenceEvaluator

    try:
        inputs = [
            onnx.helper.make_tensor_value_info(
                name, onnx.helper.np_dtype_to_tensor_dtype(values.dtype), values.shape
            )
            for name, values in zip([name for name in node.inputs if name], given)
        ]
        unique = list({value.name: value for value in inputs}.values())
        outputs = [onnx.ValueInfoProto(name=name) for name in node.outputs]
        graph = onnx.helper.make_graph([node.proto()], "constant", unique, outputs)
        model = onnx.helper.make_model(
            graph, opset_imports=[onnx.helper.make_opsetid("", walk.opset)]
        )
        run = ReferenceEvaluator(model).run(
            None, {value.name: values for value, values in zip(inputs, given)}
        )
    except Exception as error:  # whatever it does not know
        raise Unexpressible(
            f"its inputs are constants, and it cannot be computed: {error}"
        ) from error
    return [np.asarray(values) for values in run]


def finish(walk: Walk, outputs: list[str]) -> None:
    net = walk.net
    for output in outputs:
        value = walk.values[output]
        if not isinstance(value, Value):
            raise ConvertError(f'the output "{output}" is a constant')
        if value.padding or value.spread:
            raise ConvertError(f'the output "{output}" is what a Pad or an Expand made')
        if value.channels_last and value.shape[1:] != (1, 1):
            raise ConvertError(
                f'the output "{output}" is channels-last; transpose it, or leave its '
                "last transpose out"
            )
        net.outputs.append((output, walk.real(value)))
    net.notes += walk.notes
