/* few_planes.cu: groups of one channel and one filter, 3 x 3, 5 x 5 or 7 x 7, with any stride and
 * dilation and rows of any length: the depth-wise layers that the strips (few_strip.cuh), which
 * want rows of whole vectors and unit steps, do not do well.
 *
 * Planes lie one after the other in memory, and so do the rows of one. A block takes several whole
 * planes, or a band of rows of one: one run of the input, which it copies to shared memory in
 * vectors whatever the row's length, and one run of the output, which it collects there and
 * writes in vectors. In between a thread has a column and walks down it. Of each input row that
 * its windows touch it makes
 *
 *   sum      of |x| over the row's KW taps; K is the sum of KH of these
 *   signs    KW bits, and as many that say which taps are inside
 *
 * and keeps those of the last KH rows, so with stride 1 a row is read once a column. With dilation
 * d the rows of a window are d apart: a walk takes every d-th output row (in general d / gcd(d,
 * stride)-th) and goes ADVANCE = stride / gcd window rows further each time.
 *     dot = taps - 2 popc((signs xor filter) and inside)
 *
 * Bound by memory; about 25 instructions an output of 3 x 3. */
#include "element.cuh"
#include "fast_divide.cuh"
#include "few_planes.h"
#include "launch.cuh"
#include "layout.h"
#include "ptx.cuh"

enum {
    MAX_THREADS = 256,
    SHARED_LIMIT = 48 << 10,
    OUTPUTS_MOST = 8192,   /* of a block in rows, */
    COLLECTED_MOST = 4096, /* of one that collects them, */
    OUTPUTS_LEAST = 256,   /* and of one when there are few */
    BLOCKS_WANTED = 4,     /* a multiprocessor's, */
    ROWS_LEAST = 4,        /* which bands of fewer rows are not worth */
    MAX_PLANES = 1 << 30,
};

struct planes_args {
    const void *input;
    const uint32_t *patches;
    const float *factor, *bias;
    xn_output out;
    int32_t datatype, want_k;
    int32_t groups, planes; /* of an image; of all */
    int32_t height, width, out_height, out_width;
    int32_t stride_h, stride_w, dilation_h, dilation_w, pad_top, pad_left, pad_value;
    int32_t patch_words;
    int32_t block_planes, band, rows, bands;
    int32_t direct; /* outputs are not collected: a warp's are neighbours anyway */
    int32_t apart;  /* output rows from one of a walk to the next */
    int32_t strips; /* walks of a column */
    xn_fast_divisor by_out_width;
    int32_t info_at, out_at; /* words into shared memory; a zero is at 0, the input at 4 */
    float reciprocal;        /* of the terms of K */
};

/* The filter of a plane. */
template <int KW, int KH>
struct __align__(16) planes_filter {
    static constexpr int WORDS = KW * KH > 32 ? 2 : 1;
    uint32_t words[WORDS];
    float factor, bias;
};

/* What a block works on. */
struct planes_block {
    int32_t plane, planes; /* the first and how many */
    int32_t out_y, out_rows;
    int32_t in_y, in_rows; /* staged, of each plane */
};

__device__ __forceinline__ planes_block find_block(const planes_args &a, int32_t kernel_h) {
    planes_block b;
    b.plane = (int32_t)blockIdx.x / a.bands * a.block_planes;
    b.planes = min(a.block_planes, a.planes - b.plane);
    b.out_y = (int32_t)blockIdx.x % a.bands * a.band;
    b.out_rows = min(a.band, a.out_height - b.out_y);
    b.in_y = 0;
    b.in_rows = a.height;
    if (a.bands > 1) {
        const int32_t first = b.out_y * a.stride_h - a.pad_top;
        const int32_t end =
            first + (b.out_rows - 1) * a.stride_h + (kernel_h - 1) * a.dilation_h + 1;
        b.in_y = min(max(first, 0), a.height);
        b.in_rows = max(min(end, a.height) - b.in_y, 0);
    }
    return b;
}

/* ---- runs of memory ---- */

/* Copies elements first .. first + count - 1 as floats to shared + first % 4. The vectors at both
 * ends may reach beyond, but not beyond the `total` elements there are. */
