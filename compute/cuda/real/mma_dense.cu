/* mma_dense.cu: what real_mma.cu does, for few images of planes of one pixel in fp16: the last
 * layers of networks. A block has 16 filters, whole, in shared memory before the kernel ahead has
 * ended; each of its warps has 8 images. Products are in the order of real_mma.cu, so are sums. */
#include "launch.cuh"
#include "mma_gemm.cuh"
#include "real.h"
#include "real_mma.h"
#include "real_value.cuh"

enum { FILTERS = 16, WARP_IMAGES = 8, MOST_WARPS = 4, MOST_STEPS = 16 };

struct mma_dense_args {
    const char *input, *filters;
    const int32_t *exponent;
    xn_epilogue_args out;
    int32_t images, outputs;
    int32_t input_bytes, row_bytes; /* of an image and of a filter: that one has whole steps */
};

/* Starts copying rows of `bytes` to rows of whole steps, zeros behind them and past the last. */
__device__ __forceinline__ void dense_bring(const mma_dense_args &a, const char *from,
                                            int32_t bytes, int32_t rows, int32_t live,
                                            uint32_t to) {
    const int32_t chunks = a.row_bytes / 16;
    for (int32_t n = (int32_t)threadIdx.x; n < rows * chunks; n += (int32_t)blockDim.x) {
        const int32_t row = n / chunks, chunk = n - row * chunks;
        const bool exists = row < live && chunk * 16 < bytes;
        xn_copy_async_at<16>(to + chunk / 8 * rows * XN_MMA_STEP_BYTES + xn_mma_at(row, chunk % 8),
                             exists ? from + (int64_t)row * bytes + chunk * 16 : from, exists);
    }
    xn_copy_commit();
}

__global__ void __launch_bounds__(MOST_WARPS * 32)
    mma_dense_kernel(const __grid_constant__ mma_dense_args a) {
    extern __shared__ __align__(128) char dense_memory[];
    const int32_t lane = (int32_t)threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const int32_t images = (int32_t)blockDim.x / 32 * WARP_IMAGES;
    const int32_t first = (int32_t)blockIdx.x * FILTERS, image = (int32_t)blockIdx.y * images;
    const int32_t own = (int32_t)threadIdx.x / 32 * WARP_IMAGES; /* of the block's images */
    const uint32_t filters = xn_shared_address(dense_memory);
    const uint32_t inputs = filters + FILTERS * a.row_bytes;
    xn_filter f[2];
    xn_let_next_kernel_start();
    dense_bring(a, a.filters + (int64_t)first * a.row_bytes, a.row_bytes, FILTERS,
                a.outputs - first, filters);
#pragma unroll
    for (int h = 0; h < 2; h++)
        f[h] = xn_filter_with_exponent(a.out, a.exponent, min(first + g + h * 8, a.outputs - 1));
    xn_wait_for_previous_kernel();
    dense_bring(a, a.input + (int64_t)image * a.input_bytes, a.input_bytes, images,
                a.images - image, inputs);
    xn_copy_wait<0>();
    __syncthreads();
    float sums[4] = {};
#pragma unroll 2
    for (int32_t step = 0; step < a.row_bytes / XN_MMA_STEP_BYTES; step++)
#pragma unroll
        for (int k = 0; k < 8; k += 4) {
            uint32_t w[2][4], x[4];
#pragma unroll
            for (int n = 0; n < 2; n++)
                xn_load_matrices(w[n], filters + step * FILTERS * XN_MMA_STEP_BYTES +
                                           xn_mma_at(lane % 16, k + n * 2 + lane / 16));
            xn_load_matrices(x, inputs + step * images * XN_MMA_STEP_BYTES +
                                    xn_mma_at(own + lane % 8, k + lane / 8));
            xn_mma_real<true>(sums, w[0], x);
            xn_mma_real<true>(sums, w[1], x + 2);
        }
#pragma unroll
    for (int n = 0; n < 4; n++) {
        const int32_t o = first + g + n / 2 * 8, i = image + own + t * 2 + n % 2;
        float v[1] = {0.0f};
        if (o >= a.outputs || i >= a.images)
            continue;
        v[0] = xn_sum_value(a.out, a.exponent, f[n / 2], o, sums[n]);
        (void)xn_finish_and_store(a.out, o, (int64_t)i * a.outputs + o, v);
    }
}

/* ---- launcher ---- */

bool xn_cuda_mma_dense_fits(const xn_conv *c, int64_t images) {
    enum { FEW = 64 };
    return images <= FEW && c->groups == 1 && c->channels % 8 == 0 && !c->epilogue.bits &&
           xn_cuda_mma_row_bytes(c->precision, c->channels, 1) <= MOST_STEPS * XN_MMA_STEP_BYTES;
}

cudaError_t xn_cuda_mma_dense_launch(const xn_conv *conv, int64_t images, int,
                                     const xn_cuda_real_io *io, const xn_epilogue_args *epilogue,
                                     cudaStream_t stream) {
    mma_dense_args a = {};
    a.input = (const char *)io->input;
    a.filters = (const char *)io->weights;
    a.exponent = io->exponent;
    a.out = xn_epilogue_of(conv, epilogue);
    a.images = (int32_t)images;
    a.outputs = conv->out_channels;
    a.input_bytes = conv->channels * 2;
    a.row_bytes = (int32_t)xn_cuda_mma_row_bytes(conv->precision, conv->channels, 1);
    const int32_t warps = (int32_t)((images - 1) / WARP_IMAGES + 1);
    const int32_t block = warps < MOST_WARPS ? warps : MOST_WARPS;
    const dim3 grid((unsigned)((a.outputs - 1) / FILTERS + 1), (unsigned)((warps - 1) / block + 1));
    return xn_cuda_launch_with(mma_dense_kernel, grid, block * 32,
                               (size_t)(FILTERS + block * WARP_IMAGES) * a.row_bytes,
                               io->overlapped, stream, a);
}

cudaError_t xn_cuda_mma_dense_load(void) {
    return xn_cuda_load_with(mma_dense_kernel,
                             (FILTERS + MOST_WARPS * WARP_IMAGES) * MOST_STEPS * XN_MMA_STEP_BYTES);
}
