/* pack.cu: real input of any datatype, NCHW, to bits packed along the channels of a group (the
 * layout of layout.h), with each pixel's number of set bits and mean magnitude. It reads every
 * input once, coalesced along the pixels, and is bound by that.
 *
 * A warp has 32 neighbouring pixels, a thread one of them: it reads 32 channels into one word, so
 * nothing has to be transposed. word_lanes warps share the words of the same pixels and add up
 * their counts and sums in shared memory. */
#include "element.cuh"
#include "kernels.h"
#include "launch.cuh"
#include "layout.h"
#include "ptx.cuh"

enum {
    WARPS = XN_CUDA_THREADS / 32,
    IN_FLIGHT = 8, /* loads of a thread */
};

struct pack_args {
    const void *input;
    uint32_t *bits;
    int32_t *popc;
    float *mean;
    int64_t plane, pixels; /* H*W, and of all planes (image, group) */
    int32_t datatype, group_channels, tap_words;
    int32_t word_lanes; /* 1, 2, 4 or 8 */
};

/* The bits of `count` <= 32 channels, `plane` elements apart; adds their magnitudes to sum. */
template <typename T>
__device__ __forceinline__ uint32_t pack_word(const T *input, int64_t plane, int32_t count,
                                              xn_abs_sum *sum) {
    uint32_t word = 0;
    for (int32_t first = 0; first < count; first += IN_FLIGHT) {
        T raw[IN_FLIGHT];
#pragma unroll
        for (int u = 0; u < IN_FLIGHT; u++)
            if (first + u < count)
                raw[u] = input[(first + u) * plane];
#pragma unroll
        for (int u = 0; u < IN_FLIGHT; u++)
            if (first + u < count) {
                float v = xn_to_fp32(raw[u]);
                word |= xn_sign_bit(v) << (first + u);
                xn_abs_sum_add(sum, v);
            }
    }
    return word;
}

/* The words word_lane, word_lane + word_lanes, ... of one pixel. */
__device__ __forceinline__ void pack_pixel(const pack_args &a, int64_t pixel, int32_t word_lane,
                                           int32_t *count, double *total) {
    const int64_t plane = pixel / a.plane, offset = pixel % a.plane;
    const int64_t base = plane * a.group_channels * a.plane + offset;
    for (int32_t w = word_lane; w < a.tap_words; w += a.word_lanes) {
        const int64_t first = (int64_t)w * 32;
        const int32_t left = (int32_t)min((int64_t)a.group_channels - first, (int64_t)32);
        uint32_t word = 0; /* of a word that only pads */
        if (left > 0) {
            xn_abs_sum sum = {0.0f, 0.0f};
            xn_with_input(a.input, a.datatype, [&](auto *input) {
                word = pack_word(input + base + first * a.plane, a.plane, left, &sum);
            });
            *count += __popc(word);
            *total += xn_abs_sum_value(&sum);
        }
        a.bits[pixel * a.tap_words + w] = word;
    }
}

__global__ void __launch_bounds__(XN_CUDA_THREADS)
    pack_kernel(const __grid_constant__ pack_args a) {
    __shared__ double totals[WARPS][32];
    __shared__ int32_t counts[WARPS][32];
    xn_let_next_kernel_start();
    xn_wait_for_previous_kernel();
    const int32_t lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    const int32_t word_lane = warp % a.word_lanes;
    const int64_t block_pixels = 32 * (WARPS / a.word_lanes);
    const int64_t mine = (int64_t)(warp / a.word_lanes) * 32 + lane;
    for (int64_t first = blockIdx.x * block_pixels; first < a.pixels;
         first += gridDim.x * block_pixels) {
        const int64_t pixel = first + mine;
        int32_t count = 0;
        double total = 0.0;
        if (pixel < a.pixels)
            pack_pixel(a, pixel, word_lane, &count, &total);
        if (a.word_lanes > 1) {
            totals[warp][lane] = total;
            counts[warp][lane] = count;
            __syncthreads();
            if (word_lane == 0)
                for (int32_t w = 1; w < a.word_lanes; w++) {
                    total += totals[warp + w][lane];
                    count += counts[warp + w][lane];
                }
            __syncthreads();
        }
        if (word_lane == 0 && pixel < a.pixels) {
            if (a.popc)
                a.popc[pixel] = count;
            if (a.mean)
                a.mean[pixel] = (float)(total / a.group_channels);
        }
    }
}

