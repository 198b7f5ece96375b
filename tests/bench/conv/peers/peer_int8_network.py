#!/usr/bin/env python3
"""INT8 networks of other runtimes beside `bench-conv time --of network`: 224x224x3 in, 1000 logits out, in turns.

    peer_int8_network.py BENCH_CONV MODEL THREADS [FOLDER]

OpenVINO, ONNX Runtime and PyTorch's x86 backend, each where it is installed, run a ResNet-18 that is
made here: random weights, batch norms folded, quantised for each output channel, calibrated on noise.
Times do not depend on the weights. Each round gives every side one turn. With one thread times are the
processor's, which other programs change less. FOLDER keeps the quantised
models. Ours keeps fp32 or fp16 between layers; the factors are of fp32.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import numpy

ROUNDS, TURN_S, WARM_UPS, BATCHES = 5, 0.4, 3, (1, 16)
STAGES = ((64, 64, 1), (64, 128, 2), (128, 256, 2), (256, 512, 2))
SIDE, CLASSES = 224, 1000


class Graph:
    """An ONNX graph that grows by one node at a time."""

    def __init__(self):
        self.nodes, self.weights, self.random = [], [], numpy.random.default_rng(1)

    def add(self, op, *inputs, **attributes):
        from onnx import helper

        name = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [name], **attributes))
        return name

    def weight(self, *shape):
        from onnx import numpy_helper

        name, fan_in = f"w{len(self.weights)}", max(1, int(numpy.prod(shape[1:])))
        values = self.random.standard_normal(shape) * (2 / fan_in) ** 0.5
        self.weights.append(numpy_helper.from_array(values.astype(numpy.float32), name))
        return name

    def conv(self, x, channels_in, channels_out, kernel, stride, pad):
        return self.add("Conv", x, self.weight(channels_out, channels_in, kernel, kernel),
                        self.weight(channels_out), strides=[stride, stride], pads=[pad] * 4)

    def block(self, x, channels_in, channels_out, stride):
        y = self.add("Relu", self.conv(x, channels_in, channels_out, 3, stride, 1))
        y = self.conv(y, channels_out, channels_out, 3, 1, 1)
        if stride > 1:
            x = self.conv(x, channels_in, channels_out, 1, stride, 0)
        return self.add("Relu", self.add("Add", y, x))


def resnet18():
    from onnx import TensorProto, checker, helper

    g = Graph()
    x = g.add("Relu", g.conv("input", 3, 64, 7, 2, 3))
    x = g.add("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    for channels_in, channels_out, stride in STAGES:
        x = g.block(x, channels_in, channels_out, stride)
        x = g.block(x, channels_out, channels_out, 1)
    x = g.add("Flatten", g.conv(g.add("GlobalAveragePool", x), STAGES[-1][1], CLASSES, 1, 1, 0))
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N"] + shape)
            for name, shape in (("input", [3, SIDE, SIDE]), (x, [CLASSES]))]
    graph = helper.make_graph(g.nodes, "resnet18", ends[:1], ends[1:], g.weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    checker.check_model(model)
    return model


def quantised(folder):
    """The path of the quantised model, which is made where it is not there."""
    import onnx
    from onnxruntime import quantization

    class Noise(quantization.CalibrationDataReader):
        def __init__(self):
            random = numpy.random.default_rng(2)
            self.rest = [random.standard_normal((4, 3, SIDE, SIDE), dtype=numpy.float32)
                         for _ in range(2)]

        def get_next(self):
            return {"input": self.rest.pop()} if self.rest else None

    made, real = folder / "resnet18_int8.onnx", folder / "resnet18.onnx"
    if not made.exists():
        onnx.save(resnet18(), real)
        quantization.quantize_static(str(real), str(made), Noise(), per_channel=True,
                                     activation_type=quantization.QuantType.QUInt8,
                                     weight_type=quantization.QuantType.QInt8)
    return made


def of_openvino(model, threads, batch):
    import openvino

    network = openvino.Core().read_model(model)
    network.reshape([batch, 3, SIDE, SIDE])
    # What is not INT8 stays fp32: with bf16, the default on AMX, it has no kernels for the rest.
    request = openvino.Core().compile_model(network, "CPU", {
        "INFERENCE_NUM_THREADS": threads, "NUM_STREAMS": 1, "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": "f32"}).create_infer_request()
    x = noise(batch)
    return lambda: request.infer([x], share_inputs=True, share_outputs=True)


def of_onnxruntime(model, threads, batch):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(str(model), options, ["CPUExecutionProvider"])
    x = noise(batch)
    return lambda: session.run(None, {"input": x})


def of_torch(_, threads, batch):
    import peer_torch_network
    import torch
    from torch.ao.quantization import get_default_qconfig_mapping, quantize_fx

    torch.set_num_threads(threads)
    torch.backends.quantized.engine = "x86"
    x = torch.from_numpy(noise(batch)).to(memory_format=torch.channels_last)
    network = quantize_fx.prepare_fx(peer_torch_network.resnet18(),
                                     get_default_qconfig_mapping("x86"), (x,))
    network(x)
    network = quantize_fx.convert_fx(network).to(memory_format=torch.channels_last)
    with torch.inference_mode():
        traced = torch.jit.freeze(torch.jit.trace(network.eval(), x))

    def run():
        with torch.inference_mode():
            traced(x)

    return run


def noise(batch):
    return numpy.random.default_rng(3).standard_normal((batch, 3, SIDE, SIDE), dtype=numpy.float32)


def turn_of(run, threads):
    """Milliseconds of each run of a turn; on one thread the processor's, as bench-conv takes them."""
    clock = time.process_time if threads == 1 else time.perf_counter
    times, end = [], clock() + TURN_S
    while not times or clock() < end:
        start = clock()
        run()
        times.append(1e3 * (clock() - start))
    return times


