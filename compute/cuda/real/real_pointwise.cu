/* real_pointwise.cu: modes bwn and float in fp16 where kernels are 1x1 and read whole planes of
 * fp16: a GEMM by mma.sync that takes the input as it lies, so no pass lays it channels-last.
 *
 *   C[filter, pixel] = sum over k of filters[filter][k] * input[k][pixel]
 *
 * K = the channels of a group. It is the skeleton of mma_gemm.cuh but for the pixels of a stage,
 * which are 64 channels of the tile's pixels, pixels side by side: ldmatrix turns them. Sums are
 * those of real_mma.cu without splits, whatever the tile is. */
#include "real_pointwise.h"

#include "launch.cuh"
#include "mma_gemm.cuh"
#include "real_mma.h"
#include "real_value.cuh"

#include <type_traits>

enum { STEP_CHANNELS = XN_MMA_STEP_BYTES / 2 };

struct pointwise_args : xn_mma_args {
    const int32_t *exponent;
    xn_fast_divisor planes; /* by the outputs of a filter and image */
};

struct __align__(16) pointwise_filter : xn_filter {
    float shift, slope;
};

/* A copy moves UNIT_BYTES of neighbouring pixels. */
template <int UNIT_BYTES, class Tile>
struct pointwise_form {
    enum { UNIT = UNIT_BYTES, VECTOR = 4 };
    static constexpr bool WHOLE = true, HELD = true;
    typedef pointwise_args args;
    typedef Tile tile;
    typedef float sum;
    typedef pointwise_filter filter;
    struct window {};
    struct pixel {};

    static __device__ __forceinline__ filter filter_of(const args &a, int64_t o) {
        const xn_epilogue &what = a.out.what;
        filter f;
        (xn_filter &)f = xn_filter_with_exponent(a.out, a.exponent, o);
        f.shift = xn_bias_of(what.shift ? a.out.shift : NULL, o);
        f.slope = xn_factor_of(what.activation == XN_ACTIVATION_PRELU ? a.out.slope : NULL, o);
        return f;
    }
    static __device__ __forceinline__ pixel pixel_of(const args &, int32_t, int32_t) {
        return {};
    }
    static __device__ __forceinline__ window window_of(const args &, int32_t, int32_t) {
        return {};
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

/* Where 16 bytes of a channel are in a stage: the same 8 pixels of 8 neighbouring channels lie in 8
 * different places modulo 128 bytes. */
template <class Tile>
__device__ __forceinline__ uint32_t channel_at(int32_t channel, int32_t chunk) {
    return (uint32_t)(channel * Tile::PIXELS * 2 + ((chunk ^ (channel & 7)) << 4));
}

__device__ __forceinline__ void store_half(uint32_t to, uint16_t half) {
    asm volatile("st.shared.u16 [%0], %1;" ::"r"(to), "h"(half) : "memory");
}

/* What one thread copies of the pixels: one unit of every STRIDE-th channel. */
template <int UNIT_BYTES, class Tile>
struct xn_mma_pixel_loader<pointwise_form<UNIT_BYTES, Tile>> {
    static constexpr int EACH = UNIT_BYTES / 2, UNITS = Tile::PIXELS / EACH;
    static constexpr int STRIDE = Tile::THREADS / UNITS, COUNT = STEP_CHANNELS / STRIDE;
    static_assert(STRIDE % 8 == 0 || 8 % STRIDE == 0, "channel_at");
    const uint16_t *from;
    int32_t left; /* channels from the thread's first on; 0 past the last pixel */
    int32_t plane;
    uint32_t to;

    __device__ __forceinline__ void start(const pointwise_args &a,
                                          const typename pointwise_form<UNIT_BYTES, Tile>::window *,
                                          int32_t step) {
        const xn_conv &c = a.conv;
        const int32_t tile = (int32_t)blockIdx.x / a.tiles_m, group = tile / a.tiles_n;
        const int32_t channel = (int32_t)threadIdx.x / UNITS;
        const int32_t first = (int32_t)threadIdx.x % UNITS * EACH;
        const int32_t p = tile % a.tiles_n * Tile::PIXELS + first;
        const int32_t image = xn_divide(p, a.planes), k = step * STEP_CHANNELS + channel;
        plane = a.plane;
        left = p < a.pixel_count ? c.group_channels - k : 0;
        from = (const uint16_t *)a.pixels +
               ((int64_t)image * c.channels + (int64_t)group * c.group_channels + k) * plane +
               (p - image * plane);
        to = channel_at<Tile>(channel, first / 8) + first % 8 * 2;
    }
    /* The place of a thread's copy: where STRIDE divides 8, its first channel is less. */
    __device__ __forceinline__ uint32_t place(int r) const {
        return (to ^ (uint32_t)(r * STRIDE & 7) << 4) + r * STRIDE * Tile::PIXELS * 2;
    }
    __device__ __forceinline__ void copy(const pointwise_args &,
                                         const typename pointwise_form<UNIT_BYTES, Tile>::window *,
                                         uint32_t stage) {
        if constexpr (UNIT_BYTES >= 4) {
#pragma unroll
            for (int r = 0; r < COUNT; r++)
                xn_copy_async_at<UNIT_BYTES>(stage + place(r), from + (int64_t)r * STRIDE * plane,
                                             r * STRIDE < left);
        } else {
            copy_halves(stage);
        }
        from += (int64_t)STEP_CHANNELS * plane;
        left -= STEP_CHANNELS;
    }
    /* No copy in the background is as small: loads, a batch at once, then stores. */
    __device__ __forceinline__ void copy_halves(uint32_t stage) {
        constexpr int BATCH = 16;
#pragma unroll
        for (int first = 0; first < COUNT; first += BATCH) {
            uint32_t half[BATCH];
#pragma unroll
            for (int r = 0; r < BATCH; r++) {
                half[r] = 0;
                xn_load_2_if(half + r, from + (int64_t)(first + r) * STRIDE * plane,
                             (first + r) * STRIDE < left);
            }
#pragma unroll
            for (int r = 0; r < BATCH; r++)
                store_half(stage + place(first + r), (uint16_t)half[r]);
        }
    }
};

/* As xn_load_matrices; a lane gets of each matrix rows 2 (l % 4) and 2 (l % 4) + 1 of column l / 4.
 */
__device__ __forceinline__ void load_turned(uint32_t (&out)[4], uint32_t address) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 750
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "r"(address)
                 : "memory");
#endif
}

