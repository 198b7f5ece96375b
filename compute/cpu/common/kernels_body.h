/* kernels_body.h: the one text of the kernels in kernels.h. kernels_portable.c, kernels_avx2.c,
 * kernels_avx512.c and kernels_neon.c include it, each after choosing its instruction set and
 * defining
 *
 *   KERNELS       the table's symbol
 *   VECTOR_BYTES  16, 32 or 64
 *   FROM_FP16(h), TO_FP16(h, v)  optional: a vector of floats from and to as many binary16 at h
 *   STREAM(to, v), FLUSH()       optional: an aligned store past the caches; what orders those
 *   LOAD_FIRST(from, n), STORE_FIRST(to, n, v)  optional: the first n floats of a vector; of the
 *                                loaded one the others are 0
 *
 * It uses GNU vectors where registers must be named and plain loops where the compiler vectorises
 * well by itself. */
#include "vectors.h"
#include "xn_tensor.h"

#include <float.h>

#ifndef STREAM
#define STREAM(to, v) memcpy(to, &(v), sizeof(v))
#define FLUSH() ((void)0)
#endif

/* Without them the last vector of a row has some of the one before again. */
#ifdef STORE_FIRST
enum { MASKS = true };
#else
enum { MASKS = false };
#endif

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

static void copy_strided(const float *restrict src, int32_t stride, int32_t n, float *restrict to) {
    if (stride == 2) /* often so, and a loop that vectorises */
        for (int32_t x = 0; x < n; x++)
            to[x] = src[(int64_t)x * 2];
    else
        for (int32_t x = 0; x < n; x++)
            to[x] = src[(int64_t)x * stride];
}

/* The first n of a vector, of which all are there where it is whole; the others 0. */
INLINE vector_f32 load_first(const float *from, int32_t n, const bool whole) {
    if (whole)
        return *(const loose_f32 *)from;
#ifdef LOAD_FIRST
    return (vector_f32)LOAD_FIRST(from, n);
#else
    float some[LANES] = {0};
    memcpy(some, from, (size_t)n * sizeof *some);
    return *(const loose_f32 *)some;
#endif
}

