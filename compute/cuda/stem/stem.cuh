/* stem.cuh: the tile kernel of stems, by mma.sync of bytes (s8 by u8, int32 sums, exact).
 *
 * A block has a band of output rows of an image. It lays the rows of the picture that they see in
 * shared memory, a word a pixel: its channels, zeros outside. So 8 neighbouring pixels are what one
 * instruction multiplies (K = 32), a row of taps, and the operand of an output is read straight
 * from the row: the window of column x begins at word x * stride. Lane l has taps 2 (l % 4) and the
 * next, two neighbouring words. Two words of all rows lie one after the other, so that rows have
 * constant distances and a lane reads two at once.
 *
 * A warp keeps the planes of 16 filters in registers and takes tiles of 16 columns of the
 * convolution along, two rows at a time, which share most rows of the picture. Lane l has filters
 * 2 (l / 4) and the next, and of these columns 4 (l % 4) to 4 (l % 4) + 3.
 *
 * With a pool behind it, a pair of rows is a row of windows: with the last row of the pair above,
 * and the last column of the tile to the left. fma(sum, scale, border) grows with the sum where
 * scale is not negative, rounding included. So where a window's pixels have one border the largest
 * sum is compared for, and one value computed; the planes of filters with a negative scale are
 * turned when the operands are made. */
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
    int32_t pairs, band, bands; /* of rows of the convolution: an image's, a block's; blocks */
    int32_t tiles, across;      /* of a row; of a block */
    int32_t pitch, lines;       /* words of a row in shared memory; rows */
    int32_t shift, lead;        /* the first tap's place; words before the first pixel */
    int32_t even_rows[2]; /* rows of windows all of whose rows have one border: first, last + 1 */
    int32_t filter_warps; /* of a block; the others share the band */
    int32_t bits_pitch, bits_unit; /* of a pixel, in units; bytes of a unit */
    int32_t row_bytes, word_bytes; /* of the picture (stem_wide.cuh): a row or a plane's; from one
                                      word of a thread's to its next */
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

/* Four pixels of three channels as they lie in memory, zeros outside; without a branch, so that
 * several are under way. */
__device__ __forceinline__ void stem_read_quad(const stem_args &a, const uint8_t *image, int32_t y,
                                               int32_t x, uint32_t (&raw)[3]) {
    const xn_conv &c = a.conv;
    const bool inside = (uint32_t)y < (uint32_t)c.height && (uint32_t)x < (uint32_t)c.width;
    const int32_t at = y * c.width + x, step = a.nhwc ? 1 : c.height * c.width / 4;
    const uint32_t *from = (const uint32_t *)(image + (a.nhwc ? at * 3 : at));
#pragma unroll
    for (int n = 0; n < 3; n++) {
        raw[n] = 0;
        xn_load_4_if(&raw[n], from + n * step, inside);
    }
}

/* The same as words. The fourth byte of a word is anything: its weights are 0. */
__device__ __forceinline__ uint4 stem_quad(const stem_args &a, const uint32_t (&raw)[3]) {
    const uint32_t r = raw[0], g = raw[1], b = raw[2];
    if (a.nhwc)
        return make_uint4(r, __funnelshift_r(r, g, 24), __funnelshift_r(g, b, 16), b >> 8);
    return make_uint4(__byte_perm(__byte_perm(r, g, 0x0040), b, 0x0410),
                      __byte_perm(__byte_perm(r, g, 0x0051), b, 0x0510),
                      __byte_perm(__byte_perm(r, g, 0x0062), b, 0x0610),
                      __byte_perm(__byte_perm(r, g, 0x0073), b, 0x0710));
}

/* Where the rows' word `at` is, two words a row. */
__device__ __forceinline__ int32_t stem_place(const stem_args &a, int32_t at) {
    return at / 2 * 2 * a.lines + at % 2;
}

/* Words [begin, end), multiples of 4, of rows of the picture from row `y` on. Several rows are
 * under way at once. */
