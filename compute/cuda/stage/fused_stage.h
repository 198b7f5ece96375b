/* fused_stage.h: a chain of equal binary 3x3 convolutions with residuals, the body of a residual
 * stage, as one kernel: reals and bits stay in shared memory from the first layer to the last.
 *
 * A layer of the chain is a convolution of mode xnor without K: kernel 3x3, stride 1, padding 1,
 * as many filters as channels (64, 128, 256 or 512), a residual, no activation, reals and bits out.
 * Each layer reads the bits of the one before and adds its reals, and nothing else reads either. */
#ifndef XN_CUDA_FUSED_STAGE_H
#define XN_CUDA_FUSED_STAGE_H

#include "kernel.h"
#include "xn_step.h"

enum { XN_STAGE_LAYERS = 4 }; /* the most of a chain */

/* Whether a step can be a layer of a chain. */
bool xn_cuda_stage_takes(const xn_step *step);

/* How many of these steps, from the first on, belong to one kernel: at least 1. Layers of a chain,
 * and up to an average pool that makes means of 2 x 2 or of whole planes of the last one's reals,
 * and is all that reads these: the next step, or the one behind that, which then runs after it.
 * reads: how often each tensor is read. */
int xn_cuda_stage_length(const xn_step *steps, int count, const int32_t *reads);

/* A layer's parameters on the device: parts.h, XN_CUDA_PART_STAGE; factor, bias and shift as in
 * xn_epilogue_args. */
typedef struct xn_cuda_stage_layer {
    const uint32_t *filters;
    const float *factor, *bias, *shift;
} xn_cuda_stage_layer;

/* What a block has. */
typedef struct xn_cuda_stage_cut {
    int32_t band; /* rows of output; the rows around them, which the layers below need, are made by
                   * its neighbours too */
    int32_t images;  /* 1, or more with all their rows */
    int32_t cluster; /* blocks that share the filters */
} xn_cuda_stage_cut;

/* bits, words: [N][H*W][C/32]; residual, output: [N][C][H][W], FP32 or FP16 as the step says. What
 * the kernel reads and what it writes must not overlap. words, output and pooled may be NULL. */
typedef struct xn_cuda_stage_io {
    xn_cuda_stage_layer layer[XN_STAGE_LAYERS];
    int32_t layers;
    bool pools, whole; /* makes the pool; of whole planes, else of 2 x 2 */
    xn_cuda_stage_cut cut;
    const uint32_t *bits;
    const void *residual;
    uint32_t *words;
    void *output, *pooled;
} xn_cuda_stage_io;

/* The cheapest cut; band is 0 where none fits in shared memory. */
xn_cuda_stage_cut xn_cuda_stage_cut_of(const xn_step *step, int32_t layers, bool whole,
                                       int64_t images, const xn_cuda_chip *chip);

/* step: any layer of the chain. cudaErrorInvalidConfiguration for more images than a grid has. */
cudaError_t xn_cuda_stage_launch(const xn_step *step, int64_t images, const xn_cuda_chip *chip,
                                 const xn_cuda_stage_io *io, cudaStream_t stream);
cudaError_t xn_cuda_stage_load(const xn_cuda_chip *chip);

#endif
