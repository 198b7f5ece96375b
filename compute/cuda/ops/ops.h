/* ops.h: the kernels around paths: bits between bytes and words (xn_step.h), and the epilogue from
 * v on for paths that stop there. Launchers as in kernel.h. */
#ifndef XN_CUDA_OPS_H
#define XN_CUDA_OPS_H

#include "kernel.h"

/* bits.cu: the input of a convolution, bytes to words of each group. */
cudaError_t xn_cuda_words_launch(const xn_conv *conv, int64_t images, const uint8_t *bytes,
                                 uint32_t *words, cudaStream_t stream);
/* Its output in bits, words of one group to bytes. */
cudaError_t xn_cuda_bytes_launch(const xn_conv *conv, int64_t images, const uint32_t *words,
                                 uint8_t *bytes, cudaStream_t stream);

/* finish.cu: v is fp32, or int32 where the real output is; it may be where the output is. Bits are
 * bytes, or words of one group. */
cudaError_t xn_cuda_finish_launch(const xn_conv *conv, int64_t images, const void *v, bool as_bytes,
                                  const xn_epilogue_args *epilogue, cudaStream_t stream);

cudaError_t xn_cuda_bits_load(void);
cudaError_t xn_cuda_finish_load(void);

#endif