template <class T>
__device__ __forceinline__ void read_run(const T *input, int64_t first, int32_t count,
                                         int64_t total, float *shared) {
    struct alignas(4 * sizeof(T)) vector {
        T element[4];
    };
    const int64_t start = first & ~(int64_t)3;
    const int32_t vectors = (int32_t)((first + count - start + 3) / 4);
#pragma unroll 4
    for (int32_t v = threadIdx.x; v < vectors; v += blockDim.x) {
        const int64_t at = start + (int64_t)v * 4;
        float *to = shared + v * 4;
        if (at + 4 > total) {
            for (int n = 0; n < total - at; n++)
                to[n] = xn_to_fp32(input[at + n]);
        } else {
            const vector in = *(const vector *)(input + at);
            *(float4 *)to = make_float4(xn_to_fp32(in.element[0]), xn_to_fp32(in.element[1]),
                                        xn_to_fp32(in.element[2]), xn_to_fp32(in.element[3]));
        }
    }
}

/* The same of fp32, copied in the background. */
__device__ __forceinline__ void copy_run(const float *input, int64_t first, int32_t count,
                                         int64_t total, float *shared) {
    const int64_t start = first & ~(int64_t)3;
    const int32_t vectors = (int32_t)((first + count - start + 3) / 4);
    for (int32_t v = threadIdx.x; v < vectors; v += blockDim.x) {
        const int64_t at = start + (int64_t)v * 4;
        if (at + 4 > total)
            for (int n = 0; n < total - at; n++)
                shared[v * 4 + n] = input[at + n];
        else
            xn_copy_ahead<16>(shared + v * 4, input + at, 16);
    }
    xn_copy_commit();
    xn_copy_wait<0>();
}

/* Writes elements first .. first + count - 1 from shared + first % 4 on. */
__device__ __forceinline__ void write_run(const xn_output &out, int64_t first, int32_t count,
                                          const float *shared) {
    const int64_t start = first & ~(int64_t)3, end = first + count;
    const int32_t vectors = (int32_t)((end - start + 3) / 4);
    for (int32_t v = threadIdx.x; v < vectors; v += blockDim.x) {
        const int64_t at = start + (int64_t)v * 4;
        const float *from = shared + v * 4;
        if (at < first || at + 4 > end) {
            for (int n = 0; n < 4; n++)
                if (at + n >= first && at + n < end) {
                    if (out.datatype == XN_INT32)
                        ((int32_t *)out.data)[at + n] = __float_as_int(from[n]);
                    else
                        xn_store_fp32(out, at + n, from[n]);
                }
            continue;
        }
        const float4 value = *(const float4 *)from;
        if (out.datatype == XN_FP16) {
            const __half2 low = __floats2half2_rn(value.x, value.y),
                          high = __floats2half2_rn(value.z, value.w);
            uint2 packed;
            memcpy(&packed.x, &low, 4);
            memcpy(&packed.y, &high, 4);
            *(uint2 *)((__half *)out.data + at) = packed;
        } else {
            *(float4 *)((float *)out.data + at) = value;
        }
    }
}

/* ---- a column ---- */

/* The last KH window rows of a walk, KW bits a row, the newest on top. */
template <int KW, int KH>
struct planes_window {
    static constexpr int WORDS = KW * KH > 32 ? 2 : 1;
    /* rows in the low word: all, or as many as fit */
    static constexpr int LOW = WORDS == 1 ? KH : 32 / KW, HIGH = KH - LOW;
    float sums[KH];
    uint32_t signs[WORDS], inside[WORDS];

    static __device__ __forceinline__ void push(uint32_t (&words)[WORDS], uint32_t row) {
        if constexpr (WORDS == 1) {
            words[0] = words[0] >> KW | row << (KW * (KH - 1));
        } else {
            words[0] = words[0] >> KW | (words[1] & ((1u << KW) - 1u)) << (KW * (LOW - 1));
            words[1] = words[1] >> KW | row << (KW * (HIGH - 1));
        }
    }

    /* The filter's bits in the same places. */
    static __device__ __forceinline__ void place(const uint32_t *patch, uint32_t (&words)[WORDS]) {
        if constexpr (WORDS == 1) {
            words[0] = patch[0];
        } else {
            words[0] = patch[0] & (0xffffffffu >> (32 - KW * LOW));
            words[1] = __funnelshift_r(patch[0], patch[1], KW * LOW);
        }
    }
};

/* Where a column's taps are. Those outside the image are all the zero before the run. */
template <int KW>
struct planes_column {
    const float *tap[KW]; /* of row 0 of the image, which need not be staged */
    int32_t pitch[KW];    /* elements from row to row, 0 outside */
    uint32_t inside;      /* bit j: tap j counts */
    uint32_t signs;       /* bit j: tap j may be +1; off where pad_value is -1 */
};

