/* worker.c: one thread, one stream, one cache of programs. The thread waits for a batch, takes it
 * out of its pool's queue, and runs it without any lock.
 *
 * Waking is bounded: a submit wakes at most one worker, and a worker that takes a batch wakes
 * another when something is left. While the oldest group waits for company, one idle worker (the
 * pool is `timing`) sleeps until it is due; the others sleep until they are woken.
 *
 * Device memory. When it runs out, the worker waits until it is alone on its device, frees the
 * programs of all the device's workers and the recognised inline weights, and tries again; then it
 * halves the batch, down to single jobs. So a job is refused only if the device cannot hold it even
 * alone. */
#include "engine_internal.h"

#include "clock.h"
#include "log.h"
#include "work.h"

#include <assert.h>

/* ---- device memory: alone on the device ---- */

/* Whether others of the device are in a run; those that wait to be alone, as one of them does, are
 * not. */
static bool others_run_locked(const xn_member *member) {
    return member->running > member->starving;
}

/* From here to rejoin the other workers of the device do not run, and their programs are gone. Two
 * that wait for each other cannot hang: the one that waits does not count as running. */
static void be_alone(xn_worker *worker, const xn_error *why) {
    xn_engine *engine = worker->engine;
    xn_member *member = &engine->members[worker->member];
    xn_pool *pool = &engine->pools[worker->pool];
    xn_log(XN_LOG_WARN, NULL, "%s: out of device memory (%s); freeing programs and cached weights",
           member->info.id, why->message);
    pthread_mutex_lock(&engine->mutex);
    member->starving++;
    pthread_cond_broadcast(&pool->work); /* idle workers of this device go and wait in quiet */
    pthread_cond_broadcast(&pool->quiet);
    while (member->alone || others_run_locked(member))
        pthread_cond_wait(&pool->quiet, &engine->mutex);
    member->alone = true;
    pthread_mutex_unlock(&engine->mutex);
    for (int i = 0; i < engine->worker_count; i++)
        if (engine->workers[i].member == worker->member)
            xn_programs_trim(engine->workers[i].programs);
    xn_store_trim(engine->store);
}

static void rejoin(xn_worker *worker) {
    xn_engine *engine = worker->engine;
    xn_member *member = &engine->members[worker->member];
    pthread_mutex_lock(&engine->mutex);
    member->alone = false;
    member->starving--;
    pthread_cond_broadcast(&engine->pools[worker->pool].quiet);
    pthread_mutex_unlock(&engine->mutex);
}

/* ---- running ---- */

static int64_t images_of(xn_job *const *jobs, size_t count) {
    int64_t images = 0;
    for (size_t i = 0; i < count; i++)
        images += jobs[i]->images;
    return images;
}

/* The jobs of a launch. */
typedef struct company {
    xn_job *const *jobs;
    size_t count;
} company;

/* Whether somebody still waits for it. */
static bool is_wanted(void *context) {
    const company *all = context;
    const int64_t now_ns = xn_now_ns();
    for (size_t i = 0; i < all->count; i++)
        if (now_ns <= all->jobs[i]->deadline_ns && !atomic_load(&all->jobs[i]->unwanted))
            return true;
    return false;
}

xn_status xn_worker_launch(xn_worker *worker, xn_job *const *jobs, size_t count,
                           const xn_prepared *const *prepared, int64_t until_ns, xn_launch *out,
                           xn_error *error) {
    xn_status status =
        xn_programs_get(worker->programs, &jobs[0]->problem, out->images, &worker->program, error);
    if (status == XN_OK)
        status = xn_asset_ready(jobs[0]->asset, worker->program, prepared, error);
    if (status != XN_OK)
        return status;
    for (size_t i = 0; i < count; i++)
        worker->items[i] = (xn_batch_item){jobs[i]->input, jobs[i]->output, jobs[i]->images};
    out->precision = xn_program_precision(worker->program, prepared);
    company all = {jobs, count};
    return xn_program_run_wanted(worker->program, prepared, worker->items, count,
                                 &(xn_run_wish){is_wanted, &all, until_ns}, &out->times, error);
}

/* Why its launch was given up. */
static xn_status fail_unwanted(xn_job *job) {
    xn_status status = (xn_status)atomic_load(&job->unwanted);
    if (status != XN_OK)
        return xn_fail(&job->error, status, NULL, "the request was cancelled while it ran");
    return xn_fail(&job->error, XN_ERR_DEADLINE, "timeout_ms",
                   "the deadline passed during the computation, which was given up");
}

