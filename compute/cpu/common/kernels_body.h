/* kernels_body.h: the one text of all vector kernels. kernels_portable.c, kernels_avx2.c,
 * kernels_avx512.c and kernels_neon.c include it, each after choosing its instruction set and
 * defining
 *
 *   KERNELS       the table's symbol
 *   VECTOR_BYTES  16, 32 or 64
 *   FROM_FP16(h), TO_FP16(h, v)  optional: a vector of floats from and to as many binary16 at h
 *
 * It uses GNU vectors where registers must be named (accumulators that stay in registers over a
 * loop of unknown length) and plain loops where the compiler vectorises well by itself. */
#include "xn_arith.h"
#include "xn_tensor.h"

#include <float.h>
#include <math.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))
#define UNALIGNED(type) aligned(sizeof(type)), may_alias

typedef uint32_t vector_u32 __attribute__((vector_size(VECTOR_BYTES)));
typedef float vector_f32 __attribute__((vector_size(VECTOR_BYTES)));
typedef uint32_t loose_u32 __attribute__((vector_size(VECTOR_BYTES), UNALIGNED(uint32_t)));
typedef float loose_f32 __attribute__((vector_size(VECTOR_BYTES), UNALIGNED(float)));

enum {
    WORDS = VECTOR_BYTES / 4, /* lanes of a vector of words or floats */
    UNROLL = 4,               /* vectors along x at a time */
    FLOAT_TAPS = 64,          /* products added in fp32 before they go into a double */
};

/* ---- sums of float rows ---- */

/* FLOAT_TAPS products in fp32 are within 64 * 2^-24 = 3.8e-6 of the sum of their magnitudes; the
 * parts are added in double, so the length of the filter does not matter. */
INLINE void sum_part(const float *const *rows, const float *weights, int32_t count, int32_t x,
                     float *dst, const int vectors) {
    vector_f32 sum[UNROLL];
    for (int v = 0; v < vectors; v++)
        sum[v] = (vector_f32){0};
    for (int32_t t = 0; t < count; t++)
        for (int v = 0; v < vectors; v++)
            sum[v] += *(const loose_f32 *)(rows[t] + x + v * WORDS) * weights[t];
    for (int v = 0; v < vectors; v++)
        *(loose_f32 *)(dst + v * WORDS) = sum[v];
}

INLINE void sum_products_block(const float *const *rows, const float *weights, int32_t count,
                               int32_t x, float *restrict dst, const int vectors) {
    if (count <= FLOAT_TAPS) {
        sum_part(rows, weights, count, x, dst + x, vectors);
        return;
    }
    double wide[UNROLL * WORDS] = {0};
    float part[UNROLL * WORDS] __attribute__((aligned(64)));
    for (int32_t t = 0; t < count; t += FLOAT_TAPS) {
        int32_t left = count - t;
        sum_part(rows + t, weights + t, left < FLOAT_TAPS ? left : FLOAT_TAPS, x, part, vectors);
        for (int l = 0; l < vectors * WORDS; l++)
            wide[l] += part[l];
    }
    for (int l = 0; l < vectors * WORDS; l++)
        dst[x + l] = (float)wide[l];
}

static void sum_products(const float *const *rows, const float *weights, int32_t count, int32_t n,
                         float *dst) {
    int32_t x = 0;
    for (; n - x > (UNROLL - 1) * WORDS; x += UNROLL * WORDS)
        sum_products_block(rows, weights, count, x, dst, UNROLL);
    for (; x < n; x += WORDS)
        sum_products_block(rows, weights, count, x, dst, 1);
}

/* Inf and NaN are the values whose exponent is all ones. */
static bool all_finite(const float *values, int32_t n) {
    const uint32_t exponent = 0x7f800000u;
    vector_u32 bad = {0};
    int32_t x = 0;
    for (; x + WORDS <= n; x += WORDS) {
        vector_u32 v = (vector_u32) * (const loose_f32 *)(values + x);
        bad |= (vector_u32)((v & exponent) == exponent);
    }
    uint32_t any = 0;
    for (int l = 0; l < WORDS; l++)
        any |= bad[l];
    for (; x < n; x++)
        any |= !(fabsf(values[x]) <= FLT_MAX);
    return !any;
}

static void add_magnitude(const float *restrict src, int32_t n, double *restrict acc) {
    for (int32_t x = 0; x < n; x++)
        acc[x] += (double)fabsf(src[x]);
}

static void add_strided(const double *restrict src, int32_t stride, int32_t n,
                        double *restrict acc) {
    if (stride == 1)
        for (int32_t x = 0; x < n; x++)
            acc[x] += src[x];
    else
        for (int32_t x = 0; x < n; x++)
            acc[x] += src[(int64_t)x * stride];
}

/* ---- epilogue ---- */

static void emit_i32(const int32_t *restrict acc, const float *restrict k, float factor, float bias,
                     int32_t n, float *restrict dst) {
    if (k)
        for (int32_t x = 0; x < n; x++)
            dst[x] = xn_epilogue_value((float)acc[x], factor, k[x], bias);
    else
        for (int32_t x = 0; x < n; x++)
            dst[x] = xn_epilogue_value((float)acc[x], factor, 1.0f, bias);
}

static void emit_f32(const float *restrict acc, float factor, float bias, int32_t n,
                     float *restrict dst) {
    for (int32_t x = 0; x < n; x++)
        dst[x] = xn_epilogue_value(acc[x], factor, 1.0f, bias);
}

static void from_fp16(const uint16_t *src, int32_t n, float *dst) {
    int32_t x = 0;
#ifdef FROM_FP16
    for (; x + WORDS <= n; x += WORDS)
        *(loose_f32 *)(dst + x) = (vector_f32)FROM_FP16(src + x);
#endif
    for (; x < n; x++)
        dst[x] = xn_fp16_to_fp32(src[x]);
}

static void to_fp16(const float *src, int32_t n, uint16_t *dst) {
    int32_t x = 0;
#ifdef TO_FP16
    for (; x + WORDS <= n; x += WORDS)
        TO_FP16(dst + x, *(const loose_f32 *)(src + x));
#endif
    for (; x < n; x++)
        dst[x] = xn_fp32_to_fp16(src[x]);
}

const xn_cpu_kernels KERNELS = {
    .byte_lanes = VECTOR_BYTES,
    .sum_products = sum_products,
    .all_finite = all_finite,
    .add_magnitude = add_magnitude,
    .add_strided = add_strided,
    .emit_i32 = emit_i32,
    .emit_f32 = emit_f32,
    .from_fp16 = from_fp16,
    .to_fp16 = to_fp16,
};
