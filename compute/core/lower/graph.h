/* graph.h: the inside of a graph, for lowering. */
#ifndef XN_GRAPH_INSIDE_H
#define XN_GRAPH_INSIDE_H

#include "xn_graph.h"

/* One image's tensor. */
typedef struct xn_extent {
    int32_t channels, height, width;
} xn_extent;

static inline int64_t xn_extent_elements(const xn_extent *e) {
    return (int64_t)e->channels * e->height * e->width;
}

#define XN_GRAPH_INPUT (-1) /* as an input of a layer: the network's */

typedef struct xn_graph_layer {
    xn_layer given;     /* its name and parts are the graph's own; its inputs and window are gone */
    xn_tensor parts[5]; /* where given.weight, scale, bias, slope and shift point, if not NULL */
    int *inputs;        /* indices of layers before it, or XN_GRAPH_INPUT */
    int input_count;
    xn_extent extent; /* of the result */
    xn_conv conv;     /* of conv and pools: geometry, mode and padding value; no epilogue */
} xn_graph_layer;

struct xn_graph {
    char *names;                   /* all of them, each ended by a 0 */
    struct xn_graph_name *by_name; /* of the layers, sorted */
    const char *input_name;
    xn_datatype input_datatype; /* BITS where it is packed */
    xn_image_layout input_layout;
    xn_shape input_shape;
    xn_extent input;
    xn_precision precision;
    int layer_count, output_count;
    xn_graph_layer *layers;
    int *all_inputs; /* of all layers */
    int *outputs;    /* indices of layers */
    int64_t operations;
};

/* What a layer's inputs are. */
typedef struct xn_layer_context {
    const xn_extent *inputs; /* of each */
    xn_datatype datatype;    /* of the first: FP32, but where it is the network's input */
    const xn_conv_limits *limits;
} xn_layer_context;

/* Checks a layer, whose `given` and input_count are set, and finds its extent and geometry. Adds to
 * *operations what it takes. Errors have the field within the layer: "stride". */
xn_status xn_layer_resolve(xn_graph_layer *layer, const xn_layer_context *context,
                           int64_t *operations, xn_error *error);

/* The parts of a layer, by number: weight, scale, bias, slope, shift. */
enum { XN_LAYER_PARTS = 5 };
const char *xn_layer_part_name(int part);
const xn_tensor **xn_layer_part(xn_layer *layer, int part);

#endif
