/* response.c: how an answer leaves: as the library's response; as a page of ours in place of one of
 * the library's; and past the library, which takes no response in the middle of a body. */
#include "http_internal.h"

#include "xn_mem.h"

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

bool xn_request_responded(const xn_request *request) {
    return request->responded || request->aborted;
}

void xn_request_respond(xn_request *request, int status, const char *content_type, void *body,
                        size_t length, void (*release)(void *context), void *release_context) {
    if (xn_request_responded(request)) { /* the first one counts */
        if (release)
            release(release_context);
        return;
    }
    request->responded = true;
    request->status = status;
    request->content_type = content_type;
    request->response_body = body;
    request->response_length = length;
    request->release = release;
    request->release_context = release_context;
}

void xn_request_add_header(xn_request *request, const char *name, const char *value) {
    if (request->header_count == XN_HTTP_MAX_HEADERS)
        return;
    int i = request->header_count++;
    request->headers[i].name = name;
    size_t length = strnlen(value, sizeof request->headers[i].value - 1);
    memcpy(request->headers[i].value, value, length);
    request->headers[i].value[length] = '\0';
}

void xn_request_abort(xn_request *request) {
    request->aborted = true;
}

void xn_response_release(xn_request *request) {
    if (request->release)
        request->release(request->release_context);
    request->release = NULL;
}

/* The library calls release when it no longer needs the body. */
static struct MHD_Response *make_response(xn_request *request) {
    if (!request->release)
        return MHD_create_response_from_buffer(request->response_length, request->response_body,
                                               MHD_RESPMEM_PERSISTENT);
    struct MHD_Response *response = MHD_create_response_from_buffer_with_free_callback_cls(
        request->response_length, request->response_body, request->release,
        request->release_context);
    if (response)
        request->release = NULL;
    return response;
}

/* False when there was no memory for one: an answer that lacks a header would be a wrong one. */
static bool add_headers(const xn_request *request, struct MHD_Response *response) {
    bool close =
        request->close || atomic_load_explicit(&request->http->draining, memory_order_relaxed);
    bool ok = MHD_add_response_header(response, "X-Request-Id", request->id) == MHD_YES;
    if (request->content_type)
        ok &= MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE,
                                      request->content_type) == MHD_YES;
    for (int i = 0; i < request->header_count; i++)
        ok &= MHD_add_response_header(response, request->headers[i].name,
                                      request->headers[i].value) == MHD_YES;
    if (close)
        ok &= MHD_add_response_header(response, MHD_HTTP_HEADER_CONNECTION, "close") == MHD_YES;
    return ok;
}

enum MHD_Result xn_response_deliver(xn_request *request) {
    if (request->aborted || !request->responded)
        return MHD_NO;
    struct MHD_Response *response = make_response(request);
    if (!response)
        return MHD_NO;
    if (!add_headers(request, response)) {
        MHD_destroy_response(response);
        return MHD_NO;
    }
    request->stage = XN_REQUEST_RESPONDING;
    request->conn->linger = request->close || request->received < request->length;
    xn_conn_enter(request->conn, XN_PHASE_SENDING, request->response_length, NULL);
    enum MHD_Result queued =
        xn_library_queue(request->connection, (unsigned)request->status, response);
    MHD_destroy_response(response);
    return queued;
}

void xn_request_respond_error(xn_request *request, int status, const char *code, const char *field,
                              const char *message) {
    const xn_http_handler *handler = &request->http->handler;
    char text[1024];
    size_t length =
        handler->write_error(handler->context, request, code, field, message, text, sizeof text);
    char *copy = xn_mem_alloc(length);
    if (!copy) {
        xn_request_abort(request);
        return;
    }
    memcpy(copy, text, length);
    xn_request_respond(request, status, "application/json", copy, length, xn_mem_free, copy);
}

void xn_response_refuse(xn_request *request, int status, xn_reject_reason reason, const char *code,
                        const char *field, const char *message) {
    xn_metrics_rejected(request->http->metrics, reason);
    xn_request_respond_error(request, status, code, field, message);
}

/* ---- an answer in the middle of a body ---- */

static const char *reason_phrase(int status) {
    switch (status) {
    case 413:
        return "Content Too Large";
    case 429:
        return "Too Many Requests";
    default:
        return "Service Unavailable";
    }
}

/* Written at once and whole, or not at all: nothing else is in the socket's buffer. With TLS only
 * the library could write it. */
static void send_past_library(xn_request *request) {
    char text[2048];
    int n = snprintf(text, sizeof text,
                     "HTTP/1.1 %d %s\r\nConnection: close\r\nContent-Type: %s\r\n"
                     "Content-Length: %zu\r\nX-Request-Id: %s\r\n",
                     request->status, reason_phrase(request->status), request->content_type,
                     request->response_length, request->id);
    for (int i = 0; i < request->header_count && n < (int)sizeof text; i++)
        n += snprintf(text + n, sizeof text - (size_t)n, "%s: %s\r\n", request->headers[i].name,
                      request->headers[i].value);
    if ((size_t)n + 2 + request->response_length >= sizeof text)
        return;
    memcpy(text + n, "\r\n", 2);
    memcpy(text + n + 2, request->response_body, request->response_length);
    size_t length = (size_t)n + 2 + request->response_length;
    if (send(request->conn->fd, text, length, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)length)
        request->stage = XN_REQUEST_RESPONDING;
}

/* The handler has responded and the body is not complete: the rest is not read. */
enum MHD_Result xn_response_cut_off(xn_request *request) {
    request->conn->linger = true;
    if (!request->aborted && !request->conn->tls)
        send_past_library(request);
    return MHD_NO;
}

/* ---- in place of the library's pages ---- */

/* What the library answers by itself; see http_library.h. */
struct MHD_Response *xn_response_for_library(void *context, struct MHD_Connection *connection,
                                             unsigned status) {
    static const struct {
        unsigned status;
        const char *code, *message;
    } refusals[] = {
        {400, "bad_request", "the request line or a header is malformed"},
        {413, "too_large", "the request is too large"},
        {414, "uri_too_long", "the request line is too long"},
        {431, "header_too_large", "the headers are too large"},
        {501, "not_implemented", "the request needs what this server does not do"},
        {505, "version_not_supported", "the version is not HTTP/1.0 or HTTP/1.1"},
    };
    xn_http *http = context;
    char text[640], id[XN_PROTO_MAX_ID + 1];
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        if (refusals[i].status != status)
            continue;
        size_t length =
            xn_proto_write_error(refusals[i].code, refusals[i].message, "", text, sizeof text);
        struct MHD_Response *response =
            MHD_create_response_from_buffer(length, text, MHD_RESPMEM_MUST_COPY);
        if (!response)
            return NULL;
        xn_request_make_id(http, id);
        MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, "application/json");
        MHD_add_response_header(response, "X-Request-Id", id);
        xn_metrics_rejected(http->metrics, XN_REJECT_FRAMING);
        const union MHD_ConnectionInfo *info =
            MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
        if (info && info->socket_context)
            ((xn_conn *)info->socket_context)->linger = true;
        return response;
    }
    return NULL;
}
