/* head.c: reading a request's head. What the library makes of it is not trusted: framing.c looks at
 * the fields, with version 0.9 of the library at the very bytes, and what it rejects is refused and
 * the connection closed. */
#include "http_internal.h"

#include "framing.h"
#include "origin.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

static enum MHD_Result visit_field(void *context, enum MHD_ValueKind kind, const char *key,
                                   size_t key_size, const char *value, size_t value_size) {
    (void)kind;
    xn_framing_field(context, key, key_size, value, value_size);
    return MHD_YES;
}

typedef struct {
    xn_framing *framing;
    xn_framing_walk walk;
} line_walk;

static enum MHD_Result visit_line(void *context, enum MHD_ValueKind kind, const char *key,
                                  size_t key_size, const char *value, size_t value_size) {
    line_walk *lines = context;
    (void)kind, (void)key_size, (void)value, (void)value_size;
    xn_framing_walk_field(lines->framing, &lines->walk, key);
    return MHD_YES;
}

/* The bytes of the request line and the header section, which version 0.9 of the library leaves in
 * one piece, as long as it met nothing strange: where it joins folded lines and then needs more
 * room, what it copied elsewhere lies behind the fold, and the walk ends there. The lengths are
 * inside its memory in any case. */
static void walk_head(const xn_request *request, xn_framing *f, const char *version) {
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(request->connection, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);
    const char *line = request->method;
    char *fields = (char *)(uintptr_t)version + strlen("HTTP/1.1") + 2;
    const char *end = info ? line + info->header_size : line;
    if (request->target_text != line + strlen(line) + 1 ||
        version != request->target_text + request->target_length + 1 || fields > end ||
        fields[-1] || fields[-2]) {
        xn_framing_refuse(f, 400, "bad_request", "path",
                          "the request line is not METHOD, TARGET and VERSION with one space "
                          "between and CR LF behind them");
        return;
    }
    line_walk lines = {f, {fields, fields + (end - fields)}};
    MHD_get_connection_values_n(request->connection, MHD_HEADER_KIND, visit_line, &lines);
    xn_framing_walk_end(f, &lines.walk);
}

/* Version 1.0 and later read a head strictly when told to (http.c). Of the library that runs, not
 * of the one it was built with. */
static bool is_strict(void) {
    return MHD_get_version()[0] != '0';
}

static void check_framing(xn_request *request, const char *version) {
    xn_framing f = {0};
    bool old = !strcmp(version, "HTTP/1.0");
    xn_framing_start(&f, request->method, strlen(request->method), &request->target);
    if (request->bad_path)
        xn_framing_refuse(&f, 400, "bad_request", "path",
                          "the path holds an encoded NUL byte (%00)");
    if (is_strict())
        MHD_get_connection_values_n(request->connection, MHD_HEADER_KIND, visit_field, &f);
    else
        walk_head(request, &f, version);
    xn_framing_finish(&f, old);
    request->has_body = f.has_length || f.chunked;
    request->length = f.chunked ? XN_HTTP_UNKNOWN_LENGTH : f.length;
    request->expects = f.expects;
    /* Version 0.9 takes a bare LF for the end of a chunk's line, where another server may not: what
     * follows such a body on the connection may be a part of it. */
    request->close = f.chunked && !is_strict();
    if (!f.status)
        return;
    request->close = true;
    xn_response_refuse(request, f.status, XN_REJECT_FRAMING, f.code, f.field, f.message);
}

/* The path of the target, which the library has decoded as a whole. */
static const char *path_of(const xn_request *request, const char *url) {
    const xn_target *target = &request->target;
    if (target->form != XN_TARGET_ABSOLUTE)
        return url;
    if (target->has_path)
        return url + target->prefix;
    return strcmp(request->method, "OPTIONS") ? "/" : "*"; /* RFC 9112 section 3.2.4 */
}

