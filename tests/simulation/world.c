/* world.c: see world.h. */
#include "world.h"

#include "clock.h"
#include "device.h"
#include "models_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

world w;
totals *all;

bool world_draws(unsigned percent) {
    return percent && xn_rng_below(&w.rng, 100) < percent;
}

int64_t world_about(int64_t ns) {
    return (int64_t)xn_rng_below(&w.rng, (uint64_t)(2 * ns + 1));
}

/* ---- what names have had ---- */

float world_new_value(void) {
    w.last_value = w.last_value < INLINE_VALUE - 1 ? w.last_value + 1 : 2; /* 1 is FOLDER's */
    return w.last_value;
}

bool world_had(int name, float value, uint64_t since_step, uint64_t until_step) {
    for (int i = 0; i < w.version_count[name]; i++) {
        const version *v = &w.versions[name][i];
        if (v->value == value && v->last_step >= since_step && v->first_step <= until_step)
            return true;
    }
    return false;
}

void world_saw_version(float value) {
    for (version *v = w.versions[FOLDER]; v->value != value; v++)
        if (v->value != 0 && v->last_step == UINT64_MAX)
            v->last_step = fibers_steps();
}

version *world_begin_version(int name, float value) {
    int *count = &w.version_count[name];
    for (int i = *count; w.alone && i-- > 0;) /* what was is asked for no more */
        if (w.versions[name][i].last_step != UINT64_MAX)
            w.versions[name][i] = w.versions[name][--*count];
    law(*count < VERSIONS, "there is room for another version");
    version *v = &w.versions[name][(*count)++];
    *v = (version){.value = value, .first_step = fibers_steps(), .last_step = UINT64_MAX};
    return v;
}

/* Which of two changes that overlap came last is not known: what either leaves is taken for current
 * until another change begins and ends behind both. */
void world_end_versions(int name, const version *by, uint64_t begun_step) {
    for (int i = 0; i < w.version_count[name]; i++) {
        version *v = &w.versions[name][i];
        if (v != by && v->last_step == UINT64_MAX && v->settled_step &&
            v->settled_step < begun_step)
            v->last_step = fibers_steps();
    }
}

/* ---- at any moment ---- */

/* Weights that are prepared for a device grow: what is registered next makes room for that. So do
 * connections that come: the requests behind them are refused, but not one that was admitted in the
 * same step before them. */
static void law_of_limits(const xn_metrics *metrics) {
    const struct {
        xn_gauge gauge;
        int64_t limit;
        const char *law;
    } limits[] = {
        {XN_GAUGE_INFLIGHT, w.config.queue_depth, "--queue-depth bounds requests in flight"},
        {XN_GAUGE_PROGRAMS_BYTES, w.config.queue_bytes / 2, "half of it bounds programs"},
        {XN_GAUGE_WEIGHTS, w.config.max_weights, "--max-weights bounds names"},
        {XN_GAUGE_RESPONSE_CACHE_BYTES, w.config.response_cache_bytes,
         "--response-cache-bytes bounds answers"}};
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++)
        law(xn_metrics_gauge(metrics, limits[i].gauge) <= limits[i].limit, limits[i].law);
    const int64_t requests = xn_metrics_gauge(metrics, XN_GAUGE_INFLIGHT_BYTES);
    const int64_t connections = xn_metrics_gauge(metrics, XN_GAUGE_CONNECTIONS_BYTES);
    const int64_t came = connections > w.last_connections ? connections - w.last_connections : 0;
    const int64_t used =
        requests + xn_metrics_gauge(metrics, XN_GAUGE_PROGRAMS_BYTES) + connections - came;
    law(requests <= w.last_bytes || used <= w.config.queue_bytes,
        "--queue-bytes bounds what requests add to programs and connections");
    w.last_bytes = requests;
    w.last_connections = connections;
}

