/* graph.c: making a graph of layers: names, order, ends, limits. What one layer must be is in
 * op_table.c. */
#include "graph.h"

#include "xn_mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- errors ---- */

xn_status xn_graph_fail_layer(xn_status status, const char *name, int index, xn_error *error) {
    xn_error of_layer;
    if (!error || !status)
        return status;
    of_layer = *error;
    snprintf(error->field, sizeof error->field, "layers[%d].%.40s", index, of_layer.field);
    snprintf(error->message, sizeof error->message, "layer \"%.80s\": %.260s", name,
             of_layer.message);
    return status;
}

/* ---- names ---- */

typedef struct xn_graph_name {
    const char *name;
    int layer;
} xn_graph_name;

static xn_status check_name(const char *name, const char *what, xn_error *error) {
    if (!name || !*name)
        return xn_fail(error, XN_ERR_MALFORMED, "name", "%s has no name; give it one", what);
    if (strlen(name) > XN_GRAPH_MAX_NAME)
        return xn_fail(error, XN_ERR_MALFORMED, "name", "the name of %s has %zu bytes; at most %d",
                       what, strlen(name), XN_GRAPH_MAX_NAME);
    return XN_OK;
}

static xn_status check_names(const xn_graph_params *params, size_t *bytes, xn_error *error) {
    xn_status status = check_name(params->input_name, "the network's input", error);
    *bytes = status ? 0 : strlen(params->input_name) + 1;
    for (int i = 0; i < params->layer_count && !status; i++) {
        const char *name = params->layers[i].name;
        char what[40];
        snprintf(what, sizeof what, "layers[%d]", i);
        status = check_name(name, what, error);
        *bytes += status ? 0 : strlen(name) + 1;
    }
    return status;
}

static int by_name(const void *a, const void *b) {
    return strcmp(((const xn_graph_name *)a)->name, ((const xn_graph_name *)b)->name);
}

static int by_name_and_layer(const void *a, const void *b) {
    const int order = by_name(a, b);
    return order ? order : ((const xn_graph_name *)a)->layer - ((const xn_graph_name *)b)->layer;
}

/* The first layer whose name the input or a layer before it has, as an error. */
static xn_status sort_names(xn_graph *graph, xn_error *error) {
    const int count = graph->layer_count;
    xn_graph_name *names = graph->by_name;
    int twice = count;
    for (int i = 0; i < count; i++)
        names[i] = (xn_graph_name){graph->layers[i].given.name, i};
    qsort(names, (size_t)count, sizeof *names, by_name_and_layer);
    for (int i = 0; i < count; i++)
        if ((!strcmp(names[i].name, graph->input_name) ||
             (i > 0 && !strcmp(names[i].name, names[i - 1].name))) &&
            names[i].layer < twice)
            twice = names[i].layer;
    if (twice == count)
        return XN_OK;
    return xn_graph_fail_layer(xn_fail(error, XN_ERR_MALFORMED, "name",
                                       "another layer, or the input, has that name; every name "
                                       "must be unique"),
                               graph->layers[twice].given.name, twice, error);
}

static const char *copy_name(const char *name, char **at) {
    size_t bytes = strlen(name) + 1;
    char *copy = memcpy(*at, name, bytes);
    *at += bytes;
    return copy;
}

/* The first `count` layers and the input: an index, or XN_GRAPH_INPUT; false when it is none. */
static bool find(const xn_graph *graph, const char *name, int count, int *out) {
    if (!strcmp(name, graph->input_name)) {
        *out = XN_GRAPH_INPUT;
        return true;
    }
    const xn_graph_name wanted = {name, 0};
    const xn_graph_name *found = bsearch(&wanted, graph->by_name, (size_t)graph->layer_count,
                                         sizeof *graph->by_name, by_name);
    if (found)
        *out = found->layer;
    return found && found->layer < count;
}

/* ---- the input ---- */

/* Of one image's channels, height and width; dims: as given. */
static xn_extent extent_of(const xn_shape *shape, xn_image_layout layout, int32_t channels) {
    const int64_t *d = shape->dims;
    return shape->rank == 1          ? (xn_extent){channels, 1, 1}
           : layout == XN_IMAGE_NHWC ? (xn_extent){channels, (int32_t)d[0], (int32_t)d[1]}
                                     : (xn_extent){channels, (int32_t)d[1], (int32_t)d[2]};
}

