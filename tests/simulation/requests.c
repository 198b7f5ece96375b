/* requests.c: what clients send, one request after another, and what may come back. All weights are
 * one tap, so that an answer shows whose value it was computed with. */
#include "world.h"

#include "clock.h"
#include "coding.h"
#include "device.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MODEL "/v2/models/*"
#define REPOSITORY "/v2/repository/models/*"

/* ---- sending ---- */

__attribute__((format(printf, 2, 3))) static void say(xn_request *r, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    r->bytes += (size_t)vsnprintf(r->body + r->bytes, BODY_BYTES - r->bytes, format, arguments);
    va_end(arguments);
    law(r->bytes < BODY_BYTES, "a body has room");
}

static bool has_query(const xn_request *r) {
    return r->act->form == RAW || r->act->form == SAFETENSORS;
}

/* Of the query, or a member of the JSON. quote: around a text there. */
static void say_parameter(xn_request *r, const char *key, const char *quote, const char *value) {
    const size_t used = strlen(r->query);
    if (has_query(r))
        snprintf(r->query + used, sizeof r->query - used, "%s%s=%s", used ? "&" : "", key, value);
    else
        say(r, "\"%s\":%s%s%s,", key, quote, value, quote);
}

/* A tensor behind `opening`, its values in the JSON or behind it. */
static void say_tensor(xn_request *r, const char *opening, int images, int side,
                       const float *values) {
    const size_t count = (size_t)(images * side * side), bytes = count * sizeof *values;
    const form as = r->act->form;
    if (as != RAW)
        say(r, "%s%s\"shape\":[%d,1,%d,%d],", opening,
            as == SAFETENSORS ? "\"dtype\":\"F32\"," : "\"datatype\":\"FP32\",", images, side,
            side);
    for (size_t i = 0; as == JSON && i < count; i++)
        say(r, "%s%g", i ? "," : "\"data\":[", (double)values[i]);
    if (as == JSON)
        say(r, "]}");
    else if (as == OIP)
        say(r, "\"parameters\":{\"binary_data_size\":%zu}}", bytes);
    else if (as == SAFETENSORS)
        say(r, "\"data_offsets\":[%zu,%zu]}", r->tail_bytes, r->tail_bytes + bytes);
    if (as != JSON) {
        memcpy(r->tail + r->tail_bytes, values, bytes);
        r->tail_bytes += bytes;
    }
}

static void begin_body(xn_request *r) {
    if (r->act->form == SAFETENSORS)
        r->bytes = sizeof(uint64_t);
    if (r->act->form != RAW)
        say(r, "{");
}

/* Chunked: the length is not known before. Coded: only the background pool reads it. */
static void end_body(xn_request *r) {
    char plain[BODY_BYTES];
    if (r->act->form < RAW)
        say(r, "}");
    const uint64_t header = r->bytes - sizeof header;
    if (r->act->form == SAFETENSORS)
        memcpy(r->body, &header, sizeof header);
    if (r->act->form == OIP || (r->act->form == RAW && !r->query[0]))
        snprintf(r->header_length, sizeof r->header_length, "%zu", r->bytes);
    law(r->bytes + r->tail_bytes <= BODY_BYTES, "a body has room");
    memcpy(r->body + r->bytes, r->tail, r->tail_bytes);
    r->bytes += r->tail_bytes;
    memcpy(plain, r->body, r->bytes);
    r->coded = world_draws(w.mix.coded) &&
               xn_coding_encode(XN_CODING_GZIP, plain, r->bytes, r->body, BODY_BYTES, &r->bytes);
    r->takes_coded = world_draws(w.mix.coded);
    r->length = world_draws(w.mix.chunked) ? XN_HTTP_UNKNOWN_LENGTH : r->bytes;
}

static void draw_input(xn_request *r, size_t elements) {
    const uint64_t most = world_draws(30) ? 2 : 1000; /* few: the cache of answers may know them */
    r->elements = elements;
    for (size_t i = 0; i < elements; i++)
        r->input[i] = (float)(1 + xn_rng_below(&w.rng, most));
    r->in_a_hurry = world_draws(w.mix.short_deadlines);
    r->timeout_ns = w.config.timeout_ms * XN_NS_PER_MS;
}

