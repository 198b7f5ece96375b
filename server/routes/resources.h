/* resources.h: what the table of routes in service.c names, one file a resource. */
#ifndef XN_RESOURCES_H
#define XN_RESOURCES_H

#include "exchange.h"

/* conv.c: POST /conv. */
extern const xn_resource xn_conv_resource;

/* weights.c: /weights. */
extern const xn_resource xn_weights_list_resource;
extern const xn_resource xn_weights_show_resource;
extern const xn_resource xn_weights_put_resource;
extern const xn_resource xn_weights_delete_resource;

/* meta.c: the small documents. */
extern const xn_resource xn_live_resource;
extern const xn_resource xn_ready_resource;
extern const xn_resource xn_server_resource;
extern const xn_resource xn_metrics_resource;
extern const xn_resource xn_openapi_resource;

/* openapi.c: the file, embedded. */
extern const char xn_openapi_yaml[];
extern const char xn_openapi_yaml_end[];

#endif
