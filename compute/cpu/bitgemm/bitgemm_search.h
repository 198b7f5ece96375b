/* bitgemm_search.h: bits in which rows of words differ from some queries (included by
 * bitgemm_body.h), for top_k.h. A lane is a query, and a row is broadcast word by word from where
 * it lies, so nothing of an index is moved. */

#if defined(NIBBLES)

enum { VECTOR_QUERIES = VECTOR_BYTES, QUERY_VECTORS = 2, QUERY_ROWS = 4 };
enum { QUERY_LANES = QUERY_VECTORS * VECTOR_QUERIES };

static void lay_queries(const uint32_t *queries, int32_t words, int32_t n, void *lanes) {
    uint8_t *to = lanes;
    for (int32_t k = 0; k < words * WORD_NIBBLES; k++)
        for (int32_t q = 0; q < QUERY_LANES; q++) {
            const size_t word = (size_t)q * (size_t)words + (size_t)(k / WORD_NIBBLES);
            *to++ = q < n ? queries[word] >> k % WORD_NIBBLES * 4 & 15 : 0;
        }
}

/* Adds words [first, last) of some rows, whose nibbles choose the tables. Compilers that see more
 * than one addition to a sum add look-ups to each other, and run out of registers. */
INLINE void search_words(const uint8_t *lanes, const uint32_t *rows, int32_t words, int32_t first,
                         int32_t last, int32_t *counts, const int vectors, const int some) {
    vector_u8 sum[QUERY_ROWS][QUERY_VECTORS] = {{{0}}};
    lanes += (size_t)first * WORD_NIBBLES * QUERY_LANES;
    for (int32_t w = first; w < last; w++) {
        uint32_t row[QUERY_ROWS];
        UNROLLED
        for (int r = 0; r < some; r++)
            row[r] = rows[(size_t)r * (size_t)words + (size_t)w];
        UNROLLED
        for (int k = 0; k < WORD_NIBBLES; k++, lanes += QUERY_LANES) {
            UNROLLED
            for (int r = 0; r < some; r++) {
                const uint32_t offset = (k ? row[r] >> (4 * k - 4) : row[r] << 4) & 0xf0;
                const vector_u8 table = NIBBLE_TABLE(differing[0] + offset);
                UNROLLED
                for (int v = 0; v < vectors; v++) {
                    const vector_u8 query = *(const loose_u8 *)(lanes + v * VECTOR_BYTES);
                    sum[r][v] += NIBBLE_LOOKUP(table, query);
                    __asm__("" : "+v"(sum[r][v]));
                }
            }
        }
    }
    uint8_t bytes[QUERY_ROWS][QUERY_LANES] __attribute__((aligned(64)));
    UNROLLED
    for (int r = 0; r < some; r++)
        memcpy(bytes[r], sum[r], (size_t)vectors * VECTOR_BYTES);
    for (int r = 0; r < some; r++, counts += QUERY_LANES) {
        const int32_t n = vectors * VECTOR_QUERIES;
        if (first)
            fold_by(bytes[r], n, NULL, NULL, (uint32_t *)counts, false, false, ONE_CLASS);
        else
            fold_by(bytes[r], n, NULL, NULL, (uint32_t *)counts, true, false, ONE_CLASS);
    }
}

INLINE void search_tile(const void *lanes, const uint32_t *rows, int32_t words, int32_t *counts,
                        const int vectors, const int some) {
    enum { PART = FOLD_NIBBLES / WORD_NIBBLES };
    for (int32_t w = 0; w < words; w += PART)
        search_words(lanes, rows, words, w, (int32_t)xn_cpu_min(w + PART, words), counts, vectors,
                     some);
}

#else

enum { VECTOR_QUERIES = WORDS, QUERY_VECTORS = TILE_VECTORS, QUERY_ROWS = TILE_FILTERS };
enum { QUERY_LANES = QUERY_VECTORS * VECTOR_QUERIES };

static void lay_queries(const uint32_t *queries, int32_t words, int32_t n, void *lanes) {
    uint32_t *to = lanes;
    for (int32_t w = 0; w < words; w++)
        for (int32_t q = 0; q < QUERY_LANES; q++)
            *to++ = q < n ? queries[(size_t)q * (size_t)words + (size_t)w] : 0;
}

INLINE void search_tile(const void *lanes, const uint32_t *rows, int32_t words, int32_t *counts,
                        const int vectors, const int some) {
    vector_u32 count[QUERY_ROWS][TILE_VECTORS];
    differ_tile(lanes, words, QUERY_LANES, rows, count, vectors, some);
    for (int r = 0; r < some; r++)
        for (int v = 0; v < vectors; v++)
            *(loose_u32 *)(counts + r * QUERY_LANES + v * WORDS) = count[r][v];
}

#endif

/* Whether some count is at most what its lane has. */
INLINE bool is_near(const int32_t *counts, const int32_t *most, const int vectors) {
    vector_i32 mask = {0};
    UNROLLED
    for (int l = 0; l < vectors * VECTOR_QUERIES; l += WORDS)
        mask |= *(const loose_i32 *)(counts + l) <= *(const loose_i32 *)(most + l);
    return ANY(mask);
}

INLINE int32_t search_rows(const void *lanes, const uint32_t *rows, int32_t words, int32_t n,
                           const int32_t *most, int32_t *counts, int32_t *near, const int vectors) {
    int32_t r = 0, found = 0;
    for (; r + QUERY_ROWS <= n; r += QUERY_ROWS)
        search_tile(lanes, rows + (size_t)r * (size_t)words, words, counts + r * QUERY_LANES,
                    vectors, QUERY_ROWS);
    for (; r < n; r++)
        search_tile(lanes, rows + (size_t)r * (size_t)words, words, counts + r * QUERY_LANES,
                    vectors, 1);
    for (r = 0; r < n; r++, counts += QUERY_LANES) {
        near[found] = r;
        found += is_near(counts, most, vectors);
    }
    return found;
}

static int32_t search(const void *lanes, int32_t queries, const uint32_t *rows, int32_t words,
                      int32_t n, const int32_t *most, int32_t *counts, int32_t *near) {
    if (queries <= VECTOR_QUERIES)
        return search_rows(lanes, rows, words, n, most, counts, near, 1);
    return search_rows(lanes, rows, words, n, most, counts, near, QUERY_VECTORS);
}
