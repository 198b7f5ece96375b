/* service.c: which route a request means, who may use it, and the small documents: health, server
 * metadata, metrics, the OpenAPI file. Errors leave the daemon in one form, made here. */
#include "service.h"

#include "access_log.h"
#include "address.h"
#include "bounded_log.h"
#include "clock.h"
#include "document.h"
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

static void add_retry_after(xn_exchange *exchange) {
    char seconds[16];
    snprintf(seconds, sizeof seconds, "%d", xn_engine_retry_after(exchange->service->engine));
    xn_request_add_header(exchange->request, "Retry-After", seconds);
}

/* No rejection is counted when reason is XN_REJECT_COUNT. */
static void respond_error(xn_exchange *exchange, int http_status, xn_reject_reason reason,
                          const char *code, const char *field, const char *message) {
    char text[1024];
    size_t length = xn_proto_write_error(code, message, field, text, sizeof text);
    char *copy = xn_mem_alloc(length);
    xn_metrics_rejected(xn_engine_metrics(exchange->service->engine), reason);
    xn_log(http_status >= 500 ? XN_LOG_WARN : XN_LOG_DEBUG, xn_request_id(exchange->request),
           "%s %s: %d %s: %s", xn_request_method(exchange->request),
           xn_request_path(exchange->request), http_status, code, message);
    if (!copy) {
        xn_request_abort(exchange->request);
        return;
    }
    memcpy(copy, text, length);
    if (http_status == 429 || http_status == 503)
        add_retry_after(exchange);
    xn_request_respond(exchange->request, http_status, "application/json", copy, length,
                       xn_mem_free, copy);
}