/* The bytes of the shape hold the channels that are said, and those are not too many. */
static xn_status check_packed(const xn_graph_params *params, const xn_conv_limits *limits,
                              xn_extent *out, xn_error *error) {
    const xn_shape *shape = &params->input_shape;
    const int64_t channels = params->packed_channels, bytes = shape->dims[shape->rank - 1];
    if (channels < 1 || channels > INT32_MAX)
        return xn_fail(error, XN_ERR_MALFORMED, "input.packed_channels",
                       "input.packed_channels is %" PRId64 "; it must be from 1 to %d", channels,
                       INT32_MAX);
    if (params->input_datatype != XN_UINT8 ||
        (shape->rank == 3 && params->input_layout != XN_IMAGE_NHWC))
        return xn_fail(error, XN_ERR_MALFORMED, "input.packed_channels",
                       "input.packed_channels is given, so input.datatype must be UINT8 and "
                       "input.layout \"NHWC\"");
    if (bytes != xn_bits_pixel_bytes(channels))
        return xn_fail(error, XN_ERR_GEOMETRY, "input.shape",
                       "input.shape ends in %" PRId64 "; bits of packed_channels %" PRId64
                       " are [%" PRId64 "] or [H, W, %" PRId64 "]",
                       bytes, channels, xn_bits_pixel_bytes(channels),
                       xn_bits_pixel_bytes(channels));
    *out = extent_of(shape, params->input_layout, (int32_t)channels);
    const int64_t most = limits->max_elements < INT32_MAX ? limits->max_elements : INT32_MAX;
    if (xn_extent_elements(out) <= most) /* the bytes are, so their bits fit */
        return XN_OK;
    return xn_fail_limit(error, "max-elements", "input.packed_channels",
                         "the input has %" PRId64 " signs; at most %" PRId64
                         "; make it smaller or raise --max-elements",
                         xn_extent_elements(out), most);
}

static xn_status check_input(const xn_graph_params *params, const xn_conv_limits *limits,
                             xn_extent *out, xn_error *error) {
    const xn_shape *shape = &params->input_shape;
    const int64_t *d = shape->dims;
    int64_t elements;
    if (params->input_datatype != XN_FP32 && params->input_datatype != XN_FP16 &&
        params->input_datatype != XN_UINT8)
        return xn_fail(error, XN_ERR_MALFORMED, "input.datatype",
                       "input.datatype is %s; expected FP32, FP16 or UINT8",
                       xn_datatype_name(params->input_datatype));
    if ((unsigned)params->input_layout > XN_IMAGE_NHWC)
        return xn_fail(error, XN_ERR_MALFORMED, "input.layout",
                       "input.layout is %d; expected \"NCHW\" or \"NHWC\"",
                       (int)params->input_layout);
    if (shape->rank != 3 && shape->rank != 1)
        return xn_fail(error, XN_ERR_GEOMETRY, "input.shape",
                       "input.shape has %d dimensions; it must be %s or [C], without the batch",
                       shape->rank,
                       params->input_layout == XN_IMAGE_NHWC ? "[H, W, C]" : "[C, H, W]");
    int64_t most = limits->max_elements < INT32_MAX ? limits->max_elements : INT32_MAX;
    xn_status status =
        xn_shape_elements(shape, params->input_datatype, most, "input", &elements, NULL, error);
    if (status)
        return status;
    if (params->packed_channels)
        return check_packed(params, limits, out, error);
    const bool last = shape->rank == 3 && params->input_layout == XN_IMAGE_NHWC;
    *out = extent_of(shape, params->input_layout, (int32_t)d[last ? 2 : 0]);
    return XN_OK;
}

/* ---- layers ---- */

static xn_status find_input(const xn_graph *graph, const xn_layer *layer, int index, int which,
                            int *out, xn_error *error) {
    const char *name = layer->inputs[which];
    if (name && find(graph, name, index, out))
        return XN_OK;
    if (name && find(graph, name, graph->layer_count, out))
        return xn_fail(error, XN_ERR_MALFORMED, "inputs",
                       "inputs[%d] is \"%.80s\", which is not before it; a layer reads layers that "
                       "stand before it, so that there is no cycle",
                       which, name);
    return xn_fail(error, XN_ERR_MALFORMED, "inputs",
                   "inputs[%d] is \"%.80s\", which is neither a layer nor the network's input "
                   "\"%.80s\"",
                   which, name ? name : "", graph->input_name);
}

