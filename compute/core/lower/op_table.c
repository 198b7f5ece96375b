/* op_table.c: the table of ops: what each takes and how the shape of its result follows, and one
 * layer of a graph checked by it. Everything is checked in 64 bits here; lowering asks nothing
 * again. */
#include "lower.h"

#include "xn_mem.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

typedef xn_status (*shape_rule)(xn_graph_layer *layer, const xn_layer_context *context,
                                int64_t *operations, xn_error *error);

static xn_status resolve_conv(xn_graph_layer *, const xn_layer_context *, int64_t *, xn_error *);
static xn_status resolve_sign(xn_graph_layer *, const xn_layer_context *, int64_t *, xn_error *);
static xn_status resolve_affine(xn_graph_layer *, const xn_layer_context *, int64_t *, xn_error *);
static xn_status resolve_prelu(xn_graph_layer *, const xn_layer_context *, int64_t *, xn_error *);
static xn_status resolve_range(xn_graph_layer *, const xn_layer_context *, int64_t *, xn_error *);
static xn_status resolve_add(xn_graph_layer *, const xn_layer_context *, int64_t *, xn_error *);
static xn_status resolve_mul(xn_graph_layer *, const xn_layer_context *, int64_t *, xn_error *);
static xn_status resolve_concat(xn_graph_layer *, const xn_layer_context *, int64_t *, xn_error *);
static xn_status resolve_slice(xn_graph_layer *, const xn_layer_context *, int64_t *, xn_error *);
static xn_status resolve_pool(xn_graph_layer *, const xn_layer_context *, int64_t *, xn_error *);
static xn_status resolve_flatten(xn_graph_layer *, const xn_layer_context *, int64_t *, xn_error *);
static xn_status resolve_same(xn_graph_layer *, const xn_layer_context *, int64_t *, xn_error *);
static xn_status resolve_top_k(xn_graph_layer *, const xn_layer_context *, int64_t *, xn_error *);

/* ---- the table ---- */

#define AT(member) offsetof(xn_attributes, member)
#define FINITE "a finite number"

/* An op's attributes, and one without a name behind them. */
typedef xn_attribute attribute_list[XN_OP_MAX_ATTRIBUTES + 1];
static const attribute_list none = {{0}};
static const attribute_list of_conv = {
    {"k_map", XN_ATTRIBUTE_BOOL, AT(k_map), false, 0, "true or false"},
};
static const attribute_list of_prelu = {
    {"slope", XN_ATTRIBUTE_NUMBER, AT(slope), false, -INFINITY, FINITE},
};
static const attribute_list of_clip = {
    {"min", XN_ATTRIBUTE_NUMBER, AT(low), false, -INFINITY, FINITE},
    {"max", XN_ATTRIBUTE_NUMBER, AT(high), false, -INFINITY, FINITE},
};
static const attribute_list of_slice = {
    {"from", XN_ATTRIBUTE_INTEGER, AT(from), true, 0, "an integer: the first channel, from 0"},
    {"to", XN_ATTRIBUTE_INTEGER, AT(to), true, 0, "an integer: the channel behind the last"},
};
static const attribute_list of_avg_pool = {
    {"count_padding", XN_ATTRIBUTE_BOOL, AT(count_padding), false, 0, "true or false"},
};
static const attribute_list of_quantize = {
    {"step", XN_ATTRIBUTE_NUMBER, AT(quantum), true, 0, FINITE ", above 0"},
    {"min", XN_ATTRIBUTE_NUMBER, AT(low), true, -INFINITY, FINITE},
    {"max", XN_ATTRIBUTE_NUMBER, AT(high), true, -INFINITY, FINITE},
};
static const attribute_list of_top_k = {
    {"k", XN_ATTRIBUTE_INTEGER, AT(k), true, 0, "an integer from 1 to 1024"},
    {"largest", XN_ATTRIBUTE_BOOL, AT(largest), false, 0, "true or false"},
};

enum {
    WEIGHT = 1, /* bits in the order of xn_layer_part */
    SCALE = 2,
    BIAS = 4,
    SLOPE = 8,
    SHIFT = 16,
    MANY = XN_GRAPH_MAX_INPUTS
};

