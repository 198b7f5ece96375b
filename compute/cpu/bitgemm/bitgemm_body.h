/* bitgemm_body.h: the one text of the kernels of bitgemm (bitgemm.h). bitgemm_portable.c,
 * bitgemm_avx2.c, bitgemm_avx512.c, bitgemm_vpopcnt.c and bitgemm_neon.c include it, each after
 * choosing its instruction set and defining
 *
 *   KERNELS                the table's symbol
 *   VECTOR_BYTES           16, 32 or 64
 *   STEP_NS                bitgemm.h, step_ns
 *   FEW_QUERIES            optional: bitgemm.h, few_queries; without it there is no search
 *   ANY(mask)              whether a lane of a comparison is true
 *   LOOKUP(table, i)       optional: of the 16 words at table those of a vector of indices
 *
 * and one of three ways to count bits that differ:
 *
 *   COUNT(x)     from a vector of words to counts of set bits of each of its bytes, of which
 *                FOLD_WORDS may be added before they are folded; TILE_VECTORS x TILE_FILTERS
 *                accumulators fit the registers
 *   COUNT3(a, b, c)  optional: of three words together, where that is cheaper
 *   NIBBLES      bitgemm_nibbles.h: a lane a byte, 4 channels a table look-up
 *   CARRY_SAVE   bitgemm_carry_save.h, for dots() alone; COUNT(x) is of each word, FOLD(counts)
 * does nothing; STREAM(to, v) stores a vector past the cache, to is aligned to VECTOR_BYTES */
#include "bitgemm.h"
#include "index.h"
#include "vectors.h"

enum { WORDS = LANES, PACK_ROWS = 8 };

/* ---- pack ---- */

/* Several channels at a time: the words and sums of a chunk are then loaded and stored once for
 * all of their rows. */
INLINE void pack_channels(const float *restrict src, int64_t stride, int32_t c, const int channels,
                          int32_t n, uint32_t *restrict bits, float *restrict magnitude,
                          const bool first) {
    for (int32_t x = 0; x < n; x++) {
        uint32_t word = first ? 0 : bits[x];
        float sum = first || !magnitude ? 0.0f : magnitude[x];
        for (int k = 0; k < channels; k++) {
            float value = src[k * stride + x];
            word |= value >= 0.0f ? 1u << (c + k) : 0u;
            sum += fabsf(value);
        }
        bits[x] = word;
        if (magnitude)
            magnitude[x] = sum;
    }
}

INLINE void pack_word(const float *src, int64_t stride, int32_t channels, int32_t n, uint32_t *bits,
                      float *magnitude) {
    int32_t c = 0;
    if (channels >= PACK_ROWS)
        pack_channels(src, stride, 0, PACK_ROWS, n, bits, magnitude, true), c = PACK_ROWS;
    else
        pack_channels(src, stride, 0, 1, n, bits, magnitude, true), c = 1;
    for (; c + PACK_ROWS <= channels; c += PACK_ROWS)
        pack_channels(src + c * stride, stride, c, PACK_ROWS, n, bits, magnitude, false);
    for (; c < channels; c++)
        pack_channels(src + c * stride, stride, c, 1, n, bits, magnitude, false);
}

static void pack(const float *src, int64_t stride, int32_t channels, int32_t n, uint32_t *bits,
                 float *magnitude) {
    if (magnitude)
        pack_word(src, stride, channels, n, bits, magnitude);
    else
        pack_word(src, stride, channels, n, bits, NULL);
}

static void spread_plain(const uint32_t *restrict words, int32_t step, int32_t n, size_t plane,
                         uint32_t *restrict planes) {
    for (int32_t w = 0; w < step; w++)
        for (int32_t x = 0; x < n; x++)
            planes[(size_t)w * plane + (size_t)x] = words[(size_t)x * (size_t)step + (size_t)w];
}

/* ---- patches ---- */

