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
 * Where there are too few tiles for the chip, blocks share a tile's K and write partial sums, which
 * a third kernel adds in a fixed order: results do not change from run to run. */
#include "element.cuh"
#include "launch.cuh"
#include "real_mma.cuh"
#include "real_wgmma.cuh"

#include <iterator>

struct mma_args {
    xn_conv conv;
    const char *pixels, *filters;
    const float *factor, *bias;
    const int32_t *exponent;
    xn_output out;
    float *partial; /* [split][output]; NULL: outputs at once */
    int64_t row_bytes, outputs;
    int32_t pixel_count;        /* images * OH * OW */
    int32_t plane, group_plane; /* outputs a filter; units of the pixels of one group */
    int32_t padded_w, tap_units, steps, steps_a_split;
    int32_t tiles_m, tiles_n;
    int32_t quads; /* OH * OW is a multiple of 4: outputs are stored 4 at a time */
};

/* One tile's place. */
struct mma_place {
    int32_t group, m0, p0;
};

/* ---- copying a step into shared memory ---- */

/* What one thread copies of the filters: 16 bytes of every ROW_STRIDE-th. */
template <class Tile>
struct filter_loader {
    static constexpr int ROW_STRIDE = Tile::THREADS / 8;
    const char *from;
    int32_t live; /* filters from this thread's first on */
    uint32_t to;

    __device__ __forceinline__ void start(const mma_args &a, const mma_place &at, int32_t step) {
        const int32_t row = (int32_t)threadIdx.x / 8, chunk = (int32_t)threadIdx.x % 8;
        const int64_t filter = (int64_t)at.group * a.conv.group_out_channels + at.m0 + row;
        live = a.conv.group_out_channels - at.m0 - row;
        from =
            a.filters + filter * a.row_bytes + (int64_t)step * XN_CUDA_MMA_STEP_BYTES + chunk * 16;
        to = xn_mma_place(row, chunk);
    }
    __device__ __forceinline__ void copy(const mma_args &a, uint32_t stage) {
#pragma unroll
        for (int r = 0; r < Tile::FILTERS / ROW_STRIDE; r++)
            xn_copy_async_at<16>(stage + to + r * ROW_STRIDE * XN_CUDA_MMA_STEP_BYTES,
                                 from + r * ROW_STRIDE * a.row_bytes, r * ROW_STRIDE < live);
        from += XN_CUDA_MMA_STEP_BYTES;
    }
};

/* What one thread copies of the pixels: one unit of every ROW_STRIDE-th window. tap (i, j) and
 * channel of the unit advance by UNITS a step: a mixed-radix addition with two carries. */
template <class Tile, int UNIT>
struct pixel_loader {
    static constexpr int UNITS = XN_CUDA_MMA_STEP_BYTES / UNIT;
    static constexpr int ROW_STRIDE = Tile::THREADS / UNITS;
    static constexpr int ROWS = Tile::PIXELS / ROW_STRIDE;
    int32_t window[ROWS];
    int32_t i, j, channel; /* in units */
    int32_t step_i, step_j, step_channel;
    uint32_t to;

    __device__ __forceinline__ void start(const mma_args &a, const int32_t *windows, int32_t step) {
        const int32_t row = (int32_t)threadIdx.x / UNITS, unit = (int32_t)threadIdx.x % UNITS;
        const int32_t row_units = a.conv.kernel_w * a.tap_units, first = step * UNITS + unit;
#pragma unroll
        for (int r = 0; r < ROWS; r++)
            window[r] = windows[row + r * ROW_STRIDE];
        i = first / row_units;
        j = first % row_units / a.tap_units;
        channel = first % row_units % a.tap_units;
        step_i = UNITS / row_units;
        step_j = UNITS % row_units / a.tap_units;
        step_channel = UNITS % row_units % a.tap_units;
        to = xn_mma_place(row, unit * UNIT / 16) + unit * UNIT % 16;
    }

