/* depthwise.cuh: what the kernels of depthwise.cu share: a block's run of the input in shared
 * memory and its run of the output, the windows of a walk, an output. */
#ifndef XN_CUDA_DEPTHWISE_CUH
#define XN_CUDA_DEPTHWISE_CUH

#include "depthwise.h"
#include "fast_divide.cuh"
#include "few.cuh"
#include "launch.cuh"

enum { MAX_THREADS = 256 }; /* of a block */

struct depthwise_args : xn_few_args {
    int32_t planes; /* of all images */
    int32_t block_planes, band, rows, bands;
    int32_t direct; /* outputs are not collected: a warp's are neighbours anyway */
    int32_t apart;  /* output rows from one of a walk to the next */
    int32_t strips; /* walks of a column */
    xn_fast_divisor by_out_width;
    int32_t info_at, out_at; /* words into shared memory; a zero is at 0, the input at 4, */
    int32_t rows_at;         /* and with short rows the signs of each at rows_at */
};

/* The filter of a plane. */
template <int KW, int KH>
struct __align__(16) depthwise_filter {
    static constexpr int WORDS = KW * KH > 32 ? 2 : 1;
    uint32_t words[WORDS];
    xn_filter constants;
};

/* What a block works on. */
struct depthwise_block {
    int32_t plane, planes; /* the first and how many */
    int32_t out_y, out_rows;
    int32_t in_y, in_rows; /* staged, of each plane */
};

__device__ __forceinline__ depthwise_block find_block(const depthwise_args &a, int32_t kernel_h) {
    const xn_conv &c = a.conv;
    depthwise_block b;
    b.plane = (int32_t)blockIdx.x / a.bands * a.block_planes;
    b.planes = min(a.block_planes, a.planes - b.plane);
    b.out_y = (int32_t)blockIdx.x % a.bands * a.band;
    b.out_rows = min(a.band, c.out_height - b.out_y);
    b.in_y = 0;
    b.in_rows = c.height;
    if (a.bands > 1) {
        const int32_t first = b.out_y * c.stride_h - c.pad_top;
        const int32_t end =
            first + (b.out_rows - 1) * c.stride_h + (kernel_h - 1) * c.dilation_h + 1;
        b.in_y = min(max(first, 0), c.height);
        b.in_rows = max(min(end, c.height) - b.in_y, 0);
    }
    return b;
}

/* ---- runs of memory ---- */

/* Copies elements first .. first + count - 1 as floats to shared + first % 4, fp32 in the
 * background. The vectors at both ends may reach beyond, but not beyond the `total` elements there
 * are. */
template <class T>
__device__ __forceinline__ void read_run(const T *input, int64_t first, int32_t count,
                                         int64_t total, float *shared) {
    struct alignas(4 * sizeof(T)) vector {
        T element[4];
    };
    const int64_t start = first & ~(int64_t)3;
    const int32_t vectors = (int32_t)((first + count - start + 3) / 4);
    constexpr int UNDER_WAY = sizeof(T) == sizeof(float) ? 1 : 4;
#pragma unroll UNDER_WAY
    for (int32_t v = threadIdx.x; v < vectors; v += blockDim.x) {
        const int64_t at = start + (int64_t)v * 4;
        float *to = shared + v * 4;
        if (at + 4 > total) {
            for (int n = 0; n < total - at; n++)
                to[n] = xn_to_fp32(input[at + n]);
        } else if constexpr (sizeof(T) == sizeof(float)) {
            xn_copy_ahead<16>(to, input + at, 16);
        } else {
            const vector in = *(const vector *)(input + at);
            *(float4 *)to = make_float4(xn_to_fp32(in.element[0]), xn_to_fp32(in.element[1]),
                                        xn_to_fp32(in.element[2]), xn_to_fp32(in.element[3]));
        }
    }
    if constexpr (sizeof(T) == sizeof(float)) {
        xn_copy_commit();
        xn_copy_wait<0>();
    }
}

/* Writes elements first .. first + count - 1 from shared + first % 4 on. */
__device__ __forceinline__ void write_run(const xn_epilogue_args &e, int64_t first, int32_t count,
                                          const float *shared) {
    const int64_t start = first & ~(int64_t)3, end = first + count;
    const int32_t vectors = (int32_t)((end - start + 3) / 4);
    for (int32_t v = threadIdx.x; v < vectors; v += blockDim.x) {
        const int64_t at = start + (int64_t)v * 4;
        const float4 in = *(const float4 *)(shared + v * 4);
        const float value[4] = {in.x, in.y, in.z, in.w};
        if (at >= first) {
            xn_few_store(e, at, true, (int32_t)min(end - at, (int64_t)4), value);
            continue;
        }
#pragma unroll
        for (int n = 1; n < 4; n++) /* the first vector, from its middle on */
            if (at + n >= first && at + n < end)
                xn_few_store(e, at + n, false, 1, {value[n]});
    }
}

/* ---- windows and outputs ---- */

