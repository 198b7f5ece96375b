/* costs.h: what the terms of each path's cost (X_path.cu) take, in nanoseconds; terms that are
 * counts are a multiprocessor's share. Fitted on an NVIDIA H200 (132 multiprocessors, CUDA 13.0,
 * driver 580.159.04), 2026-11-22, to the times of 511 shapes by tests/bench/fit_costs.py, which
 * says how to do so on another chip. All that is known of a chip's speed is here. */
#ifndef XN_CUDA_COSTS_H
#define XN_CUDA_COSTS_H

#include "paths.h"

#define COSTS(path) static const double xn_cuda_costs_##path[XN_CUDA_TERMS]
COSTS(sliding_window) = {1621, 192.7, 5134, 0.8099, 0.8072, 0, 0.9001, 15.54};
COSTS(depthwise) = {1321, 118.5, 0.1702, 0.3207, 0.0204, 0.2606, 0.03692, 0.009507};
COSTS(patch_gemm) = {1971, 1.09, 0.1818, 33.05, 0.1608, 9.841, 0, 0, 0.4528};
COSTS(fused_gemm) = {0, 1012, 0.1217, 0, 0.2145, 0.00505, 101.3};
COSTS(implicit_gemm) = {9672, 190.2, 0.1386, 0.8958, 0.5291, 0.0222, 0, 0.1556};
COSTS(direct) = {7568, 77.12, 0.1388, 0.734, 1.068, 0.03092, 0.05776, 0.1865};
COSTS(warp_specialised) = {2529, 0, 0.4164, 0, 0.0001309, 0, 0.03407, 0, 0.0175, 0.07295, 0.1653};
COSTS(filter_stationary) = {1257,    0, 0.3559,  0.3754, 0.0001472, 0.0004565,
                            0.03575, 0, 0.02746, 0.1364, 0.08089};
COSTS(dual_rail) = {0, 0.537, 0, 0, 0, 0.006512};
COSTS(real_wgmma) = {5845, 0.1932, 0.1342, 0.0001918, 0.3388};
COSTS(real_mma) = {5960, 0.2339, 0.06057, 0.0003251, 0.3464};
COSTS(real) = {0, 292.1, 0.1353};
#undef COSTS

/* Of a kernel around a path (paths.cu): its launch, an element whose bit it moves, an output of
 * which it makes the rest of the epilogue. By the bytes, not fitted. */
static const double xn_cuda_costs_around[] = {2000, 0.05, 0.3};

#endif
