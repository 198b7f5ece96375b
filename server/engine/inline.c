/* inline.c: small jobs, run by the thread that has them (caller-runs). Handing a job to a worker
 * and its answer back costs two wake-ups of threads, several times the work of a small convolution.
 * So where nothing waits, the thread that would submit the job runs it, on a borrowed stream with a
 * cache of programs, which no worker has. On a CPU it is a thread of the pool's budget meanwhile.
 * On a GPU, where runs take none, it waits for the device; each device has a stream for every
 * thread that may come, and the next job goes to the device with the fewest runs.
 *
 * It delays no other request. With a job in the queue that no idle worker is about to take, or no
 * thread of the budget free, jobs are submitted and take their turn. The calling thread does work
 * of at most --inline-us, by estimate, and waits for nothing else: weights that no device has yet,
 * and a device that is short of memory, are for the workers. Of one small asset that one device has
 * another makes its copy here: else jobs would go to the first for ever.
 *
 * A GPU may hang. At most half of the HTTP threads wait for GPUs at a time, so that the others can
 * tell of it whatever call of the driver does not return; and each waits for a run no longer than
 * WAIT_NS. Then try_run leaves the run to go on, submit hands it to the waiter, a thread that looks
 * at all such runs in turn, and the device gets no inline job before they are over. Until then the
 * job is one that runs: at its deadline it is answered as any other (engine_end.c).
 *
 * A borrowed stream has programs as a worker has, of one job each: --max-batch-images bounds no
 * job. */
#include "engine_internal.h"

#include "clock.h"
#include "work.h"

/* Forms of weights that programs want are made when the first one runs: of a large asset not on a
 * thread that has others to serve. */
#define ASSET_BYTES ((size_t)1 << 20)

#define WAIT_NS (5 * XN_NS_PER_MS) /* many times --inline-us, so that few runs are handed over */
#define LOOK_NS XN_NS_PER_MS       /* between two looks of the waiter */

int xn_inline_callers(int http_threads) {
    return http_threads / 2;
}

void xn_inline_free_locked(xn_worker *borrowed) {
    xn_member *member = &borrowed->engine->members[borrowed->member];
    borrowed->next = member->streams;
    member->streams = borrowed;
}

/* ---- whether and where ---- */

/* What the calling thread would be busy for. */
static double estimate_ns(const xn_pool *pool, const xn_job *job) {
    return pool->threads ? xn_work_image_ns(&job->problem) * (double)job->images
                         : xn_work_gpu_ns(&job->problem, job->images);
}

static bool is_small(const xn_engine *engine, const xn_job *job) {
    return estimate_ns(&engine->pools[job->pool], job) <= engine->inline_ns &&
           xn_asset_bytes(job->asset) <= ASSET_BYTES;
}

/* Whether it delays no job that waits. */
static bool has_room_locked(const xn_pool *pool) {
    const bool waits = xn_queue_count(pool->queue) > 0;
    if (pool->callers >= pool->callers_max)
        return false;
    return pool->threads ? pool->threads_free > 0 && !waits : !waits || pool->idle > 0;
}

