/* ops.h: what the files of the steps that are no convolutions share: pools, and what takes elements
 * or pixels by themselves. There is one way to run them on each instruction set.
 *
 *   ops.c       plans and runs
 *   ops_emit.c  the epilogue of a channel's accumulators
 *   ops_read.c  channels of the input as fp32
 *   ops_pool.c  pools
 *   ops_map.c   map, mul, sigmoid, quantize, softmax
 *   ops_kernels.h  its kernels
 *
 * A unit of work is a block of 32 channels, a word of bits, and some pixels of an image (softmax:
 * all channels). A channel's pixels are read as fp32, in place where they are that, become
 * accumulators, and go through the epilogue while they are in L1; their signs are gathered in
 * words, a pixel each, which are written when the block is done. */
#ifndef XN_CPU_OPS_H
#define XN_CPU_OPS_H

#include "ops_kernels.h"
#include "path.h"

enum { XN_CPU_OPS_BLOCK = 32 };

/* The arrays of a thread's slice. */
enum {
    XN_CPU_OPS_IN_WORDS, /* uint32 [reach]: of input bits, the block's channels */
    XN_CPU_OPS_PIXELS,   /* float [reach][block]: of NHWC input, the same */
    XN_CPU_OPS_FLOATS,   /* float [reach]: a channel that is not read in place */
    XN_CPU_OPS_ACC,      /* float [chunk]; softmax: [C][chunk] */
    XN_CPU_OPS_VALUES,   /* float [chunk] */
    XN_CPU_OPS_WORDS,    /* uint32 [chunk], where bits are written */
    XN_CPU_OPS_ROWS,     /* const float *[KH] of pools */
    XN_CPU_OPS_ROW,      /* float [W] and double [OW] of pools, float [chunk] of softmax */
    XN_CPU_OPS_SUMS,     /* double [max(OW, chunk)] of pools and softmax */
    XN_CPU_OPS_ARRAYS
};

/* A plan's. */
typedef struct xn_cpu_ops_state {
    xn_conv conv;                    /* the step's, of one group */
    double *columns;                 /* avg_pool: [OW], owned: 1 / the columns that a sum is of */
    int32_t inner_first, inner_last; /* outputs of a row of a pool, see ops_pool.c */
    bool by_4, by_planes;            /* avg_pool: the usual ones, the same */
    int32_t chunk;                   /* most output pixels of a unit; of a pool whole rows */
    size_t offset[XN_CPU_OPS_ARRAYS];
} xn_cpu_ops_state;

typedef struct xn_cpu_ops_job {
    const xn_cpu_run *run;
    const xn_step *step;
    const xn_conv *conv; /* of one group */
    const xn_cpu_ops_state *state;
    const xn_cpu_ops_kernels *kernels;
    const xn_cpu_image *images;
    int64_t blocks, chunks; /* of an image */
    int32_t chunk;          /* output pixels of a unit, of a pool rows */
    bool linear;            /* there is a factor or a bias */
} xn_cpu_ops_job;

typedef struct xn_cpu_ops_unit {
    const xn_cpu_ops_job *j;
    const xn_cpu_image *image;
    unsigned char *slice;
    int32_t first, last; /* channels of the block */
    int64_t pixel;       /* of the input: [pixel, pixel + n) are read */
    int32_t n;
    int64_t out_pixel; /* of the output: [out_pixel, out_pixel + out_n) are written */
    int32_t out_n;
} xn_cpu_ops_unit;

static inline void *xn_cpu_ops_own(const xn_cpu_ops_unit *u, int array) {
    return u->slice + u->j->state->offset[array];
}

/* ---- ops_emit.c ---- */

/* Begins and ends a block's outputs: its words of bits. */
void xn_cpu_ops_begin(const xn_cpu_ops_unit *unit);
void xn_cpu_ops_end(const xn_cpu_ops_unit *unit);
/* The outputs of channel c, from their accumulators. */
void xn_cpu_ops_emit(const xn_cpu_ops_unit *unit, int32_t c, const float *acc);

/* ---- ops_read.c ---- */

/* Makes the unit's pixels ready, and one channel of them after another. */
void xn_cpu_ops_open(const xn_cpu_ops_unit *unit);
const float *xn_cpu_ops_channel(const xn_cpu_ops_unit *unit, int32_t c);
/* Several, where the unit's pixels are all of them: one after another. */
const float *xn_cpu_ops_channels(const xn_cpu_ops_unit *unit, int32_t c, int32_t count);

/* ---- ops_pool.c, ops_map.c: a unit ---- */

void xn_cpu_ops_pool(xn_cpu_ops_unit *unit);
void xn_cpu_ops_map(xn_cpu_ops_unit *unit);
void xn_cpu_ops_softmax(xn_cpu_ops_unit *unit);

/* Input rows [*first, *last) that are under output rows [y, y + rows). */
void xn_cpu_ops_rows_under(const xn_conv *conv, int32_t y, int32_t rows, int32_t *first,
                           int32_t *last);
/* Of the state: */
void xn_cpu_ops_find_inner(const xn_step *step, xn_cpu_ops_state *state);
void xn_cpu_ops_count_columns(const xn_step *step, double *columns);

#endif
