/* gemm_wide_out.cuh: from the counts of a subtile, 64 pixels by NT filters in the registers of a
 * warpgroup, to outputs. A warp has 16 pixels and needs no other: thread 4g + t has pixels g and
 * g + 8 (h = 0, 1), and of every 32 filters (a word b) the 8 neighbours from 8t on, filter
 * 8t + 2j + e in counts[16b + 4j + 2h + e]. */
#ifndef XN_CUDA_GEMM_WIDE_OUT_CUH
#define XN_CUDA_GEMM_WIDE_OUT_CUH

#include "gemm_wide.cuh"

#if XN_HAS_WGMMA

/* Which outputs: of the block's filters those from `column` on, of the group's those from m0. */
struct wide_outputs {
    int32_t group, m0, column;
};

/* ---- packed ---- */

/* Byte n of thread t's word becomes byte t of thread n's, in a quad of lanes. */
__device__ __forceinline__ uint32_t turn_bytes(uint32_t word, int32_t t) {
    const uint32_t near = __shfl_xor_sync(0xffffffffu, word, 1);
    word = xn_permute(word, near, t & 1 ? 0x3715 : 0x6240);
    const uint32_t far = __shfl_xor_sync(0xffffffffu, word, 2);
    return xn_permute(word, far, t & 2 ? 0x3276 : 0x5410);
}

