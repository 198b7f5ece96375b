/* requests.c: what clients send, one request after another, and what may come back. All weights are
 * one tap, so that an answer shows whose value it was computed with. */
#include "world.h"

#include "device.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- sending ---- */

__attribute__((format(printf, 2, 3))) static void say(xn_request *r, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    r->bytes += (size_t)vsnprintf(r->body + r->bytes, BODY_BYTES - r->bytes, format, arguments);
    va_end(arguments);
    law(r->bytes < BODY_BYTES, "a body has room");
    r->length = r->bytes;
}

static void draw_input(xn_request *r, size_t elements) {
    const uint64_t most = world_draws(30) ? 2 : 1000; /* few: the cache of answers may know them */
    r->elements = elements;
    for (size_t i = 0; i < elements; i++)
        r->input[i] = (float)(1 + xn_rng_below(&w.rng, most));
    r->in_a_hurry = world_draws(w.mix.short_deadlines);
}

static void say_input(xn_request *r) {
    for (size_t i = 0; i < r->elements; i++)
        say(r, "%s%g", i ? "," : "\"data\":[", (double)r->input[i]);
    say(r, "]");
}

static void say_weights(xn_request *r) {
    say(r, "\"weights\":{\"shape\":[1,1,1,1],\"datatype\":\"FP32\",\"data\":[%g]}",
        (double)r->value);
}

/* Chunked: nobody knows the length before. Coded: only the background pool reads it. */
static void finish_body(xn_request *r) {
    char plain[BODY_BYTES];
    memcpy(plain, r->body, r->bytes);
    r->coded = world_draws(w.mix.coded) &&
               xn_coding_encode(XN_CODING_GZIP, plain, r->bytes, r->body, BODY_BYTES, &r->bytes);
    r->takes_coded = world_draws(w.mix.coded);
    r->length = world_draws(w.mix.chunked) ? XN_HTTP_UNKNOWN_LENGTH : r->bytes;
}

static int draw_name(xn_request *r, int first, int count, const char *before, const char *behind) {
    r->name = first + (w.alone ? 0 : (int)xn_rng_below(&w.rng, (uint64_t)count));
    snprintf(r->path, sizeof r->path, "%s%c%s", before, 'a' + r->name, behind);
    return r->name;
}

static void make_conv(xn_request *r) {
    const int images = 1 + (int)xn_rng_below(&w.rng, 6), side = world_draws(50) ? 1 : 3;
    draw_name(r, 0, NAMES, "", "");
    draw_input(r, (size_t)(images * side * side));
    snprintf(r->query, sizeof r->query, "shape=%d,1,%d,%d&weights=%s&mode=float%s%s", images, side,
             side, r->path, r->in_a_hurry ? "&timeout_ms=1" : "",
             world_draws(80)                              ? ""
             : strcmp(xn_engine_primary(w.engine), "cpu") ? "&backend=cuda"
                                                          : "&backend=cpu");
    strcpy(r->path, "/conv");
    r->length = r->bytes = r->elements * sizeof *r->input;
    memcpy(r->body, r->input, r->bytes);
    finish_body(r);
}

static void make_inline(xn_request *r) {
    const int images = 1 + (int)xn_rng_below(&w.rng, 6);
    strcpy(r->path, "/conv");
    draw_input(r, (size_t)images);
    r->value = (float)(9001 + xn_rng_below(&w.rng, 6));
    say(r, "{\"mode\":\"float\",%s", r->in_a_hurry ? "\"timeout_ms\":1," : "");
    say_weights(r);
    say(r, ",\"input\":{\"shape\":[%d,1,1,1],\"datatype\":\"FP32\",", images);
    say_input(r);
    say(r, "}}");
    finish_body(r);
}

static void make_infer(xn_request *r) {
    const int images = 1 + (int)xn_rng_below(&w.rng, 6);
    draw_name(r, NAMES, MODELS, "/v2/models/", "/infer");
    draw_input(r, (size_t)images);
    say(r, "{\"inputs\":[{\"name\":\"image\",\"datatype\":\"FP32\",\"shape\":[%d,1,1,1],", images);
    say_input(r);
    say(r, "}]%s}", r->in_a_hurry ? ",\"parameters\":{\"timeout\":400}" : "");
    finish_body(r);
}

static void begin_change(xn_request *r, float value) {
    r->value = value;
    r->change = world_begin_version(r->name, value);
}

static void make_put(xn_request *r) {
    draw_name(r, 0, NAMES, "/weights/", "");
    begin_change(r, world_new_value());
    say(r, "{");
    say_weights(r);
    say(r, "}");
    finish_body(r);
}

static void make_delete(xn_request *r) {
    draw_name(r, 0, NAMES, "/weights/", "");
    begin_change(r, 0);
}

