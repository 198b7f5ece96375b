/* span.h: what is told of a request that is over: its own span and one for each stage. Plain data,
 * copied into a queue of fixed size. */
#ifndef XN_SPAN_H
#define XN_SPAN_H

#include "trace_context.h"

#include <stdint.h>

#define XN_SPAN_STAGES 7

typedef struct xn_span_stage {
    const char *name; /* static */
    int64_t started_ns, ended_ns;
} xn_span_stage;

/* Texts are a client's, and cut where they are too long. Times are those of xn_now_ns; wall_ns is
 * the time of day at ended_ns. */
typedef struct xn_span {
    xn_trace trace; /* with a span_id */
    int64_t started_ns, ended_ns, wall_ns;
    int status;                 /* HTTP's; 0: the client was gone before an answer */
    char method[32], route[96]; /* route: the pattern of its path; "": nothing is there */
    char path[256];             /* percent-encoded */
    char host[128], client[64]; /* the field Host, or ""; address and port, or "-" */
    char id[129];               /* the request's */
    bool https;
    char device[32]; /* what ran its job; "": nothing did */
    int64_t batch_requests, batch_images;
    int stage_count;
    xn_span_stage stages[XN_SPAN_STAGES];
} xn_span;

/* Copies a path as URLs have it: all but printable ASCII, and ? # %, as %XX; what does not fit is
 * left out. */
void xn_span_set_path(xn_span *span, const char *path);
/* One that took no time is left out. */
void xn_span_add_stage(xn_span *span, const char *name, int64_t started_ns, int64_t ns);

#endif
