/* lookup_body.h: the one text of the kernels of lookup (lookup_kernels.h). lookup_portable.c,
 * lookup_avx2.c, lookup_avx512.c and lookup_neon.c include it, each after choosing its instruction
 * set and defining
 *
 *   LOOKUP_KERNELS   the table's symbol
 *   VECTOR_BYTES  16, 32 or 64
 *   LOOK_UP(table, patterns)  table[pattern] for each byte
 *   LOAD_TABLE(from)  16 bytes, repeated over a vector
 *   LOOK_UP_NS    rough time of that and its addition
 *   SIGN_BYTES(v) a vector of bytes from 4 vectors of floats: 1 for v >= 0, else 0
 *   WIDEN(v, q)   quarter q of a vector of signed bytes, as floats
 *   MOST(a, b)    the larger of unsigned words
 *   STREAM(to, v) a vector of floats to aligned memory, past the caches
 *   TAKE, TILE    the table's take and tile
 *
 * A block is the outputs of one vector of bytes, so 4 vectors of floats. Several go side by side
 * where the row is long enough: a table, once loaded, serves them all. */
#include "vectors.h"

enum {
    BLOCK = VECTOR_BYTES,             /* outputs */
    SIDE = VECTOR_BYTES < 64 ? 2 : 4, /* blocks side by side */
    PART = 15,                        /* planes whose bytes add up to no more than an int8 holds */
};

/* ---- an input row ---- */

/* A row of an image often ends where a page does, and there hardware stops to fetch ahead. */
INLINE void fetch_ahead(const float *from) {
    for (int line = 0; line < BLOCK; line += 64 / (int)sizeof *from)
        __builtin_prefetch(from + line);
}

static void split(const float *restrict src, int32_t n, int64_t ahead, bool add,
                  uint8_t *restrict sign, float *restrict magnitude) {
    int32_t x = 0;
    for (; x + BLOCK <= n; x += BLOCK) {
        vector_f32 v[4];
        fetch_ahead(src + x + ahead);
        for (int q = 0; q < 4; q++)
            v[q] = *(const loose_f32 *)(src + x + q * LANES);
        *(loose_u8 *)(sign + x) = SIGN_BYTES(v);
        if (!magnitude)
            continue;
        for (int q = 0; q < 4; q++) {
            float *to = magnitude + x + q * LANES;
            vector_f32 size = (vector_f32)((vector_u32)v[q] & 0x7fffffffu);
            if (add)
                size += *(const loose_f32 *)to;
            *(loose_f32 *)to = size;
        }
    }
    for (; x < n; x++) {
        sign[x] = src[x] >= 0.0f;
        if (magnitude)
            magnitude[x] = (add ? magnitude[x] : 0.0f) + fabsf(src[x]);
    }
}

static void join(const uint8_t *const *signs, int32_t taps, int32_t n, uint8_t *plane) {
    for (int32_t x = 0; x < n; x += BLOCK) {
        vector_u8 pattern = {0};
        for (int32_t t = taps; t-- > 0;)
            pattern = pattern + pattern + *(const loose_u8 *)(signs[t] + x);
        *(loose_u8 *)(plane + x) = pattern;
    }
}

INLINE vector_f32 row_sum(const float *const *rows, const int32_t count, int32_t x) {
    vector_f32 sum = *(const loose_f32 *)(rows[0] + x);
    for (int32_t r = 1; r < count; r++)
        sum += *(const loose_f32 *)(rows[r] + x);
    return sum;
}

INLINE void add_rows_of(const float *const *rows, const int32_t count, int32_t n, float *dst) {
    for (int32_t x = 0; x < n; x += LANES)
        *(loose_f32 *)(dst + x) = row_sum(rows, count, x);
}

static void add_rows(const float *const *rows, int32_t count, int32_t n, float *dst) {
    if (count == 3) {
        const float *three[3] = {rows[0], rows[1], rows[2]};
        add_rows_of(three, 3, n, dst);
    } else {
        add_rows_of(rows, count, n, dst);
    }
}

/* ---- a row of outputs ---- */

/* Adds to sum, for `side` blocks from output x on, what planes from..to-1 give. */
INLINE void add_planes(const xn_cpu_lookup_outputs *o, const int32_t from, const int32_t to,
                       int32_t x, vector_u8 *sum, const int side) {
    for (int32_t p = from; p < to; p++) {
        const uint8_t *plane = o->planes[p] + x;
        const vector_u8 table = LOAD_TABLE(o->tables + (size_t)p * XN_CPU_TABLE_BYTES);
        for (int s = 0; s < side; s++)
            sum[s] += LOOK_UP(table, *(const loose_u8 *)(plane + s * BLOCK));
    }
}

/* K's sums are not negative, so their bits are in their order, and infinity and NaN the largest. */
INLINE void note_sums(vector_u32 *most, vector_f32 sums) {
    *most = MOST(*most, (vector_u32)sums);
}

/* Whether all values of such sums must be finite: a bound, which is computed once and not for each.
 * With a factor that is NaN they are not. */
INLINE bool must_be_finite(vector_u32 most, int32_t taps, float factor, float bias) {
    uint32_t bits = 0;
    float largest;
    for (int l = 0; l < LANES; l++)
        bits = most[l] > bits ? most[l] : bits;
    memcpy(&largest, &bits, sizeof largest);
    return fabs((double)factor) * taps * (double)largest + fabs((double)bias) < 0x1.fffffp127;
}

