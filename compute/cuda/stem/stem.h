/* stem.h: steps of kind stem (xn_planes.h): a picture of bytes to what the convolution, its batch
 * norm, a max-pool and an activation make of it, in one kernel. */
#ifndef XN_CUDA_STEM_H
#define XN_CUDA_STEM_H

#include "kernel.h"
#include "xn_step.h"

typedef struct xn_cuda_stem_io {
    const void *input;
    const void *filters; /* by xn_cuda_stem_part (plan.cu) */
    const float *border, *scale;
    const struct xn_planes *planes; /* on the host */
} xn_cuda_stem_io;

enum {
    XN_STEM_CHANNELS = 4, /* that a position of the tiles has, */
    XN_STEM_COLUMNS = 8,  /* and positions of a row of taps: 32 bytes, a matrix instruction's */
    XN_STEM_FILTERS = 16, /* of a warp */
    XN_STEM_WIDE_FILTERS = 64, /* of a block of stem_wide.cuh, */
    XN_STEM_WIDE_CHUNKS = 12   /* and chunks of 16 bytes of their planes */
};

/* Rows of taps that the tile kernel is compiled for. */
static inline int32_t xn_stem_rows(int32_t kernel_h) {
    return kernel_h <= 3 ? 3 : 7;
}

/* The place of a row's first tap in its tiles. Windows begin at even words, so that a lane reads
 * two at once. */
static inline int32_t xn_stem_shift(const xn_conv *c) {
    return c->pad_left % 2 && c->kernel_w < XN_STEM_COLUMNS;
}

/* Whether the tile kernel runs it; else a thread makes 32 filters of a pixel. */
bool xn_cuda_stem_has_tiles(const xn_step *step, const xn_cuda_chip *chip);

/* Whether stem_wide.cuh runs it instead. */
bool xn_cuda_stem_is_wide(const xn_step *step, const xn_cuda_chip *chip);

cudaError_t xn_cuda_stem_launch(const xn_step *step, int64_t images, const xn_cuda_chip *chip,
                                const xn_cuda_stem_io *io, const xn_epilogue_args *epilogue,
                                cudaStream_t stream);
cudaError_t xn_cuda_stem_load(const xn_cuda_chip *chip);

#endif
