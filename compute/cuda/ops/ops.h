/* ops.h: bits between bytes and words (xn_step.h), around paths that read and write words alone.
 * Launchers as in kernel.h. */
#ifndef XN_CUDA_OPS_H
#define XN_CUDA_OPS_H

#include "op.h"

/* bits.cu: the input of a convolution, bytes to words of each group. */
cudaError_t xn_cuda_words_launch(const xn_conv *conv, int64_t images, const uint8_t *bytes,
                                 uint32_t *words, cudaStream_t stream);
/* Its output in bits, words of one group to bytes. */
cudaError_t xn_cuda_bytes_launch(const xn_conv *conv, int64_t images, const uint32_t *words,
                                 uint8_t *bytes, cudaStream_t stream);

cudaError_t xn_cuda_bits_load(void);

#endif
