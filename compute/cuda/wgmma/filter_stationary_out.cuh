/* filter_stationary_out.cuh: from the counts of a subtile, 64 pixels by NT filters in the registers
 * of a warpgroup, to outputs. A warp has 16 pixels: thread 4g + t has pixels g and g + 8 (h = 0,
 * 1), and of every 32 filters (a word b) the 8 neighbours from 8t on, filter 8t + 2j + e in
 * counts[16b + 4j + 2h + e]. For packed output a warp needs no other. Other outputs are planes of
 * pixels, and memory takes whole lines at several times the rate of the 32 bytes that 8 lanes have
 * at once: the warpgroup turns them in shared memory. */
#ifndef XN_CUDA_FILTER_STATIONARY_OUT_CUH
#define XN_CUDA_FILTER_STATIONARY_OUT_CUH

#include "filter_stationary.cuh"

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

/* A pixel in registers. */
struct real_pixel {
    wide_pixel at;
    float k;
};

template <int OUT>
__device__ __forceinline__ real_pixel load_pixel(const wide_pixel *pixels, const float *k) {
    return {*pixels, OUT == XN_INT32 ? 1.0f : *k};
}

/* Whether no product or sum of the epilogue can overflow at any of a subtile's pixels. All warps of
 * the worker ask for the same pixels, since together they store what each has turned. */
__device__ __forceinline__ bool cannot_overflow(const wide_args &a, const wide_block &b,
                                                const float *k) {
    const float most = (float)(a.conv.group_channels * a.conv.kernel_h * a.conv.kernel_w);
    const float factor = fmaxf(__uint_as_float(b.largest[0]), 1.0f);
    const float bias = __uint_as_float(b.largest[1]); /* NaN: the comparison fails */
    const int32_t lane = threadIdx.x & 31;
    const float most_k = fmaxf(k[lane], k[lane + 32]);
    const bool numbers = !isnan(k[lane]) && !isnan(k[lane + 32]);
    return __all_sync(0xffffffffu, b.largest[0] < 0x7f800000u && numbers &&
                                       most_k * most * factor + bias < 3e38f);
}

/* Four filters of pixel h from `column` on. MAGIC is in the pixel's part for floats. */
template <int OUT, bool SAFE>
__device__ __forceinline__ void four_outputs(const int4 &part, const int32_t *counts,
                                             const real_pixel &p, const float4 &factor,
                                             const float4 &bias, float (&v)[4]) {
    const int32_t parts[4] = {part.x, part.y, part.z, part.w};
    const int32_t count[4] = {counts[0], counts[1], counts[4], counts[5]};
    const float f[4] = {factor.x, factor.y, factor.z, factor.w};
    const float b[4] = {bias.x, bias.y, bias.z, bias.w};
#pragma unroll
    for (int r = 0; r < 4; r++) {
        const float whole = __int_as_float(p.at.part + parts[r] + 4 * count[r]);
        const float dot = whole - __int_as_float(MAGIC);
        v[r] = OUT == XN_INT32 ? whole
               : SAFE          ? fmaf(dot * p.k, f[r], b[r])
                               : xn_scaled_epilogue(dot, p.k, f[r], b[r]);
    }
}

/* The filter, of 32, that column n of the matrix instruction has. */
__device__ __forceinline__ int32_t filter_of_column(int32_t n) {
    return (n >> 1 & 3) * 8 + (n >> 3) * 2 + (n & 1);
}

/* Bytes from column to column of a turned pass: what a warp writes at once lies in different
 * banks. */
template <typename T>
struct turn_pitch {
    enum { BYTES = (SUB + 16 / sizeof(T)) * sizeof(T) };
};

/* Four filters of each of a thread's two pixels into a turned pass. fp16: as 8 x 8 matrices. */
__device__ __forceinline__ void put_turned(const float (&v)[2][4], int32_t own, char *turn,
                                           const __half *) {
    const int32_t lane = threadIdx.x & 31, column = (lane >> 4) * 8 + (lane & 7);
    const uint32_t pairs[4] = {xn_half_pair(v[0][0], v[0][1]), xn_half_pair(v[1][0], v[1][1]),
                               xn_half_pair(v[0][2], v[0][3]), xn_half_pair(v[1][2], v[1][3])};
    xn_store_turned(xn_shared_address(turn) + column * turn_pitch<__half>::BYTES +
                        (own + (lane >> 3 & 1) * 8) * 2,
                    pairs);
}

__device__ __forceinline__ void put_turned(const float (&v)[2][4], int32_t own, char *turn,
                                           const float *) {
    const int32_t lane = threadIdx.x & 31;
    char *to = turn + (lane & 3) * 2 * turn_pitch<float>::BYTES + (own + (lane >> 2)) * 4;
#pragma unroll
    for (int h = 0; h < 2; h++)
#pragma unroll
        for (int r = 0; r < 4; r++)
            *(float *)(to + (r / 2 * 8 + r % 2) * turn_pitch<float>::BYTES + h * 32) = v[h][r];
}

/* A thread stores BYTES of neighbouring pixels of every WORKER / LANES-th column, from
 * the filter of `to` on; `left` filters from there are live. */
