/* oip_binary.c: form OIP binary: the JSON of form JSON, whose tensors have binary_data_size in the
 * place of data, and behind it their bytes in the order of the members. */
#include "xn_wire_form.h"

static const char length_header[] = "Inference-Header-Content-Length";

static xn_status parse(const xn_proto_body *body, const xn_proto_query *query, size_t query_count,
                       const xn_proto_limits *limits, const xn_targets *targets, xn_error *error) {
    (void)query, (void)query_count;
    if (body->header_length > body->length)
        return xn_fail(error, XN_ERR_MALFORMED, length_header,
                       "%s is %zu, but the body has %zu bytes", length_header, body->header_length,
                       body->length);
    return xn_request_parse_json(body, limits, targets, true, error);
}

static size_t prefix_bytes(const xn_proto_body *body) {
    return body->header_length;
}

static void write_prefix(xn_text *text, const xn_answer *answer) {
    xn_text_string(text, "{\"id\":\"");
    xn_answer_word(text, answer->id);
    xn_text_string(text, "\",\"output\":{\"name\":\"output\",");
    xn_answer_type(text, answer);
    xn_text_string(text, ",\"parameters\":{\"binary_data_size\":");
    xn_text_int(text, (int64_t)answer->output_bytes);
    xn_text_string(text, "}}");
    xn_answer_circumstances(text, answer);
    while (text->length % 8)
        xn_text_bytes(text, " ", 1);
}

static int headers(const xn_answer *answer, size_t prefix, xn_proto_header *out) {
    (void)answer;
    out->name = length_header;
    out->value[xn_text_u64(prefix, out->value)] = '\0';
    return 1;
}

const xn_wire_form xn_wire_oip_binary = {.media_type = "application/octet-stream",
                                         .header_length = true,
                                         .parse = parse,
                                         .prefix_bytes = prefix_bytes,
                                         .write_prefix = write_prefix,
                                         .headers = headers};
