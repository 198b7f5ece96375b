/* exchange.c: see exchange.h. Errors leave the daemon in one form, made here. */
#include "exchange.h"

#include "log.h"
#include "xn_mem.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

/* ---- errors ---- */

typedef struct {
    int http_status;
    const char *code;
    xn_reject_reason reason;
} error_class;

static const error_class classes[XN_STATUS_COUNT] = {
    [XN_OK] = {500, "internal", XN_REJECT_OTHER},
    [XN_ERR_MALFORMED] = {400, "bad_request", XN_REJECT_MALFORMED},
    [XN_ERR_UNSUPPORTED] = {422, "unprocessable", XN_REJECT_GEOMETRY},
    [XN_ERR_GEOMETRY] = {422, "unprocessable", XN_REJECT_GEOMETRY},
    [XN_ERR_LIMIT] = {413, "too_large", XN_REJECT_TOO_LARGE},
    [XN_ERR_NOT_FOUND] = {404, "not_found", XN_REJECT_OTHER},
    [XN_ERR_NO_MEMORY] = {503, "unavailable", XN_REJECT_NO_MEMORY},
    [XN_ERR_DEVICE_MEMORY] = {503, "unavailable", XN_REJECT_NO_MEMORY},
    [XN_ERR_DEVICE_LOST] = {503, "unavailable", XN_REJECT_DEVICE},
    [XN_ERR_NO_DEVICE] = {503, "unavailable", XN_REJECT_DEVICE},
    [XN_ERR_BUSY] = {429, "too_many_requests", XN_REJECT_QUEUE_FULL},
    [XN_ERR_DEADLINE] = {504, "deadline_exceeded", XN_REJECT_DEADLINE},
    [XN_ERR_CANCELLED] = {503, "unavailable", XN_REJECT_CLIENT_GONE},
    [XN_ERR_DRAINING] = {503, "unavailable", XN_REJECT_DRAINING},
    [XN_ERR_LOADING] = {503, "unavailable", XN_REJECT_OTHER},
    [XN_ERR_IO] = {500, "internal", XN_REJECT_OTHER},
    [XN_ERR_INTERNAL] = {500, "internal", XN_REJECT_OTHER},
};

void xn_exchange_add_retry_after(xn_exchange *exchange) {
    char seconds[16];
    snprintf(seconds, sizeof seconds, "%d", xn_engine_retry_after(exchange->service->engine));
    xn_request_add_header(exchange->request, "Retry-After", seconds);
}

void xn_exchange_refuse(xn_exchange *exchange, int http_status, xn_reject_reason reason,
                        const char *code, const char *field, const char *message) {
    xn_metrics_rejected(xn_engine_metrics(exchange->service->engine), reason);
    xn_log(http_status >= 500 ? XN_LOG_WARN : XN_LOG_DEBUG, xn_request_id(exchange->request),
           "%s %s: %d %s: %s", xn_request_method(exchange->request),
           xn_request_path(exchange->request), http_status, code, message);
    if (http_status == 429 || http_status == 503)
        xn_exchange_add_retry_after(exchange);
    xn_request_respond_error(exchange->request, http_status, code, field, message);
}

void xn_exchange_fail(xn_exchange *exchange, const xn_error *error) {
    const error_class *class = &classes[error->status];
    char message[sizeof error->message + 64];
    if (error->status == XN_ERR_CANCELLED) { /* counted when the exchange is over */
        xn_request_abort(exchange->request);
        return;
    }
    if (error->limit[0] && !strstr(error->message, error->limit))
        snprintf(message, sizeof message, "%s (the limit is set by --%s)", error->message,
                 error->limit);
    else
        snprintf(message, sizeof message, "%s", error->message);
    xn_exchange_refuse(exchange, class->http_status, class->reason, class->code, error->field,
                       message);
}

void xn_exchange_json(xn_exchange *exchange, int http_status, char *text, size_t length) {
    if (text) {
        xn_request_respond(exchange->request, http_status, "application/json", text, length,
                           xn_mem_free, text);
        return;
    }
    xn_error error;
    xn_fail(&error, XN_ERR_NO_MEMORY, NULL, "no memory for the answer; try again later");
    xn_exchange_fail(exchange, &error);
}

