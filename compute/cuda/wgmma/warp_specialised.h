/* warp_specialised.h: the shape of warp_specialised.cu's work: bands of output rows, their
 * positions in shared memory, the grid. It is decided on the host from the geometry alone.
 *
 *   warp_specialised_plan.cu   fits, shapes in question, memory, cycles of one
 *   warp_specialised.cuh       a block: its filters, its borders, how bands come into shared memory
 *   warp_specialised.cu        who multiplies and who writes; the table of kernels, the launch
 *   warp_specialised_out.cuh   the output stage: from counts in registers to outputs in memory
 *   warp_specialised_path.cu   the row in the table of paths (paths.h)
 *   wgmma_ptx.cuh              instructions
 *
 * Positions are 16 bytes a unit in shared memory, overlap from tap to tap, and pair_low has for
 * every pair of chunks where its operand begins among them. */
#ifndef XN_CUDA_WARP_SPECIALISED_H
#define XN_CUDA_WARP_SPECIALISED_H

#include "border.h"
#include "kernel.h"
#include "layout.h"

enum {
    XN_WGMMA_GROUP = 128,     /* threads of a warpgroup */
    XN_WGMMA_FILTERS = 64,    /* of a block */
    XN_WGMMA_MAX_PAIRS = 256, /* matrix instructions a result: chunks of 128 bits, by two */
    XN_CUDA_SPECIALISED_VARIANTS = 4,
    XN_CUDA_SPECIALISED_MULTIPLIERS = 2, /* warpgroups that multiply, at most, */
    XN_CUDA_SPECIALISED_WRITERS = 4,     /* and that write */
    XN_CUDA_SPECIALISED_MAX_DEPTH = 4,   /* bands in shared memory */
    XN_CUDA_SPECIALISED_OCTETS = 32,     /* of positions of a job, at most */
};

/* Positions of a job, N; warpgroups that multiply; those that write. */
#define XN_CUDA_SPECIALISED_EACH_VARIANT(variant)                                                  \
    variant(256, 1, 3) variant(224, 2, 2) variant(224, 1, 3) variant(128, 1, 3)

/* A band: whole images, or rows of one. */
typedef struct xn_cuda_specialised_shape {
    int32_t variant;
    int32_t chunks, pairs;            /* of 128 bits; of those, a matrix instruction each */
    int32_t filter_blocks;            /* of a group */
    int32_t pixel_blocks;             /* blocks that share the pixels of a filter block */
    int32_t bytes;                    /* of shared memory; filters come first */
    bool in_turn;                     /* not all warpgroups multiply at the same time */
    bool means;                       /* K is asked for */
    double cycles;                    /* that a launch takes by the plan's model */
    int32_t positions;                /* of a result, N */
    int32_t images, rows;             /* of a result */
    int32_t row_bands, bands;         /* an image's; all */
    int32_t units;                    /* of 16 bytes a position */
    int32_t image_pitch;              /* positions from image to image of a band, */
    int32_t phase, plane;             /* from phase to phase, and from unit to unit */
    int32_t depth;                    /* bands in shared memory */
    int32_t buffers_at, buffer_bytes; /* where, and of one */
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
    /* Low halves of the descriptors of each pair's positions, from address 0. Last, so that what a
     * kernel reads all the time lies together in the cache of its constants. */
    uint32_t pair_low[XN_WGMMA_MAX_PAIRS + 1];
} xn_cuda_specialised_shape;

/* Whether reals are made as fp16, 8 at once: also where bits alone are made of them. */
static inline bool xn_wgmma_is_fp16(const xn_conv *c) {
    return c->epilogue.datatype == XN_FP16 ||
           (c->epilogue.datatype == XN_BITS && !c->epilogue.residual);
}

/* False when the kernel cannot do it. */
bool xn_cuda_specialised_plan(const xn_conv *conv, int64_t images, int multiprocessors,
                              xn_cuda_specialised_shape *out);

/* warp_specialised.cu: strides 1 and 2, from activations with their borders (layout.h: lines).
 * counts and means lie as those; means is NULL unless scaling is xnor. filters: layout.h's lines
 * filters. shape: as the plan has it for this number of images. */
typedef struct xn_cuda_specialised_io {
    const uint32_t *bits;
    const int32_t *counts;
    const float *means;
    const void *filters;
    int64_t filter_rows;
    const int32_t *prefix; /* layout.h: prefix */
    bool overlapped;       /* may start before the kernel ahead of it in the stream has ended */
} xn_cuda_specialised_io;
cudaError_t xn_cuda_specialised_launch(const xn_conv *conv, int64_t images,
                                       const xn_cuda_specialised_shape *shape,
                                       const xn_cuda_specialised_io *io,
                                       const xn_epilogue_args *epilogue, cudaStream_t stream);
/* usable: false where this device or build cannot run it. */
cudaError_t xn_cuda_specialised_load(bool *usable);

#endif