void world_check(void) {
    if (!w.engine)
        return;
    const xn_metrics *metrics = xn_engine_metrics(w.engine);
    int64_t counted = 0, leaving = 0, queued = 0, bytes = 0, jobs = 0, of_address[ADDRESSES] = {0};
    const int64_t share_of_requests = w.config.queue_depth - w.config.queue_depth / 4;
    for (const xn_warm_up *up = w.engine->pools.warm_ups; up; up = up->next) {
        leaving++; /* it may have come or gone already */
        jobs++;
    }
    law(fibers_now() > w.last_ns, "time goes on");
    w.last_ns = fibers_now();
    for (xn_request *r = w.requests; r; r = r->next) {
        const xn_context *ctx = r->user;
        const xn_inference *work = request_work(r);
        if (!ctx || !ctx->ticket.admission)
            continue;
        if (work && work->asset && !r->asset_step)
            r->asset_step = fibers_steps();
        law(!work || !work->job.deadline_ns ||
                work->job.deadline_ns == r->received_ns + r->timeout_ns,
            "a deadline counts from the end of the body");
        leaving += r->leaving;
        counted += !r->leaving;
        law(r->leaving || ++of_address[r->by->number % ADDRESSES] <= share_of_requests,
            "a client's address has its share of requests at most");
        bytes += r->leaving ? 0 : (int64_t)ctx->ticket.bytes;
        jobs += work && work->job.state;
        queued += work && work->job.state == XN_JOB_QUEUED;
    }
    const int64_t inflight = xn_metrics_gauge(metrics, XN_GAUGE_INFLIGHT);
    const int64_t held = xn_metrics_gauge(metrics, XN_GAUGE_INFLIGHT_BYTES);
    const int64_t depth = xn_metrics_gauge(metrics, XN_GAUGE_QUEUE_DEPTH);
    law(inflight >= counted && inflight <= counted + leaving,
        "requests in flight are those that were admitted and have not left");
    law(leaving ? held >= bytes : held == bytes, "bytes in flight are those of live requests");
    law_of_limits(metrics);
    law(depth >= queued && depth <= jobs, "the queue has the requests that wait");
    law(w.connecting || xn_metrics_gauge(metrics, XN_GAUGE_CONNECTIONS_BYTES) ==
                            w.connections * XN_CONNECTION_BYTES,
        "connections are counted while they are there");
}

/* A worker that sleeps was not woken for a batch that could run. */
static void law_of_work(void) {
    for (int i = 0; i < w.engine->pools.count; i++) {
        const xn_pool *pool = &w.engine->pools.each[i];
        const bool due = xn_queue_wait_ns(pool->queue, w.engine->pools.draining, fibers_now()) == 0;
        law(!due || !pool->idle || (pool->threads && !pool->threads_free),
            "no worker sleeps while a batch could run");
    }
}

/* What a load has counted and not yet published is its own. */
static void law_of_models(void) {
    const xn_models *models = w.service.models;
    int64_t bytes = 0;
    bool busy = false;
    for (size_t i = 0; models && i < models->entries.count; i++) {
        const xn_model_entry *entry = models->entries.items[i];
        int64_t its = 0;
        for (int k = 0; k < entry->slot_count; k++)
            its += entry->slots[k].serving ? (int64_t)entry->slots[k].serving->host_bytes : 0;
        law(its >= 0 && its <= w.config.max_models_bytes, "a model's bytes are below their limit");
        busy = busy || entry->busy;
        bytes += its;
    }
    law(!models || busy || models->bytes == bytes, "bytes of models are those that serve");
}

static void law_at_rest(void) {
    if (w.engine) {
        law_of_work();
        law_of_models();
    }
}

static void deadlocked(void) {
    law(false, "a fiber can go on");
}

/* ---- a seed's own limits ---- */

static int64_t pick(int64_t a, int64_t b, int64_t c) {
    const int64_t choices[3] = {a, b, c};
    return choices[xn_rng_below(&w.rng, 3)];
}

/* Most kinds of event are absent from most worlds. */
static unsigned rate(unsigned most) {
    return world_draws(35) ? 1 + (unsigned)xn_rng_below(&w.rng, most) : 0;
}

