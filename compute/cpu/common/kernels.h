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

typedef struct xn_cpu_kernels {
    int byte_lanes; /* signs an instruction adds */

    /* dst[x] = sum of weights[t] * rows[t][x]. Vectors. */
    void (*sum_products)(const float *const *rows, const float *weights, int32_t count, int32_t n,
                         float *dst);
    bool (*all_finite)(const float *values, int32_t n);
    /* acc[x] += |src[x]|, in double. */
    void (*add_magnitude)(const float *src, int32_t n, double *acc);
    /* acc[x] += src[x * stride]. */
    void (*add_strided)(const double *src, int32_t stride, int32_t n, double *acc);
    /* dst[x] = acc[x] * factor * k[x] + bias; k NULL is 1. */
    void (*emit_i32)(const int32_t *acc, const float *k, float factor, float bias, int32_t n,
                     float *dst);
    void (*emit_f32)(const float *acc, float factor, float bias, int32_t n, float *dst);
    /* binary16, rounded to the nearest, ties to even; a NaN stays one. */
    void (*from_fp16)(const uint16_t *src, int32_t n, float *dst);
    void (*to_fp16)(const float *src, int32_t n, uint16_t *dst);
} xn_cpu_kernels;

extern const xn_cpu_kernels xn_cpu_kernels_portable;
#if defined(__x86_64__)
extern const xn_cpu_kernels xn_cpu_kernels_avx2, xn_cpu_kernels_avx512;
#elif defined(__aarch64__)
extern const xn_cpu_kernels xn_cpu_kernels_neon;
#endif

#endif
