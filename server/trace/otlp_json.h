/* otlp_json.h: spans as the JSON of OTLP 1.x: an ExportTraceServiceRequest of
 * opentelemetry-proto's trace service, its ids as hexadecimal digits. Attributes have the names of
 * the semantic conventions for HTTP servers; xnord.* are our own. */
#ifndef XN_OTLP_JSON_H
#define XN_OTLP_JSON_H

#include "span.h"

#include <stddef.h>

/* Who sends. */
typedef struct xn_otlp_resource {
    char version[32], host_name[256], instance_id[33];
} xn_otlp_resource;

/* Of spans[(first + i) % size], i < count; count >= 1. The caller owns the text (xn_mem_free); NULL
 * without memory or without random ids. */
char *xn_otlp_json(const xn_otlp_resource *resource, const xn_span *spans, int first, int count,
                   int size, size_t *length);

#endif