static void say_base64(xn_request *r, const unsigned char *bytes, size_t length) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    law(length % 3 == 0, "no padding");
    for (; length; bytes += 3, length -= 3)
        say(r, "%c%c%c%c", digits[bytes[0] >> 2], digits[(bytes[0] & 3) << 4 | bytes[1] >> 4],
            digits[(bytes[1] & 15) << 2 | bytes[2] >> 6], digits[bytes[2] & 63]);
}

static void make_load(xn_request *r) {
    static const char header[] =
        "{\"c.weight\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1],\"data_offsets\":[0,4]}}     ";
    const uint64_t length = sizeof header - 1;
    unsigned char tensors[8 + sizeof header - 1 + sizeof r->value];
    draw_name(r, NAMES, MODELS, "/v2/repository/models/", "/load");
    begin_change(r, world_new_value());
    memcpy(tensors, &length, 8);
    memcpy(tensors + 8, header, length);
    memcpy(tensors + 8 + length, &r->value, sizeof r->value);
    say(r, "{\"parameters\":{\"config\":\"{\\\"format\\\":\\\"xnord-network/1\\\",\\\"input\\\":{"
           "\\\"name\\\":\\\"image\\\",\\\"datatype\\\":\\\"FP32\\\",\\\"shape\\\":[1,1,1]},"
           "\\\"output\\\":{\\\"name\\\":\\\"logits\\\"},\\\"layers\\\":[{\\\"op\\\":\\\"conv\\\","
           "\\\"name\\\":\\\"c\\\",\\\"mode\\\":\\\"float\\\"}]}\",\"file:model.safetensors\":\"");
    say_base64(r, tensors, sizeof tensors);
    say(r, "\"}}");
    finish_body(r);
}

static void make_unload(xn_request *r) {
    draw_name(r, NAMES, MODELS, "/v2/repository/models/", "/unload");
    begin_change(r, 0);
}

static void make_get(xn_request *r) {
    static const char *const paths[] = {"/weights",
                                        "/v2",
                                        "/v2/health/ready",
                                        "/weights/a",
                                        "/v2/models/e",
                                        "/v2/models/e/ready",
                                        "/v2/models/e/config",
                                        "/v2/models/stats"};
    strcpy(r->path, paths[xn_rng_below(&w.rng, sizeof paths / sizeof *paths)]);
}

static void make_index(xn_request *r) {
    strcpy(r->path, "/v2/repository/index");
    say(r, "{}");
    finish_body(r);
}

static void make_wrong(xn_request *r) {
    strcpy(r->path, "/conv");
    say(r, "{\"input\": {\"shape\": [1,1,1,1], \"datatype\": \"FP32\", \"data\"");
    finish_body(r);
}

/* ---- judging ---- */

static void check_output(const xn_request *r, const float *output) {
    event("%p: value %g", (const void *)r, (double)(output[0] / r->input[0]));
    const float value = output[0] / r->input[0]; /* whole numbers: exact */
    if (r->name < 0)
        law(value == r->value, "inline weights are the ones");
    else
        law(value != 0 && world_had(r->name, value, r->since_step), "a version that the name had");
    for (size_t i = 0; i < r->elements; i++)
        law(output[i] == r->input[i] * value, "an answer is ref's, bit by bit");
}

static void check_raw(const xn_request *r) {
    float output[INPUTS] = {0};
    law(r->answer_length == r->elements * sizeof *output, "an output has its length");
    memcpy(output, r->answer, r->answer_length);
    check_output(r, output);
}

static void check_json(const xn_request *r) {
    float output[INPUTS] = {0};
    char *at = strstr(r->answer, "\"data\":[");
    law(at, "an answer has values");
    at += strlen("\"data\":[");
    for (size_t i = 0; i < r->elements; i++, at++)
        output[i] = strtof(at, &at);
    law(at[-1] == ']', "an output has its length");
    check_output(r, output);
}

static void check_put(const xn_request *r) {
    bool had = false;
    for (int i = 0; i < w.version_count[r->name] && r->status == 200; i++) {
        const version *v = &w.versions[r->name][i];
        had = had || (v->value != 0 && v->last_step >= r->since_step);
    }
    law(r->status == 200 ? had : world_had(r->name, 0, r->since_step),
        "created says whether the name is new");
}

static void check_any(const xn_request *r) {
    (void)r;
}

static void check_wrong(const xn_request *r) {
    law(!r, "a body that is cut is refused");
}