void xn_worker_count(xn_worker *worker, const xn_job *first, xn_status status, xn_launch *launch) {
    xn_engine *engine = worker->engine;
    if (status == XN_OK) {
        const xn_run_times *times = &launch->times;
        int64_t busy_ns = times->upload_ns + times->compute_ns + times->download_ns;
        xn_metrics_batch(engine->metrics, worker->member, launch->requests, launch->images,
                         busy_ns);
        xn_asset_count_requests(first->asset, launch->requests);
    }
    launch->finished_ns = xn_now_ns();
    xn_admission_finished(engine->admission, launch->requests, launch->finished_ns);
}

bool xn_worker_is_fault(xn_status status) {
    return status != XN_OK && status != XN_ERR_CANCELLED && status != XN_ERR_BUSY &&
           status != XN_ERR_LIMIT;
}

void xn_worker_conclude(const xn_worker *worker, xn_job *job, xn_status status,
                        const xn_launch *launch, const xn_error *error) {
    if (status != XN_OK)
        job->error = *error;
    job->status = status == XN_ERR_CANCELLED ? fail_unwanted(job) : status;
    job->times = launch->times;
    job->precision = launch->precision;
    job->device = worker->member;
    job->batch_requests = launch->requests;
    job->batch_images = launch->images;
    job->finished_ns = launch->finished_ns;
}

void xn_worker_finish(xn_worker *worker, xn_job **jobs, size_t count, xn_status status,
                      xn_launch *launch, const xn_error *error) {
    xn_engine *engine = worker->engine;
    xn_job *late;
    xn_worker_count(worker, jobs[0], status, launch);
    const size_t on_time = xn_engine_settle(engine, jobs, count, &late);
    for (size_t i = 0; i < on_time; i++)
        xn_worker_conclude(worker, jobs[i], status, launch, error);
    for (size_t i = 0; i < on_time; i++)
        jobs[i]->done(jobs[i]);
    xn_engine_release(late);
}

void xn_worker_report(xn_worker *worker, xn_status status, const xn_error *error,
                      const xn_job *job) {
    xn_engine *engine = worker->engine;
    if (status == XN_ERR_DEVICE_LOST) {
        xn_engine_lose_member(engine, worker->member, error);
        return;
    }
    xn_metrics_device_error(engine->metrics, worker->member);
    xn_log(XN_LOG_ERROR, job->id, "%s: a batch failed: %s", engine->members[worker->member].info.id,
           error->message);
}

static xn_status prepare(xn_worker *worker, const xn_prepared *const **prepared, xn_error *error) {
    xn_asset *asset = worker->jobs[0]->asset;
    xn_status status = xn_asset_prepared(asset, worker->member, prepared, error);
    if (status == XN_ERR_DEVICE_MEMORY) {
        be_alone(worker, error);
        status = xn_asset_prepared(asset, worker->member, prepared, error);
        rejoin(worker);
    }
    return status;
}

/* One job alone that the device has no memory for. */
static void explain_too_large(const xn_worker *worker, const xn_job *job, xn_error *error) {
    xn_error why = *error;
    xn_fail(error, XN_ERR_DEVICE_MEMORY, "input",
            "%s has not enough memory for this request (%lld images) even alone: %.200s; send "
            "fewer images at once",
            worker->engine->members[worker->member].info.id, (long long)job->images, why.message);
}

static xn_launch launch_of(xn_job *const *jobs, size_t count) {
    return (xn_launch){.precision = XN_PRECISION_FP32,
                       .requests = (int64_t)count,
                       .images = images_of(jobs, count)};
}

