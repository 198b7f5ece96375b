/* real.h: the launchers of this folder: modes bwn and float. */
#ifndef XN_CUDA_REAL_H
#define XN_CUDA_REAL_H

#include "kernel.h"

/* Device memory of a run. */
typedef struct xn_cuda_real_io {
    const void *input;
    const void *weights;     /* [O][C/groups][KH][KW] in fp32, or filters of real_mma.h, which were
                              * multiplied by 2^-exponent[o]; */
    const int32_t *exponent; /* NULL: 0 */
    void *pixels;            /* of real_mma.cu: written, then read */
    bool overlapped;         /* may start before the kernel ahead of it in the stream has ended */
} xn_cuda_real_io;

typedef cudaError_t xn_cuda_real_launcher(const xn_conv *conv, int64_t images, int multiprocessors,
                                          const xn_cuda_real_io *io,
                                          const xn_epilogue_args *epilogue, cudaStream_t stream);

/* fits looks at the geometry alone, but for sizes that 32 bits do not number: what a sum is must
 * not depend on the number of images. Weights are finite, but for those of real_gemm.cu. */

/* real_gemm.cu, in fp32: any geometry. */
bool xn_cuda_real_gemm_fits(const xn_conv *conv, int64_t images);
xn_cuda_real_launcher xn_cuda_real_gemm_launch;
cudaError_t xn_cuda_real_gemm_load(bool *);

/* real_dense.cu: the same sums where planes are one pixel and images few: the last layers of
 * networks. */
bool xn_cuda_real_dense_fits(const xn_conv *conv, int64_t images);
xn_cuda_real_launcher xn_cuda_real_dense_launch;
cudaError_t xn_cuda_real_dense_load(void);

/* real_depthwise.cu, in fp32: each channel has a 3x3 filter of its own. */
bool xn_cuda_real_depthwise_fits(const xn_conv *conv, int64_t images);
xn_cuda_real_launcher xn_cuda_real_depthwise_launch;
cudaError_t xn_cuda_real_depthwise_load(bool *);

/* real_mma.cu, in fp16 or tf32, with filters of real_mma.h; sm_80. */
bool xn_cuda_real_mma_fits(const xn_conv *conv, int64_t images);
xn_cuda_real_launcher xn_cuda_real_mma_launch;
cudaError_t xn_cuda_real_mma_load(bool *);

/* real_pointwise.cu: the same sums of 1x1 kernels that read whole planes of fp16. What it takes of
 * such a conv depends on the epilogue and on where things lie. */
bool xn_cuda_real_pointwise_fits(const xn_conv *conv, int64_t images);
bool xn_cuda_real_pointwise_takes(const xn_conv *conv, int64_t images, const xn_cuda_real_io *io,
                                  const xn_epilogue_args *epilogue);
xn_cuda_real_launcher xn_cuda_real_pointwise_launch;
cudaError_t xn_cuda_real_pointwise_load(void);

#endif
