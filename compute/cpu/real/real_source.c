/* real_source.c: see real.h. */
#include "real.h"
#include "xn_arith.h"

#include <string.h>

enum { WAVE_BYTES = 8 << 20, COPY_ROWS = 32, EVERY_OTHER_TAPS = 25 };

/* Every other column takes two loads and a shuffle each time a tap reads it, the copy one time
 * more: measured, 3x3 is a fifth faster without, 7x7 slower. */
static bool is_in_place(const xn_conv *conv) {
    return conv->input_datatype == XN_FP32 &&
           (conv->stride_w == 1 ||
            (conv->stride_w == 2 && (int64_t)conv->kernel_h * conv->kernel_w <= EVERY_OTHER_TAPS));
}

static xn_status lay_out_in_place(xn_plan *plan, xn_error *error) {
    const xn_conv *conv = &plan->conv;
    plan->rows.column = xn_mem_zalloc((size_t)conv->kernel_w, sizeof *plan->rows.column);
    if (!plan->rows.column)
        return xn_fail(error, XN_ERR_NO_MEMORY, NULL,
                       "no memory for the plan of a kernel of width %d", conv->kernel_w);
    for (int32_t k = 0; k < conv->kernel_w; k++)
        plan->rows.column[k] = (int64_t)k * conv->dilation_w - conv->pad_left;
    plan->rows.pitch = conv->width;
    plan->wave = (int32_t)xn_cpu_min(plan->max_images, INT32_MAX);
    return XN_OK;
}

xn_status xn_cpu_source_layout(xn_plan *plan, xn_cpu_sizer *shared, xn_cpu_sizer *slice,
                               xn_error *error) {
    const xn_conv *conv = &plan->conv;
    plan->in_place = is_in_place(conv);
    plan->offset[XN_CPU_SOURCE_TEMP] = xn_cpu_take(slice, (size_t)conv->width, sizeof(float));
    if (plan->in_place)
        return lay_out_in_place(plan, error);
    xn_status status = xn_cpu_rows_create(conv, &plan->rows, error);
    if (status)
        return status;
    size_t image; /* floats */
    bool fits = xn_mul_size((size_t)conv->channels * (size_t)conv->height, (size_t)plan->rows.pitch,
                            &image);
    int64_t wave = fits && image <= WAVE_BYTES / sizeof(float)
                       ? (int64_t)(WAVE_BYTES / sizeof(float) / image)
                       : 1;
    plan->wave = (int32_t)xn_cpu_min(plan->max_images, wave);
    shared->failed |= !fits;
    if (fits)
        plan->offset[XN_CPU_SOURCE_ROWS] =
            xn_cpu_take(shared, image, (size_t)plan->wave * sizeof(float));
    return XN_OK;
}

static float *copied_row(const xn_cpu_source *s, int64_t slot, int32_t c, int32_t y) {
    float *rows = (float *)(void *)(xn_cpu_shared(s->plan) + s->plan->offset[XN_CPU_SOURCE_ROWS]);
    return rows + ((slot * s->conv->channels + c) * s->conv->height + y) * s->plan->rows.pitch;
}

const float *xn_cpu_source_row(const xn_cpu_source *s, int64_t slot, int32_t c, int32_t y) {
    if (s->plan->in_place)
        return (const float *)(const void *)s->images[slot].input +
               ((int64_t)c * s->conv->height + y) * s->conv->width;
    return copied_row(s, slot, c, y);
}

static void fill(float *to, int32_t n, float value) {
    for (int32_t x = 0; x < n; x++)
        to[x] = value;
}

void xn_cpu_real_copy_row(const xn_plan *plan, const float *row, float *to) {
    const xn_conv *conv = &plan->conv;
    const xn_cpu_rows *rows = &plan->rows;
    for (int32_t k = 0; k < rows->segment_count; k++) {
        const xn_cpu_segment *segment = &rows->segments[k];
        float *part = to + segment->offset;
        int32_t first, last;
        xn_cpu_segment_inside(conv, segment, &first, &last);
        fill(part, first, (float)conv->pad_value);
        fill(part + last, segment->count - last, (float)conv->pad_value);
        if (conv->stride_w == 1 && first < last)
            memcpy(part + first, row + first + segment->start, (size_t)(last - first) * sizeof *to);
        else if (conv->stride_w == 2) /* often so, and a loop that vectorises */
            for (int32_t x = first; x < last; x++)
                part[x] = row[(int64_t)x * 2 + segment->start];
        else
            for (int32_t x = first; x < last; x++)
                part[x] = row[(int64_t)x * conv->stride_w + segment->start];
    }
}

