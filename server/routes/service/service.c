/* service.c: the callbacks of the HTTP layer: who may use which route, and with what in its path.
 */
#include "service.h"

#include "access_log.h"
#include "address.h"
#include "bounded_log.h"
#include "clock.h"
#include "log.h"
#include "routes.h"
#include "spans.h"
#include "xn_mem.h"
#include "xn_oip.h"

#include <stdio.h>
#include <string.h>

static void refuse_path(xn_context *ctx) {
    xn_context_refuse(ctx, 404, XN_REJECT_OTHER, "not_found", "path",
                      "there is nothing at %.100s; see /openapi.yaml for what there is",
                      xn_request_path(ctx->request));
}

static void refuse_method(xn_context *ctx, const xn_route *route) {
    char allow[64];
    xn_route_allow(route, allow, sizeof allow);
    xn_request_add_header(ctx->request, "Allow", allow);
    if (!strcmp(xn_request_method(ctx->request), "OPTIONS")) {
        xn_request_respond_empty(ctx->request, 204);
        return;
    }
    xn_context_refuse(ctx, 405, XN_REJECT_OTHER, "method_not_allowed", "method",
                      "the method is %.32s; %.100s takes %s", xn_request_method(ctx->request),
                      xn_request_path(ctx->request), allow);
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

/* A client without a key learns nothing else: neither which routes there are, nor their methods. */
static bool authorized(xn_context *ctx, const xn_route *route) {
    const char *header = xn_request_header(ctx->request, "Authorization");
    if ((route && route->open) || xn_auth_match(ctx->service->auth, header, &ctx->key))
        return true;
    log_refused_key(ctx->request, header);
    xn_request_add_header(ctx->request, "WWW-Authenticate", "Bearer realm=\"xnord\"");
    xn_context_refuse(ctx, 401, XN_REJECT_UNAUTHORIZED, "unauthorized", "Authorization",
                      "a key is needed: send Authorization: Bearer KEY with a key of this "
                      "server's");
    return false;
}

static bool is_region_name(const char *text) {
    for (; *text; text++)
        if (*text < ' ' || *text > '~')
            return false;
    return true;
}

/* The first parameter of a path: a name of weights, of a model, or of a region of shared memory. */
static bool take_name(xn_context *ctx, const char *text, size_t length) {
    const char *of = ctx->label == XN_ROUTE_WEIGHTS ? "weights"
                     : ctx->label == XN_ROUTE_SHM   ? "a region"
                                                    : "a model";
    const int shown = length < 140 ? (int)length : 140;
    bool fits = length < sizeof ctx->name;
    snprintf(ctx->name, sizeof ctx->name, "%.*s", fits ? (int)length : 0, text);
    const bool region = ctx->label == XN_ROUTE_SHM;
    if (fits && (region ? is_region_name : xn_proto_name_valid)(ctx->name))
        return true;
    xn_context_refuse(
        ctx, 400, XN_REJECT_MALFORMED, "bad_request", "name",
        "the name of %s is \"%.*s\"; it must be 1 to %d %s", of, shown, text, XN_PROTO_MAX_NAME,
        region ? "printable characters of ASCII" : "of A-Z a-z 0-9 . _ -, and not . or ..");
    return false;
}

static bool take_version(xn_context *ctx, const char *text, size_t length) {
    bool digits = length < sizeof ctx->version && strspn(text, "0123456789") >= length;
    snprintf(ctx->version, sizeof ctx->version, "%.*s", digits ? (int)length : 0, text);
    if (digits)
        return true;
    xn_context_refuse(ctx, 400, XN_REJECT_MALFORMED, "bad_request", "version",
                      "the version of a model is \"%.*s\"; it must be a number",
                      length < 40 ? (int)length : 40, text);
    return false;
}

static bool take_parameters(xn_context *ctx, const xn_route_match *match) {
    const char *name = match->parameters[0].text, *version = match->parameters[1].text;
    return (!name || take_name(ctx, name, match->parameters[0].length)) &&
           (!version || take_version(ctx, version, match->parameters[1].length));
}

static void on_more(void *context, xn_request *request, size_t bytes) {
    (void)context;
    xn_context_grow_body(xn_request_user(request), bytes);
}

static void on_headers(void *context, xn_request *request) {
    const char *path = xn_request_path(request);
    xn_route_match match;
    xn_context *ctx = xn_request_alloc(request, sizeof *ctx);
    if (!ctx) {
        xn_request_abort(request);
        return;
    }
    ctx->service = context;
    ctx->request = request;
    ctx->label = XN_ROUTE_OTHER;
    xn_request_set_user(request, ctx);
    const xn_route *route = xn_route_find(path, &match) ? match.route : NULL;
    if (route)
        ctx->label = route->label;
    ctx->oip = xn_route_is_oip(path);
    if (!authorized(ctx, route))
        return;
    if (!route) {
        refuse_path(ctx);
        return;
    }
    const xn_resource *resource = xn_route_resource(route, xn_request_method(request));
    if (!resource) {
        refuse_method(ctx, route);
        return;
    }
    if (!take_parameters(ctx, &match))
        return;
    ctx->resource = resource;
    if (resource->headers)
        resource->headers(ctx);
}

static void on_complete(void *context, xn_request *request) {
    xn_context *ctx = xn_request_user(request);
    (void)context;
    xn_ticket_arrived(&ctx->ticket);
    if (xn_context_end_body(ctx))
        ctx->resource->complete(ctx);
}

static void on_answer(void *context, xn_request *request) {
    xn_context *ctx = xn_request_user(request);
    (void)context;
    ctx->resource->answer(ctx);
}

static void on_gone(void *context, xn_request *request) {
    xn_context *ctx = xn_request_user(request);
    (void)context;
    if (ctx->resource->gone)
        ctx->resource->gone(ctx);
}

/* Last use of it. */
static void end(xn_context *ctx) {
    const bool in_use = ctx->in_use;
    if (ctx->resource && ctx->resource->finished)
        ctx->resource->finished(ctx);
    if (!in_use)
        xn_context_release(ctx);
}

static void end_with_span(const xn_service *service, const xn_request *request, int status) {
    xn_context *ctx = xn_request_user(request);
    xn_span span;
    xn_request_span(service, request, status, &span);
    if (ctx) {
        ctx->span = &span;
        end(ctx);
    }
    xn_exporter_add(service->spans, &span);
}

static void on_finished(void *context, xn_request *request, int status, bool delivered) {
    xn_service *service = context;
    xn_context *ctx = xn_request_user(request);
    if (status)
        xn_metrics_request(xn_engine_metrics(service->engine), ctx ? ctx->label : XN_ROUTE_OTHER,
                           status);
    if (service->config->access_log != XN_ACCESS_OFF)
        xn_access_log(service->config->access_log, request, status, delivered);
    xn_log(XN_LOG_DEBUG, xn_request_id(request), "answered %d%s", status,
           delivered ? "" : ", not delivered");
    if (service->spans && xn_request_trace(request)->span_id[0])
        end_with_span(service, request, status);
    else if (ctx)
        end(ctx);
}

static size_t write_error(void *context, const xn_request *request, const char *code,
                          const char *field, const char *message, char *text, size_t size) {
    (void)context;
    return xn_route_is_oip(xn_request_path(request))
               ? xn_oip_write_error(message, text, size)
               : xn_proto_write_error(code, message, field, text, size);
}

static xn_status warm_up(void *engine, const xn_model *model, int64_t images, xn_error *error) {
    const xn_warm_up_wish wish = {model->name, model->version, model->asset, &model->problem,
                                  images};
    return xn_engine_warm_up(engine, &wish, error);
}

xn_status xn_service_create_models(xn_service *service, xn_error *error) {
    xn_engine *engine = service->engine;
    xn_status status =
        xn_models_create(service->config, xn_engine_store(engine), &service->models, error);
    if (!status && service->config->warmup == XN_WARMUP_ON)
        xn_models_set_warm_up(service->models, warm_up, engine);
    return status;
}

void xn_service_handler(xn_service *service, xn_http_handler *out) {
    *out = (xn_http_handler){.context = service,
                             .headers = on_headers,
                             .more = on_more,
                             .complete = on_complete,
                             .gone = on_gone,
                             .answer = on_answer,
                             .finished = on_finished,
                             .write_error = write_error};
}
