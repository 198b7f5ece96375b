/* kernels.h: the launchers. Each puts one kernel on a stream and returns the launch's own error;
 * none allocates, waits, or looks at tensor data. Pointers are device memory. `images` is this
 * run's number, at most the plan's; xn_cuda_*_fits tell the plan what a kernel can do. */
#ifndef XN_CUDA_KERNELS_H
#define XN_CUDA_KERNELS_H

#include "xn_conv.h"

#include <cuda_runtime.h>
#include <stdint.h>

/* What the epilogue of every path takes (epilogue.cuh): null factor means 1, null bias 0. The last
 * two members are set by the launchers, from the problem. */
typedef struct xn_epilogue_args {
    const float *factor, *bias; /* these and the next two: a value for each output channel */
    void *output;
    const float *slope, *shift;
    const void *residual;
    uint32_t *bits; /* of the outputs, in the layout of activations of one group */
    xn_epilogue what;
    float unit; /* 1 / taps with K, else 1 */
} xn_epilogue_args;
typedef xn_epilogue_args xn_cuda_epilogue_args; /* until all callers have moved */

/* What the kernels for few channels want to know of the chip. */
typedef struct xn_cuda_few_chip {
    int multiprocessors;
    bool matrix;   /* sm_80 and later: mma.sync of bits */
    bool overlaps; /* sm_90 and later: a kernel may start before the one ahead of it has ended */
} xn_cuda_few_chip;

typedef struct xn_cuda_few_io {
    const void *input;
    const uint32_t *patches, *rows, *fields; /* filters, layout.h; NULL where there are none */
} xn_cuda_few_io;

/* few_choose.cu: mode xnor for groups of few channels, all in one kernel: which is the fastest, if
 * any can, how it is cut, and its launch. */
typedef enum {
    XN_CUDA_FEW_SLIDING_WINDOW,
    XN_CUDA_FEW_DEPTHWISE,
    XN_CUDA_FEW_PATCH_GEMM,
    XN_CUDA_FEW_TILE,
    XN_CUDA_FEW_NONE
} xn_cuda_few_kind;
xn_cuda_few_kind xn_cuda_few_choose(const xn_conv *conv, int64_t images,
                                    const xn_cuda_few_chip *chip);
/* How that kernel is cut for so many images (few_choose.h); false when it does not take them. */
typedef struct xn_cuda_few_cut xn_cuda_few_cut;
bool xn_cuda_few_cut_of(xn_cuda_few_kind kind, const xn_conv *conv, int64_t images,
                        const xn_cuda_few_chip *chip, xn_cuda_few_cut *out);
/* *cut is of this conv and chip; it is decided anew where the number of images is not its own. */
cudaError_t xn_cuda_few_launch(const xn_conv *conv, int64_t images, const xn_cuda_few_chip *chip,
                               xn_cuda_few_cut *cut, const xn_cuda_few_io *io,
                               const xn_cuda_epilogue_args *epilogue, cudaStream_t stream);

/* How the bits of activations lie in memory, and with them set bits and means (layout.h). */
typedef enum {
    XN_CUDA_PLAIN, /* activations */
    XN_CUDA_AS_PADDED,
    XN_CUDA_AS_DUAL_RAIL,
} xn_cuda_bits_layout;

/* pack.cu: NCHW of any datatype -> activation bits; per pixel and group the set bits (popc) and
 * the mean magnitude (mean). popc and mean may be NULL. input is aligned to its elements, bits to
 * 16 bytes. overlapped: may start before the kernel ahead of it in the stream has ended (sm_90 and
 * later), which it does where the problem is small. */
cudaError_t xn_cuda_pack_launch(const xn_conv *conv, int64_t images, int multiprocessors,
                                const void *input, uint32_t *bits, int32_t *popc, float *mean,
                                xn_cuda_bits_layout layout, bool overlapped, cudaStream_t stream);

/* packed.cu: the set bits of packed pixels of tap_words words each. */
cudaError_t xn_cuda_count_launch(int64_t pixels, int32_t tap_words, const uint32_t *bits,
                                 int32_t *popc, cudaStream_t stream);

/* Packed pixels to lines, with their set bits. */
cudaError_t xn_cuda_spread_launch(const xn_conv *conv, int64_t images, const uint32_t *bits,
                                  uint32_t *to, int32_t *counts, cudaStream_t stream);

/* Packed pixels to rails. */
cudaError_t xn_cuda_to_rails_launch(const xn_conv *conv, int64_t images, const uint32_t *bits,
                                    uint32_t *to, cudaStream_t stream);

/* Dots of all filters, NCHW, to bits per filter: dot >= threshold, turned where flip has a bit. */
cudaError_t xn_cuda_threshold_launch(const xn_conv *conv, int64_t images, const int32_t *dots,
                                     const int32_t *threshold, const uint32_t *flip,
                                     uint32_t *packed, cudaStream_t stream);

/* box.cu: per output pixel and group, the pixel part of dot (layout.h) from popc and the box of K
 * (epilogue.cuh) from mean. Each pair (popc, pixel_part) and (mean, box) may be NULL. */
cudaError_t xn_cuda_box_launch(const xn_conv *conv, int64_t images, const int32_t *popc,
                               const float *mean, int32_t *pixel_part, float *box,
                               cudaStream_t stream);

/* Bits and filters as implicit_gemm.cu and direct.cu read them; box and what it was made of are
 * NULL without K. */
typedef struct xn_cuda_bit_args {
    const uint32_t *bits, *rows;
    const int32_t *prefix, *pixel_part; /* direct does not use pixel_part */
    const float *box, *mean;
} xn_cuda_bit_args;

