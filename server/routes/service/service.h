/* service.h: the handler that the HTTP layer calls: it finds the route, judges the key, and hands
 * the request to the route's resource (context.h). */
#ifndef XN_SERVICE_H
#define XN_SERVICE_H

#include "context.h"

/* The callbacks for xn_http_start; service must outlive the server. */
void xn_service_handler(xn_service *service, xn_http_handler *out);
/* The service's models, which its engine warms up (--warmup). Nothing is loaded yet. */
xn_status xn_service_create_models(xn_service *service, xn_error *error);
/* Housekeeping, once a second or so. */
void xn_service_tick(int64_t now_ns);

#endif