__device__ __forceinline__ void stem_load(const stem_args &a, const uint8_t *image, int32_t y,
                                          int32_t rows, int32_t begin, int32_t end, uint32_t *to) {
    enum { AHEAD = 5 };
    const int32_t warp = (int32_t)(threadIdx.x / 32), lane = (int32_t)(threadIdx.x % 32);
    if (!a.quads) {
#pragma unroll 1
        for (int32_t r = warp; r < rows; r += STEM_WARPS)
#pragma unroll 2
            for (int32_t n = begin + lane; n < end; n += 32)
                to[stem_place(a, n) + 2 * r] = stem_pixel(a, image, y + r, n - a.lead);
        return;
    }
#pragma unroll 1
    for (int32_t n = begin + lane * 4; n < end; n += 128) {
        uint32_t *column = to + stem_place(a, n);
#pragma unroll 1
        for (int32_t r = warp; r < rows; r += STEM_WARPS * AHEAD) {
            uint32_t raw[AHEAD][3];
#pragma unroll
            for (int i = 0; i < AHEAD; i++)
                stem_read_quad(a, image, y + r + i * STEM_WARPS, n - a.lead, raw[i]);
#pragma unroll
            for (int i = 0; i < AHEAD; i++)
                if (r + i * STEM_WARPS < rows) {
                    uint32_t *row = column + 2 * (r + i * STEM_WARPS);
                    const uint4 v = stem_quad(a, raw[i]);
                    *(uint2 *)row = make_uint2(v.x, v.y);
                    *(uint2 *)(row + 2 * a.lines) = make_uint2(v.z, v.w);
                }
        }
    }
}

/* ---- a warp ---- */

/* What a lane has of a tile: of its filters, of its columns. */
template <typename T>
using stem_lane = T[2][4];

template <int PLANES, int ROWS, int STRIDE>
struct stem_warp {
    typedef stem_number<PLANES> number;
    uint32_t weight[ROWS][PLANES][4];

    __device__ __forceinline__ void load(const stem_args &a, int32_t filter) {
        const int32_t lane = (int32_t)(threadIdx.x % 32);
        const uint4 *from = (const uint4 *)a.filters + filter / 16 * (ROWS * PLANES * 32) + lane;
#pragma unroll
        for (int i = 0; i < ROWS; i++)
#pragma unroll
            for (int p = 0; p < PLANES; p++) {
                const uint4 w = __ldg(from + (i * PLANES + p) * 32);
                weight[i][p][0] = w.x;
                weight[i][p][1] = w.y;
                weight[i][p][2] = w.z;
                weight[i][p][3] = w.w;
            }
    }

    /* Two neighbouring words of row r from `from` on. two: those of the row and the next, where
     * they are read at once. */
    __device__ __forceinline__ uint2 pixels(const stem_args &a, const uint32_t *from, int32_t at,
                                            int r, uint4 &two) const {
        if (!STRIDE) {
            const int32_t row = 2 * (r < ROWS ? r : r - ROWS + a.conv.stride_h);
            return make_uint2(from[stem_place(a, at) + row], from[stem_place(a, at + 1) + row]);
        }
        if (r % 2)
            return make_uint2(two.z, two.w);
        two = *(const uint4 *)(from + stem_place(a, at) + 2 * r);
        return make_uint2(two.x, two.y);
    }

    /* N rows of the convolution next to each other. from: the first row. at: the lane's words of
     * it. Even and odd columns at once, so that products wait less for each other, or with three
     * planes one after the other, which need fewer registers. */
    template <int N>
    __device__ __forceinline__ void multiply(const stem_args &a, const uint32_t *from, int32_t at,
                                             stem_lane<number> (&sum)[N]) const {
        enum { STEP = STRIDE ? STRIDE : ROWS, AT_ONCE = PLANES == 2 ? 2 : 1 };
#pragma unroll
        for (int odd = 0; odd < 2; odd += AT_ONCE) {
            int32_t acc[N * AT_ONCE][PLANES][4] = {};
            uint4 two[AT_ONCE] = {};
#pragma unroll
            for (int n = 0; n < ((N - 1) * STEP + ROWS) * AT_ONCE; n++) {
                const int r = n / AT_ONCE, c = n % AT_ONCE;
                const int32_t word = at + (odd + c) * (STRIDE ? STRIDE : a.conv.stride_w);
                const uint2 b = pixels(a, from, word, r, two[c]);
#pragma unroll
                for (int m = 0; m < N * PLANES; m++)
                    if (r >= m / PLANES * STEP && r < m / PLANES * STEP + ROWS)
                        stem_mma(acc[m / PLANES * AT_ONCE + c][m % PLANES],
                                 weight[r - m / PLANES * STEP][m % PLANES], b);
            }
#pragma unroll
            for (int n = 0; n < N * AT_ONCE * 4; n++) {
                const int i = n / 4, k = n % 4;
                int32_t s[PLANES];
#pragma unroll
                for (int p = 0; p < PLANES; p++)
                    s[p] = acc[i][p][k];
                sum[i / AT_ONCE][k / 2][k % 2 * 2 + odd + i % AT_ONCE] = stem_sum(s);
            }
        }
    }
};

