/* stem_wide.cuh: the kernel of stems of pictures of three channels with a pool behind them, where
 * there is wgmma (sm_90a).
 *
 * Filters are the rows of the products, 64 of a block, and the 112 columns of a row of the
 * convolution are the columns. Both operands lie in shared memory. Columns are in such an order
 * that lane 4 g + t of a warp has 28 neighbours of two filters: 14 windows of the pool, of which
 * only the first needs a column of another lane.
 *
 * The picture is laid out as an operand once. A pair of its rows is three chunks of 16 bytes a
 * column: the first 16 of the 21 bytes that a window sees of each row, and the rest of both. Row r
 * of the convolution sees pairs r to r + 3, which lie in a ring of 6: 11 chunks, so 6 steps of 32
 * bytes a plane. While products run, the next pair is laid out from the rows as they lie in memory,
 * which were copied a row ago, the pair behind it is copied, and finished reals are stored.
 *
 * A block has a run of rows of windows, which may begin in one image and end in another. */
#ifndef XN_CUDA_STEM_WIDE_CUH
#define XN_CUDA_STEM_WIDE_CUH

#include "stage_common.cuh"
#include "stem.cuh"
#include "wgmma_ptx.cuh"

enum {
    WIDE_THREADS = 128,
    WIDE_COLUMNS = 112,
    WIDE_WINDOWS = WIDE_COLUMNS / 8, /* of a lane */
    WIDE_CHUNK = WIDE_COLUMNS * 16,  /* bytes, of all columns */
    WIDE_SLOT = 3 * WIDE_CHUNK,      /* of a pair of rows */
    WIDE_RING = 6,                   /* even: two pairs lie side by side where they must */
    WIDE_ROW = 192,                  /* words of a row as it lies in memory, or of its planes */
    WIDE_PAIR = 2 * WIDE_ROW,
    WIDE_FILTERS = XN_STEM_WIDE_FILTERS * 16, /* bytes of a chunk */
    WIDE_PLANE = XN_STEM_WIDE_CHUNKS * WIDE_FILTERS,
    WIDE_STAGE = 240, /* bytes of a filter's reals: two rows of fp16 or one of fp32, no conflicts */
    WIDE_DYNAMIC = WIDE_RING * WIDE_SLOT + 8 * WIDE_PAIR /* and planes */
};

#if XN_HAS_WGMMA

/* acc[64 x 112] = (add ? acc : 0) + a[64 x 32] * b[112 x 32]. */
__device__ __forceinline__ void wide_mma(int32_t (&d)[56], uint64_t a, uint64_t b, int32_t add) {
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %58, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n112k32.s32.s8.u8 {" XN_WGMMA_NAMES_56
                 "}, %56, %57, p; }"
                 : XN_WGMMA_56
                 : "l"(a), "l"(b), "r"(add));
}

/* Where the pairs of rows that a row of the convolution sees lie in the ring, in units of 16 bytes
 * (of descriptors). */
struct wide_pairs {
    uint32_t begin, at[4];

    __device__ __forceinline__ wide_pairs(uint32_t ring, int32_t slot) {
        begin = ring >> 4;
#pragma unroll
        for (int n = 0; n < 4; n++)
            at[n] = begin + (uint32_t)(slot + n) * (WIDE_SLOT >> 4);
    }
    __device__ __forceinline__ uint32_t next() const {
        return at[3] < begin + (WIDE_RING - 1) * (WIDE_SLOT >> 4) ? at[3] + (WIDE_SLOT >> 4)
                                                                  : begin;
    }
    __device__ __forceinline__ void go_on() {
        const uint32_t last = next();
#pragma unroll
        for (int n = 0; n < 4; n++)
            at[n] = n < 3 ? at[n + 1] : last;
    }
};

/* acc = (add ? acc : 0) + a plane of the filters times a row of the convolution, odd or even. Steps
 * 4 and 5 are the rest of the first three pairs: of two that lie side by side, and of one beside
 * zeros. */