/* Appends to `bits` the outputs of pixel h, the first filter lowest. */
template <int NT>
__device__ __forceinline__ uint32_t threshold_bits(const int32_t *limits, int32_t part, int h,
                                                   const int32_t (&counts)[NT / 2], uint32_t bits) {
#pragma unroll
    for (int b = NT / 32 - 1; b >= 0; b--) {
        const int4 low = *(const int4 *)(limits + b * 32);
        const int4 high = *(const int4 *)(limits + b * 32 + 4);
        const int32_t limit[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
        for (int f = 7; f >= 0; f--) {
            const int32_t count = counts[b * 16 + f / 2 * 4 + h * 2 + f % 2];
            bits = __funnelshift_l((uint32_t)(limit[f] + part - count), bits, 1);
        }
    }
    return bits;
}

/* A thread ends up with one word of a pixel: of its NT / 32 words of two pixels as many as fit the
 * 4 lanes of a quad. */
template <int NT>
__device__ __forceinline__ void write_packed(const wide_args &a, const wide_block &b,
                                             const wide_pixel *pixels, const wide_outputs &o,
                                             const int32_t (&counts)[NT / 2]) {
    constexpr int WORDS = NT / 32;
    const int32_t t = threadIdx.x & 3;
    const int32_t words = a.conv.groups > 1 ? a.conv.group_out_channels / 32 : a.shape.packed_words;
    const int32_t first = o.group * words + (o.m0 + o.column) / 32;
    const int32_t w = t % WORDS;
    const bool live = (o.m0 + o.column) / 32 + w < words;
    const uint32_t flip = b.flips[o.column / 32 + w];
    uint32_t bits = 0;
#pragma unroll
    for (int h = 1; h >= 0; h--) {
        const wide_pixel pixel = pixels[h * 8];
        bits =
            threshold_bits<NT>(b.table + pixel.row + o.column + 8 * t, pixel.part, h, counts, bits);
        if (WORDS == 4) {
            bits = turn_bytes(bits, t);
            if (live && pixel.base >= 0)
                a.io.packed[pixel.base + first + w] = bits ^ flip;
        }
    }
    if (WORDS < 4) {
        bits = turn_bytes(bits, t);
        const int64_t base = pixels[t / WORDS % 2 * 8].base;
        if (t < 2 * WORDS && live && base >= 0)
            a.io.packed[base + first + w] = bits ^ flip;
    }
}

/* ---- INT32 and floats ---- */

/* A pixel in registers. `safe`: no product or sum of the epilogue can overflow. */
struct real_pixel {
    wide_pixel at;
    float k;
    bool safe;
};

template <int OUT>
__device__ __forceinline__ real_pixel load_pixel(const wide_args &a, const wide_block &b,
                                                 const wide_pixel *pixels, const float *k) {
    real_pixel p;
    p.at = *pixels;
    p.k = 1.0f;
    p.safe = true;
    if (OUT != XN_INT32) {
        const float most = (float)(a.conv.group_channels * a.conv.kernel_h * a.conv.kernel_w);
        const float factor = fmaxf(__uint_as_float(b.largest[0]), 1.0f); /* NaN: not safe below */
        const float bias = __uint_as_float(b.largest[1]);
        p.k = *k;
        p.safe = b.largest[0] < 0x7f800000u && p.k * most * factor + bias < 3e38f;
    }
    return p;
}

/* Four filters of pixel h from `column` on. MAGIC is in the pixel's part for floats. */
template <int OUT>
__device__ __forceinline__ void four_outputs(const int4 &part, const int32_t *counts,
                                             const real_pixel &p, const float4 &factor,
                                             const float4 &bias, float (&v)[4]) {
    const int32_t parts[4] = {part.x, part.y, part.z, part.w};
    const int32_t count[4] = {counts[0], counts[1], counts[4], counts[5]};
    const float f[4] = {factor.x, factor.y, factor.z, factor.w};
    const float b[4] = {bias.x, bias.y, bias.z, bias.w};
    int32_t dot[4];
#pragma unroll
    for (int r = 0; r < 4; r++) {
        dot[r] = p.at.part + parts[r] + 4 * count[r];
        v[r] = OUT == XN_INT32
                   ? __int_as_float(dot[r])
                   : fmaf((__int_as_float(dot[r]) - __int_as_float(MAGIC)) * p.k, f[r], b[r]);
    }
    if (!p.safe)
#pragma unroll
        for (int r = 0; r < 4; r++)
            v[r] = xn_cuda_epilogue(dot[r] - MAGIC, f[r], p.k, b[r]);
}

/* 4-byte outputs straight from the registers: 8 lanes store 8 neighbouring pixels, 32 bytes. */
template <int NT, int OUT>
__device__ __forceinline__ void write_wide(const wide_args &a, const wide_block &b,
                                           const wide_pixel *pixels, const float *k,
                                           const wide_outputs &o, const int32_t (&counts)[NT / 2]) {
    const int32_t t = threadIdx.x & 3;
    const int64_t plane = (int64_t)a.conv.out_height * a.conv.out_width;
    const int32_t m = o.m0 + o.column + 8 * t;
    int32_t left = a.conv.group_out_channels - m;
    real_pixel p[2];
    float *to[2];
#pragma unroll
    for (int h = 0; h < 2; h++) {
        p[h] = load_pixel<OUT>(a, b, pixels + h * 8, k + h * 8);
        to[h] = (float *)a.output + p[h].at.base +
                ((int64_t)o.group * a.conv.group_out_channels + m) * plane;
    }
    const int32_t *column = b.table + o.column + 8 * t;
#pragma unroll
    for (int q = 0; q < NT / 16; q++) { /* four filters of each 8 */
        float4 factor = {}, bias = {};
        if (OUT != XN_INT32) {
            factor = *(const float4 *)(b.factor + o.column + 8 * t + q / 2 * 32 + q % 2 * 4);
            bias = *(const float4 *)(b.bias + o.column + 8 * t + q / 2 * 32 + q % 2 * 4);
        }
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const int4 part = *(const int4 *)(column + p[h].at.row + q / 2 * 32 + q % 2 * 4);
            float v[4];
            four_outputs<OUT>(part, &counts[q * 8 + h * 2], p[h], factor, bias, v);
            float *next = to[h];
            if (p[h].at.base >= 0 && left >= 4) {
#pragma unroll
                for (int r = 0; r < 4; r++, next += plane)
                    *next = v[r];
            } else if (p[h].at.base >= 0) {
#pragma unroll
                for (int r = 0; r < 3; r++, next += plane)
                    if (r < left)
                        *next = v[r];
            }
            to[h] += (q % 2 ? 28 : 4) * plane;
        }
        left -= q % 2 ? 28 : 4;
    }
}

/* Where pixel half h of column n of 32 lies in a warp's turned 1 KB, such that the 8 columns that
 * are written at once lie in different banks. */
__device__ __forceinline__ uint32_t turned_at(int32_t n, int32_t h) {
    return (uint32_t)(n * 32 + ((h ^ (n >> 2 & 1)) << 4));
}

/* The filter of column n, of 32. */
__device__ __forceinline__ int32_t filter_of_column(int32_t n) {
    return (n >> 1 & 3) * 8 + (n >> 3) * 2 + (n & 1);
}

/* Turned outputs of 32 filters by 16 pixels to memory, a lane 8 pixels (or twice 4) at a time. */
__device__ __forceinline__ void store_vectors(const wide_args &a, const char *turn,
                                              const int64_t (&base)[2], __half *output,
                                              int64_t plane, int32_t left) {
    const int32_t lane = threadIdx.x & 31, h = lane & 1;
#pragma unroll
    for (int u = 0; u < 2; u++) {
        const int32_t n = lane / 2 + u * 16, filter = filter_of_column(n);
        const uint4 v = *(const uint4 *)(turn + turned_at(n, h));
        __half *to = output + filter * plane;
        if (filter < left && a.vector == 8) {
            if (base[0] >= 0)
                *(uint4 *)(to + base[0]) = v;
        } else if (filter < left) {
            if (base[0] >= 0)
                *(uint2 *)(to + base[0]) = make_uint2(v.x, v.y);
            if (base[1] >= 0)
                *(uint2 *)(to + base[1]) = make_uint2(v.z, v.w);
        }
    }
}

