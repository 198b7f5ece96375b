/* gemm_plan.h: what gemm_wide_plan.cu, gemm_lines_plan.cu and gemm_rails_plan.cu share: whole
 * numbers of things, places in shared memory, the descriptors of positions. Host code. */
#ifndef XN_CUDA_GEMM_PLAN_H
#define XN_CUDA_GEMM_PLAN_H

#include "layout.h"

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

/* The offset of a chunk in the order of lines (layout.h), whose positions have 16 bytes a unit. */
template <typename Shape>
static inline int64_t xn_gemm_chunk_offset(const xn_conv *c, const Shape *s, int32_t chunk) {
    if (s->tap_words >= 4) {
        const int32_t taps = c->kernel_h * c->kernel_w, unit = chunk / taps, tap = chunk % taps;
        return (int64_t)unit * s->plane + (int64_t)(tap / c->kernel_w) * s->row_step +
               (int64_t)(tap % c->kernel_w) * s->column_step;
    }
    const int32_t row_chunks = s->chunks / c->kernel_h, i = chunk / row_chunks;
    return (int64_t)i * s->row_step +
           (int64_t)(chunk % row_chunks * 4 / s->tap_words) * s->column_step;
}

#endif
