/* model_tensors.c: the tensors of a model.safetensors, made the parts of a configuration's layers,
 * and the graph of both; see xn_model_config.h and MODELS.md. */
#include "xn_mem.h"
#include "xn_model_inside.h"
#include "xn_request.h"
#include "xn_safetensors_file.h"
#include "xn_text.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_VALUES (1 << 18)

enum { WEIGHT, SCALE, BIAS, SLOPE, SHIFT, PARTS };
static const char *const part_names[] = {"weight", "scale", "bias", "slope", "shift", NULL};

typedef struct entry {
    const char *name; /* in the file */
    int layer, part;
    uint64_t begin, bytes; /* in the file's values */
    bool packed;
    xn_tensor tensor; /* as the graph gets it; data is set last */
} entry;

typedef struct reader {
    const xn_model_config *config;
    const xn_conv_limits *limits;
    xn_safetensors file;
    xn_layer *layers; /* the configuration's, to get tensors */
    entry *entries;
    size_t count;
    xn_error *error;
} reader;

static xn_status of_layer(const reader *r, const entry *e, xn_status status) {
    return xn_graph_fail_layer(status, r->config->layers[e->layer].name, e->layer, r->error);
}

/* ---- one tensor ---- */

/* What stands behind the last dot is the part, what stands before it the layer. */
static xn_status read_name(const reader *r, const char *name, entry *e) {
    const char *dot = strrchr(name, '.');
    char excerpt[XN_TEXT_EXCERPT], part[XN_TEXT_EXCERPT], hint[XN_TEXT_HINT];
    xn_text_excerpt(name, strlen(name), excerpt);
    e->name = name;
    e->layer = dot ? xn_model_find(r->config, name, (size_t)(dot - name)) : -1;
    if (e->layer < 0)
        return xn_fail(r->error, XN_ERR_MALFORMED, excerpt,
                       "tensor \"%s\" is of no layer; a tensor is called as its layer, a dot, and "
                       "weight, scale, bias, slope or shift",
                       excerpt);
    for (e->part = 0; e->part < PARTS; e->part++)
        if (!strcmp(dot + 1, part_names[e->part]))
            return XN_OK;
    xn_text_excerpt(dot + 1, strlen(dot + 1), part);
    return of_layer(r, e,
                    xn_fail(r->error, XN_ERR_MALFORMED, part,
                            "it has a tensor \"%s\"; there are weight, scale, bias, slope and "
                            "shift%s",
                            part, xn_text_hint(dot + 1, part_names, hint)));
}

static xn_status read_dtype(const reader *r, const xn_json *object, const entry *e,
                            xn_datatype *out) {
    static const char *const words[] = {"F32", "F16", "BF16", "I8", "U8", NULL};
    static const xn_datatype datatypes[] = {XN_FP32, XN_FP16, XN_BF16, XN_INT8, XN_UINT8};
    const xn_json *value = xn_json_member(object, "dtype");
    char field[40];
    int found = 0;
    snprintf(field, sizeof field, "%s.dtype", part_names[e->part]);
    xn_status status = xn_model_read_word(
        field, value, words, "\"F32\", \"F16\", \"BF16\" or \"I8\", or \"U8\" for packed bits",
        &found, r->error);
    if (status)
        return status;
    *out = datatypes[found];
    if (e->packed && *out != XN_UINT8)
        return xn_fail(r->error, XN_ERR_MALFORMED, field,
                       "%s is \"%s\", but packed_channels says that it is packed bits, \"U8\"",
                       field, words[found]);
    if (!e->packed && *out == XN_UINT8)
        return xn_fail(r->error, XN_ERR_MALFORMED, field,
                       "%s is \"U8\", which is for the packed bits of a conv's weight: give its "
                       "layer packed_channels, or send \"I8\" or floats",
                       field);
    return XN_OK;
}

/* A tensor without dimensions is one value. */
static xn_status read_shape(const reader *r, const xn_json *object, const char *part,
                            xn_shape *out) {
    const xn_json *shape = xn_json_member(object, "shape");
    if (shape && xn_json_kind_of(shape) == XN_JSON_ARRAY && xn_json_count(shape) == 0) {
        *out = (xn_shape){1, {1}};
        return XN_OK;
    }
    return xn_request_shape(shape, part, out, r->error);
}

