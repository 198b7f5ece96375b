/* epilogue.cuh: from an accumulator to memory, for all kernels: K, the epilogue of xn_epilogue.h,
 * stores. What is written here is what makes an answer the same bit for bit whatever kernel, cut
 * and batch it comes from: each kernel calls these functions, or does the very same operations.
 *
 * K. Magnitudes are summed in fp32 in one order, over the channels of a group, then over the taps
 * of a window. `Fours` of terms t[0..n), the missing ones of the last four taken as 0:
 *
 *   fours(t) = ((t0 + t1) + (t2 + t3)) + ((t4 + t5) + (t6 + t7)) + ...        left to right
 *
 *   octet  o    the magnitudes of 8 channels, one after the other, from the first
 *   word   w    32 channels: fours of its octets
 *   panel  p    1024 channels: fours of its words
 *   sum    s    the only panel, or all panels' sums in double, rounded once
 *   mean   m    s * (1 / channels)
 *   row         fours of the means of a kernel row's taps, left to right; outside the image 0
 *   box    B    ((row 0 + row 1) + row 2) + ...                               top to bottom
 *
 * A panel that is infinite though no magnitude in it is, is summed in double, channels in order. A
 * mean with such a panel, or with several panels, is (float)(sum * (1.0 / channels)), in double. A
 * box that is infinite though no mean is, is summed in double, in the same order.
 *
 * Epilogue. K is B / taps, and never rounded by itself: the filter's factor has the 1 / taps.
 *
 *   f = factor * (1 / taps)       v = fma(acc * B, f, bias)         with K
 *   f = factor                    v = fma(acc, f, bias)             without: B is 1
 *
 * Where that is not finite, or f is less than the least normal number, fp32 may have overflowed or
 * lost bits on the way to a result that it holds: v is then fma(acc * B, factor * (1 / taps), bias)
 * in double, rounded once. Then come the residual and the activation, each an operation of fp32. */
#ifndef XN_CUDA_EPILOGUE_CUH
#define XN_CUDA_EPILOGUE_CUH

#include "element.cuh"
#include "kernel.h"
#include "ptx.cuh"

enum { XN_OCTET = 8, XN_PANEL = 1024 /* channels */ };

/* ---- K ---- */

/* Fours of at(0), ..., at(N - 1), in float or double. */
template <int N, typename Sum = float, class At>
__device__ __forceinline__ Sum xn_fours(At at) {
    Sum sum = 0;
#pragma unroll
    for (int n = 0; n < N; n += 4) {
        Sum four = at(n);
        if (n + 1 < N)
            four += at(n + 1);
        if (n + 3 < N)
            four += (Sum)at(n + 2) + (Sum)at(n + 3);
        else if (n + 2 < N)
            four += at(n + 2);
        sum = n ? sum + four : four;
    }
    return sum;
}

/* The same of as many as the caller knows at run time; 0 of none. */
template <typename Sum = float, class At>
__device__ __forceinline__ Sum xn_fours_of(int32_t count, At at) {
    Sum sum = 0;
    int32_t n = 0;
#pragma unroll 1
    for (; n + 3 < count; n += 4)
        sum += ((Sum)at(n) + (Sum)at(n + 1)) + ((Sum)at(n + 2) + (Sum)at(n + 3));
    if (count - n == 3) /* loads side by side, as above */
        sum += ((Sum)at(n) + (Sum)at(n + 1)) + (Sum)at(n + 2);
    else if (count - n == 2)
        sum += (Sum)at(n) + (Sum)at(n + 1);
    else if (count - n == 1)
        sum += (Sum)at(n);
    return sum;
}

/* The sum of an octet's magnitudes; those of channels that there are not are 0. */
__device__ __forceinline__ float xn_octet_sum(const float (&v)[XN_OCTET]) {
    float sum = fabsf(v[0]);
#pragma unroll
    for (int n = 1; n < XN_OCTET; n++)
        sum += fabsf(v[n]);
    return sum;
}

/* The mean of `channels` magnitudes from their sum, given 1.0f / channels, or 1.0 / channels. */
__device__ __forceinline__ float xn_mean(float sum, float reciprocal) {
    return __fmul_rn(sum, reciprocal); /* no fma with what it is added to */
}
__device__ __forceinline__ float xn_mean_again(double sum, double reciprocal) {
    return (float)(sum * reciprocal);
}

/* A box; at(i, j) is the mean of tap (i, j), 0 outside the image. */
template <int KH, int KW, typename Sum = float, class At>
__device__ __forceinline__ Sum xn_box(At at) {
    Sum box = 0;
#pragma unroll
    for (int i = 0; i < KH; i++) {
        const Sum row = xn_fours<KW, Sum>([&](int j) { return at(i, j); });
        box = i ? box + row : row;
    }
    return box;
}
template <typename Sum = float, class At>
__device__ __forceinline__ Sum xn_box_of(int32_t kernel_h, int32_t kernel_w, At at) {
    Sum box = 0;
#pragma unroll 1
    for (int32_t i = 0; i < kernel_h; i++)
        box += xn_fours_of<Sum>(kernel_w, [&](int32_t j) { return at(i, j); });
    return box;
}

