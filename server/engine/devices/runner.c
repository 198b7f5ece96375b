/* runner.c: see runner.h. */
#include "runner.h"

#include "clock.h"
#include "log.h"

#define LITTLE_BYTES ((int64_t)1 << 20) /* what is less is not worth giving back */

xn_status xn_runner_init(xn_runner *runner, xn_pools *pools, xn_engine_device *device,
                         int64_t jobs_max, int threads, int64_t max_batch_images, xn_error *error) {
    const xn_services *services = pools->services;
    const xn_stream_options options = {
        .threads = threads, .most_scratch_bytes = xn_admission_programs_most(services->admission)};
    runner->pools = pools;
    runner->device = device;
    runner->jobs = xn_mem_zalloc((size_t)jobs_max, sizeof(xn_job *));
    runner->items = xn_mem_zalloc((size_t)jobs_max, sizeof *runner->items);
    if (!runner->jobs || !runner->items)
        return xn_fail(error, XN_ERR_NO_MEMORY, NULL, "no memory for the engine's batches");
    xn_status status =
        device->backend->stream_create(device->handle, &options, &runner->stream, error);
    if (status == XN_OK)
        status = xn_programs_create(device->backend, runner->stream, XN_RUNNER_PROGRAMS_MAX,
                                    max_batch_images, services->admission, services->buffers,
                                    &runner->programs, error);
    if (status == XN_OK)
        device->programs[device->programs_count++] = runner->programs;
    return status;
}

void xn_runner_destroy(xn_runner *runner) {
    if (!runner->device)
        return;
    xn_programs_free(runner->programs);
    runner->device->backend->stream_free(runner->stream);
    xn_mem_free(runner->items);
    xn_mem_free(runner->jobs);
}

bool xn_runner_keeps_much(const xn_runner *runner) {
    return xn_programs_bytes(runner->programs) > LITTLE_BYTES;
}

/* ---- a run ---- */

xn_launch xn_launch_of(xn_job *const *jobs, size_t count) {
    xn_launch launch = {.precision = XN_PRECISION_FP32, .requests = (int64_t)count};
    for (size_t i = 0; i < count; i++)
        launch.images += jobs[i]->images;
    return launch;
}

/* The jobs of a launch. */
typedef struct batch {
    xn_job *const *jobs;
    size_t count;
} batch;

/* False once each of its jobs is cancelled or past its deadline. */
static bool is_wanted(void *context) {
    const batch *all = context;
    const int64_t now_ns = xn_now_ns();
    for (size_t i = 0; i < all->count; i++)
        if (now_ns <= all->jobs[i]->deadline_ns && !atomic_load(&all->jobs[i]->cancelled))
            return true;
    return false;
}

xn_status xn_runner_launch(xn_runner *runner, xn_job *const *jobs, size_t count,
                           const xn_prepared *const *prepared, int64_t until_ns, xn_launch *out,
                           xn_error *error) {
    xn_lock_assert_none();
    xn_status status =
        xn_programs_get(runner->programs, &jobs[0]->problem, out->images, &runner->program, error);
    if (status == XN_OK)
        status = xn_asset_ready(jobs[0]->asset, runner->program, prepared, error);
    if (status != XN_OK)
        return status;
    for (size_t i = 0; i < count; i++)
        runner->items[i] = (xn_batch_item){jobs[i]->input, jobs[i]->output, jobs[i]->images};
    out->precision = xn_program_precision(runner->program, prepared);
    batch all = {jobs, count};
    status = xn_program_run_cancellable(runner->program, prepared, runner->items, count,
                                        &(xn_cancel_token){is_wanted, &all, until_ns}, &out->times,
                                        error);
    return status == XN_OK ? xn_asset_check_intact(jobs[0]->asset, error) : status;
}

/* ---- its end ---- */

/* Why its launch was given up. */
static xn_status fail_cancelled(xn_job *job) {
    xn_status status = (xn_status)atomic_load(&job->cancelled);
    if (status != XN_OK)
        return xn_fail(&job->error, status, NULL, "the request was cancelled while it ran");
    return xn_fail(&job->error, XN_ERR_DEADLINE, "timeout_ms",
                   "the deadline passed during the computation, which was given up");
}

void xn_runner_count(const xn_runner *runner, const xn_job *first, xn_status status,
                     xn_launch *launch) {
    const xn_services *services = runner->pools->services;
    if (status == XN_OK) {
        const xn_run_times *times = &launch->times;
        int64_t busy_ns = times->upload_ns + times->compute_ns + times->download_ns;
        xn_metrics_batch(services->metrics, runner->device->index, launch->requests, launch->images,
                         busy_ns);
        xn_asset_count_requests(first->asset, launch->requests);
    }
    launch->finished_ns = xn_now_ns();
    xn_admission_finished(services->admission, launch->requests, launch->finished_ns);
}

void xn_runner_conclude(const xn_runner *runner, xn_job *job, xn_status status,
                        const xn_launch *launch, const xn_error *error) {
    if (status != XN_OK)
        job->error = *error;
    job->status = status == XN_ERR_CANCELLED ? fail_cancelled(job) : status;
    job->times = launch->times;
    job->precision = launch->precision;
    job->device = runner->device->index;
    job->batch_requests = launch->requests;
    job->batch_images = launch->images;
    job->finished_ns = launch->finished_ns;
}

void xn_runner_finish(const xn_runner *runner, xn_job **jobs, size_t count, xn_status status,
                      xn_launch *launch, const xn_error *error) {
    xn_job *late;
    xn_runner_count(runner, jobs[0], status, launch);
    const size_t on_time = xn_endings_settle(runner->pools->endings, jobs, count, &late);
    for (size_t i = 0; i < on_time; i++)
        xn_runner_conclude(runner, jobs[i], status, launch, error);
    for (size_t i = 0; i < on_time; i++)
        jobs[i]->done(jobs[i]);
    xn_endings_release(late);
}

void xn_runner_report(const xn_runner *runner, xn_status status, const xn_error *error,
                      const xn_job *job) {
    const int device = runner->device->index;
    if (status == XN_OK || status == XN_ERR_CANCELLED || status == XN_ERR_BUSY ||
        status == XN_ERR_LIMIT)
        return;
    if (status == XN_ERR_DEVICE_LOST) {
        xn_pools_lose_device(runner->pools, device, error);
        return;
    }
    xn_metrics_device_error(runner->pools->services->metrics, device);
    xn_log(XN_LOG_ERROR, job->id, "%s: a batch failed: %s", runner->device->info.id,
           error->message);
}
