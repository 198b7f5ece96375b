/* ops_pool.c: pools.
 *
 * The largest of a window is that of its columns, which are computed first, whole rows at a time:
 * the row of them serves all taps across. Means are sums in double, tap by tap. Only taps inside
 * the image are looked at. Bits that nothing but bits are made of are joined as they are, 32
 * channels at a time. */
#include "bits.h"
#include "ops.h"
#include "xn_arith.h"

#include <math.h>
#include <string.h>

enum { FEW_OUTPUTS = 4 /* of a row: those are gone through one by one */ };

void xn_cpu_ops_rows_under(const xn_conv *conv, int32_t y, int32_t rows, int32_t *first,
                           int32_t *last) {
    const int64_t top = (int64_t)y * conv->stride_h - conv->pad_top;
    const int64_t end = top + (int64_t)(rows - 1) * conv->stride_h +
                        (int64_t)(conv->kernel_h - 1) * conv->dilation_h + 1;
    *first = (int32_t)xn_cpu_min(xn_cpu_max(top, 0), conv->height);
    *last = (int32_t)xn_cpu_max(xn_cpu_min(end, conv->height), *first);
}

void xn_cpu_ops_count_columns(const xn_step *step, double *columns) {
    const xn_conv *conv = &step->conv;
    for (int32_t x = 0; x < conv->out_width; x++) {
        int32_t first, last;
        xn_valid_taps(x * conv->stride_w - conv->pad_left, conv->dilation_w, conv->kernel_w,
                      conv->width, &first, &last);
        columns[x] = 1.0 / (step->attributes.count_padding ? conv->kernel_w : last - first);
    }
}

/* Outputs [*first, *last) of a row have all taps inside. None where they are few. */
static void find_inner(const xn_conv *conv, int32_t *first, int32_t *last) {
    const int64_t left = -(int64_t)conv->pad_left;
    int32_t none;
    xn_cpu_valid_outputs(left, conv->stride_w, conv->width, conv->out_width, first, &none);
    xn_cpu_valid_outputs(left + (int64_t)(conv->kernel_w - 1) * conv->dilation_w, conv->stride_w,
                         conv->width, conv->out_width, &none, last);
    if (*last - *first <= FEW_OUTPUTS)
        *first = *last = 0;
}

static bool is_square(const xn_conv *conv, int32_t side, int32_t stride) {
    return conv->kernel_h == side && conv->kernel_w == side && conv->stride_h == stride &&
           conv->stride_w == stride && conv->dilation_h == 1 && conv->dilation_w == 1;
}

/* Pools of 2 by 2, and of whole planes, of which nothing lies outside. */
void xn_cpu_ops_find_inner(const xn_step *step, xn_cpu_ops_state *state) {
    const xn_conv *conv = &step->conv;
    const bool mean = step->kind == XN_STEP_AVG_POOL && !conv->pad_top && !conv->pad_left;
    find_inner(conv, &state->inner_first, &state->inner_last);
    state->by_4 = mean && is_square(conv, 2, 2) && 2 * (int64_t)conv->out_height <= conv->height &&
                  2 * (int64_t)conv->out_width <= conv->width;
    state->by_planes = mean && conv->input_datatype != XN_BITS && conv->out_height == 1 &&
                       conv->out_width == 1 && conv->kernel_h == conv->height &&
                       conv->kernel_w == conv->width && conv->dilation_h == 1 &&
                       conv->dilation_w == 1;
}

/* The kernel rows of an output row that are inside, and the input row of the first. */
typedef struct taps {
    int32_t first, last, y;
} taps;

static taps taps_of(const xn_conv *conv, int32_t y) {
    const int32_t start = y * conv->stride_h - conv->pad_top;
    taps t;
    xn_valid_taps(start, conv->dilation_h, conv->kernel_h, conv->height, &t.first, &t.last);
    t.y = start + t.first * conv->dilation_h;
    return t;
}

/* The rows under output row y, and how many. */
static int32_t find_rows(const xn_cpu_ops_unit *u, const float *rows, int32_t y,
                         const float **under) {
    const xn_conv *conv = u->j->conv;
    const taps t = taps_of(conv, y);
    const float *from = rows + ((int64_t)t.y * conv->width - u->pixel);
    for (int32_t i = 0; i < t.last - t.first; i++)
        under[i] = from + (int64_t)i * conv->dilation_h * conv->width;
    return t.last - t.first;
}