template <int ODD>
__device__ __forceinline__ void wide_plane(uint32_t filters, const wide_pairs &pairs, bool add,
                                           int32_t (&acc)[56]) {
    enum { ROWS_8 = 128, REST = 2 * WIDE_CHUNK };
    xn_wgmma_fence();
#pragma unroll
    for (int n = 0; n < 6; n++) {
        const int chunk = n < 4 ? 2 * n : n == 4 ? 8 + ODD : ODD ? 8 : 10;
        const uint32_t pair = pairs.at[n < 4 ? n : n == 4 ? ODD : ODD ? 0 : 2];
        const uint32_t a =
            xn_matrix_low(filters + chunk * WIDE_FILTERS, (n == 5 && ODD ? 3 : 1) * WIDE_FILTERS);
        const uint32_t b = pair + xn_matrix_low(n < 4 ? 0 : REST, n == 3   ? REST
                                                                  : n == 4 ? WIDE_SLOT
                                                                           : WIDE_CHUNK);
        wide_mma(acc, xn_matrix(a, ROWS_8), xn_matrix(b, ROWS_8), n || add);
    }
    xn_wgmma_commit();
}

__device__ __forceinline__ int32_t wide_largest(int32_t a, int32_t b, int32_t c) {
    return __vimax3_s32(a, b, c);
}
__device__ __forceinline__ float wide_largest(float a, float b, float c) {
    return fmaxf(fmaxf(a, b), c);
}

/* Of a filter's windows the largest sum of a row in fp32, or its value; behind them the sums of the
 * lane's columns at the picture's sides, which no window has then. */
enum { WIDE_SIDE = WIDE_WINDOWS, WIDE_SUMS = WIDE_WINDOWS + 2 };
struct wide_lane {
    float of[2][WIDE_SUMS];
};

template <typename T>
__device__ __forceinline__ void wide_windows(const T (&c)[2 * WIDE_WINDOWS],
                                             float (&sum)[WIDE_SUMS]) {
    enum { LAST = WIDE_WINDOWS - 1 };
    const int32_t t = (int32_t)(threadIdx.x % 4);
    const T before = __shfl_up_sync(0xffffffffu, c[2 * LAST + 1], 1, 4);
    sum[0] = (float)wide_largest(before, c[0], c[1]); /* not of lane 0 */
    sum[1] = (float)wide_largest(t ? c[1] : c[2], c[2], c[3]);
#pragma unroll
    for (int n = 2; n < LAST; n++)
        sum[n] = (float)wide_largest(c[2 * n - 1], c[2 * n], c[2 * n + 1]);
    sum[LAST] =
        (float)wide_largest(c[2 * LAST - 1], c[2 * LAST], t < 3 ? c[2 * LAST + 1] : c[2 * LAST]);
    sum[WIDE_SIDE] = (float)(t < 3 ? c[0] : c[2 * LAST + 1]);
    sum[WIDE_SIDE + 1] = (float)c[1];
}

/* The sums of a row of the convolution. Called: before(n) and meanwhile(n) before products of plane
 * 1 - n and while they run, then() behind all products. */
template <int PLANES, int ODD, class Before, class Meanwhile, class Then>
__device__ __forceinline__ void wide_multiply(uint32_t filters, const wide_pairs &pairs,
                                              wide_lane &sum, Before before, Meanwhile meanwhile,
                                              Then then) {
    typedef stem_number<PLANES> number;
    int32_t acc[56];
    uint32_t low[PLANES == 2 ? 1 : 28];
    before(0);
    wide_plane<ODD>(filters + WIDE_PLANE, pairs, false, acc);
    meanwhile(0);
    xn_wgmma_wait<0>();
#pragma unroll
    for (int n = 0; n < 56; n++)
        acc[n] *= 128;
    before(1);
    wide_plane<ODD>(filters, pairs, true, acc);
    meanwhile(1);
    xn_wgmma_wait<0>();
    if constexpr (PLANES == 3) { /* as stem_sum */
#pragma unroll
        for (int n = 0; n < 56; n += 2) {
            low[n / 2] = (acc[n] & 0x3fff) | acc[n + 1] << 16 & 0x3fff0000;
            acc[n] >>= 14;
            acc[n + 1] >>= 14;
        }
        wide_plane<ODD>(filters + 2 * WIDE_PLANE, pairs, true, acc);
        xn_wgmma_wait<0>();
    }
    then();
#pragma unroll
    for (int f = 0; f < 2; f++) {
        number column[2 * WIDE_WINDOWS];
#pragma unroll
        for (int n = 0; n < 2 * WIDE_WINDOWS; n++) {
            const int i = n / 2 * 4 + 2 * f + n % 2;
            if constexpr (PLANES == 2)
                column[n] = acc[i];
            else
                column[n] =
                    fmaf((float)acc[i], 0x1p14f, (float)(low[i / 2] >> i % 2 * 16 & 0x3fff));
        }
        wide_windows(column, sum.of[f]);
    }
}