/* ---- bodies ---- */

static const char length_header[] = "Inference-Header-Content-Length";

static bool is_shape(void *context, const char *key, const char *value) {
    (void)value;
    *(bool *)context |= !strcmp(key, "shape");
    return !*(bool *)context;
}

/* What curl says of --data-binary unless it is told otherwise: the raw form, where the query has
 * the shape that this form asks for. */
static bool is_raw_by_curl(const xn_exchange *exchange, const char *type) {
    bool shape = false;
    if (!xn_form_is_type(type, "application/x-www-form-urlencoded"))
        return false;
    xn_request_query(exchange->request, is_shape, &shape);
    return shape;
}

static bool accept_types(xn_exchange *exchange, bool answers) {
    const char *type = xn_request_header(exchange->request, "Content-Type");
    const char *coding = xn_request_header(exchange->request, "Content-Encoding");
    const bool has_length = xn_request_header(exchange->request, length_header) != NULL;
    char message[400];
    if (type && answers && is_raw_by_curl(exchange, type)) {
        exchange->form = XN_FORM_RAW;
    } else if (!type || !xn_form_parse(type, has_length, &exchange->form)) {
        const char *nearest = type ? xn_form_nearest(type) : NULL;
        snprintf(message, sizeof message,
                 "Content-Type is %.100s; it must be application/json, application/octet-stream "
                 "or application/vnd.safetensors%s%s%s",
                 type ? type : "missing", nearest ? "; did you mean " : "", nearest ? nearest : "",
                 nearest ? "?" : "");
        xn_exchange_refuse(exchange, 415, XN_REJECT_MALFORMED, "unsupported_media_type",
                           "Content-Type", message);
        return false;
    }
    if (coding && strcasecmp(coding, "identity")) {
        snprintf(message, sizeof message, "Content-Encoding is %.100s; send the body as it is",
                 coding);
        xn_exchange_refuse(exchange, 415, XN_REJECT_MALFORMED, "unsupported_media_type",
                           "Content-Encoding", message);
        return false;
    }
    const char *accept = xn_request_header(exchange->request, "Accept");
    if (answers && !xn_form_negotiate(accept, exchange->form, &exchange->answer_form)) {
        snprintf(message, sizeof message,
                 "Accept is %.100s; the answer can be application/json, application/octet-stream "
                 "or application/vnd.safetensors",
                 accept);
        xn_exchange_refuse(exchange, 406, XN_REJECT_MALFORMED, "not_acceptable", "Accept", message);
        return false;
    }
    return true;
}

static bool accept_header_length(xn_exchange *exchange) {
    const char *text = xn_request_header(exchange->request, length_header);
    size_t value = 0, total = xn_request_length(exchange->request);
    char message[320];
    if (!text)
        return true; /* the form is another, or its parser says what is missing */
    if (exchange->form != XN_FORM_OIP_BINARY) { /* the one form with such a header */
        snprintf(message, sizeof message,
                 "Inference-Header-Content-Length is \"%.40s\", but Content-Type is %.100s; it "
                 "belongs to %s",
                 text, xn_request_header(exchange->request, "Content-Type"),
                 xn_form_media_type(XN_FORM_OIP_BINARY));
        xn_exchange_refuse(exchange, 400, XN_REJECT_MALFORMED, "bad_request",
                           "Inference-Header-Content-Length", message);
        return false;
    }
    for (const char *c = text; *c; c++) {
        if (*c < '0' || *c > '9' || value > total) {
            value = total + 1;
            break;
        }
        value = value * 10 + (size_t)(*c - '0');
    }
    if (!*text || value > total) {
        snprintf(message, sizeof message,
                 "Inference-Header-Content-Length is \"%.40s\"; it must be a number of bytes, at "
                 "most the Content-Length of %zu",
                 text, total);
        xn_exchange_refuse(exchange, 400, XN_REJECT_MALFORMED, "bad_request",
                           "Inference-Header-Content-Length", message);
        return false;
    }
    exchange->has_header_length = true;
    exchange->header_length = value;
    return true;
}

