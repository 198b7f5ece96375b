/* bitgemm.h: what the files of the path bitgemm share (mode xnor, signs as bits).
 *
 *   bitgemm.c           plans and runs: packing, K
 *   bitgemm_dots.c      patches, counting, epilogue; bitgemm_job.h is what both know of a run
 *   bitgemm_map.c       what a plan knows of its geometry: valid taps, border classes
 *   bitgemm_weights.c   filters as words
 *   top_k*.c            the k best of a dense layer's values, by the same kernels (top_k.h)
 *   bitgemm_body.h      the one text of the vector kernels, compiled by
 *   bitgemm_*.c         once for each instruction set
 *
 * A lane is one output pixel of the batch, numbered through its images. A patch is the column of
 * words that a lane's filter sees:
 *
 *   patch[k][lane], 0 <= k < words     taps one after the other; what lies outside the image is 0
 *
 * A tap takes ceil(C/groups / 32) words, or, with at most 16 channels, 32 / (C/groups) taps share a
 * word. Filters are laid out the same, bits[O][words]. Lanes are pixels, so a row of outputs leaves
 * as it is computed and K is applied to a vector; a filter's word is broadcast. */
#ifndef XN_CPU_BITGEMM_H
#define XN_CPU_BITGEMM_H

#include "xn_conv.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define XN_CPU_WORD_NIBBLES 8
#define XN_CPU_PAIR_FILTERS 8
#define XN_CPU_MOST_FILTERS 32 /* of a call */

/* What a filter's words are, of a group of so many channels. */
typedef struct xn_cpu_patch {
    int32_t tap_words; /* of a tap; 1 where taps share */
    int32_t sharing;   /* taps in a word; 1 with more than 16 channels */
    int32_t words;     /* of all taps */
} xn_cpu_patch;

xn_cpu_patch xn_cpu_patch_of(int32_t group_channels, int32_t kernel_h, int32_t kernel_w);

/* ---- geometry ---- */

typedef struct xn_cpu_range {
    int32_t first, last;
} xn_cpu_range;

/* Border classes: outputs whose taps fall inside the image in the same rows and columns. There are
 * at most 2*KH + 1 kinds of rows and 2*KW + 1 of columns. Class r * column_kinds + c. With pad
 * value -1, which is what bit 0 means, the border is like the rest: one class. */
typedef struct xn_cpu_map {
    int32_t row_kinds, column_kinds, classes, pitch; /* pitch: classes, in a table of one filter */
    xn_cpu_range *outputs;                           /* [KW] whose tap in that column is inside */
    int32_t *row_kind;                               /* [OH] */
    int32_t *column_kind;                            /* [OW] */
    /* What dot starts from, a class (bitgemm.c): base + factor * (+1 weights outside). Those inside
     * are entries corner[0] - [1] - [2] + [3] of a filter's prefix sums, all of them entry `all`.
     */
    int32_t *base;      /* [pitch] */
    int32_t *corner[4]; /* [pitch] each */
    int32_t factor, all;
} xn_cpu_map;

/* NULL when there is no memory. */
xn_cpu_map *xn_cpu_map_create(const xn_conv *conv);
void xn_cpu_map_free(xn_cpu_map *map); /* NULL-safe */

/* ---- weights ---- */

/* What kernels read beside the bits: the variants of the form. */
typedef enum {
    XN_CPU_BITGEMM_BITS,
    XN_CPU_BITGEMM_NIBBLES,
    XN_CPU_BITGEMM_PAIRS
} xn_cpu_bitgemm_layout;

/* Two words of 8 filters: for each the xor of all words up to it. */
typedef struct xn_cpu_pair {
    uint32_t even[XN_CPU_PAIR_FILTERS], odd[XN_CPU_PAIR_FILTERS];
} xn_cpu_pair;

typedef struct xn_cpu_bitgemm_weights {
    /* The words of each filter, [O][words]: own, or where taps share no words those of xn_weights,
     * which lie the same. */
    const uint32_t *bits;
    uint32_t *own_bits; /* or NULL */
    /* NULL, or the same as offsets into a table of rows of 16 bytes: 16 * each nibble, the lowest
     * first. */
    uint8_t *nibbles;
    xn_cpu_pair *pairs; /* NULL, or [O / 8][words / 2], both rounded up */
    int32_t *prefix;    /* [O][KH + 1][KW + 1]: +1 weights in taps [0, i) x [0, j) */
    int32_t words;      /* of a filter */
} xn_cpu_bitgemm_weights;

/* The last one of an odd number of words is with 0. */
static inline size_t xn_cpu_pairs(int32_t words) {
    return ((size_t)words + 1) / 2;
}

/* Those of the block that filter o is in. */
static inline const xn_cpu_pair *xn_cpu_word_pairs_of(const xn_cpu_bitgemm_weights *weights,
                                                      int32_t o) {
    return weights->pairs + (size_t)(o / XN_CPU_PAIR_FILTERS) * xn_cpu_pairs(weights->words);
}

