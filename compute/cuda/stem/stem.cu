/* stem.cu: which kernel runs a stem, and its launch; the kernel for any geometry. */
#include "stem_wide.cuh"

#include <algorithm>
#include <cmath>

enum {
    ROWS_LARGE = 7,
    ROWS_SMALL = 3,          /* rows of taps that tile kernels are compiled for */
    SHARED_BYTES = 96 << 10, /* of a block */
    GOOD_BYTES = 75 << 10,   /* so that three blocks lie beside each other */
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
    return ((size_t)a->lines * (size_t)a->pitch +
            STEM_WARPS * (STEM_KEPT * 128 + 16 * ((size_t)a->band + 1))) *
           sizeof(uint32_t);
}

static void set_band(stem_args *a, int32_t band) {
    const xn_conv *c = &a->conv;
    const int32_t rows = (2 * band + a->pool - 1) * c->stride_h + xn_stem_rows(c->kernel_h);
    a->band = band;
    a->bands = (a->pairs - 1) / band + 1;
    a->lines = (rows + 1) / 4 * 4 + 2; /* all banks for 6 neighbours of two rows */
}

/* What a multiprocessor spends, in pairs of rows of a tile, on blocks of a mean size: each loads
 * filters and picture, begins each tile with the row above its band, and makes the tile to its left
 * once more. Two blocks take as long as one, which waits for its own latencies. */
static double work(const stem_args *a, int64_t images, int multiprocessors) {
    const int32_t across = (a->tiles - 1) / a->across + 1, parts = STEM_WARPS / a->filter_warps;
    const int64_t blocks = images * a->bands * across;
    const double tiles = (double)(a->tiles + across - 1) / across;
    const double block = tiles * ((a->band + parts - 1) / parts + 0.9) + 3.0;
    return block * std::max(2.5, std::ceil((double)blocks / multiprocessors));
}

static void set_tiles(stem_args *a, int multiprocessors) {
    const xn_conv *c = &a->conv;
    a->shift = xn_stem_shift(c);
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
    const int64_t blocks = a->images * ((warps - 1) / a->filter_warps + 1); /* of a whole image */
    double least = 0.0;
    for (int32_t band = 1; band <= std::min<int32_t>(a->pairs, MOST_BAND); band++)
        for (int32_t parts = 1; parts <= a->tiles; parts++) {
            stem_args some = *a;
            set_band(&some, band);
            some.across = (a->tiles - 1) / parts + 1;
            const double cost = work(&some, blocks, multiprocessors);
            if ((band == 1 && parts == 1) || (tile_bytes(&some) <= GOOD_BYTES && cost < least)) {
                *a = some;
                least = cost;
            }
        }
    a->bits_pitch =
        (int32_t)(a->bits_unit == 1 ? c->out_channels / 8 : xn_packed_words(c->out_channels) * 4);
    a->none = (a->left + 1 + a->right) * c->out_channels;
    a->even_rows[0] = (a->top + 2) / 2;            /* 2 y - 1 >= top */
    a->even_rows[1] = (a->height - a->bottom) / 2; /* 2 y + 1 < height - bottom */
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

/* Whole tiles of columns, whose borders differ only where a lane has them: in a tile's first two
 * columns and its last. */
bool xn_cuda_stem_is_wide(const xn_step *step, const xn_cuda_chip *chip) {
    const xn_conv *c = &step->conv;
    const int32_t width = step->stem_width;
    return chip->wgmma && xn_cuda_stem_has_tiles(step, chip) && step->pool && c->channels == 3 &&
           c->stride_h == 2 && c->stride_w == 2 && c->pad_left <= 4 && width >= WIDE_COLUMNS &&
           width % 2 == 0 && c->kernel_w < XN_STEM_COLUMNS &&
           2 * (width - 2) - c->pad_left + c->kernel_w <= c->width && c->width % 4 == 0 &&
           step->input_view.offset % 4 == 0 && c->out_channels % XN_STEM_WIDE_FILTERS == 0;
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

/* Whether `each` neighbouring outputs of a row may be stored at once. */
static bool have_vectors(const stem_args *a, int32_t each) {
    const int32_t bytes = a->e.what.datatype == XN_FP16 ? 2 : 4;
    return a->conv.out_width % each == 0 && a->e.output_gap % each == 0 &&
           (uintptr_t)a->e.output % (uintptr_t)(each * bytes) == 0;
}

static cudaError_t launch_wide(stem_args *a, const xn_cuda_chip *chip, bool overlapped,
                               cudaStream_t stream) {
    const int32_t tiles = (a->width - WIDE_COLUMNS + 95) / 96 + 1;
    const int32_t filters = a->conv.out_channels / XN_STEM_WIDE_FILTERS;
    const int64_t rows = a->images * a->conv.out_height;
    const int64_t places = (int64_t)chip->multiprocessors * (a->count == 2 ? 3 : 2);
    a->band = (int32_t)((rows * filters * tiles - 1) / places + 1);
    a->row_bytes = a->conv.width * (a->nhwc ? 3 : 1);
    a->word_bytes = a->nhwc ? 256 : a->conv.height * a->conv.width;
    a->vectors = have_vectors(a, 8);
    const dim3 grid((unsigned)((rows - 1) / a->band + 1), (unsigned)filters, (unsigned)tiles);
    return xn_cuda_launch_with(a->count == 2 ? stem_wide_kernel<2> : stem_wide_kernel<3>, grid,
                               WIDE_THREADS, WIDE_DYNAMIC + (size_t)a->count * WIDE_PLANE,
                               overlapped, stream, *a);
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
    a.quads = a.quads && (uintptr_t)a.input % 4 == 0;
    if (xn_cuda_stem_is_wide(step, chip))
        return launch_wide(&a, chip, overlapped, stream);
    a.vectors = have_vectors(&a, a.pool ? 2 : 4);
    const int32_t filters = a.filter_warps * XN_STEM_FILTERS;
    const dim3 grid((unsigned)(images * a.bands), (unsigned)((c->out_channels - 1) / filters + 1),
                    (unsigned)((a.tiles - 1) / a.across + 1));
    const bool even = c->stride_h == 2 && c->stride_w == 2;
    return xn_cuda_launch_with(kernels[a.count - 2][c->kernel_h > ROWS_SMALL][even][a.pool], grid,
                               STEM_WARPS * 32, tile_bytes(&a), overlapped, stream, a);
}

cudaError_t xn_cuda_stem_load(const xn_cuda_chip *chip) {
    bool usable = true;
    cudaError_t e = xn_cuda_load(stem_any_kernel);
    if (e == cudaSuccess && chip->wgmma)
        e = xn_cuda_load_wgmma(stem_wide_kernel<2>, WIDE_DYNAMIC + 2 * WIDE_PLANE, &usable);
    if (e == cudaSuccess && chip->wgmma)
        e = xn_cuda_load_wgmma(stem_wide_kernel<3>, WIDE_DYNAMIC + 3 * WIDE_PLANE, &usable);
    const stem_function *all = &kernels[0][0][0][0];
    for (size_t n = 0; chip->matrix && n < sizeof kernels / sizeof *all; n++)
        if (e == cudaSuccess)
            e = xn_cuda_load_with(all[n], SHARED_BYTES);
    return e;
}