static bool changes(const char *method) {
    return !strcmp(method, "POST") || !strcmp(method, "PUT") || !strcmp(method, "DELETE");
}

/* The question that a browser asks before it lets a page of another origin send a request. */
static void answer_preflight(xn_request *request) {
    xn_request_add_header(request, "Access-Control-Allow-Methods", "GET, HEAD, POST, PUT, DELETE");
    xn_request_add_header(request, "Access-Control-Allow-Headers",
                          "Accept, Authorization, Content-Encoding, Content-Type, If-None-Match, "
                          "Inference-Header-Content-Length, X-Request-Id, traceparent, "
                          "tracestate");
    xn_request_add_header(request, "Access-Control-Max-Age", "600");
    xn_request_respond_empty(request, 204);
}

static void check_origin(xn_request *request, const char *host) {
    const char *origin = xn_request_header(request, "Origin");
    if (!origin)
        return;
    if (xn_origin_listed(origin, request->http->allowed_origins)) {
        request->allowed_origin = origin;
        if (!strcmp(request->method, "OPTIONS") &&
            xn_request_header(request, "Access-Control-Request-Method"))
            answer_preflight(request);
    } else if (changes(request->method) && !xn_origin_is_own(origin, host)) {
        xn_response_refuse(request, 403, XN_REJECT_UNAUTHORIZED, "forbidden", "Origin",
                           "the request is from a web page of another origin; --allowed-origins "
                           "names those that may send it");
    }
}

/* Whether a web page sends the request that must not (origin.h). */
static void check_page(xn_request *request) {
    const xn_http *http = request->http;
    const char *host = xn_request_header(request, "Host");
    char message[320];
    if (request->responded)
        return;
    if (http->any_host || xn_origin_host_known(host, http->allowed_hosts, http->machine)) {
        check_origin(request, host);
        return;
    }
    snprintf(message, sizeof message,
             "Host is %.100s, which is no name of this server: without keys it answers to "
             "localhost, its host name, IP addresses and what --allowed-hosts names",
             host);
    xn_response_refuse(request, 421, XN_REJECT_UNAUTHORIZED, "misdirected_request", "Host",
                       message);
}

static enum MHD_Result count_field(void *context, enum MHD_ValueKind kind, const char *key,
                                   const char *value) {
    (void)kind, (void)value;
    *(int *)context += !strcasecmp(key, "traceparent");
    return MHD_YES;
}

/* The trace's id becomes the request's; others stand over it. */
static void read_trace(xn_request *request) {
    const xn_http *http = request->http;
    const char *parent = xn_request_header(request, "traceparent");
    char text[XN_TRACEPARENT_BYTES];
    int count = 0;
    if (parent)
        MHD_get_connection_values(request->connection, MHD_HEADER_KIND, count_field, &count);
    if (count == 1) /* of several none counts */
        xn_trace_parse(parent, &request->trace);
    if (http->traces)
        xn_trace_begin(&request->trace, http->trace_ids);
    if (!request->trace.trace_id[0])
        return;
    xn_request_set_id(request, request->trace.trace_id);
    xn_trace_format(&request->trace, text);
    xn_request_add_header(request, "traceparent", text);
}

static void check_id(xn_request *request) {
    const char *id = xn_request_header(request, "X-Request-Id");
    if (!id)
        return;
    if (xn_proto_id_valid(id)) {
        snprintf(request->id, sizeof request->id, "%s", id);
        request->id_from_header = true;
    } else if (!request->responded) {
        xn_response_refuse(
            request, 400, XN_REJECT_MALFORMED, "bad_request", "X-Request-Id",
            "X-Request-Id must be 1 to 128 printable ASCII characters without quotation mark "
            "or backslash");
    }
}

void xn_head_read(xn_request *request, const char *url, const char *method, const char *version) {
    request->method = method;
    request->path = path_of(request, url);
    check_framing(request, version);
    read_trace(request);
    check_id(request);
    check_page(request);
}
