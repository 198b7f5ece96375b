/* client.c: what one client does, one request after another, as a fiber: the same calls in the same
 * order as server/routes makes for a request, with the client's own accidents in between. */
#include "device.h"
#include "laws.h"
#include "world.h"

#include "xn_conv.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* done comes when the deadline passes, whatever the device does: after so long at most. */
#define DONE_SLACK_NS 1000000

enum { SHAPES = 2 };
static const int64_t sides[SHAPES] = {1, 3};

/* ---- what the engine calls ---- */

static void law_of_status(const request *r) {
    bool lost = false;
    for (int k = 0; k < SIM_KINDS; k++)
        for (int i = 0; i < SIM_DEVICES; i++)
            lost = lost || devices.each[k][i].lost;
    switch (r->job.status) {
    case XN_OK:
        break;
    case XN_ERR_DEADLINE:
        law(fibers_now() >= r->job.deadline_ns, "DEADLINE comes when the deadline has passed");
        law(r->in_a_hurry, "nobody waits for seconds");
        break;
    case XN_ERR_CANCELLED:
        law(r->cancelled, "CANCELLED is of those that were cancelled");
        break;
    case XN_ERR_DRAINING:
        law(w.draining, "DRAINING comes while the daemon drains");
        break;
    case XN_ERR_DEVICE_LOST:
        law(lost, "DEVICE_LOST comes when a device is lost");
        break;
    case XN_ERR_DEVICE_MEMORY:
        law(w.mix.shortages || w.mix.no_memory || w.config.queue_bytes < 4 << 20,
            "DEVICE_MEMORY comes when there is none, or too little for programs");
        break;
    case XN_ERR_NO_MEMORY:
    case XN_ERR_BUSY: /* programs find no room in --queue-bytes */
        break;
    case XN_ERR_INTERNAL:
        law(w.mix.failures, "INTERNAL comes when a launch failed");
        break;
    default:
        law(false, "a job ends with one of nine statuses");
    }
}

/* Where nothing is left to serve, that is told before a client hears of it. */
static void law_of_readiness(const request *r) {
    xn_engine_health health;
    xn_engine_health_get(w.engine, &health); /* would hang if a lock of the engine were held */
    if (r->job.status == XN_ERR_DEVICE_LOST && r->job.device >= 0) {
        int up = 0;
        for (int i = 0; i < SIM_DEVICES; i++)
            up += !devices.each[SIM_GPU][i].told;
        law(up || !health.ready || strcmp(health.backend, "cuda") != 0,
            "not ready before the loss of the last device is told");
    }
}

static void job_is_done(xn_job *job) {
    request *r = job->context;
    law(!fibers_locks_held(), "done is called without a lock");
    law(!r->in_call || r->caller != fibers_self(), "done is not called inside submit or cancel");
    law(r->submitted && !r->done, "done is called once, of a submitted job");
    law(fibers_now() <= job->deadline_ns + DONE_SLACK_NS, "done comes by the deadline");
    law(job->status == XN_OK || (job->error.status == job->status && job->error.message[0]),
        "a failure has a message");
    law(!job->in_use || job->status == XN_ERR_DEADLINE, "a device is at it past the deadline only");
    law_of_status(r);
    law_of_readiness(r);
    event("done %p %s%s", (void *)r, xn_status_name(job->status), job->in_use ? ", in use" : "");
    pthread_mutex_lock(&r->mutex);
    r->done = true;
    pthread_cond_signal(&r->changed);
    pthread_mutex_unlock(&r->mutex);
}

static void job_is_released(xn_job *job) {
    request *r = job->context;
    law(!fibers_locks_held(), "released is called without a lock");
    law(r->done && job->in_use && !r->released, "released follows done, once, where it says so");
    event("released %p", (void *)r);
    pthread_mutex_lock(&r->mutex);
    r->released = true;
    pthread_cond_signal(&r->changed);
    pthread_mutex_unlock(&r->mutex);
}

static bool waits(const request *r) {
    return r->submitted && r->job.state == XN_JOB_QUEUED;
}

static bool is_oldest(const request *r) {
    for (const request *other = w.requests; other; other = other->next)
        if (other != r && waits(other) && other->asset == r->asset &&
            other->job.pool == r->job.pool && other->job.arrival < r->job.arrival)
            return false;
    return true;
}

/* Start-time fair queueing (queue.h): while a request is its asset's oldest, another asset gets the
 * batch that was begun, the one whose turn it is, and one for what the request's asset had before.
 * Worlds whose batches wait for company, or are cut for want of memory, have other bounds. */
