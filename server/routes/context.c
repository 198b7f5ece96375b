/* context.c: see context.h. Errors leave the daemon in one form, made here. */
#include "context.h"

#include "log.h"
#include "xn_mem.h"
#include "xn_picture.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- errors ---- */

typedef struct {
    int http_status, oip_status; /* as the Open Inference Protocol has it */
    const char *code;
    xn_reject_reason reason;
} error_class;

static const error_class classes[XN_STATUS_COUNT] = {
    [XN_OK] = {500, 500, "internal", XN_REJECT_OTHER},
    [XN_ERR_MALFORMED] = {400, 400, "bad_request", XN_REJECT_MALFORMED},
    [XN_ERR_UNSUPPORTED] = {422, 501, "unprocessable", XN_REJECT_GEOMETRY},
    [XN_ERR_GEOMETRY] = {422, 400, "unprocessable", XN_REJECT_GEOMETRY},
    [XN_ERR_LIMIT] = {413, 413, "too_large", XN_REJECT_TOO_LARGE},
    [XN_ERR_NOT_FOUND] = {404, 404, "not_found", XN_REJECT_OTHER},
    [XN_ERR_NO_MEMORY] = {503, 503, "unavailable", XN_REJECT_NO_MEMORY},
    [XN_ERR_DEVICE_MEMORY] = {503, 503, "unavailable", XN_REJECT_NO_MEMORY},
    [XN_ERR_DEVICE_LOST] = {503, 503, "unavailable", XN_REJECT_DEVICE},
    [XN_ERR_NO_DEVICE] = {503, 503, "unavailable", XN_REJECT_DEVICE},
    [XN_ERR_BUSY] = {429, 429, "too_many_requests", XN_REJECT_QUEUE_FULL},
    [XN_ERR_DEADLINE] = {504, 504, "deadline_exceeded", XN_REJECT_DEADLINE},
    [XN_ERR_CANCELLED] = {503, 503, "unavailable", XN_REJECT_CLIENT_GONE},
    [XN_ERR_DRAINING] = {503, 503, "unavailable", XN_REJECT_DRAINING},
    [XN_ERR_LOADING] = {503, 400, "unavailable", XN_REJECT_OTHER}, /* a model that is not ready */
    [XN_ERR_IO] = {503, 503, "unavailable", XN_REJECT_OTHER},      /* the disk's; 500 is a defect */
    [XN_ERR_INTERNAL] = {500, 500, "internal", XN_REJECT_OTHER},
};

/* From the recent rate of finished jobs. */
static void add_retry_after(xn_context *ctx) {
    char seconds[16];
    snprintf(seconds, sizeof seconds, "%d", xn_engine_retry_after(ctx->service->engine));
    xn_request_add_header(ctx->request, "Retry-After", seconds);
}

void xn_context_refuse(xn_context *ctx, int http_status, xn_reject_reason reason, const char *code,
                       const char *field, const char *format, ...) {
    char message[sizeof((xn_error *)0)->message + 64];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    xn_metrics_rejected(xn_engine_metrics(ctx->service->engine), reason);
    xn_log(http_status >= 500 ? XN_LOG_WARN : XN_LOG_DEBUG, xn_request_id(ctx->request),
           "%s %s: %d %s: %s", xn_request_method(ctx->request), xn_request_path(ctx->request),
           http_status, code, message);
    if (http_status == 429 || http_status == 503)
        add_retry_after(ctx);
    xn_request_respond_error(ctx->request, http_status, code, field, message);
}

void xn_context_fail(xn_context *ctx, const xn_error *error) {
    const error_class *class = &classes[error->status];
    const bool names_limit = error->limit[0] && !strstr(error->message, error->limit);
    if (error->status == XN_ERR_CANCELLED) { /* counted when the request is over */
        xn_request_abort(ctx->request);
        return;
    }
    xn_context_refuse(ctx, ctx->oip ? class->oip_status : class->http_status, class->reason,
                      class->code, error->field, "%s%s%s%s", error->message,
                      names_limit ? " (the limit is set by --" : "",
                      names_limit ? error->limit : "", names_limit ? ")" : "");
}

void xn_context_fail_memory(xn_context *ctx) {
    xn_error error;
    xn_fail(&error, XN_ERR_NO_MEMORY, NULL, "no memory for the request; try again later");
    xn_context_fail(ctx, &error);
}

void xn_context_json(xn_context *ctx, int http_status, xn_document *text) {
    size_t length;
    xn_document_add(text, "\n");
    char *body = xn_document_take(text, &length);
    if (!body) {
        xn_context_fail_memory(ctx);
        return;
    }
    if (http_status == 503)
        add_retry_after(ctx);
    xn_request_respond(ctx->request, http_status, "application/json", body, length, xn_mem_free,
                       body);
}

