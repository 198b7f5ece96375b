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
    XN_CPU_REAL_VALUES, /* float [XN_CPU_REAL_LANES] */
    XN_CPU_REAL_WORDS,  /* uint32 [XN_CPU_REAL_LANES]: a tile's signs */
    XN_CPU_REAL_ARRAYS
};

/* How panels get what their pixels have at a term. */
typedef enum xn_cpu_reading {
    XN_CPU_READ_IMAGE, /* packed from the image: columns are fp32, neighbours or every other one */
    XN_CPU_READ_ROWS,  /* packed from padded rows (rows.c) in shared scratch, copied for all taps */
    /* Not packed: read from such rows, with rows of padding above and below them, where every tap
     * of a vector of outputs lies `offset` from the first. Vectors then do not cross rows. */
    XN_CPU_READ_IN_PLACE,
} xn_cpu_reading;

/* A plan's. Output x reads, at tap column j, element rows.column[j] + x * source_stride of a row.
 */
typedef struct xn_cpu_real_state {
    xn_conv conv; /* the step's; of 1x1 kernels that leave nothing out, images are one row */
    xn_cpu_rows rows;
    xn_cpu_reading reading;
    int32_t top, height; /* of copied rows: those above the image, all */
    int64_t *offset;     /* [terms], owned: for READ_IN_PLACE */
    bool bytes;          /* bits are written tile by tile */
    int32_t wave;        /* images whose input is held in shared scratch at a time */
    int32_t tiles;       /* most tiles of filters of a unit */
    size_t offsets[XN_CPU_REAL_ARRAYS];
} xn_cpu_real_state;

/* The images of a wave. */
typedef struct xn_cpu_source {
    const xn_cpu_run *run;
    const xn_cpu_real_state *state;
    const xn_conv *conv;
    const xn_cpu_image *images; /* of the wave */
    int64_t count;
} xn_cpu_source;

/* The problem with images as one row, where that is the same. */
xn_conv xn_cpu_source_flat(const xn_conv *conv);
/* Whether panels may be packed from the image. */
bool xn_cpu_source_in_image(const xn_conv *conv);
/* Whether rows to read in place take little more room than the image. */
bool xn_cpu_source_fits_in_place(const xn_conv *conv);
/* Of state->conv and state->reading: sets the rest but tiles, adds to the sizes. */
xn_status xn_cpu_source_create(int64_t max_images, xn_cpu_real_state *state, xn_cpu_sizer *shared,
                               xn_cpu_sizer *slice, xn_error *error);
void xn_cpu_source_free(xn_cpu_real_state *state);
/* Copies the wave's rows, where they are copied. */
void xn_cpu_source_fill(const xn_cpu_source *source);

/* Row y of channel c (of all); rows of the next channel are source_next floats on. */
const float *xn_cpu_source_row(const xn_cpu_source *source, int64_t slot, int32_t c, int32_t y);

static inline int32_t xn_cpu_source_stride(const xn_cpu_source *source) {
    return source->state->reading == XN_CPU_READ_IMAGE ? source->conv->stride_w : 1;
}

static inline int64_t xn_cpu_source_next(const xn_cpu_source *source) {
    return source->state->reading == XN_CPU_READ_IMAGE
               ? (int64_t)source->conv->height * source->conv->width
               : (int64_t)source->state->height * source->state->rows.pitch;
}

/* ---- real_cost.c ---- */

double xn_cpu_real_cost_ns(const xn_step *step, const void *kernels);
/* How many pixels are left of full vectors, if so few that filters fill vectors better. */
int32_t xn_cpu_real_tail(int64_t outputs, int32_t lanes);
/* What panels are packed of, or that they are not: it takes rows of few terms, which L1 holds. */
xn_cpu_reading xn_cpu_real_reading(const xn_conv *conv, const xn_cpu_real_kernels *real);

#endif