template <int KW>
__device__ __forceinline__ planes_column<KW> find_column(const planes_args &a, int32_t in_x,
                                                         const float *row, const float *zero) {
    constexpr uint32_t ALL = (1u << KW) - 1u;
    planes_column<KW> c;
    uint32_t inside = 0;
#pragma unroll
    for (int j = 0; j < KW; j++) {
        const int32_t x = in_x + j * a.dilation_w;
        const bool is_inside = (uint32_t)x < (uint32_t)a.width;
        c.tap[j] = is_inside ? row + x : zero;
        c.pitch[j] = is_inside ? a.width : 0;
        inside |= is_inside ? 1u << j : 0u;
    }
    c.inside = a.pad_value ? ALL : inside;
    c.signs = a.pad_value < 0 ? inside : ALL;
    return c;
}

/* One row of taps to the window; row y of the image. */
template <int KW, int KH>
__device__ __forceinline__ void push_row(const planes_args &a, const planes_column<KW> &column,
                                         int32_t y, planes_window<KW, KH> *w) {
    constexpr uint32_t ALL = (1u << KW) - 1u;
    float sum = 0.0f;
    uint32_t signs = a.pad_value > 0 ? ALL : 0u, inside = a.pad_value ? ALL : 0u;
    if ((uint32_t)y < (uint32_t)a.height) {
        float v[KW];
#pragma unroll
        for (int j = 0; j < KW; j++)
            v[j] = column.tap[j][y * column.pitch[j]];
        signs = 0;
#pragma unroll
        for (int j = 0; j < KW; j++) {
            if (v[j] >= 0.0f)
                signs |= 1u << j;
            sum += fabsf(v[j]);
        }
        signs &= column.signs;
        inside = column.inside;
    }
#pragma unroll
    for (int i = 0; i < KH - 1; i++)
        w->sums[i] = w->sums[i + 1];
    w->sums[KH - 1] = sum;
    planes_window<KW, KH>::push(w->signs, signs);
    planes_window<KW, KH>::push(w->inside, inside);
}

/* An output in double, from the staged rows; image is where row 0 of the image would be. */
template <int KW, int KH>
__device__ __noinline__ float output_again(const planes_args &a, const float *image, int32_t y0,
                                           int32_t x0, int32_t dot, float factor, float bias) {
    double k = 0.0;
    for (int32_t i = 0; i < KH; i++)
        for (int32_t j = 0; j < KW; j++) {
            const int32_t y = y0 + i * a.dilation_h, x = x0 + j * a.dilation_w;
            if ((uint32_t)y < (uint32_t)a.height && (uint32_t)x < (uint32_t)a.width)
                k += fabs((double)image[y * a.width + x]);
        }
    k = a.want_k ? k / (KW * KH) : 1.0;
    return (float)((double)dot * factor * k + bias);
}

/* The output of a full window; dots of INT32 output as the bits of an integer. */
template <int KW, int KH>
__device__ __forceinline__ float output_of(const planes_args &a, const planes_window<KW, KH> &w,
                                           const planes_filter<KW, KH> &f, const float *image,
                                           int32_t y, int32_t in_x) {
    constexpr int WORDS = planes_filter<KW, KH>::WORDS;
    int32_t differ = 0, taps = 0;
#pragma unroll
    for (int n = 0; n < WORDS; n++) {
        differ += __popc((w.signs[n] ^ f.words[n]) & w.inside[n]);
        taps += __popc(w.inside[n]);
    }
    const int32_t dot = xn_dot_from_xor(taps, differ);
    if (a.out.datatype == XN_INT32)
        return __int_as_float(dot);
    float sum = w.sums[0];
#pragma unroll
    for (int i = 1; i < KH; i++)
        sum += w.sums[i];
    const float value =
        xn_epilogue((float)dot, f.factor, a.want_k ? sum * a.reciprocal : 1.0f, f.bias);
    if (!isfinite(value)) /* also where only the sum passed FLT_MAX */
        return output_again<KW, KH>(a, image, y, in_x, dot, f.factor, f.bias);
    return value;
}

/* Where a walk is: rows `row` and on, every apart-th below `end`, of the block's; column x. */
struct planes_place {
    int32_t row, end, x;
};

