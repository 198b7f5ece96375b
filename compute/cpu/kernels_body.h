/* kernels_body.h: the one text of all vector kernels. kernels_portable.c, kernels_avx2.c,
 * kernels_avx512.c, kernels_avx512_shuffle.c and kernels_neon.c include it, each after choosing its
 * instruction set and defining
 *
 *   KERNELS       the table's symbol
 *   KERNELS_NAME  its name
 *   VECTOR_BYTES  16, 32 or 64
 *   COUNT(x)      from a vector of 32-bit words, counts of set bits: of each word (FOLD_WORDS 0),
 *                 or of each of its bytes
 *   FOLD_WORDS    how many such byte counts may be added before FOLD; 0 when COUNT is final
 *   FOLD(x)       byte counts of 32-bit lanes to their sums, where there is a shorter way than ours
 *   WORD_COST     instructions that one word of XN_CPU_LANES output channels takes
 *
 * It uses GNU vectors where registers must be named (accumulators that stay in registers over a
 * loop of unknown length) and plain loops where the compiler vectorises well by itself. */
#include "xn_arith.h"

#include <float.h>
#include <math.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))
#define UNALIGNED(type) aligned(sizeof(type)), may_alias

typedef uint8_t vector_u8 __attribute__((vector_size(VECTOR_BYTES)));
typedef uint32_t vector_u32 __attribute__((vector_size(VECTOR_BYTES)));
typedef float vector_f32 __attribute__((vector_size(VECTOR_BYTES)));
typedef uint8_t loose_u8 __attribute__((vector_size(VECTOR_BYTES), UNALIGNED(uint8_t)));
typedef uint32_t loose_u32 __attribute__((vector_size(VECTOR_BYTES), UNALIGNED(uint32_t)));
typedef float loose_f32 __attribute__((vector_size(VECTOR_BYTES), UNALIGNED(float)));
typedef int32_t quad_i32 __attribute__((vector_size(16)));

enum {
    WORDS = VECTOR_BYTES / 4,     /* lanes of a vector of words or floats */
    PARTS = XN_CPU_LANES / WORDS, /* vectors of a block of output channels */
    UNROLL = 4,                   /* vectors along x at a time */
    INT8_TAPS = 127,              /* signs that an int8 can add up */
    FLOAT_TAPS = 64,              /* products added in fp32 before they go into a double */
};

/* ---- signs as bytes ---- */

static void split(const float *restrict src, int32_t n, bool add, int8_t *restrict sign,
                  float *restrict magnitude) {
    for (int32_t x = 0; x < n; x++)
        sign[x] = src[x] >= 0.0f ? 1 : -1;
    if (!magnitude)
        return;
    if (add)
        for (int32_t x = 0; x < n; x++)
            magnitude[x] += fabsf(src[x]);
    else
        for (int32_t x = 0; x < n; x++)
            magnitude[x] = fabsf(src[x]);
}

/* Adds each sign once, without a multiplication: dot = sum over the +1 weights - sum over the -1
 * weights. A byte holds INT8_TAPS of them; longer filters go into acc in parts. */
INLINE void sum_signs_block(const int8_t *const *taps, const int32_t *order, int32_t plus,
                            int32_t count, int32_t x, int32_t *restrict acc, const int vectors) {
    int8_t bytes[UNROLL * VECTOR_BYTES] __attribute__((aligned(64)));
    int32_t t = 0;
    do {
        int32_t end = count - t > INT8_TAPS ? t + INT8_TAPS : count;
        vector_u8 sum[UNROLL] = {{0}};
        bool first = t == 0;
        for (; t < end && t < plus; t++) {
            const int8_t *tap = taps[order[t]] + x;
            for (int v = 0; v < vectors; v++)
                sum[v] += *(const loose_u8 *)(tap + v * VECTOR_BYTES);
        }
        for (; t < end; t++) {
            const int8_t *tap = taps[order[t]] + x;
            for (int v = 0; v < vectors; v++)
                sum[v] -= *(const loose_u8 *)(tap + v * VECTOR_BYTES);
        }
        memcpy(bytes, sum, (size_t)vectors * VECTOR_BYTES);
        if (first)
            for (int l = 0; l < vectors * VECTOR_BYTES; l++)
                acc[x + l] = bytes[l];
        else
            for (int l = 0; l < vectors * VECTOR_BYTES; l++)
                acc[x + l] += bytes[l];
    } while (t < count);
}

