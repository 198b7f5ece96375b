/* few_choose.h: how a problem of few channels is cut for the kernel that runs it: decided once and
 * kept with the plan (few_choose.cu). */
#ifndef XN_CUDA_FEW_CHOOSE_H
#define XN_CUDA_FEW_CHOOSE_H

#include "few_matrix.h"
#include "few_planes.h"
#include "few_strip.h"

/* The cut of that kernel for so many images; tiles have none. */
struct xn_cuda_few_cut {
    xn_cuda_few_kind kind;
    int64_t images;
    union {
        xn_cuda_strip strip;
        xn_cuda_planes_cut planes;
        xn_cuda_matrix_cut matrix;
    };
};

#endif