const act acts[ACTS] = {
    {"conv", "POST", true, false, make_conv, check_raw},
    {"inline", "POST", true, false, make_inline, check_json},
    {"infer", "POST", true, false, make_infer, check_json},
    {"put", "PUT", false, true, make_put, check_put},
    {"delete", "DELETE", false, true, make_delete, check_any},
    {"load", "POST", false, true, make_load, check_any},
    {"unload", "POST", false, true, make_unload, check_any},
    {"get", "GET", false, false, make_get, check_any},
    {"index", "POST", false, false, make_index, check_any},
    {"wrong", "POST", true, false, make_wrong, check_wrong},
};

/* A status of a job, as what happens in the world explains it; its status in HTTP. */
static int law_of_status(const xn_request *r, const xn_job *job) {
    bool lost = false;
    for (int i = 0; i < SIM_DEVICES; i++)
        lost = lost || devices.each[SIM_GPU][i].lost;
    switch (job->status) {
    case XN_ERR_DEADLINE:
        law(fibers_now() >= job->deadline_ns, "DEADLINE comes when the deadline has passed");
        law(r->in_a_hurry, "nobody waits for seconds");
        return 504;
    case XN_ERR_CANCELLED:
        law(r->gone, "CANCELLED is of those that were cancelled");
        return 0;
    case XN_ERR_DRAINING:
        law(w.stopping, "a drain finishes what was admitted, until stop");
        return 503;
    case XN_ERR_DEVICE_LOST:
        law(lost, "DEVICE_LOST comes when a device is lost");
        return 503;
    case XN_ERR_DEVICE_MEMORY:
        law(w.mix.shortages || w.mix.no_memory || w.config.queue_bytes < 4 << 20,
            "DEVICE_MEMORY comes when there is none, or too little for programs");
        return 503;
    case XN_ERR_NO_MEMORY:
        return 503;
    case XN_ERR_BUSY: /* programs find no room in --queue-bytes */
        return 429;
    default:
        law(job->status == XN_ERR_INTERNAL && w.mix.failures,
            "INTERNAL comes when a launch failed, and no other status");
        return 500;
    }
}

static void law_of_refusal(const xn_request *r) {
    const bool oip = !strncmp(r->path, "/v2/models", 10);
    switch (r->status) {
    case 400:
        law(r->act == &acts[ACTS - 1] ||
                (oip && (r->name < 0 || world_had(r->name, 0, r->since_step))),
            "a right request is not called malformed, but for a model that is not ready");
        break;
    case 404:
        law(r->name < 0 || world_had(r->name, 0, r->since_step),
            "NOT_FOUND is of a name that has nothing");
        break;
    case 413:
        law(r->act->changes || w.config.queue_bytes < 4 << 20, "LIMIT is of changes, or of room");
        break;
    case 504:
        law(r->in_a_hurry, "nobody waits for seconds");
        break;
    case 500:
        law(w.mix.failures && r->act->infers, "INTERNAL comes when a launch failed");
        break;
    default:
        law(r->status == 429 || r->status == 503, "an answer has one of eleven statuses");
        law(r->retry_after, "429 and 503 say when to try again");
    }
}

/* Where the cache forgets nothing, equal inline weights are one asset. */
static void law_of_one_asset(const xn_request *r) {
    if (w.config.weights_cache_bytes < 1 << 20 || w.config.queue_bytes < 4 << 20 ||
        w.mix.shortages || w.mix.no_memory || r->act != &acts[1] || !request_work(r) ||
        !request_work(r)->asset)
        return;
    for (const xn_request *other = w.requests; other; other = other->next)
        law(other->act != r->act || other->value != r->value || !request_work(other) ||
                !request_work(other)->asset || request_work(other)->asset == request_work(r)->asset,
            "requests with the same inline weights have the same asset");
}

void request_judge(const xn_request *r) {
    const xn_inference *work = request_work(r);
    law_of_one_asset(r);
    if (work && work->job.status && !r->gone) {
        const int status = law_of_status(r, &work->job);
        law(r->aborted || r->status == status, "a job's status is the answer's");
    }
    if (!r->status || r->aborted)
        law(!r->aborted || r->gone || w.mix.no_memory || w.fail_allocation,
            "only a client that is gone is not answered");
    else if (r->status < 300)
        r->act->check(r);
    else
        law_of_refusal(r);
}

void request_settle(xn_request *r) {
    const xn_context *ctx = r->user;
    if (!r->change)
        return;
    if (r->suspended ? !ctx->of.background->error.status : r->status && r->status < 300) {
        r->change->settled_step = fibers_steps();
        world_end_versions(r->name, r->change, r->since_step);
    } else if (!w.mix.disk || !r->received_ns) {
        r->change->last_step = fibers_steps();
    } else { /* the folder may have it, although that may not outlast a loss of power */
        r->change->settled_step = fibers_steps();
    }
}

/* ---- runs ---- */

static bool waits(const xn_request *r) {
    const xn_inference *work = request_work(r);
    return work && work->job.state == XN_JOB_QUEUED;
}