    __device__ __forceinline__ void copy(const mma_args &a, uint32_t stage) {
        const xn_conv &c = a.conv;
        const bool exists = i < c.kernel_h;
        int32_t tap = 0;
        if (exists)
            tap = (i * c.dilation_h * a.padded_w + j * c.dilation_w) * a.tap_units + channel;
#pragma unroll
        for (int r = 0; r < ROWS; r++)
            xn_copy_async_at<UNIT>(stage + to + r * ROW_STRIDE * XN_CUDA_MMA_STEP_BYTES,
                                   a.pixels + (int64_t)(window[r] + tap) * UNIT, exists);
        channel += step_channel;
        const int32_t next_tap = channel >= a.tap_units;
        channel -= next_tap ? a.tap_units : 0;
        j += step_j + next_tap;
        const int32_t next_row = j >= c.kernel_w;
        j -= next_row ? c.kernel_w : 0;
        i += step_i + next_row;
    }
};

/* ---- a step of matrix instructions ---- */

template <int PRECISION, class Tile>
__device__ __forceinline__ void
multiply(uint32_t filters, uint32_t pixels,
         float (&acc)[Tile::WARP_FILTERS / 16][Tile::WARP_PIXELS / 8][4]) {
    constexpr int M = Tile::WARP_FILTERS / 16, N = Tile::WARP_PIXELS / 16;
    const int32_t lane = (int32_t)threadIdx.x % 32;
#pragma unroll
    for (int k = 0; k < XN_CUDA_MMA_STEP_BYTES / 32; k++) {
        uint32_t a[M][4], b[N][4];
        const uint32_t from_a = filters + xn_mma_place(lane & 15, k * 2 + (lane >> 4));
        const uint32_t from_b =
            pixels + xn_mma_place((lane & 7) + (lane >> 4) * 8, k * 2 + (lane >> 3 & 1));
#pragma unroll
        for (int m = 0; m < M; m++)
            xn_load_matrices(a[m], from_a + m * 16 * XN_CUDA_MMA_STEP_BYTES);
#pragma unroll
        for (int n = 0; n < N; n++)
            xn_load_matrices(b[n], from_b + n * 16 * XN_CUDA_MMA_STEP_BYTES);
#pragma unroll
        for (int m = 0; m < M; m++)
#pragma unroll
            for (int n = 0; n < N; n++) {
                xn_mma_real<PRECISION>(acc[m][n * 2], a[m], b[n]);
                xn_mma_real<PRECISION>(acc[m][n * 2 + 1], a[m], b[n] + 2);
            }
    }
}

/* The same on sm_90a. A warpgroup has 64 filters and all pixels, each of its warps 16 filters, as
 * mma.sync would. Runs on: the caller waits. */
template <int PRECISION, class Tile>
__device__ __forceinline__ void
multiply_ahead(uint32_t filters, uint32_t pixels,
               float (&acc)[Tile::WARP_FILTERS / 16][Tile::WARP_PIXELS / 8][4]) {
#if XN_HAS_WGMMA
    xn_wgmma_fence();
#pragma unroll
    for (int k = 0; k < XN_CUDA_MMA_STEP_BYTES / 32; k++)
        xn_wgmma_real<PRECISION, Tile::WARP_PIXELS>::run(&acc[0][0][0], filters + k * 32,
                                                         pixels + k * 32);
    xn_wgmma_commit();
#endif
}

/* ---- from sums to outputs ---- */

/* V neighbouring outputs of a filter from index on; partial sums go as they are. */
template <int V>
__device__ __forceinline__ void store_sums(const mma_args &a, const xn_mma_filter &f, int64_t index,
                                           const float *sums) {
    xn_output out = a.out;
    float v[4];
#pragma unroll
    for (int i = 0; i < V; i++)
        v[i] = a.partial ? sums[i] : xn_mma_value(f, sums[i]);
    if (a.partial)
        out = {a.partial + blockIdx.y * a.outputs, XN_FP32};
    if (V == 4)
        xn_store_4_fp32(out, index, v);
    else
        xn_store_fp32(out, index, v[0]);
}

