/* ops_body.h: the one text of the kernels in ops_kernels.h. ops_avx512.c, ops_avx2.c, ops_neon.c
 * and ops_portable.c include it, each after choosing its instruction set and defining OPS_KERNELS,
 * the table's symbol. Plain loops, which compilers make vectors of; no products are added in one
 * operation, so that all sets compute the same. */
#include "ops_kernels.h"

#include <math.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

/* ---- windows ---- */

INLINE float extreme(float value, float best, const bool least) {
    if (least)
        return value < best ? value : best;
    return value > best ? value : best;
}

INLINE void down_by(const float *const *given, const int32_t count, int32_t n, const bool least,
                    float *restrict out) {
    const float none = least ? INFINITY : -INFINITY;
    const float *a = given[0], *b = given[1 % count], *c = given[2 % count];
    for (int32_t x = 0; x < n; x++) {
        float best = extreme(a[x], none, least);
        if (count > 1)
            best = extreme(b[x], best, least);
        if (count > 2)
            best = extreme(c[x], best, least);
        out[x] = best;
    }
}

INLINE void down(const float *const *rows, int32_t count, int32_t n, const bool least,
                 float *restrict out) {
    if (count == 1)
        down_by(rows, 1, n, least, out);
    else if (count == 2)
        down_by(rows, 2, n, least, out);
    else
        down_by(rows, 3, n, least, out);
    for (int32_t r = 3; r < count; r++) {
        const float *row = rows[r];
        for (int32_t x = 0; x < n; x++)
            out[x] = extreme(row[x], out[x], least);
    }
}

static void extremes_down(const float *const *rows, int32_t count, int32_t n, bool least,
                          float *out) {
    if (least)
        down(rows, count, n, true, out);
    else
        down(rows, count, n, false, out);
}

INLINE void across_by(const float *restrict row, const int32_t taps, const int32_t dilation,
                      const int32_t step, int32_t n, const bool least, float *restrict out) {
    const float none = least ? INFINITY : -INFINITY;
    for (int32_t x = 0; x < n; x++) {
        float best = none;
        for (int32_t k = 0; k < taps; k++)
            best = extreme(row[(int64_t)x * step + k * dilation], best, least);
        out[x] = best;
    }
}

/* Those of the usual pools are known to the compiler. */
INLINE void across(const float *row, int32_t taps, int32_t dilation, int32_t step, int32_t n,
                   const bool least, float *out) {
    if (taps == 2 && dilation == 1 && step == 2)
        across_by(row, 2, 1, 2, n, least, out);
    else if (taps == 3 && dilation == 1 && step == 2)
        across_by(row, 3, 1, 2, n, least, out);
    else if (taps == 2 && dilation == 1 && step == 1)
        across_by(row, 2, 1, 1, n, least, out);
    else
        across_by(row, taps, dilation, step, n, least, out);
}

static void extremes_across(const float *row, int32_t taps, int32_t dilation, int32_t step,
                            int32_t n, bool least, float *out) {
    if (least)
        across(row, taps, dilation, step, n, true, out);
    else
        across(row, taps, dilation, step, n, false, out);
}

static float extreme_of(const float *src, int32_t step, int32_t n, bool least, float acc) {
    for (int32_t x = 0; x < n; x++)
        acc = extreme(src[(int64_t)x * step], acc, least);
    return acc;
}

static void add(const float *restrict src, int32_t n, double *restrict acc) {
    for (int32_t x = 0; x < n; x++)
        acc[x] += (double)src[x];
}

INLINE void sums_by(const float *const *rows, const int32_t count, const int32_t taps,
                    const int32_t dilation, const int32_t step, int32_t n, double *restrict out) {
    const float *a = rows[0], *b = rows[1 % count];
    for (int32_t x = 0; x < n; x++) {
        double sum = 0;
        for (int32_t k = 0; k < taps; k++)
            sum += (double)a[(int64_t)x * step + k * dilation];
        for (int32_t k = 0; count > 1 && k < taps; k++)
            sum += (double)b[(int64_t)x * step + k * dilation];
        out[x] = sum;
    }
    for (int32_t r = 2; r < count; r++) {
        const float *row = rows[r];
        for (int32_t k = 0; k < taps; k++)
            for (int32_t x = 0; x < n; x++)
                out[x] += (double)row[(int64_t)x * step + k * dilation];
    }
}

