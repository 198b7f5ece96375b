/* oip_request.c: an inference request as a whole; see xn_oip.h. */
#include "xn_oip_parts.h"

#include <string.h>

static const char length_header[] = "Inference-Header-Content-Length";

/* As any request's, but that a data array may be nested as its shape. */
static const xn_json_limits json_limits = {
    XN_PROTO_MAX_HEADER_BYTES, XN_PROTO_MAX_VALUES, " beside its data arrays",
    "; send numbers only in \"data\" of inputs, without long white space", 3 + XN_MAX_RANK};

/* Nothing in it but what holds for every request: elements are set as they are read. */
static void begin(xn_infer_request *out) {
    xn_conv_request conv;
    xn_params_default(&conv);
    out->id[0] = 0;
    out->input_count = out->output_count = 0;
    out->inputs = NULL;
    out->outputs = NULL;
    out->binary = out->conv_given = false;
    out->timeout_us = out->timeout_ms = -1;
    out->conv = conv.params;
    memcpy(out->backend, conv.backend, sizeof out->backend);
}

/* The whole body is the one input. */
static xn_status take_whole(const xn_proto_body *body, const xn_oip_memory *memory,
                            xn_infer_request *out, xn_error *error) {
    void *block;
    xn_status status = memory->take(memory->context, sizeof *out->inputs, &block, error);
    if (status)
        return status;
    out->inputs = block;
    *out->inputs =
        (xn_oip_input){.name = "",
                       .raw = true,
                       .tensor = {.present = true, .data = body->bytes, .bytes = body->length}};
    out->input_count = 1;
    return XN_OK;
}

static xn_status parse_raw(const xn_proto_body *body, const xn_oip_memory *memory,
                           xn_infer_request *out, xn_error *error) {
    out->binary = true;
    if (body->length)
        return take_whole(body, memory, out, error);
    return xn_fail(error, XN_ERR_MALFORMED, "",
                   "the body is empty; with %s 0 it is the bytes of the input", length_header);
}

xn_status xn_oip_parse_picture(const xn_proto_body *body, const xn_oip_memory *memory,
                               xn_infer_request *out, xn_error *error) {
    begin(out);
    if (!body->length)
        return xn_fail(error, XN_ERR_MALFORMED, "body",
                       "the body is empty; by its Content-Type it is a picture");
    xn_status status = take_whole(body, memory, out, error);
    if (status)
        return status;
    out->inputs->pictures = true;
    out->inputs->tensor.elements = 1;
    return XN_OK;
}

static xn_status read_id(const xn_json *value, xn_infer_request *out, xn_error *error) {
    const char *id = xn_json_kind_of(value) == XN_JSON_STRING ? xn_json_string(value) : NULL;
    if (!id || (*id && !xn_proto_id_valid(id)))
        return xn_json_fail("id", value,
                            "a string of at most 128 printable ASCII characters without "
                            "\" and \\",
                            error);
    memcpy(out->id, id, strlen(id) + 1);
    return XN_OK;
}

/* What the path says already; some clients say it in the body as well. */
static xn_status check_said(const xn_json *value, const char *name, xn_error *error) {
    if (value && xn_json_kind_of(value) != XN_JSON_STRING)
        return xn_json_fail(name, value, "a string", error);
    return XN_OK;
}

/* The length of a list of at most `most` tensors; value NULL: there is none. */
static xn_status count_list(const xn_json *value, const char *name, int most, int *count,
                            xn_error *error) {
    if (!value)
        return XN_OK;
    if (xn_json_kind_of(value) != XN_JSON_ARRAY)
        return xn_json_fail(name, value, "a list of objects", error);
    const size_t length = xn_json_count(value);
    if (length > (size_t)most)
        return xn_fail(error, XN_ERR_MALFORMED, name, "%s has %zu elements; it takes at most %d",
                       name, length, most);
    *count = (int)length;
    return XN_OK;
}

/* Memory for tensors that were counted. Each has a name and a region at most, which stand in the
 * JSON and take no more here, but for their ends. */
