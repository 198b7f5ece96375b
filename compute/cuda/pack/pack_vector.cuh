/* pack_vector.cuh: what a thread of pack.cu does on its own: V neighbouring pixels of C channels,
 * as C loads of V elements, all in flight at once, then C bits and a sum of C magnitudes a pixel.
 *
 * The arithmetic is most of pack.cu's time where the input comes from the L2 cache, so fp16
 * compares two elements an instruction. A bit is v >= 0 (+0 and -0 alike, NaN not), which needs the
 * comparison and not only the sign. */
#ifndef XN_CUDA_PACK_VECTOR_CUH
#define XN_CUDA_PACK_VECTOR_CUH

#include "epilogue.cuh"

#include <type_traits>

/* BYTES of memory in words. */
template <int BYTES>
struct raw_vector {
    uint32_t word[BYTES < 4 ? 1 : BYTES / 4];

    __device__ __forceinline__ void load(const char *from) {
        if constexpr (BYTES >= 4)
            xn_load_words((const uint32_t *)from, word);
        else if constexpr (BYTES == 2)
            word[0] = *(const uint16_t *)from;
        else
            word[0] = *(const uint8_t *)from;
    }
};

/* C of them, `plane` bytes apart; zeros in the place of channels that there are not. */
template <int BYTES, int C>
__device__ __forceinline__ void load_vectors(const char *from, int64_t plane, int32_t channels,
                                             raw_vector<BYTES> (&raw)[C]) {
    if (channels >= C) {
#pragma unroll
        for (int i = 0; i < C; i++, from += plane)
            raw[i].load(from);
        return;
    }
#pragma unroll
    for (int i = 0; i < C; i++, from += plane) {
        raw[i] = {};
        if (i < channels)
            raw[i].load(from);
    }
}

/* The bits of V pixels, one pixel after the other, C each. */
template <int V, int C>
struct pixel_bits {
    enum { WORDS = (V * C + 31) / 32 };
    uint32_t word[WORDS];

    /* Clears those of channels that there are not. */
    __device__ __forceinline__ void clear_from(int32_t channels) {
        const uint32_t all = 0xffffffffu >> (32 - C);
        const uint32_t low = channels <= 0 ? 0 : all >> (C - channels);
        const uint32_t mask = low * (C == 8 ? 0x01010101u : C == 16 ? 0x00010001u : 1u);
#pragma unroll
        for (int q = 0; q < WORDS; q++)
            word[q] &= mask;
    }

    __device__ __forceinline__ void store(unsigned char *to) const {
        if constexpr (V * C == 64)
            *(uint2 *)to = make_uint2(word[0], word[1]);
        else if constexpr (V * C == 32)
            *(uint32_t *)to = word[0];
        else
            *(uint16_t *)to = (uint16_t)word[0];
    }
};

/* ---- an element at a time ---- */

template <typename T>
__device__ __forceinline__ float real_at(const uint32_t *word, int j) {
    constexpr int SIZE = sizeof(T), EACH = 4 / SIZE; /* of a word */
    const uint32_t bits = word[j / EACH] >> j % EACH * SIZE * 8;
    T v;
    memcpy(&v, &bits, SIZE);
    return xn_to_fp32(v);
}

template <typename T, int V, int C>
__device__ __forceinline__ void real_bits(const raw_vector<V *(int)sizeof(T)> (&raw)[C],
                                          pixel_bits<V, C> *bits) {
    *bits = {};
#pragma unroll
    for (int i = 0; i < C; i++)
#pragma unroll
        for (int j = 0; j < V; j++)
            if (real_at<T>(raw[i].word, j) >= 0.0f)
                bits->word[(j * C + i) / 32] |= 1u << (j * C + i) % 32;
}

/* Fours of octets (epilogue.cuh): C is 8, 16 or 32. */
template <typename T, int V, int C>
__device__ __forceinline__ void real_sums(const raw_vector<V *(int)sizeof(T)> (&raw)[C],
                                          float (&sums)[V]) {
#pragma unroll
    for (int j = 0; j < V; j++)
        sums[j] = xn_fours<C / XN_OCTET>([&](int octet) {
            float v[XN_OCTET];
#pragma unroll
            for (int i = 0; i < XN_OCTET; i++)
                v[i] = real_at<T>(raw[octet * XN_OCTET + i].word, j);
            return xn_octet_sum(v);
        });
}

/* ---- FP16: the bits of two elements an instruction ---- */

/* Ones in the half of each that is not negative. */
__device__ __forceinline__ uint32_t half_masks(uint32_t pair) {
    return __hge2_mask(*(const __half2 *)&pair, __half2half2(__ushort_as_half(0)));
}

/* Two neighbouring pixels a word; of a single one the channels i and i + C / 2. */
template <int V, int C>
__device__ __forceinline__ void half_bits(const raw_vector<V * 2> (&raw)[C],
                                          pixel_bits<V, C> *bits) {
    *bits = {};
    if constexpr (V == 1) {
        static_assert(C == 32, "half a word of channels a half");
#pragma unroll
        for (int i = 0; i < C / 2; i++)
            bits->word[0] |=
                half_masks(xn_permute(raw[i].word[0], raw[i + C / 2].word[0], 0x5410)) & 0x00010001u
                                                                                             << i;
        return;
    }
    uint32_t pair[(V + 1) / 2] = {};
#pragma unroll
    for (int i = 0; i < C; i++)
#pragma unroll
        for (int j = 0; j < V / 2; j++)
            pair[j] |= half_masks(raw[i].word[j]) & 0x00010001u << i;
#pragma unroll
    for (int q = 0; q < pixel_bits<V, C>::WORDS; q++)
        bits->word[q] = C == 16 ? pair[q] : xn_permute(pair[q], 0, 0x4420);
}

/* ---- any ---- */

template <typename T, int V, int C>
__device__ __forceinline__ void make_bits(const raw_vector<V *(int)sizeof(T)> (&raw)[C],
                                          pixel_bits<V, C> *bits) {
    if constexpr (std::is_same_v<T, __half>)
        half_bits<V, C>(raw, bits);
    else
        real_bits<T, V, C>(raw, bits);
}

/* Of `channels` channels, which may be less than C. */
template <typename T, int V, int C>
__device__ __forceinline__ void make_sums(const raw_vector<V *(int)sizeof(T)> (&raw)[C],
                                          int32_t channels, float (&sums)[V]) {
    if constexpr (std::is_same_v<T, xn_bool_byte>) /* a sign's magnitude is 1 */
#pragma unroll
        for (int j = 0; j < V; j++)
            sums[j] = (float)max(min(channels, C), 0);
    else
        real_sums<T, V, C>(raw, sums);
}

template <int V>
__device__ __forceinline__ void store_sums(float *to, const float (&sums)[V]) {
    if constexpr (V == 4)
        *(float4 *)to = make_float4(sums[0], sums[1], sums[2], sums[3]);
    else if constexpr (V == 2)
        *(float2 *)to = make_float2(sums[0], sums[1]);
    else
        *to = sums[0];
}

/* Whether finite magnitudes may have an infinite sum in fp32. */
template <typename T>
__device__ constexpr bool sums_overflow() {
    return std::is_same_v<T, float> || std::is_same_v<T, xn_bf16_bits>;
}

#endif
