/* stem.cuh: the tile kernel of stems, by mma.sync of bytes (s8 by u8, int32 sums, exact).
 *
 * A block has a band of output rows of an image. It lays the rows of the picture that they see in
 * shared memory, a word a pixel: its channels, zeros outside. So 8 neighbouring pixels are what one
 * instruction multiplies (K = 32), a row of taps, and the operand of an output is read straight
 * from the row: the window of column x begins at word x * stride. Lane l has taps 2 (l % 4) and the
 * next, two neighbouring words.
 *
 * A warp keeps the planes of 16 filters in registers and takes tiles of 16 columns of the
 * convolution along, two rows at a time, which share most rows of the picture. Lane l has filters
 * 2 (l / 4) and the next, and of these columns 4 (l % 4) to 4 (l % 4) + 3.
 *
 * With a pool behind it, a pair of rows is a row of windows: with the last row of the pair above,
 * and the last column of the tile to the left. fma(sum, scale, border) grows with the sum where
 * scale is not negative, rounding included. So where a window's pixels have one border the largest
 * sum is compared for, and one value computed; the planes of filters with a negative scale are
 * turned when they are read. */
#ifndef XN_CUDA_STEM_CUH
#define XN_CUDA_STEM_CUH

#include "epilogue.cuh"
#include "launch.cuh"
#include "ptx.cuh"
#include "stem.h"
#include "xn_planes.h"

#include <math.h>
#include <type_traits>

enum { STEM_WARPS = 4, STEM_TILE = 16 /* columns of a tile */ };

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
    int32_t pairs, band, bands;   /* of rows of the convolution: an image's, a block's; blocks */
    int32_t tiles, across, pitch; /* of a row; of a block; words of a row in shared memory */
    int32_t shift, lead;          /* the first tap's place; words before the first pixel */
    /* Rows of windows, and tiles, all of whose rows, columns have one border: first, last + 1. */
    int32_t even_rows[2], even_tiles[2];
    int32_t filter_warps;          /* of a block; the others share the band */
    int32_t bits_pitch, bits_unit; /* of a pixel, in units; bytes of a unit */
    int32_t none;                  /* the border of columns that are not there: -infinity */
    bool quads;                    /* 4 pixels are read as 3 aligned words */
    bool vectors;                  /* neighbouring outputs are stored at once */
    int64_t images, plane;         /* plane: outputs of a channel */
};

/* What grows with the exact sum of planes: the sum, or with three planes its fp32. */
template <int PLANES>
using stem_number = std::conditional_t<PLANES == 2, int32_t, float>;

__device__ __forceinline__ int32_t stem_sum(const int32_t (&s)[2]) {
    return s[1] * 128 + s[0];
}

/* The sum is high * 2^14 + low, both exact in fp32 for any XN_PLANES_TAPS bytes: one rounding. */
__device__ __forceinline__ float stem_sum(const int32_t (&s)[3]) {
    const int32_t rest = s[1] * 128 + s[0], high = s[2] + (rest >> 14), low = rest & 0x3fff;
    return fmaf((float)high, 0x1p14f, (float)low);
}

__device__ __forceinline__ int32_t stem_larger(int32_t a, int32_t b) {
    return max(a, b);
}
__device__ __forceinline__ float stem_larger(float a, float b) {
    return fmaxf(a, b);
}

__device__ __forceinline__ void stem_mma(int32_t (&acc)[4], const uint32_t (&a)[4], uint2 b) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.u8.s32 "
        "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+r"(acc[0]), "+r"(acc[1]), "+r"(acc[2]), "+r"(acc[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b.x), "r"(b.y));
#else
    __trap();
#endif
}

/* ---- the picture ---- */

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

/* Four pixels of three channels. The fourth byte of a word is anything: its weights are 0. */
__device__ __forceinline__ uint4 stem_quad(const stem_args &a, const uint8_t *image, int32_t y,
                                           int32_t x) {
    const xn_conv &c = a.conv;
    if ((uint32_t)y >= (uint32_t)c.height || (uint32_t)x >= (uint32_t)c.width)
        return make_uint4(0, 0, 0, 0);
    const int32_t at = y * c.width + x, step = a.nhwc ? 1 : c.height * c.width / 4;
    const uint32_t *from = (const uint32_t *)(image + (a.nhwc ? at * 3 : at));
    const uint32_t r = __ldg(from), g = __ldg(from + step), b = __ldg(from + 2 * step);
    if (a.nhwc)
        return make_uint4(r, __funnelshift_r(r, g, 24), __funnelshift_r(g, b, 16), b >> 8);
    return make_uint4(__byte_perm(__byte_perm(r, g, 0x0040), b, 0x0410),
                      __byte_perm(__byte_perm(r, g, 0x0051), b, 0x0510),
                      __byte_perm(__byte_perm(r, g, 0x0062), b, 0x0610),
                      __byte_perm(__byte_perm(r, g, 0x0073), b, 0x0710));
}

