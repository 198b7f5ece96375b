/* real_pointwise.cu: what real_mma.cu does in fp16 where kernels are 1x1 and read whole planes of
 * fp16, with residuals and outputs of fp16 and bits in whole words: a GEMM by mma.sync that takes
 * the input as it lies, so no pass lays it channels-last.
 *
 *   C[filter, pixel] = sum over k of filters[filter][k] * input[k][pixel]
 *
 * K = the channels of a group. It is the skeleton of mma_gemm.cuh but for the pixels of a stage,
 * which are 64 channels of the tile's pixels, pixels side by side: ldmatrix turns them. Sums are
 * those of real_mma.cu, whatever the tile is. */
#include "launch.cuh"
#include "mma_gemm.cuh"
#include "real.h"
#include "real_mma.h"
#include "real_value.cuh"

#include <algorithm>

/* A copy moves UNIT_BYTES, which are EACH neighbouring pixels. */
enum { STEP_CHANNELS = XN_MMA_STEP_BYTES / 2, UNIT_BYTES = 8, EACH = UNIT_BYTES / 2 };
enum { BLOCKS = 2 /* on a multiprocessor */ };

struct pointwise_args : xn_mma_args {
    const int32_t *exponent;
    xn_fast_divisor planes; /* by the outputs of a filter and image */
};

/* -0 as a shift becomes +0, and NaN -infinity: the sign bit of a finite output with its shift is
 * then the inverse of the output's bit. */
struct __align__(16) pointwise_filter : xn_filter {
    float shift, slope;
};

struct pointwise_form {
    static constexpr bool WHOLE = true, TURNED = true;
    typedef xn_mma_tile<128, 64, 32, 32, 2> tile;
    typedef float sum;
    typedef pointwise_filter filter;
    struct window {};
    struct pixel {};

    static __device__ __forceinline__ void multiply(float (&acc)[4], const uint32_t (&a)[4],
                                                    const uint32_t *b) {
        xn_mma_real<true>(acc, a, b);
    }
};
typedef pointwise_form::tile tile;

__device__ __forceinline__ pointwise_filter filter_of(const pointwise_args &a, int64_t o) {
    const xn_epilogue &what = a.out.what;
    pointwise_filter f;
    (xn_filter &)f = xn_filter_with_exponent(a.out, a.exponent, o);
    f.shift = xn_bias_of(what.shift ? a.out.shift : NULL, o) + 0.0f;
    f.shift = f.shift != f.shift ? -INFINITY : f.shift;
    f.slope = xn_factor_of(what.activation == XN_ACTIVATION_PRELU ? a.out.slope : NULL, o);
    return f;
}

/* What one thread copies of the pixels: one unit of every STRIDE-th channel. */
struct pixel_loader {
    static constexpr int UNITS = tile::PIXELS / EACH, STRIDE = tile::THREADS / UNITS;
    static_assert(STRIDE % 8 == 0, "xn_mma_turned_at");
    const uint16_t *from;
    int32_t left; /* channels from the thread's first on; 0 past the last pixel */
    uint32_t to;

    __device__ __forceinline__ void start(const pointwise_args &a, int32_t group, int32_t p0) {
        const xn_conv &c = a.conv;
        const int32_t channel = (int32_t)(threadIdx.x / UNITS);
        const int32_t first = (int32_t)(threadIdx.x % UNITS) * EACH, p = p0 + first;
        const int32_t image = xn_divide(p, a.planes);
        left = p < a.pixel_count ? c.group_channels - channel : 0;
        from =
            (const uint16_t *)a.pixels +
            ((int64_t)image * c.channels + (int64_t)group * c.group_channels + channel) * a.plane +
            (p - image * a.plane);
        to = xn_mma_turned_at<tile::PIXELS>(channel, first / 8) + first % 8 * 2;
    }
    __device__ __forceinline__ void copy(const pointwise_args &a, uint32_t stage) {
#pragma unroll
        for (int r = 0; r < STEP_CHANNELS / STRIDE; r++)
            xn_copy_async_at<UNIT_BYTES>(stage + to + r * STRIDE * tile::PIXELS * 2,
                                         from + (int64_t)r * STRIDE * a.plane, r * STRIDE < left);
        from += (int64_t)STEP_CHANNELS * a.plane;
        left -= STEP_CHANNELS;
    }
};