static xn_status connect(xn_graph *graph, const xn_layer *given, int index, xn_error *error) {
    xn_graph_layer *layer = &graph->layers[index];
    xn_status status = XN_OK;
    if (given->input_count == 0) {
        layer->input_count = 1;
        layer->inputs[0] = index - 1; /* of the first layer XN_GRAPH_INPUT */
        return XN_OK;
    }
    layer->input_count = given->input_count;
    for (int i = 0; i < given->input_count && !status; i++)
        status = find_input(graph, given, index, i, &layer->inputs[i], error);
    return status;
}

static bool is_top_k(const xn_graph *graph, int layer) {
    return layer != XN_GRAPH_INPUT && graph->layers[layer].given.op == XN_OP_TOP_K;
}

static xn_status check_readable(const xn_graph *graph, const xn_graph_layer *layer,
                                xn_error *error) {
    for (int i = 0; i < layer->input_count; i++)
        if (is_top_k(graph, layer->inputs[i]))
            return xn_fail(error, XN_ERR_GEOMETRY, "inputs",
                           "inputs[%d] is \"%.80s\", a top_k, which is for outputs alone", i,
                           graph->layers[layer->inputs[i]].given.name);
    return XN_OK;
}

static void keep(xn_graph_layer *layer) {
    for (int i = 0; i < XN_LAYER_PARTS; i++) {
        const xn_tensor **part = xn_layer_part(&layer->given, i);
        if (*part) {
            layer->parts[i] = **part;
            *part = &layer->parts[i];
        }
    }
    layer->given.inputs = NULL;
    layer->given.input_count = 0;
}

static xn_status add_layer(xn_graph *graph, const xn_layer *given, int index,
                           const xn_conv_limits *limits, xn_error *error) {
    xn_graph_layer *layer = &graph->layers[index];
    xn_extent inputs[XN_GRAPH_MAX_INPUTS] = {{0}};
    keep(layer);
    xn_status status = connect(graph, given, index, error);
    if (!status)
        status = check_readable(graph, layer, error);
    if (status)
        return status;
    for (int i = 0; i < layer->input_count; i++)
        inputs[i] = layer->inputs[i] == XN_GRAPH_INPUT ? graph->input
                                                       : graph->layers[layer->inputs[i]].extent;
    xn_conv_limits inner = *limits;
    inner.max_output_bytes = INT64_MAX; /* that of the network's outputs is for them alone */
    const xn_layer_context context = {.inputs = inputs,
                                      .datatype = layer->inputs[0] == XN_GRAPH_INPUT &&
                                                          graph->input_datatype != XN_BITS
                                                      ? graph->input_datatype
                                                      : XN_FP32,
                                      .limits = &inner};
    return xn_layer_resolve(layer, &context, &graph->operations, error);
}

/* ---- outputs ---- */

/* A top_k is two outputs, and asked for once. */
static xn_status check_top_ks(const xn_graph *graph, xn_error *error) {
    for (int i = 0; i < graph->output_count; i++)
        for (int j = 0; j < i && is_top_k(graph, graph->outputs[i]); j++)
            if (graph->outputs[i] == graph->outputs[j])
                return xn_fail(error, XN_ERR_MALFORMED, "outputs",
                               "outputs[%d] is \"%.80s\", a top_k, which outputs[%d] is too; "
                               "give it once",
                               i, graph->layers[graph->outputs[i]].given.name, j);
    if (xn_graph_output_count(graph) > XN_GRAPH_MAX_OUTPUTS)
        return xn_fail(error, XN_ERR_MALFORMED, "outputs",
                       "the network has %d outputs, of which each top_k is two; at most %d",
                       xn_graph_output_count(graph), XN_GRAPH_MAX_OUTPUTS);
    return XN_OK;
}