/* What a lane's filters have in row `row` of the convolution: scale, the borders of windows inside
 * the picture and of columns at its sides, shift. o: the first filter. left: the block's first
 * column. */
struct wide_numbers {
    float scale[2], border[2], side[2][2], shift[2];

    __device__ __forceinline__ void load(const stem_args &a, int32_t o, int32_t left, int32_t row) {
        const int32_t t = (int32_t)(threadIdx.x % 4), filters = a.conv.out_channels;
        int32_t inside = a.none, first = a.none, second = a.none;
        const float *borders = a.border + o;
        if ((uint32_t)row < (uint32_t)a.height) {
            const int32_t x = t ? left + WIDE_COLUMNS - 1 : left;
            borders += xn_planes_class(row, a.height, a.top, a.bottom) * (a.none + filters);
            inside = a.left * filters;
            if (t % 3 == 0)
                first = xn_planes_class(x, a.width, a.left, a.right) * filters;
            if (t == 0)
                second = xn_planes_class(x + 1, a.width, a.left, a.right) * filters;
        }
#pragma unroll
        for (int f = 0; f < 2; f++) {
            scale[f] = __ldg(a.scale + o + 8 * f);
            border[f] = __ldg(borders + inside + 8 * f);
            side[f][0] = __ldg(borders + first + 8 * f);
            side[f][1] = __ldg(borders + second + 8 * f);
            shift[f] = a.e.what.shift ? __ldg(a.e.shift + o + 8 * f) : 0.0f;
        }
    }
    /* Makes sums values. */
    __device__ __forceinline__ void apply(wide_lane &v) const {
        enum { LAST = WIDE_WINDOWS - 1 };
        const int32_t t = (int32_t)(threadIdx.x % 4);
#pragma unroll
        for (int f = 0; f < 2; f++) {
            const float factor = fabsf(scale[f]);
            const float first = fmaf(v.of[f][WIDE_SIDE], factor, side[f][0]);
            const float second = fmaf(v.of[f][WIDE_SIDE + 1], factor, side[f][1]);
#pragma unroll
            for (int n = 0; n < WIDE_WINDOWS; n++)
                v.of[f][n] = fmaf(v.of[f][n], factor, border[f]);
            if (!(factor + fabsf(border[f]) < INFINITY)) /* a NaN is less than any value */
#pragma unroll
                for (int n = 0; n < WIDE_WINDOWS; n++)
                    v.of[f][n] = fmaxf(v.of[f][n], -INFINITY);
            v.of[f][0] = t ? v.of[f][0] : fmaxf(first, second);
            v.of[f][1] = fmaxf(v.of[f][1], second);
            v.of[f][LAST] = fmaxf(v.of[f][LAST], t ? first : -INFINITY);
        }
    }
};

/* Starts to copy a pair of rows of the picture: words as they lie in memory, zeros outside, of a
 * row of pixels or of each of its planes. x: the thread's first byte of a row. */
__device__ __forceinline__ void wide_copy(const stem_args &a, const uint8_t *image, int32_t pair,
                                          int32_t x, uint32_t *to) {
    const int32_t half = (int32_t)threadIdx.x / 64, y = 2 * pair + half - a.conv.pad_top;
    const bool inside = (uint32_t)y < (uint32_t)a.conv.height;
    image += (int64_t)y * a.row_bytes + x;
    to += half * WIDE_ROW + threadIdx.x % 64;
#pragma unroll
    for (int n = 0; n < 3; n++) {
        const bool there = (uint32_t)(x + (a.nhwc ? 256 * n : 0)) < (uint32_t)a.row_bytes;
        xn_copy_async<4>(to + 64 * n, image + n * a.word_bytes, inside && there);
    }
    xn_copy_commit();
}

/* The words of the thread's column in a row of the picture: of pixels, or three of each plane. */
typedef uint32_t wide_raw[9];

__device__ __forceinline__ void wide_fetch(const stem_args &a, const uint32_t *own, wide_raw &raw) {
    const uint32_t *second = own + (a.nhwc ? 3 : 64);
#pragma unroll
    for (int i = 0; i < 3; i++) {
        raw[i] = own[i];
        raw[3 + i] = second[i];
        if (!a.nhwc)
            raw[6 + i] = own[128 + i];
    }
}