static void sums(const float *const *rows, int32_t count, int32_t taps, int32_t dilation,
                 int32_t step, int32_t n, double *out) {
    if (count == 2 && taps == 2 && dilation == 1 && step == 2)
        sums_by(rows, 2, 2, 1, 2, n, out);
    else if (count == 3 && taps == 3 && dilation == 1 && step == 2)
        sums_by(rows, 3, 3, 1, 2, n, out);
    else
        sums_by(rows, count, taps, dilation, step, n, out);
}

static double sum_of(const float *src, int32_t step, int32_t n, double acc) {
    for (int32_t x = 0; x < n; x++)
        acc += (double)src[(int64_t)x * step];
    return acc;
}

static void means(const double *restrict from, double row, const double *restrict columns,
                  int32_t n, float *restrict out) {
    for (int32_t x = 0; x < n; x++)
        out[x] = (float)(from[x] * (row * columns[x]));
}

INLINE void means_of_some(const float *restrict a, const float *restrict b, const int32_t n,
                          double scale, float *restrict out) {
    for (int32_t x = 0; x < n; x++) {
        const double first = 0.0 + (double)a[2 * x] + (double)a[2 * x + 1]; /* not -0 */
        out[x] = (float)((first + (double)b[2 * x] + (double)b[2 * x + 1]) * scale);
    }
}

/* Rows are short: the last of each are made with some before them, which are made again. */
INLINE void means_of_row(const float *a, const float *b, int32_t n, const int32_t some,
                         double scale, float *out) {
    for (int32_t x = 0; x < n; x += some) {
        const int32_t at = x + some <= n ? x : n - some;
        means_of_some(a + 2 * at, b + 2 * at, some, scale, out + at);
    }
}

static void means_of_4(const float *src, int64_t width, int32_t rows, int32_t n, double scale,
                       float *out) {
    for (int32_t y = 0; y < rows; y++, src += 2 * width, out += n)
        if (n >= 16)
            means_of_row(src, src + width, n, 16, scale, out);
        else if (n >= 4)
            means_of_row(src, src + width, n, 4, scale, out);
        else
            means_of_row(src, src + width, n, 1, scale, out);
}

/* Several planes at a time: an addition waits for the one before it. */
INLINE void means_of_some_planes(const float *src, const int planes, int32_t n, double scale,
                                 float *out) {
    double sums[8] = {0};
    for (int32_t x = 0; x < n; x++)
        for (int p = 0; p < planes; p++)
            sums[p] += (double)src[(int64_t)p * n + x];
    for (int p = 0; p < planes; p++)
        out[p] = (float)(sums[p] * scale);
}

static void means_of_planes(const float *src, int32_t planes, int32_t n, double scale, float *out) {
    int32_t p = 0;
    for (; p + 8 <= planes; p += 8)
        means_of_some_planes(src + (int64_t)p * n, 8, n, scale, out + p);
    for (; p < planes; p++)
        means_of_some_planes(src + (int64_t)p * n, 1, n, scale, out + p);
}

INLINE void join_by(const uint32_t *restrict src, const int32_t step, int32_t n, const bool all,
                    uint32_t *restrict acc) {
    for (int32_t x = 0; x < n; x++)
        acc[x] = all ? acc[x] & src[(int64_t)x * step] : acc[x] | src[(int64_t)x * step];
}

static void join(const uint32_t *src, int32_t step, int32_t n, bool all, uint32_t *acc) {
    if (all)
        join_by(src, step, n, true, acc);
    else if (step == 1)
        join_by(src, 1, n, false, acc);
    else if (step == 2)
        join_by(src, 2, n, false, acc);
    else
        join_by(src, step, n, false, acc);
}

/* ---- elements ---- */

/* Of two NaNs that meet, either may come out, as the compiler has put them: where they may be
 * different ones, there is one NaN for all. */
INLINE float one_nan(float v) {
    return v == v ? v : NAN;
}

static void multiply(const float *restrict src, const xn_attributes *attributes, float gate,
                     int32_t n, float *restrict out) {
    (void)attributes;
    for (int32_t x = 0; x < n; x++)
        out[x] = one_nan(src[x] * gate);
}

INLINE uint32_t bits_of(float v) {
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    return bits;
}

INLINE float from_bits_of(uint32_t bits) {
    float v;
    memcpy(&v, &bits, sizeof v);
    return v;
}

static const uint32_t sign_bit = 0x80000000u;

/* To the nearest integer, halves to even, the sign kept: there are no fractions from 2^23 on, and
 * adding that leaves none below. */