static const struct {
    const char *name;
    int least_inputs, most_inputs;
    unsigned tensors; /* that it takes: WEIGHT | SCALE */
    shape_rule resolve;
    xn_step_kind kind;
    xn_lower_reading reads;
    const xn_attribute *attributes;
} ops[XN_NODE_COUNT] = {
    [XN_OP_CONV] = {"conv", 1, 1, WEIGHT | SCALE | BIAS, resolve_conv, XN_STEP_CONV, XN_READS_TYPES,
                    of_conv},
    [XN_OP_SIGN] = {"sign", 1, 1, SHIFT, resolve_sign, XN_STEP_MAP, XN_READS_ALL, none},
    [XN_OP_AFFINE] = {"affine", 1, 1, SCALE | BIAS, resolve_affine, XN_STEP_MAP, XN_READS_ALL,
                      none},
    [XN_OP_PRELU] = {"prelu", 1, 1, SLOPE, resolve_prelu, XN_STEP_MAP, XN_READS_ALL, of_prelu},
    [XN_OP_CLIP] = {"clip", 1, 1, 0, resolve_range, XN_STEP_MAP, XN_READS_ALL, of_clip},
    [XN_OP_ADD] = {"add", 2, MANY, 0, resolve_add, XN_STEP_MAP, XN_READS_REALS, none},
    [XN_OP_MUL] = {"mul", 2, 2, 0, resolve_mul, XN_STEP_MUL, XN_READS_TYPES, none},
    [XN_OP_CONCAT] = {"concat", 1, MANY, 0, resolve_concat, XN_STEP_NONE, XN_READS_REALS, none},
    [XN_OP_SLICE] = {"slice", 1, 1, 0, resolve_slice, XN_STEP_NONE, XN_READS_REALS, of_slice},
    [XN_OP_MAX_POOL] = {"max_pool", 1, 1, 0, resolve_pool, XN_STEP_MAX_POOL, XN_READS_REALS, none},
    [XN_OP_AVG_POOL] = {"avg_pool", 1, 1, 0, resolve_pool, XN_STEP_AVG_POOL, XN_READS_REALS,
                        of_avg_pool},
    [XN_OP_FLATTEN] = {"flatten", 1, 1, 0, resolve_flatten, XN_STEP_NONE, XN_READS_REALS, none},
    [XN_OP_SOFTMAX] = {"softmax", 1, 1, 0, resolve_same, XN_STEP_SOFTMAX, XN_READS_REALS, none},
    [XN_OP_SIGMOID] = {"sigmoid", 1, 1, 0, resolve_same, XN_STEP_SIGMOID, XN_READS_TYPES, none},
    [XN_OP_QUANTIZE] = {"quantize", 1, 1, 0, resolve_range, XN_STEP_QUANTIZE, XN_READS_TYPES,
                        of_quantize},
    [XN_OP_TOP_K] = {"top_k", 1, 1, 0, resolve_top_k, XN_STEP_TOP_K, XN_READS_REALS, of_top_k},
    /* Nodes that are no layer's. */
    [XN_NODE_INPUT] = {.name = "input", .kind = XN_STEP_NONE},
    [XN_NODE_STEM] = {.name = "stem", .kind = XN_STEP_STEM, .reads = XN_READS_NHWC},
    [XN_NODE_COPY] = {.name = "copy", .kind = XN_STEP_MAP, .reads = XN_READS_ALL},
    [XN_NODE_RESULT] = {.name = "result", .kind = XN_STEP_NONE},
    [XN_NODE_DEAD] = {.name = "dead", .kind = XN_STEP_NONE},
};

const char *xn_op_name(xn_op op) {
    return (unsigned)op < XN_OP_COUNT ? ops[op].name : "unknown";
}

const xn_attribute *xn_op_attributes(xn_op op) {
    return ops[op].attributes;
}

const char *xn_step_kind_name(xn_step_kind kind) {
    if (kind == XN_STEP_MAP)
        return "map";
    for (int op = 0; op < XN_NODE_COUNT && (unsigned)kind < XN_STEP_KIND_COUNT; op++)
        if (ops[op].kind == kind)
            return ops[op].name;
    return "unknown";
}

xn_step_kind xn_lower_kind(int op) {
    return ops[op].kind;
}

xn_lower_reading xn_lower_reads(int op) {
    return ops[op].reads;
}

/* The bytes of an attribute within xn_attributes. */
static size_t attribute_bytes(const xn_attribute *a) {
    return a->type == XN_ATTRIBUTE_INTEGER  ? sizeof(int64_t)
           : a->type == XN_ATTRIBUTE_NUMBER ? sizeof(float)
                                            : sizeof(int32_t);
}