/* Row n of a pair as the products want it. shift: the bits of the first word that are before the
 * column. rest: of the pair, which goes with the second. */
__device__ __forceinline__ void wide_lay(const stem_args &a, const wide_raw &raw, uint32_t shift,
                                         int n, uint32_t (&rest)[2], char *to) {
    uint32_t v[6];
    if (a.nhwc) {
#pragma unroll
        for (int i = 0; i < 5; i++)
            v[i] = __funnelshift_r(raw[i], raw[i + 1], shift);
        v[5] = raw[5] >> shift;
    } else {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const uint32_t r = __funnelshift_r(raw[i], raw[i + 1], shift);
            const uint32_t g = __funnelshift_r(raw[3 + i], raw[4 + i], shift);
            const uint32_t b = __funnelshift_r(raw[6 + i], raw[7 + i], shift);
            v[3 * i] = __byte_perm(__byte_perm(r, g, 0x0140), b, 0x2410);
            v[3 * i + 1] = __byte_perm(__byte_perm(r, g, 0x0625), b, 0x2150);
            v[3 * i + 2] = __byte_perm(__byte_perm(r, g, 0x0073), b, 0x7106);
        }
    }
    *(uint4 *)(to + n * WIDE_CHUNK) = make_uint4(v[0], v[1], v[2], v[3]);
    if (n)
        *(uint4 *)(to + 2 * WIDE_CHUNK) =
            make_uint4(rest[0], v[4], __byte_perm(rest[1], v[5], 0x0040), 0);
    rest[0] = v[4];
    rest[1] = v[5];
}

__device__ __forceinline__ void wide_take_larger(wide_lane &v, const wide_lane &other) {
#pragma unroll
    for (int n = 0; n < 2 * WIDE_SUMS; n++) {
        float &one = v.of[n / WIDE_SUMS][n % WIDE_SUMS];
        one = fmaxf(one, other.of[n / WIDE_SUMS][n % WIDE_SUMS]);
    }
}

__device__ __forceinline__ void wide_activate(const stem_args &a, int32_t o, wide_lane &v) {
    if (a.e.what.activation)
#pragma unroll
        for (int n = 0; n < 2 * WIDE_WINDOWS; n++) {
            float &one = v.of[n / WIDE_WINDOWS][n % WIDE_WINDOWS];
            one = xn_activate(a.e, o + n / WIDE_WINDOWS * 8, one);
        }
}

/* Reals of a lane's windows to the stage. */
__device__ __forceinline__ void wide_keep(bool fp16, int32_t y, const wide_lane &v, char *stage) {
    const int32_t warp = (int32_t)threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
    for (int f = 0; f < 2; f++) {
        uint32_t *to = (uint32_t *)(stage + (16 * warp + 8 * f + g) * WIDE_STAGE) +
                       (fp16 ? y % 2 * 28 + 7 * t : 14 * t);
#pragma unroll
        for (int n = 0; n < WIDE_WINDOWS; n++)
            if (!fp16)
                to[n] = __float_as_uint(v.of[f][n]);
            else if (n % 2)
                to[n / 2] = xn_fp16_pair(v.of[f][n - 1], v.of[f][n]);
    }
}

/* Row of windows y, with fp16 also the even row before it, from the stage to memory. A thread has
 * 16 bytes of every 8th filter. from, skip: the first row and column of windows that are the
 * block's. at: the block's first output. */
__device__ __forceinline__ void wide_flush(const stem_args &a, int64_t at, const char *stage,
                                           int32_t y, int32_t from, int32_t skip) {
    enum { PIECES = 14, STEPS = XN_STEM_WIDE_FILTERS / 8 };
    const bool fp16 = a.e.what.datatype == XN_FP16;
    const int32_t warp = (int32_t)threadIdx.x / 32, lane = threadIdx.x % 32, n = lane % PIECES;
    const int32_t row = fp16 ? y / 2 * 2 + n / 7 : y, x = fp16 ? n % 7 * 8 : 4 * n;
    if (lane >= 2 * PIECES || row < from || row > y || x < skip)
        return;
    const int32_t filter = 2 * warp + lane / PIECES, size = fp16 ? 2 : 4;
    char *to = (char *)a.e.output + (at + filter * a.plane + row * a.conv.out_width + x) * size;
    const char *own = stage + filter * WIDE_STAGE + n * 16;
    const int64_t step = 8 * a.plane * size;
    if (a.vectors) {
#pragma unroll 2
        for (int k = 0; k < STEPS; k++)
            *(uint4 *)(to + k * step) = *(const uint4 *)(own + k * 8 * WIDE_STAGE);
        return;
    }
#pragma unroll 1
    for (int k = 0; k < 8 * STEPS; k++)
        *(uint16_t *)(to + k / 8 * step + k % 8 * 2) =
            *(const uint16_t *)(own + k / 8 * 8 * WIDE_STAGE + k % 8 * 2);
}

