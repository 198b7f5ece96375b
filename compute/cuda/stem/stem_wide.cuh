/* stem_wide.cuh: the kernel of stems of pictures of three channels with a pool behind them, with
 * two planes, where there is wgmma (sm_90a).
 *
 * Outputs of the convolution are the rows of the products, filters the columns. So a lane reads
 * pixels into registers from any place, and only filters are operands in shared memory.
 *
 * A block sweeps down a band of rows of windows, 56 windows wide. Each of its 8 warps has 7 windows
 * and the 15 columns that they see: row g of its 16 rows of products is column 2 g - 1 of them, row
 * g + 8 column 2 g, of which the last is of no window. So no warp needs what another has. Lane 4 g
 * + t has window g and of 64 filters 16 t to 16 t + 15, whose bits are half a word.
 *
 * The 147 bytes of a convolution's window take 5 steps of 32 bytes. Of a step each lane has two
 * words, so ten in all: word t of each of the 7 rows of 21 bytes, word 4 of rows 2 t and 2 t + 1,
 * and the last bytes of these two (fill_wide, parts.cu).
 *
 * Rows of the picture lie in a ring of 16. While a row of windows is made, the four rows that the
 * next one needs besides are on their way in registers. */
#ifndef XN_CUDA_STEM_WIDE_CUH
#define XN_CUDA_STEM_WIDE_CUH

#include "stage_common.cuh"
#include "stem.cuh"
#include "wgmma_ptx.cuh"

enum {
    WIDE_WARPS = 8,
    WIDE_WINDOWS = 7,                        /* of a warp */
    WIDE_ACROSS = WIDE_WARPS * WIDE_WINDOWS, /* of a block */
    WIDE_RING = 16,
    WIDE_PAIRS = WIDE_RING / 2 + 1,                      /* of rows: no bank conflicts */
    WIDE_PLACES = WIDE_ACROSS + 4,                       /* of windows in a row */
    WIDE_STEP = XN_STEM_WIDE_FILTERS * 32,               /* bytes of filters, of a plane */
    WIDE_STAGE = XN_STEM_WIDE_FILTERS * WIDE_ACROSS * 2, /* of a row of windows */
    WIDE_STAGES = 4                                      /* two are written, two read */
};

/* Rows of the picture, three bytes a pixel. They are there twice, so that windows of odd columns of
 * the convolution (h = 0) and of even ones both begin at words. Two rows of both lie together,
 * which are an operand's registers. last: the 21st bytes of windows' rows. */
struct wide_ring {
    uint32_t words[3 * WIDE_PLACES][WIDE_PAIRS][2][2]; /* [row % 2][h] */
    uint8_t last[WIDE_PLACES][WIDE_PAIRS][2][2];       /* [h][row % 2] */
};

/* What the filters of a block have: scale, the border of windows inside the picture, shift. */
enum { WIDE_SCALE, WIDE_INSIDE, WIDE_SHIFT, WIDE_NUMBERS };
enum {
    WIDE_DYNAMIC = WIDE_STAGES * WIDE_STAGE + WIDE_NUMBERS * XN_STEM_WIDE_FILTERS * 4 /* bytes */
};

#if XN_HAS_WGMMA

/* acc[64 x 64] = (ADD ? acc : 0) + a[64 x 32] * b[64 x 32]. */
template <bool ADD>
__device__ __forceinline__ void wide_mma(int32_t (&d)[32], const uint32_t (&a)[4], uint64_t b) {
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %37, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n64k32.s32.u8.s8 "
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, "
                 "%18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
                 "{%32, %33, %34, %35}, %36, p; }"
                 : XN_WGMMA_8(0), XN_WGMMA_8(8), XN_WGMMA_8(16), XN_WGMMA_8(24)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(ADD));
}