def our_turn(bench_conv, model, threads, batch, folder, precision):
    """A process of its own for each turn: median and least of the turn's runs."""
    out = folder / "ours.json"
    subprocess.run([bench_conv, "time", "--of", "network", "--model", model, "--backend", "cpu", "--threads", str(threads), "--batch",
                    str(batch), "--rounds", "1", "--ms", str(int(1e3 * TURN_S)), "--json", out],
                   check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    rows = json.loads(out.read_text())
    row = next(r for r in rows if r["kind"] == "all" and r["precision"] == precision)
    return [row["least_us"] / 1e3, row["median_us"] / 1e3]


def sides(bench_conv, ours, threads, batch, folder):
    """Of each side that is installed: its name and a function that takes a turn."""
    for precision in ("fp32", "fp16"):
        yield (f"{pathlib.Path(ours).name} {precision}",
               lambda p=precision: our_turn(bench_conv, ours, threads, batch, folder, p))
    for name, make in (("OpenVINO INT8", of_openvino), ("ONNX Runtime INT8", of_onnxruntime),
                       ("PyTorch x86 INT8", of_torch)):
        try:
            model = None if make is of_torch else quantised(folder)
            run = make(model, threads, batch)
        except ImportError as error:
            print(f"{name}: not here ({error})")
            continue
        for _ in range(WARM_UPS):
            run()
        yield name, lambda run=run: turn_of(run, threads)


def compare(bench_conv, model, threads, batch, folder):
    turns = {name: (turn, []) for name, turn in sides(bench_conv, model, threads, batch, folder)}
    for _ in range(ROUNDS):
        for turn, times in turns.values():
            times += turn()
    figures = {name: (numpy.median(times) / batch, min(times) / batch, max(times) / batch)
               for name, (_, times) in turns.items()}
    ours, _, *peers = figures
    for name, (median, least, most) in figures.items():
        print(f"{threads} threads, {batch:2d} images  {name:20s} {median:8.2f} ms an image, "
              f"least {least:.2f}, most {most:.2f}")
    if peers:
        best = min(peers, key=lambda name: figures[name][0])
        print(f"{threads} threads, {batch:2d} images  over {best}: "
              f"{figures[best][0] / figures[ours][0]:.2f} of medians, "
              f"{figures[best][1] / figures[ours][1]:.2f} of the least", flush=True)


def main():
    if len(sys.argv) not in (4, 5):
        sys.exit(__doc__)
    bench_conv, model, threads = sys.argv[1], sys.argv[2], int(sys.argv[3])
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(sys.argv[4] if len(sys.argv) == 5 else temporary)
        os.makedirs(folder, exist_ok=True)
        for batch in BATCHES:
            compare(bench_conv, model, threads, batch, folder)


if __name__ == "__main__":
    main()
