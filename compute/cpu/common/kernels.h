/* kernels.h: the vector kernels that several paths use, as a table for each kind of machine. They
 * are pure functions of their arguments. */
#ifndef XN_CPU_KERNELS_H
#define XN_CPU_KERNELS_H

#include "xn_conv.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What becomes of values v (epilogue.h) of some output channels, a row each. Pointers are to the
 * first one's place in the first row; residual, real and signs of the next row are `pitch` elements
 * on. */
enum { XN_CPU_MOST_ROWS = 32 };
typedef struct xn_cpu_tail {
    int32_t activation;                  /* xn_activation */
    float low, high;                     /* of clip */
    const float *slope;                  /* [rows], of prelu */
    const float *shift;                  /* [rows] */
    int32_t datatype, residual_datatype; /* of real, XN_BITS: there is none; FP32 or FP16 */
    const void *residual;                /* or NULL */
    void *real;
    uint8_t *signs; /* a byte each, 0 or 1; or NULL */
    size_t pitch;
    uint32_t *words; /* or `bit` << row of a word each, set where the sign is 1; or NULL */
    uint32_t bit;
    bool past_caches; /* what is fp32 values alone: rows of real are aligned to a line */
} xn_cpu_tail;

/* What values v are made of, rows `pitch` apart: they are there; or v = acc * factor * k + bias of
 * sums (float) or of dots (int32), which alone have k, one row of it, and where it is NULL it is 1.
 */
typedef enum { XN_CPU_VALUES, XN_CPU_SUMS, XN_CPU_DOTS } xn_cpu_acc_kind;
typedef struct xn_cpu_acc {
    xn_cpu_acc_kind kind;
    const void *from;
    size_t pitch;
    const float *k;
    const float *factor, *bias; /* [rows] */
} xn_cpu_acc;

typedef struct xn_cpu_kernels {
    bool (*all_finite)(const float *values, int32_t n);
    /* acc[x] += |src[x]|, in double. */
    void (*add_magnitude)(const float *src, int32_t n, double *acc);
    /* acc[x] += src[x * stride]. */
    void (*add_strided)(const double *src, int32_t stride, int32_t n, double *acc);
    void (*add_floats)(const float *src, int32_t stride, int32_t n, float *acc);
    /* to[x] = src[x * stride]. */
    void (*copy_strided)(const float *src, int32_t stride, int32_t n, float *to);
    /* What it writes is nowhere that it reads. False where a v that it has made is not finite. */
    bool (*finish)(const xn_cpu_acc *acc, int32_t rows, int32_t n, const xn_cpu_tail *tail);
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