/* Rows of the picture from row `y` on. */
__device__ __forceinline__ void stem_load(const stem_args &a, const uint8_t *image, int32_t y,
                                          int32_t rows, uint32_t *to) {
    const int32_t warp = (int32_t)(threadIdx.x / 32), lane = (int32_t)(threadIdx.x % 32);
    if (!a.quads) {
#pragma unroll 1
        for (int32_t r = warp; r < rows; r += STEM_WARPS)
#pragma unroll 2
            for (int32_t n = lane; n < a.pitch; n += 32)
                to[r * a.pitch + n] = stem_pixel(a, image, y + r, n - a.lead);
        return;
    }
#pragma unroll 1
    for (int32_t n = lane * 4; n < a.pitch; n += 128)
#pragma unroll 4
        for (int32_t r = warp; r < rows; r += STEM_WARPS)
            *(uint4 *)(to + r * a.pitch + n) = stem_quad(a, image, y + r, n - a.lead);
}

/* ---- a warp ---- */

/* What a lane has of a tile: of its filters, of its columns. */
template <typename T>
using stem_lane = T[2][4];

template <int PLANES, int ROWS, int STRIDE>
struct stem_warp {
    typedef stem_number<PLANES> number;
    uint32_t weight[ROWS][PLANES][4];
    float scale[2], border[2]; /* border: of windows inside the picture */
    int32_t o;                 /* the lane's first filter */

    __device__ __forceinline__ void load(const stem_args &a, int32_t filter) {
        const int32_t lane = (int32_t)(threadIdx.x % 32);
        o = filter + lane / 4 * 2;
#pragma unroll
        for (int f = 0; f < 2; f++) {
            scale[f] = __ldg(a.scale + o + f);
            border[f] = __ldg(a.border + a.top * (a.none + a.conv.out_channels) +
                              a.left * a.conv.out_channels + o + f);
        }
        const uint32_t *from = (const uint32_t *)a.filters;
#pragma unroll
        for (int i = 0; i < ROWS; i++)
#pragma unroll
            for (int p = 0; p < PLANES; p++)
#pragma unroll
                for (int n = 0; n < 4; n++) {
                    const int32_t own = o + n % 2, tap = lane % 4 * 2 + n / 2 - a.shift;
                    const int32_t at = ((own / 8 * ROWS + i) * PLANES + p) * 32 + own % 8 * 4;
                    const uint32_t w = tap < 0 ? 0 : __ldg(from + (at + tap % 4) * 2 + tap / 4);
                    weight[i][p][n] = scale[n % 2] < 0.0f ? __vneg4(w) : w;
                }
        scale[0] = fabsf(scale[0]);
        scale[1] = fabsf(scale[1]);
    }

    /* Rows of the convolution next to each other. from: the lane's words of the first. Even and odd
     * columns one after the other, which need fewer registers. */
    template <int N>
    __device__ __forceinline__ void multiply(const stem_args &a, const uint32_t *from,
                                             stem_lane<number> (&sum)[N]) const {
        enum { STEP = STRIDE ? STRIDE : ROWS };
#pragma unroll
        for (int odd = 0; odd < 2; odd++) {
            const uint32_t *at = from + odd * (STRIDE ? STRIDE : a.conv.stride_w);
            int32_t acc[N][PLANES][4] = {};
#pragma unroll
            for (int r = 0; r < (N - 1) * STEP + ROWS; r++, at += a.pitch) {
                if (!STRIDE && r == ROWS)
                    at += (a.conv.stride_h - ROWS) * a.pitch;
                const uint2 pixels = STRIDE ? *(const uint2 *)at : make_uint2(at[0], at[1]);
#pragma unroll
                for (int n = 0; n < N; n++)
                    if (r >= n * STEP && r < n * STEP + ROWS)
#pragma unroll
                        for (int p = 0; p < PLANES; p++)
                            stem_mma(acc[n][p], weight[r - n * STEP][p], pixels);
            }
#pragma unroll
            for (int n = 0; n < N * 4; n++) {
                int32_t s[PLANES];
#pragma unroll
                for (int p = 0; p < PLANES; p++)
                    s[p] = acc[n / 4][p][n % 4];
                sum[n / 4][n % 4 / 2][n % 2 * 2 + odd] = stem_sum(s);
            }
        }
    }
};

