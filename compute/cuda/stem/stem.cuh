/* stem.cuh: the tile kernel of stems, by mma.sync of bytes (u8 by s8, int32 sums, exact).
 *
 * A block has a band of output rows of an image. It lays the rows of the picture that they see in
 * shared memory, a word a pixel: its channels and zeros, zeros outside. So 8 neighbouring pixels
 * are what one instruction multiplies (K = 32), a row of taps, and the operand of an output is read
 * straight from the row: the output of column x begins at pixel x * stride. Nothing is laid out
 * twice, and with stride 2 no two lanes meet in a bank.
 *
 * A warp keeps the planes of 8 or 16 filters in registers and takes tiles of 16 columns of the
 * convolution along, from row to row: rows g of the instruction are columns 2 g of the tile, rows
 * g + 8 columns 2 g + 1. Behind a pool the tile begins one column before the first window, so that
 * a lane has the first two columns of a window and its neighbour the third: 7 windows a tile. What
 * the last row of a window was is kept for the next window below. */
#ifndef XN_CUDA_STEM_CUH
#define XN_CUDA_STEM_CUH

#include "epilogue.cuh"
#include "launch.cuh"
#include "ptx.cuh"
#include "stem.h"
#include "xn_planes.h"

#include <math.h>

enum { STEM_WARPS = 8 };

/* Tiles of 8 filters that a warp has: as many as leave registers for two blocks. */
XN_HD constexpr int stem_tiles(int planes) {
    return planes == 2 ? 2 : 1;
}

struct stem_args {
    xn_conv conv;
    xn_epilogue_args e;
    const uint8_t *input;
    const void *filters;
    const float *border, *scale;
    int32_t count; /* planes */
    int32_t top, bottom, left, right;
    int32_t height, width; /* of the convolution's output */
    int32_t pool, nhwc;
    int32_t band;                  /* output rows of a block */
    int32_t bands, tiles, pitch;   /* of an image; across; words of a row in shared memory */
    int32_t filter_warps;          /* of a block; the others share the tiles */
    int32_t bits_pitch, bits_unit; /* of a pixel, in units; bytes of a unit */
    int32_t none;                  /* the border of columns that are not there: -infinity */
    int64_t images, plane;         /* plane: outputs of a channel */
};

/* fp32 of the exact sum of planes, rounded once. */
template <int PLANES>
__device__ __forceinline__ float stem_sum(const int32_t (&s)[PLANES]) {
    if constexpr (PLANES == 2) {
        return (float)(s[1] * 128 + s[0]);
    } else {
        /* high * 128 + low. Where high has more than 24 bits, what low has is but whether the
         * rest is 0: as the last bit of a number that has two more than fp32. */
        const int32_t high = s[2] * 128 + s[1] + (s[0] >> 7), low = s[0] & 127;
        const float some = (float)(high * 128 + low);
        const float many = (float)(high * 2 | (low != 0)) * 64.0f;
        return (uint32_t)(high + (1 << 24)) < 1u << 25 ? some : many;
    }
}

__device__ __forceinline__ void stem_mma(int32_t (&acc)[4], const uint32_t (&a)[4], uint32_t b0,
                                         uint32_t b1) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 "
                 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+r"(acc[0]), "+r"(acc[1]), "+r"(acc[2]), "+r"(acc[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#else
    __trap();
#endif
}

/* The pixel's channels as a word. */
__device__ __forceinline__ uint32_t stem_pixel(const stem_args &a, const uint8_t *image, int32_t y,
                                               int32_t x) {
    const xn_conv &c = a.conv;
    if ((uint32_t)y >= (uint32_t)c.height || (uint32_t)x >= (uint32_t)c.width)
        return 0;
    const int32_t at = y * c.width + x, step = a.nhwc ? 1 : c.height * c.width;
    const uint8_t *from = image + (a.nhwc ? at * c.channels : at);
    uint32_t word = 0;
#pragma unroll
    for (int n = 0; n < XN_STEM_CHANNELS; n++)
        if (n < c.channels)
            word |= (uint32_t)__ldg(from + n * step) << 8 * n;
    return word;
}

