/* dense_body.h: the one text of the kernels in dense_kernels.h. dense_avx512.c, dense_avx2.c,
 * dense_neon.c and dense_portable.c include it, each after choosing its instruction set, including
 * its lanes_*.h and defining
 *
 *   DENSE_KERNELS        the table's symbol
 *   COSTS                xn_cpu_dense_costs, in its order
 *   MOST_POINTS          points, up to 8, and
 *   TILE_VECTORS         vectors of filters whose sums are in registers
 *   ALONE_VECTORS        of one point alone: enough that no sum waits for the one before */
#include "dense_kernels.h"
#include "vectors.h"

#include <float.h>

enum { FILTERS = XN_CPU_DENSE_FILTERS };

/* Filters [0, vectors) of some points. */
INLINE void multiply_tile(const float *const *points, int32_t terms, const float *weights,
                          int32_t part, float *sums, float *rest, const int count,
                          const int vectors) {
    vector_f32 sum[MOST_POINTS][ALONE_VECTORS];
    const float *point[MOST_POINTS];
    UNROLLED
    for (int p = 0; p < count; p++) {
        point[p] = points[p];
        UNROLLED
        for (int v = 0; v < vectors; v++)
            sum[p][v] = (vector_f32){0};
    }
    for (int64_t k = 0; k < terms; k++, weights += FILTERS) {
        vector_f32 w[ALONE_VECTORS];
        UNROLLED
        for (int v = 0; v < vectors; v++)
            w[v] = *(const loose_f32 *)(weights + v * LANES);
        UNROLLED
        for (int p = 0; p < count; p++) {
            const vector_f32 x = point[p][k] - (vector_f32){0};
            UNROLLED
            for (int v = 0; v < vectors; v++)
                sum[p][v] = MULTIPLY_ADD(x, w[v], sum[p][v]);
        }
    }
    UNROLLED
    for (int p = 0; p < count; p++) {
        UNROLLED
        for (int v = 0; v < vectors; v++) {
            const int at = p * FILTERS + v * LANES;
            if (part > 0) {
                vector_f32 lost = {0};
                if (part > 1)
                    lost = *(const loose_f32 *)(rest + at);
                sum[p][v] = add_part(sum[p][v], *(const loose_f32 *)(sums + at), &lost);
                *(loose_f32 *)(rest + at) = lost;
            }
            *(loose_f32 *)(sums + at) = sum[p][v];
        }
    }
}

INLINE void multiply_points(const float *const *points, int32_t terms, const float *weights,
                            int32_t part, float *sums, float *rest, const int count) {
    const int vectors = count == 1 ? ALONE_VECTORS : TILE_VECTORS;
    for (int f = 0; f < FILTERS; f += vectors * LANES)
        multiply_tile(points, terms, weights + f, part, sums + f, rest + f, count, vectors);
}

static void multiply(const float *const *points, int32_t count, int32_t terms, const float *weights,
                     int32_t part, float *sums, float *rest) {
#define CASE(n)                                                                                    \
    if (count == (n) && (n) <= MOST_POINTS)                                                        \
    multiply_points(points, terms, weights, part, sums, rest, (n) < MOST_POINTS ? (n) : MOST_POINTS)
    CASE(1);
    CASE(2);
    CASE(3);
    CASE(4);
    CASE(5);
    CASE(6);
    CASE(7);
    CASE(8);
#undef CASE
}

static bool finish(const float *sums, const float *factor, const float *bias, int32_t n,
                   float *out) {
    vector_u32 odd = {0};
    int32_t f = 0;
    for (; f + LANES <= n; f += LANES) {
        const vector_f32 v = *(const loose_f32 *)(sums + f) * *(const loose_f32 *)(factor + f) +
                             *(const loose_f32 *)(bias + f);
        note_value(&odd, v);
        *(loose_f32 *)(out + f) = v;
    }
    bool finite = are_finite(odd);
    for (; f < n; f++) {
        out[f] = xn_epilogue_value(sums[f], factor[f], 1.0f, bias[f]);
        finite = finite && fabsf(out[f]) <= FLT_MAX;
    }
    return finite;
}

const xn_cpu_dense_kernels DENSE_KERNELS = {
    .costs = {COSTS},
    .most = MOST_POINTS,
    .multiply = multiply,
    .finish = finish,
};
