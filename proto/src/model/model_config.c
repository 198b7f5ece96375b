/* model_config.c: config.json as a whole; see xn_model_config.h and MODELS.md. */
#include "xn_datatypes.h"
#include "xn_mem.h"
#include "xn_model_inside.h"
#include "xn_request.h"
#include "xn_text.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_VALUES (1 << 17)
#define MAX_BATCH_SIZE 1024                             /* where the file does not say */
#define MAX_END (XN_GRAPH_MAX_NAME + sizeof ".indices") /* bytes of an output's name */

static const char format[] = "xnord-network/1";

/* ---- the block ---- */

typedef struct counts {
    size_t layers, inputs, outputs, text;
} counts;

/* Room for `count` objects behind what is taken of a block already; its address, or its offset
 * where there is no block yet. Counts are of values that a file may have: sums do not overflow. */
static void *carve(char *block, size_t *taken, size_t count, size_t bytes) {
    void *at = block ? block + *taken : NULL;
    *taken += (count * bytes + 15) / 16 * 16;
    return at;
}

/* Lays a configuration out in a block, or, without one, only finds out how large it is. */
static size_t lay_out(char *block, const counts *n, xn_model_pool *pool) {
    size_t taken = 0;
    xn_model_config *config = carve(block, &taken, 1, sizeof *config);
    xn_layer *layers = carve(block, &taken, n->layers, sizeof *layers);
    xn_model_extra *extras = carve(block, &taken, n->layers, sizeof *extras);
    xn_model_name *names = carve(block, &taken, n->layers, sizeof *names);
    xn_model_output *outputs = carve(block, &taken, 2 * n->outputs, sizeof *outputs);
    const char **output_layers = carve(block, &taken, n->outputs, sizeof *output_layers);
    const char **inputs = carve(block, &taken, n->inputs, sizeof *inputs);
    char *text = carve(block, &taken, n->text, 1);
    if (!block)
        return taken;
    *config = (xn_model_config){.layers = layers,
                                .extras = extras,
                                .names = names,
                                .outputs = outputs,
                                .output_layers = output_layers};
    config->params.layers = layers;
    config->params.layer_count = (int)n->layers;
    config->params.outputs = output_layers;
    config->params.output_count = (int)n->outputs;
    config->about.layer_count = (int)n->layers;
    config->about.outputs = outputs;
    *pool = (xn_model_pool){text, inputs};
    return taken;
}

static xn_status count_layers(const xn_json *root, counts *n, xn_error *error) {
    const xn_json *layers = xn_json_member(root, "layers");
    if (!layers || xn_json_kind_of(layers) != XN_JSON_ARRAY)
        return xn_json_fail("layers", layers, "a list of layers", error);
    n->layers = xn_json_count(layers);
    if (n->layers < 1 || n->layers > XN_GRAPH_MAX_LAYERS)
        return xn_fail(error, XN_ERR_MALFORMED, "layers",
                       "the network has %zu layers; it must have from 1 to %d", n->layers,
                       XN_GRAPH_MAX_LAYERS);
    for (size_t i = 0; i < n->layers; i++) {
        const xn_json *layer = xn_json_element(layers, i);
        const xn_json *inputs =
            xn_json_kind_of(layer) == XN_JSON_OBJECT ? xn_json_member(layer, "inputs") : NULL;
        n->inputs += inputs ? xn_json_count(inputs) : 0;
    }
    return XN_OK;
}

static xn_status count_outputs(const xn_json *root, counts *n, xn_error *error) {
    const xn_json *outputs = xn_json_member(root, "outputs");
    n->outputs = 1;
    n->text += 2 * MAX_END; /* names of top_k's two */
    if (!outputs)
        return XN_OK;
    if (xn_json_member(root, "output"))
        return xn_fail(error, XN_ERR_MALFORMED, "outputs",
                       "there are output and outputs; give one of them");
    n->outputs = xn_json_count(outputs);
    if (n->outputs < 1 || n->outputs > XN_GRAPH_MAX_OUTPUTS)
        return xn_json_fail("outputs", outputs,
                            "a list of 1 to 64 outputs, each an object or a layer's name", error);
    n->text += (n->outputs - 1) * 2 * MAX_END;
    return XN_OK;
}

