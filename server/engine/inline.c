/* inline.c: small jobs, run by the thread that has them. Handing a job to a worker and its answer
 * back costs two wake-ups of threads, several times the work of a small convolution. So where
 * nothing waits, the thread that would submit the job runs it: with a guest, a stream and a cache
 * of programs that belong to no worker, and on a thread of the pool's budget, which is its own.
 *
 * Nobody is worse off. With a job in the queue, or no thread of the budget free, jobs are submitted
 * and take their turn. The calling thread does work of at most --inline-us, by estimate, and waits
 * for nothing: weights that another thread would have to prepare first, and a device that is short
 * of memory, are the workers' business. */
#include "engine_internal.h"

#include "clock.h"
#include "work.h"

/* Forms of weights that programs want are made when the first one runs: of a large asset not on a
 * thread that has others to serve. */
#define ASSET_BYTES ((size_t)1 << 20)

void xn_guest_free_locked(xn_worker *guest) {
    xn_pool *pool = &guest->engine->pools[guest->pool];
    guest->next = pool->guests;
    pool->guests = guest;
}

static bool is_small(const xn_engine *engine, const xn_job *job) {
    return xn_work_image_ns(&job->problem) * (double)job->images <= engine->inline_ns &&
           xn_asset_bytes(job->asset) <= ASSET_BYTES;
}

/* A guest that may run it now, or NULL. */
static xn_worker *take_guest_locked(xn_engine *engine, const xn_job *job) {
    xn_pool *pool = &engine->pools[job->pool];
    xn_worker *guest = pool->guests;
    if (!guest || !pool->threads_free || engine->stopping || xn_queue_count(pool->queue))
        return NULL;
    const xn_member *member = &engine->members[guest->member];
    if (!member->up || member->starving || !xn_asset_is_prepared(job->asset, guest->member))
        return NULL;
    pool->guests = guest->next;
    pool->threads_free--;
    engine->inline_running++;
    guest->busy = true;
    return guest;
}

static void give_back(xn_worker *guest) {
    xn_engine *engine = guest->engine;
    xn_pool *pool = &engine->pools[guest->pool];
    pthread_mutex_lock(&engine->mutex);
    xn_guest_free_locked(guest);
    xn_worker_rest_locked(guest, 1);
    bool wake =
        xn_queue_count(pool->queue) && xn_pool_wants_worker_locked(engine, pool, xn_now_ns());
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
    xn_status status = xn_asset_prepared(job->asset, guest->member, &prepared, &error);
    if (status == XN_OK)
        status = xn_worker_launch(guest, &job, 1, prepared, &launch, &error);
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
