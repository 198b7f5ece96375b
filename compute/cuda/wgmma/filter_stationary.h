/* filter_stationary.h: the shape of filter_stationary.cu's work: its tiles, raster and shared
 * memory. */
#ifndef XN_CUDA_FILTER_STATIONARY_H
#define XN_CUDA_FILTER_STATIONARY_H

#include "wgmma.h"

enum {
    XN_CUDA_STATIONARY_PIXELS = 64,       /* positions a matrix instruction: a subtile */
    XN_CUDA_STATIONARY_TURN_COLUMNS = 32, /* filters by 64 pixels of a worker, to turn */
    XN_CUDA_STATIONARY_TILES = 3,         /* of 128, 64 and 32 filters */
    XN_CUDA_STATIONARY_PACKED = 100,      /* outputs beside the datatypes: by thresholds, */
    XN_CUDA_STATIONARY_ANY,               /* and of any epilogue that is not plain */
};

/* Filters of a tile; warpgroups that registers allow in a block, and blocks of a multiprocessor. */
constexpr int32_t xn_stationary_filters(int tile) {
    return 128 >> tile;
}
constexpr int32_t xn_stationary_workers(int tile, bool packed) {
    return tile == 0 ? 4 : tile == 1 && !packed ? 5 : 3;
}
constexpr int32_t xn_stationary_blocks(int tile, bool packed) {
    return tile == 0 || (tile == 1 && !packed) ? 1 : 2;
}

/* A worker's positions in shared memory, and where each pair of chunks is read among them. */
struct xn_cuda_raster {
    bool overlap; /* kernel rows share positions; */
    bool slide;   /* and so do the taps of a row: a position has one tap, not a row of them */
    int32_t row_taps, planes; /* taps, and chunks, a position has in shared memory */
    int32_t span;             /* positions of a tile beyond its own, where kernel rows share them */
    int32_t slots;            /* positions in shared memory of a tile */
    int32_t plane;            /* positions from chunk to chunk */
    int32_t row_step;         /* positions from kernel row to kernel row */
    int32_t column_step;      /* and from tap to tap of a row, 0 unless slide */
    int32_t width;            /* of the raster */
    int32_t image_pitch;      /* and its positions an image */
    int32_t subtiles;         /* of 64 positions, in all images */
};

struct xn_cuda_stationary_shape : xn_wgmma_shape {
    int32_t tile_filters; /* the variant is the tile: 0: 128, 1: 64, 2: 32 */
    int32_t block_tiles;  /* filter tiles that a block keeps */
    int32_t tile_pixels;  /* subtiles that a worker gathers at once */
    int32_t workers;      /* warpgroups a block */
    bool packed;
    xn_cuda_raster raster;
    int32_t buffers, buffer_bytes, means_at;     /* of a worker's positions */
    int32_t counts_at, pixels_at, k_at, turn_at; /* in a worker's part of shared memory */
    int32_t workers_at, worker_bytes;
    int32_t table_at, constants_at;
    int32_t table_pitch;  /* from class to class */
    int32_t packed_words; /* a pixel of packed output */
    xn_cuda_borders borders;
    xn_wgmma_pair_low pair_low;
};

struct xn_cuda_stationary_cut : xn_wgmma_cut<xn_cuda_stationary_shape> {};

/* False when the kernel cannot do it. */
bool xn_cuda_stationary_plan(const xn_conv *conv, int64_t images, int multiprocessors, bool packed,
                             xn_cuda_stationary_shape *out);

/* What filter_stationary.cu reads and, where packed is not NULL, writes instead of the epilogue's
 * output: bits per filter, dot >= threshold[o], turned where flip has one. mean is NULL unless
 * scaling is xnor. */
typedef struct xn_cuda_stationary_io {
    const uint32_t *bits;
    const void *filters; /* layout.h: wide */
    int64_t filter_rows;
    const int32_t *prefix; /* layout.h: wide_prefix */
    const float *mean;
    const int32_t *threshold;
    const uint32_t *flip; /* NULL: none */
    uint32_t *packed;
    bool overlapped; /* may start before the kernel ahead of it in the stream has ended */
} xn_cuda_stationary_io;

/* filter_stationary.cu: the same on sm_90a by wgmma, without box.cu. */
cudaError_t xn_cuda_stationary_launch(const xn_conv *conv, int64_t images, int multiprocessors,
                                      xn_cuda_stationary_cut *cut, const xn_cuda_stationary_io *io,
                                      const xn_epilogue_args *epilogue, cudaStream_t stream);
/* usable: false where this device or build cannot run it. */
cudaError_t xn_cuda_stationary_load(bool *usable);

#endif