/* Turns a warp's sums, 16 filters at a time, so that neighbouring lanes store neighbouring outputs,
 * V a lane. */
template <class Tile, int V>
__device__ __forceinline__ void
write_outputs(const mma_args &a, const mma_place &at, const xn_mma_filter *filters, float *sums,
              const float (&acc)[Tile::WARP_FILTERS / 16][Tile::WARP_PIXELS / 8][4]) {
    constexpr int WM = Tile::WARP_FILTERS, WN = Tile::WARP_PIXELS, PITCH = Tile::PITCH;
    constexpr int LANES = WN / V < 32 ? WN / V : 32; /* a row of sums */
    constexpr int COLUMNS = WN / V / LANES, ROWS = 32 / LANES;
    const xn_conv &c = a.conv;
    const int32_t lane = (int32_t)threadIdx.x % 32, g = lane / 4, t = lane % 4;
    int64_t index[COLUMNS]; /* of the tile's first filter; -1 past the last pixel */
#pragma unroll
    for (int n = 0; n < COLUMNS; n++) {
        const int32_t p = at.p0 + (lane % LANES + n * LANES) * V;
        const int64_t plane = (int64_t)(p / a.plane) * c.out_channels +
                              (int64_t)at.group * c.group_out_channels + at.m0;
        index[n] = p < a.pixel_count ? plane * a.plane + p % a.plane : -1;
    }
    const int32_t live = c.group_out_channels - at.m0;
#pragma unroll
    for (int m = 0; m < WM; m += 16) {
#pragma unroll
        for (int n = 0; n < WN / 8; n++)
#pragma unroll
            for (int h = 0; h < 2; h++)
                *(float2 *)&sums[(g + h * 8) * PITCH + n * 8 + t * 2] =
                    make_float2(acc[m / 16][n][h * 2], acc[m / 16][n][h * 2 + 1]);
        __syncwarp();
#pragma unroll 4
        for (int32_t row = lane / LANES; row < 16; row += ROWS)
#pragma unroll
            for (int n = 0; n < COLUMNS; n++)
                if (m + row < live && index[n] >= 0)
                    store_sums<V>(a, filters[m + row], index[n] + (int64_t)(m + row) * a.plane,
                                  &sums[row * PITCH + (lane % LANES + n * LANES) * V]);
        __syncwarp();
    }
}

/* ---- the kernel ---- */

template <class Tile>
__device__ __forceinline__ void describe(const mma_args &a, const mma_place &at,
                                         typename Tile::shared &s) {
    const xn_conv &c = a.conv;
    for (int32_t n = threadIdx.x; n < Tile::PIXELS; n += Tile::THREADS) {
        const int32_t p = min(at.p0 + n, a.pixel_count - 1), rest = p % a.plane;
        s.window[n] =
            (p / a.plane * c.groups + at.group) * a.group_plane +
            (rest / c.out_width * c.stride_h * a.padded_w + rest % c.out_width * c.stride_w) *
                a.tap_units;
    }
    for (int32_t m = threadIdx.x; m < Tile::FILTERS; m += Tile::THREADS) {
        const int64_t filter =
            (int64_t)at.group * c.group_out_channels + min(at.m0 + m, c.group_out_channels - 1);
        s.filters[m] = xn_mma_filter_of(xn_factor_of(a.factor, filter), xn_bias_of(a.bias, filter),
                                        a.exponent ? __ldg(a.exponent + filter) : 0);
    }
}

/* What both kernels do with a block: its tile, its part of K, and what its threads copy. */
template <class Tile, int UNIT>
struct mma_block {
    static constexpr uint32_t STAGE_BYTES = sizeof(typename Tile::stage);
    static constexpr uint32_t PIXELS_AT = Tile::FILTERS * XN_CUDA_MMA_STEP_BYTES;
    mma_place at;
    int32_t steps;
    uint32_t base; /* of the stages */
    filter_loader<Tile> filters;
    pixel_loader<Tile, UNIT> pixels;