/* The last KH window rows of a walk, KW bits a row, the newest on top. */
template <int KW, int KH>
struct depthwise_window {
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

/* The output of a full window; *finite becomes false where it is not, also where only K's sum
 * passed FLT_MAX. */
template <int KW, int KH>
__device__ __forceinline__ float output_of(const depthwise_args &a,
                                           const depthwise_window<KW, KH> &w,
                                           const depthwise_filter<KW, KH> &f, bool *finite) {
    constexpr int WORDS = depthwise_filter<KW, KH>::WORDS;
    int32_t differ = 0, taps = 0;
#pragma unroll
    for (int n = 0; n < WORDS; n++) {
        differ += __popc((w.signs[n] ^ f.words[n]) & w.inside[n]);
        taps += __popc(w.inside[n]);
    }
    float box = w.sums[0];
#pragma unroll
    for (int i = 1; i < KH; i++)
        box += w.sums[i];
    const float value =
        xn_value((float)xn_dot_from_xor(taps, differ), a.conv.epilogue.k ? box : 1.0f, f.constants);
    *finite = *finite && isfinite(value);
    return value;
}

/* Where a walk is: rows `row` and on, every apart-th below `end`, of the block's; column x. */
struct depthwise_place {
    int32_t row, end, x;
};

/* ---- a block ---- */

/* The filters of its planes and its input in shared memory; waits for the kernel ahead. Gives the
 * first staged element. */
template <int KW, int KH>
__device__ __forceinline__ float *stage_block(const depthwise_args &a, const depthwise_block &b,
                                              float *shared) {
    typedef depthwise_filter<KW, KH> filter;
    filter *filters = (filter *)(shared + a.info_at);
    for (int32_t p = threadIdx.x; p < b.planes; p += blockDim.x) {
        const int32_t o = a.conv.groups == 1 ? 0 : (b.plane + p) % a.conv.groups;
        uint32_t patch[2];
        patch[0] = __ldg(a.weights + (int64_t)o * a.weight_words);
        patch[1] = filter::WORDS > 1 ? __ldg(a.weights + (int64_t)o * a.weight_words + 1) : 0u;
        depthwise_window<KW, KH>::place(patch, filters[p].words);
        filters[p].constants = xn_filter_of(a.epilogue, o);
    }
    xn_wait_for_previous_kernel();
    xn_let_next_kernel_start();
    const xn_conv &c = a.conv;
    const int64_t in_plane = (int64_t)c.height * c.width;
    const int64_t in_first = b.plane * in_plane + (int64_t)b.in_y * c.width;
    const int32_t in_count = b.planes * b.in_rows * c.width; /* planes > 1: all their rows */
    const int64_t total = a.planes * in_plane;
    float *in = shared + 4;
    if (threadIdx.x == 0)
        *shared = 0.0f;
    xn_few_with_input(a, [&](auto *input) { read_run(input, in_first, in_count, total, in); });
    __syncthreads();
    return in + (in_first & 3);
}

/* Its first output, of all. */
__device__ __forceinline__ int64_t first_output(const depthwise_args &a, const depthwise_block &b) {
    return ((int64_t)b.plane * a.conv.out_height + b.out_y) * a.conv.out_width;
}

/* Calls walk(plane of the block, place) for this thread's walks. */
template <class Walk>
__device__ __forceinline__ void each_walk(const depthwise_args &a, const depthwise_block &b,
                                          Walk walk) {
    const int32_t columns = b.planes * a.conv.out_width;
    for (int32_t item = threadIdx.x; item < columns * a.strips; item += blockDim.x) {
        const int32_t strip = a.strips == 1 ? 0 : item / columns;
        const int32_t at = item - strip * columns;
        const int32_t plane = xn_divide(at, a.by_out_width), x = at - plane * a.conv.out_width;
        const int32_t part = a.apart == 1 ? strip : strip / a.apart;
        depthwise_place p;
        p.x = x;
        p.row = strip - part * a.apart + part * a.rows * a.apart;
        p.end = min(p.row + a.rows * a.apart, b.out_rows);
        if (p.row < p.end)
            walk(plane, p);
    }
}

/* The outputs of this thread's walks by the definition; to out or, where they are not collected, to
 * the output. It finds the block
 * again, so that callers need not keep it. */
static __device__ __noinline__ void walks_again(const depthwise_args &a, float *out,
                                                int64_t out_first) {
    const xn_conv &c = a.conv;
    const depthwise_block b = find_block(a, c.kernel_h);
    each_walk(a, b, [&](int32_t plane, const depthwise_place &p) {
#pragma unroll 1
        for (int32_t row = p.row; row < p.end; row += a.apart) {
            const int32_t at = (plane * b.out_rows + row) * c.out_width + p.x;
            const int64_t first = (int64_t)(b.plane + plane) * c.height * c.width;
            const float v = xn_few_again(a, (b.plane + plane) % c.groups, first,
                                         (b.out_y + row) * c.stride_h - c.pad_top,
                                         p.x * c.stride_w - c.pad_left);
            if (a.direct)
                xn_store_reals(a.epilogue, out_first + at, {v});
            else
                out[at] = v;
        }
    });
}

#endif
