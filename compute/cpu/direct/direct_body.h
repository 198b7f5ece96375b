/* direct_body.h: the one text of the kernels in direct_kernels.h. direct_avx512.c, direct_avx2.c,
 * direct_neon.c and direct_portable.c include it, each after choosing its instruction set,
 * including its lanes_*.h and defining DIRECT_KERNELS, the table's symbol, and COSTS,
 * xn_cpu_direct_costs, in its order.
 *
 * shift_rows: a vector of outputs goes down the rows: what it reads of a row at each tap column is
 * loaded once, a tap a load (with a stride of 2 two loads, and the shuffle that takes every other
 * column), and, where the kernel is 3x3 and rows follow one another, used for the three outputs
 * above and below. What lies outside the image is left out by masks, which depend on the column
 * alone. Rows are taken in bands, so that the lines that neighbouring vectors share are still in
 * L1. */
#include "direct_kernels.h"
#include "vectors.h"

/* ---- sums of rows ---- */

enum { UNROLL = 4 /* vectors along x at a time */ };

INLINE void sum_part(const float *const *rows, const float *weights, int32_t count, int32_t x,
                     vector_f32 *sum, const int vectors) {
    for (int v = 0; v < vectors; v++)
        sum[v] = (vector_f32){0};
    for (int32_t t = 0; t < count; t++)
        for (int v = 0; v < vectors; v++)
            sum[v] = MULTIPLY_ADD(*(const loose_f32 *)(rows[t] + x + v * LANES),
                                  weights[t] - (vector_f32){0}, sum[v]);
}

INLINE void sum_block(const float *const *rows, const float *weights, int32_t count, int32_t part,
                      int32_t x, float *to, const int vectors) {
    vector_f32 sum[UNROLL], more[UNROLL], rest[UNROLL] = {{0}};
    sum_part(rows, weights, count < part ? count : part, x, sum, vectors);
    for (int32_t first = part; first < count; first += part) {
        const int32_t left = count - first;
        sum_part(rows + first, weights + first, left < part ? left : part, x, more, vectors);
        for (int v = 0; v < vectors; v++) {
            const vector_f32 term = more[v] - rest[v], after = sum[v] + term;
            rest[v] = (after - sum[v]) - term;
            sum[v] = after;
        }
    }
    for (int v = 0; v < vectors; v++)
        *(loose_f32 *)(to + x + v * LANES) = sum[v];
}

static void sum_products(const float *const *rows, const float *weights, int32_t count,
                         int32_t part, int32_t n, float *sum) {
    int32_t x = 0;
    for (; n - x > (UNROLL - 1) * LANES; x += UNROLL * LANES)
        sum_block(rows, weights, count, part, x, sum, UNROLL);
    for (; x < n; x += LANES)
        sum_block(rows, weights, count, part, x, sum, 1);
}

/* ---- rows in place ---- */

/* Rows of a band: so many that the first ones, which the next band does not share, are few, and
 * that they stay in L1, where rows of a power of 2 meet in the same sets; fewer where the next rows
 * come from memory. */
enum { LEAST_BAND = 8, MOST_BAND = 64, MOST_BAND_FAR = 16, BAND_BYTES = 32 << 10 };

INLINE int32_t band_of(const xn_conv *conv, bool stream) {
    const int32_t most = stream ? MOST_BAND_FAR : MOST_BAND;
    const int32_t rows = BAND_BYTES / 4 / conv->width / conv->stride_h;
    return rows < LEAST_BAND ? LEAST_BAND : rows < most ? rows : most;
}

/* What the taps of a vector of outputs are; by value, so that no store can change it. */
typedef struct shift {
    const float *from; /* the first channel; the column where the vector's first tap reads */
    int64_t pitch;     /* of rows: the image's width */
    int64_t ahead;     /* floats from a row to what the next band will want */
    int32_t height, top, stride_h, dilation_h, dilation_w;
    vector_f32 pads;
    float factor, bias;
    float *to; /* the vector, in the row of output 0 */
    int64_t to_pitch;
    int32_t n; /* lanes */
    bool stream;
} shift;

/* Columns [0, columns) from `at` on that are inside a row. */
INLINE uint32_t columns_inside(int64_t at, int32_t columns, int32_t width) {
    int64_t first = at < 0 ? -at : 0, last = width - at < columns ? width - at : columns;
    return first < last ? (uint32_t)(((uint64_t)1 << last) - ((uint64_t)1 << first)) : 0;
}

