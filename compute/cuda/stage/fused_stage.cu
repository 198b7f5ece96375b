/* fused_stage.cu: which chains the kernel takes, how the work is cut, its launch. */
#include "fused_stage.cuh"

#include "launch.cuh"

#include <algorithm>
#include <stdio.h>
#include <stdlib.h>

/* ---- which chains ---- */

static bool is_3x3(const xn_conv *c) {
    return c->kernel_h == 3 && c->kernel_w == 3 && c->stride_h == 1 && c->stride_w == 1 &&
           c->dilation_h == 1 && c->dilation_w == 1 && c->pad_top == 1 && c->pad_left == 1 &&
           c->pad_bottom == 1 && c->pad_right == 1;
}

static bool has_channels(const xn_conv *c) {
    return c->groups == 1 && c->channels == c->out_channels &&
           (c->channels == 64 || c->channels == 128 || c->channels == 256 || c->channels == 512);
}

static bool has_plane(const xn_conv *c) {
    return c->height >= 2 && c->width >= 2 && c->width <= 512;
}

static bool has_epilogue(const xn_step *s) {
    const xn_epilogue *e = &s->conv.epilogue;
    return !e->k && e->residual && e->activation == XN_ACTIVATION_NONE &&
           (e->datatype == XN_FP16 || e->datatype == XN_FP32) &&
           s->residual_datatype == e->datatype && xn_step_is_whole(s);
}

bool xn_cuda_stage_takes(const xn_step *s) {
    const xn_conv *c = &s->conv;
    return s->kind == XN_STEP_CONV && c->mode == XN_MODE_XNOR && c->input_datatype == XN_BITS &&
           s->input_layout == XN_LAYOUT_WORDS && is_3x3(c) && has_channels(c) && has_plane(c) &&
           has_epilogue(s);
}

/* The next layer of a chain: what it reads of the one before nothing else reads. */
static bool follows(const xn_step *s, const xn_step *next, const int32_t *reads) {
    return xn_cuda_stage_takes(next) && s->bits != XN_NO_TENSOR && next->input == s->bits &&
           next->residual == s->output && reads[s->bits] == 1 && reads[s->output] == 1 &&
           next->conv.channels == s->conv.channels && next->conv.height == s->conv.height &&
           next->conv.width == s->conv.width && next->conv.pad_value == s->conv.pad_value &&
           next->conv.epilogue.datatype == s->conv.epilogue.datatype;
}

/* Means of 2 x 2 or of planes of what the chain's last layer writes, which nothing else reads. */
static bool is_pool_of(const xn_step *s, const xn_step *pool, const int32_t *reads) {
    const xn_conv *c = &pool->conv;
    const xn_epilogue *e = &c->epilogue;
    const bool two = c->kernel_h == 2 && c->kernel_w == 2 && c->stride_h == 2 && c->stride_w == 2 &&
                     c->height % 2 == 0 && c->width % 2 == 0;
    const bool whole = c->kernel_h == c->height && c->kernel_w == c->width;
    return pool->kind == XN_STEP_AVG_POOL && s->output != XN_NO_TENSOR &&
           pool->input == s->output && reads[s->output] == 1 && (two || whole) && !c->pad_top &&
           !c->pad_left && !c->pad_bottom && !c->pad_right && !e->factor && !e->bias &&
           !e->residual && !e->activation && !e->bits && e->datatype == s->conv.epilogue.datatype &&
           xn_step_is_whole(pool);
}

int xn_cuda_stage_length(const xn_step *steps, int count, const int32_t *reads) {
    int length = 1;
    if (!xn_cuda_stage_takes(steps))
        return 1;
    while (length < std::min<int>(count, XN_STAGE_LAYERS) &&
           follows(&steps[length - 1], &steps[length], reads))
        length++;
    for (int n = length; length > 1 && n < std::min(count, length + 2); n++) {
        if (is_pool_of(&steps[length - 1], &steps[n], reads))
            return n + 1;
        if (xn_cuda_stage_takes(&steps[n]))
            break;
    }
    return length;
}

/* ---- cuts ---- */

/* Bands begin at multiples. */
static int32_t rows_apart(const stage_args *a) {
    return std::max(a->align, a->height % 2 ? 1 : 2);
}

