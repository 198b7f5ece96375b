/* model_layer.c: one layer of a configuration, by the table of members and of the ops that take
 * them. What needs shapes is the graph's to check. */
#include "xn_model_inside.h"
#include "xn_params.h"
#include "xn_text.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct target {
    xn_layer *layer;
    xn_model_extra *extra;
    xn_model_pool *pool;
} target;

/* Sets of ops. */
#define OP(op) (1u << XN_OP_##op)
#define POOLS (OP(MAX_POOL) | OP(AVG_POOL))
#define ALL ((1u << XN_OP_COUNT) - 1)

typedef struct member {
    const char *name;
    unsigned ops, needed; /* those that take it, and those that cannot do without */
    const char *takes;
    xn_status (*read)(const struct member *m, const xn_json *value, const target *to,
                      xn_error *error);
} member;

static xn_status fail(const member *m, const xn_json *value, xn_error *error) {
    return xn_json_fail(m->name, value, m->takes, error);
}

/* ---- members ---- */

static xn_status read_name(const member *m, const xn_json *value, const target *to,
                           xn_error *error) {
    const char *name;
    xn_status status = xn_model_read_name(m->name, value, &name, error);
    if (!status)
        to->layer->name = xn_model_keep(to->pool, name);
    return status;
}

static xn_status read_inputs(const member *m, const xn_json *value, const target *to,
                             xn_error *error) {
    xn_model_pool *pool = to->pool;
    const size_t count = xn_json_count(value);
    if (xn_json_kind_of(value) != XN_JSON_ARRAY || count < 1)
        return fail(m, value, error);
    to->layer->inputs = pool->inputs;
    to->layer->input_count = (int)count; /* of the values that a file may have */
    for (size_t i = 0; i < count; i++) {
        const char *name;
        char field[32];
        snprintf(field, sizeof field, "inputs[%zu]", i);
        xn_status status = xn_model_read_name(field, xn_json_element(value, i), &name, error);
        if (status)
            return status;
        *pool->inputs++ = xn_model_keep(pool, name);
    }
    return XN_OK;
}

/* Those that `/conv` has too, by its rules. */
static xn_status read_window(const member *m, const xn_json *value, const target *to,
                             xn_error *error) {
    xn_conv_request request;
    xn_params_default(&request);
    request.params = to->layer->window;
    xn_status status = xn_param_set_json(xn_param_find(m->name), value, &request, error);
    if (!status)
        to->layer->window = request.params;
    return status;
}

static xn_status read_integer(const member *m, const xn_json *value, int64_t *out,
                              xn_error *error) {
    if (xn_json_kind_of(value) != XN_JSON_INTEGER)
        return fail(m, value, error);
    *out = xn_json_integer(value);
    return XN_OK;
}

static xn_status read_packed_channels(const member *m, const xn_json *value, const target *to,
                                      xn_error *error) {
    int64_t *channels = &to->extra->packed_channels;
    xn_status status = read_integer(m, value, channels, error);
    if (!status && (*channels < 1 || *channels > INT32_MAX))
        return fail(m, value, error);
    return status;
}

static xn_status read_kernel(const member *m, const xn_json *value, const target *to,
                             xn_error *error) {
    int64_t *kernel = to->layer->kernel;
    const xn_json_kind kind = xn_json_kind_of(value);
    if (kind == XN_JSON_STRING && !strcmp(xn_json_string(value), "global")) {
        to->layer->global = true;
        return XN_OK;
    }
    if (kind == XN_JSON_ARRAY && xn_json_count(value) == 2) {
        xn_status status = read_integer(m, xn_json_element(value, 0), &kernel[0], error);
        return status ? status : read_integer(m, xn_json_element(value, 1), &kernel[1], error);
    }
    xn_status status = read_integer(m, value, &kernel[0], error);
    kernel[1] = kernel[0];
    return status;
}

static const member members[] = {
    {"op", ALL, ALL, "the name of an op", NULL},
    {"name", ALL, ALL, "", read_name},
    {"inputs", ALL, 0, "a list of names of layers before it, or of the network's input",
     read_inputs},
    {"mode", OP(CONV), 0, "", read_window},
    {"stride", OP(CONV) | POOLS, 0, "", read_window},
    {"padding", OP(CONV) | POOLS, 0, "", read_window},
    {"dilation", OP(CONV), 0, "", read_window},
    {"groups", OP(CONV), 0, "", read_window},
    {"pad_value", OP(CONV), 0, "", read_window},
    {"packed_channels", OP(CONV), 0,
     "the channels of a filter whose weight is packed bits, from 1 to 2147483647",
     read_packed_channels},
    {"kernel", POOLS, POOLS, "an integer or a list [h, w], each at least 1, or \"global\"",
     read_kernel},
};
enum { MEMBERS = sizeof members / sizeof *members };

static const member *find_member(const char *name, xn_op op) {
    for (int i = 0; i < MEMBERS; i++)
        if ((members[i].ops >> op & 1) && !strcmp(name, members[i].name))
            return &members[i];
    return NULL;
}

/* ---- attributes ---- */