/* Whether a kernel row ever reads image row y. */
static bool is_read(const xn_conv *conv, int32_t y) {
    for (int32_t i = 0; i < conv->kernel_h; i++) {
        int64_t at = (int64_t)y + conv->pad_top - (int64_t)i * conv->dilation_h;
        if (at >= 0 && at % conv->stride_h == 0 && at / conv->stride_h < conv->out_height)
            return true;
    }
    return false;
}

static void copy_task(void *context, int64_t unit, int thread) {
    const xn_cpu_source *s = context;
    const xn_conv *conv = s->conv;
    float *temp =
        (float *)(void *)(xn_cpu_slice(s->plan, thread) + s->plan->offset[XN_CPU_SOURCE_TEMP]);
    int64_t copies = xn_cpu_div_up(conv->height, COPY_ROWS);
    int64_t y0 = unit % copies * COPY_ROWS, rest = unit / copies;
    int32_t y1 = (int32_t)xn_cpu_min(y0 + COPY_ROWS, conv->height);
    int32_t c = (int32_t)(rest % conv->channels);
    int64_t slot = rest / conv->channels;
    for (int32_t y = (int32_t)y0; y < y1; y++)
        if (is_read(conv, y))
            xn_cpu_real_copy_row(
                s->plan, xn_cpu_row_fp32(s->plan->kernels, conv, s->images[slot].input, c, y, temp),
                copied_row(s, slot, c, y));
}

void xn_cpu_source_fill(const xn_cpu_source *s) {
    xn_cpu_source copy = *s;
    if (!s->plan->in_place)
        xn_cpu_for(s->run->threads,
                   s->count * s->conv->channels * xn_cpu_div_up(s->conv->height, COPY_ROWS),
                   copy_task, &copy);
}

/* Columns [lo, hi) of a row as fp32: row[x - lo]. */
typedef struct stretch {
    const float *row;
    int32_t lo, hi;
} stretch;

static stretch stretch_of(const xn_conv *conv, const unsigned char *input, int32_t c, int32_t y,
                          int32_t x, int32_t n, float *temp) {
    int64_t left = (int64_t)x * conv->stride_w - conv->pad_left;
    int64_t right = left + (int64_t)(n - 1) * conv->stride_w +
                    (int64_t)(conv->kernel_w - 1) * conv->dilation_w + 1;
    int32_t lo = (int32_t)xn_cpu_min(xn_cpu_max(left, 0), conv->width);
    int32_t hi = (int32_t)xn_cpu_max(xn_cpu_min(right, conv->width), lo);
    size_t bytes = xn_datatype_bytes((xn_datatype)conv->input_datatype);
    const unsigned char *from =
        input +
        (((size_t)c * (size_t)conv->height + (size_t)y) * (size_t)conv->width + (size_t)lo) * bytes;
    if (conv->input_datatype == XN_FP32)
        return (stretch){(const float *)(const void *)from, lo, hi};
    xn_conv_input_to_fp32(conv, from, temp, hi - lo);
    return (stretch){temp, lo, hi};
}

/* sums[0..n) += weight * what tap column k has at outputs x.. of a row. */
static void add_tap(const xn_conv *conv, const stretch *s, int32_t k, float weight, int32_t x,
                    int32_t n, double *sums) {
    int64_t column = (int64_t)x * conv->stride_w + (int64_t)k * conv->dilation_w - conv->pad_left;
    for (int32_t l = 0; l < n; l++, column += conv->stride_w)
        if (column >= s->lo && column < s->hi)
            sums[l] += (double)weight * s->row[column - s->lo];
        else if (conv->pad_value)
            sums[l] += (double)weight * conv->pad_value;
}

void xn_cpu_real_exact(const xn_conv *conv, const xn_prepared *prepared, const unsigned char *input,
                       int32_t o, int32_t y, int32_t x, int32_t n, float *temp, double *sums) {
    int32_t start = y * conv->stride_h - conv->pad_top, i0, i1;
    int32_t base = o / conv->group_out_channels * conv->group_channels;
    xn_valid_taps(start, conv->dilation_h, conv->kernel_h, conv->height, &i0, &i1);
    memset(sums, 0, (size_t)n * sizeof *sums);
    for (int32_t i = 0; i < conv->kernel_h; i++) {
        bool inside = i >= i0 && i < i1;
        for (int32_t c = 0; c < conv->group_channels && (inside || conv->pad_value); c++) {
            stretch s = {0};
            if (inside)
                s = stretch_of(conv, input, base + c, start + i * conv->dilation_h, x, n, temp);
            for (int32_t k = 0; k < conv->kernel_w; k++)
                add_tap(
                    conv, &s, k,
                    xn_cpu_real_weight(prepared, (xn_mode)conv->mode, o, c, i * conv->kernel_w + k),
                    x, n, sums);
        }
    }
}
