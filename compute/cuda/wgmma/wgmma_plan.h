/* wgmma_plan.h: what filter_stationary_plan.cu, warp_specialised_plan.cu and dual_rail_plan.cu
 * share: whole numbers of things, places in shared memory, the descriptors of positions. Host code.
 */
#ifndef XN_CUDA_WGMMA_PLAN_H
#define XN_CUDA_WGMMA_PLAN_H

#include "layout.h"

#include <algorithm>

static inline int64_t xn_round_up(int64_t n, int64_t unit) {
    return (n + unit - 1) / unit * unit;
}

static inline int64_t xn_quotient_up(int64_t n, int64_t unit) {
    return (n + unit - 1) / unit;
}

/* Where the next `bytes` of shared memory begin. */
static inline int32_t xn_place_shared(int64_t *total, int64_t bytes) {
    int64_t at = *total;
    *total += xn_round_up(bytes, 128);
    return (int32_t)at;
}

/* The order of chunks (layout.h) is such that the second of a pair is never before the first. Where
 * their number is odd the filters have a chunk of zeros, whatever the positions hold.
 * offset(chunk): positions from the first to those of a chunk. */
template <typename Shape, typename Offset>
static inline void xn_gemm_make_pairs(Shape *s, Offset offset) {
    for (int32_t pair = 0; pair < s->pairs; pair++) {
        const int64_t first = offset(2 * pair);
        const int64_t second = 2 * pair + 1 < s->chunks ? offset(2 * pair + 1) : first;
        s->pair_low[pair] = (uint32_t)first | (uint32_t)(second - first) << 16;
    }
}

/* Lines from image to image where images share the zeros between them, stride 1. */
static inline int64_t xn_gemm_shared_lines(const xn_conv *c) {
    const int64_t below = c->out_height + xn_cuda_span_h(c);
    return std::max<int64_t>(std::max<int64_t>(c->out_height, c->pad_top + (int64_t)c->height),
                             below - c->pad_top);
}

/* The offset of a chunk that is a unit of a tap, in the order of xn_cuda_unit_chunk. */
static inline int64_t xn_gemm_unit_offset(const xn_conv *c, int32_t chunk, int64_t plane,
                                          int64_t row_step, int64_t column_step) {
    const int32_t taps = c->kernel_h * c->kernel_w, unit = chunk / taps, tap = chunk % taps;
    return unit * plane + tap / c->kernel_w * row_step + tap % c->kernel_w * column_step;
}

/* The offset of a chunk in the order of lines (layout.h), whose positions have 16 bytes a unit. */
template <typename Shape>
static inline int64_t xn_gemm_chunk_offset(const xn_conv *c, const Shape *s, int32_t chunk) {
    if (s->tap_words >= 4)
        return xn_gemm_unit_offset(c, chunk, s->plane, s->row_step, s->column_step);
    const int32_t row_chunks = s->chunks / c->kernel_h, i = chunk / row_chunks;
    return (int64_t)i * s->row_step +
           (int64_t)(chunk % row_chunks * 4 / s->tap_words) * s->column_step;
}

#endif
