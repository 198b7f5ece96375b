#!/usr/bin/env python3
"""OpenCV's filter2D with a 3x3 kernel of fp32 on the single-channel rows of layers.c, zeros outside:
microseconds a call (median, p10, p90). It is a plain filter: no signs, no K. The argument is the
number of threads."""
import sys
import time

import cv2
import numpy

SIDES = (256, 384, 512, 1024, 2048, 4096)
TURNS, TURN_S = 5, 0.05


def turn(times, convolve):
    end = time.perf_counter() + TURN_S
    while time.perf_counter() < end:
        start = time.perf_counter()
        convolve()
        times.append((time.perf_counter() - start) * 1e6)


def microseconds(side, random):
    image = random.standard_normal((side, side), dtype=numpy.float32)
    kernel = numpy.where(random.standard_normal((3, 3)) >= 0, 0.5, -0.5).astype(numpy.float32)
    out = numpy.empty_like(image)

    def convolve():
        cv2.filter2D(image, cv2.CV_32F, kernel, dst=out, borderType=cv2.BORDER_CONSTANT)

    convolve()
    middle = float((image[:3, :3] * kernel).sum())
    if abs(out[1, 1] - middle) > 1e-4:
        sys.exit("filter2D is not the convolution")
    times = []
    for _ in range(TURNS):
        turn(times, convolve)
    return numpy.percentile(times, (50, 10, 90))


def main():
    cv2.setNumThreads(int(sys.argv[1]) if len(sys.argv) > 1 else -1)
    print("OpenCV", cv2.__version__, "filter2D,", cv2.getNumThreads(), "threads")
    random = numpy.random.default_rng(1)
    for side in SIDES:
        median, p10, p90 = microseconds(side, random)
        print(f"1x1x{side:<10d} opencv fp32 {median:9.2f} {p10:9.2f} {p90:9.2f}", flush=True)


main()
