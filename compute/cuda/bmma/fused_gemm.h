/* fused_gemm.h: the kernel that packs real input and multiplies in one launch (fused_gemm.cu): what
 * it takes, how a problem is cut into blocks. Pure functions of the geometry, so
 * that benchmarks and tests can force any cut. */
#ifndef XN_CUDA_FUSED_GEMM_H
#define XN_CUDA_FUSED_GEMM_H

#include "fast_divide.cuh"
#include "kernel.h"

enum {
    XN_CUDA_FUSED_ROWS = 16,   /* filters of a matrix instruction */
    XN_CUDA_FUSED_COLUMNS = 8, /* and outputs */
    XN_CUDA_FUSED_WARPS = 8,   /* of a block, at most */
    XN_CUDA_FUSED_MOST = 4,    /* instructions side by side of a warp, at most */
    XN_CUDA_FUSED_CLUSTER = 8, /* blocks that pack for each other, at most */
    XN_CUDA_FUSED_SHARED_BYTES = 96 * 1024,
};

/* What is free to choose. */
typedef struct xn_cuda_fused_cut {
    int32_t tile_w, tile_h; /* outputs of a block; tile_w is the image's or a multiple of 8 */
    int32_t row_tiles;      /* 16 filters each, of a block: 1, 2, 4 or 8 */
    int32_t cluster;        /* blocks of the same outputs that share the packing: 1, 2, 4 or 8 */
    int32_t warps;          /* of a block: 4 or 8 */
} xn_cuda_fused_cut;

/* An axis of the staged positions: every step-th row or column from the first that a tile reads. */
typedef struct xn_cuda_fused_axis {
    int32_t step;                /* of the image, from position to position */
    int32_t per_output, per_tap; /* positions from output to output, from tap to tap */
    int32_t count;               /* positions of a tile */
} xn_cuda_fused_axis;

typedef struct xn_cuda_fused_shape {
    xn_cuda_fused_cut cut;
    xn_conv conv; /* planes of 1 x 1 kernels as one row */
    xn_cuda_fused_axis rows, columns;
    int32_t positions, tap_words, unit_words, tap_units; /* a unit: 1 word or 4, read at once */
    int32_t units, steps;               /* of a filter; rounds of 4 units of 16 bytes, or 8 of 4 */
    int32_t live;                       /* instructions side by side of a warp: 1, 2 or 4 */
    int32_t octets;                     /* of channels */
    int32_t tiles_x, tiles_y, splits;   /* splits: of the filters */
    int32_t outputs;                    /* of a tile, rounded up to whole instructions' */
    int32_t row_words;                  /* of a filter in memory; */
    int32_t filter_bytes, filter_pitch; /* in shared memory, and from filter to filter */
    int32_t share;                      /* positions a block packs */
    int32_t positions_at, table_at, info_at, inside_at, sums_at, outputs_at, bytes;
    int64_t blocks;
    int32_t sharers; /* lanes that add up a position's channels, a power of 2 */
    float channel_reciprocal;
    xn_fast_divisor by_splits, by_tiles_x, by_tiles_y, by_groups, by_columns, by_tile_w, by_share;
    xn_fast_divisor by_kernel_w, by_tap_units, by_pieces;
} xn_cuda_fused_shape;

/* The shape of a cut; false where it cannot be launched. */
bool xn_cuda_fused_shape_of(const xn_conv *conv, int64_t images, const xn_cuda_fused_cut *cut,
                            bool clusters, xn_cuda_fused_shape *out);

/* About how long a shape takes on an H200, in microseconds. */
double xn_cuda_fused_us(const xn_cuda_fused_shape *shape, int multiprocessors);

/* The best cut's shape; false when no cut fits. */
bool xn_cuda_fused_choose(const xn_conv *conv, int64_t images, const xn_cuda_chip *chip,
                          xn_cuda_fused_shape *out);

/* fused_gemm.cu: real input to outputs in one launch, by the matrix units of sm_80 and later: for
 * small problems. */
typedef struct xn_cuda_fused_io {
    const void *input;
    const uint32_t *rows; /* layout.h */
    const int32_t *prefix;
} xn_cuda_fused_io;

/* Launches a shape, on sm_80 and later, with clusters on sm_90 and later. */
cudaError_t xn_cuda_fused_launch_shape(const xn_cuda_fused_shape *shape, const xn_cuda_fused_io *io,
                                       const xn_epilogue_args *epilogue, bool overlapped,
                                       cudaStream_t stream);

/* The shape for so many images; 0: none yet. */
struct xn_cuda_fused_plan {
    int64_t images;
    xn_cuda_fused_shape shape;
};

typedef struct xn_cuda_fused_plan xn_cuda_fused_plan; /* as xn_cuda_stationary_cut (fused_gemm.h) */
cudaError_t xn_cuda_fused_launch(const xn_conv *conv, int64_t images, const xn_cuda_chip *chip,
                                 xn_cuda_fused_plan *plan, const xn_cuda_fused_io *io,
                                 const xn_epilogue_args *epilogue, cudaStream_t stream);
cudaError_t xn_cuda_fused_load(void); /* sm_80 and later */

#endif
