/* lower_steps.c: steps of nodes. Each begins with a node and takes in what reads it, as far as the
 * epilogue's order goes (xn_epilogue.h): factor and bias, residual, activation, then real, bits or
 * both. */
#include "lower.h"

#include "xn_mem.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* How far an epilogue has come. */
typedef enum { AT_ACCUMULATOR, AT_LINEAR, AT_RESIDUAL, AT_ACTIVATION } stage;

/* A step in the making. */
typedef struct chain {
    xn_lowering *l;
    xn_step step;
    int last; /* the node whose values it has now */
    stage stage;
    int32_t channels; /* of the output */
    double *factor, *bias;
    const double *slope, *shift, *turned; /* turned instead of a factor */
    const xn_tensor *weight;
} chain;

/* ---- tensors ---- */

static xn_datatype datatype_of(const xn_lowering *l, int node) {
    const int root = xn_lower_locate(l, node).root;
    const int op = l->nodes[root].op;
    return op == XN_NODE_INPUT    ? l->graph->input_datatype
           : op == XN_NODE_RESULT ? XN_FP32
                                  : l->edges;
}

static int32_t real_tensor(xn_lowering *l, int node, xn_view *view) {
    const xn_location at = xn_lower_locate(l, node);
    xn_node *root = &l->nodes[at.root];
    const int64_t whole = xn_extent_elements(&root->extent);
    if (root->tensor == XN_NOWHERE)
        root->tensor = l->tensor_count++;
    if (whole != xn_extent_elements(&l->nodes[node].extent))
        *view = (xn_view){(int32_t)at.offset, (int32_t)whole};
    return root->tensor;
}

static int32_t bits_tensor(xn_lowering *l, int node) {
    if (l->nodes[node].bits == XN_NOWHERE)
        l->nodes[node].bits = l->tensor_count++;
    return l->nodes[node].bits;
}

/* Steps with groups take words of their own groups, which no step writes: for them bytes. */
static xn_layout bits_layout(const xn_lowering *l, int node) {
    for (int i = 0; i < l->count; i++) {
        const xn_node *n = &l->nodes[i];
        if (n->op == XN_OP_CONV && n->inputs[0] == node && n->conv.groups > 1)
            return XN_LAYOUT_BYTES;
    }
    return XN_LAYOUT_WORDS;
}

/* The sign of the network's input for one convolution, which takes it by itself. */
static bool is_implied(const xn_lowering *l, int node) {
    const xn_node *n = &l->nodes[node];
    const xn_node *input = &l->nodes[0];
    int user;
    return n->op == XN_OP_SIGN && !n->shift && n->inputs[0] == 0 &&
           (l->graph->input_layout == XN_IMAGE_NCHW || l->graph->input_shape.rank == 1) &&
           input->op == XN_NODE_INPUT && xn_lower_uses(l, node, &user) == 1 &&
           xn_lower_reads_signs(&l->nodes[user]);
}

static void set_input(chain *c, int node) {
    xn_lowering *l = c->l;
    xn_step *s = &c->step;
    if (is_implied(l, node))
        node = l->nodes[node].inputs[0];
    if (xn_lower_is_binary(l, node)) {
        s->input = bits_tensor(l, node);
        s->input_layout = bits_layout(l, node);
        s->conv.input_datatype = XN_BITS;
        return;
    }
    s->input = real_tensor(l, node, &s->input_view);
    s->conv.input_datatype = (int32_t)datatype_of(l, node);
    if (node == 0 && l->graph->input_layout == XN_IMAGE_NHWC && l->graph->input_shape.rank == 3)
        s->input_layout = XN_LAYOUT_NHWC;
}

/* The values that a node's residual comes from are there already. */
static bool is_there(const xn_lowering *l, int node) {
    while (l->nodes[node].op == XN_OP_FLATTEN || l->nodes[node].op == XN_OP_SLICE)
        node = l->nodes[node].inputs[0];
    const xn_node *n = &l->nodes[node];
    if (n->op != XN_OP_CONCAT || n->done)
        return n->done;
    for (int k = 0; k < n->input_count; k++) {
        int part = n->inputs[k];
        while (l->nodes[part].op == XN_OP_FLATTEN)
            part = l->nodes[part].inputs[0];
        if (!l->nodes[part].done)
            return false;
    }
    return true;
}

/* ---- taking nodes in ---- */

