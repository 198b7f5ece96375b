/* stem_body.h: the kernels of stem_kernels.h, for the instruction set that they are compiled for.
 * The including file includes its lanes_*.h and defines STEM_KERNELS, TERM_NS, PACKING, PRODUCTS,
 * the header that multiplies weights in that packing, and, where MULTIPLY_ADD rounds once,
 * ROUNDS_ONCE.
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

/* The values of sums, filter f, from column x on. */
INLINE void store_values(const xn_cpu_stem_product *p, int32_t f, int32_t x, vector_f32 sums,
                         float *values) {
    const int64_t at = (int64_t)f * p->columns + x;
    const vector_f32 border = *(const loose_f32 *)(p->border + at);
#ifdef ROUNDS_ONCE
    const vector_f32 v = MULTIPLY_ADD(sums, p->scale[f] - (vector_f32){0}, border);
#else
    vector_f32 v = {0};
    for (int l = 0; l < LANES; l++)
        v[l] = fmaf(sums[l], p->scale[f], border[l]);
#endif
    *(loose_f32 *)(values + at) = v;
}

#include PRODUCTS

INLINE vector_f32 largest_of(const float *const rows[3], int32_t x) {
    const vector_f32 none = -INFINITY - (vector_f32){0};
    vector_f32 most = LARGER(*(const loose_f32 *)(rows[0] + x), none);
    most = LARGER(*(const loose_f32 *)(rows[1] + x), most);
    return LARGER(*(const loose_f32 *)(rows[2] + x), most);
}

static void pool(const float *const rows[3], int32_t out_width, float *largest) {
    vector_f32 before = {0};
    for (int32_t x = 0; x < out_width; x += LANES) {
        const vector_f32 a = largest_of(rows, 2 * x), b = largest_of(rows, 2 * x + LANES);
        const vector_f32 evens = EVENS(a, b), odds = ODDS(a, b);
        if (x == 0)
            before = evens[0] - (vector_f32){0};
        *(loose_f32 *)(largest + x) = LARGER(LARGER(SHIFT_IN(before, odds), evens), odds);
        before = odds;
    }
}

const xn_cpu_stem_kernels STEM_KERNELS = {TERM_NS, PACKING, multiply, pool};
