/* limiter.c: see limiter.h. */
#include "limiter.h"

#include "clock.h"
#include "xn_mem.h"

#include <pthread.h>

struct xn_limiter {
    int64_t max_hold_ns;
    void (*granted)(xn_permit *permit);
    pthread_mutex_t lock;     /* guards all below and every permit; a leaf */
    int permits, held;        /* permits 0: no limit */
    xn_list waiting, holding; /* permits in the order they came */
};

/* The permit that came first, or NULL. */
static xn_permit *first_of(const xn_list *list) {
    return xn_list_is_empty(list) ? NULL : XN_ITEM(list->next, xn_permit, node);
}

xn_status xn_limiter_create(int permits, int64_t max_hold_ns, void (*granted)(xn_permit *permit),
                            xn_limiter **out, xn_error *error) {
    xn_limiter *limiter = xn_mem_zalloc(1, sizeof *limiter);
    if (!limiter)
        return xn_fail(error, XN_ERR_NO_MEMORY, NULL, "no memory for the limiter of requests");
    pthread_mutex_init(&limiter->lock, NULL);
    xn_list_init(&limiter->waiting);
    xn_list_init(&limiter->holding);
    limiter->permits = permits;
    limiter->max_hold_ns = max_hold_ns;
    limiter->granted = granted;
    *out = limiter;
    return XN_OK;
}

void xn_limiter_free(xn_limiter *limiter) {
    if (!limiter)
        return;
    pthread_mutex_destroy(&limiter->lock);
    xn_mem_free(limiter);
}

static bool has_free_locked(const xn_limiter *limiter) {
    return !limiter->permits || limiter->held < limiter->permits;
}

static void grant_locked(xn_limiter *limiter, xn_permit *permit) {
    limiter->held++;
    permit->state = XN_PERMIT_HELD;
    permit->since_ns = xn_now_ns();
    xn_list_add_last(&limiter->holding, &permit->node);
}

/* The first that waits and may go on now, which has a permit then; NULL: there is none. */
static xn_permit *grant_next(xn_limiter *limiter) {
    pthread_mutex_lock(&limiter->lock);
    xn_permit *permit = has_free_locked(limiter) ? first_of(&limiter->waiting) : NULL;
    if (permit) {
        xn_list_remove(&permit->node);
        grant_locked(limiter, permit);
    }
    pthread_mutex_unlock(&limiter->lock);
    return permit;
}

/* Calls granted without the lock: a request may be gone after it. */
static void grant_waiting(xn_limiter *limiter) {
    xn_permit *permit;
    while ((permit = grant_next(limiter)))
        limiter->granted(permit);
}

bool xn_limiter_acquire(xn_limiter *limiter, xn_permit *permit) {
    pthread_mutex_lock(&limiter->lock);
    bool enters = !first_of(&limiter->waiting) && has_free_locked(limiter);
    if (enters)
        grant_locked(limiter, permit);
    pthread_mutex_unlock(&limiter->lock);
    return enters;
}

void xn_limiter_wait(xn_limiter *limiter, xn_permit *permit) {
    pthread_mutex_lock(&limiter->lock);
    permit->state = XN_PERMIT_WAITING;
    xn_list_add_last(&limiter->waiting, &permit->node);
    pthread_mutex_unlock(&limiter->lock);
    grant_waiting(limiter);
}

static void take_back_locked(xn_limiter *limiter, xn_permit *permit) {
    xn_list_remove(&permit->node);
    permit->state = XN_PERMIT_NONE;
    limiter->held--;
}

void xn_limiter_release(xn_limiter *limiter, xn_permit *permit) {
    pthread_mutex_lock(&limiter->lock);
    const bool held = permit->state == XN_PERMIT_HELD;
    if (held)
        take_back_locked(limiter, permit);
    const bool waits = held && first_of(&limiter->waiting);
    pthread_mutex_unlock(&limiter->lock);
    if (waits)
        grant_waiting(limiter);
}

void xn_limiter_tick(xn_limiter *limiter, int64_t now_ns) {
    xn_permit *oldest;
    pthread_mutex_lock(&limiter->lock);
    while ((oldest = first_of(&limiter->holding)) &&
           now_ns - oldest->since_ns > limiter->max_hold_ns)
        take_back_locked(limiter, oldest);
    pthread_mutex_unlock(&limiter->lock);
    grant_waiting(limiter);
}

void xn_limiter_lift(xn_limiter *limiter) {
    pthread_mutex_lock(&limiter->lock);
    limiter->permits = 0;
    pthread_mutex_unlock(&limiter->lock);
    grant_waiting(limiter);
}
