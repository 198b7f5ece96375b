/* implicit_gemm.cu: mode xnor as an implicit GEMM over bits (mma_gemm.cuh), for the matrix units of
 * sm_80 and later.
 *
 *   C[filter, pixel] = sum over words of popc(row[filter][word] and patch[pixel][word])
 *
 * Rows are whole parts of 256 bits (layout.h). A patch's words are copied in units of a tap's
 * words, straight from the packed activations; a unit outside the image is zero. What else makes a
 * dot of a count is a pixel's part (box.cu) and a filter's, which at the border depends on the
 * pixel.
 *
 * Bound by the matrix units for many channels, by writing the output for few. */
#include "bits_path.h"
#include "launch.cuh"
#include "layout.h"
#include "mma_gemm.cuh"

enum { MAX_KERNEL = 255 /* tap numbers fit a byte */ };

struct gemm_args : xn_mma_args {
    xn_cuda_bit_args bits;
};

/* Units of VEC words. */
template <int VEC, class Tile>
struct gemm_form {
    enum { UNIT = VEC * 4, VECTOR = 1 };
    static constexpr bool WHOLE = false, HELD = false, TURNED = false;
    typedef gemm_args args;
    typedef Tile tile;
    typedef int32_t sum;
    struct filter {
        xn_filter constants;
        int32_t popc; /* of all taps */
    };
    struct pixel {
        int32_t number, part;
        float box;
        uint8_t i0, i1, j0, j1; /* the taps inside */
    };
    struct window {
        uint32_t unit;  /* of its first tap, maybe outside: modulo 2^32 */
        int32_t y0, x0; /* where that is */
    };
    struct tap {
        uint32_t unit;
        int32_t dy, dx;
        bool exists;
    };

    static __device__ __forceinline__ filter filter_of(const args &a, int64_t o) {
        const int64_t last = (int64_t)(a.conv.kernel_h + 1) * (a.conv.kernel_w + 1) - 1;
        return {xn_filter_of(a.out, o), a.bits.prefix[last * a.conv.out_channels + o]};
    }
    /* Image and group of pixel p. */
    static __device__ __forceinline__ int32_t plane_of(const args &a, int32_t group, int32_t p) {
        return p / a.plane * a.conv.groups + group;
    }
    static __device__ __forceinline__ pixel pixel_of(const args &a, int32_t group, int32_t p) {
        const xn_conv &c = a.conv;
        const int32_t rest = p % a.plane;
        const int64_t at = (int64_t)plane_of(a, group, p) * a.plane + rest;
        const xn_cuda_rect r = xn_cuda_valid_rect(&c, rest / c.out_width, rest % c.out_width);
        return {p,
                a.bits.pixel_part[at],
                a.bits.box ? a.bits.box[at] : 1.0f,
                (uint8_t)r.i0,
                (uint8_t)r.i1,
                (uint8_t)r.j0,
                (uint8_t)r.j1};
    }
    static __device__ __forceinline__ window window_of(const args &a, int32_t group, int32_t p) {
        const xn_conv &c = a.conv;
        const int32_t rest = p % a.plane;
        const int32_t y0 = rest / c.out_width * c.stride_h - c.pad_top;
        const int32_t x0 = rest % c.out_width * c.stride_w - c.pad_left;
        const uint32_t line = (uint32_t)plane_of(a, group, p) * (uint32_t)c.height + (uint32_t)y0;
        return {(line * (uint32_t)c.width + (uint32_t)x0) * (uint32_t)a.tap_units, y0, x0};
    }
    static __device__ __forceinline__ tap tap_of(const args &a, int32_t i, int32_t j,
                                                 int32_t unit) {
        const xn_conv &c = a.conv;
        const bool exists = i < c.kernel_h;
        const int32_t dy = exists ? i * c.dilation_h : 0, dx = j * c.dilation_w;
        const uint32_t pixel = (uint32_t)dy * (uint32_t)c.width + (uint32_t)dx;
        return {pixel * (uint32_t)a.tap_units + (uint32_t)unit, dy, dx, exists};
    }
    static __device__ __forceinline__ const char *source(const args &a, const window &w,
                                                         const tap &t, bool *exists) {
        *exists = t.exists && (uint32_t)(w.y0 + t.dy) < (uint32_t)a.conv.height &&
                  (uint32_t)(w.x0 + t.dx) < (uint32_t)a.conv.width;
        return a.pixels + (*exists ? (uint64_t)(w.unit + t.unit) * UNIT : 0);
    }
    static __device__ __forceinline__ void multiply(int32_t (&acc)[4], const uint32_t (&a)[4],
                                                    const uint32_t *b) {
        xn_mma_and_popc(acc, a, b);
    }
    static __device__ __forceinline__ int32_t raw_of(const args &a, const filter &f, int64_t o,
                                                     const pixel &p, int32_t count) {
        const xn_conv &c = a.conv;
        const xn_cuda_rect rect = {p.i0, p.i1, p.j0, p.j1};
        int32_t inside = f.popc;
        if (xn_cuda_rect_taps(&rect) < c.kernel_h * c.kernel_w)
            inside = xn_cuda_rect_popc(a.bits.prefix + o, c.out_channels, c.kernel_w, &rect);
        return xn_cuda_dot(p.part, xn_cuda_filter_part(c.pad_value, inside, f.popc - inside),
                           count);
    }
    static __device__ __noinline__ float value_again(const args &a, int64_t o, int32_t number,
                                                     int32_t dot, float box) {
        const xn_conv &c = a.conv;
        const int32_t group = (int32_t)(o / c.group_out_channels), rest = number % a.plane;
        const float *means = a.bits.mean + (int64_t)plane_of(a, group, number) * c.height * c.width;
        return xn_value_again(
            a.out, o, dot,
            isinf(box) ? xn_box_of_means<double>(c, means, rest / c.out_width, rest % c.out_width)
                       : (double)box);
    }
    static __device__ __forceinline__ float value(const args &a, const filter &f, int64_t o,
                                                  const pixel &p, int32_t count) {
        const int32_t dot = raw_of(a, f, o, p, count);
        const float v = xn_value((float)dot, p.box, f.constants);
        return isfinite(v) ? v : value_again(a, o, p.number, dot, p.box);
    }
    static __device__ __forceinline__ int32_t *raw(const args &a) {
        return a.out.what.datatype == XN_INT32 ? (int32_t *)a.out.output : NULL;
    }
};