static void run_background(xn_task *task) {
    xn_background_task *background = (xn_background_task *)task;
    xn_error error;
    const xn_status status = background->run(background, &error);
    if (status)
        background->error = error;
    xn_request_resume(background->ctx->request);
}

void xn_context_run(xn_context *ctx, xn_thread_pool *pool, size_t bytes,
                    xn_status (*run)(xn_background_task *task, xn_error *error)) {
    xn_background_task *background = xn_request_alloc(ctx->request, bytes);
    if (!background) {
        xn_context_fail_memory(ctx);
        return;
    }
    background->task.run = run_background;
    background->ctx = ctx;
    background->run = run;
    ctx->of.background = background;
    xn_request_suspend(ctx->request);
    xn_thread_pool_submit(pool, &background->task);
}

/* ---- bodies ---- */

static const char length_header[] = "Inference-Header-Content-Length";

static bool is_of_raw(void *context, const char *key, const char *value) {
    (void)value;
    *(bool *)context |= !strcmp(key, "shape") || !strcmp(key, "weights");
    return !*(bool *)context;
}

/* The type that curl gives --data-binary, and none, as other clients do: the raw form, where the
 * query has what belongs to that form. */
static bool is_raw_by_query(const xn_context *ctx, const char *type) {
    bool raw = false;
    if (type && !xn_form_is_type(type, "application/x-www-form-urlencoded"))
        return false;
    xn_request_query(ctx->request, is_of_raw, &raw);
    return raw;
}

static bool accept_types(xn_context *ctx, bool answers) {
    const char *type = xn_request_header(ctx->request, "Content-Type");
    const bool has_length = xn_request_header(ctx->request, length_header) != NULL;
    if (answers && is_raw_by_query(ctx, type)) {
        ctx->form = XN_FORM_RAW;
    } else if (!type || !xn_form_parse(type, has_length, &ctx->form)) {
        const char *nearest = type ? xn_form_nearest(type) : NULL;
        xn_context_refuse(ctx, 415, XN_REJECT_MALFORMED, "unsupported_media_type", "Content-Type",
                          "Content-Type is %.100s; it must be application/json, "
                          "application/octet-stream or application/vnd.safetensors%s%s%s",
                          type ? type : "missing", nearest ? "; did you mean " : "",
                          nearest ? nearest : "", nearest ? "?" : "");
        return false;
    }
    const char *accept = xn_request_header(ctx->request, "Accept");
    if (answers && !xn_form_negotiate(accept, ctx->form, &ctx->answer_form)) {
        xn_context_refuse(ctx, 406, XN_REJECT_MALFORMED, "not_acceptable", "Accept",
                          "Accept is %.100s; the answer can be application/json, "
                          "application/octet-stream or application/vnd.safetensors",
                          accept);
        return false;
    }
    return true;
}

static bool accept_coding(xn_context *ctx) {
    const char *coding = xn_request_header(ctx->request, "Content-Encoding");
    if (!coding || xn_coding_parse(coding, &ctx->coding))
        return true;
    xn_context_refuse(ctx, 415, XN_REJECT_MALFORMED, "unsupported_media_type", "Content-Encoding",
                      "Content-Encoding is %.100s; it may be gzip or deflate", coding);
    return false;
}

/* A number of bytes, at most `most`; else more than that. */
static size_t parse_length(const char *text, size_t most) {
    size_t value = *text ? 0 : most + 1;
    for (const char *c = text; *c; c++) {
        if (*c < '0' || *c > '9' || value > most)
            return most + 1;
        value = value * 10 + (size_t)(*c - '0');
    }
    return value;
}

static bool accept_header_length(xn_context *ctx) {
    const char *text = xn_request_header(ctx->request, length_header);
    const char *type = xn_request_header(ctx->request, "Content-Type");
    /* Of a coded or chunked body the length is not known yet, but its limit is. */
    bool open = ctx->coding != XN_CODING_IDENTITY ||
                xn_request_length(ctx->request) == XN_HTTP_UNKNOWN_LENGTH;
    size_t total = open ? ctx->most : xn_request_length(ctx->request);
    if (!text)
        return true; /* the form is another, or its parser says what is missing */
    if (ctx->form != XN_FORM_OIP_BINARY) { /* the one form with such a header */
        xn_context_refuse(ctx, 400, XN_REJECT_MALFORMED, "bad_request", length_header,
                          "%s is \"%.40s\", but Content-Type is %.100s; it belongs to %s",
                          length_header, text, type ? type : "missing",
                          xn_form_media_type(XN_FORM_OIP_BINARY));
        return false;
    }
    size_t value = parse_length(text, total);
    if (value > total) {
        xn_context_refuse(
            ctx, 400, XN_REJECT_MALFORMED, "bad_request", length_header,
            "%s is \"%.40s\"; it must be a number of bytes, at most the %s of %zu", length_header,
            text, open ? "limit of bodies, set by --max-body-bytes," : "Content-Length", total);
        return false;
    }
    ctx->has_header_length = true;
    ctx->header_length = value;
    return true;
}

