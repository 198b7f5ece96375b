/* pools.c: see pools.h. */
#include "pools.h"

#include "clock.h"
#include "log.h"
#include "threads.h"

#include <stdio.h>
#include <string.h>

xn_status xn_pools_init(xn_pools *pools, int pool_count, int device_count, xn_error *error) {
    pools->each = xn_mem_zalloc((size_t)pool_count, sizeof *pools->each);
    pools->devices = xn_mem_zalloc((size_t)device_count, sizeof *pools->devices);
    if (!pools->each || !pools->devices)
        return xn_fail(error, XN_ERR_NO_MEMORY, NULL, "no memory for the engine's pools");
    for (; pools->count < pool_count; pools->count++)
        xn_cond_init(&pools->each[pools->count].work);
    return XN_OK;
}

void xn_pools_destroy(xn_pools *pools) {
    for (int i = 0; i < pools->device_count; i++)
        xn_engine_device_close(&pools->devices[i]);
    for (int p = 0; p < pools->count; p++) {
        xn_queue_free(pools->each[p].queue);
        pthread_cond_destroy(&pools->each[p].work);
    }
    xn_mem_free(pools->devices);
    xn_mem_free(pools->each);
}

xn_status xn_pools_find(const xn_pools *pools, const char *backend, int *pool, xn_error *error) {
    if (!strcmp(backend, "auto")) {
        *pool = atomic_load(&pools->primary);
        return XN_OK;
    }
    char served[64] = "auto";
    for (int p = 0; p < pools->count; p++) {
        const char *name = pools->each[p].backend->name;
        if (!strcmp(backend, name)) {
            *pool = p;
            return XN_OK;
        }
        size_t length = strlen(served);
        snprintf(served + length, sizeof served - length, ", %s", name);
    }
    return xn_fail(error, XN_ERR_UNSUPPORTED, "backend",
                   "backend is \"%.20s\"; this daemon serves %s", backend, served);
}

/* ---- workers ---- */

xn_job *xn_pools_warm_up_locked(const xn_pools *pools, const xn_pool *pool,
                                const xn_engine_device *device) {
    xn_lock_assert_mine(pools->lock);
    for (xn_warm_up *up = pools->warm_ups; up; up = up->next)
        if (up->job.state == XN_JOB_QUEUED && &pools->each[up->job.pool] == pool &&
            (!device || up->device == device->index))
            return &up->job;
    return NULL;
}

bool xn_pools_want_worker_locked(const xn_pools *pools, const xn_pool *pool, int64_t now_ns) {
    xn_lock_assert_mine(pools->lock);
    if (!pool->idle || (pool->threads && !pool->threads_free))
        return false;
    if (xn_pools_warm_up_locked(pools, pool, NULL))
        return true;
    int64_t wait_ns = xn_queue_wait_ns(pool->queue, pools->draining, now_ns);
    return wait_ns == 0 || (wait_ns != XN_QUEUE_EMPTY && !pool->lingering);
}

void xn_pools_wake_all_locked(xn_pools *pools) {
    xn_lock_assert_mine(pools->lock);
    for (int p = 0; p < pools->count; p++)
        pthread_cond_broadcast(&pools->each[p].work);
    for (int i = 0; i < pools->device_count; i++)
        pthread_cond_broadcast(&pools->devices[i].changed);
}

/* ---- readiness ---- */

static bool device_fit(const xn_engine_device *device, int64_t now_ns, char *reason, size_t size) {
    const int64_t stuck_ns = 30 * XN_NS_PER_S; /* a canary takes milliseconds */
    if (device->canary_error[0]) {
        snprintf(reason, size, "%s fails its canary: %s", device->info.id, device->canary_error);
        return false;
    }
    if (device->canary_since_ns && now_ns - device->canary_since_ns > stuck_ns) {
        snprintf(reason, size, "%s has not answered its canary for %lld s", device->info.id,
                 (long long)((now_ns - device->canary_since_ns) / XN_NS_PER_S));
        return false;
    }
    return true;
}

bool xn_pools_ready_locked(const xn_pools *pools, int64_t now_ns, char *reason, size_t size) {
    xn_lock_assert_mine(pools->lock);
    if (size)
        reason[0] = '\0';
    if (pools->lost_reason[0]) {
        snprintf(reason, size, "%s", pools->lost_reason);
        return false;
    }
    if (pools->draining) {
        snprintf(reason, size, "draining");
        return false;
    }
    if (pools->loading) {
        snprintf(reason, size, "loading %s",
                 pools->loading & XN_LOADING_WEIGHTS ? "the weights of --weights-dir" : "models");
        return false;
    }
    int primary = atomic_load(&pools->primary);
    for (int i = 0; i < pools->device_count; i++) {
        const xn_engine_device *device = &pools->devices[i];
        if (device->pool == primary && atomic_load(&device->up) &&
            !device_fit(device, now_ns, reason, size))
            return false;
    }
    return true;
}

void xn_pools_show_ready_locked(xn_pools *pools) {
    bool ready = xn_pools_ready_locked(pools, xn_now_ns(), NULL, 0);
    xn_metrics_gauge_set(pools->services->metrics, XN_GAUGE_READY, ready);
}

/* ---- the loss of a device ---- */

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
    while ((job = xn_pools_warm_up_locked(pools, &pools->each[device->pool], device)))
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