/* ---- launcher ---- */

typedef void (*gemm_function)(const gemm_args);

struct gemm_variant {
    int32_t filters, pixels, threads;
    size_t (*shared_bytes)(int32_t steps);
    gemm_function by_vec[3]; /* units of 1, 2, 4 words */
};

#define FORM(VEC, ...) gemm_form<VEC, xn_mma_tile<__VA_ARGS__>>
#define VARIANT(BLOCKS, ...)                                                                       \
    {                                                                                              \
        xn_mma_tile<__VA_ARGS__>::FILTERS, xn_mma_tile<__VA_ARGS__>::PIXELS,                       \
            xn_mma_tile<__VA_ARGS__>::THREADS, xn_mma_shared<FORM(4, __VA_ARGS__)>::bytes_of, {    \
            xn_mma_kernel<FORM(1, __VA_ARGS__), BLOCKS>,                                           \
                xn_mma_kernel<FORM(2, __VA_ARGS__), BLOCKS>,                                       \
                xn_mma_kernel<FORM(4, __VA_ARGS__), BLOCKS>                                        \
        }                                                                                          \
    }
/* From the least traffic per operation to the most blocks. */
static const gemm_variant variants[] = {
    VARIANT(2, 128, 128, 64, 32, 2),
    VARIANT(4, 64, 64, 32, 32, 3),
    VARIANT(4, 32, 32, 16, 16, 4),
};
enum { VARIANTS = 3 };

static int64_t blocks_of(const xn_conv *c, const gemm_variant *v, int64_t images) {
    return xn_mma_blocks(c, images, v->filters, v->pixels);
}

/* The largest tile that is not mostly empty and gives every multiprocessor a block. */
static const gemm_variant *choose_variant(const xn_conv *c, int64_t images, int multiprocessors) {
    for (int i = 0; i < VARIANTS - 1; i++)
        if (c->group_out_channels > variants[i].filters / 2 &&
            blocks_of(c, &variants[i], images) >= multiprocessors)
            return &variants[i];
    return &variants[VARIANTS - 1];
}

bool xn_cuda_implicit_gemm_fits(const xn_conv *c, int64_t images) {
    const int64_t words = (int64_t)c->height * c->width * xn_packed_words(c->group_channels);
    const int64_t outputs = (int64_t)c->out_height * c->out_width;
    return c->kernel_h <= MAX_KERNEL && c->kernel_w <= MAX_KERNEL &&
           words <= INT32_MAX / images / c->groups && outputs <= (INT32_MAX - 256) / images &&
           blocks_of(c, &variants[VARIANTS - 1], images) <= INT32_MAX;
}

cudaError_t xn_cuda_implicit_gemm_launch(const xn_conv *conv, int64_t images, int multiprocessors,
                                         const xn_cuda_bit_args *bits,
                                         const xn_epilogue_args *epilogue, cudaStream_t stream) {
    const gemm_variant *v = choose_variant(conv, images, multiprocessors);
    const int32_t words = xn_packed_words(conv->group_channels), vec = words < 4 ? words : 4;
    gemm_args a = {};
    a.conv = *conv;
    a.bits = *bits;
    a.out = xn_epilogue_of(conv, epilogue);
    a.pixels = (const char *)bits->bits;
    a.filters = (const char *)bits->rows;
    a.row_bytes = xn_cuda_row_words(conv->group_channels, conv->kernel_h, conv->kernel_w) * 4;
    a.tap_units = words / vec;
    xn_mma_cut(&a, images, v->filters, v->pixels);
    const cudaError_t e =
        xn_has_half_words(*conv) ? cudaSuccess : xn_clear_bits(conv, images, epilogue, stream);
    if (e != cudaSuccess)
        return e;
    return xn_cuda_launch(v->by_vec[vec / 2], (int)blocks_of(conv, v, images), v->threads,
                          v->shared_bytes(a.steps), stream, a);
}

cudaError_t xn_cuda_implicit_gemm_load(bool *) {
    cudaError_t e = cudaSuccess;
    for (const gemm_variant &v : variants)
        for (gemm_function kernel : v.by_vec)
            if (e == cudaSuccess)
                e = xn_cuda_load_with(kernel, v.shared_bytes(INT32_MAX));
    return e;
}
