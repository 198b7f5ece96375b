/* xn_epilogue.h: what becomes of an accumulator on its way to memory. One description for every
 * kind of step, every backend and every path:
 *
 *   v = acc [* factor[o]] [* K[n,g,y,x]] [+ bias[o]] [+ residual[n,o,y,x]]
 *   y = activation(v)
 *   stored: y as a real, or the sign of y + shift[o] as a bit, or both
 *
 * acc is an exact integer in mode xnor, else fp32. Each operation is one of fp32 and rounds once,
 * in this order; where acc * factor overflows before K or the bias brings it back, the product is
 * taken in a wider form. Residual tensors have the shape of the output, which is not INT32 then;
 * the step says their datatype (xn_step.h). factor, bias, slope and shift have a value for each
 * output channel and come with the weights (xn_weights.h).
 *
 *   prelu   y = v where v >= 0, else slope[o] * v        (slope 0 is ReLU)
 *   clip    y = min(max(v, low), high)                   (hardtanh: -1, 1); NaN stays NaN
 *
 * The bit is 1 where y + shift[o] >= 0, so NaN gives 0 (xn_sign_bit). */
#ifndef XN_EPILOGUE_H
#define XN_EPILOGUE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
    XN_FACTOR_NONE,
    XN_FACTOR_ALPHA, /* mean |W|, Eq. 6 of XNOR-Net */
    XN_FACTOR_SCALE  /* the scale given with the weights */
} xn_factor;

typedef enum { XN_ACTIVATION_NONE, XN_ACTIVATION_PRELU, XN_ACTIVATION_CLIP } xn_activation;

/* Plain data without padding; what is not used is 0, so that equal epilogues have equal bytes. */
typedef struct xn_epilogue {
    int32_t factor;     /* xn_factor */
    int32_t k;          /* 1: times K (mode xnor) */
    int32_t bias;       /* 1: plus bias[o] */
    int32_t residual;   /* 1: plus the residual */
    int32_t activation; /* xn_activation */
    float low, high;    /* of clip */
    int32_t datatype;   /* of the real output: XN_FP32, XN_FP16, XN_INT32; XN_BITS: there is none */
    int32_t bits;       /* 1: bits are stored, beside the real output or alone */
    int32_t shift;      /* 1: bits are of y + shift[o] */
} xn_epilogue;

#ifdef __cplusplus
}
#endif
#endif