static void draw(uint64_t seed) {
    memset(&w, 0, sizeof w);
    w.rng.state = seed;
    w.mix = (world_mix){.duration_ns = pick(2, 6, 16) * XN_NS_PER_MS,
                        .pause_ns = pick(10, 50, 400) * XN_NS_PER_US,
                        .clients = (int)pick(2, 8, 24),
                        .resets = rate(40),
                        .stalls = rate(40),
                        .chunked = rate(40),
                        .coded = rate(30),
                        .short_deadlines = rate(60),
                        .hangs = rate(30),
                        .losses = world_draws(40) ? rate(20) : 0,
                        .shortages = rate(60),
                        .canaries = rate(30),
                        .failures = rate(40),
                        .no_memory = rate(60),
                        .disk = rate(20),
                        .large = world_draws(20),
                        .populated = world_draws(90),
                        .folder = world_draws(30),
                        .files = world_draws(30),
                        .drains = world_draws(30)};
    w.mix.by_act[0] = 20;
    for (int i = 0; i < ACTS; i++)
        w.mix.by_act[i] += rate(i >= ACTS - REMOVALS    ? 5
                                : act_infers(&acts[i])  ? 60
                                : act_changes(&acts[i]) ? 12
                                                        : 4);
    w.config = (xn_config){.max_batch_images = pick(1, 8, 16),
                           .batch_delay_us = pick(0, 0, 300),
                           .inline_us = pick(0, 100, 1000),
                           .queue_depth = pick(4, 12, 64),
                           .queue_bytes = pick(192 << 10, 512 << 10, 4 << 20) +
                                          (w.mix.clients + 8) * XN_CONNECTION_BYTES,
                           .max_weights = pick(2, 3, 100),
                           .max_weights_bytes = pick(1 << 10, 1 << 20, 1 << 20),
                           .weights_cache_bytes = pick(1 << 12, 1 << 14, 1 << 20),
                           .weights_poll_ms = pick(0, 1, 3),
                           .response_cache_bytes = pick(0, 1 << 13, 1 << 16),
                           .canary_interval_ms = pick(0, 1, 5),
                           .timeout_ms = 10000,
                           .max_timeout_ms = 20000,
                           .max_models = 4,
                           .max_models_bytes = pick(20000, 1 << 20, 1 << 20),
                           .max_body_bytes = 1 << 20,
                           .max_picture_pixels = 64,
                           .max_elements = 1 << 20,
                           .max_output_bytes = 1 << 20,
                           .max_operations = 1 << 20,
                           .threads = 1,
                           .versions = {.latest = 1},
                           .warmup = seed % 2 ? XN_WARMUP_ON : XN_WARMUP_OFF,
                           .on_device_loss = world_draws(50) ? XN_LOSS_CPU : XN_LOSS_EXIT};
    memset(&devices, 0, sizeof devices);
    devices.rng = &w.rng;
    for (int kind = 0; kind < SIM_KINDS; kind++)
        for (int i = 0; i < SIM_DEVICES; i++)
            devices.each[kind][i].run_ns = pick(5, 50, 400) * XN_NS_PER_US;
}

/* ---- a life ---- */

static void fatal(void *context) {
    (void)context;
    w.told_fatal = true;
    event(NULL, "fatal", "the loss is told");
}

static atomic_bool no_memory;
static void shortage(void) {
    atomic_store(&no_memory, true);
}

static xn_status create(xn_error *error) {
    static const int ordinals[SIM_DEVICES] = {0, 1, 2};
    const int gpus = (int)pick(1, 2, SIM_DEVICES), threads = (int)pick(1, 2, 3);
    const xn_pool_spec gpu = {&sim_gpu, ordinals, gpus, (int)pick(1, 2, 3), 0, (int)pick(0, 1, 3)};
    const xn_pool_spec cpu = {&sim_cpu, ordinals, 1, threads, threads, (int)pick(0, 1, 3)};
    const xn_pool_spec both[2] = {gpu, cpu};
    w.cpu_threads = threads;
    const int64_t kind = pick(0, 1, 2); /* both, a GPU's, a CPU's */
    return xn_engine_create_with(&w.config,
                                 kind == 1   ? &both[0]
                                 : kind == 2 ? &both[1]
                                             : both,
                                 kind == 0 ? 2 : 1, "", &w.engine, error);
}

static void weights_loaded(void *engine) {
    xn_engine_set_loading(engine, XN_LOADING_WEIGHTS, false);
}

