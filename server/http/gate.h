/* gate.h: bounds how many requests with a larger body are in work at a time, from their headers to
 * the end of their answer. The others wait at their headers, in order, and cost nothing meanwhile:
 * their bytes stay with the client. More at a time would gain nothing: each has buffers of its own,
 * and those of a thousand fit into no cache.
 *
 * A place is held for a limited time. A request that takes longer (a slow client, a batch that
 * waits for company) goes on without one, and the next comes in. So no client can keep others out.
 *
 * Thread-safe; `open` is called without the lock. */
#ifndef XN_GATE_H
#define XN_GATE_H

#include "xn_status.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct xn_gate xn_gate;

/* One request's, in the request; zero at first. The gate's own. */
typedef struct xn_gate_place {
    enum { XN_GATE_OUTSIDE, XN_GATE_WAITING, XN_GATE_INSIDE } state;
    int64_t since_ns;
    struct xn_gate_place *next, *previous; /* who waits, or who is inside */
    struct xn_gate_place *chained;         /* who is to be told that it may go on */
} xn_gate_place;

/* places: 0 for no limit. hold_ns: how long a place is held at most. open is called for one that
 * waited and may go on, by whichever thread made room. */
xn_status xn_gate_create(int places, int64_t hold_ns, void (*open)(xn_gate_place *place),
                         xn_gate **out, xn_error *error);
void xn_gate_free(xn_gate *gate); /* NULL-safe; nobody waits */

/* True: inside. False: the caller makes ready to wait, then calls wait. */
bool xn_gate_enter(xn_gate *gate, xn_gate_place *place);
/* open follows, perhaps at once. */
void xn_gate_wait(xn_gate *gate, xn_gate_place *place);
void xn_gate_leave(xn_gate *gate, xn_gate_place *place); /* idempotent; not while it waits */
void xn_gate_tick(xn_gate *gate, int64_t now_ns);        /* takes places that were held too long */
void xn_gate_unlock(xn_gate *gate);                      /* for good: nobody waits any more */

#endif