/* The box of an output from the means of its plane, image and group, in memory. */
template <typename Sum>
__device__ __forceinline__ Sum xn_box_of_means(const xn_conv &c, const float *means, int32_t out_y,
                                               int32_t out_x) {
    const int32_t y0 = out_y * c.stride_h - c.pad_top, x0 = out_x * c.stride_w - c.pad_left;
    return xn_box_of<Sum>(c.kernel_h, c.kernel_w, [&](int32_t i, int32_t j) {
        const int32_t y = y0 + i * c.dilation_h, x = x0 + j * c.dilation_w;
        const bool inside = (uint32_t)y < (uint32_t)c.height && (uint32_t)x < (uint32_t)c.width;
        return inside ? __ldg(means + (int64_t)y * c.width + x) : 0.0f;
    });
}

/* ---- the value ---- */

/* What a launcher hands to its kernel: the pointers it was given, with what the problem says. */
static inline xn_epilogue_args xn_epilogue_of(const xn_conv *conv, const xn_epilogue_args *given) {
    xn_epilogue_args e = *given;
    e.what = conv->epilogue;
    e.unit = conv->epilogue.k ? 1.0f / (float)(conv->kernel_h * conv->kernel_w) : 1.0f;
    return e;
}

/* Per-filter constants; a null array stands for 1 (factor) or 0 (the others). */
XN_HD float xn_factor_of(const float *factor, int64_t o) {
    return factor ? xn_read_only(factor + o) : 1.0f;
}
XN_HD float xn_bias_of(const float *bias, int64_t o) {
    return bias ? xn_read_only(bias + o) : 0.0f;
}

/* f and bias of a filter. Where f is too small for fp32 it is NaN here, so that v is not finite. */
struct xn_filter {
    float factor, bias;
};

XN_HD xn_filter xn_filter_from(const xn_epilogue_args &e, float factor, float bias) {
    xn_filter f = {factor * e.unit, bias};
    if (e.unit != 1.0f && factor != 0.0f && fabsf(f.factor) < 0x1p-126f)
        f.factor = NAN;
    return f;
}
XN_HD xn_filter xn_filter_of(const xn_epilogue_args &e, int64_t o) {
    return xn_filter_from(e, xn_factor_of(e.factor, o), xn_bias_of(e.bias, o));
}

/* v in fp32; where it is not finite the caller takes xn_value_again instead. */
XN_HD float xn_value(float acc, float box, const xn_filter &f) {
    return fmaf(acc * box, f.factor, f.bias);
}

/* v in double; box, too, where fp32 has no finite sum of it. */
XN_HD float xn_value_again(const xn_epilogue_args &e, int64_t o, double acc, double box) {
    return (float)fma(acc * box, (double)xn_factor_of(e.factor, o) * (double)e.unit,
                      (double)xn_bias_of(e.bias, o));
}

/* Both. again() gives the box in double, or anything without K. */
template <class Again>
__device__ __forceinline__ float xn_value_or_again(const xn_epilogue_args &e, const xn_filter &f,
                                                   int64_t o, float acc, float box, Again again) {
    const float v = xn_value(acc, box, f);
    if (isfinite(v))
        return v;
    return xn_value_again(e, o, acc, isinf(box) ? again() : (double)box);
}

/* ---- what comes after it: only where the epilogue is not plain ---- */

XN_HD float xn_activate(const xn_epilogue_args &e, int64_t o, float v) {
    if (e.what.activation == XN_ACTIVATION_PRELU && !(v >= 0.0f))
        v *= xn_read_only(e.slope + o);
    if (e.what.activation == XN_ACTIVATION_CLIP) {
        v = v < e.what.low ? e.what.low : v; /* NaN stays */
        v = v > e.what.high ? e.what.high : v;
    }
    return v;
}

/* The same of a filter's outputs, many, whichever the activation is. */
struct xn_activation_of_filter {
    float slope, low, high;

    XN_HD xn_activation_of_filter(const xn_epilogue_args &e, int64_t o) {
        const bool clips = e.what.activation == XN_ACTIVATION_CLIP;
        slope = e.what.activation == XN_ACTIVATION_PRELU ? xn_read_only(e.slope + o) : 1.0f;
        low = clips ? e.what.low : -INFINITY;
        high = clips ? e.what.high : INFINITY;
    }
    XN_HD float operator()(float v) const {
        v = v >= 0.0f ? v : v * slope;
        v = v < low ? low : v;
        return v > high ? high : v;
    }
};

