/* engine_end.c: jobs that will not run: expired, cancelled, or without a device. They leave the
 * queue under the lock, and the watcher calls their `done` without it. */
#include "engine_internal.h"

#include "clock.h"

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

void xn_engine_end_jobs(xn_job *job, const char *lost_reason) {
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
