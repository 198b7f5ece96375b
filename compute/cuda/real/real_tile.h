/* real_tile.h: modes bwn and float in fp16 from up to 4 channels, as the first layers of networks
 * have them: the shape of real_tile.cu's work. */
#ifndef XN_CUDA_REAL_TILE_H
#define XN_CUDA_REAL_TILE_H

#include "kernel.h"

enum {
    XN_CUDA_TILE_SIDE = 16,    /* of the outputs of a tile */
    XN_CUDA_TILE_FILTERS = 64, /* of a block */
    XN_CUDA_TILE_CHANNELS = 4, /* of a position in shared memory, 8 bytes */
};

typedef struct xn_cuda_tile_io {
    const void *input;
    const void *filters;     /* real_mma.h's, of fp16: a tap is 8 bytes */
    const int32_t *exponent; /* as there; NULL: 0 */
    bool overlapped;         /* may start before the kernel ahead of it in the stream has ended */
} xn_cuda_tile_io;

/* Whether the kernel can run it: an even horizontal stride, one group, outputs that are reals of a
 * value and an activation alone. */
bool xn_cuda_real_tile_fits(const xn_conv *conv, int64_t images);
cudaError_t xn_cuda_real_tile_launch(const xn_conv *conv, int64_t images, int multiprocessors,
                                     const xn_cuda_tile_io *io, const xn_epilogue_args *epilogue,
                                     cudaStream_t stream);
cudaError_t xn_cuda_real_tile_load(void);

#endif
