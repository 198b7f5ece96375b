/* implicit_gemm.h: the launcher of implicit_gemm.cu. */
#ifndef XN_CUDA_IMPLICIT_GEMM_H
#define XN_CUDA_IMPLICIT_GEMM_H

#include "kernel.h"

/* implicit_gemm.cu: implicit GEMM on the matrix units, sm_80 and later. */
bool xn_cuda_implicit_gemm_fits(const xn_conv *conv, int64_t images);
cudaError_t xn_cuda_implicit_gemm_launch(const xn_conv *conv, int64_t images, int multiprocessors,
                                         const xn_cuda_bit_args *bits,
                                         const xn_epilogue_args *epilogue, cudaStream_t stream);
cudaError_t xn_cuda_implicit_gemm_load(void);

#endif
