/* xn_graph.h: a network as the user wrote it: layers that read the network's input or layers before
 * them. Validated, with every shape known, and immutable. What runs is made of it by lowering
 * (xn_network.h).
 *
 *   op        inputs  y[c,y,x], for each image
 *   conv      x       mode xnor: dot(sign(x), sign(weight)) [* K] [* scale[c]] [+ bias[c]]
 *                     mode bwn:  (x conv sign(weight)) [* scale[c]] [+ bias[c]]
 *                     mode float: (x conv weight) [* scale[c]] [+ bias[c]]
 *                     as in xn_conv.h; K with k_map only. A weight of rank 2, [O, I], makes it a
 *                     dense layer: x is [I, 1, 1], what flatten gives
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
 *
 * A conv of mode xnor takes the signs of its input by itself (but for K, which is made of values).
 */
#ifndef XN_GRAPH_H
#define XN_GRAPH_H

#include "xn_conv.h"

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
    XN_OP_COUNT
} xn_op;

const char *xn_op_name(xn_op op); /* "max_pool"; never NULL */
bool xn_op_parse(const char *name, xn_op *out);

/* A layer as it is given. xn_layer_default fills in what its op takes when nothing is said. */
typedef struct xn_layer {
    xn_op op;
    const char *name;          /* unique, not empty */
    const char *const *inputs; /* names of layers before, or the network's input's; */
    int input_count;           /* 0: the layer before, or the network's input */

    /* Borrowed until the graph is freed, their values too; NULL where not given. All of input
     * datatypes. weight is [O, C/groups, KH, KW], or [O, I] of a dense layer. */
    const xn_tensor *weight, *scale, *bias, *slope, *shift;

    /* conv: mode, stride, padding, dilation, groups, pad_value; pools: stride, padding. scaling,
     * output_datatype and precision are not looked at. A pool's stride of 0 is its kernel's. */
    xn_conv_params window;
    bool k_map;         /* conv of mode xnor */
    int64_t kernel[2];  /* of a pool; */
    bool global;        /* instead: the whole image, leaving 1x1, without stride and padding */
    bool count_padding; /* avg_pool */
    float slope_value;  /* prelu without a slope tensor */
    float low, high;    /* clip, quantize; low <= high */
    float quantum;      /* quantize; > 0 */
    int64_t from, to;   /* slice */
} xn_layer;

void xn_layer_default(xn_op op, const char *name, xn_layer *out);

typedef enum { XN_IMAGE_NCHW, XN_IMAGE_NHWC } xn_image_layout;

typedef struct xn_graph_params {
    const char *input_name;
    xn_datatype input_datatype; /* FP32, FP16 or UINT8 */
    xn_image_layout input_layout;
    /* Of one image: [C, H, W], with NHWC [H, W, C]; or [C] for [C, 1, 1]. */
    xn_shape input_shape;
    const xn_layer *layers;
    int layer_count;
    /* Names of the layers whose results are asked for; 0: the last layer's. */
    const char *const *outputs;
    int output_count;
    /* The least that will do for modes bwn and float; with fp16 the tensors between steps are FP16
     * too. */
    xn_precision precision;
} xn_graph_params;

#define XN_GRAPH_MAX_LAYERS 4096
#define XN_GRAPH_MAX_INPUTS 64   /* of a layer */
#define XN_GRAPH_MAX_EDGES 16384 /* inputs of all layers */
#define XN_GRAPH_MAX_OUTPUTS 64
#define XN_GRAPH_MAX_NAME 255 /* bytes */

typedef struct xn_graph xn_graph;

/* limits are those of one image: elements of a tensor, bytes of all outputs, multiply-adds of all
 * layers together. Names are copied; tensors are borrowed. Errors name the layer, in the message
 * and as "layers[3].stride" in the field: XN_ERR_MALFORMED (parameters out of range, names that are
 * missing, twice or unknown, tensors that are missing or that the op does not take),
 * XN_ERR_GEOMETRY (shapes that do not fit together), XN_ERR_LIMIT, XN_ERR_NO_MEMORY. */
xn_status xn_graph_create(const xn_graph_params *params, const xn_conv_limits *limits,
                          xn_graph **out, xn_error *error);
void xn_graph_free(xn_graph *graph); /* NULL-safe */

/* Puts a layer's name and place before what an error says of it, as xn_graph_create does: for who
 * reads layers before there is a graph. Returns the status; XN_OK changes nothing. */
xn_status xn_graph_fail_layer(xn_status status, const char *name, int index, xn_error *error);

/* What a graph takes and gives; borrowed from it. Shapes are of one image, as the user sees them:
 * the input's as it was given, an output's [C, H, W], or [C] where height and width are 1. */
typedef struct xn_graph_end {
    const char *name;
    xn_datatype datatype; /* of outputs FP32 */
    xn_shape shape;
} xn_graph_end;

void xn_graph_input(const xn_graph *graph, xn_graph_end *out);
int xn_graph_output_count(const xn_graph *graph);
void xn_graph_output(const xn_graph *graph, int index, xn_graph_end *out);
int64_t xn_graph_operations(const xn_graph *graph); /* multiply-adds of an image */

/* The shape [C, H, W] of a layer's result; false when there is no such layer. */
bool xn_graph_layer_shape(const xn_graph *graph, const char *name, xn_shape *out);
/* The first layer whose result has the most elements; borrowed. */
const char *xn_graph_largest_layer(const xn_graph *graph);

#ifdef __cplusplus
}
#endif
#endif