/* ---- kernels ---- */

/* Part of an output row: lanes [lane, lane + count) are outputs (y, x..) of an image, whose planes,
 * [tap_words][H*W], are those of one group. */
typedef struct xn_cpu_piece {
    const uint32_t *planes;
    int32_t lane, count, y, x;
} xn_cpu_piece;

/* Lanes, as the kernels read them. */
typedef struct xn_cpu_lanes {
    const void *arranged; /* their patches, rows of pitch */
    const int32_t *kind;  /* class of each, 0 past the last */
    const xn_cpu_map *map;
    int32_t pitch, count; /* count: a multiple of tile_lanes */
} xn_cpu_lanes;

/* What becomes of the dots of some filters, f of them:
 *
 *     dot[f][lane] = start[f][kind[lane]] - 2 * the bits in which patch and filter differ */
typedef struct xn_cpu_dots {
    const int32_t *start; /* rows of map.pitch */
    int32_t *dot;         /* rows of pitch; scratch where words are what is wanted */
    size_t pitch;
    bool stream; /* past the cache; all rows then start with a line */
    /* NULL, or bit `bit` + f of words[lane] is set where dot >= least[f]. */
    uint32_t *words;
    const int32_t *least;
    int32_t bit;
} xn_cpu_dots;

typedef struct xn_cpu_bitgemm_kernels {
    double step_ns; /* rough time of one word of 16 lanes and one filter */
    xn_cpu_bitgemm_layout layout;
    /* Lanes that dots() takes at a time; a multiple of the vectors of all kernels. */
    int32_t tile_lanes;
    /* Bytes that a patch's word takes in the form that dots() reads; 4: where it was. */
    int32_t word_bytes;
    /* bits[x] bit c = sign of src[c*stride + x], c < channels <= 32; the other bits 0. magnitude:
     * NULL, or [n] set to the sum of |src| over the channels. */
    void (*pack)(const float *src, int64_t stride, int32_t channels, int32_t n, uint32_t *bits,
                 float *magnitude);
    /* planes[w][x] = words[x][w], w < step: rows of step and of plane. */
    void (*spread)(const uint32_t *words, int32_t step, int32_t n, size_t plane, uint32_t *planes);
    /* Fills patches [words][pitch] of lanes, of which pieces, in order, are all. Reads up to 16
     * words before and past the planes, writes up to 16 past the last lane. With parities, a word
     * is the xor of it and those before it. */
    void (*patch)(const xn_conv *conv, const xn_cpu_map *map, const xn_cpu_patch *shape,
                  const xn_cpu_piece *pieces, int32_t count, int32_t pitch, uint32_t *patches);
    /* NULL, or turns patches [words][pitch] into the form that dots() reads. */
    void (*arrange)(const uint32_t *patches, int32_t words, int32_t pitch, int32_t lanes,
                    void *arranged);
    /* Dots of filters [o, o + filters), a row or a bit each. */
    void (*dots)(const xn_cpu_lanes *lanes, const xn_cpu_bitgemm_weights *weights, int32_t o,
                 int32_t filters, const xn_cpu_dots *to);
    bool direct; /* dots() reads nothing that it has written */
    /* counts[r]: the bits in which a query differs from row r of n, [n][words]. */
    void (*differ)(const uint32_t *rows, int32_t words, int32_t n, const uint32_t *query,
                   int32_t *counts);
    /* The same of more than few_queries, for which it takes less time. Each of them, at most
     * query_lanes, is a lane; lay_queries arranges n of them, [n][words]. Not of AVX-512 without
     * VPOPCNTDQ, where top_k takes AVX2's. */
    int32_t query_lanes, few_queries;
    void (*lay_queries)(const uint32_t *queries, int32_t words, int32_t n, void *lanes);
    /* counts[r][lane] of the lanes of so many queries, and some more. near: the rows in which a
     * count is at most what `most` has for its lane; returns how many these are. */
    int32_t (*search)(const void *lanes, int32_t queries, const uint32_t *rows, int32_t words,
                      int32_t n, const int32_t *most, int32_t *counts, int32_t *near);
    /* start[f][class] (rows of map.pitch) from filters' prefix sums (xn_cpu_bitgemm_weights). */
    void (*starts)(const xn_cpu_map *map, const int32_t *prefix, int32_t filters, int32_t *start);
} xn_cpu_bitgemm_kernels;

extern const xn_cpu_bitgemm_kernels xn_cpu_bitgemm_portable;
#if defined(__x86_64__)
extern const xn_cpu_bitgemm_kernels xn_cpu_bitgemm_avx2, xn_cpu_bitgemm_avx512,
    xn_cpu_bitgemm_vpopcnt;
#elif defined(__aarch64__)
extern const xn_cpu_bitgemm_kernels xn_cpu_bitgemm_neon;
#endif

#endif