/* What a block has, and its shared memory in bytes. */
static int64_t lay_out(const xn_step *step, int32_t layers, const xn_cuda_stage_cut *cut,
                       const xn_cuda_chip *chip, stage_args *a) {
    const xn_conv *c = &step->conv;
    const int64_t words = c->channels / 32,
                  real = xn_datatype_bytes((xn_datatype)c->epilogue.datatype);
    a->height = c->height;
    a->width = c->width;
    a->pad_value = c->pad_value;
    a->single = c->height * c->width % 4 != 0;
    a->align = a->single || c->width % 4 == 0 ? 1 : c->width % 2 == 0 ? 2 : 4;
    a->extra = (layers - 1) / rows_apart(a) * rows_apart(a);
    a->bands = (c->height - a->extra + cut->band - 1) / cut->band;
    if (a->bands < 2 || a->bands * cut->band >= c->height || cut->band <= 4 * (layers - 1)) {
        a->extra = 0; /* it saves no band, or is too large a part of one */
        a->bands = (c->height + cut->band - 1) / cut->band;
    }
    a->rows = 0;
    for (int32_t n = 0; n < a->bands; n++) {
        const stage_band band(*a, layers, cut->band, n);
        a->rows = std::max(a->rows, band.bottom - band.top);
    }
    a->grid_rows = cut->images * (a->rows + 1) + 1;
    a->pitch = words == 2   ? c->width + 2
               : words < 16 ? (c->width + 2 + 15) / 16 * 16
                            : (c->width + 2 + 4) / 16 * 16 + 11;
    a->filter_warps = (int32_t)words / cut->cluster;
    a->pixel_warps = STAGE_THREADS / 32 / a->filter_warps;
    a->table_row = a->filter_warps * 128 + 32;
    const int64_t positions = (int64_t)a->grid_rows * a->pitch + 2;
    const int64_t pixels =
        ((int64_t)cut->images * a->rows * c->width + STAGE_UNIT - 1) / STAGE_UNIT * STAGE_UNIT;
    a->grid = stage_aligned(pixels * a->filter_warps * 32 * real);
    a->grid_bytes = stage_aligned(positions * words * 4);
    a->places = a->grid + 2 * a->grid_bytes;
    a->barriers = a->places + stage_aligned(pixels * 4);
    a->windows = a->barriers + stage_aligned(16);
    a->table = a->windows + stage_aligned(pixels * 8);
    a->filters = a->table + stage_aligned((int64_t)layers * STAGE_TABLE_ROWS * a->table_row);
    if (words < 16)
        return a->filters;
    if (a->pixel_warps == 1) /* rings, of fp16 */
        return real > 2 || pixels > STAGE_RING_UNITS * STAGE_UNIT
                   ? INT64_MAX
                   : a->filters + a->filter_warps * STAGE_RING * STAGE_STEP_BYTES;
    const int64_t filters = (int64_t)a->filter_warps * STAGE_WIDE_BYTES;
    a->layers_beside = a->filters + 2 * filters <= chip->shared_bytes ? 2 : 1;
    return a->filters + a->layers_beside * filters;
}

/* Cycles, fitted to cuts of 64 to 512 channels and 1 to 512 images on an H200: of the busiest
 * multiprocessor, for a block, a layer with the blocks that it sends bits to, a unit, whose
 * residuals may be copied one by one, and 32 filters of a unit by their steps. Clusters of many lie
 * within parts of a chip. */
static double cycles(const stage_args *a, int32_t layers, const xn_conv *c,
                     const xn_cuda_stage_cut *cut, int64_t images, const xn_cuda_chip *chip) {
    const double block = 13000, unit = a->single ? 300 : 60;
    const double layer = cut->cluster > 1 ? 600 + 90 * cut->cluster : 600;
    const double filters = 45 + 5 * (c->channels * 9 / 64);
    const int32_t all = chip->multiprocessors;
    const int32_t usable = cut->cluster > 8   ? all * 28 / 33
                           : cut->cluster > 2 ? all * 10 / 11
                                              : all;
    const int64_t blocks = ((images - 1) / cut->images + 1) * a->bands * cut->cluster;
    double sum = block + layer * layers;
    for (int32_t n = 0; n < layers; n++) {
        const int32_t rows = (a->height + 2 * n * (a->bands - 1)) * cut->images;
        const int32_t units = (rows * a->width / a->bands + STAGE_UNIT - 1) / STAGE_UNIT;
        sum += units * (unit + a->filter_warps * filters);
    }
    return (double)((blocks - 1) / usable + 1) * sum;
}

