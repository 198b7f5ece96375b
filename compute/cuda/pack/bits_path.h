/* bits_path.h: what the paths that multiply plain bits (layout.h: activations) have in common: they
 * make the bits of the input first, their set bits and means, and sums of those over each window.
 */
#ifndef XN_CUDA_BITS_PATH_H
#define XN_CUDA_BITS_PATH_H

#include "paths.h"

/* What their kernels read; box and what it was made of are NULL without K. */
typedef struct xn_cuda_bit_args {
    const uint32_t *bits, *rows;
    const int32_t *prefix, *pixel_part; /* direct does not use pixel_part */
    const float *box, *mean;
} xn_cuda_bit_args;

/* Of a row in the table of paths: lay_out, wants, and what run does first. counts: with pixel_part.
 */
void xn_cuda_bits_lay_out(const xn_cuda_job *job, bool counts, xn_cuda_scratch *scratch);
uint64_t xn_cuda_bits_wants(const xn_cuda_job *job, const xn_prepared *weights);
cudaError_t xn_cuda_bits_make(xn_cuda_run *run, bool counts, xn_cuda_bit_args *out);

/* direct.cu: any geometry on any chip, by population counts. */
cudaError_t xn_cuda_direct_launch(const xn_conv *conv, int64_t images, const xn_cuda_bit_args *bits,
                                  const xn_epilogue_args *epilogue, cudaStream_t stream);
cudaError_t xn_cuda_direct_load(bool *);

/* implicit_gemm.cu: implicit GEMM on the matrix units, sm_80 and later. */
bool xn_cuda_implicit_gemm_fits(const xn_conv *conv, int64_t images);
cudaError_t xn_cuda_implicit_gemm_launch(const xn_conv *conv, int64_t images, int multiprocessors,
                                         const xn_cuda_bit_args *bits,
                                         const xn_epilogue_args *epilogue, cudaStream_t stream);
cudaError_t xn_cuda_implicit_gemm_load(bool *);

#endif