    /* Starts the copies of `ahead` steps, a group each. */
    __device__ __forceinline__ void start(const mma_args &a, typename Tile::shared &s, int ahead) {
        const int32_t tile = (int32_t)blockIdx.x, first = (int32_t)blockIdx.y * a.steps_a_split;
        at = {tile / a.tiles_m / a.tiles_n, tile % a.tiles_m * Tile::FILTERS,
              tile / a.tiles_m % a.tiles_n * Tile::PIXELS};
        steps = min(a.steps - first, a.steps_a_split);
        base = (uint32_t)__cvta_generic_to_shared(&s);
        xn_let_next_kernel_start();
        describe<Tile>(a, at, s);
        __syncthreads();
        filters.start(a, at, first);
        pixels.start(a, s.window, first);
#pragma unroll
        for (int step = 0; step < ahead; step++)
            if (step < steps)
                filters.copy(a, base + step * STAGE_BYTES);
        xn_wait_for_previous_kernel(); /* which wrote the pixels, but not the filters */
#pragma unroll
        for (int step = 0; step < ahead; step++) {
            if (step < steps)
                pixels.copy(a, base + step * STAGE_BYTES + PIXELS_AT);
            xn_copy_commit();
        }
    }
    /* Those of one more step, if there is one. */
    __device__ __forceinline__ void copy(const mma_args &a, int32_t step, uint32_t stage) {
        if (step < steps) {
            filters.copy(a, stage);
            pixels.copy(a, stage + PIXELS_AT);
        }
        xn_copy_commit();
    }
    __device__ __forceinline__ uint32_t next(uint32_t stage) const {
        return stage == base + (Tile::STAGES - 1) * STAGE_BYTES ? base : stage + STAGE_BYTES;
    }
    /* When no thread reads the stages any more, whose place the sums take. */
    __device__ __forceinline__ void
    finish(const mma_args &a, typename Tile::shared &s,
           const float (&acc)[Tile::WARP_FILTERS / 16][Tile::WARP_PIXELS / 8][4]) const {
        const int32_t warp = (int32_t)threadIdx.x / 32;
        const int32_t m = Tile::filter_of(warp), n = Tile::pixel_of(warp);
        const mma_place part = {at.group, at.m0 + m, at.p0 + n};
        if (a.quads)
            write_outputs<Tile, 4>(a, part, s.filters + m, s.sums[warp], acc);
        else
            write_outputs<Tile, 1>(a, part, s.filters + m, s.sums[warp], acc);
    }
};

template <int PRECISION, int UNIT, class Tile, int MIN_BLOCKS>
__global__ void __launch_bounds__(Tile::THREADS, MIN_BLOCKS)
    mma_kernel(const __grid_constant__ mma_args a) {
    extern __shared__ __align__(1024) char memory[];
    typename Tile::shared &s = *(typename Tile::shared *)memory;
    constexpr int AHEAD = Tile::STAGES - 1;
    const int32_t warp = (int32_t)threadIdx.x / 32;
    mma_block<Tile, UNIT> block;
    block.start(a, s, AHEAD);
    float acc[Tile::WARP_FILTERS / 16][Tile::WARP_PIXELS / 8][4] = {};
    uint32_t reading = block.base, writing = block.base + AHEAD * block.STAGE_BYTES;
    for (int32_t step = 0; step < block.steps; step++) {
        xn_copy_wait<AHEAD - 1>();
        __syncthreads(); /* this step has arrived for all; the stage refilled next is read no more
                          */
        block.copy(a, step + AHEAD, writing);
        multiply<PRECISION, Tile>(
            reading + Tile::filter_of(warp) * XN_CUDA_MMA_STEP_BYTES,
            reading + block.PIXELS_AT + Tile::pixel_of(warp) * XN_CUDA_MMA_STEP_BYTES, acc);
        writing = reading;
        reading = block.next(reading);
    }
    __syncthreads();
    block.finish(a, s, acc);
}

/* On sm_90a. The matrix instructions of a step run while the next step's data is waited for, so a
 * stage is free, and refilled, one step later than above. */