/* What output x of a row reads of it. */
typedef struct reach {
    int64_t from;
    int32_t count;
} reach;

static reach reach_of(const xn_conv *conv, int32_t x) {
    const int32_t start = x * conv->stride_w - conv->pad_left;
    int32_t first, last;
    xn_valid_taps(start, conv->dilation_w, conv->kernel_w, conv->width, &first, &last);
    return (reach){start + (int64_t)first * conv->dilation_w, last - first};
}

/* The next of a row's outputs that are gone through one by one: all but the inner ones. */
static int32_t next_outer(const xn_cpu_ops_state *state, int32_t x) {
    return x == state->inner_first ? state->inner_last : x;
}

/* ---- the largest, or the least ---- */

static void extremes_across(const xn_cpu_ops_unit *u, const float *row, bool least, float *out) {
    const xn_cpu_ops_state *state = u->j->state;
    const xn_conv *conv = u->j->conv;
    const int32_t first = state->inner_first, inner = state->inner_last - first;
    for (int32_t x = next_outer(state, 0); x < conv->out_width; x = next_outer(state, x + 1)) {
        const reach r = reach_of(conv, x);
        out[x] = u->j->kernels->extreme_of(row + r.from, conv->dilation_w, r.count, least,
                                           least ? INFINITY : -INFINITY);
    }
    if (inner > 0)
        u->j->kernels->extremes_across(row + (int64_t)first * conv->stride_w - conv->pad_left,
                                       conv->kernel_w, conv->dilation_w, conv->stride_w, inner,
                                       least, out + first);
}

/* rows: the input's, from the unit's first on. */
static void extremes(const xn_cpu_ops_unit *u, const float *rows, int32_t y, bool least,
                     float *out) {
    const xn_conv *conv = u->j->conv;
    const float **under = xn_cpu_ops_own(u, XN_CPU_OPS_ROWS);
    float *columns = xn_cpu_ops_own(u, XN_CPU_OPS_ROW);
    const int32_t count = find_rows(u, rows, y, under);
    u->j->kernels->extremes_down(under, count, conv->width, least, columns);
    extremes_across(u, columns, least, out);
}

/* ---- means ---- */

static void means(const xn_cpu_ops_unit *u, const float *rows, int32_t y, float *out) {
    const xn_cpu_ops_state *state = u->j->state;
    const xn_conv *conv = u->j->conv;
    const xn_cpu_ops_kernels *kernels = u->j->kernels;
    const float **under = xn_cpu_ops_own(u, XN_CPU_OPS_ROWS);
    const int32_t count = find_rows(u, rows, y, under), first = state->inner_first;
    const int32_t inner = state->inner_last - first;
    double *sums = xn_cpu_ops_own(u, XN_CPU_OPS_SUMS);
    for (int32_t x = next_outer(state, 0); x < conv->out_width; x = next_outer(state, x + 1)) {
        const reach r = reach_of(conv, x);
        sums[x] = 0;
        for (int32_t i = 0; i < count; i++)
            sums[x] = kernels->sum_of(under[i] + r.from, conv->dilation_w, r.count, sums[x]);
    }
    for (int32_t i = 0; i < count; i++)
        under[i] += (int64_t)first * conv->stride_w - conv->pad_left;
    if (inner > 0)
        kernels->sums(under, count, conv->kernel_w, conv->dilation_w, conv->stride_w, inner,
                      sums + first);
    kernels->means(sums, 1.0 / (u->j->step->attributes.count_padding ? conv->kernel_h : count),
                   state->columns, conv->out_width, out);
}

/* ---- bits of bits ---- */

/* Joined as they are: nothing is done to the values, and no real is stored. */
static bool is_joined(const xn_step *step) {
    const xn_epilogue *e = &step->conv.epilogue;
    return step->kind == XN_STEP_MAX_POOL && step->conv.input_datatype == XN_BITS &&
           e->datatype == XN_BITS && e->factor == XN_FACTOR_NONE && !e->bias && !e->residual &&
           e->activation == XN_ACTIVATION_NONE && !e->shift;
}

static bool takes_least(const xn_cpu_ops_unit *u, int32_t c) {
    return u->j->step->least && u->j->run->epilogue.weights->scale[c] < 0;
}

/* The outputs of a row whose tap in that column is inside, and what the first of them reads. */
typedef struct column {
    int32_t first, count, from;
} column;

