/* bitgemm_prefix.h: what bitgemm_carry_save.h counts, from input: packed pixels put in planes, and
 * patches in which each word is the xor of it and all before it (included by bitgemm_carry_save.h).
 */
#define SPREAD spread
#define PATCH patch_prefix_xor

/* Arrays stay in registers only where the compiler unrolls a loop before it looks for them. */
#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#define UNROLL_16 UNROLL
#define UNROLL_KNOWN /* where it cannot see that the count is known, that is an error */
#else
#define UNROLL _Pragma("GCC unroll 8")
#define UNROLL_16 _Pragma("GCC unroll 16")
#define UNROLL_KNOWN UNROLL
#endif

/* ---- packed input ---- */

#define EVENS(a, b)                                                                                \
    __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30)
#define ODDS(a, b)                                                                                 \
    __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31)

/* Of each `width` vectors first the even words, then the odd ones. */
INLINE void halve(vector_u32 *v, const int count, const int width) {
    vector_u32 halves[WORDS];
    UNROLL_16
    for (int w = 0; w < count / 2; w++) {
        const int at = w / (width / 2) * width + w % (width / 2);
        halves[at] = EVENS(v[2 * w], v[2 * w + 1]);
        halves[at + width / 2] = ODDS(v[2 * w], v[2 * w + 1]);
    }
    UNROLL_16
    for (int w = 0; w < count; w++)
        v[w] = halves[w];
}

/* The plane that vector w is of then: bits of `count` - 1 turned round. */
INLINE int plane_of(int w, const int count) {
    int plane = 0;
    for (int bit = 1; bit < count; bit *= 2, w /= 2)
        plane = 2 * plane + w % 2;
    return plane;
}

/* A vector of each plane, a power of 2 of them. */
INLINE void spread_vectors(const uint32_t *words, const int count, size_t plane, uint32_t *planes) {
    vector_u32 v[WORDS];
    UNROLL_16
    for (int w = 0; w < count; w++)
        v[w] = *(const loose_u32 *)(words + w * WORDS);
    if (count >= 16)
        halve(v, count, 16);
    if (count >= 8)
        halve(v, count, 8);
    if (count >= 4)
        halve(v, count, 4);
    if (count >= 2)
        halve(v, count, 2);
    UNROLL_16
    for (int w = 0; w < count; w++)
        *(loose_u32 *)(planes + (size_t)plane_of(w, count) * plane) = v[w];
}

static void spread(const uint32_t *words, int32_t step, int32_t n, size_t plane, uint32_t *planes) {
    int32_t x = 0;
    for (; step == 2 && x + WORDS <= n; x += WORDS)
        spread_vectors(words + (size_t)x * 2, 2, plane, planes + x);
    for (; step == 4 && x + WORDS <= n; x += WORDS)
        spread_vectors(words + (size_t)x * 4, 4, plane, planes + x);
    for (; step == 8 && x + WORDS <= n; x += WORDS)
        spread_vectors(words + (size_t)x * 8, 8, plane, planes + x);
    for (; step == 16 && x + WORDS <= n; x += WORDS)
        spread_vectors(words + (size_t)x * 16, 16, plane, planes + x);
    spread_plain(words + (size_t)x * (size_t)step, step, n - x, plane, planes + x);
}

/* ---- patches ---- */

enum { MOST_TAPS = 8 /* of a kernel row whose masks are held */ };

/* From words to parities, in place. */
static void add_up_words(const xn_cpu_patch *shape, int32_t lanes, int32_t pitch,
                         uint32_t *patches) {
    for (int32_t x = 0; x < lanes; x += WORDS) {
        uint32_t *row = patches + x;
        vector_u32 parity = {0};
        for (int32_t k = 0; k < shape->words; k++, row += pitch) {
            *(loose_u32 *)row = parity ^= *(const loose_u32 *)row;
        }
    }
}

/* What a vector of lanes sees of a piece. */
typedef struct seen_piece {
    const uint32_t *corner;     /* what the first tap of lane 0 sees, were it inside */
    int32_t y;                  /* row of that */
    uint32_t taps;              /* bit j: some lane is inside at column j of the kernel */
    vector_u32 mask[MOST_TAPS]; /* of the lanes that are */
} seen_piece;