static void sum_signs(const int8_t *const *taps, const int32_t *order, int32_t plus, int32_t count,
                      int32_t n, int32_t *acc) {
    int32_t x = 0;
    for (; n - x > (UNROLL - 1) * VECTOR_BYTES; x += UNROLL * VECTOR_BYTES)
        sum_signs_block(taps, order, plus, count, x, acc, UNROLL);
    for (; x < n; x += VECTOR_BYTES)
        sum_signs_block(taps, order, plus, count, x, acc, 1);
}

/* ---- sums of float rows ---- */

INLINE void sum_rows_block(const float *const *rows, int32_t count, int32_t x, float factor,
                           float *restrict dst, const int vectors) {
    vector_f32 sum[UNROLL] = {{0}};
    for (int32_t r = 0; r < count; r++)
        for (int v = 0; v < vectors; v++)
            sum[v] += *(const loose_f32 *)(rows[r] + x + v * WORDS);
    for (int v = 0; v < vectors; v++)
        *(loose_f32 *)(dst + x + v * WORDS) = sum[v] * factor;
}

INLINE void sum_rows_all(const float *const *rows, int32_t count, int32_t n, float factor,
                         float *dst) {
    int32_t x = 0;
    for (; n - x > (UNROLL - 1) * WORDS; x += UNROLL * WORDS)
        sum_rows_block(rows, count, x, factor, dst, UNROLL);
    for (; x < n; x += WORDS)
        sum_rows_block(rows, count, x, factor, dst, 1);
}

/* Kernels of height or width 3 are the rule; a constant count keeps their row pointers in
 * registers, which saves a third of the time of K. */
static void sum_rows(const float *const *rows, int32_t count, int32_t n, float factor, float *dst) {
    if (count == 3) {
        const float *three[3] = {rows[0], rows[1], rows[2]};
        sum_rows_all(three, 3, n, factor, dst);
    } else {
        sum_rows_all(rows, count, n, factor, dst);
    }
}

/* FLOAT_TAPS products in fp32 are within 64 * 2^-24 = 3.8e-6 of the sum of their magnitudes; the
 * parts are added in double, so the length of the filter does not matter. */
INLINE void sum_products_block(const float *const *rows, const float *weights, int32_t count,
                               int32_t x, const bool signs, float *restrict dst,
                               const int vectors) {
    double wide[UNROLL * WORDS] = {0};
    float part[UNROLL * WORDS] __attribute__((aligned(64)));
    int32_t t = 0;
    do {
        int32_t end = count - t > FLOAT_TAPS ? t + FLOAT_TAPS : count;
        vector_f32 sum[UNROLL] = {{0}};
        for (; t < end; t++) {
            const float *row = rows[t] + x;
            uint32_t flip = weights[t] >= 0.0f ? 0u : 0x80000000u;
            for (int v = 0; v < vectors; v++) {
                if (signs)
                    sum[v] +=
                        (vector_f32)((vector_u32) * (const loose_f32 *)(row + v * WORDS) ^ flip);
                else
                    sum[v] += *(const loose_f32 *)(row + v * WORDS) * weights[t];
            }
        }
        memcpy(part, sum, (size_t)vectors * VECTOR_BYTES);
        if (count > FLOAT_TAPS)
            for (int l = 0; l < vectors * WORDS; l++)
                wide[l] += part[l];
    } while (t < count);
    if (count > FLOAT_TAPS)
        for (int l = 0; l < vectors * WORDS; l++)
            part[l] = (float)wide[l];
    memcpy(dst + x, part, (size_t)vectors * VECTOR_BYTES);
}

INLINE void sum_products_row(const float *const *rows, const float *weights, int32_t count,
                             int32_t n, const bool signs, float *dst) {
    int32_t x = 0;
    for (; n - x > (UNROLL - 1) * WORDS; x += UNROLL * WORDS)
        sum_products_block(rows, weights, count, x, signs, dst, UNROLL);
    for (; x < n; x += WORDS)
        sum_products_block(rows, weights, count, x, signs, dst, 1);
}

