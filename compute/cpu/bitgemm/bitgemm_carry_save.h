/* bitgemm_carry_save.h: counting differing bits two words at a time, for machines that count the
 * bits of a word and have any function of three bits as one instruction (included by
 * bitgemm_body.h).
 *
 * Let d[k] = patch[k] ^ filter[k], and p[k] = d[0] ^ .. ^ d[k], which is the xor of what patch and
 * filter hold where each word has been replaced by the xor of it and all before it: parities,
 * computed once. Two more words carry, added to a bit of p, where it falls from 1 to 0 at either,
 * so
 *
 *     carry(p, p', p'') = p' ? ~p'' : p
 *     sum of popc(d[k]) = 2 * sum over pairs of popc(carry) + popc(p[last])
 *
 * Two words take two xors, a carry, a count and an addition: 5 instructions, where counting each
 * takes 6. None but the xors reads memory, and none waits for those of the pair before.
 */

/* A word of a filter is an operand in memory, so a tile is one vector of lanes by as many filters
 * as have room for a count and a parity each. */
enum { TILE_LANES = WORDS, WORD_BYTES = 4 };
#define LAYOUT XN_CPU_BITGEMM_PAIRS
#define ARRANGE NULL
#define DIRECT true

#include "bitgemm_prefix.h"

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

static const uint32_t one_bit[32] = {
    1u << 0,  1u << 1,  1u << 2,  1u << 3,  1u << 4,  1u << 5,  1u << 6,  1u << 7,
    1u << 8,  1u << 9,  1u << 10, 1u << 11, 1u << 12, 1u << 13, 1u << 14, 1u << 15,
    1u << 16, 1u << 17, 1u << 18, 1u << 19, 1u << 20, 1u << 21, 1u << 22, 1u << 23,
    1u << 24, 1u << 25, 1u << 26, 1u << 27, 1u << 28, 1u << 29, 1u << 30, 1u << 31};

/* What becomes of dots: they are stored, past the cache, or are bits of words. */
typedef enum { STORED, STREAMED, TO_BITS } dots_way;

/* A tile: a vector of lanes and some filters. */
typedef struct pairs_tile {
    const uint32_t *patches; /* rows of row */
    const xn_cpu_pair *pair, *end;
    const int32_t *start, *kind; /* start: rows of start_pitch, of dots or limits */
    int32_t *dot;                /* rows of pitch */
    uint32_t *words;
    size_t row, start_pitch, pitch;
    const uint32_t *bit; /* of words, each filter's */
    int32_t own;         /* of its block the first filter */
    bool odd;            /* a word is left after the pairs */
} pairs_tile;

/* What becomes of so many filters' vectors of bits that differ. */
INLINE void finish_dots(const pairs_tile *t, const vector_u32 *differ, const int filters,
                        const class_way way, const dots_way what) {
    const int32_t *start = t->start, *kind = t->kind;
    const size_t start_pitch = t->start_pitch, pitch = t->pitch;
    const uint32_t *bit = t->bit;
    int32_t *dot = t->dot;
    vector_u32 bits = {0};
    if (what == TO_BITS)
        bits = *(const loose_u32 *)t->words;
    UNROLL
    for (int f = 0; f < filters; f++, start += start_pitch, dot += pitch) {
        const vector_u32 from = way == MANY_CLASSES ? (vector_u32){0} : entries(start, kind, way);
        if (what == TO_BITS)
            SET_BIT(bits, bit[f], from, differ[f]);
        else if (what == STREAMED)
            STREAM(dot, from - (differ[f] + differ[f]));
        else
            *(loose_u32 *)dot = from - (differ[f] + differ[f]);
    }
    if (what == TO_BITS)
        *(loose_u32 *)t->words = bits;
}

/* What is not needed while words are counted stays in memory, else compilers put it into vectors'
 * registers, from where it comes late. */
INLINE void dots_tile(const pairs_tile *t, const int filters, const class_way way,
                      const dots_way what) {
    const size_t row = t->row;
    const uint32_t *patches = t->patches;
    const xn_cpu_pair *pair = t->pair, *end = t->end;
    const int32_t own = filters == 1 ? t->own : 0;
    vector_u32 count[TILE_FILTERS], parity[TILE_FILTERS];
    UNROLL
    for (int f = 0; f < filters; f++)
        count[f] = parity[f] = (vector_u32){0};
    __asm__("" : "+m"(t)); /* here, */
    for (; pair < end; pair++) {
        const vector_u32 even = *(const loose_u32 *)patches;
        const vector_u32 odd = *(const loose_u32 *)(patches + row);
        NEXT_ROWS(patches, row);
        __asm__("" : "+m"(end)); /* and here */
        UNROLL
        for (int f = 0; f < filters; f++)
            ADD_PAIR(count[f], parity[f], even, odd, &pair->even[own + f], &pair->odd[own + f]);
    }
    if (t->odd)
        UNROLL
    for (int f = 0; f < filters; f++)
        add_word(&count[f], &parity[f], *(const loose_u32 *)patches ^ pair->even[own + f]);
    UNROLL
    for (int f = 0; f < filters; f++)
        count[f] += count[f] + COUNT(parity[f]);
    finish_dots(t, count, filters, way, what);
}

/* Functions of their own: else they share what registers hold. */
typedef void tile_function(const pairs_tile *t);
typedef struct tile_functions {
    tile_function *eight, *one; /* filters */
} tile_functions;

#define TILE_FUNCTION(name, filters, way, what)                                                    \
    static __attribute__((noinline)) void name(const pairs_tile *t) {                              \
        dots_tile(t, filters, way, what);                                                          \
    }
