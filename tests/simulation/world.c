/* world.c: see world.h. */
#include "world.h"

#include "clock.h"
#include "device.h"
#include "laws.h"
#include "models_internal.h"

#include <stdio.h>
#include <string.h>

world w;
totals *all;

bool world_draws(unsigned percent) {
    return percent && xn_rng_below(&w.rng, 100) < percent;
}

int64_t world_about(int64_t ns) {
    return (int64_t)xn_rng_below(&w.rng, (uint64_t)(2 * ns + 1));
}

/* ---- at any moment ---- */

void world_check(void) {
    static int64_t last_ns;
    if (!w.engine)
        return;
    const xn_metrics *metrics = xn_engine_metrics(w.engine);
    int64_t counted = 0, leaving = 0;
    size_t bytes = 0, unsure = 0;
    law(fibers_now() > last_ns || w.request_count == 0, "time goes on");
    last_ns = fibers_now();
    for (const request *r = w.requests; r; r = r->next) {
        counted += !r->leaving;
        leaving += r->leaving;
        *(r->leaving ? &unsure : &bytes) += r->ticket.bytes;
    }
    const int64_t inflight = xn_metrics_gauge(metrics, XN_GAUGE_INFLIGHT);
    law(inflight >= counted && inflight <= counted + leaving + w.entering,
        "requests in flight are those that were admitted and have not left");
    law(inflight <= w.config.queue_depth, "--queue-depth bounds requests in flight");
    const int64_t held = xn_metrics_gauge(metrics, XN_GAUGE_INFLIGHT_BYTES);
    law(held <= w.config.queue_bytes, "--queue-bytes bounds bytes in flight");
    if (!leaving && !w.entering)
        law(held >= (int64_t)bytes, "bytes in flight are at least those of live requests");
    const int64_t depth = xn_metrics_gauge(metrics, XN_GAUGE_QUEUE_DEPTH);
    law(depth >= 0 && depth <= counted + leaving, "the queue has requests that are there");
}

