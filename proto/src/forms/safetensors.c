/* safetensors.c: form safetensors: a message is one file (xn_safetensors_file.h). Everything the
 * file holds must mean something: other tensors or metadata are refused by name.
 *
 * The format has no bits: BITS is a U8 tensor of its bytes, [N, H, W, ceil(C/8)], and C stands
 * among the parameters as `channels`. */
#include "xn_datatypes.h"
#include "xn_safetensors_file.h"
#include "xn_wire_form.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct extent {
    const char *name;
    uint64_t begin, end;
} extent;

typedef struct parser {
    const xn_proto_limits *limits;
    const xn_targets *targets;
    const xn_proto_query *query;
    size_t query_count;
    const uint8_t *values;
    size_t values_length;
    extent extents[XN_MEMBER_COUNT];
    size_t extent_count;
    int64_t channels; /* 0: the input is not BITS */
    xn_error *error;
} parser;

static xn_status parse_tensor(parser *p, xn_member member, const xn_json *object) {
    const char *name = xn_member_names[member];
    xn_tensor_ref ref = {.present = true};
    uint64_t begin = 0;
    char dtype[64];
    snprintf(dtype, sizeof dtype, "%s.dtype", name);
    xn_status status = xn_safetensors_members(name, object, p->error);
    if (!status)
        status = xn_datatype_read(dtype, xn_json_member(object, "dtype"),
                                  member == XN_MEMBER_INPUT ? XN_AS_INPUT : XN_AS_WEIGHTS,
                                  XN_NAMES_SAFETENSORS, &ref.datatype, p->error);
    if (!status)
        status = xn_request_shape(xn_json_member(object, "shape"), name, &ref.shape, p->error);
    if (!status)
        status = xn_shape_elements(&ref.shape, ref.datatype, p->limits->max_elements, name,
                                   &ref.elements, &ref.bytes, p->error);
    if (!status)
        status = xn_safetensors_offsets(name, object, p->values_length, ref.datatype, &ref.shape,
                                        ref.bytes, &begin, p->error);
    if (status)
        return status;
    ref.data = p->values + begin;
    p->extents[p->extent_count++] = (extent){name, begin, begin + ref.bytes};
    *p->targets->refs[member] = ref;
    return XN_OK;
}

static int by_begin(const void *a, const void *b) {
    const extent *x = a, *y = b;
    if (x->begin != y->begin)
        return x->begin > y->begin ? 1 : -1;
    return strcmp(x->name, y->name);
}

/* The tensors, in the order of their offsets, must follow each other from 0 to the end. None is
 * empty. */
static xn_status check_tiling(parser *p) {
    uint64_t at = 0;
    qsort(p->extents, p->extent_count, sizeof *p->extents, by_begin);
    for (size_t i = 0; i < p->extent_count; at = p->extents[i++].end)
        if (p->extents[i].begin != at)
            return xn_fail(p->error, XN_ERR_MALFORMED, p->extents[i].name,
                           "%s begins at byte %" PRIu64 " of the values, but the tensors before "
                           "it end at %" PRIu64 "; gaps and overlaps are not allowed",
                           p->extents[i].name, p->extents[i].begin, at);
    if (at == p->values_length)
        return XN_OK;
    return xn_fail(p->error, XN_ERR_MALFORMED, "",
                   "the tensors end at byte %" PRIu64 " of the values, but the body has %zu", at,
                   p->values_length);
}

static xn_status set_channels(parser *p, const char *text) {
    char excerpt[XN_TEXT_EXCERPT];
    if (xn_param_integers(text, &p->channels, 1) != 1 || p->channels < 1 || p->channels > INT32_MAX)
        return xn_fail(p->error, XN_ERR_MALFORMED, "channels",
                       "channels is \"%s\"; it takes the number of channels of an input of packed "
                       "bits, from 1 to %d",
                       xn_text_excerpt(text, strlen(text), excerpt), INT32_MAX);
    return XN_OK;
}

