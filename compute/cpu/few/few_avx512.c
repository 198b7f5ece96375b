/* few_avx512.c: the few-channel kernels for x86-64 with AVX-512 (F, BW, VL, DQ). */
typedef int xn_cpu_not_empty; /* ISO C wants a declaration on other machines too */

#if defined(__x86_64__)
#include <immintrin.h>

#include "few_kernels.h"
#include "target.h"

XN_TARGET_BEGIN("avx512f,avx512bw,avx512vl,avx512dq,fma" XN_TARGET_WIDE)

#define FEW_KERNELS xn_cpu_few_avx512
#define VECTOR_BYTES 64
#define LOOKUP 1
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

static void take(const xn_cpu_few_row *row, size_t plane_pitch, uint8_t *planes, float *sums);
static bool tile(const xn_cpu_few_tile *t);

#include "few_body.h"

/* ---- take: a block of outputs from the 80 columns over it, in registers ---- */

enum { COLUMNS = 80 };

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

INLINE void take_row(const xn_cpu_few_row *row, const int kernel_w, size_t plane_pitch,
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

static void take(const xn_cpu_few_row *row, size_t plane_pitch, uint8_t *planes, float *sums) {
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

/* ---- tile: 3x3, down a block of 64 columns, nothing kept but registers ---- */

/* What an input row leaves: patterns, and sums of |I| over the columns under each output. The
 * pattern of output 16 q + l is byte q of word l: comparisons then set bits in place, without the
 * slow way through general registers, a column further is a word further, and a byte is brought
 * down to index a table of floats by one shift. */
typedef struct tile_row {
    __m512i pattern;
    __m512 sums[4];
} tile_row;

/* The columns of a tile that are inside the image, 16 to a mask. */
typedef struct tile_mask {
    __mmask16 inside[5];
} tile_mask;

INLINE __mmask16 tile_signs(const xn_cpu_few_tile *t, __m512 v, __mmask16 inside, const bool edge) {
    const __mmask16 signs = _mm512_cmp_ps_mask(v, _mm512_setzero_ps(), _CMP_GE_OQ);
    return edge ? (__mmask16)((signs & inside) | (t->outside ? ~inside : 0)) : signs;
}

INLINE tile_row tile_take(const xn_cpu_few_tile *t, const float *columns, const tile_mask *mask,
                          const bool edge) {
    tile_row row;
    __m512 v[5];
    __m512i signs = _mm512_setzero_si512();
    for (int q = 0; q < 5; q++) {
        v[q] = edge ? _mm512_maskz_loadu_ps(mask->inside[q], columns + q * 16)
                    : _mm512_loadu_ps(columns + q * 16);
#if !defined(__clang__)           /* which has no such operand without the target's flags */
        __asm__("" : "+v"(v[q])); /* or it is loaded twice, from two lines each time */
#endif
    }
    for (int q = 0; q < 4; q++)
        signs = _mm512_mask_or_epi32(signs, tile_signs(t, v[q], mask->inside[q], edge), signs,
                                     _mm512_set1_epi32(1 << 8 * q));
    __m512i next = _mm512_srli_epi32(signs, 8); /* its low words follow the last ones of signs */
    next = _mm512_mask_or_epi32(next, tile_signs(t, v[4], mask->inside[4], edge), next,
                                _mm512_set1_epi32(1 << 24));
    const __m512i one = _mm512_alignr_epi32(next, signs, 1);
    const __m512i two = _mm512_alignr_epi32(next, signs, 2);
    row.pattern = _mm512_add_epi8(one, _mm512_add_epi8(two, two));
    row.pattern = _mm512_add_epi8(signs, _mm512_add_epi8(row.pattern, row.pattern));
    for (int q = 0; q < 5; q++)
        v[q] = _mm512_abs_ps(v[q]);
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

/* Quarter q of the bytes as floats, times the factor. Inside, 9 taps count: the bytes are how many
 * agree, 0 to 9, and values has dot * factor for each. At an edge the bytes are dots. */
INLINE __m512 tile_scaled(__m512i bytes, const int q, const bool edge, __m512 values) {
    if (!edge)
        return _mm512_permutexvar_ps((__m512i)((vector_u32)bytes >> q * 8), values);
    const vector_u32 up = (vector_u32)bytes << (24 - q * 8);
    return _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_srai_epi32((__m512i)up, 24)), values);
}

/* Tables of 9 taps: what they add to the dot, or half of it. */
typedef struct tile_tables {
    __m512i first, rows[3];
    __m512 values;
} tile_tables;

INLINE tile_tables tables_of(const xn_cpu_few_tile *t, int32_t x, const bool edge) {
    tile_tables out = {.first = tile_order((const int8_t *)t->first + x),
                       .values = _mm512_set1_ps(t->factor)};
    for (int i = 0; i < 3; i++)
        out.rows[i] = (__m512i)LOAD_TABLE(t->tables + i * XN_CPU_TABLE_BYTES);
    if (edge)
        return out;
    /* (dot + 9) / 2: halves of even bytes between -6 and 6, and of first + 9, from 0 to 18 */
    const __m512i low = _mm512_set1_epi8(0x7f), high = _mm512_set1_epi8((char)0x80);
    for (int i = 0; i < 3; i++)
        out.rows[i] = _mm512_or_si512(_mm512_and_si512(_mm512_srli_epi16(out.rows[i], 1), low),
                                      _mm512_and_si512(out.rows[i], high));
    out.first = _mm512_and_si512(
        _mm512_srli_epi16(_mm512_add_epi8(out.first, _mm512_set1_epi8(9)), 1), low);
    const __m512 dots = _mm512_setr_ps(-9, -7, -5, -3, -1, 1, 3, 5, 7, 9, 0, 0, 0, 0, 0, 0);
    out.values = _mm512_mul_ps(dots, out.values);
    return out;
}

typedef struct tile_bias {
    bool there;
    __m512 value;
} tile_bias;

/* How a tile's columns are written. */
typedef struct tile_store {
    bool edge, stream;
    uint64_t valid; /* edge: which of the block's outputs there are */
} tile_store;

/* A row of outputs from the patterns of three input rows and K's sums. */
INLINE void tile_emit(const tile_tables *tables, const __m512i patterns[3], const __m512 k[4],
                      const tile_bias bias, const tile_store store, float *to, vector_u32 *most) {
    __m512i bytes =
        _mm512_add_epi8(tables->first, _mm512_shuffle_epi8(tables->rows[0], patterns[0]));
    bytes = _mm512_add_epi8(bytes, _mm512_shuffle_epi8(tables->rows[1], patterns[1]));
    bytes = _mm512_add_epi8(bytes, _mm512_shuffle_epi8(tables->rows[2], patterns[2]));
#pragma GCC unroll 4
    for (int q = 0; q < 4; q++) {
        const __mmask16 part = (__mmask16)(store.valid >> q * 16);
        const __m512 scaled = tile_scaled(bytes, q, store.edge, tables->values);
        const __m512 value = bias.there ? _mm512_add_ps(_mm512_mul_ps(scaled, k[q]), bias.value)
                                        : _mm512_mul_ps(scaled, k[q]);
        note_sums(most, (vector_f32)(store.edge ? _mm512_maskz_mov_ps(part, k[q]) : k[q]));
        if (store.edge)
            _mm512_mask_storeu_ps(to + q * 16, part, value);
        else if (store.stream)
            _mm512_stream_ps(to + q * 16, value);
        else
            _mm512_storeu_ps(to + q * 16, value);
    }
}

/* Brings the next but one block's part of a row nearer: a tile comes to it in so many rows' time.
 */
INLINE void tile_ahead(const float *from) {
    for (int q = 0; q < 4; q++)
        _mm_prefetch((const char *)(from + 2 * BLOCK + q * 16), _MM_HINT_T1);
}

INLINE void sum_tile_rows(const tile_row *a, const tile_row *b, const tile_row *c, __m512 k[4]) {
#pragma GCC unroll 4
    for (int q = 0; q < 4; q++)
        k[q] = _mm512_add_ps(_mm512_add_ps(a->sums[q], b->sums[q]), c->sums[q]);
}

/* Two rows at a time leave no row to be moved to another register. */
INLINE bool tile_columns(const xn_cpu_few_tile *t, int32_t x, const tile_mask *mask,
                         const tile_store store, const bool with_bias) {
    const tile_tables tables = tables_of(t, x, store.edge);
    const tile_bias bias = {with_bias, _mm512_set1_ps(t->bias)};
    const int64_t from_pitch = t->from_pitch, to_pitch = t->to_pitch;
    const float *from = t->from + x;
    float *to = t->to + x;
    vector_u32 most = {0};
    tile_row a = tile_take(t, from, mask, store.edge);
    tile_row b = tile_take(t, from + from_pitch, mask, store.edge);
    for (int32_t rows = t->rows; rows > 0; rows -= 2) {
        __m512 k[4];
        from += 2 * from_pitch;
        const tile_row c = tile_take(t, from, mask, store.edge);
        tile_ahead(from);
        sum_tile_rows(&a, &b, &c, k);
        tile_emit(&tables, (const __m512i[3]){a.pattern, b.pattern, c.pattern}, k, bias, store, to,
                  &most);
        if (rows == 1)
            break;
        const tile_row d = tile_take(t, from + from_pitch, mask, store.edge);
        tile_ahead(from + from_pitch);
        sum_tile_rows(&b, &c, &d, k);
        tile_emit(&tables, (const __m512i[3]){b.pattern, c.pattern, d.pattern}, k, bias, store,
                  to + to_pitch, &most);
        to += 2 * to_pitch;
        a = c;
        b = d;
    }
    return must_be_finite(most, 9, t->factor, t->bias);
}

INLINE bool tile_by(const xn_cpu_few_tile *t, const bool with_bias) {
    const bool stream = t->stream && (uintptr_t)t->to % 64 == 0 && t->to_pitch % LANES == 0;
    bool finite = true;
    for (int32_t x = 0; x < t->n; x += BLOCK) {
        const int64_t column = (int64_t)t->start + x;
        tile_mask mask;
        for (int q = 0; q < 5; q++)
            mask.inside[q] = (__mmask16)bits_between(-column - q * 16, t->width - column - q * 16);
        const tile_store edge = {.edge = true, .valid = bits_between(0, t->n - x)};
        if (column < 0 || column + COLUMNS > t->width || x + BLOCK > t->n)
            finite = tile_columns(t, x, &mask, edge, with_bias) && finite;
        else if (stream)
            finite = tile_columns(t, x, &mask, (tile_store){.stream = true}, with_bias) && finite;
        else
            finite = tile_columns(t, x, &mask, (tile_store){0}, with_bias) && finite;
    }
    return finite;
}

/* A bias of -0 leaves values as they are. */
static bool tile(const xn_cpu_few_tile *t) {
    if (t->bias == 0.0f && signbit(t->bias))
        return tile_by(t, false);
    return tile_by(t, true);
}

XN_TARGET_END
#endif
