/* costs.h: what the terms of each path's cost (X_path.cu) take, in nanoseconds; terms that are
 * counts are a multiprocessor's share. Fitted on an NVIDIA H200 (132 multiprocessors, CUDA 13.0,
 * driver 580.159.04), 2026-11-22, to the times of 735 shapes by tests/bench/fit_costs.py, which
 * says how to do so on another chip; patch 2026-11-29, to 1,042 cuts, which are chosen by these
 * costs too. All that is known of a chip's speed is here. */
#ifndef XN_CUDA_COSTS_H
#define XN_CUDA_COSTS_H

#include "paths.h"

#define COSTS(path) static const double xn_cuda_costs_##path[XN_CUDA_TERMS]
COSTS(sliding_window) = {1032, 3138, 1.223, 1.82, 1.194, 0.8967, 9.672};
COSTS(patch) = {23.92, 1027, 427.9, 257.8, 75.03, 17.71, 77.33,
                3.834, 64.3, 97.93, 7.716, 1.556, 28.54, 6};
COSTS(implicit_gemm) = {8708, 159, 0.1329, 0.5701, 0.6111, 0.01725, 0.03005, 0.07309};
COSTS(direct) = {6679, 83.63, 0.1287, 1.089, 1.258, 0.007597, 0.05902};
COSTS(warp_specialised) = {2294, 0, 0.4371, 0.03824, 0, 0.01316, 0.03593, 0.2929, 0.1};
/* By their products and the bytes, not fitted. */
COSTS(real_depthwise) = {3000, 0.1};
COSTS(real_gemm) = {4000, 100, 0.0075, 0.06};
COSTS(real_mma) = {5960, 0.2339, 0.06057, 0.0003251, 0.3464};
#undef COSTS

/* Of what is around a path (paths.cu): a launch, an element whose bit a kernel moves, an output of
 * which one makes the rest of the epilogue, an output whose bit a path sets beside the reals, by
 * atomics in memory that was cleared. By the bytes, not fitted. */
static const double xn_cuda_costs_around[] = {2000, 0.05, 0.3, 0.3};

#endif
