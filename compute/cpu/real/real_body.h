/* real_body.h: the one text of the kernels in real_kernels.h. real_avx512.c, real_avx2.c,
 * real_neon.c and real_portable.c include it, each after choosing its instruction set, including
 * its lanes_*.h and defining
 *
 *   REAL_KERNELS         the table's symbol
 *   COSTS                xn_cpu_real_costs, in its order
 *   TILE_VECTORS         vectors of lanes and
 *   TILE_FILTERS         filters (a divisor of XN_CPU_REAL_FILTERS) whose sums are in registers
 *
 * A tile takes TILE_VECTORS loads of pixels and TILE_FILTERS of weights for the product of both in
 * multiplications: it is these that bound it, not loads. */
#include "real_kernels.h"
#include "vectors.h"

enum { FILTERS = XN_CPU_REAL_FILTERS };

/* ---- panels ---- */

/* Every other column from `from` on. */
INLINE void move_even(const float *from, uint32_t inside, vector_f32 pads, float *to) {
    for (int l = 0; l < XN_CPU_MOVE_LANES; l += LANES, from += 2 * LANES) {
        const uint32_t low = inside >> l >> l, high = low >> (LANES - 1) >> 1;
        vector_f32 a = LOAD_INSIDE(from, low & ((1u << LANES) - 1), pads);
        vector_f32 b = LOAD_INSIDE(from + LANES, high & ((1u << LANES) - 1), pads);
        *(loose_f32 *)(to + l) = EVENS(a, b);
    }
}

/* What the next panel will want of these rows, as a rule what follows there, is fetched meanwhile:
 * channels are too far apart for the machine to guess. */
INLINE void pack_by(const xn_cpu_move *moves, int32_t count, int64_t next, int32_t rows, float pad,
                    float *panel, int32_t pitch, const int32_t stride) {
    vector_f32 pads = pad - (vector_f32){0};
    for (int64_t at = 0; rows > 0; rows--, at += next, panel += pitch)
        for (int32_t m = 0; m < count; m++) {
            const float *from = moves[m].from + at;
            __builtin_prefetch(from + stride * pitch, 0, 2);
            if (stride == 1) {
                MOVE(from, moves[m].inside, pads, panel + moves[m].to);
            } else {
                __builtin_prefetch(from + stride * pitch + XN_CPU_MOVE_LANES, 0, 2);
                move_even(from, moves[m].inside, pads, panel + moves[m].to);
            }
        }
}

static void pack(const xn_cpu_move *moves, int32_t count, int32_t stride, int64_t next,
                 int32_t rows, float pad, float *panel, int32_t pitch) {
    if (stride == 1)
        pack_by(moves, count, next, rows, pad, panel, pitch, 1);
    else
        pack_by(moves, count, next, rows, pad, panel, pitch, 2);
}

/* ---- products ---- */

/* A tile: its place among the filters, and where its sums are. */
typedef struct tile {
    const float *weights;
    float *sums, *rest;
    int32_t first;
} tile;

INLINE void add_terms(const xn_cpu_pixels *pixels, int32_t terms, const float *weights,
                      const int vectors, const bool offsets,
                      vector_f32 sum[TILE_FILTERS][TILE_VECTORS]) {
    const int64_t next = pixels->next;
    const float *from[TILE_VECTORS];
    for (int v = 0; v < vectors; v++)
        from[v] = pixels->from[v];
    for (int64_t k = 0, at = 0; k < terms; k++, at += next, weights += FILTERS) {
        const int64_t here = offsets ? pixels->offset[k] : at;
        vector_f32 x[TILE_VECTORS];
        for (int v = 0; v < vectors; v++)
            x[v] = *(const loose_f32 *)(from[v] + here);
        UNROLLED
        for (int f = 0; f < TILE_FILTERS; f++) {
            vector_f32 weight = weights[f] - (vector_f32){0};
            UNROLLED
            for (int v = 0; v < vectors; v++)
                sum[f][v] = MULTIPLY_ADD(x[v], weight, sum[f][v]);
        }
    }
}

