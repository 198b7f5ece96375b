/* direct.cu: mode xnor for every geometry on every chip: population counts over the packed bits,
 * tap by tap, only those inside the image. A thread has one output pixel and 4 filters. Bound by
 * the population count, 16 words a clock and multiprocessor; implicit_gemm.cu is the fast one. */
#include "bits_path.h"
#include "epilogue.cuh"
#include "launch.cuh"
#include "layout.h"

enum { FILTERS = 4 };

struct direct_args {
    xn_conv conv;
    xn_cuda_bit_args bits;
    xn_epilogue_args out;
    int32_t tap_words, filter_blocks; /* filter_blocks = ceil(O/G / FILTERS) */
    int64_t row_words, work;
};

/* The output pixel that a thread has, of a group. */
struct direct_pixel {
    int64_t plane; /* image * groups + group */
    int64_t rest;  /* in the plane of outputs */
    int32_t y, x;
};

/* popc(a xor w) over the taps inside, for up to FILTERS filters from rows on. */
__device__ __forceinline__ void count_differing(const direct_args &a, const uint32_t *plane_bits,
                                                const uint32_t *rows, int32_t filters,
                                                const xn_cuda_rect &rect, int32_t y0, int32_t x0,
                                                uint32_t *differ) {
    const xn_conv &c = a.conv;
    for (int32_t i = rect.i0; i < rect.i1; i++)
        for (int32_t j = rect.j0; j < rect.j1; j++) {
            const int64_t pixel =
                (int64_t)(y0 + i * c.dilation_h) * c.width + x0 + (int64_t)j * c.dilation_w;
            const uint32_t *act = plane_bits + pixel * a.tap_words;
            const uint32_t *tap = rows + ((int64_t)i * c.kernel_w + j) * a.tap_words;
            for (int32_t w = 0; w < a.tap_words; w++) {
                const uint32_t word = __ldg(act + w);
#pragma unroll
                for (int f = 0; f < FILTERS; f++)
                    if (f < filters)
                        differ[f] += (uint32_t)__popc(word ^ __ldg(tap + f * a.row_words + w));
            }
        }
}

/* The output of filter o, number m of its group. */
__device__ __forceinline__ void write_output(const direct_args &a, const direct_pixel &p, int64_t o,
                                             int32_t m, int32_t dot, float box) {
    const xn_conv &c = a.conv;
    const int64_t plane_outputs = (int64_t)c.out_height * c.out_width;
    const int64_t index = (p.plane * c.group_out_channels + m) * plane_outputs + p.rest;
    if (a.out.what.datatype == XN_INT32) {
        ((int32_t *)a.out.output)[index] = dot;
        return;
    }
    float v[1] = {xn_value_or_again(a.out, xn_filter_of(a.out, o), o, (float)dot, box, [&] {
        return xn_box_of_means<double>(c, a.bits.mean + p.plane * c.height * c.width, p.y, p.x);
    })};
    const uint32_t bit = xn_finish_and_store(a.out, o, index, v);
    if (a.out.what.bits)
        xn_add_bits(a.out, c.out_channels, p.plane / c.groups * plane_outputs + p.rest, (int32_t)o,
                    bit);
}

__global__ void __launch_bounds__(XN_CUDA_THREADS)
    direct_kernel(const __grid_constant__ direct_args a) {
    const xn_conv &c = a.conv;
    const int64_t plane_outputs = (int64_t)c.out_height * c.out_width;
    const int32_t taps = c.kernel_h * c.kernel_w;
    for (int64_t t = (int64_t)blockIdx.x * XN_CUDA_THREADS + threadIdx.x; t < a.work;
         t += (int64_t)gridDim.x * XN_CUDA_THREADS) {
        const int64_t block = t / plane_outputs;
        const int32_t first = (int32_t)(block % a.filter_blocks) * FILTERS;
        direct_pixel p;
        p.plane = block / a.filter_blocks;
        p.rest = t % plane_outputs;
        p.y = (int32_t)(p.rest / c.out_width);
        p.x = (int32_t)(p.rest % c.out_width);
        const int64_t filter = p.plane % c.groups * c.group_out_channels + first;
        const int32_t filters = min(c.group_out_channels - first, (int32_t)FILTERS);
        const xn_cuda_rect rect = xn_cuda_valid_rect(&c, p.y, p.x);
        const int32_t inside = xn_cuda_rect_taps(&rect);

        uint32_t differ[FILTERS] = {0, 0, 0, 0};
        count_differing(a, a.bits.bits + p.plane * c.height * c.width * a.tap_words,
                        a.bits.rows + filter * a.row_words, filters, rect,
                        p.y * c.stride_h - c.pad_top, p.x * c.stride_w - c.pad_left, differ);

        const float box = a.bits.box ? a.bits.box[p.plane * plane_outputs + p.rest] : 1.0f;
        const int64_t all = ((int64_t)(c.kernel_h + 1) * (c.kernel_w + 1) - 1) * c.out_channels;
#pragma unroll
        for (int f = 0; f < FILTERS; f++)
            if (f < filters) {
                const int32_t *prefix = a.bits.prefix + filter + f;
                uint32_t dot = (uint32_t)c.group_channels * (uint32_t)inside - 2u * differ[f];
                if (c.pad_value != 0 && inside < taps)
                    dot += (uint32_t)xn_cuda_outside_dot(
                        c.pad_value, c.group_channels, taps - inside,
                        prefix[all] - xn_cuda_rect_popc(prefix, c.out_channels, c.kernel_w, &rect));
                write_output(a, p, filter + f, first + f, (int32_t)dot, box);
            }
    }
}

cudaError_t xn_cuda_direct_launch(const xn_conv *conv, int64_t images, const xn_cuda_bit_args *bits,
                                  const xn_epilogue_args *epilogue, cudaStream_t stream) {
    direct_args a = {};
    a.conv = *conv;
    a.bits = *bits;
    a.out = xn_epilogue_of(conv, epilogue);
    a.tap_words = xn_packed_words(conv->group_channels);
    a.row_words = xn_cuda_row_words(conv->group_channels, conv->kernel_h, conv->kernel_w);
    a.filter_blocks = (conv->group_out_channels - 1) / FILTERS + 1;
    a.work = images * conv->groups * a.filter_blocks * conv->out_height * conv->out_width;
    const cudaError_t e = xn_clear_bits(conv, images, epilogue, stream);
    if (e != cudaSuccess)
        return e;
    return xn_cuda_launch(direct_kernel, xn_cuda_grid(a.work, XN_CUDA_THREADS), XN_CUDA_THREADS, 0,
                          stream, a);
}

cudaError_t xn_cuda_direct_load(bool *) {
    return xn_cuda_load(direct_kernel);
}