/* What a tap sees of a piece: to[word][x] = from[word][(x - inside.first) * stride] where x is
 * inside, 0 elsewhere up to n. Pieces are filled in the order of their lanes, so what a vector
 * writes past this one is overwritten. */
typedef struct tap_row {
    const uint32_t *from;
    uint32_t *to;
    size_t plane, pitch; /* from one word of the tap to the next */
    xn_cpu_range inside;
    int32_t words, n;
} tap_row;

INLINE void zero_columns(const tap_row *t, int32_t x, int32_t end) {
    const vector_u32 zero = {0};
    for (; x < end; x += WORDS)
        for (int32_t word = 0; word < t->words; word++)
            *(loose_u32 *)(t->to + (size_t)word * t->pitch + x) = zero;
}

static const int32_t numbers[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

/* A vector of columns word after word, with stride 1: in most images one to four of them are a row,
 * of many words. */
INLINE void copy_columns(const tap_row *t, int32_t x) {
    const uint32_t *from = t->from + (x - t->inside.first);
    uint32_t *to = t->to + x;
    vector_i32 column = *(const loose_i32 *)numbers + x;
    vector_i32 mask = (column >= t->inside.first) & (column < t->inside.last);
    for (int32_t word = 0; word < t->words; word++, from += t->plane, to += t->pitch)
        *(loose_u32 *)to = *(const loose_u32 *)from & (vector_u32)mask;
}

INLINE void fill_row(const tap_row *t, int32_t stride) {
    int32_t x = 0;
    for (; stride == 1 && x < t->inside.last; x += WORDS)
        if (x + WORDS > t->inside.first)
            copy_columns(t, x);
        else
            zero_columns(t, x, x + 1);
    zero_columns(t, x, t->n);
    for (int32_t word = 0; word < t->words && stride != 1; word++)
        for (x = t->inside.first; x < t->inside.last; x++)
            t->to[(size_t)word * t->pitch + (size_t)x] =
                t->from[(size_t)word * t->plane + (size_t)(x - t->inside.first) * (size_t)stride];
}

/* Taps after the first of a word that several share. */
INLINE void or_row(uint32_t *restrict to, const uint32_t *restrict from, int32_t stride,
                   xn_cpu_range inside, int32_t shift) {
    for (int32_t x = 0; x < inside.last - inside.first; x++)
        to[inside.first + x] |= from[(int64_t)x * stride] << shift;
}

static int32_t clamp(int64_t value, int32_t most) {
    return (int32_t)(value < 0 ? 0 : value > most ? most : value);
}

static void patch_piece(const xn_conv *conv, const xn_cpu_map *map, const xn_cpu_patch *shape,
                        const xn_cpu_piece *piece, int32_t pitch, uint32_t *patches) {
    int64_t plane = (int64_t)conv->height * conv->width;
    int64_t start_y = (int64_t)piece->y * conv->stride_h - conv->pad_top;
    int64_t start_x = (int64_t)piece->x * conv->stride_w - conv->pad_left;
    int32_t n = piece->count, slot = 0, stride = conv->stride_w;
    uint32_t *row = patches + piece->lane;
    for (int32_t i = 0; i < conv->kernel_h; i++) {
        int64_t y = start_y + (int64_t)i * conv->dilation_h;
        for (int32_t j = 0; j < conv->kernel_w; j++) {
            xn_cpu_range inside = {n, n};
            if (y >= 0 && y < conv->height) {
                inside.first = clamp((int64_t)map->outputs[j].first - piece->x, n);
                inside.last = clamp((int64_t)map->outputs[j].last - piece->x, n);
            }
            const uint32_t *from = piece->planes;
            if (inside.first < inside.last)
                from += y * conv->width + start_x + (int64_t)j * conv->dilation_w +
                        (int64_t)inside.first * stride;
            if (slot > 0) {
                or_row(row - pitch, from, stride, inside, slot * conv->group_channels);
            } else {
                tap_row t = {from, row, (size_t)plane, (size_t)pitch, inside, shape->tap_words, n};
                fill_row(&t, stride);
                row += (int64_t)shape->tap_words * pitch;
            }
            slot = slot + 1 < shape->sharing ? slot + 1 : 0;
        }
    }
}

static void patch(const xn_conv *conv, const xn_cpu_map *map, const xn_cpu_patch *shape,
                  const xn_cpu_piece *pieces, int32_t count, int32_t pitch, uint32_t *patches) {
    for (int32_t i = 0; i < count; i++)
        patch_piece(conv, map, shape, &pieces[i], pitch, patches);
}

/* ---- border classes ---- */

/* How a lane finds its class's entry in a filter's table. */
typedef enum { ONE_CLASS, FEW_CLASSES, MANY_CLASSES } class_way;

#ifdef LOOKUP
enum { LOOKUP_CLASSES = 16 };
#else
enum { LOOKUP_CLASSES = 0 };
#define LOOKUP(table, i) (i)
#endif

INLINE vector_u32 entries(const int32_t *table, const int32_t *kind, const class_way way) {
    vector_u32 found = (uint32_t)table[0] - (vector_u32){0};
    if (way == FEW_CLASSES)
        return LOOKUP(table, *(const loose_u32 *)kind);
    if (way == MANY_CLASSES)
        for (int l = 0; l < WORDS; l++)
            found[l] = (uint32_t)table[kind[l]];
    return found;
}

static class_way way_of(int32_t classes) {
    return classes == 1 ? ONE_CLASS : classes <= LOOKUP_CLASSES ? FEW_CLASSES : MANY_CLASSES;
}

/* Bits of dots that are stored already. */
static void set_bits(const xn_cpu_lanes *lanes, int32_t filters, const xn_cpu_dots *to) {
    for (int32_t x = 0; x < lanes->count; x += WORDS) {
        const int32_t *dot = to->dot + x;
        vector_u32 bits = *(const loose_u32 *)(to->words + x);
        for (int32_t f = 0; f < filters; f++, dot += to->pitch)
            bits |= (vector_u32)(*(const loose_i32 *)dot >= to->least[f]) & 1u << (to->bit + f);
        *(loose_u32 *)(to->words + x) = bits;
    }
}

/* In unsigned arithmetic, since parts may pass 2^31 where dot does not. */
static void starts_plain(const xn_cpu_map *map, const uint32_t *prefix, int32_t *start) {
    for (int32_t c = 0; c < map->classes; c++) {
        uint32_t inside = prefix[map->corner[0][c]] - prefix[map->corner[1][c]] -
                          prefix[map->corner[2][c]] + prefix[map->corner[3][c]];
        start[c] =
            (int32_t)((uint32_t)map->base[c] + (uint32_t)map->factor * (prefix[map->all] - inside));
    }
}

/* All classes at once, where prefix sums and classes fit a vector, as those of 3x3 do. */
INLINE void starts_vector(const xn_cpu_map *map, const uint32_t *prefix, int32_t *start) {
    vector_u32 inside[4];
    for (int i = 0; i < 4; i++)
        inside[i] = LOOKUP(prefix, *(const loose_u32 *)map->corner[i]);
    *(loose_u32 *)start =
        *(const loose_u32 *)map->base +
        (uint32_t)map->factor * (prefix[map->all] - inside[0] + inside[1] + inside[2] - inside[3]);
}

static void starts(const xn_cpu_map *map, const int32_t *prefix, int32_t filters, int32_t *start) {
    const uint32_t *sums = (const uint32_t *)prefix;
    const bool fits =
        VECTOR_BYTES == 64 && map->all + 1 == LOOKUP_CLASSES && map->classes <= LOOKUP_CLASSES;
    for (int32_t f = 0; f < filters; f++, sums += map->all + 1, start += map->pitch)
        if (fits)
            starts_vector(map, sums, start);
        else
            starts_plain(map, sums, start);
}

/* ---- bits that differ ---- */

/* words: known where it is compiled, and even. */
INLINE int32_t differ_words(const uint32_t *row, const uint32_t *query, const int32_t words) {
    int64_t count = 0;
    UNROLLED
    for (int32_t w = 0; w < words; w += 2) {
        uint64_t a, b;
        memcpy(&a, row + w, sizeof a);
        memcpy(&b, query + w, sizeof b);
        count += __builtin_popcountll(a ^ b);
    }
    return (int32_t)count;
}

static int32_t differ_any(const uint32_t *row, const uint32_t *query, int32_t words) {
    int32_t count = 0, w = 0;
    for (; w + 8 <= words; w += 8)
        count += differ_words(row + w, query + w, 8);
    for (; w < words; w++)
        count += __builtin_popcount(row[w] ^ query[w]);
    return count;
}

/* Of the usual widths by a known number of words. */
static void differ(const uint32_t *rows, int32_t words, int32_t n, const uint32_t *query,
                   int32_t *counts) {
    for (int32_t r = 0; r < n; r++, rows += words)
        counts[r] = words == 32   ? differ_words(rows, query, 32)
                    : words == 16 ? differ_words(rows, query, 16)
                    : words == 8  ? differ_words(rows, query, 8)
                    : words == 4  ? differ_words(rows, query, 4)
                    : words == 2  ? differ_words(rows, query, 2)
                                  : differ_any(rows, query, words);
}

#if defined(NIBBLES)
#include "bitgemm_nibbles.h"
#else

/* Byte counts of a 32-bit lane to their sum. */
#ifndef FOLD
#define FOLD(counts)                                                                               \
    (((((counts)&0x00ff00ffu) + ((counts) >> 8 & 0x00ff00ffu)) & 0xffffu) +                        \
     ((((counts)&0x00ff00ffu) + ((counts) >> 8 & 0x00ff00ffu)) >> 16))
#endif

#ifndef COUNT3
#define COUNT3(a, b, c) (COUNT(a) + COUNT(b) + COUNT(c))
#define COUNT3_WORDS 1
#else
#define COUNT3_WORDS 3
#endif

/* Adds one word of a tile, or three. */
INLINE void add_words(const uint32_t *patches, int32_t words, int32_t pitch, const uint32_t *bits,
                      vector_u32 part[][TILE_VECTORS], const int vectors, const int filters,
                      const int count) {
    vector_u32 x[3][TILE_VECTORS], w[3];
    for (int k = 0; k < count; k++)
        for (int v = 0; v < vectors; v++)
            x[k][v] = *(const loose_u32 *)(patches + k * pitch + v * WORDS);
    for (int f = 0; f < filters; f++) {
        for (int k = 0; k < count; k++)
            w[k] = bits[(size_t)f * (size_t)words + (size_t)k] - (vector_u32){0};
        for (int v = 0; v < vectors; v++)
            part[f][v] += count == 3 ? COUNT3(x[0][v] ^ w[0], x[1][v] ^ w[1], x[2][v] ^ w[2])
                                     : COUNT(x[0][v] ^ w[0]);
    }
}

/* One tile of lanes and filters, whose counts stay in registers over all words. */
INLINE void differ_tile(const uint32_t *patches, int32_t words, int32_t pitch, const uint32_t *bits,
                        vector_u32 count[][TILE_VECTORS], const int vectors, const int filters) {
    vector_u32 part[TILE_FILTERS][TILE_VECTORS];
    for (int f = 0; f < filters; f++)
        for (int v = 0; v < vectors; v++)
            count[f][v] = part[f][v] = (vector_u32){0};
    for (int32_t k = 0; k < words;) {
        int32_t end = words - k > FOLD_WORDS ? k + FOLD_WORDS : words;
        for (; COUNT3_WORDS == 3 && k + 3 <= end; k += 3)
            add_words(patches + (size_t)k * (size_t)pitch, words, pitch, bits + k, part, vectors,
                      filters, 3);
        for (; k < end; k++)
            add_words(patches + (size_t)k * (size_t)pitch, words, pitch, bits + k, part, vectors,
                      filters, 1);
        for (int f = 0; f < filters; f++)
            for (int v = 0; v < vectors; v++) {
                count[f][v] += FOLD(part[f][v]);
                part[f][v] = (vector_u32){0};
            }
    }
}

#if defined(CARRY_SAVE)
#include "bitgemm_carry_save.h"
#else

enum { TILE_LANES = WORDS, WORD_BYTES = 4 };
#define LAYOUT XN_CPU_BITGEMM_BITS
#define ARRANGE NULL
#define DIRECT true

/* Vectors of lanes from x on, for filter `first` of those asked for and some after it. */
INLINE void dots_tile(const xn_cpu_lanes *lanes, int32_t x, const xn_cpu_bitgemm_weights *weights,
                      int32_t o, const xn_cpu_dots *to, int32_t first, const int vectors,
                      const int filters) {
    vector_u32 count[TILE_FILTERS][TILE_VECTORS];
    const class_way way = way_of(lanes->map->classes);
    const int32_t *start = to->start + (size_t)first * (size_t)lanes->map->pitch;
    int32_t *dot = to->dot + (size_t)first * to->pitch + x;
    differ_tile((const uint32_t *)lanes->arranged + x, weights->words, lanes->pitch,
                weights->bits + (size_t)(o + first) * (size_t)weights->words, count, vectors,
                filters);
    for (int f = 0; f < filters; f++, start += lanes->map->pitch, dot += to->pitch) {
        for (int v = 0; v < vectors; v++)
            *(loose_u32 *)(dot + v * WORDS) =
                entries(start, lanes->kind + x + v * WORDS, way) - 2 * count[f][v];
    }
}

INLINE void dots_of(const xn_cpu_lanes *lanes, int32_t x, const xn_cpu_bitgemm_weights *weights,
                    int32_t o, int32_t filters, const xn_cpu_dots *to, const int vectors) {
    int32_t f = 0;
    for (; f + TILE_FILTERS <= filters; f += TILE_FILTERS)
        dots_tile(lanes, x, weights, o, to, f, vectors, TILE_FILTERS);
    for (; f < filters; f++)
        dots_tile(lanes, x, weights, o, to, f, vectors, 1);
}

static void dots(const xn_cpu_lanes *lanes, const xn_cpu_bitgemm_weights *weights, int32_t o,
                 int32_t filters, const xn_cpu_dots *to) {
    int32_t x = 0;
    for (; x + TILE_VECTORS * WORDS <= lanes->count; x += TILE_VECTORS * WORDS)
        dots_of(lanes, x, weights, o, filters, to, TILE_VECTORS);
    for (; x < lanes->count; x += WORDS)
        dots_of(lanes, x, weights, o, filters, to, 1);
    if (to->words)
        set_bits(lanes, filters, to);
}
#endif
#endif

#ifdef FEW_QUERIES
#include "bitgemm_search.h"
#endif

#ifndef PATCH
#define PATCH patch
#endif
#ifndef SPREAD
#define SPREAD spread_plain
#endif

const xn_cpu_bitgemm_kernels KERNELS = {
    .step_ns = STEP_NS,
    .layout = LAYOUT,
    .tile_lanes = TILE_LANES,
    .word_bytes = WORD_BYTES,
    .pack = pack,
    .spread = SPREAD,
    .patch = PATCH,
    .arrange = ARRANGE,
    .dots = dots,
    .direct = DIRECT,
    .differ = differ,
#ifdef FEW_QUERIES
    .query_lanes = QUERY_LANES,
    .few_queries = FEW_QUERIES,
    .lay_queries = lay_queries,
    .search = search,
#endif
    .starts = starts,
};
