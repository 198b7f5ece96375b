/* xn_op.h: the ops of a network's layers, the kinds of steps that run them, and their attributes.
 * What an op takes is its row of the op table (core/lower/op_table.c). Its arithmetic is in
 * ref/ref_ops.c, cpu/ops/ops_body.h and cuda/ops/op_value.cuh.
 *
 *   op        inputs  y[c,y,x], for each image
 *   conv      x       mode xnor: dot(sign(x), sign(weight)) [* K] [* scale[c]] [+ bias[c]]
 *                     mode bwn:  (x conv sign(weight)) [* scale[c]] [+ bias[c]]
 *                     mode float: (x conv weight) [* scale[c]] [+ bias[c]]
 *                     as in xn_conv.h; K with k_map only. A weight of rank 2, [O, I], makes it a
 *                     dense layer: x is [I, 1, 1], what flatten gives. Mode xnor takes the signs of
 *                     its input by itself (but for K, which is made of values)
 *   sign      x       +1 where x [+ shift[c]] >= 0, else -1, also where x is NaN
 *   affine    x       x [* scale] [+ bias], of [C], [1] or [C, H, W] each
 *   prelu     x       x where x >= 0, else slope * x; slope a tensor [C] or [1], or a number:
 *                     0 is ReLU
 *   clip      x       min(max(x, low), high); NaN stays NaN. -1 to 1 is hardtanh
 *   add       x, ...  the sum of 2 inputs or more of one shape, from left to right
 *   mul       x, g    x * g[c]; g is [C, 1, 1]
 *   concat    x, ...  the channels of the inputs, one after the other
 *   slice     x       the channels from .. to - 1
 *   max_pool  x       the largest value in the window; outside the image there is -infinity, and
 *                     NaN is less than anything
 *   avg_pool  x       the mean of the values in the window, with count_padding of those outside
 *                     the image too, which are 0
 *   flatten   x       [C, H, W] as [C * H * W, 1, 1]
 *   softmax   x       exp(x) / sum over the channels of exp(x)
 *   sigmoid   x       1 / (1 + exp(-x))
 *   quantize  x       min(max(round(x / quantum), low), high) * quantum, halves to even
 *   top_k     x       the k largest values of [C, 1, 1], without `largest` the k smallest, best
 *                     first, and their channels: of equal values (-0 is 0) the lower channel comes
 *                     first, NaN comes last either way. It is an output and nothing reads it: its
 *                     value is [2, k, 1], k values in FP32 and then k channels in INT32
 */
#ifndef XN_OP_H
#define XN_OP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
    XN_OP_CONV,
    XN_OP_SIGN,
    XN_OP_AFFINE,
    XN_OP_PRELU,
    XN_OP_CLIP,
    XN_OP_ADD,
    XN_OP_MUL,
    XN_OP_CONCAT,
    XN_OP_SLICE,
    XN_OP_MAX_POOL,
    XN_OP_AVG_POOL,
    XN_OP_FLATTEN,
    XN_OP_SOFTMAX,
    XN_OP_SIGMOID,
    XN_OP_QUANTIZE,
    XN_OP_TOP_K,
    XN_OP_COUNT
} xn_op;

/* What a kind of step makes of its input: the accumulator of an epilogue (xn_epilogue.h), which
 * every kind has in full. The kinds below have the meaning of the op of the same name, with the
 * differences given. All accumulators but conv's are fp32. All kinds but conv and stem have as many
 * output channels as input channels, and all but those and the pools the input's height and width.
 *
 *   max_pool  of a window of nothing but NaN, -infinity. Where `least` is set, the least value in
 *             channels whose scale in the weights is negative (then +infinity). Of bits the first
 *             is OR, the second AND
 *   map       the input: the step of an op that is an epilogue alone (affine, prelu, add ...)
 *   stem      the convolution of a picture of bytes (UINT8, NCHW or NHWC) by the whole numbers of
 *             the weights' planes (xn_planes.h), which have its factor and bias; with `pool`, the
 *             largest of its values in windows of 3 x 3, 2 apart, from one before the first on
 *   top_k     its values are those that the epilogue gives in FP32: of its input, FP32 or FP16; or,
 *             with weights, of the dots of a dense layer of mode xnor, a convolution of bits of one
 *             pixel by a kernel of 1 x 1 with one group. conv describes the values, not the output,
 *             which is k values and k channels of 4 bytes each. No tensor holds the values
 *
 * A window of a pool has at least one value in the image. An input is FP32, FP16, or bits (conv,
 * max_pool and map); the program's may be of any input datatype where the op table says so. */
typedef enum {
    XN_STEP_CONV,
    XN_STEP_MAX_POOL,
    XN_STEP_AVG_POOL,
    XN_STEP_MAP,
    XN_STEP_MUL,
    XN_STEP_SIGMOID,
    XN_STEP_QUANTIZE,
    XN_STEP_SOFTMAX,
    XN_STEP_STEM,
    XN_STEP_TOP_K,
    XN_STEP_KIND_COUNT,
    XN_STEP_NONE = XN_STEP_KIND_COUNT /* of ops that take no step */
} xn_step_kind;

/* The numbers that ops take. A layer, its node and its step have all of them; those that its op
 * does not take are not looked at, and 0 in a step. */
typedef struct xn_attributes {
    int64_t from, to;      /* slice */
    int64_t k;             /* top_k */
    float slope;           /* prelu without a slope tensor */
    float low, high;       /* clip, quantize; low <= high */
    float quantum;         /* quantize; > 0 */
    int32_t k_map;         /* bool: conv of mode xnor */
    int32_t count_padding; /* bool: avg_pool */
    int32_t largest;       /* bool: top_k */
} xn_attributes;

typedef enum { XN_ATTRIBUTE_BOOL, XN_ATTRIBUTE_INTEGER, XN_ATTRIBUTE_NUMBER } xn_attribute_type;

/* An attribute as model files give it. Numbers are finite, and above `above`. */
typedef struct xn_attribute {
    const char *name; /* "min" */
    xn_attribute_type type;
    size_t offset; /* in xn_attributes: an int32_t, an int64_t, a float */
    bool needed;
    float above;
    const char *takes; /* "a finite number, above 0" */
} xn_attribute;

#define XN_OP_MAX_ATTRIBUTES 3 /* of an op */
#define XN_TOP_K_MAX 1024      /* the most that k may be */

const char *xn_op_name(xn_op op); /* "max_pool"; never NULL */
/* The op's attributes, and one without a name behind the last. */
const xn_attribute *xn_op_attributes(xn_op op);
const char *xn_step_kind_name(xn_step_kind kind); /* "max_pool"; never NULL */

#ifdef __cplusplus
}
#endif
#endif
