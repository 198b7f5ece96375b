/* many_pairs.h: counting differing bits two words at a time, for machines that count the bits of a
 * word and have any function of three bits as one instruction (included by many_body.h).
 *
 * Let d[k] = patch[k] ^ filter[k], and p[k] = d[0] ^ .. ^ d[k], which is the xor of what patch and
 * filter hold where each word has been replaced by the xor of it and all before it: parities, had
 * once. Two more words carry, added to a bit of p, where it falls from 1 to 0 at either, so
 *
 *     carry(p, p', p'') = p' ? ~p'' : p
 *     sum of popc(d[k]) = 2 * sum over pairs of popc(carry) + popc(p[last])
 *
 * Two words take two xors, a carry, a count and an addition: 5 instructions, where counting each
 * takes 6. None but the xors reads memory, and none waits for those of the pair before. */

/* A word of a filter is an operand in memory, so a tile is one vector of lanes by as many filters
 * as have room for a count and a parity each. */
enum { TILE_LANES = WORDS, WORD_BYTES = 4, TILE_FILTERS = XN_CPU_PARITY_FILTERS };
#define LAYOUT XN_CPU_MANY_PARITIES
#define SPREAD spread
#define PATCH patch_parities
#define ARRANGE NULL
#define DIRECT true
#define COLUMN column

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
            if (shape->anew && k % shape->anew == 0)
                parity = (vector_u32){0};
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
INLINE void patch_vector(const xn_conv *conv, const xn_cpu_patch *shape, const seen_piece *pieces,
                         const int32_t n, const int32_t words, size_t pitch, uint32_t *to) {
    const size_t plane = (size_t)conv->height * (size_t)conv->width;
    vector_u32 parity = {0};
    for (int32_t i = 0; i < conv->kernel_h; i++) {
        if (shape->anew)
            parity = (vector_u32){0};
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

/* The same of a vector that sees one piece, as most do where rows are long. */
INLINE void patch_one(const xn_conv *conv, const xn_cpu_patch *shape, const seen_piece *piece,
                      const int32_t words, size_t pitch, uint32_t *to) {
    const size_t plane = (size_t)conv->height * (size_t)conv->width;
    const uint32_t *row = piece->corner;
    vector_u32 parity = {0};
    int32_t y = piece->y;
    for (int32_t i = 0; i < conv->kernel_h; i++, y += conv->dilation_h) {
        const uint32_t taps = y >= 0 && y < conv->height ? piece->taps : 0;
        const uint32_t *from = row;
        if (shape->anew)
            parity = (vector_u32){0};
        for (int32_t j = 0; j < conv->kernel_w; j++, from += conv->dilation_w) {
            const vector_u32 mask = piece->mask[j];
            const bool seen = taps >> j & 1;
            for (int32_t word = 0; seen && word < words; word++, to += pitch) {
                parity ^= *(const loose_u32 *)(from + (size_t)word * plane) & mask;
                *(loose_u32 *)to = parity;
            }
            for (int32_t word = 0; !seen && word < words; word++, to += pitch)
                *(loose_u32 *)to = parity;
        }
        row += (int64_t)conv->dilation_h * conv->width;
    }
}

INLINE void patch_words(const xn_conv *conv, const xn_cpu_patch *shape, const seen_piece *pieces,
                        int32_t n, const int32_t words, size_t pitch, uint32_t *to) {
    if (n == 1)
        patch_one(conv, shape, pieces, words, pitch, to);
    else if (n == 2)
        patch_vector(conv, shape, pieces, 2, words, pitch, to);
    else
        patch_vector(conv, shape, pieces, n, words, pitch, to);
}

/* Vector after vector, with what it sees of each piece. */
static void patch_parities(const xn_conv *conv, const xn_cpu_map *map, const xn_cpu_patch *shape,
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
    for (int32_t x = 0; x < lanes; x += WORDS) {
        int32_t n = 0;
        while (pieces->lane + pieces->count <= x)
            pieces++;
        for (const xn_cpu_piece *p = pieces; p < end && p->lane < x + WORDS; p++)
            see_piece(conv, map, p, x, &seen[n++]);
        if (shape->tap_words == 2)
            patch_words(conv, shape, seen, n, 2, (size_t)pitch, patches + x);
        else if (shape->tap_words == 4)
            patch_words(conv, shape, seen, n, 4, (size_t)pitch, patches + x);
        else
            patch_words(conv, shape, seen, n, shape->tap_words, (size_t)pitch, patches + x);
    }
}

/* ---- dots ---- */

/* The last word of an odd number. */
INLINE void add_word(vector_u32 *count, vector_u32 *parity, vector_u32 next) {
    *count += COUNT(*parity & ~next);
    *parity = next;
}

/* from - 4 * carries - 2 * parity */
INLINE vector_u32 less_both(vector_u32 from, vector_u32 carries, vector_u32 parity) {
    const vector_u32 differ = carries + carries + parity;
    return from - (differ + differ);
}

/* What becomes of dots: they are stored, past the cache, or are bits of words. */
typedef enum { STORED, STREAMED, TO_BITS } dots_way;

INLINE void dots_tile(const xn_cpu_lanes *lanes, int32_t x, const xn_cpu_many_weights *weights,
                      int32_t o, const xn_cpu_dots *to, int32_t first, const int filters,
                      const class_way way, const dots_way what) {
    const size_t words = (size_t)weights->words, row = (size_t)lanes->pitch;
    const uint32_t *patches = (const uint32_t *)lanes->arranged + x;
    const uint32_t *parities = xn_cpu_parities_of(weights, o);
    vector_u32 count[TILE_FILTERS], parity[TILE_FILTERS];
    size_t k = 0;
    UNROLL
    for (int f = 0; f < filters; f++)
        count[f] = parity[f] = (vector_u32){0};
    for (; k + 2 <= words; k += 2, patches += 2 * row, parities += 2 * TILE_FILTERS) {
        const vector_u32 even = *(const loose_u32 *)patches;
        const vector_u32 odd = *(const loose_u32 *)(patches + row);
        UNROLL
        for (int f = 0; f < filters; f++)
            ADD_PAIR(count[f], parity[f], even, odd, parities + f, parities + TILE_FILTERS + f);
    }
    if (k < words)
        UNROLL
    for (int f = 0; f < filters; f++)
        add_word(&count[f], &parity[f], *(const loose_u32 *)patches ^ parities[f]);
    const int32_t *start = to->start + (size_t)first * (size_t)lanes->map->pitch;
    int32_t *dot = to->dot + (size_t)first * to->pitch + x;
    vector_u32 bits = {0};
    UNROLL
    for (int f = 0; f < filters; f++, start += lanes->map->pitch, dot += to->pitch) {
        const vector_u32 from = way == MANY_CLASSES
                                    ? (vector_u32){0}
                                    : entries(table_of(start, way), start, lanes->kind + x, way);
        const vector_u32 v = less_both(from, count[f], COUNT(parity[f]));
        if (what == TO_BITS)
            bits = SET_BIT(bits, 1u << f, v, to->least[first + f]);
        else if (what == STREAMED)
            STREAM(dot, v);
        else
            *(loose_u32 *)dot = v;
    }
    if (what == TO_BITS)
        *(loose_u32 *)(to->words + x) |= bits << (to->bit + first);
}

/* Filters by eights where they are those of a block, else one by one. */
INLINE void dots_by(const xn_cpu_lanes *lanes, const xn_cpu_many_weights *weights, int32_t o,
                    int32_t filters, const xn_cpu_dots *to, const class_way way,
                    const dots_way what) {
    for (int32_t x = 0; x < lanes->count; x += WORDS)
        for (int32_t f = 0; f < filters;)
            if ((o + f) % TILE_FILTERS == 0 && f + TILE_FILTERS <= filters) {
                dots_tile(lanes, x, weights, o + f, to, f, TILE_FILTERS, way, what);
                f += TILE_FILTERS;
            } else {
                dots_tile(lanes, x, weights, o + f, to, f, 1, way, what);
                f++;
            }
}

/* A function each: else they share what registers hold. */
#define DOTS_BY(name, way, what)                                                                   \
    static void name(const xn_cpu_lanes *lanes, const xn_cpu_many_weights *weights, int32_t o,     \
                     int32_t filters, const xn_cpu_dots *to) {                                     \
        dots_by(lanes, weights, o, filters, to, way, what);                                        \
    }
DOTS_BY(dots_one, ONE_CLASS, STORED)
DOTS_BY(dots_one_streamed, ONE_CLASS, STREAMED)
DOTS_BY(dots_one_bits, ONE_CLASS, TO_BITS)
DOTS_BY(dots_few, FEW_CLASSES, STORED)
DOTS_BY(dots_few_streamed, FEW_CLASSES, STREAMED)
DOTS_BY(dots_few_bits, FEW_CLASSES, TO_BITS)
DOTS_BY(dots_many, MANY_CLASSES, STORED)

static void add_starts(const xn_cpu_lanes *lanes, int32_t filters, const xn_cpu_dots *to) {
    uint32_t *dot = (uint32_t *)to->dot; /* parts may pass 2^31 where dot does not */
    const int32_t *start = to->start;
    for (int32_t f = 0; f < filters; f++, start += lanes->map->pitch, dot += to->pitch)
        for (int32_t x = 0; x < lanes->count; x++)
            dot[x] += (uint32_t)start[lanes->kind[x]];
}

/* With many classes what they start from is added afterwards, and bits are had of that. */
static void dots(const xn_cpu_lanes *lanes, const xn_cpu_many_weights *weights, int32_t o,
                 int32_t filters, const xn_cpu_dots *to) {
    typedef void dots_of(const xn_cpu_lanes *lanes, const xn_cpu_many_weights *weights, int32_t o,
                         int32_t filters, const xn_cpu_dots *to);
    static dots_of *const by[2][3] = {{dots_one, dots_one_streamed, dots_one_bits},
                                      {dots_few, dots_few_streamed, dots_few_bits}};
    const class_way way = way_of(lanes->map->classes);
    if (way != MANY_CLASSES) {
        by[way == FEW_CLASSES][to->words    ? TO_BITS
                               : to->stream ? STREAMED
                                            : STORED](lanes, weights, o, filters, to);
        return;
    }
    dots_many(lanes, weights, o, filters, to);
    add_starts(lanes, filters, to);
    if (to->words)
        set_bits(lanes, filters, to);
}

/* A vector is 16 words of the filter here. The last one's may be the next filter's too: masked. */
static void column(const uint32_t *patch, const xn_cpu_many_weights *weights, int32_t o,
                   int32_t filters, const int32_t *start, int32_t start_pitch, size_t pitch,
                   int32_t *dot) {
    const int32_t words = weights->words, whole = (words - 1) / WORDS * WORDS;
    const uint32_t *bits = weights->bits + (size_t)o * (size_t)words;
    const vector_u32 mask = (vector_u32)(*(const loose_i32 *)numbers < words - whole);
    for (int32_t f = 0; f < filters; f++, bits += words, dot += pitch, start += start_pitch) {
        vector_u32 sum = COUNT((*(const loose_u32 *)(bits + whole) & mask) ^
                               *(const loose_u32 *)(patch + whole));
        for (int32_t k = 0; k < whole; k += WORDS)
            sum += COUNT(*(const loose_u32 *)(bits + k) ^ *(const loose_u32 *)(patch + k));
        *dot = xn_dot_from_xor(*start, (int32_t)SUM(sum));
    }
}

#include "many_turned.h"
#define TURNED turned
#define TURN turn
#define TURN_PATCHES turn_patches
#define TURNED_BITS turned_bits