#define TILE_FUNCTIONS(name, way, what)                                                            \
    TILE_FUNCTION(name##_eight, TILE_FILTERS, way, what)                                           \
    TILE_FUNCTION(name##_one, 1, way, what)
TILE_FUNCTIONS(one_class, ONE_CLASS, STORED)
TILE_FUNCTIONS(one_class_streamed, ONE_CLASS, STREAMED)
TILE_FUNCTIONS(one_class_bits, ONE_CLASS, TO_BITS)
TILE_FUNCTIONS(few_classes, FEW_CLASSES, STORED)
TILE_FUNCTIONS(few_classes_streamed, FEW_CLASSES, STREAMED)
TILE_FUNCTIONS(few_classes_bits, FEW_CLASSES, TO_BITS)
TILE_FUNCTIONS(many_classes, MANY_CLASSES, STORED)
#define TILES(name)                                                                                \
    { name##_eight, name##_one }

static tile_functions tiles_of(class_way way, dots_way what) {
    static const tile_functions by[2][3] = {
        {TILES(one_class), TILES(one_class_streamed), TILES(one_class_bits)},
        {TILES(few_classes), TILES(few_classes_streamed), TILES(few_classes_bits)}};
    static const tile_functions many = TILES(many_classes);
    return way == MANY_CLASSES ? many : by[way == FEW_CLASSES][what];
}

static pairs_tile tile_at(const xn_cpu_lanes *lanes, int32_t x,
                          const xn_cpu_bitgemm_weights *weights, const xn_cpu_dots *to,
                          size_t start_pitch) {
    return (pairs_tile){.patches = (const uint32_t *)lanes->arranged + x,
                        .kind = lanes->kind + x,
                        .words = to->words ? to->words + x : NULL,
                        .row = (size_t)lanes->pitch,
                        .start_pitch = start_pitch,
                        .pitch = to->pitch,
                        .odd = weights->words % 2};
}

/* From filter o on, which is the first-th of those asked for. */
static void set_filters(pairs_tile *t, int32_t x, const xn_cpu_bitgemm_weights *weights, int32_t o,
                        const xn_cpu_dots *to, int32_t first) {
    t->pair = xn_cpu_word_pairs_of(weights, o);
    t->end = t->pair + weights->words / 2;
    t->own = o % TILE_FILTERS;
    t->start = to->start + (size_t)first * t->start_pitch;
    t->dot = to->dot + (size_t)first * to->pitch + x;
    t->bit = one_bit + to->bit + first;
}

/* Filters by eights where they are those of a block, else one by one. */
static void dots_by(const xn_cpu_lanes *lanes, const xn_cpu_bitgemm_weights *weights, int32_t o,
                    int32_t filters, const xn_cpu_dots *to, size_t start_pitch,
                    tile_functions tiles) {
    for (int32_t x = 0; x < lanes->count; x += WORDS) {
        pairs_tile t = tile_at(lanes, x, weights, to, start_pitch);
        for (int32_t f = 0; f < filters;) {
            const bool whole = (o + f) % TILE_FILTERS == 0 && f + TILE_FILTERS <= filters;
            set_filters(&t, x, weights, o + f, to, f);
            (whole ? tiles.eight : tiles.one)(&t);
            f += whole ? TILE_FILTERS : 1;
        }
    }
}

static void add_starts(const xn_cpu_lanes *lanes, int32_t filters, const xn_cpu_dots *to) {
    uint32_t *dot = (uint32_t *)to->dot; /* parts may pass 2^31 where dot does not */
    const int32_t *start = to->start;
    for (int32_t f = 0; f < filters; f++, start += lanes->map->pitch, dot += to->pitch)
        for (int32_t x = 0; x < lanes->count; x++)
            dot[x] += (uint32_t)start[lanes->kind[x]];
}

/* Of filters that become bits: dot >= least where at most so many bits differ, by class; past the
 * last class of whatever lies there. */
static void set_limits(const xn_cpu_lanes *lanes, int32_t filters, const xn_cpu_dots *to,
                       int32_t *limit) {
    const int32_t *start = to->start;
    for (int32_t f = 0; f < filters; f++, start += lanes->map->pitch) {
        const vector_u32 over = *(const loose_u32 *)start - (uint32_t)to->least[f];
        *(loose_i32 *)(limit + f * WORDS) = (vector_i32)over >> 1;
    }
}

/* With many classes what they start from is added afterwards, and bits are made of that. */
static void dots(const xn_cpu_lanes *lanes, const xn_cpu_bitgemm_weights *weights, int32_t o,
                 int32_t filters, const xn_cpu_dots *to) {
    const class_way way = way_of(lanes->map->classes);
    const size_t pitch = (size_t)lanes->map->pitch;
    int32_t limit[XN_CPU_MOST_FILTERS * WORDS];
    if (way == MANY_CLASSES) {
        dots_by(lanes, weights, o, filters, to, pitch, tiles_of(way, STORED));
        add_starts(lanes, filters, to);
        if (to->words)
            set_bits(lanes, filters, to);
    } else if (to->words) {
        xn_cpu_dots limited = *to;
        set_limits(lanes, filters, to, limit);
        limited.start = limit;
        dots_by(lanes, weights, o, filters, &limited, WORDS, tiles_of(way, TO_BITS));
    } else {
        dots_by(lanes, weights, o, filters, to, pitch,
                tiles_of(way, to->stream ? STREAMED : STORED));
    }
}