/* ---- outputs ---- */

/* y where a value or what comes of it is not finite. */
__device__ __forceinline__ float finish_again(const pointwise_args &a, int32_t o, float sum,
                                              float residual) {
    float v = xn_value(sum, 1.0f, xn_filter_with_exponent(a.out, a.exponent, o));
    if (!isfinite(v)) {
        const int32_t exponent = a.exponent ? __ldg(a.exponent + o) : 0;
        v = xn_value_again(a.out, o, scalbn((double)sum, exponent), 1.0);
    }
    return xn_activate(a.out, o, a.out.what.residual ? v + residual : v);
}

/* A warp's 32 filters by 32 pixels in shared memory, residuals and then outputs. Rows, of a filter,
 * are so far apart that no two of the lanes 4g + t, with row g and pixels 2t, meet in a bank. */
struct pointwise_outputs {
    static constexpr int SIDE = 32, PITCH = 80, BYTES = SIDE * PITCH;
    static constexpr int UNITS = SIDE / EACH, ROWS = 32 / UNITS;
    char *rows;
    int32_t o; /* the first filter */

    static __device__ __forceinline__ uint32_t lane() {
        return threadIdx.x % 32;
    }
    __device__ __forceinline__ char *unit_of(int r) const {
        return rows + (lane() / UNITS + r * ROWS) * PITCH + lane() % UNITS * UNIT_BYTES;
    }
    __device__ __forceinline__ int64_t row_step(const pointwise_args &a) const {
        return (int64_t)ROWS * a.plane;
    }

    /* The pixel of the unit that the lane moves, of every ROWS-th filter, and the first one's index
     * where images are `gap` apart. */
    static __device__ __forceinline__ int32_t pixel_of(int32_t p) {
        return p + (int32_t)(lane() % UNITS) * EACH;
    }
    __device__ __forceinline__ int64_t index_of(const pointwise_args &a, int32_t p,
                                                int32_t gap) const {
        const int32_t own = pixel_of(p), image = xn_divide(own, a.planes);
        const int64_t filter = (int64_t)image * a.conv.out_channels + o + (int32_t)(lane() / UNITS);
        return filter * a.plane + (own - image * a.plane) + (int64_t)image * gap;
    }

    /* Starts copying the residuals of the pixels from p on. */
    __device__ __forceinline__ void bring(const pointwise_args &a, int32_t p) const {
        const bool live = pixel_of(p) < a.pixel_count;
        if (!a.out.what.residual)
            return;
        const uint16_t *from =
            (const uint16_t *)a.out.residual + index_of(a, p, a.out.residual_gap);
        __syncwarp(); /* the outputs before have left */
        const uint32_t to = xn_shared_address(unit_of(0));
#pragma unroll
        for (int r = 0; r < SIDE / ROWS; r++, from += row_step(a))
            xn_copy_async_at<UNIT_BYTES>(to + r * ROWS * PITCH, from, live);
    }

    /* One by one, by copies in local memory, so that no register is held for it. */
    __device__ __forceinline__ void finish_all_again(const pointwise_args &a, const float (&sum)[8],
                                                     const float (&residual)[8],
                                                     float (&y)[8]) const {
        float copy[8][2];
#pragma unroll
        for (int i = 0; i < 8; i++) {
            copy[i][0] = sum[i];
            copy[i][1] = residual[i];
        }
#pragma unroll 1
        for (int i = 0; i < 8; i++)
            copy[i][0] =
                finish_again(a, o + (int32_t)lane() / 4 + i / 2 * 8, copy[i][0], copy[i][1]);
#pragma unroll
        for (int i = 0; i < 8; i++)
            y[i] = copy[i][0];
    }