static void sum_products(const float *const *rows, const float *weights, int32_t count, int32_t n,
                         bool signs, float *dst) {
    if (signs)
        sum_products_row(rows, weights, count, n, true, dst);
    else
        sum_products_row(rows, weights, count, n, false, dst);
}

/* Inf and NaN are the values whose exponent is all ones. */
static bool all_finite(const float *values, int32_t n) {
    const uint32_t exponent = 0x7f800000u;
    vector_u32 bad = {0};
    int32_t x = 0;
    for (; x + WORDS <= n; x += WORDS) {
        vector_u32 v = (vector_u32) * (const loose_f32 *)(values + x);
        bad |= (vector_u32)((v & exponent) == exponent);
    }
    uint32_t any = 0;
    for (int l = 0; l < WORDS; l++)
        any |= bad[l];
    for (; x < n; x++)
        any |= !(fabsf(values[x]) <= FLT_MAX);
    return !any;
}

static void add_magnitude(const float *restrict src, int32_t n, double *restrict acc) {
    for (int32_t x = 0; x < n; x++)
        acc[x] += (double)fabsf(src[x]);
}

static void add_strided(const double *restrict src, int32_t stride, int32_t n,
                        double *restrict acc) {
    if (stride == 1)
        for (int32_t x = 0; x < n; x++)
            acc[x] += src[x];
    else
        for (int32_t x = 0; x < n; x++)
            acc[x] += src[(int64_t)x * stride];
}

/* ---- signs as bits ---- */

/* Four channels at a time: the words and sums of a chunk are then loaded and stored once for four
 * rows of input. */
INLINE void pack_channels(const float *restrict src, int64_t stride, int32_t c, const int channels,
                          int32_t n, uint32_t *restrict bits, float *restrict magnitude) {
    for (int32_t x = 0; x < n; x++) {
        uint32_t word = bits[x];
        for (int k = 0; k < channels; k++)
            word |= src[k * stride + x] >= 0.0f ? 1u << (c + k) : 0u;
        bits[x] = word;
    }
    if (!magnitude)
        return;
    for (int32_t x = 0; x < n; x++) {
        float sum = magnitude[x];
        for (int k = 0; k < channels; k++)
            sum += fabsf(src[k * stride + x]);
        magnitude[x] = sum;
    }
}

static void pack(const float *src, int64_t stride, int32_t channels, int32_t n, uint32_t *bits,
                 float *magnitude) {
    memset(bits, 0, (size_t)n * sizeof *bits);
    if (magnitude)
        memset(magnitude, 0, (size_t)n * sizeof *magnitude);
    int32_t c = 0;
    for (; c + 4 <= channels; c += 4)
        pack_channels(src + c * stride, stride, c, 4, n, bits, magnitude);
    for (; c < channels; c++)
        pack_channels(src + c * stride, stride, c, 1, n, bits, magnitude);
}

/* Byte counts of a 32-bit lane to their sum. */
#ifndef FOLD
#define FOLD(counts)                                                                               \
    (((((counts)&0x00ff00ffu) + ((counts) >> 8 & 0x00ff00ffu)) & 0xffffu) +                        \
     ((((counts)&0x00ff00ffu) + ((counts) >> 8 & 0x00ff00ffu)) >> 16))
#endif

/* Adds to acc, for `pixels` pixels `step` words apart and the block's 16 output channels, how many
 * bits differ in a run of words that is contiguous in both operands. One load of weights serves
 * all the pixels; each pixel's word is broadcast. */
INLINE void differ_run(const uint32_t *words, int64_t step, const uint32_t *weights, int32_t run,
                       const int pixels, vector_u32 acc[][PARTS]) {
    const vector_u32 zero = {0};
    int32_t k = 0;
    do {
        int32_t end = FOLD_WORDS && run - k > FOLD_WORDS ? k + FOLD_WORDS : run;
        vector_u32 part[8][PARTS];
        for (int p = 0; p < pixels; p++)
            for (int v = 0; v < PARTS; v++)
                part[p][v] = FOLD_WORDS ? zero : acc[p][v];
        for (; k < end; k++)
            for (int v = 0; v < PARTS; v++) {
                vector_u32 w = *(const loose_u32 *)(weights + (size_t)k * XN_CPU_LANES + v * WORDS);
                for (int p = 0; p < pixels; p++) {
                    vector_u32 differ = w ^ words[p * step + k];
                    part[p][v] += COUNT(differ);
                }
            }
        for (int p = 0; p < pixels; p++)
            for (int v = 0; v < PARTS; v++)
                acc[p][v] = FOLD_WORDS ? acc[p][v] + FOLD(part[p][v]) : part[p][v];
    } while (k < run);
}