void xn_lower_take_attributes(int op, const xn_attributes *from, xn_attributes *to) {
    memset(to, 0, sizeof *to);
    for (const xn_attribute *a = ops[op].attributes; a->name; a++)
        memcpy((char *)to + a->offset, (const char *)from + a->offset, attribute_bytes(a));
}

void xn_layer_default(xn_op op, const char *name, xn_layer *out) {
    *out = (xn_layer){
        .op = op, .name = name, .attributes = {.low = -1, .high = 1, .quantum = 1, .largest = 1}};
    xn_conv_params_default(&out->window);
    if (op == XN_OP_MAX_POOL || op == XN_OP_AVG_POOL)
        out->window.stride[0] = out->window.stride[1] = 0;
}

/* ---- tensors ---- */

const char *xn_layer_part_name(int part) {
    static const char *const names[XN_LAYER_PARTS] = {"weight", "scale", "bias", "slope", "shift"};
    return names[part];
}

const xn_tensor **xn_layer_part(xn_layer *layer, int part) {
    const xn_tensor **const all[XN_LAYER_PARTS] = {&layer->weight, &layer->scale, &layer->bias,
                                                   &layer->slope, &layer->shift};
    return all[part];
}

static xn_status check_parts(xn_layer *layer, int64_t max_elements, xn_error *error) {
    xn_status status = XN_OK;
    for (int i = 0; i < XN_LAYER_PARTS && !status; i++) {
        const xn_tensor *tensor = *xn_layer_part(layer, i);
        const char *name = xn_layer_part_name(i);
        if (!tensor)
            continue;
        if (!(ops[layer->op].tensors >> i & 1))
            return xn_fail(error, XN_ERR_MALFORMED, name,
                           "it has a tensor %s, which op %s does not take; leave it out", name,
                           ops[layer->op].name);
        status = xn_tensor_check(tensor, name, i == 0, max_elements, error);
    }
    return status;
}

/* [C] or [1]; with `whole` also [C, H, W]. */
static xn_status check_values(const xn_tensor *tensor, const char *name, const xn_extent *extent,
                              bool whole, xn_error *error) {
    char path[40], text[120];
    if (!tensor)
        return XN_OK;
    const int64_t *dims = tensor->shape.dims;
    if (tensor->shape.rank == 1 && (dims[0] == 1 || dims[0] == extent->channels))
        return XN_OK;
    if (whole && tensor->shape.rank == 3 && dims[0] == extent->channels &&
        dims[1] == extent->height && dims[2] == extent->width)
        return XN_OK;
    snprintf(path, sizeof path, "%s.shape", name);
    xn_shape_format(&tensor->shape, text, sizeof text);
    if (whole)
        return xn_fail(error, XN_ERR_GEOMETRY, path,
                       "%s is %s; it must be [%d], [1] or [%d, %d, %d]", path, text,
                       extent->channels, extent->channels, extent->height, extent->width);
    return xn_fail(error, XN_ERR_GEOMETRY, path, "%s is %s; it must be [%d] or [1]", path, text,
                   extent->channels);
}

/* ---- convolutions ---- */

/* The weight's shape with four dimensions. */
static xn_status weight_dims(const xn_layer *layer, const xn_extent *in, int64_t dims[4],
                             xn_error *error) {
    const xn_shape *shape = &layer->weight->shape;
    if (shape->rank != 4 && shape->rank != 2)
        return xn_fail(
            error, XN_ERR_GEOMETRY, "weight.shape",
            "weight.shape has %d dimensions; it must be [O, C/groups, KH, KW], or [O, I] "
            "of a dense layer",
            shape->rank);
    if (shape->rank == 2 && (in->height > 1 || in->width > 1))
        return xn_fail(error, XN_ERR_GEOMETRY, "weight.shape",
                       "weight.shape has 2 dimensions, as of a dense layer, whose input is [I, 1, "
                       "1]; here it is [%d, %d, %d]: put a flatten layer in front",
                       in->channels, in->height, in->width);
    for (int i = 0; i < 4; i++)
        dims[i] = i < shape->rank ? shape->dims[i] : 1;
    return XN_OK;
}

