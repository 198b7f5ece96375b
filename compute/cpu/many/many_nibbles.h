/* many_nibbles.h: counting differing bits with byte look-ups, for machines that shuffle bytes but
 * do not count bits (included by many_body.h).
 *
 * A lane is a byte that holds 4 channels of its pixel, and the 16 numbers of bits in which they may
 * differ from 4 bits of a filter are a table of 16 bytes: popcount(i ^ filter's nibble). So one
 * shuffle looks up, and one addition counts, 4 channels of VECTOR_BYTES pixels: half the
 * instructions of looking up both nibbles of a xor. Bytes hold FOLD_NIBBLES of these; then they are
 * added to the 32-bit counts in memory. Before the next ones all filters take these nibbles of the
 * patches, which therefore stay in L1.
 *
 * NIBBLE_TABLE(t) gives 16 bytes at t in every 16 bytes of a vector, NIBBLE_LOOKUP(table, i) looks
 * up by bytes below 16. */

enum { TILE_LANES = VECTOR_BYTES, WORD_BYTES = 8, FOLD_NIBBLES = 56, WORD_NIBBLES = 8 };
#define ARRANGE arrange

/* Row i is for filter nibble i; the offset of a row is what xn_cpu_many_weights.nibbles holds. */
static const uint8_t differing[16][16] __attribute__((aligned(64))) = {
    {0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4},
    {1, 0, 2, 1, 2, 1, 3, 2, 2, 1, 3, 2, 3, 2, 4, 3},
    {1, 2, 0, 1, 2, 3, 1, 2, 2, 3, 1, 2, 3, 4, 2, 3},
    {2, 1, 1, 0, 3, 2, 2, 1, 3, 2, 2, 1, 4, 3, 3, 2},
    {1, 2, 2, 3, 0, 1, 1, 2, 2, 3, 3, 4, 1, 2, 2, 3},
    {2, 1, 3, 2, 1, 0, 2, 1, 3, 2, 4, 3, 2, 1, 3, 2},
    {2, 3, 1, 2, 1, 2, 0, 1, 3, 4, 2, 3, 2, 3, 1, 2},
    {3, 2, 2, 1, 2, 1, 1, 0, 4, 3, 3, 2, 3, 2, 2, 1},
    {1, 2, 2, 3, 2, 3, 3, 4, 0, 1, 1, 2, 1, 2, 2, 3},
    {2, 1, 3, 2, 3, 2, 4, 3, 1, 0, 2, 1, 2, 1, 3, 2},
    {2, 3, 1, 2, 3, 4, 2, 3, 1, 2, 0, 1, 2, 3, 1, 2},
    {3, 2, 2, 1, 4, 3, 3, 2, 2, 1, 1, 0, 3, 2, 2, 1},
    {2, 3, 3, 4, 1, 2, 2, 3, 1, 2, 2, 3, 0, 1, 1, 2},
    {3, 2, 4, 3, 2, 1, 3, 2, 2, 1, 3, 2, 1, 0, 2, 1},
    {3, 4, 2, 3, 2, 3, 1, 2, 2, 3, 1, 2, 1, 2, 0, 1},
    {4, 3, 3, 2, 3, 2, 2, 1, 3, 2, 2, 1, 2, 1, 1, 0},
};

static void arrange(const uint32_t *patches, int32_t words, int32_t pitch, int32_t lanes,
                    void *arranged) {
    uint8_t *restrict to = arranged;
    for (int32_t k = 0; k < words; k++, patches += pitch)
        for (int nibble = 0; nibble < WORD_NIBBLES; nibble++, to += pitch) {
            const uint32_t *restrict from = patches;
            for (int32_t x = 0; x < lanes; x++)
                to[x] = (uint8_t)(from[x] >> 4 * nibble & 15);
        }
}

INLINE void nibble_tile(const uint8_t *patches, int32_t count, int32_t pitch,
                        const uint8_t *nibbles, int64_t filter_nibbles, bool first, uint32_t *out,
                        const int vectors, const int filters) {
    vector_u8 sum[TILE_FILTERS][TILE_VECTORS];
    for (int f = 0; f < filters; f++)
        for (int v = 0; v < vectors; v++)
            sum[f][v] = (vector_u8){0};
    for (int32_t k = 0; k < count; k++) {
        vector_u8 x[TILE_VECTORS];
        for (int v = 0; v < vectors; v++)
            x[v] = *(const loose_u8 *)(patches + (size_t)k * (size_t)pitch + v * VECTOR_BYTES);
        for (int f = 0; f < filters; f++) {
            vector_u8 table = NIBBLE_TABLE(differing[0] + nibbles[f * filter_nibbles + k]);
            for (int v = 0; v < vectors; v++)
                sum[f][v] += NIBBLE_LOOKUP(table, x[v]);
        }
    }
    for (int f = 0; f < filters; f++) {
        uint8_t bytes[TILE_VECTORS * VECTOR_BYTES] __attribute__((aligned(64)));
        uint32_t *restrict to = out + (size_t)f * (size_t)pitch;
        memcpy(bytes, sum[f], (size_t)vectors * VECTOR_BYTES);
        if (first)
            for (int x = 0; x < vectors * VECTOR_BYTES; x++)
                to[x] = bytes[x];
        else
            for (int x = 0; x < vectors * VECTOR_BYTES; x++)
                to[x] += bytes[x];
    }
}

INLINE void nibble_lanes(const uint8_t *patches, int32_t count, int32_t pitch,
                         const uint8_t *nibbles, int64_t filter_nibbles, int32_t filters,
                         bool first, uint32_t *out, const int vectors) {
    int32_t f = 0;
    for (; f + TILE_FILTERS <= filters; f += TILE_FILTERS)
        nibble_tile(patches, count, pitch, nibbles + f * filter_nibbles, filter_nibbles, first,
                    out + (size_t)f * (size_t)pitch, vectors, TILE_FILTERS);
    for (; f < filters; f++)
        nibble_tile(patches, count, pitch, nibbles + f * filter_nibbles, filter_nibbles, first,
                    out + (size_t)f * (size_t)pitch, vectors, 1);
}

static void differ(const void *patches, int32_t words, int32_t pitch, int32_t lanes,
                   const uint32_t *bits, const uint8_t *nibbles, int32_t filters, uint32_t *out) {
    (void)bits;
    const uint8_t *from = patches;
    int64_t all = (int64_t)words * WORD_NIBBLES;
    for (int64_t k = 0; k < all; k += FOLD_NIBBLES) {
        int32_t count = (int32_t)xn_cpu_min(FOLD_NIBBLES, all - k), x = 0;
        const uint8_t *part = from + k * pitch;
        for (; x + TILE_VECTORS * VECTOR_BYTES <= lanes; x += TILE_VECTORS * VECTOR_BYTES)
            nibble_lanes(part + x, count, pitch, nibbles + k, all, filters, k == 0, out + x,
                         TILE_VECTORS);
        for (; x < lanes; x += VECTOR_BYTES)
            nibble_lanes(part + x, count, pitch, nibbles + k, all, filters, k == 0, out + x, 1);
    }
}