/* Rows of the picture from row `y` on. */
__device__ __forceinline__ void stem_load(const stem_args &a, const uint8_t *image, int32_t y,
                                          int32_t x, int32_t rows, uint32_t *tile) {
    const int32_t warp = (int32_t)threadIdx.x / 32, lane = (int32_t)threadIdx.x % 32;
#pragma unroll 1
    for (int32_t r = warp; r < rows; r += STEM_WARPS)
#pragma unroll 4
        for (int32_t n = lane; n < a.pitch; n += 32)
            tile[r * a.pitch + n] = stem_pixel(a, image, y + r, x + n);
}

/* A warp's filters, of which a lane has o and o + 1 of each tile of 8. */
template <int PLANES, int ROWS>
struct stem_warp {
    enum { TILES = stem_tiles(PLANES) };
    uint32_t b[ROWS][TILES][PLANES][2];
    float scale[TILES][2], shift[TILES][2];
    int32_t o, first; /* first: the warp's */

    __device__ __forceinline__ void load(const stem_args &a, int32_t filter) {
        const int32_t lane = (int32_t)threadIdx.x % 32;
        const uint2 *from =
            (const uint2 *)a.filters + (int64_t)(filter / 8) * ROWS * PLANES * 32 + lane;
        first = filter;
        o = filter + lane % 4 * 2;
#pragma unroll
        for (int n = 0; n < TILES; n++) {
#pragma unroll
            for (int i = 0; i < ROWS; i++)
#pragma unroll
                for (int p = 0; p < PLANES; p++) {
                    const uint2 v = __ldg(from + ((n * ROWS + i) * PLANES + p) * 32);
                    b[i][n][p][0] = v.x;
                    b[i][n][p][1] = v.y;
                }
#pragma unroll
            for (int e = 0; e < 2; e++) {
                scale[n][e] = __ldg(a.scale + o + n * 8 + e);
                shift[n][e] = a.e.what.shift ? __ldg(a.e.shift + o + n * 8 + e) : 0.0f;
            }
        }
    }
};

/* Columns 2 g and 2 g + 1 of a tile. */
template <int TILES>
using stem_values = float[TILES][2][2]; /* [tile of filters][column][filter] */

/* Where the borders of a lane's columns are, from those of their row on. */
struct stem_borders {
    int32_t column[2];
};

/* x: the first of the columns. */
__device__ __forceinline__ stem_borders stem_borders_of(const stem_args &a, int32_t x, int32_t o) {
    stem_borders b;
#pragma unroll
    for (int n = 0; n < 2; n++)
        b.column[n] =
            (uint32_t)(x + n) < (uint32_t)a.width
                ? xn_planes_class(x + n, a.width, a.left, a.right) * a.conv.out_channels + o
                : a.none + o;
    return b;
}

/* A row of the convolution, row y, of a tile. A row of borders ends with one of -infinity. */
template <int PLANES, int ROWS, int TILES = stem_tiles(PLANES)>
__device__ __forceinline__ void stem_row(const stem_args &a, const stem_warp<PLANES, ROWS> &w,
                                         const uint32_t *from, int32_t y, const stem_borders &at,
                                         stem_values<TILES> &v) {
    const int32_t step = a.conv.stride_w;
    const int32_t row = xn_planes_class(y, a.height, a.top, a.bottom);
    const float *borders = a.border + row * (a.none + a.conv.out_channels);
    int32_t sums[TILES][PLANES][4] = {};
#pragma unroll
    for (int i = 0; i < ROWS; i++, from += a.pitch) {
        const uint32_t operand[4] = {from[0], from[step], from[4], from[step + 4]};
#pragma unroll
        for (int n = 0; n < TILES; n++)
#pragma unroll
            for (int p = 0; p < PLANES; p++)
                stem_mma(sums[n][p], operand, w.b[i][n][p][0], w.b[i][n][p][1]);
    }
#pragma unroll
    for (int column = 0; column < 2; column++)
#pragma unroll
        for (int n = 0; n < TILES; n++) {
            const float2 b = __ldg((const float2 *)(borders + at.column[column] + n * 8));
#pragma unroll
            for (int e = 0; e < 2; e++) {
                int32_t s[PLANES];
#pragma unroll
                for (int p = 0; p < PLANES; p++)
                    s[p] = sums[n][p][column * 2 + e];
                v[n][column][e] = fmaf(stem_sum<PLANES>(s), w.scale[n][e], e ? b.y : b.x);
            }
        }
}