/* The values of sums of row y, by the borders of their columns from x on. A row of borders ends
 * with one of -infinity. */
template <typename T>
__device__ __forceinline__ void stem_values(const stem_args &a, const float (&scale)[2], int32_t o,
                                            int32_t y, int32_t x, const stem_lane<T> &sum,
                                            stem_lane<float> &v) {
    const int32_t row = xn_planes_class(y, a.height, a.top, a.bottom);
    const float *borders = a.border + row * (a.none + a.conv.out_channels) + o;
#pragma unroll
    for (int n = 0; n < 4; n++) {
        const int32_t at =
            x + n < a.width ? xn_planes_class(x + n, a.width, a.left, a.right) * a.conv.out_channels
                            : a.none;
        const float2 b = __ldg((const float2 *)(borders + at));
        v[0][n] = fmaf((float)sum[0][n], scale[0], b.x);
        v[1][n] = fmaf((float)sum[1][n], scale[1], b.y);
    }
}

/* Where a lane's outputs go, of an image. */
struct stem_out {
    void *output;  /* of its first filter */
    uint8_t *bits; /* of the warp's filters, of pixel lane / 4 */
    float shift[2];
    int32_t o;

    __device__ __forceinline__ stem_out(const stem_args &a, int64_t image, int32_t first) {
        const int32_t own = (int32_t)(threadIdx.x % 32 / 4);
        o = first + own * 2;
        const int64_t at = image * (a.conv.out_channels * a.plane + a.e.output_gap) + o * a.plane;
        output = (char *)a.e.output + at * (a.e.what.datatype == XN_FP16 ? 2 : 4);
        bits = (uint8_t *)a.e.bits + (image * a.plane + own) * a.bits_pitch + first / 8;
        shift[0] = a.e.what.shift ? __ldg(a.e.shift + o) : 0.0f;
        shift[1] = a.e.what.shift ? __ldg(a.e.shift + o + 1) : 0.0f;
    }

    template <typename T, int W>
    __device__ __forceinline__ void put(const stem_args &a, int32_t pixel, int32_t left,
                                        const float (&v)[2][W]) const {
        const int32_t plane = (int32_t)a.plane;
        if (a.vectors && left > 0) {
            xn_store((T *)output + pixel, v[0]);
            xn_store((T *)output + (pixel + plane), v[1]);
            return;
        }
#pragma unroll
        for (int n = 0; n < W; n++)
            if (n < left) {
                xn_store((T *)output + pixel + n, {v[0][n]});
                xn_store((T *)output + (pixel + plane) + n, {v[1][n]});
            }
    }

    /* W neighbours from (y, x) on, and of the warp their bits. All lanes. */
    template <int W>
    __device__ __forceinline__ void store(const stem_args &a, int32_t y, int32_t x,
                                          float (&v)[2][W]) const {
        const int32_t own = (int32_t)(threadIdx.x % 32 / 4);
        const int32_t pixel = y * a.conv.out_width + x, left = a.conv.out_width - x;
        if (a.e.what.activation)
#pragma unroll
            for (int n = 0; n < 2 * W; n++)
                v[n / W][n % W] = xn_activate(a.e, o + n / W, v[n / W][n % W]);
        if (a.e.what.datatype == XN_FP16)
            put<__half>(a, pixel, left, v);
        else if (a.e.what.datatype == XN_FP32)
            put<float>(a, pixel, left, v);
        if (!a.e.what.bits)
            return;
        uint32_t word[W / 2]; /* a half word for each output */
#pragma unroll
        for (int n = 0; n < W / 2; n++) {
            word[n] = 0;
#pragma unroll
            for (int k = 0; k < 4; k++)
                if (xn_sign_bit(v[k % 2][2 * n + k / 2] + shift[k % 2]))
                    word[n] |= 1u << (k % 2 + k / 2 * 16);
            word[n] <<= own * 2;
#pragma unroll
            for (int from = 4; from < 32; from *= 2)
                word[n] |= __shfl_xor_sync(0xffffffffu, word[n], from);
        }
        if (own < W && own < left)
            *(uint16_t *)(bits + (int64_t)pixel * a.bits_pitch) =
                (uint16_t)((own < 2 ? word[0] : word[W / 2 - 1]) >> (own & 1) * 16);
    }
};