static xn_status take_tensors(xn_oip_parser *p) {
    xn_infer_request *out = p->out;
    const size_t inputs = (size_t)out->input_count * sizeof *out->inputs;
    const size_t outputs = (size_t)out->output_count * sizeof *out->outputs;
    const size_t ends = 2 * ((size_t)out->input_count + (size_t)out->output_count);
    void *block;
    xn_status status = p->memory->take(
        p->memory->context, inputs + outputs + p->scan->skeleton_length + ends, &block, p->error);
    if (status)
        return status;
    out->inputs = block;
    out->outputs = (xn_oip_output *)(void *)((char *)block + inputs);
    p->text = (char *)block + inputs + outputs;
    return XN_OK;
}

static xn_status read_tensors(xn_oip_parser *p, const xn_json *inputs, const xn_json *outputs) {
    xn_infer_request *out = p->out;
    xn_status status = count_list(inputs, "inputs", XN_OIP_MAX_INPUTS, &out->input_count, p->error);
    if (!status)
        status = count_list(outputs, "outputs", XN_OIP_MAX_OUTPUTS, &out->output_count, p->error);
    if (!status)
        status = take_tensors(p);
    for (int i = 0; !status && i < out->input_count; i++)
        status = xn_oip_read_input(p, i, xn_json_element(inputs, (size_t)i));
    for (int i = 0; !status && i < out->output_count; i++)
        status = xn_oip_read_output(p, i, xn_json_element(outputs, (size_t)i));
    return status;
}

enum { ID, MODEL_NAME, MODEL_VERSION, PARAMETERS, INPUTS, OUTPUTS, MEMBERS };

static xn_status parse_root(xn_oip_parser *p, const xn_json *root) {
    static const char *const names[] = {
        "id", "model_name", "model_version", "parameters", "inputs", "outputs", NULL};
    const xn_json *members[MEMBERS];
    xn_infer_request *out = p->out;
    xn_status status = xn_oip_members(root, "", names, members, p->error);
    if (!status && members[ID])
        status = read_id(members[ID], out, p->error);
    if (!status)
        status = check_said(members[MODEL_NAME], "model_name", p->error);
    if (!status)
        status = check_said(members[MODEL_VERSION], "model_version", p->error);
    if (!status)
        status = xn_oip_read_parameters(out, members[PARAMETERS], p->error);
    if (!status)
        status = read_tensors(p, members[INPUTS], members[OUTPUTS]);
    if (status)
        return status;
    if (out->input_count == 0)
        return xn_fail(p->error, XN_ERR_MALFORMED, "inputs",
                       "inputs is %s; it takes a list of tensors {\"name\", \"shape\", "
                       "\"datatype\", \"data\"}",
                       members[INPUTS] ? "empty" : "missing");
    if (p->values.left)
        return xn_fail(p->error, XN_ERR_MALFORMED, "",
                       "%zu bytes are left at the end of the body that belong to no input; %s or a "
                       "binary_data_size is too small",
                       p->values.left, length_header);
    return XN_OK;
}

/* The first `length` bytes are the JSON. */
static xn_status parse_json(const xn_proto_body *body, size_t length, const xn_proto_limits *limits,
                            const xn_oip_memory *memory, xn_infer_request *out, xn_error *error) {
    const char *what = length < body->length ? "the JSON header" : "the body";
    xn_json_scan scan = {0};
    const xn_json *root = NULL;
    if (length == 0)
        return xn_fail(error, XN_ERR_MALFORMED, "", "%s is empty; it takes a JSON object", what);
    xn_status status =
        xn_json_scan_limited(body->bytes, length, XN_TAKE_INPUTS, &json_limits, &scan, error);
    if (!status)
        status = xn_json_parse(&scan, what, &root, error);
    if (!status) {
        xn_oip_parser p = {.limits = limits,
                           .memory = memory,
                           .scan = &scan,
                           .values = {(const uint8_t *)body->bytes + length, body->length - length},
                           .out = out,
                           .error = error};
        status = parse_root(&p, root);
    }
    xn_json_scan_free(&scan);
    return status;
}

xn_status xn_oip_parse_infer(const xn_proto_body *body, const xn_proto_limits *limits,
                             const xn_oip_memory *memory, xn_infer_request *out, xn_error *error) {
    const size_t length = body->has_header_length ? body->header_length : body->length;
    begin(out);
    if (body->has_header_length && length == 0)
        return parse_raw(body, memory, out, error);
    if (length > body->length)
        return xn_fail(error, XN_ERR_MALFORMED, length_header,
                       "%s is %zu, but the body has %zu bytes", length_header, length,
                       body->length);
    return parse_json(body, length, limits, memory, out, error);
}
