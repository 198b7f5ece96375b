/* few.cuh: what the paths for few channels share (sliding_window, patch_gemm): what
 * their launches are told, stores of four outputs, and outputs by the definition (epilogue.cuh)
 * from the input itself. The latter are slow, and for outputs of which a fast kernel knows only
 * that fp32 may have overflowed: they have the same bits wherever it did not. */
#ifndef XN_CUDA_FEW_CUH
#define XN_CUDA_FEW_CUH

#include "epilogue.cuh"
#include "layout.h"

enum { XN_FEW_CACHE_BYTES = 40 << 20 }; /* input and output that stay in the L2 cache together */

struct xn_few_args {
    xn_conv conv;
    const void *input;
    xn_epilogue_args epilogue;
    const uint32_t *weights; /* layout.h: patches or rows; words of a filter, and where in them */
    int32_t weight_words, channel_bits,
        tap_bits; /* bit channel * channel_bits + tap * tap_bits is */
};

static inline void xn_few_set(xn_few_args *a, const xn_conv *conv, const xn_cuda_few_io *io,
                              const xn_epilogue_args *epilogue, bool patches) {
    const int32_t c = conv->group_channels, h = conv->kernel_h, w = conv->kernel_w;
    a->conv = *conv;
    a->input = io->input;
    a->epilogue = xn_epilogue_of(conv, epilogue);
    a->weights = patches ? io->patches : io->rows;
    a->weight_words = patches ? xn_cuda_patch_words(c, h, w) : (int32_t)xn_cuda_row_words(c, h, w);
    a->channel_bits = patches ? h * w : 1;
    a->tap_bits = patches ? 1 : 32;
}

/* The paths for few channels have the plain epilogue only. */
static inline bool xn_few_takes(const xn_conv *c) {
    return c->mode == XN_MODE_XNOR && xn_is_plain(c->epilogue);
}

/* Host arithmetic of cuts. */
static inline int32_t xn_few_log2(int32_t power) {
    int32_t log2 = 0;
    while (1 << log2 < power)
        log2++;
    return log2;
}

/* Blocks of a multiprocessor: the last ones leave others idle while there are few. */
static inline double xn_few_share(double blocks, int multiprocessors) {
    const double share = blocks / multiprocessors;
    return share < 4 ? ceil(share) : share;
}

/* KiB a multiprocessor that come from device memory, since they do not stay in the L2 cache. */
static inline double xn_few_streamed(const xn_conv *c, int64_t images, int multiprocessors) {
    const double bytes =
        (double)images * (double)(xn_conv_input_bytes(c) + xn_conv_output_bytes(c));
    return bytes < XN_FEW_CACHE_BYTES ? 0 : bytes / 1024 / multiprocessors;
}

/* xn_with_input with fp32 and fp16 by comparison: a jump through a table costs a small launch a
 * tenth of its time. The compiler must not see that the rest is about the same number, or it makes
 * one table of all. */
template <class Action>
__device__ __forceinline__ void xn_few_with_input(const xn_few_args &a, Action action) {
    int32_t other = a.conv.input_datatype;
    asm("" : "+r"(other));
    if (a.conv.input_datatype == XN_FP32)
        action((const float *)a.input);
    else if (a.conv.input_datatype == XN_FP16)
        action((const __half *)a.input);
    else
        xn_with_other_input(a.input, other, action);
}

/* ---- four outputs ---- */

/* Those of four neighbours, from `index` on, that exist: `live` of them; at once when `vector`. Of
 * INT32, v are the integers. */
__device__ __forceinline__ void xn_few_store(const xn_epilogue_args &e, int64_t index, bool vector,
                                             int32_t live, const float (&v)[4]) {
    if (e.what.datatype == XN_INT32) {
        const int32_t dots[4] = {(int32_t)v[0], (int32_t)v[1], (int32_t)v[2], (int32_t)v[3]};
        if (vector && live == 4)
            return xn_store((int32_t *)e.output + index, dots);
#pragma unroll
        for (int n = 0; n < 4; n++)
            if (n < live)
                ((int32_t *)e.output)[index + n] = dots[n];
    } else if (vector && live == 4) {
        xn_store_reals(e, index, v);
    } else {
#pragma unroll
        for (int n = 0; n < 4; n++)
            if (n < live)
                xn_store_reals(e, index + n, {v[n]});
    }
}

