/* real.h: what the files of the path real share.
 *
 *   real.c         blocked: a matrix product over panels of pixels, for any geometry
 *   real_source.c  the images as rows of fp32
 *   real_kernels.h its kernels
 *   terms.h        terms, their weights, sums again in double */
#ifndef XN_CPU_REAL_H
#define XN_CPU_REAL_H

#include "path.h"
#include "rows.h"
#include "terms.h"

/* Arrays in scratch. */
enum {
    XN_CPU_SOURCE_ROWS, /* shared: float [wave][C][H][pitch] */
    XN_CPU_SOURCE_TEMP, /* float [W] */
    XN_CPU_REAL_PANEL,  /* float [XN_CPU_REAL_TAPS][XN_CPU_REAL_LANES] */
    XN_CPU_REAL_SUMS,   /* float [tiles][XN_CPU_REAL_FILTERS][XN_CPU_REAL_LANES] */
    XN_CPU_REAL_REST,   /* the same */
    XN_CPU_REAL_VALUES, /* float [XN_CPU_REAL_FILTERS][XN_CPU_REAL_LANES] */
    XN_CPU_REAL_WORDS,  /* uint32 [XN_CPU_REAL_LANES]: a tile's signs */
    XN_CPU_REAL_ARRAYS
};

/* A plan's. Where columns are fp32 already, and neighbours of each other or every other one, rows
 * are read in place; else they are copied as padded rows (rows.c) into shared scratch, once for all
 * taps. Output x reads, at tap column j, element rows.column[j] + x * source_stride of a row. */
typedef struct xn_cpu_real_state {
    xn_cpu_rows rows;
    bool in_place;
    bool bytes;    /* bits are written tile by tile */
    int32_t wave;  /* images whose input is held in shared scratch at a time */
    int32_t tiles; /* most tiles of filters of a unit */
    size_t offset[XN_CPU_REAL_ARRAYS];
} xn_cpu_real_state;

/* The images of a wave. */
typedef struct xn_cpu_source {
    const xn_cpu_run *run;
    const xn_cpu_real_state *state;
    const xn_conv *conv;
    const xn_cpu_image *images; /* of the wave */
    int64_t count;
} xn_cpu_source;

/* Whether rows are read in place. */
bool xn_cpu_source_in_place(const xn_conv *conv);
/* Sets rows, in_place, wave and offsets, adds to the sizes. */
xn_status xn_cpu_source_create(const xn_conv *conv, int64_t max_images, xn_cpu_real_state *state,
                               xn_cpu_sizer *shared, xn_cpu_sizer *slice, xn_error *error);
/* Copies the wave's rows, where they are copied. */
void xn_cpu_source_fill(const xn_cpu_source *source);

/* Row y of channel c (of all); rows of the next channel are source_next floats on. */
const float *xn_cpu_source_row(const xn_cpu_source *source, int64_t slot, int32_t c, int32_t y);

static inline int32_t xn_cpu_source_stride(const xn_cpu_source *source) {
    return source->state->in_place ? source->conv->stride_w : 1;
}

static inline int64_t xn_cpu_source_next(const xn_cpu_source *source) {
    return (int64_t)source->conv->height *
           (source->state->in_place ? source->conv->width : source->state->rows.pitch);
}

#endif
