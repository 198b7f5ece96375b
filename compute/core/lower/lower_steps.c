/* lower_steps.c: steps of nodes. Each begins with a node and takes in what reads it, as far as the
 * epilogue's order goes (xn_epilogue.h): factor and bias, residual, activation, then real, bits or
 * both. */
#include "lower.h"

#include "xn_mem.h"
#include "xn_tensor.h"

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
    xn_values *factor, *bias;
    const xn_values *slope, *shift, *turned; /* turned instead of a factor */
    const xn_tensor *weight;
    const xn_node *stem;
    xn_planes *planes;
} chain;

/* ---- tensors ---- */

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

/* Steps with groups take words of their own groups, which no step writes: for them bytes, as the
 * network's input is. */
static xn_layout bits_layout(const xn_lowering *l, int node) {
    return l->nodes[node].grouped || node == 0 ? XN_LAYOUT_BYTES : XN_LAYOUT_WORDS;
}

static void find_grouped(xn_lowering *l) {
    for (int i = 0; i < l->count; i++) {
        const xn_node *n = &l->nodes[i];
        if (n->op == XN_OP_CONV && n->conv.groups > 1)
            l->nodes[n->inputs[0]].grouped = true;
    }
}

/* A dense layer whose values nothing but a top_k reads, as they are or behind what an epilogue
 * has. */
static bool feeds_top_k(const xn_lowering *l, int node) {
    const xn_conv *v = &l->nodes[node].conv;
    if (!xn_lower_reads_signs(&l->nodes[node]) || v->groups != 1 || v->kernel_h != 1 ||
        v->kernel_w != 1 || v->height != 1 || v->width != 1 || v->out_height != 1 ||
        v->out_width != 1 || v->pad_top || v->pad_left)
        return false;
    while ((node = xn_lower_only_reader(l, node)) != XN_NOWHERE) {
        const int op = l->nodes[node].op;
        if (op != XN_OP_AFFINE && op != XN_OP_PRELU && op != XN_OP_CLIP)
            return op == XN_OP_TOP_K;
    }
    return false;
}

/* The sign of the network's input for one convolution, which takes it by itself; not where that is
 * to be a top_k's, whose kernels take bits. */
static bool is_implied(const xn_lowering *l, int node) {
    const xn_node *n = &l->nodes[node];
    const xn_node *input = &l->nodes[0];
    const int reader = xn_lower_only_reader(l, node);
    return n->op == XN_OP_SIGN && !n->shift && n->inputs[0] == 0 &&
           (l->graph->input_layout == XN_IMAGE_NCHW || l->graph->input_shape.rank == 1) &&
           input->op == XN_NODE_INPUT && reader != XN_NOWHERE &&
           xn_lower_reads_signs(&l->nodes[reader]) && !feeds_top_k(l, reader);
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
    s->conv.input_datatype = (int32_t)xn_lower_datatype(l, node);
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

/* A factor that is a product must be as exact in fp32 as its own factors were. */
static bool keeps_range(double factor) {
    const float rounded = (float)factor;
    return isfinite(rounded) && (factor == 0 || fabsf(rounded) >= FLT_MIN);
}

/* (v * factor + bias) * scale + shift = v * (factor * scale) + (bias * scale + shift); false, and
 * nothing is changed, where that leaves the range. */
static bool fold(chain *c, const xn_values *scale, const xn_values *bias) {
    const bool vary = xn_values_vary(c->factor) || xn_values_vary(c->bias) ||
                      xn_values_vary(scale) || xn_values_vary(bias);
    xn_values *factors = NULL, *sums = NULL;
    if (c->factor || scale)
        factors = xn_lower_values(c->l, c->channels, vary);
    if (c->bias || bias)
        sums = xn_lower_values(c->l, c->channels, vary);
    if (c->l->no_memory)
        return false;
    for (int32_t o = 0; o < (vary ? c->channels : 1); o++) {
        const double s = scale ? xn_value(scale, o) : 1;
        const double f = c->factor ? xn_value(c->factor, o) : 1;
        const double sum =
            (c->bias ? xn_value(c->bias, o) * s : 0) + (bias ? xn_value(bias, o) : 0);
        if ((factors && !keeps_range(f * s)) || !isfinite((float)sum))
            return false;
        if (factors)
            factors->at[o] = f * s;
        if (sums)
            sums->at[o] = sum;
    }
    c->factor = factors;
    c->bias = sums;
    return true;
}

static bool take_affine(chain *c, const xn_node *n) {
    if (c->stem && (c->step.pool || !xn_lower_is_moderate(n->scale, c->channels)))
        return false;
    if (c->stage == AT_ACCUMULATOR) {
        c->factor = n->scale;
        c->bias = n->bias;
        c->stage = AT_LINEAR;
        return true;
    }
    if (n->scale ? c->stage > AT_LINEAR : c->stage > AT_RESIDUAL)
        return false;
    return fold(c, n->scale, n->bias);
}

static bool take_add(chain *c, const xn_node *n, int from) {
    const int other = n->inputs[0] == from ? n->inputs[1] : n->inputs[0];
    if (c->stem || c->stage >= AT_RESIDUAL || !is_there(c->l, other))
        return false;
    c->step.residual = real_tensor(c->l, other, &c->step.residual_view);
    c->step.residual_datatype = (int32_t)xn_lower_datatype(c->l, other);
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
    e->low = n->attributes.low;
    e->high = n->attributes.high;
    return true;
}

/* Behind a stem. What has come so far must not fall where its input rises: then the largest of its
 * values is that of the largest input. */
static bool take_pool(chain *c, const xn_node *n) {
    if (!c->stem || c->step.pool || !xn_lower_is_stem_pool(n))
        return false;
    for (int32_t o = 0; o < xn_values_count(c->slope, c->channels); o++)
        if (!(c->slope->at[o] >= 0))
            return false;
    c->step.pool = 1;
    c->step.conv.out_height = n->conv.out_height;
    c->step.conv.out_width = n->conv.out_width;
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
    case XN_OP_MAX_POOL:
        return take_pool(c, n);
    default:
        return false;
    }
}