static xn_status find_outputs(xn_graph *graph, const xn_graph_params *params,
                              const xn_conv_limits *limits, xn_error *error) {
    int64_t elements = 0;
    if (params->output_count == 0)
        graph->outputs[0] = graph->layer_count - 1;
    for (int i = 0; i < params->output_count; i++) {
        const char *name = params->outputs[i];
        if (!name || !find(graph, name, graph->layer_count, &graph->outputs[i]) ||
            graph->outputs[i] == XN_GRAPH_INPUT)
            return xn_fail(error, XN_ERR_MALFORMED, "outputs",
                           "outputs[%d] is \"%.80s\", which is no layer; name one", i,
                           name ? name : "");
    }
    for (int i = 0; i < graph->output_count; i++)
        elements += xn_extent_elements(&graph->layers[graph->outputs[i]].extent);
    if (elements > INT32_MAX || elements * 4 > limits->max_output_bytes)
        return xn_fail_limit(error, "max-output-bytes", "outputs",
                             "the outputs have %" PRId64 " elements of 4 bytes together; at most "
                             "%" PRId64 " bytes (--max-output-bytes)",
                             elements, limits->max_output_bytes);
    return check_top_ks(graph, error);
}

/* ---- the graph ---- */

static xn_status check_counts(const xn_graph_params *params, size_t *inputs, xn_error *error) {
    if (params->layer_count < 1 || params->layer_count > XN_GRAPH_MAX_LAYERS)
        return xn_fail(error, XN_ERR_MALFORMED, "layers",
                       "the network has %d layers; it must have from 1 to %d", params->layer_count,
                       XN_GRAPH_MAX_LAYERS);
    if (params->output_count < 0 || params->output_count > XN_GRAPH_MAX_OUTPUTS)
        return xn_fail(error, XN_ERR_MALFORMED, "outputs", "the network has %d outputs; at most %d",
                       params->output_count, XN_GRAPH_MAX_OUTPUTS);
    if ((unsigned)params->precision > XN_PRECISION_FP16)
        return xn_fail(error, XN_ERR_MALFORMED, "precision",
                       "precision is %d; expected \"fp32\", \"tf32\" or \"fp16\"",
                       (int)params->precision);
    *inputs = 0;
    for (int i = 0; i < params->layer_count; i++) {
        const xn_layer *layer = &params->layers[i];
        char field[40];
        snprintf(field, sizeof field, "layers[%d].%s", i,
                 (unsigned)layer->op < XN_OP_COUNT ? "inputs" : "op");
        if ((unsigned)layer->op >= XN_OP_COUNT)
            return xn_fail(error, XN_ERR_MALFORMED, field, "%s is %d, which is no op", field,
                           (int)layer->op);
        if (layer->input_count < 0 || layer->input_count > XN_GRAPH_MAX_INPUTS)
            return xn_fail(error, XN_ERR_MALFORMED, field, "%s has %d names; at most %d", field,
                           layer->input_count, XN_GRAPH_MAX_INPUTS);
        *inputs += layer->input_count ? (size_t)layer->input_count : 1;
    }
    if (*inputs > XN_GRAPH_MAX_EDGES)
        return xn_fail(error, XN_ERR_MALFORMED, "layers",
                       "the layers have %zu inputs together; at most %d", *inputs,
                       XN_GRAPH_MAX_EDGES);
    return XN_OK;
}

static xn_graph *allocate(const xn_graph_params *params, size_t name_bytes, size_t inputs) {
    xn_graph *graph = xn_mem_zalloc(1, sizeof *graph);
    if (!graph)
        return NULL;
    graph->layer_count = params->layer_count;
    graph->output_count = params->output_count ? params->output_count : 1;
    graph->names = xn_mem_zalloc(name_bytes, 1);
    graph->by_name = xn_mem_zalloc((size_t)graph->layer_count, sizeof *graph->by_name);
    graph->layers = xn_mem_zalloc((size_t)graph->layer_count, sizeof *graph->layers);
    graph->all_inputs = xn_mem_zalloc(inputs, sizeof *graph->all_inputs);
    graph->outputs = xn_mem_zalloc((size_t)graph->output_count, sizeof *graph->outputs);
    if (graph->names && graph->by_name && graph->layers && graph->all_inputs && graph->outputs)
        return graph;
    xn_graph_free(graph);
    return NULL;
}

/* Everything that does not need one layer to know another. */
static void copy(xn_graph *graph, const xn_graph_params *params) {
    char *names = graph->names;
    int *inputs = graph->all_inputs;
    graph->input_name = copy_name(params->input_name, &names);
    graph->input_datatype = params->packed_channels ? XN_BITS : params->input_datatype;
    graph->input_layout = params->input_layout;
    graph->input_shape = params->input_shape;
    graph->precision = params->precision;
    for (int i = 0; i < graph->layer_count; i++) {
        xn_graph_layer *layer = &graph->layers[i];
        layer->given = params->layers[i];
        layer->given.name = copy_name(params->layers[i].name, &names);
        layer->inputs = inputs;
        inputs += layer->given.input_count ? layer->given.input_count : 1;
    }
}

