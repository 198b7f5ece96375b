/* direct.h: the launcher of direct.cu. */
#ifndef XN_CUDA_DIRECT_H
#define XN_CUDA_DIRECT_H

#include "kernel.h"

/* direct.cu: any geometry on any chip, by population counts. */
cudaError_t xn_cuda_direct_launch(const xn_conv *conv, int64_t images, const xn_cuda_bit_args *bits,
                                  const xn_epilogue_args *epilogue, cudaStream_t stream);
cudaError_t xn_cuda_direct_load(void);

#endif