static void extend(chain *c) {
    int reader;
    while ((reader = xn_lower_only_reader(c->l, c->last)) != XN_NOWHERE &&
           take_in(c, &c->l->nodes[reader], c->last))
        c->last = reader;
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

static void begin_conv(chain *c, const xn_node *n) {
    xn_conv *v = &c->step.conv;
    *v = n->conv;
    memset(&v->epilogue, 0, sizeof v->epilogue);
    v->epilogue.k = n->attributes.k_map != 0;
    c->weight = n->weight;
    c->factor = n->scale;
    c->bias = n->bias;
    if (n->scale || n->bias)
        c->stage = AT_LINEAR;
}

/* FP16 is for what is exact in it: an input in FP32 is one that is never rounded. */
static int32_t precision_of(const xn_lowering *l, const xn_conv *v) {
    const bool exact = l->graph->precision == XN_PRECISION_FP16 && v->input_datatype == XN_FP32;
    return v->mode == XN_MODE_XNOR || exact ? XN_PRECISION_FP32 : (int32_t)l->graph->precision;
}

static void begin_stem(chain *c, const xn_node *n) {
    begin_conv(c, n);
    c->weight = NULL;
    c->stem = n;
    c->step.stem_height = n->conv.out_height;
    c->step.stem_width = n->conv.out_width;
}

static void begin_pool(chain *c, const xn_node *n) {
    c->step.conv = n->conv;
    memset(&c->step.conv.epilogue, 0, sizeof c->step.conv.epilogue);
    c->turned = n->turned;
    c->step.least = n->turned != NULL;
}

static bool begin(chain *c, int node) {
    const xn_node *n = &c->l->nodes[node];
    xn_step *s = &c->step;
    s->kind = (int32_t)xn_lower_kind(n->op);
    s->residual = s->second = s->output = s->bits = XN_NO_TENSOR;
    s->weights = XN_NO_WEIGHTS;
    if (n->op == XN_OP_CONV)
        begin_conv(c, n);
    else if (n->op == XN_NODE_STEM)
        begin_stem(c, n);
    else if (n->op == XN_OP_MAX_POOL || n->op == XN_OP_AVG_POOL)
        begin_pool(c, n);
    else if (n->op == XN_OP_TOP_K) /* that of what it chooses from */
        set_geometry(&s->conv, &c->l->nodes[n->inputs[0]].extent);
    else
        set_geometry(&s->conv, &n->extent);
    c->channels = s->conv.out_channels;
    set_input(c, n->inputs[0]);
    if (n->op == XN_OP_CONV || n->op == XN_NODE_STEM)
        s->conv.precision = precision_of(c->l, &s->conv);
    if (s->kind != XN_STEP_MAP)
        s->attributes = n->attributes;
    if (n->op == XN_OP_MUL) {
        s->second = real_tensor(c->l, n->inputs[1], &s->second_view);
        s->second_datatype = (int32_t)xn_lower_datatype(c->l, n->inputs[1]);
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

/* Values of a top_k are FP32, as its output is. */
static void store_real(chain *c) {
    c->step.output = real_tensor(c->l, c->last, &c->step.output_view);
    c->step.conv.epilogue.datatype = (int32_t)xn_lower_datatype(c->l, c->last);
}

/* Makes a top_k of a convolution that is nothing else's. */
static void take_top_k(chain *c, int first) {
    const int reader = xn_lower_only_reader(c->l, c->last);
    if (c->step.kind != XN_STEP_CONV || reader == XN_NOWHERE ||
        c->l->nodes[reader].op != XN_OP_TOP_K || !feeds_top_k(c->l, first))
        return;
    c->step.kind = XN_STEP_TOP_K;
    c->step.attributes = c->l->nodes[reader].attributes;
    c->last = reader;
}

/* What reads the chain's last node: one sign can be stored as bits, all others need the values. */
static void store(chain *c) {
    xn_lowering *l = c->l;
    bool real = false;
    int sign = XN_NOWHERE;
    c->step.conv.epilogue.datatype = XN_BITS;
    for (const xn_use *use = l->nodes[c->last].readers; use; use = use->next) {
        if (l->nodes[use->reader].op == XN_OP_SIGN && sign == XN_NOWHERE)
            sign = use->reader;
        else
            real = true;
    }
    if (real)
        store_real(c);
    if (sign != XN_NOWHERE)
        store_bits(c, sign);
}

/* A tensor of values as float, for xn_weights; shape [count], where 1 is for those that do not
 * vary. */
static const xn_tensor *as_tensor(xn_lowering *l, const xn_values *values, int32_t count) {
    if (!values)
        return NULL;
    float *rounded = xn_lower_take(l, (size_t)count, sizeof *rounded);
    xn_tensor *tensor = xn_lower_take(l, 1, sizeof *tensor);
    if (!rounded || !tensor)
        return NULL;
    for (int32_t i = 0; i < count; i++)
        rounded[i] = (float)xn_value(values, i);
    *tensor = (xn_tensor){XN_FP32, {1, {count}}, count, (size_t)count * sizeof *rounded, rounded};
    return tensor;
}

/* ---- real weights in precision fp16 ---- */

/* The power of 2 by which the filter's largest weight lies from 2^14 to 2^15 once it is rounded to
 * binary16: none overflows, and only those 2^28 times smaller have fewer than 11 significant bits.
 */
static int exponent_of(const float *filter, int64_t count) {
    float largest = 0;
    for (int64_t i = 0; i < count; i++)
        largest = fmaxf(largest, fabsf(filter[i]));
    if (largest == 0)
        return 0;
    const int exponent = ilogbf(largest) - 14;
    return exponent + (xn_fp32_to_fp16(scalbnf(largest, -exponent)) >= 0x7800);
}

static bool is_finite(const float *values, int64_t count) {
    for (int64_t i = 0; i < count; i++)
        if (!isfinite(values[i]))
            return false;
    return true;
}

/* What every backend computes with then: a GPU's matrix units find nothing left to round. A filter
 * with a weight that is not finite stays as it is, and is computed in fp32. */
static const void *round_weights(xn_lowering *l, const xn_tensor *kernel, int32_t filters) {
    const int64_t each = kernel->elements / filters;
    float *rounded = xn_lower_take(l, (size_t)kernel->elements, sizeof *rounded);
    if (!rounded)
        return NULL;
    xn_tensor_to_fp32(kernel->datatype, kernel->data, rounded, kernel->elements);
    for (float *filter = rounded; filter < rounded + kernel->elements; filter += each) {
        if (!is_finite(filter, each))
            continue;
        const int exponent = exponent_of(filter, each);
        for (int64_t i = 0; i < each; i++)
            filter[i] =
                scalbnf(xn_fp16_to_fp32(xn_fp32_to_fp16(scalbnf(filter[i], -exponent))), exponent);
    }
    return rounded;
}

static xn_status out_of_memory(const xn_lowering *l, xn_error *error) {
    return xn_fail(error, XN_ERR_NO_MEMORY, "layers", "no memory to lower a network of %d layers",
                   l->graph->layer_count);
}

/* The stem's kernel, whose scale and borders have factor and bias in them. */
static bool make_planes(chain *c, xn_tensor *scale) {
    xn_planes_source source = xn_lower_planes_of(c->l, c->stem);
    float *values = xn_lower_take(c->l, (size_t)c->channels, sizeof *values);
    source.factor = xn_lower_each(c->l, c->factor, c->channels);
    source.bias = xn_lower_each(c->l, c->bias, c->channels);
    c->factor = c->bias = NULL;
    c->planes = !c->l->no_memory ? xn_planes_create(&source, values) : NULL;
    *scale = (xn_tensor){
        XN_FP32, {1, {c->channels}}, c->channels, (size_t)c->channels * sizeof *values, values};
    return c->planes != NULL;
}

/* Whether the weight lies in memory that the network takes. */
static bool stays(const xn_lowering *l, const xn_tensor *weight) {
    const xn_memory *m = l->tensors;
    return m && (uintptr_t)weight->data - (uintptr_t)m->bytes < m->length;
}

/* A top_k may have more rows than there is room for values of each. */
static bool may_broadcast(const chain *c) {
    return c->step.kind == XN_STEP_TOP_K && !xn_values_vary(c->factor) &&
           !xn_values_vary(c->bias) && !xn_values_vary(c->slope);
}

static xn_status add_weights(chain *c, xn_error *error) {
    xn_lowering *l = c->l;
    const xn_conv *v = &c->step.conv;
    xn_network *network = l->network;
    xn_tensor kernel, scale;
    if (c->stem && !make_planes(c, &scale))
        return out_of_memory(l, error);
    const bool broadcast = may_broadcast(c);
    const int32_t values = broadcast ? 1 : c->channels;
    xn_weights_parts parts = {.scale = as_tensor(l, c->turned ? c->turned : c->factor, values),
                              .bias = as_tensor(l, c->bias, values),
                              .slope = as_tensor(l, c->slope, values),
                              .shift = as_tensor(l, c->shift, values),
                              .broadcast = broadcast};
    if (c->stem)
        parts.scale = &scale;
    if (c->weight) { /* [O, I], and what lies behind flatten, in the form of the convolution */
        kernel = *c->weight;
        kernel.shape =
            (xn_shape){4, {v->out_channels, v->group_channels, v->kernel_h, v->kernel_w}};
        parts.weights = &kernel;
        parts.stays = stays(l, c->weight);
        if (v->precision == XN_PRECISION_FP16 && v->mode == XN_MODE_FLOAT) {
            kernel.data = round_weights(l, c->weight, v->out_channels);
            kernel.datatype = XN_FP32;
            kernel.bytes = (size_t)kernel.elements * sizeof(float);
        }
    }
    if (l->no_memory) {
        xn_planes_free(c->planes);
        return out_of_memory(l, error);
    }
    if (!parts.weights && !parts.scale && !parts.bias && !parts.slope && !parts.shift)
        return XN_OK;
    xn_status status =
        xn_weights_create_parts(&parts, &network->weights[network->weights_count], error);
    if (status == XN_OK && c->planes) {
        network->weights[network->weights_count]->planes = c->planes;
        network->weights[network->weights_count]->host_bytes += c->planes->bytes;
    }
    if (status == XN_OK && parts.stays && !network->weights[network->weights_count]->own_bits)
        network->tensors = *l->tensors;
    if (status == XN_OK)
        c->step.weights = network->weights_count++;
    else
        xn_planes_free(c->planes);
    return status;
}

static xn_status end(chain *c, xn_error *error) {
    xn_epilogue *e = &c->step.conv.epilogue;
    e->factor = c->factor && !c->stem ? XN_FACTOR_SCALE : XN_FACTOR_NONE;
    e->bias = c->bias && !c->stem;
    xn_network *network = c->l->network;
    xn_status status = add_weights(c, error);
    if (status)
        return status;
    if (e->datatype == XN_FP16 || c->step.conv.precision == XN_PRECISION_FP16)
        network->precision = XN_PRECISION_FP16;
    network->steps[network->step_count++] = c->step;
    return XN_OK;
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
    take_top_k(&c, first);
    store(&c);
    /* What was taken in has no step of its own. */
    for (int at = first;; at = xn_lower_only_reader(l, at)) {
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
    find_grouped(l);
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