/* From the shape of a packed weight's bytes the shape of its values. */
static xn_status unpack_shape(const reader *r, const entry *e, xn_shape *shape) {
    const int64_t channels = r->config->extras[e->layer].packed_channels;
    const int64_t bytes = xn_bits_pixel_bytes(channels), *d = shape->dims;
    const xn_shape packed = *shape;
    char text[200];
    if ((shape->rank != 4 && shape->rank != 2) || d[shape->rank - 1] != bytes) {
        xn_shape_format(&packed, text, sizeof text);
        return xn_fail(r->error, XN_ERR_GEOMETRY, "weight.shape",
                       "weight.shape is %s; bits of packed_channels %" PRId64
                       " are [O, KH, KW, %" PRId64 "], or [O, %" PRId64 "] of a dense layer",
                       text, channels, bytes, bytes);
    }
    *shape = packed.rank == 4
                 ? (xn_shape){4, {packed.dims[0], channels, packed.dims[1], packed.dims[2]}}
                 : (xn_shape){2, {packed.dims[0], channels}};
    return XN_OK;
}

static xn_status read_values(const reader *r, const xn_json *object, entry *e) {
    const char *part = part_names[e->part];
    xn_tensor *tensor = &e->tensor;
    const int64_t most = r->limits->max_elements;
    xn_shape shape = {0};
    xn_datatype datatype = XN_FP32;
    int64_t elements = 0;
    size_t bytes = 0;
    xn_status status = xn_safetensors_members(part, object, r->error);
    if (!status)
        status = read_dtype(r, object, e, &datatype);
    if (!status)
        status = read_shape(r, object, part, &shape);
    if (!status)
        status = xn_shape_elements(&shape, datatype, most, part, &elements, &bytes, r->error);
    if (!status)
        status = xn_safetensors_offsets(part, object, r->file.values_length, datatype, &shape,
                                        bytes, &e->begin, r->error);
    if (status)
        return status;
    e->bytes = bytes;
    *tensor = (xn_tensor){datatype, shape, elements, bytes, NULL};
    if (!e->packed)
        return XN_OK;
    tensor->datatype = XN_BITS; /* which lie the same */
    status = unpack_shape(r, e, &tensor->shape);
    return status ? status
                  : xn_shape_elements(&tensor->shape, XN_INT8, most, part, &tensor->elements, NULL,
                                      r->error);
}

static xn_status read_tensor(const reader *r, const char *name, const xn_json *object, entry *e) {
    xn_status status = read_name(r, name, e);
    if (status)
        return status;
    e->packed = e->part == WEIGHT && r->config->extras[e->layer].packed_channels > 0;
    return of_layer(r, e, read_values(r, object, e));
}

/* ---- all tensors ---- */

static xn_status check_metadata(const reader *r, const xn_json *object) {
    void *iterator = NULL;
    const char *key;
    const xn_json *value;
    if (xn_json_kind_of(object) != XN_JSON_OBJECT)
        return xn_json_fail("__metadata__", object, "an object of strings", r->error);
    while (xn_json_next(object, &iterator, &key, &value)) {
        char excerpt[XN_TEXT_EXCERPT];
        if (xn_json_kind_of(value) != XN_JSON_STRING)
            return xn_json_fail(xn_text_excerpt(key, strlen(key), excerpt), value,
                                "a string, as all of __metadata__ does", r->error);
    }
    return XN_OK;
}

static xn_status read_tensors(reader *r, const xn_json *root) {
    void *iterator = NULL;
    const char *key;
    const xn_json *value;
    xn_status status = XN_OK;
    r->count = 0;
    while (!status && xn_json_next(root, &iterator, &key, &value)) {
        if (!strcmp(key, "__metadata__"))
            status = check_metadata(r, value);
        else
            status = read_tensor(r, key, value, &r->entries[r->count++]);
    }
    return status;
}

