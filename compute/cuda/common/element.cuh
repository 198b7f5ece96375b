/* element.cuh: one element in device code: the datatypes of inputs, and what is read of them. */
#ifndef XN_CUDA_ELEMENT_CUH
#define XN_CUDA_ELEMENT_CUH

#include "xn_arith.h"

#include <cuda_fp16.h>
#include <math.h>
#include <stdint.h>

struct xn_bf16_bits {
    uint16_t bits;
};
struct xn_bool_byte {
    uint8_t byte;
};

__device__ __forceinline__ float xn_to_fp32(float v) {
    return v;
}
__device__ __forceinline__ float xn_to_fp32(__half v) {
    return __half2float(v);
}
__device__ __forceinline__ float xn_to_fp32(xn_bf16_bits v) {
    return __uint_as_float((uint32_t)v.bits << 16);
}
__device__ __forceinline__ float xn_to_fp32(int8_t v) {
    return (float)v;
}
__device__ __forceinline__ float xn_to_fp32(uint8_t v) {
    return (float)v;
}
/* Of mode xnor. */
__device__ __forceinline__ float xn_to_fp32(xn_bool_byte v) {
    return xn_bool_sign(v.byte);
}

/* Of modes bwn and float. */
template <class T>
__device__ __forceinline__ float xn_real_fp32(T v) {
    return xn_to_fp32(v);
}
__device__ __forceinline__ float xn_real_fp32(xn_bool_byte v) {
    return v.byte ? 1.0f : 0.0f;
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
