/* json.c: form JSON: the values are text. */
#include "xn_wire_form.h"

static xn_status parse(const xn_proto_body *body, const xn_proto_query *query, size_t query_count,
                       const xn_proto_limits *limits, const xn_targets *targets, xn_error *error) {
    (void)query, (void)query_count;
    return xn_request_parse_json(body, limits, targets, false, error);
}

const xn_wire_form xn_wire_json = {.media_type = "application/json", .parse = parse};
