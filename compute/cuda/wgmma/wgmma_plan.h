/* wgmma_plan.h: how a shape of a wgmma kernel is found: all that may serve are laid out in shared
 * memory and given a time by a small model, and the cheapest is taken. Host code without a device.
 *
 * A model has five terms, in cycles of the busiest multiprocessor; a launch takes start and the
 * largest of the others. Instructions of a warp are counted in the kernel's machine code, what one
 * takes is measured; good to about a quarter, which orders the shapes of one kernel. */
#ifndef XN_CUDA_WGMMA_PLAN_H
#define XN_CUDA_WGMMA_PLAN_H

#include "epilogue.cuh"
#include "wgmma.h"

#include <algorithm>
#include <math.h>

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

/* Whether a block may have so much, which is then what it has. */
static inline bool xn_wgmma_has_room(int64_t total, xn_wgmma_shape *s) {
    s->bytes = (int32_t)std::min<int64_t>(total, INT32_MAX);
    return total <= XN_CUDA_WGMMA_SHARED_BYTES;
}

/* Mode xnor, groups of whole words of filters, and nothing done to INT32 on the way. */
static inline bool xn_wgmma_can(const xn_conv *c) {
    return c->mode == XN_MODE_XNOR && (c->groups == 1 || c->group_out_channels % 32 == 0) &&
           (c->epilogue.datatype != XN_INT32 || xn_is_plain(c->epilogue));
}

/* ---- positions ---- */

/* The order of chunks (layout.h) is such that the second of a pair is never before the first. Where
 * their number is odd the filters have a chunk of zeros, whatever the positions hold.
 * offset[chunk]: positions from the first to those of a chunk. */
template <typename Shape>
static inline void xn_wgmma_make_pairs(Shape *s, const int32_t *offset) {
    for (int32_t pair = 0; pair < s->pairs; pair++) {
        const int32_t first = offset[2 * pair];
        const int32_t second = 2 * pair + 1 < s->chunks ? offset[2 * pair + 1] : first;
        s->pair_low[pair] = (uint32_t)first | (uint32_t)(second - first) << 16;
    }
}

/* Chunks a filter has; false where there are too many. */
static inline bool xn_wgmma_set_chunks(int64_t chunks, xn_wgmma_shape *s) {
    s->chunks = (int32_t)std::min<int64_t>(chunks, INT32_MAX - 1);
    s->pairs = (s->chunks + 1) / 2;
    return chunks <= 2 * XN_WGMMA_MAX_PAIRS;
}

/* ---- the search ---- */

/* What a launch takes by the plan's model, in cycles: start, and the largest of the others. */
struct xn_wgmma_terms {
    double start;  /* before the first product, after the last output */
    double matrix; /* products */
    double issue;  /* instructions of all warps */
    double memory; /* filters and outputs */
    double chain;  /* what one warpgroup does one after the other */
};

/* The cheapest shape so far. */
template <typename Shape>
struct xn_wgmma_choice {
    Shape *best;
    bool found;

    void consider(Shape *s, const xn_wgmma_terms &terms) {
        s->cycles = terms.start + std::max(std::max(terms.matrix, terms.issue),
                                           std::max(terms.memory, terms.chain));
        if (!found || s->cycles < best->cycles)
            *best = *s;
        found = true;
    }
};

/* Bands of all heights, then of whole images: try_band for each. */
template <typename Shape, typename Try>
static inline void xn_wgmma_each_band(const xn_conv *c, int64_t images, int32_t pitch, Shape *s,
                                      Try try_band) {
    s->images = 1;
    s->whole = false;
    for (s->rows = std::min(c->out_height, s->positions / pitch + 1); s->rows > 0; s->rows--)
        try_band();
    s->rows = c->out_height;
    s->whole = true;
    for (s->images = 1; s->images <= images && s->images <= s->positions; s->images++)
        try_band();
}

/* The blocks, and all depths of the pipeline: places in shared memory for bands. Barriers have one
 * bit for whose turn a place is: who takes every n-th band may not be two of a place's bands ahead,
 * so at least n places (`least`), and a multiple of those that multiply by turns (`unit`), since
 * one of them may be behind the other. try_memory lays out and considers. */
template <typename Shape, typename Try>
static inline void xn_wgmma_each_depth(const xn_conv *c, int64_t blocks, int32_t most_depth,
                                       int32_t least, int32_t unit, Shape *s, Try try_memory) {
    const int64_t others = (int64_t)s->filter_blocks * c->groups;
    if (s->filter_blocks > UINT16_MAX || c->groups > UINT16_MAX)
        return;
    s->pixel_blocks = (int32_t)std::max<int64_t>(std::min<int64_t>(blocks / others, s->bands), 1);
    const int32_t most = (int32_t)xn_quotient_up(s->bands, s->pixel_blocks);
    for (s->depth = std::min(most, most_depth); s->depth >= std::min(most, least); s->depth--)
        if (s->depth >= most || s->depth % unit == 0)
            try_memory();
}

#endif
