#include "nw_random.h"

#include <stdio.h>
#include <string.h>

/* A network in the making. */
typedef struct maker {
    nw_net *net;
    xn_rng *rng;
    bool exact;
    xn_graph *graph; /* of the layers so far; NULL without one */
    char last[16];   /* the layer to go on from */
} maker;

static int below(maker *m, int n) {
    return (int)xn_rng_below(m->rng, (uint64_t)n);
}

static xn_shape shape_of(const maker *m, const char *name) {
    xn_shape shape;
    if (m->graph && xn_graph_layer_shape(m->graph, name, &shape))
        return shape;
    return nw_input_shape(&m->net->params);
}

/* Any layer so far, or the input. */
static const char *any(maker *m) {
    const int count = m->net->params.layer_count;
    return count && below(m, 8) ? m->net->layers[below(m, count)].name : "input";
}

static const char *new_name(maker *m) {
    char *name = nw_take(m->net, 16);
    snprintf(name, 16, "l%d", m->net->params.layer_count);
    return name;
}

/* The layer that was added last stays if it fits, else it is taken away. */
static bool settle(maker *m) {
    xn_graph *graph = NULL;
    nw_net *net = m->net;
    if (xn_graph_create(&net->params, &nw_limits, &graph, NULL) != XN_OK) {
        net->params.layer_count--;
        return false;
    }
    xn_graph_free(m->graph);
    m->graph = graph;
    snprintf(m->last, sizeof m->last, "%s", net->layers[net->params.layer_count - 1].name);
    return true;
}

static xn_layer *begin(maker *m, xn_op op) {
    return nw_add(m->net, op, new_name(m), m->last);
}

static void window(maker *m, xn_layer *l, bool dilated) {
    static const xn_padding_kind kinds[] = {XN_PADDING_EXPLICIT, XN_PADDING_EXPLICIT,
                                            XN_PADDING_SAME, XN_PADDING_VALID};
    l->window.padding_kind = kinds[below(m, 4)];
    for (int i = 0; i < 4; i++)
        l->window.padding[i] = below(m, 3);
    for (int i = 0; i < 2; i++)
        l->window.stride[i] = 1 + (below(m, 3) == 0);
    for (int i = 0; i < 2 && dilated; i++)
        l->window.dilation[i] = 1 + (below(m, 5) == 0);
}

static bool add_conv(maker *m, xn_mode mode) {
    const xn_shape in = shape_of(m, m->last);
    xn_layer *l = begin(m, XN_OP_CONV);
    int64_t groups = below(m, 4) ? 1 : in.dims[0] % 2 ? 1 : below(m, 2) ? 2 : in.dims[0];
    const int64_t out = groups * (1 + below(m, groups > 2 ? 2 : below(m, 6) ? 12 : 40));
    const bool dense = in.dims[1] == 1 && in.dims[2] == 1 && below(m, 2);
    window(m, l, true);
    l->window.mode = mode;
    l->window.groups = dense ? 1 : groups;
    l->window.pad_value = below(m, 3) - 1;
    if (dense) {
        l->weight = nw_random(m->net, m->rng, m->exact, out, in.dims[0], 0, 0);
        l->window.padding_kind = XN_PADDING_VALID;
    } else {
        l->weight = nw_random(m->net, m->rng, m->exact, out, in.dims[0] / groups, 1 + below(m, 3),
                              1 + below(m, 3));
    }
    if (below(m, 2))
        l->scale = nw_random_scale(m->net, m->rng, m->exact, below(m, 4) ? out : 1);
    if (below(m, 2))
        l->bias = nw_random(m->net, m->rng, m->exact, below(m, 4) ? out : 1, 0, 0, 0);
    l->attributes.k_map = mode == XN_MODE_XNOR && !m->exact && below(m, 8) == 0;
    return settle(m);
}

static bool add_affine(maker *m) {
    const xn_shape in = shape_of(m, m->last);
    const int64_t *d = in.dims;
    xn_layer *l = begin(m, XN_OP_AFFINE);
    const int which = 1 + below(m, 3), whole = below(m, 10) == 0;
    const int64_t count = below(m, 6) ? d[0] : 1;
    if (which & 1)
        l->scale = nw_random_scale(m->net, m->rng, m->exact, count);
    if (which & 2)
        l->bias = whole ? nw_random(m->net, m->rng, m->exact, d[0], d[1], d[2], 0)
                        : nw_random(m->net, m->rng, m->exact, count, 0, 0, 0);
    return settle(m);
}

static bool add_sign(maker *m) {
    const xn_shape in = shape_of(m, m->last);
    xn_layer *l = begin(m, XN_OP_SIGN);
    if (below(m, 2))
        l->shift = nw_random(m->net, m->rng, m->exact, in.dims[0], 0, 0, 0);
    return settle(m);
}

static bool add_prelu(maker *m) {
    const xn_shape in = shape_of(m, m->last);
    xn_layer *l = begin(m, XN_OP_PRELU);
    if (below(m, 2))
        l->slope = nw_random_scale(m->net, m->rng, m->exact, in.dims[0]);
    else
        l->attributes.slope = below(m, 2) ? 0 : 0.25f;
    return settle(m);
}

