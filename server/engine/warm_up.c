/* warm_up.c: runs of an asset on every device before it serves, so that the first request finds
 * made what first runs make: forms of weights, plans, kernels that are loaded when they are first
 * launched. A run is a job of zeroes that a worker of the device takes (pools.h); callers have
 * programs of their own, which are made behind it. */
#include "clock.h"
#include "engine_struct.h"
#include "log.h"
#include "threads.h"
#include "work.h"

#include <string.h>

/* On the CPU larger batches are not run: what they make first takes far less than they do. */
#define MOST_WORK_NS 25e6

/* ---- one run ---- */

/* Signals under the lock: without it the waiter might be gone. */
static void end(xn_job *job) {
    xn_engine *engine = job->context;
    xn_warm_up *up = (xn_warm_up *)job;
    xn_lock_take(&engine->lock);
    up->over = true;
    pthread_cond_signal(&up->ended);
    xn_lock_drop(&engine->lock);
}

static void done(xn_job *job) {
    if (!job->in_use)
        end(job);
}

static void insert(xn_engine *engine, xn_warm_up *up) {
    xn_lock_take(&engine->lock);
    up->next = engine->pools.warm_ups;
    engine->pools.warm_ups = up;
    xn_lock_drop(&engine->lock);
}

static void leave(xn_engine *engine, xn_warm_up *up) {
    xn_ticket_leave(&up->ticket);
    xn_lock_take(&engine->lock);
    xn_warm_up **at = &engine->pools.warm_ups;
    while (*at != up)
        at = &(*at)->next;
    *at = up->next;
    xn_lock_drop(&engine->lock);
}

/* Its memory is counted like a request's. */
static xn_status charge(xn_engine *engine, xn_warm_up *up, size_t bytes, xn_error *error) {
    xn_status status =
        xn_ticket_enter(engine->services.admission, NULL, NULL, bytes, &up->ticket, error);
    return status == XN_OK ? xn_ticket_grow(&up->ticket, bytes, error) : status;
}

static xn_status submit_locked(xn_engine *engine, xn_warm_up *up, xn_error *error) {
    xn_pools *pools = &engine->pools;
    const xn_engine_device *device = &pools->devices[up->device];
    if (pools->draining)
        return xn_fail(error, XN_ERR_DRAINING, NULL, "the service is shutting down");
    if (!atomic_load(&device->up))
        return xn_fail(error, XN_ERR_DEVICE_LOST, NULL, "%s was lost", device->info.id);
    up->job.submitted_ns = xn_now_ns();
    up->job.state = XN_JOB_QUEUED;
    xn_endings_watch_locked(&engine->endings, &up->job);
    xn_metrics_gauge_add(engine->services.metrics, XN_GAUGE_QUEUE_DEPTH, 1);
    /* All of them: which are the device's, the pool does not know. */
    pthread_cond_broadcast(&pools->each[device->pool].work);
    return XN_OK;
}

static xn_status submit_and_wait(xn_engine *engine, xn_warm_up *up, xn_error *error) {
    xn_lock_take(&engine->lock);
    xn_status status = submit_locked(engine, up, error);
    while (status == XN_OK && !up->over)
        xn_lock_wait(&engine->lock, &up->ended, INT64_MAX);
    xn_lock_drop(&engine->lock);
    if (status == XN_OK && up->job.status != XN_OK)
        *error = up->job.error;
    return status == XN_OK ? up->job.status : status;
}

static xn_status run(xn_engine *engine, xn_warm_up *up, xn_error *error) {
    xn_job *job = &up->job;
    xn_buffers *buffers = engine->services.buffers;
    const size_t in = (size_t)job->images * xn_problem_input_bytes(&job->problem);
    const size_t out = (size_t)job->images * xn_problem_output_bytes(&job->problem);
    xn_status status = charge(engine, up, xn_buffers_size(in) + xn_buffers_size(out), error);
    if (status != XN_OK)
        return status;
    void *input = xn_buffers_get(buffers, in);
    job->output = xn_buffers_get(buffers, out);
    if (input && job->output) {
        job->input = memset(input, 0, in);
        status = submit_and_wait(engine, up, error);
    } else {
        status = xn_fail(error, XN_ERR_NO_MEMORY, NULL,
                         "no memory for input and output of %lld "
                         "images",
                         (long long)job->images);
    }
    if (job->output)
        xn_buffers_put(buffers, job->output, out);
    if (input)
        xn_buffers_put(buffers, input, in);
    return status;
}

