/* stem_kernels.h: the kernels of the path stem, a table for each instruction set; stem_body.h is
 * their one text. Pure functions of their arguments, whose results are the same bits on all.
 *
 *   patches  what each output sees, whole numbers from 0 to 255: [pixels][terms]
 *   weights  [filters][terms]; terms are a multiple of XN_CPU_STEM_TERMS
 *   sums     [filters][pitch] */
#ifndef XN_CPU_STEM_KERNELS_H
#define XN_CPU_STEM_KERNELS_H

#include <stdint.h>

enum {
    XN_CPU_STEM_TERMS = 32,
    XN_CPU_STEM_FILTERS = 4, /* filters are a multiple of that */
    XN_CPU_STEM_LOW = 2048,  /* m of 22 bits is high * that + low (xn_planes.h) */
};

typedef struct xn_cpu_stem_kernels {
    double term_ns; /* a product (stem.c, cost_ns) */
    void (*multiply)(const int16_t *patches, int32_t pixels, int32_t terms, const int16_t *weights,
                     int32_t filters, int32_t *sums, int32_t pitch);
    /* v = fp32(low, or with high: high * XN_CPU_STEM_LOW + low) * scale + border, one rounding
     * behind the first. high: NULL, or as low. */
    void (*values)(const int32_t *low, const int32_t *high, float scale, float border, int32_t n,
                   float *v);
    /* most[x] = the larger of most[x] and v[x]. */
    void (*larger)(const float *v, int32_t n, float *most);
} xn_cpu_stem_kernels;

extern const xn_cpu_stem_kernels xn_cpu_stem_portable;
#if defined(__x86_64__)
extern const xn_cpu_stem_kernels xn_cpu_stem_avx2, xn_cpu_stem_avx512;
#elif defined(__aarch64__)
extern const xn_cpu_stem_kernels xn_cpu_stem_neon;
#endif

#endif
