/* admission.h: how much the daemon has accepted and not yet answered, and whether a client may add
 * to it.
 *
 * It counts requests, the bytes that each of them holds, the bytes that each open connection holds,
 * and those of the programs that workers keep. A byte counts from the moment that memory is taken
 * for it: what a request only announces does not count. Limits apply to all of it together, to each
 * client address, and, where keys are used, to each key.
 *
 * Its mutex is a leaf: nothing else is locked while it is held. */
#ifndef XN_ADMISSION_H
#define XN_ADMISSION_H

#include "metrics.h"
#include "xn_mem.h"

#include <stdbool.h>

typedef struct xn_admission xn_admission;
typedef struct xn_client xn_client;

typedef struct xn_admission_limits {
    int64_t requests, bytes;               /* --queue-depth, --queue-bytes */
    int64_t client_requests, client_bytes; /* --max-requests-per-client, --max-bytes-per-client */
    int64_t connection_bytes;              /* that one open connection holds */
} xn_admission_limits;

/* metrics: borrowed; its gauges of requests and bytes in flight follow. */
xn_status xn_admission_create(const xn_admission_limits *limits, xn_metrics *metrics,
                              xn_admission **out, xn_error *error);
void xn_admission_free(xn_admission *admission); /* NULL-safe; all clients were put */

/* ---- clients ---- */

typedef enum { XN_CLIENT_ADDRESS, XN_CLIENT_KEY } xn_client_kind;

#define XN_CLIENT_IDENTITY_BYTES 16

/* A reference to the client of that identity; NULL without memory. Each open connection holds one
 * reference to the client of its address, and is counted as long as it does. */
xn_client *xn_client_get(xn_admission *admission, xn_client_kind kind,
                         const unsigned char identity[XN_CLIENT_IDENTITY_BYTES]);
void xn_client_put(xn_admission *admission, xn_client *client); /* NULL-safe */

/* ---- one admitted request ---- */

typedef struct xn_ticket {
    xn_admission *admission;  /* NULL: not admitted */
    xn_client *address, *key; /* borrowed, owned; NULL where there is none */
    size_t bytes;             /* counted for it */
    size_t reserved;          /* part of `bytes`: for bytes of a body that have not arrived yet */
} xn_ticket;

/* Counts one request. `expected` bytes must fit now, but are not counted yet. Takes the reference
 * to key, also on failure; address must outlive the ticket. Errors: XN_ERR_BUSY over a limit (field
 * "", message with both numbers), XN_ERR_LIMIT (queue-bytes, max-bytes-per-client) for bytes that
 * would not fit even alone, XN_ERR_DRAINING, XN_ERR_DEVICE_LOST. */
xn_status xn_ticket_enter(xn_admission *admission, xn_client *address, xn_client *key,
                          size_t expected, xn_ticket *out, xn_error *error);
/* Counts bytes more, also while draining: XN_ERR_BUSY or XN_ERR_LIMIT, as above. */
xn_status xn_ticket_grow(xn_ticket *ticket, size_t bytes, xn_error *error);
/* Counts bytes of a body before they arrive. All tickets together may reserve an eighth of
 * --queue-bytes. False: nothing was counted; call xn_ticket_grow as bytes arrive. */
bool xn_ticket_reserve(xn_ticket *ticket, size_t bytes);
void xn_ticket_arrived(xn_ticket *ticket); /* the reserved bytes have arrived */
void xn_ticket_leave(xn_ticket *ticket);   /* idempotent; all bytes are given back */

/* From now on enter fails with that status: XN_ERR_DRAINING or XN_ERR_DEVICE_LOST, which draining
 * does not replace. */
void xn_admission_close(xn_admission *admission, xn_status status);
bool xn_admission_wait_idle(xn_admission *admission, int64_t deadline_ns);

/* Counts host memory of workers' programs, which may have half of --queue-bytes; less than 0 is
 * given back, and succeeds. XN_ERR_DEVICE_MEMORY: other programs have half of --queue-bytes;
 * XN_ERR_BUSY: requests leave no room. */
xn_status xn_admission_charge_programs(xn_admission *admission, int64_t bytes, xn_error *error);
size_t xn_admission_programs_most(const xn_admission *admission); /* that half */
/* Bytes that a program may take to run several images at once: what is left of a quarter of
 * --queue-bytes. The other quarter is for programs that run one image. */
size_t xn_admission_programs_room(xn_admission *admission);

/* `jobs` more were finished at that time. */
void xn_admission_finished(xn_admission *admission, int64_t jobs, int64_t now_ns);
/* Seconds for Retry-After, >= 1, from the recent rate of finished jobs. */
int xn_admission_retry_after(xn_admission *admission, int64_t now_ns);

/* A rate that forgets: an event weighs less the longer ago it was. Pure. */
typedef struct xn_rate {
    double weight;    /* events, each times a factor that falls with its age */
    int64_t at_ns;    /* when weight was right */
    int64_t first_ns; /* the first event; 0 before it */
} xn_rate;
void xn_rate_add(xn_rate *rate, int64_t events, int64_t now_ns);
double xn_rate_per_second(const xn_rate *rate, int64_t now_ns);
/* Seconds until `waiting` requests are done at that rate, 1 .. 60. */
int xn_rate_retry_after(double per_second, int64_t waiting);

#endif