/* Registered weights, or inline ones, which are new now and then. */
static void make_conv(xn_request *r) {
    const int images = 1 + (int)xn_rng_below(&w.rng, 6), side = world_draws(50) ? 1 : 3;
    const char name[2] = {(char)('a' + r->name), '\0'};
    char shape[32];
    snprintf(shape, sizeof shape, "%d,1,%d,%d", images, side, side);
    draw_input(r, (size_t)(images * side * side));
    begin_body(r);
    say_parameter(r, "mode", "\"", "float");
    if (r->in_a_hurry) {
        say_parameter(r, "timeout_ms", "", "1");
        r->timeout_ns = XN_NS_PER_MS;
    }
    if (world_draws(20))
        say_parameter(r, "backend", "\"",
                      strcmp(xn_engine_primary(w.engine), "cpu") ? "cuda" : "cpu");
    if (r->act->form == RAW)
        say_parameter(r, "shape", "", shape);
    if (r->act->count) {
        say_parameter(r, "weights", "\"", name);
    } else {
        const uint64_t moment = w.alone ? 0 : (uint64_t)fibers_now() / MOMENT_NS;
        r->value = (float)(INLINE_VALUE + (moment + xn_rng_below(&w.rng, 2)) % 4096);
        say_tensor(r, "\"weights\":{", 1, 1, &r->value);
        say(r, ",");
    }
    say_tensor(r, "\"input\":{", images, side, r->input);
    end_body(r);
}

/* A network, or registered weights as a model. */
static void make_infer(xn_request *r) {
    const bool raw = r->act->form == RAW, weights = r->name < NAMES;
    const bool large = w.mix.large && r->act->form == JSON && world_draws(20);
    const uint64_t limit = weights ? (uint64_t)w.config.max_batch_images : INPUTS;
    const uint64_t most = raw ? 1 : large ? limit : limit < 6 ? limit : 6;
    draw_input(r, 1 + xn_rng_below(&w.rng, most));
    r->in_a_hurry = r->in_a_hurry && !raw;
    if (r->in_a_hurry)
        r->timeout_ns = 400 * XN_NS_PER_US;
    begin_body(r);
    say_tensor(r, weights ? "\"inputs\":[{\"name\":\"input\"," : "\"inputs\":[{\"name\":\"image\",",
               (int)r->elements, 1, r->input);
    if (!raw)
        say(r, "],\"parameters\":{\"binary_data_output\":%s%s%s}",
            r->act->form == OIP ? "true" : "false", r->in_a_hurry ? ",\"timeout\":400" : "",
            weights ? ",\"mode\":\"float\"" : "");
    end_body(r);
}

/* One grey pixel of 255, which is the number 1; the background pool decodes it. */
static void make_picture(xn_request *r) {
    static const unsigned char png[] = {
        0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a, 0x00, 0x00, 0x00, 0x0d, 0x49, 0x48,
        0x44, 0x52, 0x00, 0x00, 0x00, 0x01, 0x00, 0x00, 0x00, 0x01, 0x08, 0x00, 0x00, 0x00,
        0x00, 0x3a, 0x7e, 0x9b, 0x55, 0x00, 0x00, 0x00, 0x0a, 0x49, 0x44, 0x41, 0x54, 0x78,
        0x9c, 0x63, 0xf8, 0x0f, 0x00, 0x01, 0x01, 0x01, 0x00, 0xb1, 0x38, 0xf6, 0x14, 0x00,
        0x00, 0x00, 0x00, 0x49, 0x45, 0x4e, 0x44, 0xae, 0x42, 0x60, 0x82};
    draw_input(r, 1);
    r->input[0] = 1;
    r->in_a_hurry = false;
    memcpy(r->body, png, sizeof png);
    r->bytes = sizeof png;
    end_body(r);
}

static void begin_change(xn_request *r, float value) {
    r->value = value;
    r->change = world_begin_version(r->name, value);
}

