/* xn_conv.h: what a convolution is: parameters as the client gives them, and the resolved problem
 * every backend works from.
 *
 *   input   I [N, C, H, W]           weights W [O, C/groups, KH, KW]
 *   output  [N, O, OH, OW]           OH = (H + top + bottom - dilation_h*(KH-1) - 1)/stride_h + 1
 *
 *   sign(v) = +1 if v >= 0 else -1   (sign(-0) = +1, sign(NaN) = -1), inputs and weights alike
 *   dot[n,o,y,x] = sum over c,i,j of sign(I) * sign(W)            an exact integer
 *   alpha[o] = mean |W[o]|                                        Eq. 6 of XNOR-Net (1603.05279)
 *   K = (mean over the group's channels of |I|) * box(KHxKW, 1/(KH*KW))                    Eq. 10
 *       outside taps count 0, the divisor is always KH*KW
 *
 *   mode    scaling   out
 *   xnor    xnor      dot * (scale or alpha)[o] * K[n,g,y,x] + bias[o]                     Eq. 11
 *   xnor    alpha     dot * (scale or alpha)[o] + bias[o]
 *   xnor    none      dot + bias[o]
 *   bwn     not none  (I conv sign(W)) * (scale or alpha)[o] + bias[o]                      Eq. 1
 *   bwn     none      (I conv sign(W)) + bias[o]
 *   float   not none  (I conv W) [* scale[o] where given] + bias[o]
 *   float   none      (I conv W) + bias[o]
 *
 * BOOL is a sign: true +1, false -1, as input of mode xnor and as weights of any mode; as input of
 * bwn and float it is 0 or 1. UINT8 has no negative values: mode xnor refuses it.
 *
 * A tap outside the image contributes as if the image held pad_value there: for mode xnor 0 adds
 * nothing, +-1 adds +-sign(W); for bwn and float the real value 0, 1 or -1 (0 adds nothing, even
 * where the weight is NaN or Inf). K ignores pad_value.
 * scale with scaling none is refused: there is nothing it would replace. INT32 output needs mode
 * xnor, scaling none and no bias. BITS is input of mode xnor with scaling alpha or none, since it
 * has no magnitudes; as output it is the sign of what would have been the output. */
#ifndef XN_CONV_H
#define XN_CONV_H

#include "xn_epilogue.h"
#include "xn_tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum { XN_MODE_XNOR, XN_MODE_BWN, XN_MODE_FLOAT } xn_mode;
typedef enum { XN_SCALING_XNOR, XN_SCALING_ALPHA, XN_SCALING_NONE } xn_scaling;
typedef enum { XN_PADDING_EXPLICIT, XN_PADDING_SAME, XN_PADDING_VALID } xn_padding_kind;

/* What the products of modes bwn and float are computed from. A request names the least that will
 * do; a backend may take a better one, and says which it took (xn_backend.h). The dot of mode xnor
 * is an exact integer and its epilogue fp32: there precision has no effect.
 *
 *   fp32  operands as they are; sums within 1e-5 of the sum of the magnitudes of their terms.
 *   tf32  operands rounded to 11 significant bits, with the range of fp32; of what would round to
 *         infinity, weights stay finite.
 *   fp16  operands rounded to IEEE binary16: 11 significant bits from 2^-14 to 65504, below that
 *         multiples of 2^-24, from 65520 on infinite. This is about inputs: weights are scaled by a
 *         power of 2 a filter first, and back in the epilogue.
 *
 * With tf32 and fp16 every product is exact and sums are fp32, not always rounded to nearest. So an
 * output is within 2^-10 (mode float) or 2^-11 (bwn) of the sum of the magnitudes of its terms,
 * besides the sum's own error of up to 2^-23 of it every 8 terms. Inputs of FP16, INT8, UINT8 and
 * BOOL, with tf32 BF16 too, are not changed by rounding, nor are the signs that bwn has for
 * weights: then only the sum's error is left. */
typedef enum { XN_PRECISION_FP32, XN_PRECISION_TF32, XN_PRECISION_FP16 } xn_precision;

/* As the client gives them; xn_conv_params_default() fills the defaults: stride 1, dilation 1,
 * groups 1, padding 0, pad_value 0, scaling xnor, mode xnor, FP32, precision fp32. */
typedef struct xn_conv_params {
    int64_t stride[2];   /* h, w; >= 1 */
    int64_t dilation[2]; /* h, w; >= 1 */
    xn_padding_kind padding_kind;
    int64_t padding[4]; /* top, left, bottom, right; >= 0; for XN_PADDING_EXPLICIT */
    int64_t groups;
    int pad_value; /* -1, 0, 1 */
    xn_scaling scaling;
    xn_mode mode;
    xn_datatype output_datatype; /* XN_FP32, XN_FP16, XN_INT32, XN_BITS */
    xn_precision precision;      /* the least that will do */
} xn_conv_params;