template <int PRECISION, int UNIT, class Tile, int MIN_BLOCKS>
__global__ void __launch_bounds__(Tile::THREADS, MIN_BLOCKS)
    wgmma_kernel(const __grid_constant__ mma_args a) {
#if XN_HAS_WGMMA
    extern __shared__ __align__(1024) char memory[];
    typename Tile::shared &s = *(typename Tile::shared *)memory;
    constexpr int AHEAD = Tile::STAGES - 2;
    mma_block<Tile, UNIT> block;
    block.start(a, s, AHEAD);
    const uint32_t from =
        (uint32_t)threadIdx.x / 128 * 64 * XN_CUDA_MMA_STEP_BYTES; /* the warpgroup's filters */
    float acc[1][Tile::WARP_PIXELS / 8][4] = {};
    uint32_t reading = block.base, writing = block.base + AHEAD * block.STAGE_BYTES;
    for (int32_t step = 0; step < block.steps; step++) {
        xn_copy_wait<AHEAD - 1>();
        xn_fence_proxy(); /* what this thread copied, the matrix units may read */
        __syncthreads();
        multiply_ahead<PRECISION, Tile>(reading + from, reading + block.PIXELS_AT, acc);
        block.copy(a, step + AHEAD, writing);
        xn_wgmma_wait<1>();
        reading = block.next(reading);
        writing = block.next(writing);
    }
    xn_wgmma_wait<0>();
    __syncthreads();
    block.finish(a, s, acc);
#endif
}

/* ---- partial sums ---- */

struct sum_args {
    const float *partial, *factor, *bias;
    const int32_t *exponent;
    xn_output out;
    int64_t outputs;
    int32_t splits, plane, filters;
};

__global__ void __launch_bounds__(XN_CUDA_THREADS)
    mma_sum_kernel(const __grid_constant__ sum_args a) {
    const int64_t index = (int64_t)blockIdx.x * XN_CUDA_THREADS + threadIdx.x;
    xn_let_next_kernel_start();
    if (index >= a.outputs)
        return;
    const int32_t filter = (int32_t)(index / a.plane % a.filters);
    const xn_mma_filter f =
        xn_mma_filter_of(xn_factor_of(a.factor, filter), xn_bias_of(a.bias, filter),
                         a.exponent ? __ldg(a.exponent + filter) : 0);
    xn_wait_for_previous_kernel();
    float sum = 0.0f;
#pragma unroll 4
    for (int32_t split = 0; split < a.splits; split++)
        sum += a.partial[split * a.outputs + index];
    xn_store_fp32(a.out, index, xn_mma_value(f, sum));
}

/* ---- launcher ---- */

typedef void (*mma_function)(const mma_args);

enum { FP16_8, FP16_16, TF32_16, FORMS };
struct mma_variant {
    int32_t filters, pixels, threads;
    int32_t resident; /* blocks on a multiprocessor */
    int32_t weight;   /* time of a multiply-add, in percent of the first's */
    size_t shared_bytes;
    mma_function by_form[FORMS];
};

#define VARIANT(KERNEL, BLOCKS, WEIGHT, ...)                                                       \
    {                                                                                              \
        xn_mma_tile<__VA_ARGS__>::FILTERS, xn_mma_tile<__VA_ARGS__>::PIXELS,                       \
            xn_mma_tile<__VA_ARGS__>::THREADS, BLOCKS, WEIGHT,                                     \
            sizeof(xn_mma_tile<__VA_ARGS__>::shared), {                                            \
            KERNEL<XN_PRECISION_FP16, 8, xn_mma_tile<__VA_ARGS__>, BLOCKS>,                        \
                KERNEL<XN_PRECISION_FP16, 16, xn_mma_tile<__VA_ARGS__>, BLOCKS>,                   \
                KERNEL<XN_PRECISION_TF32, 16, xn_mma_tile<__VA_ARGS__>, BLOCKS>                    \
        }                                                                                          \
    }
