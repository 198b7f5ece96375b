/* real_tile.cu: modes bwn and float in fp16 from up to 4 channels, on the matrix units of sm_80 and
 * later. M = 64 filters, N = 16 x 16 output pixels of an image, K = rows of the kernel times its
 * columns, by fours, times 4 channels.
 *
 * A block brings the tile of the input under its outputs into shared memory, 4 channels of a
 * position in 8 bytes, borders and missing channels too. There the operand of a kernel row is the
 * row itself: 16 bytes are two neighbouring taps, and as the horizontal stride is even, an output's
 * window starts at a multiple of 16. So nothing is copied per tap, and no pass lays pixels out
 * first. Filters have columns up to a multiple of 4, with zeros behind the last; what lies there in
 * the tile is other pixels, and is taken out of the operand, since it may be infinite.
 *
 * Blocks stay and take tile after tile: filters are read once. Two share a multiprocessor, so that
 * one loads while the other multiplies. */
#include "real_tile.h"

#include "launch.cuh"
#include "ptx.cuh"
#include "real_mma.h"
#include "real_value.cuh"

#include <algorithm>

enum {
    SIDE = XN_CUDA_TILE_SIDE,
    M = XN_CUDA_TILE_FILTERS,
    WARPS = SIDE, /* of a block: each has a row of outputs and all filters */
    THREADS = WARPS * 32,
    BLOCKS = 2,             /* of a multiprocessor */
    MOST_BYTES = 99 * 1024, /* of shared memory that a block has on any chip */
    POSITION = 8,           /* bytes */
    ROW_PAD = 16,           /* so that filters begin in different banks */
    MOST_ROWS = 16,         /* of a kernel */
};

struct tile_args {
    xn_conv conv;
    xn_cuda_tile_io io;
    xn_epilogue_args out;
    xn_fast_divisor image_tiles, tile_columns, tile_row; /* tile_row: columns */
    int32_t tiles;                                       /* of all images */
    int32_t fours;                                       /* of a kernel row's columns */
    int32_t filter_pitch;                                /* bytes in shared memory */
    int32_t row_bytes;                                   /* of the input's tile; */
    int32_t rows, columns;                               /* positions of it */
    int64_t memory_pitch;                                /* bytes from filter to filter in memory */
    bool vectors;                                        /* outputs by four */
};

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800

/* ---- into shared memory ---- */

/* Filters from m0 on, tap (i, j) at i * fours * 32 + j * 8. */
__device__ __forceinline__ void load_filters(const tile_args &a, int32_t m0, char *to) {
    const xn_conv &c = a.conv;
    const int32_t columns = a.fours * 4, all = c.kernel_h * columns;
    for (int32_t e = threadIdx.x; e < M * all; e += THREADS) {
        const int32_t m = e / all, tap = e % all, i = tap / columns, j = tap % columns;
        uint2 v = make_uint2(0, 0);
        if (m0 + m < c.out_channels && j < c.kernel_w)
            v = __ldg((const uint2 *)((const char *)a.io.filters + (m0 + m) * a.memory_pitch) +
                      i * c.kernel_w + j);
        *(uint2 *)(to + m * a.filter_pitch + tap * POSITION) = v;
    }
}

struct tile_place {
    int32_t image, y, x; /* of its first output */
};

__device__ __forceinline__ tile_place place_of(const tile_args &a, int32_t tile) {
    const int32_t image = xn_divide(tile, a.image_tiles);
    const int32_t rest = tile - image * (int32_t)a.image_tiles.divisor;
    const int32_t row = xn_divide(rest, a.tile_columns);
    return {image, row * SIDE, (rest - row * (int32_t)a.tile_columns.divisor) * SIDE};
}

/* A thread takes every THREADS-th position, several at a time, so that all their loads are under
 * way together. */