/* Sums of all parts, from those of one. */
INLINE void join_parts(const tile *t, int32_t part, const bool last, const int vectors,
                       vector_f32 sum[TILE_FILTERS][TILE_VECTORS]) {
    UNROLLED
    for (int f = 0; f < TILE_FILTERS; f++)
        UNROLLED
    for (int v = 0; v < vectors; v++) {
        const int at = (f * vectors + v) * LANES;
        vector_f32 rest = {0};
        if (part > 1)
            rest = *(const loose_f32 *)(t->rest + at);
        sum[f][v] = add_part(sum[f][v], *(const loose_f32 *)(t->sums + at), &rest);
        if (!last)
            *(loose_f32 *)(t->rest + at) = rest;
    }
}

INLINE bool write_values(const tile *t, const xn_cpu_values *values, const int vectors,
                         vector_f32 sum[TILE_FILTERS][TILE_VECTORS]) {
    vector_u32 odd = {0};
    UNROLLED
    for (int f = 0; f < TILE_FILTERS; f++) {
        const int32_t at = t->first + f - values->first;
        if (at >= 0 && at < values->count) {
            const float factor = values->factor[at], bias = values->bias[at];
            float *to = values->to + at * values->pitch;
            UNROLLED
            for (int v = 0; v < vectors; v++) {
                const vector_f32 value = value_of(sum[f][v], factor, bias);
                note_value(&odd, value);
                *(loose_f32 *)(to + v * LANES) = value;
            }
        }
    }
    return are_finite(odd);
}

INLINE bool multiply_tile(const xn_cpu_pixels *pixels, int32_t terms, const tile *t, int32_t part,
                          const xn_cpu_values *values, const int vectors, const bool offsets) {
    vector_f32 sum[TILE_FILTERS][TILE_VECTORS];
    UNROLLED
    for (int f = 0; f < TILE_FILTERS; f++)
        UNROLLED
    for (int v = 0; v < vectors; v++)
        sum[f][v] = (vector_f32){0};
    add_terms(pixels, terms, t->weights, vectors, offsets, sum);
    if (part > 0 && values)
        join_parts(t, part, true, vectors, sum);
    else if (part > 0)
        join_parts(t, part, false, vectors, sum);
    if (values)
        return write_values(t, values, vectors, sum);
    UNROLLED
    for (int f = 0; f < TILE_FILTERS; f++)
        UNROLLED
    for (int v = 0; v < vectors; v++)
        *(loose_f32 *)(t->sums + (f * vectors + v) * LANES) = sum[f][v];
    return true;
}

INLINE bool multiply_by(const xn_cpu_pixels *pixels, int32_t terms, const float *weights,
                        int32_t part, float *sums, float *rest, const xn_cpu_values *values,
                        const int vectors, const bool offsets) {
    bool finite = true;
    for (int f = 0; f < FILTERS; f += TILE_FILTERS) {
        const int at = f * vectors * LANES;
        const tile t = {weights + f, sums + at, rest + at, f};
        finite &= multiply_tile(pixels, terms, &t, part, values, vectors, offsets);
    }
    return finite;
}

INLINE bool multiply_at(const xn_cpu_pixels *pixels, int32_t terms, const float *weights,
                        int32_t part, float *sums, float *rest, const xn_cpu_values *values,
                        const bool offsets) {
    if (pixels->vectors == 1)
        return multiply_by(pixels, terms, weights, part, sums, rest, values, 1, offsets);
    if (TILE_VECTORS == 2 || pixels->vectors == 2)
        return multiply_by(pixels, terms, weights, part, sums, rest, values, 2, offsets);
    return multiply_by(pixels, terms, weights, part, sums, rest, values, TILE_VECTORS, offsets);
}

static bool multiply(const xn_cpu_pixels *pixels, int32_t terms, const float *weights, int32_t part,
                     float *sums, float *rest, const xn_cpu_values *values) {
    if (pixels->offset)
        return multiply_at(pixels, terms, weights, part, sums, rest, values, true);
    return multiply_at(pixels, terms, weights, part, sums, rest, values, false);
}

/* ---- a few pixels: lanes are a tile's filters ---- */

