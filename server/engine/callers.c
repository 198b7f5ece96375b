/* callers.c: see callers.h. */
#include "callers.h"

#include "clock.h"
#include "threads.h"
#include "work.h"

/* Forms of weights that programs want are made when the first one runs: of a large asset not on a
 * thread that has others to serve. */
#define ASSET_BYTES ((size_t)1 << 20)

#define WAIT_NS (5 * XN_NS_PER_MS) /* many times --inline-us, so that few runs are handed over */
#define LOOK_NS XN_NS_PER_MS       /* between two looks of the waiter */

int xn_callers_of(int http_threads) {
    return http_threads / 2;
}

static xn_caller_device *device_of(const xn_callers *callers, const xn_caller_stream *stream) {
    return &callers->by_device[stream->runner.device->index];
}

static void free_locked(xn_callers *callers, xn_caller_stream *stream) {
    xn_caller_device *of = device_of(callers, stream);
    stream->next = of->free;
    of->free = stream;
}

/* ---- whether and where ---- */

/* What the calling thread would be busy for. */
static double estimate_ns(const xn_pool *pool, const xn_job *job) {
    return pool->threads ? xn_work_image_ns(&job->problem) * (double)job->images
                         : xn_work_gpu_ns(&job->problem, job->images);
}

static bool is_small(const xn_callers *callers, const xn_job *job) {
    return estimate_ns(&callers->pools->each[job->pool], job) <= callers->work_ns_max &&
           xn_asset_bytes(job->asset) <= ASSET_BYTES;
}

/* Whether it delays no job that waits. */
static bool has_room_locked(const xn_pool *pool, const xn_caller_pool *of) {
    const bool waits = xn_queue_count(pool->queue) > 0;
    if (of->callers >= pool->callers_max)
        return false;
    return pool->threads ? pool->threads_free > 0 && !waits : !waits || pool->idle > 0;
}

/* Where a stream is free to run it on. */
static bool can_run_locked(const xn_callers *callers, const xn_engine_device *device) {
    const xn_caller_device *of = &callers->by_device[device->index];
    return of->free && atomic_load(&device->up) && !device->oom_waiters && !of->handed_over;
}

/* The device of the pool with the fewest runs, of equal ones one that has the asset, else the one
 * whose turn it is; -1: none can, or none has the asset. */
static int choose_device_locked(const xn_callers *callers, int turn, const xn_job *job) {
    const xn_pools *pools = callers->pools;
    int best = -1;
    bool any_has = false, best_has = false;
    for (int k = 0; k < pools->device_count; k++) {
        const int i = (turn + k) % pools->device_count;
        const xn_engine_device *device = &pools->devices[i];
        if (device->pool != job->pool || !can_run_locked(callers, device))
            continue;
        const bool has = xn_asset_is_prepared(job->asset, i);
        any_has = any_has || has;
        if (best < 0 || device->running < pools->devices[best].running ||
            (device->running == pools->devices[best].running && has && !best_has)) {
            best = i;
            best_has = has;
        }
    }
    return any_has ? best : -1;
}

/* A stream that may run it now, or NULL. */
static xn_caller_stream *borrow_locked(xn_callers *callers, const xn_job *job) {
    xn_pool *pool = &callers->pools->each[job->pool];
    xn_caller_pool *of = &callers->by_pool[job->pool];
    const bool open = !callers->pools->stopping && has_room_locked(pool, of);
    const int index = open ? choose_device_locked(callers, of->turn, job) : -1;
    if (index < 0)
        return NULL;
    xn_caller_stream *stream = callers->by_device[index].free;
    callers->by_device[index].free = stream->next;
    xn_engine_device_begin_locked(stream->runner.device);
    of->turn = index + 1;
    of->callers++;
    if (pool->threads)
        pool->threads_free--;
    callers->running++;
    return stream;
}

/* Gives back what a stream that is not free need not keep. */
static void trim_drop_lock(xn_pools *pools, xn_runner *runner) {
    while (runner->era != pools->era || xn_runner_keeps_much(runner)) {
        runner->era = pools->era;
        xn_lock_drop(pools->lock);
        xn_programs_trim(runner->programs);
        xn_lock_take(pools->lock);
    }
}