/* Sums of row `row` of the convolution. m: the lane's window. */
__device__ __forceinline__ void wide_multiply(const wide_ring &ring, int32_t m, int32_t row,
                                              uint64_t filters, int32_t (&acc)[32]) {
    const int32_t t = (int32_t)(threadIdx.x % 4);
    uint32_t pixels[XN_STEM_WIDE_STEPS][4];
    const int32_t pair = (row + t) % (WIDE_RING / 2);
    const uint32_t(*from)[WIDE_PAIRS][2][2] = ring.words + 3 * (m + 1);
#pragma unroll
    for (int k = 0; k < 4; k++) {
        const uint4 v =
            *(const uint4 *)(k < 3 ? from[t][(row + k) % (WIDE_RING / 2)] : from[4][pair]);
        pixels[k][0] = v.x;
        pixels[k][1] = v.y;
        pixels[k][2] = v.z;
        pixels[k][3] = v.w;
    }
    const uint2 v = *(const uint2 *)from[t][(row + 3) % (WIDE_RING / 2)];
    const uint32_t last = *(const uint32_t *)ring.last[m + 2][pair];
    pixels[4][0] = v.x;
    pixels[4][1] = v.y;
    pixels[4][2] = last; /* two bytes of it */
    pixels[4][3] = last >> 16;
#pragma unroll
    for (int p = 1; p >= 0; p--) {
        const uint64_t plane = filters + p * XN_STEM_WIDE_STEPS * (WIDE_STEP >> 4);
        xn_wgmma_fence();
        if (p)
            wide_mma<false>(acc, pixels[0], plane);
        else
            wide_mma<true>(acc, pixels[0], plane);
#pragma unroll
        for (int i = 1; i < XN_STEM_WIDE_STEPS; i++)
            wide_mma<true>(acc, pixels[i], plane + i * (WIDE_STEP >> 4));
        xn_wgmma_commit();
        xn_wgmma_wait<0>();
#pragma unroll
        for (int n = 0; n < 32; n++)
            acc[n] *= p ? 128 : 1;
    }
}

/* Four filters of the lane's. */
__device__ __forceinline__ void wide_take(const float4 &four, float (&v)[4]) {
    v[0] = four.x;
    v[1] = four.y;
    v[2] = four.z;
    v[3] = four.w;
}

/* most = max(most, values of sums of row `row`), in floats; FIRST: most = values. x: the lane's
 * first column. */
template <bool FIRST>
__device__ __forceinline__ void wide_values(const stem_args &a, const float4 *numbers, int32_t o,
                                            int32_t x, int32_t row, const int32_t (&sum)[32],
                                            int32_t (&most)[32]) {
    const int32_t classes =
        xn_planes_class(row, a.height, a.top, a.bottom) * (a.left + 2 + a.right);
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const bool there =
            (uint32_t)row < (uint32_t)a.height && (uint32_t)(x + h) < (uint32_t)a.width;
        const float *own = a.border + o +
                           (there ? (classes + xn_planes_class(x + h, a.width, a.left, a.right)) *
                                        a.conv.out_channels
                                  : a.none);
#pragma unroll
        for (int q = 0; q < 4; q++) {
            float scale[4], border[4];
            wide_take(numbers[WIDE_SCALE * 16 + 4 * q], scale);
            wide_take(__ldg((const float4 *)own + q), border);
#pragma unroll
            for (int n = 0; n < 4; n++) {
                const int i = 4 * (2 * q + n / 2) + 2 * h + n % 2;
                const float v = fmaf((float)sum[i], scale[n], border[n]);
                most[i] = __float_as_int(FIRST ? v : fmaxf(v, __int_as_float(most[i])));
            }
        }
    }
}

/* The lane's filters' largest value in its window, from that of each column; sums: from the largest
 * sums, all with the border of windows inside the picture. */
