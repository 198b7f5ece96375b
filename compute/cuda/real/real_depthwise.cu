/* real_depthwise.cu: modes bwn and float in fp32 where each channel has one 3x3 filter of its own,
 * by stride 1 or 2. A thread has ROWS outputs of a column, neighbouring lanes neighbouring columns,
 * so loads are coalesced at any width, and all of a thread are under way at once.
 *
 * A sum is fp32, taps in order; one that is not finite is taken again in double. Taps outside the
 * image are multiplied too, by the filler, so weights must be finite. */
#include "epilogue.cuh"
#include "launch.cuh"
#include "real.h"

enum { ROWS = 4, SIDE = 3 };

struct depthwise_args {
    xn_conv conv;
    const void *input;
    const float *weights;
    xn_epilogue_args out;
    xn_fast_divisor width, row_blocks, channels; /* of the output; ROWS rows a block */
    int32_t work;                                /* threads */
    uint32_t outside;                            /* pad_value, as the input has it */
};

template <typename Sum>
__device__ __forceinline__ Sum sum_of(const float (*values)[SIDE], const float (&w)[SIDE][SIDE]) {
    Sum sum = 0;
#pragma unroll
    for (int i = 0; i < SIDE; i++)
#pragma unroll
        for (int j = 0; j < SIDE; j++)
            sum += (Sum)values[i][j] * (Sum)w[i][j];
    return sum;
}

__device__ __forceinline__ void load_filter(const depthwise_args &a, int32_t o,
                                            float (&w)[SIDE][SIDE]) {
#pragma unroll
    for (int i = 0; i < SIDE; i++)
#pragma unroll
        for (int j = 0; j < SIDE; j++) {
            w[i][j] = __ldg(a.weights + ((int64_t)o * SIDE + i) * SIDE + j);
            if (a.conv.mode == XN_MODE_BWN)
                w[i][j] = xn_sign_bit(w[i][j]) ? 1.0f : -1.0f;
        }
}

template <int STRIDE, typename Input>
__global__ void __launch_bounds__(XN_CUDA_THREADS)
    real_depthwise_kernel(const __grid_constant__ depthwise_args a) {
    constexpr int TALL = (ROWS - 1) * STRIDE + SIDE; /* rows of the input */
    const xn_conv &c = a.conv;
    const int32_t t = (int32_t)(blockIdx.x * XN_CUDA_THREADS + threadIdx.x);
    xn_let_next_kernel_start();
    if (t >= a.work)
        return;
    const int32_t block = xn_divide(t, a.width), column = t - block * c.out_width;
    const int32_t plane = xn_divide(block, a.row_blocks);
    const int32_t row = (block - plane * (int32_t)a.row_blocks.divisor) * ROWS;
    const int32_t image = xn_divide(plane, a.channels), o = plane - image * c.channels;
    const int32_t y0 = row * STRIDE - c.pad_top, x0 = column * STRIDE - c.pad_left;
    float w[SIDE][SIDE], values[TALL][SIDE];
    load_filter(a, o, w);
    xn_wait_for_previous_kernel();
    const Input *from = (const Input *)a.input + (int64_t)plane * c.height * c.width;
    uint32_t bits[TALL][SIDE];
#pragma unroll
    for (int i = 0; i < TALL; i++)
#pragma unroll
        for (int j = 0; j < SIDE; j++) {
            const int32_t y = y0 + i, x = x0 + j;
            const bool inside = (uint32_t)y < (uint32_t)c.height && (uint32_t)x < (uint32_t)c.width;
            bits[i][j] = a.outside;
            xn_load_if<sizeof(Input)>(&bits[i][j], from + (int64_t)y * c.width + x, inside);
        }
#pragma unroll
    for (int i = 0; i < TALL; i++)
#pragma unroll
        for (int j = 0; j < SIDE; j++)
            values[i][j] = sizeof(Input) == 2 ? xn_to_fp32(__ushort_as_half((uint16_t)bits[i][j]))
                                              : __uint_as_float(bits[i][j]);
    const int64_t outputs = (int64_t)c.out_height * c.out_width;
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        if (row + r >= c.out_height)
            break;
        const int64_t at = (int64_t)(row + r) * c.out_width + column;
        double sum = sum_of<float>(values + r * STRIDE, w);
        if (!isfinite(sum))
            sum = sum_of<double>(values + r * STRIDE, w);
        float v[1] = {xn_value_again(a.out, o, sum, 1.0)};
        const uint32_t bit = xn_finish_and_store(a.out, o, plane * outputs + at, v);
        if (a.out.what.bits)
            xn_add_bits(a.out, c.out_channels, image * outputs + at, o, bit);
    }
}

/* ---- launcher ---- */

/* Threads. */
static int64_t work_of(const xn_conv *c, int64_t images) {
    return ((c->out_height - 1) / ROWS + 1) * (int64_t)c->out_width * c->channels * images;
}

bool xn_cuda_real_depthwise_fits(const xn_conv *c, int64_t images) {
    enum { MOST = INT32_MAX - XN_CUDA_THREADS };
    return c->mode != XN_MODE_XNOR && c->group_channels == 1 && c->group_out_channels == 1 &&
           (c->input_datatype == XN_FP32 || c->input_datatype == XN_FP16) && c->kernel_h == SIDE &&
           c->kernel_w == SIDE && c->dilation_h == 1 && c->dilation_w == 1 &&
           c->stride_h == c->stride_w && c->stride_h <= 2 &&
           (int64_t)c->out_width * c->out_height <= MOST / c->channels &&
           work_of(c, 1) <= MOST / images;
}

typedef void (*depthwise_function)(const depthwise_args);
static depthwise_function kernel_of(int32_t stride, int32_t datatype) {
    if (datatype == XN_FP16)
        return stride == 1 ? real_depthwise_kernel<1, __half> : real_depthwise_kernel<2, __half>;
    return stride == 1 ? real_depthwise_kernel<1, float> : real_depthwise_kernel<2, float>;
}

cudaError_t xn_cuda_real_depthwise_launch(const xn_conv *conv, int64_t images, int,
                                          const xn_cuda_real_io *io,
                                          const xn_epilogue_args *epilogue, cudaStream_t stream) {
    depthwise_args a = {};
    a.conv = *conv;
    a.input = io->input;
    a.weights = (const float *)io->weights;
    a.out = xn_epilogue_of(conv, epilogue);
    a.width = xn_fast_divisor_of(conv->out_width);
    a.row_blocks = xn_fast_divisor_of((conv->out_height - 1) / ROWS + 1);
    a.channels = xn_fast_divisor_of(conv->channels);
    a.work = (int32_t)work_of(conv, images);
    const float outside = (float)conv->pad_value;
    a.outside =
        conv->input_datatype == XN_FP16 ? xn_fp16_pair(outside, 0.0f) : xn_bits_of_fp32(outside);
    const cudaError_t e = xn_clear_bits(conv, images, epilogue, stream);
    if (e != cudaSuccess)
        return e;
    return xn_cuda_launch_with(kernel_of(conv->stride_h, conv->input_datatype),
                               dim3((unsigned)xn_cuda_grid(a.work, XN_CUDA_THREADS)),
                               XN_CUDA_THREADS, 0, io->overlapped && !conv->epilogue.bits, stream,
                               a);
}

cudaError_t xn_cuda_real_depthwise_load(bool *) {
    return xn_cuda_load(kernel_of(1, XN_FP32), kernel_of(2, XN_FP32), kernel_of(1, XN_FP16),
                        kernel_of(2, XN_FP16));
}