static const xn_attribute *find_attribute(const char *name, xn_op op) {
    for (const xn_attribute *a = xn_op_attributes(op); a->name; a++)
        if (!strcmp(name, a->name))
            return a;
    return NULL;
}

/* Limits of what has its type are the graph's to check. */
static xn_status read_attribute(const xn_attribute *a, const xn_json *value, const target *to,
                                xn_error *error) {
    char *at = (char *)&to->layer->attributes + a->offset;
    const xn_json_kind kind = xn_json_kind_of(value);
    double number;
    switch (a->type) {
    case XN_ATTRIBUTE_BOOL:
        if (kind != XN_JSON_TRUE && kind != XN_JSON_FALSE)
            break;
        *(int32_t *)(void *)at = kind == XN_JSON_TRUE;
        return XN_OK;
    case XN_ATTRIBUTE_INTEGER:
        if (kind != XN_JSON_INTEGER)
            break;
        *(int64_t *)(void *)at = xn_json_integer(value);
        return XN_OK;
    case XN_ATTRIBUTE_NUMBER:
        if (!xn_json_number(value, &number) || !isfinite((float)number))
            break;
        *(float *)(void *)at = (float)number;
        return XN_OK;
    }
    return xn_json_fail(a->name, value, a->takes, error);
}

/* ---- the layer ---- */

static xn_status read_op(const xn_json *value, xn_op *out, xn_error *error) {
    const char *names[XN_OP_COUNT + 1] = {0};
    char list[200];
    int found = 0;
    for (int i = 0; i < XN_OP_COUNT; i++)
        names[i] = xn_op_name((xn_op)i);
    xn_text_list(names, list, sizeof list);
    xn_status status = xn_model_read_word("op", value, names, list, &found, error);
    if (!status)
        *out = (xn_op)found;
    return status;
}

static xn_status check_members(const xn_json *object, xn_op op, xn_error *error) {
    const char *names[MEMBERS + XN_OP_MAX_ATTRIBUTES + 1];
    const xn_attribute *const attributes = xn_op_attributes(op);
    char of[40];
    int count = 0;
    for (int i = 0; i < MEMBERS; i++)
        if (members[i].ops >> op & 1)
            names[count++] = members[i].name;
    for (const xn_attribute *a = attributes; a->name; a++)
        names[count++] = a->name;
    names[count] = NULL;
    snprintf(of, sizeof of, " of op %s", xn_op_name(op));
    xn_status status = xn_json_members(object, "member", "", of, names, NULL, error);
    for (int i = 0; i < MEMBERS && !status; i++)
        if ((members[i].needed >> op & 1) && !xn_json_member(object, members[i].name))
            status = fail(&members[i], NULL, error);
    for (const xn_attribute *a = attributes; a->name && !status; a++)
        if (a->needed && !xn_json_member(object, a->name))
            status = xn_json_fail(a->name, NULL, a->takes, error);
    return status;
}

/* Members that do not go together. */
static xn_status check_layer(const xn_json *object, const xn_layer *layer, xn_error *error) {
    static const char *const none[] = {"stride", "padding"};
    for (int i = 0; i < 2 && layer->global; i++)
        if (xn_json_member(object, none[i]))
            return xn_fail(error, XN_ERR_MALFORMED, none[i],
                           "kernel is \"global\", the whole image, which takes no %s; leave it out",
                           none[i]);
    return XN_OK;
}

static xn_status read_members(const xn_json *object, const target *to, xn_error *error) {
    void *iterator = NULL;
    const char *key;
    const xn_json *value;
    xn_status status = check_members(object, to->layer->op, error);
    while (!status && xn_json_next(object, &iterator, &key, &value)) {
        const member *m = find_member(key, to->layer->op);
        const xn_attribute *a = find_attribute(key, to->layer->op);
        if (m && m->read)
            status = m->read(m, value, to, error);
        else if (a)
            status = read_attribute(a, value, to, error);
    }
    return status ? status : check_layer(object, to->layer, error);
}

static xn_status read_layer(const xn_json *object, const target *to, xn_error *error) {
    xn_op op = XN_OP_CONV;
    xn_status status = read_op(xn_json_member(object, "op"), &op, error);
    if (status)
        return status;
    xn_layer_default(op, NULL, to->layer);
    to->layer->window.mode = XN_MODE_FLOAT;
    to->extra->slope = xn_json_member(object, "slope") != NULL;
    return read_members(object, to, error);
}

xn_status xn_model_layer_read(const xn_json *value, int index, xn_model_pool *pool, xn_layer *layer,
                              xn_model_extra *extra, xn_error *error) {
    const target to = {layer, extra, pool};
    char field[40];
    const char *name = NULL;
    snprintf(field, sizeof field, "layers[%d]", index);
    if (xn_json_kind_of(value) != XN_JSON_OBJECT)
        return xn_json_fail(field, value, "an object with op, name and what the op takes", error);
    snprintf(field, sizeof field, "layers[%d].name", index);
    xn_status status = xn_model_read_name(field, xn_json_member(value, "name"), &name, error);
    if (status)
        return status;
    *extra = (xn_model_extra){0};
    return xn_graph_fail_layer(read_layer(value, &to, error), name, index, error);
}
