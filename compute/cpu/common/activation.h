/* activation.h: the activations of the epilogue, of one output channel. What they do with values is
 * `activated` in kernels_body.h. */
#ifndef XN_CPU_ACTIVATION_H
#define XN_CPU_ACTIVATION_H

#include "xn_conv.h"
#include "xn_weights.h"

typedef struct xn_cpu_activation {
    int32_t kind;    /* xn_activation */
    float low, high; /* of clip */
    float slope;     /* of prelu */
} xn_cpu_activation;

static inline bool xn_cpu_activation_is_known(int32_t kind) {
    return kind == XN_ACTIVATION_NONE || kind == XN_ACTIVATION_PRELU || kind == XN_ACTIVATION_CLIP;
}

static inline xn_cpu_activation xn_cpu_activation_of(const xn_epilogue *epilogue,
                                                     const xn_weights *weights, int32_t o) {
    return (xn_cpu_activation){
        .kind = epilogue->activation,
        .low = epilogue->low,
        .high = epilogue->high,
        .slope = epilogue->activation == XN_ACTIVATION_PRELU ? weights->slope[o] : 0.0f};
}

#endif