/* Where a stream is free to run it on. */
static bool can_run_locked(const xn_member *member) {
    return member->streams && member->up && !member->starving && !member->handed_over;
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

/* A stream that may run it now, or NULL. */
static xn_worker *borrow_locked(xn_engine *engine, const xn_job *job) {
    xn_pool *pool = &engine->pools[job->pool];
    const bool open = !engine->stopping && has_room_locked(pool);
    const int index = open ? choose_member_locked(engine, pool, job) : -1;
    if (index < 0)
        return NULL;
    xn_member *member = &engine->members[index];
    xn_worker *borrowed = member->streams;
    member->streams = borrowed->next;
    member->running++;
    pool->turn = index + 1;
    pool->callers++;
    if (pool->threads)
        pool->threads_free--;
    engine->inline_running++;
    return borrowed;
}

static void give_back(xn_worker *borrowed) {
    xn_engine *engine = borrowed->engine;
    xn_pool *pool = &engine->pools[borrowed->pool];
    pthread_mutex_lock(&engine->mutex);
    if (borrowed->handed_over)
        engine->members[borrowed->member].handed_over--;
    else
        pool->callers--;
    borrowed->handed_over = false;
    xn_inline_tidy_drop_lock(borrowed);
    xn_inline_free_locked(borrowed);
    xn_worker_rest_locked(borrowed, pool->threads ? 1 : 0);
    /* A job that waits may have waited for the thread. */
    bool wake = pool->threads && xn_queue_count(pool->queue) &&
                xn_pool_wants_worker_locked(engine, pool, xn_now_ns());
    if (wake) /* before the last one is gone: then the pool may be */
        xn_pool_wake(pool);
    if (!--engine->inline_running && engine->stopping)
        pthread_cond_signal(&engine->inline_done);
    pthread_mutex_unlock(&engine->mutex);
}

/* ---- a run ---- */

typedef enum { NOT_RUN, OVER, GOES_ON } outcome;

static outcome run(xn_worker *borrowed, xn_job *job) {
    const xn_prepared *const *prepared;
    xn_launch *launch = &borrowed->launch;
    xn_error error;
    if (xn_asset_prepared(job->asset, borrowed->member, &prepared, &error))
        return NOT_RUN; /* another device may do better */
    const int64_t until_ns = xn_now_ns() + WAIT_NS;
    borrowed->jobs[0] = job;
    *launch = (xn_launch){.precision = XN_PRECISION_FP32, .requests = 1, .images = job->images};
    xn_status status =
        xn_worker_launch(borrowed, borrowed->jobs, 1, prepared,
                         until_ns < job->deadline_ns ? until_ns : job->deadline_ns, launch, &error);
    if (status == XN_ERR_DEVICE_MEMORY || status == XN_ERR_BUSY)
        return NOT_RUN;
    if (status == XN_ERR_DEADLINE)
        return GOES_ON;
    if (xn_worker_is_fault(status))
        xn_worker_report(borrowed, status, &error, job);
    xn_worker_count(borrowed, job, status, launch);
    xn_worker_conclude(borrowed, job, status, launch, &error);
    return OVER;
}

/* The calling thread waits no longer: the run is the waiter's, once the job is submitted. */
static void leave(xn_worker *borrowed, xn_job *job) {
    xn_engine *engine = borrowed->engine;
    job->caller = borrowed;
    pthread_mutex_lock(&engine->mutex);
    borrowed->handed_over = true;
    engine->members[borrowed->member].handed_over++;
    engine->pools[borrowed->pool].callers--;
    pthread_mutex_unlock(&engine->mutex);
}

bool xn_engine_try_run(xn_engine *engine, xn_job *job) {
    if (!is_small(engine, job))
        return false;
    int64_t now_ns = xn_now_ns();
    if (now_ns >= job->deadline_ns)
        return false;
    pthread_mutex_lock(&engine->mutex);
    xn_worker *borrowed = borrow_locked(engine, job);
    pthread_mutex_unlock(&engine->mutex);
    if (!borrowed)
        return false;
    job->submitted_ns = job->started_ns = now_ns;
    const outcome came = run(borrowed, job);
    if (came == GOES_ON)
        leave(borrowed, job);
    else
        give_back(borrowed);
    return came == OVER;
}

void xn_engine_await_inline(xn_engine *engine) {
    pthread_mutex_lock(&engine->mutex);
    while (engine->inline_running)
        pthread_cond_wait(&engine->inline_done, &engine->mutex);
    pthread_mutex_unlock(&engine->mutex);
}

/* ---- the waiter ---- */

void xn_inline_hand_over(xn_engine *engine, xn_job *job) {
    xn_worker *borrowed = job->caller;
    pthread_mutex_lock(&engine->mutex);
    job->state = XN_JOB_RUNNING;
    job->device = borrowed->member;
    xn_deadlines_add_reserved(&engine->deadlines, job);
    if (job->deadline_ns < engine->watch_until_ns)
        pthread_cond_signal(&engine->watch);
    borrowed->next = engine->handed_over;
    engine->handed_over = borrowed;
    pthread_cond_signal(&engine->waiter_work);
    pthread_mutex_unlock(&engine->mutex);
}

/* False: it goes on. */
static bool look_at(xn_worker *borrowed) {
    xn_error error;
    xn_status status =
        xn_program_wait(borrowed->program, xn_now_ns(), &borrowed->launch.times, &error);
    if (status == XN_ERR_DEADLINE)
        return false;
    if (status != XN_OK)
        xn_worker_report(borrowed, status, &error, borrowed->jobs[0]);
    xn_worker_finish(borrowed, borrowed->jobs, 1, status, &borrowed->launch, &error);
    give_back(borrowed);
    return true;
}

/* Those that go on. */
static xn_worker *look_at_all(xn_worker *all) {
    xn_worker *rest = NULL;
    while (all) {
        xn_worker *next = all->next;
        if (!look_at(all)) {
            all->next = rest;
            rest = all;
        }
        all = next;
    }
    return rest;
}

static void sleep_locked(xn_engine *engine) {
    const struct timespec until = xn_timespec(xn_now_ns() + LOOK_NS);
    if (engine->handed_over)
        pthread_cond_timedwait(&engine->waiter_work, &engine->mutex, &until);
    else
        pthread_cond_wait(&engine->waiter_work, &engine->mutex);
}

/* It never blocks in a wait, so that a device that hangs keeps no other's runs from their end. */
void *xn_waiter_main(void *argument) {
    xn_engine *engine = argument;
    pthread_mutex_lock(&engine->mutex);
    while (engine->handed_over || !engine->waiter_stop) {
        sleep_locked(engine);
        xn_worker *all = engine->handed_over, **end = &engine->handed_over;
        engine->handed_over = NULL;
        pthread_mutex_unlock(&engine->mutex);
        xn_worker *rest = look_at_all(all);
        pthread_mutex_lock(&engine->mutex);
        while (*end)
            end = &(*end)->next;
        *end = rest;
    }
    pthread_mutex_unlock(&engine->mutex);
    return NULL;
}