cudaError_t xn_cuda_pack_launch(const xn_conv *conv, int64_t images, const void *input,
                                uint32_t *bits, int32_t *popc, float *mean, bool overlapped,
                                cudaStream_t stream) {
    pack_args a = {};
    a.input = input;
    a.bits = bits;
    a.popc = popc;
    a.mean = mean;
    a.plane = (int64_t)conv->height * conv->width;
    a.pixels = a.plane * images * conv->groups;
    a.datatype = conv->input_datatype;
    a.group_channels = conv->group_channels;
    a.tap_words = xn_cuda_tap_words(conv->group_channels);
    a.word_lanes = a.tap_words >= 8 ? 8 : a.tap_words; /* 1, 2, 4 or a multiple of 4 */
    return xn_cuda_launch_with(pack_kernel, xn_cuda_grid(a.pixels, 32 * (WARPS / a.word_lanes)),
                               XN_CUDA_THREADS, 0, 1, overlapped, stream, a);
}

/* ---- packed input and output of the paths that do not do it themselves ---- */

struct count_args {
    const uint32_t *bits;
    int32_t *popc;
    int64_t pixels;
    int32_t tap_words;
};

__global__ void __launch_bounds__(XN_CUDA_THREADS)
    count_kernel(const __grid_constant__ count_args a) {
    for (int64_t p = (int64_t)blockIdx.x * XN_CUDA_THREADS + threadIdx.x; p < a.pixels;
         p += (int64_t)gridDim.x * XN_CUDA_THREADS) {
        int32_t count = 0;
        for (int32_t w = 0; w < a.tap_words; w++)
            count += __popc(a.bits[p * a.tap_words + w]);
        a.popc[p] = count;
    }
}

cudaError_t xn_cuda_count_launch(int64_t pixels, int32_t tap_words, const uint32_t *bits,
                                 int32_t *popc, cudaStream_t stream) {
    count_args a = {bits, popc, pixels, tap_words};
    return xn_cuda_launch(count_kernel, xn_cuda_grid(pixels, XN_CUDA_THREADS), XN_CUDA_THREADS, 0,
                          stream, a);
}

struct threshold_args {
    const int32_t *dots, *threshold;
    const uint32_t *flip;
    uint32_t *packed;
    int64_t plane, pixels; /* outputs of an image's channel, of all images */
    int32_t filters, words;
};

/* A thread makes one word of a pixel. */
__global__ void __launch_bounds__(XN_CUDA_THREADS)
    threshold_kernel(const __grid_constant__ threshold_args a) {
    for (int64_t e = (int64_t)blockIdx.x * XN_CUDA_THREADS + threadIdx.x; e < a.pixels * a.words;
         e += (int64_t)gridDim.x * XN_CUDA_THREADS) {
        const int64_t pixel = e % a.pixels;
        const int32_t first = (int32_t)(e / a.pixels) * 32;
        const int32_t *dots =
            a.dots + (pixel / a.plane * a.filters + first) * a.plane + pixel % a.plane;
        uint32_t word = 0;
        for (int32_t f = 0; f < 32 && first + f < a.filters; f++)
            word |= (uint32_t)(dots[f * a.plane] >= a.threshold[first + f]) << f;
        if (a.flip && first < a.filters)
            word ^= a.flip[first / 32];
        a.packed[pixel * a.words + first / 32] = word;
    }
}

cudaError_t xn_cuda_threshold_launch(const xn_conv *conv, int64_t images, const int32_t *dots,
                                     const int32_t *threshold, const uint32_t *flip,
                                     uint32_t *packed, cudaStream_t stream) {
    threshold_args a = {};
    a.dots = dots;
    a.threshold = threshold;
    a.flip = flip;
    a.packed = packed;
    a.plane = (int64_t)conv->out_height * conv->out_width;
    a.pixels = a.plane * images;
    a.filters = conv->out_channels;
    a.words = xn_cuda_tap_words(conv->out_channels);
    return xn_cuda_launch(threshold_kernel, xn_cuda_grid(a.pixels * a.words, XN_CUDA_THREADS),
                          XN_CUDA_THREADS, 0, stream, a);
}

cudaError_t xn_cuda_pack_load(void) {
    cudaError_t e = xn_cuda_load(pack_kernel);
    if (e == cudaSuccess)
        e = xn_cuda_load(count_kernel);
    return e == cudaSuccess ? xn_cuda_load(threshold_kernel) : e;
}
