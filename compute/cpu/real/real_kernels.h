/* real_kernels.h: the vector kernels of modes bwn and float, a table for each instruction set;
 * real_body.h is their one text. Pure functions of their arguments.
 *
 * They multiply a panel by weights, as the inner part of a matrix product:
 *
 *   pixels   [terms][lanes]: a lane is an output pixel, a row what each pixel has at one term; a
 *            panel, or where the images' rows lie
 *   weights  [terms][XN_CPU_REAL_FILTERS]: those of a tile, filters that are computed together
 *   sums     [XN_CPU_REAL_FILTERS][lanes] */
#ifndef XN_CPU_REAL_KERNELS_H
#define XN_CPU_REAL_KERNELS_H

#include "xn_conv.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    XN_CPU_REAL_FILTERS = 8,
    XN_CPU_REAL_TAPS = 128,
    XN_CPU_REAL_VECTORS = 3,
    XN_CPU_REAL_LANES = 48, /* the most lanes of a panel, of all tables */
    XN_CPU_MOVE_LANES = 16,
    XN_CPU_REAL_TAIL = 4, /* the most pixels of multiply_tail */
};

/* A piece of a panel row: up to MOVE_LANES columns of an image row, each or every other one. Lane
 * `to` + l gets from[l * stride] where bit l * stride of `inside` is set, the pad value elsewhere;
 * what is read has its bit set. All MOVE_LANES lanes are written, so moves go in the order of their
 * lanes. */
typedef struct xn_cpu_move {
    const float *from;
    int32_t to;
    uint32_t inside;
} xn_cpu_move;

/* What lanes have at term k: a vector v of lanes from[v][k * next ..]; with offsets
 * from[v][offset[k] ..]. */
typedef struct xn_cpu_pixels {
    const float *from[XN_CPU_REAL_VECTORS];
    int32_t vectors;
    int64_t next;
    const int64_t *offset; /* or NULL */
} xn_cpu_pixels;

/* What becomes of a tile's sums: to[f * pitch + lane] = sum * factor[f] + bias[f], f from 0 to
 * count, which are the tile's filters from `first` on. */
typedef struct xn_cpu_values {
    const float *factor, *bias;
    float *to;
    int64_t pitch;
    int32_t first, count; /* filters of the tile */
} xn_cpu_values;

/* Rough times in ns (real.c, cost_ns), fitted to measurements (NOTES.md). */
typedef struct xn_cpu_real_costs {
    double multiply; /* of a vector, a term and a filter of a tile, there or not */
    double pack;     /* of a vector and a term */
    double tap;      /* of a group: finding what panels and rows of outputs read there */
    double tile;     /* of a vector: its sums and what becomes of them */
    double output;
    double copy; /* of an element of input, where it is not read in place */
    double panel;
} xn_cpu_real_costs;

typedef struct xn_cpu_real_kernels {
    xn_cpu_real_costs costs;
    int lanes; /* of a vector */
    int most;  /* vectors of a panel */
    /* Panel rows of a tap: `rows` of them, one a channel, whose images are `next` floats apart.
     * stride is that of the moves, 1 or 2. */
    void (*pack)(const xn_cpu_move *moves, int32_t count, int32_t stride, int64_t next,
                 int32_t rows, float pad, float *panel, int32_t pitch);
    /* A part of a tile's sums, `terms` of them: part 0 sets the sums, others are added to them.
     * sums, rest: [XN_CPU_REAL_FILTERS][vectors of lanes]; rest is what rounding took from them,
     * which no part 0 sets and no part 1 reads. values: NULL, or what to make of the sums, with
     * which this part completes them, instead of storing them. Returns false where a value is not
     * finite: what it wrote is then to be written again, in double. */
    bool (*multiply)(const xn_cpu_pixels *pixels, int32_t terms, const float *weights, int32_t part,
                     float *sums, float *rest, const xn_cpu_values *values);
    /* The same of up to XN_CPU_REAL_TAIL pixels alone, the first lanes of one vector, for `tiles`
     * tiles, whose weights are tile_floats apart: lanes are filters instead. The sums are in their
     * places when the last part is done; until then, they and rest are the kernel's own. */
    void (*multiply_tail)(const xn_cpu_pixels *pixels, int32_t count, int32_t terms,
                          const float *weights, int64_t tile_floats, int32_t tiles, int32_t part,
                          bool last, float *sums, float *rest);
} xn_cpu_real_kernels;

extern const xn_cpu_real_kernels xn_cpu_real_portable;
#if defined(__x86_64__)
extern const xn_cpu_real_kernels xn_cpu_real_avx2, xn_cpu_real_avx512;
#elif defined(__aarch64__)
extern const xn_cpu_real_kernels xn_cpu_real_neon;
#endif

#endif
