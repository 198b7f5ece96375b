/* lookup_512.h: the kernels of lookup for x86-64 with AVX-512, the text of lookup_avx512.c and of
 * lookup_vpopcnt.c, which define LOOKUP_KERNELS and
 *
 *   WINDOWS   1: VBMI is at hand: bytes are taken out of a word from any bit on
 *
 * It goes inside XN_TARGET_BEGIN and END. */
#define VECTOR_BYTES 64
#define LOOK_UP_NS 0.65
#define LOAD_TABLE(from)                                                                           \
    (vector_u8) _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)(const void *)(from)))
#define LOOK_UP(table, patterns)                                                                   \
    (vector_u8) _mm512_shuffle_epi8((__m512i)(table), (__m512i)(patterns))
#define SIGN_BYTES(v) (vector_u8) _mm512_maskz_set1_epi8(signs_of(v), 1)
#define WIDEN(v, q) (vector_f32) _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(quarter((__m512i)(v), q)))
#define MOST(a, b) (vector_u32) _mm512_max_epu32((__m512i)(a), (__m512i)(b))
#define STREAM(to, v) _mm512_stream_ps(to, (__m512)(v))
#define TAKE take
#define TILE tile

static inline __attribute__((always_inline)) __mmask64 signs_of(const void *from) {
    const __m512 *v = from, zero = _mm512_setzero_ps();
    __mmask16 m[4];
    for (int q = 0; q < 4; q++)
        m[q] = _mm512_cmp_ps_mask(v[q], zero, _CMP_GE_OQ);
    return _mm512_kunpackd(_mm512_kunpackw(m[3], m[2]), _mm512_kunpackw(m[1], m[0]));
}

/* The instruction's number is part of it, also where loops are not unrolled. */
static inline __attribute__((always_inline)) __m128i quarter(__m512i v, const int q) {
    switch (q) {
    case 1:
        return _mm512_extracti32x4_epi32(v, 1);
    case 2:
        return _mm512_extracti32x4_epi32(v, 2);
    case 3:
        return _mm512_extracti32x4_epi32(v, 3);
    default:
        return _mm512_castsi512_si128(v);
    }
}

static void take(const xn_cpu_lookup_row *row, size_t plane_pitch, uint8_t *planes, float *sums);
static bool tile(const xn_cpu_lookup_tile *t);

#include "lookup_body.h"

/* ---- take: a block of outputs from the 80 columns over it, in registers ---- */

enum {
    COLUMNS = 80,
    AHEAD = 8, /* rows fetched ahead where memory is past the caches */
};

/* Which of the columns are +1: bit x of low, bit x - 64 of high. */
typedef struct column_bits {
    uint64_t low, high;
} column_bits;

/* Bits x + by, for the 64 columns x. */
INLINE uint64_t shifted(column_bits bits, const int by) {
    return by ? bits.low >> by | bits.high << (64 - by) : bits.low;
}

INLINE __m512 sideways(__m512 low, __m512 high, const int by) {
    const __m512i a = _mm512_castps_si512(low), b = _mm512_castps_si512(high);
    switch (by) {
    case 1:
        return _mm512_castsi512_ps(_mm512_alignr_epi32(b, a, 1));
    case 2:
        return _mm512_castsi512_ps(_mm512_alignr_epi32(b, a, 2));
    case 3:
        return _mm512_castsi512_ps(_mm512_alignr_epi32(b, a, 3));
    case 4:
        return _mm512_castsi512_ps(_mm512_alignr_epi32(b, a, 4));
    case 5:
        return _mm512_castsi512_ps(_mm512_alignr_epi32(b, a, 5));
    case 6:
        return _mm512_castsi512_ps(_mm512_alignr_epi32(b, a, 6));
    case 7:
        return _mm512_castsi512_ps(_mm512_alignr_epi32(b, a, 7));
    default:
        return low;
    }
}

INLINE __m512i pattern_of(column_bits bits, const int first, const int last) {
    __m512i pattern = _mm512_maskz_set1_epi8(shifted(bits, first), 1);
#pragma GCC unroll 4
    for (int j = first + 1; j < last; j++)
        pattern = _mm512_mask_add_epi8(pattern, shifted(bits, j), pattern,
                                       _mm512_set1_epi8((char)(1 << (j - first))));
    return pattern;
}

/* columns: from output 0's tap 0 on. inside: those within the image; those outside count 0 and have
 * the pad value's sign. The compiler drops what `edge` does not need. */
