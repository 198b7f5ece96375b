/* packed.cu: packed input of the path that does not read it itself: packed pixels to lines. */
#include "fast_divide.cuh"
#include "launch.cuh"
#include "layout.h"
#include "packing.h"
#include "ptx.cuh"

struct spread_args {
    const uint4 *bits;
    uint4 *to;
    int32_t *counts;
    int32_t positions; /* of all planes */
    xn_cuda_padded lines;
    int32_t height, width;
    uint32_t lanes; /* that share a position: a power of 2 */
    xn_fast_divisor phase, pitch;
};

/* A position of all planes: of which plane, phase of rows and of columns, and where there. */
struct spread_place {
    int32_t plane, row, column, position;
};

__device__ __forceinline__ spread_place place_of(const spread_args &a, int32_t at) {
    const xn_cuda_padded &l = a.lines;
    const int32_t phase = xn_divide(at, a.phase); /* of all planes: each has 1, 2 or 4 */
    const int32_t number = phase & (l.phases - 1);
    const int32_t column = number >= l.phases_h;
    return {phase >> (l.phases / 2), number - column * l.phases_h, column, at - phase * l.phase};
}

/* The pixel at a position of a phase, if there is one. */
__device__ __forceinline__ bool spread_pixel(const spread_args &a, const spread_place &p,
                                             int64_t *pixel) {
    const xn_cuda_padded &l = a.lines;
    const int32_t from = p.position - l.first;
    const int32_t line = from >= 0 ? xn_divide(from, a.pitch) : 0, at = from - line * l.pitch;
    const int32_t y = (line << l.odd_h) + p.row - l.top, x = (at << l.odd_w) + p.column - l.left;
    *pixel = ((int64_t)p.plane * a.height + y) * a.width + x;
    return from >= 0 && (uint32_t)y < (uint32_t)a.height && (uint32_t)x < (uint32_t)a.width;
}

/* 128 channels and more: a thread makes all units of a position, or where `lanes` neighbours share
 * one, every lanes-th. */
__global__ void __launch_bounds__(XN_CUDA_THREADS)
    spread_kernel(const __grid_constant__ spread_args a) {
    const xn_cuda_padded &l = a.lines;
    const int32_t at = (int32_t)((blockIdx.x * XN_CUDA_THREADS + threadIdx.x) / a.lanes);
    const int32_t first = (int32_t)(threadIdx.x % a.lanes);
    int32_t count = 0;
    xn_let_next_kernel_start();
    xn_wait_for_previous_kernel();
    if (at < a.positions) {
        const spread_place place = place_of(a, at);
        int64_t pixel;
        const bool live = spread_pixel(a, place, &pixel);
        uint4 *to = a.to + at + (int64_t)place.plane * (l.units - 1) * l.plane;
#pragma unroll 4
        for (int32_t unit = first; unit < l.units; unit += (int32_t)a.lanes) {
            uint4 v = make_uint4(0, 0, 0, 0);
            if (live)
                v = a.bits[pixel * l.units + unit];
            count += __popc(v.x) + __popc(v.y) + __popc(v.z) + __popc(v.w);
            to[(int64_t)unit * l.plane] = v;
        }
    }
    for (uint32_t step = a.lanes / 2; step; step /= 2)
        count += __shfl_xor_sync(0xffffffffu, count, (int)step);
    if (first == 0 && at < a.positions)
        a.counts[at] = count;
}

/* Less: a thread makes a position, of its pixel's words and those to the right. */
template <int WORDS>
__global__ void __launch_bounds__(XN_CUDA_THREADS)
    spread_small_kernel(const __grid_constant__ spread_args a) {
    const xn_cuda_padded &l = a.lines;
    const int32_t at = (int32_t)(blockIdx.x * XN_CUDA_THREADS + threadIdx.x);
    xn_let_next_kernel_start();
    xn_wait_for_previous_kernel();
    if (at >= a.positions)
        return;
    const spread_place own = place_of(a, at);
    uint32_t word[4] = {};
    int32_t count = 0;
#pragma unroll
    for (int j = 0; j < 4 / WORDS; j++) {
        spread_place tap = own;
        int64_t pixel;
        if (j && own.column) /* set bits alone */
            break;
        tap.column = own.column + (j * l.step & l.odd_w);
        tap.position += j * l.step >> l.odd_w;
        if (spread_pixel(a, tap, &pixel))
#pragma unroll
            for (int n = 0; n < WORDS; n++)
                word[j * WORDS + n] = ((const uint32_t *)a.bits)[pixel * WORDS + n];
    }
#pragma unroll
    for (int n = 0; n < WORDS; n++)
        count += __popc(word[n]);
    if (!own.column)
        a.to[at] = make_uint4(word[0], word[1], word[2], word[3]);
    a.counts[at] = count;
}

cudaError_t xn_cuda_spread_launch(const xn_conv *conv, int64_t images, const uint32_t *bits,
                                  uint32_t *to, int32_t *counts, cudaStream_t stream) {
    spread_args a = {};
    a.bits = (const uint4 *)bits;
    a.to = (uint4 *)to;
    a.counts = counts;
    a.lines = xn_cuda_padded_of(conv);
    a.positions = (int32_t)(images * conv->groups * a.lines.plane);
    a.height = conv->height;
    a.width = conv->width;
    a.phase = xn_fast_divisor_of(a.lines.phase);
    a.pitch = xn_fast_divisor_of(a.lines.pitch);
    for (a.lanes = 1; a.lanes < 8 && a.lines.units % (int32_t)(2 * a.lanes) == 0;)
        a.lanes *= 2;
    return xn_cuda_launch_with(a.lines.tap_words >= 4   ? spread_kernel
                               : a.lines.tap_words == 2 ? spread_small_kernel<2>
                                                        : spread_small_kernel<1>,
                               xn_cuda_grid((int64_t)a.positions * a.lanes, XN_CUDA_THREADS),
                               XN_CUDA_THREADS, 0, true, stream, a);
}

cudaError_t xn_cuda_packed_load(void) {
    return xn_cuda_load(spread_kernel, spread_small_kernel<1>, spread_small_kernel<2>);
}