INLINE float rounded(float v) {
    const uint32_t sign = bits_of(v) & sign_bit;
    const float size = from_bits_of(bits_of(v) & ~sign_bit);
    const float whole = size < 0x1p23f ? (size + 0x1p23f) - 0x1p23f : size;
    return from_bits_of(bits_of(whole) | sign);
}

static void quantize(const float *restrict src, const xn_attributes *attributes, float gate,
                     int32_t n, float *restrict out) {
    const float quantum = attributes->quantum, low = attributes->low, high = attributes->high;
    (void)gate;
    for (int32_t x = 0; x < n; x++) {
        float level = rounded(src[x] / quantum);
        level = level < low ? low : level;
        level = level > high ? high : level;
        out[x] = level * quantum;
    }
}

/* exp(v) = 2^whole * exp(rest), |rest| <= ln 2 / 2: ln 2 is taken off in two parts, of which the
 * first has so few bits that products with it are exact. The polynomial is within 2^-24 of
 * (exp(rest) - 1 - rest) / rest^2 there. 2^whole goes in as two factors: it may be less than the
 * least normal number. */
INLINE float exp_of(float v) {
    const float most = 89.0f, least = -104.0f, shift = 0x1.8p23f;
    v = v > most ? most : v;
    v = v < least ? least : v;
    const float shifted = v * 0x1.715476p0f + shift, whole = shifted - shift;
    const float rest = (v - whole * 0x1.63p-1f) + whole * 0x1.bd0106p-13f;
    float p = 1.9875691500e-4f;
    p = p * rest + 1.3981999507e-3f;
    p = p * rest + 8.3334519073e-3f;
    p = p * rest + 4.1665795894e-2f;
    p = p * rest + 1.6666665459e-1f;
    p = p * rest + 5.0000001201e-1f;
    const float value = (p * (rest * rest) + rest) + 1.0f;
    const int32_t power = (int32_t)(bits_of(shifted) - bits_of(shift)), half = power >> 1;
    return value * from_bits_of((uint32_t)(half + 127) << 23) *
           from_bits_of((uint32_t)(power - half + 127) << 23);
}

static void sigmoid(const float *restrict src, const xn_attributes *attributes, float gate,
                    int32_t n, float *restrict out) {
    (void)attributes, (void)gate;
    for (int32_t x = 0; x < n; x++)
        out[x] = 1.0f / (1.0f + exp_of(-src[x]));
}

static void exps(const float *restrict less, bool same, int32_t n, float *restrict v) {
    const float one = less[0];
    if (same)
        for (int32_t x = 0; x < n; x++)
            v[x] = one_nan(exp_of(v[x] - one));
    else
        for (int32_t x = 0; x < n; x++)
            v[x] = one_nan(exp_of(v[x] - less[x]));
}

static void divide(const double *restrict by, bool same, int32_t n, float *restrict v) {
    const double one = by[0];
    if (same)
        for (int32_t x = 0; x < n; x++)
            v[x] = (float)((double)v[x] / one);
    else
        for (int32_t x = 0; x < n; x++)
            v[x] = (float)((double)v[x] / by[x]);
}

/* ---- reading ---- */

static void from_bytes(const uint8_t *restrict src, int32_t n, float *restrict out) {
    for (int32_t x = 0; x < n; x++)
        out[x] = (float)src[x];
}

static void from_bits(const uint32_t *restrict words, uint32_t bit, int32_t n,
                      float *restrict out) {
    for (int32_t x = 0; x < n; x++)
        out[x] = words[x] & bit ? 1.0f : -1.0f;
}

INLINE void every_by(const float *restrict src, const int32_t step, int32_t n,
                     float *restrict out) {
    for (int32_t x = 0; x < n; x++)
        out[x] = src[(int64_t)x * step];
}

static void every(const float *src, int32_t step, int32_t n, float *out) {
    if (step == 3)
        every_by(src, 3, n, out);
    else if (step == 4)
        every_by(src, 4, n, out);
    else
        every_by(src, step, n, out);
}

const xn_cpu_ops_kernels OPS_KERNELS = {
    .extremes_down = extremes_down,
    .extremes_across = extremes_across,
    .extreme_of = extreme_of,
    .add = add,
    .sums = sums,
    .sum_of = sum_of,
    .means = means,
    .means_of_4 = means_of_4,
    .means_of_planes = means_of_planes,
    .join = join,
    .element =
        {[XN_STEP_MUL] = multiply, [XN_STEP_SIGMOID] = sigmoid, [XN_STEP_QUANTIZE] = quantize},
    .exps = exps,
    .divide = divide,
    .from_bytes = from_bytes,
    .from_bits = from_bits,
    .every = every,
};