static int by_begin(const void *a, const void *b) {
    const entry *x = a, *y = b;
    if (x->begin != y->begin)
        return x->begin > y->begin ? 1 : -1;
    return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

/* In the order of their offsets they follow each other from 0 to the end. None is empty. */
static xn_status check_tiling(const reader *r) {
    uint64_t at = 0;
    for (size_t i = 0; i < r->count; i++) {
        const entry *e = &r->entries[i];
        char field[40];
        if (e->begin == at) {
            at += e->bytes; /* within the file, as was checked */
            continue;
        }
        snprintf(field, sizeof field, "%s.data_offsets", part_names[e->part]);
        return of_layer(r, e,
                        xn_fail(r->error, XN_ERR_MALFORMED, field,
                                "%s begins at byte %" PRIu64
                                " of the values, but the tensors before it end at %" PRIu64
                                "; gaps and overlaps are not allowed",
                                field, e->begin, at));
    }
    if (at == r->file.values_length)
        return XN_OK;
    return xn_fail(r->error, XN_ERR_MALFORMED, "",
                   "the tensors end at byte %" PRIu64
                   " of the values, but model.safetensors has %zu of them",
                   at, r->file.values_length);
}

/* A prelu's slope is a number in the configuration or a tensor, not both and not neither. */
static xn_status check_slopes(const reader *r) {
    for (int i = 0; i < r->config->params.layer_count; i++) {
        const xn_layer *layer = &r->layers[i];
        const bool number = r->config->extras[i].slope;
        if (layer->op != XN_OP_PRELU || number != (layer->slope != NULL))
            continue;
        return xn_graph_fail_layer(
            xn_fail(r->error, XN_ERR_MALFORMED, "slope",
                    number ? "it has a member slope and a tensor slope; give one of them"
                           : "it has neither a member slope nor a tensor slope; give one of them "
                             "(\"slope\": 0 is ReLU)"),
            layer->name, i, r->error);
    }
    return XN_OK;
}

/* ---- values ---- */

static bool in_place(const reader *r, const entry *e) {
    const uintptr_t at = (uintptr_t)(r->file.values + e->begin);
    return e->packed || at % xn_datatype_bytes(e->tensor.datatype) == 0;
}

/* How many bytes of copies there are, each aligned to 4. */
static bool count_copies(const reader *r, size_t *out) {
    size_t total = 0;
    for (size_t i = 0; i < r->count; i++) {
        const entry *e = &r->entries[i];
        size_t bytes = 0;
        if (in_place(r, e))
            continue;
        if (!xn_add_size(e->tensor.bytes, 3, &bytes) ||
            !xn_add_size(total, bytes & ~(size_t)3, &total))
            return false;
    }
    *out = total;
    return true;
}

/* Of the last byte of each pixel the bits behind the last channel are 0. */
static xn_status check_spare_bits(const reader *r, const entry *e) {
    const uint8_t *from = r->file.values + e->begin;
    const int64_t channels = r->config->extras[e->layer].packed_channels;
    const uint64_t bytes = (uint64_t)xn_bits_pixel_bytes(channels);
    for (uint64_t at = bytes - 1; channels % 8 && at < e->bytes; at += bytes)
        if (from[at] >> (channels % 8))
            return of_layer(r, e,
                            xn_fail(r->error, XN_ERR_MALFORMED, "weight",
                                    "weight has a bit that is not 0 behind channel %" PRId64
                                    ", the last of packed_channels",
                                    channels - 1));
    return XN_OK;
}

static xn_status fill(const reader *r, char *memory) {
    xn_status status = XN_OK;
    for (size_t i = 0; i < r->count && !status; i++) {
        entry *e = &r->entries[i];
        const uint8_t *from = r->file.values + e->begin;
        xn_tensor *tensor = &e->tensor;
        if (e->packed)
            status = check_spare_bits(r, e);
        if (in_place(r, e)) {
            tensor->data = from;
            continue;
        }
        assert(memory); /* count_copies found that there is one */
        tensor->data = memory;
        memcpy(memory, from, tensor->bytes);
        memory += (tensor->bytes + 3) & ~(size_t)3;
    }
    return status;
}

static void attach(const reader *r) {
    for (size_t i = 0; i < r->count; i++) {
        const entry *e = &r->entries[i];
        xn_layer *layer = &r->layers[e->layer];
        const xn_tensor **const parts[PARTS] = {&layer->weight, &layer->scale, &layer->bias,
                                                &layer->slope, &layer->shift};
        *parts[e->part] = &e->tensor;
    }
}

/* ---- the graph ---- */

/* A convolution has weights, and a layer a weight: "layers[3].weights.shape". */
static void rename_weights(xn_error *error) {
    char *found = error ? strstr(error->field, ".weights.") : NULL;
    char *rest = found ? found + strlen(".weights") : NULL;
    if (rest)
        memmove(rest - 1, rest, strlen(rest) + 1);
}

static xn_status make_graph(const reader *r, xn_graph **out, void **memory) {
    xn_graph_params params = r->config->params;
    size_t bytes = 0;
    char *copies = NULL;
    params.layers = r->layers;
    const bool fits = count_copies(r, &bytes);
    if (bytes)
        copies = xn_mem_alloc(bytes);
    if (!fits || (bytes && !copies))
        return xn_fail(r->error, XN_ERR_NO_MEMORY, "model.safetensors",
                       "no memory for the tensors that are not aligned: %zu bytes", bytes);
    xn_status status = fill(r, copies);
    if (!status) {
        status = xn_graph_create(&params, r->limits, out, r->error);
        if (status)
            rename_weights(r->error);
    }
    if (status)
        xn_mem_free(copies);
    else
        *memory = copies;
    return status;
}

static xn_status read_file(reader *r, const xn_json *root, xn_graph **out, void **memory) {
    const int layers = r->config->params.layer_count;
    xn_status status = read_tensors(r, root);
    if (status)
        return status;
    memcpy(r->layers, r->config->layers, (size_t)layers * sizeof *r->layers);
    qsort(r->entries, r->count, sizeof *r->entries, by_begin);
    attach(r);
    status = check_tiling(r);
    if (!status)
        status = check_slopes(r);
    return status ? status : make_graph(r, out, memory);
}

/* Room for the layers and for an entry each member of the header. */
static xn_status read_header(reader *r, const xn_json *root, xn_graph **out, void **memory) {
    const size_t layers = (size_t)r->config->params.layer_count;
    void *iterator = NULL;
    const char *key;
    const xn_json *value;
    size_t members = 1;
    while (xn_json_next(root, &iterator, &key, &value))
        members++;
    r->layers = xn_mem_zalloc(layers, sizeof *r->layers);
    r->entries = xn_mem_zalloc(members, sizeof *r->entries);
    xn_status status = r->layers && r->entries
                           ? read_file(r, root, out, memory)
                           : xn_fail(r->error, XN_ERR_NO_MEMORY, "model.safetensors",
                                     "no memory for %zu tensors of %zu layers", members, layers);
    xn_mem_free(r->entries);
    xn_mem_free(r->layers);
    return status;
}

xn_status xn_model_config_graph(const xn_model_config *config, const void *bytes, size_t length,
                                const xn_conv_limits *limits, xn_graph **out, void **memory,
                                xn_error *error) {
    static const xn_json_limits header_limits = {XN_MODEL_HEADER_BYTES, MOST_VALUES, "", "", 0};
    reader r = {.config = config, .limits = limits, .error = error};
    xn_json_scan scan = {0};
    const xn_json *root = NULL;
    xn_status status = xn_safetensors_split("model.safetensors", bytes, length,
                                            XN_MODEL_HEADER_BYTES, &r.file, error);
    if (status)
        return status;
    size_t header = r.file.header_length;
    while (header > 1 && r.file.header[header - 1] == ' ')
        header--;
    status = xn_json_scan_limited(r.file.header, header, false, &header_limits, &scan, error);
    if (!status)
        status = xn_json_parse(&scan, "the safetensors header", &root, error);
    if (!status)
        status = read_header(&r, root, out, memory);
    xn_json_scan_free(&scan);
    return status;
}
