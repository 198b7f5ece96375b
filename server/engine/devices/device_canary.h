/* device_canary.h: the thread that runs each device's self-test at an interval, until the engine
 * drains: a device that hangs then keeps no canary. */
#ifndef XN_DEVICE_CANARY_H
#define XN_DEVICE_CANARY_H

#include "pools.h"

typedef struct xn_canary {
    xn_pools *pools;
    int64_t interval_ns; /* constant */
    /* guarded by the engine's lock */
    int64_t next_ns;     /* when the next round is due */
    pthread_cond_t wake; /* draining, or a canary has ended */
    xn_loop loop;
} xn_canary;

void xn_canary_init(xn_canary *canary, xn_pools *pools, int64_t interval_ns);
void xn_canary_destroy(xn_canary *canary);
xn_status xn_canary_start(xn_canary *canary, xn_error *error); /* without an interval: nothing */

/* Waits until no canary runs, or until the deadline; true when none does. No lock held. */
bool xn_canary_wait_idle(xn_canary *canary, int64_t deadline_ns);

/* Its step (loop.h); state: the canary. */
int64_t xn_canary_step(void *state, int64_t now_ns);

#endif