static xn_status run_images(xn_engine *engine, const xn_warm_up_wish *wish, int device,
                            int64_t images, xn_error *error) {
    xn_warm_up up = {.device = device,
                     .job = {.problem = *wish->problem,
                             .images = images,
                             .asset = wish->asset,
                             .pool = engine->pools.devices[device].pool,
                             .deadline_ns = xn_now_ns() + engine->warm_up_ns,
                             .id = "warm-up",
                             .done = done,
                             .released = end,
                             .context = engine}};
    xn_cond_init(&up.ended);
    insert(engine, &up);
    xn_status status = run(engine, &up, error);
    leave(engine, &up);
    if (status == XN_OK)
        xn_callers_make_programs(&engine->callers, device, &up.job);
    pthread_cond_destroy(&up.ended);
    return status;
}

/* ---- all of a device ---- */

/* What a smaller batch may do better. */
static bool is_about_size(xn_status status) {
    return status == XN_ERR_DEVICE_MEMORY || status == XN_ERR_NO_MEMORY || status == XN_ERR_BUSY ||
           status == XN_ERR_LIMIT;
}

/* How far a device has come. */
typedef struct progress {
    int64_t images; /* of the largest batch that was run */
    xn_status status;
    xn_error error; /* of the last run that failed */
} progress;

/* A batch of `images`, and without memory for it one of half as many, but of more than were run. */
static void run_up_to(xn_engine *engine, const xn_warm_up_wish *wish, int device, int64_t images,
                      progress *so_far) {
    for (; images > so_far->images; images /= 2) {
        so_far->status = run_images(engine, wish, device, images, &so_far->error);
        if (so_far->status == XN_OK)
            so_far->images = images;
        else if (!is_about_size(so_far->status))
            return;
    }
}

static void log_end(const xn_engine *engine, const xn_warm_up_wish *wish, int device,
                    const progress *so_far, int64_t began_ns) {
    const char *id = engine->pools.devices[device].info.id;
    if (so_far->images == wish->images)
        xn_log(XN_LOG_INFO, NULL,
               "model \"%s\" version %s is warm on %s: batches of up to %lld images, %lld ms",
               wish->name, wish->version, id, (long long)so_far->images,
               (long long)((xn_now_ns() - began_ns) / XN_NS_PER_MS));
    else
        xn_log(
            XN_LOG_WARN, NULL,
            "model \"%s\" version %s serves on %s, warm for batches of up to %lld images instead "
            "of %lld: %.300s",
            wish->name, wish->version, id, (long long)so_far->images, (long long)wish->images,
            so_far->error.message);
}

/* The wish, with no more images than are worth it. */
static xn_warm_up_wish bounded(const xn_engine *engine, const xn_warm_up_wish *wish, int device) {
    const int pool = engine->pools.devices[device].pool;
    const double most = MOST_WORK_NS / xn_work_image_ns(wish->problem);
    xn_warm_up_wish own = *wish;
    if (engine->pools.each[pool].threads && most < (double)own.images)
        own.images = most < 1 ? 1 : (int64_t)most;
    return own;
}

static xn_status warm_device(xn_engine *engine, const xn_warm_up_wish *wish, int device) {
    const int64_t sizes[] = {1, 8, wish->images};
    const int64_t began_ns = xn_now_ns();
    progress so_far = {.status = XN_OK};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes && so_far.status == XN_OK; i++)
        if (sizes[i] <= wish->images)
            run_up_to(engine, wish, device, sizes[i], &so_far);
    if (so_far.status != XN_ERR_DRAINING)
        log_end(engine, wish, device, &so_far, began_ns);
    return so_far.status;
}

xn_status xn_engine_warm_up(void *context, const xn_warm_up_wish *wish, xn_error *error) {
    xn_engine *engine = context;
    for (int i = 0; i < engine->pools.device_count; i++) {
        const xn_warm_up_wish own = bounded(engine, wish, i);
        if (atomic_load(&engine->pools.devices[i].up) &&
            warm_device(engine, &own, i) == XN_ERR_DRAINING)
            return xn_fail(error, XN_ERR_DRAINING, "model", "the service is shutting down");
    }
    return XN_OK;
}
