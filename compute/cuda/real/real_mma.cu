/* real_mma.cu: modes bwn and float as an implicit GEMM on the matrix units of sm_80 and later, in
 * fp16 or tf32 with sums in fp32 (xn_conv.h says what that means for results).
 *
 *   C[filter, pixel] = sum over k of filters[filter][k] * pixels[window of pixel][k]
 *
 * for one group: M = its filters, N = the output pixels of all images, K = taps times channels
 * (real_mma.h has the layout, real_mma_pack.cu makes it). The image has its border in memory, so a
 * window's values are at one offset from its start for all pixels: a copy is an addition. Copies
 * run STAGES - 1 steps of 128 bytes ahead of the matrix instructions; one barrier a step.
 *
 * A block has all of K for its tile, so sums are the same in any batch. */
#include "launch.cuh"
#include "mma_gemm.cuh"
#include "real.h"
#include "real_mma.h"
#include "real_value.cuh"

#include <iterator>

static_assert(XN_CUDA_MMA_STEP_BYTES == XN_MMA_STEP_BYTES, "rows are whole steps");

struct mma_args : xn_mma_args {
    const int32_t *exponent;
    int32_t group_plane; /* units of the pixels of one group */
    int32_t padded_w;
};

/* fp16 or tf32, from an image with its border in memory, in which a window is a unit's number. */
template <int P, int UNIT_BYTES, class Tile>
struct mma_form {
    enum { PRECISION = P, UNIT = UNIT_BYTES, VECTOR = 4 };
    static constexpr bool WHOLE = true, HELD = true, TURNED = false;
    typedef mma_args args;
    typedef Tile tile;
    typedef float sum;
    typedef xn_filter filter;
    typedef int32_t window;
    struct pixel {};
    struct tap {
        int32_t units; /* from the window's first */
        bool exists;
    };

    static __device__ __forceinline__ filter filter_of(const args &a, int64_t o) {
        return xn_filter_with_exponent(a.out, a.exponent, o);
    }
    static __device__ __forceinline__ pixel pixel_of(const args &, int32_t, int32_t) {
        return {};
    }
    static __device__ __forceinline__ window window_of(const args &a, int32_t group, int32_t p) {
        const xn_conv &c = a.conv;
        const int32_t rest = p % a.plane;
        return (p / a.plane * c.groups + group) * a.group_plane +
               (rest / c.out_width * c.stride_h * a.padded_w + rest % c.out_width * c.stride_w) *
                   a.tap_units;
    }
    static __device__ __forceinline__ tap tap_of(const args &a, int32_t i, int32_t j,
                                                 int32_t unit) {
        const xn_conv &c = a.conv;
        tap t = {0, i < c.kernel_h};
        if (t.exists)
            t.units = (i * c.dilation_h * a.padded_w + j * c.dilation_w) * a.tap_units + unit;
        return t;
    }
    static __device__ __forceinline__ const char *source(const args &a, window w, const tap &t,
                                                         bool *exists) {
        *exists = t.exists;
        return a.pixels + (int64_t)(w + t.units) * UNIT;
    }
    static __device__ __forceinline__ void multiply(float (&acc)[4], const uint32_t (&a)[4],
                                                    const uint32_t *b) {
        xn_mma_real<PRECISION == XN_PRECISION_FP16>(acc, a, b);
    }
    static __device__ __forceinline__ float value(const args &a, const filter &f, int64_t o,
                                                  const pixel &, float acc) {
        return xn_sum_value(a.out, a.exponent, f, o, acc);
    }
    static __device__ __forceinline__ float raw_of(const args &, const filter &, int64_t,
                                                   const pixel &, float acc) {
        return acc;
    }
    static __device__ __forceinline__ float *raw(const args &) {
        return NULL;
    }
};

/* ---- launcher ---- */

typedef void (*mma_function)(const mma_args);

enum { FP16_8, FP16_16, TF32_16, FORMS };
struct mma_variant {
    int32_t filters, pixels, threads;
    int32_t resident; /* blocks on a multiprocessor */
    int32_t weight;   /* time of a multiply-add, in percent of the first's */
    size_t (*shared_bytes)(int32_t steps);
    mma_function by_form[FORMS];
};

#define FORM(PRECISION, UNIT, ...) mma_form<PRECISION, UNIT, xn_mma_tile<__VA_ARGS__>>
#define VARIANT(BLOCKS, WEIGHT, ...)                                                               \
    {                                                                                              \
        xn_mma_tile<__VA_ARGS__>::FILTERS, xn_mma_tile<__VA_ARGS__>::PIXELS,                       \
            xn_mma_tile<__VA_ARGS__>::THREADS, BLOCKS, WEIGHT,                                     \
            xn_mma_shared<FORM(XN_PRECISION_FP16, 16, __VA_ARGS__)>::bytes_of, {                   \
            xn_mma_kernel<FORM(XN_PRECISION_FP16, 8, __VA_ARGS__), BLOCKS>,                        \
                xn_mma_kernel<FORM(XN_PRECISION_FP16, 16, __VA_ARGS__), BLOCKS>,                   \
                xn_mma_kernel<FORM(XN_PRECISION_TF32, 16, __VA_ARGS__), BLOCKS>                    \
        }                                                                                          \
    }
/* From the least traffic an operation to the most blocks; of the last, whose blocks have all of
 * 512 channels on their way at once, are the last layers of few images. The weights are measured.
 * All fit the 99 KiB of sm_86 and sm_89. */
