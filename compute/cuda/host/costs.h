/* costs.h: what the terms of each path's cost (X_path.cu) take, in nanoseconds; terms that are
 * counts are a multiprocessor's share. Fitted on an NVIDIA H200 (132 multiprocessors, CUDA 13.0,
 * driver 580.159.04), 2026-11-22, to the times of 735 shapes by tests/bench/fit_costs.py, which
 * says how to do so on another chip; patch 2026-11-29, to 1,042 cuts, which are chosen by these
 * costs too. What a term counts stands where X_path.cu makes it. All that is known of a chip's
 * speed is here. */
#ifndef XN_CUDA_COSTS_H
#define XN_CUDA_COSTS_H

#include "paths.h"

#define COSTS(path) static const xn_cuda_cost xn_cuda_costs_##path[XN_CUDA_TERMS]
COSTS(sliding_window) = {{"launch", 1032}, {"chunk", 3138},    {"vector-row", 1.223}, {"row", 1.82},
                         {"load", 1.194},  {"output", 0.8967}, {"KiB", 9.672}};
COSTS(patch) = {{"launch", 23.92},    {"wave", 1027},      {"wave-load", 427.9},
                {"wave-unit", 257.8}, {"wave-tap", 75.03}, {"wave-filter", 17.71},
                {"block", 77.33},     {"batch", 3.834},    {"load", 64.3},
                {"unit", 97.93},      {"tap", 7.716},      {"word", 1.556},
                {"KiB", 28.54},       {"KiB-in-parts", 6}};
COSTS(implicit_gemm) = {{"launch", 8708},          {"step", 159},
                        {"input", 0.1329},         {"window-tap", 0.5701},
                        {"window-filter", 0.6111}, {"product", 0.01725},
                        {"output", 0.03005},       {"uneven-output", 0.07309}};
COSTS(direct) = {{"launch", 6679},         {"word", 83.63},     {"input", 0.1287},
                 {"window-tap", 1.089},    {"output", 1.258},   {"output-tap", 0.007597},
                 {"output-word", 0.05902}, {"uneven-output", 0}};
COSTS(warp_specialised) = {{"launch-of-reals", 2294},
                           {"launch-of-bits", 0},
                           {"cycle", 0.4371},
                           {"real-byte", 0.03824},
                           {"bit", 0},
                           {"output-byte", 0.01316},
                           {"uneven-output", 0.03593},
                           {"window-tap", 0.2929},
                           {"finished-output", 0.1}};
/* By their products and the bytes, not fitted. */
COSTS(real_depthwise) = {{"launch", 3000}, {"output", 0.1}};
COSTS(real_gemm) = {{"launch", 4000}, {"row-element", 100}, {"product", 0.0075}, {"output", 0.06}};
COSTS(real_mma) = {{"launch", 5960},
                   {"row-byte", 0.2339},
                   {"input-byte", 0.06057},
                   {"product-byte", 0.0003251},
                   {"output", 0.3464}};
#undef COSTS

/* Of what is around a path (paths.cu): a launch, an element whose bit a kernel moves, an output of
 * which one makes the rest of the epilogue, an output whose bit a path sets beside the reals, by
 * atomics in memory that was cleared. By the bytes, not fitted. */
static const double xn_cuda_costs_around[] = {2000, 0.05, 0.3, 0.3};

#endif
