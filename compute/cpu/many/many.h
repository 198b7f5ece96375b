/* many.h: what the files of the path for many channels share (mode xnor, signs as bits).
 *
 *   many.c           plans and runs: packing, K
 *   many_dots.c      patches, counting, epilogue; many_job.h is what both know of a run
 *   many_map.c       what a plan knows of its geometry: valid taps, border classes
 *   many_weights.c   filters as words
 *   many_body.h      the one text of the vector kernels, compiled by
 *   many_*.c         once for each instruction set
 *
 * A lane is one output pixel of the batch, numbered through its images. A patch is the column of
 * words that a lane's filter sees:
 *
 *   patch[k][lane], 0 <= k < words     taps one after the other; what lies outside the image is 0
 *
 * A tap takes ceil(C/groups / 32) words, or, with at most 16 channels, 32 / (C/groups) taps share a
 * word. Filters are laid out the same, bits[O][words]. Lanes are pixels, so a row of outputs leaves
 * as it is computed and K is applied to a vector; a filter's word is broadcast. */
#ifndef XN_CPU_MANY_H
#define XN_CPU_MANY_H

#include "xn_conv.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define XN_CPU_WORD_NIBBLES 8
#define XN_CPU_COLUMN_WORDS 16

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
    /* What dot starts from, a class (many.c): base + factor * (+1 weights outside). Those inside
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

typedef struct xn_cpu_many_weights {
    /* The words of each filter, [O][words], and the same as offsets into a table of rows of 16
     * bytes: 16 * each nibble, the lowest first. Kernels read up to XN_CPU_COLUMN_WORDS past the
     * bits. */
    uint32_t *bits;
    uint8_t *nibbles;
    int32_t *prefix; /* [O][KH + 1][KW + 1]: +1 weights in taps [0, i) x [0, j) */
} xn_cpu_many_weights;

/* ---- kernels ---- */

/* Part of an output row: lanes [lane, lane + count) are outputs (y, x..). */
typedef struct xn_cpu_piece {
    int32_t lane, count, y, x;
} xn_cpu_piece;

/* Differences of some filters and lanes, and what makes outputs of them. */
typedef struct xn_cpu_differences {
    const uint32_t *differ; /* [filters][n], rows of differ_pitch */
    const int32_t *start;   /* [filters][classes], rows of map.pitch */
    const int32_t *kind;    /* [n]: classes */
    const xn_cpu_map *map;
    size_t differ_pitch;
    int32_t filters, n;
} xn_cpu_differences;

typedef struct xn_cpu_many_kernels {
    double step_ns; /* rough time of one word of 16 lanes and one filter */
    /* Lanes that differ() takes at a time; a multiple of the vectors of all kernels. */
    int32_t tile_lanes;
    /* Bytes that a patch's word takes in the form that differ() reads. */
    int32_t word_bytes;
    /* bits[x] bit c = sign of src[c*stride + x], c < channels <= 32; the other bits 0. magnitude:
     * NULL, or [n] set to the sum of |src| over the channels. */
    void (*pack)(const float *src, int64_t stride, int32_t channels, int32_t n, uint32_t *bits,
                 float *magnitude);
    /* Fills a piece of patches [words][pitch] from planes [tap_words][H*W]. Reads up to 16 words
     * before and past the planes, writes up to 16 past the piece. */
    void (*patch)(const xn_conv *conv, const xn_cpu_map *map, const xn_cpu_patch *shape,
                  const uint32_t *planes, const xn_cpu_piece *piece, int32_t pitch,
                  uint32_t *patches);
    /* NULL, or turns patches [words][pitch] into the form that differ() reads. */
    void (*arrange)(const uint32_t *patches, int32_t words, int32_t pitch, int32_t lanes,
                    void *arranged);
    /* differ[f][lane] (rows of pitch) = how many bits of patch and filter f differ; lanes is a
     * multiple of tile_lanes. bits and nibbles are the first filter's (xn_cpu_many_weights). */
    void (*differ)(const void *patches, int32_t words, int32_t pitch, int32_t lanes,
                   const uint32_t *bits, const uint8_t *nibbles, int32_t filters, uint32_t *differ);
    /* NULL, or the same for one lane, whose patch is contiguous and 0 up to a multiple of 16 words.
     * Reads that far past a filter's bits. */
    void (*differ_column)(const uint32_t *patch, int32_t words, int32_t pitch, const uint32_t *bits,
                          int32_t filters, uint32_t *differ);
    /* start[f][class] (rows of map.pitch) from filters' prefix sums (xn_cpu_many_weights). */
    void (*starts)(const xn_cpu_map *map, const int32_t *prefix, int32_t filters, int32_t *start);
    /* dot[f][x] = start[f][kind[x]] - 2 * differ[f][x], rows of pitch. stream: past the cache; all
     * rows then start with a line. */
    void (*dots)(const xn_cpu_differences *d, bool stream, size_t pitch, int32_t *dot);
    /* out[x] = dot * factor * k[x] + bias; k NULL is 1. False where one is not finite. */
    bool (*reals)(const uint32_t *differ, const int32_t *start, const int32_t *kind,
                  int32_t classes, const float *k, float factor, float bias, int32_t n, bool stream,
                  float *out);
    /* word[x] bit f = differ[f][x] <= limit[f][kind[x]], f < filters <= 32; other bits 0. */
    void (*bits)(const uint32_t *differ, int32_t pitch, const int32_t *limit, int32_t limit_pitch,
                 const int32_t *kind, int32_t classes, int32_t filters, int32_t n, uint32_t *word);
} xn_cpu_many_kernels;

extern const xn_cpu_many_kernels xn_cpu_many_portable;
#if defined(__x86_64__)
extern const xn_cpu_many_kernels xn_cpu_many_avx2, xn_cpu_many_avx512, xn_cpu_many_vpopcnt;
#elif defined(__aarch64__)
extern const xn_cpu_many_kernels xn_cpu_many_neon;
#endif

#endif