/* ---- members of the whole ---- */

static xn_status read_format(const xn_json *root, xn_error *error) {
    const xn_json *value = xn_json_member(root, "format");
    const bool is =
        value && xn_json_kind_of(value) == XN_JSON_STRING && !strcmp(xn_json_string(value), format);
    return is ? XN_OK
              : xn_json_fail("format", value, "\"xnord-network/1\", the only one known", error);
}

static xn_status read_model_name(const xn_json *root, xn_model_pool *pool, const char **out,
                                 xn_error *error) {
    const xn_json *value = xn_json_member(root, "name");
    *out = "";
    if (!value)
        return XN_OK;
    if (xn_json_kind_of(value) != XN_JSON_STRING || !xn_proto_name_valid(xn_json_string(value)))
        return xn_json_fail("name", value,
                            "1 to 128 of A-Z a-z 0-9 . _ -, not . or ..; without it the model "
                            "has the folder's name",
                            error);
    *out = xn_model_keep(pool, xn_json_string(value));
    return XN_OK;
}

static xn_status read_max_batch_size(const xn_json *root, int64_t *out, xn_error *error) {
    const xn_json *value = xn_json_member(root, "max_batch_size");
    *out = MAX_BATCH_SIZE;
    if (!value)
        return XN_OK;
    *out = xn_json_kind_of(value) == XN_JSON_INTEGER ? xn_json_integer(value) : 0;
    return *out >= 1 && *out <= INT32_MAX
               ? XN_OK
               : xn_json_fail("max_batch_size", value, "an integer from 1 to 2147483647", error);
}

static xn_status read_precision(const xn_json *root, xn_precision *out, xn_error *error) {
    const xn_json *value = xn_json_member(root, "precision");
    int found = XN_PRECISION_FP32;
    xn_status status = value ? xn_model_read_word("precision", value, xn_precision_names,
                                                  "\"fp32\", \"tf32\" or \"fp16\"", &found, error)
                             : XN_OK;
    *out = (xn_precision)found;
    return status;
}

/* ---- the input ---- */

static xn_status read_input_datatype(const xn_json *input, xn_datatype *out, xn_error *error) {
    static const char *const words[] = {"FP32", "FP16", "UINT8", NULL};
    static const xn_datatype datatypes[] = {XN_FP32, XN_FP16, XN_UINT8};
    int found = 0;
    xn_status status = xn_model_read_word("input.datatype", xn_json_member(input, "datatype"),
                                          words, "\"FP32\", \"FP16\" or \"UINT8\"", &found, error);
    *out = datatypes[found];
    return status;
}

static xn_status read_input_layout(const xn_json *input, xn_image_layout *out, xn_error *error) {
    static const char *const words[] = {"NCHW", "NHWC", NULL}; /* as they are numbered */
    const xn_json *value = xn_json_member(input, "layout");
    int found = XN_IMAGE_NCHW;
    xn_status status = value ? xn_model_read_word("input.layout", value, words,
                                                  "\"NCHW\" or \"NHWC\"", &found, error)
                             : XN_OK;
    *out = (xn_image_layout)found;
    return status;
}

static xn_status read_input_shape(const xn_json *input, xn_shape *out, xn_error *error) {
    const xn_json *value = xn_json_member(input, "shape");
    if (!value)
        return xn_json_fail("input.shape", value, "a list of integers, without the batch", error);
    return xn_request_shape(value, "input", out, error);
}

/* Packed signs lie channels last and are no picture. The graph checks the rest. */
static xn_status read_packed_channels(const xn_json *input, xn_graph_params *params,
                                      xn_error *error) {
    const xn_json *value = xn_json_member(input, "packed_channels");
    if (!value)
        return XN_OK;
    const int64_t channels = xn_json_kind_of(value) == XN_JSON_INTEGER ? xn_json_integer(value) : 0;
    if (channels < 1 || channels > INT32_MAX)
        return xn_json_fail("input.packed_channels", value,
                            "the channels of an input of packed signs, from 1 to 2147483647",
                            error);
    if (xn_json_member(input, "picture"))
        return xn_fail(error, XN_ERR_MALFORMED, "input.picture",
                       "input.picture is given with input.packed_channels; packed signs are no "
                       "picture: leave it out");
    if (!xn_json_member(input, "layout"))
        params->input_layout = XN_IMAGE_NHWC;
    params->packed_channels = channels;
    return XN_OK;
}

