/* fused_stage.cu: which chains the kernel takes, how it cuts an image into bands, its launch. */
#include "fused_stage.cuh"

#include "launch.cuh"

#include <algorithm>

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

/* Means of 2 x 2 of what the chain's last layer writes, which nothing else reads. */
static bool is_pool_of(const xn_step *s, const xn_step *pool, const int32_t *reads) {
    const xn_conv *c = &pool->conv;
    const xn_epilogue *e = &c->epilogue;
    return pool->kind == XN_STEP_AVG_POOL && s->output != XN_NO_TENSOR &&
           pool->input == s->output && reads[s->output] == 1 && c->kernel_h == 2 &&
           c->kernel_w == 2 && c->stride_h == 2 && c->stride_w == 2 && !c->pad_top &&
           !c->pad_left && !c->pad_bottom && !c->pad_right && c->height % 2 == 0 &&
           c->width % 2 == 0 && !e->factor && !e->bias && !e->residual && !e->activation &&
           !e->bits && e->datatype == s->conv.epilogue.datatype && xn_step_is_whole(pool);
}

int xn_cuda_stage_length(const xn_step *steps, int count, const int32_t *reads) {
    int length = 1;
    if (!xn_cuda_stage_takes(steps))
        return 1;
    while (length < std::min<int>(count, XN_STAGE_LAYERS) &&
           follows(&steps[length - 1], &steps[length], reads))
        length++;
    if (length > 1 && length + 1 < count && !xn_cuda_stage_takes(&steps[length]) &&
        is_pool_of(&steps[length - 1], &steps[length + 1], reads))
        return length + 2;
    return length;
}

/* ---- bands ---- */

static uint32_t aligned(int64_t bytes) {
    return (uint32_t)((bytes + 127) / 128 * 128);
}

/* What a block of `band` output rows has, and its shared memory in bytes. */
static int64_t lay_out(const xn_step *step, int32_t layers, int32_t band, stage_args *a) {
    const xn_conv *c = &step->conv;
    const int64_t words = c->channels / 32,
                  real = xn_datatype_bytes((xn_datatype)c->epilogue.datatype);
    a->height = c->height;
    a->width = c->width;
    a->pad_value = c->pad_value;
    a->single = c->height * c->width % 4 != 0;
    a->align = a->single || c->width % 4 == 0 ? 1 : c->width % 2 == 0 ? 2 : 4;
    a->band = band;
    a->bands = (c->height + band - 1) / band;
    a->rows = std::min(c->height, band + 2 * (layers - 1) + a->align - 1);
    a->pitch = words == 2 ? c->width + 2 : (c->width + 2 + 15) / 16 * 16;
    a->units = (a->rows * c->width + STAGE_UNIT - 1) / STAGE_UNIT;
    const int64_t positions = (int64_t)(a->rows + 4) * a->pitch + STAGE_UNIT,
                  pixels = a->units * STAGE_UNIT;
    a->grid = aligned(pixels * c->channels * real);
    a->grid_bytes = aligned(positions * words * 4);
    a->popcounts = a->grid + 2 * a->grid_bytes;
    a->popcounts_bytes = aligned(positions * 4);
    a->places = a->popcounts + 2 * a->popcounts_bytes;
    a->windows = a->places + aligned(pixels * 4);
    a->table = a->windows + aligned(pixels * 8);
    a->table_bytes = aligned((int64_t)STAGE_TABLE_ROWS * (c->channels * 4 + 32));
    return a->table + (words == 16 ? 1 : 2) * (int64_t)a->table_bytes;
}

/* Units of 32 filters that the busiest warp of the busiest multiprocessor makes, and as many more
 * as starting a block and its layers costs. */
static int32_t threads_of(const xn_conv *c) {
    return c->channels == 64 ? (int32_t)stage_shape<2>::THREADS : (int32_t)stage_shape<4>::THREADS;
}

static double work(const stage_args *a, int32_t layers, const xn_conv *c, int64_t images,
                   const xn_cuda_chip *chip) {
    const int64_t waves = (images * a->bands - 1) / chip->multiprocessors + 1;
    double units = 6.0 + 3.0 * layers;
    for (int32_t n = 0; n < layers; n++) {
        const int32_t rows = std::min(a->height, a->band + 2 * n);
        units += (double)rows * a->width / STAGE_UNIT * c->channels / threads_of(c);
    }
    return units * (double)waves;
}

int32_t xn_cuda_stage_band(const xn_step *step, int32_t layers, int64_t images,
                           const xn_cuda_chip *chip) {
    int32_t best = 0;
    double least = 0.0;
    stage_args a = {};
    if (!chip->matrix)
        return 0;
    for (int32_t band = 1; band <= step->conv.height; band++) {
        if (lay_out(step, layers, band, &a) > chip->shared_bytes)
            break; /* larger bands take no less */
        const double cost = work(&a, layers, &step->conv, images, chip);
        const int32_t whole = std::max(a.align, step->conv.height % 2 ? 1 : 2);
        if (band % whole == 0 && (!best || cost < least)) {
            best = band;
            least = cost;
        }
    }
    return best;
}

/* ---- launch ---- */

typedef void (*stage_function)(const stage_args);

static stage_function kernel_of(const xn_conv *c) {
    static const stage_function kernels[4][2] = {
        {stage_kernel<2, float>, stage_kernel<2, __half>},
        {stage_kernel<4, float>, stage_kernel<4, __half>},
        {stage_kernel<8, float>, stage_kernel<8, __half>},
        {stage_kernel<16, float>, stage_kernel<16, __half>},
    };
    int row = 0;
    while (64 << row < c->channels)
        row++;
    return kernels[row][c->epilogue.datatype == XN_FP16];
}

cudaError_t xn_cuda_stage_launch(const xn_step *step, int64_t images, const xn_cuda_chip *chip,
                                 const xn_cuda_stage_io *io, cudaStream_t stream) {
    stage_args a = {};
    if (images > XN_CUDA_MAX_GRID / step->conv.height)
        return cudaErrorInvalidConfiguration;
    const int64_t bytes = lay_out(step, io->layers, io->band, &a);
    a.io = *io;
    return xn_cuda_launch_with(kernel_of(&step->conv), dim3((unsigned)(images * a.bands)),
                               threads_of(&step->conv), (size_t)bytes, chip->overlaps, stream, a);
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
            if (e == cudaSuccess)
                e = xn_cuda_load_with(kernel_of(&c), (size_t)chip->shared_bytes);
        }
    return e;
}
