/* depthwise.cuh: what the kernels of depthwise.cu share: a block's run of the input in shared
 * memory and its run of the output, the windows of a walk, an output. */
#ifndef XN_CUDA_DEPTHWISE_CUH
#define XN_CUDA_DEPTHWISE_CUH

#include "depthwise.h"
#include "element.cuh"
#include "fast_divide.cuh"
#include "launch.cuh"
#include "layout.h"
#include "ptx.cuh"

enum { MAX_THREADS = 256 }; /* of a block */

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
    int32_t info_at, out_at; /* words into shared memory; a zero is at 0, the input at 4, */
    int32_t rows_at;         /* and with short rows the signs of each at rows_at */
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

/* ---- windows and outputs ---- */

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

/* An output in double; y0 and x0 are its first tap. */
template <int KW, int KH>
__device__ __noinline__ float output_again(const planes_args &a, int32_t plane, int32_t y0,
                                           int32_t x0, int32_t dot, float factor, float bias) {
    double k = 0.0;
#pragma unroll 1
    for (int32_t i = 0; i < KH; i++)
#pragma unroll 1
        for (int32_t j = 0; j < KW; j++) {
            const int32_t y = y0 + i * a.dilation_h, x = x0 + j * a.dilation_w;
            const int64_t at = ((int64_t)plane * a.height + y) * a.width + x;
            if ((uint32_t)y < (uint32_t)a.height && (uint32_t)x < (uint32_t)a.width)
                xn_with_input(a.input, a.datatype,
                              [&](auto *input) { k += fabs((double)xn_to_fp32(input[at])); });
        }
    k = a.want_k ? k / (KW * KH) : 1.0;
    return (float)((double)dot * factor * k + bias);
}

/* The output of a full window; dots of INT32 output as the bits of an integer. */
template <int KW, int KH>
__device__ __forceinline__ float output_of(const planes_args &a, const planes_window<KW, KH> &w,
                                           const planes_filter<KW, KH> &f, int32_t plane, int32_t y,
                                           int32_t in_x) {
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
        xn_epilogue_value((float)dot, f.factor, a.want_k ? sum * a.reciprocal : 1.0f, f.bias);
    if (!isfinite(value)) /* also where only the sum passed FLT_MAX */
        return output_again<KW, KH>(a, plane, y, in_x, dot, f.factor, f.bias);
    return value;
}

/* Where a walk is: rows `row` and on, every apart-th below `end`, of the block's; column x. */
struct planes_place {
    int32_t row, end, x;
};

/* ---- a block ---- */

/* The filters of its planes and its input in shared memory; waits for the kernel ahead. Gives the
 * first staged element. */
template <int KW, int KH>
__device__ __forceinline__ float *stage_block(const planes_args &a, const planes_block &b,
                                              float *shared) {
    typedef planes_filter<KW, KH> filter;
    filter *filters = (filter *)(shared + a.info_at);
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
    float *in = shared + 4;
    if (threadIdx.x == 0)
        *shared = 0.0f;
    if (a.datatype == XN_FP32)
        copy_run((const float *)a.input, in_first, in_count, total, in);
    else
        xn_with_input(a.input, a.datatype,
                      [&](auto *input) { read_run(input, in_first, in_count, total, in); });
    __syncthreads();
    return in + (in_first & 3);
}

/* Its first output, of all. */
__device__ __forceinline__ int64_t first_output(const planes_args &a, const planes_block &b) {
    return ((int64_t)b.plane * a.out_height + b.out_y) * a.out_width;
}

/* Calls walk(plane of the block, place) for this thread's walks. */
template <class Walk>
__device__ __forceinline__ void each_walk(const planes_args &a, const planes_block &b, Walk walk) {
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
        if (p.row < p.end)
            walk(plane, p);
    }
}

#endif