/* The taps of an output row or pixel that fall inside the image. */
typedef struct tap_box {
    int32_t i0, i1, j0, j1;
} tap_box;

/* Outside taps of pad value +-1: the image holds all ones or zeros there, which differ from the
 * weights in C/groups - ones or in ones positions. Every tap counts. */
INLINE void differ_outside(const xn_cpu_dots *job, const tap_box *box, uint32_t *differ) {
    const xn_conv *conv = job->conv;
    for (int32_t i = 0; i < conv->kernel_h; i++)
        for (int32_t j = 0; j < conv->kernel_w; j++) {
            if (i >= box->i0 && i < box->i1 && j >= box->j0 && j < box->j1)
                continue;
            const int32_t *ones =
                job->tap_ones + ((size_t)i * (size_t)conv->kernel_w + (size_t)j) * XN_CPU_LANES;
            for (int l = 0; l < XN_CPU_LANES; l++)
                differ[l] +=
                    (uint32_t)(conv->pad_value < 0 ? ones[l] : conv->group_channels - ones[l]);
        }
}

/* dots of `pixels` neighbouring outputs x.. that share their valid taps, as [pixel][lane]. With
 * dilation 1 a kernel row is one contiguous run of pixels in both operands. */
INLINE void dots_tile(const xn_cpu_dots *job, int32_t start_y, int32_t x, const tap_box *box,
                      const int pixels, int32_t out[][XN_CPU_LANES]) {
    const xn_conv *conv = job->conv;
    int32_t rows = box->i1 - box->i0, columns = box->j1 - box->j0;
    int32_t pieces = conv->dilation_w == 1 ? (columns > 0) : columns;
    int32_t run = conv->dilation_w == 1 ? columns * job->words : job->words;
    int64_t step = (int64_t)conv->stride_w * job->words;
    int64_t start_x = (int64_t)x * conv->stride_w - conv->pad_left;
    vector_u32 acc[8][PARTS];
    memset(acc, 0, sizeof acc);
    for (int32_t i = box->i0; i < box->i1; i++)
        for (int32_t piece = 0; piece < pieces; piece++) {
            int64_t in_y = start_y + (int64_t)i * conv->dilation_h;
            int64_t in_x = start_x + (int64_t)(box->j0 + piece) * conv->dilation_w;
            int64_t tap = (int64_t)i * conv->kernel_w + box->j0 + piece;
            differ_run(job->pixels + (in_y * conv->width + in_x) * job->words, step,
                       job->weights + tap * job->words * XN_CPU_LANES, run, pixels, acc);
        }
    uint32_t differ[8][XN_CPU_LANES] __attribute__((aligned(64)));
    for (int p = 0; p < pixels; p++)
        memcpy(differ[p], acc[p], sizeof differ[p]);
    int32_t taps = rows * columns;
    int32_t all = conv->kernel_h * conv->kernel_w;
    if (conv->pad_value != 0 && taps < all) {
        for (int p = 0; p < pixels; p++)
            differ_outside(job, box, differ[p]);
        taps = all;
    }
    int32_t counted = taps * conv->group_channels;
    for (int p = 0; p < pixels; p++)
        for (int l = 0; l < XN_CPU_LANES; l++)
            out[p][l] = xn_dot_from_xor(counted, (int32_t)differ[p][l]);
}

