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

/* dot from the number of positions where the signs differ, among `taps` counted positions:
 * each agreement adds 1, each difference subtracts 1. */
XN_HD int32_t xn_dot_from_xor(int32_t taps, int32_t popc_xor) {
    return taps - 2 * popc_xor;
}

/* The same from AND: popc(a xor w) = popc(a) + popc(w) - 2 popc(a and w). popc_a and popc_w count
 * only the `taps` positions. */
XN_HD int32_t xn_dot_from_and(int32_t taps, int32_t popc_a, int32_t popc_w, int32_t popc_and) {
    return taps - 2 * popc_a - 2 * popc_w + 4 * popc_and;
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

/* The epilogue of one output element, in fp32: acc * factor [* k] + bias. factor is 1 for scaling
 * none, k is used by scaling xnor of mode xnor only. The compiler must not contract it across
 * hosts in a way that matters: any order is within the 1e-5 of the specification. */
XN_HD float xn_epilogue_value(float acc, float factor, float k, float bias) {
    return acc * factor * k + bias;
}

#endif
