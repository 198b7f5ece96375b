/* warp_specialised.h: the shape of warp_specialised.cu's work: bands of output rows, their
 * positions in shared memory, the grid. */
#ifndef XN_CUDA_WARP_SPECIALISED_H
#define XN_CUDA_WARP_SPECIALISED_H

#include "wgmma.h"

enum {
    XN_CUDA_SPECIALISED_VARIANTS = 4,
    XN_CUDA_SPECIALISED_MULTIPLIERS = 2, /* warpgroups that multiply, at most, */
    XN_CUDA_SPECIALISED_WRITERS = 4,     /* and that write */
    XN_CUDA_SPECIALISED_MAX_DEPTH = 4,   /* bands in shared memory */
    XN_CUDA_SPECIALISED_OCTETS = 32,     /* of positions of a job, at most */
};

/* Positions of a job, N; warpgroups that multiply; those that write. */
#define XN_CUDA_SPECIALISED_EACH_VARIANT(variant)                                                  \
    variant(256, 1, 3) variant(224, 2, 2) variant(224, 1, 3) variant(128, 1, 3)

struct xn_cuda_specialised_shape : xn_wgmma_bands {
    int32_t multipliers, writers;
    int32_t vector;                  /* outputs of a filter that a thread stores at once */
    int32_t pixels;                  /* outputs of a band and filter, at most */
    int32_t copied;                  /* positions of an image, unit and phase that are copied */
    int32_t first_tap;               /* from an output's position to its first tap's, */
    int32_t row_at[2], column_at[2]; /* from there to the next tap's, and to that after it */
    int32_t counts_at, means_at;
    int32_t records_at, record_bytes, stage_at, stage_row;
    int32_t table_at, table_pitch, constants_at;
    xn_cuda_borders borders;
    /* Of each 8 positions where the first one's count goes in a row of the stage, in bytes, and how
     * many are outputs. */
    int32_t octet_at[XN_CUDA_SPECIALISED_OCTETS], octet_live[XN_CUDA_SPECIALISED_OCTETS];
    xn_wgmma_pair_low pair_low;
};

struct xn_cuda_specialised_cut : xn_wgmma_cut<xn_cuda_specialised_shape> {};

/* False when the kernel cannot do it. */
bool xn_cuda_specialised_plan(const xn_conv *conv, int64_t images, int multiprocessors,
                              xn_cuda_specialised_shape *out);

/* warp_specialised.cu: strides 1 and 2, from activations with their borders (layout.h: lines).
 * counts and means lie as those; means is NULL unless scaling is xnor. filters: layout.h's lines
 * filters. */
typedef struct xn_cuda_specialised_io {
    const uint32_t *bits;
    const int32_t *counts;
    const float *means;
    const void *filters;
    int64_t filter_rows;
    const int32_t *prefix; /* layout.h: wide_prefix */
    bool overlapped;       /* may start before the kernel ahead of it in the stream has ended */
} xn_cuda_specialised_io;
cudaError_t xn_cuda_specialised_launch(const xn_conv *conv, int64_t images, int multiprocessors,
                                       xn_cuda_specialised_cut *cut,
                                       const xn_cuda_specialised_io *io,
                                       const xn_epilogue_args *epilogue, cudaStream_t stream);
/* usable: false where this device or build cannot run it. */
cudaError_t xn_cuda_specialised_load(bool *usable);

#endif
