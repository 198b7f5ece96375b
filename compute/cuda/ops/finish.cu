/* finish.cu: the rest of an epilogue (residual, activation, reals and bits) from its v in memory,
 * for paths whose kernels stop there. */
#include "epilogue.cuh"
#include "launch.cuh"
#include "ops.h"

struct finish_args {
    xn_epilogue_args e;
    const void *v;
    int64_t plane, pixels; /* outputs of an image's channel, of all images */
    int32_t filters;
    int32_t words, bytes; /* words of 32 filters; bytes of a pixel's bits, 0 where they are words */
};

/* y of filter o, and its store. */
__device__ __forceinline__ float finish_one(const finish_args &a, int32_t o, int64_t index) {
    const bool integer = a.e.what.datatype == XN_INT32;
    const float v = integer ? (float)((const int32_t *)a.v)[index] : ((const float *)a.v)[index];
    const float y = xn_finish(a.e, o, index, v);
    if (integer)
        ((int32_t *)a.e.output)[index] = ((const int32_t *)a.v)[index];
    else if (a.e.what.datatype != XN_BITS)
        xn_store_reals<1>(a.e, index, {y});
    return y;
}

/* A thread has 32 filters of a pixel; threads side by side have pixels side by side. */
__global__ void __launch_bounds__(XN_CUDA_THREADS)
    finish_kernel(const __grid_constant__ finish_args a) {
    for (int64_t e = (int64_t)blockIdx.x * XN_CUDA_THREADS + threadIdx.x; e < a.pixels * a.words;
         e += (int64_t)gridDim.x * XN_CUDA_THREADS) {
        const int64_t pixel = e % a.pixels;
        const int32_t word = (int32_t)(e / a.pixels), first = word * 32;
        int64_t index = (pixel / a.plane * a.filters + first) * a.plane + pixel % a.plane;
        uint32_t bits = 0;
        for (int32_t f = 0; f < 32 && first + f < a.filters; f++, index += a.plane)
            bits |= xn_output_bit(a.e, first + f, finish_one(a, first + f, index)) << f;
        if (a.bytes)
            for (int32_t n = 0; n < 4 && word * 4 + n < a.bytes; n++)
                ((uint8_t *)a.e.bits)[pixel * a.bytes + word * 4 + n] = (uint8_t)(bits >> 8 * n);
        else if (a.e.what.bits)
            a.e.bits[pixel * a.words + word] = bits;
    }
}

cudaError_t xn_cuda_finish_launch(const xn_conv *conv, int64_t images, const void *v, bool as_bytes,
                                  const xn_epilogue_args *epilogue, cudaStream_t stream) {
    finish_args a = {};
    a.e = xn_epilogue_of(conv, epilogue);
    a.v = v;
    a.plane = (int64_t)conv->out_height * conv->out_width;
    a.pixels = images * a.plane;
    a.filters = conv->out_channels;
    a.words = xn_packed_words(conv->out_channels);
    a.bytes = conv->epilogue.bits && as_bytes ? (conv->out_channels - 1) / 8 + 1 : 0;
    return xn_cuda_launch(finish_kernel, xn_cuda_grid(a.pixels * a.words, XN_CUDA_THREADS),
                          XN_CUDA_THREADS, 0, stream, a);
}

cudaError_t xn_cuda_finish_load(void) {
    return xn_cuda_load(finish_kernel);
}