/* The borders of columns from x on, of rows of class `row`. A row of borders ends with one of
 * -infinity. */
__device__ __forceinline__ void stem_borders(const stem_args &a, int32_t o, int32_t row, int32_t x,
                                             stem_lane<float> &border) {
    const float *borders = a.border + row * (a.none + a.conv.out_channels) + o;
#pragma unroll
    for (int n = 0; n < 4; n++) {
        const int32_t at =
            x + n < a.width ? xn_planes_class(x + n, a.width, a.left, a.right) * a.conv.out_channels
                            : a.none;
        const float2 b = __ldg((const float2 *)(borders + at));
        border[0][n] = b.x;
        border[1][n] = b.y;
    }
}

/* What a lane keeps in shared memory, where only it looks: registers are scarce. Each is 32 on. */
enum { STEM_NUMBERS, STEM_BORDERS, STEM_ROWS = STEM_BORDERS + 2, STEM_KEPT = STEM_ROWS + 4 };

/* Where a lane's outputs go, of an image. */
struct stem_out {
    void *output;  /* of its first filter */
    uint8_t *bits; /* of the warp's filters */
    float4 *kept;  /* scale and shift of its filters; a tile's borders; values of two rows */
    int32_t o;

    __device__ __forceinline__ stem_out(const stem_args &a, int64_t image, int32_t first,
                                        float4 *own)
        : kept(own) {
        o = first + (int32_t)(threadIdx.x % 32 / 4) * 2;
        const int64_t at = image * (a.conv.out_channels * a.plane + a.e.output_gap) + o * a.plane;
        output = (char *)a.e.output + at * (a.e.what.datatype == XN_FP16 ? 2 : 4);
        bits = (uint8_t *)a.e.bits + image * a.plane * a.bits_pitch + first / 8;
        kept[STEM_NUMBERS] = make_float4(fabsf(__ldg(a.scale + o)), fabsf(__ldg(a.scale + o + 1)),
                                         a.e.what.shift ? __ldg(a.e.shift + o) : 0.0f,
                                         a.e.what.shift ? __ldg(a.e.shift + o + 1) : 0.0f);
    }

    /* of: STEM_BORDERS, or STEM_ROWS and twice the row. */
    __device__ __forceinline__ void keep(int32_t of, const stem_lane<float> &v) const {
#pragma unroll
        for (int f = 0; f < 2; f++)
            kept[(of + f) * 32] = make_float4(v[f][0], v[f][1], v[f][2], v[f][3]);
    }
    __device__ __forceinline__ void take(int32_t of, stem_lane<float> &v) const {
#pragma unroll
        for (int f = 0; f < 2; f++) {
            const float4 four = kept[(of + f) * 32];
            v[f][0] = four.x;
            v[f][1] = four.y;
            v[f][2] = four.z;
            v[f][3] = four.w;
        }
    }

    template <typename T, int W>
    __device__ __forceinline__ void put(const stem_args &a, int32_t pixel, int32_t left,
                                        const float (&v)[2][W]) const {
        T *to[2] = {(T *)output + pixel, (T *)output + pixel + (int32_t)a.plane};
        if (a.vectors && left > 0) {
            xn_store(to[0], v[0]);
            xn_store(to[1], v[1]);
            return;
        }
#pragma unroll
        for (int n = 0; n < 2 * W; n++)
            if (n % W < left)
                xn_store(to[n / W] + n % W, {v[n / W][n % W]});
    }

