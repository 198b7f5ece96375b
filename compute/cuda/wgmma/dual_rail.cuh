/* dual_rail.cuh: what dual_rail.cu has in shared memory, and how it gets there: one warp copies
 * boxes of tensors. */
#ifndef XN_CUDA_DUAL_RAIL_CUH
#define XN_CUDA_DUAL_RAIL_CUH

#include "dual_rail.h"
#include "fast_divide.cuh"
#include "wgmma_filters.cuh"
#include "wgmma_kernel.cuh"

#include <cuda.h>

struct dual_rail_more {
    CUtensorMap bits;
    xn_fast_divisor row_bands, image_pitch, pitch;
};
typedef xn_wgmma_args<xn_cuda_dual_rail_shape, xn_cuda_dual_rail_io, dual_rail_more> dual_rail_args;

enum {
    GROUP = XN_WGMMA_GROUP,
    M = XN_WGMMA_FILTERS,
    CONSUMERS = XN_CUDA_DUAL_RAIL_CONSUMERS,
    DEPTH = XN_CUDA_DUAL_RAIL_MAX_DEPTH,
    /* Barriers of a block, 8 bytes each: filters have come; of each place for a band: it has come,
     * has been used; turns of those that multiply. */
    FILTERS = 0,
    BAND_FULL = 1,
    BAND_FREE = BAND_FULL + DEPTH,
    TURNS = BAND_FREE + DEPTH,
    BARRIERS = TURNS + CONSUMERS,
    GROUP_MEETS = 1, /* named barrier of a consumer, and one for each from here on */
    OUTSIDE = 4 * XN_CUDA_DUAL_RAIL_OCTETS * 2, /* values of a table of what is added to counts */
};

#if XN_HAS_WGMMA

/* A band: its first image and row of outputs. */
struct dual_rail_band {
    int32_t image, y;
};

__device__ __forceinline__ dual_rail_band band_of(const dual_rail_args &a, int32_t number) {
    const xn_cuda_dual_rail_shape &s = a.shape;
    if (s.whole)
        return {number * s.band_images, 0};
    const int32_t image = xn_divide(number, a.row_bands);
    return {image, (number - image * s.row_bands) * s.band_rows};
}

__device__ __forceinline__ char *buffer_of(const dual_rail_args &a, const xn_wgmma_block &b,
                                           int32_t place) {
    return b.memory + a.shape.buffers_at + place * a.shape.buffer_bytes;
}

/* ---- the warp that copies ---- */

/* By one lane, as all that copies. */
__device__ __forceinline__ void expect_band(const dual_rail_args &a, const xn_wgmma_block &b,
                                            const dual_rail_band &, int32_t place) {
    xn_mbarrier_expect(xn_barrier_at(b.barriers, BAND_FULL + place),
                       (uint32_t)(a.shape.units * a.shape.plane * 16));
}

/* A pixel is two elements of 8 bytes. */
__device__ __forceinline__ void copy_band(const dual_rail_args &a, const xn_wgmma_block &b,
                                          const dual_rail_band &band, int32_t place) {
    const xn_cuda_dual_rail_shape &s = a.shape;
    const xn_conv &c = a.conv;
    const uint32_t full = xn_barrier_at(b.barriers, BAND_FULL + place);
    const uint32_t to = xn_shared_address(buffer_of(a, b, place));
    xn_tensor_copy(to, &a.bits, -2 * c.pad_left, band.y - c.pad_top, band.image, b.group * s.units,
                   full);
}

/* ---- what a block makes first ---- */

/* Zeros behind a band's planes, where windows of the last line reach. */
__device__ __forceinline__ void fill_gaps(const dual_rail_args &a, const xn_wgmma_block &b,
                                          int32_t threads) {
    const xn_cuda_dual_rail_shape &s = a.shape;
#pragma unroll 1
    for (int32_t n = threadIdx.x; n < s.gap; n += threads)
#pragma unroll 1
        for (int32_t place = 0; place < s.depth; place++)
            ((uint4 *)buffer_of(a, b, place))[s.units * s.plane + n] = make_uint4(0, 0, 0, 0);
}

/* Taps inside the image along an axis. */
__device__ __forceinline__ int32_t taps_inside(int32_t at, int32_t dilation, int32_t taps,
                                               int32_t size) {
    int32_t first, last;
    xn_valid_taps(at, dilation, taps, size, &first, &last);
    return max(last - first, 0);
}

/* Of every line of outputs, then of every column. */
__device__ __forceinline__ void count_inside(const dual_rail_args &a, const xn_wgmma_block &b,
                                             int32_t threads) {
    const xn_conv &c = a.conv;
    uint8_t *inside = (uint8_t *)(b.memory + a.shape.inside_at);
#pragma unroll 1
    for (int32_t n = threadIdx.x; n < c.out_height + c.out_width; n += threads) {
        const bool line = n < c.out_height;
        inside[n] = (uint8_t)taps_inside(line ? n - c.pad_top : n - c.out_height - c.pad_left,
                                         line ? c.dilation_h : c.dilation_w,
                                         line ? c.kernel_h : c.kernel_w, line ? c.height : c.width);
    }
}

#endif
#endif
