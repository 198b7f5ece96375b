/* bitgemm_nibbles.h: counting differing bits with byte look-ups, for machines that shuffle bytes
 * but do not count bits (included by bitgemm_body.h).
 *
 * A lane is a byte that holds 4 channels of its pixel, and the 16 numbers of bits in which they may
 * differ from 4 bits of a filter are a table of 16 bytes: popcount(i ^ filter's nibble). So one
 * shuffle looks up, and one addition counts, 4 channels of VECTOR_BYTES pixels: half the
 * instructions of looking up both nibbles of a xor. Bytes hold FOLD_NIBBLES of these; then they are
 * taken from the dots in memory. Before the next ones all filters take these nibbles of the
 * patches, which therefore stay in L1.
 *
 * NIBBLE_TABLE(t) gives 16 bytes at t in every 16 bytes of a vector, NIBBLE_LOOKUP(table, i) looks
 * up by bytes below 16. */

enum { TILE_LANES = VECTOR_BYTES, WORD_BYTES = 8, FOLD_NIBBLES = 56, WORD_NIBBLES = 8 };
#define LAYOUT XN_CPU_BITGEMM_NIBBLES
#define DIRECT false
#define ARRANGE arrange

/* Row i is for filter nibble i; the offset of a row is what xn_cpu_bitgemm_weights.nibbles holds.
 */
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

/* Takes twice the counts from dots. */
INLINE void nibble_tile(const uint8_t *patches, int32_t count, int32_t pitch,
                        const uint8_t *nibbles, int64_t filter_nibbles, size_t dots, uint32_t *dot,
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
        uint32_t *restrict to = dot + (size_t)f * dots;
        memcpy(bytes, sum[f], (size_t)vectors * VECTOR_BYTES);
        for (int x = 0; x < vectors * VECTOR_BYTES; x++)
            to[x] -= 2 * (uint32_t)bytes[x];
    }
}

INLINE void nibble_lanes(const uint8_t *patches, int32_t count, int32_t pitch,
                         const uint8_t *nibbles, int64_t filter_nibbles, int32_t filters,
                         size_t dots, uint32_t *dot, const int vectors) {
    int32_t f = 0;
    for (; f + TILE_FILTERS <= filters; f += TILE_FILTERS)
        nibble_tile(patches, count, pitch, nibbles + f * filter_nibbles, filter_nibbles, dots,
                    dot + (size_t)f * dots, vectors, TILE_FILTERS);
    for (; f < filters; f++)
        nibble_tile(patches, count, pitch, nibbles + f * filter_nibbles, filter_nibbles, dots,
                    dot + (size_t)f * dots, vectors, 1);
}

/* Where dots start. */
INLINE void begin_dots(const xn_cpu_lanes *lanes, const int32_t *start, int32_t *dot,
                       const class_way way) {
    const vector_u32 held = table_of(start, way);
    for (int32_t x = 0; x < lanes->count; x += WORDS)
        *(loose_u32 *)(dot + x) = entries(held, start, lanes->kind + x, way);
}

static void begin(const xn_cpu_lanes *lanes, const int32_t *start, int32_t *dot) {
    const class_way way = way_of(lanes->map->classes);
    if (way == ONE_CLASS)
        begin_dots(lanes, start, dot, ONE_CLASS);
    else if (way == FEW_CLASSES)
        begin_dots(lanes, start, dot, FEW_CLASSES);
    else
        begin_dots(lanes, start, dot, MANY_CLASSES);
}

static void dots(const xn_cpu_lanes *lanes, const xn_cpu_bitgemm_weights *weights, int32_t o,
                 int32_t filters, const xn_cpu_dots *to) {
    const int64_t all = (int64_t)weights->words * WORD_NIBBLES;
    const uint8_t *from = lanes->arranged, *nibbles = weights->nibbles + o * all;
    uint32_t *dot = (uint32_t *)to->dot; /* parts may pass 2^31 where dot does not */
    for (int32_t f = 0; f < filters; f++)
        begin(lanes, to->start + (size_t)f * (size_t)lanes->map->pitch,
              to->dot + (size_t)f * to->pitch);
    for (int64_t k = 0; k < all; k += FOLD_NIBBLES) {
        const int32_t count = (int32_t)xn_cpu_min(FOLD_NIBBLES, all - k);
        const uint8_t *part = from + k * lanes->pitch;
        int32_t x = 0;
        for (; x + TILE_VECTORS * VECTOR_BYTES <= lanes->count; x += TILE_VECTORS * VECTOR_BYTES)
            nibble_lanes(part + x, count, lanes->pitch, nibbles + k, all, filters, to->pitch,
                         dot + x, TILE_VECTORS);
        for (; x < lanes->count; x += VECTOR_BYTES)
            nibble_lanes(part + x, count, lanes->pitch, nibbles + k, all, filters, to->pitch,
                         dot + x, 1);
    }
    if (to->words)
        set_bits(lanes, filters, to);
}
