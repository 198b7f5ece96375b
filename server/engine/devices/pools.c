/* pools.c: see pools.h. */
#include "pools.h"

#include "clock.h"
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

xn_job *xn_pools_warm_up_locked(const xn_pools *pools, const xn_engine_device *device) {
    xn_lock_assert_mine(pools->lock);
    for (xn_warm_up *up = pools->warm_ups; up; up = up->next)
        if (up->device == device->index && up->job.state == XN_JOB_QUEUED)
            return &up->job;
    return NULL;
}

static bool has_warm_ups_locked(const xn_pools *pools, const xn_pool *pool) {
    for (const xn_warm_up *up = pools->warm_ups; up; up = up->next)
        if (&pools->each[up->job.pool] == pool && up->job.state == XN_JOB_QUEUED)
            return true;
    return false;
}

bool xn_pools_want_worker_locked(const xn_pools *pools, const xn_pool *pool, int64_t now_ns) {
    xn_lock_assert_mine(pools->lock);
    if (!pool->idle || (pool->threads && !pool->threads_free))
        return false;
    if (has_warm_ups_locked(pools, pool))
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