static double *copy_values(chain *c, const double *values) {
    const size_t count = (size_t)c->channels;
    double *copy = xn_lower_take(c->l, count, sizeof *copy);
    if (copy)
        memcpy(copy, values, count * sizeof *copy);
    return copy;
}

/* A factor that is a product must be as exact in fp32 as its own factors were. */
static bool keeps_range(double factor) {
    const float rounded = (float)factor;
    return isfinite(rounded) && (factor == 0 || fabsf(rounded) >= FLT_MIN);
}

/* (v * factor + bias) * scale + shift = v * (factor * scale) + (bias * scale + shift); false, and
 * nothing is changed, where that leaves the range. */
static bool fold(chain *c, const double *scale, const double *bias) {
    double *factors = NULL, *sums = NULL;
    if (c->factor || scale)
        factors = xn_lower_take(c->l, (size_t)c->channels, sizeof *factors);
    if (c->bias || bias)
        sums = xn_lower_take(c->l, (size_t)c->channels, sizeof *sums);
    if (c->l->no_memory)
        return false;
    for (int32_t o = 0; o < c->channels; o++) {
        const double s = scale ? scale[o] : 1, f = c->factor ? c->factor[o] : 1;
        const double sum = (c->bias ? c->bias[o] * s : 0) + (bias ? bias[o] : 0);
        if ((factors && !keeps_range(f * s)) || !isfinite((float)sum))
            return false;
        if (factors)
            factors[o] = f * s;
        if (sums)
            sums[o] = sum;
    }
    c->factor = factors;
    c->bias = sums;
    return true;
}

static bool take_affine(chain *c, const xn_node *n) {
    if (c->stage == AT_ACCUMULATOR) {
        c->factor = n->scale ? copy_values(c, n->scale) : NULL;
        c->bias = n->bias ? copy_values(c, n->bias) : NULL;
        c->stage = AT_LINEAR;
        return !c->l->no_memory;
    }
    if (c->turned || (n->scale ? c->stage > AT_LINEAR : c->stage > AT_RESIDUAL))
        return false;
    return fold(c, n->scale, n->bias);
}

static bool take_add(chain *c, const xn_node *n, int from) {
    const int other = n->inputs[0] == from ? n->inputs[1] : n->inputs[0];
    if (c->stage >= AT_RESIDUAL || !is_there(c->l, other) ||
        datatype_of(c->l, other) != c->l->edges)
        return false;
    c->step.residual = real_tensor(c->l, other, &c->step.residual_view);
    c->step.residual_datatype = (int32_t)c->l->edges;
    c->step.conv.epilogue.residual = 1;
    c->stage = AT_RESIDUAL;
    return true;
}

static bool take_activation(chain *c, const xn_node *n) {
    xn_epilogue *e = &c->step.conv.epilogue;
    if (c->stage >= AT_ACTIVATION)
        return false;
    c->stage = AT_ACTIVATION;
    if (n->op == XN_OP_PRELU) {
        e->activation = XN_ACTIVATION_PRELU;
        c->slope = n->slope;
        return true;
    }
    e->activation = XN_ACTIVATION_CLIP;
    e->low = n->low;
    e->high = n->high;
    return true;
}

/* from: the node whose values the chain has. */
static bool take_in(chain *c, const xn_node *n, int from) {
    switch (n->op) {
    case XN_OP_AFFINE:
        return take_affine(c, n);
    case XN_OP_ADD:
        return take_add(c, n, from);
    case XN_OP_PRELU:
    case XN_OP_CLIP:
        return take_activation(c, n);
    default:
        return false;
    }
}

static void extend(chain *c) {
    int user = XN_NOWHERE;
    while (xn_lower_uses(c->l, c->last, &user) == 1 && take_in(c, &c->l->nodes[user], c->last))
        c->last = user;
}

/* ---- beginning ---- */

static void set_geometry(xn_conv *v, const xn_extent *e) {
    *v = (xn_conv){.channels = e->channels,
                   .height = e->height,
                   .width = e->width,
                   .out_channels = e->channels,
                   .kernel_h = 1,
                   .kernel_w = 1,
                   .out_height = e->height,
                   .out_width = e->width,
                   .groups = 1,
                   .group_channels = e->channels,
                   .group_out_channels = e->channels,
                   .stride_h = 1,
                   .stride_w = 1,
                   .dilation_h = 1,
                   .dilation_w = 1,
                   .mode = XN_MODE_FLOAT};
}

