/* element.cuh: one element: the datatypes of inputs, and what is read of them. What is for host and
 * device (XN_HD) is what tests run without a device. */
#ifndef XN_CUDA_ELEMENT_CUH
#define XN_CUDA_ELEMENT_CUH

#include "xn_arith.h"

#include <cuda_fp16.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

struct xn_bf16_bits {
    uint16_t bits;
};
struct xn_bool_byte {
    uint8_t byte;
};

/* The loop behind it unrolled, or not, in code for the device. */
#ifdef __CUDA_ARCH__
#define XN_UNROLL _Pragma("unroll")
#define XN_NO_UNROLL _Pragma("unroll 1")
#else
#define XN_UNROLL
#define XN_NO_UNROLL
#endif

XN_HD float xn_fp32_of_bits(uint32_t bits) {
    float v;
    memcpy(&v, &bits, sizeof v);
    return v;
}
XN_HD uint32_t xn_bits_of_fp32(float v) {
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    return bits;
}

/* V neighbours of 4 bytes from an address aligned to all of them, or to 16 bytes. */
template <int V, typename T>
XN_HD void xn_load_words(const T *from, T (&to)[V]) {
    constexpr int AT_ONCE = V < 4 ? V : 4;
    struct alignas(4 * AT_ONCE) words {
        T word[AT_ONCE];
    };
    XN_UNROLL
    for (int i = 0; i < V; i += AT_ONCE) {
        const words v = *(const words *)(from + i);
        XN_UNROLL
        for (int n = 0; n < AT_ONCE; n++)
            to[i + n] = v.word[n];
    }
}

/* What no kernel writes while this one runs. */
template <typename T>
XN_HD T xn_read_only(const T *from) {
#ifdef __CUDA_ARCH__
    return __ldg(from);
#else
    return *from;
#endif
}

XN_HD float xn_to_fp32(float v) {
    return v;
}
XN_HD float xn_to_fp32(__half v) {
    return __half2float(v);
}
XN_HD float xn_to_fp32(xn_bf16_bits v) {
    return xn_fp32_of_bits((uint32_t)v.bits << 16);
}
XN_HD float xn_to_fp32(int8_t v) {
    return (float)v;
}
XN_HD float xn_to_fp32(uint8_t v) {
    return (float)v;
}
/* Of mode xnor. */
XN_HD float xn_to_fp32(xn_bool_byte v) {
    return xn_bool_sign(v.byte);
}

/* Of modes bwn and float. */
template <class T>
XN_HD float xn_real_fp32(T v) {
    return xn_to_fp32(v);
}
XN_HD float xn_real_fp32(xn_bool_byte v) {
    return v.byte ? 1.0f : 0.0f;
}

/* Element `index` of reals of any datatype, as modes bwn and float have it. */
XN_HD float xn_read_real(const void *from, int32_t datatype, int64_t index) {
    switch (datatype) {
    case XN_FP32:
        return ((const float *)from)[index];
    case XN_FP16:
        return xn_to_fp32(((const __half *)from)[index]);
    case XN_BF16:
        return xn_to_fp32(((const xn_bf16_bits *)from)[index]);
    case XN_INT8:
        return xn_to_fp32(((const int8_t *)from)[index]);
    case XN_UINT8:
        return xn_to_fp32(((const uint8_t *)from)[index]);
    case XN_INT32:
        return (float)((const int32_t *)from)[index];
    default:
        return xn_real_fp32(((const xn_bool_byte *)from)[index]);
    }
}

/* Calls action with a typed pointer to an input that is neither fp32 nor fp16, which kernels have
 * instances for where it pays. */
template <class Action>
__device__ __forceinline__ void xn_with_other_input(const void *input, int32_t datatype,
                                                    Action action) {
    switch (datatype) {
    case XN_BF16:
        action((const xn_bf16_bits *)input);
        break;
    case XN_INT8:
        action((const int8_t *)input);
        break;
    case XN_UINT8:
        action((const uint8_t *)input);
        break;
    default:
        action((const xn_bool_byte *)input);
    }
}

/* Calls action with a typed pointer to the input, so that a group of loads shares one branch on
 * the datatype and they are all in flight together. */
template <class Action>
__device__ __forceinline__ void xn_with_input(const void *input, int32_t datatype, Action action) {
    switch (datatype) {
    case XN_FP32:
        action((const float *)input);
        break;
    case XN_FP16:
        action((const __half *)input);
        break;
    default:
        xn_with_other_input(input, datatype, action);
    }
}

#endif