    /* W neighbours from a pixel on, of which `left` are there, in K rows, of which `rows` are
     * there, and of the warp their bits. All lanes. */
    template <int K, int W>
    __device__ __forceinline__ void store(const stem_args &a, int32_t pixel, int32_t left,
                                          int32_t rows, float (&v)[K][2][W]) const {
        if (a.e.what.activation)
#pragma unroll
            for (int n = 0; n < K * 2 * W; n++) {
                float &one = v[n / (2 * W)][n / W % 2][n % W];
                one = xn_activate(a.e, o + n / W % 2, one);
            }
#pragma unroll
        for (int k = 0; k < K; k++) {
            const int32_t at = pixel + k * a.conv.out_width, there = k < rows ? left : 0;
            if (a.e.what.datatype == XN_FP16)
                put<__half>(a, at, there, v[k]);
            else if (a.e.what.datatype == XN_FP32)
                put<float>(a, at, there, v[k]);
        }
        if (a.e.what.bits)
            store_bits(a, pixel, left, rows, v);
    }

    /* A lane with a pixel takes the votes of all lanes on it, by filter. */
    template <int K, int W>
    __device__ __forceinline__ void store_bits(const stem_args &a, int32_t pixel, int32_t left,
                                               int32_t rows, const float (&v)[K][2][W]) const {
        const int32_t own = (int32_t)(threadIdx.x % 32 / 4), quad = (int32_t)(threadIdx.x % 4);
        const float4 numbers = kept[STEM_NUMBERS];
        uint32_t even = 0, odd = 0;
#pragma unroll
        for (int n = 0; n < K * W; n++) {
            const float(&two)[2][W] = v[n / W];
            const uint32_t first =
                __ballot_sync(0xffffffffu, xn_sign_bit(two[0][n % W] + numbers.z));
            const uint32_t second =
                __ballot_sync(0xffffffffu, xn_sign_bit(two[1][n % W] + numbers.w));
            even = own == n ? first : even;
            odd = own == n ? second : odd;
        }
        uint32_t word = (even >> quad & 0x11111111u) | (odd >> quad & 0x11111111u) << 1;
        word = (word | word >> 2) & 0x0f0f0f0fu;
        word = (word | word >> 4) & 0x00ff00ffu;
        pixel += own / W * a.conv.out_width + own % W;
        if (own < min(rows, K) * W && own % W < left)
            *(uint16_t *)(bits + (int64_t)pixel * a.bits_pitch) = (uint16_t)(word | word >> 8);
    }
};

/* ---- tiles ---- */

/* The values of sums of row y, of columns from x on. */
template <typename T>
__device__ __forceinline__ void stem_row_values(const stem_args &a, const stem_out &out, int32_t y,
                                                int32_t x, const stem_lane<T> &sum,
                                                stem_lane<float> &v) {
    const float4 numbers = out.kept[STEM_NUMBERS];
    stem_lane<float> border;
    stem_borders(a, out.o, xn_planes_class(y, a.height, a.top, a.bottom), x, border);
#pragma unroll
    for (int n = 0; n < 8; n++)
        v[n / 4][n % 4] =
            fmaf((float)sum[n / 4][n % 4], n / 4 ? numbers.y : numbers.x, border[n / 4][n % 4]);
}

/* The largest value of each column in the rows of windows row y, whose borders differ. from: the
 * lane's words of the first. last: the sums of the last. */
template <int PLANES, int ROWS, int STRIDE>
__device__ __forceinline__ void
stem_three_rows(const stem_args &a, const stem_warp<PLANES, ROWS, STRIDE> &w, const stem_out &out,
                const uint32_t *from, int32_t at, int32_t y, int32_t x,
                stem_lane<stem_number<PLANES>> (&last)[1], stem_lane<float> &v) {
#pragma unroll
    for (int n = 0; n < 8; n++)
        v[n / 4][n % 4] = -INFINITY;
#pragma unroll 1
    for (int32_t row = 2 * y - 1; row < 2 * y + 2;
         row++, from += 2 * (STRIDE ? STRIDE : a.conv.stride_h)) {
        if (row < 0 || row >= a.height)
            continue; /* the same for all lanes */
        w.multiply(a, from, at, last);
        stem_lane<float> some;
        stem_row_values(a, out, row, x, last[0], some);
#pragma unroll
        for (int n = 0; n < 8; n++)
            v[n / 4][n % 4] = fmaxf(v[n / 4][n % 4], some[n / 4][n % 4]);
    }
}