static xn_step_kind kind_of(int op) {
    switch (op) {
    case XN_OP_CONV:
        return XN_STEP_CONV;
    case XN_OP_MAX_POOL:
        return XN_STEP_MAX_POOL;
    case XN_OP_AVG_POOL:
        return XN_STEP_AVG_POOL;
    case XN_OP_MUL:
        return XN_STEP_MUL;
    case XN_OP_SIGMOID:
        return XN_STEP_SIGMOID;
    case XN_OP_QUANTIZE:
        return XN_STEP_QUANTIZE;
    case XN_OP_SOFTMAX:
        return XN_STEP_SOFTMAX;
    default:
        return XN_STEP_MAP;
    }
}

static void begin_conv(chain *c, const xn_node *n) {
    xn_conv *v = &c->step.conv;
    *v = n->conv;
    memset(&v->epilogue, 0, sizeof v->epilogue);
    v->epilogue.k = n->k_map;
    v->precision = v->mode == XN_MODE_XNOR ? XN_PRECISION_FP32 : (int32_t)c->l->graph->precision;
    c->weight = n->weight;
    c->factor = n->scale;
    c->bias = n->bias;
    if (n->scale || n->bias)
        c->stage = AT_LINEAR;
}

static void begin_pool(chain *c, const xn_node *n) {
    c->step.conv = n->conv;
    memset(&c->step.conv.epilogue, 0, sizeof c->step.conv.epilogue);
    c->step.count_padding = n->op == XN_OP_AVG_POOL && n->count_padding;
    c->turned = n->turned;
    c->step.least = n->turned != NULL;
}

static bool begin(chain *c, int node) {
    const xn_node *n = &c->l->nodes[node];
    xn_step *s = &c->step;
    s->kind = (int32_t)kind_of(n->op);
    s->residual = s->second = s->output = s->bits = XN_NO_TENSOR;
    s->weights = XN_NO_WEIGHTS;
    if (n->op == XN_OP_CONV)
        begin_conv(c, n);
    else if (n->op == XN_OP_MAX_POOL || n->op == XN_OP_AVG_POOL)
        begin_pool(c, n);
    else
        set_geometry(&s->conv, &n->extent);
    c->channels = s->conv.out_channels;
    set_input(c, n->inputs[0]);
    if (n->op == XN_OP_QUANTIZE) {
        s->quantum = n->quantum;
        s->low = n->low;
        s->high = n->high;
    }
    if (n->op == XN_OP_MUL) {
        s->second = real_tensor(c->l, n->inputs[1], &s->second_view);
        s->second_datatype = (int32_t)datatype_of(c->l, n->inputs[1]);
    }
    if (s->kind != XN_STEP_MAP || n->op == XN_NODE_COPY || n->op == XN_OP_SIGN)
        return true;
    return take_in(c, n, n->inputs[0]);
}

/* ---- ending ---- */

static void store_bits(chain *c, int node) {
    xn_lowering *l = c->l;
    xn_node *n = &l->nodes[node];
    xn_epilogue *e = &c->step.conv.epilogue;
    c->step.bits = bits_tensor(l, node);
    c->step.bits_layout = bits_layout(l, node);
    c->shift = n->op == XN_OP_SIGN ? n->shift : NULL;
    e->bits = 1;
    e->shift = c->shift != NULL;
    n->done = true;
}

static void store_real(chain *c) {
    c->step.output = real_tensor(c->l, c->last, &c->step.output_view);
    c->step.conv.epilogue.datatype = (int32_t)datatype_of(c->l, c->last);
}

/* What reads the chain's last node: one sign can be stored as bits, all others need the values. */
static void store(chain *c) {
    xn_lowering *l = c->l;
    bool real = false;
    int sign = XN_NOWHERE;
    c->step.conv.epilogue.datatype = XN_BITS;
    for (int i = 0; i < l->count; i++) {
        const xn_node *n = &l->nodes[i];
        for (int k = 0; n->op != XN_NODE_DEAD && k < n->input_count; k++) {
            if (n->inputs[k] != c->last)
                continue;
            if (n->op == XN_OP_SIGN && sign == XN_NOWHERE)
                sign = i;
            else
                real = true;
        }
    }
    if (real)
        store_real(c);
    if (sign != XN_NOWHERE)
        store_bits(c, sign);
}

