/* engine_recall.c: the cache of answers as the engine has it: what a job's output is a function of,
 * and what a job that needs no run looks like. */
#include "engine_internal.h"

#include "clock.h"

#define LONG_BYTES ((size_t)1 << 20) /* hashed, compared and copied in some 100 us */

xn_status xn_engine_create_responses(xn_engine *engine, int64_t limit_bytes, xn_error *error) {
    if (limit_bytes == 0)
        return XN_OK;
    xn_status status = xn_response_cache_create((size_t)limit_bytes, NULL, engine->metrics,
                                                &engine->responses, error);
    if (status == XN_OK)
        xn_store_set_responses(engine->store, engine->responses);
    return status;
}

bool xn_engine_recall_is_long(const xn_engine *engine, size_t bytes) {
    return engine->responses && bytes > LONG_BYTES;
}

static xn_response_key key_of(const xn_job *job) {
    return (xn_response_key){.owner = xn_asset_responses(job->asset),
                             .problem = &job->problem,
                             .tenant = job->tenant,
                             .pool = job->pool,
                             .input = job->input,
                             .input_bytes =
                                 (size_t)job->images * xn_problem_input_bytes(&job->problem)};
}

static size_t output_bytes(const xn_job *job) {
    return (size_t)job->images * xn_problem_output_bytes(&job->problem);
}

static void finish(xn_engine *engine, xn_job *job, const xn_response_origin *origin,
                   int64_t now_ns) {
    job->status = XN_OK;
    job->device = origin->device;
    job->precision = origin->precision;
    job->batch_requests = job->batch_images = 0;
    job->times = (xn_run_times){0};
    job->submitted_ns = job->started_ns = job->finished_ns = now_ns;
    xn_asset_count_requests(job->asset, 1);
    xn_admission_finished(engine->admission, 1, now_ns);
}

bool xn_engine_recall(xn_engine *engine, xn_job *job) {
    xn_response_origin origin;
    if (!engine->responses)
        return false;
    const int64_t began_ns = xn_now_ns();
    const xn_response_key key = key_of(job);
    const bool hit = xn_response_cache_get(engine->responses, &key, job->output, output_bytes(job),
                                           &origin, &job->probe);
    const int64_t now_ns = xn_now_ns();
    job->recall_ns = now_ns - began_ns;
    job->recall = hit ? XN_RECALL_HIT : job->probe.asked ? XN_RECALL_MISS : XN_RECALL_BYPASS;
    if (hit)
        finish(engine, job, &origin, now_ns);
    return hit;
}

/* The job's part of its launch. */
static int64_t run_ns(const xn_job *job) {
    const xn_run_times *times = &job->times;
    const int64_t batch_ns = times->upload_ns + times->compute_ns + times->download_ns;
    return batch_ns / job->batch_images * job->images;
}

void xn_engine_keep(xn_engine *engine, xn_job *job) {
    if (job->recall != XN_RECALL_MISS || job->status != XN_OK)
        return;
    const int64_t began_ns = xn_now_ns();
    const xn_response_key key = key_of(job);
    const xn_response_origin origin = {job->device, job->precision};
    if (xn_response_cache_put(engine->responses, &key, &job->probe, job->output, output_bytes(job),
                              &origin, run_ns(job))) {
        job->recall = XN_RECALL_STORED;
        job->recall_ns += xn_now_ns() - began_ns;
    }
}
