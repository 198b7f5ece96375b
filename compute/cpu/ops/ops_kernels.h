/* ops_kernels.h: the vector kernels of the steps that are no convolutions, a table for each
 * instruction set; ops_body.h is their one text. Pure functions of their arguments, and the same
 * operations in the same order in all sets. `step` is from one element read to the next. */
#ifndef XN_CPU_OPS_KERNELS_H
#define XN_CPU_OPS_KERNELS_H

#include "xn_op.h"

/* The accumulators of n values of a channel. gate: of mul; attributes: the step's. */
typedef void (*xn_cpu_element)(const float *src, const xn_attributes *attributes, float gate,
                               int32_t n, float *out);

typedef struct xn_cpu_ops_kernels {
    /* ---- windows ---- */

    /* The largest (least: the smallest) values; never NaN. Of columns: out[x] of rows[r][x],
     * r < count. */
    void (*extremes_down)(const float *const *rows, int32_t count, int32_t n, bool least,
                          float *out);
    /* Of out[x] of row[x * step + k * dilation], k < taps. */
    void (*extremes_across)(const float *row, int32_t taps, int32_t dilation, int32_t step,
                            int32_t n, bool least, float *out);
    /* Of acc and all of src. */
    float (*extreme_of)(const float *src, int32_t step, int32_t n, bool least, float acc);
    /* acc[x] += src[x], in double. */
    void (*add)(const float *src, int32_t n, double *acc);
    /* out[x] = the sum of rows[r][x * step + k * dilation], row by row, tap by tap. */
    void (*sums)(const float *const *rows, int32_t count, int32_t taps, int32_t dilation,
                 int32_t step, int32_t n, double *out);
    /* acc plus all of src, one after the other. */
    double (*sum_of)(const float *src, int32_t step, int32_t n, double acc);
    /* out[x] = sums[x] * (row * columns[x]), rounded to fp32. */
    void (*means)(const double *sums, double row, const double *columns, int32_t n, float *out);
    /* Means of windows of 2 by 2, 2 apart: out[y * n + x] of rows 2 * y and 2 * y + 1 of src, which
     * are `width` apart. The sum is in the order of `sums`; times scale. */
    void (*means_of_4)(const float *src, int64_t width, int32_t rows, int32_t n, double scale,
                       float *out);
    /* Of `planes` planes of src, one after another, the mean of all n: the sum in their order. */
    void (*means_of_planes)(const float *src, int32_t planes, int32_t n, double scale, float *out);
    /* acc[x] |= src[x * step]; all: &=. */
    void (*join)(const uint32_t *src, int32_t step, int32_t n, bool all, uint32_t *acc);

    /* ---- elements ---- */

    /* By kind of step; NULL for map, and for kinds that do not take values by themselves. */
    xn_cpu_element element[XN_STEP_KIND_COUNT];
    /* v[x] = exp(v[x] - less[x]), or less[0] for all. */
    void (*exps)(const float *less, bool same, int32_t n, float *v);
    /* v[x] /= by[x], or by[0] for all. */
    void (*divide)(const double *by, bool same, int32_t n, float *v);

    /* ---- reading ---- */

    void (*from_bytes)(const uint8_t *src, int32_t n, float *out);
    /* out[x] = 1 where the bit of words[x] is set, else -1. */
    void (*from_bits)(const uint32_t *words, uint32_t bit, int32_t n, float *out);
    /* out[x] = src[x * step]. */
    void (*every)(const float *src, int32_t step, int32_t n, float *out);
} xn_cpu_ops_kernels;

extern const xn_cpu_ops_kernels xn_cpu_ops_portable;
#if defined(__x86_64__)
extern const xn_cpu_ops_kernels xn_cpu_ops_avx2, xn_cpu_ops_avx512;
#elif defined(__aarch64__)
extern const xn_cpu_ops_kernels xn_cpu_ops_neon;
#endif

#endif