static bool take_channels(void *context, const char *key, const char *value, xn_status *status,
                          xn_error *error) {
    (void)error; /* the parser's */
    if (strcmp(key, "channels") != 0)
        return false;
    *status = set_channels(context, value);
    return true;
}

/* With channels given the input's U8 are the bytes of BITS. */
static xn_status unpack_shape(const parser *p, xn_tensor_ref *input) {
    char text[200];
    const int64_t *dims = input->shape.dims;
    if (!p->channels || !input->present)
        return XN_OK;
    if (input->datatype != XN_UINT8 || input->shape.rank != 4 ||
        dims[3] != xn_bits_pixel_bytes(p->channels)) {
        xn_shape_format(&input->shape, text, sizeof text);
        return xn_fail(p->error, XN_ERR_MALFORMED, "input.shape",
                       "input is %s of shape %s, but channels is %" PRId64
                       ", which is for packed bits: U8 of shape [N, H, W, %" PRId64 "]",
                       xn_datatype_name(input->datatype), text, p->channels,
                       xn_bits_pixel_bytes(p->channels));
    }
    input->datatype = XN_BITS;
    input->shape = (xn_shape){4, {dims[0], p->channels, dims[1], dims[2]}};
    return xn_shape_elements(&input->shape, XN_BITS, p->limits->max_elements, "input",
                             &input->elements, &input->bytes, p->error);
}

static xn_status parse_metadata(parser *p, const xn_json *object) {
    static const char *const beside[XN_PARAM_BESIDE] = {"channels"};
    void *iterator = NULL;
    const char *key;
    const xn_json *value;
    if (xn_json_kind_of(object) != XN_JSON_OBJECT)
        return xn_json_fail("__metadata__", object, "an object of strings", p->error);
    while (xn_json_next(object, &iterator, &key, &value)) {
        char excerpt[XN_TEXT_EXCERPT];
        xn_text_excerpt(key, strlen(key), excerpt);
        if (xn_json_kind_of(value) != XN_JSON_STRING)
            return xn_json_fail(excerpt, value, "a string, as all of __metadata__ does", p->error);
        if (!strcmp(key, "format")) /* the writing library's mark: "pt", "np", ... */
            continue;
        const bool channels = p->targets->conv && !strcmp(key, "channels");
        const xn_param *param = p->targets->conv ? xn_param_find(key) : NULL;
        if (!param && p->targets->conv && !channels)
            return xn_param_fail_unknown("__metadata__ key", key, beside, p->error);
        if (!param && !channels)
            return xn_fail(p->error, XN_ERR_MALFORMED, excerpt,
                           "unknown __metadata__ key \"%s\"; weights take no parameters", excerpt);
        if (xn_request_query_find(p->query, p->query_count, key) < p->query_count)
            return xn_fail(p->error, XN_ERR_MALFORMED, key,
                           "%s is given twice: in the query and in __metadata__", key);
        xn_status status =
            channels ? set_channels(p, xn_json_string(value))
                     : xn_param_set_text(param, xn_json_string(value), p->targets->conv, p->error);
        if (status)
            return status;
    }
    return XN_OK;
}

static xn_status parse_root(parser *p, const xn_json *root) {
    void *iterator = NULL;
    const char *key;
    const xn_json *value;
    while (xn_json_next(root, &iterator, &key, &value)) {
        int member = xn_member_find(key);
        xn_status status;
        if (!strcmp(key, "__metadata__")) {
            status = parse_metadata(p, value);
        } else if (member >= 0 && p->targets->refs[member]) {
            status = parse_tensor(p, (xn_member)member, value);
        } else {
            static const char *const names[] = {"input", "weights", "scale", "bias", NULL};
            const bool conv = p->targets->refs[XN_MEMBER_INPUT] != NULL;
            return xn_json_fail_unknown("tensor", key, "", "", names + !conv, p->error);
        }
        if (status)
            return status;
    }
    xn_status status = check_tiling(p);
    if (!status && p->targets->refs[XN_MEMBER_INPUT])
        status = unpack_shape(p, p->targets->refs[XN_MEMBER_INPUT]);
    return status;
}

