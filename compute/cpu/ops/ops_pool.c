/* ops_pool.c: pools.
 *
 * The largest of a window is that of its columns, which are had first, whole rows at a time: the
 * row of them serves all taps across. Means are sums in double, tap by tap. Only taps inside the
 * image are looked at. Bits that nothing but bits are made of are joined as they are, 32 channels
 * at a time. */
#include "bits.h"
#include "ops.h"
#include "xn_arith.h"

#include <math.h>
#include <string.h>

enum { FEW_OUTPUTS = 4 /* of a row: then taps are gone through output by output */ };

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
        columns[x] = step->count_padding ? conv->kernel_w : last - first;
    }
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

/* ---- the largest, or the least ---- */

/* rows: the input's, from the unit's first on. */
static void extremes(const xn_cpu_ops_unit *u, const float *rows, int32_t y, bool least,
                     float *out) {
    const xn_conv *conv = u->j->conv;
    const xn_cpu_ops_kernels *kernels = u->j->kernels;
    const taps t = taps_of(conv, y);
    const float *from = rows + ((int64_t)t.y * conv->width - u->pixel), *row = from;
    const float none = least ? INFINITY : -INFINITY;
    float *columns = xn_cpu_ops_own(u, XN_CPU_OPS_ROW);
    if (t.last - t.first > 1) {
        row = columns;
        for (int32_t x = 0; x < conv->width; x++)
            columns[x] = none;
        for (int32_t i = t.first; i < t.last; i++, from += (int64_t)conv->dilation_h * conv->width)
            kernels->extremes(from, 1, conv->width, least, columns);
    }
    for (int32_t x = 0; x < conv->out_width; x++)
        out[x] = none;
    if (conv->out_width <= FEW_OUTPUTS) {
        for (int32_t x = 0; x < conv->out_width; x++) {
            const int32_t start = x * conv->stride_w - conv->pad_left;
            int32_t first, last;
            xn_valid_taps(start, conv->dilation_w, conv->kernel_w, conv->width, &first, &last);
            out[x] = kernels->extreme_of(row + start + (int64_t)first * conv->dilation_w,
                                         conv->dilation_w, last - first, least, none);
        }
        return;
    }
    for (int32_t k = 0; k < conv->kernel_w; k++) {
        const column c = column_of(conv, k);
        kernels->extremes(row + c.from, conv->stride_w, c.count, least, out + c.first);
    }
}

/* ---- means ---- */

static void add_row(const xn_cpu_ops_unit *u, const float *row, double *sums) {
    const xn_conv *conv = u->j->conv;
    const xn_cpu_ops_kernels *kernels = u->j->kernels;
    for (int32_t x = 0; conv->out_width <= FEW_OUTPUTS && x < conv->out_width; x++) {
        const int32_t start = x * conv->stride_w - conv->pad_left;
        int32_t first, last;
        xn_valid_taps(start, conv->dilation_w, conv->kernel_w, conv->width, &first, &last);
        sums[x] = kernels->sum_of(row + start + (int64_t)first * conv->dilation_w, conv->dilation_w,
                                  last - first, sums[x]);
    }
    for (int32_t k = 0; conv->out_width > FEW_OUTPUTS && k < conv->kernel_w; k++) {
        const column c = column_of(conv, k);
        kernels->add(row + c.from, conv->stride_w, c.count, sums + c.first);
    }
}

static void means(const xn_cpu_ops_unit *u, const float *rows, int32_t y, float *out) {
    const xn_conv *conv = u->j->conv;
    const taps t = taps_of(conv, y);
    const float *from = rows + ((int64_t)t.y * conv->width - u->pixel);
    const int32_t inside = u->j->step->count_padding ? conv->kernel_h : t.last - t.first;
    double *sums = xn_cpu_ops_own(u, XN_CPU_OPS_SUMS);
    memset(sums, 0, (size_t)conv->out_width * sizeof *sums);
    for (int32_t i = t.first; i < t.last; i++, from += (int64_t)conv->dilation_h * conv->width)
        add_row(u, from, sums);
    u->j->kernels->means(sums, inside, u->j->state->columns, conv->out_width, out);
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
    for (int32_t r = 0; r < rows; r++, to += conv->out_width) {
        if (u->j->step->kind == XN_STEP_AVG_POOL)
            means(u, from, y + r, to);
        else
            extremes(u, from, y + r, takes_least(u, c), to);
    }
    xn_cpu_ops_emit(u, c, acc);
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
    else
        for (int32_t c = u->first; c < u->last; c++)
            pool_channel(u, c, y, rows);
    xn_cpu_ops_end(u);
}
