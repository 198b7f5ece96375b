/* engine_loss.c: a device is lost: sticky, nothing on it can work again. Its workers stop; with
 * the last device of a pool the pool is lost. A lost primary is replaced by the next pool that
 * lives (--on-device-loss cpu), or the daemon is to end (exit). The device's backend is only
 * called to free things afterwards. */
#include "engine_internal.h"

#include "log.h"

#include <stdio.h>

/* The pool that takes over, or -1. */
static int successor_locked(const xn_engine *engine) {
    if (engine->loss_policy != XN_LOSS_CPU)
        return -1;
    for (int i = 0; i < engine->pool_count; i++)
        if (engine->pools[i].members_up > 0)
            return i;
    return -1;
}

/* Every job that waits for the pool moves if it may, or ends. */
static void empty_queue_locked(xn_engine *engine, int from, int to) {
    xn_job *job;
    while ((job = xn_queue_oldest(engine->pools[from].queue))) {
        if (to < 0 || !job->any_pool) {
            xn_engine_end_job_locked(engine, job, XN_ERR_DEVICE_LOST);
            continue;
        }
        xn_queue_remove(engine->pools[from].queue, job);
        if (xn_queue_push(engine->pools[to].queue, job, NULL) == XN_OK)
            job->pool = to;
        else /* no memory to move it */
            xn_engine_end_taken_locked(engine, job, XN_ERR_DEVICE_LOST);
    }
}

static void lose_pool_locked(xn_engine *engine, int index, const char *reason) {
    bool was_primary = atomic_load(&engine->primary) == index;
    int to = successor_locked(engine);
    if (was_primary && to >= 0) {
        atomic_store(&engine->primary, to);
    } else if (was_primary) {
        snprintf(engine->lost_reason, sizeof engine->lost_reason, "%s", reason);
        xn_admission_close(engine->admission, XN_ERR_DEVICE_LOST);
        engine->fatal_pending = true;
        pthread_cond_signal(&engine->watch);
    }
    empty_queue_locked(engine, index, to);
    if (to >= 0)
        pthread_cond_broadcast(&engine->pools[to].work);
}

static void log_loss(const xn_engine *engine, const char *reason, bool pool_lost, bool fatal) {
    xn_log(XN_LOG_ERROR, NULL, "device lost: %s", reason);
    if (!pool_lost)
        xn_log(XN_LOG_WARN, NULL, "serving goes on with the devices that are left");
    else if (fatal)
        xn_log(XN_LOG_ERROR, NULL, "no device is left to serve; the daemon is to be restarted");
    else
        xn_log(XN_LOG_WARN, NULL, "backend is now %s", xn_engine_primary(engine));
}

void xn_engine_lose_member(xn_engine *engine, int index, const xn_error *why) {
    xn_member *member = &engine->members[index];
    xn_pool *pool = &engine->pools[member->pool];
    char reason[sizeof engine->lost_reason];
    snprintf(reason, sizeof reason, "%s was lost: %.120s", member->info.id, why->message);
    xn_store_device_lost(engine->store, index);

    pthread_mutex_lock(&engine->mutex);
    bool first = member->up, pool_lost = false;
    if (first) {
        member->up = false;
        pool_lost = --pool->members_up == 0;
        /* Host memory is pinned by the first device of the first pool. */
        if (index == 0)
            atomic_store(&engine->primary_memory_lost, true);
        xn_metrics_device_error(engine->metrics, index);
        xn_metrics_device_up(engine->metrics, index, 0);
        if (pool_lost)
            lose_pool_locked(engine, member->pool, reason);
        pthread_cond_broadcast(&pool->work); /* its workers end, the others look again */
        pthread_cond_broadcast(&pool->quiet);
        xn_engine_show_ready_locked(engine);
    }
    bool fatal = engine->lost_reason[0];
    pthread_mutex_unlock(&engine->mutex);
    if (first && engine->responses)
        xn_cache_clear(engine->responses);
    if (first)
        log_loss(engine, reason, pool_lost, fatal);
}