static column column_of(const xn_conv *conv, int32_t k) {
    const int64_t offset = (int64_t)k * conv->dilation_w - conv->pad_left;
    column c;
    xn_cpu_valid_outputs(offset, conv->stride_w, conv->width, conv->out_width, &c.first, &c.count);
    c.count -= c.first;
    c.from = (int32_t)(c.first * (int64_t)conv->stride_w + offset);
    return c;
}

static void join_row(const xn_cpu_ops_unit *u, int32_t y, bool all, uint32_t *out) {
    const xn_conv *conv = u->j->conv;
    const taps t = taps_of(conv, y);
    const uint32_t *row = (const uint32_t *)xn_cpu_ops_own(u, XN_CPU_OPS_IN_WORDS) +
                          (t.y * (int64_t)conv->width - u->pixel);
    memset(out, all ? 0xff : 0, (size_t)conv->out_width * sizeof *out);
    for (int32_t i = t.first; i < t.last; i++, row += (int64_t)conv->dilation_h * conv->width)
        for (int32_t k = 0; k < conv->kernel_w; k++) {
            const column c = column_of(conv, k);
            u->j->kernels->join(row + c.from, conv->stride_w, c.count, all, out + c.first);
        }
}

static void join_block(const xn_cpu_ops_unit *u, int32_t y, int32_t rows) {
    const int32_t width = u->j->conv->out_width;
    const uint32_t channels = UINT32_MAX >> (XN_CPU_OPS_BLOCK - (u->last - u->first));
    uint32_t least = 0, *words = xn_cpu_ops_own(u, XN_CPU_OPS_WORDS);
    uint32_t *all = xn_cpu_ops_own(u, XN_CPU_OPS_ACC);
    for (int32_t c = u->first; c < u->last; c++)
        least |= (uint32_t)takes_least(u, c) << (c - u->first);
    for (int32_t r = 0; r < rows; r++, words += width) {
        join_row(u, y + r, false, words);
        if (!least)
            continue;
        join_row(u, y + r, true, all);
        for (int32_t x = 0; x < width; x++)
            words[x] = ((words[x] & ~least) | (all[x] & least)) & channels;
    }
}

/* ---- a unit ---- */

static void pool_channel(const xn_cpu_ops_unit *u, int32_t c, int32_t y, int32_t rows) {
    const xn_conv *conv = u->j->conv;
    const float *from = xn_cpu_ops_channel(u, c);
    float *acc = xn_cpu_ops_own(u, XN_CPU_OPS_ACC), *to = acc;
    if (u->j->state->by_4)
        u->j->kernels->means_of_4(from, conv->width, rows, conv->out_width,
                                  0.5 * u->j->state->columns[0], acc);
    for (int32_t r = 0; !u->j->state->by_4 && r < rows; r++, to += conv->out_width) {
        if (u->j->step->kind == XN_STEP_AVG_POOL)
            means(u, from, y + r, to);
        else
            extremes(u, from, y + r, takes_least(u, c), to);
    }
    xn_cpu_ops_emit(u, c, acc);
}

static void pool_planes(const xn_cpu_ops_unit *u) {
    const xn_cpu_ops_state *state = u->j->state;
    const int32_t count = u->last - u->first;
    float means[XN_CPU_OPS_BLOCK];
    u->j->kernels->means_of_planes(xn_cpu_ops_channels(u, u->first, count), count, u->n,
                                   1.0 / u->j->conv->kernel_h * state->columns[0], means);
    for (int32_t c = 0; c < count; c++)
        xn_cpu_ops_emit(u, u->first + c, means + c);
}

void xn_cpu_ops_pool(xn_cpu_ops_unit *u) {
    const xn_conv *conv = u->j->conv;
    const int32_t y = (int32_t)(u->out_pixel / conv->out_width), rows = u->out_n / conv->out_width;
    int32_t first, last;
    xn_cpu_ops_rows_under(conv, y, rows, &first, &last);
    u->pixel = (int64_t)first * conv->width;
    u->n = (last - first) * conv->width;
    xn_cpu_ops_open(u);
    xn_cpu_ops_begin(u);
    if (is_joined(u->j->step))
        join_block(u, y, rows);
    else if (u->j->state->by_planes)
        pool_planes(u);
    else
        for (int32_t c = u->first; c < u->last; c++)
            pool_channel(u, c, y, rows);
    xn_cpu_ops_end(u);
}