__device__ __forceinline__ void wide_results(const float4 *numbers, bool sums,
                                             const int32_t (&most)[32], float (&result)[16]) {
    int32_t next[16];
#pragma unroll
    for (int n = 0; n < 16; n++)
        next[n] = __shfl_down_sync(0xffffffffu, most[n / 2 * 4 + n % 2], 4);
    if (sums) {
#pragma unroll
        for (int q = 0; q < 4; q++) {
            float scale[4], border[4];
            wide_take(numbers[WIDE_SCALE * 16 + 4 * q], scale);
            wide_take(numbers[WIDE_INSIDE * 16 + 4 * q], border);
#pragma unroll
            for (int n = 4 * q; n < 4 * q + 4; n++) {
                const int at = n / 2 * 4 + n % 2;
                result[n] = fmaf((float)max(max(most[at], most[at + 2]), next[n]), scale[n % 4],
                                 border[n % 4]);
            }
        }
    } else
#pragma unroll
        for (int n = 0; n < 16; n++) { /* a NaN is less than any value */
            const int at = n / 2 * 4 + n % 2;
            result[n] = fmaxf(__int_as_float(most[at]), -INFINITY);
            result[n] = fmaxf(result[n], __int_as_float(most[at + 2]));
            result[n] = fmaxf(result[n], __int_as_float(next[n]));
        }
}

/* What a thread adds to the rows of the picture: four pixels of a row, and with those of the next
 * lane the words that begin in them. */
struct wide_quad {
    const uint8_t *image;
    int32_t x, row, place;

    /* Of those that row of windows y needs besides the row above. */
    __device__ __forceinline__ void read(const stem_args &a, int32_t y, uint32_t (&raw)[3]) const {
        const int32_t at = 4 * y + row - a.conv.pad_top;
        if (a.quads) {
            stem_read_quad(a, image, at, x, raw);
            return;
        }
        raw[0] = raw[1] = raw[2] = 0;
#pragma unroll 1
        for (int n = 0; n < 4; n++) {
            const uint32_t word = stem_pixel(a, image, at, x + n);
            raw[0] |= (word & 0xff) << 8 * n;
            raw[1] |= (word >> 8 & 0xff) << 8 * n;
            raw[2] |= (word >> 16) << 8 * n;
        }
    }
    __device__ __forceinline__ void write(const stem_args &a, int32_t y, const uint32_t (&raw)[3],
                                          wide_ring &ring) const {
        const int32_t line = (4 * y + row) % WIDE_RING;
        const uint32_t r = raw[0], g = raw[1], b = raw[2];
        uint32_t s[6] = {r, g, b};
        if (!a.nhwc || !a.quads) {
            s[0] = __byte_perm(__byte_perm(r, g, 0x0140), b, 0x2410);
            s[1] = __byte_perm(__byte_perm(r, g, 0x0625), b, 0x2150);
            s[2] = __byte_perm(__byte_perm(r, g, 0x0073), b, 0x7106);
        }
#pragma unroll
        for (int n = 0; n < 3; n++)
            s[3 + n] = __shfl_down_sync(0xffffffffu, s[n], 1);
        if (threadIdx.x % 32 == 31 || place >= WIDE_PLACES - 1)
            return;
        uint32_t *to = &ring.words[3 * place][line / 2][line % 2][0];
        enum { WORD = WIDE_PAIRS * 4 };
#pragma unroll
        for (int n = 0; n < 3; n++) {
            to[(n + 3) * WORD] = __funnelshift_r(s[n + 2], s[(n + 3) % 6], 8);
            to[n * WORD + 1] = __funnelshift_r(s[n], s[n + 1], 24);
        }
        ring.last[place][line / 2][0][line % 2] = (uint8_t)(s[1] >> 8);
        ring.last[place][line / 2][1][line % 2] = (uint8_t)(s[2] >> 24);
    }
};

/* Rows of windows `from` to `last`, an even one and the next, from their stages to memory. A thread
 * has 8 outputs of a row, of every 16th filter. at: the block's first output. */
