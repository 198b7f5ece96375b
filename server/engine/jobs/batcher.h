/* batcher.h: when a group of waiting jobs becomes a batch: a pure function, tested without
 * clocks. */
#ifndef XN_BATCHER_H
#define XN_BATCHER_H

#include <stdint.h>

typedef struct xn_batch_policy {
    int64_t max_images; /* >= 1 */
    int64_t delay_ns; /* the linger timer: the longest the oldest job waits for others; 0 = none */
} xn_batch_policy;

/* A group as it stands: images waiting and when its oldest job came. */
typedef struct xn_batch_pending {
    int64_t images;
    int64_t oldest_ns;
} xn_batch_pending;

/* 0: launch now. Otherwise the nanoseconds to wait before asking again (or until another job
 * joins). Draining launches at once. */
int64_t xn_batch_wait_ns(const xn_batch_policy *policy, const xn_batch_pending *pending,
                         int draining, int64_t now_ns);

#endif
