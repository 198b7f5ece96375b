/* real_dense.h: mode float in fp32 where planes are one pixel: the last layers of networks. */
#ifndef XN_CUDA_REAL_DENSE_H
#define XN_CUDA_REAL_DENSE_H

#include "kernel.h"

/* Of few images: many are faster by real_gemm.cu, whose sums these are. */
bool xn_cuda_real_dense_fits(const xn_conv *conv, int64_t images);
/* As xn_cuda_real_gemm_launch. */
cudaError_t xn_cuda_real_dense_launch(const xn_conv *conv, int64_t images, int multiprocessors,
                                      const void *input, const float *weights, bool overlapped,
                                      const xn_epilogue_args *epilogue, cudaStream_t stream);
cudaError_t xn_cuda_real_dense_load(void);

#endif
