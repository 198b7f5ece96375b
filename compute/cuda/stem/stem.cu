/* stem.cu: which kernel runs a stem, and its launch; the kernel for any geometry. */
#include "stem.cuh"

#include <algorithm>

enum {
    ROWS_LARGE = 7,
    ROWS_SMALL = 3,          /* rows of taps that tile kernels are compiled for */
    SHARED_BYTES = 96 << 10, /* of a block */
    GOOD_BYTES = 55 << 10,   /* so that four blocks lie beside each other */
    MOST_COLUMNS = 1 << 16,
    MOST_BAND = 8, /* pairs of rows */
};

/* ---- any geometry ---- */

__device__ __forceinline__ float stem_value(const stem_args &a, const uint8_t *image, int32_t o,
                                            int32_t y, int32_t x) {
    const xn_conv &c = a.conv;
    const int32_t *m =
        (const int32_t *)a.filters + (int64_t)o * c.kernel_h * c.kernel_w * c.channels;
    int64_t sum = 0;
#pragma unroll 1
    for (int32_t tap = 0; tap < c.kernel_h * c.kernel_w; tap++, m += c.channels) {
        const int32_t in_y = y * c.stride_h - c.pad_top + tap / c.kernel_w * c.dilation_h;
        const int32_t in_x = x * c.stride_w - c.pad_left + tap % c.kernel_w * c.dilation_w;
        if ((uint32_t)in_y >= (uint32_t)c.height || (uint32_t)in_x >= (uint32_t)c.width)
            continue;
        const int64_t at = (int64_t)in_y * c.width + in_x, plane = (int64_t)c.height * c.width;
        for (int32_t n = 0; n < c.channels; n++)
            sum += (int64_t)__ldg(m + n) * image[a.nhwc ? at * c.channels + n : n * plane + at];
    }
    const int32_t cls = xn_planes_class(y, a.height, a.top, a.bottom) * (a.left + 2 + a.right) +
                        xn_planes_class(x, a.width, a.left, a.right);
    return fmaf((float)sum, __ldg(a.scale + o),
                __ldg(a.border + (int64_t)cls * c.out_channels + o));
}

__device__ __forceinline__ float stem_output(const stem_args &a, const uint8_t *image, int32_t o,
                                             int32_t y, int32_t x) {
    if (!a.pool)
        return stem_value(a, image, o, y, x);
    float most = -INFINITY;
#pragma unroll 1
    for (int32_t n = 0; n < 9; n++) {
        const int32_t at_y = 2 * y - 1 + n / 3, at_x = 2 * x - 1 + n % 3;
        if ((uint32_t)at_y < (uint32_t)a.height && (uint32_t)at_x < (uint32_t)a.width)
            most = fmaxf(most, stem_value(a, image, o, at_y, at_x));
    }
    return most;
}

/* A thread makes a unit of a pixel's bits, 32 filters of words or 8 of bytes. */
__global__ void __launch_bounds__(XN_CUDA_THREADS)
    stem_any_kernel(const __grid_constant__ stem_args a) {
    const xn_conv &c = a.conv;
    const int32_t each = a.bits_unit * 8;
    xn_let_next_kernel_start();
    xn_wait_for_previous_kernel();
    for (int64_t n = (int64_t)blockIdx.x * XN_CUDA_THREADS + threadIdx.x;
         n < a.images * a.plane * a.bits_pitch; n += (int64_t)gridDim.x * XN_CUDA_THREADS) {
        const int64_t pixel = n / a.bits_pitch, image = pixel / a.plane, at = pixel % a.plane;
        const int32_t first = (int32_t)(n % a.bits_pitch) * each;
        const int32_t y = (int32_t)(at / c.out_width), x = (int32_t)(at % c.out_width);
        const uint8_t *from = a.input + image * c.channels * c.height * c.width;
        const int64_t out = image * (c.out_channels * a.plane + a.e.output_gap) + at;
        uint32_t bits = 0;
#pragma unroll 1
        for (int32_t o = first; o < min(first + each, c.out_channels); o++) {
            const float v = xn_activate(a.e, o, stem_output(a, from, o, y, x));
            if (a.e.what.datatype == XN_FP16)
                ((__half *)a.e.output)[out + o * a.plane] = __float2half_rn(v);
            else if (a.e.what.datatype == XN_FP32)
                ((float *)a.e.output)[out + o * a.plane] = v;
            if (a.e.what.bits)
                bits |= xn_output_bit(a.e, o, v) << (o - first);
        }
        if (a.e.what.bits && a.bits_unit == 1)
            ((uint8_t *)a.e.bits)[n] = (uint8_t)bits;
        else if (a.e.what.bits)
            a.e.bits[n] = bits;
    }
}

