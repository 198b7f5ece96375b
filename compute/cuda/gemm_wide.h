/* gemm_wide.h: the shape of gemm_wide.cu's work: its tiles, raster and shared memory, decided on
 * the host from the geometry alone (gemm_wide_plan.cu) and read by the kernel. */
#ifndef XN_CUDA_GEMM_WIDE_H
#define XN_CUDA_GEMM_WIDE_H

#include "kernels.h"
#include "layout.h"

enum {
    XN_CUDA_WIDE_PIXELS = 128,  /* positions a tile: 64 a warpgroup */
    XN_CUDA_WIDE_THREADS = 256, /* two warpgroups */
    XN_CUDA_WIDE_MIN_RING = 4,
    XN_CUDA_WIDE_STAGE_CHUNKS = 4, /* 512 bits: two matrix instructions */
    XN_CUDA_WIDE_MAX_STAGES = 16,  /* in shared memory at once */
    XN_CUDA_WIDE_TURN_PITCH = 72,  /* elements */
    XN_CUDA_WIDE_BORDER = 16,      /* outputs at an end of an axis that may miss taps */
    XN_CUDA_WIDE_MAX_CLASSES = 8,  /* distinct ranges of taps inside, an axis */
    XN_CUDA_WIDE_TILES = 3,        /* of 128, 64 and 32 filters */
    XN_CUDA_WIDE_PACKED = 100,     /* an output beside the datatypes */
    XN_CUDA_WIDE_SHARED_BYTES = 226 * 1024,
};

/* Taps [first, last) inside the image. */
typedef struct xn_cuda_range {
    uint8_t first, last;
} xn_cuda_range;

/* The border classes of one axis: the distinct ranges; class 0 is that of all taps. `first` and
 * `last` are the classes of as many outputs at either end, the rest is class 0. */
typedef struct xn_cuda_axis {
    int32_t classes, first_count, last_count;
    xn_cuda_range range[XN_CUDA_WIDE_MAX_CLASSES];
    uint8_t first[XN_CUDA_WIDE_BORDER], last[XN_CUDA_WIDE_BORDER];
} xn_cuda_axis;

/* A pair of ranges: rows of wide_prefix at its four corners, signs + - - +, and taps inside. */
typedef struct xn_cuda_class {
    uint16_t high_last, low_last, high_first, low_first;
    int32_t inside;
} xn_cuda_class;

typedef struct xn_cuda_wide_shape {
    int32_t tile, tile_filters; /* 0: 128, 1: 64, 2: 32 */
    bool packed;
    int32_t tap_words, chunks;
    bool overlap; /* kernel rows share positions; */
    bool slide;   /* and so do the taps of a row: a position has one tap, not a row of them */
    int32_t row_taps, planes; /* taps, and chunks, a position has in shared memory */
    int32_t slots;            /* positions in shared memory of a tile */
    int32_t plane;            /* positions from chunk to chunk */
    int32_t row_step;         /* positions from kernel row to kernel row */
    int32_t column_step;      /* and from tap to tap of a row, 0 unless slide */
    int32_t width;            /* of the raster */
    int32_t image_pitch;      /* and its positions an image */
    int32_t tiles, filter_tiles, workers;
    int32_t stages; /* of 4 chunks */
    bool resident;
    int32_t ring; /* stages in shared memory */
    int32_t buffers, buffer_bytes;
    int32_t zeros_at; /* in a buffer: a chunk of zeros, where the last stage is not full */
    int32_t filters_at, turn_at, table_at, constants_at, pixels_at, bytes;
    int32_t packed_words; /* a pixel of packed output */
    xn_cuda_axis rows, columns;
    /* of pixels: a class of rows and one of columns, which runs fastest */
    int32_t classes;
    xn_cuda_class pixel_class[XN_CUDA_WIDE_MAX_CLASSES * XN_CUDA_WIDE_MAX_CLASSES];
} xn_cuda_wide_shape;

/* False when the kernel cannot do it. */
bool xn_cuda_wide_plan(const xn_conv *conv, int64_t images, int multiprocessors, bool packed,
                       xn_cuda_wide_shape *out);

#endif
