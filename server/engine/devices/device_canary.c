/* device_canary.c: see device_canary.h. */
#include "device_canary.h"

#include "clock.h"
#include "log.h"
#include "threads.h"

#include <stdio.h>

/* Only this thread writes canary_error after creation, so it may read it without the lock. */
static void log_canary(const xn_engine_device *device, xn_status status, const xn_error *error) {
    if (status != XN_OK)
        xn_log(XN_LOG_ERROR, NULL, "%s: the canary failed: %s", device->info.id, error->message);
    else if (device->canary_error[0])
        xn_log(XN_LOG_INFO, NULL, "%s: the canary passes again", device->info.id);
}

static void try_canary_drop_lock(xn_canary *canary, xn_engine_device *device) {
    xn_pools *pools = canary->pools;
    xn_error error = {0};
    device->canary_since_ns = xn_now_ns();
    xn_lock_drop(pools->lock);
    xn_status status = device->backend->device_canary(device->handle, &error);
    if (status == XN_ERR_DEVICE_LOST) {
        xn_pools_lose_device(pools, device->index, &error);
    } else {
        log_canary(device, status, &error);
        if (status != XN_OK)
            xn_metrics_device_error(pools->services->metrics, device->index);
    }
    xn_lock_take(pools->lock);
    device->canary_since_ns = 0;
    pthread_cond_broadcast(&canary->wake);
    snprintf(device->canary_error, sizeof device->canary_error, "%.120s",
             status == XN_OK ? "" : error.message);
    xn_pools_show_ready_locked(pools);
}

int64_t xn_canary_step(void *state, int64_t now_ns) {
    xn_canary *canary = state;
    xn_pools *pools = canary->pools;
    if (now_ns >= canary->next_ns) {
        for (int i = 0; i < pools->device_count && !pools->draining; i++)
            if (atomic_load(&pools->devices[i].up))
                try_canary_drop_lock(canary, &pools->devices[i]);
        canary->next_ns = xn_now_ns() + canary->interval_ns;
    }
    return pools->draining ? XN_STEP_END : canary->next_ns;
}

static bool runs_locked(const xn_pools *pools) {
    for (int i = 0; i < pools->device_count; i++)
        if (pools->devices[i].canary_since_ns)
            return true;
    return false;
}

bool xn_canary_wait_idle(xn_canary *canary, int64_t deadline_ns) {
    xn_pools *pools = canary->pools;
    xn_lock_take(pools->lock);
    while (runs_locked(pools) && xn_now_ns() < deadline_ns)
        xn_lock_wait(pools->lock, &canary->wake, deadline_ns);
    const bool idle = !runs_locked(pools);
    xn_lock_drop(pools->lock);
    return idle;
}

void xn_canary_init(xn_canary *canary, xn_pools *pools, int64_t interval_ns) {
    *canary = (xn_canary){.pools = pools, .interval_ns = interval_ns};
    xn_cond_init(&canary->wake);
}

void xn_canary_destroy(xn_canary *canary) {
    pthread_cond_destroy(&canary->wake);
}

xn_status xn_canary_start(xn_canary *canary, xn_error *error) {
    if (canary->interval_ns <= 0)
        return XN_OK;
    canary->next_ns = xn_now_ns() + canary->interval_ns;
    return xn_loop_start(&canary->loop, "xn-canary", canary->pools->lock, &canary->wake,
                         xn_canary_step, canary, error);
}
