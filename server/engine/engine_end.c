/* engine_end.c: jobs that will not run: expired, cancelled, or without a device. They leave the
 * queue under the lock, and the watcher calls their `done` without it. It does so too for a job
 * whose deadline passes in a run: a device may hang, and a run cannot be stopped. The device may
 * still read and write the job's memory then, so the submitter has it back (`released`) only when
 * the run is over. */
#include "engine_internal.h"

#include "clock.h"

static void explain(xn_job *job, int64_t now_ns, const char *lost_reason) {
    long long waited_us = (long long)((now_ns - job->submitted_ns) / XN_NS_PER_US);
    switch (job->status) {
    case XN_ERR_DEADLINE:
        if (job->in_use) {
            xn_fail(&job->error, job->status, "timeout_ms",
                    "the deadline passed during the computation, which has not ended yet");
            break;
        }
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

/* done was called of a job in use. */
static void note_answered(xn_engine *engine, xn_job *job) {
    pthread_mutex_lock(&engine->mutex);
    const bool over = job->state == XN_JOB_LATE_OVER;
    job->state = XN_JOB_ANSWERED;
    pthread_mutex_unlock(&engine->mutex);
    if (over)
        job->released(job);
}

void xn_engine_end_jobs(xn_engine *engine, xn_job *job, const char *lost_reason) {
    while (job) {
        xn_job *next = job->next;
        const bool in_use = job->in_use;
        int64_t now_ns = xn_now_ns();
        job->next = NULL;
        job->batch_requests = job->batch_images = 0;
        job->times = (xn_run_times){0};
        job->finished_ns = now_ns;
        if (!in_use) {
            job->device = -1;
            job->started_ns = now_ns;
        }
        explain(job, now_ns, lost_reason);
        job->done(job);
        if (in_use)
            note_answered(engine, job);
        job = next;
    }
}

void xn_engine_end_job_locked(xn_engine *engine, xn_job *job, xn_status status) {
    xn_queue_remove(engine->pools[job->pool].queue, job);
    xn_engine_end_taken_locked(engine, job, status);
}

static void append_ending_locked(xn_engine *engine, xn_job *job, xn_status status) {
    xn_deadlines_remove(&engine->deadlines, job);
    job->next = NULL;
    job->status = status;
    *(engine->ending_last ? &engine->ending_last->next : &engine->ending_first) = job;
    engine->ending_last = job;
    pthread_cond_signal(&engine->watch);
}

void xn_engine_end_taken_locked(xn_engine *engine, xn_job *job, xn_status status) {
    xn_metrics_gauge_add(engine->metrics, XN_GAUGE_QUEUE_DEPTH, -1);
    job->state = XN_JOB_ENDING;
    append_ending_locked(engine, job, status);
}

void xn_engine_expire_locked(xn_engine *engine, int64_t now_ns) {
    xn_job *job;
    while ((job = xn_deadlines_first(&engine->deadlines)) && job->deadline_ns <= now_ns) {
        if (job->state == XN_JOB_RUNNING) {
            job->state = XN_JOB_LATE;
            job->in_use = true;
            append_ending_locked(engine, job, XN_ERR_DEADLINE);
        } else {
            xn_engine_end_job_locked(engine, job, XN_ERR_DEADLINE);
        }
    }
}

size_t xn_engine_settle(xn_engine *engine, xn_job **jobs, size_t count, xn_job **late) {
    size_t on_time = 0;
    *late = NULL;
    pthread_mutex_lock(&engine->mutex);
    for (size_t i = 0; i < count; i++) {
        xn_job *job = jobs[i];
        if (job->state == XN_JOB_RUNNING) {
            xn_deadlines_remove(&engine->deadlines, job);
            jobs[on_time++] = job;
        } else if (job->state == XN_JOB_ANSWERED) {
            job->next = *late;
            *late = job;
        } else {
            job->state = XN_JOB_LATE_OVER;
        }
    }
    pthread_mutex_unlock(&engine->mutex);
    return on_time;
}

void xn_engine_release(xn_job *late) {
    while (late) {
        xn_job *next = late->next;
        late->released(late);
        late = next;
    }
}