INLINE void take_block(const float *columns, column_bits inside, uint64_t outside, const bool edge,
                       const int kernel_w, size_t plane_pitch, uint8_t *planes, float *sums) {
    __m512 v[5];
    column_bits bits;
    for (int q = 0; q < 5; q++) {
        const uint64_t in = q < 4 ? inside.low >> q * 16 : inside.high;
        v[q] = edge ? _mm512_maskz_loadu_ps((__mmask16)in, columns + q * 16)
                    : _mm512_loadu_ps(columns + q * 16);
    }
    bits.low = signs_of(v);
    bits.high = _mm512_cmp_ps_mask(v[4], _mm512_setzero_ps(), _CMP_GE_OQ);
    if (edge) {
        bits.low = (bits.low & inside.low) | (outside & ~inside.low);
        bits.high = (bits.high & inside.high) | (outside & ~inside.high);
    }
    const int split_at = kernel_w < XN_CPU_PATTERN_TAPS ? kernel_w : XN_CPU_PATTERN_TAPS;
    _mm512_storeu_si512(planes, pattern_of(bits, 0, split_at));
    if (kernel_w > XN_CPU_PATTERN_TAPS)
        _mm512_storeu_si512(planes + plane_pitch, pattern_of(bits, split_at, kernel_w));
    if (!sums)
        return;
    for (int q = 0; q < 5; q++)
        v[q] = _mm512_abs_ps(v[q]);
#pragma GCC unroll 4
    for (int q = 0; q < 4; q++) {
        __m512 sum = v[q];
#pragma GCC unroll 8
        for (int j = 1; j < kernel_w; j++)
            sum = _mm512_add_ps(sum, sideways(v[q], v[q + 1], j));
        _mm512_storeu_ps(sums + q * 16, sum);
    }
}

/* Bits [first, last) of 64. */
INLINE uint64_t bits_between(int64_t first, int64_t last) {
    const uint64_t below_last = last >= 64 ? UINT64_MAX : last <= 0 ? 0 : ~(UINT64_MAX << last);
    const uint64_t from_first = first >= 64 ? 0 : first <= 0 ? UINT64_MAX : UINT64_MAX << first;
    return below_last & from_first;
}

INLINE void take_row(const xn_cpu_lookup_row *row, const int kernel_w, size_t plane_pitch,
                     uint8_t *planes, float *sums) {
    const uint64_t outside = row->outside ? UINT64_MAX : 0;
    for (int32_t x = 0; x < row->n; x += BLOCK) {
        const int64_t column = (int64_t)row->start + x;
        const float *columns = row->row + column;
        float *to = sums ? sums + x : NULL;
        fetch_ahead(columns + row->width);
        const column_bits inside = {bits_between(-column, row->width - column),
                                    bits_between(-column - 64, row->width - column - 64)};
        if (column >= 0 && column + COLUMNS <= row->width)
            take_block(columns, inside, outside, false, kernel_w, plane_pitch, planes + x, to);
        else
            take_block(columns, inside, outside, true, kernel_w, plane_pitch, planes + x, to);
    }
}

static void take(const xn_cpu_lookup_row *row, size_t plane_pitch, uint8_t *planes, float *sums) {
    switch (row->kernel_w) {
    case 1:
        take_row(row, 1, plane_pitch, planes, sums);
        break;
    case 2:
        take_row(row, 2, plane_pitch, planes, sums);
        break;
    case 3:
        take_row(row, 3, plane_pitch, planes, sums);
        break;
    case 4:
        take_row(row, 4, plane_pitch, planes, sums);
        break;
    case 5:
        take_row(row, 5, plane_pitch, planes, sums);
        break;
    case 6:
        take_row(row, 6, plane_pitch, planes, sums);
        break;
    case 7:
        take_row(row, 7, plane_pitch, planes, sums);
        break;
    default:
        take_row(row, 8, plane_pitch, planes, sums);
        break;
    }
}

/* ---- tile: 3x3, a pair of output rows at a time, block after block ---- */

/* What an input row leaves under a block: patterns, and sums of |I| over the columns under each
 * output. The pattern of output 16 q + l is byte q of word l: a byte is brought down to index a
 * table of floats by one shift, and comparisons can set bits in place. */
typedef struct tile_row {
    __m512i pattern;
    __m512 sums[4];
} tile_row;

/* Where a block is: after another, with all columns inside the image; the first of the strip, or
 * with some of the first or last 16 outside; or anywhere, or with fewer outputs than a block. */
typedef enum { INSIDE, EDGE, RAGGED } tile_place;

/* A block of a strip. Going along the rows memory is read and written in order, so that caches and
 * what fetches ahead serve it as they serve a copy; what the two input rows above a pair of output
 * rows left waits here. */