/* To out, or where outputs are not collected, to the output from element out_first on. */
template <int KW, int KH, int ADVANCE>
__device__ __forceinline__ void
walk(const planes_args &a, const planes_block &b, const planes_place &p, const float *image,
     const float *zero, const planes_filter<KW, KH> &filter, float *out, int64_t out_first) {
    constexpr int CARRY = ADVANCE < KH ? KH - ADVANCE : 0;
    const int32_t in_x = p.x * a.stride_w - a.pad_left;
    const planes_column<KW> column = find_column<KW>(a, in_x, image, zero);
    planes_window<KW, KH> w = {};
    int32_t y = (b.out_y + p.row) * a.stride_h - a.pad_top; /* of the window's first row */
#pragma unroll
    for (int i = 0; i < CARRY; i++)
        push_row<KW, KH>(a, column, y + i * a.dilation_h, &w);
    int32_t at = p.row * a.out_width + p.x;
    for (int32_t row = p.row; row < p.end; row += a.apart) {
#pragma unroll
        for (int i = CARRY; i < KH; i++)
            push_row<KW, KH>(a, column, y + i * a.dilation_h, &w);
        const float value = output_of<KW, KH>(a, w, filter, image, y, in_x);
        if (!a.direct)
            out[at] = value;
        else if (a.out.datatype == XN_INT32)
            ((int32_t *)a.out.data)[out_first + at] = __float_as_int(value);
        else
            xn_store_fp32(a.out, out_first + at, value);
        at += a.apart * a.out_width;
        y += a.apart * a.stride_h;
    }
}

/* ---- the kernel ---- */

/* ADVANCE: window rows from one output of a walk to the next; KH stands for that many and more. */
template <int KW, int KH, int ADVANCE>
__global__ void __launch_bounds__(MAX_THREADS)
    planes_kernel(const __grid_constant__ planes_args a) {
    extern __shared__ __align__(16) float shared[];
    typedef planes_filter<KW, KH> filter;
    filter *filters = (filter *)(shared + a.info_at);
    const planes_block b = find_block(a, KH);
    for (int32_t p = threadIdx.x; p < b.planes; p += blockDim.x) {
        const int32_t o = a.groups == 1 ? 0 : (b.plane + p) % a.groups;
        uint32_t patch[2];
        patch[0] = __ldg(a.patches + (int64_t)o * a.patch_words);
        patch[1] = filter::WORDS > 1 ? __ldg(a.patches + (int64_t)o * a.patch_words + 1) : 0u;
        planes_window<KW, KH>::place(patch, filters[p].words);
        filters[p].factor = xn_factor_of(a.factor, o);
        filters[p].bias = xn_bias_of(a.bias, o);
    }
    xn_wait_for_previous_kernel();
    xn_let_next_kernel_start();
    const int64_t in_plane = (int64_t)a.height * a.width;
    const int64_t in_first = b.plane * in_plane + (int64_t)b.in_y * a.width;
    const int32_t in_count = b.planes * b.in_rows * a.width; /* planes > 1: all their rows */
    const int64_t total = a.planes * in_plane;
    float *in = shared + 4, *zero = shared;
    if (threadIdx.x == 0)
        *zero = 0.0f;
    if (a.datatype == XN_FP32)
        copy_run((const float *)a.input, in_first, in_count, total, in);
    else
        xn_with_input(a.input, a.datatype,
                      [&](auto *input) { read_run(input, in_first, in_count, total, in); });
    __syncthreads();

    const int64_t out_plane = (int64_t)a.out_height * a.out_width;
    const int64_t out_first = b.plane * out_plane + (int64_t)b.out_y * a.out_width;
    in += in_first & 3;
    float *out = shared + a.out_at + (out_first & 3);
    const int32_t columns = b.planes * a.out_width;
    for (int32_t item = threadIdx.x; item < columns * a.strips; item += blockDim.x) {
        const int32_t strip = a.strips == 1 ? 0 : item / columns;
        const int32_t at = item - strip * columns;
        const int32_t plane = xn_divide(at, a.by_out_width), x = at - plane * a.out_width;
        const int32_t part = a.apart == 1 ? strip : strip / a.apart;
        planes_place p;
        p.x = x;
        p.row = strip - part * a.apart + part * a.rows * a.apart;
        p.end = min(p.row + a.rows * a.apart, b.out_rows);
        if (p.row >= p.end)
            continue;
        walk<KW, KH, ADVANCE>(a, b, p, in + (plane * b.in_rows - b.in_y) * a.width, zero,
                              filters[plane], out + plane * b.out_rows * a.out_width, out_first);
    }
    if (a.direct) /* of one plane */
        return;
    __syncthreads();
    write_run(a.out, out_first, b.planes * b.out_rows * a.out_width, shared + a.out_at);
}