/* As main.c starts its parts. */
static void start(void) {
    xn_error error;
    for (int name = 0; name < ALL_NAMES; name++)
        world_begin_version(name, 0)->settled_step = fibers_steps();
    law(create(&error) == XN_OK, "an engine is created while nothing is wrong");
    xn_mem_set_shortage(shortage);
    xn_engine_on_fatal(w.engine, fatal, NULL);
    w.service = (xn_service){.config = &w.config, .engine = w.engine};
    folders_make();
    xn_engine_set_loading(w.engine, XN_LOADING_WEIGHTS, w.mix.folder);
    const xn_weights_dir_options options = {.path = w.folder,
                                            .poll_ms = w.config.weights_poll_ms,
                                            .max_elements = w.config.max_elements,
                                            .max_weights = w.config.max_weights,
                                            .loaded = weights_loaded,
                                            .context = w.engine};
    law(!xn_thread_pool_create(2, &w.service.background_pool, &error) &&
            !xn_thread_pool_create(XN_MODEL_POOL_THREADS, &w.service.model_pool, &error) &&
            (!w.mix.folder ||
             !xn_weights_dir_open(&options, xn_engine_store(w.engine), xn_engine_metrics(w.engine),
                                  &w.service.weights_dir, &error)) &&
            !xn_service_create_models(&w.service, &error),
        "all parts start while nothing is wrong");
    fibers_uncount(&w.service.models->scanning);
    xn_metrics_set_more(xn_engine_metrics(w.engine), xn_models_metrics, w.service.models);
    xn_service_handler(&w.service, &w.handler);
    law(!xn_models_scan(w.service.models, &error), "the models are looked for");
}

static void begin_draining(void) {
    if (!w.draining)
        event(NULL, "drain", "begins");
    w.draining = true;
    xn_models_stop(w.service.models);
    xn_engine_drain(w.engine);
}

static bool is_anything_left(void) {
    bool left = false;
    for (const xn_request *r = w.requests; r; r = r->next) {
        const xn_context *ctx = r->user;
        left = left || (ctx && ctx->ticket.admission && !r->leaving);
    }
    for (int i = 0; i < SIM_KINDS * SIM_DEVICES; i++)
        left = left || devices.each[i / SIM_DEVICES][i % SIM_DEVICES].in_canary;
    return left;
}

/* In the middle of it all: grace, and, where it was too short, the end. */
static void shut_down(void) {
    begin_draining();
    if (xn_engine_wait_idle(w.engine, fibers_now() + world_about(XN_NS_PER_MS)))
        law(!is_anything_left(), "a drain waits for every request and canary");
    if (!world_draws(50))
        return;
    event(NULL, "stop", "begins");
    w.stopping = true;
    xn_engine_stop(w.engine);
    for (const xn_request *r = w.requests; r; r = r->next) {
        const xn_job *job = request_work(r) ? &request_work(r)->job : NULL;
        law(!job || !job->state || r->resumed || job->finished_ns,
            "every done was called when stop returns");
    }
    event(NULL, "stop", "ends");
}

/* A device that has failed its canary a millisecond ago, and has not been asked again since. */
static bool is_unfit(sim_kind kind) {
    for (int i = 0; i < SIM_DEVICES; i++) {
        const sim_device_state *device = &devices.each[kind][i];
        if (device->unfit_ns && !device->in_canary && !device->told &&
            fibers_now() - device->unfit_ns > XN_NS_PER_MS)
            return true;
    }
    return false;
}

static void law_of_health(void) {
    const bool unfit_gpu = is_unfit(SIM_GPU), unfit_cpu = is_unfit(SIM_CPU);
    xn_engine_health health;
    xn_engine_health_get(w.engine, &health);
    const bool unfit = strcmp(health.backend, "cuda") ? unfit_cpu : unfit_gpu;
    law(!health.ready || !unfit, "not ready while a device fails its canary");
    law(!health.ready || !w.draining, "not ready while draining");
}

/* What the daemon's main thread does in between. */
static void tick(void) {
    if (atomic_exchange(&no_memory, false))
        xn_engine_reclaim(w.engine);
    law_of_health();
    if (w.told_fatal && !w.draining)
        begin_draining();
    fibers_sleep(500 * XN_NS_PER_US);
}

/* ---- the end ---- */

static int64_t number_behind(const char *page, const char *what) {
    const size_t length = strlen(what);
    while (page && (strncmp(page, what, length) != 0 || page[length] != ' '))
        page = (page = strchr(page, '\n')) ? page + 1 : NULL;
    return page ? strtoll(page + length, NULL, 10) : -1;
}

