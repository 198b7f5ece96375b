/* real_mma.h: how modes bwn and float lie in memory for the matrix units (real_mma.cu). Shared by
 * the host code that plans and prepares and by the kernels.
 *
 *   pixels   [N*G][padded H][padded W][tap_units]   the input in the plan's precision, channels of
 *            the group innermost and, past them, zeros; around the image what pad_value says. With
 *            the border in memory no tap is ever outside, whatever stride, padding and dilation
 *   filters  [O][row]   tap-major as pixels: (i, j, channel), then zeros
 *
 * A unit is what one copy moves: 16 bytes, or 8 where a pixel has no more (up to 4 channels in
 * fp16: a 7x7 kernel of 3 channels then takes 4 steps; in units of 16 bytes it would take 7). */
#ifndef XN_CUDA_REAL_MMA_H
#define XN_CUDA_REAL_MMA_H

#include "kernel.h"
#include "xn_arith.h"

#define XN_CUDA_MMA_STEP_BYTES 128 /* of a row: what one stage of the kernel has */

XN_HD int32_t xn_cuda_mma_element_bytes(int32_t precision) {
    return precision == XN_PRECISION_FP16 ? 2 : 4;
}

XN_HD int32_t xn_cuda_mma_unit_bytes(int32_t precision, int32_t group_channels) {
    return precision == XN_PRECISION_FP16 && group_channels <= 4 ? 8 : 16;
}

XN_HD int32_t xn_cuda_mma_tap_units(int32_t precision, int32_t group_channels) {
    const int32_t elements =
        xn_cuda_mma_unit_bytes(precision, group_channels) / xn_cuda_mma_element_bytes(precision);
    return (group_channels - 1) / elements + 1;
}

/* Bytes of a filter: whole steps. */
XN_HD int64_t xn_cuda_mma_row_bytes(int32_t precision, int32_t group_channels, int64_t taps) {
    const int64_t bytes = taps * xn_cuda_mma_tap_units(precision, group_channels) *
                          xn_cuda_mma_unit_bytes(precision, group_channels);
    return (bytes + XN_CUDA_MMA_STEP_BYTES - 1) / XN_CUDA_MMA_STEP_BYTES * XN_CUDA_MMA_STEP_BYTES;
}

/* Positions of an image with its border. */
XN_HD int64_t xn_cuda_mma_positions(const xn_conv *c) {
    return ((int64_t)c->height + c->pad_top + c->pad_bottom) *
           ((int64_t)c->width + c->pad_left + c->pad_right);
}

/* Bytes of one image's pixels. */
XN_HD int64_t xn_cuda_mma_pixel_bytes(const xn_conv *c) {
    return xn_cuda_mma_positions(c) * c->groups *
           xn_cuda_mma_tap_units(c->precision, c->group_channels) *
           xn_cuda_mma_unit_bytes(c->precision, c->group_channels);
}

/* real_mma_pack.cu: input of any datatype to pixels. */
cudaError_t xn_cuda_mma_pack_launch(const xn_conv *conv, int64_t images, const void *input,
                                    void *pixels, bool overlapped, cudaStream_t stream);

cudaError_t xn_cuda_mma_pack_load(void);

#endif
