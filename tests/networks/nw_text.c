#include "nw_text.h"

#include <stdio.h>
#include <string.h>

enum { TEXT = 8000, WORDS = 80, NAME = 16 };

typedef struct reader {
    nw_net *net;
    xn_rng *rng;
    int64_t channels[NW_LAYERS]; /* of each layer's output */
    int64_t input_channels;
} reader;

static const char *kept(reader *r, const char *text) {
    return strcpy(nw_take(r->net, strlen(text) + 1), text);
}

static int64_t channels_of(const reader *r, const char *name) {
    for (int i = 0; i < r->net->params.layer_count; i++)
        if (!strcmp(r->net->layers[i].name, name))
            return r->channels[i];
    return r->input_channels;
}

/* "last" is the layer before. */
static const char *name_of(const reader *r, const char *word) {
    const int count = r->net->params.layer_count;
    if (strcmp(word, "last") != 0)
        return word;
    return count ? r->net->layers[count - 1].name : r->net->params.input_name;
}

static const xn_tensor *listed(reader *r, const char *values) {
    float list[NW_NAMES];
    int count = 0;
    for (char *at = (char *)values; *at; at += *at == ',')
        list[count++] = strtof(at, &at);
    return nw_tensor(r->net, list, count, 0, 0, 0);
}

static const xn_tensor *parameter(reader *r, bool scale, int64_t channels, const char *values) {
    if (values)
        return listed(r, values);
    return scale ? nw_random_scale(r->net, r->rng, false, channels)
                 : nw_random(r->net, r->rng, false, channels, 0, 0, 0);
}

/* `channels`: of the layer's output, of which its parameters are. */
static void read_member(reader *r, xn_layer *l, int64_t channels, const char *name,
                        const char *value) {
    xn_conv_params *w = &l->window;
    const char *number = value ? value : ""; /* of a member that takes one */
    if (!strcmp(name, "scale"))
        l->scale = parameter(r, true, channels, value);
    else if (!strcmp(name, "slope"))
        l->slope = parameter(r, true, channels, value);
    else if (!strcmp(name, "bias"))
        l->bias = parameter(r, false, channels, value);
    else if (!strcmp(name, "shift"))
        l->shift = parameter(r, false, channels, value);
    else if (!strcmp(name, "float") || !strcmp(name, "bwn") || !strcmp(name, "xnor"))
        w->mode = (xn_mode)xn_name_find(name, xn_mode_names);
    else if (!strcmp(name, "k_map"))
        l->attributes.k_map = true;
    else if (!strcmp(name, "global"))
        l->global = true;
    else if (!strcmp(name, "count_padding"))
        l->attributes.count_padding = true;
    else if (!strcmp(name, "groups"))
        w->groups = atoi(number);
    else if (!strcmp(name, "stride"))
        w->stride[0] = w->stride[1] = atoi(number);
    else if (!strcmp(name, "padding"))
        w->padding[0] = w->padding[1] = w->padding[2] = w->padding[3] = atoi(number);
    else if (!strcmp(name, "pad_value"))
        w->pad_value = atoi(number);
    else if (!strcmp(name, "quantum"))
        l->attributes.quantum = strtof(number, NULL);
    else if (!strcmp(name, "low"))
        l->attributes.low = strtof(number, NULL);
    else if (!strcmp(name, "high"))
        l->attributes.high = strtof(number, NULL);
    else if (!strcmp(name, "k"))
        l->attributes.k = atoi(number);
    else if (!strcmp(name, "from"))
        l->attributes.from = atoi(number);
    else if (!strcmp(name, "to"))
        l->attributes.to = atoi(number);
    else
        ck_abort_msg("a layer has no \"%s\"", name);
}

static bool parse_op(const char *name, xn_op *out) {
    for (int i = 0; i < XN_OP_COUNT; i++)
        if (!strcmp(name, xn_op_name((xn_op)i))) {
            *out = (xn_op)i;
            return true;
        }
    return false;
}

/* "conv7" is an op and the side of its kernel. */
static xn_op op_of(const char *word, int64_t *side) {
    char name[NAME];
    xn_op op = XN_OP_CONV;
    const size_t length = strcspn(word, "0123456789");
    ck_assert_uint_lt(length, sizeof name);
    snprintf(name, sizeof name, "%.*s", (int)length, word);
    *side = atoi(word + length);
    ck_assert_msg(!strcmp(name, "dense") || parse_op(name, &op), "no op \"%s\"", word);
    if (!*side && strcmp(name, "dense") != 0)
        *side = op == XN_OP_CONV ? 3 : 2;
    return op;
}