static bool accept_length(xn_exchange *exchange) {
    int64_t limit = exchange->service->config->max_body_bytes;
    size_t length = xn_request_length(exchange->request);
    xn_error error;
    if (!xn_request_has_length(exchange->request)) {
        xn_exchange_refuse(exchange, 411, XN_REJECT_FRAMING, "length_required", "Content-Length",
                           "Content-Length is missing; this route needs a body of known length");
        return false;
    }
    if (length > (size_t)limit) {
        xn_fail_limit(&error, "max-body-bytes", "Content-Length",
                      "Content-Length is %zu; at most %lld bytes are taken", length,
                      (long long)limit);
        xn_exchange_fail(exchange, &error);
        return false;
    }
    return true;
}

xn_status xn_exchange_admit(xn_exchange *exchange, size_t expected, xn_error *error) {
    xn_admission *admission = xn_engine_admission(exchange->service->engine);
    unsigned char identity[XN_CLIENT_IDENTITY_BYTES] = {0};
    xn_client *key = NULL;
    memcpy(identity, &exchange->key, sizeof exchange->key);
    if (exchange->key && !(key = xn_client_get(admission, XN_CLIENT_KEY, identity)))
        return xn_fail(error, XN_ERR_NO_MEMORY, NULL, "no memory for the request; try again later");
    return xn_ticket_enter(admission, xn_request_address_share(exchange->request), key, expected,
                           &exchange->ticket, error);
}

bool xn_exchange_accept_body(xn_exchange *exchange, bool answers) {
    xn_engine *engine = exchange->service->engine;
    size_t length = xn_request_length(exchange->request);
    xn_error error;
    if (!accept_types(exchange, answers) || !accept_length(exchange) ||
        !accept_header_length(exchange))
        return false;
    /* Binary values begin right after the header: let them begin on a 64-byte boundary. */
    size_t offset =
        (XN_MEM_ALIGNMENT - exchange->header_length % XN_MEM_ALIGNMENT) % XN_MEM_ALIGNMENT;
    if (xn_exchange_admit(exchange, length, &error) ||
        xn_body_open(length, offset, xn_engine_buffers(engine), &exchange->ticket, &exchange->body,
                     &error)) {
        xn_exchange_fail(exchange, &error);
        return false;
    }
    xn_request_receive(exchange->request, exchange->body.memory + offset, exchange->body.granted);
    return true;
}

void xn_exchange_grow_body(xn_exchange *exchange, size_t bytes) {
    xn_body *body = &exchange->body;
    xn_error error;
    if (!xn_body_grow(body, bytes, &exchange->ticket, &error)) {
        xn_request_receive(exchange->request, body->memory + body->offset, body->granted);
        return;
    }
    xn_exchange_fail(exchange, &error);
    xn_exchange_release(exchange); /* at once: the next one that asks may have it */
}

/* Where values begin is known before the body comes, or only from it: then they may lie where no
 * element of 4 bytes may. */
bool xn_exchange_must_move(const xn_proto_body *body) {
    const size_t prefix = xn_proto_prefix_bytes(body);
    return prefix < body->length && ((uintptr_t)body->bytes + prefix) % 4;
}

xn_proto_body xn_exchange_received(const xn_exchange *exchange) {
    return (xn_proto_body){.form = exchange->form,
                           .bytes = exchange->body.memory + exchange->body.offset,
                           .length = exchange->body.length,
                           .has_header_length = exchange->has_header_length,
                           .header_length = exchange->header_length};
}

void xn_exchange_body(xn_exchange *exchange, xn_proto_body *out) {
    *out = xn_exchange_received(exchange);
    if (xn_exchange_must_move(out)) {
        size_t prefix = xn_proto_prefix_bytes(out);
        size_t shift = (XN_MEM_ALIGNMENT - prefix % XN_MEM_ALIGNMENT) % XN_MEM_ALIGNMENT;
        out->bytes = memmove(exchange->body.memory + shift, out->bytes, out->length);
    }
}

void xn_exchange_release(xn_exchange *exchange) {
    const xn_service *service = exchange->service;
    xn_body_close(&exchange->body, xn_engine_buffers(service->engine), service->loader);
    xn_ticket_leave(&exchange->ticket);
}
