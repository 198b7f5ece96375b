/* kmap.c: rows of K (Eq. 10), in double.
 *
 * K is A = mean |I| convolved with a box, which is separable: first the KH rows of A under the
 * kernel are added column by column, then KW columns of that sum for each output. Sums are never
 * carried on by subtracting what leaves the box: Inf - Inf would spread a NaN, and rounding errors
 * would add up along the row. Double holds any sum of floats without overflow, so K is finite
 * whenever the mean is. Outside taps are left out; the divisor is always KH*KW. */
#include "cpu.h"
#include "xn_arith.h"

#include <string.h>

/* k[x] = (sum over the valid tap columns of vertical) / divisor */
static void across(const xn_cpu_kernels *kernels, const xn_conv *conv, const double *vertical,
                   double divisor, double *sums, float *k) {
    memset(sums, 0, (size_t)conv->out_width * sizeof *sums);
    for (int32_t j = 0; j < conv->kernel_w; j++) {
        int64_t offset = (int64_t)j * conv->dilation_w - conv->pad_left;
        int32_t first, last;
        xn_cpu_valid_outputs(offset, conv->stride_w, conv->width, conv->out_width, &first, &last);
        if (first < last)
            kernels->add_strided(vertical + ((int64_t)first * conv->stride_w + offset),
                                 conv->stride_w, last - first, sums + first);
    }
    for (int32_t x = 0; x < conv->out_width; x++)
        k[x] = (float)(sums[x] / divisor);
}

void xn_cpu_k_row(const xn_cpu_kernels *kernels, const xn_conv *conv, const float *a, int32_t y,
                  double *vertical, double *sums, float *k) {
    int32_t start = y * conv->stride_h - conv->pad_top, i0, i1;
    xn_valid_taps(start, conv->dilation_h, conv->kernel_h, conv->height, &i0, &i1);
    memset(vertical, 0, (size_t)conv->width * sizeof *vertical);
    for (int32_t i = i0; i < i1; i++) {
        int64_t in_y = start + (int64_t)i * conv->dilation_h;
        kernels->add_magnitude(a + in_y * conv->width, conv->width, vertical);
    }
    across(kernels, conv, vertical, (double)conv->kernel_h * conv->kernel_w, sums, k);
}

void xn_cpu_k_row_exact(const xn_cpu_kernels *kernels, const xn_conv *conv,
                        const unsigned char *input, int32_t group, int32_t y, float *temp,
                        double *vertical, double *sums, float *k) {
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
    across(kernels, conv, vertical, (double)conv->kernel_h * conv->kernel_w * conv->group_channels,
           sums, k);
}