static void give_back(xn_callers *callers, xn_caller_stream *stream) {
    xn_pools *pools = callers->pools;
    const int index = stream->runner.device->pool;
    xn_pool *pool = &pools->each[index];
    xn_lock_take(pools->lock);
    if (stream->handed_over)
        device_of(callers, stream)->handed_over--;
    else
        callers->by_pool[index].callers--;
    stream->handed_over = false;
    trim_drop_lock(pools, &stream->runner);
    free_locked(callers, stream);
    xn_engine_device_end_locked(stream->runner.device);
    if (pool->threads)
        pool->threads_free++;
    /* A job that waits may have waited for the thread. */
    if (pool->threads && (xn_queue_count(pool->queue) || pools->warm_ups) &&
        xn_pools_want_worker_locked(pools, pool, xn_now_ns()))
        pthread_cond_signal(&pool->work); /* before the last one is gone: then the pool may be */
    if (!--callers->running && pools->stopping)
        pthread_cond_signal(&callers->none_runs);
    xn_lock_drop(pools->lock);
}

/* Out of the free ones, without a thread of the budget; false: it is in use, or a worker frees all
 * programs of the device. */
static bool take_free_locked(xn_callers *callers, xn_caller_stream *stream) {
    xn_engine_device *device = stream->runner.device;
    xn_caller_stream **at = &device_of(callers, stream)->free;
    while (*at && *at != stream)
        at = &(*at)->next;
    if (!*at || device->oom_waiters)
        return false;
    *at = stream->next;
    xn_engine_device_begin_locked(device);
    return true;
}

static void put_back_drop_lock(xn_callers *callers, xn_caller_stream *stream) {
    trim_drop_lock(callers->pools, &stream->runner);
    free_locked(callers, stream);
    xn_engine_device_end_locked(stream->runner.device);
}

void xn_callers_drop_programs(xn_callers *callers) {
    xn_lock_take(callers->pools->lock);
    for (int i = 0; i < callers->stream_count; i++)
        if (take_free_locked(callers, &callers->streams[i]))
            put_back_drop_lock(callers, &callers->streams[i]);
    xn_lock_drop(callers->pools->lock);
}

void xn_callers_make_programs(xn_callers *callers, int device, const xn_job *job) {
    xn_lock *lock = callers->pools->lock;
    if (!is_small(callers, job))
        return;
    xn_lock_take(lock);
    for (int i = 0; i < callers->stream_count; i++) {
        xn_caller_stream *stream = &callers->streams[i];
        xn_program *made;
        if (stream->runner.device->index != device || !atomic_load(&stream->runner.device->up) ||
            !take_free_locked(callers, stream))
            continue;
        xn_lock_drop(lock);
        (void)xn_programs_get(stream->runner.programs, &job->problem, job->images, &made, NULL);
        xn_lock_take(lock);
        put_back_drop_lock(callers, stream);
    }
    xn_lock_drop(lock);
}

/* ---- a run ---- */

typedef enum { NOT_RUN, OVER, GOES_ON } outcome;

static outcome run(xn_caller_stream *stream, xn_job *job) {
    const xn_prepared *const *prepared;
    xn_runner *runner = &stream->runner;
    xn_error error;
    if (xn_asset_prepared(job->asset, runner->device->index, &prepared, &error))
        return NOT_RUN; /* another device may do better */
    const int64_t until_ns = xn_now_ns() + WAIT_NS;
    runner->jobs[0] = job;
    stream->launch = xn_launch_of(runner->jobs, 1);
    xn_status status = xn_runner_launch(runner, runner->jobs, 1, prepared,
                                        until_ns < job->deadline_ns ? until_ns : job->deadline_ns,
                                        &stream->launch, &error);
    if (status == XN_ERR_DEVICE_MEMORY || status == XN_ERR_BUSY)
        return NOT_RUN;
    if (status == XN_ERR_DEADLINE)
        return GOES_ON;
    xn_runner_report(runner, status, &error, job);
    xn_runner_count(runner, job, status, &stream->launch);
    xn_runner_conclude(runner, job, status, &stream->launch, &error);
    return OVER;
}

/* The calling thread waits no longer: the run is the waiter's, once the job is submitted. */
static void leave(xn_callers *callers, xn_caller_stream *stream, xn_job *job) {
    job->caller = stream;
    xn_lock_take(callers->pools->lock);
    stream->handed_over = true;
    device_of(callers, stream)->handed_over++;
    callers->by_pool[stream->runner.device->pool].callers--;
    xn_lock_drop(callers->pools->lock);
}

bool xn_callers_try_run(xn_callers *callers, xn_job *job) {
    if (!is_small(callers, job))
        return false;
    int64_t now_ns = xn_now_ns();
    if (now_ns >= job->deadline_ns)
        return false;
    xn_lock_take(callers->pools->lock);
    xn_caller_stream *stream = borrow_locked(callers, job);
    xn_lock_drop(callers->pools->lock);
    if (!stream)
        return false;
    job->submitted_ns = job->started_ns = now_ns;
    const outcome came = run(stream, job);
    if (came == GOES_ON)
        leave(callers, stream, job);
    else
        give_back(callers, stream);
    return came == OVER;
}

