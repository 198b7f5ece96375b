/* rows.c: padded rows whose taps read contiguously.
 *
 * Output x reads, at tap column j, padded column x*s + j*d (s stride, d dilation). Written as
 * s*(x + q) + r with r = j*d mod s and q = j*d / s, that is element x + q of the sequence of the
 * columns r, r + s, r + 2s, ... So a row is stored as such sequences, one for each r that occurs,
 * and tap column j of output x is element column[j] + x, a constant offset, for every stride and
 * dilation: the kernels run along x with plain loads. For stride 1 it is the padded row itself.
 *
 * r repeats with period P = s / gcd(s, d): columns j, j+P, j+2P... share a sequence, P*d/s elements
 * apart. Where that distance is more than the OW elements a column needs (large dilations), each
 * column gets a sequence of its own instead, so a row never takes more than KW*OW elements,
 * whatever the padding. */
#include "rows.h"

#include "xn_mem.h"

#include <string.h>

static int32_t greatest_common_divisor(int32_t a, int32_t b) {
    while (b) {
        int32_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

xn_status xn_cpu_rows_create(const xn_conv *conv, xn_cpu_rows *out, xn_error *error) {
    int32_t gcd = greatest_common_divisor(conv->stride_w, conv->dilation_w);
    int32_t period = conv->stride_w / gcd, distance = conv->dilation_w / gcd;
    bool shared = distance <= conv->out_width && period <= conv->kernel_w;
    int32_t count = shared ? period : conv->kernel_w;

    xn_cpu_rows rows = {.segment_count = count};
    rows.segments = xn_mem_zalloc((size_t)count, sizeof *rows.segments);
    rows.column = xn_mem_zalloc((size_t)conv->kernel_w, sizeof *rows.column);
    if (!rows.segments || !rows.column) {
        xn_cpu_rows_free(&rows);
        return xn_fail(error, XN_ERR_NO_MEMORY, NULL,
                       "no memory for the plan of a kernel of width %d", conv->kernel_w);
    }
    for (int32_t k = 0; k < count; k++) {
        xn_cpu_segment *segment = &rows.segments[k];
        int32_t more = shared ? (conv->kernel_w - 1 - k) / period : 0;
        segment->start = k * conv->dilation_w - conv->pad_left;
        segment->count = conv->out_width + more * distance;
        segment->offset = rows.pitch;
        for (int32_t m = 0; m <= more; m++)
            rows.column[k + m * period] = rows.pitch + (int64_t)m * distance;
        rows.pitch += segment->count;
    }
    *out = rows;
    return XN_OK;
}

void xn_cpu_rows_free(xn_cpu_rows *rows) {
    if (!rows)
        return;
    xn_mem_free(rows->segments);
    xn_mem_free(rows->column);
    *rows = (xn_cpu_rows){0};
}

static void fill(float *to, int32_t n, float value) {
    for (int32_t x = 0; x < n; x++)
        to[x] = value;
}

void xn_cpu_rows_copy(const xn_cpu_kernels *kernels, const xn_conv *conv, const xn_cpu_rows *rows,
                      const float *row, float *to) {
    for (int32_t k = 0; k < rows->segment_count; k++) {
        const xn_cpu_segment *segment = &rows->segments[k];
        float *part = to + segment->offset;
        int32_t first, last;
        xn_cpu_segment_inside(conv, segment, &first, &last);
        fill(part, first, (float)conv->pad_value);
        fill(part + last, segment->count - last, (float)conv->pad_value);
        if (conv->stride_w == 1 && first < last)
            memcpy(part + first, row + first + segment->start, (size_t)(last - first) * sizeof *to);
        else if (first < last)
            kernels->copy_strided(row + (int64_t)first * conv->stride_w + segment->start,
                                  conv->stride_w, last - first, part + first);
    }
}

void xn_cpu_to_fp32(const xn_cpu_kernels *kernels, const xn_conv *conv, const void *src,
                    int32_t count, float *dst) {
    if (conv->input_datatype == XN_FP16)
        kernels->from_fp16(src, count, dst);
    else
        xn_conv_input_to_fp32(conv, src, dst, count);
}

const float *xn_cpu_row_fp32(const xn_cpu_kernels *kernels, const xn_conv *conv,
                             const unsigned char *input, int32_t c, int32_t y, float *temp) {
    size_t bytes = xn_datatype_bytes((xn_datatype)conv->input_datatype);
    size_t first = ((size_t)c * (size_t)conv->height + (size_t)y) * (size_t)conv->width;
    const unsigned char *row = input + first * bytes;
    if (conv->input_datatype == XN_FP32)
        return (const float *)(const void *)row;
    xn_cpu_to_fp32(kernels, conv, row, conv->width, temp);
    return temp;
}
