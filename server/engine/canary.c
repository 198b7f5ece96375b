/* canary.c: the thread that runs each device's self-test at an interval, until the engine drains: a
 * device that hangs then keeps no canary. */
#include "engine_internal.h"

#include "clock.h"
#include "log.h"

#include <stdio.h>

/* Only this thread writes canary_error after creation, so it may read it without the lock. */
static void log_canary(const xn_member *member, xn_status status, const xn_error *error) {
    if (status != XN_OK)
        xn_log(XN_LOG_ERROR, NULL, "%s: the canary failed: %s", member->info.id, error->message);
    else if (member->canary_error[0])
        xn_log(XN_LOG_INFO, NULL, "%s: the canary passes again", member->info.id);
}

static void try_canary_unlocked(xn_engine *engine, int index) {
    xn_member *member = &engine->members[index];
    xn_error error = {0};
    member->canary_since_ns = xn_now_ns();
    pthread_mutex_unlock(&engine->mutex);
    xn_status status = member->backend->device_canary(member->device, &error);
    if (status == XN_ERR_DEVICE_LOST) {
        xn_engine_lose_member(engine, index, &error);
    } else {
        log_canary(member, status, &error);
        if (status != XN_OK)
            xn_metrics_device_error(engine->metrics, index);
    }
    pthread_mutex_lock(&engine->mutex);
    member->canary_since_ns = 0;
    pthread_cond_broadcast(&engine->canary_stop);
    snprintf(member->canary_error, sizeof member->canary_error, "%.120s",
             status == XN_OK ? "" : error.message);
    xn_engine_show_ready_locked(engine);
}

void *xn_canary_main(void *argument) {
    xn_engine *engine = argument;
    pthread_mutex_lock(&engine->mutex);
    int64_t next_ns = xn_now_ns() + engine->canary_interval_ns;
    while (!engine->draining) {
        struct timespec until = xn_timespec(next_ns);
        if (xn_now_ns() < next_ns) {
            pthread_cond_timedwait(&engine->canary_stop, &engine->mutex, &until);
            continue;
        }
        for (int i = 0; i < engine->member_count && !engine->draining; i++)
            if (engine->members[i].up)
                try_canary_unlocked(engine, i);
        next_ns = xn_now_ns() + engine->canary_interval_ns;
    }
    pthread_mutex_unlock(&engine->mutex);
    return NULL;
}
