/* stem_body.h: the kernels of stem_kernels.h, for the instruction set that they are compiled for.
 * The including file defines STEM_KERNELS and TERM_NS. */
#include "stem_kernels.h"

#include <math.h>
#include <stddef.h>

/* The sums of 4 filters at a pixel: compilers make multiply-and-add of pairs of int16 of it. */
static void multiply_four(const int16_t *restrict patch, const int16_t *restrict weights,
                          int32_t terms, int32_t *restrict sums, size_t pitch) {
    const int16_t *w1 = weights + terms, *w2 = w1 + terms, *w3 = w2 + terms;
    int32_t a = 0, b = 0, c = 0, d = 0;
    for (int32_t k = 0; k < terms; k++) {
        a += patch[k] * weights[k];
        b += patch[k] * w1[k];
        c += patch[k] * w2[k];
        d += patch[k] * w3[k];
    }
    sums[0] = a;
    sums[pitch] = b;
    sums[2 * pitch] = c;
    sums[3 * pitch] = d;
}

static void multiply(const int16_t *patches, int32_t pixels, int32_t terms, const int16_t *weights,
                     int32_t filters, int32_t *sums, int32_t pitch) {
    for (int32_t f = 0; f < filters; f += XN_CPU_STEM_FILTERS)
        for (int32_t x = 0; x < pixels; x++)
            multiply_four(patches + (size_t)x * (size_t)terms, weights + (size_t)f * (size_t)terms,
                          terms, sums + (size_t)f * (size_t)pitch + x, (size_t)pitch);
}

static void values(const int32_t *low, const int32_t *high, float scale, float border, int32_t n,
                   float *v) {
    if (high)
        for (int32_t x = 0; x < n; x++)
            v[x] = fmaf((float)(high[x] * (int64_t)XN_CPU_STEM_LOW + low[x]), scale, border);
    else
        for (int32_t x = 0; x < n; x++)
            v[x] = fmaf((float)low[x], scale, border);
}

static void larger(const float *v, int32_t n, float *most) {
    for (int32_t x = 0; x < n; x++)
        most[x] = v[x] > most[x] ? v[x] : most[x];
}

const xn_cpu_stem_kernels STEM_KERNELS = {TERM_NS, multiply, values, larger};
