/* box.cu: per output pixel and group, what all filters of the group share: the pixel part of dot
 * (layout.h), which is a box sum of the pixels' popcounts, and the box of K (epilogue.cuh), one of
 * their mean magnitudes. One thread an output pixel; small beside the kernels around it. */
#include "epilogue.cuh"
#include "launch.cuh"
#include "layout.h"
#include "packing.h"

struct box_args {
    xn_conv conv;
    const int32_t *popc; /* of the pixels, or NULL: it is counted in their bits */
    const uint32_t *bits;
    const float *mean;
    int32_t *pixel_part;
    float *box;
    int64_t outputs; /* OH*OW of all planes */
    int32_t tap_words;
};

__device__ __forceinline__ int32_t popc_inside(const box_args &a, int64_t plane,
                                               const xn_cuda_rect &rect, int32_t out_y,
                                               int32_t out_x) {
    const xn_conv &c = a.conv;
    const int32_t y0 = out_y * c.stride_h - c.pad_top, x0 = out_x * c.stride_w - c.pad_left;
    int32_t popc = 0;
    for (int32_t i = rect.i0; i < rect.i1; i++) {
        const int64_t line = (plane * c.height + y0 + i * c.dilation_h) * c.width + x0;
        for (int32_t j = rect.j0; j < rect.j1; j++) {
            const int64_t pixel = line + (int64_t)j * c.dilation_w;
            popc += a.popc ? a.popc[pixel] : 0;
            for (int32_t w = 0; w < a.tap_words && !a.popc; w++)
                popc += __popc(a.bits[pixel * a.tap_words + w]);
        }
    }
    return popc;
}

__global__ void __launch_bounds__(XN_CUDA_THREADS) box_kernel(const __grid_constant__ box_args a) {
    const xn_conv &c = a.conv;
    const int64_t plane_outputs = (int64_t)c.out_height * c.out_width;
    const int32_t taps = c.kernel_h * c.kernel_w;
    for (int64_t t = (int64_t)blockIdx.x * XN_CUDA_THREADS + threadIdx.x; t < a.outputs;
         t += (int64_t)gridDim.x * XN_CUDA_THREADS) {
        const int64_t plane = t / plane_outputs, rest = t % plane_outputs;
        const int32_t out_y = (int32_t)(rest / c.out_width), out_x = (int32_t)(rest % c.out_width);
        const xn_cuda_rect rect = xn_cuda_valid_rect(&c, out_y, out_x);
        const int32_t inside = xn_cuda_rect_taps(&rect);
        if (a.pixel_part)
            a.pixel_part[t] =
                xn_cuda_pixel_part(c.pad_value, c.group_channels, inside, taps - inside,
                                   popc_inside(a, plane, rect, out_y, out_x));
        if (a.box)
            a.box[t] = xn_box_of_means<float>(c, a.mean + plane * c.height * c.width, out_y, out_x);
    }
}

cudaError_t xn_cuda_box_launch(const xn_conv *conv, int64_t images, const uint32_t *bits,
                               const int32_t *popc, const float *mean, int32_t *pixel_part,
                               float *box, cudaStream_t stream) {
    box_args a = {};
    a.conv = *conv;
    a.popc = popc;
    a.bits = bits;
    a.tap_words = xn_packed_words(conv->group_channels);
    a.mean = mean;
    a.pixel_part = pixel_part;
    a.box = box;
    a.outputs = images * conv->groups * conv->out_height * conv->out_width;
    return xn_cuda_launch(box_kernel, xn_cuda_grid(a.outputs, XN_CUDA_THREADS), XN_CUDA_THREADS, 0,
                          stream, a);
}

cudaError_t xn_cuda_box_load(void) {
    return xn_cuda_load(box_kernel);
}
