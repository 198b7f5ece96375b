#!/usr/bin/env python3
"""PyTorch's ResNet-18, the real network of Bi-Real-18's shape, 224x224x3 in, 1000 logits out:
images a second, beside `bench-conv network`.

    peer_torch_network.py cpu [THREADS]    fp32, batches of 1 and 16
    peer_torch_network.py cuda             fp16, channels last, by graph replay, batches of 1 to 512

Random weights: times do not depend on them. Batch norms are folded into the convolutions, as ours
are. Medians of runs for two seconds each, after warming up.
"""
import sys
import time
import warnings

import torch
from torch import nn

SECONDS = 2.0
STAGES = ((64, 64, 1), (64, 128, 2), (128, 256, 2), (256, 512, 2))


class Block(nn.Module):
    def __init__(self, channels_in, channels_out, stride):
        super().__init__()
        self.first = nn.Conv2d(channels_in, channels_out, 3, stride, 1)
        self.second = nn.Conv2d(channels_out, channels_out, 3, 1, 1)
        self.shortcut = nn.Conv2d(channels_in, channels_out, 1, stride) if stride > 1 else None

    def forward(self, x):
        y = self.second(torch.relu(self.first(x)))
        return torch.relu(y + (self.shortcut(x) if self.shortcut else x))


def resnet18():
    layers = [nn.Conv2d(3, 64, 7, 2, 3), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    for channels_in, channels_out, stride in STAGES:
        layers += [Block(channels_in, channels_out, stride), Block(channels_out, channels_out, 1)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000)).eval()


def median_us(run):
    times, end = [], time.perf_counter() + SECONDS
    while len(times) < 5 or time.perf_counter() < end:
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    times.sort()
    return 1e6 * times[len(times) // 2], 1e6 * times[0]


def on_cpu(threads):
    torch.set_num_threads(threads)
    network = resnet18()
    for batch in (1, 16):
        x = torch.randn(batch, 3, 224, 224)
        best = None
        for layout in (torch.contiguous_format, torch.channels_last):
            net, input_ = network.to(memory_format=layout), x.to(memory_format=layout)
            traced = torch.jit.freeze(torch.jit.trace(net, input_))
            for _ in range(3):
                traced(input_)
            took = median_us(lambda: traced(input_))
            best = took if best is None or took < best else best
        yield f"cpu, {threads} threads, fp32", batch, best


def on_cuda():
    network = resnet18().cuda().half().to(memory_format=torch.channels_last)
    torch.backends.cudnn.benchmark = True
    for batch in (1, 8, 64, 512):
        x = torch.randn(batch, 3, 224, 224, device="cuda", dtype=torch.float16)
        x = x.to(memory_format=torch.channels_last)
        with torch.cuda.stream(torch.cuda.Stream()):
            for _ in range(4):
                network(x)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            network(x)

        def replay():
            graph.replay()
            torch.cuda.synchronize()

        yield torch.cuda.get_device_name() + ", fp16, graph", batch, median_us(replay)


def main():
    warnings.filterwarnings("ignore", category=FutureWarning)  # torch.jit still gives the fastest
    where = sys.argv[1] if len(sys.argv) > 1 else "cpu"
    print("ResNet-18, torch", torch.__version__)
    if where == "cuda" and not torch.cuda.is_available():
        return
    with torch.no_grad():
        rows = on_cuda() if where == "cuda" else on_cpu(int(sys.argv[2]) if len(sys.argv) > 2 else 2)
        for what, batch, (median, least) in rows:
            print(f"{what:32s} batch {batch:4d} median {median:10.1f} us, least {least:10.1f}, "
                  f"{1e6 * batch / median:9.1f} images/s", flush=True)


if __name__ == "__main__":
    main()
