/* json_request.c: what the forms JSON and OIP binary share: a header in JSON, with the values in it
 * as text or behind it as bytes in the order of the members. */
#include "xn_datatypes.h"
#include "xn_wire_form.h"

#include <stdio.h>
#include <string.h>

typedef struct parser {
    const xn_proto_limits *limits;
    const xn_targets *targets;
    const xn_json_scan *scan;
    bool binary;              /* OIP binary */
    xn_request_values values; /* OIP binary: the bytes not yet given to a tensor */
    xn_error *error;
} parser;

enum { SHAPE, DATATYPE, DATA, NAME, PARAMETERS, TENSOR_MEMBERS };

/* A tensor object being read. */
typedef struct tensor_parse {
    const char *name;
    const xn_json_span *span;
    const xn_json *members[TENSOR_MEMBERS]; /* or NULL */
} tensor_parse;

static const char *path(const tensor_parse *t, const char *member, char out[64]) {
    snprintf(out, 64, "%s.%s", t->name, member);
    return out;
}

static xn_status collect_members(const parser *p, const xn_json *object, tensor_parse *t) {
    static const char *const names[] = {"shape", "datatype", "data", "name", "parameters", NULL};
    static const char *const of_json[] = {"shape", "datatype", "data", "name", NULL};
    const bool any = p->binary || xn_json_member(object, "parameters");
    char begin[64], of[64], field[64];
    snprintf(of, sizeof of, " in %s", t->name);
    xn_status status = xn_json_members(object, "field", path(t, "", begin), of,
                                       any ? names : of_json, t->members, p->error);
    const xn_json *name = t->members[NAME]; /* an OIP tensor has one; it says nothing new here */
    if (status || !name)
        return status;
    if (xn_json_kind_of(name) != XN_JSON_STRING || strcmp(xn_json_string(name), t->name) != 0)
        return xn_json_fail(path(t, "name", field), name, "the name of the member, or leave it out",
                            p->error);
    return XN_OK;
}

static bool is_bits(const xn_json *value) {
    return value && xn_json_kind_of(value) == XN_JSON_STRING &&
           !strcmp(xn_json_string(value), xn_datatype_name(XN_BITS));
}

static xn_status read_datatype(const parser *p, xn_member member, const tensor_parse *t,
                               xn_datatype *out) {
    const bool input = member == XN_MEMBER_INPUT;
    char field[64];
    path(t, "datatype", field);
    if (input && is_bits(t->members[DATATYPE]) && (!p->binary || t->members[DATA]))
        return xn_fail(p->error, XN_ERR_MALFORMED, field,
                       "%s is BITS, whose values are packed bytes and no JSON; send %s with "
                       "parameters.binary_data_size, or %s",
                       field, xn_wire_oip_binary.media_type, xn_wire_safetensors.media_type);
    return xn_datatype_read(field, t->members[DATATYPE],
                            input && p->binary ? XN_AS_INPUT : XN_AS_WEIGHTS, XN_NAMES_OIP, out,
                            p->error);
}

/* parameters: {"binary_data_size": B}; the next B bytes after the header. */
static xn_status take_bytes(parser *p, const tensor_parse *t, xn_tensor_ref *ref) {
    static const char *const names[] = {"binary_data_size", NULL};
    const xn_json *parameters = t->members[PARAMETERS], *size = NULL;
    char field[64], begin[64], of[64];
    if (xn_json_kind_of(parameters) != XN_JSON_OBJECT)
        return xn_json_fail(path(t, "parameters", field), parameters,
                            "an object with binary_data_size", p->error);
    snprintf(of, sizeof of, " in %s.parameters", t->name);
    xn_status status = xn_json_members(parameters, "field", path(t, "parameters.", begin), of,
                                       names, &size, p->error);
    if (status)
        return status;
    path(t, "parameters.binary_data_size", field);
    if (!size)
        return xn_fail(p->error, XN_ERR_MALFORMED, field, "%s is missing", field);
    return xn_request_take_bytes(t->name, size, &p->values, ref, p->error);
}

