/* pools_loss.c: the loss of a device: see pools.h. */
#include "log.h"
#include "pools.h"

#include <stdio.h>

/* The pool that takes over, or -1. */
static int successor_locked(const xn_pools *pools) {
    if (pools->loss_policy != XN_LOSS_CPU)
        return -1;
    for (int i = 0; i < pools->count; i++)
        if (pools->each[i].devices_up > 0)
            return i;
    return -1;
}

static void end_warm_ups_locked(xn_pools *pools, const xn_engine_device *device,
                                const char *reason) {
    xn_job *job;
    while ((job = xn_pools_warm_up_locked(pools, device)))
        xn_endings_end_locked(pools->endings, job, XN_ERR_DEVICE_LOST, reason);
}

/* Every job that waits for the pool moves if it may, or ends. */
static void empty_queue_locked(xn_pools *pools, int from, int to) {
    xn_queue *queue = pools->each[from].queue;
    xn_job *job;
    while ((job = xn_queue_any(queue))) {
        if (to >= 0 && job->any_pool) {
            xn_queue_remove(queue, job);
            if (xn_queue_push(pools->each[to].queue, job, NULL) == XN_OK) {
                job->pool = to;
                continue;
            }
        }
        xn_endings_end_locked(pools->endings, job, XN_ERR_DEVICE_LOST, pools->lost_reason);
    }
}

static void lose_pool_locked(xn_pools *pools, int index, const char *reason) {
    bool was_primary = atomic_load(&pools->primary) == index;
    int to = successor_locked(pools);
    if (was_primary && to >= 0) {
        atomic_store(&pools->primary, to);
    } else if (was_primary) {
        snprintf(pools->lost_reason, sizeof pools->lost_reason, "%s", reason);
        xn_admission_close(pools->services->admission, XN_ERR_DEVICE_LOST);
        xn_endings_fail_locked(pools->endings);
    }
    empty_queue_locked(pools, index, to);
}

static void log_loss(const xn_pools *pools, const char *reason, bool pool_lost, bool fatal) {
    xn_log(XN_LOG_ERROR, NULL, "device lost: %s", reason);
    if (!pool_lost)
        xn_log(XN_LOG_WARN, NULL, "serving goes on with the devices that are left");
    else if (fatal)
        xn_log(XN_LOG_ERROR, NULL, "no device is left to serve; the daemon is to be restarted");
    else
        xn_log(XN_LOG_WARN, NULL, "backend is now %s",
               pools->each[atomic_load(&pools->primary)].backend->name);
}

void xn_pools_lose_device(xn_pools *pools, int index, const xn_error *why) {
    const xn_services *services = pools->services;
    xn_engine_device *device = &pools->devices[index];
    char reason[sizeof pools->lost_reason];
    snprintf(reason, sizeof reason, "%s was lost: %.120s", device->info.id, why->message);
    xn_store_device_lost(services->store, index);

    xn_lock_take(pools->lock);
    const bool first = atomic_exchange(&device->up, false);
    const bool pool_lost = first && --pools->each[device->pool].devices_up == 0;
    if (first) {
        xn_metrics_device_error(services->metrics, index);
        xn_metrics_device_up(services->metrics, index, 0);
        end_warm_ups_locked(pools, device, reason);
        if (pool_lost)
            lose_pool_locked(pools, device->pool, reason);
        xn_pools_wake_all_locked(pools); /* the device's workers end, the others look again */
        xn_pools_show_ready_locked(pools);
    }
    const bool fatal = pools->lost_reason[0];
    xn_lock_drop(pools->lock);
    if (first && services->answers)
        xn_cache_clear(services->answers);
    if (first)
        log_loss(pools, reason, pool_lost, fatal);
}
