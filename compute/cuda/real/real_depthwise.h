/* real_depthwise.h: modes bwn and float where each channel has one 3x3 filter of its own
 * (real_depthwise.cu). */
#ifndef XN_CUDA_REAL_DEPTHWISE_H
#define XN_CUDA_REAL_DEPTHWISE_H

#include "kernel.h"

/* By the geometry alone, but for sizes that 32 bits do not number. */
bool xn_cuda_real_depthwise_fits(const xn_conv *conv, int64_t images);
/* weights: [O][3][3], finite; overlapped: may start before the kernel ahead of it in the stream has
 * ended. */
cudaError_t xn_cuda_real_depthwise_launch(const xn_conv *conv, int64_t images, const void *input,
                                          const float *weights, bool overlapped,
                                          const xn_epilogue_args *epilogue, cudaStream_t stream);
cudaError_t xn_cuda_real_depthwise_load(void);

#endif