static bool is_oldest(const xn_request *r) {
    const xn_job *job = &request_work(r)->job;
    for (const xn_request *other = w.requests; other; other = other->next)
        if (other != r && waits(other)) {
            const xn_job *its = &request_work(other)->job;
            if (its->asset == job->asset && its->pool == job->pool && its->arrival < job->arrival)
                return false;
        }
    return true;
}

/* Start-time fair queueing (queue.h): while a request is its asset's oldest, another asset gets the
 * batch that was begun, the one whose turn it is, and one for what the request's asset had before.
 * Worlds whose batches wait for company, or are cut for want of memory, have other bounds. */
static void law_of_fairness(const xn_job *first) {
    enum { MOST_PASSED = 4 };
    if (w.config.batch_delay_us || w.mix.shortages || w.mix.no_memory)
        return;
    for (xn_request *r = w.requests; r; r = r->next) {
        const xn_job *job = waits(r) ? &request_work(r)->job : NULL;
        if (!job || job->asset == first->asset || job->pool != first->pool ||
            job->submitted_ns >= first->started_ns || !is_oldest(r))
            continue;
        unsigned char *passed = &r->passed[((uintptr_t)first->asset >> 6) % OTHERS];
        law(++*passed <= MOST_PASSED, "nobody waits longer than his share and a batch");
    }
}

/* Whose input that is: what a request that leaves had may be another's already. */
static const xn_request *owner_of(const void *input) {
    const xn_request *late = NULL;
    for (const xn_request *r = w.requests; r; r = r->next) {
        const xn_inference *work = request_work(r);
        if (work && (!r->leaving || r->retained) &&
            (const char *)input >= (const char *)work->job.input &&
            (const char *)input < (const char *)work->job.input + r->elements * sizeof(float)) {
            if (!r->resumed)
                return r;
            late = r;
        }
    }
    return late;
}

void world_sees_run(const xn_batch *batch, const xn_prepared *prepared) {
    const xn_job *first = NULL;
    int64_t images = 0;
    (void)prepared;
    for (size_t i = 0; i < batch->count; i++) {
        const xn_request *r = owner_of(batch->items[i].input);
        law(r, "a run reads memory of a request that is there");
        const xn_job *job = &request_work(r)->job;
        law(!r->resumed || r->retained, "a run is of requests that wait for it");
        first = first ? first : job;
        law(job->asset == first->asset, "a batch has one asset");
        law(xn_problem_equal(&job->problem, &first->problem), "a batch has equal problems");
        law_of_one_asset(r);
        images += batch->items[i].images;
    }
    law(first, "a run has requests");
    law(images <= w.config.max_batch_images || batch->count == 1, "a batch keeps its limit");
    if (first->state)
        law_of_fairness(first);
    event("run of %zu requests, %lld images, %p first", batch->count, (long long)images,
          (const void *)first);
}

/* What happens to a model's name happens in order: another load of it prepares before this one or
 * behind it, on all devices. */
void world_sees_prepare(const xn_weights *weights) {
    for (int name = NAMES; name < ALL_NAMES && weights->real; name++)
        for (int i = 0; i < w.version_count[name]; i++) {
            version *v = &w.versions[name][i];
            float *loader = &w.loader[name - NAMES];
            if (v->value != weights->real[0] || v->value == 0 || v->value == *loader)
                continue;
            law(!v->prepared, "one load of a name runs at a time");
            v->prepared = true;
            *loader = v->value;
        }
}

/* ---- clients ---- */

static const act *draw_act(void) {
    unsigned sum = 0, at;
    for (int i = 0; i < ACTS; i++)
        sum += w.mix.by_act[i];
    at = (unsigned)xn_rng_below(&w.rng, sum);
    for (int i = 0;; i++) {
        if (at < w.mix.by_act[i])
            return acts[i].changes && w.changes++ > VERSIONS / 2 ? &acts[0] : &acts[i];
        at -= w.mix.by_act[i];
    }
}

static void client_body(void *argument) {
    client by = {.number = (int)(intptr_t)argument};
    w.busy++;
    while (!w.over && fibers_now() < w.end_ns) {
        fibers_sleep(world_about(w.mix.pause_ns));
        if (!by.address)
            client_connect(&by);
        const int refused = w.refused;
        if (by.address)
            request_run(request_new(&by, draw_act()));
        if (w.refused > refused)
            fibers_sleep(world_about(10 * w.mix.pause_ns)); /* it tries later */
        if (world_draws(10))
            client_disconnect(&by);
    }
    client_disconnect(&by);
    w.busy--;
}

void client_begin(int number) {
    char name[24];
    snprintf(name, sizeof name, "client-%d", number);
    fibers_start(name, client_body, (void *)(intptr_t)number);
}
