/* strided.cu: which steps the kernel takes, how blocks share the work, its launch. */
#include "strided.cuh"

#include "launch.cuh"
#include "real.h"

#include <algorithm>

/* ---- which steps ---- */

static bool is_3x3_of_stride_2(const xn_conv *c) {
    return c->kernel_h == 3 && c->kernel_w == 3 && c->stride_h == 2 && c->stride_w == 2 &&
           c->dilation_h == 1 && c->dilation_w == 1 && c->pad_top == 1 && c->pad_left == 1 &&
           c->out_height == (c->height + 1) / 2 && c->out_width == (c->width + 1) / 2 &&
           c->height >= 2 && c->width >= 2;
}

/* Reals of fp16, and perhaps bits, of whole tensors. */
static bool writes_halves(const xn_step *s) {
    const xn_epilogue *e = &s->conv.epilogue;
    return !e->k && e->activation == XN_ACTIVATION_NONE && e->datatype == XN_FP16 &&
           s->output != XN_NO_TENSOR && xn_step_is_whole(s);
}

bool xn_cuda_strided_takes(const xn_step *s) {
    const xn_conv *c = &s->conv;
    return s->kind == XN_STEP_CONV && c->mode == XN_MODE_XNOR && c->input_datatype == XN_BITS &&
           s->input_layout == XN_LAYOUT_WORDS && is_3x3_of_stride_2(c) && c->groups == 1 &&
           (c->channels == 64 || c->channels == 128 || c->channels == 256) &&
           c->out_channels % STRIDED_SIDE == 0 && writes_halves(s) && !c->epilogue.residual &&
           !c->epilogue.bits;
}

/* Sums are those of real_pointwise.cu. */
static bool is_shortcut_of(const xn_step *s, const xn_step *shortcut) {
    const xn_conv *c = &shortcut->conv;
    return shortcut->kind == XN_STEP_CONV && c->mode == XN_MODE_FLOAT &&
           xn_cuda_real_pointwise_fits(c, 1) && c->groups == 1 && c->channels == s->conv.channels &&
           c->out_channels == s->conv.out_channels && c->out_height == s->conv.out_height &&
           c->out_width == s->conv.out_width && writes_halves(shortcut) && c->epilogue.residual &&
           shortcut->residual == s->output && shortcut->residual_datatype == XN_FP16;
}

int xn_cuda_strided_length(const xn_step *steps, int count, const int32_t *reads) {
    return count >= 3 && xn_cuda_strided_takes(steps) && reads[steps->output] == 1 &&
                   is_shortcut_of(steps, &steps[2])
               ? 3
               : 1;
}

/* ---- cuts ---- */

static int32_t words_of(const xn_conv *c) {
    return c->channels / 32;
}

/* Bytes of 32 filters as operands. */
static int64_t operand_bytes(const xn_conv *c) {
    return xn_cuda_stage_row_words(words_of(c)) * 4 * STRIDED_SIDE;
}

static uint32_t out_bytes(int32_t pixels) {
    return pixels == 16 ? (uint32_t)strided_shape<2, 2>::OUT_BYTES
                        : (uint32_t)strided_shape<2, 4>::OUT_BYTES;
}

/* What a block of such a cut has, and its shared memory in bytes. */
static int64_t lay_out(const xn_conv *c, const xn_cuda_strided_cut *cut, strided_args *a) {
    /* What is read past the last channel: by a warp's last pixels; of an image as it lies. */
    enum { BEHIND = 64, BEHIND_FLAT = 144 };
    const int32_t words = words_of(c), plane = c->out_height * c->out_width;
    const int32_t pixels = cut->rows * c->out_width;
    a->height = c->height;
    a->width = c->width;
    a->out_height = c->out_height;
    a->out_width = c->out_width;
    a->out_channels = c->out_channels;
    a->words = c->out_channels / 32;
    a->pad_value = c->pad_value;
    a->filters = cut->filters;
    a->filters_log = __builtin_ctz(cut->filters);
    a->rows = cut->rows;
    a->bands = (c->out_height - 1) / cut->rows + 1;
    a->half = (c->width + 3) / 2;
    a->slots = (pixels + cut->pixels - 1) / cut->pixels * cut->pixels;
    a->pixels_apart = STRIDED_GROUP / cut->filters * cut->pixels;
    a->unit = plane % 8 == 0 && pixels % 8 == 0 ? 16 : 8;
    for (a->lanes_log = 2; a->lanes_log < 5 && a->unit << a->lanes_log < pixels * 2; a->lanes_log++)
        ;
    a->pixel_bytes = ((pixels + 7) / 8 | 1) * 16;
    a->flat = plane % 4 != 0;
    a->by_bands = xn_fast_divisor_of(a->bands);
    a->by_width = xn_fast_divisor_of(c->out_width);
    a->reals = stage_aligned(cut->filters / STRIDED_SIDE * operand_bytes(c));
    a->table = a->reals + stage_aligned((int64_t)cut->filters * c->channels * 2);
    a->windows = a->table + stage_aligned(STRIDED_TABLE_ROWS * STRIDED_TABLE_ROW);
    a->outs = a->windows + stage_aligned((int64_t)STRIDED_KINDS * a->slots * 4);
    a->grid = a->outs + STRIDED_THREADS / 32 * out_bytes(cut->pixels);
    a->pooled = stage_aligned((int64_t)(2 * cut->rows + 1) * 2 * a->half * words * 4);
    const int64_t flat_bytes = a->flat ? (int64_t)c->channels * plane * 2 + BEHIND_FLAT : 0;
    const int64_t turned_bytes = (int64_t)c->channels * a->pixel_bytes + BEHIND;
    a->group_bytes = a->pooled + stage_aligned(std::max(flat_bytes, turned_bytes));
    return a->grid + (int64_t)a->group_bytes * STRIDED_GROUPS;
}