INLINE void see_piece(const xn_conv *conv, const xn_cpu_map *map, const xn_cpu_piece *piece,
                      int32_t x, seen_piece *s) {
    const vector_i32 lane = *(const loose_i32 *)numbers;
    const int32_t begin = piece->lane - x, end = begin + piece->count;
    const int32_t zero = begin - piece->x; /* lane of column 0 */
    s->y = piece->y * conv->stride_h - conv->pad_top;
    s->corner = piece->planes + (int64_t)s->y * conv->width - zero - conv->pad_left;
    s->taps = 0;
    for (int32_t j = 0; j < conv->kernel_w; j++) {
        const int32_t first = (int32_t)xn_cpu_max(begin, zero + map->outputs[j].first);
        const int32_t last = (int32_t)xn_cpu_min(end, zero + map->outputs[j].last);
        s->mask[j] = (vector_u32)((lane >= first) & (lane < last));
        s->taps |= first < last && first < WORDS && last > 0 ? 1u << j : 0;
    }
}

/* Column `to` of the patches for a vector that sees n pieces, with so many words a tap. */
INLINE void patch_vector(const xn_conv *conv, const seen_piece *pieces, const int32_t n,
                         const int32_t words, size_t pitch, uint32_t *to) {
    const size_t plane = (size_t)conv->height * (size_t)conv->width;
    vector_u32 parity = {0};
    for (int32_t i = 0; i < conv->kernel_h; i++) {
        for (int32_t j = 0; j < conv->kernel_w; j++) {
            const uint32_t *from[WORDS];
            const vector_u32 *mask[WORDS];
            UNROLL_KNOWN
            for (int32_t p = 0; p < n; p++) {
                const int32_t y = pieces[p].y + i * conv->dilation_h;
                const bool seen = y >= 0 && y < conv->height && (pieces[p].taps >> j & 1);
                const uint32_t *at = pieces[p].corner +
                                     (int64_t)i * conv->dilation_h * conv->width +
                                     (int64_t)j * conv->dilation_w;
                from[p] = seen ? at : NULL;
                mask[p] = &pieces[p].mask[j];
            }
            for (int32_t word = 0; word < words; word++, to += pitch) {
                UNROLL
                for (int32_t p = 0; p < n; p++)
                    if (from[p])
                        parity ^= *(const loose_u32 *)(from[p] + (size_t)word * plane) & *mask[p];
                *(loose_u32 *)to = parity;
            }
        }
    }
}

INLINE void patch_words(const xn_conv *conv, const seen_piece *pieces, int32_t n,
                        const int32_t words, size_t pitch, uint32_t *to) {
    if (n == 1)
        patch_vector(conv, pieces, 1, words, pitch, to);
    else if (n == 2)
        patch_vector(conv, pieces, 2, words, pitch, to);
    else
        patch_vector(conv, pieces, n, words, pitch, to);
}

/* Outputs of an image as wide as its input, from pixel (y, x) on: what their taps see is as
 * contiguous as they are, but for what is outside. */
typedef struct image_run {
    const uint32_t *corner; /* what the first tap of the next vector's lane 0 sees */
    vector_i32 y, x;        /* the next vector's, of the input's first row and column seen */
} image_run;

INLINE image_run run_of(const xn_conv *conv, const xn_cpu_piece *piece) {
    const vector_i32 zero = {0};
    image_run run = {.y = zero + (piece->y - conv->pad_top),
                     .x = *(const loose_i32 *)numbers + (piece->x - conv->pad_left)};
    run.corner = piece->planes + (int64_t)(piece->y - conv->pad_top) * conv->width +
                 (piece->x - conv->pad_left);
    return run;
}

/* Columns past the last one are of the next row. */
INLINE void wrap_run(const xn_conv *conv, image_run *run) {
    for (int32_t most = WORDS; most > 0; most -= conv->width) {
        const vector_i32 past = run->x + conv->pad_left >= conv->width;
        run->x -= past & conv->width;
        run->y -= past;
    }
}

INLINE vector_i32 is_within(vector_i32 at, int32_t size) {
    return (at >= 0) & (at < size);
}

INLINE bool is_any(vector_i32 mask) {
    return ANY(mask);
}