/* ---- the waiter ---- */

void xn_callers_hand_over(xn_callers *callers, xn_job *job) {
    xn_caller_stream *stream = job->caller;
    xn_lock_take(callers->pools->lock);
    job->state = XN_JOB_RUNNING;
    job->device = stream->runner.device->index;
    xn_endings_watch_locked(callers->pools->endings, job);
    stream->next = callers->handed_over;
    callers->handed_over = stream;
    pthread_cond_signal(&callers->wake);
    xn_lock_drop(callers->pools->lock);
}

/* False: it goes on. */
static bool look_at(xn_callers *callers, xn_caller_stream *stream) {
    xn_runner *runner = &stream->runner;
    xn_error error;
    xn_status status = xn_program_wait(runner->program, xn_now_ns(), &stream->launch.times, &error);
    if (status == XN_ERR_DEADLINE)
        return false;
    xn_runner_report(runner, status, &error, runner->jobs[0]);
    xn_runner_finish(runner, runner->jobs, 1, status, &stream->launch, &error);
    give_back(callers, stream);
    return true;
}

/* It never blocks in a wait, so that a device that hangs keeps no other's runs from their end. */
int64_t xn_callers_step(void *state, int64_t now_ns) {
    xn_callers *callers = state;
    xn_caller_stream *all = callers->handed_over, *rest = NULL, **end = &rest;
    if (!all)
        return callers->stopping ? XN_STEP_END : XN_STEP_IDLE;
    callers->handed_over = NULL;
    xn_lock_drop(callers->pools->lock);
    for (xn_caller_stream *next; all; all = next) {
        next = all->next;
        if (look_at(callers, all))
            continue;
        *end = all;
        end = &all->next;
    }
    xn_lock_take(callers->pools->lock);
    *end = callers->handed_over;
    callers->handed_over = rest;
    return rest ? now_ns + LOOK_NS : XN_STEP_AGAIN;
}

/* ---- life ---- */

xn_status xn_callers_init(xn_callers *callers, xn_pools *pools, double work_ns_max,
                          int64_t max_batch_images, xn_error *error) {
    int streams = 0;
    for (int i = 0; i < pools->device_count; i++)
        streams += pools->each[pools->devices[i].pool].callers_max;
    callers->pools = pools;
    callers->work_ns_max = work_ns_max;
    xn_cond_init(&callers->none_runs);
    xn_cond_init(&callers->wake);
    callers->by_pool = xn_mem_zalloc((size_t)pools->count, sizeof *callers->by_pool);
    callers->by_device = xn_mem_zalloc((size_t)pools->device_count, sizeof *callers->by_device);
    callers->streams = xn_mem_zalloc((size_t)streams, sizeof *callers->streams);
    if (!callers->by_pool || !callers->by_device || !callers->streams)
        return xn_fail(error, XN_ERR_NO_MEMORY, NULL, "no memory for the engine's streams");
    for (int i = 0; i < pools->device_count; i++)
        for (int k = 0; k < pools->each[pools->devices[i].pool].callers_max; k++) {
            xn_caller_stream *stream = &callers->streams[callers->stream_count++];
            xn_status status = xn_runner_init(&stream->runner, pools, &pools->devices[i], 1, 1,
                                              max_batch_images, error);
            if (status != XN_OK)
                return status;
            free_locked(callers, stream);
        }
    return XN_OK;
}

xn_status xn_callers_start(xn_callers *callers, xn_error *error) {
    return xn_loop_start(&callers->waiter, "xn-waiter", callers->pools->lock, &callers->wake,
                         xn_callers_step, callers, error);
}

void xn_callers_stop(xn_callers *callers) {
    if (!callers->pools)
        return;
    xn_lock_take(callers->pools->lock);
    while (callers->running)
        xn_lock_wait(callers->pools->lock, &callers->none_runs, INT64_MAX);
    callers->stopping = true;
    pthread_cond_signal(&callers->wake);
    xn_lock_drop(callers->pools->lock);
    xn_loop_join(&callers->waiter);
}

void xn_callers_destroy(xn_callers *callers) {
    if (!callers->pools)
        return;
    for (int i = 0; i < callers->stream_count; i++)
        xn_runner_destroy(&callers->streams[i].runner);
    xn_mem_free(callers->streams);
    xn_mem_free(callers->by_device);
    xn_mem_free(callers->by_pool);
    pthread_cond_destroy(&callers->wake);
    pthread_cond_destroy(&callers->none_runs);
}
