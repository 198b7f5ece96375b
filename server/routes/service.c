/* service.c: which route a request means, who may use it, and the callbacks of the HTTP layer. */
#include "service.h"

#include "access_log.h"
#include "address.h"
#include "bounded_log.h"
#include "clock.h"
#include "log.h"
#include "resources.h"
#include "xn_mem.h"

#include <stdio.h>
#include <string.h>

/* ---- routes ---- */

typedef struct {
    const char *path; /* one that ends in '/' is followed by a name */
    xn_route_label label;
    bool open; /* needs no key */
    const char *allow;
    const xn_resource *get, *post, *put, *delete;
} route;

static const route routes[] = {
    {"/conv", XN_ROUTE_CONV, false, "POST, OPTIONS", .post = &xn_conv_resource},
    {"/weights", XN_ROUTE_WEIGHTS, false, "GET, HEAD, OPTIONS", .get = &xn_weights_list_resource},
    {"/weights/", XN_ROUTE_WEIGHTS, false, "GET, HEAD, PUT, DELETE, OPTIONS",
     .get = &xn_weights_show_resource, .put = &xn_weights_put_resource,
     .delete = &xn_weights_delete_resource},
    {"/v2", XN_ROUTE_META, false, "GET, HEAD, OPTIONS", .get = &xn_server_resource},
    {"/v2/health/live", XN_ROUTE_HEALTH, true, "GET, HEAD, OPTIONS", .get = &xn_live_resource},
    {"/v2/health/ready", XN_ROUTE_HEALTH, true, "GET, HEAD, OPTIONS", .get = &xn_ready_resource},
    {"/metrics", XN_ROUTE_METRICS, false, "GET, HEAD, OPTIONS", .get = &xn_metrics_resource},
    {"/openapi.yaml", XN_ROUTE_OPENAPI, false, "GET, HEAD, OPTIONS", .get = &xn_openapi_resource},
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

static void on_more(void *context, xn_request *request, size_t bytes) {
    (void)context;
    xn_exchange_grow_body(xn_request_user(request), bytes);
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