/* A vector from `from` on; with a stride of 2, of the columns at even and at odd places. */
INLINE void load_columns(const float *from, uint32_t inside, vector_f32 pads, const bool whole,
                         const int32_t stride, vector_f32 *even, vector_f32 *odd) {
    vector_f32 low, high;
    if (whole)
        low = *(const loose_f32 *)from;
    else
        low = LOAD_INSIDE(from, inside & ((1u << LANES) - 1), pads);
    if (stride == 1) {
        *even = low;
        return;
    }
    if (whole)
        high = *(const loose_f32 *)(from + LANES);
    else
        high = LOAD_INSIDE(from + LANES, inside >> LANES, pads);
    *even = EVENS(low, high);
    *odd = ODDS(low, high);
}

/* What row y of a channel has at each tap column: with a stride of 2, what is loaded for one tap
 * has the next one's too. */
INLINE void load_row(const shift *s, const float *channel, int64_t y, const uint32_t *inside,
                     const int32_t kernel_w, const bool whole, const int32_t stride,
                     vector_f32 *x) {
    vector_f32 unused;
    __builtin_prefetch(channel + y * s->pitch + s->ahead);
    if (stride == 2)
        __builtin_prefetch(channel + y * s->pitch + s->ahead + LANES);
    if (y >= 0 && y < s->height)
        for (int32_t k = 0; k < kernel_w; k += stride)
            load_columns(channel + y * s->pitch + (int64_t)k * s->dilation_w, inside[k], s->pads,
                         whole, stride, &x[k], k + 1 < kernel_w ? &x[k + 1] : &unused);
    else
        for (int32_t k = 0; k < kernel_w; k++)
            x[k] = s->pads;
}

INLINE vector_f32 add_row(vector_f32 sum, const vector_f32 *x, const vector_f32 *weights,
                          const int32_t kernel_w) {
    for (int32_t k = 0; k < kernel_w; k++)
        sum = MULTIPLY_ADD(x[k], weights[k], sum);
    return sum;
}

/* Writes output row y. 0 * value is NaN where it is not finite, and stays so in what it is added
 * to: returns that. */
INLINE vector_f32 put(const shift *s, int32_t y, vector_f32 sum, vector_f32 bad, const bool whole) {
    float *to = s->to + y * s->to_pitch;
    const vector_f32 value = value_of(sum, s->factor, s->bias);
    if (!whole && s->n < LANES)
        STORE_FIRST(to, s->n, value);
    else if (s->stream && (uintptr_t)to % VECTOR_BYTES == 0)
        STREAM(to, value);
    else
        *(loose_f32 *)to = value;
    return MULTIPLY_ADD(value, (vector_f32){0}, bad);
}

/* Rows [y, end) of a 3x3 kernel on one channel without dilation down: of the rows of an output the
 * last ones are the next one's first, with stride_h 1 two, with 2 one. */
INLINE vector_f32 roll(const shift *given, int32_t y, int32_t end, const float *taps,
                       const uint32_t *given_inside, vector_f32 bad, const bool whole,
                       const int32_t stride, const int32_t stride_h) {
    const shift s = *given;
    const uint32_t inside[3] = {given_inside[0], given_inside[1], given_inside[2]};
    vector_f32 weights[9], x[3], above, here = {0};
    int64_t row = (int64_t)y * stride_h - s.top;
    for (int32_t t = 0; t < 9; t++)
        weights[t] = taps[t] - (vector_f32){0};
    load_row(&s, s.from, row++, inside, 3, whole, stride, x);
    above = add_row((vector_f32){0}, x, weights, 3);
    if (stride_h == 1) {
        load_row(&s, s.from, row++, inside, 3, whole, stride, x);
        above = add_row(above, x, weights + 3, 3);
        here = add_row((vector_f32){0}, x, weights, 3);
    }
    for (; y < end; y++) {
        load_row(&s, s.from, row++, inside, 3, whole, stride, x);
        if (stride_h == 2) {
            above = add_row(above, x, weights + 3, 3);
            load_row(&s, s.from, row++, inside, 3, whole, stride, x);
        }
        bad = put(&s, y, add_row(above, x, weights + 6, 3), bad, whole);
        above = stride_h == 1 ? add_row(here, x, weights + 3, 3)
                              : add_row((vector_f32){0}, x, weights, 3);
        here = add_row((vector_f32){0}, x, weights, 3);
    }
    return bad;
}

/* The same of several channels, x channel by channel, weights in the order of the terms. */
INLINE vector_f32 add_terms(vector_f32 sum, const vector_f32 *x, const vector_f32 *weights,
                            const int32_t kernel_w, const int32_t channels) {
    for (int32_t k = 0; k < kernel_w; k++)
        for (int32_t c = 0; c < channels; c++)
            sum = MULTIPLY_ADD(x[c * kernel_w + k], weights[k * channels + c], sum);
    return sum;
}

