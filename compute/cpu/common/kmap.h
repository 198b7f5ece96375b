/* kmap.h: K (Eq. 10), in one order for each problem, whatever path, strip, band, thread and batch
 * it is computed by.
 *
 * Short boxes, of up to 32 channels and 64 additions, in fp32: the magnitudes of a pixel's
 * channels, one after the other; of that the tap columns of each kernel row, left to right; of that
 * the kernel rows, top to bottom. What is outside the image is 0. Each of up to 64 additions is
 * within 2^-24, so the sum S is within 4e-6, and K is S * unit, unit = 1 / (C*KH*KW).
 *
 * Longer ones in double: for each pixel the magnitudes of 32 channels in fp32, of that all in
 * double, and the mean rounded; of that the kernel rows, then the tap columns. K is S.
 *
 * Where S of a short box is not finite, a sum overflowed though its mean does not, or there is an
 * honest Inf or NaN: then K is computed in double from the image itself (xn_cpu_k_row_exact). Sums
 * are never carried on by subtracting what leaves the box: Inf - Inf would spread a NaN, and
 * rounding errors would add up along the row. */
#ifndef XN_CPU_KMAP_H
#define XN_CPU_KMAP_H

#include "kernels.h"

enum { XN_CPU_K_CHANNELS = 32, XN_CPU_K_DEPTH = 64 };

static inline bool xn_cpu_k_is_short(const xn_conv *conv) {
    return conv->group_channels <= XN_CPU_K_CHANNELS &&
           (int64_t)conv->group_channels + conv->kernel_h + conv->kernel_w <= XN_CPU_K_DEPTH;
}

/* What S is multiplied by. */
static inline double xn_cpu_k_unit(const xn_conv *conv) {
    return xn_cpu_k_is_short(conv)
               ? 1.0 / ((double)conv->group_channels * conv->kernel_h * conv->kernel_w)
               : 1.0;
}

/* Short boxes: S[y][0..OW) of a group whose sums of |I| over its channels are a [H][W]. rows
 * [KH][OW] and held [KH] keep sums of tap columns from one output row to the next; held begins as
 * -1. */
void xn_cpu_k_sums(const xn_cpu_kernels *kernels, const xn_conv *conv, const float *a, int32_t y,
                   float *rows, int32_t *held, float *sums);
/* Longer ones: of means a. Scratch: vertical [W], across [OW]. */
void xn_cpu_k_row(const xn_cpu_kernels *kernels, const xn_conv *conv, const float *a, int32_t y,
                  double *vertical, double *across, float *k);
/* K[y][0..OW) in double from the image. Scratch: temp [W] for rows that are not fp32, vertical [W].
 */
void xn_cpu_k_row_exact(const xn_cpu_kernels *kernels, const xn_conv *conv,
                        const unsigned char *input, int32_t group, int32_t y, float *temp,
                        double *vertical, double *k);

#endif
