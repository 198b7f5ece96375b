/* kmap.c: see kmap.h. The box is separable: the KH rows under the kernel are added column by
 * column, then KW columns of that sum for each output, or the other way round. Outside taps are
 * left out; the divisor is always KH*KW. */
#include "kmap.h"

#include "rows.h"
#include "xn_arith.h"

#include <string.h>

/* The outputs [*first, *last) that read column j inside the image, from *column on. */
static void outputs_of(const xn_conv *conv, int32_t j, int32_t *first, int32_t *last,
                       int64_t *column) {
    int64_t offset = (int64_t)j * conv->dilation_w - conv->pad_left;
    xn_cpu_valid_outputs(offset, conv->stride_w, conv->width, conv->out_width, first, last);
    *column = (int64_t)*first * conv->stride_w + offset;
}

static void sum_columns(const xn_cpu_kernels *kernels, const xn_conv *conv, const float *row,
                        float *sums) {
    int32_t first, last;
    int64_t column;
    memset(sums, 0, (size_t)conv->out_width * sizeof *sums);
    for (int32_t j = 0; j < conv->kernel_w; j++) {
        outputs_of(conv, j, &first, &last, &column);
        if (first < last)
            kernels->add_floats(row + column, conv->stride_w, last - first, sums + first);
    }
}

void xn_cpu_k_sums(const xn_cpu_kernels *kernels, const xn_conv *conv, const float *a, int32_t y,
                   float *rows, int32_t *held, float *sums) {
    int32_t start = y * conv->stride_h - conv->pad_top, i0, i1;
    xn_valid_taps(start, conv->dilation_h, conv->kernel_h, conv->height, &i0, &i1);
    memset(sums, 0, (size_t)conv->out_width * sizeof *sums);
    for (int32_t i = i0; i < i1; i++) {
        int32_t in_y = start + i * conv->dilation_h, slot = in_y % conv->kernel_h;
        float *row = rows + (size_t)slot * (size_t)conv->out_width;
        if (held[slot] != in_y)
            sum_columns(kernels, conv, a + (size_t)in_y * (size_t)conv->width, row);
        held[slot] = in_y;
        kernels->add_floats(row, 1, conv->out_width, sums);
    }
}

/* across[x] = (sum over the valid tap columns of vertical) / divisor */
static void add_across(const xn_cpu_kernels *kernels, const xn_conv *conv, const double *vertical,
                       double divisor, double *across) {
    int32_t first, last;
    int64_t column;
    memset(across, 0, (size_t)conv->out_width * sizeof *across);
    for (int32_t j = 0; j < conv->kernel_w; j++) {
        outputs_of(conv, j, &first, &last, &column);
        if (first < last)
            kernels->add_strided(vertical + column, conv->stride_w, last - first, across + first);
    }
    for (int32_t x = 0; x < conv->out_width; x++)
        across[x] /= divisor;
}

void xn_cpu_k_row(const xn_cpu_kernels *kernels, const xn_conv *conv, const float *a, int32_t y,
                  double *vertical, double *across, float *k) {
    int32_t start = y * conv->stride_h - conv->pad_top, i0, i1;
    xn_valid_taps(start, conv->dilation_h, conv->kernel_h, conv->height, &i0, &i1);
    memset(vertical, 0, (size_t)conv->width * sizeof *vertical);
    for (int32_t i = i0; i < i1; i++) {
        int64_t in_y = start + (int64_t)i * conv->dilation_h;
        kernels->add_magnitude(a + in_y * conv->width, conv->width, vertical);
    }
    add_across(kernels, conv, vertical, (double)conv->kernel_h * conv->kernel_w, across);
    for (int32_t x = 0; x < conv->out_width; x++)
        k[x] = (float)across[x];
}

void xn_cpu_k_row_exact(const xn_cpu_kernels *kernels, const xn_conv *conv,
                        const unsigned char *input, int32_t group, int32_t y, float *temp,
                        double *vertical, double *k) {
    int32_t start = y * conv->stride_h - conv->pad_top, i0, i1;
    xn_valid_taps(start, conv->dilation_h, conv->kernel_h, conv->height, &i0, &i1);
    memset(vertical, 0, (size_t)conv->width * sizeof *vertical);
    for (int32_t i = i0; i < i1; i++)
        for (int32_t c = 0; c < conv->group_channels; c++) {
            const float *row =
                xn_cpu_row_fp32(kernels, conv, input, group * conv->group_channels + c,
                                start + i * conv->dilation_h, temp);
            kernels->add_magnitude(row, conv->width, vertical);
        }
    add_across(kernels, conv, vertical,
               (double)conv->kernel_h * conv->kernel_w * conv->group_channels, k);
}
