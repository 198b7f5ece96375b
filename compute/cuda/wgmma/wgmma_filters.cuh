/* wgmma_filters.cuh: what a block of the wgmma kernels knows of its filters beside their bits: the
 * part of dot that depends on filter and border class, factor and bias. */
#ifndef XN_CUDA_WGMMA_FILTERS_CUH
#define XN_CUDA_WGMMA_FILTERS_CUH

#include "epilogue.cuh"
#include "wgmma.h"

struct xn_wgmma_filter {
    bool live;
    int32_t index;
};

/* Filter m of a group, or one that is not live past its end. */
__device__ __forceinline__ xn_wgmma_filter xn_wgmma_filter_of(const xn_conv &c, int32_t group,
                                                              int32_t m) {
    const bool live = m < c.group_out_channels;
    return {live, group * c.group_out_channels + (live ? m : 0)};
}

/* ---- filter part and border class ---- */

__device__ __forceinline__ int32_t xn_border_class(const xn_cuda_axis &axis, int32_t at,
                                                   int32_t outputs) {
    if (at < axis.first_count)
        return axis.first[at];
    const int32_t from_end = outputs - 1 - at;
    return from_end < axis.last_count ? axis.last[from_end] : 0;
}

/* Set bits of a filter over the taps inside at a class; `prefix` is its own (layout.h), with
 * `pitch` from row to row. */
__device__ __forceinline__ int32_t xn_bits_inside(const int32_t *prefix, int64_t pitch,
                                                  const xn_cuda_class cls) {
    return __ldg(prefix + cls.high_last * pitch) - __ldg(prefix + cls.low_last * pitch) -
           __ldg(prefix + cls.high_first * pitch) + __ldg(prefix + cls.low_first * pitch);
}

/* put(m, class, part) for a block's filters, from m0 of the group on: the part of dot that a filter
 * has at a class, with what the class adds for all filters. Of `threads` one has a filter and every
 * so many-th class, of which the loads of several are under way at once. */
template <typename Args, typename Put>
__device__ __forceinline__ void xn_wgmma_make_table(const Args &a, int32_t group, int32_t m0,
                                                    int32_t thread, int32_t threads, Put put) {
    constexpr int32_t BATCH = 3, FILTERS = XN_WGMMA_FILTERS;
    const xn_conv &c = a.conv;
    const xn_cuda_borders &borders = a.shape.borders;
    const int64_t pitch = c.out_channels;
    const int32_t taps = c.kernel_h * c.kernel_w, step = max(threads / FILTERS, 1);
    for (int32_t m = thread % FILTERS; m < FILTERS; m += threads) {
        const xn_wgmma_filter f = xn_wgmma_filter_of(c, group, m0 + m);
        const int32_t *prefix = a.io.prefix + f.index;
        const int32_t all = __ldg(prefix + ((c.kernel_h + 1) * (c.kernel_w + 1) - 1) * pitch);
        for (int32_t first = thread / FILTERS; first < borders.classes; first += BATCH * step) {
            int32_t inside[BATCH];
#pragma unroll
            for (int n = 0; n < BATCH; n++)
                inside[n] = xn_bits_inside(
                    prefix, pitch, borders.pixel_class[min(first + n * step, borders.classes - 1)]);
#pragma unroll
            for (int n = 0; n < BATCH; n++) {
                const int32_t cls = first + n * step;
                if (cls >= borders.classes)
                    break;
                const int32_t in = borders.pixel_class[cls].inside;
                put(m, cls,
                    xn_cuda_filter_part(c.pad_value, inside[n], all - inside[n]) +
                        xn_cuda_pixel_part(c.pad_value, c.group_channels, in, taps - in, 0));
            }
        }
    }
}

/* ---- factor and bias ---- */

struct xn_wgmma_constants {
    float *factor, *bias;
    uint32_t *largest; /* bits of the largest |factor| and |bias| */

    static __device__ __forceinline__ xn_wgmma_constants at(char *memory, int32_t filters) {
        float *factor = (float *)memory;
        return {factor, factor + filters, (uint32_t *)(factor + 2 * filters)};
    }

    /* *largest is zero before, and threads meet after. */
    __device__ __forceinline__ void set(const xn_epilogue_args &e, const xn_wgmma_filter &filter,
                                        int32_t m) const {
        const xn_filter f = filter.live ? xn_filter_of(e, filter.index) : xn_filter{0, 0};
        factor[m] = f.factor;
        bias[m] = f.bias;
        atomicMax(largest, __float_as_uint(fabsf(f.factor)));
        atomicMax(largest + 1, __float_as_uint(fabsf(f.bias)));
    }

    /* Whether no product or sum of the epilogue can overflow at a pixel, so that xn_value is all of
     * it. A factor that is NaN is no less than infinity here; a bias or box that is fails. */
    __device__ __forceinline__ bool cannot_overflow(const xn_conv &c, float box) const {
        const float most = (float)(c.group_channels * c.kernel_h * c.kernel_w);
        return largest[0] < 0x7f800000u &&
               box * most * fmaxf(__uint_as_float(largest[0]), 1.0f) + __uint_as_float(largest[1]) <
                   3e38f;
    }
};

#endif