xn_status xn_graph_create(const xn_graph_params *params, const xn_conv_limits *limits,
                          xn_graph **out, xn_error *error) {
    xn_extent input;
    size_t name_bytes = 0, inputs = 0;
    xn_status status = check_counts(params, &inputs, error);
    if (!status)
        status = check_names(params, &name_bytes, error);
    if (!status)
        status = check_input(params, limits, &input, error);
    if (status)
        return status;
    xn_graph *graph = allocate(params, name_bytes, inputs);
    if (!graph)
        return xn_fail(error, XN_ERR_NO_MEMORY, "layers", "no memory for a network of %d layers",
                       params->layer_count);
    copy(graph, params);
    graph->input = input;
    status = sort_names(graph, error);
    for (int i = 0; i < graph->layer_count && !status; i++)
        status = xn_graph_fail_layer(add_layer(graph, &params->layers[i], i, limits, error),
                                     graph->layers[i].given.name, i, error);
    if (!status)
        status = find_outputs(graph, params, limits, error);
    if (status) {
        xn_graph_free(graph);
        return status;
    }
    *out = graph;
    return XN_OK;
}

void xn_graph_free(xn_graph *graph) {
    if (!graph)
        return;
    xn_mem_free(graph->outputs);
    xn_mem_free(graph->all_inputs);
    xn_mem_free(graph->layers);
    xn_mem_free(graph->by_name);
    xn_mem_free(graph->names);
    xn_mem_free(graph);
}

/* ---- what it is ---- */

static xn_shape shape_of(const xn_extent *e) {
    return (xn_shape){3, {e->channels, e->height, e->width}};
}

void xn_graph_input(const xn_graph *graph, xn_graph_end *out) {
    const xn_datatype datatype =
        graph->input_datatype == XN_BITS ? XN_UINT8 : graph->input_datatype;
    *out = (xn_graph_end){
        .name = graph->input_name, .datatype = datatype, .shape = graph->input_shape};
}

int xn_graph_output_count(const xn_graph *graph) {
    int count = graph->output_count;
    for (int i = 0; i < graph->output_count; i++)
        count += is_top_k(graph, graph->outputs[i]);
    return count;
}

const char *xn_graph_top_k_suffix(bool positions) {
    return positions ? ".indices" : ".values";
}

void xn_graph_output(const xn_graph *graph, int index, xn_graph_end *out) {
    int asked = 0;
    for (; index > is_top_k(graph, graph->outputs[asked]); asked++)
        index -= 1 + is_top_k(graph, graph->outputs[asked]);
    const xn_graph_layer *layer = &graph->layers[graph->outputs[asked]];
    const xn_extent *e = &layer->extent;
    *out = (xn_graph_end){layer->given.name, index ? XN_INT32 : XN_FP32, shape_of(e),
                          xn_extent_elements(e)};
    if (is_top_k(graph, graph->outputs[asked])) {
        const int from = layer->inputs[0];
        out->shape = (xn_shape){1, {e->height}};
        out->classes =
            (from == XN_GRAPH_INPUT ? &graph->input : &graph->layers[from].extent)->channels;
    } else if (e->height == 1 && e->width == 1) {
        out->shape = (xn_shape){1, {e->channels}};
    }
}

int64_t xn_graph_operations(const xn_graph *graph) {
    return graph->operations;
}

bool xn_graph_layer_shape(const xn_graph *graph, const char *name, xn_shape *out) {
    int index;
    if (!find(graph, name, graph->layer_count, &index) || index == XN_GRAPH_INPUT)
        return false;
    *out = shape_of(&graph->layers[index].extent);
    return true;
}

const char *xn_graph_largest_layer(const xn_graph *graph) {
    const xn_graph_layer *largest = &graph->layers[0];
    for (int i = 1; i < graph->layer_count; i++)
        if (xn_extent_elements(&graph->layers[i].extent) > xn_extent_elements(&largest->extent))
            largest = &graph->layers[i];
    return largest->given.name;
}