/* Parts of a chip with few multiprocessors have no room for large clusters. */
static int32_t largest_cluster(const xn_conv *c, const xn_cuda_chip *chip) {
    return chip->wgmma ? std::min(c->channels / 32, chip->multiprocessors / 4) : 1;
}

xn_cuda_stage_cut xn_cuda_stage_cut_of(const xn_step *step, int32_t layers, bool whole,
                                       int64_t images, const xn_cuda_chip *chip) {
    const xn_conv *c = &step->conv;
    xn_cuda_stage_cut best = {}, cut = {1, 1, 1};
    double least = 0.0;
    stage_args a = {};
    if (!chip->matrix)
        return best;
    lay_out(step, layers, &cut, chip, &a);
    const int32_t rows = rows_apart(&a);
    for (; cut.cluster <= largest_cluster(c, chip); cut.cluster *= 2)
        for (cut.images = 1; cut.images <= 4; cut.images++)
            for (cut.band = whole || cut.images > 1 ? c->height : rows; cut.band <= c->height;
                 cut.band += rows) {
                if (lay_out(step, layers, &cut, chip, &a) > chip->shared_bytes)
                    break; /* larger bands take no less */
                const double cost = cycles(&a, layers, c, &cut, images, chip);
                if (!best.band || cost < least) {
                    best = cut;
                    least = cost;
                }
            }
    return best;
}

/* ---- launch ---- */

typedef void (*stage_function)(const stage_args);

static stage_function kernel_of(const xn_conv *c, int32_t cluster) {
    static const stage_function kernels[5][2] = {
        {stage_kernel<2, float, false>, stage_kernel<2, __half, false>},
        {stage_kernel<4, float, false>, stage_kernel<4, __half, false>},
        {stage_kernel<8, float, false>, stage_kernel<8, __half, false>},
        {stage_kernel<16, float, false>, stage_kernel<16, __half, false>},
        {NULL, stage_kernel<16, __half, true>},
    };
    int row = 0;
    while (64 << row < c->channels)
        row++;
    row += row == 3 && cluster == 1;
    return kernels[row][c->epilogue.datatype == XN_FP16];
}

cudaError_t xn_cuda_stage_launch(const xn_step *step, int64_t images, const xn_cuda_chip *chip,
                                 const xn_cuda_stage_io *io, cudaStream_t stream) {
    const xn_cuda_stage_cut *cut = &io->cut;
    stage_args a = {};
    if (images > XN_CUDA_MAX_GRID / 16 / step->conv.height)
        return cudaErrorInvalidConfiguration;
    const int64_t bytes = lay_out(step, io->layers, cut, chip, &a);
    const int64_t blocks = ((images - 1) / cut->images + 1) * a.bands * cut->cluster;
    a.io = *io;
    a.images = images;
    a.rehearses = images == 1 && chip->overlaps && blocks * 2 <= chip->multiprocessors;
    a.by_cluster = xn_fast_divisor_of(cut->cluster);
    a.by_bands = xn_fast_divisor_of(a.bands);
    a.by_filter_warps = xn_fast_divisor_of(a.filter_warps);
    a.by_height = xn_fast_divisor_of(a.height);
    a.by_width = xn_fast_divisor_of(a.width);
    a.by_pooled = xn_fast_divisor_of(a.width / 2);
    return xn_cuda_launch_clusters(kernel_of(&step->conv, cut->cluster), dim3((unsigned)blocks),
                                   STAGE_THREADS, (size_t)bytes, chip->overlaps, cut->cluster,
                                   stream, a);
}

static cudaError_t load(stage_function kernel, const xn_cuda_chip *chip) {
    const cudaError_t e = xn_cuda_load_with(kernel, (size_t)chip->shared_bytes);
    if (e != cudaSuccess || !chip->wgmma)
        return e;
    /* Clusters of 16. */
    return cudaFuncSetAttribute((const void *)kernel,
                                cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
}

cudaError_t xn_cuda_stage_load(const xn_cuda_chip *chip) {
    cudaError_t e = cudaSuccess;
    if (!chip->matrix)
        return e;
    for (int32_t channels = 64; channels <= 512; channels *= 2)
        for (int32_t datatype : {XN_FP32, XN_FP16}) {
            xn_conv c = {};
            c.channels = channels;
            c.epilogue.datatype = datatype;
            for (int32_t cluster = 1; cluster <= 2; cluster++)
                if (e == cudaSuccess && kernel_of(&c, cluster))
                    e = load(kernel_of(&c, cluster), chip);
        }
    return e;
}