template <typename T>
__device__ __forceinline__ void load_tile(const tile_args &a, const tile_place &p, const T *input,
                                          char *to) {
    constexpr int AT_ONCE = 3;
    const xn_conv &c = a.conv;
    const int32_t plane = c.height * c.width, all = a.rows * a.columns;
    const int32_t y0 = p.y * c.stride_h - c.pad_top, x0 = p.x * c.stride_w - c.pad_left;
    const T *image = input + (int64_t)p.image * plane * c.channels;
    const float outside = (float)c.pad_value;
#pragma unroll 1
    for (int32_t first = threadIdx.x; first < all; first += AT_ONCE * THREADS) {
        float v[AT_ONCE][XN_CUDA_TILE_CHANNELS];
#pragma unroll
        for (int e = 0; e < AT_ONCE; e++) {
            const int32_t position = first + e * THREADS, row = xn_divide(position, a.tile_row);
            const int32_t y = y0 + row, x = x0 + position - row * a.columns;
            const bool inside = position < all && (uint32_t)y < (uint32_t)c.height &&
                                (uint32_t)x < (uint32_t)c.width;
            const T *from = image + (inside ? y * c.width + x : 0);
#pragma unroll
            for (int n = 0; n < XN_CUDA_TILE_CHANNELS; n++) {
                v[e][n] = n < c.channels ? outside : 0.0f;
                if (n < c.channels && inside)
                    v[e][n] = xn_real_fp32(from[n * plane]);
            }
        }
#pragma unroll
        for (int e = 0; e < AT_ONCE; e++)
            if (first + e * THREADS < all)
                *(uint2 *)(to + (first + e * THREADS) * POSITION) =
                    make_uint2(xn_fp16_pair(v[e][0], v[e][1]), xn_fp16_pair(v[e][2], v[e][3]));
    }
}

/* ---- products ---- */

/* Of a warp: filters 16m + g (h = 0) and 16m + 8 + g (h = 1) by columns 8n + 2t + e of its row, at
 * [m][n][2h + e]; g = lane / 4, t = lane % 4. */
typedef float tile_sums[M / 16][2][4];

/* Four columns of a kernel row: 16 filters' 32 bytes by 8 outputs' 32 bytes at a time. low, high:
 * what of an operand's two words is of the kernel. */
__device__ __forceinline__ void multiply(uint32_t filters, uint32_t filter_pitch, uint32_t windows,
                                         uint32_t low, uint32_t high, tile_sums &sums) {
    uint32_t b[4];
    xn_load_matrices(b, windows);
    b[0] &= low;
    b[1] &= high;
    b[2] &= low;
    b[3] &= high;
#pragma unroll
    for (int m = 0; m < M / 16; m++) {
        uint32_t x[4];
        xn_load_matrices(x, filters + m * 16 * filter_pitch);
        xn_mma_real<true>(sums[m][0], x, b);
        xn_mma_real<true>(sums[m][1], x, b + 2);
    }
}

__device__ __forceinline__ void multiply_tile(const tile_args &a, uint32_t filters, uint32_t tile,
                                              tile_sums &sums) {
    const xn_conv &c = a.conv;
    const int32_t lane = (int32_t)threadIdx.x % 32, warp = (int32_t)threadIdx.x / 32;
    const uint32_t pitch = (uint32_t)a.filter_pitch, column_step = (uint32_t)c.stride_w * POSITION;
    const uint32_t row_step = (uint32_t)(c.stride_h * a.row_bytes);
    /* matrices: columns 0..7 with the low and the high 16 bytes, then columns 8..15 */
    const uint32_t column = (uint32_t)((lane & 7) + (lane >> 4) * 8);
    uint32_t window =
        tile + (uint32_t)warp * row_step + column * column_step + (uint32_t)(lane >> 3 & 1) * 16;
    uint32_t filter = filters + (uint32_t)(lane & 15) * pitch + (uint32_t)(lane >> 4) * 16;
    const int32_t last = c.kernel_w - (a.fours - 1) * 4, t = lane % 4 / 2; /* taps t and t + 2 */
    const uint32_t low = t < last ? 0xffffffffu : 0u, high = t + 2 < last ? 0xffffffffu : 0u;
#pragma unroll 1
    for (int32_t i = 0; i < c.kernel_h; i++, window += (uint32_t)(c.dilation_h * a.row_bytes)) {
#pragma unroll 2
        for (int32_t four = 0; four < a.fours; four++, filter += 32) {
            const bool ends = four == a.fours - 1;
            multiply(filter, pitch, window + (uint32_t)four * 32, ends ? low : 0xffffffffu,
                     ends ? high : 0xffffffffu, sums);
        }
    }
}

/* ---- outputs ---- */

/* In a quad of lanes, of which each has two neighbours of both halves of 16 columns: afterwards
 * four neighbours, from column 4 t on. */