static void make_put(xn_request *r) {
    begin_change(r, world_new_value());
    begin_body(r);
    say_tensor(r, "\"weights\":{", 1, 1, &r->value);
    end_body(r);
}

/* DELETE and unload: no body. A model with a folder may come back. */
static void make_removal(xn_request *r) {
    if (r->name == FOLDER)
        w.unloaded = true;
    else
        begin_change(r, 0);
}

static void say_base64(xn_request *r, const unsigned char *bytes, size_t length) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    law(length % 3 == 0, "no padding");
    for (; length; bytes += 3, length -= 3)
        say(r, "%c%c%c%c", digits[bytes[0] >> 2], digits[(bytes[0] & 3) << 4 | bytes[1] >> 4],
            digits[(bytes[1] & 15) << 2 | bytes[2] >> 6], digits[bytes[2] & 63]);
}

/* With its files, or from its folder. */
static void make_load(xn_request *r) {
    unsigned char tensors[MODEL_BYTES];
    begin_body(r);
    if (r->name != FOLDER) {
        begin_change(r, world_new_value());
        model_tensors(r->value, tensors);
        say(r, "\"parameters\":{\"config\":\"");
        for (const char *at = model_config; *at; at++)
            say(r, "%s%c", *at == '"' ? "\\" : "", *at);
        say(r, "\",\"file:model.safetensors\":\"");
        say_base64(r, tensors, sizeof tensors);
        say(r, "\"}");
    }
    end_body(r);
}

static void make_get(xn_request *r) {
    r->length = 0;
}

static void make_index(xn_request *r) {
    begin_body(r);
    end_body(r);
}

static void make_wrong(xn_request *r) {
    say(r, "{\"input\": {\"shape\": [1,1,1,1], \"datatype\": \"FP32\", \"data\"");
    r->length = r->bytes;
}

/* ---- judging ---- */

static xn_status take_all(void *context, size_t bytes, xn_error *error) {
    (void)context, (void)bytes, (void)error;
    return XN_OK;
}

/* The values of an answer: in its JSON, or its last bytes. False: no memory to decode it. */
static bool read_output(const xn_request *r, float output[INPUTS]) {
    char decoded[DECODED_BYTES];
    const char *answer = r->answer, *at;
    size_t length = r->answer_length;
    if (r->act->form != JSON && r->act->form != PICTURE) {
        law(length >= r->elements * sizeof *output, "an output has its length");
        memcpy(output, answer + length - r->elements * sizeof *output,
               r->elements * sizeof *output);
        return true;
    }
    if (r->answer_coded && xn_coding_decode(XN_CODING_GZIP, answer, length, decoded,
                                            sizeof decoded - 1, "", take_all, NULL, &length, NULL))
        return false;
    decoded[r->answer_coded ? length : 0] = '\0';
    at = strstr(r->answer_coded ? decoded : answer, "\"data\":[");
    law(at, "an answer has values");
    at += strlen("\"data\":[");
    for (size_t i = 0; i < r->elements; i++, at++) {
        char *end;
        output[i] = strtof(at, &end);
        at = end;
    }
    law(at[-1] == ']', "an output has its length");
    return true;
}

static void check_output(const xn_request *r) {
    float output[INPUTS] = {0};
    if (!read_output(r, output))
        return;
    const float value = output[0] / r->input[0]; /* whole numbers: exact */
    event(r, "value", "%g", (double)value);
    if (r->name < 0)
        law(value == r->value, "inline weights are the ones");
    else
        law(value != 0 && world_had(r->name, value, r->received_step,
                                    r->asset_step ? r->asset_step : fibers_steps()),
            "a version that the name had when it was looked up");
    for (size_t i = 0; i < r->elements; i++)
        law(output[i] == r->input[i] * value, "an answer is ref's, bit by bit");
    if (r->name == FOLDER)
        world_saw_version(value);
}