static xn_status read_input(const xn_json *root, xn_model_pool *pool, xn_model_config *config,
                            xn_error *error) {
    static const char *const names[] = {"name",    "datatype",        "shape", "layout",
                                        "picture", "packed_channels", NULL};
    const xn_json *input = xn_json_member(root, "input");
    xn_graph_params *params = &config->params;
    const char *name = "input";
    if (!input || xn_json_kind_of(input) != XN_JSON_OBJECT)
        return xn_json_fail("input", input,
                            "an object with datatype, shape, name, layout, picture and "
                            "packed_channels",
                            error);
    const xn_json *named = xn_json_member(input, "name");
    xn_status status = xn_json_members(input, "member", "input.", " of input", names, NULL, error);
    if (!status && named)
        status = xn_model_read_name("input.name", named, &name, error);
    if (!status)
        status = read_input_datatype(input, &params->input_datatype, error);
    if (!status)
        status = read_input_shape(input, &params->input_shape, error);
    if (!status)
        status = read_input_layout(input, &params->input_layout, error);
    if (!status)
        status = read_packed_channels(input, params, error);
    if (status)
        return status;
    params->input_name = xn_model_keep(pool, name);
    if (params->packed_channels)
        return XN_OK;
    xn_picture_rule_default(params->input_datatype, params->input_layout, &params->input_shape,
                            &config->about.picture);
    return xn_model_picture_read(xn_json_member(input, "picture"), &config->about.picture, error);
}

/* ---- layers ---- */

static int by_name(const void *a, const void *b) {
    return strcmp(((const xn_model_name *)a)->name, ((const xn_model_name *)b)->name);
}

/* A name of `length` bytes; the others end with 0. */
typedef struct wanted {
    const char *name;
    size_t length;
} wanted;

static int by_length(const void *key, const void *entry) {
    const wanted *w = key;
    const char *other = ((const xn_model_name *)entry)->name;
    const int order = strncmp(w->name, other, w->length);
    return order ? order : other[w->length] ? -1 : 0;
}

int xn_model_find(const xn_model_config *config, const char *name, size_t length) {
    const wanted key = {name, length};
    const xn_model_name *found = bsearch(&key, config->names, (size_t)config->params.layer_count,
                                         sizeof *config->names, by_length);
    return found ? found->index : -1;
}

static xn_status read_layers(const xn_json *root, xn_model_pool *pool, xn_model_config *config,
                             xn_error *error) {
    const xn_json *layers = xn_json_member(root, "layers");
    const int count = config->params.layer_count;
    for (int i = 0; i < count; i++) {
        xn_status status = xn_model_layer_read(xn_json_element(layers, (size_t)i), i, pool,
                                               &config->layers[i], &config->extras[i], error);
        if (status)
            return status;
        config->names[i] = (xn_model_name){config->layers[i].name, i};
    }
    qsort(config->names, (size_t)count, sizeof *config->names, by_name);
    return XN_OK;
}

/* ---- outputs ---- */

static xn_status read_labels(const char *field, const xn_json *value, const char **out,
                             xn_error *error) {
    const char *name = NULL;
    xn_status status = xn_model_read_name(field, value, &name, error);
    if (status)
        return status;
    if (strlen(name) > XN_MODEL_FILE_NAME || name[0] == '.' || strchr(name, '/'))
        return xn_json_fail(field, value,
                            "the name of a file in the folder: at most 128 bytes, without '/', "
                            "not beginning with '.'",
                            error);
    *out = name;
    return XN_OK;
}

/* what: "output" or "outputs[3]", for messages. */
static xn_status read_output_object(const char *what, const xn_json *object, xn_model_output *out,
                                    xn_error *error) {
    static const char *const names[] = {"name", "layer", "labels", NULL};
    const xn_json *name = xn_json_member(object, "name"), *layer = xn_json_member(object, "layer"),
                  *labels = xn_json_member(object, "labels");
    char of[40], field[40];
    snprintf(of, sizeof of, " of %s", what);
    snprintf(field, sizeof field, "%s.", what);
    xn_status status = xn_json_members(object, "member", field, of, names, NULL, error);
    snprintf(field, sizeof field, "%s.layer", what);
    if (!status && (layer || !out->layer))
        status = xn_model_read_name(field, layer, &out->layer, error);
    out->name = out->layer;
    snprintf(field, sizeof field, "%s.name", what);
    if (!status && name)
        status = xn_model_read_name(field, name, &out->name, error);
    snprintf(field, sizeof field, "%s.labels", what);
    if (!status && labels)
        status = read_labels(field, labels, &out->labels, error);
    return status;
}

