/* dual_rail.h: the shape of dual_rail.cu's work: parts of images, their positions in shared
 * memory, the grid. */
#ifndef XN_CUDA_DUAL_RAIL_H
#define XN_CUDA_DUAL_RAIL_H

#include "wgmma.h"

enum {
    XN_CUDA_DUAL_RAIL_CONSUMERS = 2, /* warpgroups that multiply and write */
    XN_CUDA_DUAL_RAIL_VARIANTS = 3,
    XN_CUDA_DUAL_RAIL_MAX_DEPTH = 8,  /* bands in shared memory */
    XN_CUDA_DUAL_RAIL_OCTETS = 16,    /* of positions of a job, at most */
    XN_CUDA_DUAL_RAIL_MOST_BOX = 256, /* elements of a box along a dimension */
};

/* Positions of a job, N. */
#define XN_CUDA_DUAL_RAIL_EACH_VARIANT(variant) variant(128) variant(112) variant(64)

/* A job is a part: so many images, or rows of one; a band has one part or one a consumer. */
struct xn_cuda_dual_rail_shape : xn_wgmma_bands {
    int32_t parts;
    int32_t full_first, full_end;       /* rows of outputs whose windows have all lines inside */
    int32_t lines;                      /* input lines of an image that a band has, */
    int32_t band_images, band_rows;     /* its images and rows of outputs */
    int32_t pitch;                      /* positions from line to line, */
    int32_t part_step;                  /* from part to part */
    int32_t gap;                        /* positions of zeros behind all planes */
    int32_t inside_at;                  /* taps inside the image, of lines and columns */
    int32_t outside_at;                 /* what jobs add to counts */
    int32_t stage_at, stage_bytes;      /* stages: of a consumer */
    int32_t packed_words, packed_units; /* a pixel of packed output, plain and as rails */
    xn_wgmma_pair_low pair_low;
};

struct xn_cuda_dual_rail_cut : xn_wgmma_cut<xn_cuda_dual_rail_shape> {};

/* False when the kernel cannot do it. */
bool xn_cuda_dual_rail_plan(const xn_conv *conv, int64_t images, int multiprocessors,
                            xn_cuda_dual_rail_shape *out);

/* dual_rail.cu: packed output, stride 1: twice the products and little else. bits and filters lie
 * as rails (layout.h); so do the packed outputs where packed_rails. */
typedef struct xn_cuda_dual_rail_io {
    const uint32_t *bits;
    const void *filters;
    int64_t filter_rows;
    const int32_t *threshold;
    const uint32_t *flip; /* NULL: none */
    uint32_t *packed;
    bool packed_rails, overlapped;
} xn_cuda_dual_rail_io;
cudaError_t xn_cuda_dual_rail_launch(const xn_conv *conv, int64_t images, int multiprocessors,
                                     xn_cuda_dual_rail_cut *cut, const xn_cuda_dual_rail_io *io,
                                     cudaStream_t stream);
/* usable: false where this device or build cannot run it. */
cudaError_t xn_cuda_dual_rail_load(bool *usable);

#endif