typedef struct tile_block {
    tile_row above[2];
    __m512i first;       /* what outputs start from, 9 more, in the order of patterns */
    uint64_t valid;      /* which outputs there are */
    __mmask16 inside[5]; /* the columns that are inside the image, 16 to a mask */
    tile_place place;    /* INSIDE: the three above are not needed */
} tile_block;

_Static_assert(sizeof(tile_block) <= XN_CPU_LOOKUP_BLOCK_BYTES, "a block has no room");

/* What a block leaves to the next one of the 16 columns that they share: these are not read again,
 * for they would be where the block has just written outputs, modulo 4096. */
typedef struct tile_last {
    __m512 magnitude;
    uint32_t signs;
} tile_last;

INLINE __m512 tile_load(const float *columns, __mmask16 inside, const bool masked) {
    return masked ? _mm512_maskz_loadu_ps(inside, columns) : _mm512_loadu_ps(columns);
}

/* Which of v are +1, a bit each; v becomes |v|. */
INLINE uint32_t tile_signs(const xn_cpu_lookup_tile *t, __m512 *v, __mmask16 inside,
                           const bool masked) {
#if !defined(__clang__)     /* which has no such operand without the target's flags */
    __asm__("" : "+v"(*v)); /* or it is loaded twice, from two lines each time */
#endif
    uint32_t signs = _cvtmask16_u32(_mm512_cmp_ps_mask(*v, _mm512_setzero_ps(), _CMP_GE_OQ));
    const uint32_t in = _cvtmask16_u32(inside);
    if (masked)
        signs = (signs & in) | (t->outside ? in ^ 0xffff : 0);
    *v = _mm512_abs_ps(*v);
    return signs;
}

/* The bits of `mask` from b, the others from a. */
INLINE __m512i tile_choose(__m512i a, __m512i b, const char mask) {
    return _mm512_ternarylogic_epi32(a, b, _mm512_set1_epi8(mask), 0xd8);
}

#if WINDOWS
/* A byte is the signs from an output's first tap on, of which only the three lowest bits count.
 * Words 4 to 7 begin 8 columns further, or the last windows would be cut. */
INLINE __m512i tile_pattern(const uint32_t signs[5]) {
    vector_u8 from;
    for (int i = 0; i < BLOCK; i++)
        from[i] = (uint8_t)(i % 4 * 16 + i / 4 - (i < BLOCK / 2 ? 0 : 8));
    const uint64_t low = (signs[0] | signs[1] << 16) | (uint64_t)(signs[2] | signs[3] << 16) << 32;
    const uint64_t high = low >> 8 | (uint64_t)signs[4] << 56;
    const __m512i words =
        _mm512_mask_set1_epi64(_mm512_set1_epi64((long long)low), 0xf0, (long long)high);
    return _mm512_multishift_epi64_epi8((__m512i)from, words);
}
#define TAPS_OF(table, pattern) _mm512_permutexvar_epi8(pattern, table)
#else
/* A sign is set as three bits, one for each output that it is a tap of. */
INLINE __m512i tile_pattern(const uint32_t signs[5]) {
    __m512i at = _mm512_maskz_mov_epi32(signs[0], _mm512_set1_epi32(7));
    for (int q = 1; q < 4; q++)
        at = _mm512_mask_or_epi32(at, signs[q], at, _mm512_set1_epi32(7 << 8 * q));
    __m512i next = _mm512_srli_epi32(at, 8); /* its low words follow the last ones */
    next = _mm512_mask_or_epi32(next, signs[4], next, _mm512_set1_epi32(7 << 24));
    return tile_choose(tile_choose(at, _mm512_alignr_epi32(next, at, 1), 2),
                       _mm512_alignr_epi32(next, at, 2), 4);
}
#define TAPS_OF(table, pattern) _mm512_shuffle_epi8(table, pattern)
#endif

INLINE tile_row tile_take(const xn_cpu_lookup_tile *t, const float *columns,
                          const tile_block *block, const tile_place place, tile_last *last) {
    tile_row row;
    __m512 v[5];
    uint32_t signs[5];
    v[0] = last->magnitude;
    signs[0] = last->signs;
#pragma GCC unroll 5
    for (int q = place == INSIDE; q < 5; q++) {
        const bool masked = place == RAGGED || (place == EDGE && q % 4 == 0);
        v[q] = tile_load(columns + q * 16, block->inside[q], masked);
        signs[q] = tile_signs(t, &v[q], block->inside[q], masked);
    }
    last->magnitude = v[4];
    last->signs = signs[4];
    row.pattern = tile_pattern(signs);
#pragma GCC unroll 4
    for (int q = 0; q < 4; q++)
        row.sums[q] = _mm512_add_ps(_mm512_add_ps(v[q], sideways(v[q], v[q + 1], 1)),
                                    sideways(v[q], v[q + 1], 2));
    return row;
}