/* implicit_gemm.cu: implicit GEMM on the matrix units, sm_80 and later. */
bool xn_cuda_implicit_gemm_fits(const xn_conv *conv, int64_t images);
cudaError_t xn_cuda_implicit_gemm_launch(const xn_conv *conv, int64_t images, int multiprocessors,
                                         const xn_cuda_bit_args *bits,
                                         const xn_cuda_epilogue_args *epilogue,
                                         cudaStream_t stream);

/* What filter_stationary.cu reads and, where packed is not NULL, writes instead of the epilogue's
 * output: bits per filter as xn_cuda_threshold_launch. mean is NULL unless scaling is xnor. */
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
bool xn_cuda_stationary_fits(const xn_conv *conv, int64_t images, bool packed);
/* *cut keeps what was decided for this conv, multiprocessors and kind of output
 * (filter_stationary.h); it is decided anew where the number of images is not that of the launch
 * before. */
typedef struct xn_cuda_stationary_cut xn_cuda_stationary_cut;
cudaError_t xn_cuda_stationary_launch(const xn_conv *conv, int64_t images, int multiprocessors,
                                      xn_cuda_stationary_cut *cut, const xn_cuda_stationary_io *io,
                                      const xn_cuda_epilogue_args *epilogue, cudaStream_t stream);

/* warp_specialised.cu: real outputs and INT32, stride 1, from activations with their borders
 * (layout.h: lines). counts and means lie as those; means is NULL unless scaling is xnor. filters:
 * layout.h's lines filters. */
typedef struct xn_cuda_specialised_io {
    const uint32_t *bits;
    const int32_t *counts;
    const float *means;
    const void *filters;
    int64_t filter_rows;
    const int32_t *prefix; /* layout.h: wide_prefix */
    bool overlapped;       /* may start before the kernel ahead of it in the stream has ended */
} xn_cuda_specialised_io;
bool xn_cuda_specialised_fits(const xn_conv *conv, int64_t images);
/* Whether it is faster than the other kernels. */
bool xn_cuda_specialised_pays(const xn_conv *conv, int64_t images, int multiprocessors,
                              bool packed_input);
typedef struct xn_cuda_specialised_cut
    xn_cuda_specialised_cut; /* as xn_cuda_stationary_cut (warp_specialised.h) */
cudaError_t xn_cuda_specialised_launch(const xn_conv *conv, int64_t images, int multiprocessors,
                                       xn_cuda_specialised_cut *cut,
                                       const xn_cuda_specialised_io *io,
                                       const xn_cuda_epilogue_args *epilogue, cudaStream_t stream);

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
bool xn_cuda_dual_rail_fits(const xn_conv *conv, int64_t images);
/* Whether it is faster than filter_stationary.cu. */
bool xn_cuda_dual_rail_pays(const xn_conv *conv, int64_t images, int multiprocessors);
typedef struct xn_cuda_dual_rail_cut
    xn_cuda_dual_rail_cut; /* as xn_cuda_stationary_cut (dual_rail.h) */
cudaError_t xn_cuda_dual_rail_launch(const xn_conv *conv, int64_t images, int multiprocessors,
                                     xn_cuda_dual_rail_cut *cut, const xn_cuda_dual_rail_io *io,
                                     cudaStream_t stream);

/* fused_gemm.cu: real input to outputs in one launch, by the matrix units of sm_80 and later: for
 * small problems. */
typedef struct xn_cuda_fused_io {
    const void *input;
    const uint32_t *rows; /* layout.h */
    const int32_t *prefix;
} xn_cuda_fused_io;
bool xn_cuda_fused_fits(const xn_conv *conv, int64_t images, const xn_cuda_few_chip *chip);
/* Whether it is faster than the other kernels. */
bool xn_cuda_fused_pays(const xn_conv *conv, int64_t images, const xn_cuda_few_chip *chip);
typedef struct xn_cuda_fused_plan xn_cuda_fused_plan; /* as xn_cuda_stationary_cut (fused_gemm.h) */
cudaError_t xn_cuda_fused_launch(const xn_conv *conv, int64_t images, const xn_cuda_few_chip *chip,
                                 xn_cuda_fused_plan *plan, const xn_cuda_fused_io *io,
                                 const xn_cuda_epilogue_args *epilogue, cudaStream_t stream);

/* direct.cu: any geometry on any chip, by population counts. */
cudaError_t xn_cuda_direct_launch(const xn_conv *conv, int64_t images, const xn_cuda_bit_args *bits,
                                  const xn_cuda_epilogue_args *epilogue, cudaStream_t stream);

/* real.cu: modes bwn and float. weights is [O][C/groups][KH][KW]. */
cudaError_t xn_cuda_real_launch(const xn_conv *conv, int64_t images, const void *input,
                                const float *weights, const xn_cuda_epilogue_args *epilogue,
                                cudaStream_t stream);

/* Loads the code of every kernel onto the current device, which would else happen inside the
 * first launches; fails when this build has no code for the device. matrix: with gemm. */
cudaError_t xn_cuda_few_load(void);
cudaError_t xn_cuda_pack_load(void);
cudaError_t xn_cuda_packed_load(void);
cudaError_t xn_cuda_box_load(void);
cudaError_t xn_cuda_implicit_gemm_load(void);
cudaError_t xn_cuda_stationary_load(bool *usable);  /* false: not on this device or in this build */
cudaError_t xn_cuda_specialised_load(bool *usable); /* likewise */
cudaError_t xn_cuda_dual_rail_load(bool *usable);   /* likewise */
cudaError_t xn_cuda_fused_load(void);               /* sm_80 and later */
cudaError_t xn_cuda_direct_load(void);
cudaError_t xn_cuda_real_load(void);

#endif
