/* kernels.h: the vector kernels, as a table for each kind of machine. They are pure functions of
 * their arguments. Where a text says "vectors", reads may run up to 64 elements past the end of a
 * row and writes up to 64 past n: the buffers have that slack (xn_cpu_take), what is there does
 * not matter. */
#ifndef XN_CPU_KERNELS_H
#define XN_CPU_KERNELS_H

#include "xn_conv.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define XN_CPU_LANES 16   /* output channels of a block of weights */
#define XN_CPU_SEGMENT 64 /* output pixels that dots() takes at a time, at most */

/* One group of one image, for dots(). */
typedef struct xn_cpu_dots {
    const xn_conv *conv;
    const uint32_t *pixels;  /* [H][W][words], the group's plane */
    const uint32_t *weights; /* [tap][word][LANES], one block */
    const int32_t *tap_ones; /* [tap][LANES] */
    int32_t words;
    int32_t inner_first, inner_last; /* outputs x whose tap columns are all inside the image */
} xn_cpu_dots;

typedef struct xn_cpu_kernels {
    const char *name; /* of the instruction set: "avx2" */
    int byte_lanes;   /* signs an instruction adds */
    double word_cost; /* instructions for one word of 16 output channels */

    /* sign[x] = +1 or -1 of src[x]. magnitude: NULL, or |src| is stored (add false) or added. */
    void (*split)(const float *src, int32_t n, bool add, int8_t *sign, float *magnitude);
    /* acc[x] = sum of taps[order[t]][x] over t < plus, minus the sum over plus <= t < count.
     * Vectors. */
    void (*sum_signs)(const int8_t *const *taps, const int32_t *order, int32_t plus, int32_t count,
                      int32_t n, int32_t *acc);
    /* dst[x] = factor * sum of rows[r][x]; count may be 0. Vectors. */
    void (*sum_rows)(const float *const *rows, int32_t count, int32_t n, float factor, float *dst);
    /* dst[x] = sum of weights[t] * rows[t][x], or of rows[t][x] with the sign of the weight
     * (signs). Vectors. */
    void (*sum_products)(const float *const *rows, const float *weights, int32_t count, int32_t n,
                         bool signs, float *dst);
    bool (*all_finite)(const float *values, int32_t n);
    /* bits[x] bit c = sign of src[c*stride + x], c < channels <= 32; the other bits 0. magnitude:
     * NULL, or [n] set to the sum of |src| over the channels. */
    void (*pack)(const float *src, int64_t stride, int32_t channels, int32_t n, uint32_t *bits,
                 float *magnitude);
    /* acc[x] += |src[x]|, in double. */
    void (*add_magnitude)(const float *src, int32_t n, double *acc);
    /* acc[x] += src[x * stride]. */
    void (*add_strided)(const double *src, int32_t stride, int32_t n, double *acc);
    /* dots[lane][x - x0] of output row y, x0 <= x < x0 + n, n <= SEGMENT, for the block's lanes. */
    void (*dots)(const xn_cpu_dots *job, int32_t y, int32_t x0, int32_t n,
                 int32_t dots[XN_CPU_LANES][XN_CPU_SEGMENT]);
    /* dst[x] = acc[x] * factor * k[x] + bias; k NULL is 1. */
    void (*emit_i32)(const int32_t *acc, const float *k, float factor, float bias, int32_t n,
                     float *dst);
    void (*emit_f32)(const float *acc, float factor, float bias, int32_t n, float *dst);
} xn_cpu_kernels;

/* ---- kernels_choose.c ---- */

/* The tables that this machine can run, best first; NULL past the last. There is always one. */
const xn_cpu_kernels *xn_cpu_kernels_at(int index);
/* The one of that name; NULL where this machine or this build lacks it. */
const xn_cpu_kernels *xn_cpu_kernels_find(const char *name);
/* Whether this machine has the instructions of a table. */
bool xn_cpu_kernels_run(const xn_cpu_kernels *kernels);

extern const xn_cpu_kernels xn_cpu_kernels_portable;
#if defined(__x86_64__)
extern const xn_cpu_kernels xn_cpu_kernels_avx2, xn_cpu_kernels_avx512,
    xn_cpu_kernels_avx512_shuffle;
#elif defined(__aarch64__)
extern const xn_cpu_kernels xn_cpu_kernels_neon;
#endif

#endif
