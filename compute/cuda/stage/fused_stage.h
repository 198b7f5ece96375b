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

/* How many of these steps, from the first on, belong to one kernel: at least 1. Layers of a chain;
 * where the second step behind them is an average pool of 2 x 2 of the last one's reals, and all
 * that reads these, the kernel makes that too, before the step between. reads: how often each
 * tensor is read. */
int xn_cuda_stage_length(const xn_step *steps, int count, const int32_t *reads);

/* A layer's parameters on the device: parts.h, XN_CUDA_PART_STAGE and PREFIX_BY_TAP; factor, bias
 * and shift as in xn_epilogue_args. */
typedef struct xn_cuda_stage_layer {
    const uint32_t *filters;
    const int32_t *prefix;
    const float *factor, *bias, *shift;
} xn_cuda_stage_layer;

/* bits, words: [N][H*W][C/32]; residual, output: [N][C][H][W], FP32 or FP16 as the step says. What
 * the kernel reads and what it writes must not overlap. words or output may be NULL. */
typedef struct xn_cuda_stage_io {
    xn_cuda_stage_layer layer[XN_STAGE_LAYERS];
    int32_t layers, band; /* band: of xn_cuda_stage_band, not 0 */
    const uint32_t *bits;
    const void *residual;
    uint32_t *words;
    void *output, *pooled; /* pooled: means of 2 x 2 */
} xn_cuda_stage_io;

/* Rows of output that a block makes; the rows around them, which the layers below need, are made
 * by its neighbours too. 0 where no band fits in shared memory. */
int32_t xn_cuda_stage_band(const xn_step *step, int32_t layers, int64_t images,
                           const xn_cuda_chip *chip);

/* step: any layer of the chain. cudaErrorInvalidConfiguration for more images than a grid has. */
cudaError_t xn_cuda_stage_launch(const xn_step *step, int64_t images, const xn_cuda_chip *chip,
                                 const xn_cuda_stage_io *io, cudaStream_t stream);
cudaError_t xn_cuda_stage_load(const xn_cuda_chip *chip);

#endif