    /* From the sums of filters 8j + g of pixels 2t and 2t + 1, in [2j] and [2j + 1], to outputs in
     * `at`, the lane's place in row g. The inverse of their bits comes back, that of
     * j as the highest bit of byte j. */
    __device__ __forceinline__ void finish(const pointwise_args &a, const pointwise_filter (&f)[4],
                                           const float (&sum)[8], char *at,
                                           uint32_t (&negative)[2]) const {
        const xn_epilogue &what = a.out.what;
        const bool clips = what.activation == XN_ACTIVATION_CLIP;
        const float low = clips ? what.low : -INFINITY, high = clips ? what.high : INFINITY;
        float y[8], residual[8] = {};
        bool finite = true;
        if (what.residual)
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const __half2 pair = *(const __half2 *)(at + j * 8 * PITCH);
                residual[2 * j] = __low2float(pair);
                residual[2 * j + 1] = __high2float(pair);
            }
#pragma unroll
        for (int i = 0; i < 8; i++) {
            y[i] = xn_value(sum[i], 1.0f, f[i / 2]);
            y[i] = what.residual ? y[i] + residual[i] : y[i];
            finite &= fabsf(y[i]) < INFINITY;
        }
        if (what.activation != XN_ACTIVATION_NONE)
#pragma unroll
            for (int i = 0; i < 8; i++) {
                const float v = y[i] >= 0.0f ? y[i] : y[i] * f[i / 2].slope;
                y[i] = v < low ? low : v;
                y[i] = y[i] > high ? high : y[i];
                finite &= fabsf(y[i]) < INFINITY;
            }
        if (!finite)
            finish_all_again(a, sum, residual, y);
        float shifted[8];
#pragma unroll
        for (int i = 0; i < 8; i++)
            shifted[i] = y[i] + f[i / 2].shift;
        if (!finite)
#pragma unroll
            for (int i = 0; i < 8; i++)
                shifted[i] = xn_sign_bit(shifted[i]) ? 1.0f : -1.0f;
#pragma unroll
        for (int j = 0; j < 4; j++)
            *(uint32_t *)(at + j * 8 * PITCH) = xn_fp16_pair(y[2 * j], y[2 * j + 1]);
#pragma unroll
        for (int e = 0; e < 2; e++)
            negative[e] = xn_permute(
                xn_permute(xn_bits_of_fp32(shifted[e]), xn_bits_of_fp32(shifted[2 + e]), 0x73),
                xn_permute(xn_bits_of_fp32(shifted[4 + e]), xn_bits_of_fp32(shifted[6 + e]), 0x73),
                0x5410);
    }

    /* Bit 8 j + i of lane 4 g + t becomes bit 8 j + g of lane 4 i + t. */
    static __device__ __forceinline__ uint32_t turned(uint32_t bits) {
        static constexpr uint32_t LOW[3] = {0x55555555u, 0x33333333u, 0x0f0f0f0fu};
#pragma unroll
        for (int k = 0; k < 3; k++) {
            const bool upper = lane() >> (2 + k) & 1;
            const uint32_t kept = upper ? ~LOW[k] : LOW[k];
            const uint32_t other = __shfl_xor_sync(0xffffffffu, bits, 4 << k);
            bits = (bits & kept) | ((upper ? other >> (1 << k) : other << (1 << k)) & ~kept);
        }
        return bits;
    }

    /* filters: the warp's; p: its first pixel. */
    __device__ __forceinline__ void write(const pointwise_args &a, const pointwise_filter *filters,
                                          int32_t p, const xn_mma_sums<pointwise_form> &acc) const {
        const int32_t g = (int32_t)(lane() / 4), t = (int32_t)(lane() % 4);
        uint32_t bits = 0xffffffffu;
#pragma unroll
        for (int n = 0; n < 4; n++) {
            float sum[8];
            uint32_t negative[2];
            pointwise_filter f[4]; /* again: they are too many to be held */
#pragma unroll
            for (int j = 0; j < 4; j++)
                f[j] = filters[j * 8 + g];
#pragma unroll
            for (int i = 0; i < 8; i++)
                sum[i] = acc[i / 4][n][i % 4];
            finish(a, f, sum, rows + g * PITCH + t * 4 + n * 16, negative);
#pragma unroll
            for (int e = 0; e < 2; e++)
                bits &= ~(negative[e] >> (7 - 2 * n - e) & 0x01010101u << (2 * n + e));
        }
        if (a.out.what.bits) {
            const int32_t pixel = p + g / 2 * 8 + t * 2 + g % 2;
            bits = turned(bits);
            if (pixel < a.pixel_count)
                a.out.bits[(int64_t)pixel * (a.conv.out_channels / 32) + o / 32] = bits;
        }
        if (a.out.what.datatype == XN_BITS)
            return;
        const bool live = pixel_of(p) < a.pixel_count;
        __half *to = (__half *)a.out.output + index_of(a, p, a.out.output_gap);
        __syncwarp();
#pragma unroll
        for (int r = 0; r < SIDE / ROWS; r++, to += row_step(a)) {
            const uint2 value = *(const uint2 *)unit_of(r);
            if (live)
                *(uint2 *)to = value;
        }
    }
};