static xn_status resolve_conv(xn_graph_layer *layer, const xn_layer_context *context,
                              int64_t *operations, xn_error *error) {
    const xn_layer *given = &layer->given;
    const xn_extent *in = context->inputs;
    if (!given->weight)
        return xn_fail(error, XN_ERR_MALFORMED, "weight",
                       "it has no tensor weight; a conv needs one of [O, C/groups, KH, KW]");
    if (given->attributes.k_map && given->window.mode != XN_MODE_XNOR)
        return xn_fail(error, XN_ERR_MALFORMED, "k_map",
                       "k_map is true with mode %s; K is for mode xnor: leave it out",
                       xn_mode_name(given->window.mode));
    xn_weights_shape weights = {.datatype = given->weight->datatype};
    xn_conv_params params = given->window;
    const xn_shape input = {4, {1, in->channels, in->height, in->width}};
    int64_t images;
    params.scaling = XN_SCALING_NONE;
    params.output_datatype = XN_FP32;
    params.precision = XN_PRECISION_FP32;
    xn_status status = weight_dims(given, in, weights.dims, error);
    if (!status)
        status = xn_conv_resolve(&params, context->datatype, &input, &weights, context->limits,
                                 &layer->conv, &images, error);
    if (status)
        return status;
    const xn_conv *v = &layer->conv;
    layer->extent = (xn_extent){v->out_channels, v->out_height, v->out_width};
    *operations += xn_conv_operations(v);
    status = check_values(given->scale, "scale", &layer->extent, false, error);
    return status ? status : check_values(given->bias, "bias", &layer->extent, false, error);
}

/* ---- pools ---- */

static xn_status check_axis(int axis, int64_t kernel, int64_t size, int64_t before, int64_t after,
                            xn_padding_kind kind, xn_error *error) {
    if (kernel < 1 || kernel > INT32_MAX)
        return xn_fail(error, XN_ERR_MALFORMED, "kernel",
                       "kernel[%d] is %" PRId64 "; it must be from 1 to %d, or \"global\"", axis,
                       kernel, INT32_MAX);
    if (kind == XN_PADDING_SAME)
        return XN_OK;
    if (kind == XN_PADDING_VALID)
        before = after = 0;
    if (before >= 0 && after >= 0 && (before >= kernel || after >= kernel))
        return xn_fail(error, XN_ERR_GEOMETRY, "padding",
                       "padding is %" PRId64 " and %" PRId64 ", kernel[%d] %" PRId64
                       ": a window would see padding alone; it must be less than the kernel",
                       before, after, axis, kernel);
    if (before >= 0 && after >= 0 && kernel > size + before + after)
        return xn_fail(error, XN_ERR_GEOMETRY, "kernel",
                       "kernel[%d] is %" PRId64 "; the input with its padding has only %" PRId64,
                       axis, kernel, size + before + after);
    return XN_OK;
}

static void pool_params(const xn_layer *given, const xn_extent *in, xn_conv_params *out) {
    *out = given->window;
    out->mode = XN_MODE_FLOAT;
    out->scaling = XN_SCALING_NONE;
    out->output_datatype = XN_FP32;
    out->precision = XN_PRECISION_FP32;
    out->groups = in->channels;
    out->dilation[0] = out->dilation[1] = 1;
    out->pad_value = 0;
    if (given->global) {
        out->padding_kind = XN_PADDING_VALID;
        out->stride[0] = out->stride[1] = 1;
    }
    for (int i = 0; i < 2; i++)
        if (out->stride[i] == 0)
            out->stride[i] = given->kernel[i];
}

static xn_status resolve_pool(xn_graph_layer *layer, const xn_layer_context *context,
                              int64_t *operations, xn_error *error) {
    const xn_layer *given = &layer->given;
    const xn_extent *in = context->inputs;
    const int64_t kernel[2] = {given->global ? in->height : given->kernel[0],
                               given->global ? in->width : given->kernel[1]};
    const xn_weights_shape window = {.dims = {in->channels, 1, kernel[0], kernel[1]}};
    const xn_shape input = {4, {1, in->channels, in->height, in->width}};
    xn_conv_params params;
    int64_t images;
    pool_params(given, in, &params);
    xn_status status = check_axis(0, kernel[0], in->height, params.padding[0], params.padding[2],
                                  params.padding_kind, error);
    if (!status)
        status = check_axis(1, kernel[1], in->width, params.padding[1], params.padding[3],
                            params.padding_kind, error);
    if (!status)
        status = xn_conv_resolve(&params, XN_FP32, &input, &window, context->limits, &layer->conv,
                                 &images, error);
    if (status)
        return status;
    const xn_conv *v = &layer->conv;
    layer->extent = (xn_extent){v->channels, v->out_height, v->out_width};
    *operations += xn_conv_operations(v);
    return XN_OK;
}

/* ---- the others ---- */

static xn_status resolve_same(xn_graph_layer *layer, const xn_layer_context *context,
                              int64_t *operations, xn_error *error) {
    (void)operations, (void)error;
    layer->extent = context->inputs[0];
    return XN_OK;
}

