/* bits.cu: bits of activations between bytes, as they come and go, and words, as kernels read and
 * write them (xn_step.h). Both are little endian, so that a word is four bytes in their order. */
#include "launch.cuh"
#include "op.h"
#include "xn_arith.h"

struct words_args {
    const uint8_t *bytes;
    uint32_t *words;
    int64_t pixels; /* of all images */
    int64_t plane;
    int32_t groups, group_channels, group_words, pixel_bytes;
};

/* A thread makes a word: up to 32 channels of a group, which may start anywhere in a byte. */
__global__ void __launch_bounds__(XN_CUDA_THREADS)
    words_kernel(const __grid_constant__ words_args a) {
    const int64_t all = a.pixels * a.groups * a.group_words;
    for (int64_t e = (int64_t)blockIdx.x * XN_CUDA_THREADS + threadIdx.x; e < all;
         e += (int64_t)gridDim.x * XN_CUDA_THREADS) {
        const int32_t at = (int32_t)(e % a.group_words) * 32;
        const int64_t plane = e / a.group_words / a.plane, pixel = e / a.group_words % a.plane;
        const int64_t image = plane / a.groups;
        const int64_t first = plane % a.groups * a.group_channels + at;
        const int32_t live = min(a.group_channels - at, 32);
        const uint8_t *from = a.bytes + (image * a.plane + pixel) * a.pixel_bytes;
        uint64_t bits = 0;
        for (int32_t n = 0; live > 0 && n < 5; n++)
            if (first / 8 + n < a.pixel_bytes)
                bits |= (uint64_t)from[first / 8 + n] << (8 * n);
        bits >>= first % 8;
        a.words[e] = live > 0 ? (uint32_t)bits & 0xffffffffu >> (32 - live) : 0u;
    }
}

cudaError_t xn_cuda_words_launch(const xn_conv *conv, int64_t images, const uint8_t *bytes,
                                 uint32_t *words, cudaStream_t stream) {
    words_args a = {};
    a.bytes = bytes;
    a.words = words;
    a.plane = (int64_t)conv->height * conv->width;
    a.pixels = images * a.plane;
    a.groups = conv->groups;
    a.group_channels = conv->group_channels;
    a.group_words = xn_packed_words(conv->group_channels);
    a.pixel_bytes = (conv->channels - 1) / 8 + 1;
    return xn_cuda_launch(words_kernel,
                          xn_cuda_grid(a.pixels * a.groups * a.group_words, XN_CUDA_THREADS),
                          XN_CUDA_THREADS, 0, stream, a);
}

struct bytes_args {
    const uint8_t *words;
    uint8_t *bytes;
    int64_t count;
    int32_t word_bytes, pixel_bytes; /* of a pixel */
};

__global__ void __launch_bounds__(XN_CUDA_THREADS)
    bytes_kernel(const __grid_constant__ bytes_args a) {
    for (int64_t e = (int64_t)blockIdx.x * XN_CUDA_THREADS + threadIdx.x; e < a.count;
         e += (int64_t)gridDim.x * XN_CUDA_THREADS)
        a.bytes[e] = a.words[e / a.pixel_bytes * a.word_bytes + e % a.pixel_bytes];
}

cudaError_t xn_cuda_bytes_launch(const xn_conv *conv, int64_t images, const uint32_t *words,
                                 uint8_t *bytes, cudaStream_t stream) {
    bytes_args a = {};
    a.words = (const uint8_t *)words;
    a.bytes = bytes;
    a.pixel_bytes = (conv->out_channels - 1) / 8 + 1;
    a.word_bytes = xn_packed_words(conv->out_channels) * 4;
    a.count = images * conv->out_height * conv->out_width * a.pixel_bytes;
    return xn_cuda_launch(bytes_kernel, xn_cuda_grid(a.count, XN_CUDA_THREADS), XN_CUDA_THREADS, 0,
                          stream, a);
}

cudaError_t xn_cuda_bits_load(void) {
    return xn_cuda_load(words_kernel, bytes_kernel);
}
