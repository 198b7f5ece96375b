/* strided.h: the layer that begins a residual stage as one kernel: a binary 3x3 convolution of
 * stride 2, rounded to fp16, and the shortcut beside it, a real 1x1 convolution that adds it and
 * writes reals and bits.
 *
 * Three steps: the convolution of mode xnor without K, of 64, 128 or 256 channels and whole
 * thirty-twos of filters, whose output nothing but the shortcut reads; a step between, which makes
 * what the shortcut reads (a pool); the shortcut, in fp16, with as many channels and filters. */
#ifndef XN_CUDA_STRIDED_H
#define XN_CUDA_STRIDED_H

#include "kernel.h"
#include "xn_step.h"

/* Whether a step can be the binary convolution. */
bool xn_cuda_strided_takes(const xn_step *step);

/* 3 where these steps, from the first on, belong to one kernel, the step between run before it;
 * else 1. reads: how often each tensor is read. */
int xn_cuda_strided_length(const xn_step *steps, int count, const int32_t *reads);

/* bits, words out: [N][H*W][channels/32]; pooled: fp16 [N][C][OH][OW]. factor, bias: of the binary
 * convolution; filters, prefix: parts.h, XN_CUDA_PART_STAGE and PREFIX_BY_TAP. reals, exponent: the
 * shortcut's, real_mma.h; out: its epilogue, which has the outputs. */
typedef struct xn_cuda_strided_io {
    const uint32_t *bits, *filters;
    const int32_t *prefix;
    const float *factor, *bias;
    const void *pooled, *reals;
    const int32_t *exponent;
    xn_epilogue_args out;
} xn_cuda_strided_io;

/* How blocks share the work; filters is 0 where no cut fits in shared memory, and of planes of more
 * than 64 pixels that are no whole fours. */
typedef struct xn_cuda_strided_cut {
    int32_t filters, rows, pixels; /* of a block; of outputs, of a tile of an image; of a warp */
    int32_t workers;               /* blocks with the same filters, which take tiles in turn */
} xn_cuda_strided_cut;

/* binary: the first step; shortcut: the third. No output depends on the cut. */
xn_cuda_strided_cut xn_cuda_strided_cut_of(const xn_step *binary, int64_t images,
                                           const xn_cuda_chip *chip);
cudaError_t xn_cuda_strided_launch(const xn_step *binary, const xn_step *shortcut, int64_t images,
                                   const xn_cuda_chip *chip, const xn_cuda_strided_cut *cut,
                                   const xn_cuda_strided_io *io, cudaStream_t stream);
cudaError_t xn_cuda_strided_load(const xn_cuda_chip *chip);

#endif