/* The outputs of one or two rows of windows of a tile from `pixel` on, of which `left` are there,
 * from the largest value of each of the lane's columns, which are kept. Two at once, since that
 * takes hardly longer. edge: the largest of the last column of the tile to the left, then of this
 * one. */
__device__ __forceinline__ void stem_finish_windows(const stem_args &a, const stem_out &out,
                                                    int32_t pixel, int32_t left, int32_t rows,
                                                    float2 *edge) {
    const int32_t quad = (int32_t)(threadIdx.x % 4);
    float result[2][2][2], last[2][2];
#pragma unroll
    for (int k = 0; k < 2; k++) {
        const float2 beside = edge[k * 8];
        stem_lane<float> v;
        out.take(STEM_ROWS + 2 * k, v);
#pragma unroll
        for (int f = 0; f < 2; f++) {
            last[k][f] = fmaxf(v[f][3], -INFINITY); /* a NaN is less than any value */
            const float other = __shfl_up_sync(0xffffffffu, last[k][f], 1, 4);
            const float first = quad ? other : f ? beside.y : beside.x;
            result[k][f][0] = fmaxf(fmaxf(v[f][0], v[f][1]), first);
            result[k][f][1] = fmaxf(fmaxf(v[f][1], v[f][2]), last[k][f]);
        }
    }
    __syncwarp();
    if (quad == 3)
#pragma unroll
        for (int k = 0; k < 2; k++)
            edge[k * 8] = make_float2(last[k][0], last[k][1]);
    out.store(a, pixel, left, rows, result);
}

/* Rows of windows [y, end) of a tile. from: the first row of the first window. at: the lane's words
 * of it. left: the lane's pixels that are there. */
template <int PLANES, int ROWS, int STRIDE>
__device__ __forceinline__ void
stem_pool_tile(const stem_args &a, const stem_warp<PLANES, ROWS, STRIDE> &w, const stem_out &out,
               int32_t y, int32_t end, int32_t x, int32_t left, const uint32_t *from, int32_t at,
               float2 *edge) {
    typedef stem_number<PLANES> number;
    const int32_t step = 2 * (STRIDE ? STRIDE : a.conv.stride_h), width = a.conv.out_width;
    int32_t pixel = y * width + x / 2;
    stem_lane<number> above[1];
    stem_lane<float> v;
    stem_borders(a, out.o, a.top, x, v);
    if (y >= a.even_rows[0] && y < a.even_rows[1])
        w.multiply(a, from, at, above);
    out.keep(STEM_BORDERS, v);
#pragma unroll 1
    for (; y < end; y += 2, pixel += 2 * width, edge += 16) {
        const int32_t rows = min(end - y, 2);
#pragma unroll 1
        for (int32_t k = 0; k < rows; k++, from += 2 * step) {
            if (y + k >= a.even_rows[0] && y + k < a.even_rows[1]) {
                stem_lane<number> two[2];
                w.multiply(a, from + step, at, two);
                const float4 numbers = out.kept[STEM_NUMBERS];
                out.take(STEM_BORDERS, v);
#pragma unroll
                for (int n = 0; n < 8; n++) {
                    const int f = n / 4, c = n % 4;
                    const number most = stem_larger(above[0][f][c], two[0][f][c]);
                    above[0][f][c] = two[1][f][c];
                    v[f][c] = fmaf((float)stem_larger(most, two[1][f][c]),
                                   f ? numbers.y : numbers.x, v[f][c]);
                }
            } else
                stem_three_rows(a, w, out, from, at, y + k, x, above, v);
            out.keep(STEM_ROWS + 2 * k, v);
        }
        stem_finish_windows(a, out, pixel, left, rows, edge);
    }
}

