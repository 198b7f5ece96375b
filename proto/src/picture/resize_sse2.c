/* resize_sse2.c: rows resampled by SSE2, which every x86-64 has; see xn_picture_inside.h.
 *
 * _mm_madd_epi16 multiplies 8 values of 16 bits and adds neighbours: two taps of 4 sums. A weight
 * has 23 bits, so it is taken in two halves, high and low, with a sum for each:
 *     sum = (sum of pixel * high << XN_RESIZE_PAIR_BITS) + sum of pixel * low.
 * What overflows in between wraps around, and the result is right: it fits 32 bits. */
#ifdef __SSE2__
#include "xn_picture_inside.h"

#include <emmintrin.h>
#include <string.h>

typedef struct sums {
    __m128i high, low;
} sums;

static inline __m128i both(const int16_t weights[2]) {
    int32_t pair;
    memcpy(&pair, weights, sizeof pair);
    return _mm_set1_epi32(pair);
}

static inline void add(sums *to, __m128i pixels, __m128i high, __m128i low) {
    to->high = _mm_add_epi32(to->high, _mm_madd_epi16(pixels, high));
    to->low = _mm_add_epi32(to->low, _mm_madd_epi16(pixels, low));
}

/* Four values, not clipped yet. */
static inline __m128i rounded(const sums *s) {
    const __m128i sum = _mm_add_epi32(_mm_slli_epi32(s->high, XN_RESIZE_PAIR_BITS), s->low);
    return _mm_srai_epi32(_mm_add_epi32(sum, _mm_set1_epi32(XN_RESIZE_HALF)), XN_RESIZE_BITS);
}

/* Two pixels of RGB at `at`, of which 8 bytes may be read: r0 r1 g0 g1 b0 b1 and two more. */
static inline __m128i two_pixels(const uint8_t *at) {
    const __m128i bytes = _mm_loadl_epi64((const __m128i *)(const void *)at);
    const __m128i words = _mm_unpacklo_epi8(bytes, _mm_setzero_si128());
    return _mm_unpacklo_epi16(words, _mm_srli_si128(words, 6));
}

/* The same number of pairs for every output, those that weigh nothing too: a number that changes
 * from output to output is a branch that is guessed wrongly, which costs twice the rest. */
static inline void output_rgb(const xn_tap_pair *pairs, int64_t count, const uint8_t *in,
                              uint8_t *out) {
    sums s = {_mm_setzero_si128(), _mm_setzero_si128()};
    for (int64_t p = 0; p < count; p++, in += 6)
        add(&s, two_pixels(in), both(pairs[p].high), both(pairs[p].low));
    const __m128i words = _mm_packs_epi32(rounded(&s), _mm_setzero_si128());
    const int32_t bytes = _mm_cvtsi128_si32(_mm_packus_epi16(words, words));
    memcpy(out, &bytes, 3);
}

/* The first outputs, as many as read nothing behind the row; count is a constant where it is small,
 * so that the loop over it is none. */
static inline int64_t outputs_rgb(const xn_axis *axis, int64_t count, const uint8_t *pixels,
                                  uint8_t *out) {
    const int64_t size = axis->size, last = axis->in - (2 * count - 2) - 3,
                  step = axis->pairs_per_output;
    const int32_t *first = axis->first;
    const xn_tap_pair *pairs = axis->pairs;
    int64_t i = 0;
    for (; i < size && first[i] <= last; i++)
        output_rgb(pairs + i * step, count, pixels + 3 * (int64_t)first[i], out + 3 * i);
    return i;
}

void xn_resize_across(const xn_axis *axis, const uint8_t *pixels, int channels, uint8_t *out) {
    const int64_t count = (axis->most + 1) / 2;
    int64_t i = 0;
    if (channels == 3)
        i = count == 1   ? outputs_rgb(axis, 1, pixels, out)
            : count == 2 ? outputs_rgb(axis, 2, pixels, out)
            : count == 3 ? outputs_rgb(axis, 3, pixels, out)
                         : outputs_rgb(axis, count, pixels, out);
    for (; i < axis->size; i++)
        for (int c = 0; c < channels; c++)
            xn_resize_output(axis, i, pixels + (int64_t)axis->first[i] * channels + c,
                             (size_t)channels, out + i * channels + c);
}

/* 8 columns. */
static void output_columns(const xn_axis *axis, int64_t i, const uint8_t *top, size_t row_bytes,
                           uint8_t *out) {
    const xn_tap_pair *pairs = axis->pairs + i * axis->pairs_per_output;
    const __m128i zero = _mm_setzero_si128();
    const int32_t count = axis->count[i];
    sums left = {zero, zero}, right = {zero, zero};
    for (int32_t t = 0; t < count; t += 2, pairs++) {
        const uint8_t *a = top + (size_t)t * row_bytes, *b = t + 1 < count ? a + row_bytes : a;
        const __m128i bytes = _mm_unpacklo_epi8(_mm_loadl_epi64((const __m128i *)(const void *)a),
                                                _mm_loadl_epi64((const __m128i *)(const void *)b));
        const __m128i high = both(pairs->high), low = both(pairs->low);
        add(&left, _mm_unpacklo_epi8(bytes, zero), high, low);
        add(&right, _mm_unpackhi_epi8(bytes, zero), high, low);
    }
    const __m128i words = _mm_packs_epi32(rounded(&left), rounded(&right));
    _mm_storel_epi64((__m128i *)(void *)out, _mm_packus_epi16(words, words));
}

void xn_resize_down(const xn_axis *axis, int64_t i, const uint8_t *rows, size_t row_bytes,
                    uint8_t *out) {
    size_t x = 0;
    for (; x + 8 <= row_bytes; x += 8)
        output_columns(axis, i, rows + x, row_bytes, out + x);
    for (; x < row_bytes; x++)
        xn_resize_output(axis, i, rows + x, row_bytes, out + x);
}

#else
typedef int xn_resize_sse2_unused; /* C has no empty file */
#endif
