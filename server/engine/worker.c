/* worker.c: see worker.h.
 *
 * Device memory. When it runs out, the worker enters the device's exclusive section (device.h) and
 * tries again; then it halves the batch, down to single jobs. So a job is refused only if the
 * device cannot hold it even alone. */
#include "worker.h"

#include "clock.h"
#include "work.h"

#include <stdio.h>

/* ---- running ---- */

static void enter_exclusive(xn_worker *worker, const xn_error *why) {
    xn_engine_device_enter_exclusive(worker->runner.device, worker->pools->services->store,
                                     &worker->pool->work, why);
}

static xn_status prepare(xn_worker *worker, const xn_prepared *const **prepared, xn_error *error) {
    const xn_runner *runner = &worker->runner;
    xn_asset *asset = runner->jobs[0]->asset;
    xn_status status = xn_asset_prepared(asset, runner->device->index, prepared, error);
    if (status == XN_ERR_DEVICE_MEMORY) {
        enter_exclusive(worker, error);
        status = xn_asset_prepared(asset, runner->device->index, prepared, error);
        xn_engine_device_leave_exclusive(runner->device);
    }
    return status;
}

/* One job alone that the device has no memory for. */
static void explain_too_large(const xn_runner *runner, const xn_job *job, xn_error *error) {
    xn_error why = *error;
    xn_fail(error, XN_ERR_DEVICE_MEMORY, "input",
            "%s has not enough memory for this request (%lld images) even alone: %.200s; send "
            "fewer images at once",
            runner->device->info.id, (long long)job->images, why.message);
}

/* Runs runner->jobs[0, count), in one launch if the device has the memory, else in smaller ones. */
static void run_batch(xn_worker *worker, size_t count) {
    xn_runner *runner = &worker->runner;
    xn_error error = {0};
    const xn_prepared *const *prepared = NULL;
    xn_launch out = xn_launch_of(runner->jobs, count);
    xn_status status = prepare(worker, &prepared, &error);
    if (status != XN_OK) {
        xn_runner_report(runner, status, &error, runner->jobs[0]);
        xn_runner_finish(runner, runner->jobs, count, status, &out, &error);
        return;
    }
    size_t piece = count;
    bool exclusive = false;
    for (size_t at = 0; at < count;) {
        xn_job **jobs = &runner->jobs[at];
        size_t now = piece < count - at ? piece : count - at;
        out = xn_launch_of(jobs, now);
        status = xn_runner_launch(runner, jobs, now, prepared, 0, &out, &error);
        if (status == XN_ERR_DEVICE_MEMORY && !exclusive) {
            enter_exclusive(worker, &error);
            exclusive = true;
            continue;
        }
        if (status == XN_ERR_DEVICE_MEMORY && now > 1) {
            piece = (now + 1) / 2;
            continue;
        }
        if (exclusive)
            xn_engine_device_leave_exclusive(runner->device);
        exclusive = false;
        if (status == XN_ERR_DEVICE_MEMORY)
            explain_too_large(runner, jobs[0], &error);
        if (status == XN_ERR_DEVICE_LOST) { /* the rest is lost with it */
            now = count - at;
            out = xn_launch_of(jobs, now);
        }
        xn_runner_report(runner, status, &error, jobs[0]);
        xn_runner_finish(runner, jobs, now, status, &out, &error);
        at += now;
    }
}

static void wake_another_drop_lock(const xn_worker *worker, int64_t now_ns) {
    const bool wake = xn_pools_want_worker_locked(worker->pools, worker->pool, now_ns);
    xn_lock_drop(worker->pools->lock);
    if (wake)
        pthread_cond_signal(&worker->pool->work);
}

/* Runs the batch in runner->jobs on `threads` threads of the budget. */
static void run_drop_lock(xn_worker *worker, size_t count, int threads, int64_t now_ns) {
    xn_engine_device *device = worker->runner.device;
    xn_pool *pool = worker->pool;
    xn_engine_device_begin_locked(device);
    wake_another_drop_lock(worker, now_ns);
    if (threads && pool->backend->stream_set_threads)
        pool->backend->stream_set_threads(worker->runner.stream, threads);
    run_batch(worker, count);
    xn_lock_take(worker->pools->lock);
    xn_engine_device_end_locked(device);
    pool->threads_free += threads;
    worker->rest_ns = xn_now_ns();
}

/* ---- programs that are not needed ---- */

#define UNUSED_NS (5 * XN_NS_PER_S) /* how long an idle worker keeps memory for the next run */

/* When an idle worker is to give its memory back. */
static int64_t trim_ns(const xn_worker *worker) {
    if (worker->runner.era != worker->pools->era)
        return INT64_MIN;
    return xn_runner_keeps_much(&worker->runner) ? worker->rest_ns + UNUSED_NS : INT64_MAX;
}

/* As a run, so that no other worker enters the exclusive section. */
static void trim_drop_lock(xn_worker *worker) {
    worker->runner.era = worker->pools->era;
    xn_engine_device_begin_locked(worker->runner.device);
    xn_lock_drop(worker->pools->lock);
    xn_programs_trim(worker->runner.programs);
    xn_lock_take(worker->pools->lock);
    xn_engine_device_end_locked(worker->runner.device);
}

/* ---- taking ---- */