/* A step. filters: those of the warp; column: its first pixel. */
template <class Form>
__device__ __forceinline__ void multiply(uint32_t filters, uint32_t pixels, int32_t column,
                                         xn_mma_sums<Form> &acc) {
    typedef typename Form::tile tile;
    constexpr int M = tile::WARP_FILTERS / 16, N = tile::WARP_PIXELS / 16;
    const int32_t lane = (int32_t)threadIdx.x % 32;
#pragma unroll
    for (int k = 0; k < XN_MMA_STEP_BYTES / XN_MMA_PART_BYTES; k++) {
        uint32_t a[M][4], b[N][4];
        const uint32_t from_a = filters + xn_mma_at(lane & 15, k * 2 + (lane >> 4));
#pragma unroll
        for (int m = 0; m < M; m++)
            xn_load_matrices(a[m], from_a + m * 16 * XN_MMA_STEP_BYTES);
#pragma unroll
        for (int n = 0; n < N; n++)
            load_turned(b[n], pixels + channel_at<tile>(k * 16 + (lane & 15),
                                                        column / 8 + n * 2 + (lane >> 4)));
#pragma unroll
        for (int m = 0; m < M; m++)
#pragma unroll
            for (int n = 0; n < N; n++) {
                xn_mma_real<true>(acc[m][n * 2], a[m], b[n]);
                xn_mma_real<true>(acc[m][n * 2 + 1], a[m], b[n] + 2);
            }
    }
}

/* ---- the usual epilogue: residuals and outputs of fp16, bits in whole words ---- */

/* A warp's 32 filters by 32 pixels in shared memory, residuals and then outputs. Rows, of a filter,
 * are so far apart that a lane 4g + t has neither bank in common with another. */
template <int UNIT_BYTES>
struct usual_outputs {
    static constexpr int SIDE = 32, PITCH = 80, BYTES = SIDE * PITCH;
    static constexpr int EACH = UNIT_BYTES / 2, UNITS = SIDE / EACH, ROWS = 32 / UNITS;
    typedef typename std::conditional<UNIT_BYTES == 2, uint16_t, uint2>::type unit;
    char *rows;
    int32_t o, p;  /* the first filter and pixel */
    int32_t image; /* of the unit that the lane moves, of every ROWS-th filter */
    int64_t index; /* of the first */
    bool live;

