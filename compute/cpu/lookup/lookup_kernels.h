/* lookup_kernels.h: the vector kernels of the path lookup, a table for each instruction set;
 * lookup_body.h is their one text. Pure functions of their arguments.
 *
 * Signs of an input row become planes of bytes, which the outputs then add up. A byte is a pattern,
 * the signs of 4 taps of one kernel row as bits; a table of 16 bytes, made of the filter's signs
 * there, turns it into what the 4 taps add. One look-up and one addition for 4 taps.
 *
 * A tap of weight w adds 2 w for sign +1 and nothing for sign -1, and so nothing outside the image,
 * where planes are 0 (pad value 1: all ones); then
 *
 *     dot[x] = first[x] + sum of what the taps add,   first[x] = -(sum of w over the taps that
 *                                                     count at x)
 *
 * in bytes, modulo 256: exact for filters of up to 127 taps. Longer ones are added in parts into
 * 16 bits. Reads may run up to 64 elements past the end of planes and of rows of sums, writes up to
 * 64 past n of planes, sums and dots: the buffers have that slack (xn_cpu_take). Outputs have
 * none. */
#ifndef XN_CPU_LOOKUP_KERNELS_H
#define XN_CPU_LOOKUP_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    XN_CPU_PATTERN_TAPS = 4,
    XN_CPU_TABLE_BYTES = 1 << XN_CPU_PATTERN_TAPS,
    XN_CPU_BYTE_TAPS = 127, /* the most taps whose dot fits a byte */
    XN_CPU_LOOKUP_BLOCK_BYTES = 12 * 64,
};

/* A row of a single-channel image that is split into planes and sums in one pass (take). */
typedef struct xn_cpu_lookup_row {
    const float *row;    /* column 0 */
    int32_t width;       /* of the image */
    int32_t start;       /* the column of output 0's tap 0; may be negative */
    int32_t kernel_w, n; /* taps side by side, outputs */
    uint8_t outside;     /* bit of taps outside the image */
} xn_cpu_lookup_row;

/* One row of outputs of one filter. */
typedef struct xn_cpu_lookup_outputs {
    const uint8_t *const *planes; /* [count], where output 0 reads */
    int32_t count;
    const uint8_t *tables;    /* [count][TABLE_BYTES] */
    const void *first;        /* int8 [n], or int16 [n] for dots */
    const float *const *rows; /* [row_count]: K's sum is the sum of these; or none: K is 1 */
    int32_t row_count;
    float factor, bias;
    int32_t taps; /* of the filter: the largest dot */
    int32_t n;
    bool stream; /* write past the caches */
} xn_cpu_lookup_outputs;

/* Outputs of one 3x3 filter on one channel, stride and dilation 1, all kernel rows inside the
 * image. from, to and first are where output 0 of the first row reads and writes; from may be
 * outside. */
typedef struct xn_cpu_lookup_tile {
    const float *from;  /* the column `start` of the row of tap 0 */
    int32_t start;      /* may be negative */
    int32_t width;      /* of the image */
    int64_t from_pitch; /* floats */
    float *to;
    int64_t to_pitch;
    int32_t n, rows;
    const uint8_t *tables;
    const int8_t *first; /* [n], for all the rows */
    int8_t inner;        /* first where no tap is outside the image */
    float factor, bias;
    uint8_t outside;
    bool stream;
    void *blocks; /* scratch: BLOCK_BYTES for each block of `lanes` outputs, aligned to 64 */
} xn_cpu_lookup_tile;

typedef struct xn_cpu_lookup_kernels {
    double look_up_ns; /* rough time of a look-up and its addition, of a block */
    int lanes;         /* outputs of a block: bytes of a vector */
    /* sign[x] = the pattern of one tap, src[x]. magnitude: NULL, or |src| is
     * stored (add false) or added. What is `ahead` floats further is fetched for the next call. */
    void (*split)(const float *src, int32_t n, int64_t ahead, bool add, uint8_t *sign,
                  float *magnitude);
    /* plane[x] bit t = signs[t][x], t < taps <= PATTERN_TAPS. */
    void (*join)(const uint8_t *const *signs, int32_t taps, int32_t n, uint8_t *plane);
    /* dst[x] = sum of rows[r][x], r < count. */
    void (*add_rows)(const float *const *rows, int32_t count, int32_t n, float *dst);
    /* Kernels of up to 2 * PATTERN_TAPS columns: all of the above for one row. planes: 1 or
     * 2, plane_pitch apart. sums: NULL, or [n]. NULL where the steps by themselves are as fast. */
    void (*take)(const xn_cpu_lookup_row *row, size_t plane_pitch, uint8_t *planes, float *sums);
    /* From the image to the outputs, with K, in one pass. False as emit. May be NULL. */
    bool (*tile)(const xn_cpu_lookup_tile *tile);
    /* Filters of up to BYTE_TAPS taps: dst[x] = dot * factor * (sum of rows) + bias. False where
     * one is not finite: then the row is to be written again. */
    bool (*emit)(const xn_cpu_lookup_outputs *outputs, float *dst);
    /* Any filter: the dots; first is int16. */
    void (*dots)(const xn_cpu_lookup_outputs *outputs, int32_t *dst);
} xn_cpu_lookup_kernels;

extern const xn_cpu_lookup_kernels xn_cpu_lookup_portable;
#if defined(__x86_64__)
extern const xn_cpu_lookup_kernels xn_cpu_lookup_avx2, xn_cpu_lookup_avx512, xn_cpu_lookup_vpopcnt;
#elif defined(__aarch64__)
extern const xn_cpu_lookup_kernels xn_cpu_lookup_neon;
#endif

#endif
