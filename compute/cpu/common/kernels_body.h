/* kernels_body.h: the one text of the kernels in kernels.h. kernels_portable.c, kernels_avx2.c,
 * kernels_avx512.c and kernels_neon.c include it, each after choosing its instruction set and
 * defining
 *
 *   KERNELS       the table's symbol
 *   VECTOR_BYTES  16, 32 or 64
 *   FROM_FP16(h), TO_FP16(h, v)  optional: a vector of floats from and to as many binary16 at h
 *   STREAM(to, v), FLUSH()       optional: an aligned store past the caches; what orders those
 *
 * It uses GNU vectors where registers must be named and plain loops where the compiler vectorises
 * well by itself. */
#include "vectors.h"
#include "xn_tensor.h"

#include <float.h>

enum { CHUNK = 256 };

/* Inf and NaN are the values whose exponent is all ones. */
static bool all_finite(const float *values, int32_t n) {
    vector_u32 odd = {0};
    int32_t x = 0;
    for (; x + LANES <= n; x += LANES)
        note_value(&odd, *(const loose_f32 *)(values + x));
    bool finite = are_finite(odd);
    for (; x < n; x++)
        finite = finite && fabsf(values[x]) <= FLT_MAX;
    return finite;
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

static void add_floats(const float *restrict src, int32_t stride, int32_t n, float *restrict acc) {
    if (stride == 1)
        for (int32_t x = 0; x < n; x++)
            acc[x] += src[x];
    else
        for (int32_t x = 0; x < n; x++)
            acc[x] += src[(int64_t)x * stride];
}

/* ---- values ---- */

/* Of dots (int32), or of sums (float); k: NULL, or as many. Which of them is known to the compiler.
 */
INLINE bool values(const void *from, const bool dots, const float *k, float factor, float bias,
                   int32_t n, float *v) {
    const int32_t *ints = from;
    const float *floats = from;
    vector_u32 odd = {0};
    int32_t x = 0;
    for (; x + LANES <= n; x += LANES) {
        vector_f32 acc, value;
        if (dots)
            acc = __builtin_convertvector((vector_i32) * (const loose_i32 *)(ints + x), vector_f32);
        else
            acc = *(const loose_f32 *)(floats + x);
        if (k)
            value = value_with_k(acc, factor, *(const loose_f32 *)(k + x), bias);
        else
            value = value_of(acc, factor, bias);
        note_value(&odd, value);
        *(loose_f32 *)(v + x) = value;
    }
    bool finite = are_finite(odd);
    for (; x < n; x++) {
        const float acc = dots ? (float)ints[x] : floats[x];
        v[x] = xn_epilogue_value(acc, factor, k ? k[x] : 1.0f, bias);
        finite = finite && fabsf(v[x]) <= FLT_MAX;
    }
    return finite;
}

static bool values_i32(const int32_t *acc, const float *k, float factor, float bias, int32_t n,
                       float *v) {
    if (k)
        return values(acc, true, k, factor, bias, n, v);
    return values(acc, true, NULL, factor, bias, n, v);
}

static bool values_f32(const float *acc, float factor, float bias, int32_t n, float *v) {
    return values(acc, false, NULL, factor, bias, n, v);
}

/* ---- binary16 ---- */

static void from_fp16(const uint16_t *src, int32_t n, float *dst) {
    int32_t x = 0;
#ifdef FROM_FP16
    for (; x + LANES <= n; x += LANES)
        *(loose_f32 *)(dst + x) = (vector_f32)FROM_FP16(src + x);
#endif
    for (; x < n; x++)
        dst[x] = xn_fp16_to_fp32(src[x]);
}

static void to_fp16(const float *src, int32_t n, uint16_t *dst) {
    int32_t x = 0;
#ifdef TO_FP16
    for (; x + LANES <= n; x += LANES)
        TO_FP16(dst + x, *(const loose_f32 *)(src + x));
#endif
    for (; x < n; x++)
        dst[x] = xn_fp32_to_fp16(src[x]);
}

/* ---- from values to memory ---- */

static void add_residual(const xn_cpu_tail *t, int32_t at, int32_t n, float *restrict y) {
    float other[CHUNK] __attribute__((aligned(64)));
    if (t->residual_datatype == XN_FP16)
        from_fp16((const uint16_t *)t->residual + at, n, other);
    else
        memcpy(other, (const float *)t->residual + at, (size_t)n * sizeof *other);
    for (int32_t x = 0; x < n; x++)
        y[x] += other[x];
}

static void store_signs(const float *restrict y, float shift, int32_t n, uint8_t *restrict signs) {
    for (int32_t x = 0; x < n; x++)
        signs[x] = y[x] + shift >= 0.0f;
}

/* Towards 0; what is too large becomes the largest that a float is, NaN the least. */
static void store_i32(const float *restrict y, int32_t n, int32_t *restrict to) {
    const float most = 2147483520.0f, least = -2147483648.0f;
    for (int32_t x = 0; x < n; x++) {
        const float below = y[x] < most ? y[x] : most;
        to[x] = (int32_t)(y[x] >= least ? below : least);
    }
}

static void finish(const float *v, int32_t n, const xn_cpu_tail *t) {
    float y[CHUNK] __attribute__((aligned(64)));
    for (int32_t at = 0; at < n; at += CHUNK) {
        const int32_t part = n - at < CHUNK ? n - at : CHUNK;
        memcpy(y, v + at, (size_t)part * sizeof *y);
        if (t->residual)
            add_residual(t, at, part, y);
        xn_cpu_activate(&t->activation, part, y);
        if (t->datatype == XN_FP16)
            to_fp16(y, part, (uint16_t *)t->real + at);
        else if (t->datatype == XN_FP32)
            memcpy((float *)t->real + at, y, (size_t)part * sizeof *y);
        else if (t->datatype == XN_INT32)
            store_i32(y, part, (int32_t *)t->real + at);
        if (t->signs)
            store_signs(y, t->shift, part, t->signs + at);
    }
}

/* Eight channels at a time: words are then loaded and stored once for them. */
INLINE void join_some(const uint8_t *restrict signs, size_t pitch, int32_t c, const int count,
                      int32_t n, uint32_t *restrict words) {
    for (int32_t x = 0; x < n; x++) {
        uint32_t word = c ? words[x] : 0;
        for (int k = 0; k < count; k++)
            word |= (uint32_t)signs[(size_t)k * pitch + (size_t)x] << (c + k);
        words[x] = word;
    }
}

static void join_signs(const uint8_t *signs, size_t pitch, int32_t channels, int32_t n,
                       uint32_t *words) {
    int32_t c = 0;
    for (; c + 8 <= channels; c += 8, signs += 8 * pitch)
        join_some(signs, pitch, c, 8, n, words);
    for (; c < channels; c++, signs += pitch)
        join_some(signs, pitch, c, 1, n, words);
}

/* ---- past the caches ---- */

#ifndef STREAM
#define STREAM(to, v) memcpy(to, &(v), sizeof(v))
#define FLUSH() ((void)0)
#endif

static void copy(const void *from, size_t bytes, void *to) {
    const unsigned char *source = from, *end = source + bytes;
    unsigned char *dest = to;
    size_t head = (size_t)(-(uintptr_t)dest % VECTOR_BYTES);
    if (head > bytes)
        head = bytes;
    memcpy(dest, source, head);
    for (source += head, dest += head; end - source >= VECTOR_BYTES;
         source += VECTOR_BYTES, dest += VECTOR_BYTES) {
        vector_u32 v = *(const loose_u32 *)(const void *)source;
        STREAM(dest, v);
    }
    memcpy(dest, source, (size_t)(end - source));
}

static void flush(void) {
    FLUSH();
}

const xn_cpu_kernels KERNELS = {
    .all_finite = all_finite,
    .add_magnitude = add_magnitude,
    .add_strided = add_strided,
    .add_floats = add_floats,
    .values_i32 = values_i32,
    .values_f32 = values_f32,
    .finish = finish,
    .join_signs = join_signs,
    .from_fp16 = from_fp16,
    .to_fp16 = to_fp16,
    .copy = copy,
    .flush = flush,
};