static xn_status resolve_sign(xn_graph_layer *layer, const xn_layer_context *context,
                              int64_t *operations, xn_error *error) {
    (void)operations;
    layer->extent = context->inputs[0];
    if (context->datatype == XN_UINT8 && !layer->given.shift)
        return xn_fail(error, XN_ERR_GEOMETRY, "inputs",
                       "its input is UINT8, which has no negative values: all signs would be +1; "
                       "give shift, or put an affine layer in front");
    return check_values(layer->given.shift, "shift", &layer->extent, false, error);
}

static xn_status resolve_affine(xn_graph_layer *layer, const xn_layer_context *context,
                                int64_t *operations, xn_error *error) {
    (void)operations;
    layer->extent = context->inputs[0];
    if (!layer->given.scale && !layer->given.bias)
        return xn_fail(error, XN_ERR_MALFORMED, "scale",
                       "it has neither a tensor scale nor bias; an affine layer needs one of them");
    xn_status status = check_values(layer->given.scale, "scale", &layer->extent, true, error);
    return status ? status : check_values(layer->given.bias, "bias", &layer->extent, true, error);
}

static xn_status resolve_prelu(xn_graph_layer *layer, const xn_layer_context *context,
                               int64_t *operations, xn_error *error) {
    (void)operations;
    layer->extent = context->inputs[0];
    return check_values(layer->given.slope, "slope", &layer->extent, false, error);
}

/* clip and quantize */
static xn_status resolve_range(xn_graph_layer *layer, const xn_layer_context *context,
                               int64_t *operations, xn_error *error) {
    (void)operations;
    const xn_attributes *a = &layer->given.attributes;
    layer->extent = context->inputs[0];
    if (a->low <= a->high)
        return XN_OK;
    return xn_fail(error, XN_ERR_MALFORMED, "min",
                   "min is %g and max %g; min must not be above max", (double)a->low,
                   (double)a->high);
}

static xn_status resolve_add(xn_graph_layer *layer, const xn_layer_context *context,
                             int64_t *operations, xn_error *error) {
    (void)operations;
    const xn_extent *first = context->inputs;
    for (int i = 1; i < layer->input_count; i++) {
        const xn_extent *other = &context->inputs[i];
        if (memcmp(first, other, sizeof *first) != 0)
            return xn_fail(error, XN_ERR_GEOMETRY, "inputs",
                           "inputs[0] is [%d, %d, %d] and inputs[%d] [%d, %d, %d]; what is added "
                           "must have one shape",
                           first->channels, first->height, first->width, i, other->channels,
                           other->height, other->width);
    }
    layer->extent = *first;
    return XN_OK;
}

static xn_status resolve_mul(xn_graph_layer *layer, const xn_layer_context *context,
                             int64_t *operations, xn_error *error) {
    (void)operations;
    const xn_extent *x = &context->inputs[0], *gate = &context->inputs[1];
    if (gate->channels != x->channels || gate->height != 1 || gate->width != 1)
        return xn_fail(error, XN_ERR_GEOMETRY, "inputs",
                       "inputs[1] is [%d, %d, %d]; it must have a value for each channel of "
                       "inputs[0], [%d, 1, 1]",
                       gate->channels, gate->height, gate->width, x->channels);
    layer->extent = *x;
    return XN_OK;
}

static xn_status resolve_concat(xn_graph_layer *layer, const xn_layer_context *context,
                                int64_t *operations, xn_error *error) {
    (void)operations;
    const xn_extent *first = context->inputs;
    int64_t channels = 0; /* of few enough int32 to fit */
    for (int i = 0; i < layer->input_count; i++) {
        const xn_extent *e = &context->inputs[i];
        if (e->height != first->height || e->width != first->width)
            return xn_fail(error, XN_ERR_GEOMETRY, "inputs",
                           "inputs[0] is of %d x %d and inputs[%d] of %d x %d; height and width "
                           "must be the same",
                           first->height, first->width, i, e->height, e->width);
        channels += e->channels;
    }
    if (channels > INT32_MAX)
        return xn_fail(error, XN_ERR_GEOMETRY, "inputs",
                       "its inputs have %" PRId64 " channels together; at most %d", channels,
                       INT32_MAX);
    layer->extent = (xn_extent){(int32_t)channels, first->height, first->width};
    return XN_OK;
}