/* Bits of a row of windows. Lane 4 g + t has 14 of filters g and g + 8 of its warp's: lanes with
 * one t turn them, so that it has all filters of windows g and g + 8. to: of the lane's window g.
 */
__device__ __forceinline__ void wide_bits(const stem_args &a, const float (&shift)[2], int32_t skip,
                                          const wide_lane &v, uint8_t *to) {
    const uint32_t g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    uint32_t bits[2] = {};
#pragma unroll
    for (int f = 0; f < 2; f++) {
        const float own = shift[f] + 0.0f; /* not -0 */
#pragma unroll
        for (int n = WIDE_WINDOWS - 1; n >= 0; n--)
            bits[f] = stage_add_sign(bits[f], v.of[f][n], own);
    }
    uint32_t word = bits[0] | bits[1] << 16;
#pragma unroll
    for (int s = 1; s < 8; s *= 2) {
        const uint32_t mask = s == 1 ? 0x55555555u : s == 2 ? 0x33333333u : 0x0f0f0f0fu;
        const uint32_t other = __shfl_xor_sync(0xffffffffu, word, 4 * s);
        word = g & s ? (word & ~mask) | (other >> s & mask) : (word & mask) | (other & mask) << s;
    }
    if (WIDE_WINDOWS * t + g >= (uint32_t)skip)
        *(uint16_t *)to = (uint16_t)__byte_perm(word, 0, 0x0020);
    if (g + 8 < WIDE_WINDOWS)
        *(uint16_t *)(to + 8 * a.bits_pitch) = (uint16_t)__byte_perm(word, 0, 0x0031);
}

#endif