/* Copies steps, one tile's after the other's, of a block with every gridDim.y-th tile. */
struct pointwise_stream {
    xn_mma_filter_loader<pointwise_form> filters;
    pixel_loader pixels;
    int32_t p, step;

    __device__ __forceinline__ void start(const pointwise_args &a, const xn_mma_place &at) {
        filters.start(a, at);
        p = at.p0;
        step = 0;
    }
    __device__ __forceinline__ void copy(const pointwise_args &a, uint32_t stage) {
        if (p < a.pixel_count) {
            if (step == 0)
                pixels.start(a, (int32_t)blockIdx.z, p);
            filters.copy(a, stage);
            pixels.copy(a, stage + tile::PIXELS_AT);
            if (++step == a.steps) {
                step = 0;
                p += (int32_t)gridDim.y * tile::PIXELS;
                filters.from -= a.row_bytes;
            }
        }
        xn_copy_commit();
    }
};

/* Warps are of 32 by 32. Their outputs lie ahead of the stages, twice: the next tile's residuals
 * and first step are on their way while a tile's outputs are made. */
__global__ void __launch_bounds__(tile::THREADS, BLOCKS)
    pointwise_kernel(const __grid_constant__ pointwise_args a) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
    extern __shared__ __align__(1024) char memory[];
    typedef pointwise_outputs outputs;
    auto &s = *(xn_mma_shared<pointwise_form> *)(memory + 2 * tile::WARPS * outputs::BYTES);
    constexpr int AHEAD = tile::STAGES - 1;
    const xn_mma_place at = {(int32_t)blockIdx.z, (int32_t)blockIdx.x * tile::FILTERS,
                             (int32_t)blockIdx.y * tile::PIXELS};
    const int32_t warp = (int32_t)(threadIdx.x / 32), live = a.conv.group_out_channels - at.m0;
    const int32_t m = tile::filter_of(warp), n = tile::pixel_of(warp);
    const int32_t o = at.group * a.conv.group_out_channels + at.m0;
    const int32_t across = (int32_t)gridDim.y * tile::PIXELS;
    const uint32_t filters = m * XN_MMA_STEP_BYTES, base = xn_shared_address(s.stages);
    const auto next = [&](uint32_t stage) {
        return stage == base + AHEAD * tile::STAGE_BYTES ? base : stage + tile::STAGE_BYTES;
    };
    xn_let_next_kernel_start();
    if (threadIdx.x < tile::FILTERS)
        s.filters[threadIdx.x] = filter_of(a, o + min((int32_t)threadIdx.x, live - 1));
    xn_wait_for_previous_kernel();
    pointwise_stream stream;
    stream.start(a, at);
#pragma unroll
    for (int step = 0; step < AHEAD; step++)
        stream.copy(a, base + step * tile::STAGE_BYTES);
    outputs own;
    own.rows = memory + warp * outputs::BYTES;
    own.o = o + m;
    if (m < live)
        own.bring(a, at.p0 + n);
    xn_copy_commit();
    char *other = own.rows + tile::WARPS * outputs::BYTES;
    uint32_t reading = base, writing = base + AHEAD * tile::STAGE_BYTES;