/* ---- by the definition ---- */

__device__ __forceinline__ float xn_few_element(const xn_few_args &a, int64_t at) {
    float value = 0.0f;
    xn_few_with_input(a, [&](auto *input) { value = xn_to_fp32(input[at]); });
    return value;
}

/* xn_fours_of with its terms in one place, so that what makes a term is compiled once. */
template <typename Sum>
struct xn_few_fours {
    Sum sum = 0, first = 0, second = 0;
    __device__ __forceinline__ void add(int32_t n, int32_t count, Sum term) {
        (n & 2 ? second : first) += term;
        if ((n & 3) == 3 || n == count - 1) {
            sum += first + second;
            first = second = 0;
        }
    }
};

/* A pixel of a group of up to 32 channels. */
struct xn_few_pixel {
    float mean;
    int32_t dot;
};

/* The one whose first channel is element `at`; bit: of its tap in the filter `weights`. */
__device__ __forceinline__ xn_few_pixel xn_few_pixel_of(const xn_few_args &a, int64_t at,
                                                        const uint32_t *weights, int32_t bit) {
    const int32_t channels = a.conv.group_channels;
    const int64_t plane = (int64_t)a.conv.height * a.conv.width;
    xn_few_fours<float> sum;
    float octet = 0.0f;
    double exact = 0.0;
    int32_t dot = 0;
#pragma unroll 1
    for (int32_t c = 0; c < channels; c++, at += plane, bit += a.channel_bits) {
        const float v = xn_few_element(a, at);
        dot += xn_sign_bit(v) == (__ldg(weights + bit / 32) >> bit % 32 & 1u) ? 1 : -1;
        octet += fabsf(v);
        exact += fabs((double)v);
        if (c % XN_OCTET == XN_OCTET - 1 || c == channels - 1) {
            sum.add(c / XN_OCTET, (channels - 1) / XN_OCTET + 1, octet);
            octet = 0.0f;
        }
    }
    return {isinf(sum.sum) ? xn_mean_again(exact, 1.0 / channels)
                           : xn_mean(sum.sum, 1.0f / (float)channels),
            dot};
}

/* What a tap outside the image adds to the dot. */
__device__ __forceinline__ int32_t xn_few_outside(const xn_few_args &a, const uint32_t *weights,
                                                  int32_t bit) {
    int32_t dot = 0;
#pragma unroll 1
    for (int32_t c = 0; c < a.conv.group_channels; c++, bit += a.channel_bits)
        dot += __ldg(weights + bit / 32) >> bit % 32 & 1u ? a.conv.pad_value : -a.conv.pad_value;
    return dot;
}

/* The output of filter o whose window has its first tap at (y, x) of the group's planes, which
 * begin at element `first`. A leaf, so that callers keep their registers. */
static __device__ __noinline__ float xn_few_again(const xn_few_args &a, int32_t o, int64_t first,
                                                  int32_t y, int32_t x) {
    const xn_conv &c = a.conv;
    const uint32_t *const weights = a.weights + (int64_t)o * a.weight_words;
    float box = 0.0f;
    double exact = 0.0;
    int32_t dot = 0, bit = 0;
#pragma unroll 1
    for (int32_t i = 0; i < c.kernel_h; i++) {
        xn_few_fours<float> row;
        xn_few_fours<double> exact_row;
        const int32_t in_y = y + i * c.dilation_h;
#pragma unroll 1
        for (int32_t j = 0; j < c.kernel_w; j++, bit += a.tap_bits) {
            const int32_t in_x = x + j * c.dilation_w;
            xn_few_pixel pixel = {0.0f, 0};
            if ((uint32_t)in_y < (uint32_t)c.height && (uint32_t)in_x < (uint32_t)c.width)
                pixel = xn_few_pixel_of(a, first + (int64_t)in_y * c.width + in_x, weights, bit);
            else if (c.pad_value)
                pixel.dot = xn_few_outside(a, weights, bit);
            dot += pixel.dot;
            row.add(j, c.kernel_w, pixel.mean);
            exact_row.add(j, c.kernel_w, (double)pixel.mean);
        }
        box += row.sum;
        exact += exact_row.sum;
    }
    return xn_value_or_again(a.epilogue, xn_filter_of(a.epilogue, o), o, (float)dot,
                             c.epilogue.k ? box : 1.0f, [&]() { return exact; });
}

#endif