/* A pixel's outputs of a lane, and of the warp their bits. All lanes. out: the image's output of
 * the lane's first filter. */
template <int PLANES, int ROWS, int TILES = stem_tiles(PLANES)>
__device__ __forceinline__ void stem_store(const stem_args &a, const stem_warp<PLANES, ROWS> &w,
                                           int64_t image, int64_t out, int32_t y, int32_t x,
                                           bool exists, const float (&v)[TILES][2]) {
    const int32_t pixel = y * a.conv.out_width + x, plane = (int32_t)a.plane;
    uint32_t bits = 0;
#pragma unroll
    for (int n = 0; n < TILES; n++)
#pragma unroll
        for (int e = 0; e < 2; e++) {
            const int32_t at = pixel + (n * 8 + e) * plane;
            float value = v[n][e];
            if (a.e.what.activation)
                value = xn_activate(a.e, w.o + n * 8 + e, value);
            if (exists && a.e.what.datatype == XN_FP16)
                ((__half *)a.e.output + out)[at] = __float2half_rn(value);
            if (exists && a.e.what.datatype == XN_FP32)
                ((float *)a.e.output + out)[at] = value;
            bits |= xn_sign_bit(value + w.shift[n][e]) << (n * 8 + e);
        }
    if (!a.e.what.bits)
        return;
    bits <<= w.o - w.first;
    bits |= __shfl_xor_sync(0xffffffffu, bits, 1);
    bits |= __shfl_xor_sync(0xffffffffu, bits, 2);
    uint8_t *to = (uint8_t *)a.e.bits + (image * a.plane + pixel) * a.bits_pitch + w.first / 8;
    if (exists && threadIdx.x % 4 == 0) {
        if (TILES == 2)
            *(uint16_t *)to = (uint16_t)bits;
        else
            *to = (uint8_t)bits;
    }
}

/* The largest of the three columns of a window of this row, and of what is there. */
template <int TILES>
__device__ __forceinline__ void stem_larger(const stem_values<TILES> &v, float (&most)[TILES][2]) {
#pragma unroll
    for (int n = 0; n < TILES; n++)
#pragma unroll
        for (int e = 0; e < 2; e++) {
            const float third = __shfl_down_sync(0xffffffffu, v[n][0][e], 4);
            most[n][e] = fmaxf(most[n][e], fmaxf(fmaxf(v[n][0][e], v[n][1][e]), third));
        }
}

/* Output rows [y, end) of a tile. rows: of the block's picture, for this lane and the tile. */
template <int PLANES, int ROWS, int TILES = stem_tiles(PLANES)>
__device__ __forceinline__ void stem_pool_tile(const stem_args &a, const stem_warp<PLANES, ROWS> &w,
                                               int64_t image, int64_t out, int32_t y, int32_t end,
                                               int32_t tile, const uint32_t *rows) {
    const int32_t g = (int32_t)threadIdx.x % 32 / 4;
    const int32_t out_x = tile * 7 + g, step = a.conv.stride_h * a.pitch;
    const stem_borders at = stem_borders_of(a, tile * 14 - 1 + 2 * g, w.o);
    const bool exists = g < 7 && out_x < a.conv.out_width;
    float last[TILES][2], most[TILES][2], second[TILES][2];
    const auto row = [&](int32_t number, float(&m)[TILES][2]) {
#pragma unroll
        for (int n = 0; n < TILES; n++)
            m[n][0] = m[n][1] = -INFINITY;
        if (number >= 0 && number < a.height) { /* the same for all lanes */
            stem_values<TILES> v;
            stem_row<PLANES, ROWS>(a, w, rows, number, at, v);
            stem_larger<TILES>(v, m);
        }
        rows += step;
    };
    row(2 * y - 1, last);
#pragma unroll 1
    for (; y < end; y++) {
        row(2 * y, most);
        row(2 * y + 1, second);
#pragma unroll
        for (int n = 0; n < TILES; n++)
#pragma unroll
            for (int e = 0; e < 2; e++) {
                most[n][e] = fmaxf(fmaxf(most[n][e], last[n][e]), second[n][e]);
                last[n][e] = second[n][e];
            }
        stem_store<PLANES, ROWS>(a, w, image, out, y, out_x, exists, most);
    }
}

