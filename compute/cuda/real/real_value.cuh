/* real_value.cuh: from a sum of products in reduced precision to v of epilogue.cuh, where filters
 * were multiplied by a power of 2 (real_mma.h). */
#ifndef XN_CUDA_REAL_VALUE_CUH
#define XN_CUDA_REAL_VALUE_CUH

#include "epilogue.cuh"

/* What multiplies a filter's sums: factor * 2^exponent, or NaN where fp32 does not hold that. */
__device__ __forceinline__ xn_filter xn_filter_with_exponent(const xn_epilogue_args &out,
                                                             const int32_t *exponent, int64_t o) {
    xn_filter f = xn_filter_of(out, o);
    if (exponent) {
        const float scaled = scalbnf(f.factor, __ldg(exponent + o));
        f.factor = f.factor != 0.0f && fabsf(scaled) < 0x1p-126f ? NAN : scaled;
    }
    return f;
}

static __device__ __noinline__ float
xn_sum_value_again(const xn_epilogue_args &out, const int32_t *exponent, int64_t o, float sum) {
    return xn_value_again(out, o, scalbn((double)sum, exponent ? __ldg(exponent + o) : 0), 1.0);
}

__device__ __forceinline__ float xn_sum_value(const xn_epilogue_args &out, const int32_t *exponent,
                                              const xn_filter &f, int64_t o, float sum) {
    const float v = xn_value(sum, 1.0f, f);
    return isfinite(v) ? v : xn_sum_value_again(out, exponent, o, sum);
}

#endif