/* Where an output lies, or its residual, when that is part of a tensor. */
XN_HD int64_t xn_part_index(const xn_epilogue_args &e, int64_t index, int32_t gap) {
    return gap ? index + (int64_t)xn_divide((int32_t)index, e.image) * gap : index;
}

/* The residual at a place of its memory. */
XN_HD float xn_residual_at(const xn_epilogue_args &e, int64_t index) {
    return e.residual_fp16 ? __half2float(((const __half *)e.residual)[index])
                           : ((const float *)e.residual)[index];
}

/* y of filter o from its v; index: of the output. */
XN_HD float xn_finish(const xn_epilogue_args &e, int64_t o, int64_t index, float v) {
    if (e.what.residual)
        v += xn_residual_at(e, xn_part_index(e, index, e.residual_gap));
    return xn_activate(e, o, v);
}

/* The bit of y. */
XN_HD uint32_t xn_output_bit(const xn_epilogue_args &e, int64_t o, float y) {
    return xn_sign_bit(e.what.shift ? y + xn_read_only(e.shift + o) : y);
}

/* ---- stores ---- */

XN_HD uint32_t xn_fp16_pair(float low, float high) {
    const __half2 pair = __floats2half2_rn(low, high);
    uint32_t word;
    memcpy(&word, &pair, sizeof word);
    return word;
}

/* N words, at an address aligned to all of them, or to 16 bytes. */
template <int N>
XN_HD void xn_store_words(void *to, const uint32_t (&word)[N]) {
#ifndef __CUDA_ARCH__
    memcpy(to, word, sizeof word);
#else
    if constexpr (N >= 4) {
        XN_UNROLL
        for (int n = 0; n < N; n += 4)
            ((uint4 *)to)[n / 4] = make_uint4(word[n], word[n + 1], word[n + 2], word[n + 3]);
    } else if constexpr (N == 2) {
        *(uint2 *)to = make_uint2(word[0], word[1]);
    } else {
        *(uint32_t *)to = word[0];
    }
#endif
}

/* The first of values v as a word of memory that has T. */
XN_HD uint32_t xn_word_of(const float *, const float *v) {
    return xn_bits_of_fp32(*v);
}
XN_HD uint32_t xn_word_of(const int32_t *, const int32_t *v) {
    return (uint32_t)*v;
}
XN_HD uint32_t xn_word_of(const __half *, const float *v) {
    return xn_fp16_pair(v[0], v[1]);
}
template <int N, typename T, typename Value>
XN_HD void xn_words_of(const T *to, const Value *v, uint32_t (&word)[N]) {
    XN_UNROLL
    for (int n = 0; n < N; n++)
        word[n] = xn_word_of(to, v + n * (4 / sizeof(T)));
}

/* V neighbours, 1, 2, 4 or 8, from an address aligned to all of them or to 16 bytes. */
template <typename T, typename Value, int V>
XN_HD void xn_store(T *to, const Value (&v)[V]) {
    if constexpr (sizeof(T) * V < 4) {
        *to = __float2half_rn(v[0]);
    } else {
        uint32_t word[sizeof(T) * V / 4];
        xn_words_of(to, v, word);
        xn_store_words(to, word);
    }
}

/* The same, when `valid`, without a branch where they are 16 bytes, or 8 of fp16. */
template <typename T, typename Value, int V>
__device__ __forceinline__ void xn_store_if(T *to, const Value (&v)[V], bool valid) {
    if constexpr (sizeof(T) * V == 16 || (sizeof(T) == 2 && V == 4)) {
        uint32_t word[sizeof(T) * V / 4];
        xn_words_of(to, v, word);
        xn_store_words_if(to, word, valid);
    } else if (valid) {
        xn_store(to, v);
    }
}

/* V real outputs from `index` on, of the epilogue's datatype, FP32 or FP16. */
template <int V>
XN_HD void xn_store_reals(const xn_epilogue_args &e, int64_t index, const float (&v)[V]) {
    if (e.what.datatype == XN_FP16)
        xn_store((__half *)e.output + index, v);
    else
        xn_store((float *)e.output + index, v);
}

/* V outputs of filter o from their v, whatever the epilogue is; V bits come back where it wants
 * some. Of INT32 the accumulators are stored by xn_store. */
template <int V>
XN_HD uint32_t xn_finish_and_store(const xn_epilogue_args &e, int64_t o, int64_t index,
                                   float (&v)[V]) {
    uint32_t bits = 0;
    if (!xn_is_plain(e.what)) {
        XN_UNROLL
        for (int n = 0; n < V; n++) {
            v[n] = xn_finish(e, o, index + n, v[n]);
            bits |= xn_output_bit(e, o, v[n]) << n;
        }
    }
    if (e.what.datatype != XN_BITS)
        xn_store_reals(e, xn_part_index(e, index, e.output_gap), v);
    return bits;
}

