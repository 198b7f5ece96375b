#!/usr/bin/env python3
"""cuDNN's fp16 convolution through PyTorch on the layers of layers.c, 3x3, stride 1, padding 1,
and the 7x7 stem of real.c; channels last, random data: microseconds a launch by graph replay
(median, p10, p90)."""
import torch
import torch.nn.functional as F

# batch, channels, side, filters, kernel, stride
LAYERS = [(b, c, s, c, 3, 1) for b in (1, 64) for c, s in ((64, 56), (128, 28), (256, 14), (512, 7))]
LAYERS += [(64, 1024, 14, 1024, 3, 1), (1, 3, 224, 64, 7, 2), (64, 3, 224, 64, 7, 2)]
LAUNCHES, REPLAYS = 20, 21


def microseconds(convolve):
    with torch.cuda.stream(torch.cuda.Stream()):
        for _ in range(8):  # cuDNN tries its algorithms
            convolve()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(LAUNCHES):
            convolve()
    times = []
    for _ in range(REPLAYS):
        start, stop = torch.cuda.Event(True), torch.cuda.Event(True)
        start.record()
        graph.replay()
        stop.record()
        stop.synchronize()
        times.append(start.elapsed_time(stop) * 1e3 / LAUNCHES)
    times.sort()
    return times[len(times) // 2], times[len(times) // 10], times[-1 - len(times) // 10]


def main():
    torch.backends.cudnn.benchmark = True
    print("cuDNN fp16, torch", torch.__version__, torch.cuda.get_device_name())
    for batch, channels, side, filters, kernel, stride in LAYERS:
        x = torch.randn(batch, channels, side, side, device="cuda", dtype=torch.float16)
        w = torch.randn(filters, channels, kernel, kernel, device="cuda", dtype=torch.float16)
        x, w = (t.to(memory_format=torch.channels_last) for t in (x, w))
        with torch.no_grad():
            median, p10, p90 = microseconds(
                lambda: F.conv2d(x, w, padding=kernel // 2, stride=stride))
        outputs = batch * filters * (side // stride) ** 2
        tops = 2e-6 * outputs * channels * kernel * kernel / median
        print(f"{batch}x{channels}x{side:<10d} cudnn fp16 {median:9.2f} {p10:9.2f} {p90:9.2f} "
              f"{tops:9.1f} Tops", flush=True)


main()