/* A tensor of double values as float, for xn_weights; shape [count]. */
static const xn_tensor *as_tensor(xn_lowering *l, const double *values, int32_t count) {
    if (!values)
        return NULL;
    float *rounded = xn_lower_take(l, (size_t)count, sizeof *rounded);
    xn_tensor *tensor = xn_lower_take(l, 1, sizeof *tensor);
    if (!rounded || !tensor)
        return NULL;
    for (int32_t i = 0; i < count; i++)
        rounded[i] = (float)values[i];
    *tensor = (xn_tensor){XN_FP32, {1, {count}}, count, (size_t)count * sizeof *rounded, rounded};
    return tensor;
}

static xn_status out_of_memory(const xn_lowering *l, xn_error *error) {
    return xn_fail(error, XN_ERR_NO_MEMORY, "layers", "no memory to lower a network of %d layers",
                   l->graph->layer_count);
}

static xn_status add_weights(chain *c, xn_error *error) {
    xn_lowering *l = c->l;
    const xn_conv *v = &c->step.conv;
    xn_network *network = l->network;
    xn_tensor kernel;
    xn_weights_parts parts = {.scale = as_tensor(l, c->turned ? c->turned : c->factor, c->channels),
                              .bias = as_tensor(l, c->bias, c->channels),
                              .slope = as_tensor(l, c->slope, c->channels),
                              .shift = as_tensor(l, c->shift, c->channels)};
    if (l->no_memory)
        return out_of_memory(l, error);
    if (c->weight) { /* [O, I], and what lies behind flatten, in the form of the convolution */
        kernel = *c->weight;
        kernel.shape =
            (xn_shape){4, {v->out_channels, v->group_channels, v->kernel_h, v->kernel_w}};
        parts.weights = &kernel;
    }
    if (!parts.weights && !parts.scale && !parts.bias && !parts.slope && !parts.shift)
        return XN_OK;
    xn_status status =
        xn_weights_create_parts(&parts, &network->weights[network->weights_count], error);
    if (status == XN_OK)
        c->step.weights = network->weights_count++;
    return status;
}

static xn_status end(chain *c, xn_error *error) {
    xn_epilogue *e = &c->step.conv.epilogue;
    e->factor = c->factor ? XN_FACTOR_SCALE : XN_FACTOR_NONE;
    e->bias = c->bias != NULL;
    xn_status status = add_weights(c, error);
    if (status == XN_OK)
        c->l->network->steps[c->l->network->step_count++] = c->step;
    return status;
}

/* ---- all ---- */

static xn_status add_step(xn_lowering *l, int node, xn_error *error) {
    chain c;
    memset(&c, 0, sizeof c); /* padding too: equal steps have equal bytes */
    c.l = l;
    c.last = node;
    if (!begin(&c, node))
        return out_of_memory(l, error);
    if (xn_lower_is_binary(l, node)) {
        c.step.conv.epilogue.datatype = XN_BITS;
        store_bits(&c, node);
        return end(&c, error);
    }
    const int first = node;
    extend(&c);
    if (l->no_memory)
        return out_of_memory(l, error);
    store(&c);
    /* What was taken in has no step of its own. */
    for (int at = first;; xn_lower_uses(l, at, &at)) {
        l->nodes[at].done = true;
        if (at == c.last)
            break;
    }
    return end(&c, error);
}

static bool allocate(xn_lowering *l) {
    xn_network *network = xn_mem_zalloc(1, sizeof *network);
    if (!network)
        return false;
    l->network = network;
    network->steps = xn_mem_zalloc((size_t)l->order_count, sizeof *network->steps);
    network->weights = xn_mem_zalloc((size_t)l->order_count, sizeof(xn_weights *));
    return network->steps && network->weights;
}

xn_status xn_lower_steps(xn_lowering *l, xn_error *error) {
    if (!allocate(l))
        return out_of_memory(l, error);
    for (int i = 0; i < l->order_count; i++) {
        const int node = l->order[i];
        xn_node *n = &l->nodes[node];
        if (n->done)
            continue;
        if (!xn_lower_is_step(n) || is_implied(l, node)) {
            n->done = true;
            continue;
        }
        xn_status status = add_step(l, node, error);
        if (status)
            return status;
    }
    return XN_OK;
}
