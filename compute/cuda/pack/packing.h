/* packing.h: what the kernels of bits read: activations as bits, set bits, means, boxes. */
#ifndef XN_CUDA_PACKING_H
#define XN_CUDA_PACKING_H

#include "kernel.h"

/* How the bits of activations lie in memory, and with them set bits and means (layout.h). */
typedef enum {
    XN_CUDA_PLAIN, /* activations */
    XN_CUDA_AS_PADDED,
} xn_cuda_bits_layout;

/* pack.cu: NCHW of any datatype -> activation bits; per pixel and group the set bits (popc) and
 * the mean magnitude (mean). popc and mean may be NULL. input is aligned to its elements, bits to
 * 16 bytes. overlapped: may start before the kernel ahead of it in the stream has ended (sm_90 and
 * later), which it does where the problem is small. */
cudaError_t xn_cuda_pack_launch(const xn_conv *conv, int64_t images, int multiprocessors,
                                const void *input, uint32_t *bits, int32_t *popc, float *mean,
                                xn_cuda_bits_layout layout, bool overlapped, cudaStream_t stream);

/* packed.cu: packed pixels to lines, with their set bits. */
cudaError_t xn_cuda_spread_launch(const xn_conv *conv, int64_t images, const uint32_t *bits,
                                  uint32_t *to, int32_t *counts, cudaStream_t stream);

/* box.cu: per output pixel and group, the pixel part of dot (layout.h) from popc, or where that is
 * NULL from the pixels' bits, and the box of K (epilogue.cuh) from mean. pixel_part may be NULL,
 * and so may mean and box. */
cudaError_t xn_cuda_box_launch(const xn_conv *conv, int64_t images, const uint32_t *bits,
                               const int32_t *popc, const float *mean, int32_t *pixel_part,
                               float *box, cudaStream_t stream);

cudaError_t xn_cuda_pack_load(void);
cudaError_t xn_cuda_packed_load(void);
cudaError_t xn_cuda_box_load(void);

#endif
