/* response.c: how an answer leaves: as the library's response, or past the library, which takes no
 * response at the request line and in the middle of a body. */
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

void xn_request_respond_empty(xn_request *request, int status) {
    static char nothing[1];
    xn_request_respond(request, status, NULL, nothing, 0, NULL, NULL);
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

/* What lets a page of an allowed origin read the answer. */
static bool add_cors(const xn_request *request, struct MHD_Response *response) {
    bool ok = true;
    if (*request->http->allowed_origins)
        ok &= MHD_add_response_header(response, "Vary", "Origin") == MHD_YES;
    if (request->allowed_origin)
        ok &= MHD_add_response_header(response, "Access-Control-Allow-Origin",
                                      request->allowed_origin) == MHD_YES &&
              MHD_add_response_header(response, "Access-Control-Expose-Headers",
                                      "Cache-Status, ETag, Inference-Header-Content-Length, "
                                      "Output-Datatype, Output-Shape, Retry-After, Server-Timing, "
                                      "X-Request-Id, traceparent") == MHD_YES;
    return ok;
}

/* False when there was no memory for one: an answer that lacks a header would be a wrong one. */
static bool add_headers(const xn_request *request, struct MHD_Response *response) {
    bool close =
        request->close || atomic_load_explicit(&request->http->draining, memory_order_relaxed);
    bool ok = MHD_add_response_header(response, "X-Request-Id", request->id) == MHD_YES;
    ok &= MHD_add_response_header(response, "X-Content-Type-Options", "nosniff") == MHD_YES;
    ok &= add_cors(request, response);
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
        MHD_queue_response(request->connection, (unsigned)request->status, response);
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

/* ---- past the library ---- */

static const char *reason_phrase(int status) {
    switch (status) {
    case 413:
        return "Content Too Large";
    case 414:
        return "URI Too Long";
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
                     "Content-Length: %zu\r\nX-Request-Id: %s\r\n"
                     "X-Content-Type-Options: nosniff\r\n",
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

enum MHD_Result xn_response_cut_off(xn_request *request) {
    request->conn->linger = true;
    if (!request->aborted && !request->conn->tls)
        send_past_library(request);
    return MHD_NO;
}
