/* load_run.cuh: four neighbouring elements of a row as fp32. */
#ifndef XN_CUDA_LOAD_RUN_CUH
#define XN_CUDA_LOAD_RUN_CUH

#include "ptx.cuh"

#include <cuda_fp16.h>
#include <string.h>

/* From an address that is aligned to as many; zeros where they are not `valid`. */
__device__ __forceinline__ void xn_load_run(const float *from, bool valid, float *to) {
    uint32_t words[4] = {};
    xn_load_16_if(words, from, valid);
#pragma unroll
    for (int n = 0; n < 4; n++)
        to[n] = __uint_as_float(words[n]);
}

__device__ __forceinline__ void xn_load_run(const __half *from, bool valid, float *to) {
    uint32_t words[2] = {};
    xn_load_8_if(words, from, valid);
#pragma unroll
    for (int n = 0; n < 2; n++) {
        __half2 pair;
        memcpy(&pair, &words[n], 4);
        const float2 v = __half22float2(pair);
        to[2 * n] = v.x, to[2 * n + 1] = v.y;
    }
}

#endif
