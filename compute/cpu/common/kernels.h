/* kernels.h: the vector kernels that several paths use, as a table for each kind of machine. They
 * are pure functions of their arguments. */
#ifndef XN_CPU_KERNELS_H
#define XN_CPU_KERNELS_H

#include "activation.h"
#include "xn_conv.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What becomes of values v of one output channel (epilogue.h). Pointers are to the first one's
 * place. */
typedef struct xn_cpu_tail {
    xn_cpu_activation activation;
    float shift;
    int32_t datatype, residual_datatype; /* of real, XN_BITS: there is none; FP32 or FP16 */
    const void *residual;                /* or NULL */
    void *real;
    uint8_t *signs;  /* a byte each, 0 or 1; or NULL */
    uint32_t *words; /* or `bit` of a word each, set where the sign is 1; or NULL */
    uint32_t bit;
} xn_cpu_tail;

typedef struct xn_cpu_kernels {
    bool (*all_finite)(const float *values, int32_t n);
    /* acc[x] += |src[x]|, in double. */
    void (*add_magnitude)(const float *src, int32_t n, double *acc);
    /* acc[x] += src[x * stride]. */
    void (*add_strided)(const double *src, int32_t stride, int32_t n, double *acc);
    void (*add_floats)(const float *src, int32_t stride, int32_t n, float *acc);
    /* to[x] = src[x * stride]. */
    void (*copy_strided)(const float *src, int32_t stride, int32_t n, float *to);
    /* v[x] = acc[x] * factor * k[x] + bias; k NULL is 1. False where one is not finite. v is none
     * of the others. */
    bool (*values_i32)(const int32_t *acc, const float *k, float factor, float bias, int32_t n,
                       float *v);
    bool (*values_f32)(const float *acc, float factor, float bias, int32_t n, float *v);
    /* What it writes is nowhere that it reads. */
    void (*finish)(const float *v, int32_t n, const xn_cpu_tail *tail);
    /* words[x] bit c = signs[c * pitch + x], c < channels <= 32; other bits 0. */
    void (*join_signs)(const uint8_t *signs, size_t pitch, int32_t channels, int32_t n,
                       uint32_t *words);
    /* binary16, rounded to the nearest, ties to even; a NaN stays one. */
    void (*from_fp16)(const uint16_t *src, int32_t n, float *dst);
    void (*to_fp16)(const float *src, int32_t n, uint16_t *dst);
    /* bytes to memory past the cache; both addresses are at the same place in a line. */
    void (*copy)(const void *from, size_t bytes, void *to);
    /* After the last of the writes past the caches, before another thread reads them. */
    void (*flush)(void);
} xn_cpu_kernels;

extern const xn_cpu_kernels xn_cpu_kernels_portable;
#if defined(__x86_64__)
extern const xn_cpu_kernels xn_cpu_kernels_avx2, xn_cpu_kernels_avx512;
#elif defined(__aarch64__)
extern const xn_cpu_kernels xn_cpu_kernels_neon;
#endif

#endif