static bool add_clip(maker *m) {
    xn_layer *l = begin(m, XN_OP_CLIP);
    if (below(m, 3) == 0)
        l->attributes.low = (float)below(m, 2);
    l->attributes.high = l->attributes.low + 1 + (float)below(m, 2);
    return settle(m);
}

static bool add_pool(maker *m) {
    const xn_shape in = shape_of(m, m->last);
    xn_layer *l = begin(m, below(m, 3) ? XN_OP_MAX_POOL : XN_OP_AVG_POOL);
    l->kernel[0] = 1 + below(m, 3);
    l->kernel[1] = 1 + below(m, 3);
    if (below(m, 2) == 0)
        l->kernel[0] = l->kernel[1] = 2;
    window(m, l, false);
    if (below(m, 2))
        l->window.stride[0] = l->window.stride[1] = 0;
    l->global = below(m, 8) == 0 && in.dims[1] * in.dims[2] < 40;
    l->attributes.count_padding = l->op == XN_OP_AVG_POOL && below(m, 2);
    return settle(m);
}

/* The other input: a layer of the same shape (or, for concat, of the same height and width). */
static bool add_with_other(maker *m, xn_op op) {
    const xn_shape in = shape_of(m, m->last);
    for (int tries = 0; tries < 12; tries++) {
        const char *other = any(m);
        const xn_shape s = shape_of(m, other);
        char names[64];
        if (memcmp(s.dims + (op == XN_OP_CONCAT), in.dims + (op == XN_OP_CONCAT),
                   (op == XN_OP_CONCAT ? 2 : 3) * sizeof *s.dims) != 0 ||
            s.dims[0] + in.dims[0] > 120)
            continue;
        const char *third = below(m, 4) == 0 ? m->last : "";
        const bool first = below(m, 2);
        snprintf(names, sizeof names, "%s %s %s", first ? m->last : other, first ? other : m->last,
                 third);
        nw_add(m->net, op, new_name(m), names);
        return settle(m);
    }
    return false;
}

static bool add_mul(maker *m) {
    const xn_shape in = shape_of(m, m->last);
    char names[64], from[16];
    snprintf(from, sizeof from, "%s", m->last);
    if (in.dims[1] * in.dims[2] > 60)
        return false;
    xn_layer *l = begin(m, XN_OP_AVG_POOL);
    l->global = true;
    if (!settle(m))
        return false;
    if (!m->exact) {
        begin(m, XN_OP_SIGMOID);
        settle(m);
    }
    snprintf(names, sizeof names, "%s %s", from, m->last);
    nw_add(m->net, XN_OP_MUL, new_name(m), names);
    return settle(m);
}

static bool add_slice(maker *m) {
    const xn_shape in = shape_of(m, m->last);
    xn_layer *l = begin(m, XN_OP_SLICE);
    l->attributes.from = below(m, (int)in.dims[0]);
    l->attributes.to = l->attributes.from + 1 + below(m, (int)(in.dims[0] - l->attributes.from));
    return settle(m);
}

static bool add_quantize(maker *m) {
    xn_layer *l = begin(m, XN_OP_QUANTIZE);
    l->attributes.quantum = 0.25f;
    l->attributes.low = -8;
    l->attributes.high = 7;
    return settle(m);
}

/* ---- patterns of networks ---- */

/* sign, conv, affine, + x [, bias, prelu, bias], read again by a sign: Bi-Real, ReActNet. */
static bool add_block(maker *m) {
    char from[16], names[64];
    const int64_t channels = shape_of(m, m->last).dims[0];
    snprintf(from, sizeof from, "%s", m->last);
    if (below(m, 2))
        add_sign(m);
    xn_layer *l = begin(m, XN_OP_CONV);
    l->weight = nw_random(m->net, m->rng, m->exact, channels, channels, 3, 3);
    for (int i = 0; i < 4; i++)
        l->window.padding[i] = 1;
    if (!settle(m))
        return false;
    add_affine(m);
    snprintf(names, sizeof names, "%s %s", m->last, from);
    nw_add(m->net, XN_OP_ADD, new_name(m), names);
    if (!settle(m))
        return false;
    if (below(m, 2)) {
        for (int i = 0; i < 2; i++) {
            l = begin(m, XN_OP_AFFINE);
            l->bias = nw_random(m->net, m->rng, m->exact, channels, 0, 0, 0);
            settle(m);
            if (i == 0)
                add_prelu(m);
        }
    }
    return true;
}

/* conv, max-pool, affine [, hardtanh], sign: VGG, FINN. */
static bool add_pooled(maker *m) {
    if (!add_conv(m, XN_MODE_XNOR) || !add_pool(m))
        return false;
    add_affine(m);
    if (below(m, 2))
        begin(m, XN_OP_CLIP), settle(m);
    return add_sign(m);
}