typedef float filters_f32 __attribute__((vector_size(4 * FILTERS)));
typedef float loose_filters __attribute__((vector_size(4 * FILTERS), UNALIGNED(float)));

enum { TILE_FLOATS = FILTERS * LANES /* sums of a tile */, TAIL_SUMS = 8 };

INLINE void join_tail(filters_f32 *sum, int32_t part, float *sums, float *rest) {
    filters_f32 lost = {0};
    if (part > 1)
        lost = *(const loose_filters *)rest;
    const filters_f32 before = *(const loose_filters *)sums;
    const filters_f32 term = *sum - lost, after = before + term;
    *(loose_filters *)rest = (after - before) - term;
    *sum = after;
}

INLINE void end_tail(const filters_f32 *sum, int32_t part, bool last, float *sums, float *rest,
                     const int count) {
    filters_f32 all[XN_CPU_REAL_TAIL];
    for (int p = 0; p < count; p++) {
        all[p] = sum[p];
        if (part > 0)
            join_tail(&all[p], part, sums + p * FILTERS, rest + p * FILTERS);
    }
    for (int p = 0; p < count; p++)
        for (int f = 0; f < FILTERS; f++)
            sums[last ? f * LANES + p : p * FILTERS + f] = all[p][f];
}

INLINE void multiply_tail_by(const xn_cpu_pixels *pixels, int32_t terms, const float *weights,
                             int64_t tile_floats, int32_t part, bool last, float *sums, float *rest,
                             const int count, const int tiles) {
    filters_f32 sum[TAIL_SUMS][XN_CPU_REAL_TAIL];
    const float *from = pixels->from[0];
    UNROLLED
    for (int t = 0; t < tiles; t++) {
        UNROLLED
        for (int p = 0; p < count; p++)
            sum[t][p] = (filters_f32){0};
    }
    for (int32_t k = 0; k < terms; k++, from += pixels->next, weights += FILTERS) {
        UNROLLED
        for (int t = 0; t < tiles; t++) {
            const filters_f32 w = *(const loose_filters *)(weights + t * tile_floats);
            UNROLLED
            for (int p = 0; p < count; p++)
                sum[t][p] = MULTIPLY_ADD_8(w, from[p] - (filters_f32){0}, sum[t][p]);
        }
    }
    UNROLLED
    for (int t = 0; t < tiles; t++)
        end_tail(sum[t], part, last, sums + t * TILE_FLOATS, rest + t * TILE_FLOATS, count);
}

/* As many tiles at a time as their sums do not wait for one another. */
INLINE void multiply_tails(const xn_cpu_pixels *pixels, int32_t terms, const float *weights,
                           int64_t tile_floats, int32_t tiles, int32_t part, bool last, float *sums,
                           float *rest, const int count) {
    const int together = TAIL_SUMS / count;
    int32_t t = 0;
    for (; t + together <= tiles; t += together)
        multiply_tail_by(pixels, terms, weights + t * tile_floats, tile_floats, part, last,
                         sums + t * TILE_FLOATS, rest + t * TILE_FLOATS, count, together);
    for (; t < tiles; t++)
        multiply_tail_by(pixels, terms, weights + t * tile_floats, tile_floats, part, last,
                         sums + t * TILE_FLOATS, rest + t * TILE_FLOATS, count, 1);
}

static void multiply_tail(const xn_cpu_pixels *pixels, int32_t count, int32_t terms,
                          const float *weights, int64_t tile_floats, int32_t tiles, int32_t part,
                          bool last, float *sums, float *rest) {
#define CASE(n)                                                                                    \
    if (count == (n))                                                                              \
    multiply_tails(pixels, terms, weights, tile_floats, tiles, part, last, sums, rest, n)
    CASE(1);
    CASE(2);
    CASE(3);
    CASE(4);
#undef CASE
}

const xn_cpu_real_kernels REAL_KERNELS = {
    .costs = {COSTS},
    .lanes = LANES,
    .most = TILE_VECTORS,
    .pack = pack,
    .multiply = multiply,
    .multiply_tail = multiply_tail,
};