template <int PLANES>
__global__ void __launch_bounds__(WIDE_THREADS, PLANES == 2 ? 3 : 2)
    stem_wide_kernel(const __grid_constant__ stem_args a) {
#if XN_HAS_WGMMA
    extern __shared__ __align__(128) char wide_ring[];
    __shared__ __align__(128) char stage[XN_STEM_WIDE_FILTERS * WIDE_STAGE];
    uint32_t *const raw = (uint32_t *)(wide_ring + WIDE_RING * WIDE_SLOT); /* two pairs */
    char *const filters = (char *)(raw + 2 * WIDE_PAIR);
    const xn_conv &c = a.conv;
    const int32_t warp = (int32_t)threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    const int32_t first = (int32_t)blockIdx.y * XN_STEM_WIDE_FILTERS, o = first + 16 * warp + g;
    /* The block's first column of the convolution; its windows 0 to 7 are another block's if that
     * is not 0. */
    const int32_t left = min((int32_t)blockIdx.z * 96, a.width - WIDE_COLUMNS), skip = left ? 8 : 0;
    const bool fp16 = a.e.what.datatype == XN_FP16, reals = a.e.what.datatype != XN_BITS;
    enum { PIECES = PLANES * WIDE_PLANE / 16 };
#pragma unroll
    for (int32_t n = (int32_t)threadIdx.x; n < PIECES; n += WIDE_THREADS)
        xn_copy_async<16>(filters + 16 * n,
                          (const uint4 *)a.filters + (int64_t)blockIdx.y * PIECES + n, true);
    /* Bytes of a row before the block's first; the thread's first byte to copy, and its column. */
    const int32_t unit = a.nhwc ? 3 : 1, before = (2 * left - c.pad_left) * unit;
    const int32_t n = (int32_t)threadIdx.x, x = (before & ~3) + n % 64 * 4;
    const int32_t at = (before & 3) + 2 * unit * (n % 8 / 2 * 28 + n / 8 * 2 + n % 2);
    const uint32_t ring_at = xn_shared_address(wide_ring), filters_at = xn_shared_address(filters);
    /* Rows of windows of all images: int32, as their pictures are in memory. */
    const int32_t stop = min(((int32_t)blockIdx.x + 1) * a.band, (int32_t)a.images * c.out_height);
    xn_wait_for_previous_kernel();
#pragma unroll 1
    for (int32_t next = (int32_t)blockIdx.x * a.band; next < stop;) {
        const int32_t image = next / c.out_height, begin = next - image * c.out_height;
        const int32_t end = min(begin + stop - next, c.out_height);
        const uint8_t *picture = a.input + (int64_t)image * 3 * c.height * c.width;
        const int64_t out =
            image * (c.out_channels * a.plane + a.e.output_gap) + first * a.plane + left / 2;
        uint8_t *const bits = (uint8_t *)a.e.bits +
                              (image * a.plane + left / 2 + 14 * t + g) * a.bits_pitch +
                              (first + 16 * warp) / 8;
        const int32_t top = max(2 * begin - 1, 0); /* the first row of the convolution */
        next += end - begin;
        wide_pairs pairs(ring_at, top % 2);
        __syncthreads(); /* the stage is free */
#pragma unroll
        for (int k = 0; k < 5; k++)
            wide_copy(a, picture, top + k, x,
                      k < 4 ? (uint32_t *)stage + k * WIDE_PAIR : raw + top % 2 * WIDE_PAIR);
        xn_copy_wait<0>();
        __syncthreads();
        wide_raw words;
        uint32_t rest[2];
        if (n < WIDE_COLUMNS)
#pragma unroll 2
            for (int k = 0; k < 8; k++) {
                wide_fetch(a, (uint32_t *)stage + k * WIDE_ROW + at / 4, words);
                wide_lay(a, words, at % 4 * 8, k % 2, rest,
                         wide_ring + (top % 2 + k / 2) * WIDE_SLOT + n * 16);
            }
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        __syncthreads();
        wide_lane kept = {}, sum; /* kept: of the row above, or of it and the one above that */
        wide_numbers numbers;
        auto multiply = [&](auto parity, int32_t row) {
            enum { ODD = decltype(parity)::value };
            auto before = [&](int k) {
                wide_fetch(a, raw + (2 * ODD + k) * WIDE_ROW + at / 4, words);
            };
            auto meanwhile = [&](int k) {
                if (n < WIDE_COLUMNS)
                    wide_lay(a, words, at % 4 * 8, k, rest,
                             wide_ring + ((pairs.next() - pairs.begin) << 4) + n * 16);
                if (k == 0) {
                    wide_copy(a, picture, row + 5, x, raw + (1 - ODD) * WIDE_PAIR);
                } else {
                    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
                    if (!ODD && reals && row > 2 * begin && (!fp16 || row % 4 == 0))
                        wide_flush(a, out, stage, row / 2 - 1, begin, skip);
                }
            };
            wide_multiply<PLANES, ODD>(filters_at, pairs, sum, before, meanwhile, [&] {
                if (ODD)
                    numbers.load(a, o, left, row);
            });
            pairs.go_on();
        };
#pragma unroll 1
        for (int32_t y = top / 2; y < end; y++) {
            const bool even = y >= a.even_rows[0] && y < a.even_rows[1];
            if (y >= begin) {
                multiply(std::integral_constant<int, 0>(), 2 * y);
                if (!even) {
                    numbers.load(a, o, left, 2 * y);
                    numbers.apply(sum);
                    numbers.load(a, o, left, 2 * y - 1);
                    numbers.apply(kept);
                }
                wide_take_larger(kept, sum);
                xn_copy_wait<0>();
                __syncthreads();
            }
            multiply(std::integral_constant<int, 1>(), 2 * y + 1);
            if (y >= begin) {
                wide_lane v = sum;
                if (!even)
                    numbers.apply(v);
                wide_take_larger(v, kept);
                if (even)
                    numbers.apply(v);
                wide_activate(a, o, v);
                if (reals)
                    wide_keep(fp16, y, v, stage);
                if (a.e.what.bits)
                    wide_bits(a, numbers.shift, skip, v,
                              bits + (int64_t)(y * c.out_width) * a.bits_pitch);
            }
            kept = sum;
            xn_copy_wait<0>();
            __syncthreads();
        }
        if (next >= stop)
            xn_let_next_kernel_start();
        if (reals)
            wide_flush(a, out, stage, end - 1, begin, skip);
    }
#else
    (void)a;
    __trap();
#endif
}

#endif