/* What /metrics shows is what the clients saw. */
static void law_of_metrics(void) {
    static const char *const routes[XN_ROUTE_COUNT] = {"conv",       "weights", "infer",  "models",
                                                       "repository", "shm",     "health", "metrics",
                                                       "meta",       "openapi", "page",   "other"};
    static const char *const reasons[] = {"queue_full", "draining",     "too_large", "malformed",
                                          "geometry",   "deadline",     "device",    "no_memory",
                                          "framing",    "unauthorized", "other"};
    int64_t refused = 0;
    size_t length;
    char line[96];
    char *page = xn_metrics_render(xn_engine_metrics(w.engine), &length);
    law(page, "there is memory for /metrics");
    for (int route = 0; route < XN_ROUTE_COUNT; route++)
        for (int status = 0; status < STATUSES; status++) {
            if (!w.counts[route][status])
                continue;
            snprintf(line, sizeof line, "xnord_requests_total{route=\"%s\",code=\"%d\"}",
                     routes[route], status);
            law(number_behind(page, line) == w.counts[route][status],
                "answers are counted by route and status");
        }
    for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++) {
        snprintf(line, sizeof line, "xnord_rejected_requests_total{reason=\"%s\"}", reasons[i]);
        refused += number_behind(page, line);
    }
    law(refused == w.refused, "refusals are counted by reason");
    law(number_behind(page, "xnord_stage_seconds_count{stage=\"total\"}") == w.successes,
        "stages are those of the answers with results");
    for (int i = 0; i < SIM_DEVICES; i++) {
        snprintf(line, sizeof line, "xnord_device_up{device=\"cuda:%d\"}", i);
        law(!devices.each[SIM_GPU][i].told || number_behind(page, line) == 0,
            "a loss that was told is recorded");
    }
    xn_mem_free(page);
}

static void law_of_rest(void) {
    const xn_metrics *metrics = xn_engine_metrics(w.engine);
    static const xn_gauge gauges[] = {XN_GAUGE_INFLIGHT, XN_GAUGE_QUEUE_DEPTH,
                                      XN_GAUGE_INFLIGHT_BYTES};
    for (size_t i = 0; i < sizeof gauges / sizeof *gauges; i++)
        law(xn_metrics_gauge(metrics, gauges[i]) == 0,
            "no requests, bytes, connections are in flight at the end");
}

/* As main.c ends them. */
static void stop(int64_t held) {
    xn_error error;
    law(w.service.models->bytes <= w.config.max_models_bytes, "--max-models-bytes bounds models");
    for (char name[2] = "e"; name[0] < 'a' + ALL_NAMES; name[0]++)
        xn_models_unload(w.service.models, name, &error);
    law(!w.service.models->bytes, "models that are unloaded take no room");
    begin_draining();
    law(xn_engine_wait_idle(w.engine, fibers_now() + XN_NS_PER_S), "a drain ends in its time");
    law_of_metrics();
    xn_engine_stop(w.engine);
    law_of_rest();
    xn_thread_pool_free(w.service.model_pool);
    xn_thread_pool_free(w.service.background_pool);
    xn_weights_dir_close(w.service.weights_dir);
    xn_models_free(w.service.models);
    xn_engine_free(w.engine);
    w.engine = NULL;
    all->runs += devices.runs;
    all->events += events_counted();
    xn_mem_set_shortage(NULL);
    xn_mem_set_hook(NULL, NULL);
    law(!devices.live, "devices, streams, plans and weights are freed");
    law(fibers_memory() == held, "all memory is given back");
}

/* Most worlds begin with weights and models. */
static void populate(void) {
    client by = {0};
    client_connect(&by);
    for (int i = 0; i < 2 * ALL_NAMES && w.mix.populated; i++)
        request_run(request_new(&by, act_of(i % 3 ? "put JSON" : "load")));
    client_disconnect(&by);
}