/* ---- tiles ---- */

/* The largest value of each column in the rows of windows row y, whose borders differ. from: the
 * lane's words of the first. last: the sums of the last. */
template <int PLANES, int ROWS, int STRIDE>
__device__ __forceinline__ void
stem_three_rows(const stem_args &a, const stem_warp<PLANES, ROWS, STRIDE> &w, const uint32_t *from,
                int32_t step, int32_t y, int32_t x, stem_lane<stem_number<PLANES>> (&last)[1],
                stem_lane<float> &v) {
#pragma unroll
    for (int n = 0; n < 8; n++)
        v[n / 4][n % 4] = -INFINITY;
#pragma unroll 1
    for (int32_t row = 2 * y - 1; row < 2 * y + 2; row++, from += step) {
        w.multiply(a, from, last);
        if (row < 0 || row >= a.height)
            continue; /* the same for all lanes */
        stem_lane<float> some;
        stem_values(a, w.scale, w.o, row, x, last[0], some);
#pragma unroll
        for (int n = 0; n < 8; n++)
            v[n / 4][n % 4] = fmaxf(v[n / 4][n % 4], some[n / 4][n % 4]);
    }
}

/* Rows of windows [y, end) of a tile. from: the lane's words of the first window's first row. edge:
 * the largest of the last column of the tile to the left for each row, then the same of this tile.
 * A tile before `first` is there for its edge. */
template <int PLANES, int ROWS, int STRIDE>
__device__ __forceinline__ void
stem_pool_tile(const stem_args &a, const stem_warp<PLANES, ROWS, STRIDE> &w, const stem_out &out,
               int32_t y, int32_t end, int32_t tile, int32_t first, const uint32_t *from,
               float2 *edge) {
    typedef stem_number<PLANES> number;
    const int32_t quad = (int32_t)(threadIdx.x % 4), x = tile * STEM_TILE + quad * 4;
    const int32_t step = (STRIDE ? STRIDE : a.conv.stride_h) * a.pitch;
    const int32_t out_x = tile < first ? a.conv.out_width : x / 2;
    const bool has_left = tile >= first && tile > 0 && quad == 0;
    const bool inside = tile >= a.even_tiles[0] && tile < a.even_tiles[1];
    stem_lane<number> above[1];
    if (y >= a.even_rows[0] && y < a.even_rows[1])
        w.multiply(a, from, above);
#pragma unroll 1
    for (; y < end; y++, from += 2 * step, edge += 8) {
        stem_lane<number> most;
        stem_lane<float> v;
        const bool one_border = y >= a.even_rows[0] && y < a.even_rows[1];
        if (one_border) {
            stem_lane<number> rows[2];
            w.multiply(a, from + step, rows);
#pragma unroll
            for (int n = 0; n < 8; n++) {
                const number more = stem_larger(above[0][n / 4][n % 4], rows[0][n / 4][n % 4]);
                above[0][n / 4][n % 4] = rows[1][n / 4][n % 4];
                most[n / 4][n % 4] = stem_larger(more, rows[1][n / 4][n % 4]);
            }
            if (!inside)
                stem_values(a, w.scale, w.o, 2 * y, x, most, v);
        } else {
            stem_three_rows(a, w, from, step, y, x, above, v);
        }
        float2 beside = make_float2(-INFINITY, -INFINITY);
        if (has_left)
            beside = *edge;
        __syncwarp();
        float result[2][2];
        if (one_border && inside) {
#pragma unroll
            for (int f = 0; f < 2; f++) {
                const number(&m)[4] = most[f];
                const number other = __shfl_up_sync(0xffffffffu, m[3], 1, 4);
                const number first = stem_larger(stem_larger(quad ? other : m[0], m[0]), m[1]);
                const number second = stem_larger(stem_larger(m[1], m[2]), m[3]);
                result[f][0] = fmaf((float)first, w.scale[f], w.border[f]);
                result[f][1] = fmaf((float)second, w.scale[f], w.border[f]);
                v[f][3] = fmaf((float)m[3], w.scale[f], w.border[f]);
            }
        } else {
#pragma unroll
            for (int f = 0; f < 2; f++) {
                const float other = __shfl_up_sync(0xffffffffu, v[f][3], 1, 4);
                result[f][0] = fmaxf(fmaxf(v[f][0], v[f][1]), quad ? other : -INFINITY);
                result[f][1] = fmaxf(fmaxf(v[f][1], v[f][2]), v[f][3]);
            }
        }
#pragma unroll
        for (int f = 0; f < 2; f++) { /* a NaN is less than any value */
            result[f][0] = fmaxf(result[f][0], f ? beside.y : beside.x);
            result[f][1] = fmaxf(result[f][1], -INFINITY);
        }
        if (quad == 3)
            *edge = make_float2(fmaxf(v[0][3], -INFINITY), fmaxf(v[1][3], -INFINITY));
        out.store(a, y, out_x, result);
    }
}