/* Bytes in the order of a tile's patterns. */
INLINE __m512i tile_order(const int8_t *bytes) {
    vector_u32 words = {0};
    for (int q = 0; q < 4; q++) {
        const __m128i part = _mm_loadu_si128((const __m128i *)(const void *)(bytes + q * 16));
        words |= (vector_u32)_mm512_cvtepu8_epi32(part) << q * 8;
    }
    return (__m512i)words;
}

/* Tables of a row's taps, of what they add to the dot and 9; and dot * factor for each dot + 9. */
typedef struct tile_tables {
    __m512i rows[3], inner; /* inner: rows[0] with what outputs inside the image start from */
    __m512 low, high;
} tile_tables;

INLINE tile_tables tables_of(const xn_cpu_lookup_tile *t) {
    tile_tables out;
    float dots[32];
    for (int i = 0; i < 32; i++)
        dots[i] = (float)(i - 9) * t->factor;
    for (int i = 0; i < 3; i++)
        out.rows[i] = (__m512i)LOAD_TABLE(t->tables + i * XN_CPU_TABLE_BYTES);
    out.inner = _mm512_add_epi8(out.rows[0], _mm512_set1_epi8((char)(t->inner + 9)));
    out.low = _mm512_loadu_ps(dots);
    out.high = _mm512_loadu_ps(dots + 16);
    return out;
}

/* How values are made of sums and written. */
typedef struct tile_kind {
    tile_place place;
    bool stream, with_bias;
} tile_kind;

/* A row of outputs from the three input rows under it, and K's sums. */
INLINE void tile_emit(const xn_cpu_lookup_tile *t, const tile_tables *tables,
                      const tile_block *block, const tile_row *const rows[3], const __m512 k[4],
                      const tile_kind kind, float *to) {
    const __m512i first = kind.place == INSIDE ? tables->inner : tables->rows[0];
    __m512i index = _mm512_add_epi8(TAPS_OF(tables->rows[1], rows[1]->pattern),
                                    TAPS_OF(tables->rows[2], rows[2]->pattern));
    index = _mm512_add_epi8(index, TAPS_OF(first, rows[0]->pattern));
    if (kind.place != INSIDE)
        index = _mm512_add_epi8(index, block->first);
#pragma GCC unroll 4
    for (int q = 0; q < 4; q++) {
        const __m512i dot = _mm512_srli_epi32(index, (unsigned)q * 8);
        const __m512 scaled = _mm512_permutex2var_ps(tables->low, dot, tables->high);
        __m512 value = _mm512_mul_ps(scaled, k[q]);
        if (kind.with_bias)
            value = _mm512_add_ps(value, _mm512_set1_ps(t->bias));
        if (kind.place == RAGGED)
            _mm512_mask_storeu_ps(to + q * 16, (__mmask16)(block->valid >> q * 16), value);
        else if (kind.stream)
            _mm512_stream_ps(to + q * 16, value);
        else
            _mm512_storeu_ps(to + q * 16, value);
    }
}

INLINE void add_tile_rows(const tile_row *const rows[3], __m512 k[4]) {
#pragma GCC unroll 4
    for (int q = 0; q < 4; q++)
        k[q] = _mm512_add_ps(_mm512_add_ps(rows[0]->sums[q], rows[1]->sums[q]), rows[2]->sums[q]);
}

/* Brings the part of a row nearer that is read after the next rows. */
INLINE void tile_ahead(const float *from) {
    for (int q = 0; q < 4; q++)
        _mm_prefetch((const char *)(from + q * 16), _MM_HINT_T1);
}

/* A pair of rows of a block, or the last one alone: every other row of sums has all input rows in
 * it, so those are looked at. All is read before any output is written: a load waits for a store
 * before it whose address has the same lowest 12 bits, which input and output often have. */
