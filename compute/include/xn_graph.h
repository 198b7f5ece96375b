/* xn_graph.h: a network as the user wrote it: layers that read the network's input or layers before
 * them. Validated, with every shape known, and immutable. What runs is made of it by lowering
 * (xn_network.h). What each op means is in xn_op.h. */
#ifndef XN_GRAPH_H
#define XN_GRAPH_H

#include "xn_conv.h"
#include "xn_op.h"

#ifdef __cplusplus
extern "C" {
#endif

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
    int64_t kernel[2]; /* of a pool; */
    bool global;       /* instead: the whole image, leaving 1x1, without stride and padding */
    xn_attributes attributes;
} xn_layer;

void xn_layer_default(xn_op op, const char *name, xn_layer *out);

typedef enum { XN_IMAGE_NCHW, XN_IMAGE_NHWC } xn_image_layout;

typedef struct xn_graph_params {
    const char *input_name;
    xn_datatype input_datatype; /* FP32, FP16 or UINT8 */
    xn_image_layout input_layout;
    /* Of one image: [C, H, W], with NHWC [H, W, C]; or [C] for [C, 1, 1]. */
    xn_shape input_shape;
    /* 0, or C: the input is signs, packed. Its datatype is UINT8 and its shape [H, W, ceil(C/8)],
     * with layout NHWC, or [ceil(C/8)]: bit c % 8 of byte c / 8 is channel c, 1 = +1. Bits behind
     * the last channel are 0. */
    int64_t packed_channels;
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

/* Puts a layer's name and place before what an error says of it, as xn_graph_create does: for
 * readers of layers before there is a graph. Returns the status; XN_OK changes nothing. */
xn_status xn_graph_fail_layer(xn_status status, const char *name, int index, xn_error *error);

/* What a graph takes and gives; borrowed from it. Shapes are of one image, as the user sees them:
 * the input's as it was given, an output's [C, H, W], or [C] where height and width are 1. A top_k
 * that is asked for is two outputs, its values and then its positions, [k] each. */
typedef struct xn_graph_end {
    const char *name;     /* the layer's */
    xn_datatype datatype; /* of outputs FP32; of positions INT32 */
    xn_shape shape;
    int64_t classes; /* how many labels an output may have: its elements; for positions, those that
                      * the top_k chooses from */
} xn_graph_end;

void xn_graph_input(const xn_graph *graph, xn_graph_end *out);
int xn_graph_output_count(const xn_graph *graph);
void xn_graph_output(const xn_graph *graph, int index, xn_graph_end *out);
int64_t xn_graph_operations(const xn_graph *graph); /* multiply-adds of an image */

/* What follows the name of such an output: ".values" where positions is false, ".indices". */
const char *xn_graph_top_k_suffix(bool positions);

/* The shape [C, H, W] of a layer's result; false when there is no such layer. */
bool xn_graph_layer_shape(const xn_graph *graph, const char *name, xn_shape *out);
/* The first layer whose result has the most elements; borrowed. */
const char *xn_graph_largest_layer(const xn_graph *graph);

#ifdef __cplusplus
}
#endif
#endif
