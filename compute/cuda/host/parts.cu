/* parts.cu: what the forms of weights are made of: their sizes and their bytes, on the host and
 * from host weights alone. Independent of stride, padding, dilation and groups. */
#include "parts.h"

#include "layout.h"
#include "real_mma.h"
#include "stem.h"
#include "xn_mem.h"
#include "xn_planes.h"

#include <algorithm>
#include <math.h>
#include <string.h>

static int64_t taps_of(const xn_weights *w) {
    return (int64_t)w->kernel_h * w->kernel_w;
}

static const uint32_t *bits_of(const xn_weights *w, int64_t filter) {
    return w->bits + filter * taps_of(w) * w->words;
}

/* ---- rows ---- */

static void fill_rows(const xn_weights *w, void *out) {
    const int64_t row = xn_cuda_row_words(w->group_channels, w->kernel_h, w->kernel_w);
    const int32_t tap_words = xn_packed_words(w->group_channels);
    for (int64_t o = 0; o < w->out_channels; o++)
        for (int64_t tap = 0; tap < taps_of(w); tap++)
            for (int32_t word = 0; word < w->words; word++)
                ((uint32_t *)out)[o * row + tap * tap_words + word] =
                    bits_of(w, o)[tap * w->words + word];
}

/* ---- few channels ---- */

/* A tap is one word, of which only the channels are set. */
static void fill_patches(const xn_weights *w, void *out) {
    const int32_t words = xn_cuda_patch_words(w->group_channels, w->kernel_h, w->kernel_w);
    const int32_t each = xn_cuda_patch_taps(w->group_channels, w->kernel_h, w->kernel_w);
    for (int64_t o = 0; words && o < w->out_channels; o++)
        for (int64_t tap = 0; tap < taps_of(w); tap++)
            ((uint32_t *)out)[o * words + tap / each] |= bits_of(w, o)[tap]
                                                         << tap % each * w->group_channels;
}

/* ---- set bits of rectangles of taps ---- */

static void fill_prefix(const xn_weights *w, void *out) {
    const int64_t filters = w->out_channels, pitch = (w->kernel_w + 1) * filters;
    for (int64_t o = 0; o < filters; o++) {
        const uint32_t *bits = bits_of(w, o);
        int32_t *to = (int32_t *)out + o;
        for (int32_t i = 0; i < w->kernel_h; i++, to += pitch) {
            int32_t row = 0;
            for (int32_t j = 1; j <= w->kernel_w; j++) {
                for (int32_t word = 0; word < w->words; word++)
                    row += __builtin_popcount(*bits++);
                to[pitch + j * filters] = to[j * filters] + row;
            }
        }
    }
}

/* ---- filters for wgmma ---- */

template <int PHASES_H, int PHASES_W>
static void fill_wgmma(const xn_weights *w, void *out) {
    const int32_t tap_words = xn_packed_words(w->group_channels);
    const int64_t rows = xn_cuda_wgmma_rows(w->out_channels);
    for (int32_t o = 0; o < w->out_channels; o++) {
        const uint32_t *bits = bits_of(w, o);
        for (int32_t i = 0; i < w->kernel_h; i++)
            for (int32_t j = 0; j < w->kernel_w; j++)
                for (int32_t word = 0; word < w->words; word++) {
                    const int64_t chunk = xn_cuda_padded_chunk(i, j, word, tap_words, w->kernel_h,
                                                               w->kernel_w, PHASES_H, PHASES_W);
                    ((uint32_t *)
                         out)[xn_cuda_wgmma_word(chunk, o, rows) + (j * tap_words + word) % 4] =
                        *bits++;
                }
    }
}

/* Of filters that fused_stage.cu takes; 0 words of others. */
static int32_t stage_value(const xn_weights *w, int64_t o, int32_t place) {
    const int32_t i0 = place / 3 == 0, i1 = place / 3 == 2 ? 2 : 3;
    const int32_t j0 = place % 3 == 0, j1 = place % 3 == 2 ? 2 : 3;
    int32_t value = w->words * 32 * ((i1 - i0) * (j1 - j0) - 2 * 9);
    for (int32_t i = i0; i < i1; i++)
        for (int32_t n = j0 * w->words; n < j1 * w->words; n++)
            value -= 2 * __builtin_popcount(bits_of(w, o)[i * 3 * w->words + n]);
    return value;
}

static void fill_stage(const xn_weights *w, void *out) {
    const int64_t row = xn_cuda_stage_row_words(w->words);
    float *values = (float *)out + w->out_channels * row;
    for (int64_t o = 0; row && o < w->out_channels; o++) {
        for (int32_t at = 0; at < 9 * w->words; at++)
            ((uint32_t *)out)[xn_cuda_stage_word((int32_t)o, at, w->words)] = bits_of(w, o)[at];
        for (int32_t n = 0; n < XN_CUDA_STAGE_VALUES; n++)
            values[n * w->out_channels + o] = (float)stage_value(w, o, n);
    }
}

/* ---- real weights ---- */