static void law_of_fairness(const request *first) {
    enum { MOST_PASSED = 4 };
    if (w.config.batch_delay_us || w.mix.shortages || w.mix.no_memory)
        return;
    for (request *r = w.requests; r; r = r->next) {
        if (!waits(r) || r->asset == first->asset || r->job.pool != first->job.pool ||
            r->job.submitted_ns >= first->job.started_ns || !is_oldest(r))
            continue;
        unsigned char *passed = &r->passed[((uintptr_t)first->asset >> 6) % OTHERS];
        law(++*passed <= MOST_PASSED, "nobody waits longer than his share and a batch");
    }
}

void world_sees_run(const xn_batch *batch, const xn_prepared *prepared) {
    const request *first = NULL;
    int64_t images = 0;
    (void)prepared;
    for (size_t i = 0; i < batch->count; i++) {
        const request *r = w.requests;
        while (r && ((const char *)batch->items[i].input < (const char *)r->input ||
                     (const char *)batch->items[i].input >= (const char *)(r->input + r->elements)))
            r = r->next;
        law(r, "a run reads memory of a request that is there");
        law(!r->done || r->job.in_use, "a run is of requests that wait for it");
        first = first ? first : r;
        law(r->asset == first->asset, "a batch has one asset");
        law(xn_problem_equal(&r->job.problem, &first->job.problem), "a batch has equal problems");
        images += batch->items[i].images;
    }
    law(images <= w.config.max_batch_images || batch->count == 1, "a batch keeps its limit");
    if (first && first->submitted)
        law_of_fairness(first);
    event("run of %zu requests, %lld images, %p first", batch->count, (long long)images,
          (const void *)first);
}

/* ---- one request ---- */

static xn_status find_model(request *r, xn_error *error) {
    const int number = (int)xn_rng_below(&w.rng, MODELS);
    const char name[2] = {(char)('m' + number), 0};
    const uint64_t since = fibers_steps();
    xn_status status = xn_models_get(w.models, name, NULL, &r->model, error);
    if (status == XN_OK) {
        r->asset = r->model->asset;
        xn_asset_retain(r->asset);
    } else {
        law(status == XN_ERR_NOT_FOUND || status == XN_ERR_LOADING, "a model is there or not");
        law(world_had(NAMES + number, 0, since), "a model that serves is found");
    }
    r->value = (float)number; /* until its answer shows which version it was */
    r->since_step = since;
    return status;
}

/* Where the cache forgets nothing, equal inline weights are one asset. */
static void law_of_one_asset(const request *r) {
    if (w.config.weights_cache_bytes < 1 << 20 || w.config.queue_bytes < 4 << 20 ||
        w.mix.shortages || w.mix.no_memory)
        return;
    for (const request *other = w.requests; r->asset && other; other = other->next)
        law(other->model || other->value != r->value || !other->asset || other->asset == r->asset,
            "requests with the same inline weights have the same asset");
}

static xn_status find_asset(request *r, xn_error *error) {
    if (world_draws(w.mix.by_model))
        return find_model(r, error);
    if (world_draws(w.mix.by_inline)) {
        const float value = (float)(100 + xn_rng_below(&w.rng, INLINE_WEIGHTS));
        const xn_tensor weights = {XN_FP32, {4, {1, 1, 1, 1}}, 1, sizeof value, &value};
        r->value = value;
        xn_status status = xn_store_intern(xn_engine_store(w.engine), NULL, &weights, NULL, NULL,
                                           &r->asset, error);
        law(status || xn_asset_weights(r->asset)->real[0] == value, "inline weights are the ones");
        law_of_one_asset(r);
        return status;
    }
    const int name = (int)xn_rng_below(&w.rng, NAMES);
    const char text[2] = {(char)('a' + name), 0};
    const uint64_t since = fibers_steps();
    xn_status status = xn_store_get(xn_engine_store(w.engine), text, &r->asset, error);
    if (status == XN_OK) {
        r->value = xn_asset_weights(r->asset)->real[0];
        law(world_had(name, r->value, since), "a name gives weights that it has now");
    } else if (status == XN_ERR_NOT_FOUND) {
        law(world_had(name, 0, since), "NOT_FOUND is of a name that has no weights");
    }
    return status;
}

