/* engine_info.c: what can be asked of an engine: its parts, its devices, whether it is ready. */
#include "engine_struct.h"

#include "answers.h"
#include "clock.h"

#include <stdio.h>

/* ---- its parts and devices ---- */

xn_store *xn_engine_store(xn_engine *engine) {
    return engine->services.store;
}

xn_metrics *xn_engine_metrics(xn_engine *engine) {
    return engine->services.metrics;
}

xn_buffers *xn_engine_buffers(xn_engine *engine) {
    return engine->services.buffers;
}

xn_admission *xn_engine_admission(xn_engine *engine) {
    return engine->services.admission;
}

xn_status xn_engine_pool(const xn_engine *engine, const char *backend, int *pool, xn_error *error) {
    return xn_pools_find(&engine->pools, backend, pool, error);
}

int xn_engine_retry_after(const xn_engine *engine) {
    return xn_admission_retry_after(engine->services.admission, xn_now_ns());
}

int xn_engine_device_count(const xn_engine *engine) {
    return engine->pools.device_count;
}

void xn_engine_device_info(const xn_engine *engine, int device, xn_device_info *out) {
    *out = engine->pools.devices[device].info;
}

const char *xn_engine_device_id(const xn_engine *engine, int device) {
    return engine->pools.devices[device].info.id;
}

const char *xn_engine_primary(const xn_engine *engine) {
    return engine->pools.each[atomic_load(&engine->pools.primary)].backend->name;
}

const char *xn_engine_fallback_reason(const xn_engine *engine) {
    return engine->fallback_reason;
}

/* ---- health ---- */

void xn_engine_set_loading(xn_engine *engine, xn_loading what, bool loading) {
    xn_pools *pools = &engine->pools;
    if (what == XN_LOADING_WEIGHTS)
        xn_store_set_loading(engine->services.store, loading);
    xn_lock_take(&engine->lock);
    pools->loading = loading ? pools->loading | what : pools->loading & ~(unsigned)what;
    xn_pools_show_ready_locked(pools);
    xn_lock_drop(&engine->lock);
}

void xn_engine_health_get(xn_engine *engine, xn_engine_health *out) {
    const xn_pools *pools = &engine->pools;
    *out = (xn_engine_health){0};
    xn_lock_take(&engine->lock);
    out->ready = xn_pools_ready_locked(pools, xn_now_ns(), out->reason, sizeof out->reason);
    out->draining = pools->draining;
    out->device_lost = pools->lost_reason[0];
    xn_lock_drop(&engine->lock);
    snprintf(out->backend, sizeof out->backend, "%.7s", xn_engine_primary(engine));
}

int64_t xn_engine_oldest_wait_ns(xn_engine *engine) {
    const xn_pools *pools = &engine->pools;
    int64_t oldest_ns = XN_QUEUE_EMPTY;
    xn_lock_take(&engine->lock);
    const int64_t now_ns = xn_now_ns();
    for (int i = 0; i < pools->count; i++) {
        const int64_t its_ns = xn_queue_oldest_ns(pools->each[i].queue);
        oldest_ns = its_ns < oldest_ns ? its_ns : oldest_ns;
    }
    xn_lock_drop(&engine->lock);
    return oldest_ns < now_ns ? now_ns - oldest_ns : 0;
}

/* ---- the answer cache ---- */

bool xn_engine_cache_lookup(xn_engine *engine, xn_job *job) {
    return xn_answers_lookup(&engine->services, job);
}

bool xn_engine_cache_is_slow(const xn_engine *engine, size_t bytes) {
    return xn_answers_are_slow(&engine->services, bytes);
}

void xn_engine_cache_insert(xn_engine *engine, xn_job *job) {
    xn_answers_insert(&engine->services, job);
}

/* ---- memory ---- */

/* The answer cache reads inputs and outputs on the host. */
bool xn_engine_uses_pinned(const xn_engine *engine, int pool) {
    const xn_engine_device *first = &engine->pools.devices[0];
    return first->backend->host_register && pool == first->pool && !engine->services.answers &&
           atomic_load(&first->up);
}

xn_status xn_engine_pin(xn_engine *engine, void *memory, size_t bytes, xn_error *error) {
    const xn_engine_device *first = &engine->pools.devices[0];
    if (!xn_engine_uses_pinned(engine, first->pool))
        return xn_fail(error, XN_ERR_UNSUPPORTED, NULL, "%s takes no pinned memory",
                       first->info.id);
    return first->backend->host_register(first->handle, memory, bytes, error);
}

xn_status xn_engine_unpin(xn_engine *engine, void *memory, xn_error *error) {
    const xn_engine_device *first = &engine->pools.devices[0];
    return first->backend->host_unregister(first->handle, memory, error);
}

void xn_engine_reclaim(xn_engine *engine) {
    assert(pthread_equal(pthread_self(), engine->creator));
    xn_lock_assert_none();
    xn_buffers_trim(engine->services.buffers, INT64_MAX);
    if (engine->services.answers)
        xn_cache_clear(engine->services.answers);
}
