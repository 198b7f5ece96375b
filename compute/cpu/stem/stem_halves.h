/* stem_halves.h: products of bytes by weights of 16 bits. Lanes are columns; a tile is 2 filters by
 * 2 vectors of columns. */

/* c + the sum of a and b's products of 16 bits in each lane; a's are from 0 to 255. */
#ifndef MULTIPLY_PAIRS
#define MULTIPLY_PAIRS(a, b, c)                                                                    \
    ((c) + ((a)&0xffff) * ((vector_i32)((vector_u32)(b) << 16) >> 16) + ((a) >> 16) * ((b) >> 16))
#endif

enum { TILE_FILTERS = XN_CPU_STEM_TOGETHER, TILE_VECTORS = 2, MOST_PARTS = 2 };

INLINE vector_i32 pair_of(const int32_t *at) {
    return *at - (vector_i32){0};
}

INLINE void multiply_tile(const xn_cpu_stem_product *p, int32_t filter, int32_t column,
                          const int vectors, const int parts, float *values) {
    const int64_t row = (int64_t)xn_cpu_stem_pitch(p->count) * 2 * parts;
    const int32_t *weights = (const int32_t *)p->weights + filter * row;
    const uint32_t *words = p->words + column;
    vector_i32 acc[TILE_FILTERS][MOST_PARTS][TILE_VECTORS] = {0};
    vector_u32 even_bytes = 0x00ff00ffu - (vector_u32){0};
    for (int32_t k = 0; k < p->count; k++, words += p->columns) {
        __asm__("" : "+m"(even_bytes)); /* in memory: else a sum is there, and waits for it */
        vector_i32 even[TILE_VECTORS], odd[TILE_VECTORS];
        UNROLLED
        for (int n = 0; n < vectors; n++) {
            const vector_u32 bytes = *(const loose_u32 *)(words + n * LANES);
            even[n] = (vector_i32)(bytes & even_bytes);
            odd[n] = (vector_i32)((vector_u16)bytes >> 8);
        }
        UNROLLED
        for (int f = 0; f < TILE_FILTERS; f++)
            UNROLLED
        for (int part = 0; part < parts; part++) {
            UNROLLED
            for (int half = 0; half < 2; half++) {
                const vector_i32 pair = pair_of(weights++);
                UNROLLED
                for (int n = 0; n < vectors; n++)
                    acc[f][part][n] =
                        MULTIPLY_PAIRS(half ? odd[n] : even[n], pair, acc[f][part][n]);
            }
        }
    }
    for (int f = 0; f < TILE_FILTERS; f++)
        for (int n = 0; n < vectors; n++) {
            const vector_i32 first = acc[f][0][n], second = acc[f][1][n];
            /* XN_CPU_STEM_LOW is 8 times XN_CPU_STEM_HALF. */
            store_values(p, filter + f, column + n * LANES,
                         parts == 1 ? __builtin_convertvector(first, vector_f32)
                                    : joined(second >> 3, (second & 7) * XN_CPU_STEM_HALF + first),
                         values);
        }
}

INLINE void multiply_all(const xn_cpu_stem_product *p, const int parts, float *values) {
    for (int32_t f = 0; f < p->filters; f += TILE_FILTERS) {
        int32_t x = 0;
        for (; x + TILE_VECTORS * LANES <= p->columns; x += TILE_VECTORS * LANES)
            multiply_tile(p, f, x, TILE_VECTORS, parts, values);
        for (; x < p->columns; x += LANES)
            multiply_tile(p, f, x, 1, parts, values);
    }
}

static void multiply(const xn_cpu_stem_product *p, float *values) {
    if (p->planes == 2)
        multiply_all(p, 1, values);
    else
        multiply_all(p, 2, values);
}