static void check_put(const xn_request *r) {
    bool had = false;
    for (int i = 0; i < w.version_count[r->name] && r->status == 200; i++) {
        const version *v = &w.versions[r->name][i];
        had = had || (v->value != 0 && v->last_step >= r->since_step);
    }
    law(r->status == 200 ? had : world_had(r->name, 0, r->since_step, fibers_steps()),
        "created says whether the name is new");
}

static void check_wrong(const xn_request *r) {
    law(!r, "a body that is cut is refused");
}

const act acts[ACTS] = {
    {"conv raw", "POST", "/conv", 0, NAMES, RAW, make_conv, check_output},
    {"conv JSON", "POST", "/conv", 0, NAMES, JSON, make_conv, check_output},
    {"conv OIP", "POST", "/conv", 0, NAMES, OIP, make_conv, check_output},
    {"conv safetensors", "POST", "/conv", 0, NAMES, SAFETENSORS, make_conv, check_output},
    {"inline JSON", "POST", "/conv", 0, 0, JSON, make_conv, check_output},
    {"inline OIP", "POST", "/conv", 0, 0, OIP, make_conv, check_output},
    {"inline safetensors", "POST", "/conv", 0, 0, SAFETENSORS, make_conv, check_output},
    {"infer JSON", "POST", MODEL "/infer", NAMES, MODELS + 1, JSON, make_infer, check_output},
    {"infer OIP", "POST", MODEL "/infer", NAMES, MODELS + 1, OIP, make_infer, check_output},
    {"infer raw", "POST", MODEL "/infer", NAMES, MODELS + 1, RAW, make_infer, check_output},
    {"picture", "POST", MODEL "/infer", NAMES, MODELS + 1, PICTURE, make_picture, check_output},
    {"weights JSON", "POST", MODEL "/infer", 0, NAMES, JSON, make_infer, check_output},
    {"weights OIP", "POST", MODEL "/infer", 0, NAMES, OIP, make_infer, check_output},
    {"put JSON", "PUT", "/weights/*", 0, NAMES, JSON, make_put, check_put},
    {"put safetensors", "PUT", "/weights/*", 0, NAMES, SAFETENSORS, make_put, check_put},
    {"load", "POST", REPOSITORY "/load", NAMES, MODELS, JSON, make_load, NULL},
    {"load folder", "POST", REPOSITORY "/load", FOLDER, 1, JSON, make_load, NULL},
    {"index", "POST", "/v2/repository/index", 0, 0, JSON, make_index, NULL},
    {"weights", "GET", "/weights", 0, 0, JSON, make_get, NULL},
    {"one of them", "GET", "/weights/*", 0, NAMES, JSON, make_get, NULL},
    {"server", "GET", "/v2", 0, 0, JSON, make_get, NULL},
    {"ready", "GET", "/v2/health/ready", 0, 0, JSON, make_get, NULL},
    {"model", "GET", MODEL, NAMES, MODELS + 1, JSON, make_get, NULL},
    {"model ready", "GET", MODEL "/ready", NAMES, MODELS, JSON, make_get, NULL},
    {"config", "GET", MODEL "/config", NAMES, MODELS, JSON, make_get, NULL},
    {"statistics", "GET", "/v2/models/stats", 0, 0, JSON, make_get, NULL},
    {"metrics", "GET", "/metrics", 0, 0, JSON, make_get, NULL},
    {"delete", "DELETE", "/weights/*", 0, NAMES, JSON, make_removal, NULL},
    {"unload", "POST", REPOSITORY "/unload", NAMES, MODELS, JSON, make_removal, NULL},
    {"unload folder", "POST", REPOSITORY "/unload", FOLDER, 1, JSON, make_removal, NULL},
    {"wrong", "POST", "/conv", 0, 0, JSON, make_wrong, check_wrong},
};

bool act_infers(const act *of) {
    return of->make == make_conv || of->make == make_infer || of->make == make_picture ||
           of->make == make_wrong;
}

bool act_changes(const act *of) {
    return of->make == make_put || of->make == make_load || of->make == make_removal;
}

const act *act_of(const char *name) {
    const act *at = acts;
    while (strcmp(at->name, name) != 0)
        at++;
    return at;
}

