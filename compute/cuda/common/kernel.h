/* kernel.h: what the launchers of all families have in common. A launcher puts one kernel on a
 * stream and returns the launch's own error; none allocates, waits, or looks at tensor data.
 * Pointers are device memory. `images` is this run's number, at most the plan's; xn_cuda_*_fits
 * tell the plan what a kernel can do; xn_cuda_*_load load its code onto the current device, which
 * would else happen inside the first launch, and fail when this build has none for it. */
#ifndef XN_CUDA_KERNEL_H
#define XN_CUDA_KERNEL_H

#include "fast_divide.cuh"
#include "xn_arith.h"

#include <cuda_runtime.h>
#include <stdint.h>

/* What the epilogue of every path takes (epilogue.cuh): null factor means 1, null bias 0. `what`
 * and `unit` are set by the launchers, from the problem.
 *
 * Where the real output or the residual is part of a tensor, the pointer is to the first image's
 * part, and the gap what lies between one image's part and the next. Only kernels of epilogues that
 * are not plain look at it, and divide the index for it: so it must be less than 2^31, and the
 * output's part and gap whole vectors of 8 elements. */
typedef struct xn_epilogue_args {
    const float *factor, *bias; /* these and the next two: a value for each output channel */
    void *output;
    const float *slope, *shift;
    const void *residual;
    bool residual_fp16; /* else it is fp32 */
    uint32_t *bits;     /* of the outputs, in the layout of activations of one group */
    xn_epilogue what;
    float unit;                       /* 1 / taps with K, else 1 */
    int32_t output_gap, residual_gap; /* elements; 0: the whole */
    xn_fast_divisor image;            /* elements of an image's output; where there is a gap */
} xn_epilogue_args;

/* Real outputs or INT32, and nothing between a value and its place in memory: all that kernels do
 * whose fits functions ask for it. */
XN_HD bool xn_is_plain(const xn_epilogue &what) {
    return !what.residual && what.activation == XN_ACTIVATION_NONE && !what.bits &&
           what.datatype != XN_BITS;
}

/* Whether the bits of any 16 filters from a multiple of 16 on are half of a word, and all words are
 * of filters, so that who has 16 stores them, and nobody clears. */
XN_HD bool xn_has_half_words(const xn_conv &conv) {
    return conv.group_out_channels % 32 == 0 &&
           xn_packed_words(conv.out_channels) * 32 == conv.out_channels;
}

/* What planning wants to know of a chip. */
typedef struct xn_cuda_chip {
    int multiprocessors;
    bool matrix;   /* sm_80 and later: mma.sync, also of bits */
    bool overlaps; /* sm_90 and later: a kernel may start before the one ahead of it has ended */
    bool wgmma;    /* sm_90a: wgmma, also of bits, and clusters of blocks */
    int32_t shared_bytes; /* the most that a block may have of shared memory */
} xn_cuda_chip;

#endif