__device__ __forceinline__ void gather_four(const float (&first)[2], const float (&second)[2],
                                            float (&v)[4]) {
    const int32_t lane = (int32_t)threadIdx.x % 32, t = lane % 4, from = lane - t + t % 2 * 2;
#pragma unroll
    for (int e = 0; e < 2; e++) {
        const float a0 = __shfl_sync(0xffffffffu, first[e], from);
        const float a1 = __shfl_sync(0xffffffffu, first[e], from + 1);
        const float b0 = __shfl_sync(0xffffffffu, second[e], from);
        const float b1 = __shfl_sync(0xffffffffu, second[e], from + 1);
        v[e] = t < 2 ? a0 : b0;
        v[2 + e] = t < 2 ? a1 : b1;
    }
}

/* 16 columns of a filter's row, whose first output is number `index`: of both halves two a lane. */
__device__ __forceinline__ void write_row(const tile_args &a, int32_t x0, int64_t index, bool live,
                                          const float (&first)[2], const float (&second)[2]) {
    const int32_t t = (int32_t)threadIdx.x % 4, width = live ? a.conv.out_width - x0 : 0;
    if (a.vectors) {
        float v[4];
        gather_four(first, second, v);
        if (t * 4 < width)
            xn_store_reals(a.out, index + t * 4, v);
        return;
    }
#pragma unroll
    for (int e = 0; e < 4; e++) {
        const int32_t x = e / 2 * 8 + t * 2 + e % 2;
        const float v[1] = {e < 2 ? first[e % 2] : second[e % 2]};
        if (x < width)
            xn_store_reals(a.out, index + x, v);
    }
}

/* v of two columns of both halves. */
__device__ __forceinline__ void values_of(const tile_args &a, const xn_filter &f, int32_t o, int h,
                                          const float (&sums)[2][4], float (&v)[2][2]) {
    bool finite = true;
#pragma unroll
    for (int n = 0; n < 4; n++) {
        v[n / 2][n % 2] = xn_value(sums[n / 2][h * 2 + n % 2], 1.0f, f);
        finite = finite && isfinite(v[n / 2][n % 2]);
    }
    if (!finite)
#pragma unroll 1
        for (int n = 0; n < 4; n++) {
            const float sum = n < 2   ? n % 2 ? sums[0][h * 2 + 1] : sums[0][h * 2]
                                : n % 2 ? sums[1][h * 2 + 1]
                                      : sums[1][h * 2];
            const float value = xn_sum_value(a.out, a.io.exponent, f, o, sum);
#pragma unroll
            for (int k = 0; k < 4; k++)
                if (k == n)
                    v[k / 2][k % 2] = value;
        }
    if (a.out.what.activation == XN_ACTIVATION_NONE)
        return;
    const xn_activation_of_filter activate(a.out, o);
#pragma unroll
    for (int n = 0; n < 4; n++)
        v[n / 2][n % 2] = activate(v[n / 2][n % 2]);
}

__device__ __forceinline__ void write_tile(const tile_args &a, const tile_place &p, int32_t m0,
                                           const xn_filter *filters, const tile_sums &sums) {
    const xn_conv &c = a.conv;
    const int32_t lane = (int32_t)threadIdx.x % 32, y = p.y + (int32_t)threadIdx.x / 32;
    const int64_t plane = (int64_t)c.out_height * c.out_width;
    const int64_t first = p.image * (c.out_channels * plane + a.out.output_gap) +
                          (int64_t)(m0 + lane / 4) * plane + (int64_t)y * c.out_width + p.x;
#pragma unroll
    for (int m = 0; m < M / 16; m++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const int32_t more = m * 16 + h * 8, own = more + lane / 4;
            const int32_t o = min(m0 + own, c.out_channels - 1);
            float v[2][2];
            values_of(a, filters[own], o, h, sums[m], v);
            write_row(a, p.x, first + more * plane, m0 + own < c.out_channels && y < c.out_height,
                      v[0], v[1]);
        }
}

#endif

__global__ void __launch_bounds__(THREADS, BLOCKS)
    real_tile_kernel(const __grid_constant__ tile_args a) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
    extern __shared__ __align__(16) char memory[];
    __shared__ xn_filter filters[M];
    const int32_t m0 = (int32_t)blockIdx.y * M;
    char *tile = memory + M * a.filter_pitch;
    xn_let_next_kernel_start();
    load_filters(a, m0, memory);
    if (threadIdx.x < M)
        filters[threadIdx.x] = xn_filter_with_exponent(
            a.out, a.io.exponent, min(m0 + (int32_t)threadIdx.x, a.conv.out_channels - 1));
    xn_wait_for_previous_kernel();