/* A status of a job, as what happens in the world explains it; its status in HTTP. */
static int law_of_status(const xn_request *r, const xn_job *job) {
    bool lost = false;
    for (int i = 0; i < SIM_DEVICES; i++)
        lost = lost || devices.each[SIM_GPU][i].lost;
    switch (job->status) {
    case XN_ERR_DEADLINE:
        law(fibers_now() >= job->deadline_ns, "DEADLINE comes when the deadline has passed");
        law(r->in_a_hurry, "only a request with a short deadline misses it");
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
        law(r->act == &acts[ACTS - 1] || r->act->make == make_load ||
                (oip && (r->name < 0 || world_had(r->name, 0, r->since_step, fibers_steps()))),
            "a right request is not called malformed, but for a model that is not ready");
        break;
    case 404:
        law(r->name < 0 || world_had(r->name, 0, r->since_step, fibers_steps()),
            "NOT_FOUND is of a name that has nothing");
        break;
    case 413:
        law(act_changes(r->act) || w.config.queue_bytes < 4 << 20,
            "LIMIT is of changes, or of room");
        break;
    case 504:
        law(r->in_a_hurry, "only a request with a short deadline misses it");
        break;
    case 500:
        law(w.mix.failures && act_infers(r->act), "INTERNAL comes when a launch failed");
        break;
    default:
        law(r->status == 429 || r->status == 503, "an answer has one of eleven statuses");
        law(r->retry_after, "429 and 503 say when to try again");
    }
}

/* Where the cache forgets nothing, equal inline weights are one asset. */
static void law_of_one_asset(const xn_request *r) {
    if (w.config.weights_cache_bytes < 1 << 20 || w.config.queue_bytes < 4 << 20 ||
        w.mix.shortages || w.mix.no_memory || r->name >= 0 || !request_work(r) ||
        !request_work(r)->asset)
        return;
    for (const xn_request *other = w.requests; other; other = other->next)
        law(other->name >= 0 || other->value != r->value || !request_work(other) ||
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
    else if (r->status >= 300)
        law_of_refusal(r);
    else if (r->act->check)
        r->act->check(r);
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
    if (w.config.batch_delay_us || w.mix.shortages || w.mix.no_memory || w.mix.large)
        return;
    for (xn_request *r = w.requests; r; r = r->next) {
        const xn_job *job = waits(r) ? &request_work(r)->job : NULL;
        if (!job || job->asset == first->asset || job->pool != first->pool ||
            job->submitted_ns >= first->started_ns || !is_oldest(r))
            continue;
        unsigned char *passed = &r->passed[((uintptr_t)first->asset >> 6) % OTHERS];
        law(++*passed <= MOST_PASSED, "a request waits for its share and a batch at most");
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

/* A warm-up's run is its alone. One that is over may have given its memory to a request. */
static bool is_warm_up(const xn_batch *batch) {
    const xn_warm_up *up = w.engine->pools.warm_ups;
    while (up && (up->over || !up->job.state || up->job.input != batch->items[0].input))
        up = up->next;
    law(!up || (batch->count == 1 && batch->items[0].images == up->job.images &&
                batch->items[0].output == up->job.output),
        "a warm-up runs alone");
    return up;
}

void world_sees_run(const xn_batch *batch, const xn_prepared *prepared) {
    const xn_job *first = NULL;
    int64_t images = 0;
    (void)prepared;
    if (is_warm_up(batch)) {
        event(NULL, "warm-up", "of %lld images", (long long)batch->items[0].images);
        return;
    }
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
    event(owner_of(batch->items[0].input), "run", "%zu requests, %lld images", batch->count,
          (long long)images);
}

/* What happens to a model's name happens in order: another load of it prepares before this one or
 * behind it, on all devices. */
void world_sees_prepare(const xn_weights *weights) {
    for (int name = NAMES; name < FOLDER && weights->real; name++)
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
            return act_changes(&acts[i]) && w.changes++ > VERSIONS / 2 ? &acts[0] : &acts[i];
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
