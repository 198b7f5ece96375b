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

#include <float.h>

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

INLINE void add_part(const vector_f32 part, bool first, float *sum, float *rest) {
    if (first) {
        *(loose_f32 *)sum = part;
        if (rest)
            *(loose_f32 *)rest = (vector_f32){0};
        return;
    }
    vector_f32 before = *(const loose_f32 *)sum, term = part - *(const loose_f32 *)rest;
    vector_f32 after = before + term;
    *(loose_f32 *)rest = (after - before) - term;
    *(loose_f32 *)sum = after;
}

INLINE void multiply_tile(const float *panel, int32_t pitch, int32_t taps, const float *weights,
                          bool first, float *sums, float *rest, const int vectors) {
    vector_f32 sum[TILE_FILTERS][TILE_VECTORS];
    for (int f = 0; f < TILE_FILTERS; f++)
        for (int v = 0; v < vectors; v++)
            sum[f][v] = (vector_f32){0};
    for (int32_t k = 0; k < taps; k++, panel += pitch, weights += FILTERS) {
        vector_f32 x[TILE_VECTORS];
        for (int v = 0; v < vectors; v++)
            x[v] = *(const loose_f32 *)(panel + v * LANES);
        for (int f = 0; f < TILE_FILTERS; f++) {
            vector_f32 weight = weights[f] - (vector_f32){0};
            for (int v = 0; v < vectors; v++)
                sum[f][v] = MULTIPLY_ADD(x[v], weight, sum[f][v]);
        }
    }
    for (int f = 0; f < TILE_FILTERS; f++)
        for (int v = 0; v < vectors; v++) {
            int64_t at = (int64_t)f * pitch + v * LANES;
            add_part(sum[f][v], first, sums + at, rest ? rest + at : NULL);
        }
}

INLINE void multiply_by(const float *panel, int32_t pitch, int32_t taps, const float *weights,
                        bool first, float *sums, float *rest, const int vectors) {
    for (int f = 0; f < FILTERS; f += TILE_FILTERS) {
        multiply_tile(panel, pitch, taps, weights + f, first, sums, rest, vectors);
        sums += (int64_t)TILE_FILTERS * pitch;
        if (rest)
            rest += (int64_t)TILE_FILTERS * pitch;
    }
}

static void multiply(const float *panel, int32_t pitch, int32_t taps, const float *weights,
                     bool first, float *sums, float *rest) {
    if (pitch == LANES)
        multiply_by(panel, LANES, taps, weights, first, sums, rest, 1);
    else if (TILE_VECTORS == 2 || pitch == 2 * LANES)
        multiply_by(panel, 2 * LANES, taps, weights, first, sums, rest, 2);
    else
        multiply_by(panel, TILE_VECTORS * LANES, taps, weights, first, sums, rest, TILE_VECTORS);
}

/* ---- epilogue ---- */

/* What is less than a vector is stored in part, where that is one operation. */
INLINE bool finish_row(const float *sums, int32_t n, float factor, float bias, const bool past,
                       float *out) {
    vector_u32 odd = {0};
    int32_t x = 0;
    for (; x + LANES <= n; x += LANES) {
        const vector_f32 v = value_of(*(const loose_f32 *)(sums + x), factor, bias);
        note_value(&odd, v);
        if (past)
            STREAM(out + x, v);
        else
            *(loose_f32 *)(out + x) = v;
    }
    if (x < n && VECTOR_BYTES == 64) {
        const vector_f32 v = value_of(*(const loose_f32 *)(sums + x), factor, bias);
        note_value(&odd, v);
        STORE_FIRST(out + x, n - x, v);
        x = n;
    }
    bool finite = are_finite(odd);
    for (; x < n; x++) {
        out[x] = xn_epilogue_value(sums[x], factor, 1.0f, bias);
        finite = finite && fabsf(out[x]) <= FLT_MAX;
    }
    return finite;
}

static bool finish(const float *sums, int32_t pitch, int32_t filters, int32_t n,
                   const float *factor, const float *bias, float *out, int64_t out_pitch,
                   bool stream) {
    bool finite = true;
    for (int32_t f = 0; f < filters; f++, sums += pitch, out += out_pitch) {
        if (stream && (uintptr_t)out % VECTOR_BYTES == 0)
            finite &= finish_row(sums, n, factor[f], bias[f], true, out);
        else
            finite &= finish_row(sums, n, factor[f], bias[f], false, out);
    }
    return finite;
}

const xn_cpu_real_kernels REAL_KERNELS = {
    .costs = {COSTS},
    .lanes = LANES,
    .most = TILE_VECTORS,
    .pack = pack,
    .multiply = multiply,
    .finish = finish,
};
