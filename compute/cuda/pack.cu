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
    IN_FLIGHT = 32,       /* loads of a thread */
    QUADS_IN_FLIGHT = 16, /* of four pixels */
    QUAD_BLOCKS = 150,    /* fewer, and one pixel a thread keeps more of the chip busy */
};

struct pack_args {
    const void *input;
    uint32_t *bits;
    int32_t *popc;
    float *mean;
    int64_t plane, pixels; /* H*W, and of all planes (image, group) */
    int32_t group_channels, tap_words;
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
template <typename T>
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
            word = pack_word((const T *)a.input + base + first * a.plane, a.plane, left, &sum);
            *count += __popc(word);
            *total += xn_abs_sum_value(&sum);
        }
        a.bits[pixel * a.tap_words + w] = word;
    }
}

template <typename T>
__global__ void __launch_bounds__(XN_CUDA_THREADS, 2)
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
            pack_pixel<T>(a, pixel, word_lane, &count, &total);
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

/* ---- the same with four neighbouring pixels a thread, where planes are a multiple of 4 ---- */

template <typename T>
struct alignas(4 * sizeof(T)) pack_quad {
    T v[4];
};

template <typename T>
__device__ __forceinline__ void pack_quad_word(const T *input, int64_t plane, int32_t count,
                                               uint32_t (&words)[4], xn_abs_sum (&sums)[4]) {
    for (int32_t first = 0; first < count; first += QUADS_IN_FLIGHT) {
        pack_quad<T> raw[QUADS_IN_FLIGHT];
#pragma unroll
        for (int u = 0; u < QUADS_IN_FLIGHT; u++)
            if (first + u < count)
                raw[u] = *(const pack_quad<T> *)(input + (first + u) * plane);
#pragma unroll
        for (int u = 0; u < QUADS_IN_FLIGHT; u++)
            if (first + u < count)
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    const float v = xn_to_fp32(raw[u].v[i]);
                    words[i] |= xn_sign_bit(v) << (first + u);
                    xn_abs_sum_add(&sums[i], v);
                }
    }
}

/* The words word_lane, word_lane + word_lanes, ... of four pixels. */
template <typename T>
__device__ __forceinline__ void pack_four(const pack_args &a, int64_t pixel, int32_t word_lane,
                                          int32_t (&count)[4], double (&total)[4]) {
    const int64_t plane = pixel / a.plane, offset = pixel % a.plane;
    const int64_t base = plane * a.group_channels * a.plane + offset;
    for (int32_t w = word_lane; w < a.tap_words; w += a.word_lanes) {
        const int64_t first = (int64_t)w * 32;
        const int32_t left = (int32_t)min((int64_t)a.group_channels - first, (int64_t)32);
        uint32_t words[4] = {};
        if (left > 0) {
            xn_abs_sum sums[4] = {};
            pack_quad_word((const T *)a.input + base + first * a.plane, a.plane, left, words, sums);
#pragma unroll
            for (int i = 0; i < 4; i++) {
                count[i] += __popc(words[i]);
                total[i] += xn_abs_sum_value(&sums[i]);
            }
        }
#pragma unroll
        for (int i = 0; i < 4; i++)
            a.bits[(pixel + i) * a.tap_words + w] = words[i];
    }
}

template <typename T>
__global__ void __launch_bounds__(XN_CUDA_THREADS, 2)
    pack_quad_kernel(const __grid_constant__ pack_args a) {
    __shared__ double totals[WARPS][4][32];
    __shared__ int32_t counts[WARPS][4][32];
    xn_let_next_kernel_start();
    xn_wait_for_previous_kernel();
    const int32_t lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    const int32_t word_lane = warp % a.word_lanes;
    const int64_t block_pixels = 128 * (WARPS / a.word_lanes);
    const int64_t mine = (int64_t)(warp / a.word_lanes) * 128 + lane * 4;
    for (int64_t first = blockIdx.x * block_pixels; first < a.pixels;
         first += gridDim.x * block_pixels) {
        const int64_t pixel = first + mine;
        int32_t count[4] = {};
        double total[4] = {};
        if (pixel < a.pixels)
            pack_four<T>(a, pixel, word_lane, count, total);
        if (a.word_lanes > 1) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                totals[warp][i][lane] = total[i];
                counts[warp][i][lane] = count[i];
            }
            __syncthreads();
            if (word_lane == 0)
                for (int32_t w = 1; w < a.word_lanes; w++)
#pragma unroll
                    for (int i = 0; i < 4; i++) {
                        total[i] += totals[warp + w][i][lane];
                        count[i] += counts[warp + w][i][lane];
                    }
            __syncthreads();
        }
        if (word_lane == 0 && pixel < a.pixels) {
            if (a.popc)
                *(int4 *)(a.popc + pixel) = make_int4(count[0], count[1], count[2], count[3]);
            if (a.mean)
                *(float4 *)(a.mean + pixel) = make_float4(
                    (float)(total[0] / a.group_channels), (float)(total[1] / a.group_channels),
                    (float)(total[2] / a.group_channels), (float)(total[3] / a.group_channels));
        }
    }
}

typedef void (*pack_function)(const pack_args);

/* By datatype, XN_FP32 to XN_BOOL; then one or four pixels a thread. */
static const pack_function kernels[6][2] = {
    {pack_kernel<float>, pack_quad_kernel<float>},
    {pack_kernel<__half>, pack_quad_kernel<__half>},
    {pack_kernel<xn_bf16_bits>, pack_quad_kernel<xn_bf16_bits>},
    {pack_kernel<int8_t>, pack_quad_kernel<int8_t>},
    {pack_kernel<uint8_t>, pack_quad_kernel<uint8_t>},
    {pack_kernel<xn_bool_byte>, pack_quad_kernel<xn_bool_byte>},
};

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
    a.group_channels = conv->group_channels;
    a.tap_words = xn_cuda_tap_words(conv->group_channels);
    a.word_lanes = a.tap_words >= 8 ? 8 : a.tap_words; /* 1, 2, 4 or a multiple of 4 */
    const int64_t quad_blocks = a.pixels / 128 * a.word_lanes / WARPS;
    const bool quads = a.plane % 4 == 0 && quad_blocks >= QUAD_BLOCKS;
    return xn_cuda_launch_with(kernels[conv->input_datatype][quads],
                               xn_cuda_grid(a.pixels, (quads ? 128 : 32) * (WARPS / a.word_lanes)),
                               XN_CUDA_THREADS, 0, overlapped, stream, a);
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
    cudaError_t e = cudaSuccess;
    for (const pack_function(&datatype)[2] : kernels)
        for (pack_function kernel : datatype)
            if (e == cudaSuccess)
                e = xn_cuda_load(kernel);
    if (e == cudaSuccess)
        e = xn_cuda_load(count_kernel);
    return e == cudaSuccess ? xn_cuda_load(threshold_kernel) : e;
}
