/* real.cu: modes bwn and float: real inputs with binary or real weights, any geometry, one thread
 * an output pixel and up to 4 filters. Plain and parallel: the baselines, not the product.
 *
 * Sums are fp32 over runs of at most RUN terms, added up in double, so that long sums keep their
 * precision; where the result is not finite they are taken again in double throughout, so that
 * only true infinities and NaNs remain. */
#include "epilogue.cuh"
#include "launch.cuh"
#include "real.h"

enum { RUN = 32 };

struct real_args {
    xn_conv conv;
    const void *input;
    const float *weights;
    xn_epilogue_args out;
    int32_t filter_blocks;
    int64_t work;
};

/* One output pixel of one group, and the first of its filters. */
struct real_task {
    int64_t plane;   /* image * groups + group */
    int64_t filter;  /* of all O */
    int32_t filters; /* 1..FILTERS */
    int32_t y0, x0;  /* where its window starts, maybe outside */
};

/* Adds the products of one channel, run by run. Sum is float or double. */
template <typename Sum, int FILTERS>
struct real_sum {
    Sum run[FILTERS];
    double total[FILTERS];
    int32_t terms;

    __device__ __forceinline__ void clear() {
#pragma unroll
        for (int f = 0; f < FILTERS; f++) {
            run[f] = 0;
            total[f] = 0.0;
        }
        terms = 0;
    }
    __device__ __forceinline__ void fold() {
#pragma unroll
        for (int f = 0; f < FILTERS; f++) {
            total[f] += run[f];
            run[f] = 0;
        }
        terms = 0;
    }
    /* The tap (i, j) of a channel: x times the weights of every filter. */
    __device__ __forceinline__ void add(const real_args &a, const real_task &task, float x,
                                        const float *weight, int64_t pitch) {
#pragma unroll
        for (int f = 0; f < FILTERS; f++)
            if (f < task.filters) {
                float w = __ldg(weight + f * pitch);
                if (a.conv.mode == XN_MODE_BWN)
                    run[f] += xn_sign_bit(w) ? x : -x;
                else
                    run[f] += (Sum)x * w;
            }
        if (++terms == RUN)
            fold();
    }
};

template <typename Sum, int FILTERS, typename T>
__device__ __forceinline__ void convolve(const real_args &a, const real_task &task, const T *input,
                                         double *totals) {
    const xn_conv &c = a.conv;
    const int64_t pitch = (int64_t)c.group_channels * c.kernel_h * c.kernel_w;
    const float outside = (float)c.pad_value;
    real_sum<Sum, FILTERS> sum;
    sum.clear();
    for (int32_t channel = 0; channel < c.group_channels; channel++) {
        const T *image = input + (task.plane * c.group_channels + channel) * c.height * c.width;
        const float *weight =
            a.weights + task.filter * pitch + (int64_t)channel * c.kernel_h * c.kernel_w;
        for (int32_t i = 0; i < c.kernel_h; i++) {
            const int32_t y = task.y0 + i * c.dilation_h;
            const bool row_inside = y >= 0 && y < c.height;
            if (!row_inside && c.pad_value == 0)
                continue;
            for (int32_t j = 0; j < c.kernel_w; j++) {
                const int32_t x = task.x0 + j * c.dilation_w;
                if (row_inside && x >= 0 && x < c.width)
                    sum.add(a, task, xn_real_fp32(image[(int64_t)y * c.width + x]),
                            weight + (int64_t)i * c.kernel_w + j, pitch);
                else if (c.pad_value != 0)
                    sum.add(a, task, outside, weight + (int64_t)i * c.kernel_w + j, pitch);
            }
        }
    }
    sum.fold();
#pragma unroll
    for (int f = 0; f < FILTERS; f++)
        totals[f] = sum.total[f];
}

template <int FILTERS, typename T>
__device__ __noinline__ void convolve_exact(const real_args &a, const real_task &task,
                                            const T *input, double *totals) {
    convolve<double, FILTERS>(a, task, input, totals);
}

template <int FILTERS>
__global__ void __launch_bounds__(XN_CUDA_THREADS)
    real_kernel(const __grid_constant__ real_args a) {
    const xn_conv &c = a.conv;
    const int64_t plane_outputs = (int64_t)c.out_height * c.out_width;
    for (int64_t t = (int64_t)blockIdx.x * XN_CUDA_THREADS + threadIdx.x; t < a.work;
         t += (int64_t)gridDim.x * XN_CUDA_THREADS) {
        const int64_t rest = t % plane_outputs, block = t / plane_outputs;
        const int32_t first = (int32_t)(block % a.filter_blocks) * FILTERS;
        real_task task;
        task.plane = block / a.filter_blocks;
        task.filter = task.plane % c.groups * c.group_out_channels + first;
        task.filters = min(c.group_out_channels - first, (int32_t)FILTERS);
        task.y0 = (int32_t)(rest / c.out_width) * c.stride_h - c.pad_top;
        task.x0 = (int32_t)(rest % c.out_width) * c.stride_w - c.pad_left;

        double totals[FILTERS];
        xn_with_input(a.input, c.input_datatype, [&](auto *input) {
            convolve<float, FILTERS>(a, task, input, totals);
            bool finite = true;
#pragma unroll
            for (int f = 0; f < FILTERS; f++)
                finite = finite && isfinite(totals[f]);
            if (!finite)
                convolve_exact<FILTERS>(a, task, input, totals);
        });
#pragma unroll
        for (int f = 0; f < FILTERS; f++)
            if (f < task.filters) {
                const int64_t index =
                    (task.plane * c.group_out_channels + first + f) * plane_outputs + rest;
                float v[1] = {xn_value_again(a.out, task.filter + f, totals[f], 1.0)};
                const uint32_t bit = xn_finish_and_store(a.out, task.filter + f, index, v);
                if (a.out.what.bits)
                    xn_add_bits(a.out, c.out_channels, task.plane / c.groups * plane_outputs + rest,
                                (int32_t)task.filter + f, bit);
            }
    }
}

cudaError_t xn_cuda_real_launch(const xn_conv *conv, int64_t images, int, const xn_cuda_real_io *io,
                                const xn_epilogue_args *epilogue, cudaStream_t stream) {
    const int32_t filters = conv->group_out_channels == 1 ? 1 : 4;
    real_args a = {};
    a.conv = *conv;
    a.input = io->input;
    a.weights = (const float *)io->weights;
    a.out = xn_epilogue_of(conv, epilogue);
    a.filter_blocks = (conv->group_out_channels - 1) / filters + 1;
    a.work = images * conv->groups * a.filter_blocks * conv->out_height * conv->out_width;
    const cudaError_t e = xn_clear_bits(conv, images, epilogue, stream);
    if (e != cudaSuccess)
        return e;
    return xn_cuda_launch(filters == 1 ? real_kernel<1> : real_kernel<4>,
                          xn_cuda_grid(a.work, XN_CUDA_THREADS), XN_CUDA_THREADS, 0, stream, a);
}

cudaError_t xn_cuda_real_load(bool *) {
    cudaError_t e = xn_cuda_load(real_kernel<1>);
    return e != cudaSuccess ? e : xn_cuda_load(real_kernel<4>);
}