/* ---- the cut ---- */

typedef void (*planes_function)(const planes_args);

#define PLANES(K)                                                                                  \
    {K, 1, planes_kernel<K, K, 1>}, {K, 2, planes_kernel<K, K, 2>}, {                              \
        K, K, planes_kernel<K, K, K>                                                               \
    }
static const struct {
    int32_t kernel, advance;
    planes_function function;
} kernels[] = {PLANES(3), PLANES(5), PLANES(7)};

static int32_t gcd(int32_t a, int32_t b) {
    return b ? gcd(b, a % b) : a;
}

static int32_t apart_of(const xn_conv *c) {
    return c->dilation_h / gcd(c->dilation_h, c->stride_h);
}

static planes_function find_kernel(const xn_conv *c) {
    const int32_t advance = c->stride_h / gcd(c->dilation_h, c->stride_h);
    for (const auto &k : kernels)
        if (k.kernel == c->kernel_h && (k.advance == advance || k.advance == k.kernel))
            return k.function;
    return NULL;
}

static bool takes(const xn_conv *c) {
    return c->mode == XN_MODE_XNOR && c->group_channels == 1 && c->group_out_channels == 1 &&
           c->kernel_h == c->kernel_w && find_kernel(c) && c->out_width > 1 &&
           c->out_width < 1 << 14 && (int64_t)c->height * c->width <= INT32_MAX / 4 &&
           (int64_t)c->out_height * c->out_width <= INT32_MAX / 4 &&
           (int64_t)c->height + c->pad_top + c->pad_bottom <= 1 << 29 &&
           (int64_t)c->width + c->pad_left + c->pad_right <= 1 << 29;
}

static int64_t bands_of(const xn_conv *c, const xn_cuda_planes_cut *cut) {
    return (c->out_height - 1) / cut->band + 1;
}

static int64_t blocks_of(const xn_conv *c, int64_t images, const xn_cuda_planes_cut *cut) {
    return ((images * c->groups - 1) / cut->planes + 1) * bands_of(c, cut);
}

static bool is_direct(const xn_conv *c, const xn_cuda_planes_cut *cut) {
    return cut->planes == 1 && c->out_width >= 2 * 32;
}

/* Words of shared memory: the input run, the filters, the output run. */
static int64_t shared_words(const xn_conv *c, const xn_cuda_planes_cut *cut, int64_t *info_at,
                            int64_t *out_at) {
    int64_t rows = c->height;
    if (bands_of(c, cut) > 1) {
        rows = (int64_t)(cut->band - 1) * c->stride_h + (c->kernel_h - 1) * c->dilation_h + 1;
        rows = rows < c->height ? rows : c->height;
    }
    *info_at = 4 + (cut->planes * rows * c->width + 3 + 3) / 4 * 4;
    *out_at = *info_at + cut->planes * (int64_t)sizeof(planes_filter<7, 7>) / 4;
    return *out_at + (is_direct(c, cut)
                          ? 0
                          : (cut->planes * (int64_t)cut->band * c->out_width + 3 + 3) / 4 * 4);
}

bool xn_cuda_planes_fits(const xn_conv *c, int64_t images, const xn_cuda_planes_cut *cut) {
    int64_t info_at, out_at;
    return takes(c) && cut->planes >= 1 && cut->band >= 1 && cut->rows >= 1 &&
           cut->planes <= 1024 && cut->rows <= c->out_height && cut->threads >= 32 &&
           cut->threads <= MAX_THREADS && cut->threads % 32 == 0 &&
           (cut->planes == 1 || cut->band >= c->out_height) && cut->band <= c->out_height &&
           images * c->groups <= MAX_PLANES && blocks_of(c, images, cut) <= INT32_MAX &&
           shared_words(c, cut, &info_at, &out_at) * 4 <= SHARED_LIMIT;
}

/* As many outputs a block as `most`: whole planes, or rows of one. */
static void choose_run(const xn_conv *c, int64_t images, int64_t most, xn_cuda_planes_cut *cut) {
    const int64_t plane = (int64_t)c->out_height * c->out_width, all = images * c->groups;
    cut->planes = 1;
    cut->band = c->out_height;
    if (plane * 2 <= most) {
        int64_t planes = most / plane < all ? most / plane : all;
        if (planes * c->out_width > MAX_THREADS) /* a thread a column, in one round */
            planes = MAX_THREADS / c->out_width > 1 ? MAX_THREADS / c->out_width : 1;
        cut->planes = (int32_t)planes;
    } else if (plane > most) {
        const int64_t rows = most / c->out_width < 1 ? 1 : most / c->out_width;
        const int64_t bands = (c->out_height - 1) / rows + 1;
        cut->band = (int32_t)((c->out_height - 1) / bands + 1);
    }
}

