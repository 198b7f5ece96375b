/* parts.h: the forms that kernels want weights in (layout.h, real_mma.h). Each is made when a plan
 * first wants it, and stays until the weights go. */
#ifndef XN_CUDA_PARTS_H
#define XN_CUDA_PARTS_H

#include "xn_backend.h"

typedef enum {
    XN_CUDA_PART_ROWS,        /* bits in rows */
    XN_CUDA_PART_PREFIX,      /* set bits of rectangles of taps */
    XN_CUDA_PART_PATCHES,     /* of few channels */
    XN_CUDA_PART_SPECIALISED, /* filters of warp_specialised.cu, by phases of rows and columns, */
    XN_CUDA_PART_STAGE = XN_CUDA_PART_SPECIALISED + 4, /* of fused_stage.cu */
    XN_CUDA_PART_CODES,        /* bits as xn_weights has them, for search/ */
    XN_CUDA_PART_REALS,        /* [O][C/G][KH][KW] */
    XN_CUDA_PART_EXPONENTS,    /* of the filters of mode float in fp16 */
    XN_CUDA_PART_STEM,         /* int32 [O][KH][KW][C] (xn_planes.h), */
    XN_CUDA_PART_STEM_BORDER,  /* its border, */
    XN_CUDA_PART_STEM_TILES,   /* and as the operands of stem.cuh, */
    XN_CUDA_PART_STEM_SHIFTED, /* one place on, */
    XN_CUDA_PART_STEM_WIDE,    /* or as those of stem_wide.cuh */
    /* Filters of real_mma.cu, by precision and mode. */
    XN_CUDA_PART_TF32_SIGNS,
    XN_CUDA_PART_TF32_REALS,
    XN_CUDA_PART_FP16_SIGNS,
    XN_CUDA_PART_FP16_REALS,
    XN_CUDA_PARTS
} xn_cuda_part;

/* A set of parts. */
#define XN_CUDA_WANT(part) ((uint64_t)1 << (part))

/* What a part is, on the host: its size, false where that passes the address space; its bytes, to
 * zero-filled memory. */
bool xn_cuda_part_bytes(const xn_weights *weights, xn_cuda_part part, size_t *bytes);
void xn_cuda_part_fill(const xn_weights *weights, xn_cuda_part part, void *out);

/* Device memory of a part; NULL where it has not been made. Thread-safe. */
const void *xn_cuda_part_of(const xn_prepared *weights, xn_cuda_part part);

/* No real weight is NaN or infinite. */
bool xn_cuda_is_finite(const xn_prepared *weights);

#endif