#pragma unroll 1
    for (int32_t number = blockIdx.x; number < a.tiles; number += (int32_t)gridDim.x) {
        const tile_place place = place_of(a, number);
        xn_with_input(a.io.input, a.conv.input_datatype,
                      [&](auto *input) { load_tile(a, place, input, tile); });
        __syncthreads();
        tile_sums sums = {};
        multiply_tile(a, xn_shared_address(memory), xn_shared_address(tile), sums);
        __syncthreads(); /* the tile is read */
        write_tile(a, place, m0, filters, sums);
    }
#else
    (void)a;
    __trap();
#endif
}

/* ---- launcher ---- */

static int32_t fours_of(const xn_conv *c) {
    return (c->kernel_w + 3) / 4;
}

/* What depends on the geometry; false where it is too large. */
static bool cut(const xn_conv *c, tile_args *a) {
    a->fours = fours_of(c);
    a->filter_pitch = c->kernel_h * a->fours * 4 * POSITION + ROW_PAD;
    a->rows = (SIDE - 1) * c->stride_h + (c->kernel_h - 1) * c->dilation_h + 1;
    a->columns = (SIDE - 1) * c->stride_w + a->fours * 4;
    a->row_bytes = a->columns * POSITION;
    return (int64_t)M * a->filter_pitch + (int64_t)a->rows * a->row_bytes <= MOST_BYTES;
}

static int64_t tiles_of(const xn_conv *c, int64_t images) {
    return images * ((c->out_height - 1) / SIDE + 1) * ((c->out_width - 1) / SIDE + 1);
}

bool xn_cuda_real_tile_fits(const xn_conv *c, int64_t images) {
    enum { LONGEST = 64 }; /* strides, kernels, dilation: so that nothing overflows */
    const xn_epilogue *e = &c->epilogue;
    tile_args a = {};
    return c->mode != XN_MODE_XNOR && c->precision == XN_PRECISION_FP16 && c->groups == 1 &&
           c->channels <= XN_CUDA_TILE_CHANNELS && c->stride_w % 2 == 0 && c->dilation_w == 1 &&
           std::max({c->stride_h, c->stride_w, c->kernel_w, c->dilation_h}) <= LONGEST &&
           (int64_t)c->height * c->width <= INT32_MAX / XN_CUDA_TILE_CHANNELS &&
           c->kernel_h <= MOST_ROWS && !e->residual && !e->bits &&
           (e->datatype == XN_FP32 || e->datatype == XN_FP16) && cut(c, &a) &&
           tiles_of(c, images) <= INT32_MAX / 2;
}

cudaError_t xn_cuda_real_tile_launch(const xn_conv *conv, int64_t images, int multiprocessors,
                                     const xn_cuda_tile_io *io, const xn_epilogue_args *epilogue,
                                     cudaStream_t stream) {
    tile_args a = {};
    const int32_t columns = (conv->out_width - 1) / SIDE + 1;
    const int32_t rows = (conv->out_height - 1) / SIDE + 1;
    const int32_t filter_blocks = (conv->out_channels - 1) / M + 1;
    a.conv = *conv;
    a.io = *io;
    a.out = xn_epilogue_of(conv, epilogue);
    if (!cut(conv, &a))
        return cudaErrorInvalidConfiguration;
    a.image_tiles = xn_fast_divisor_of(rows * columns);
    a.tile_columns = xn_fast_divisor_of(columns);
    a.tile_row = xn_fast_divisor_of(a.columns);
    a.tiles = (int32_t)tiles_of(conv, images);
    a.memory_pitch = xn_cuda_mma_row_bytes(XN_PRECISION_FP16, conv->channels,
                                           (int64_t)conv->kernel_h * conv->kernel_w);
    a.vectors = conv->out_width % 4 == 0;
    const int room = std::max(1, multiprocessors * BLOCKS / filter_blocks);
    const dim3 grid((unsigned)std::min(a.tiles, room), (unsigned)filter_blocks);
    const size_t bytes = (size_t)M * a.filter_pitch + (size_t)a.rows * a.row_bytes;
    return xn_cuda_launch_with(real_tile_kernel, grid, THREADS, bytes, io->overlapped, stream, a);
}

cudaError_t xn_cuda_real_tile_load(void) {
    return xn_cuda_load_with(real_tile_kernel, MOST_BYTES);
}