enum { SIDE = XN_CUDA_MMA_SPLIT_SIDE, LEAST_STEPS = 4, SPLIT_STEPS = 16 };

/* From the least traffic an operation to the most blocks; the last may be split. The weights are
 * measured (README.md). Those of mma.sync fit the 99 KiB of sm_86 and sm_89. */
static const mma_variant variants[] = {
    VARIANT(mma_kernel, 2, 100, 128, 128, 64, 64, 3),
    VARIANT(mma_kernel, 3, 115, 64, 128, 32, 64, 3),
    VARIANT(mma_kernel, 3, 135, SIDE, SIDE, 32, 32, 4),
};
static const mma_variant wgmma_variants[] = {
    VARIANT(wgmma_kernel, 1, 100, 128, 256, 16, 256, 4),
    VARIANT(wgmma_kernel, 2, 112, 128, 128, 16, 128, 3),
    VARIANT(wgmma_kernel, 3, 135, 64, 128, 16, 128, 3),
    VARIANT(wgmma_kernel, 3, 170, SIDE, SIDE, 16, 64, 4),
};

/* The tiles of a chip, its last one last. */
struct mma_variants {
    const mma_variant *first, *last;
};
static mma_variants variants_of(bool wgmma) {
    if (wgmma)
        return {std::begin(wgmma_variants), std::end(wgmma_variants) - 1};
    return {std::begin(variants), std::end(variants) - 1};
}

