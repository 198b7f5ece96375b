/* sliding_window.h: the fast kernels of the path for one channel (sliding_window.cuh): what they
 * take, and how a problem is cut into strips. Both are pure functions of the geometry, so that
 * benchmarks and tests can force any cut. */
#ifndef XN_CUDA_SLIDING_WINDOW_H
#define XN_CUDA_SLIDING_WINDOW_H

#include "kernel.h"

/* A thread makes `rows` * `chunks` output rows of 4 columns; `lanes` threads side by side make a
 * segment; a block is `threads` / `lanes` segments: `across` of them side by side, of `stack`
 * planes, the rest below each other. All are powers of 2. */
typedef struct xn_cuda_sliding {
    int32_t rows;   /* 1 or 4: compiled in */
    int32_t chunks; /* 1 unless the kernel is of the shape of one that is compiled for it */
    int32_t depth;  /* chunks on their way at a time: 0 (in registers), 2 or 4: compiled in */
    int32_t lanes;  /* 4, 8, 16 or 32: shuffles stay inside a segment */
    int32_t across, stack;
    int32_t threads; /* 32 .. 128 */
} xn_cuda_sliding;

/* The cut for this problem; false when no kernel here takes it. */
bool xn_cuda_sliding_choose(const xn_conv *conv, int64_t images, int multiprocessors,
                            xn_cuda_sliding *out);

/* True when that cut can be launched: the kernel exists and what it needs fits. */
bool xn_cuda_sliding_fits(const xn_conv *conv, int64_t images, const xn_cuda_sliding *strip);

/* True when the input's and the output's rows are read and written as whole vectors. */
bool xn_cuda_sliding_vectors(const xn_conv *conv);

/* What the time of a cut that fits is made of: 7 terms, to be multiplied by what each costs. */
void xn_cuda_sliding_terms(const xn_conv *conv, int64_t images, int multiprocessors,
                           const xn_cuda_sliding *strip, double *terms);

/* Launches a cut that fits. */
cudaError_t xn_cuda_sliding_launch(const xn_conv *conv, int64_t images,
                                   const xn_cuda_sliding *strip, const xn_cuda_few_io *io,
                                   const xn_epilogue_args *epilogue, bool overlapped,
                                   cudaStream_t stream);
cudaError_t xn_cuda_sliding_load(void);

#endif