/* ---- launch ---- */

static size_t tile_bytes(const stem_args *a) {
    const xn_conv *c = &a->conv;
    const int32_t rows = (2 * a->band + a->pool - 1) * c->stride_h + xn_stem_rows(c->kernel_h);
    return (size_t)rows * (size_t)a->pitch * sizeof(uint32_t) +
           (size_t)(STEM_WARPS * a->band * 8) * sizeof(float2);
}

/* Blocks for all multiprocessors three times, where there are rows for that, then columns: a block
 * of few rows or tiles makes more of them that its neighbour makes too. */
static void set_tiles(stem_args *a, int multiprocessors) {
    const xn_conv *c = &a->conv;
    /* Windows begin at even words, so that a lane reads two at once. */
    a->shift = c->pad_left % 2 && c->kernel_w < XN_STEM_COLUMNS;
    a->lead = c->pad_left + a->shift;
    a->quads = a->lead % 2 == 0 && c->channels == 3 && c->width % 4 == 0;
    if (a->quads)
        a->lead = (a->lead + 3) / 4 * 4;
    a->tiles = (a->width - 1) / STEM_TILE + 1;
    a->pitch = a->lead - c->pad_left - a->shift + (a->tiles * STEM_TILE - 1) * c->stride_w +
               XN_STEM_COLUMNS;
    a->pitch = (a->pitch + 3) / 4 * 4;
    a->pairs = a->pool ? c->out_height : (a->height - 1) / 2 + 1;
    const int32_t warps = c->out_channels / XN_STEM_FILTERS;
    a->filter_warps = warps >= 4 ? 4 : warps >= 2 ? 2 : 1;
    const int64_t images = a->images * ((warps - 1) / a->filter_warps + 1);
    const int64_t enough = 3 * (int64_t)multiprocessors;
    for (a->band = MOST_BAND;; a->band = (a->band + 1) / 2) {
        a->bands = (a->pairs - 1) / a->band + 1;
        if (a->band == 1 || (tile_bytes(a) <= GOOD_BYTES && images * a->bands >= enough))
            break;
    }
    const int64_t parts = enough / std::max<int64_t>(images * a->bands, 1);
    a->across = (int32_t)((a->tiles - 1) / std::max<int64_t>(parts, 1) + 1);
    a->bits_pitch =
        (int32_t)(a->bits_unit == 1 ? c->out_channels / 8 : xn_packed_words(c->out_channels) * 4);
    a->none = (a->left + 1 + a->right) * c->out_channels;
    a->even_rows[0] = (a->top + 2) / 2;            /* 2 y - 1 >= top */
    a->even_rows[1] = (a->height - a->bottom) / 2; /* 2 y + 1 < height - bottom */
    a->even_tiles[0] = (a->left + STEM_TILE - 1) / STEM_TILE;
    a->even_tiles[1] = (a->width - a->right) / STEM_TILE;
}

static stem_args args_of(const xn_step *step) {
    const xn_conv *c = &step->conv;
    stem_args a = {};
    a.conv = *c;
    a.height = step->stem_height;
    a.width = step->stem_width;
    a.pool = step->pool;
    a.nhwc = step->input_layout == XN_LAYOUT_NHWC;
    a.plane = (int64_t)c->out_height * c->out_width;
    a.bits_unit = step->bits_layout == XN_LAYOUT_BYTES && c->epilogue.bits ? 1 : 4;
    return a;
}

bool xn_cuda_stem_has_tiles(const xn_step *step, const xn_cuda_chip *chip) {
    const xn_conv *c = &step->conv;
    stem_args a = args_of(step);
    if (!chip->matrix || c->channels > XN_STEM_CHANNELS || c->kernel_w > XN_STEM_COLUMNS ||
        c->kernel_h > ROWS_LARGE || c->dilation_h > 1 || c->dilation_w > 1 || c->stride_h > 4 ||
        c->stride_w > 4 || c->out_channels % XN_STEM_FILTERS ||
        (int64_t)c->height * c->width > INT32_MAX / XN_STEM_CHANNELS || a.plane > INT32_MAX / 16 ||
        a.width > MOST_COLUMNS || c->pad_top > MOST_COLUMNS || c->pad_left > MOST_COLUMNS)
        return false;
    set_tiles(&a, chip->multiprocessors); /* of no images: the smallest band */
    return tile_bytes(&a) <= SHARED_BYTES;
}