static xn_status check_name(const char *field, const char *name, xn_error *error) {
    return strlen(name) <= XN_GRAPH_MAX_NAME
               ? XN_OK
               : xn_fail(error, XN_ERR_MALFORMED, field, "%s has %zu bytes; at most %d", field,
                         strlen(name), XN_GRAPH_MAX_NAME);
}

/* Adds an output to those that clients see. */
static xn_status add_output(xn_model_config *config, const xn_model_output *output,
                            const char *what, xn_error *error) {
    xn_model_about *about = &config->about;
    char field[40], excerpt[XN_TEXT_EXCERPT];
    snprintf(field, sizeof field, "%s.name", what);
    if (output->name != output->layer && check_name(field, output->name, error))
        return XN_ERR_MALFORMED;
    for (int i = 0; i < about->output_count; i++)
        if (!strcmp(config->outputs[i].name, output->name))
            return xn_fail(error, XN_ERR_MALFORMED, field,
                           "%s is \"%s\", which another output has too; names must be unique",
                           field, xn_text_excerpt(output->name, strlen(output->name), excerpt));
    config->outputs[about->output_count++] = *output;
    return XN_OK;
}

static const char *keep_end(xn_model_pool *pool, const char *name, bool positions) {
    char text[MAX_END];
    snprintf(text, sizeof text, "%s%s", name, xn_graph_top_k_suffix(positions));
    return xn_model_keep(pool, text);
}

/* The two of a top_k; the labels are those of its positions. */
static xn_status add_top_k(xn_model_config *config, const xn_model_output *asked, const char *what,
                           xn_model_pool *pool, xn_error *error) {
    char field[40];
    snprintf(field, sizeof field, "%s.name", what);
    xn_status status = check_name(field, asked->name, error);
    for (int positions = 0; positions < 2 && !status; positions++) {
        const xn_model_output output = {.name = keep_end(pool, asked->name, positions),
                                        .layer = asked->layer,
                                        .labels = positions ? asked->labels : NULL};
        status = add_output(config, &output, what, error);
    }
    return status;
}

static xn_status add_outputs(xn_model_config *config, const xn_model_output *asked,
                             const char *what, xn_model_pool *pool, xn_error *error) {
    char field[40], excerpt[XN_TEXT_EXCERPT];
    const int layer = xn_model_find(config, asked->layer, strlen(asked->layer));
    if (layer >= 0 && config->layers[layer].op == XN_OP_TOP_K)
        return add_top_k(config, asked, what, pool, error);
    xn_status status = add_output(config, asked, what, error);
    if (status || layer >= 0)
        return status;
    snprintf(field, sizeof field, "%s.layer", what);
    return xn_fail(error, XN_ERR_MALFORMED, field, "%s is \"%s\", which is no layer; name one",
                   field, xn_text_excerpt(asked->layer, strlen(asked->layer), excerpt));
}

/* value: an object, a layer's name, or NULL for the last layer's result. */
static xn_status read_output(const xn_json *value, int index, const char *what, xn_model_pool *pool,
                             xn_model_config *config, xn_error *error) {
    const bool single = !strcmp(what, "output");
    const char *last = config->layers[config->params.layer_count - 1].name;
    xn_model_output read = {.layer = single ? last : NULL};
    xn_status status = XN_OK;
    if (value && xn_json_kind_of(value) == XN_JSON_OBJECT)
        status = read_output_object(what, value, &read, error);
    else if (value && (single || xn_json_kind_of(value) != XN_JSON_STRING))
        status = xn_json_fail(what, value, "an object with name, layer and labels", error);
    else if (value)
        status = xn_model_read_name(what, value, &read.layer, error);
    if (status)
        return status;
    const bool same = !read.name || read.name == read.layer;
    read.layer = read.layer == last ? last : xn_model_keep(pool, read.layer);
    read.name = same ? read.layer : xn_model_keep(pool, read.name);
    read.labels = read.labels ? xn_model_keep(pool, read.labels) : NULL;
    config->output_layers[index] = read.layer;
    return add_outputs(config, &read, what, pool, error);
}