INLINE void tile_pair(const xn_cpu_lookup_tile *t, const tile_tables *tables, tile_block *block,
                      const float *from, float *to, const bool both, tile_last last[2],
                      const tile_kind kind, vector_u32 *most) {
    __m512 k[4];
    const int64_t pitch = both ? t->from_pitch : 0;
    const tile_row c = tile_take(t, from, block, kind.place, &last[0]);
    const tile_row d = tile_take(t, from + pitch, block, kind.place, &last[1]);
    const tile_row *const upper[3] = {&block->above[0], &block->above[1], &c};
    const tile_row *const lower[3] = {&block->above[1], &c, &d};
    if (kind.stream) {
        tile_ahead(from + AHEAD * t->from_pitch);
        tile_ahead(from + (AHEAD + 1) * t->from_pitch);
    }
    add_tile_rows(upper, k);
    for (int q = 0; q < 4; q++)
        note_sums(most, (vector_f32)k[q]);
    tile_emit(t, tables, block, upper, k, kind, to);
    if (!both)
        return;
    add_tile_rows(lower, k);
    tile_emit(t, tables, block, lower, k, kind, to + t->to_pitch);
    block->above[0] = c;
    block->above[1] = d;
}

/* A pair of rows of all blocks. */
INLINE void tile_rows(const xn_cpu_lookup_tile *t, const tile_tables *tables, const float *from,
                      float *to, const bool both, const tile_kind kind, vector_u32 *most) {
    const tile_kind edge = {EDGE, kind.stream, kind.with_bias};
    const tile_kind ragged = {RAGGED, kind.stream, kind.with_bias};
    tile_block *block = t->blocks;
    tile_last last[2] = {{.signs = 0}, {.signs = 0}};
    for (int32_t x = 0; x < t->n; x += BLOCK, block++)
        if (block->place == INSIDE)
            tile_pair(t, tables, block, from + x, to + x, both, last, kind, most);
        else if (block->place == EDGE)
            tile_pair(t, tables, block, from + x, to + x, both, last, edge, most);
        else
            tile_pair(t, tables, block, from + x, to + x, both, last, ragged, most);
}

INLINE bool tile_by(const xn_cpu_lookup_tile *t, const tile_kind kind) {
    const tile_tables tables = tables_of(t);
    const float *from = t->from + 2 * t->from_pitch;
    const tile_block *blocks = t->blocks;
    float *to = t->to;
    vector_u32 most = {0};
    for (int32_t y = 0; y < t->rows; y += 2) {
        tile_rows(t, &tables, from, to, t->rows - y > 1, kind, &most);
        from += 2 * t->from_pitch;
        to += 2 * t->to_pitch;
    }
    for (int32_t b = 0; b * BLOCK < t->n; b++)
        for (int q = 0; q < 4; q++)
            note_sums(&most, (vector_f32)blocks[b].above[1].sums[q]);
    /* A sum is at most three that were looked at; and some for rounding. */
    return must_be_finite(most, 4 * 9, t->factor, t->bias);
}

static tile_place tile_place_of(const xn_cpu_lookup_tile *t, int32_t x) {
    const int64_t column = (int64_t)t->start + x;
    if (x + BLOCK > t->n || column < -LANES || column + BLOCK > t->width)
        return RAGGED;
    return x == 0 || column + COLUMNS > t->width ? EDGE : INSIDE;
}

/* The blocks of the strip, with the two input rows above the first pair. */
static void tile_begin(const xn_cpu_lookup_tile *t) {
    tile_block *block = t->blocks;
    for (int32_t x = 0; x < t->n; x += BLOCK, block++) {
        const int64_t column = (int64_t)t->start + x;
        block->place = tile_place_of(t, x);
        block->valid = bits_between(0, t->n - x);
        for (int q = 0; q < 5; q++)
            block->inside[q] =
                (__mmask16)bits_between(-column - q * 16, t->width - column - q * 16);
        block->first = _mm512_add_epi8(tile_order(t->first + x), _mm512_set1_epi8(9));
    }
    for (int i = 0; i < 2; i++) {
        tile_last last = {.signs = 0};
        block = t->blocks;
        for (int32_t x = 0; x < t->n; x += BLOCK, block++)
            block->above[i] = tile_take(t, t->from + x + i * t->from_pitch, block, RAGGED, &last);
    }
}

/* A bias of -0 leaves values as they are. */
static bool tile(const xn_cpu_lookup_tile *t) {
    const bool with_bias = t->bias != 0.0f || !signbit(t->bias);
    const bool stream = t->stream && (uintptr_t)t->to % 64 == 0 && t->to_pitch % LANES == 0;
    tile_begin(t);
    if (stream && with_bias)
        return tile_by(t, (tile_kind){.stream = true, .with_bias = true});
    if (stream)
        return tile_by(t, (tile_kind){.stream = true});
    if (with_bias)
        return tile_by(t, (tile_kind){.with_bias = true});
    return tile_by(t, (tile_kind){0});
}
