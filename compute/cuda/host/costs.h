/* costs.h: what the terms of each path's cost (X_path.cu) take, in nanoseconds; terms that are
 * counts are a multiprocessor's share. Fitted on an NVIDIA H200 (132 multiprocessors, CUDA 13.0,
 * driver 580.159.04), 2026-11-22, to the times of 291 shapes by tests/bench/fit_costs.py, which
 * says how to do so on another chip. All that is known of a chip's speed is here. */
#ifndef XN_CUDA_COSTS_H
#define XN_CUDA_COSTS_H

#include "paths.h"

#define COSTS(path) static const double xn_cuda_costs_##path[XN_CUDA_TERMS]
COSTS(sliding_window) = {3875,   530.3,    0.1093, 0.003474, 3.557,   2070,   84.3,
                         0.1174, 0.007579, 0,      961.2,    65.21,   0.1755, 0,
                         1.244,  722.6,    54.68,  0.08319,  0.01086, 0.2479};
COSTS(depthwise) = {2009, 203.4, 0.1537, 0.1642, 0.1203, 1178, 242.5, 0.2312, 0.405};
COSTS(patch_gemm) = {693.9, 786.9, 0.1157, 0.0317};
COSTS(fused_gemm) = {0, 1000, 0.06161, 0.1999};
COSTS(implicit_gemm) = {8014, 450.8, 0.08694, 1, 0.5544, 0.02851};
COSTS(direct) = {5415, 61.36, 0.2307, 0.9091, 0.806, 0.04367, 0.05674};
COSTS(warp_specialised) = {1404, 0, 0.4362, 0, 0.0001877, 0, 0.03532, 0, 0.02067};
COSTS(filter_stationary) = {1195, 0, 0.3526, 0.3819, 0.0007242, 0.0004946, 0.03805, 0, 0.02949};
COSTS(dual_rail) = {0, 0.537, 0, 0, 0, 0.006512};
COSTS(real_wgmma) = {5845, 0.1932, 0.1342, 0.0001918, 0.3388};
COSTS(real_mma) = {5960, 0.2339, 0.06057, 0.0003251, 0.3464};
COSTS(real) = {0, 292.1, 0.1353};
#undef COSTS

/* Of a kernel around a path (paths.cu): its launch, an element whose bit it moves, an output of
 * which it makes the rest of the epilogue. By the bytes, not fitted. */
static const double xn_cuda_costs_around[] = {2000, 0.05, 0.3};

#endif