static xn_status read_outputs(const xn_json *root, xn_model_pool *pool, xn_model_config *config,
                              xn_error *error) {
    const xn_json *outputs = xn_json_member(root, "outputs");
    xn_status status = XN_OK;
    if (!outputs)
        return read_output(xn_json_member(root, "output"), 0, "output", pool, config, error);
    for (int i = 0; i < config->params.output_count && !status; i++) {
        char what[24];
        snprintf(what, sizeof what, "outputs[%d]", i);
        status = read_output(xn_json_element(outputs, (size_t)i), i, what, pool, config, error);
    }
    return status;
}

/* ---- the whole ---- */

static xn_status read_root(const xn_json *root, xn_model_pool *pool, xn_model_config *config,
                           xn_error *error) {
    xn_model_about *about = &config->about;
    xn_status status = read_model_name(root, pool, &about->name, error);
    if (!status)
        status = read_max_batch_size(root, &about->max_batch_size, error);
    if (!status)
        status = read_precision(root, &config->params.precision, error);
    if (!status)
        status = read_input(root, pool, config, error);
    if (!status)
        status = read_layers(root, pool, config, error);
    if (!status)
        status = read_outputs(root, pool, config, error);
    about->input_name = config->params.input_name;
    about->input_datatype = config->params.input_datatype;
    about->input_layout = config->params.input_layout;
    about->input_shape = config->params.input_shape;
    about->packed_channels = config->params.packed_channels;
    about->precision = config->params.precision;
    return status;
}

static xn_status check_root(const xn_json *root, counts *n, xn_error *error) {
    static const char *const names[] = {"format", "name",    "max_batch_size", "precision", "input",
                                        "output", "outputs", "layers",         NULL};
    if (xn_json_kind_of(root) != XN_JSON_OBJECT)
        return xn_json_fail("config.json", root, "an object", error);
    xn_status status = read_format(root, error);
    if (!status)
        status = xn_json_members(root, "member", "", "", names, NULL, error);
    if (!status)
        status = count_layers(root, n, error);
    return status ? status : count_outputs(root, n, error);
}

static xn_status read_config(const xn_json *root, size_t length, xn_model_config **out,
                             xn_error *error) {
    counts n = {.text = length + sizeof "input"}; /* a string is longer with its quotation marks */
    xn_model_pool pool;
    xn_status status = check_root(root, &n, error);
    if (status)
        return status;
    const size_t bytes = lay_out(NULL, &n, &pool);
    xn_model_config *config = xn_mem_alloc(bytes);
    if (!config)
        return xn_fail(error, XN_ERR_NO_MEMORY, "config.json",
                       "no memory for a configuration: %zu bytes", bytes);
    lay_out((char *)config, &n, &pool);
    status = read_root(root, &pool, config, error);
    if (status)
        xn_model_config_free(config);
    else
        *out = config;
    return status;
}

xn_status xn_model_config_parse(const char *text, size_t length, xn_model_config **out,
                                xn_error *error) {
    static const xn_json_limits limits = {XN_MODEL_CONFIG_BYTES, MOST_VALUES, "", "", 0};
    xn_json_scan scan = {0};
    const xn_json *root = NULL;
    if (length > XN_MODEL_CONFIG_BYTES)
        return xn_fail(error, XN_ERR_LIMIT, "config.json",
                       "config.json has %zu bytes, more than %d, the limit", length,
                       XN_MODEL_CONFIG_BYTES);
    xn_status status = xn_json_scan_limited(text, length, false, &limits, &scan, error);
    if (!status)
        status = xn_json_parse(&scan, "config.json", &root, error);
    if (!status)
        status = read_config(root, length, out, error);
    xn_json_scan_free(&scan);
    return status;
}

void xn_model_config_free(xn_model_config *config) {
    xn_mem_free(config);
}

void xn_model_config_about(const xn_model_config *config, xn_model_about *out) {
    *out = config->about;
}
