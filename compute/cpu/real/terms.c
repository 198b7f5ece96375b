/* terms.c: see terms.h. */
#include "terms.h"

#include "xn_arith.h"
#include "xn_mem.h"

#include <math.h>
#include <string.h>

enum { AGAIN = 32 /* outputs whose sums are computed at a time */ };

float xn_cpu_term_weight(const xn_prepared *p, xn_mode mode, int32_t o, int32_t term) {
    const int32_t channel = term % p->group_channels, tap = term / p->group_channels;
    const size_t at = (size_t)channel * (size_t)p->taps + (size_t)tap;
    const float weight = p->weights->real[(size_t)o * (size_t)p->filter + at];
    if (mode != XN_MODE_BWN)
        return weight;
    return xn_sign_bit(weight) ? 1.0f : -1.0f;
}

static void lay_out(const xn_prepared *p, xn_mode mode, float *to) {
    const int32_t part = xn_cpu_part_terms(p->filter), tiles = xn_cpu_real_tiles(p->out_channels);
    for (int32_t first = 0; first < p->filter; first += part) {
        int32_t last = (int32_t)xn_cpu_min((int64_t)first + part, p->filter);
        for (int32_t tile = 0; tile < tiles; tile++)
            for (int32_t term = first; term < last; term++, to += XN_CPU_REAL_FILTERS) {
                int32_t base = tile * XN_CPU_REAL_FILTERS;
                int32_t count = (int32_t)xn_cpu_min(XN_CPU_REAL_FILTERS, p->out_channels - base);
                for (int32_t f = 0; f < count; f++)
                    to[f] = xn_cpu_term_weight(p, mode, base + f, term);
            }
        if (last == p->filter)
            break;
    }
}

/* NULL where memory is short. */
static void *make(const xn_prepared *p, int variant) {
    size_t count;
    if (!xn_mul_size((size_t)xn_cpu_real_tiles(p->out_channels) * XN_CPU_REAL_FILTERS,
                     (size_t)p->filter, &count))
        return NULL;
    float *made = xn_mem_zalloc(count, sizeof *made);
    if (made)
        lay_out(p, variant ? XN_MODE_BWN : XN_MODE_FLOAT, made);
    return made;
}

const xn_cpu_form xn_cpu_real_form = {
    .slot = XN_CPU_FORM_REAL, .what = "the floats", .make = make, .free = xn_mem_free};

/* The form's variants. */
static int variant_of(xn_mode mode) {
    return mode == XN_MODE_BWN;
}

xn_status xn_cpu_real_ready(const xn_prepared *prepared, xn_mode mode, xn_error *error) {
    return xn_cpu_form_ready(prepared, &xn_cpu_real_form, variant_of(mode), error);
}

const float *xn_cpu_real_weights(const xn_prepared *prepared, xn_mode mode) {
    return xn_cpu_form_of(prepared, &xn_cpu_real_form, variant_of(mode));
}

/* ---- sums in double ---- */

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

/* The sums of filter o at n outputs from column x of row y on. */
static void sum_again(const xn_conv *conv, const xn_prepared *prepared, const unsigned char *input,
                      int32_t o, int32_t y, int32_t x, int32_t n, float *temp, double *sums) {
    const int32_t channels = prepared->group_channels;
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
                add_tap(conv, &s, k,
                        xn_cpu_term_weight(prepared, (xn_mode)conv->mode, o,
                                           (i * conv->kernel_w + k) * channels + c),
                        x, n, sums);
        }
    }
}

void xn_cpu_real_again(const xn_conv *conv, const xn_prepared *prepared, const unsigned char *input,
                       int32_t o, int32_t y, int32_t x, int32_t n, float *temp, float *v) {
    double sums[AGAIN];
    for (int32_t at = 0; at < n;) {
        int32_t end = at;
        while (end < n && end - at < AGAIN && !isfinite(v[end]))
            end++;
        if (end == at) {
            at++;
            continue;
        }
        sum_again(conv, prepared, input, o, y, x + at, end - at, temp, sums);
        for (int32_t l = at; l < end; l++)
            v[l] = xn_cpu_value_again(conv, prepared->weights, o, sums[l - at]);
        at = end;
    }
}
