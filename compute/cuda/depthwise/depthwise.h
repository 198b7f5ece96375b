/* depthwise.h: the kernel for groups of one channel and one filter that reads and writes whole
 * planes or bands of them (depthwise.cu): how a problem is cut into blocks, a pure function of the
 * geometry. */
#ifndef XN_CUDA_DEPTHWISE_H
#define XN_CUDA_DEPTHWISE_H

#include "kernel.h"

typedef struct xn_cuda_depthwise_cut {
    int32_t planes;  /* of a block; more than one only with all their rows */
    int32_t band;    /* output rows of a block */
    int32_t rows;    /* output rows of a thread at a time */
    int32_t threads; /* 32 .. 256, a multiple of 32 */
} xn_cuda_depthwise_cut;

/* The cut for this problem; false when the kernel does not take it. */
bool xn_cuda_depthwise_choose(const xn_conv *conv, int64_t images, int multiprocessors,
                              xn_cuda_depthwise_cut *out);

/* True when that cut can be launched. */
bool xn_cuda_depthwise_fits(const xn_conv *conv, int64_t images, const xn_cuda_depthwise_cut *cut);

/* What the time of a cut that fits is made of: 8 terms, to be multiplied by what each costs. */
void xn_cuda_depthwise_terms(const xn_conv *conv, int64_t images, int multiprocessors,
                             const xn_cuda_depthwise_cut *cut, double *terms);

/* Launches a cut that fits. */
cudaError_t xn_cuda_depthwise_launch(const xn_conv *conv, int64_t images,
                                     const xn_cuda_depthwise_cut *cut, const xn_cuda_few_io *io,
                                     const xn_epilogue_args *epilogue, bool overlapped,
                                     cudaStream_t stream);
cudaError_t xn_cuda_depthwise_load(void);

#endif