/* `side` blocks of outputs from x on to dst. */
INLINE void emit_blocks(const xn_cpu_lookup_outputs *o, const int32_t count, const int32_t rows,
                        int32_t x, float *dst, const bool stream, vector_u32 *most,
                        const int side) {
    vector_u8 sum[SIDE];
    for (int s = 0; s < side; s++)
        sum[s] = *(const loose_u8 *)((const uint8_t *)o->first + x + s * BLOCK);
    add_planes(o, 0, count, x, sum, side);
    for (int s = 0; s < side; s++) {
#pragma GCC unroll 4
        for (int q = 0; q < 4; q++) {
            const int32_t at = s * BLOCK + q * LANES;
            const vector_f32 acc = WIDEN((vector_i8)sum[s], q);
            vector_f32 value;
            if (rows) {
                const vector_f32 k = row_sum(o->rows, rows, x + at);
                note_sums(most, k);
                value = value_with_k(acc, o->factor, k, o->bias);
            } else {
                value = value_of(acc, o->factor, o->bias);
            }
            if (stream)
                STREAM(dst + at, value);
            else
                *(loose_f32 *)(dst + at) = value;
        }
    }
}

/* Without K the sum is 1. */
INLINE bool are_known_finite(const xn_cpu_lookup_outputs *o, const int32_t rows, vector_u32 most) {
    const vector_u32 one = (vector_u32)((vector_f32){0} + 1.0f);
    return must_be_finite(rows ? most : one, o->taps, o->factor, o->bias);
}

/* The last outputs, fewer than a block: what lies past them is not looked at. */
INLINE void emit_rest(const xn_cpu_lookup_outputs *o, const int32_t count, const int32_t rows,
                      int32_t x, float *dst, vector_u32 *most) {
    float values[BLOCK] __attribute__((aligned(64)));
    vector_u32 ignored = {0};
    emit_blocks(o, count, rows, x, values, false, &ignored, 1);
    memcpy(dst + x, values, (size_t)(o->n - x) * sizeof *dst);
    for (; x < o->n; x++) {
        float k = 0.0f;
        uint32_t bits;
        for (int32_t r = 0; r < rows; r++)
            k += o->rows[r][x];
        memcpy(&bits, &k, sizeof bits);
        note_sums(most, (vector_f32)(bits - (vector_u32){0}));
    }
}

INLINE bool emit_row(const xn_cpu_lookup_outputs *o, const int32_t count, const int32_t rows,
                     const bool stream, float *dst) {
    vector_u32 most = {0};
    int32_t x = 0;
    if (stream) { /* up to aligned memory: some of these outputs are then written again */
        const int32_t ahead = (int32_t)(-(uintptr_t)dst / sizeof *dst % LANES);
        if (ahead && o->n >= BLOCK)
            emit_blocks(o, count, rows, 0, dst, false, &most, 1);
        x = o->n >= BLOCK ? ahead : 0;
    }
    for (; x + SIDE * BLOCK <= o->n; x += SIDE * BLOCK)
        emit_blocks(o, count, rows, x, dst + x, stream, &most, SIDE);
    for (; x + BLOCK <= o->n; x += BLOCK)
        emit_blocks(o, count, rows, x, dst + x, stream, &most, 1);
    if (x < o->n)
        emit_rest(o, count, rows, x, dst, &most);
    return are_known_finite(o, rows, most);
}

INLINE bool emit_some(const xn_cpu_lookup_outputs *o, const int32_t count, const int32_t rows,
                      float *dst) {
    if (o->stream)
        return emit_row(o, count, rows, true, dst);
    return emit_row(o, count, rows, false, dst);
}

/* Constant counts let the compiler keep tables and pointers in registers: one channel, 3x3, is what
 * the path is for. One row of sums is what several filters share. */
static bool emit(const xn_cpu_lookup_outputs *outputs, float *dst) {
    const xn_cpu_lookup_outputs o = *outputs;
    if (o.count == 3 && o.row_count == 3) {
        const float *const rows[3] = {o.rows[0], o.rows[1], o.rows[2]};
        const uint8_t *const planes[3] = {o.planes[0], o.planes[1], o.planes[2]};
        xn_cpu_lookup_outputs three = o;
        three.rows = rows;
        three.planes = planes;
        return emit_some(&three, 3, 3, dst);
    }
    if (o.row_count == 1)
        return emit_some(&o, o.count, 1, dst);
    if (o.row_count == 0)
        return emit_some(&o, o.count, 0, dst);
    return emit_some(&o, o.count, o.row_count, dst);
}

static void dots(const xn_cpu_lookup_outputs *o, int32_t *dst) {
    const int16_t *first = o->first;
    for (int32_t x = 0; x < o->n; x += BLOCK) {
        int16_t total[BLOCK] __attribute__((aligned(64)));
        memcpy(total, first + x, sizeof total);
        for (int32_t from = 0; from < o->count; from += PART) {
            vector_u8 sum = {0};
            int8_t part[BLOCK] __attribute__((aligned(64)));
            add_planes(o, from, o->count - from > PART ? from + PART : o->count, x, &sum, 1);
            memcpy(part, &sum, sizeof part);
            for (int l = 0; l < BLOCK; l++)
                total[l] = (int16_t)(total[l] + part[l]);
        }
        for (int l = 0; l < BLOCK; l++)
            dst[x + l] = total[l];
    }
}

const xn_cpu_lookup_kernels LOOKUP_KERNELS = {
    .look_up_ns = LOOK_UP_NS,
    .lanes = BLOCK,
    .split = split,
    .join = join,
    .add_rows = add_rows,
    .take = TAKE,
    .tile = TILE,
    .emit = emit,
    .dots = dots,
};
