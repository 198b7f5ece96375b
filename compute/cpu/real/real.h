/* real.h: what the files of modes bwn and float share.
 *
 *   real_source.c  the images as rows of fp32; sums again in double where fp32 overflowed
 *   real_pack.c    weights in the order of the kernels
 *   real.c         blocked: a matrix product over panels of pixels, for any geometry
 *   direct.c       sums of shifted planes, for few filters a group (depth-wise)
 *   real_kernels.h the kernels of real.c
 *
 * A tap is a kernel position; a term, a tap of one channel. Terms are numbered tap by tap, channels
 * within (term = tap * C/groups + channel), so that what is found out for a tap serves all
 * channels. They are cut into parts of equal length, of at most XN_CPU_REAL_TAPS. */
#ifndef XN_CPU_REAL_H
#define XN_CPU_REAL_H

#include "cpu.h"

#include <assert.h>

/* Outputs of a run from so many bytes on are written past the caches: more than stays there. */
#define XN_CPU_REAL_STREAM_BYTES (8u << 20)

/* ---- real_pack.c ---- */

/* Terms of a part; the last part may have fewer. */
static inline int32_t xn_cpu_part_terms(int32_t filter) {
    return (int32_t)xn_cpu_div_up(filter, xn_cpu_div_up(filter, XN_CPU_REAL_TAPS));
}

static inline int32_t xn_cpu_real_tiles(int32_t out_channels) {
    return (int32_t)xn_cpu_div_up(out_channels, XN_CPU_REAL_FILTERS);
}

/* Where the weights of a mode are once a plan has wanted them. */
static inline _Atomic(float *) *xn_cpu_real_slot(const xn_prepared *p, xn_mode mode) {
    return mode == XN_MODE_BWN ? &p->on_demand->sign : &p->on_demand->real;
}

/* The weights of terms first.. of a part, for tiles from `tile` on: real_kernels.h's order. first
 * is a multiple of part_terms. */
static inline const float *xn_cpu_real_part(const xn_prepared *p, xn_mode mode, int32_t tile,
                                            int32_t first) {
    const float *weights = atomic_load_explicit(xn_cpu_real_slot(p, mode), memory_order_relaxed);
    assert(weights); /* weights_ready came before */
    int32_t terms = (int32_t)xn_cpu_min(xn_cpu_part_terms(p->filter), p->filter - first);
    return weights + ((size_t)first * (size_t)xn_cpu_real_tiles(p->out_channels) +
                      (size_t)tile * (size_t)terms) *
                         XN_CPU_REAL_FILTERS;
}

/* One weight. */
static inline float xn_cpu_real_weight(const xn_prepared *p, xn_mode mode, int32_t o, int32_t c,
                                       int32_t tap) {
    int32_t term = tap * p->group_channels + c, first = term - term % xn_cpu_part_terms(p->filter);
    return xn_cpu_real_part(
        p, mode, o / XN_CPU_REAL_FILTERS,
        first)[(size_t)(term - first) * XN_CPU_REAL_FILTERS + (size_t)(o % XN_CPU_REAL_FILTERS)];
}

/* ---- real_source.c ---- */

/* The images of a wave. Where columns are fp32 already, and neighbours of each other or every other
 * one, rows are read in place; else they are copied as padded rows (rows.c) into shared scratch,
 * once for all taps. Output x reads, at tap column j, element plan->rows.column[j] + x *
 * source_stride of a row. */
typedef struct xn_cpu_source {
    const xn_cpu_run *run;
    const xn_plan *plan;
    const xn_conv *conv;
    const xn_cpu_image *images; /* of the wave */
    int64_t count;
} xn_cpu_source;

/* Of plan->offset: the first are the source's, those from OFFSETS on the path's. */
enum {
    XN_CPU_SOURCE_ROWS, /* shared: float [wave][C][H][pitch] */
    XN_CPU_SOURCE_TEMP, /* float [W] */
    XN_CPU_SOURCE_OFFSETS,
};

/* Adds what a source needs to the sizes of a plan and sets rows, in_place and wave. */
xn_status xn_cpu_source_layout(xn_plan *plan, xn_cpu_sizer *shared, xn_cpu_sizer *slice,
                               xn_error *error);
/* Copies the wave's rows, where they are copied. */
void xn_cpu_source_fill(const xn_cpu_source *source);

/* Row y of channel c (of all); rows of the next channel are source_next floats on. */
const float *xn_cpu_source_row(const xn_cpu_source *source, int64_t slot, int32_t c, int32_t y);

static inline int32_t xn_cpu_source_stride(const xn_plan *plan) {
    return plan->in_place ? plan->conv.stride_w : 1;
}

static inline int64_t xn_cpu_source_next(const xn_plan *plan) {
    return (int64_t)plan->conv.height * (plan->in_place ? plan->conv.width : plan->rows.pitch);
}

/* One row of an image as a padded row of the plan. */
void xn_cpu_real_copy_row(const xn_plan *plan, const float *row, float *to);

/* The sums of filter o at n outputs from column x of row y on, in double and from the image itself,
 * each tap added only to the outputs where it counts. temp: [W]. */
void xn_cpu_real_exact(const xn_conv *conv, const xn_prepared *prepared, const unsigned char *input,
                       int32_t o, int32_t y, int32_t x, int32_t n, float *temp, double *sums);

#endif
