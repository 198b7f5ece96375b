/* watcher.c: the thread that ends jobs which will not run. It sleeps until the earliest deadline,
 * so that a job expires on time however busy the workers are, or hung, and calls `done` for what
 * expired, was cancelled or lost its pool. It also makes the one call of on_fatal. It wakes by
 * itself at watch_until_ns; submit wakes it only for an earlier deadline, so a steady load hardly
 * ever does.
 */
#include "engine_internal.h"

#include "clock.h"

#include <stdio.h>

static void end_jobs_unlocked(xn_engine *engine) {
    char reason[sizeof engine->lost_reason];
    snprintf(reason, sizeof reason, "%s", engine->lost_reason);
    xn_job *jobs = engine->ending_first;
    engine->ending_first = engine->ending_last = NULL;
    pthread_mutex_unlock(&engine->mutex);
    xn_engine_end_jobs(engine, jobs, reason);
    pthread_mutex_lock(&engine->mutex);
}

static void call_fatal_unlocked(xn_engine *engine) {
    void (*callback)(void *context) = engine->on_fatal;
    void *context = engine->on_fatal_context;
    engine->fatal_pending = false;
    pthread_mutex_unlock(&engine->mutex);
    callback(context);
    pthread_mutex_lock(&engine->mutex);
}

static void sleep_locked(xn_engine *engine) {
    const xn_job *first = xn_deadlines_first(&engine->deadlines);
    engine->watch_until_ns = first ? first->deadline_ns : INT64_MAX;
    if (engine->watch_until_ns == INT64_MAX) {
        pthread_cond_wait(&engine->watch, &engine->mutex);
    } else {
        struct timespec until = xn_timespec(engine->watch_until_ns);
        pthread_cond_timedwait(&engine->watch, &engine->mutex, &until);
    }
    engine->watch_until_ns = INT64_MIN; /* awake: it looks at the deadlines before it sleeps */
}

void *xn_watcher_main(void *argument) {
    xn_engine *engine = argument;
    pthread_mutex_lock(&engine->mutex);
    for (;;) {
        xn_engine_expire_locked(engine, xn_now_ns());
        if (engine->ending_first)
            end_jobs_unlocked(engine);
        else if (engine->fatal_pending && engine->on_fatal)
            call_fatal_unlocked(engine);
        else if (engine->watcher_stop)
            break;
        else
            sleep_locked(engine);
    }
    pthread_mutex_unlock(&engine->mutex);
    return NULL;
}
