/* request.c: the entry points of parsing: dispatch on the form, and what holds for a message as a
 * whole whatever its form. */
#include "xn_wire_form.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

bool xn_proto_name_valid(const char *name) {
    static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
                                  "._-";
    size_t length = strspn(name, allowed);
    return length > 0 && length <= XN_PROTO_MAX_NAME && !name[length] && strcmp(name, ".") != 0 &&
           strcmp(name, "..") != 0;
}

bool xn_proto_id_valid(const char *id) {
    size_t length = 0;
    for (; id[length]; length++)
        if (length == XN_PROTO_MAX_ID || id[length] < ' ' || id[length] > '~' ||
            id[length] == '"' || id[length] == '\\')
            return false;
    return length > 0;
}

static xn_targets targets_of_conv(xn_conv_request *request) {
    return (xn_targets){.refs = {[XN_MEMBER_INPUT] = &request->input,
                                 [XN_MEMBER_WEIGHTS] = &request->weights,
                                 [XN_MEMBER_SCALE] = &request->scale,
                                 [XN_MEMBER_BIAS] = &request->bias},
                        .conv = request};
}

static xn_targets targets_of_weights(xn_weights_request *request) {
    return (xn_targets){.refs = {[XN_MEMBER_WEIGHTS] = &request->weights,
                                 [XN_MEMBER_SCALE] = &request->scale,
                                 [XN_MEMBER_BIAS] = &request->bias}};
}

xn_status xn_request_shape(const xn_json *value, const char *name, xn_shape *out, xn_error *error) {
    char field[64], got[XN_JSON_DESCRIPTION];
    snprintf(field, sizeof field, "%s.shape", name);
    if (!value || xn_json_kind_of(value) != XN_JSON_ARRAY)
        return xn_json_fail(field, value, "a list of integers", error);
    size_t rank = xn_json_count(value);
    if (rank < 1 || rank > XN_MAX_RANK)
        return xn_fail(error, XN_ERR_MALFORMED, field, "%s has %zu dimensions; it takes 1 to %d",
                       field, rank, XN_MAX_RANK);
    xn_shape shape = {.rank = (int)rank};
    for (size_t i = 0; i < rank; i++) {
        const xn_json *element = xn_json_element(value, i);
        if (xn_json_kind_of(element) != XN_JSON_INTEGER)
            return xn_fail(error, XN_ERR_MALFORMED, field, "%s[%zu] is %s; it takes an integer",
                           field, i, xn_json_describe(element, got));
        shape.dims[i] = xn_json_integer(element);
    }
    *out = shape;
    return XN_OK;
}

const char *xn_request_hint_bytes(xn_datatype datatype, uint64_t got, size_t needed) {
    bool doubles = datatype == XN_FP32 && got % 2 == 0 && got / 2 == needed;
    return doubles ? "; 8 bytes a value are FP64, which is not taken: convert to FP32" : "";
}

size_t xn_request_query_find(const xn_proto_query *query, size_t query_count, const char *key) {
    size_t i = 0;
    while (i < query_count && strcmp(query[i].key, key) != 0)
        i++;
    return i;
}

xn_status xn_request_parse_query(const xn_proto_query *query, size_t query_count,
                                 const xn_targets *targets, const xn_query_own *own,
                                 xn_error *error) {
    for (size_t i = 0; i < query_count; i++) {
        const char *key = query[i].key, *value = query[i].value ? query[i].value : "";
        xn_status status = XN_OK;
        if (xn_request_query_find(query, query_count, key) != i)
            return xn_fail(error, XN_ERR_MALFORMED, key, "%s is given twice in the query", key);
        if (own->take(own->context, key, value, &status, error)) {
            if (status)
                return status;
            continue;
        }
        const xn_param *param = xn_param_find(key);
        if (!param || !targets->conv)
            return xn_param_fail_unknown("query parameter", key, own->names, error);
        status = xn_param_set_text(param, value, targets->conv, error);
        if (status)
            return status;
    }
    return XN_OK;
}

static xn_status parse(const xn_proto_body *body, const xn_proto_query *query, size_t query_count,
                       const xn_proto_limits *limits, const xn_targets *targets, xn_error *error) {
    const xn_wire_form *form = xn_wire_form_of(body->form);
    char excerpt[XN_TEXT_EXCERPT];
    if (query_count && !form->query) {
        xn_text_excerpt(query[0].key, strlen(query[0].key), excerpt);
        return xn_fail(error, XN_ERR_MALFORMED, excerpt,
                       "query parameter \"%s\": parameters of %s stand in its JSON; only %s, and a "
                       "raw body without Inference-Header-Content-Length, take them in the query",
                       excerpt, form->media_type, xn_wire_safetensors.media_type);
    }
    if (body->has_header_length && !form->header_length)
        return xn_fail(error, XN_ERR_MALFORMED, "Inference-Header-Content-Length",
                       "Inference-Header-Content-Length is %zu, but the body is %s; it belongs to "
                       "%s",
                       body->header_length, form->media_type, xn_wire_oip_binary.media_type);
    return form->parse(body, query, query_count, limits, targets, error);
}

xn_status xn_proto_parse_conv(const xn_proto_body *body, const xn_proto_query *query,
                              size_t query_count, const xn_proto_limits *limits,
                              xn_conv_request *out, xn_error *error) {
    xn_conv_request request;
    xn_params_default(&request);
    xn_targets targets = targets_of_conv(&request);
    xn_status status = parse(body, query, query_count, limits, &targets, error);
    if (status)
        return status;
    if (!request.input.present)
        return xn_json_fail("input", NULL, "a tensor of shape [N, C, H, W]", error);
    if (!request.weights.present && !request.weights_name[0])
        return xn_json_fail("weights", NULL,
                            "a tensor of shape [O, C/groups, KH, KW] or the name of registered "
                            "weights",
                            error);
    if (request.weights.present && request.weights_name[0])
        return xn_fail(error, XN_ERR_MALFORMED, "weights",
                       "weights is given twice: as a tensor and as the name \"%.*s\"", 40,
                       request.weights_name);
    *out = request;
    return XN_OK;
}

xn_status xn_proto_parse_weights(const xn_proto_body *body, const xn_proto_limits *limits,
                                 xn_weights_request *out, xn_error *error) {
    xn_weights_request request;
    memset(&request, 0, sizeof request);
    xn_targets targets = targets_of_weights(&request);
    xn_status status = parse(body, NULL, 0, limits, &targets, error);
    if (status)
        return status;
    if (!request.weights.present)
        return xn_json_fail("weights", NULL, "a tensor of shape [O, C/groups, KH, KW]", error);
    *out = request;
    return XN_OK;
}