/* affine, sign, conv, concat: DenseNet. */
static bool add_dense(maker *m) {
    char from[16], names[64];
    const int64_t channels = shape_of(m, m->last).dims[0];
    snprintf(from, sizeof from, "%s", m->last);
    if (channels > 100)
        return false;
    add_affine(m);
    xn_layer *l = begin(m, XN_OP_CONV);
    l->weight = nw_random(m->net, m->rng, m->exact, 1 + below(m, 10), channels, 3, 3);
    l->window.padding_kind = XN_PADDING_SAME;
    if (!settle(m))
        return false;
    snprintf(names, sizeof names, "%s %s", from, m->last);
    nw_add(m->net, XN_OP_CONCAT, new_name(m), names);
    return settle(m);
}

static bool add_any(maker *m) {
    switch (below(m, 20)) {
    case 0:
    case 1:
        return add_conv(m, XN_MODE_XNOR);
    case 2:
        return add_conv(m, XN_MODE_BWN);
    case 3:
        return add_conv(m, XN_MODE_FLOAT);
    case 4:
        return add_affine(m);
    case 5:
    case 6:
        return add_sign(m);
    case 7:
        return add_prelu(m);
    case 8:
        return add_clip(m);
    case 9:
        return add_with_other(m, XN_OP_ADD);
    case 10:
        return add_with_other(m, XN_OP_CONCAT);
    case 11:
        return add_pool(m);
    case 12:
        return add_slice(m);
    case 13:
        return below(m, 3) ? add_mul(m) : (begin(m, XN_OP_FLATTEN), settle(m));
    case 14:
        return add_quantize(m);
    case 15:
        return !m->exact && (begin(m, below(m, 2) ? XN_OP_SIGMOID : XN_OP_SOFTMAX), settle(m));
    case 16:
        return add_dense(m);
    case 17:
        return add_pooled(m);
    default:
        return add_block(m);
    }
}

nw_net *nw_random_net(xn_rng *rng, bool exact) {
    static const xn_datatype datatypes[] = {XN_FP32, XN_FP32, XN_FP16, XN_UINT8};
    maker m = {.net = nw_create(1, 1, 1), .rng = rng, .exact = exact, .last = "input"};
    xn_shape *shape = &m.net->params.input_shape;
    *shape =
        (xn_shape){3, {1 + below(&m, below(&m, 3) ? 9 : 40), 1 + below(&m, 8), 1 + below(&m, 8)}};
    m.net->params.input_datatype = datatypes[below(&m, 4)];
    if (below(&m, 4) == 0) {
        const int64_t channels = shape->dims[0];
        m.net->params.input_layout = XN_IMAGE_NHWC;
        *shape = (xn_shape){3, {shape->dims[1], shape->dims[2], channels}};
    } else if (below(&m, 12) == 0) {
        *shape = (xn_shape){1, {shape->dims[0]}};
    }
    const int wanted = 1 + below(&m, 14);
    for (int tries = 0; tries < 200 && m.net->params.layer_count < wanted; tries++) {
        if (below(&m, 6) == 0 && m.net->params.layer_count)
            snprintf(m.last, sizeof m.last, "%s", any(&m)); /* another branch */
        add_any(&m);
    }
    ck_assert_int_gt(m.net->params.layer_count, 0);
    if (below(&m, 4) == 0) {
        const int layers = m.net->params.layer_count;
        nw_output(m.net, m.net->layers[layers - 1].name);
        for (int i = 1 + below(&m, 2); i > 0; i--)
            nw_output(m.net, m.net->layers[below(&m, layers)].name);
    }
    xn_graph_free(m.graph);
    return m.net;
}

/* Most often a row that a dense layer makes, with what its epilogue may have behind it. */
void nw_random_top_k(nw_net *net, xn_rng *rng, bool exact) {
    maker m = {.net = net, .rng = rng, .exact = exact, .graph = nw_graph(net)};
    snprintf(m.last, sizeof m.last, "%s", net->layers[net->params.layer_count - 1].name);
    begin(&m, XN_OP_FLATTEN);
    ck_assert(settle(&m));
    if (below(&m, 4)) {
        xn_layer *l = begin(&m, XN_OP_CONV);
        const int64_t in = shape_of(&m, net->layers[net->params.layer_count - 2].name).dims[0];
        l->window.mode = XN_MODE_XNOR;
        l->weight = nw_random(net, rng, exact, 1 + below(&m, 90), in, 0, 0);
        ck_assert(settle(&m));
        if (below(&m, 2))
            add_affine(&m);
        if (below(&m, 3) == 0)
            below(&m, 2) ? add_prelu(&m) : add_clip(&m);
    }
    const int64_t row = shape_of(&m, m.last).dims[0];
    xn_layer *l = begin(&m, XN_OP_TOP_K);
    l->attributes.k = below(&m, 6) ? 1 + below(&m, (int)(row < 12 ? row : 12)) : row;
    l->attributes.k = l->attributes.k > XN_TOP_K_MAX ? XN_TOP_K_MAX : l->attributes.k;
    l->attributes.largest = below(&m, 2);
    ck_assert(settle(&m));
    if (net->params.output_count)
        nw_output(net, l->name);
    xn_graph_free(m.graph);
}
