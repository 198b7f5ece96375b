/* dense_kernels.h: the vector kernels of the path dense, a table for each instruction set;
 * dense_body.h is their one text. Pure functions of their arguments.
 *
 *   points   what each output pixel sees of its image: [terms], contiguous
 *   weights  [terms][XN_CPU_DENSE_FILTERS]: those of a block, filters that are computed together
 *   sums     [points][XN_CPU_DENSE_FILTERS] */
#ifndef XN_CPU_DENSE_KERNELS_H
#define XN_CPU_DENSE_KERNELS_H

#include <stdbool.h>
#include <stdint.h>

enum { XN_CPU_DENSE_FILTERS = 48 };

/* Rough times in ns (dense.c, cost_ns). */
typedef struct xn_cpu_dense_costs {
    double weight; /* of one that one pixel alone is multiplied by: to read it */
    double output;
    double gather; /* of a term that is not where it is read */
} xn_cpu_dense_costs;

typedef struct xn_cpu_dense_kernels {
    xn_cpu_dense_costs costs;
    int most; /* points of a call */
    /* A part of a block's sums, `terms` of them: part 0 sets the sums, others are added to them.
     * rest, as sums, is what rounding took from them, which no part 0 sets and no part 1 reads. */
    void (*multiply)(const float *const *points, int32_t count, int32_t terms, const float *weights,
                     int32_t part, float *sums, float *rest);
    /* out[f] = sums[f] * factor[f] + bias[f] for n filters. False where one is not finite. */
    bool (*finish)(const float *sums, const float *factor, const float *bias, int32_t n,
                   float *out);
} xn_cpu_dense_kernels;

extern const xn_cpu_dense_kernels xn_cpu_dense_portable;
#if defined(__x86_64__)
extern const xn_cpu_dense_kernels xn_cpu_dense_avx2, xn_cpu_dense_avx512;
#elif defined(__aarch64__)
extern const xn_cpu_dense_kernels xn_cpu_dense_neon;
#endif

#endif
