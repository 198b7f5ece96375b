/* admission.h: how much the daemon has accepted and not yet answered, and the gate in front of it.
 * It has its own mutex, which is a leaf: nothing else is locked while it is held. */
#ifndef XN_ADMISSION_H
#define XN_ADMISSION_H

#include "metrics.h"
#include "xn_mem.h"

#include <stdbool.h>

typedef struct xn_admission xn_admission;

/* metrics: borrowed; its gauges of requests and bytes in flight follow. */
xn_status xn_admission_create(int64_t depth, int64_t bytes, xn_metrics *metrics, xn_admission **out,
                              xn_error *error);
void xn_admission_free(xn_admission *admission); /* NULL-safe */

/* As xn_engine_admit and its siblings document. */
xn_status xn_admission_enter(xn_admission *admission, size_t bytes, xn_error *error);
xn_status xn_admission_grow(xn_admission *admission, size_t bytes, xn_error *error);
void xn_admission_leave(xn_admission *admission, size_t bytes);

/* From now on enter fails with that status (XN_ERR_DRAINING or XN_ERR_DEVICE_LOST); a loss stays
 * the reason once given. */
void xn_admission_close(xn_admission *admission, xn_status status);
bool xn_admission_wait_idle(xn_admission *admission, int64_t deadline_ns);

/* `jobs` more were finished at that time. */
void xn_admission_finished(xn_admission *admission, int64_t jobs, int64_t now_ns);
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
