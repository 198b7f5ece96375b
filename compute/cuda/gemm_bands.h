/* gemm_bands.h: the shape of gemm_bands.cu's work: bands of output rows, their positions in shared
 * memory, the grid, decided on the host from the geometry alone (gemm_bands_plan.cu) and read by
 * the kernel. */
#ifndef XN_CUDA_GEMM_BANDS_H
#define XN_CUDA_GEMM_BANDS_H

#include "border.h"
#include "kernels.h"
#include "layout.h"

enum {
    XN_CUDA_BANDS_FILTERS = 64,    /* M of a matrix instruction */
    XN_CUDA_BANDS_GROUP = 128,     /* threads of a warpgroup */
    XN_CUDA_BANDS_PRODUCERS = 256, /* threads that gather and count */
    XN_CUDA_BANDS_VARIANTS = 4,    /* numbers of positions, N */
    XN_CUDA_BANDS_MAX_PAIRS = 256, /* matrix instructions a job: chunks of 128 bits, by two */
    XN_CUDA_BANDS_MAX_PIECES = 8,  /* in which filters arrive */
    XN_CUDA_BANDS_MAX_DEPTH = 4,   /* bands in shared memory */
    XN_CUDA_BANDS_MAX_TILES = 4,   /* of filters, a block */
    XN_CUDA_BANDS_SHARED_BYTES = 226 * 1024,
};

typedef struct xn_cuda_bands_shape {
    int32_t variant, positions, consumers;   /* N; warpgroups that multiply */
    bool in_turn;                            /* one warpgroup after the other multiplies */
    int32_t tap_words, units, chunks, pairs; /* units: of 16 bytes a position */
    /* A band: so many whole images, or rows and columns of one, and how many an image has. */
    int32_t images, rows, columns, row_bands, column_bands, bands;
    int32_t width;                   /* positions from row to row */
    int32_t image_rows, image_pitch; /* rows and positions from image to image of a band */
    int32_t extent;                  /* positions up to the last output's */
    int32_t slots;                   /* positions that are gathered */
    int32_t plane;                   /* positions from unit to unit */
    int32_t row_step, column_step;   /* from tap to tap */
    int32_t block_tiles;             /* filter tiles that a block keeps */
    int32_t filter_blocks;           /* of as many tiles, a group */
    int32_t pixel_blocks;            /* blocks that share the bands */
    int32_t depth;                   /* bands in shared memory */
    int32_t piece_pairs;             /* filters arrive in pieces of so many pairs */
    int32_t buffers_at, buffer_bytes, counts_at;
    int32_t records_at, record_bytes;
    int32_t stage_at, stage_bytes;                  /* a warpgroup's */
    int32_t table_at, table_pitch, flips_at, bytes; /* filters come first */
    int32_t packed_words;                           /* a pixel of packed output */
    xn_cuda_borders borders;
    /* Low halves of the descriptors of each pair's positions, from address 0. */
    uint32_t pair_low[XN_CUDA_BANDS_MAX_PAIRS + 1];
} xn_cuda_bands_shape;

/* Loads of 16 bytes that a producer's registers hold of a band where a job has so many positions.
 */
#define XN_CUDA_BANDS_HELD(positions) ((positions) > 128 ? 8 : 4)

/* The shape for so many images; 0: none yet. */
struct xn_cuda_bands_cut {
    int64_t images;
    xn_cuda_bands_shape shape;
};

/* False when the kernel cannot do it. */
bool xn_cuda_bands_plan(const xn_conv *conv, int64_t images, int multiprocessors,
                        xn_cuda_bands_shape *out);

#endif
