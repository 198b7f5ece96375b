/* real_pointwise.h: modes bwn and float in fp16 with 1x1 kernels (real_pointwise.cu). */
#ifndef XN_CUDA_REAL_POINTWISE_H
#define XN_CUDA_REAL_POINTWISE_H

#include "kernel.h"

typedef struct xn_cuda_pointwise_io {
    const void *input;       /* fp16 */
    const void *filters;     /* of real_mma.h */
    const int32_t *exponent; /* filters were multiplied by 2^-exponent[o]; NULL: 0 */
    bool overlapped;         /* may start before the kernel ahead of it in the stream has ended */
} xn_cuda_pointwise_io;

/* By the geometry alone, but for sizes that 32 bits do not number. */
bool xn_cuda_real_pointwise_fits(const xn_conv *conv, int64_t images);
cudaError_t xn_cuda_real_pointwise_launch(const xn_conv *conv, int64_t images,
                                          const xn_cuda_pointwise_io *io,
                                          const xn_epilogue_args *epilogue, cudaStream_t stream);
cudaError_t xn_cuda_real_pointwise_load(void);

#endif
