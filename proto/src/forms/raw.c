/* raw.c: form raw, for curl: the body is the input's bytes and nothing else. Shape, datatype, the
 * name of the weights and the parameters stand in the query; an answer is the output's bytes, whose
 * shape and datatype stand in header fields. */
#include "xn_datatypes.h"
#include "xn_wire_form.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* What the query says of the input. */
typedef struct raw_input {
    xn_shape shape; /* rank 0: not given */
    xn_datatype datatype;
} raw_input;

static xn_status set_shape(raw_input *input, const char *value, xn_error *error) {
    char excerpt[XN_TEXT_EXCERPT];
    input->shape = (xn_shape){0};
    input->shape.rank = xn_param_integers(value, input->shape.dims, XN_MAX_RANK);
    if (!input->shape.rank)
        return xn_fail(error, XN_ERR_MALFORMED, "shape",
                       "shape is \"%s\"; it takes the input's dimensions, N,C,H,W: shape=1,3,32,32",
                       xn_text_excerpt(value, strlen(value), excerpt));
    return XN_OK;
}

static xn_status set_datatype(raw_input *input, const char *value, xn_error *error) {
    char excerpt[XN_TEXT_EXCERPT], got[XN_TEXT_EXCERPT + 2];
    if (xn_datatype_parse(value, &input->datatype) &&
        xn_datatype_may_be(input->datatype, XN_AS_INPUT))
        return XN_OK;
    snprintf(got, sizeof got, "\"%s\"", xn_text_excerpt(value, strlen(value), excerpt));
    return xn_datatype_fail("datatype", got, value, XN_AS_INPUT, XN_NAMES_OIP, error);
}

static bool take_own(void *context, const char *key, const char *value, xn_status *status,
                     xn_error *error) {
    if (!strcmp(key, "shape"))
        *status = set_shape(context, value, error);
    else if (!strcmp(key, "datatype"))
        *status = set_datatype(context, value, error);
    else
        return false;
    return true;
}

static xn_status fail_bytes(const xn_proto_body *body, const xn_tensor_ref *ref, xn_error *error) {
    char shape[200];
    xn_shape_format(&ref->shape, shape, sizeof shape);
    return xn_fail(error, XN_ERR_MALFORMED, "shape",
                   "the body has %zu bytes; shape %s of %s needs %zu%s", body->length, shape,
                   xn_datatype_name(ref->datatype), ref->bytes,
                   xn_request_hint_bytes(ref->datatype, body->length, ref->bytes));
}

static xn_status parse(const xn_proto_body *body, const xn_proto_query *query, size_t query_count,
                       const xn_proto_limits *limits, const xn_targets *targets, xn_error *error) {
    static const char header[] = "Inference-Header-Content-Length";
    raw_input input = {.datatype = XN_FP32};
    const xn_query_own own = {{"shape", "datatype"}, take_own, &input};
    xn_tensor_ref ref = {.present = true, .data = body->bytes};
    if (!targets->conv)
        return xn_fail(error, XN_ERR_MALFORMED, header,
                       "%s needs the header %s here: how many bytes of JSON come before the "
                       "tensors",
                       xn_wire_raw.media_type, header);
    xn_status status = xn_request_parse_query(query, query_count, targets, &own, error);
    if (status)
        return status;
    if (!input.shape.rank)
        return xn_fail(
            error, XN_ERR_MALFORMED, "shape",
            "shape is missing: a body without %s is the input's bytes alone, whose shape "
            "stands in the query, ?shape=N,C,H,W&weights=NAME; with a JSON header in "
            "front, %s says how many bytes that has",
            header, header);
    ref.shape = input.shape;
    ref.datatype = input.datatype;
    status = xn_shape_elements(&ref.shape, ref.datatype, limits->max_elements, "input",
                               &ref.elements, &ref.bytes, error);
    if (!status && ref.bytes != body->length)
        status = fail_bytes(body, &ref, error);
    if (!status)
        *targets->refs[XN_MEMBER_INPUT] = ref;
    return status;
}

static size_t prefix_bytes(const xn_proto_body *body) {
    (void)body;
    return 0;
}

static void write_prefix(xn_text *text, const xn_answer *answer) {
    (void)text, (void)answer; /* nothing stands in front of the bytes */
}

/* Output-Shape: 1,64,56,56 */
static int headers(const xn_answer *answer, size_t prefix, xn_proto_header *out) {
    (void)prefix;
    xn_text shape = xn_text_over(out[0].value, sizeof out[0].value - 1);
    xn_answer_dims(&shape, &answer->shape);
    out[0].name = "Output-Shape";
    out[0].value[shape.length] = 0;
    out[1].name = "Output-Datatype";
    snprintf(out[1].value, sizeof out[1].value, "%s", xn_datatype_name(answer->datatype));
    return 2;
}

const xn_wire_form xn_wire_raw = {.media_type = "application/octet-stream",
                                  .query = true,
                                  .parse = parse,
                                  .prefix_bytes = prefix_bytes,
                                  .write_prefix = write_prefix,
                                  .headers = headers};