/* Column `to` of the patches for a vector. */
INLINE void patch_run_vector(const xn_conv *conv, const image_run *run, const int32_t words,
                             size_t pitch, uint32_t *to) {
    const size_t plane = (size_t)conv->height * (size_t)conv->width;
    const uint32_t *row = run->corner;
    vector_i32 inside[MOST_TAPS];
    vector_u32 parity = {0};
    for (int32_t j = 0; j < conv->kernel_w; j++)
        inside[j] = is_within(run->x + j * conv->dilation_w, conv->width);
    for (int32_t i = 0; i < conv->kernel_h; i++) {
        const vector_i32 in_row = is_within(run->y + i * conv->dilation_h, conv->height);
        const uint32_t *from = row;
        for (int32_t j = 0; j < conv->kernel_w; j++, from += conv->dilation_w) {
            const vector_i32 mask = in_row & inside[j];
            const bool seen = is_any(mask);
            for (int32_t word = 0; seen && word < words; word++, to += pitch) {
                parity ^= *(const loose_u32 *)(from + (size_t)word * plane) & (vector_u32)mask;
                *(loose_u32 *)to = parity;
            }
            for (int32_t word = 0; !seen && word < words; word++, to += pitch)
                *(loose_u32 *)to = parity;
        }
        row += (int64_t)conv->dilation_h * conv->width;
    }
}

/* Pieces that follow one another in an image; to: of the first lane. */
INLINE void patch_run(const xn_conv *conv, const xn_cpu_piece *piece, int32_t lanes,
                      const int32_t words, size_t pitch, uint32_t *to) {
    image_run run = run_of(conv, piece);
    wrap_run(conv, &run);
    for (int32_t x = 0; x < lanes; x += WORDS) {
        patch_run_vector(conv, &run, words, pitch, to + x);
        run.corner += WORDS;
        run.x += WORDS;
        wrap_run(conv, &run);
    }
}

/* Runs in the order of their lanes: what one writes past its last lane the next one overwrites. */
static void patch_runs(const xn_conv *conv, const xn_cpu_patch *shape, const xn_cpu_piece *pieces,
                       int32_t count, int32_t pitch, uint32_t *patches) {
    for (int32_t first = 0, end; first < count; first = end) {
        const xn_cpu_piece *piece = &pieces[first];
        uint32_t *to = patches + piece->lane;
        int32_t lanes = 0;
        for (end = first; end < count && pieces[end].planes == piece->planes; end++)
            lanes += pieces[end].count;
        if (shape->tap_words == 2)
            patch_run(conv, piece, lanes, 2, (size_t)pitch, to);
        else if (shape->tap_words == 4)
            patch_run(conv, piece, lanes, 4, (size_t)pitch, to);
        else
            patch_run(conv, piece, lanes, shape->tap_words, (size_t)pitch, to);
    }
}

/* Vector after vector, with what it sees of each piece. */
static void patch_prefix_xor(const xn_conv *conv, const xn_cpu_map *map, const xn_cpu_patch *shape,
                             const xn_cpu_piece *pieces, int32_t count, int32_t pitch,
                             uint32_t *patches) {
    const xn_cpu_piece *end = pieces + count;
    const int32_t lanes = end[-1].lane + end[-1].count;
    seen_piece seen[WORDS];
    if (conv->stride_w != 1 || shape->sharing > 1 || conv->kernel_w > MOST_TAPS) {
        patch(conv, map, shape, pieces, count, pitch, patches);
        add_up_words(shape, lanes, pitch, patches);
        return;
    }
    if (conv->stride_h == 1 && conv->out_width == conv->width) {
        patch_runs(conv, shape, pieces, count, pitch, patches);
        return;
    }
    for (int32_t x = 0; x < lanes; x += WORDS) {
        int32_t n = 0;
        while (pieces->lane + pieces->count <= x)
            pieces++;
        for (const xn_cpu_piece *p = pieces; p < end && p->lane < x + WORDS; p++)
            see_piece(conv, map, p, x, &seen[n++]);
        if (shape->tap_words == 2)
            patch_words(conv, seen, n, 2, (size_t)pitch, patches + x);
        else if (shape->tap_words == 4)
            patch_words(conv, seen, n, 4, (size_t)pitch, patches + x);
        else
            patch_words(conv, seen, n, shape->tap_words, (size_t)pitch, patches + x);
    }
}