__device__ __forceinline__ void wide_flush(const stem_args &a, int64_t at, const char *stages,
                                           int32_t from, int32_t last, int32_t across) {
    enum { PIECES = WIDE_ACROSS / 8 };
    const int32_t filter = (int32_t)threadIdx.x / (2 * PIECES), n = threadIdx.x % (2 * PIECES);
    const int32_t y = last / 2 * 2 + n / PIECES, x = n % PIECES * 8;
    if (filter >= 16 || y < from || y > last || x >= across)
        return;
    const char *own = stages + y % WIDE_STAGES * WIDE_STAGE +
                      (filter / 2 * 8 + filter % 2) * (WIDE_ACROSS * 2) + x * 2;
    __half *to = (__half *)a.e.output + at + filter * a.plane + y * a.conv.out_width + x;
#pragma unroll
    for (int k = 0; k < XN_STEM_WIDE_FILTERS / 16; k++, to += 16 * a.plane) {
        const __half *values = (const __half *)(own + 2 * k * (WIDE_ACROSS * 2));
        if (a.vectors)
            *(uint4 *)to = *(const uint4 *)values;
        else
#pragma unroll 1
            for (int32_t i = 0; i < min(across - x, 8); i++)
                to[i] = values[i];
    }
}

#endif

__global__ void __launch_bounds__(WIDE_WARPS * 32, 2)
    stem_wide_kernel(const __grid_constant__ stem_args a) {
#if XN_HAS_WGMMA
    extern __shared__ __align__(128) char wide_stages[];
    __shared__ __align__(128) uint4 filters[2 * XN_STEM_WIDE_STEPS * WIDE_STEP / 16];
    __shared__ __align__(16) wide_ring ring;
    float4 *const constants = (float4 *)(wide_stages + WIDE_STAGES * WIDE_STAGE);
    const xn_conv &c = a.conv;
    const int32_t warp = __shfl_sync(0xffffffffu, (int32_t)(threadIdx.x / 32), 0);
    const int32_t lane = (int32_t)(threadIdx.x % 32), g = lane / 4, t = lane % 4;
    const int64_t image = (int64_t)blockIdx.x / a.bands;
    const int32_t begin = (int32_t)(blockIdx.x - image * a.bands) * a.band;
    const int32_t end = min(begin + a.band, c.out_height);
    const int32_t first = (int32_t)blockIdx.y * XN_STEM_WIDE_FILTERS, o = first + 16 * t;
    const int32_t left = (int32_t)blockIdx.z * WIDE_ACROSS; /* the first window */
    const int32_t across = min(c.out_width - left, (int32_t)WIDE_ACROSS);
    const int32_t m = warp * WIDE_WINDOWS + g;
    const bool there = g < WIDE_WINDOWS && m < across, fp16 = a.e.what.datatype == XN_FP16;
    enum { PIECES = sizeof filters / sizeof *filters };
    xn_let_next_kernel_start();
#pragma unroll
    for (int32_t n = (int32_t)threadIdx.x; n < PIECES; n += WIDE_WARPS * 32)
        filters[n] = __ldg((const uint4 *)a.filters + blockIdx.y * PIECES + n);
    if (threadIdx.x < XN_STEM_WIDE_FILTERS) {
        const int32_t f = first + (int32_t)threadIdx.x;
        /* Four of a lane, beside those of the other lanes. */
        float *const to = (float *)constants + f % 16 / 4 * 16 + f % 64 / 16 * 4 + f % 4;
        to[WIDE_SCALE * XN_STEM_WIDE_FILTERS] = fabsf(__ldg(a.scale + f));
        to[WIDE_INSIDE * XN_STEM_WIDE_FILTERS] =
            __ldg(a.border + a.top * (a.none + c.out_channels) + a.left * c.out_channels + f);
        to[WIDE_SHIFT * XN_STEM_WIDE_FILTERS] =
            a.e.what.shift ? __ldg(a.e.shift + f) + 0.0f : 0.0f; /* not -0 */
    }
    const int32_t place = warp % 2 * 31 + lane; /* two warps have a row */
    const wide_quad mine = {a.input + image * c.channels * c.height * c.width,
                            4 * (left + place - 2), warp / 2 + 5, place};
    uint32_t raw[3][3];
    xn_wait_for_previous_kernel();
#pragma unroll
    for (int n = 0; n < 3; n++)
        mine.read(a, begin + n - 2, raw[n]);
#pragma unroll
    for (int n = 0; n < 3; n++)
        mine.write(a, begin + n - 2 + WIDE_RING / 4, raw[n], ring);
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    const uint64_t operand =
        xn_matrix(xn_matrix_low(xn_shared_address(filters), WIDE_STEP / 2), 128);
    const float4 *const numbers = constants + t;
    uint8_t *const bits = (uint8_t *)a.e.bits + (image * a.plane + left + m) * a.bits_pitch + o / 8;
    const int32_t x = 2 * (left + warp * WIDE_WINDOWS) - 1; /* the warp's first column */
    const bool inside = x >= a.left && x + 2 * WIDE_WINDOWS < a.width - a.right;
    int32_t most[32] = {}; /* of each column in a row of windows: the largest sum, or value */
#pragma unroll 1
    for (int32_t y = max(begin - 1, 0); y < end; y++) {
        const bool even = y >= a.even_rows[0] && y < a.even_rows[1];
        int32_t acc[32];
        if (y >= begin) {
            mine.read(a, y + 1, raw[0]);
            wide_multiply(ring, m, 2 * y, operand, acc);
            if (even) {
#pragma unroll
                for (int n = 0; n < 32; n++)
                    acc[n] = max(most[n], acc[n]);
            } else {
                wide_values<true>(a, numbers, o, 2 * (left + m) - 1, 2 * y - 1, most, most);
                wide_values<false>(a, numbers, o, 2 * (left + m) - 1, 2 * y, acc, most);
#pragma unroll
                for (int n = 0; n < 32; n++)
                    acc[n] = most[n];
            }
        }
        wide_multiply(ring, m, 2 * y + 1, operand, most);
        if (y >= begin) {
            if (even) {
#pragma unroll
                for (int n = 0; n < 32; n++)
                    acc[n] = max(most[n], acc[n]);
            } else
                wide_values<false>(a, numbers, o, 2 * (left + m) - 1, 2 * y + 1, most, acc);
            if (even && !inside)
                wide_values<true>(a, numbers, o, 2 * (left + m) - 1, 2 * y, acc, acc);
            float result[16];
            wide_results(numbers, even && inside, acc, result);
            if (a.e.what.activation)
#pragma unroll
                for (int n = 0; n < 16; n++)
                    result[n] = xn_activate(a.e, o + n, result[n]);
            if (fp16 && there) {
                __half *const to = (__half *)(wide_stages + y % WIDE_STAGES * WIDE_STAGE) +
                                   2 * t * WIDE_ACROSS + m;
#pragma unroll
                for (int n = 0; n < 16; n++)
                    to[(n / 2 * 8 + n % 2) * WIDE_ACROSS] = __float2half_rn(result[n]);
            }
            if (a.e.what.bits) {
                uint32_t signs = 0;
#pragma unroll
                for (int q = 3; q >= 0; q--) {
                    float shift[4];
                    wide_take(numbers[WIDE_SHIFT * 16 + 4 * q], shift);
#pragma unroll
                    for (int n = 3; n >= 0; n--)
                        signs = stage_add_sign(signs, result[4 * q + n], shift[n]);
                }
                if (there)
                    *(uint16_t *)(bits + (int64_t)(y * c.out_width) * a.bits_pitch) =
                        (uint16_t)signs;
            }
            mine.write(a, y + 1 + WIDE_RING / 4, raw[0], ring);
            __syncthreads();
            if (fp16 && (y % 2 || y == end - 1))
                wide_flush(
                    a, image * (c.out_channels * a.plane + a.e.output_gap) + first * a.plane + left,
                    wide_stages, begin, y, across);
        }
    }
#else
    (void)a;
    __trap();
#endif
}

#endif
