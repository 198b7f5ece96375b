/* xn_arith.h: the arithmetic that every backend shares, as inline functions that compile as C, C++
 * and CUDA device code. One definition of sign, of the dot-product identity and of the epilogue. */
#ifndef XN_ARITH_H
#define XN_ARITH_H

#include "xn_conv.h"

#include <stdint.h>

#ifdef __CUDACC__
#define XN_HD __host__ __device__ __forceinline__
#else
#define XN_HD static inline
#endif

/* 1 for +1, 0 for -1. v >= 0 is false for NaN and true for -0.0. */
XN_HD uint32_t xn_sign_bit(float v) {
    return v >= 0.0f ? 1u : 0u;
}

/* BOOL where it is a sign: an input of mode xnor, and weights. */
XN_HD float xn_bool_sign(uint8_t byte) {
    return byte ? 1.0f : -1.0f;
}

/* Words of a pixel in packed tensors, 32 channels of a group to a word, on every backend: 1, 2 or a
 * multiple of 4, so that a pixel is copied in units of 4, 8 or 16 bytes. */
XN_HD int32_t xn_packed_words(int32_t group_channels) {
    int32_t words = (group_channels - 1) / 32 + 1;
    return words <= 2 ? words : (words + 3) / 4 * 4;
}

/* The tap range [*first, *last) of one axis that falls inside the image: input index of tap i is
 * start + i*dilation, 0 <= index < size. start = out*stride - pad, may be negative. Rounded up as
 * (n - 1) / d + 1: n + d - 1 could pass 2^31 for sizes that xn_conv_resolve accepts. */
XN_HD void xn_valid_taps(int32_t start, int32_t dilation, int32_t kernel, int32_t size,
                         int32_t *first, int32_t *last) {
    int32_t lo = start >= 0 ? 0 : (-start - 1) / dilation + 1;
    int32_t room = size - start; /* taps with i*dilation < room are inside */
    int32_t hi = room <= 0 ? 0 : (room - 1) / dilation + 1;
    if (hi > kernel)
        hi = kernel;
    if (lo > hi)
        lo = hi;
    *first = lo;
    *last = hi;
}

/* The bits of dots in [-most, most] where they are a monotone function of the dot, which a sign of
 * dot * factor + bias + shift is in fp32 as well: bit(dot) = (dot >= least) ^ flip. bit is asked
 * for some of them only: the very expression that would be computed for an output decides, not a
 * division. */
typedef struct xn_threshold {
    int32_t least;
    uint32_t flip;
} xn_threshold;

XN_HD xn_threshold xn_threshold_of(int32_t most, uint32_t (*bit)(const void *context, int32_t dot),
                                   const void *context) {
    const uint32_t lowest = bit(context, -most);
    xn_threshold found = {-most, lowest ^ 1u};
    int32_t low = -most, high = most;
    if (lowest == bit(context, most))
        return found; /* all alike */
    while (high - low > 1) {
        const int32_t middle = low + (high - low) / 2;
        if (bit(context, middle) == lowest)
            low = middle;
        else
            high = middle;
    }
    found.least = high;
    found.flip = lowest;
    return found;
}

/* The linear part of xn_epilogue.h for one element: acc * factor [* k] + bias, each operation
 * rounded once, in this order. factor and k are 1 where there is none. */
XN_HD float xn_epilogue_value(float acc, float factor, float k, float bias) {
    return acc * factor * k + bias;
}

#endif
