/* patch_gemm.h: the kernel for few channels that counts with the matrix units (patch_gemm.cu): how
 * a problem is cut into blocks. A pure function of the geometry, so that benchmarks and tests can
 * force any cut. */
#ifndef XN_CUDA_PATCH_GEMM_H
#define XN_CUDA_PATCH_GEMM_H

#include "kernel.h"

#define XN_CUDA_PATCH_CHANNELS 32 /* the most a block packs: one word a pixel */

typedef struct xn_cuda_patch_cut {
    int32_t together;       /* groups a block computes as one of their channels and filters */
    int32_t tile_w, tile_h; /* outputs of a block; tile_w is the image's or a multiple of 16 */
    int32_t span;           /* filters of a block: of all those of its groups when together > 1 */
} xn_cuda_patch_cut;

/* The cut for this problem; false when the kernel does not take it. */
bool xn_cuda_patch_choose(const xn_conv *conv, int64_t images, int multiprocessors,
                          xn_cuda_patch_cut *out);

/* True when that cut can be launched. */
bool xn_cuda_patch_fits(const xn_conv *conv, int64_t images, const xn_cuda_patch_cut *cut);

/* What the time of a cut that fits is made of: 8 terms, to be multiplied by what each costs. */
void xn_cuda_patch_terms(const xn_conv *conv, int64_t images, int multiprocessors,
                         const xn_cuda_patch_cut *cut, double *terms);

/* Launches a cut that fits, on sm_80 and later. */
cudaError_t xn_cuda_patch_launch(const xn_conv *conv, int64_t images, const xn_cuda_patch_cut *cut,
                                 const xn_cuda_few_io *io, const xn_epilogue_args *epilogue,
                                 bool overlapped, cudaStream_t stream);
cudaError_t xn_cuda_patch_load(void);

#endif