static const mma_variant variants[] = {
    VARIANT(2, 100, 128, 128, 64, 64, 3),
    VARIANT(3, 115, 64, 128, 32, 64, 3),
    VARIANT(3, 135, 64, 64, 32, 32, 4),
    VARIANT(4, 400, 16, 32, 16, 16, 9),
};
static int64_t blocks_of(const xn_conv *c, const mma_variant *v, int64_t images) {
    return xn_mma_blocks(c, images, v->filters, v->pixels);
}

/* The time of a problem by that tile, in multiply-adds of the first. A multiprocessor takes its
 * blocks in rounds of as many as are resident; fewer in the last round hide less of each other's
 * waiting, so half of its time stays. */
static double time_of(const xn_conv *c, const mma_variant *v, int64_t images, int multiprocessors) {
    const int64_t blocks = (blocks_of(c, v, images) - 1) / multiprocessors + 1;
    const int64_t last = blocks % v->resident;
    const double rounds = (double)(blocks - last) + (last ? (v->resident + last) / 2.0 : 0.0);
    return rounds * v->filters * v->pixels * v->weight;
}

static const mma_variant *choose_variant(const xn_conv *c, int64_t images, int multiprocessors) {
    const mma_variant *best = variants;
    for (const mma_variant &v : variants)
        if (time_of(c, &v, images, multiprocessors) < time_of(c, best, images, multiprocessors))
            best = &v;
    return best;
}

bool xn_cuda_real_mma_fits(const xn_conv *c, int64_t images) {
    const int64_t units =
        xn_cuda_mma_positions(c) * xn_cuda_mma_tap_units(c->precision, c->group_channels);
    const int64_t row =
        xn_cuda_mma_row_bytes(c->precision, c->group_channels, (int64_t)c->kernel_h * c->kernel_w);
    const int64_t outputs = (int64_t)c->out_height * c->out_width;
    return c->mode != XN_MODE_XNOR && c->precision != XN_PRECISION_FP32 &&
           row / XN_MMA_STEP_BYTES < INT32_MAX / 16 - 16 &&
           units <= INT32_MAX / images / c->groups && outputs <= (INT32_MAX - 256) / images &&
           blocks_of(c, std::end(variants) - 1, images) <= INT32_MAX;
}

static mma_args arguments(const xn_conv *c, int64_t images, const xn_cuda_real_io *io,
                          const xn_epilogue_args *epilogue, const mma_variant *v) {
    mma_args a = {};
    a.conv = *c;
    a.pixels = (const char *)io->pixels;
    a.filters = (const char *)io->weights;
    a.exponent = io->exponent;
    a.out = xn_epilogue_of(c, epilogue);
    a.row_bytes =
        xn_cuda_mma_row_bytes(c->precision, c->group_channels, (int64_t)c->kernel_h * c->kernel_w);
    a.padded_w = c->width + c->pad_left + c->pad_right;
    a.tap_units = xn_cuda_mma_tap_units(c->precision, c->group_channels);
    a.group_plane = (int32_t)xn_cuda_mma_positions(c) * a.tap_units;
    xn_mma_cut(&a, images, v->filters, v->pixels);
    return a;
}

/* Whether the input lies as pixels do: planes of one pixel, in units without padding. */
static bool is_packed(const xn_conv *c, const void *input) {
    const int32_t unit = xn_cuda_mma_unit_bytes(c->precision, c->group_channels);
    return c->precision == XN_PRECISION_FP16 && c->input_datatype == XN_FP16 &&
           xn_cuda_mma_positions(c) == 1 && c->group_channels * 2 % unit == 0 &&
           (uintptr_t)input % 16 == 0;
}

cudaError_t xn_cuda_real_mma_launch(const xn_conv *conv, int64_t images, int multiprocessors,
                                    const xn_cuda_real_io *io, const xn_epilogue_args *epilogue,
                                    cudaStream_t stream) {
    const bool packed = is_packed(conv, io->input);
    if (xn_cuda_real_pointwise_takes(conv, images, io, epilogue))
        return xn_cuda_real_pointwise_launch(conv, images, multiprocessors, io, epilogue, stream);
    const mma_variant *v = choose_variant(conv, images, multiprocessors);
    const int64_t blocks = blocks_of(conv, v, images);
    mma_args a = arguments(conv, images, io, epilogue, v);
    const int form = conv->precision == XN_PRECISION_TF32                                 ? TF32_16
                     : xn_cuda_mma_unit_bytes(conv->precision, conv->group_channels) == 8 ? FP16_8
                                                                                          : FP16_16;
    cudaError_t e = cudaSuccess;
    if (packed)
        a.pixels = (const char *)io->input;
    else
        e = xn_cuda_mma_pack_launch(conv, images, io->input, io->pixels, io->overlapped, stream);
    if (e == cudaSuccess && !xn_has_half_words(*conv))
        e = xn_clear_bits(conv, images, epilogue, stream);
    if (e == cudaSuccess)
        e = xn_cuda_launch_with(v->by_form[form], (unsigned)blocks, v->threads,
                                v->shared_bytes(a.steps), io->overlapped, stream, a);
    return e;
}

cudaError_t xn_cuda_real_mma_load(bool *) {
    cudaError_t e = xn_cuda_mma_pack_load();
    if (e == cudaSuccess)
        e = xn_cuda_real_pointwise_load();
    for (const mma_variant &v : variants)
        for (mma_function kernel : v.by_form)
            if (e == cudaSuccess)
                e = xn_cuda_load_with(kernel, v.shared_bytes(INT32_MAX));
    return e;
}