/* Any kernel, each output by itself. */
INLINE vector_f32 add_up(const shift *given, int32_t y, int32_t end, const float *taps,
                         const uint32_t *inside, int64_t plane, vector_f32 bad, const bool whole,
                         const int32_t channels, const int32_t kernel_h, const int32_t kernel_w,
                         const int32_t stride) {
    const shift s = *given;
    vector_f32 x[XN_CPU_SHIFT_TAPS], weights[XN_CPU_SHIFT_TAPS];
    for (int32_t t = 0; t < channels * kernel_h * kernel_w; t++)
        weights[t] = taps[t] - (vector_f32){0};
    for (; y < end; y++) {
        vector_f32 sum = {0};
        for (int32_t i = 0; i < kernel_h; i++) {
            int64_t row = (int64_t)y * s.stride_h - s.top + (int64_t)i * s.dilation_h;
            for (int32_t c = 0; c < channels; c++)
                load_row(&s, s.from + c * plane, row, inside, kernel_w, whole, stride,
                         x + c * kernel_w);
            sum = add_terms(sum, x, weights + i * kernel_w * channels, kernel_w, channels);
        }
        bad = put(&s, y, sum, bad, whole);
    }
    return bad;
}

INLINE vector_f32 go_down(const xn_conv *conv, const shift *s, int32_t y, int32_t end,
                          const float *weights, const uint32_t *inside, vector_f32 bad,
                          const bool whole, const int32_t stride) {
    const int64_t plane = (int64_t)conv->height * conv->width;
    const bool usual = conv->group_channels == 1 && conv->kernel_h == 3 && conv->kernel_w == 3;
    if (usual && conv->stride_h == 1 && conv->dilation_h == 1)
        return roll(s, y, end, weights, inside, bad, whole, stride, 1);
    if (usual && conv->stride_h == 2 && conv->dilation_h == 1)
        return roll(s, y, end, weights, inside, bad, whole, stride, 2);
    if (conv->group_channels == 1 && conv->kernel_h == 5 && conv->kernel_w == 5)
        return add_up(s, y, end, weights, inside, plane, bad, whole, 1, 5, 5, stride);
    return add_up(s, y, end, weights, inside, plane, bad, whole, conv->group_channels,
                  conv->kernel_h, conv->kernel_w, stride);
}

INLINE bool shift_by(const xn_conv *conv, const float *from, const float *weights, int32_t y0,
                     int32_t count, float factor, float bias, bool stream, float *to,
                     const int32_t stride) {
    const uint32_t full = (uint32_t)(((uint64_t)1 << stride * LANES) - 1);
    const int32_t most = band_of(conv, stream), band = count < most ? count : most;
    vector_f32 bad = {0};
    shift s = {.pitch = conv->width,
               .ahead = (int64_t)band * conv->stride_h * conv->width,
               .height = conv->height,
               .top = conv->pad_top,
               .stride_h = conv->stride_h,
               .dilation_h = conv->dilation_h,
               .dilation_w = conv->dilation_w,
               .pads = (float)conv->pad_value - (vector_f32){0},
               .factor = factor,
               .bias = bias,
               .to_pitch = conv->out_width,
               .stream = stream};
    for (int32_t y = y0, end; y < y0 + count; y = end) {
        end = y0 + count - y > band ? y + band : y0 + count;
        for (int32_t x = 0; x < conv->out_width; x += LANES) {
            uint32_t inside[XN_CPU_SHIFT_TAPS];
            bool whole = true;
            const int64_t at = (int64_t)x * stride - conv->pad_left;
            s.n = conv->out_width - x < LANES ? conv->out_width - x : LANES;
            s.from = from + at;
            s.to = to + x - (int64_t)y0 * conv->out_width;
            for (int32_t k = 0; k < conv->kernel_w; k++) {
                const int32_t columns = stride * s.n;
                inside[k] =
                    columns_inside(at + (int64_t)k * conv->dilation_w, columns, conv->width);
                whole &= inside[k] == full;
            }
            bad = whole ? go_down(conv, &s, y, end, weights, inside, bad, true, stride)
                        : go_down(conv, &s, y, end, weights, inside, bad, false, stride);
        }
    }
    const vector_u32 odd = (vector_u32)(bad != 0);
    uint32_t any = 0;
    for (int l = 0; l < LANES; l++)
        any |= odd[l];
    return !any;
}

static bool shift_rows(const xn_conv *conv, const float *from, const float *weights, int32_t y,
                       int32_t count, float factor, float bias, bool stream, float *to) {
    if (conv->stride_w == 1)
        return shift_by(conv, from, weights, y, count, factor, bias, stream, to, 1);
    return shift_by(conv, from, weights, y, count, factor, bias, stream, to, 2);
}

const xn_cpu_direct_kernels DIRECT_KERNELS = {
    .costs = {COSTS}, .lanes = LANES, .shift_rows = shift_rows, .sum_products = sum_products};