/* Runs jobs[0, count), in one launch if the device has the memory, else in smaller ones. */
static void run_batch(xn_worker *worker, size_t count) {
    xn_error error = {0};
    const xn_prepared *const *prepared = NULL;
    xn_launch out = launch_of(worker->jobs, count);
    xn_status status = prepare(worker, &prepared, &error);
    if (status != XN_OK) {
        xn_worker_report(worker, status, &error, worker->jobs[0]);
        xn_worker_finish(worker, worker->jobs, count, status, &out, &error);
        return;
    }
    size_t piece = count;
    bool alone = false;
    for (size_t at = 0; at < count;) {
        xn_job **jobs = &worker->jobs[at];
        size_t now = piece < count - at ? piece : count - at;
        out = launch_of(jobs, now);
        status = xn_worker_launch(worker, jobs, now, prepared, 0, &out, &error);
        if (status == XN_ERR_DEVICE_MEMORY && !alone) {
            be_alone(worker, &error);
            alone = true;
            continue;
        }
        if (status == XN_ERR_DEVICE_MEMORY && now > 1) {
            piece = (now + 1) / 2;
            continue;
        }
        if (alone)
            rejoin(worker);
        alone = false;
        if (status == XN_ERR_DEVICE_MEMORY)
            explain_too_large(worker, jobs[0], &error);
        if (status == XN_ERR_DEVICE_LOST) { /* the rest is lost with it */
            now = count - at;
            out = launch_of(jobs, now);
        }
        if (xn_worker_is_fault(status))
            xn_worker_report(worker, status, &error, jobs[0]);
        xn_worker_finish(worker, jobs, now, status, &out, &error);
        at += now;
    }
}

/* ---- programs that are not needed ---- */

/* Programs keep memory for the next run like theirs; what is little is not worth making anew. */
#define UNUSED_NS (5 * XN_NS_PER_S)
#define LITTLE_BYTES ((int64_t)1 << 20)

static bool keeps_much(const xn_worker *worker) {
    return xn_programs_bytes(worker->programs) > LITTLE_BYTES;
}

/* When an idle worker is to give its memory back. */
static int64_t tidy_ns(const xn_worker *worker) {
    if (worker->era != worker->engine->era)
        return INT64_MIN;
    return keeps_much(worker) ? worker->rest_ns + UNUSED_NS : INT64_MAX;
}

/* As a run, so that no other worker means to be alone. */
static void tidy_drop_lock(xn_worker *worker) {
    xn_engine *engine = worker->engine;
    worker->era = engine->era;
    engine->members[worker->member].running++;
    pthread_mutex_unlock(&engine->mutex);
    xn_programs_trim(worker->programs);
    pthread_mutex_lock(&engine->mutex);
    xn_worker_rest_locked(worker, 0);
}

void xn_inline_tidy_drop_lock(xn_worker *borrowed) {
    xn_engine *engine = borrowed->engine;
    while (borrowed->era != engine->era || keeps_much(borrowed)) {
        borrowed->era = engine->era;
        pthread_mutex_unlock(&engine->mutex);
        xn_programs_trim(borrowed->programs);
        pthread_mutex_lock(&engine->mutex);
    }
}

/* A free borrowed stream of a device that no worker means to be alone on; taken like for a run. */
static xn_worker *take_old_borrowed_locked(xn_engine *engine) {
    for (int i = 0; i < engine->member_count; i++) {
        xn_member *member = &engine->members[i];
        for (xn_worker **at = &member->streams; *at && !member->starving; at = &(*at)->next) {
            xn_worker *borrowed = *at;
            if (borrowed->era == engine->era)
                continue;
            *at = borrowed->next;
            member->running++;
            return borrowed;
        }
    }
    return NULL;
}