static void fill_reals(const xn_weights *w, void *out) {
    std::copy_n(w->real, taps_of(w) * w->group_channels * w->out_channels, (float *)out);
}

/* The power of 2 that a filter is divided by so that its largest weight is from 2^14 to 2^15: in
 * fp16 none overflows then, and only those 2^28 times smaller lose bits. */
static int32_t exponent_of(const float *weights, int64_t count) {
    float largest = 0.0f;
    for (int64_t i = 0; i < count; i++)
        largest = fmaxf(largest, fabsf(weights[i]));
    return largest > 0.0f && isfinite(largest) ? ilogbf(largest) - 14 : 0;
}

static void fill_exponents(const xn_weights *w, void *out) {
    const int64_t count = taps_of(w) * w->group_channels;
    for (int64_t o = 0; o < w->out_channels; o++)
        ((int32_t *)out)[o] = exponent_of(w->real + o * count, count);
}

/* Rounded to nearest, ties away from zero; what is finite stays so. */
static uint32_t tf32_of(float v) {
    const float within = copysignf(fminf(fabsf(v), 0x1.ffcp127f), v);
    uint32_t bits;
    memcpy(&bits, &within, sizeof bits);
    return (bits + 0x1000) & ~0x1fffu;
}

/* Filters of real_mma.h. SIGNS: of mode bwn, +-1. */
template <int PRECISION, bool SIGNS>
static void fill_mma(const xn_weights *w, void *out) {
    const int64_t taps = taps_of(w), channels = w->group_channels;
    const int64_t element = xn_cuda_mma_element_bytes(PRECISION);
    const int64_t row = xn_cuda_mma_row_bytes(PRECISION, w->group_channels, taps) / element;
    const int64_t tap_elements = (int64_t)xn_cuda_mma_tap_units(PRECISION, w->group_channels) *
                                 xn_cuda_mma_unit_bytes(PRECISION, w->group_channels) / element;
    const float *real = w->real;
    for (int64_t o = 0; o < w->out_channels; o++) {
        const int32_t exponent = SIGNS ? 0 : exponent_of(real, channels * taps);
        for (int64_t c = 0; c < channels; c++)
            for (int64_t tap = 0; tap < taps; tap++, real++) {
                const float v = !SIGNS ? *real : xn_sign_bit(*real) ? 1.0f : -1.0f;
                const int64_t at = o * row + tap * tap_elements + c;
                if (PRECISION == XN_PRECISION_FP16)
                    ((uint16_t *)out)[at] = xn_fp32_to_fp16(scalbnf(v, -exponent));
                else
                    ((uint32_t *)out)[at] = tf32_of(v);
            }
    }
}

/* ---- stems ---- */

static void fill_stem(const xn_weights *w, void *out) {
    std::copy_n(w->planes->weight, (int64_t)w->out_channels * w->planes->terms, (int32_t *)out);
}

/* The planes' border, and behind each row of classes one more of -infinity (stem.cuh). */
static void fill_stem_border(const xn_weights *w, void *out) {
    const xn_planes *p = w->planes;
    const int64_t row = (int64_t)(p->left + 1 + p->right) * w->out_channels;
    float *to = (float *)out;
    for (int32_t n = 0; n < p->top + 1 + p->bottom; n++) {
        to = std::copy_n(p->border + n * row, row, to);
        to = std::fill_n(to, w->out_channels, -INFINITY);
    }
}

/* [O/16][rows][planes][lane][4] words, a byte a channel: word n of a lane is of filter
 * 2 (lane / 4) + n % 2 and place 2 (lane % 4) + n / 2 of the kernel's row. Filters with a negative
 * scale are turned (stem.cuh). SHIFT: the first tap's place. */
/* Plane n of weight `at` of filter o. */
static uint8_t stem_digit(const xn_weights *w, int32_t o, int32_t at, int32_t n) {
    const xn_planes *p = w->planes;
    const int32_t digit = xn_plane_digit(p->weight[(int64_t)o * p->terms + at], n, p->count);
    return (uint8_t)(w->scale[o] < 0.0f ? -digit : digit);
}

template <int SHIFT>
static void fill_tiles(const xn_weights *w, void *out) {
    const xn_planes *p = w->planes;
    const int32_t rows = xn_stem_rows(p->kernel_h), channels = p->terms / p->kernel_h / p->kernel_w;
    for (int32_t o = 0; o < w->out_channels; o++)
        for (int32_t at = 0; at < p->terms; at++) {
            const int32_t c = at % channels, j = at / channels % p->kernel_w;
            const int32_t i = at / channels / p->kernel_w;
            for (int32_t n = 0; n < p->count; n++) {
                const int32_t place = j + SHIFT, lane = o % 16 / 2 * 4 + place / 2;
                const int64_t at_word = ((o / 16 * (int64_t)rows + i) * p->count + n) * 128 +
                                        lane * 4 + place % 2 * 2 + o % 2;
                ((uint32_t *)out)[at_word] |= (uint32_t)stem_digit(w, o, at, n) << 8 * c;
            }
        }
}

