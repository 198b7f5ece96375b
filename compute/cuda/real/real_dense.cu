/* real_dense.cu: mode float in fp32 on planes of one pixel. A warp has a few filters and some
 * images at a time, both in shared memory; of a sum each of its lanes has runs of RUN terms. Runs
 * are added in their order: sums are those of real_gemm.cu. */
#include "epilogue.cuh"
#include "launch.cuh"
#include "real.h"

enum { RUN = 64, PITCH = RUN + 4 /* floats: runs side by side begin in other banks */ };
enum { LEAST_LANES = 8, MOST_WARPS = 8, MOST_IMAGES = 8, SHARED_BYTES = 64 * 1024 };

struct dense_args {
    const float *input, *weights;
    xn_epilogue_args out;
    int32_t images, terms, filters;
    int32_t runs, lanes; /* of a sum; lanes that share them */
    int32_t warp_filters;
};

/* Rows of terms, as many as `rows`, to runs in shared memory; zeros past the last term and row. */
__device__ __forceinline__ void dense_bring(const dense_args &a, const float *from, int32_t rows,
                                            int32_t live, float *to) {
    const int32_t fours = a.runs * (RUN / 4);
    for (int32_t n = threadIdx.x; n < rows * fours; n += (int32_t)blockDim.x) {
        const int32_t row = n / fours, k = (n - row * fours) * 4;
        xn_copy_ahead<16>(to + (row * a.runs + k / RUN) * PITCH + k % RUN,
                          from + (int64_t)row * a.terms + k, row < live && k < a.terms ? 16 : 0);
    }
    xn_copy_commit();
}

/* A value again, its sum in double throughout. */
__device__ __noinline__ float dense_again(const dense_args &a, int32_t image, int32_t o) {
    double sum = 0;
    for (int32_t k = 0; k < a.terms; k++)
        sum += (double)a.input[(int64_t)image * a.terms + k] *
               (double)a.weights[(int64_t)o * a.terms + k];
    return xn_value_again(a.out, o, sum, 1.0);
}

template <int IMAGES>
__global__ void __launch_bounds__(MOST_WARPS * 32)
    real_dense_kernel(const __grid_constant__ dense_args a) {
    extern __shared__ __align__(16) float dense_memory[];
    const int32_t warp = (int32_t)threadIdx.x / 32, lane = (int32_t)threadIdx.x % 32;
    const int32_t rows = (int32_t)blockDim.x / 32 * a.warp_filters, own = lane % a.lanes;
    const int32_t first = (int32_t)blockIdx.x * rows, row = warp * a.warp_filters + lane / a.lanes;
    const float *filter = dense_memory + row * a.runs * PITCH;
    float *inputs = dense_memory + rows * a.runs * PITCH;
    const int32_t o = min(first + row, a.filters - 1);
    const xn_filter f = xn_filter_of(a.out, o);
    xn_let_next_kernel_start();
    dense_bring(a, a.weights + (int64_t)first * a.terms, rows, a.filters - first, dense_memory);
    xn_wait_for_previous_kernel();
#pragma unroll 1
    for (int32_t image = (int32_t)blockIdx.y * IMAGES; image < a.images;
         image += (int32_t)gridDim.y * IMAGES) {
        __syncthreads(); /* the images before are read no more */
        dense_bring(a, a.input + (int64_t)image * a.terms, IMAGES, a.images - image, inputs);
        xn_copy_wait<0>();
        __syncthreads();
        float total[IMAGES] = {};
#pragma unroll 1
        for (int32_t begin = 0; begin < a.runs; begin += a.lanes) {
            const int32_t r = min(begin + own, a.runs - 1);
            float run[IMAGES] = {};
#pragma unroll 4
            for (int k = 0; k < RUN; k += 4) {
                const float4 w = *(const float4 *)(filter + r * PITCH + k);
#pragma unroll
                for (int n = 0; n < IMAGES; n++) {
                    const float4 x = *(const float4 *)(inputs + (n * a.runs + r) * PITCH + k);
                    run[n] = fmaf(x.x, w.x, run[n]);
                    run[n] = fmaf(x.y, w.y, run[n]);
                    run[n] = fmaf(x.z, w.z, run[n]);
                    run[n] = fmaf(x.w, w.w, run[n]);
                }
            }
            const int32_t count = min(a.lanes, a.runs - begin);
            for (int32_t n = 0; n < count; n++)
#pragma unroll
                for (int i = 0; i < IMAGES; i++)
                    total[i] += __shfl_sync(0xffffffffu, run[i], lane - own + n);
        }
#pragma unroll
        for (int n = 0; n < IMAGES; n++) { /* a lane each, in turn */
            float v[1] = {xn_value(total[n], 1.0f, f)};
            if (own != n % a.lanes || image + n >= a.images || first + row >= a.filters)
                continue;
            if (!isfinite(v[0]))
                v[0] = dense_again(a, image + n, o);
            (void)xn_finish_and_store(a.out, o, (int64_t)(image + n) * a.filters + o, v);
        }
    }
}