void xn_engine_drop_programs(xn_engine *engine) {
    xn_worker *borrowed;
    pthread_mutex_lock(&engine->mutex);
    engine->era++;
    for (int p = 0; p < engine->pool_count; p++)
        pthread_cond_broadcast(&engine->pools[p].work);
    while ((borrowed = take_old_borrowed_locked(engine))) {
        xn_inline_tidy_drop_lock(borrowed);
        xn_inline_free_locked(borrowed);
        xn_worker_rest_locked(borrowed, 0);
    }
    pthread_mutex_unlock(&engine->mutex);
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

/* Takes a batch into worker->jobs, and what it can use of the thread budget. 0: none is ready. */
static size_t take_locked(xn_worker *worker, int64_t now_ns, int *threads) {
    xn_engine *engine = worker->engine;
    xn_pool *pool = &engine->pools[worker->pool];
    size_t count = 0;
    if (pool->threads && !pool->threads_free)
        return 0;
    xn_job *job = xn_queue_take(pool->queue, engine->draining, now_ns, &count);
    for (size_t i = 0; job; i++, job = job->next) {
        assert(i < (size_t)engine->max_batch_images);
        worker->jobs[i] = job;
        job->state = XN_JOB_RUNNING;
        job->started_ns = now_ns;
        job->device = worker->member;
    }
    if (!count)
        return 0;
    xn_metrics_gauge_add(engine->metrics, XN_GAUGE_QUEUE_DEPTH, -(int64_t)count);
    *threads = 0;
    if (pool->threads) {
        /* A backend that cannot be told runs on the worker's own thread. */
        int most = pool->backend->stream_set_threads ? pool->threads_free : 1;
        int64_t images = images_of(worker->jobs, count);
        *threads = xn_worker_threads(&worker->jobs[0]->problem, images, most);
        pool->threads_free -= *threads;
    }
    return count;
}

/* Nothing to take: sleeps until woken, until the oldest group is due if nobody else does, or until
 * what the worker keeps is to be given back. */
static void idle_locked(xn_worker *worker, int64_t now_ns) {
    xn_engine *engine = worker->engine;
    xn_pool *pool = &engine->pools[worker->pool];
    int64_t wait_ns = xn_queue_wait_ns(pool->queue, engine->draining, now_ns);
    /* 0 with nothing taken: no thread of the budget is free; whoever gives some back wakes us. */
    bool timing = !pool->timing && wait_ns > 0 && wait_ns != XN_QUEUE_EMPTY;
    int64_t until_ns = tidy_ns(worker);
    if (timing && now_ns + wait_ns < until_ns)
        until_ns = now_ns + wait_ns;
    pool->idle++;
    pool->timing = pool->timing || timing;
    if (until_ns != INT64_MAX) {
        struct timespec until = xn_timespec(until_ns);
        pthread_cond_timedwait(&pool->work, &engine->mutex, &until);
    } else {
        pthread_cond_wait(&pool->work, &engine->mutex);
    }
    if (timing)
        pool->timing = false;
    pool->idle--;
}

bool xn_pool_wants_worker_locked(const xn_engine *engine, const xn_pool *pool, int64_t now_ns) {
    if (!pool->idle || (pool->threads && !pool->threads_free))
        return false;
    int64_t wait_ns = xn_queue_wait_ns(pool->queue, engine->draining, now_ns);
    return wait_ns == 0 || (wait_ns != XN_QUEUE_EMPTY && !pool->timing);
}

void xn_pool_wake(xn_pool *pool) {
    pthread_cond_signal(&pool->work);
}

void xn_worker_rest_locked(xn_worker *worker, int threads) {
    xn_pool *pool = &worker->engine->pools[worker->pool];
    xn_member *member = &worker->engine->members[worker->member];
    member->running--;
    if (member->starving)
        pthread_cond_broadcast(&pool->quiet);
    pool->threads_free += threads;
}

/* Runs the batch without the lock. */
static void run_unlocked(xn_worker *worker, size_t count, int threads) {
    xn_engine *engine = worker->engine;
    xn_pool *pool = &engine->pools[worker->pool];
    engine->members[worker->member].running++;
    bool wake = xn_pool_wants_worker_locked(engine, pool, xn_now_ns());
    pthread_mutex_unlock(&engine->mutex);
    if (wake)
        xn_pool_wake(pool);
    if (threads && pool->backend->stream_set_threads)
        pool->backend->stream_set_threads(worker->stream, threads);
    run_batch(worker, count);
    pthread_mutex_lock(&engine->mutex);
    xn_worker_rest_locked(worker, threads);
    worker->rest_ns = xn_now_ns();
}

void *xn_worker_main(void *argument) {
    xn_worker *worker = argument;
    xn_engine *engine = worker->engine;
    xn_pool *pool = &engine->pools[worker->pool];
    const xn_member *member = &engine->members[worker->member];
    pthread_mutex_lock(&engine->mutex);
    while (!engine->stopping && member->up) {
        if (member->starving) { /* another worker needs the device for itself */
            pthread_cond_wait(&pool->quiet, &engine->mutex);
            continue;
        }
        int64_t now_ns = xn_now_ns();
        int threads = 0;
        xn_engine_expire_locked(engine, now_ns);
        size_t count = take_locked(worker, now_ns, &threads);
        if (count)
            run_unlocked(worker, count, threads);
        else if (tidy_ns(worker) <= now_ns)
            tidy_drop_lock(worker);
        else
            idle_locked(worker, now_ns);
    }
    /* The wake that ended this worker may have been meant for work. */
    bool wake = xn_pool_wants_worker_locked(engine, pool, xn_now_ns());
    pthread_mutex_unlock(&engine->mutex);
    if (wake)
        xn_pool_wake(pool);
    return NULL;
}
