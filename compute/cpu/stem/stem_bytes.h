/* stem_bytes.h: products of bytes by planes of 8 bits, by VPDPBUSD: 4 terms of 16 columns at a
 * time, whose sums it adds without saturation. A tile is 2 filters by 2 vectors of columns: with 4
 * filters and three planes there are 24 sums, which gcc 12 also stores in every step. */
enum { TILE_FILTERS = 2, TILE_VECTORS = 2, MOST_PLANES = 3 };

/* Written out: of the intrinsic gcc 12 copies each sum to another register and back. */
#define ADD_PRODUCTS(sum, bytes, w) __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(bytes), "v"(w))

INLINE void multiply_tile(const xn_cpu_stem_product *p, int32_t filter, int32_t column,
                          const int vectors, const int planes, float *values) {
    const int32_t pitch = xn_cpu_stem_pitch(p->count);
    const int32_t *weights = (const int32_t *)p->weights + (int64_t)filter * pitch;
    const uint32_t *words = p->words + column;
    __m512i acc[TILE_FILTERS][MOST_PLANES][TILE_VECTORS] = {0};
    for (int32_t k = 0; k < p->count; k++, words += p->columns, weights++) {
        __m512i bytes[TILE_VECTORS];
        UNROLLED
        for (int n = 0; n < vectors; n++)
            bytes[n] = _mm512_loadu_si512(words + n * LANES);
        UNROLLED
        for (int f = 0; f < TILE_FILTERS; f++)
            UNROLLED
        for (int plane = 0; plane < planes; plane++) {
            const __m512i w = _mm512_set1_epi32(weights[((int64_t)plane * p->filters + f) * pitch]);
            UNROLLED
            for (int n = 0; n < vectors; n++)
                ADD_PRODUCTS(acc[f][plane][n], bytes[n], w);
        }
    }
    for (int f = 0; f < TILE_FILTERS; f++)
        for (int n = 0; n < vectors; n++) {
            const vector_i32 low =
                (vector_i32)acc[f][1][n] * 128 + (vector_i32)acc[f][0][n]; /* within 31 bits */
            store_values(p, filter + f, column + n * LANES,
                         planes == 2 ? __builtin_convertvector(low, vector_f32)
                                     : joined((vector_i32)acc[f][2][n], low),
                         values);
        }
}

INLINE void multiply_all(const xn_cpu_stem_product *p, const int planes, float *values) {
    for (int32_t f = 0; f < p->filters; f += TILE_FILTERS) {
        int32_t x = 0;
        for (; x + TILE_VECTORS * LANES <= p->columns; x += TILE_VECTORS * LANES)
            multiply_tile(p, f, x, TILE_VECTORS, planes, values);
        if (x < p->columns)
            multiply_tile(p, f, x, 1, planes, values);
    }
}

static void multiply(const xn_cpu_stem_product *p, float *values) {
    if (p->planes == 2)
        multiply_all(p, 2, values);
    else
        multiply_all(p, 3, values);
}