static void problem_of_weights(const request *r, int64_t images, int64_t side, xn_problem *out) {
    xn_conv_params params;
    xn_conv_params_default(&params);
    params.mode = XN_MODE_FLOAT;
    const xn_shape shape = {4, {images, 1, side, side}};
    const xn_conv_limits limits = {1 << 20, 1 << 20, 1 << 20};
    xn_weights_shape weights;
    xn_weights_shape_of(xn_asset_weights(r->asset), &weights);
    int64_t resolved;
    xn_conv conv;
    law(!xn_conv_resolve(&params, XN_FP32, &shape, &weights, &limits, &conv, &resolved, NULL),
        "a convolution of one tap fits");
    xn_problem_of_conv(&conv, out);
}

static void fill_job(request *r, int64_t images, int64_t side) {
    r->in_a_hurry = world_draws(w.mix.short_deadlines);
    const bool any_pool = world_draws(80);
    int pool = 0;
    if (!any_pool)
        pool = (int)xn_rng_below(&w.rng, (uint64_t)w.engine->pools.count);
    r->job = (xn_job){.images = images,
                      .asset = r->asset,
                      .input = r->input,
                      .output = r->output,
                      .pool = pool,
                      .any_pool = any_pool,
                      .deadline_ns = fibers_now() +
                                     (r->in_a_hurry ? world_about(2000000) : INT64_C(10000000000)),
                      .id = "simulated",
                      .done = job_is_done,
                      .released = job_is_released,
                      .context = r};
    if (r->model)
        r->job.problem = r->model->problem;
    else
        problem_of_weights(r, images, side, &r->job.problem);
}

static void check_output(const request *r) {
    if (r->job.status != XN_OK)
        return;
    float value = r->value;
    if (r->model) {
        const int name = NAMES + (int)r->value;
        value = r->output[0] / r->input[0]; /* whole numbers: exact */
        law(value != 0 && world_had(name, value, r->since_step), "a version that the model had");
    }
    for (size_t i = 0; i < r->elements; i++)
        law(r->output[i] == r->input[i] * value, "an answer is ref's, bit by bit");
}

/* From the submit to done, and to released where a device is still at it. */
static void await(request *r) {
    const bool resets = world_draws(w.mix.resets);
    const int64_t reset_ns = fibers_now() + world_about(500000);
    pthread_mutex_lock(&r->mutex);
    while (!r->done || (r->job.in_use && !r->released)) {
        const struct timespec at = {reset_ns / 1000000000, reset_ns % 1000000000};
        if (!resets || r->cancelled || r->done) {
            pthread_cond_wait(&r->changed, &r->mutex);
        } else if (fibers_now() < reset_ns) {
            pthread_cond_timedwait(&r->changed, &r->mutex, &at);
        } else {
            r->cancelled = true;
            event("cancel %p", (void *)r);
            r->in_call = true;
            xn_engine_cancel(w.engine, &r->job, XN_ERR_CANCELLED);
            r->in_call = false;
        }
    }
    pthread_mutex_unlock(&r->mutex);
}

static xn_status run_job(request *r, xn_error *error) {
    const size_t bytes = 2 * r->elements * sizeof(float);
    if (w.config.response_cache_bytes && !xn_engine_cache_is_slow(w.engine, bytes) &&
        xn_engine_cache_lookup(w.engine, &r->job)) {
        all->recalls++;
        event("recalled %p", (void *)r);
        return XN_OK;
    }
    if (xn_engine_try_run(w.engine, &r->job)) {
        all->inline_runs++;
        event("ran inline %p %s", (void *)r, xn_status_name(r->job.status));
        law_of_status(r);
        return XN_OK;
    }
    r->in_call = r->submitted = true;
    r->caller = fibers_self();
    xn_status status = xn_engine_submit(w.engine, &r->job, error);
    r->in_call = false;
    if (status != XN_OK) {
        law(!r->done, "what was refused is not done");
        return status;
    }
    await(r);
    return XN_OK;
}

/* The body comes in parts. False: the client hung up, or there was no room for it. */
static bool receive(request *r, size_t bytes, xn_error *error) {
    const size_t parts = 1 + xn_rng_below(&w.rng, 3);
    for (size_t i = 0; i < parts; i++) {
        if (world_draws(w.mix.stalls))
            fibers_sleep(world_about(3000000));
        if (world_draws(w.mix.resets / 4))
            return false;
        const size_t part = i + 1 < parts ? bytes / parts : bytes - bytes / parts * (parts - 1);
        xn_status status = xn_ticket_grow(&r->ticket, part, error);
        law(!status || status == XN_ERR_BUSY || status == XN_ERR_LIMIT, "grow has two errors");
        if (status != XN_OK)
            return false;
    }
    return true;
}