static xn_status parse_tensor(parser *p, xn_member member, const xn_json *object,
                              xn_tensor_ref *out) {
    tensor_parse t = {.name = xn_member_names[member], .span = &p->scan->data[member]};
    char field[64];
    xn_tensor_ref ref = {.present = true};
    if (xn_json_kind_of(object) != XN_JSON_OBJECT)
        return xn_json_fail(t.name, object,
                            "a tensor {\"shape\": [...], \"datatype\": \"FP32\", \"data\": "
                            "[...]}",
                            p->error);
    xn_status status = collect_members(p, object, &t);
    const xn_json *data = t.members[DATA], *parameters = t.members[PARAMETERS];
    if (!status)
        status = xn_request_shape(t.members[SHAPE], t.name, &ref.shape, p->error);
    if (!status)
        status = read_datatype(p, member, &t, &ref.datatype);
    if (!status)
        status = xn_shape_elements(&ref.shape, ref.datatype, p->limits->max_elements, t.name,
                                   &ref.elements, &ref.bytes, p->error);
    if (status)
        return status;
    if (parameters && !p->binary)
        return xn_fail(p->error, XN_ERR_MALFORMED, path(&t, "parameters", field),
                       "%s.parameters needs Content-Type %s and Inference-Header-Content-Length; "
                       "in JSON the values are in \"data\"",
                       t.name, xn_wire_oip_binary.media_type);
    if (!data && !parameters)
        return xn_fail(p->error, XN_ERR_MALFORMED, path(&t, "data", field),
                       "%s.data is missing; it takes an array of numbers%s", t.name,
                       p->binary ? ", or parameters.binary_data_size instead" : "");
    if (data && parameters)
        return xn_fail(p->error, XN_ERR_MALFORMED, t.name,
                       "%s has both data and parameters.binary_data_size; it takes one of them",
                       t.name);
    status =
        data ? xn_request_take_text(t.name, data, t.span, &ref, p->error) : take_bytes(p, &t, &ref);
    if (!status)
        *out = ref;
    return status;
}

static xn_status parse_member(parser *p, const char *key, const xn_json *value) {
    const xn_targets *targets = p->targets;
    int member = xn_member_find(key);
    bool name =
        member == XN_MEMBER_WEIGHTS && targets->conv && xn_json_kind_of(value) == XN_JSON_STRING;
    if (member >= 0 && targets->refs[member] && !name)
        return parse_tensor(p, (xn_member)member, value, targets->refs[member]);
    if (!targets->conv) {
        static const char *const names[] = {"weights", "scale", "bias", NULL};
        return xn_json_fail_unknown("field", key, "", "", names, p->error);
    }
    static const char *const beside[XN_PARAM_BESIDE] = {"input", "scale", "bias"};
    const xn_param *param = xn_param_find(key);
    if (!param)
        return xn_param_fail_unknown("field", key, beside, p->error);
    return xn_param_set_json(param, value, targets->conv, p->error);
}

static xn_status parse_root(parser *p, const xn_json *root) {
    char got[XN_JSON_DESCRIPTION];
    if (xn_json_kind_of(root) != XN_JSON_OBJECT)
        return xn_fail(p->error, XN_ERR_MALFORMED, "", "the JSON is %s; it takes an object",
                       xn_json_describe(root, got));
    void *iterator = NULL;
    const char *key;
    const xn_json *value;
    xn_status status = XN_OK;
    while (!status && xn_json_next(root, &iterator, &key, &value))
        status = parse_member(p, key, value);
    if (!status && p->values.left)
        status = xn_fail(p->error, XN_ERR_MALFORMED, "",
                         "%zu bytes are left at the end of the body that belong to no tensor; "
                         "Inference-Header-Content-Length or a binary_data_size is too small",
                         p->values.left);
    return status;
}

xn_status xn_request_parse_json(const xn_proto_body *body, const xn_proto_limits *limits,
                                const xn_targets *targets, bool binary, xn_error *error) {
    size_t length = binary ? body->header_length : body->length;
    const char *what = binary ? "the JSON header" : "the body";
    if (length == 0)
        return xn_fail(error, XN_ERR_MALFORMED, "", "%s is empty; it takes a JSON object", what);
    xn_json_scan scan = {0};
    const xn_json *root = NULL;
    xn_status status = xn_json_scan_text(body->bytes, length, true, &scan, error);
    if (!status)
        status = xn_json_parse(&scan, what, &root, error);
    if (!status) {
        parser p = {.limits = limits,
                    .targets = targets,
                    .scan = &scan,
                    .binary = binary,
                    .values = {(const uint8_t *)body->bytes + length, body->length - length},
                    .error = error};
        status = parse_root(&p, root);
    }
    xn_json_scan_free(&scan);
    return status;
}