#pragma unroll 1
    for (int32_t p = at.p0; p < a.pixel_count; p += across) {
        xn_mma_sums<pointwise_form> acc = {};
#pragma unroll 1
        for (int32_t step = 0; step < a.steps; step++) {
            xn_copy_wait<0>(); /* the tile's residuals, too */
            __syncthreads();
            stream.copy(a, writing);
            xn_mma_multiply<pointwise_form>(reading + filters, reading + tile::PIXELS_AT, n, 0,
                                            acc);
            writing = reading;
            reading = next(reading);
        }
        if (m >= live)
            continue;
        const outputs now = own;
        own.rows = other;
        other = now.rows;
        if (p + across < a.pixel_count)
            own.bring(a, p + across + n);
        xn_copy_commit();
        now.write(a, s.filters + m, p + n, acc);
    }
#else
    (void)a;
    __trap();
#endif
}

/* ---- launcher ---- */

static const size_t SHARED_BYTES =
    sizeof(xn_mma_shared<pointwise_form>) + 2 * tile::WARPS * (size_t)pointwise_outputs::BYTES;

/* Of smaller planes neighbouring pixels are in other images, too far apart to be read side by side.
 */
bool xn_cuda_real_pointwise_fits(const xn_conv *c, int64_t images) {
    enum { LEAST_PLANE = 16 };
    return xn_cuda_real_mma_fits(c, images) && c->precision == XN_PRECISION_FP16 &&
           c->input_datatype == XN_FP16 && c->kernel_h == 1 && c->kernel_w == 1 &&
           c->stride_h == 1 && c->stride_w == 1 && c->out_height == c->height &&
           c->out_width == c->width && !c->pad_top && !c->pad_left &&
           (int64_t)c->height * c->width >= LEAST_PLANE;
}

bool xn_cuda_real_pointwise_takes(const xn_conv *c, int64_t images, const xn_cuda_real_io *io,
                                  const xn_epilogue_args *epilogue) {
    enum { MOST = INT32_MAX - (1 << 20), MOST_GROUPS = 65535 };
    const int64_t plane = (int64_t)c->height * c->width;
    const xn_epilogue_args e = xn_epilogue_of(c, epilogue);
    return xn_cuda_real_pointwise_fits(c, images) && plane % EACH == 0 && plane <= MOST / images &&
           c->groups <= MOST_GROUPS && (uintptr_t)io->input % UNIT_BYTES == 0 &&
           c->group_out_channels % 32 == 0 && (!e.what.bits || xn_has_half_words(*c)) &&
           (!e.what.residual || e.residual_fp16) && xn_residual_has_vectors(e, EACH) &&
           (e.what.datatype == XN_FP16 || e.what.datatype == XN_BITS);
}

cudaError_t xn_cuda_real_pointwise_launch(const xn_conv *conv, int64_t images, int multiprocessors,
                                          const xn_cuda_real_io *io,
                                          const xn_epilogue_args *epilogue, cudaStream_t stream) {
    pointwise_args a = {};
    a.conv = *conv;
    a.pixels = (const char *)io->input;
    a.filters = (const char *)io->weights;
    a.exponent = io->exponent;
    a.out = xn_epilogue_of(conv, epilogue);
    a.row_bytes = xn_cuda_mma_row_bytes(conv->precision, conv->group_channels, 1);
    a.planes = xn_fast_divisor_of(conv->out_height * conv->out_width);
    xn_mma_cut(&a, images, tile::FILTERS, tile::PIXELS);
    /* as many blocks as run at once, or a few more */
    const int32_t rows = multiprocessors * BLOCKS / (a.tiles_m * conv->groups);
    const dim3 grid(a.tiles_m, std::max(std::min(rows, a.tiles_n), 1), conv->groups);
    return xn_cuda_launch_with(pointwise_kernel, grid, tile::THREADS, SHARED_BYTES, io->overlapped,
                               stream, a);
}

cudaError_t xn_cuda_real_pointwise_load(void) {
    return xn_cuda_load_with(pointwise_kernel, SHARED_BYTES);
}