static bool has_many_inputs(xn_op op) {
    return op == XN_OP_ADD || op == XN_OP_MUL || op == XN_OP_CONCAT;
}

static int64_t flat_channels(const reader *r, const char *name) {
    xn_graph *graph = nw_graph(r->net);
    xn_shape shape;
    ck_assert(xn_graph_layer_shape(graph, name, &shape));
    xn_graph_free(graph);
    return shape.dims[0];
}

static void read_layer(reader *r, char *text) {
    char *words[WORDS] = {NULL}, *rest, *name, *op;
    char inputs[TEXT] = "", made[NAME];
    int count = 0, first = 1;
    for (char *w = strtok_r(text, " ", &rest); w; w = strtok_r(NULL, " ", &rest))
        words[count < WORDS ? count++ : 0] = w;
    ck_assert(count > 0 && count < WORDS);
    ck_assert_ptr_nonnull(words[0]);
    const int index = r->net->params.layer_count;
    snprintf(made, sizeof made, "l%d", index);
    op = strchr(words[0], '=');
    name = op ? words[0] : made;
    if (op)
        *op++ = '\0';
    else
        op = words[0];
    if (!strcmp(op, "out")) {
        for (int i = 1; i < count; i++)
            nw_output(r->net, kept(r, name_of(r, words[i])));
        return;
    }
    int64_t side;
    const xn_op kind = op_of(op, &side);
    const bool many = has_many_inputs(kind), filters = kind == XN_OP_CONV;
    const char *number = filters ? words[first++] : "0";
    ck_assert_msg(number != NULL, "a convolution says how many outputs it has");
    const int64_t out = atoi(number);
    int64_t in = channels_of(r, name_of(r, "last")), sum = 0;
    if (first + 1 < count && !strcmp(words[first], "<")) {
        strcpy(inputs, words[first + 1]);
        in = channels_of(r, inputs);
        first += 2;
    }
    for (; many && first < count; first++) {
        const char *one = name_of(r, words[first]);
        snprintf(inputs + strlen(inputs), TEXT - strlen(inputs), "%s%s", *inputs ? " " : "", one);
        in = channels_of(r, one);
        sum += in;
    }
    xn_layer *l = nw_add(r->net, kind, kept(r, name), *inputs ? inputs : NULL);
    if (kind == XN_OP_MAX_POOL || kind == XN_OP_AVG_POOL)
        l->kernel[0] = l->kernel[1] = side;
    for (int i = 0; i < 4 && filters; i++)
        l->window.padding[i] = side / 2;
    for (int i = first; i < count; i++) {
        char *value = strchr(words[i], '=');
        if (value)
            *value++ = '\0';
        read_member(r, l, filters ? out : in, words[i], value);
    }
    if (filters)
        l->weight = nw_random(r->net, r->rng, true, out, in / l->window.groups, side, side);
    if (kind == XN_OP_AFFINE && first == count) {
        read_member(r, l, in, "scale", NULL);
        read_member(r, l, in, "bias", NULL);
    }
    r->channels[index] = filters                 ? out
                         : kind == XN_OP_CONCAT  ? sum
                         : kind == XN_OP_SLICE   ? l->attributes.to - l->attributes.from
                         : kind == XN_OP_FLATTEN ? flat_channels(r, l->name)
                                                 : in;
}

static void read_input(reader *r, char *text) {
    char *rest;
    long long d[3];
    ck_assert_int_eq(sscanf(text, "%lldx%lldx%lld", &d[0], &d[1], &d[2]), 3);
    r->net = nw_create(d[0], d[1], d[2]);
    strtok_r(text, " ", &rest);
    for (char *w = strtok_r(NULL, " ", &rest); w; w = strtok_r(NULL, " ", &rest))
        if (!strcmp(w, "nhwc"))
            r->net->params.input_layout = XN_IMAGE_NHWC;
        else if (!strcmp(w, "uint8"))
            r->net->params.input_datatype = XN_UINT8;
        else
            ck_abort_msg("an input has no \"%s\"", w);
    r->input_channels = r->net->params.input_layout == XN_IMAGE_NHWC ? d[2] : d[0];
}

nw_net *nw_text(xn_rng *rng, const char *text) {
    reader r = {.rng = rng};
    char copy[TEXT], *rest;
    ck_assert_uint_lt(strlen(text), TEXT);
    strcpy(copy, text);
    read_input(&r, strtok_r(copy, ":", &rest));
    for (char *layer = strtok_r(NULL, ";", &rest); layer; layer = strtok_r(NULL, ";", &rest))
        read_layer(&r, layer);
    return r.net;
}
