/* bitgemm_nibbles.h: counting differing bits with byte look-ups, for machines that shuffle bytes
 * but do not count bits (included by bitgemm_body.h).
 *
 * A lane is a byte that holds 4 channels of its pixel, and the 16 numbers of bits in which they may
 * differ from 4 bits of a filter are a table of 16 bytes: popcount(i ^ filter's nibble). So one
 * shuffle looks up, and one addition counts, 4 channels of VECTOR_BYTES pixels: half the
 * instructions of looking up both nibbles of a xor. Bytes hold FOLD_NIBBLES of these; then they are
 * added to what is in the place of the dots, of which the last part makes dots. Before the next
 * ones all filters take these nibbles of the patches, which therefore stay in L1.
 *
 * NIBBLE_COUNTS(p) gives the bytes at p as a vector of words, NIBBLE_TABLE(t) 16 bytes at t in
 * every 16 bytes of a vector, NIBBLE_LOOKUP(table, i) looks up by bytes below 16. */

enum { TILE_LANES = VECTOR_BYTES, WORD_BYTES = 8, FOLD_NIBBLES = 62, WORD_NIBBLES = 8 };
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

/* Some nibbles of the words of all lanes. */
typedef struct nibble_part {
    const uint8_t *patches, *nibbles; /* the first ones' */
    int64_t filter_nibbles;
    int32_t count;
    bool first, last;
    class_way way;
} nibble_part;

/* Adds the counts of n lanes to dots, or makes dots of them and of where these start. */
INLINE void fold_by(const uint8_t *bytes, int32_t n, const int32_t *start, const int32_t *kind,
                    uint32_t *dot, const bool first, const bool last, const class_way way) {
    for (int32_t x = 0; x < n; x += WORDS) {
        vector_u32 differ = NIBBLE_COUNTS(bytes + x);
        if (!first)
            differ += *(const loose_u32 *)(dot + x);
        if (last)
            differ = entries(start, kind + x, way) - (differ + differ);
        *(loose_u32 *)(dot + x) = differ;
    }
}

static void fold(const nibble_part *p, const uint8_t *bytes, int32_t n, const int32_t *start,
                 const int32_t *kind, uint32_t *dot) {
#define FOLD_WAY(w)                                                                                \
    if (p->last && p->way == (w)) {                                                                \
        if (p->first)                                                                              \
            fold_by(bytes, n, start, kind, dot, true, true, w);                                    \
        else                                                                                       \
            fold_by(bytes, n, start, kind, dot, false, true, w);                                   \
    }
    FOLD_WAY(ONE_CLASS)
    FOLD_WAY(FEW_CLASSES)
    FOLD_WAY(MANY_CLASSES)
#undef FOLD_WAY
    if (!p->last && p->first)
        fold_by(bytes, n, start, kind, dot, true, false, ONE_CLASS);
    else if (!p->last)
        fold_by(bytes, n, start, kind, dot, false, false, ONE_CLASS);
}

/* Lanes from x on, filters from f of those asked for on. */
INLINE void nibble_tile(const nibble_part *p, const xn_cpu_lanes *lanes, const xn_cpu_dots *to,
                        int32_t x, int32_t f, const int vectors, const int filters) {
    vector_u8 sum[TILE_FILTERS][TILE_VECTORS];
    const uint8_t *patches = p->patches + x, *nibbles = p->nibbles + f * p->filter_nibbles;
    const int64_t filter_nibbles = p->filter_nibbles;
    const int32_t count = p->count, pitch = lanes->pitch;
    UNROLLED
    for (int i = 0; i < filters; i++) {
        UNROLLED
        for (int v = 0; v < vectors; v++)
            sum[i][v] = (vector_u8){0};
    }
    for (int32_t k = 0; k < count; k++, patches += pitch) {
        vector_u8 lane[TILE_VECTORS];
        UNROLLED
        for (int v = 0; v < vectors; v++)
            lane[v] = *(const loose_u8 *)(patches + v * VECTOR_BYTES);
        UNROLLED
        for (int i = 0; i < filters; i++) {
            vector_u8 table = NIBBLE_TABLE(differing[0] + nibbles[i * filter_nibbles + k]);
            UNROLLED
            for (int v = 0; v < vectors; v++)
                sum[i][v] += NIBBLE_LOOKUP(table, lane[v]);
        }
    }
    uint8_t bytes[TILE_FILTERS][TILE_VECTORS * VECTOR_BYTES] __attribute__((aligned(64)));
    UNROLLED
    for (int i = 0; i < filters; i++)
        memcpy(bytes[i], sum[i], (size_t)vectors * VECTOR_BYTES);
    for (int i = 0; i < filters; i++) {
        fold(p, bytes[i], vectors * VECTOR_BYTES,
             to->start + (size_t)(f + i) * (size_t)lanes->map->pitch, lanes->kind + x,
             (uint32_t *)to->dot + (size_t)(f + i) * to->pitch + x);
    }
}

INLINE void nibble_lanes(const nibble_part *p, const xn_cpu_lanes *lanes, const xn_cpu_dots *to,
                         int32_t x, int32_t filters, const int vectors) {
    int32_t f = 0;
    for (; f + TILE_FILTERS <= filters; f += TILE_FILTERS)
        nibble_tile(p, lanes, to, x, f, vectors, TILE_FILTERS);
    for (; f < filters; f++)
        nibble_tile(p, lanes, to, x, f, vectors, 1);
}

static void dots(const xn_cpu_lanes *lanes, const xn_cpu_bitgemm_weights *weights, int32_t o,
                 int32_t filters, const xn_cpu_dots *to) {
    const int64_t all = (int64_t)weights->words * WORD_NIBBLES;
    for (int64_t k = 0; k < all; k += FOLD_NIBBLES) {
        const nibble_part p = {.patches = (const uint8_t *)lanes->arranged + k * lanes->pitch,
                               .nibbles = weights->nibbles + o * all + k,
                               .filter_nibbles = all,
                               .count = (int32_t)xn_cpu_min(FOLD_NIBBLES, all - k),
                               .first = k == 0,
                               .last = k + FOLD_NIBBLES >= all,
                               .way = way_of(lanes->map->classes)};
        int32_t x = 0;
        for (; x + TILE_VECTORS * VECTOR_BYTES <= lanes->count; x += TILE_VECTORS * VECTOR_BYTES)
            nibble_lanes(&p, lanes, to, x, filters, TILE_VECTORS);
        for (; x < lanes->count; x += VECTOR_BYTES)
            nibble_lanes(&p, lanes, to, x, filters, 1);
    }
    if (to->words)
        set_bits(lanes, filters, to);
}