    __device__ __forceinline__ usual_outputs(const pointwise_args &a, const xn_mma_place &at,
                                             int32_t m, int32_t n, char *of_warp) {
        const xn_conv &c = a.conv;
        const int32_t lane = (int32_t)threadIdx.x % 32, own = at.p0 + n + lane % UNITS * EACH;
        rows = of_warp;
        o = at.group * c.group_out_channels + at.m0 + m;
        p = at.p0 + n;
        live = own < a.pixel_count && at.m0 + m < c.group_out_channels;
        image = xn_divide(own, a.planes);
        index = ((int64_t)image * c.out_channels + o + lane / UNITS) * a.plane +
                (own - image * a.plane);
    }
    __device__ __forceinline__ char *unit_of(int r) const {
        const int32_t lane = (int32_t)threadIdx.x % 32;
        return rows + (lane / UNITS + r * ROWS) * PITCH + lane % UNITS * UNIT_BYTES;
    }

    /* Starts copying the residuals; halves arrive at once. */
    __device__ __forceinline__ void bring(const pointwise_args &a) const {
        const int64_t gap = (int64_t)image * a.out.residual_gap;
        const uint16_t *from = (const uint16_t *)a.out.residual + index + gap;
        if (!a.out.what.residual)
            return;
        if constexpr (UNIT_BYTES >= 4) {
#pragma unroll
            for (int r = 0; r < SIDE / ROWS; r++)
                xn_copy_async_at<UNIT_BYTES>(xn_shared_address(unit_of(r)),
                                             live ? from + (int64_t)r * ROWS * a.plane : from,
                                             live);
        } else {
            constexpr int BATCH = 16;
#pragma unroll
            for (int first = 0; first < SIDE; first += BATCH) {
                uint32_t half[BATCH] = {};
#pragma unroll
                for (int r = 0; r < BATCH; r++)
                    xn_load_2_if(half + r, from + (int64_t)(first + r) * a.plane, live);
#pragma unroll
                for (int r = 0; r < BATCH; r++)
                    *(uint16_t *)unit_of(first + r) = (uint16_t)half[r];
            }
        }
    }

    /* The outputs of the lane's pixels and of one of its filters, the warp's filter `row`; bit i of
     * the result is that of v[i]. */
    __device__ __forceinline__ uint32_t finish_row(const pointwise_args &a, int32_t row,
                                                   const pointwise_filter &f, const float (&sum)[8],
                                                   float (&v)[8]) const {
        const xn_epilogue &what = a.out.what;
        char *at = rows + row * PITCH + (int32_t)threadIdx.x % 4 * 4;
        bool finite = true;
#pragma unroll
        for (int i = 0; i < 8; i++) {
            v[i] = xn_value(sum[i], 1.0f, f);
            finite = finite && fabsf(v[i]) < INFINITY;
        }
        if (!finite)
#pragma unroll
            for (int i = 0; i < 8; i++)
                v[i] = xn_sum_value(a.out, a.exponent, f, o + row, sum[i]);
        if (what.residual)
#pragma unroll
            for (int i = 0; i < 8; i += 2) {
                const __half2 pair = *(const __half2 *)(at + i * 8);
                v[i] += __low2float(pair);
                v[i + 1] += __high2float(pair);
            }
        if (what.activation != XN_ACTIVATION_NONE) {
            const bool clips = what.activation == XN_ACTIVATION_CLIP;
            const float low = clips ? what.low : -INFINITY, high = clips ? what.high : INFINITY;
#pragma unroll
            for (int i = 0; i < 8; i++) {
                v[i] = v[i] >= 0.0f ? v[i] : v[i] * f.slope;
                v[i] = v[i] < low ? low : v[i];
                v[i] = v[i] > high ? high : v[i];
            }
        }
#pragma unroll
        for (int i = 0; i < 8; i += 2)
            *(uint32_t *)(at + i * 8) = xn_fp16_pair(v[i], v[i + 1]);
        uint32_t bits = 0;
        if (what.bits)
#pragma unroll
            for (int i = 0; i < 8; i++)
                bits |= xn_sign_bit(v[i] + f.shift) << i;
        return bits;
    }

