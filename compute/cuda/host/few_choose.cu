/* few_choose.cu: which of the kernels for few channels runs a problem:
 *
 *   strips  sliding_window.cuh, sliding_window_single.cuh  unit steps, up to 7 x 7; best where rows
 * are vectors planes  depthwise.cu                  one channel and filter a group, any step, short
 * rows matrix  patch_gemm.cu                  any step; filters share a pixel's cost; sm_80 and
 * later
 */
#include "few_choose.h"

enum {
    LONG_ROW = 48,           /* outputs: from there on strips win though rows are no vectors */
    MATRIX_CHANNELS = 16,    /* of a group; more is for the wide kernel */
    SMALL_OUTPUTS = 1 << 20, /* fewer do not fill the chip */
};

/* What strips take, in microseconds of an H200, to within a fifth: each pixel of a group costs its
 * channels' sums and patterns, and for each filter an output and its table look-ups; 2.4 times as
 * much where rows are not whole vectors. With little work a thread's chain of look-ups shows. */
static double strips_us(const xn_conv *c, int64_t images, int multiprocessors) {
    const double tables = c->group_channels * c->kernel_h * ((c->kernel_w + 2) / 3);
    const double pixels = (double)images * c->groups * c->out_height * c->out_width;
    const bool vectors = xn_cuda_sliding_vectors(c) && (c->group_channels == 1 || c->kernel_w == 3);
    const bool hot = xn_cuda_sliding_vectors(c) && c->kernel_h == 3 && c->kernel_w == 3;
    const bool small = images * xn_conv_output_elements(c) < SMALL_OUTPUTS;
    const double chain = hot ? 1.2 + 0.15 * tables : 2 + 0.8 * tables;
    const double each =
        2.1e-6 * c->group_channels + c->group_out_channels * (1.1e-6 + 0.065e-6 * tables);
    return pixels * each * (vectors ? 1 : 2.4) * 132 / multiprocessors + (small ? chain : 0);
}

static bool matrix_is_faster(const xn_conv *c, int64_t images, int multiprocessors,
                             const xn_cuda_patch_cut *cut) {
    return xn_cuda_patch_us(c, images, multiprocessors, cut) <
           strips_us(c, images, multiprocessors);
}

/* One channel and one filter: strips where rows are whole vectors, planes where they are short or
 * steps are not one. More of them: strips or the matrix units. */
xn_cuda_few_kind xn_cuda_few_choose(const xn_conv *c, int64_t images,
                                    const xn_cuda_few_chip *chip) {
    xn_cuda_sliding strip;
    xn_cuda_depthwise_cut planes;
    xn_cuda_patch_cut matrix;
    const bool strips = xn_cuda_sliding_choose(c, images, chip->multiprocessors, &strip);
    const bool single = c->group_channels == 1 && c->group_out_channels == 1;
    if (single && strips && (xn_cuda_sliding_vectors(c) || c->out_width >= LONG_ROW))
        return XN_CUDA_FEW_SLIDING_WINDOW;
    if (xn_cuda_depthwise_choose(c, images, chip->multiprocessors, &planes))
        return XN_CUDA_FEW_DEPTHWISE;
    if (chip->matrix && c->group_channels <= MATRIX_CHANNELS &&
        xn_cuda_patch_choose(c, images, chip->multiprocessors, &matrix) &&
        (!strips || (!single && matrix_is_faster(c, images, chip->multiprocessors, &matrix))))
        return XN_CUDA_FEW_PATCH_GEMM;
    if (strips)
        return XN_CUDA_FEW_SLIDING_WINDOW;
    return XN_CUDA_FEW_NONE;
}

bool xn_cuda_few_cut_of(xn_cuda_few_kind kind, const xn_conv *c, int64_t images,
                        const xn_cuda_few_chip *chip, xn_cuda_few_cut *out) {
    out->kind = kind;
    out->images = images;
    switch (kind) {
    case XN_CUDA_FEW_SLIDING_WINDOW:
        return xn_cuda_sliding_choose(c, images, chip->multiprocessors, &out->strip);
    case XN_CUDA_FEW_DEPTHWISE:
        return xn_cuda_depthwise_choose(c, images, chip->multiprocessors, &out->planes);
    case XN_CUDA_FEW_PATCH_GEMM:
        return chip->matrix && xn_cuda_patch_choose(c, images, chip->multiprocessors, &out->matrix);
    default:
        return false;
    }
}

cudaError_t xn_cuda_few_launch(const xn_conv *c, int64_t images, const xn_cuda_few_chip *chip,
                               xn_cuda_few_cut *cut, const xn_cuda_few_io *io,
                               const xn_cuda_epilogue_args *epilogue, cudaStream_t stream) {
    if (cut->images != images && !xn_cuda_few_cut_of(cut->kind, c, images, chip, cut)) {
        cut->images = 0;
        return cudaErrorInvalidConfiguration; /* a plan's kernel takes fewer images too */
    }
    switch (cut->kind) {
    case XN_CUDA_FEW_SLIDING_WINDOW:
        return xn_cuda_sliding_launch(c, images, &cut->strip, io, epilogue, chip->overlaps, stream);
    case XN_CUDA_FEW_DEPTHWISE:
        return xn_cuda_depthwise_launch(c, images, &cut->planes, io, epilogue, chip->overlaps,
                                        stream);
    case XN_CUDA_FEW_PATCH_GEMM:
        return xn_cuda_patch_launch(c, images, &cut->matrix, io, epilogue, chip->overlaps, stream);
    default:
        return cudaErrorInvalidConfiguration;
    }
}

cudaError_t xn_cuda_few_load(void) {
    cudaError_t (*const loaders[])(void) = {xn_cuda_sliding_load, xn_cuda_depthwise_load,
                                            xn_cuda_patch_load};
    for (cudaError_t (*load)(void) : loaders) {
        cudaError_t e = load();
        if (e != cudaSuccess)
            return e;
    }
    return cudaSuccess;
}
