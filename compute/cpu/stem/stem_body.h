/* stem_body.h: the kernels of stem_kernels.h, for the instruction set that they are compiled for.
 * The including file defines STEM_KERNELS, TERM_NS, VECTOR_BYTES, PACKING and PRODUCTS, the header
 * that multiplies weights in that packing.
 *
 * A sum of products has up to 38 bits, S = high * 2^14 + low with low from 0 to 2^14 - 1. high has
 * 24 bits, for |m| <= 127 * 128^2, u <= 255 and a filter has at most 512 terms. So both are exact
 * in fp32, and so is high * 2^14: one addition rounds S. */
#include "stem_kernels.h"
#include "vectors.h"

/* fp32 of high * XN_CPU_STEM_LOW + low, whatever 31 bits low has. */
INLINE vector_f32 joined(vector_i32 high, vector_i32 low) {
    high += low >> 14;
    low &= XN_CPU_STEM_LOW - 1;
    return __builtin_convertvector(high, vector_f32) * (float)XN_CPU_STEM_LOW +
           __builtin_convertvector(low, vector_f32);
}

#include PRODUCTS

static void values(float scale, float border, int32_t n, float *v) {
    for (int32_t x = 0; x < n; x++)
        v[x] = fmaf(v[x], scale, border);
}

static float larger(float a, float b) {
    return a > b ? a : b;
}

static void pool(const float *const rows[3], int32_t width, int32_t out_width, float *restrict most,
                 float *restrict v) {
    const float *restrict a = rows[0], *restrict b = rows[1], *restrict c = rows[2];
    for (int32_t x = 0; x < width; x++)
        most[x + 1] = larger(larger(a[x], b[x]), c[x]);
    most[0] = most[1];
    most[width + 1] = most[width];
    for (int32_t x = 0; x < out_width; x++)
        v[x] = larger(larger(most[2 * x], most[2 * x + 1]), most[2 * x + 2]);
}

const xn_cpu_stem_kernels STEM_KERNELS = {TERM_NS, PACKING, multiply, values, pool};