static int64_t blocks_of(const xn_conv *c, const mma_variant *v, int64_t images) {
    return ((c->group_out_channels - 1) / v->filters + 1) *
           ((images * c->out_height * c->out_width - 1) / v->pixels + 1) * c->groups;
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

static const mma_variant *choose_variant(const xn_conv *c, int64_t images, int multiprocessors,
                                         mma_variants among) {
    const mma_variant *best = among.first;
    for (const mma_variant *v = best + 1; v <= among.last; v++)
        if (time_of(c, v, images, multiprocessors) < time_of(c, best, images, multiprocessors))
            best = v;
    return best;
}

/* How many blocks share a tile's steps: as many as there is room for on the chip, each with
 * LEAST_STEPS or more; for few steps the third kernel costs more than it saves. */
static int32_t choose_splits(const mma_variant *v, int64_t blocks, int32_t steps,
                             int multiprocessors) {
    if (v->pixels != SIDE || steps < SPLIT_STEPS || blocks >= multiprocessors)
        return 1;
    const int64_t room = multiprocessors / blocks, most = steps / LEAST_STEPS;
    return (int32_t)(room < most ? room : most);
}

bool xn_cuda_real_mma_fits(const xn_conv *c, int64_t images) {
    const int64_t units =
        xn_cuda_mma_positions(c) * xn_cuda_mma_tap_units(c->precision, c->group_channels);
    const int64_t row =
        xn_cuda_mma_row_bytes(c->precision, c->group_channels, (int64_t)c->kernel_h * c->kernel_w);
    const int64_t outputs = (int64_t)c->out_height * c->out_width;
    return c->mode != XN_MODE_XNOR && c->precision != XN_PRECISION_FP32 &&
           row / XN_CUDA_MMA_STEP_BYTES < INT32_MAX / 16 - 16 &&
           units <= INT32_MAX / images / c->groups && outputs <= (INT32_MAX - 256) / images &&
           blocks_of(c, variants_of(false).last, images) <= INT32_MAX;
}

bool xn_cuda_real_mma_pays(const xn_conv *c) {
    const int64_t image = (int64_t)c->height * c->width;
    return c->group_out_channels >= 4 && xn_cuda_mma_positions(c) <= 4 * image + 4096;
}

static mma_args arguments(const xn_conv *c, int64_t images, const xn_cuda_mma_io *io,
                          const xn_cuda_epilogue_args *epilogue, const mma_variant *v) {
    mma_args a = {};
    a.conv = *c;
    a.pixels = (const char *)io->pixels;
    a.filters = (const char *)io->filters;
    a.factor = epilogue->factor;
    a.bias = epilogue->bias;
    a.exponent = io->exponent;
    a.out = {epilogue->output, c->epilogue.datatype};
    a.row_bytes =
        xn_cuda_mma_row_bytes(c->precision, c->group_channels, (int64_t)c->kernel_h * c->kernel_w);
    a.outputs = images * xn_conv_output_elements(c);
    a.plane = c->out_height * c->out_width;
    a.pixel_count = (int32_t)(images * a.plane);
    a.padded_w = c->width + c->pad_left + c->pad_right;
    a.tap_units = xn_cuda_mma_tap_units(c->precision, c->group_channels);
    a.group_plane = (int32_t)xn_cuda_mma_positions(c) * a.tap_units;
    a.steps = (int32_t)(a.row_bytes / XN_CUDA_MMA_STEP_BYTES);
    a.tiles_m = (c->group_out_channels - 1) / v->filters + 1;
    a.tiles_n = (a.pixel_count - 1) / v->pixels + 1;
    a.quads = a.plane % 4 == 0;
    return a;
}

static cudaError_t launch_sum(const mma_args *mma, int32_t splits, bool overlapped,
                              cudaStream_t stream) {
    sum_args a = {};
    a.partial = mma->partial;
    a.factor = mma->factor;
    a.bias = mma->bias;
    a.exponent = mma->exponent;
    a.out = mma->out;
    a.outputs = mma->outputs;
    a.splits = splits;
    a.plane = mma->plane;
    a.filters = mma->conv.out_channels;
    return xn_cuda_launch_with(mma_sum_kernel, xn_cuda_grid(a.outputs, XN_CUDA_THREADS),
                               XN_CUDA_THREADS, 0, overlapped, stream, a);
}

cudaError_t xn_cuda_real_mma_launch(const xn_conv *conv, int64_t images, int multiprocessors,
                                    const xn_cuda_mma_io *io, const xn_cuda_epilogue_args *epilogue,
                                    cudaStream_t stream) {
    const mma_variant *v = choose_variant(conv, images, multiprocessors, variants_of(io->wgmma));
    const int64_t blocks = blocks_of(conv, v, images);
    mma_args a = arguments(conv, images, io, epilogue, v);
    int32_t splits = choose_splits(v, blocks, a.steps, multiprocessors);
    a.steps_a_split = (a.steps - 1) / splits + 1;
    splits = (a.steps - 1) / a.steps_a_split + 1;
    a.partial = splits > 1 ? io->partial : NULL;
    const int form = conv->precision == XN_PRECISION_TF32                                 ? TF32_16
                     : xn_cuda_mma_unit_bytes(conv->precision, conv->group_channels) == 8 ? FP16_8
                                                                                          : FP16_16;
    cudaError_t e =
        xn_cuda_mma_pack_launch(conv, images, io->input, io->pixels, io->overlapped, stream);
    if (e == cudaSuccess)
        e = xn_cuda_launch_with(v->by_form[form], dim3((unsigned)blocks, (unsigned)splits),
                                v->threads, v->shared_bytes, io->overlapped, stream, a);
    if (e == cudaSuccess && splits > 1)
        e = launch_sum(&a, splits, io->overlapped, stream);
    return e;
}

static cudaError_t load_variants(mma_variants all) {
    cudaError_t e = cudaSuccess;
    for (const mma_variant *v = all.first; v <= all.last; v++)
        for (mma_function kernel : v->by_form)
            if (e == cudaSuccess)
                e = cudaFuncSetAttribute((const void *)kernel,
                                         cudaFuncAttributeMaxDynamicSharedMemorySize,
                                         (int)v->shared_bytes);
    return e;
}

cudaError_t xn_cuda_real_mma_load(bool wgmma) {
    cudaError_t e = xn_cuda_mma_pack_load();
    if (e == cudaSuccess)
        e = xn_cuda_load(mma_sum_kernel);
    if (e == cudaSuccess)
        e = load_variants(variants_of(false));
    return e == cudaSuccess && wgmma ? load_variants(variants_of(true)) : e;
}