/* ---- launcher ---- */

static int32_t lanes_of(int32_t runs) {
    int32_t lanes = LEAST_LANES;
    while (lanes < runs && lanes < 32)
        lanes *= 2;
    return lanes;
}

static size_t shared_bytes_of(int32_t runs, int32_t warps, int32_t images) {
    return (size_t)(warps * (32 / lanes_of(runs)) + images) * runs * PITCH * sizeof(float);
}

static int32_t runs_of(const xn_conv *c) {
    return (c->channels - 1) / RUN + 1;
}

bool xn_cuda_real_dense_fits(const xn_conv *c, int64_t images) {
    enum { FEW = 64 };
    return images <= FEW && c->mode == XN_MODE_FLOAT && c->input_datatype == XN_FP32 &&
           c->groups == 1 && c->kernel_h == 1 && c->kernel_w == 1 && c->height == 1 &&
           c->width == 1 && c->out_height == 1 && c->out_width == 1 && !c->pad_top &&
           !c->pad_left && c->channels % 4 == 0 && !c->epilogue.bits &&
           shared_bytes_of(runs_of(c), 1, MOST_IMAGES) <= SHARED_BYTES;
}

cudaError_t xn_cuda_real_dense_launch(const xn_conv *conv, int64_t images, int multiprocessors,
                                      const xn_cuda_real_io *io, const xn_epilogue_args *epilogue,
                                      cudaStream_t stream) {
    dense_args a = {};
    a.input = (const float *)io->input;
    a.weights = (const float *)io->weights;
    a.out = xn_epilogue_of(conv, epilogue);
    a.images = (int32_t)images;
    a.terms = conv->channels;
    a.filters = conv->out_channels;
    a.runs = runs_of(conv);
    a.lanes = lanes_of(a.runs);
    a.warp_filters = 32 / a.lanes;
    const int32_t each = images == 1 ? 1 : MOST_IMAGES;
    int32_t warps = images > MOST_IMAGES ? MOST_WARPS : 2; /* fewer in more blocks, where few */
    while (warps > 1 && shared_bytes_of(a.runs, warps, each) > SHARED_BYTES)
        warps /= 2;
    const int32_t across = (a.filters - 1) / (warps * a.warp_filters) + 1;
    const int64_t parts = (images - 1) / each + 1, most = 4 * multiprocessors / across + 1;
    const dim3 grid((unsigned)across, (unsigned)(parts < most ? parts : most));
    return xn_cuda_launch_with(each == 1 ? real_dense_kernel<1> : real_dense_kernel<MOST_IMAGES>,
                               grid, warps * 32, shared_bytes_of(a.runs, warps, each),
                               io->overlapped, stream, a);
}

cudaError_t xn_cuda_real_dense_load(void) {
    const cudaError_t e = xn_cuda_load_with(real_dense_kernel<1>, SHARED_BYTES);
    return e == cudaSuccess ? xn_cuda_load_with(real_dense_kernel<MOST_IMAGES>, SHARED_BYTES) : e;
}