/* Long walks read less twice; short ones give threads enough. */
static void choose_walks(const xn_conv *c, xn_cuda_planes_cut *cut) {
    const int64_t columns = (int64_t)cut->planes * c->out_width, apart = apart_of(c);
    const int64_t longest = (cut->band - 1) / apart + 1; /* rows of a walk */
    int64_t strips = MAX_THREADS / (columns * apart);
    strips = strips < 1 ? 1 : strips;
    cut->rows = (int32_t)((longest - 1) / strips + 1);
    const int64_t items = columns * apart * ((longest - 1) / cut->rows + 1);
    const int64_t rounds = (items - 1) / MAX_THREADS + 1, each = (items - 1) / rounds + 1;
    cut->threads = (int32_t)((each + 31) / 32 * 32);
}

bool xn_cuda_planes_choose(const xn_conv *c, int64_t images, int multiprocessors,
                           xn_cuda_planes_cut *out) {
    xn_cuda_planes_cut cut = {};
    bool found = false;
    if (!takes(c))
        return false;
    for (int64_t most = OUTPUTS_MOST; most >= OUTPUTS_LEAST; most /= 2) {
        choose_run(c, images, most, &cut);
        choose_walks(c, &cut);
        if (!xn_cuda_planes_fits(c, images, &cut) || (!is_direct(c, &cut) && most > COLLECTED_MOST))
            continue;
        if (found && bands_of(c, &cut) > 1 && cut.band < ROWS_LEAST)
            break;
        found = true;
        *out = cut;
        if (blocks_of(c, images, &cut) >= BLOCKS_WANTED * (int64_t)multiprocessors)
            break;
    }
    return found;
}

cudaError_t xn_cuda_planes_launch(const xn_conv *c, int64_t images, const xn_cuda_planes_cut *cut,
                                  const xn_cuda_few_io *io, const xn_cuda_epilogue_args *epilogue,
                                  bool overlapped, cudaStream_t stream) {
    if (!xn_cuda_planes_fits(c, images, cut))
        return cudaErrorInvalidConfiguration;
    int64_t info_at, out_at;
    const int64_t words = shared_words(c, cut, &info_at, &out_at);
    planes_args a = {};
    a.input = io->input;
    a.patches = io->patches;
    a.factor = epilogue->factor;
    a.bias = epilogue->bias;
    a.out = {epilogue->output, c->output_datatype};
    a.datatype = c->input_datatype;
    a.want_k = c->scaling == XN_SCALING_XNOR;
    a.groups = c->groups;
    a.planes = (int32_t)(images * c->groups);
    a.height = c->height;
    a.width = c->width;
    a.out_height = c->out_height;
    a.out_width = c->out_width;
    a.stride_h = c->stride_h;
    a.stride_w = c->stride_w;
    a.dilation_h = c->dilation_h;
    a.dilation_w = c->dilation_w;
    a.pad_top = c->pad_top;
    a.pad_left = c->pad_left;
    a.pad_value = c->pad_value;
    a.patch_words = xn_cuda_patch_words(1, c->kernel_h, c->kernel_w);
    a.block_planes = cut->planes;
    a.band = cut->band;
    a.rows = cut->rows;
    a.bands = (int32_t)bands_of(c, cut);
    a.direct = is_direct(c, cut);
    a.apart = apart_of(c);
    a.strips = a.apart * (((cut->band - 1) / a.apart) / cut->rows + 1);
    a.by_out_width = xn_fast_divisor_of(c->out_width);
    a.info_at = (int32_t)info_at;
    a.out_at = (int32_t)out_at;
    a.reciprocal = 1.0f / (float)(c->kernel_h * c->kernel_w);
    return xn_cuda_launch_with(find_kernel(c), dim3((unsigned)blocks_of(c, images, cut)),
                               cut->threads, (size_t)words * 4, overlapped, stream, a);
}

cudaError_t xn_cuda_planes_load(void) {
    for (const auto &k : kernels) {
        cudaError_t e = xn_cuda_load(k.function);
        if (e != cudaSuccess)
            return e;
    }
    return cudaSuccess;
}