    /* Bit 8 j + i of lane 4 g + t becomes bit 8 j + g of lane 4 i + t. */
    static __device__ __forceinline__ uint32_t turned(uint32_t bits) {
        static constexpr uint32_t LOW[3] = {0x55555555u, 0x33333333u, 0x0f0f0f0fu};
#pragma unroll
        for (int k = 0; k < 3; k++) {
            const bool upper = threadIdx.x >> (2 + k) & 1;
            const uint32_t kept = upper ? ~LOW[k] : LOW[k];
            const uint32_t other = __shfl_xor_sync(0xffffffffu, bits, 4 << k);
            bits = (bits & kept) | ((upper ? other >> (1 << k) : other << (1 << k)) & ~kept);
        }
        return bits;
    }

    template <class Form>
    __device__ __forceinline__ void write(const pointwise_args &a, const pointwise_filter *filters,
                                          const xn_mma_sums<Form> &acc) const {
        const int32_t lane = (int32_t)threadIdx.x % 32, g = lane / 4, t = lane % 4;
        uint32_t bits = 0;
#pragma unroll
        for (int j = 0; j < 4; j++) {
            float sum[8], v[8];
#pragma unroll
            for (int i = 0; i < 8; i++)
                sum[i] = acc[j / 2][i / 2][j % 2 * 2 + i % 2];
            bits |= finish_row(a, j * 8 + g, filters[j * 8 + g], sum, v) << 8 * j;
        }
        if (a.out.what.bits) {
            const int32_t pixel = p + g / 2 * 8 + t * 2 + g % 2;
            bits = turned(bits);
            if (pixel < a.pixel_count)
                a.out.bits[(int64_t)pixel * (a.conv.out_channels / 32) + o / 32] = bits;
        }
        if (a.out.what.datatype == XN_BITS)
            return;
        __half *to = (__half *)a.out.output + index + (int64_t)image * a.out.output_gap;
        __syncwarp();
#pragma unroll
        for (int r = 0; r < SIDE / ROWS; r++) {
            const unit value = *(const unit *)unit_of(r);
            if (live)
                *(unit *)(to + (int64_t)r * ROWS * a.plane) = value;
        }
    }
};

/* USUAL: that epilogue; then warps are of 32 by 32, and their outputs lie ahead of the stages. */
template <class Form, bool USUAL, int MIN_BLOCKS>
__global__ void __launch_bounds__(Form::tile::THREADS, MIN_BLOCKS)
    pointwise_kernel(const __grid_constant__ pointwise_args a) {
    typedef typename Form::tile tile;
    extern __shared__ __align__(1024) char memory[];
    typedef usual_outputs<Form::UNIT> outputs;
    xn_mma_shared<Form> &s =
        *(xn_mma_shared<Form> *)(memory + (USUAL ? tile::WARPS * outputs::BYTES : 0));
    constexpr int AHEAD = tile::STAGES - 1;
    const int32_t warp = (int32_t)threadIdx.x / 32, first = tile::filter_of(warp);
    const uint32_t filters = first * XN_MMA_STEP_BYTES;
    xn_mma_block<Form> block;
    block.start(a, s, AHEAD);
    const auto own = [&] {
        return outputs(a, block.at, first, tile::pixel_of(warp), memory + warp * outputs::BYTES);
    };
    if (USUAL)
        own().bring(a);
    xn_mma_sums<Form> acc = {};
    uint32_t reading = block.base, writing = block.base + AHEAD * tile::STAGE_BYTES;
    for (int32_t step = 0; step < block.steps; step++) {
        xn_copy_wait<AHEAD - 1>();
        __syncthreads();
        block.copy(a, s, step + AHEAD, writing);
        multiply<Form>(reading + filters, reading + tile::PIXELS_AT, tile::pixel_of(warp), acc);
        writing = reading;
        reading = block.next(reading);
    }
    if constexpr (USUAL) {
        xn_copy_wait<0>();
        __syncwarp();
        if (block.at.m0 + first < a.conv.group_out_channels)
            own().template write<Form>(a, s.filters + first, acc);
    } else {
        __syncthreads();
        block.finish(a, s, acc);
    }
}

/* ---- launcher ---- */

typedef xn_mma_tile<64, 64, 32, 32, 3> small_tile;
template <int UNIT_BYTES> /* halves wait for each other: more blocks instead of more stages */
using usual_tile = xn_mma_tile<128, 64, 32, 32, UNIT_BYTES == 2 ? 2 : 3>;
enum { USUAL_BLOCKS = 3, SMALL_BLOCKS = 6, FOURS_BYTES = 8, HALF_BYTES = 2 };

/* A kernel and what it is launched with. */
struct pointwise_launch {
    void (*kernel)(const pointwise_args);
    int32_t filters, pixels, threads;
    size_t (*shared_bytes_of)(int32_t steps);
};