INLINE void store_first(vector_f32 y, int32_t n, const bool whole, float *to) {
    if (whole)
        *(loose_f32 *)to = y;
    else
#ifdef STORE_FIRST
        STORE_FIRST(to, n, y);
#else
        memcpy(to, &y, (size_t)n * sizeof *to);
#endif
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

typedef uint8_t lane_bytes __attribute__((vector_size(LANES)));
typedef uint8_t loose_bytes __attribute__((vector_size(LANES), UNALIGNED(uint8_t)));

INLINE vector_f32 load_half(const uint16_t *from, int32_t n, const bool whole) {
    uint16_t some[LANES] = {0};
    if (!whole) {
        memcpy(some, from, (size_t)n * sizeof *some);
        from = some;
    }
#ifdef FROM_FP16
    return (vector_f32)FROM_FP16(from);
#else
    vector_f32 v = {0};
    for (int l = 0; l < LANES; l++)
        v[l] = xn_fp16_to_fp32(from[l]);
    return v;
#endif
}

INLINE void store_half(vector_f32 y, int32_t n, const bool whole, uint16_t *to) {
    uint16_t some[LANES] = {0};
    uint16_t *all = whole ? to : some;
#ifdef TO_FP16
    TO_FP16(all, y);
#else
    for (int l = 0; l < LANES; l++)
        all[l] = xn_fp32_to_fp16(y[l]);
#endif
    if (!whole)
        memcpy(to, some, (size_t)n * sizeof *to);
}

/* Towards 0; what is too large becomes the largest that a float is, NaN the least. */
INLINE void store_i32(vector_f32 y, int32_t n, int32_t *to) {
    const float most = 2147483520.0f, least = -2147483648.0f;
    for (int32_t l = 0; l < n; l++) {
        const float below = y[l] < most ? y[l] : most;
        to[l] = (int32_t)(y[l] >= least ? below : least);
    }
}

/* a where the mask is all ones, b where it is 0. */
INLINE vector_f32 choose(vector_i32 mask, vector_f32 a, vector_f32 b) {
    return (vector_f32)((mask & (vector_i32)a) | (~mask & (vector_i32)b));
}

/* A comparison with NaN is false: clip leaves it. */
INLINE vector_f32 activated(const xn_cpu_tail *t, int32_t row, vector_f32 y) {
    const vector_f32 low = t->low - (vector_f32){0}, high = t->high - (vector_f32){0};
    if (t->activation == XN_ACTIVATION_PRELU)
        return choose(y >= 0.0f, y, t->slope[row] * y);
    if (t->activation == XN_ACTIVATION_CLIP) {
        y = choose(y < low, low, y);
        return choose(y > high, high, y);
    }
    return y;
}

INLINE void store_signs(vector_i32 mask, int32_t n, const bool whole, uint8_t *to) {
    if (whole)
        *(loose_bytes *)to = __builtin_convertvector(mask & 1, lane_bytes);
    for (int32_t l = 0; !whole && l < n; l++)
        to[l] = (uint8_t)(mask[l] & 1);
}

/* What is common to all values, known to the compiler: values are all there is, or go past the
 * caches; a first layer makes words too; a later one adds what is of its own datatype; anything. */
typedef enum {
    PLAIN,
    PAST_CACHES,
    PLAIN_FP16,
    FIRST_FP32,
    FIRST_FP16,
    LAYER_FP32,
    LAYER_FP16,
    ANY
} tail_way;

static tail_way way_of(const xn_cpu_tail *t) {
    const bool half = t->datatype == XN_FP16;
    if (t->activation != XN_ACTIVATION_NONE || t->signs || (!half && t->datatype != XN_FP32) ||
        (t->residual && (!t->words || t->residual_datatype != t->datatype)))
        return ANY;
    if (t->words)
        return (t->residual ? LAYER_FP32 : FIRST_FP32) + half;
    return half ? PLAIN_FP16 : t->past_caches ? PAST_CACHES : PLAIN;
}

/* n values of a row, a vector at most, from `at` on. */
INLINE vector_f32 values_of(const xn_cpu_acc *a, int32_t row, int32_t at, int32_t n,
                            const xn_cpu_acc_kind kind, const bool with_k, const bool whole,
                            vector_u32 *odd) {
    const float *from = (const float *)a->from + (size_t)row * a->pitch + at;
    const vector_f32 loaded = load_first(from, n, whole);
    vector_f32 v = loaded;
    if (kind == XN_CPU_VALUES)
        return v;
    if (kind == XN_CPU_DOTS)
        v = __builtin_convertvector((vector_i32)loaded, vector_f32);
    v = with_k ? value_with_k(v, a->factor[row], load_first(a->k + at, n, whole), a->bias[row])
               : value_of(v, a->factor[row], a->bias[row]);
    note_value(odd, v);
    return v;
}

INLINE void store_reals(const xn_cpu_tail *t, vector_f32 y, size_t at, int32_t n,
                        const tail_way way, const bool whole) {
    const bool half = way == PLAIN_FP16 || way == FIRST_FP16 || way == LAYER_FP16;
    if (way == PAST_CACHES && whole)
        STREAM((float *)t->real + at, y);
    else if (half || (way == ANY && t->datatype == XN_FP16))
        store_half(y, n, whole, (uint16_t *)t->real + at);
    else if (way != ANY || t->datatype == XN_FP32)
        store_first(y, n, whole, (float *)t->real + at);
    else if (t->datatype == XN_INT32)
        store_i32(y, n, (int32_t *)t->real + at);
}

/* From v on; the vector's signs. */
INLINE vector_i32 finish_row(vector_f32 y, int32_t row, int32_t x, int32_t n, const xn_cpu_tail *t,
                             const tail_way way, const bool whole) {
    const size_t at = (size_t)row * t->pitch + (size_t)x;
    const bool any = way == ANY;
    if (way == LAYER_FP16 || (any && t->residual && t->residual_datatype == XN_FP16))
        y += load_half((const uint16_t *)t->residual + at, n, whole);
    else if (way == LAYER_FP32 || (any && t->residual))
        y += load_first((const float *)t->residual + at, n, whole);
    if (any)
        y = activated(t, row, y);
    store_reals(t, y, at, n, way, whole);
    const vector_i32 mask = y + t->shift[row] >= 0.0f;
    if (any && t->signs)
        store_signs(mask, n, whole, t->signs + at);
    return mask;
}

/* Some rows of a vector, whose words are loaded and stored once. */
INLINE void finish_vector(const xn_cpu_acc *a, int32_t row, const int rows, int32_t x, int32_t n,
                          const xn_cpu_tail *t, const xn_cpu_acc_kind kind, const bool with_k,
                          const tail_way way, const bool whole, vector_u32 *odd) {
    const bool with_words = way >= FIRST_FP32 && (way != ANY || t->words);
    float *words = (float *)(void *)(with_words ? t->words + x : NULL);
    vector_u32 bits = {0};
    if (with_words)
        bits = (vector_u32)load_first(words, n, whole);
    UNROLLED
    for (int r = 0; r < rows; r++) {
        const vector_f32 v = values_of(a, row + r, x, n, kind, with_k, whole, odd);
        const vector_i32 mask = finish_row(v, row + r, x, n, t, way, whole);
        bits |= (vector_u32)mask & t->bit << (row + r);
    }
    if (with_words)
        store_first((vector_f32)bits, n, whole, words);
}

INLINE void finish_rows(const xn_cpu_acc *a, int32_t row, const int rows, int32_t n,
                        const xn_cpu_tail *t, const xn_cpu_acc_kind kind, const bool with_k,
                        const tail_way way, vector_u32 *odd) {
    int32_t x = 0;
    for (; x + LANES <= n; x += LANES)
        finish_vector(a, row, rows, x, LANES, t, kind, with_k, way, true, odd);
    if (x < n && n >= LANES && !MASKS) /* some of them again, which changes nothing */
        finish_vector(a, row, rows, n - LANES, LANES, t, kind, with_k,
                      way == PAST_CACHES ? PLAIN : way, true, odd);
    else if (x < n) /* the lanes past the end are 0 * factor * 0 + bias */
        finish_vector(a, row, rows, x, n - x, t, kind, with_k, way, false, odd);
}

enum { ROWS = 8 /* at a time, of layers that make words */ };

INLINE bool finish_by(const xn_cpu_acc *given, int32_t rows, int32_t n, const xn_cpu_tail *tail,
                      const xn_cpu_acc_kind kind, const bool with_k, const tail_way way) {
    const xn_cpu_acc a = *given;
    const xn_cpu_tail t = *tail; /* no store can change them */
    vector_u32 odd = {0};
    int32_t row = 0;
    for (; way >= FIRST_FP32 && way != ANY && row + ROWS <= rows; row += ROWS)
        finish_rows(&a, row, ROWS, n, &t, kind, with_k, way, &odd);
    for (; row < rows; row++)
        finish_rows(&a, row, 1, n, &t, kind, with_k, way, &odd);
    return are_finite(odd);
}

INLINE bool finish_of(const xn_cpu_acc *a, int32_t rows, int32_t n, const xn_cpu_tail *t,
                      const xn_cpu_acc_kind kind, const bool with_k) {
#define CASE(way)                                                                                  \
    case way:                                                                                      \
        return finish_by(a, rows, n, t, kind, with_k, way)
    switch (way_of(t)) {
        CASE(PLAIN);
        CASE(PAST_CACHES);
        CASE(PLAIN_FP16);
        CASE(FIRST_FP32);
        CASE(FIRST_FP16);
        CASE(LAYER_FP32);
        CASE(LAYER_FP16);
        CASE(ANY);
    }
#undef CASE
    return false;
}

static bool finish(const xn_cpu_acc *a, int32_t rows, int32_t n, const xn_cpu_tail *tail) {
    if (a->kind == XN_CPU_VALUES)
        return finish_of(a, rows, n, tail, XN_CPU_VALUES, false);
    if (a->kind == XN_CPU_SUMS)
        return finish_of(a, rows, n, tail, XN_CPU_SUMS, false);
    return a->k ? finish_of(a, rows, n, tail, XN_CPU_DOTS, true)
                : finish_of(a, rows, n, tail, XN_CPU_DOTS, false);
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
    .copy_strided = copy_strided,
    .finish = finish,
    .join_signs = join_signs,
    .from_fp16 = from_fp16,
    .to_fp16 = to_fp16,
    .copy = copy,
    .flush = flush,
};
