/* real_mma_pack.cu: the first pass of real_mma.cu, which turns channels innermost and rounds to the
 * precision of the matrix units (real_mma.h).
 *
 * Pixels are bound by memory: each value is read once and written once. A warp takes 16
 * neighbouring positions and two units of each (or 32 and one): it reads whole sectors of every
 * plane and writes whole sectors, 16 bytes a thread, without shared memory. */
#include "element.cuh"
#include "launch.cuh"
#include "ptx.cuh"
#include "real_mma.h"

/* As bits, in the low half of the word for fp16. */
template <int PRECISION>
__device__ __forceinline__ uint32_t round_to(float v) {
    if (PRECISION == XN_PRECISION_FP16)
        return __half_as_ushort(__float2half_rn(v));
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
    uint32_t bits;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(v));
    return bits;
#else
    __trap();
    return 0;
#endif
}

struct pack_args {
    xn_conv conv;
    const void *input;
    void *pixels;
    int64_t planes; /* images * groups */
    int32_t padded_w, tap_units;
    int32_t positions; /* a plane, with the border */
    int32_t row_units; /* units side by side in a warp, as a shift: 0 or 1 */
};

/* The channels of one unit at one position. */
template <int PRECISION, int UNIT>
struct unit_values {
    static constexpr int COUNT = UNIT / (PRECISION == XN_PRECISION_FP16 ? 2 : 4);
    float v[COUNT];

    template <typename T>
    __device__ __forceinline__ void load(const T *from, int64_t plane, int32_t channels,
                                         float outside, bool inside) {
#pragma unroll
        for (int e = 0; e < COUNT; e++) {
            v[e] = e < channels ? outside : 0.0f;
            if (e < channels && inside)
                v[e] = xn_real_fp32(from[e * plane]);
        }
    }

    __device__ __forceinline__ void store(void *to) const {
        uint32_t words[UNIT / 4];
#pragma unroll
        for (int w = 0; w < UNIT / 4; w++)
            words[w] = PRECISION == XN_PRECISION_FP16
                           ? round_to<PRECISION>(v[w * 2]) | round_to<PRECISION>(v[w * 2 + 1]) << 16
                           : round_to<PRECISION>(v[w % COUNT]);
        if (UNIT == 16)
            *(uint4 *)to = make_uint4(words[0], words[1], words[UNIT / 4 - 2], words[UNIT / 4 - 1]);
        else
            *(uint2 *)to = make_uint2(words[0], words[1]);
    }
};

template <int PRECISION, int UNIT>
__global__ void __launch_bounds__(XN_CUDA_THREADS)
    mma_pack_kernel(const __grid_constant__ pack_args a) {
    const xn_conv &c = a.conv;
    const int32_t lane = (int32_t)threadIdx.x % 32, positions_bits = 5 - a.row_units;
    const int64_t task = (int64_t)blockIdx.x * (XN_CUDA_THREADS / 32) + threadIdx.x / 32;
    const int32_t columns = (a.tap_units + a.row_units) >> a.row_units;
    const int32_t unit = (int32_t)(task % columns << a.row_units) + (lane >> positions_bits);
    const int64_t position =
        (task / columns << positions_bits) + (lane & ((1 << positions_bits) - 1));
    xn_wait_for_previous_kernel(); /* pixels may still be read there */
    xn_let_next_kernel_start();
    if (unit >= a.tap_units || position >= a.positions)
        return;
    const int32_t y = (int32_t)position / a.padded_w - c.pad_top;
    const int32_t x = (int32_t)position % a.padded_w - c.pad_left;
    const bool inside = y >= 0 && y < c.height && x >= 0 && x < c.width;
    const int64_t plane = (int64_t)c.height * c.width;
    const int32_t first = unit * unit_values<PRECISION, UNIT>::COUNT;
    for (int64_t p = blockIdx.y; p < a.planes; p += gridDim.y) {
        const int64_t at = (p * c.group_channels + first) * plane + (int64_t)y * c.width + x;
        unit_values<PRECISION, UNIT> values;
        xn_with_input(a.input, c.input_datatype, [&](auto *input) {
            values.load(inside ? input + at : input, plane, c.group_channels - first,
                        (float)c.pad_value, inside);
        });
        values.store((char *)a.pixels + ((p * a.positions + position) * a.tap_units + unit) * UNIT);
    }
}

typedef void (*pack_function)(const pack_args);
static pack_function pack_of(int32_t precision, int32_t unit_bytes) {
    if (precision == XN_PRECISION_TF32)
        return mma_pack_kernel<XN_PRECISION_TF32, 16>;
    return unit_bytes == 8 ? mma_pack_kernel<XN_PRECISION_FP16, 8>
                           : mma_pack_kernel<XN_PRECISION_FP16, 16>;
}

cudaError_t xn_cuda_mma_pack_launch(const xn_conv *conv, int64_t images, const void *input,
                                    void *pixels, bool overlapped, cudaStream_t stream) {
    pack_args a = {};
    a.conv = *conv;
    a.input = input;
    a.pixels = pixels;
    a.planes = images * conv->groups;
    a.padded_w = conv->width + conv->pad_left + conv->pad_right;
    a.positions = (int32_t)xn_cuda_mma_positions(conv);
    a.tap_units = xn_cuda_mma_tap_units(conv->precision, conv->group_channels);
    a.row_units = a.tap_units > 1;
    const int64_t columns = (a.tap_units + a.row_units) >> a.row_units;
    const int64_t rows = (a.positions - 1 >> (5 - a.row_units)) + 1;
    dim3 grid((unsigned)xn_cuda_grid(columns * rows, XN_CUDA_THREADS / 32));
    grid.y = (unsigned)(a.planes < 65535 ? a.planes : 65535);
    return xn_cuda_launch_with(
        pack_of(conv->precision, xn_cuda_mma_unit_bytes(conv->precision, conv->group_channels)),
        grid, XN_CUDA_THREADS, 0, overlapped, stream, a);
}

cudaError_t xn_cuda_mma_pack_load(void) {
    return xn_cuda_load(mma_pack_kernel<XN_PRECISION_FP16, 8>,
                        mma_pack_kernel<XN_PRECISION_FP16, 16>,
                        mma_pack_kernel<XN_PRECISION_TF32, 16>);
}