/* [O/64][planes][chunks][64][16] bytes (stem_wide.cuh): the first 16 bytes of rows 0 to 6 of taps,
 * the rest of rows 6, 0 and 1, 2 and 3, 4 and 5, zeros. A rest has bytes 16 to 19 of both rows,
 * then byte 20 of both. */
static void fill_wide(const xn_weights *w, void *out) {
    const xn_planes *p = w->planes;
    const int32_t row = p->terms / p->kernel_h;
    for (int32_t o = 0; o < w->out_channels; o++)
        for (int32_t at = 0; at < p->terms; at++) {
            const int32_t i = at / row, n = at % row;
            const int32_t chunk = n < 16 ? i : i < 6 ? 8 + i / 2 : 7;
            const int32_t byte = n < 16 ? n : n < 20 ? n - 16 + i % 2 * 4 : 8 + i % 2;
            for (int32_t d = 0; d < p->count; d++) {
                const int64_t plane = (int64_t)(o / XN_STEM_WIDE_FILTERS) * p->count + d;
                ((uint8_t *)out)[((plane * XN_STEM_WIDE_CHUNKS + chunk) * XN_STEM_WIDE_FILTERS +
                                  o % XN_STEM_WIDE_FILTERS) *
                                     16 +
                                 byte] = stem_digit(w, o, at, d);
            }
        }
}

/* ---- the table ---- */

typedef const xn_weights weights;
struct kind {
    int64_t (*words)(weights *w);        /* of a filter */
    void (*fill)(weights *w, void *out); /* zero-filled */
};

template <int PRECISION>
static int64_t mma_words(weights *w) {
    return xn_cuda_mma_row_bytes(PRECISION, w->group_channels, taps_of(w)) / 4;
}
/* There are more of these filters (xn_cuda_part_bytes). */
static int64_t wgmma_words(weights *w) {
    return (w->kernel_h * xn_cuda_row_chunks(w->group_channels, w->kernel_w) + 1) / 2 * 8;
}
static int64_t tiles_words(weights *w) {
    const xn_planes *p = w->planes;
    return (int64_t)xn_stem_rows(p->kernel_h) * p->count * XN_STEM_COLUMNS;
}

/* By xn_cuda_part. */
#define WORDS(words) [](weights *w) -> int64_t { return words; }
static const kind kinds[] = {
    {WORDS(xn_cuda_row_words(w->group_channels, w->kernel_h, w->kernel_w)), fill_rows},
    {WORDS((w->kernel_h + INT64_C(1)) * (w->kernel_w + INT64_C(1))), fill_prefix},
    {WORDS(xn_cuda_patch_words(w->group_channels, w->kernel_h, w->kernel_w)), fill_patches},
    {wgmma_words, fill_wgmma<1, 1>}, /* XN_CUDA_PART_SPECIALISED */
    {wgmma_words, fill_wgmma<1, 2>},
    {wgmma_words, fill_wgmma<2, 1>},
    {wgmma_words, fill_wgmma<2, 2>},
    /* of filters that fused_stage.cu takes; 0 of others */
    {WORDS(xn_cuda_stage_row_words(w->words)
               ? xn_cuda_stage_row_words(w->words) + XN_CUDA_STAGE_VALUES
               : 0),
     fill_stage},
    {WORDS(taps_of(w) * w->words), NULL}, /* XN_CUDA_PART_CODES */
    {WORDS(taps_of(w) * w->group_channels), fill_reals},
    {[](weights *) -> int64_t { return 1; }, fill_exponents},
    {WORDS(w->planes->terms), fill_stem}, /* XN_CUDA_PART_STEM */
    {WORDS((w->planes->top + INT64_C(1) + w->planes->bottom) *
           (w->planes->left + 2 + w->planes->right)),
     fill_stem_border},
    {tiles_words, fill_tiles<0>},
    {tiles_words, fill_tiles<1>},
    {WORDS(w->planes->count * INT64_C(4) * XN_STEM_WIDE_CHUNKS), fill_wide},
    {mma_words<XN_PRECISION_TF32>, fill_mma<XN_PRECISION_TF32, true>}, /* XN_CUDA_PART_TF32_SIGNS */
    {mma_words<XN_PRECISION_TF32>, fill_mma<XN_PRECISION_TF32, false>},
    {mma_words<XN_PRECISION_FP16>, fill_mma<XN_PRECISION_FP16, true>},
    {mma_words<XN_PRECISION_FP16>, fill_mma<XN_PRECISION_FP16, false>},
};

bool xn_cuda_part_bytes(const xn_weights *weights, xn_cuda_part part, size_t *bytes) {
    const int64_t filters = kinds[part].words == wgmma_words
                                ? xn_cuda_wgmma_rows(weights->out_channels)
                                : weights->out_channels;
    return xn_mul_size((size_t)filters, (size_t)kinds[part].words(weights), bytes) &&
           xn_mul_size(*bytes, 4, bytes);
}

void xn_cuda_part_fill(const xn_weights *weights, xn_cuda_part part, void *out) {
    kinds[part].fill(weights, out);
}