/* V neighbours of the residual, 1, 4 or 8, as they lie in memory, which is aligned to all of them
 * or to 16 bytes. Loaded ahead of what they are added to. */
template <bool FP16, int V>
struct xn_residual_run {
    enum { WORDS = FP16 ? (V + 1) / 2 : V };
    uint32_t word[WORDS];

    /* `from`: where the first lies; without a branch, and 0 where it is not `live`. */
    __device__ __forceinline__ void load(const void *from, bool live) {
#pragma unroll
        for (int n = 0; n < WORDS; n++)
            word[n] = 0;
        xn_load_if<(FP16 ? 2 : 4) * V>(word, from, live);
    }
    __device__ __forceinline__ float at(int n) const {
        if (!FP16)
            return __uint_as_float(word[n]);
        return __half2float(__ushort_as_half((uint16_t)(word[n / 2] >> n % 2 * 16)));
    }
};

/* The same of the datatype that it has, where that is not known before. 1 or 4. */
template <int V>
struct xn_residual_vector {
    uint32_t word[V];

    /* index: of the output. */
    __device__ __forceinline__ void load(const xn_epilogue_args &e, int64_t index, bool live) {
        const int64_t at = xn_part_index(e, index, e.residual_gap);
#pragma unroll
        for (int n = 0; n < V; n++)
            word[n] = 0;
        if (e.residual_fp16)
            xn_load_if<2 * V>(word, (const __half *)e.residual + at, live);
        else
            xn_load_if<4 * V>(word, (const float *)e.residual + at, live);
    }
    __device__ __forceinline__ float at(const xn_epilogue_args &e, int n) const {
        if (!e.residual_fp16)
            return __uint_as_float(word[n]);
        return __half2float(__ushort_as_half((uint16_t)(word[n / 2] >> n % 2 * 16)));
    }
};

/* V real outputs of filter o from their values v, which they take the place of; index: of the
 * first, residual: theirs. */
template <int V>
__device__ __forceinline__ void
xn_finish_vector(const xn_epilogue_args &e, int64_t o, int64_t index,
                 const xn_residual_vector<V> &residual, float (&v)[V]) {
    if (e.what.residual)
#pragma unroll
        for (int n = 0; n < V; n++)
            v[n] += residual.at(e, n);
    if (e.what.activation != XN_ACTIVATION_NONE) {
        const xn_activation_of_filter activate(e, o);
#pragma unroll
        for (int n = 0; n < V; n++)
            v[n] = activate(v[n]);
    }
    if (e.what.datatype != XN_BITS)
        xn_store_reals(e, xn_part_index(e, index, e.output_gap), v);
}

/* Whether the residual can be loaded by V, from outputs that are multiples of V. */
static inline bool xn_residual_has_vectors(const xn_epilogue_args &e, int32_t v) {
    return !e.what.residual ||
           (e.residual_gap % v == 0 &&
            (uintptr_t)e.residual % ((e.residual_fp16 ? 2 : 4) * (size_t)v) == 0);
}

/* The bits of filters [o, o + 16) of a pixel (of all images), where xn_has_half_words. */
__device__ __forceinline__ void xn_store_half_word(const xn_epilogue_args &e, int32_t out_channels,
                                                   int64_t pixel, int32_t o, uint32_t bits) {
    ((uint16_t *)e.bits)[pixel * (out_channels / 16) + o / 16] = (uint16_t)bits;
}

/* Sets bits [o, o + 32) of a pixel (of all images), those that `bits` has. For kernels whose
 * threads do not have whole words: their launchers clear the bits first (xn_clear_bits). */
__device__ __forceinline__ void xn_add_bits(const xn_epilogue_args &e, int32_t out_channels,
                                            int64_t pixel, int32_t o, uint32_t bits) {
    uint32_t *word = e.bits + pixel * xn_packed_words(out_channels) + o / 32;
    if (bits << o % 32)
        atomicOr(word, bits << o % 32);
    if (o % 32 && bits >> (32 - o % 32))
        atomicOr(word + 1, bits >> (32 - o % 32));
}

static inline cudaError_t xn_clear_bits(const xn_conv *conv, int64_t images,
                                        const xn_epilogue_args *e, cudaStream_t stream) {
    if (!conv->epilogue.bits)
        return cudaSuccess;
    const size_t words = (size_t)xn_packed_words(conv->out_channels) * (size_t)images *
                         (size_t)conv->out_height * (size_t)conv->out_width;
    return cudaMemsetAsync(e->bits, 0, words * sizeof(uint32_t), stream);
}

#endif
