/* window_sums.cuh: arithmetic that filter_stationary.cu, warp_specialised.cu and dual_rail.cu
 * share: what a filter brings, sums over windows, the threshold of packed output, the epilogue
 * where it overflows. */
#ifndef XN_CUDA_WINDOW_SUMS_CUH
#define XN_CUDA_WINDOW_SUMS_CUH

#include "border.h"
#include "element.cuh"

struct xn_wgmma_filter {
    bool live;
    int32_t index, threshold;
};

/* Filter m of a group, or one that is not live past its end. `threshold`: of packed output, of all
 * filters. */
template <bool PACKED>
__device__ __forceinline__ xn_wgmma_filter xn_wgmma_filter_of(const xn_conv &c,
                                                              const int32_t *threshold,
                                                              int32_t group, int32_t m) {
    xn_wgmma_filter f;
    f.live = m < c.group_out_channels;
    f.index = group * c.group_out_channels + (f.live ? m : 0);
    f.threshold = 0;
    if (PACKED) { /* beyond +-(bits + 1) a threshold means no more */
        const int32_t most = c.group_channels * c.kernel_h * c.kernel_w + 1;
        f.threshold = max(-most, min(most, __ldg(threshold + f.index)));
    }
    return f;
}

/* Set bits of a filter over the taps inside at a class; `prefix` is its own (layout.h), with
 * `pitch` from row to row. */
__device__ __forceinline__ int32_t xn_bits_inside(const int32_t *prefix, int64_t pitch,
                                                  const xn_cuda_class cls) {
    return __ldg(prefix + cls.high_last * pitch) - __ldg(prefix + cls.low_last * pitch) -
           __ldg(prefix + cls.high_first * pitch) + __ldg(prefix + cls.low_first * pitch);
}

/* Set bits of all taps of a filter; prefix as above. */
__device__ __forceinline__ int32_t xn_bits_of_filter(const xn_conv &c, const int32_t *prefix,
                                                     int64_t pitch) {
    return __ldg(prefix + ((c.kernel_h + 1) * (c.kernel_w + 1) - 1) * pitch);
}

/* xn_bits_inside of COUNT classes, every step-th from first on, their loads under way at once. Past
 * the last class that of the last. */
template <int COUNT>
__device__ __forceinline__ void xn_bits_of_classes(const int32_t *prefix, int64_t pitch,
                                                   const xn_cuda_borders &borders, int32_t first,
                                                   int32_t step, int32_t (&inside)[COUNT]) {
#pragma unroll
    for (int n = 0; n < COUNT; n++)
        inside[n] = xn_bits_inside(prefix, pitch,
                                   borders.pixel_class[min(first + n * step, borders.classes - 1)]);
}

/* For packed output the least count of AND that does not suffice for dot >= threshold, without the
 * whole half of the activations' set bits, which is added to it (write_packed):
 *
 *   base - 2 popc(a) + part + 4 count >= threshold      base: class_part, part: of the filter
 *   count >= ceil((ceil((threshold - part - base) / 2) + popc(a)) / 2)
 *
 * and popc(a) = 2 (popc(a) / 2) + odd. */
__device__ __forceinline__ int32_t xn_count_limit(int32_t threshold, int32_t part, int32_t base,
                                                  int32_t odd) {
    const int32_t half = (threshold - part - base + 1) >> 1;
    return ((half + odd + 1) >> 1) - 1;
}

__device__ __forceinline__ int32_t xn_border_class(const xn_cuda_axis &axis, int32_t at,
                                                   int32_t outputs) {
    if (at < axis.first_count)
        return axis.first[at];
    const int32_t from_end = outputs - 1 - at;
    return from_end < axis.last_count ? axis.last[from_end] : 0;
}

/* The sum of rows x columns values; loads of three rows or columns are under way at once. */
template <typename Sum, typename T>
__device__ __forceinline__ Sum xn_window_sum(const T *at, int32_t rows, int32_t row_step,
                                             int32_t columns, int32_t column_step) {
    Sum sum = 0;
    if (columns == 3 && rows == 3) {
#pragma unroll
        for (int i = 0; i < 3; i++, at += row_step)
            sum += (Sum)at[0] + (Sum)at[column_step] + (Sum)at[2 * column_step];
        return sum;
    }
#pragma unroll 1
    for (int32_t i = 0; i < rows; i++, at += row_step)
#pragma unroll 3
        for (int32_t j = 0; j < columns; j++)
            sum += at[j * column_step];
    return sum;
}

/* K of a pixel: the mean of the window's means, which are zero outside the image. Up to 64 terms in
 * fp32, more, or a sum that overflowed on the way to a finite mean, in double. reciprocal: of the
 * number of taps. */
__device__ __forceinline__ float xn_window_mean(const xn_conv &c, const float *means,
                                                int32_t row_step, int32_t column_step,
                                                float reciprocal) {
    const int32_t taps = c.kernel_h * c.kernel_w;
    const float sum =
        taps <= 64 ? xn_window_sum<float>(means, c.kernel_h, row_step, c.kernel_w, column_step)
                   : INFINITY;
    if (sum <= 3e38f)
        return sum * reciprocal;
    return (float)(xn_window_sum<double>(means, c.kernel_h, row_step, c.kernel_w, column_step) /
                   taps);
}

/* Whether no product or sum of the epilogue can overflow at a pixel. largest: bits of the largest
 * |factor| and |bias| of its filters. */
__device__ __forceinline__ bool xn_cannot_overflow(const xn_conv &c, const uint32_t *largest,
                                                   float k) {
    const float most = (float)(c.group_channels * c.kernel_h * c.kernel_w);
    const float factor = fmaxf(__uint_as_float(largest[0]), 1.0f);
    const float bias = __uint_as_float(largest[1]); /* NaN: the comparison fails */
    return largest[0] < 0x7f800000u && k * most * factor + bias < 3e38f;
}

/* The epilogue where fp32 overflows on the way to a result that may be finite: all terms by 2^-64
 * meanwhile. k is at least 2^-16 then, unless the factor is infinite, which no scaling helps. */
__device__ __forceinline__ float xn_scaled_epilogue(float dot, float k, float factor, float bias) {
    const float value = fmaf(dot * k, factor, bias);
    const float scaled = fmaf(dot * (k * 0x1p-64f), factor, bias * 0x1p-64f) * 0x1p64f;
    return isfinite(value) || isinf(factor) ? value : scaled;
}

__device__ __forceinline__ uint32_t xn_half_pair(float low, float high) {
    const __half2 pair = __floats2half2_rn(low, high);
    return *(const uint32_t *)&pair;
}

#endif