static void live(void) {
    const int64_t held = fibers_memory();
    start();
    populate();
    w.end_ns = fibers_now() + w.mix.duration_ns;
    for (int i = 0; i < w.mix.clients; i++)
        client_begin(i);
    xn_mem_set_hook(faults_allow, NULL);
    faults_begin();
    const int64_t drain_ns = w.mix.drains ? fibers_now() + world_about(w.mix.duration_ns / 2) : -1;
    while (fibers_now() < w.end_ns) {
        tick();
        if (drain_ns >= 0 && fibers_now() >= drain_ns && !w.draining)
            shut_down();
    }

    /* Faults stop (faults.c): all that was begun ends. */
    w.over = true;
    const int64_t stop_ns = fibers_now() + XN_NS_PER_S;
    while ((w.busy || w.requests) && fibers_now() < stop_ns)
        tick();
    law(!w.busy && !w.requests, "every request ends within a second once faults stop");
    law_of_folders();
    folders_remove();
    stop(held);
}

static void run(uint64_t seed, void (*body)(void)) {
    events_begin(seed);
    const fibers_options options = {.rng = &w.rng,
                                    .preempt_percent = (unsigned)pick(2, 20, 60),
                                    .spurious_percent = rate(10),
                                    .between = world_check,
                                    .resting = law_at_rest,
                                    .deadlock = deadlocked};
    fibers_run(&options, body);
}

void world_run(uint64_t seed) {
    draw(seed);
    run(seed, live);
}

/* ---- each allocation fails in turn ---- */

static client lone;

/* The same request each time that it is asked with the same number. */
static int ask(int which, uint64_t variant) {
    const int refused = w.refused;
    w.rng.state = variant;
    if (!lone.address)
        client_connect(&lone);
    request_run(request_new(&lone, &acts[which]));
    fibers_sleep(XN_NS_PER_MS); /* released, given back */
    law_of_rest();
    return w.refused - refused;
}

/* What is there afterwards is the same each time: changes leave the name and the model that the
 * others ask for. Returns the memory that is held. */
static int64_t ask_all(uint64_t variant) {
    for (int first = 1; first >= 0; first--)
        for (int i = 0; i < ACTS - REMOVALS; i++)
            law(act_changes(&acts[i]) != first || !ask(i, variant),
                "every request is answered while memory is there");
    fibers_sleep(6 * XN_NS_PER_S); /* unused programs go */
    xn_engine_reclaim(w.engine);
    xn_store_trim(xn_engine_store(w.engine));
    return fibers_memory();
}

/* Asks without that allocation. False: there are not so many. */
static bool fail(int which, uint64_t variant, long allocation, bool all_after) {
    event(NULL, "fail", "%s without its allocation %ld", acts[which].name, allocation);
    w.fail_allocation = allocation;
    w.fail_all_after = all_after;
    w.allocations = 0;
    ask(which, variant);
    w.fail_allocation = 0;
    all->runs++;
    return w.allocations >= allocation;
}

/* Behind an unload the model's programs are new, and some stay for one round more. */
static bool is_as_before(uint64_t variant, int64_t before) {
    return llabs(ask_all(variant) - before) < ROUNDING ||
           llabs(ask_all(variant) - before) < ROUNDING;
}

static void fail_each(void) {
    const int64_t held = fibers_memory();
    start();
    xn_mem_set_hook(faults_allow, NULL);
    for (uint64_t variant = 0; variant < VARIANTS; variant++) {
        ask_all(variant);
        const int64_t before = ask_all(variant);
        for (int which = 0; which < ACTS; which++)
            for (int all_after = 0; all_after < 2; all_after++)
                for (long n = 1; fail(which, variant, n, all_after); n++)
                    law(is_as_before(variant, before), "memory is as before");
    }
    client_disconnect(&lone);
    law_of_folders();
    folders_remove();
    stop(held);
}

void world_allocations(uint64_t seed) {
    draw(seed);
    w.mix = (world_mix){.clients = 1, .folder = seed % 2, .chunked = 30, .coded = 30};
    w.alone = true;
    w.config.queue_bytes = 8 << 20;
    w.config.max_weights = 100;
    w.config.max_weights_bytes = w.config.max_models_bytes = 1 << 20;
    w.config.weights_cache_bytes = 1 << 20;
    w.config.canary_interval_ms = 0;
    w.config.batch_delay_us = w.config.weights_poll_ms = 0;
    w.config.response_cache_bytes = seed % 3 ? 1 << 16 : 0;
    run(seed, fail_each);
}