template <int BYTES, int LANES, int PITCH>
__device__ __forceinline__ void store_turned(const char *turn, char *to, int64_t plane_bytes,
                                             int32_t left) {
#pragma unroll
    for (int n = 0; n < 16 * LANES / WORKER; n++) {
        const int column = n * (WORKER / LANES); /* more; disjoint bits, so filters add up */
        const int more = (column >> 1 & 3) * 8 + (column >> 3) * 2;
        xn_copy_out<BYTES>(to + more * plane_bytes, turn + column * PITCH, more < left);
    }
}

/* All that is left of a subtile once it is known how many pixels a thread stores at a time. A
 * warpgroup turns 16 filters at a time in shared memory, where pixels become neighbours, and
 * stores them by whole lines. It does so in two places by turns: by the meeting of the next pass
 * all have read the one before. */
template <int NT, int OUT, typename T, int VECTOR, bool SAFE>
__device__ __forceinline__ void write_turned(const wide_args &a, const wide_block &b,
                                             const wide_worker &w, const wide_pixel *pixels,
                                             const real_pixel (&p)[2], const wide_outputs &o,
                                             const int32_t (&counts)[NT / 2]) {
    constexpr int32_t PITCH = turn_pitch<T>::BYTES, SIZE = sizeof(T);
    constexpr int32_t LANES = VECTOR > 1 ? SUB / VECTOR : 32;
    const int64_t plane_bytes = (int64_t)a.conv.out_height * a.conv.out_width * SIZE;
    const int32_t own = w.thread / 32 * 16, first = w.thread % LANES * VECTOR;
    const int32_t filter = filter_of_column(w.thread / LANES), m = o.m0 + o.column;
    const int64_t base = pixels[first].base, next = VECTOR > 1 ? 0 : pixels[first + 32].base;
    char *to = (char *)a.output + base * SIZE +
               (int64_t)(o.group * a.conv.group_out_channels + m + filter) * plane_bytes;
    const char *from = w.turn + w.thread / LANES * PITCH + first * SIZE;
    const int32_t column = o.column + 8 * (w.thread & 3);
#pragma unroll
    for (int q = 0; q < NT / 16; q++) {
        const int32_t at = column + q / 2 * 32 + q % 2 * 4;
        const int32_t left = a.conv.group_out_channels - m - filter - q / 2 * 32 - q % 2 * 4;
        float4 factor = {}, bias = {};
        float v[2][4];
        if (OUT != XN_INT32) {
            factor = *(const float4 *)(b.factor + at);
            bias = *(const float4 *)(b.bias + at);
        }
#pragma unroll
        for (int h = 0; h < 2; h++)
            four_outputs<OUT, SAFE>(*(const int4 *)(b.table + p[h].at.row + at),
                                    &counts[q * 8 + h * 2], p[h], factor, bias, v[h]);
        put_turned(v, own, w.turn + q % 2 * 16 * PITCH, (const T *)nullptr);
        worker_barrier(w);
        char *pass = to + (q / 2 * 32 + q % 2 * 4) * plane_bytes;
        const char *turned = from + q % 2 * 16 * PITCH;
        store_turned<VECTOR * SIZE, LANES, PITCH>(turned, pass, plane_bytes, base >= 0 ? left : 0);
        if (VECTOR == 1)
            store_turned<SIZE, LANES, PITCH>(turned + 32 * SIZE, pass + (next - base) * SIZE,
                                             plane_bytes, next >= 0 ? left : 0);
    }
}

template <int NT, int OUT, typename T>
__device__ __forceinline__ void
write_real(const wide_args &a, const wide_block &b, const wide_worker &w, const wide_pixel *pixels,
           const float *k, const wide_outputs &o, const int32_t (&counts)[NT / 2]) {
    constexpr int32_t MOST = 16 / sizeof(T);
    const int32_t own = w.thread / 32 * 16 + w.thread % 32 / 4;
    const real_pixel p[2] = {load_pixel<OUT>(pixels + own, k + own),
                             load_pixel<OUT>(pixels + own + 8, k + own + 8)};
    if (OUT != XN_INT32 && !cannot_overflow(a, b, k))
        write_turned<NT, OUT, T, 1, false>(a, b, w, pixels, p, o, counts);
    else if (a.vector >= MOST)
        write_turned<NT, OUT, T, MOST, true>(a, b, w, pixels, p, o, counts);
    else if (a.vector >= 4)
        write_turned<NT, OUT, T, 4, true>(a, b, w, pixels, p, o, counts);
    else
        write_turned<NT, OUT, T, 1, true>(a, b, w, pixels, p, o, counts);
}

template <int NT, int OUT>
__device__ __forceinline__ void
write_outputs(const wide_args &a, const wide_block &b, const wide_worker &w, int32_t subtile,
              const wide_outputs &o, const int32_t (&counts)[NT / 2]) {
    const wide_pixel *pixels = w.pixels + subtile * SUB;
    if constexpr (OUT == XN_CUDA_STATIONARY_PACKED)
        write_packed<NT>(a, b, pixels + w.thread / 32 * 16 + w.thread % 32 / 4, o, counts);
    else if constexpr (OUT == XN_FP16)
        write_real<NT, OUT, __half>(a, b, w, pixels, w.k + subtile * SUB, o, counts);
    else
        write_real<NT, OUT, float>(a, b, w, pixels, w.k + subtile * SUB, o, counts);
}

#endif
#endif