template <int UNIT_BYTES, class Tile, bool USUAL>
static size_t shared_bytes_of(int32_t steps) {
    return xn_mma_shared<pointwise_form<UNIT_BYTES, Tile>>::bytes_of(steps) +
           (USUAL ? Tile::WARPS * usual_outputs<UNIT_BYTES>::BYTES : 0);
}

template <int UNIT_BYTES, class Tile, bool USUAL, int BLOCKS>
static pointwise_launch launch_of(void) {
    return {pointwise_kernel<pointwise_form<UNIT_BYTES, Tile>, USUAL, BLOCKS>, Tile::FILTERS,
            Tile::PIXELS, Tile::THREADS, shared_bytes_of<UNIT_BYTES, Tile, USUAL>};
}

static pointwise_launch choose(bool usual, bool fours) {
    if (usual)
        return fours ? launch_of<FOURS_BYTES, usual_tile<FOURS_BYTES>, true, USUAL_BLOCKS>()
                     : launch_of<HALF_BYTES, usual_tile<HALF_BYTES>, true, USUAL_BLOCKS>();
    return fours ? launch_of<FOURS_BYTES, small_tile, false, SMALL_BLOCKS>()
                 : launch_of<HALF_BYTES, small_tile, false, SMALL_BLOCKS>();
}

static bool is_usual(const xn_conv &c, const xn_epilogue_args &e) {
    return xn_has_half_words(c) && (!e.what.residual || e.residual_fp16) &&
           (e.what.datatype == XN_FP16 || e.what.datatype == XN_BITS);
}

/* Of smaller planes neighbouring pixels are in other images, too far apart to be read side by side:
 * real_mma.cu's first pass is cheaper. */
bool xn_cuda_real_pointwise_fits(const xn_conv *c, int64_t images) {
    enum { LEAST_PLANE = 16 };
    const int64_t plane = (int64_t)c->height * c->width;
    return c->mode != XN_MODE_XNOR && c->precision == XN_PRECISION_FP16 &&
           c->input_datatype == XN_FP16 && c->kernel_h == 1 && c->kernel_w == 1 &&
           c->stride_h == 1 && c->stride_w == 1 && c->out_height == c->height &&
           c->out_width == c->width && !c->pad_top && !c->pad_left && plane >= LEAST_PLANE &&
           plane <= (INT32_MAX - 256) / images &&
           xn_mma_blocks(c, images, small_tile::FILTERS, small_tile::PIXELS) <= INT32_MAX;
}

cudaError_t xn_cuda_real_pointwise_launch(const xn_conv *conv, int64_t images,
                                          const xn_cuda_pointwise_io *io,
                                          const xn_epilogue_args *epilogue, cudaStream_t stream) {
    pointwise_args a = {};
    a.conv = *conv;
    a.pixels = (const char *)io->input;
    a.filters = (const char *)io->filters;
    a.exponent = io->exponent;
    a.out = xn_epilogue_of(conv, epilogue);
    a.row_bytes = xn_cuda_mma_row_bytes(conv->precision, conv->group_channels, 1);
    a.planes = xn_fast_divisor_of(conv->out_height * conv->out_width);
    const bool usual = is_usual(*conv, a.out);
    const bool fours = conv->out_height * conv->out_width % 4 == 0 &&
                       (uintptr_t)io->input % FOURS_BYTES == 0 &&
                       (!usual || xn_residual_has_vectors(a.out, 4));
    const pointwise_launch l = choose(usual, fours);
    xn_mma_cut(&a, images, l.filters, l.pixels);
    const bool clears = conv->epilogue.bits && !xn_has_half_words(*conv);
    const cudaError_t e = clears ? xn_clear_bits(conv, images, epilogue, stream) : cudaSuccess;
    if (e != cudaSuccess)
        return e;
    return xn_cuda_launch_with(
        l.kernel, dim3((unsigned)xn_mma_blocks(conv, images, l.filters, l.pixels)), l.threads,
        l.shared_bytes_of(a.steps), io->overlapped && !clears, stream, a);
}

cudaError_t xn_cuda_real_pointwise_load(void) {
    cudaError_t e = cudaSuccess;
    for (int n = 0; n < 4 && e == cudaSuccess; n++) {
        const pointwise_launch l = choose(n / 2, n % 2);
        e = xn_cuda_load_with(l.kernel, l.shared_bytes_of(INT32_MAX));
    }
    return e;
}