void xn_exchange_refuse(xn_exchange *exchange, int http_status, xn_reject_reason reason,
                        const char *code, const char *field, const char *message) {
    respond_error(exchange, http_status, reason, code, field, message);
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
    respond_error(exchange, class->http_status, class->reason, class->code, error->field, message);
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

static bool accept_types(xn_exchange *exchange, bool answers) {
    const char *type = xn_request_header(exchange->request, "Content-Type");
    const char *coding = xn_request_header(exchange->request, "Content-Encoding");
    char message[400];
    if (!type || !xn_form_parse(type, &exchange->form)) {
        const char *nearest = type ? xn_form_nearest(type) : NULL;
        snprintf(message, sizeof message,
                 "Content-Type is %.100s; it must be application/json, application/octet-stream "
                 "(with Inference-Header-Content-Length) or application/vnd.safetensors%s%s%s",
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
    const char *text = xn_request_header(exchange->request, "Inference-Header-Content-Length");
    size_t value = 0, total = xn_request_length(exchange->request);
    char message[240];
    if (!text)
        return true; /* the parser reports it where it is needed */
    if (exchange->form != XN_FORM_OIP_BINARY) {
        snprintf(message, sizeof message,
                 "Inference-Header-Content-Length is \"%.40s\", but Content-Type is %s; it belongs "
                 "to %s",
                 text, xn_form_media_type(exchange->form), xn_form_media_type(XN_FORM_OIP_BINARY));
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

static void on_more(void *context, xn_request *request, size_t bytes) {
    xn_exchange *exchange = xn_request_user(request);
    xn_body *body = &exchange->body;
    xn_error error;
    (void)context;
    if (!xn_body_grow(body, bytes, &exchange->ticket, &error)) {
        xn_request_receive(request, body->memory + body->offset, body->granted);
        return;
    }
    xn_exchange_fail(exchange, &error);
    xn_exchange_release(exchange); /* at once: the next one that asks may have it */
}

void xn_exchange_body(xn_exchange *exchange, xn_proto_body *out) {
    size_t length = exchange->body.length;
    unsigned char *bytes = exchange->body.memory + exchange->body.offset;
    if (exchange->form == XN_FORM_SAFETENSORS && length >= 8) {
        uint64_t header = 0;
        for (int i = 7; i >= 0; i--)
            header = header << 8 | bytes[i];
        size_t shift = (XN_MEM_ALIGNMENT - (8 + header) % XN_MEM_ALIGNMENT) % XN_MEM_ALIGNMENT;
        if (header < length && header % 4) { /* else every element is aligned already */
            memmove(exchange->body.memory + shift, bytes, length);
            bytes = exchange->body.memory + shift;
        }
    }
    *out = (xn_proto_body){.form = exchange->form,
                           .bytes = bytes,
                           .length = length,
                           .has_header_length = exchange->has_header_length,
                           .header_length = exchange->header_length};
}

void xn_exchange_release(xn_exchange *exchange) {
    const xn_service *service = exchange->service;
    xn_body_close(&exchange->body, xn_engine_buffers(service->engine), service->loader);
    xn_ticket_leave(&exchange->ticket);
}

/* ---- small documents ---- */

static void show_live(xn_exchange *exchange) {
    static char body[] = "{\"live\": true}\n";
    xn_request_respond(exchange->request, 200, "application/json", body, sizeof body - 1, NULL,
                       NULL);
}

static void append_devices(xn_document *text, const xn_engine *engine) {
    xn_document_add(text, "[");
    for (int i = 0; i < xn_engine_device_count(engine); i++) {
        xn_device_info info;
        xn_engine_device_info(engine, i, &info);
        xn_document_add(text, "%s{\"id\": ", i ? ", " : "");
        xn_document_string(text, info.id);
        xn_document_add(text, ", \"description\": ");
        xn_document_string(text, info.description);
        xn_document_add(text, ", \"memory_bytes\": %llu}", (unsigned long long)info.memory_bytes);
    }
    xn_document_add(text, "]");
}

static void show_ready(xn_exchange *exchange) {
    xn_engine *engine = exchange->service->engine;
    xn_engine_health health;
    xn_document text = {0};
    size_t length = 0;
    xn_engine_health_get(engine, &health);
    xn_document_add(&text, "{\"ready\": %s, \"backend\": ", health.ready ? "true" : "false");
    xn_document_string(&text, health.backend);
    xn_document_add(&text, ", \"draining\": %s, \"reason\": ", health.draining ? "true" : "false");
    xn_document_string(&text, health.reason);
    xn_document_add(&text, ", \"devices\": ");
    append_devices(&text, engine);
    xn_document_add(&text, "}\n");
    char *body = xn_document_take(&text, &length);
    if (body && !health.ready) /* without a body the error adds it */
        add_retry_after(exchange);
    xn_exchange_json(exchange, health.ready ? 200 : 503, body, length);
}

static void show_server(xn_exchange *exchange) {
    const xn_config *c = exchange->service->config;
    xn_engine *engine = exchange->service->engine;
    xn_engine_health health;
    xn_document text = {0};
    size_t length = 0;
    xn_engine_health_get(engine, &health);
    xn_document_add(&text,
                    "{\"name\": \"xnord\", \"version\": \"%s\", \"extensions\": "
                    "[\"binary_tensor_data\"], \"backend\": ",
                    XN_VERSION);
    xn_document_string(&text, health.backend);
    xn_document_add(&text, ", \"devices\": ");
    append_devices(&text, engine);
    xn_document_add(&text,
                    ", \"limits\": {\"max_body_bytes\": %lld, \"max_elements\": %lld, "
                    "\"max_output_bytes\": %lld, \"max_operations\": %lld, \"queue_depth\": %lld, "
                    "\"queue_bytes\": %lld, \"timeout_ms\": %lld, \"max_timeout_ms\": %lld, "
                    "\"max_batch_images\": %lld}}\n",
                    (long long)c->max_body_bytes, (long long)c->max_elements,
                    (long long)c->max_output_bytes, (long long)c->max_operations,
                    (long long)c->queue_depth, (long long)c->queue_bytes, (long long)c->timeout_ms,
                    (long long)c->max_timeout_ms, (long long)c->max_batch_images);
    char *body = xn_document_take(&text, &length);
    xn_exchange_json(exchange, 200, body, length);
}

static void show_metrics(xn_exchange *exchange) {
    size_t length = 0;
    char *text = xn_metrics_render(xn_engine_metrics(exchange->service->engine), &length);
    if (!text) {
        xn_exchange_json(exchange, 200, NULL, 0);
        return;
    }
    xn_request_respond(exchange->request, 200, "text/plain; version=0.0.4; charset=utf-8", text,
                       length, xn_mem_free, text);
}

static void show_openapi(xn_exchange *exchange) {
    xn_request_respond(exchange->request, 200, "application/yaml",
                       (void *)(uintptr_t)xn_openapi_yaml,
                       (size_t)(xn_openapi_yaml_end - xn_openapi_yaml), NULL, NULL);
}

/* ---- routes ---- */

static const xn_resource live = {.complete = show_live};
static const xn_resource ready = {.complete = show_ready};
static const xn_resource server = {.complete = show_server};
static const xn_resource metrics = {.complete = show_metrics};
static const xn_resource openapi = {.complete = show_openapi};
static const xn_resource weights_list = {.complete = xn_weights_list};
static const xn_resource weights_show = {.complete = xn_weights_show};

typedef struct {
    const char *path; /* one that ends in '/' is followed by a name */
    xn_route_label label;
    bool open; /* needs no key */
    const char *allow;
    const xn_resource *get, *post, *put, *delete;
} route;

static const route routes[] = {
    {"/conv", XN_ROUTE_CONV, false, "POST, OPTIONS", .post = &xn_conv_resource},
    {"/weights", XN_ROUTE_WEIGHTS, false, "GET, HEAD, OPTIONS", .get = &weights_list},
    {"/weights/", XN_ROUTE_WEIGHTS, false, "GET, HEAD, PUT, DELETE, OPTIONS", .get = &weights_show,
     .put = &xn_weights_put_resource, .delete = &xn_weights_delete_resource},
    {"/v2", XN_ROUTE_META, false, "GET, HEAD, OPTIONS", .get = &server},
    {"/v2/health/live", XN_ROUTE_HEALTH, true, "GET, HEAD, OPTIONS", .get = &live},
    {"/v2/health/ready", XN_ROUTE_HEALTH, true, "GET, HEAD, OPTIONS", .get = &ready},
    {"/metrics", XN_ROUTE_METRICS, false, "GET, HEAD, OPTIONS", .get = &metrics},
    {"/openapi.yaml", XN_ROUTE_OPENAPI, false, "GET, HEAD, OPTIONS", .get = &openapi},
    /* the server as a whole: of OPTIONS only (framing.c) */
    {"*", XN_ROUTE_META, false, "GET, HEAD, POST, PUT, DELETE, OPTIONS", .get = NULL},
};

static const route *find_route(const char *path, const char **name) {
    for (size_t i = 0; i < sizeof routes / sizeof *routes; i++) {
        size_t length = strlen(routes[i].path);
        bool named = length > 1 && routes[i].path[length - 1] == '/';
        if (named ? !strncmp(path, routes[i].path, length) : !strcmp(path, routes[i].path)) {
            *name = named ? path + length : NULL;
            return &routes[i];
        }
    }
    return NULL;
}

static const xn_resource *resource_of(const route *r, const char *method) {
    if (!strcmp(method, "GET") || !strcmp(method, "HEAD"))
        return r->get;
    if (!strcmp(method, "POST"))
        return r->post;
    if (!strcmp(method, "PUT"))
        return r->put;
    return !strcmp(method, "DELETE") ? r->delete : NULL;
}

static void refuse_path(xn_exchange *exchange) {
    char message[256];
    snprintf(message, sizeof message,
             "there is nothing at %.100s; see /openapi.yaml for what there is",
             xn_request_path(exchange->request));
    xn_exchange_refuse(exchange, 404, XN_REJECT_OTHER, "not_found", "path", message);
}

static void refuse_method(xn_exchange *exchange, const route *r) {
    char message[256];
    xn_request_add_header(exchange->request, "Allow", r->allow);
    if (!strcmp(xn_request_method(exchange->request), "OPTIONS")) {
        static char nothing[1];
        xn_request_respond(exchange->request, 204, NULL, nothing, 0, NULL, NULL);
        return;
    }
    snprintf(message, sizeof message, "the method is %.32s; %.100s takes %s",
             xn_request_method(exchange->request), xn_request_path(exchange->request), r->allow);
    xn_exchange_refuse(exchange, 405, XN_REJECT_OTHER, "method_not_allowed", "method", message);
}

#define REFUSED_KEYS_A_SECOND 10
static xn_bounded_log refused_keys =
    XN_BOUNDED_LOG("requests with a wrong key or none", REFUSED_KEYS_A_SECOND);

static void log_refused_key(const xn_request *request, const char *header) {
    char client[XN_ADDRESS_MAX];
    if (!xn_log_enabled(XN_LOG_INFO) || !xn_bounded_log_may(&refused_keys, xn_now_ns()))
        return;
    xn_address_text(xn_request_client(request), client);
    xn_log(XN_LOG_INFO, xn_request_id(request), "%s from %s: %s %.200s", /* never the key */
           header ? "a wrong key" : "no key", client, xn_request_method(request),
           xn_request_path(request));
}

void xn_service_tick(int64_t now_ns) {
    xn_bounded_log_tick(&refused_keys, now_ns);
}

/* Whoever has no key is told nothing but that: not which routes there are, nor their methods. */
static bool authorized(xn_exchange *exchange, const route *r) {
    const char *header = xn_request_header(exchange->request, "Authorization");
    if ((r && r->open) || xn_auth_match(exchange->service->auth, header, &exchange->key))
        return true;
    log_refused_key(exchange->request, header);
    xn_request_add_header(exchange->request, "WWW-Authenticate", "Bearer realm=\"xnord\"");
    xn_exchange_refuse(exchange, 401, XN_REJECT_UNAUTHORIZED, "unauthorized", "Authorization",
                       "a key is needed: send Authorization: Bearer KEY with a key of this "
                       "server's");
    return false;
}

static bool take_name(xn_exchange *exchange, const char *name) {
    char message[400];
    if (!name)
        return true;
    if (!xn_proto_name_valid(name)) {
        snprintf(message, sizeof message,
                 "the name of weights is \"%.140s\"; it must be 1 to %d of A-Z a-z 0-9 . _ -, and "
                 "not . or ..",
                 name, XN_PROTO_MAX_NAME);
        xn_exchange_refuse(exchange, 400, XN_REJECT_MALFORMED, "bad_request", "name", message);
        return false;
    }
    snprintf(exchange->name, sizeof exchange->name, "%s", name);
    return true;
}

static void on_headers(void *context, xn_request *request) {
    const char *name = NULL;
    xn_exchange *exchange = xn_mem_zalloc(1, sizeof *exchange);
    if (!exchange) {
        xn_request_abort(request);
        return;
    }
    exchange->service = context;
    exchange->request = request;
    exchange->label = XN_ROUTE_OTHER;
    xn_request_set_user(request, exchange);
    const route *r = find_route(xn_request_path(request), &name);
    if (r)
        exchange->label = r->label;
    if (!authorized(exchange, r))
        return;
    if (!r) {
        refuse_path(exchange);
        return;
    }
    const xn_resource *resource = resource_of(r, xn_request_method(request));
    if (!resource) {
        refuse_method(exchange, r);
        return;
    }
    if (!take_name(exchange, name))
        return;
    exchange->resource = resource;
    if (resource->headers)
        resource->headers(exchange);
}

static void on_complete(void *context, xn_request *request) {
    xn_exchange *exchange = xn_request_user(request);
    (void)context;
    xn_ticket_arrived(&exchange->ticket);
    exchange->resource->complete(exchange);
}

static void on_answer(void *context, xn_request *request) {
    xn_exchange *exchange = xn_request_user(request);
    (void)context;
    exchange->resource->answer(exchange);
}

static void on_gone(void *context, xn_request *request) {
    xn_exchange *exchange = xn_request_user(request);
    (void)context;
    if (exchange->resource->gone)
        exchange->resource->gone(exchange);
}

static void on_finished(void *context, xn_request *request, int status, bool delivered) {
    xn_service *service = context;
    xn_exchange *exchange = xn_request_user(request);
    if (status)
        xn_metrics_request(xn_engine_metrics(service->engine),
                           exchange ? exchange->label : XN_ROUTE_OTHER, status);
    if (service->config->access_log != XN_ACCESS_OFF)
        xn_access_log(service->config->access_log, request, status, delivered);
    xn_log(XN_LOG_DEBUG, xn_request_id(request), "answered %d%s", status,
           delivered ? "" : ", not delivered");
    if (!exchange)
        return;
    if (exchange->resource && exchange->resource->finished)
        exchange->resource->finished(exchange);
    xn_exchange_release(exchange);
    xn_mem_free(exchange);
}

void xn_service_handler(xn_service *service, xn_http_handler *out) {
    *out = (xn_http_handler){.context = service,
                             .headers = on_headers,
                             .more = on_more,
                             .complete = on_complete,
                             .gone = on_gone,
                             .answer = on_answer,
                             .finished = on_finished};
}