/* The flag that says how much a body may be; "" where the route does. */
static const char *limit_of(const xn_context *ctx) {
    return ctx->most == (size_t)ctx->service->config->max_body_bytes ? "max-body-bytes" : "";
}

static bool accept_length(xn_context *ctx, bool needed) {
    size_t length = xn_request_length(ctx->request);
    xn_error error;
    if (needed && !xn_request_has_body(ctx->request)) {
        xn_context_refuse(ctx, 411, XN_REJECT_FRAMING, "length_required", "Content-Length",
                          "this route needs a body: send it with Content-Length, or chunked");
        return false;
    }
    if (length > ctx->most && length != XN_HTTP_UNKNOWN_LENGTH) {
        xn_fail_limit(&error, limit_of(ctx), "Content-Length",
                      "Content-Length is %zu; at most %zu bytes are taken here", length, ctx->most);
        xn_context_fail(ctx, &error);
        return false;
    }
    return true;
}

xn_status xn_context_admit(xn_context *ctx, size_t expected, xn_error *error) {
    xn_admission *admission = xn_engine_admission(ctx->service->engine);
    unsigned char identity[XN_CLIENT_IDENTITY_BYTES] = {0};
    xn_client *key = NULL;
    memcpy(identity, &ctx->key, sizeof ctx->key);
    if (ctx->key && !(key = xn_client_get(admission, XN_CLIENT_KEY, identity)))
        return xn_fail(error, XN_ERR_NO_MEMORY, NULL, "no memory for the request; try again later");
    return xn_ticket_enter(admission, xn_request_address_client(ctx->request), key, expected,
                           &ctx->ticket, error);
}

/* Binary values begin right after the header: let them begin on a 64-byte boundary. */
static size_t offset_of(const xn_context *ctx) {
    return (XN_MEM_ALIGNMENT - ctx->header_length % XN_MEM_ALIGNMENT) % XN_MEM_ALIGNMENT;
}

/* A body of unknown length gets pages of its own, which count as they are written. */
bool xn_context_receive(xn_context *ctx) {
    xn_engine *engine = ctx->service->engine;
    size_t length = xn_request_length(ctx->request);
    size_t offset = ctx->coding == XN_CODING_IDENTITY ? offset_of(ctx) : 0;
    bool unknown = length == XN_HTTP_UNKNOWN_LENGTH;
    xn_error error;
    if (xn_context_admit(ctx, unknown ? 0 : length, &error) ||
        (unknown ? xn_body_map(ctx->most, offset, &ctx->body, &error)
                 : xn_body_open(length, offset, xn_engine_buffers(engine), &ctx->ticket, &ctx->body,
                                &error))) {
        xn_context_fail(ctx, &error);
        return false;
    }
    xn_request_receive(ctx->request, ctx->body.memory + offset, ctx->body.granted);
    return true;
}

static bool accept_framing(xn_context *ctx, int64_t most, bool needed) {
    const int64_t limit = ctx->service->config->max_body_bytes;
    ctx->most = (size_t)(most < limit ? most : limit);
    return accept_coding(ctx) && accept_length(ctx, needed) &&
           (!needed || accept_header_length(ctx));
}

bool xn_context_accept_body(xn_context *ctx, bool answers) {
    return accept_types(ctx, answers) && accept_framing(ctx, INT64_MAX, true);
}

/* What clients send with JSON, with bytes, and curl and some others without thinking of it. */
static bool accept_inference_type(xn_context *ctx) {
    static const char *const types[] = {"application/json", "application/octet-stream",
                                        "image/jpeg", "image/png",
                                        "application/x-www-form-urlencoded"};
    const char *type = xn_request_header(ctx->request, "Content-Type");
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (!type || xn_form_is_type(type, types[i]))
            return true;
    xn_context_refuse(ctx, 415, XN_REJECT_MALFORMED, "unsupported_media_type", "Content-Type",
                      "Content-Type is %.100s; it may be missing, %s, %s, %s or %s for this route",
                      type, types[0], types[1], types[2], types[3]);
    return false;
}

bool xn_context_accept_inference(xn_context *ctx) {
    const xn_request *request = ctx->request;
    bool has_length = xn_request_header(request, length_header) != NULL;
    const char *type = xn_request_header(request, "Content-Type");
    ctx->form = has_length ? XN_FORM_OIP_BINARY : XN_FORM_JSON;
    if (type && xn_picture_is_type(type))
        ctx->form = XN_FORM_RAW;
    ctx->answer_coding = xn_coding_choose(xn_request_header(request, "Accept-Encoding"));
    return accept_inference_type(ctx) && accept_framing(ctx, INT64_MAX, true) &&
           xn_context_receive(ctx);
}