static size_t prefix_bytes(const xn_proto_body *body) {
    uint64_t header = body->length < 8 ? UINT64_MAX : xn_safetensors_stated(body->bytes);
    return header < body->length - 8 ? 8 + (size_t)header : body->length;
}

static xn_status parse(const xn_proto_body *body, const xn_proto_query *query, size_t query_count,
                       const xn_proto_limits *limits, const xn_targets *targets, xn_error *error) {
    xn_safetensors file;
    xn_json_scan scan = {0};
    const xn_json *root = NULL;
    xn_status status = xn_safetensors_split("the body", body->bytes, body->length,
                                            XN_PROTO_MAX_HEADER_BYTES, &file, error);
    if (status)
        return status;
    status = xn_json_scan_text(file.header, file.header_length, false, &scan, error);
    if (!status)
        status = xn_json_parse(&scan, "the safetensors header", &root, error);
    if (!status) {
        parser p = {.limits = limits,
                    .targets = targets,
                    .query = query,
                    .query_count = query_count,
                    .values = file.values,
                    .values_length = file.values_length,
                    .error = error};
        const xn_query_own own = {{"channels"}, take_channels, &p};
        status = xn_request_parse_query(query, query_count, targets, &own, error);
        if (!status)
            status = parse_root(&p, root);
    }
    xn_json_scan_free(&scan);
    return status;
}

/* ---- answers ---- */

/* The shape of the bytes that BITS is; of all else its own. */
static xn_shape file_shape(const xn_answer *answer) {
    const int64_t *dims = answer->shape.dims;
    if (answer->datatype != XN_BITS)
        return answer->shape;
    return (xn_shape){4, {dims[0], dims[2], dims[3], xn_bits_pixel_bytes(dims[1])}};
}

static void write_header(xn_text *text, const xn_answer *answer) {
    const bool bits = answer->datatype == XN_BITS;
    const xn_shape shape = file_shape(answer);
    xn_text_string(text, "{\"__metadata__\":{\"id\":\"");
    xn_answer_word(text, answer->id);
    xn_text_string(text, "\",\"backend\":\"");
    xn_answer_word(text, answer->backend);
    xn_text_string(text, "\",\"precision\":\"");
    xn_text_string(text, xn_precision_name(answer->precision));
    if (bits) {
        xn_text_string(text, "\",\"channels\":\"");
        xn_text_int(text, answer->shape.dims[1]);
    }
    xn_text_string(text, "\",\"batch_requests\":\"");
    xn_text_int(text, answer->batch_requests);
    xn_text_string(text, "\",\"batch_images\":\"");
    xn_text_int(text, answer->batch_images);
    xn_text_string(text, answer->cached ? "\",\"cached\":\"true" : "");
    xn_text_string(text, "\",\"timing\":\"");
    xn_answer_timing(text, &answer->timing, "\\\"");
    xn_text_string(text, "\"},\"output\":{\"dtype\":\"");
    xn_text_string(text, xn_datatype_describe(bits ? XN_UINT8 : answer->datatype)->safetensors);
    xn_text_string(text, "\",\"shape\":");
    xn_answer_shape(text, &shape);
    xn_text_string(text, ",\"data_offsets\":[0,");
    xn_text_int(text, (int64_t)answer->output_bytes);
    xn_text_string(text, "]}}");
}

static void write_prefix(xn_text *text, const xn_answer *answer) {
    xn_text_bytes(text, "\0\0\0\0\0\0\0\0", 8);
    write_header(text, answer);
    while (text->length % 8)
        xn_text_bytes(text, " ", 1);
    for (int i = 0; i < 8; i++)
        text->data[i] = (char)((uint64_t)(text->length - 8) >> (8 * i));
}

const xn_wire_form xn_wire_safetensors = {.media_type = "application/vnd.safetensors",
                                          .query = true,
                                          .parse = parse,
                                          .prefix_bytes = prefix_bytes,
                                          .write_prefix = write_prefix};