typedef void (*stem_function)(const stem_args);
#define KERNELS(planes, rows, stride)                                                              \
    { stem_kernel<planes, rows, stride, false>, stem_kernel<planes, rows, stride, true> }
static const stem_function kernels[2][2][2][2] = {
    /* by planes, rows of taps, whether both strides are 2, pool */
    {{KERNELS(2, ROWS_SMALL, 0), KERNELS(2, ROWS_SMALL, 2)},
     {KERNELS(2, ROWS_LARGE, 0), KERNELS(2, ROWS_LARGE, 2)}},
    {{KERNELS(3, ROWS_SMALL, 0), KERNELS(3, ROWS_SMALL, 2)},
     {KERNELS(3, ROWS_LARGE, 0), KERNELS(3, ROWS_LARGE, 2)}},
};

/* Whether neighbouring outputs of a row, two with a pool and else four, may be stored at once. */
static bool have_vectors(const stem_args *a) {
    const int32_t each = a->pool ? 2 : 4, bytes = a->e.what.datatype == XN_FP16 ? 2 : 4;
    return a->conv.out_width % each == 0 && a->e.output_gap % each == 0 &&
           (uintptr_t)a->e.output % (uintptr_t)(each * bytes) == 0;
}

cudaError_t xn_cuda_stem_launch(const xn_step *step, int64_t images, const xn_cuda_chip *chip,
                                const xn_cuda_stem_io *io, const xn_epilogue_args *epilogue,
                                cudaStream_t stream) {
    const xn_conv *c = &step->conv;
    stem_args a = args_of(step);
    bool overlapped = chip->overlaps;
    a.e = *epilogue;
    a.e.what = c->epilogue;
    a.input = (const uint8_t *)io->input + step->input_view.offset;
    a.filters = io->filters;
    a.border = io->border;
    a.scale = io->scale;
    a.count = io->planes->count;
    a.top = io->planes->top;
    a.bottom = io->planes->bottom;
    a.left = io->planes->left;
    a.right = io->planes->right;
    a.images = images;
    if (!xn_cuda_stem_has_tiles(step, chip)) {
        a.bits_pitch = a.bits_unit == 1 ? (c->out_channels + 7) / 8
                                        : (int32_t)xn_packed_words(c->out_channels);
        const int64_t units = images * a.plane * a.bits_pitch;
        return xn_cuda_launch_with(stem_any_kernel, xn_cuda_grid(units, XN_CUDA_THREADS),
                                   XN_CUDA_THREADS, 0, overlapped, stream, a);
    }
    set_tiles(&a, chip->multiprocessors);
    if (c->epilogue.bits && a.bits_unit > 1 && a.bits_pitch * 8 != c->out_channels) {
        const cudaError_t e = xn_clear_bits(c, images, &a.e, stream); /* words that only pad */
        overlapped = false;
        if (e != cudaSuccess)
            return e;
    }
    a.vectors = have_vectors(&a);
    a.quads = a.quads && (uintptr_t)a.input % 4 == 0;
    const int32_t filters = a.filter_warps * XN_STEM_FILTERS;
    const dim3 grid((unsigned)(images * a.bands), (unsigned)((c->out_channels - 1) / filters + 1),
                    (unsigned)((a.tiles - 1) / a.across + 1));
    const bool even = c->stride_h == 2 && c->stride_w == 2;
    return xn_cuda_launch_with(kernels[a.count - 2][c->kernel_h > ROWS_SMALL][even][a.pool], grid,
                               STEM_WARPS * 32, tile_bytes(&a), overlapped, stream, a);
}

cudaError_t xn_cuda_stem_load(void) {
    cudaError_t e = xn_cuda_load(stem_any_kernel);
    const stem_function *all = &kernels[0][0][0][0];
    for (size_t n = 0; n < sizeof kernels / sizeof *all; n++)
        if (e == cudaSuccess)
            e = xn_cuda_load_with(all[n], SHARED_BYTES);
    return e;
}
