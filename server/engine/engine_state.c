/* engine_state.c: what can be asked of an engine: its parts, its devices, whether it is ready. */
#include "engine_internal.h"

#include "clock.h"

#include <stdio.h>
#include <string.h>

/* ---- its parts and devices ---- */

xn_store *xn_engine_store(xn_engine *engine) {
    return engine->store;
}

xn_metrics *xn_engine_metrics(xn_engine *engine) {
    return engine->metrics;
}

xn_buffers *xn_engine_buffers(xn_engine *engine) {
    return engine->buffers;
}

xn_admission *xn_engine_admission(xn_engine *engine) {
    return engine->admission;
}

xn_status xn_engine_pool(const xn_engine *engine, const char *backend, int *pool, xn_error *error) {
    if (!strcmp(backend, "auto")) {
        *pool = atomic_load(&engine->primary);
        return XN_OK;
    }
    char served[64] = "auto";
    for (int p = 0; p < engine->pool_count; p++) {
        const char *name = engine->pools[p].backend->name;
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

int xn_engine_device_count(const xn_engine *engine) {
    return engine->member_count;
}

void xn_engine_device_info(const xn_engine *engine, int device, xn_device_info *out) {
    *out = engine->members[device].info;
}

const char *xn_engine_device_id(const xn_engine *engine, int device) {
    return engine->members[device].info.id;
}

const char *xn_engine_primary(const xn_engine *engine) {
    return engine->pools[atomic_load(&engine->primary)].backend->name;
}

const char *xn_engine_fallback_reason(const xn_engine *engine) {
    return engine->fallback_reason;
}

/* ---- health ---- */

static bool member_fit(const xn_member *member, int64_t now_ns, char *reason, size_t size) {
    const int64_t stuck_ns = 30 * XN_NS_PER_S; /* a canary takes milliseconds */
    if (member->canary_error[0]) {
        snprintf(reason, size, "%s fails its canary: %s", member->info.id, member->canary_error);
        return false;
    }
    if (member->canary_since_ns && now_ns - member->canary_since_ns > stuck_ns) {
        snprintf(reason, size, "%s has not answered its canary for %lld s", member->info.id,
                 (long long)((now_ns - member->canary_since_ns) / XN_NS_PER_S));
        return false;
    }
    return true;
}

bool xn_engine_ready_locked(const xn_engine *engine, int64_t now_ns, char *reason, size_t size) {
    if (size)
        reason[0] = '\0';
    if (engine->lost_reason[0]) {
        snprintf(reason, size, "%s", engine->lost_reason);
        return false;
    }
    if (engine->draining) {
        snprintf(reason, size, "draining");
        return false;
    }
    if (engine->loading) {
        snprintf(reason, size, "loading %s",
                 engine->loading & XN_LOADING_WEIGHTS ? "the weights of --weights-dir" : "models");
        return false;
    }
    int primary = atomic_load(&engine->primary);
    for (int i = 0; i < engine->member_count; i++) {
        const xn_member *member = &engine->members[i];
        if (member->pool == primary && member->up && !member_fit(member, now_ns, reason, size))
            return false;
    }
    return true;
}

void xn_engine_show_ready_locked(xn_engine *engine) {
    bool ready = xn_engine_ready_locked(engine, xn_now_ns(), NULL, 0);
    xn_metrics_gauge_set(engine->metrics, XN_GAUGE_READY, ready);
}

void xn_engine_set_loading(xn_engine *engine, xn_loading what, bool loading) {
    if (what == XN_LOADING_WEIGHTS)
        xn_store_set_loading(engine->store, loading);
    pthread_mutex_lock(&engine->mutex);
    engine->loading = loading ? engine->loading | what : engine->loading & ~(unsigned)what;
    xn_engine_show_ready_locked(engine);
    pthread_mutex_unlock(&engine->mutex);
}

void xn_engine_health_get(xn_engine *engine, xn_engine_health *out) {
    *out = (xn_engine_health){0};
    pthread_mutex_lock(&engine->mutex);
    out->ready = xn_engine_ready_locked(engine, xn_now_ns(), out->reason, sizeof out->reason);
    out->draining = engine->draining;
    out->device_lost = engine->lost_reason[0];
    pthread_mutex_unlock(&engine->mutex);
    snprintf(out->backend, sizeof out->backend, "%.7s", xn_engine_primary(engine));
}
