/* spans.h: the span of a request that is over, for the collector of --otlp-endpoint. */
#ifndef XN_REQUEST_SPANS_H
#define XN_REQUEST_SPANS_H

#include "context.h"

/* What --otlp-endpoint asks for, if it does. */
xn_status xn_service_open_spans(xn_service *service, xn_error *error);

/* All of it but its stages. status: as the finished hook of xn_http_handler has it. */
void xn_request_span(const xn_service *service, const xn_request *request, int status,
                     xn_span *out);

#endif