template <int PLANES, int ROWS, int STRIDE>
__device__ __forceinline__ void
stem_plain_tile(const stem_args &a, const stem_warp<PLANES, ROWS, STRIDE> &w, const stem_out &out,
                int32_t y, int32_t end, int32_t x, const uint32_t *from, int32_t at) {
    const int32_t step = 2 * (STRIDE ? STRIDE : a.conv.stride_h);
#pragma unroll 1
    for (; y < end; y++, from += 2 * step) {
        stem_lane<stem_number<PLANES>> rows[2];
        w.multiply(a, from, at, rows);
#pragma unroll
        for (int n = 0; n < 2; n++)
            if (2 * y + n < a.height) { /* the same for all lanes */
                stem_lane<float> v[1];
                stem_row_values(a, out, 2 * y + n, x, rows[n], v[0]);
                out.store(a, (2 * y + n) * a.conv.out_width + x, a.conv.out_width - x, 1, v);
            }
    }
}

template <int PLANES, int ROWS, int STRIDE, bool POOL>
__global__ void __launch_bounds__(STEM_WARPS * 32, 3)
    stem_kernel(const __grid_constant__ stem_args a) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
    extern __shared__ __align__(16) uint32_t stem_rows[];
    const xn_conv &c = a.conv;
    const int64_t image = (int64_t)blockIdx.x / a.bands;
    const int32_t begin = (int32_t)(blockIdx.x - image * a.bands) * a.band;
    const int32_t pairs = min(a.band, a.pairs - begin);
    const int32_t row = 2 * begin - POOL, rows = 2 * pairs + POOL; /* of the convolution */
    /* The compiler sees that a warp's branches are of all its lanes. */
    const int32_t warp = __shfl_sync(0xffffffffu, (int32_t)(threadIdx.x / 32), 0);
    const int32_t lane = (int32_t)(threadIdx.x % 32);
    const int32_t filters = ((int32_t)blockIdx.y * a.filter_warps + warp % a.filter_warps) * 16;
    const int32_t own = min(filters, c.out_channels - 16); /* some warps have none */
    float4 *kept = (float4 *)(stem_rows + a.lines * a.pitch);
    stem_warp<PLANES, ROWS, STRIDE> w;
    xn_let_next_kernel_start();
    w.load(a, own);
    const stem_out out(a, image, own, kept + warp * STEM_KEPT * 32 + lane);
    xn_wait_for_previous_kernel();
    const int32_t first = (int32_t)blockIdx.z * a.across, last = min(first + a.across, a.tiles);
    const int32_t before = max(first - POOL, 0), stride = STRIDE ? STRIDE : c.stride_w;
    stem_load(a, a.input + image * c.channels * c.height * c.width, row * c.stride_h - c.pad_top,
              (rows - 1) * c.stride_h + ROWS, before * STEM_TILE * stride,
              min(last * STEM_TILE * stride + 12, a.pitch), stem_rows);
    __syncthreads();
    if (filters >= c.out_channels)
        return;
    const int32_t parts = STEM_WARPS / a.filter_warps, part = warp / a.filter_warps;
    const int32_t each = (pairs + parts - 1) / parts, y = min(part * each, pairs);
    const int32_t end = min(y + each, pairs);
    const uint32_t *from = stem_rows + 4 * y * (STRIDE ? STRIDE : c.stride_h);
    const int32_t word = a.lead - c.pad_left - a.shift + lane / 4 * 2 * stride + lane % 4 * 2;
    float2 *edge =
        (float2 *)(kept + STEM_WARPS * STEM_KEPT * 32) + warp * (a.band + 1) * 8 + lane / 4;
    if (POOL)
        for (int32_t n = lane % 4; n < end - y; n += 4)
            edge[n * 8] = make_float2(-INFINITY, -INFINITY);
    __syncwarp();
    if (y < end)
#pragma unroll 1
        for (int32_t tile = before; tile < last; tile++) {
            const int32_t at = word + tile * STEM_TILE * stride,
                          x = tile * STEM_TILE + lane % 4 * 4;
            if (POOL)
                stem_pool_tile(a, w, out, begin + y, begin + end, x,
                               tile < first ? 0 : c.out_width - x / 2, from, at, edge);
            else
                stem_plain_tile(a, w, out, begin + y, begin + end, x, from, at);
            __syncwarp();
        }
#else
    (void)a;
    __trap();
#endif
}

#endif
