/* watcher.c: two threads that keep watch.
 *
 * The watcher ends jobs that will not run: it sleeps until the earliest deadline, so that a job
 * expires on time however busy the workers are, and calls `done` for what expired, was cancelled or
 * lost its pool. It also makes the one call of on_fatal. It wakes by itself at watch_until_ns;
 * submit wakes it only for an earlier deadline, so a steady load hardly ever does.
 *
 * The canary runs each device's self-test at an interval. */
#include "engine_internal.h"

#include "clock.h"
#include "log.h"

#include <stdio.h>

/* ---- jobs that do not run ---- */

static void explain(xn_job *job, int64_t now_ns, const char *lost_reason) {
    long long waited_us = (long long)((now_ns - job->submitted_ns) / XN_NS_PER_US);
    switch (job->status) {
    case XN_ERR_DEADLINE:
        xn_fail(&job->error, job->status, "timeout_ms",
                "the deadline passed after %lld us in the queue, before a worker was free",
                waited_us);
        break;
    case XN_ERR_CANCELLED:
        xn_fail(&job->error, job->status, NULL, "the client hung up after %lld us in the queue",
                waited_us);
        break;
    case XN_ERR_DRAINING:
        xn_fail(&job->error, job->status, NULL,
                "the service is shutting down; the request was not started");
        break;
    case XN_ERR_DEVICE_LOST:
        xn_fail(&job->error, job->status, NULL, "the request was not started: %s",
                *lost_reason ? lost_reason : "its backend has no device left");
        break;
    default:
        xn_fail(&job->error, job->status, NULL, "the request was taken back: %s",
                xn_status_name(job->status));
    }
}

static void end_jobs(xn_job *job, const char *lost_reason) {
    while (job) {
        xn_job *next = job->next;
        int64_t now_ns = xn_now_ns();
        job->next = NULL;
        job->device = -1;
        job->batch_requests = job->batch_images = 0;
        job->times = (xn_run_times){0};
        job->started_ns = job->finished_ns = now_ns;
        explain(job, now_ns, lost_reason);
        job->done(job);
        job = next;
    }
}

void xn_engine_end_job_locked(xn_engine *engine, xn_job *job, xn_status status) {
    xn_queue_remove(engine->pools[job->pool].queue, job);
    xn_engine_end_taken_locked(engine, job, status);
}

void xn_engine_end_taken_locked(xn_engine *engine, xn_job *job, xn_status status) {
    xn_deadlines_remove(&engine->deadlines, job);
    xn_metrics_gauge_add(engine->metrics, XN_GAUGE_QUEUE_DEPTH, -1);
    job->state = XN_JOB_ENDING;
    job->status = status;
    *(engine->ending_last ? &engine->ending_last->next : &engine->ending_first) = job;
    engine->ending_last = job;
    pthread_cond_signal(&engine->watch);
}

void xn_engine_expire_locked(xn_engine *engine, int64_t now_ns) {
    xn_job *job;
    while ((job = xn_deadlines_first(&engine->deadlines)) && job->deadline_ns <= now_ns)
        xn_engine_end_job_locked(engine, job, XN_ERR_DEADLINE);
}

static void end_jobs_unlocked(xn_engine *engine) {
    char reason[sizeof engine->lost_reason];
    snprintf(reason, sizeof reason, "%s", engine->lost_reason);
    xn_job *jobs = engine->ending_first;
    engine->ending_first = engine->ending_last = NULL;
    pthread_mutex_unlock(&engine->mutex);
    end_jobs(jobs, reason);
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

/* ---- canaries ---- */

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
    snprintf(member->canary_error, sizeof member->canary_error, "%.120s",
             status == XN_OK ? "" : error.message);
    xn_engine_show_ready_locked(engine);
}

void *xn_canary_main(void *argument) {
    xn_engine *engine = argument;
    pthread_mutex_lock(&engine->mutex);
    int64_t next_ns = xn_now_ns() + engine->canary_interval_ns;
    while (!engine->stopping) {
        struct timespec until = xn_timespec(next_ns);
        if (xn_now_ns() < next_ns) {
            pthread_cond_timedwait(&engine->canary_stop, &engine->mutex, &until);
            continue;
        }
        for (int i = 0; i < engine->member_count && !engine->stopping; i++)
            if (engine->members[i].up)
                try_canary_unlocked(engine, i);
        next_ns = xn_now_ns() + engine->canary_interval_ns;
    }
    pthread_mutex_unlock(&engine->mutex);
    return NULL;
}