template <int PLANES, int ROWS, int STRIDE>
__device__ __forceinline__ void
stem_plain_tile(const stem_args &a, const stem_warp<PLANES, ROWS, STRIDE> &w, const stem_out &out,
                int32_t y, int32_t end, int32_t tile, const uint32_t *from) {
    const int32_t x = tile * STEM_TILE + (int32_t)(threadIdx.x % 4) * 4;
    const int32_t step = (STRIDE ? STRIDE : a.conv.stride_h) * a.pitch;
#pragma unroll 1
    for (; y < end; y++, from += 2 * step) {
        stem_lane<stem_number<PLANES>> rows[2];
        w.multiply(a, from, rows);
#pragma unroll
        for (int n = 0; n < 2; n++)
            if (2 * y + n < a.height) { /* the same for all lanes */
                stem_lane<float> v;
                stem_values(a, w.scale, w.o, 2 * y + n, x, rows[n], v);
                out.store(a, 2 * y + n, x, v);
            }
    }
}

template <int PLANES, int ROWS, int STRIDE, bool POOL>
__global__ void __launch_bounds__(STEM_WARPS * 32, PLANES == 2 ? 4 : 3)
    stem_kernel(const __grid_constant__ stem_args a) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
    extern __shared__ __align__(16) uint32_t stem_rows[];
    const xn_conv &c = a.conv;
    const int64_t image = (int64_t)blockIdx.x / a.bands;
    const int32_t begin = (int32_t)(blockIdx.x - image * a.bands) * a.band;
    const int32_t pairs = min(a.band, a.pairs - begin);
    const int32_t row = 2 * begin - POOL, rows = 2 * pairs + POOL; /* of the convolution */
    const int32_t warp = (int32_t)(threadIdx.x / 32), lane = (int32_t)(threadIdx.x % 32);
    const int32_t own = ((int32_t)blockIdx.y * a.filter_warps + warp % a.filter_warps) * 16;
    stem_warp<PLANES, ROWS, STRIDE> w;
    xn_let_next_kernel_start();
    if (own < c.out_channels)
        w.load(a, own);
    xn_wait_for_previous_kernel();
    stem_load(a, a.input + image * c.channels * c.height * c.width, row * c.stride_h - c.pad_top,
              (rows - 1) * c.stride_h + ROWS, stem_rows);
    __syncthreads();
    if (own >= c.out_channels)
        return;
    const int32_t parts = STEM_WARPS / a.filter_warps, part = warp / a.filter_warps;
    const int32_t each = (pairs + parts - 1) / parts, y = min(part * each, pairs);
    const int32_t end = min(y + each, pairs);
    const stem_out out(a, image, own);
    const int32_t stride = STRIDE ? STRIDE : c.stride_w;
    const uint32_t *from = stem_rows + 2 * y * c.stride_h * a.pitch + a.lead - c.pad_left -
                           a.shift + lane / 4 * 2 * stride + lane % 4 * 2;
    float2 *edge = (float2 *)(stem_rows + ((2 * a.band + POOL - 1) * c.stride_h + ROWS) * a.pitch) +
                   warp * a.band * 8 + lane / 4;
    const int32_t first = (int32_t)blockIdx.z * a.across, last = min(first + a.across, a.tiles);
    if (y < end)
#pragma unroll 1
        for (int32_t tile = max(first - POOL, 0); tile < last; tile++) {
            const uint32_t *at = from + tile * STEM_TILE * stride;
            if (POOL)
                stem_pool_tile(a, w, out, begin + y, begin + end, tile, first, at, edge);
            else
                stem_plain_tile(a, w, out, begin + y, begin + end, tile, at);
            __syncwarp();
        }
#else
    (void)a;
    __trap();
#endif
}

#endif
