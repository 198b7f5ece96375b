/* few_choose.h: how a problem of few channels is cut for the kernel that runs it: decided once and
 * kept with the plan (few_choose.cu). */
#ifndef XN_CUDA_FEW_CHOOSE_H
#define XN_CUDA_FEW_CHOOSE_H

#include "depthwise.h"
#include "patch_gemm.h"
#include "sliding_window.h"

/* few_choose.cu: mode xnor for groups of few channels, all in one kernel: which is the fastest, if
 * any can, how it is cut, and its launch. */
typedef enum {
    XN_CUDA_FEW_SLIDING_WINDOW,
    XN_CUDA_FEW_DEPTHWISE,
    XN_CUDA_FEW_PATCH_GEMM,
    XN_CUDA_FEW_NONE
} xn_cuda_few_kind;
xn_cuda_few_kind xn_cuda_few_choose(const xn_conv *conv, int64_t images,
                                    const xn_cuda_few_chip *chip);
/* How that kernel is cut for so many images (few_choose.h); false when it does not take them. */
typedef struct xn_cuda_few_cut xn_cuda_few_cut;
bool xn_cuda_few_cut_of(xn_cuda_few_kind kind, const xn_conv *conv, int64_t images,
                        const xn_cuda_few_chip *chip, xn_cuda_few_cut *out);
/* The cut of that kernel for so many images. */
struct xn_cuda_few_cut {
    xn_cuda_few_kind kind;
    int64_t images;
    union {
        xn_cuda_sliding strip;
        xn_cuda_depthwise_cut planes;
        xn_cuda_patch_cut matrix;
    };
};

/* *cut is of this conv and chip; it is decided anew where the number of images is not its own. */
cudaError_t xn_cuda_few_launch(const xn_conv *conv, int64_t images, const xn_cuda_few_chip *chip,
                               xn_cuda_few_cut *cut, const xn_cuda_few_io *io,
                               const xn_cuda_epilogue_args *epilogue, cudaStream_t stream);
cudaError_t xn_cuda_few_load(void);

#endif
