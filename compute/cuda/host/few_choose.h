/* few_choose.h: how a problem of few channels is cut for the kernel that runs it: decided once and
 * kept with the plan (few_choose.cu). */
#ifndef XN_CUDA_FEW_CHOOSE_H
#define XN_CUDA_FEW_CHOOSE_H

#include "depthwise.h"
#include "patch_gemm.h"
#include "sliding_window.h"

/* The cut of that kernel for so many images; tiles have none. */
struct xn_cuda_few_cut {
    xn_cuda_few_kind kind;
    int64_t images;
    union {
        xn_cuda_sliding strip;
        xn_cuda_depthwise_cut planes;
        xn_cuda_patch_cut matrix;
    };
};

#endif
