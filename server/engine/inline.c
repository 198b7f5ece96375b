/* inline.c: small jobs, run by the thread that has them. Handing a job to a worker and its answer
 * back costs two wake-ups of threads, several times the work of a small convolution. So where
 * nothing waits, the thread that would submit the job runs it: with a guest, a stream and a cache
 * of programs that belong to no worker, and on a thread of the pool's budget, which is its own. On
 * a GPU, where runs take none, the thread waits for the device; each device has a guest for every
 * thread that may come, and the next job goes to the device with the fewest runs.
 *
 * Nobody is worse off. With a job in the queue that no idle worker is about to take, or no thread
 * of the budget free, jobs are submitted and take their turn. The calling thread does work of at
 * most --inline-us, by estimate, and waits for nothing else: weights that no device has yet, and a
 * device that is short of memory, are the workers' business. Of one small asset that one device has
 * another makes its copy here: else jobs would go to the first for ever.
 *
 * A guest has programs as a worker has, of one job each: --max-batch-images bounds no job. */
#include "engine_internal.h"

#include "clock.h"
#include "work.h"

/* Forms of weights that programs want are made when the first one runs: of a large asset not on a
 * thread that has others to serve. */
#define ASSET_BYTES ((size_t)1 << 20)

void xn_guest_free_locked(xn_worker *guest) {
    xn_member *member = &guest->engine->members[guest->member];
    guest->next = member->guests;
    member->guests = guest;
}

/* What the calling thread would be busy for. */
static double estimate_ns(const xn_pool *pool, const xn_job *job) {
    return pool->threads ? xn_work_image_ns(&job->problem) * (double)job->images
                         : xn_work_gpu_ns(&job->problem, job->images);
}

static bool is_small(const xn_engine *engine, const xn_job *job) {
    return estimate_ns(&engine->pools[job->pool], job) <= engine->inline_ns &&
           xn_asset_bytes(job->asset) <= ASSET_BYTES;
}

/* Whether it holds up nobody who waits. */
static bool has_room_locked(const xn_pool *pool) {
    const bool waits = xn_queue_count(pool->queue) > 0;
    return pool->threads ? pool->threads_free > 0 && !waits : !waits || pool->idle > 0;
}

/* Where a guest is free that may run it. */
static bool can_run_locked(const xn_member *member) {
    return member->guests && member->up && !member->starving;
}

/* The member of the pool with the fewest runs, of equal ones one that has the asset, else the one
 * whose turn it is; -1: none can, or none has the asset. */
static int choose_member_locked(const xn_engine *engine, const xn_pool *pool, const xn_job *job) {
    int best = -1;
    bool any_has = false, best_has = false;
    for (int k = 0; k < engine->member_count; k++) {
        const int i = (pool->turn + k) % engine->member_count;
        const xn_member *member = &engine->members[i];
        if (member->pool != job->pool || !can_run_locked(member))
            continue;
        const bool has = xn_asset_is_prepared(job->asset, i);
        any_has = any_has || has;
        if (best < 0 || member->running < engine->members[best].running ||
            (member->running == engine->members[best].running && has && !best_has)) {
            best = i;
            best_has = has;
        }
    }
    return any_has ? best : -1;
}

/* A guest that may run it now, or NULL. */
static xn_worker *take_guest_locked(xn_engine *engine, const xn_job *job) {
    xn_pool *pool = &engine->pools[job->pool];
    const bool open = !engine->stopping && has_room_locked(pool);
    const int index = open ? choose_member_locked(engine, pool, job) : -1;
    if (index < 0)
        return NULL;
    xn_member *member = &engine->members[index];
    xn_worker *guest = member->guests;
    member->guests = guest->next;
    member->running++;
    pool->turn = index + 1;
    if (pool->threads)
        pool->threads_free--;
    engine->inline_running++;
    return guest;
}

static void give_back(xn_worker *guest) {
    xn_engine *engine = guest->engine;
    xn_pool *pool = &engine->pools[guest->pool];
    pthread_mutex_lock(&engine->mutex);
    xn_guest_free_locked(guest);
    xn_worker_rest_locked(guest, pool->threads ? 1 : 0);
    /* Whoever waits may have waited for the thread. */
    bool wake = pool->threads && xn_queue_count(pool->queue) &&
                xn_pool_wants_worker_locked(engine, pool, xn_now_ns());
    if (wake) /* before the last one is gone: then the pool may be */
        xn_pool_wake(pool);
    if (!--engine->inline_running && engine->stopping)
        pthread_cond_signal(&engine->inline_done);
    pthread_mutex_unlock(&engine->mutex);
}

/* False: it has not run. */
static bool run(xn_worker *guest, xn_job *job) {
    xn_launch launch = {.precision = XN_PRECISION_FP32};
    const xn_prepared *const *prepared;
    xn_error error;
    if (xn_asset_prepared(job->asset, guest->member, &prepared, &error))
        return false; /* another device may do better */
    xn_status status = xn_worker_launch(guest, &job, 1, prepared, &launch, &error);
    if (status == XN_ERR_DEVICE_MEMORY)
        return false;
    if (status != XN_OK && status != XN_ERR_CANCELLED)
        xn_worker_report(guest, status, &error, job);
    xn_worker_conclude(guest, &job, 1, status, &launch, &error);
    return true;
}

bool xn_engine_try_run(xn_engine *engine, xn_job *job) {
    if (!is_small(engine, job))
        return false;
    int64_t now_ns = xn_now_ns();
    if (now_ns >= job->deadline_ns)
        return false;
    pthread_mutex_lock(&engine->mutex);
    xn_worker *guest = take_guest_locked(engine, job);
    pthread_mutex_unlock(&engine->mutex);
    if (!guest)
        return false;
    job->submitted_ns = job->started_ns = now_ns;
    bool done = run(guest, job);
    give_back(guest);
    return done;
}

void xn_engine_await_inline(xn_engine *engine) {
    pthread_mutex_lock(&engine->mutex);
    while (engine->inline_running)
        pthread_cond_wait(&engine->inline_done, &engine->mutex);
    pthread_mutex_unlock(&engine->mutex);
}