void xn_conv_params_default(xn_conv_params *params);

const char *xn_mode_name(xn_mode mode);                /* "xnor" "bwn" "float" */
const char *xn_scaling_name(xn_scaling scaling);       /* "xnor" "alpha" "none" */
const char *xn_precision_name(xn_precision precision); /* "fp32" "tf32" "fp16" */
/* The same in their order, NULL at the end. */
extern const char *const xn_mode_names[], *const xn_scaling_names[], *const xn_precision_names[];

typedef struct xn_conv_limits {
    int64_t max_elements;     /* of any one tensor                 --max-elements */
    int64_t max_output_bytes; /* of the output tensor              --max-output-bytes */
    int64_t max_operations;   /* N*O*OH*OW * C/groups*KH*KW        --max-operations */
} xn_conv_limits;

/* The resolved problem without the batch: two requests with equal weights and equal problems can
 * share a launch, whatever their numbers of images. Plain data without pointers; made only by
 * xn_conv_resolve, which zero-fills it first, so that equal ones have equal bytes. All sizes are
 * int32: every one is checked to be < 2^31, and so are H + top + bottom, W + left + right, the
 * extents dilation*(K-1)+1, and C/groups*KH*KW (so dot fits int32).
 * What has no effect is made canonical: the dilation of a kernel of one tap, and the stride to a
 * single output, are 1 (an axis each), so neither ever exceeds the padded size; the precision of
 * mode xnor is fp32. */
typedef struct xn_conv {
    int32_t channels, height, width;                    /* C, H, W */
    int32_t out_channels, kernel_h, kernel_w;           /* O, KH, KW */
    int32_t out_height, out_width;                      /* OH, OW; >= 1 */
    int32_t groups, group_channels, group_out_channels; /* G, C/G, O/G */
    int32_t stride_h, stride_w, dilation_h, dilation_w;
    int32_t pad_top, pad_left, pad_bottom, pad_right;
    int32_t pad_value;
    int32_t mode;           /* xn_mode */
    int32_t input_datatype; /* xn_datatype */
    int32_t precision;      /* xn_precision */
    xn_epilogue epilogue;
} xn_conv;

/* What resolve needs to know of the weights. */
typedef struct xn_weights_shape {
    int64_t dims[4]; /* O, C/groups, KH, KW */
    xn_datatype datatype;
    bool has_scale, has_bias;
} xn_weights_shape;

/* Refuses weights [O, C/groups, KH, KW] of which a dimension, or the values of a filter, do not fit
 * int32: so every dot does. */
xn_status xn_conv_check_filter(const int64_t dims[4], xn_error *error);

/* Validates the geometry and the limits with checked arithmetic; allocates nothing. input is the
 * NCHW shape. "same" pads as PyTorch and TensorFlow agree for stride 1: total dilation*(K-1),
 * the smaller half first (top/left); for stride > 1 TensorFlow's rule: OH = ceil(H/stride),
 * total = max((OH-1)*stride + extent - H, 0), the smaller half first.
 * images gets N. Errors: XN_ERR_GEOMETRY for shapes that cannot fit, XN_ERR_MALFORMED for
 * parameters out of their range, XN_ERR_LIMIT. Fields named: "input.shape", "weights.shape",
 * "input.datatype", "weights.datatype", "stride", "dilation", "padding", "groups", "pad_value",
 * "scaling", "output_datatype", "scale", "bias", "precision". */
xn_status xn_conv_resolve(const xn_conv_params *params, xn_datatype input_datatype,
                          const xn_shape *input, const xn_weights_shape *weights,
                          const xn_conv_limits *limits, xn_conv *out, int64_t *images,
                          xn_error *error);

/* The epilogue of these parameters, with a scale and a bias or without. */
xn_epilogue xn_conv_epilogue(xn_mode mode, xn_scaling scaling, bool has_scale, bool has_bias,
                             xn_datatype output);

/* count elements of an input as this problem has them: BOOL is a sign in mode xnor. */
void xn_conv_input_to_fp32(const xn_conv *conv, const void *src, float *dst, int64_t count);

/* Per image: elements and bytes of input and output, multiply-adds. They fit: resolve checked N
 * times each. */
int64_t xn_conv_input_elements(const xn_conv *conv);
int64_t xn_conv_output_elements(const xn_conv *conv);
size_t xn_conv_input_bytes(const xn_conv *conv);
size_t xn_conv_output_bytes(const xn_conv *conv);
int64_t xn_conv_operations(const xn_conv *conv);

#ifdef __cplusplus
}
#endif
#endif
