/* real_gemm.h: modes bwn and float in fp32 (real_gemm.cu). */
#ifndef XN_CUDA_REAL_GEMM_H
#define XN_CUDA_REAL_GEMM_H

#include "kernel.h"

/* By the geometry alone, but for sizes that 32 bits do not number: what a sum is must not depend on
 * the number of images. */
bool xn_cuda_real_gemm_fits(const xn_conv *conv, int64_t images);
/* weights: [O][C/groups][KH][KW], finite; overlapped: may start before the kernel ahead of it in
 * the stream has ended. */
cudaError_t xn_cuda_real_gemm_launch(const xn_conv *conv, int64_t images, int multiprocessors,
                                     const void *input, const float *weights, bool overlapped,
                                     const xn_epilogue_args *epilogue, cudaStream_t stream);
cudaError_t xn_cuda_real_gemm_load(void);

#endif