int xn_worker_threads(const xn_problem *problem, int64_t images, int limit) {
    /* What is taken here is kept from others. So a batch that one core does in less than alone_ns
     * takes one thread, and a longer one a thread for every thread_ns of its work: with less to do,
     * a thread would not be worth waking. */
    const double alone_ns = 100e3, thread_ns = 40e3;
    double ns = xn_work_image_ns(problem) * (double)images;
    double threads = ns < alone_ns ? 1.0 : ns / thread_ns;
    return threads >= (double)limit ? limit : (int)threads;
}

/* Takes a batch into runner->jobs, and what it can use of the thread budget. 0: none is ready. */
static size_t take_locked(xn_worker *worker, int64_t now_ns, int *threads) {
    xn_pool *pool = worker->pool;
    xn_job **jobs = worker->runner.jobs;
    size_t count = 0;
    *threads = 0;
    if (pool->threads && !pool->threads_free)
        return 0;
    xn_job *job = xn_pools_warm_up_locked(worker->pools, pool, worker->runner.device);
    if (job)
        count = 1;
    else
        job = xn_queue_take(pool->queue, worker->pools->draining, now_ns, &count);
    for (size_t i = 0; job; i++, job = job->next) {
        assert(i < (size_t)worker->max_batch_images);
        jobs[i] = job;
        job->state = XN_JOB_RUNNING;
        job->started_ns = now_ns;
        job->device = worker->runner.device->index;
    }
    if (!count)
        return 0;
    xn_metrics_gauge_add(worker->pools->services->metrics, XN_GAUGE_QUEUE_DEPTH, -(int64_t)count);
    if (pool->threads) {
        /* A backend that cannot be told runs on the worker's own thread. */
        int most = pool->backend->stream_set_threads ? pool->threads_free : 1;
        *threads = xn_worker_threads(&jobs[0]->problem, xn_launch_of(jobs, count).images, most);
        pool->threads_free -= *threads;
    }
    return count;
}

/* ---- sleeping ---- */

/* Nothing to take: until it is woken, until the oldest group is due if no other worker waits for
 * that, or until what it keeps is to be given back. */
static int64_t fall_idle_locked(xn_worker *worker, int64_t now_ns) {
    xn_pool *pool = worker->pool;
    int64_t wait_ns = xn_queue_wait_ns(pool->queue, worker->pools->draining, now_ns);
    int64_t until_ns = trim_ns(worker);
    /* 0 with nothing taken: no thread of the budget is free; a worker that gives some back wakes
     * this one. */
    worker->lingers = !pool->lingering && wait_ns > 0 && wait_ns != XN_QUEUE_EMPTY;
    if (worker->lingers && now_ns + wait_ns < until_ns)
        until_ns = now_ns + wait_ns;
    worker->idle = true;
    pool->idle++;
    pool->lingering = pool->lingering || worker->lingers;
    return until_ns;
}

static void wake_up_locked(xn_worker *worker) {
    if (worker->lingers)
        worker->pool->lingering = false;
    if (worker->idle)
        worker->pool->idle--;
    worker->idle = worker->lingers = false;
}

/* ---- the thread ---- */

int64_t xn_worker_step(void *state, int64_t now_ns) {
    xn_worker *worker = state;
    xn_pools *pools = worker->pools;
    xn_engine_device *device = worker->runner.device;
    int threads;
    xn_lock_assert_mine(pools->lock);
    wake_up_locked(worker);
    if (pools->stopping || !atomic_load(&device->up)) {
        /* The wake-up that ends this worker may have been meant for work. */
        wake_another_drop_lock(worker, now_ns);
        xn_lock_take(pools->lock);
        return XN_STEP_END;
    }
    /* Another worker needs the device for itself: this one takes no wake-up of the pool's. */
    worker->loop.wake = device->oom_waiters ? &device->changed : &worker->pool->work;
    if (device->oom_waiters) {
        /* A wake-up for work that was on its way here is for a worker of another device. */
        if (xn_pools_want_worker_locked(pools, worker->pool, now_ns))
            pthread_cond_signal(&worker->pool->work);
        return XN_STEP_IDLE;
    }
    xn_endings_expire_locked(pools->endings, now_ns);
    const size_t count = take_locked(worker, now_ns, &threads);
    if (count)
        run_drop_lock(worker, count, threads, now_ns);
    else if (trim_ns(worker) <= now_ns)
        trim_drop_lock(worker);
    else
        return fall_idle_locked(worker, now_ns);
    return XN_STEP_AGAIN;
}

xn_status xn_worker_init(xn_worker *worker, xn_pools *pools, xn_engine_device *device,
                         int64_t max_batch_images, xn_error *error) {
    worker->pools = pools;
    worker->pool = &pools->each[device->pool];
    worker->max_batch_images = max_batch_images;
    return xn_runner_init(&worker->runner, pools, device, max_batch_images, worker->pool->threads,
                          max_batch_images, error);
}

xn_status xn_worker_start(xn_worker *worker, int number, xn_error *error) {
    char name[16]; /* the most that Linux takes */
    snprintf(name, sizeof name, "xn-w%d", number);
    return xn_loop_start(&worker->loop, name, worker->pools->lock, &worker->pool->work,
                         xn_worker_step, worker, error);
}