static xn_status resolve_slice(xn_graph_layer *layer, const xn_layer_context *context,
                               int64_t *operations, xn_error *error) {
    (void)operations;
    const xn_extent *in = context->inputs;
    const int64_t from = layer->given.attributes.from, to = layer->given.attributes.to;
    if (from < 0 || to <= from || to > in->channels)
        return xn_fail(error, XN_ERR_GEOMETRY, "from",
                       "from is %" PRId64 " and to %" PRId64
                       "; the input has channels 0 to %d: it must be 0 <= from < to <= %d",
                       from, to, in->channels - 1, in->channels);
    layer->extent = (xn_extent){(int32_t)(to - from), in->height, in->width};
    return XN_OK;
}

static xn_status resolve_flatten(xn_graph_layer *layer, const xn_layer_context *context,
                                 int64_t *operations, xn_error *error) {
    (void)operations, (void)error;
    /* Every extent was checked to have fewer than 2^31 elements. */
    layer->extent = (xn_extent){(int32_t)xn_extent_elements(context->inputs), 1, 1};
    return XN_OK;
}

static xn_status resolve_top_k(xn_graph_layer *layer, const xn_layer_context *context,
                               int64_t *operations, xn_error *error) {
    (void)operations;
    const xn_extent *in = context->inputs;
    const int64_t k = layer->given.attributes.k;
    if (in->height > 1 || in->width > 1)
        return xn_fail(error, XN_ERR_GEOMETRY, "inputs",
                       "its input is [%d, %d, %d]; it must be [C, 1, 1]: put a flatten layer in "
                       "front",
                       in->channels, in->height, in->width);
    if (k < 1 || k > XN_TOP_K_MAX)
        return xn_fail(error, XN_ERR_MALFORMED, "k", "k is %" PRId64 "; it must be from 1 to %d", k,
                       XN_TOP_K_MAX);
    if (k > in->channels)
        return xn_fail(error, XN_ERR_GEOMETRY, "k",
                       "k is %" PRId64 ", but its input has only %d values", k, in->channels);
    layer->extent = (xn_extent){2, (int32_t)k, 1};
    return XN_OK;
}

/* ---- any ---- */

static xn_status check_attributes(const xn_layer *layer, xn_error *error) {
    for (const xn_attribute *a = ops[layer->op].attributes; a->name; a++) {
        float value;
        if (a->type != XN_ATTRIBUTE_NUMBER)
            continue;
        memcpy(&value, (const char *)&layer->attributes + a->offset, sizeof value);
        if (!isfinite(value) || value <= a->above)
            return xn_fail(error, XN_ERR_MALFORMED, a->name, "%s is %g; it must be %s", a->name,
                           (double)value, a->takes);
    }
    return XN_OK;
}

static xn_status check_extent(const xn_extent *e, const xn_conv_limits *limits, xn_error *error) {
    int64_t most = limits->max_elements < INT32_MAX ? limits->max_elements : INT32_MAX;
    int64_t pixels = (int64_t)e->height * e->width, elements;
    if (xn_mul_i64(pixels, e->channels, &elements) && elements <= most)
        return XN_OK;
    return xn_fail_limit(error, "max-elements", "shape",
                         "its result would be [%d, %d, %d], more than %" PRId64
                         " elements; make it smaller or raise --max-elements",
                         e->channels, e->height, e->width, most);
}

xn_status xn_layer_resolve(xn_graph_layer *layer, const xn_layer_context *context,
                           int64_t *operations, xn_error *error) {
    const int least = ops[layer->given.op].least_inputs, most = ops[layer->given.op].most_inputs;
    int64_t taken = 0, total;
    if (layer->input_count < least || layer->input_count > most)
        return xn_fail(error, XN_ERR_MALFORMED, "inputs", "it has %d inputs; op %s takes %s%d",
                       layer->input_count, ops[layer->given.op].name,
                       least == most ? "" : "at least ", layer->input_count > most ? most : least);
    xn_status status = check_parts(&layer->given, context->limits->max_elements, error);
    if (!status)
        status = check_attributes(&layer->given, error);
    if (!status)
        status = ops[layer->given.op].resolve(layer, context, &taken, error);
    if (!status)
        status = check_extent(&layer->extent, context->limits, error);
    if (status)
        return status;
    if (__builtin_add_overflow(*operations, taken, &total) ||
        total > context->limits->max_operations)
        return xn_fail_limit(error, "max-operations", "shape",
                             "with it the network takes more than %" PRId64
                             " operations an image; make it smaller or raise --max-operations",
                             context->limits->max_operations);
    *operations = total;
    return XN_OK;
}
