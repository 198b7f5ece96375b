/* limiter.h: the concurrency limiter of requests with a larger body. Such a request holds a permit
 * from its headers to the end of its answer. Without a free permit it waits at its headers, in
 * order; its body stays with the client. More requests at a time gain nothing: each has buffers of
 * its own, and those of a thousand fit into no cache.
 *
 * A permit is held for a limited time. A request that takes longer (a slow client, a batch that
 * fills slowly) loses it to the next request and goes on without. So no client can block the
 * others.
 *
 * Thread-safe; `granted` is called without the lock. */
#ifndef XN_LIMITER_H
#define XN_LIMITER_H

#include "list.h"
#include "xn_status.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct xn_limiter xn_limiter;

/* One request's, in the request; zero at first. The limiter's own. */
typedef struct xn_permit {
    enum { XN_PERMIT_NONE, XN_PERMIT_WAITING, XN_PERMIT_HELD } state;
    int64_t since_ns;
    xn_list node; /* among those that wait, or those held */
} xn_permit;

/* permits: 0 for no limit. max_hold_ns: the longest that a permit is held. granted: called for a
 * request that waited and may go on, by the thread that returned a permit. */
xn_status xn_limiter_create(int permits, int64_t max_hold_ns, void (*granted)(xn_permit *permit),
                            xn_limiter **out, xn_error *error);
void xn_limiter_free(xn_limiter *limiter); /* NULL-safe; when none waits */

/* True: it has a permit. False: the caller suspends the request, then calls wait. */
bool xn_limiter_acquire(xn_limiter *limiter, xn_permit *permit);
/* granted follows, perhaps at once. */
void xn_limiter_wait(xn_limiter *limiter, xn_permit *permit);
void xn_limiter_release(xn_limiter *limiter,
                        xn_permit *permit);                /* idempotent; not while it waits */
void xn_limiter_tick(xn_limiter *limiter, int64_t now_ns); /* revokes permits held too long */
void xn_limiter_lift(xn_limiter *limiter);                 /* for good: no limit any more */

#endif
