/* spans.c: see spans.h. */
#include "spans.h"

#include "address.h"
#include "clock.h"
#include "routes.h"

#include <stdio.h>

_Static_assert(sizeof((xn_span){0}.client) >= XN_ADDRESS_MAX, "an address fits");

xn_status xn_service_open_spans(xn_service *service, xn_error *error) {
    const xn_config *config = service->config;
    if (!config->otlp_endpoint[0])
        return XN_OK;
    return xn_exporter_create(&config->otlp_target, xn_engine_metrics(service->engine),
                              &service->spans, error);
}

void xn_request_span(const xn_service *service, const xn_request *request, int status,
                     xn_span *out) {
    const char *host = xn_request_header(request, "Host");
    xn_route_match match;
    *out = (xn_span){.trace = *xn_request_trace(request),
                     .started_ns = xn_request_started_ns(request),
                     .ended_ns = xn_now_ns(),
                     .wall_ns = xn_wall_ns(),
                     .status = status,
                     .https = service->config->tls_cert[0] != '\0'};
    snprintf(out->method, sizeof out->method, "%s", xn_request_method(request));
    snprintf(out->host, sizeof out->host, "%s", host ? host : "");
    snprintf(out->id, sizeof out->id, "%s", xn_request_id(request));
    xn_address_text(xn_request_client(request), out->client);
    xn_span_set_path(out, xn_request_path(request));
    if (xn_route_find(xn_request_path(request), &match))
        xn_route_text(&match, out->route, sizeof out->route);
}
