/* endings.c: see endings.h. */
#include "endings.h"

#include "clock.h"
#include "queue.h"
#include "threads.h"

/* ---- deadlines ---- */

static xn_job *job_of(const xn_heap_node *node) {
    return XN_ITEM(node, xn_job, deadline);
}

static bool expires_before(const xn_heap_node *a, const xn_heap_node *b) {
    return job_of(a)->deadline_ns < job_of(b)->deadline_ns;
}

void xn_endings_watch_locked(xn_endings *endings, xn_job *job) {
    xn_lock_assert_mine(endings->lock);
    xn_heap_push(&endings->deadlines, &job->deadline);
    xn_loop_wake_by_locked(&endings->watcher, job->deadline_ns);
}

void xn_endings_expire_locked(xn_endings *endings, int64_t now_ns) {
    xn_heap_node *first;
    while ((first = endings->deadlines.first) && job_of(first)->deadline_ns <= now_ns)
        xn_endings_end_locked(endings, job_of(first), XN_ERR_DEADLINE, "");
}

/* ---- taking jobs out ---- */

void xn_endings_end_locked(xn_endings *endings, xn_job *job, xn_status status,
                           const char *lost_reason) {
    xn_lock_assert_mine(endings->lock);
    xn_heap_remove(&endings->deadlines, &job->deadline);
    if (job->state == XN_JOB_RUNNING) {
        job->state = XN_JOB_LATE;
        job->in_use = true;
    } else {
        if (job->queue) /* else it could not be moved from one to another */
            xn_queue_remove(job->queue, job);
        xn_metrics_gauge_add(endings->metrics, XN_GAUGE_QUEUE_DEPTH, -1);
        job->state = XN_JOB_ENDING;
    }
    if (status == XN_ERR_DEVICE_LOST)
        xn_fail(&job->error, status, NULL, "the request was not started: %s",
                *lost_reason ? lost_reason : "its backend has no device left");
    job->status = status;
    *(endings->first ? &endings->last->next : &endings->first) = job;
    endings->last = job;
    job->next = NULL;
    pthread_cond_signal(&endings->wake);
}

static void explain(xn_job *job, int64_t now_ns) {
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
    case XN_ERR_DEVICE_LOST: /* said when it was taken out */
        break;
    default:
        xn_fail(&job->error, job->status, NULL, "the request was taken back: %s",
                xn_status_name(job->status));
    }
}

/* done was called of a job in use. */
static void note_answered(xn_endings *endings, xn_job *job) {
    xn_lock_take(endings->lock);
    const bool over = job->state == XN_JOB_LATE_OVER;
    job->state = XN_JOB_ANSWERED;
    xn_lock_drop(endings->lock);
    if (over)
        job->released(job);
}

static void end_jobs(xn_endings *endings, xn_job *job) {
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
        explain(job, now_ns);
        job->done(job);
        if (in_use)
            note_answered(endings, job);
        job = next;
    }
}

/* ---- the end of a run ---- */

size_t xn_endings_settle(xn_endings *endings, xn_job **jobs, size_t count, xn_job **late) {
    size_t on_time = 0;
    *late = NULL;
    xn_lock_take(endings->lock);
    for (size_t i = 0; i < count; i++) {
        xn_job *job = jobs[i];
        if (job->state == XN_JOB_RUNNING) {
            xn_heap_remove(&endings->deadlines, &job->deadline);
            jobs[on_time++] = job;
        } else if (job->state == XN_JOB_ANSWERED) {
            job->next = *late;
            *late = job;
        } else {
            job->state = XN_JOB_LATE_OVER;
        }
    }
    xn_lock_drop(endings->lock);
    return on_time;
}

void xn_endings_release(xn_job *late) {
    while (late) {
        xn_job *next = late->next;
        late->released(late);
        late = next;
    }
}

/* ---- the watcher ---- */

int64_t xn_endings_step(void *state, int64_t now_ns) {
    xn_endings *endings = state;
    xn_endings_expire_locked(endings, now_ns);
    xn_job *jobs = endings->first;
    const bool fatal = !jobs && endings->fatal_pending && endings->on_fatal;
    if (!jobs && !fatal) {
        const xn_heap_node *next = endings->deadlines.first;
        return endings->closed ? XN_STEP_END : next ? job_of(next)->deadline_ns : XN_STEP_IDLE;
    }
    endings->first = endings->last = NULL;
    endings->fatal_pending = endings->fatal_pending && !fatal;
    void (*on_fatal)(void *context) = endings->on_fatal;
    void *context = endings->on_fatal_context;
    xn_lock_drop(endings->lock);
    end_jobs(endings, jobs);
    if (fatal)
        on_fatal(context);
    xn_lock_take(endings->lock);
    return XN_STEP_AGAIN;
}

void xn_endings_on_fatal(xn_endings *endings, void (*callback)(void *context), void *context) {
    xn_lock_take(endings->lock);
    endings->on_fatal = callback;
    endings->on_fatal_context = context;
    pthread_cond_signal(&endings->wake);
    xn_lock_drop(endings->lock);
}

void xn_endings_fail_locked(xn_endings *endings) {
    endings->fatal_pending = true;
    pthread_cond_signal(&endings->wake);
}

/* ---- life ---- */

void xn_endings_init(xn_endings *endings, xn_lock *lock) {
    *endings = (xn_endings){.lock = lock, .deadlines = {.before = expires_before}};
    xn_cond_init(&endings->wake);
}

xn_status xn_endings_start(xn_endings *endings, xn_metrics *metrics, xn_error *error) {
    endings->metrics = metrics;
    return xn_loop_start(&endings->watcher, "xn-watcher", endings->lock, &endings->wake,
                         xn_endings_step, endings, error);
}

void xn_endings_close(xn_endings *endings) {
    xn_lock_take(endings->lock);
    endings->closed = true;
    pthread_cond_signal(&endings->wake);
    xn_lock_drop(endings->lock);
    xn_loop_join(&endings->watcher);
}

void xn_endings_destroy(xn_endings *endings) {
    pthread_cond_destroy(&endings->wake);
}