bool xn_context_accept_document(xn_context *ctx, int64_t most) {
    ctx->form = XN_FORM_JSON;
    return accept_framing(ctx, most, false) && xn_context_receive(ctx);
}

void xn_context_grow_body(xn_context *ctx, size_t bytes) {
    xn_body *body = &ctx->body;
    xn_error error;
    xn_status status =
        bytes > body->length
            ? xn_fail_limit(&error, limit_of(ctx), "body",
                            "the body is longer than %zu bytes; no more are taken here",
                            body->length)
            : xn_body_grow(body, bytes, &ctx->ticket, &error);
    if (!status) {
        xn_request_receive(ctx->request, body->memory + body->offset, body->granted);
        return;
    }
    xn_context_fail(ctx, &error);
}

static xn_status check_header_length(const xn_context *ctx, xn_error *error) {
    if (ctx->header_length <= ctx->body.length)
        return XN_OK;
    return xn_fail(error, XN_ERR_MALFORMED, length_header,
                   "Inference-Header-Content-Length is %zu; it must be at most the %zu bytes that "
                   "the body has",
                   ctx->header_length, ctx->body.length);
}

bool xn_context_end_body(xn_context *ctx) {
    xn_error error;
    if (!ctx->body.memory)
        return true;
    ctx->body.length = xn_request_length(ctx->request);
    if (ctx->coding != XN_CODING_IDENTITY || !check_header_length(ctx, &error))
        return true;
    xn_context_fail(ctx, &error);
    return false;
}

/* Where values begin is known before the body comes, or only from it: then they may lie where no
 * element of 4 bytes may. */
bool xn_context_must_move(const xn_proto_body *body) {
    const size_t prefix = xn_proto_prefix_bytes(body);
    return prefix < body->length && ((uintptr_t)body->bytes + prefix) % 4;
}

xn_proto_body xn_context_received(const xn_context *ctx) {
    return (xn_proto_body){.form = ctx->form,
                           .bytes = ctx->body.memory + ctx->body.offset,
                           .length = ctx->body.length,
                           .has_header_length = ctx->has_header_length,
                           .header_length = ctx->header_length};
}

/* ---- coded bodies ---- */

static xn_status grow_decoded(void *context, size_t bytes, xn_error *error) {
    xn_context *ctx = context;
    return xn_body_grow(&ctx->body, bytes, &ctx->ticket, error);
}

/* What a body becomes is not known before: the room is for the most that it may, of pages that take
 * no memory before they are written, and counts as it is. */
static xn_status decode_body(xn_context *ctx, xn_error *error) {
    const xn_service *service = ctx->service;
    const size_t limit = ctx->most;
    xn_body coded = ctx->body, decoded;
    if (ctx->coding == XN_CODING_IDENTITY)
        return XN_OK;
    size_t most = xn_coding_most(coded.length), room = most < limit ? most : limit;
    xn_status status = xn_body_map(room, offset_of(ctx), &decoded, error);
    if (status != XN_OK)
        return status;
    ctx->body = decoded;
    status = xn_coding_decode(ctx->coding, coded.memory + coded.offset, coded.length,
                              decoded.memory + decoded.offset, room, limit_of(ctx), grow_decoded,
                              ctx, &ctx->body.length, error);
    xn_body_close(&coded, xn_engine_buffers(service->engine), NULL);
    if (status != XN_OK) /* all of it at once: what comes next may need as much */
        xn_body_close(&ctx->body, xn_engine_buffers(service->engine), NULL);
    ctx->coding = XN_CODING_IDENTITY;
    return status != XN_OK ? status : check_header_length(ctx, error);
}

xn_status xn_context_body(xn_context *ctx, xn_proto_body *out, xn_error *error) {
    xn_status status = decode_body(ctx, error);
    if (status != XN_OK)
        return status;
    *out = xn_context_received(ctx);
    if (xn_context_must_move(out)) {
        size_t prefix = xn_proto_prefix_bytes(out);
        size_t shift = (XN_MEM_ALIGNMENT - prefix % XN_MEM_ALIGNMENT) % XN_MEM_ALIGNMENT;
        out->bytes = memmove(ctx->body.memory + shift, out->bytes, out->length);
    }
    return XN_OK;
}

void xn_context_release(xn_context *ctx) {
    const xn_service *service = ctx->service;
    xn_body_close(&ctx->body, xn_engine_buffers(service->engine), service->background_pool);
    xn_ticket_leave(&ctx->ticket);
}