/* Cycles that the busiest multiprocessor takes, from the times of 500 cuts on an H200: to start, a
 * little for each block; of each tile to wait and to copy, and in turns for what its warps multiply
 * and write, the latency of one and what each of both groups keeps the others waiting. */
static double cost_of(const xn_conv *c, const xn_cuda_strided_cut *cut, const strided_args *a,
                      int64_t images) {
    const int64_t tiles = images * a->bands, rounds = (tiles - 1) / cut->workers + 1;
    const int64_t groups = std::min<int64_t>(rounds, STRIDED_GROUPS);
    const int32_t across = STRIDED_GROUP / cut->filters, parts = (a->slots - 1) / cut->pixels + 1;
    const int32_t warps = cut->filters / STRIDED_SIDE * std::min(across, parts);
    const double share = cut->pixels / 32.0;
    const double turn = (490.0 + 12.3 * c->channels) * share +
                        (1.5 * c->channels + 210.0 * share) * (double)(groups * warps);
    const double tile =
        1670.0 + 0.02 * c->channels * a->pixel_bytes + ((parts - 1) / across + 1) * turn;
    return 1070.0 + 23.4 * cut->workers * c->out_channels / cut->filters +
           (double)((rounds - 1) / STRIDED_GROUPS + 1) * tile;
}

/* Sets the cut's workers and what it costs; false where it takes too much memory. */
static bool measure(const xn_conv *c, int64_t images, const xn_cuda_chip *chip,
                    xn_cuda_strided_cut *cut, double *cost) {
    enum { MOST_WORKERS = 65535 };
    strided_args a = {};
    const int64_t bytes = lay_out(c, cut, &a);
    const int64_t workers =
        std::max<int64_t>(chip->multiprocessors * cut->filters / c->out_channels, 1);
    cut->workers = (int32_t)std::min({workers, images * a.bands, (int64_t)MOST_WORKERS});
    *cost = cost_of(c, cut, &a, images);
    return bytes <= chip->shared_bytes;
}

xn_cuda_strided_cut xn_cuda_strided_cut_of(const xn_step *binary, int64_t images,
                                           const xn_cuda_chip *chip) {
    const xn_conv *c = &binary->conv;
    const int32_t plane = c->out_height * c->out_width;
    xn_cuda_strided_cut best = {};
    double least = 0.0, cost;
    if (!chip->matrix || images > INT32_MAX / 2 / plane || (plane % 4 && plane > STRIDED_FLAT))
        return best;
    for (int32_t filters = STRIDED_SIDE; filters <= STRIDED_FILTERS; filters *= 2)
        for (int32_t pixels = 16; pixels <= 32; pixels *= 2)
            for (int32_t rows = plane % 4 ? c->out_height : 1; rows <= c->out_height; rows++) {
                xn_cuda_strided_cut cut = {filters, rows, pixels, 0};
                if (c->out_channels % filters || (rows < c->out_height && rows * c->out_width % 4))
                    continue;
                if (!measure(c, images, chip, &cut, &cost))
                    break; /* more rows take no less */
                if (!best.filters || cost < least) {
                    best = cut;
                    least = cost;
                }
            }
    return best;
}

/* ---- launch ---- */

typedef void (*strided_function)(const strided_args);

static strided_function kernel_of(int32_t channels, int32_t pixels) {
    static const strided_function kernels[3][2] = {
        {strided_kernel<2, 2>, strided_kernel<2, 4>},
        {strided_kernel<4, 2>, strided_kernel<4, 4>},
        {strided_kernel<8, 2>, strided_kernel<8, 4>},
    };
    return kernels[channels / 128][pixels / 32];
}

cudaError_t xn_cuda_strided_launch(const xn_step *binary, const xn_step *shortcut, int64_t images,
                                   const xn_cuda_chip *chip, const xn_cuda_strided_cut *cut,
                                   const xn_cuda_strided_io *io, cudaStream_t stream) {
    const xn_conv *c = &binary->conv;
    strided_args a = {};
    const int64_t bytes = lay_out(c, cut, &a);
    a.io = *io;
    a.io.out = xn_epilogue_of(&shortcut->conv, &io->out);
    a.tiles = (int32_t)(images * a.bands);
    a.rehearses = chip->overlaps &&
                  c->out_channels / cut->filters * cut->workers * 2 <= chip->multiprocessors;
    const dim3 grid((unsigned)(c->out_channels / cut->filters), (unsigned)cut->workers);
    return xn_cuda_launch_with(kernel_of(c->channels, cut->pixels), grid, STRIDED_THREADS,
                               (size_t)bytes, chip->overlaps, stream, a);
}

cudaError_t xn_cuda_strided_load(const xn_cuda_chip *chip) {
    cudaError_t e = cudaSuccess;
    for (int32_t channels = 64; channels <= 256 && chip->matrix; channels *= 2)
        for (int32_t pixels = 16; pixels <= 32 && e == cudaSuccess; pixels *= 2)
            e = xn_cuda_load_with(kernel_of(channels, pixels), (size_t)chip->shared_bytes);
    return e;
}
