/* fast_divide.cuh: division of an index by a number that the host knows: one multiplication. */
#ifndef XN_CUDA_FAST_DIVIDE_CUH
#define XN_CUDA_FAST_DIVIDE_CUH

#include <cuda_runtime.h>
#include <stdint.h>

struct xn_fast_divisor {
    uint32_t multiplier, shift, divisor;
};

/* divisor from 1 on. */
static inline xn_fast_divisor xn_fast_divisor_of(int32_t divisor) {
    uint32_t shift = 0;
    while ((INT64_C(1) << shift) < divisor)
        shift++;
    const uint64_t power = UINT64_C(1) << (31 + shift);
    return {(uint32_t)((power + (uint32_t)divisor - 1) / (uint32_t)divisor), shift,
            (uint32_t)divisor};
}

/* n / divisor, rounded down; exact for 0 <= n < 2^31. */
__host__ __device__ __forceinline__ int32_t xn_divide(int32_t n, const xn_fast_divisor &d) {
#ifdef __CUDA_ARCH__
    return (int32_t)(__umulhi((uint32_t)n * 2, d.multiplier) >> d.shift);
#else
    return (int32_t)((uint64_t)((uint32_t)n * 2) * d.multiplier >> 32 >> d.shift);
#endif
}

#endif