static void law_of_refusal(xn_status status) {
    law(status == XN_ERR_BUSY || status == XN_ERR_LIMIT || status == XN_ERR_NO_MEMORY ||
            status == XN_ERR_DEVICE_MEMORY || status == XN_ERR_NOT_FOUND ||
            status == XN_ERR_LOADING || (status == XN_ERR_DRAINING && w.draining) ||
            status == XN_ERR_DEVICE_LOST,
        "a request is refused with a status that its state explains");
    law(xn_engine_retry_after(w.engine) >= 1, "Retry-After is at least 1");
}

static bool enter(request *r, int number, size_t bytes, xn_error *error) {
    w.entering++;
    xn_status status =
        xn_ticket_enter(xn_engine_admission(w.engine), w.addresses[number % ADDRESSES], NULL, bytes,
                        &r->ticket, error);
    w.entering--;
    if (status != XN_OK) {
        event("refused: %s", xn_status_name(status));
        law_of_refusal(status);
        all->refusals[status]++;
        return false;
    }
    r->counted = true;
    r->next = w.requests;
    w.requests = r;
    w.request_count++;
    return true;
}

static void leave(request *r) {
    request **at = &w.requests;
    r->leaving = true;
    xn_ticket_leave(&r->ticket);
    while (*at != r)
        at = &(*at)->next;
    *at = r->next;
    w.request_count--;
}

static void serve(request *r) {
    xn_error error = {0};
    xn_buffers *buffers = xn_engine_buffers(w.engine);
    const int64_t images = 1 + (int64_t)xn_rng_below(&w.rng, 6);
    int64_t side = sides[xn_rng_below(&w.rng, SHAPES)];
    r->elements = (size_t)(images * side * side);
    const size_t bytes = r->elements * sizeof(float);
    if (!receive(r, 2 * xn_buffers_size(bytes), &error)) {
        event("gone %p", (void *)r);
        return;
    }
    r->input = xn_buffers_get(buffers, bytes);
    r->output = xn_buffers_get(buffers, bytes);
    xn_status status = r->input && r->output ? find_asset(r, &error) : XN_ERR_NO_MEMORY;
    const bool few = world_draws(30); /* contents: the cache of answers may know it */
    if (r->model)
        side = 1, r->elements = (size_t)images;
    if (status == XN_OK) {
        for (size_t i = 0; i < r->elements; i++) {
            r->input[i] = (float)(1 + xn_rng_below(&w.rng, few ? 2 : 1000));
            r->output[i] = -1;
        }
        fill_job(r, images, side);
        status = run_job(r, &error);
    }
    if (status == XN_OK) {
        check_output(r);
        xn_engine_cache_insert(w.engine, &r->job);
        all->answers[r->job.status]++;
    } else {
        event("failed %p: %s", (void *)r, xn_status_name(status));
        law_of_refusal(status);
        all->refusals[status]++;
    }
    xn_asset_release(r->asset);
    xn_model_release(r->model);
    for (size_t i = 0; r->input && i < r->elements; i++)
        r->input[i] = -12345; /* a late run would compute with it */
    float *const input = r->input, *const output = r->output;
    r->input = r->output = NULL; /* they may be another's before put returns */
    if (input)
        xn_buffers_put(buffers, input, bytes);
    if (output)
        xn_buffers_put(buffers, output, bytes);
}

static void client(void *argument) {
    const int number = (int)(intptr_t)argument;
    w.busy++;
    while (!w.over && fibers_now() < w.end_ns) {
        request *r = calloc(1, sizeof *r);
        xn_error error = {0};
        fibers_sleep(world_about(w.mix.pause_ns));
        if (!enter(r, number, 64, &error)) {
            fibers_sleep(world_about(10 * w.mix.pause_ns)); /* it tries later */
        } else {
            event("request %p of client %d", (void *)r, number);
            pthread_mutex_init(&r->mutex, NULL);
            pthread_cond_init(&r->changed, NULL);
            serve(r);
            leave(r);
            event("end of %p", (void *)r);
        }
        free(r);
    }
    w.busy--;
}

void client_begin(int number) {
    char name[24];
    snprintf(name, sizeof name, "client-%d", number);
    fibers_start(name, client, (void *)(intptr_t)number);
}
