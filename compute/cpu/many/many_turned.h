/* many_turned.h: pairs of words (many_pairs.h) the other way round: a lane is a filter, so every
 * output may leave out the taps that it has outside the image, which in small images are many: 18%
 * of those of 3x3 in 7x7. A tile is some outputs with the same taps inside by 16 filters.
 *
 * Parities begin anew with every row of the kernel. Where taps on the left are outside, the
 * filter's begin in the middle of the row, at what the taps before it left, p[0]; then
 *
 *     sum of popc(d[k]) = 2 * sum over pairs of popc(carry) + popc(p[last]) - popc(p[0])
 *
 * and with a p[0] of 0 it is the same. */

/* What words [k, end) of a row of the kernel add. whole: they are the row's first. */
INLINE void add_row(const uint32_t *const *patch, const uint32_t *parities, size_t k, size_t end,
                    const bool whole, vector_u32 *count, vector_u32 *odd, const int outputs) {
    const vector_u32 begin =
        whole ? (vector_u32){0} : *(const vector_u32 *)(parities + k * WORDS - WORDS);
    vector_u32 parity[XN_CPU_TILE];
    UNROLL
    for (int i = 0; i < outputs; i++)
        parity[i] = begin;
    for (; k + 2 <= end; k += 2) {
        const vector_u32 first = *(const vector_u32 *)(parities + k * WORDS);
        const vector_u32 second = *(const vector_u32 *)(parities + (k + 1) * WORDS);
        UNROLL
        for (int i = 0; i < outputs; i++)
            ADD_PAIR_AT(count[i], parity[i], first, second, patch[i], k);
    }
    if (k < end)
        UNROLL
    for (int i = 0; i < outputs; i++)
        add_word(&count[i], &parity[i], *(const vector_u32 *)(parities + k * WORDS) ^ patch[i][k]);
    UNROLL
    for (int i = 0; i < outputs; i++)
        odd[i] += whole ? COUNT(parity[i]) : COUNT(parity[i]) - COUNT(begin);
}

/* Dots of 16 filters, dot[lane][16], or their bits. */
INLINE void turned_tile(const xn_cpu_turned *t, const xn_cpu_tile *tile, const int outputs,
                        const bool to_bits) {
    vector_u32 count[XN_CPU_TILE], odd[XN_CPU_TILE];
    const uint32_t *patch[XN_CPU_TILE];
    size_t k = tile->first;
    UNROLL
    for (int i = 0; i < outputs; i++) {
        patch[i] = t->patches + (size_t)tile->lane[i] * t->pitch;
        count[i] = odd[i] = (vector_u32){0};
    }
    for (int32_t row = 0; row < tile->rows; row++, k += t->row_words)
        if (tile->whole)
            add_row(patch, t->parities, k, k + tile->words, true, count, odd, outputs);
        else
            add_row(patch, t->parities, k, k + tile->words, false, count, odd, outputs);
    UNROLL
    for (int i = 0; i < outputs; i++)
        count[i] += count[i] + odd[i];
    const vector_u32 from = (uint32_t)tile->base - (vector_u32){0};
    if (to_bits) {
        const vector_i32 limit = ((vector_i32)from - *(const loose_i32 *)t->least) >> 1;
        UNROLL
        for (int i = 0; i < outputs; i++) {
            const uint16_t bits = AT_LEAST(limit, count[i]);
            memcpy(t->bits + 4 * (size_t)tile->lane[i], &bits, sizeof bits);
        }
    } else {
        UNROLL
        for (int i = 0; i < outputs; i++)
            *(vector_u32 *)(t->dot + (size_t)tile->lane[i] * WORDS) = from - (count[i] + count[i]);
    }
}

/* A function each: else they share what registers hold. */
#define TURNED_TILE(outputs)                                                                       \
    static void turned_tile_##outputs(const xn_cpu_turned *t, const xn_cpu_tile *tile) {           \
        turned_tile(t, tile, outputs, false);                                                      \
    }                                                                                              \
    static void turned_bits_##outputs(const xn_cpu_turned *t, const xn_cpu_tile *tile) {           \
        turned_tile(t, tile, outputs, true);                                                       \
    }
TURNED_TILE(1)
TURNED_TILE(2)
TURNED_TILE(3)
TURNED_TILE(4)
TURNED_TILE(5)
TURNED_TILE(6)
TURNED_TILE(7)
TURNED_TILE(8)

/* Of the next filters, which come after these and are not in the L1 yet. */
INLINE void fetch_words(const uint32_t *parities, int32_t first, int32_t end) {
    for (int32_t k = first; k < end; k++)
        __builtin_prefetch(parities + (size_t)k * WORDS);
}

static void turned(const xn_cpu_turned *t, const xn_cpu_tile *tiles, int32_t count) {
    static void (*const by_outputs[2][XN_CPU_TILE])(const xn_cpu_turned *t,
                                                    const xn_cpu_tile *tile) = {
        {turned_tile_1, turned_tile_2, turned_tile_3, turned_tile_4, turned_tile_5, turned_tile_6,
         turned_tile_7, turned_tile_8},
        {turned_bits_1, turned_bits_2, turned_bits_3, turned_bits_4, turned_bits_5, turned_bits_6,
         turned_bits_7, turned_bits_8}};
    const int32_t words = t->words;
    for (int32_t i = 0; i < count; i++) {
        fetch_words(t->parities + (size_t)words * WORDS, words * i / count,
                    words * (i + 1) / count);
        by_outputs[t->bits != NULL][tiles[i].count - 1](t, &tiles[i]);
    }
}

/* Rows from columns, 16 by 16, of which `lanes` columns are written. */
INLINE void turn_block(const int32_t *from, size_t from_pitch, int32_t lanes, size_t pitch,
                       int32_t *to) {
    vector_u32 v[WORDS];
    UNROLL_16
    for (int i = 0; i < WORDS; i++)
        v[i] = *(const loose_u32 *)(from + (size_t)i * from_pitch);
    turn_vectors(v);
    UNROLL_16
    for (int i = 0; i < WORDS; i++)
        STORE_FIRST(to + (size_t)i * pitch, lanes, v[i]);
}

static void turn(const int32_t *from, int32_t lanes, size_t pitch, int32_t *to) {
    for (int32_t x = 0; x < lanes; x += WORDS)
        turn_block(from + (size_t)x * WORDS, WORDS, (int32_t)xn_cpu_min(lanes - x, WORDS), pitch,
                   to + x);
}

/* Patches, a lane's words one after the other, up to a multiple of 16 of both. */
static void turn_patches(const uint32_t *patches, int32_t words, int32_t pitch, int32_t lanes,
                         size_t turned_pitch, uint32_t *turned) {
    for (int32_t k = 0; k < words; k += WORDS)
        for (int32_t x = 0; x < lanes; x += WORDS)
            turn_block((const int32_t *)patches + (size_t)k * (size_t)pitch + x, (size_t)pitch,
                       WORDS, turned_pitch, (int32_t *)turned + (size_t)x * turned_pitch + k);
}
