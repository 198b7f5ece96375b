/* activation.h: the activations of the epilogue, of one output channel. All that knows which there
 * are is here. */
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

/* n values in place. Loops that the compiler turns into vectors of who includes this. */
static inline __attribute__((always_inline)) void xn_cpu_activate(const xn_cpu_activation *a,
                                                                  int32_t n, float *restrict y) {
    const float low = a->low, high = a->high, slope = a->slope;
    if (a->kind == XN_ACTIVATION_PRELU)
        for (int32_t x = 0; x < n; x++)
            y[x] = y[x] >= 0.0f ? y[x] : slope * y[x];
    if (a->kind == XN_ACTIVATION_CLIP)
        for (int32_t x = 0; x < n; x++) { /* NaN stays */
            const float v = y[x] < low ? low : y[x];
            y[x] = v > high ? high : v;
        }
}

#endif
