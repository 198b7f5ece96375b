/* otlp_post.h: one POST of JSON to a collector, over HTTP/1.1 on a connection of its own. Waits, so
 * it is for a thread of its own. Of the answer status and Retry-After are read; redirections are
 * not followed. */
#ifndef XN_OTLP_POST_H
#define XN_OTLP_POST_H

#include "otlp_target.h"

#include <stdatomic.h>
#include <stddef.h>

typedef struct xn_otlp_answer {
    int status; /* 200 to 599; 0: none came, and why: */
    char why[160];
    int retry_after_s; /* -1: none was given */
} xn_otlp_answer;

/* Until deadline_ns or *stop_ns, which may fall meanwhile: a look at least every 100 ms, but for
 * the time that the system takes to resolve the host's name. */
void xn_otlp_post(const xn_otlp_target *target, const char *body, size_t length,
                  int64_t deadline_ns, const atomic_int_least64_t *stop_ns, xn_otlp_answer *out);

#endif
