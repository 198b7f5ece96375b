/* stage_common.cuh: what the kernels of stage/ share: where arrays lie in shared memory, rows of
 * the tables that have a value a filter, and signs. */
#ifndef XN_CUDA_STAGE_COMMON_CUH
#define XN_CUDA_STAGE_COMMON_CUH

#include "ptx.cuh"

static inline uint32_t stage_aligned(int64_t bytes) {
    return (uint32_t)((bytes + 127) / 128 * 128);
}

/* The lane's 4 filters of a table's row, at an offset in bytes from `own`. */
struct stage_four {
    float of[4];
};
__device__ __forceinline__ stage_four stage_row_of(const char *own, uint32_t bytes) {
    const float4 v = *(const float4 *)(own + bytes);
    return {{v.x, v.y, v.z, v.w}};
}

/* Shifts a bit into `bits` from below: whether y + shift is at least 0. The difference is -0 or
 * less there; NaN has no sign here. */
__device__ __forceinline__ uint32_t stage_add_sign(uint32_t bits, float y, float shift) {
    return __funnelshift_l(__float_as_uint(__fadd_rd(-y, -shift)), bits, 1);
}

#endif
