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

enum { STEP_CHANNELS = XN_MMA_STEP_BYTES / 2 };

struct pointwise_args : xn_mma_args {
    const int32_t *exponent;
};

/* A copy moves UNIT_BYTES of neighbouring pixels. */
template <int UNIT_BYTES, class Tile>
struct pointwise_form {
    enum { UNIT = UNIT_BYTES, VECTOR = 4 };
    static constexpr bool WHOLE = true, HELD = true;
    typedef pointwise_args args;
    typedef Tile tile;
    typedef float sum;
    typedef xn_filter filter;
    struct window {};
    struct pixel {};

    static __device__ __forceinline__ filter filter_of(const args &a, int64_t o) {
        return xn_filter_with_exponent(a.out, a.exponent, o);
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
    static_assert(STRIDE == 1 || STRIDE == 2 || STRIDE == 4 || STRIDE == 8, "channel_at");
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
        const int32_t image = p / a.plane, k = step * STEP_CHANNELS + channel;
        plane = a.plane;
        left = p < a.pixel_count ? c.group_channels - k : 0;
        from = (const uint16_t *)a.pixels +
               ((int64_t)image * c.channels + (int64_t)group * c.group_channels + k) * plane +
               (p - image * plane);
        to = channel_at<Tile>(channel, first / 8) + first % 8 * 2;
    }
    /* The place of a thread's copy: STRIDE divides 8, and its first channel is less. */
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

template <class Form, int MIN_BLOCKS>
__global__ void __launch_bounds__(Form::tile::THREADS, MIN_BLOCKS)
    pointwise_kernel(const __grid_constant__ pointwise_args a) {
    typedef typename Form::tile tile;
    extern __shared__ __align__(1024) char memory[];
    xn_mma_shared<Form> &s = *(xn_mma_shared<Form> *)memory;
    constexpr int AHEAD = tile::STAGES - 1;
    const int32_t warp = (int32_t)threadIdx.x / 32;
    const uint32_t filters = tile::filter_of(warp) * XN_MMA_STEP_BYTES;
    xn_mma_block<Form> block;
    block.start(a, s, AHEAD);
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
    __syncthreads();
    block.finish(a, s, acc);
}

/* ---- launcher ---- */

typedef xn_mma_tile<64, 128, 32, 64, 3> large_tile;
typedef xn_mma_tile<64, 64, 32, 32, 3> small_tile;
enum { LARGE_BLOCKS = 3, SMALL_BLOCKS = 6, FOURS_BYTES = 8, HALF_BYTES = 2 };

template <int UNIT_BYTES>
static constexpr void (*large_kernel)(const pointwise_args) =
    pointwise_kernel<pointwise_form<UNIT_BYTES, large_tile>, LARGE_BLOCKS>;
template <int UNIT_BYTES>
static constexpr void (*small_kernel)(const pointwise_args) =
    pointwise_kernel<pointwise_form<UNIT_BYTES, small_tile>, SMALL_BLOCKS>;

template <class Tile>
static size_t shared_bytes_of(int32_t steps) {
    return xn_mma_shared<pointwise_form<FOURS_BYTES, Tile>>::bytes_of(steps);
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

cudaError_t xn_cuda_real_pointwise_launch(const xn_conv *conv, int64_t images, int multiprocessors,
                                          const xn_cuda_pointwise_io *io,
                                          const xn_epilogue_args *epilogue, cudaStream_t stream) {
    const int64_t many = xn_mma_blocks(conv, images, large_tile::FILTERS, large_tile::PIXELS);
    const bool large = many >= multiprocessors * 2;
    const int32_t filters = large ? large_tile::FILTERS : small_tile::FILTERS;
    const int32_t pixels = large ? large_tile::PIXELS : small_tile::PIXELS;
    pointwise_args a = {};
    a.conv = *conv;
    a.pixels = (const char *)io->input;
    a.filters = (const char *)io->filters;
    a.exponent = io->exponent;
    a.out = xn_epilogue_of(conv, epilogue);
    a.row_bytes = xn_cuda_mma_row_bytes(conv->precision, conv->group_channels, 1);
    xn_mma_cut(&a, images, filters, pixels);
    const bool fours = a.plane % 4 == 0 && (uintptr_t)io->input % FOURS_BYTES == 0;
    const auto kernel = large ? (fours ? large_kernel<FOURS_BYTES> : large_kernel<HALF_BYTES>)
                              : (fours ? small_kernel<FOURS_BYTES> : small_kernel<HALF_BYTES>);
    const bool clears = conv->epilogue.bits && !xn_has_half_words(*conv);
    const cudaError_t e = clears ? xn_clear_bits(conv, images, epilogue, stream) : cudaSuccess;
    if (e != cudaSuccess)
        return e;
    return xn_cuda_launch_with(kernel, dim3((unsigned)xn_mma_blocks(conv, images, filters, pixels)),
                               large ? large_tile::THREADS : small_tile::THREADS,
                               large ? shared_bytes_of<large_tile>(a.steps)
                                     : shared_bytes_of<small_tile>(a.steps),
                               io->overlapped && !clears, stream, a);
}

cudaError_t xn_cuda_real_pointwise_load(void) {
    const size_t large = shared_bytes_of<large_tile>(INT32_MAX);
    const size_t small = shared_bytes_of<small_tile>(INT32_MAX);
    cudaError_t e = xn_cuda_load_with(large_kernel<FOURS_BYTES>, large);
    if (e == cudaSuccess)
        e = xn_cuda_load_with(large_kernel<HALF_BYTES>, large);
    if (e == cudaSuccess)
        e = xn_cuda_load_with(small_kernel<FOURS_BYTES>, small);
    return e == cudaSuccess ? xn_cuda_load_with(small_kernel<HALF_BYTES>, small) : e;
}
