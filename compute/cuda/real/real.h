/* real.h: the launcher of real.cu. */
#ifndef XN_CUDA_REAL_H
#define XN_CUDA_REAL_H

#include "kernel.h"

/* real.cu: modes bwn and float. weights is [O][C/groups][KH][KW]. */
cudaError_t xn_cuda_real_launch(const xn_conv *conv, int64_t images, const void *input,
                                const float *weights, const xn_epilogue_args *epilogue,
                                cudaStream_t stream);
cudaError_t xn_cuda_real_load(void);

#endif
