/* bitgemm_turn.h: rows of words as lanes, in the form that dots() reads (included by
 * bitgemm_body.h): for top_k.h, whose lanes are rows of an index as they lie. */
typedef uint8_t bytes_16 __attribute__((vector_size(16)));
typedef uint8_t loose_16 __attribute__((vector_size(16), UNALIGNED(uint8_t)));
typedef uint32_t words_4 __attribute__((vector_size(16)));
typedef uint32_t loose_4 __attribute__((vector_size(16), UNALIGNED(uint32_t)));

#if defined(NIBBLES)

/* From 16 rows of 16 bytes to lanes: a nibble of 16 rows after another, the low one of a byte
 * first, of `bytes` bytes. Each of 4 rounds puts row i + 8 between the bytes of row i. */
INLINE void turn_block(const uint8_t *from, size_t row, size_t pitch, const int32_t bytes,
                       uint8_t *to) {
    bytes_16 a[16], b[16];
    UNROLLED
    for (int i = 0; i < 16; i++)
        a[i] = *(const loose_16 *)(from + (size_t)i * row);
    UNROLLED
    for (int round = 0; round < 4; round++) {
        UNROLLED
        for (int i = 0; i < 8; i++) {
            b[2 * i] = __builtin_shufflevector(a[i], a[i + 8], 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5,
                                               21, 6, 22, 7, 23);
            b[2 * i + 1] = __builtin_shufflevector(a[i], a[i + 8], 8, 24, 9, 25, 10, 26, 11, 27, 12,
                                                   28, 13, 29, 14, 30, 15, 31);
        }
        UNROLLED
        for (int i = 0; i < 16; i++)
            a[i] = b[i];
    }
    UNROLLED
    for (int i = 0; i < bytes; i++, to += 2 * pitch) {
        *(loose_16 *)to = a[i] & 15;
        *(loose_16 *)(to + pitch) = a[i] >> 4;
    }
}

/* At the ends: what there is, in a block of its own. */
static void turn_part(const uint8_t *from, size_t row, int32_t rows, size_t pitch, int32_t bytes,
                      uint8_t *to) {
    uint8_t part[16][16] = {{0}};
    for (int32_t i = 0; i < rows; i++)
        memcpy(part[i], from + (size_t)i * row, (size_t)bytes);
    turn_block(part[0], sizeof part[0], pitch, bytes, to);
}

static void turn(const uint32_t *rows, int32_t words, int32_t n, int32_t pitch, void *arranged) {
    const int32_t bytes = 4 * words;
    for (int32_t r = 0; r < n; r += 16)
        for (int32_t k = 0; k < bytes; k += 16) {
            const uint8_t *from = (const uint8_t *)rows + (size_t)r * (size_t)bytes + k;
            uint8_t *to = (uint8_t *)arranged + (size_t)(2 * k) * (size_t)pitch + r;
            if (r + 16 <= n && k + 16 <= bytes)
                turn_block(from, (size_t)bytes, (size_t)pitch, 16, to);
            else
                turn_part(from, (size_t)bytes, (int32_t)xn_cpu_min(16, n - r), (size_t)pitch,
                          (int32_t)xn_cpu_min(16, bytes - k), to);
        }
}

#else

/* 4 rows of 4 words. */
INLINE void turn_block(const uint32_t *from, size_t row, size_t pitch, uint32_t *to) {
    words_4 a[4], b[4];
    for (int i = 0; i < 4; i++)
        a[i] = *(const loose_4 *)(from + (size_t)i * row);
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 2; i++) {
            b[2 * i] = __builtin_shufflevector(a[i], a[i + 2], 0, 4, 1, 5);
            b[2 * i + 1] = __builtin_shufflevector(a[i], a[i + 2], 2, 6, 3, 7);
        }
        for (int i = 0; i < 4; i++)
            a[i] = b[i];
    }
    for (int i = 0; i < 4; i++)
        *(loose_4 *)(to + (size_t)i * pitch) = a[i];
}

static void turn(const uint32_t *rows, int32_t words, int32_t n, int32_t pitch, void *arranged) {
    const size_t row = (size_t)words, next = (size_t)pitch;
    uint32_t *to = arranged;
    for (int32_t r = 0; r < n; r += 4) {
        const int32_t whole = r + 4 <= n ? words / 4 * 4 : 0;
        for (int32_t w = 0; w < whole; w += 4)
            turn_block(rows + (size_t)r * row + w, row, next, to + (size_t)w * next + r);
        for (int32_t x = r; x < r + 4 && x < n; x++)
            for (int32_t w = whole; w < words; w++)
                to[(size_t)w * next + (size_t)x] = rows[(size_t)x * row + (size_t)w];
    }
#if defined(CARRY_SAVE)
    const xn_cpu_patch shape = {.tap_words = words, .sharing = 1, .words = words};
    add_up_words(&shape, n, pitch, arranged);
#endif
}
#endif