template <int PLANES, int ROWS, int TILES = stem_tiles(PLANES)>
__device__ __forceinline__ void
stem_plain_tile(const stem_args &a, const stem_warp<PLANES, ROWS> &w, int64_t image, int64_t out,
                int32_t y, int32_t end, int32_t tile, const uint32_t *rows) {
    const int32_t x = tile * 16 + (int32_t)threadIdx.x % 32 / 4 * 2;
    const stem_borders at = stem_borders_of(a, x, w.o);
#pragma unroll 1
    for (; y < end; y++, rows += a.conv.stride_h * a.pitch) {
        stem_values<TILES> v;
        stem_row<PLANES, ROWS>(a, w, rows, y, at, v);
#pragma unroll
        for (int column = 0; column < 2; column++) {
            float values[TILES][2];
#pragma unroll
            for (int n = 0; n < TILES; n++)
                values[n][0] = v[n][column][0], values[n][1] = v[n][column][1];
            stem_store<PLANES, ROWS>(a, w, image, out, y, x + column, x + column < a.width, values);
        }
    }
}

template <int PLANES, int ROWS>
__global__ void __launch_bounds__(STEM_WARPS * 32, 2)
    stem_kernel(const __grid_constant__ stem_args a) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
    extern __shared__ uint32_t stem_tile[];
    const xn_conv &c = a.conv;
    const int64_t image = (int64_t)blockIdx.x / a.bands;
    const int32_t y = (int32_t)(blockIdx.x - image * a.bands) * a.band;
    const int32_t end = min(y + a.band, c.out_height);
    const int32_t row = a.pool ? 2 * y - 1 : y, column = a.pool ? -1 : 0;
    const int32_t rows = a.pool ? 2 * (end - y) + 1 : end - y;
    const int32_t warp = (int32_t)threadIdx.x / 32, lane = (int32_t)threadIdx.x % 32;
    const int32_t own =
        ((int32_t)blockIdx.y * a.filter_warps + warp % a.filter_warps) * stem_tiles(PLANES) * 8;
    stem_warp<PLANES, ROWS> w;
    xn_let_next_kernel_start();
    if (own < c.out_channels)
        w.load(a, own);
    xn_wait_for_previous_kernel();
    stem_load(a, a.input + image * c.channels * c.height * c.width, row * c.stride_h - c.pad_top,
              column * c.stride_w - c.pad_left, (rows - 1) * c.stride_h + ROWS, stem_tile);
    __syncthreads();
    if (own >= c.out_channels)
        return;
    const int64_t out = image * (c.out_channels * a.plane + a.e.output_gap) + w.o * a.plane;
#pragma unroll 1
    for (int32_t tile = warp / a.filter_warps; tile < a.tiles;
         tile += STEM_WARPS / a.filter_warps) {
        const int32_t first = tile * (a.pool ? 14 : 16) + lane / 4 * 2;
        const uint32_t *from = stem_tile + first * c.stride_w + lane % 4;
        if (a.pool)
            stem_pool_tile<PLANES, ROWS>(a, w, image, out, y, end, tile, from);
        else
            stem_plain_tile<PLANES, ROWS>(a, w, image, out, y, end, tile, from);
    }
#else
    (void)a;
    __trap();
#endif
}

#endif