/* [pixel][lane] to [lane][pixel], 4x4 at a time, rounding n up to 4. */
INLINE void transpose(int32_t in[][XN_CPU_LANES], int32_t n,
                      int32_t out[XN_CPU_LANES][XN_CPU_SEGMENT]) {
    for (int32_t x = 0; x < n; x += 4)
        for (int l = 0; l < XN_CPU_LANES; l += 4) {
            quad_i32 r[4], t[4];
            for (int k = 0; k < 4; k++)
                memcpy(&r[k], &in[x + k][l], sizeof r[k]);
            t[0] = __builtin_shufflevector(r[0], r[1], 0, 4, 1, 5);
            t[1] = __builtin_shufflevector(r[2], r[3], 0, 4, 1, 5);
            t[2] = __builtin_shufflevector(r[0], r[1], 2, 6, 3, 7);
            t[3] = __builtin_shufflevector(r[2], r[3], 2, 6, 3, 7);
            r[0] = __builtin_shufflevector(t[0], t[1], 0, 1, 4, 5);
            r[1] = __builtin_shufflevector(t[0], t[1], 2, 3, 6, 7);
            r[2] = __builtin_shufflevector(t[2], t[3], 0, 1, 4, 5);
            r[3] = __builtin_shufflevector(t[2], t[3], 2, 3, 6, 7);
            for (int k = 0; k < 4; k++)
                memcpy(&out[l + k][x], &r[k], sizeof r[k]);
        }
}

static void dots(const xn_cpu_dots *job, int32_t y, int32_t x0, int32_t n,
                 int32_t out[XN_CPU_LANES][XN_CPU_SEGMENT]) {
    const xn_conv *conv = job->conv;
    int32_t tile[XN_CPU_SEGMENT][XN_CPU_LANES] __attribute__((aligned(64)));
    int32_t start_y = y * conv->stride_h - conv->pad_top;
    tap_box rows = {0}, box;
    xn_valid_taps(start_y, conv->dilation_h, conv->kernel_h, conv->height, &rows.i0, &rows.i1);
    for (int32_t x = x0; x < x0 + n;) {
        int32_t(*to)[XN_CPU_LANES] = tile + (x - x0);
        box = rows;
        if (x < job->inner_first || x >= job->inner_last) {
            xn_valid_taps(x * conv->stride_w - conv->pad_left, conv->dilation_w, conv->kernel_w,
                          conv->width, &box.j0, &box.j1);
            dots_tile(job, start_y, x, &box, 1, to);
            x++;
            continue;
        }
        box.j0 = 0;
        box.j1 = conv->kernel_w;
        int32_t left = (job->inner_last < x0 + n ? job->inner_last : x0 + n) - x;
        int32_t pixels = left >= 8 ? 8 : left >= 4 ? 4 : left >= 2 ? 2 : 1;
        if (pixels == 8)
            dots_tile(job, start_y, x, &box, 8, to);
        else if (pixels == 4)
            dots_tile(job, start_y, x, &box, 4, to);
        else if (pixels == 2)
            dots_tile(job, start_y, x, &box, 2, to);
        else
            dots_tile(job, start_y, x, &box, 1, to);
        x += pixels;
    }
    transpose(tile, n, out);
}

/* ---- epilogue ---- */

static void emit_i32(const int32_t *restrict acc, const float *restrict k, float factor, float bias,
                     int32_t n, float *restrict dst) {
    if (k)
        for (int32_t x = 0; x < n; x++)
            dst[x] = xn_epilogue((float)acc[x], factor, k[x], bias);
    else
        for (int32_t x = 0; x < n; x++)
            dst[x] = xn_epilogue((float)acc[x], factor, 1.0f, bias);
}

static void emit_f32(const float *restrict acc, float factor, float bias, int32_t n,
                     float *restrict dst) {
    for (int32_t x = 0; x < n; x++)
        dst[x] = xn_epilogue(acc[x], factor, 1.0f, bias);
}

const xn_cpu_kernels KERNELS = {
    .name = KERNELS_NAME,
    .byte_lanes = VECTOR_BYTES,
    .word_cost = WORD_COST,
    .split = split,
    .sum_signs = sum_signs,
    .sum_rows = sum_rows,
    .sum_products = sum_products,
    .all_finite = all_finite,
    .pack = pack,
    .add_magnitude = add_magnitude,
    .add_strided = add_strided,
    .dots = dots,
    .emit_i32 = emit_i32,
    .emit_f32 = emit_f32,
};