static void deadlocked(void) {
    law(false, "somebody can go on");
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
    w.mix = (world_mix){.duration_ns = pick(3, 8, 20) * XN_NS_PER_MS,
                        .pause_ns = pick(10, 50, 400) * XN_NS_PER_US,
                        .clients = (int)pick(2, 8, 24),
                        .by_inline = rate(60),
                        .by_model = rate(60),
                        .resets = rate(40),
                        .stalls = rate(40),
                        .short_deadlines = rate(60),
                        .changes = 30 + (unsigned)xn_rng_below(&w.rng, 60),
                        .hangs = rate(30),
                        .losses = world_draws(40) ? rate(20) : 0,
                        .shortages = rate(60),
                        .canaries = rate(30),
                        .failures = rate(40),
                        .no_memory = rate(60),
                        .drains = world_draws(30)};
    w.config = (xn_config){.max_batch_images = pick(1, 8, 16),
                           .batch_delay_us = pick(0, 0, 300),
                           .inline_us = pick(0, 100, 1000),
                           .queue_depth = pick(4, 12, 64),
                           .queue_bytes = pick(192 << 10, 512 << 10, 4 << 20),
                           .max_weights = pick(2, 3, 100),
                           .max_weights_bytes = 1 << 20,
                           .weights_cache_bytes = pick(1 << 12, 1 << 14, 1 << 20),
                           .response_cache_bytes = pick(0, 0, 1 << 16),
                           .canary_interval_ms = pick(0, 1, 5),
                           .max_models = 4,
                           .max_models_bytes = 1 << 20,
                           .max_elements = 1 << 20,
                           .max_output_bytes = 1 << 20,
                           .max_operations = 1 << 20,
                           .threads = 1,
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
    event("the loss is told");
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
    const int64_t kind = pick(0, 1, 2); /* both, a GPU's, a CPU's */
    return xn_engine_create_with(&w.config,
                                 kind == 1   ? &both[0]
                                 : kind == 2 ? &both[1]
                                             : both,
                                 kind == 0 ? 2 : 1, "", &w.engine, error);
}

static void begin_draining(void) {
    if (!w.draining)
        event("drain");
    w.draining = true;
    xn_engine_drain(w.engine);
}

static bool is_anything_left(void) {
    bool left = false;
    for (const request *r = w.requests; r; r = r->next)
        left = left || !r->leaving;
    return left;
}

/* In the middle of it all: grace, and, where it was too short, the end. */
static void shut_down(void) {
    begin_draining();
    if (xn_engine_wait_idle(w.engine, fibers_now() + world_about(XN_NS_PER_MS)))
        law(!is_anything_left(), "a drain forgets nobody");
    if (!world_draws(50))
        return;
    event("stop");
    xn_engine_stop(w.engine);
    for (const request *r = w.requests; r; r = r->next)
        law(!r->submitted || r->in_call || (r->done && (!r->job.in_use || r->released)),
            "every done was called when stop returns");
    event("stopped");
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

static bool is_down(int ordinal) {
    char line[64];
    size_t length;
    char *page = xn_metrics_render(xn_engine_metrics(w.engine), &length);
    snprintf(line, sizeof line, "xnord_device_up{device=\"cuda:%d\"} 1", ordinal);
    const bool up = page && strstr(page, line);
    xn_mem_free(page);
    return !up;
}

static void live(void) {
    xn_error error = {0};
    const int64_t held = fibers_memory();
    xn_status status = create(&error);
    law(status == XN_OK, "an engine is created while nothing is wrong");
    xn_mem_set_shortage(shortage);
    xn_engine_on_fatal(w.engine, fatal, NULL);
    for (int i = 0; i < ADDRESSES; i++) {
        const unsigned char identity[XN_CLIENT_IDENTITY_BYTES] = {(unsigned char)i};
        w.addresses[i] = xn_client_get(xn_engine_admission(w.engine), XN_CLIENT_ADDRESS, identity);
        law(w.addresses[i], "a client's address is kept");
    }
    w.end_ns = fibers_now() + w.mix.duration_ns;
    status = xn_models_create(&w.config, xn_engine_store(w.engine), &w.models, &error);
    law(status == XN_OK, "there is nothing to read, so models can be created");
    law(xn_models_scan(w.models, &error) == XN_OK, "there is nothing to scan");
    operators_begin();
    for (int i = 0; i < w.mix.clients; i++)
        client_begin(i);
    faults_begin();
    const int64_t drain_ns = w.mix.drains ? fibers_now() + world_about(w.mix.duration_ns / 2) : -1;
    while (fibers_now() < w.end_ns) {
        tick();
        if (drain_ns >= 0 && fibers_now() >= drain_ns && !w.draining)
            shut_down();
    }

    /* Faults stop (acts.c): all that was begun ends. */
    w.over = true;
    const int64_t stop_ns = fibers_now() + XN_NS_PER_S;
    while (w.busy && fibers_now() < stop_ns)
        tick();
    law(!w.busy && !w.request_count, "every request ends within a second once faults stop");
    for (int i = 0; i < SIM_DEVICES; i++)
        law(!devices.each[SIM_GPU][i].told || is_down(i), "a loss that was told is recorded");
    for (int number = 0; number < MODELS; number++) {
        const char name[2] = {(char)('m' + number), 0};
        xn_models_unload(w.models, name, &error);
    }
    law(!w.models->bytes, "models that are unloaded take no room");
    xn_models_stop(w.models);
    begin_draining();
    law(xn_engine_wait_idle(w.engine, fibers_now() + XN_NS_PER_S), "a drain ends in its time");
    xn_engine_stop(w.engine);
    law(xn_metrics_gauge(xn_engine_metrics(w.engine), XN_GAUGE_INFLIGHT) == 0 &&
            xn_metrics_gauge(xn_engine_metrics(w.engine), XN_GAUGE_QUEUE_DEPTH) == 0,
        "nothing is in flight at the end");
    law(xn_metrics_gauge(xn_engine_metrics(w.engine), XN_GAUGE_INFLIGHT_BYTES) == 0,
        "no bytes are in flight at the end");
    for (int i = 0; i < ADDRESSES; i++)
        xn_client_put(xn_engine_admission(w.engine), w.addresses[i]);
    xn_models_free(w.models);
    xn_engine_free(w.engine);
    w.engine = NULL;
    all->runs += devices.runs;
    all->events += events_counted();
    xn_mem_set_shortage(NULL);
    xn_mem_set_hook(NULL, NULL);
    law(!devices.live, "devices, streams, plans and weights are freed");
    law(fibers_memory() == held, "all memory is given back");
}

void world_run(uint64_t seed) {
    draw(seed);
    events_begin(seed);
    const fibers_options options = {.rng = &w.rng,
                                    .preempt_percent = (unsigned)pick(2, 20, 60),
                                    .spurious_percent = rate(10),
                                    .between = world_check,
                                    .deadlock = deadlocked};
    fibers_run(&options, live);
}