/* The same one pixel at a time, where neighbours of the raster need not be in memory. */
__device__ __forceinline__ void store_single(const char *turn, int64_t base, __half *output,
                                             int64_t plane, int32_t left) {
    const int32_t lane = threadIdx.x & 31, pixel = lane & 15;
#pragma unroll 8
    for (int u = 0; u < 16; u++) {
        const int32_t n = u * 2 + lane / 16, filter = filter_of_column(n);
        const __half v = *(const __half *)(turn + turned_at(n, pixel >> 3) + (pixel & 7) * 2);
        if (base >= 0 && filter < left)
            output[filter * plane + base] = v;
    }
}

__device__ __forceinline__ uint32_t half_pair(float low, float high) {
    const __half2 pair = __floats2half2_rn(low, high);
    return *(const uint32_t *)&pair;
}

/* fp16: 32 filters at a time are turned in shared memory, so that pixels are neighbours. */
template <int NT>
__device__ __forceinline__ void write_half(const wide_args &a, const wide_block &b,
                                           const wide_worker &w, const wide_pixel *warp_pixels,
                                           const float *warp_k, const wide_outputs &o,
                                           const int32_t (&counts)[NT / 2]) {
    const int32_t lane = threadIdx.x & 31, t = lane & 3, g = lane >> 2;
    const int64_t plane = (int64_t)a.conv.out_height * a.conv.out_width;
    const uint32_t turn = xn_shared_address(w.turn);
    __half *output = (__half *)a.output +
                     ((int64_t)o.group * a.conv.group_out_channels + o.m0 + o.column) * plane;
    real_pixel p[2];
#pragma unroll
    for (int h = 0; h < 2; h++)
        p[h] = load_pixel<XN_FP16>(a, b, warp_pixels + g + h * 8, warp_k + g + h * 8);
    const bool vectors = a.vector > 1;
    const int64_t base[2] = {warp_pixels[vectors ? (lane & 1) * 8 : lane & 15].base,
                             warp_pixels[(lane & 1) * 8 + 4].base};
#pragma unroll
    for (int word = 0; word < NT / 32; word++) {
#pragma unroll
        for (int q = word * 2; q < word * 2 + 2; q++) {
            const int32_t column = o.column + 8 * t + word * 32 + q % 2 * 4;
            const float4 factor = *(const float4 *)(b.factor + column);
            const float4 bias = *(const float4 *)(b.bias + column);
            uint32_t pairs[4];
#pragma unroll
            for (int h = 0; h < 2; h++) {
                const int4 part = *(const int4 *)(b.table + p[h].at.row + column);
                float v[4];
                four_outputs<XN_FP16>(part, &counts[q * 8 + h * 2], p[h], factor, bias, v);
                pairs[h] = half_pair(v[0], v[1]);
                pairs[2 + h] = half_pair(v[2], v[3]);
            }
            const int32_t n = q % 2 * 16 + (lane >> 4) * 8 + (lane & 7);
            xn_store_turned(turn + turned_at(n, lane >> 3 & 1), pairs);
        }
        __syncwarp();
        const int32_t left = a.conv.group_out_channels - o.m0 - o.column - word * 32;
        if (vectors)
            store_vectors(a, w.turn, base, output + word * 32 * plane, plane, left);
        else
            store_single(w.turn, base[0], output + word * 32 * plane, plane, left);
        __syncwarp();
    }
}

template <int NT, int OUT>
__device__ __forceinline__ void
write_outputs(const wide_args &a, const wide_block &b, const wide_worker &w, int32_t subtile,
              const wide_outputs &o, const int32_t (&counts)[NT / 2]) {
    const int32_t own = subtile * SUB + w.thread / 32 * 16, g = w.thread % 32 / 4;
    if constexpr (OUT == XN_CUDA_WIDE_PACKED)
        write_packed<NT>(a, b, w.pixels + own + g, o, counts);
    else if constexpr (OUT == XN_FP16)
        write_half<NT>(a, b, w, w.pixels + own, w.k + own, o, counts);
    else
        write_wide<NT, OUT>(a, b, w.pixels + own + g, w.k + own + g, o, counts);
}

#endif
#endif
