/* stem_kernels.h: the kernels of the path stem, a table for each instruction set. Pure functions of
 * their arguments, whose results are the same bits on all.
 *
 *   words    the bytes under each output, 4 terms a word: [count][columns]
 *   weights  in one of two packings
 *   values   fp32 of the exact sum of m * u, times scale, plus border, rounded once each:
 *            [filters][columns] */
#ifndef XN_CPU_STEM_KERNELS_H
#define XN_CPU_STEM_KERNELS_H

#include <stdint.h>

enum {
    XN_CPU_STEM_UNIT = 16,    /* columns, filters and words of a filter come in multiples of that */
    XN_CPU_STEM_TOGETHER = 2, /* filters of a tile of halves */
    XN_CPU_STEM_HALF = 2048,
    XN_CPU_STEM_LOW = 1 << 14, /* a sum is high * that + low (stem_body.h) */
};

/* How the weights m of 15 or 22 bits (xn_planes.h) lie. */
typedef enum {
    /* int16 [filters / TOGETHER][words][TOGETHER][part][4 terms]: m itself, or two of them,
     * m = second * XN_CPU_STEM_HALF + first. The terms of a word are in the order 0, 2, 1, 3: the
     * even bytes of a word meet one pair, the odd ones the other. */
    XN_CPU_STEM_HALVES,
    /* int8 [plane][filters][words][4 terms]: the planes of xn_planes.h. */
    XN_CPU_STEM_BYTES,
    XN_CPU_STEM_PACKINGS
} xn_cpu_stem_packing;

typedef struct xn_cpu_stem_product {
    const uint32_t *words; /* readable to a multiple of XN_CPU_STEM_UNIT rows */
    const void *weights;
    int32_t count, columns, filters; /* count as it is, the others in whole units */
    int32_t planes;                  /* of xn_planes.h: 2 or 3 */
    const float *scale, *border;     /* [filters], [filters][columns] */
} xn_cpu_stem_product;

typedef struct xn_cpu_stem_kernels {
    double term_ns; /* of a product by one plane (stem.c, cost_ns) */
    xn_cpu_stem_packing packing;
    void (*multiply)(const xn_cpu_stem_product *product, float *values);
    /* The largest of windows of 3 rows, of which some may be the same, by 3 columns, 2 apart, from
     * one before the first on, which is as the first. NaN counts less than anything else. It writes
     * and reads to a whole unit. */
    void (*pool)(const float *const rows[3], int32_t out_width, float *largest);
} xn_cpu_stem_kernels;

/* Words of a row of weights: a filter's, in whole units. */
static inline int32_t xn_cpu_stem_pitch(int32_t count) {
    return (count + XN_CPU_STEM_UNIT - 1) / XN_CPU_STEM_UNIT * XN_CPU_STEM_UNIT;
}

extern const xn_cpu_stem_kernels xn_cpu_stem_portable;
#if defined(__x86_64__)
extern const xn_cpu_stem_kernels xn_cpu_stem_avx2, xn_cpu_stem_avx512, xn_cpu_stem_vpopcnt,
    xn_cpu_stem_amx;
#elif defined(__aarch64__)
extern const xn_cpu_stem_kernels xn_cpu_stem_neon;
#endif

#endif
