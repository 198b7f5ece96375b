/* real_pointwise.h: real_pointwise.cu, in fp16, with filters of real_mma.h: 1x1 kernels; sm_80. As
 * real.h has the others. */
#ifndef XN_CUDA_REAL_POINTWISE_H
#define XN_CUDA_REAL_POINTWISE_H

#include "real.h"

bool xn_cuda_real_pointwise_fits(const xn_conv *conv, int64_t images);
xn_cuda_real_launcher xn_cuda_real_pointwise_launch;
cudaError_t xn_cuda_real_pointwise_load(bool *);

#endif
