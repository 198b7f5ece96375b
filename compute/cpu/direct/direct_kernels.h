/* direct_kernels.h: the vector kernels of the path direct, a table for each instruction set;
 * direct_body.h is their one text. Pure functions of their arguments. Products are added in the
 * order of terms.h. */
#ifndef XN_CPU_DIRECT_KERNELS_H
#define XN_CPU_DIRECT_KERNELS_H

#include "xn_conv.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The most terms of a filter of shift_rows: one part. */
enum { XN_CPU_SHIFT_TAPS = 64 };

/* Rough times in ns (direct.c, cost_ns), fitted to measurements (NOTES.md). */
typedef struct xn_cpu_direct_costs {
    /* Rows in place: */
    double term;   /* of a vector, where the kernel is not the usual one, 3x3 on a channel */
    double vector; /* of outputs */
    double row;    /* of outputs */
    double plane;  /* of outputs */
    double weight;
    double input; /* an element */
    /* Rows copied: a term of a vector, an element of input, a row of it, a row of outputs. */
    double copied_term, copied_input, copied_row, written_row;
} xn_cpu_direct_costs;

typedef struct xn_cpu_direct_kernels {
    xn_cpu_direct_costs costs;
    int lanes; /* of a vector */
    /* v = sum * factor + bias of output rows [y, y + count) of a filter, one after another at `to`,
     * from its group's first channel: fp32, strides across of 1 and, without dilation, 2, filters
     * of up to SHIFT_TAPS terms. stream: past the caches, where whole vectors are aligned. Returns
     * false where a value is not finite. */
    bool (*shift_rows)(const xn_conv *conv, const float *from, const float *weights, int32_t y,
                       int32_t count, float factor, float bias, bool stream, float *to);
    /* sum[x] = the sum of weights[t] * rows[t][x], t < count, in parts of `part` terms. Reads and
     * writes run up to 64 elements past n. */
    void (*sum_products)(const float *const *rows, const float *weights, int32_t count,
                         int32_t part, int32_t n, float *sum);
} xn_cpu_direct_kernels;

extern const xn_cpu_direct_kernels xn_cpu_direct_portable;
#if defined(__x86_64__)
extern const xn_cpu_direct_kernels xn_cpu_direct_avx2, xn_cpu_direct_avx512;
#elif defined(__aarch64__)
extern const xn_cpu_direct_kernels xn_cpu_direct_neon;
#endif

#endif
