/* Jobs that the calling thread runs on GPUs (xn_engine_try_run), over the fake backend: two devices
 * without a thread budget. Which device a job goes to and when it may, against a model; and many
 * threads while devices run short of memory and are lost. */
#include "engine_fake.h"
#include "work.h"

#include <string.h>

enum { GPUS = 2, CALLERS = 3, WORKERS = 1 };
enum { LARGE = 1 << 28 }; /* channels: more work than any inline job, to the engine's eyes */

typedef struct bench {
    xn_engine *engine;
    xn_asset *asset;
} bench;

static void put_everywhere(bench *t) {
    for (int i = 0; i < GPUS; i++) {
        const xn_prepared *const *prepared;
        ck_assert_int_eq(xn_asset_prepared(t->asset, i, &prepared, NULL), XN_OK);
    }
}

static xn_config inline_config(void) {
    xn_config config = fake_config();
    config.inline_us = 100;
    return config;
}

/* Its weights are on no device yet. */
static void bench_start(bench *t, const xn_config *config) {
    static const int ordinals[GPUS] = {0, 1};
    const xn_pool_spec pool = {&fake_gpu, ordinals, GPUS, WORKERS, 0, CALLERS};
    ck_assert_int_eq(xn_engine_create_with(config, &pool, 1, "", &t->engine, NULL), XN_OK);
    t->asset = fake_weights(xn_engine_store(t->engine), 2.0f);
}

static void bench_end(bench *t) {
    xn_engine_stop(t->engine);
    for (int i = 0; i < GPUS; i++) {
        int streams = 0;
        for (const xn_caller_stream *at = t->engine->callers.by_device[i].free; at; at = at->next)
            streams++;
        ck_assert_int_eq(streams, CALLERS);
        ck_assert_int_eq(t->engine->pools.devices[i].running, 0);
    }
    xn_asset_release(t->asset);
    xn_engine_free(t->engine);
    fake_expect_all_freed();
}

/* Workers rest a moment after done. */
static void await_idle(bench *t) {
    bool idle = false;
    while (!idle) {
        xn_lock_take(&t->engine->lock);
        idle = t->engine->pools.each[0].idle == GPUS * WORKERS;
        xn_lock_drop(&t->engine->lock);
    }
}

static bool try_one(bench *t, fake_job *job) {
    fake_job_init(job, t->engine, t->asset, 1, 7);
    return xn_engine_try_run(t->engine, &job->job);
}

/* ---- a thread within a run ---- */

typedef struct caller {
    bench *bench;
    fake_job job;
    pthread_t thread;
    sem_t *ended;
    bool used;
    atomic_bool over;
} caller;

static void *call(void *context) {
    caller *c = context;
    ck_assert(try_one(c->bench, &c->job));
    atomic_store(&c->over, true);
    sem_post(c->ended);
    return NULL;
}

/* From here to its end it is in a run; the device of that. */
static int caller_start(caller *c, bench *t, sem_t *ended) {
    c->bench = t;
    c->ended = ended;
    c->used = true;
    c->over = false;
    fake[FAKE_GPU].gated = true;
    ck_assert_int_eq(pthread_create(&c->thread, NULL, call, c), 0);
    fake_wait(&fake[FAKE_GPU].entered);
    fake[FAKE_GPU].gated = false;
    return fake_record_get(FAKE_GPU, fake_record_count(FAKE_GPU) - 1).ordinal;
}

/* One of those in a run leaves it; its device. */
static int end_some(caller *callers, sem_t *ended, bool may_fail) {
    sem_post(&fake[FAKE_GPU].gate);
    fake_wait(ended);
    caller *c = callers;
    while (!c->used || !atomic_load(&c->over))
        c++;
    pthread_join(c->thread, NULL);
    c->used = false;
    const xn_status status = c->job.job.status;
    ck_assert(status == XN_OK || (may_fail && status == XN_ERR_DEVICE_LOST));
    fake_job_expect_inline(&c->job, status);
    return c->job.job.device;
}

/* ---- one rule at a time ---- */

START_TEST(devices_take_turns) {
    const xn_config config = inline_config();
    bench t;
    fake_job job;
    int runs[GPUS] = {0};
    fake_reset();
    bench_start(&t, &config);
    put_everywhere(&t);
    for (int i = 0; i < 40; i++) {
        ck_assert(try_one(&t, &job));
        fake_job_expect_inline(&job, XN_OK);
        runs[job.job.device]++;
    }
    ck_assert_int_eq(runs[0], 20);
    ck_assert_int_eq(runs[1], 20);
    bench_end(&t);
}
END_TEST

/* The first job of an asset goes to a worker. What one device has then, another takes as well as
 * soon as it is less busy. */
START_TEST(weights_follow_the_jobs) {
    const xn_config config = inline_config();
    bench t;
    caller first;
    fake_job job;
    sem_t ended;
    fake_reset();
    sem_init(&ended, 0, 0);
    bench_start(&t, &config);
    ck_assert(!try_one(&t, &job));
    ck_assert_int_eq(fake[FAKE_GPU].prepares, 0);
    fake_job_submit(&job);
    fake_job_expect(&job, XN_OK);
    const int has = job.job.device;
    await_idle(&t);
    ck_assert_int_eq(caller_start(&first, &t, &ended), has);
    ck_assert_int_eq(fake[FAKE_GPU].prepares, 1);
    ck_assert(try_one(&t, &job));
    fake_job_expect_inline(&job, XN_OK);
    ck_assert_int_eq(job.job.device, 1 - has);
    ck_assert_int_eq(fake[FAKE_GPU].prepares, 2);
    end_some(&first, &ended, false);
    bench_end(&t);
}
END_TEST

/* A copy that does not succeed is no failure of the job. */
START_TEST(weights_that_do_not_follow) {
    const xn_config config = inline_config();
    bench t;
    caller first;
    fake_job job;
    sem_t ended;
    const xn_prepared *const *prepared;
    fake_reset();
    sem_init(&ended, 0, 0);
    bench_start(&t, &config);
    ck_assert_int_eq(xn_asset_prepared(t.asset, 0, &prepared, NULL), XN_OK);
    ck_assert_int_eq(caller_start(&first, &t, &ended), 0);
    fake[FAKE_GPU].prepare_failure = XN_ERR_INTERNAL;
    ck_assert(!try_one(&t, &job));
    fake[FAKE_GPU].prepare_failure = XN_OK;
    fake_job_submit(&job);
    fake_job_expect(&job, XN_OK);
    end_some(&first, &ended, false);
    bench_end(&t);
}
END_TEST

/* What an idle worker is about to take does not keep others waiting: a GPU runs both. */
START_TEST(beside_a_job_that_is_about_to_start) {
    const xn_config config = inline_config();
    bench t;
    fake_job job, queued;
    fake_reset();
    bench_start(&t, &config);
    put_everywhere(&t);
    await_idle(&t);
    fake_job_init(&queued, t.engine, t.asset, 1, 1);
    queued.job.submitted_ns = xn_now_ns();
    xn_lock_take(&t.engine->lock);
    ck_assert_int_eq(xn_queue_push(t.engine->pools.each[0].queue, &queued.job, NULL), XN_OK);
    xn_lock_drop(&t.engine->lock); /* no worker was woken: it stays there */
    ck_assert(try_one(&t, &job));
    fake_job_expect_inline(&job, XN_OK);
    xn_lock_take(&t.engine->lock);
    xn_queue_remove(t.engine->pools.each[0].queue, &queued.job);
    xn_lock_drop(&t.engine->lock);
    bench_end(&t);
}
END_TEST

/* ---- a device that hangs ---- */

/* The waiter gives a stream back a moment after done. */
static void await_returned(bench *t) {
    bool returned = false;
    while (!returned) {
        xn_lock_take(&t->engine->lock);
        returned = !t->engine->callers.running;
        xn_lock_drop(&t->engine->lock);
    }
}

static void set_oom_waiters(bench *t, int device, int waiters) {
    xn_lock_take(&t->engine->lock);
    t->engine->pools.devices[device].oom_waiters = waiters;
    pthread_cond_broadcast(&t->engine->pools.each[0].work);
    pthread_cond_broadcast(&t->engine->pools.devices[device].changed);
    xn_lock_drop(&t->engine->lock);
}

/* Its caller waits a moment only. Others go to the device that is left; the job is answered at its
 * deadline, and keeps its memory until the device has done with it. */
START_TEST(hangs_with_a_caller) {
    const xn_config config = inline_config();
    bench t;
    fake_job caught, other;
    fake_reset();
    bench_start(&t, &config);
    put_everywhere(&t);
    fake[FAKE_GPU].hung[0] = true;
    fake_job_init(&caught, t.engine, t.asset, 1, 5);
    caught.job.deadline_ns = xn_now_ns() + 300 * XN_NS_PER_MS;
    ck_assert(!xn_engine_try_run(t.engine, &caught.job));
    fake_job_submit(&caught);
    for (int i = 0; i < 4; i++) {
        ck_assert(try_one(&t, &other));
        fake_job_expect_inline(&other, XN_OK);
        ck_assert_int_eq(other.job.device, 1);
    }
    set_oom_waiters(&t, 1, 1); /* the hung one is not tried again */
    ck_assert(!try_one(&t, &other) && !other.job.caller);
    set_oom_waiters(&t, 1, 0);
    fake_wait(&caught.done);
    ck_assert_int_eq(caught.job.status, XN_ERR_DEADLINE);
    ck_assert_ptr_nonnull(strstr(caught.job.error.message, "during the computation"));
    ck_assert(caught.job.in_use && caught.output[0] == 0);
    fake[FAKE_GPU].hung[0] = false;
    fake_wait(&caught.released);
    ck_assert(caught.output[0] == 10 && caught.done_calls == 1);
    await_returned(&t);
    t.engine->callers.by_pool[0].turn = 0;
    ck_assert(try_one(&t, &other));
    ck_assert_int_eq(other.job.device, 0);
    bench_end(&t);
}
END_TEST

/* One that is late and not hung: the waiter finds its end, and the job is as any other. */
START_TEST(is_late_with_a_caller) {
    const xn_config config = inline_config();
    bench t;
    fake_job late;
    fake_reset();
    bench_start(&t, &config);
    put_everywhere(&t);
    for (int fails = 0; fails < 2; fails++) {
        t.engine->callers.by_pool[0].turn = 0;
        fake[FAKE_GPU].hung[0] = true;
        ck_assert(!try_one(&t, &late));
        fake_job_submit(&late);
        fake[FAKE_GPU].lost[0] = fails;
        fake[FAKE_GPU].hung[0] = false;
        fake_job_expect(&late, fails ? XN_ERR_DEVICE_LOST : XN_OK);
        ck_assert(late.job.device == 0 && !late.job.in_use && late.job.batch_requests == 1);
        await_returned(&t);
    }
    bench_end(&t);
}
END_TEST

/* In a worker's batch each job is answered at its own deadline, or when the run is over. */
START_TEST(hangs_with_a_worker) {
    const xn_config config = inline_config();
    bench t;
    fake_job first, jobs[3], other;
    fake_reset();
    bench_start(&t, &config);
    put_everywhere(&t);
    fake_job_init(&other, t.engine, t.asset, 1, 1);
    fake_job_init(&first, t.engine, t.asset, 1, 1);
    fake[FAKE_GPU].gated = true;
    fake_job_submit(&other); /* both workers are busy, so that the rest makes a batch */
    fake_wait(&fake[FAKE_GPU].entered);
    fake_job_submit(&first);
    fake_wait(&fake[FAKE_GPU].entered);
    fake[FAKE_GPU].gated = false;
    fake[FAKE_GPU].hung[0] = fake[FAKE_GPU].hung[1] = true;
    for (int i = 0; i < 3; i++) {
        fake_job_init(&jobs[i], t.engine, t.asset, 1, 3);
        jobs[i].job.deadline_ns = i == 1 ? INT64_MAX : xn_now_ns() + (200 + 200 * i) * XN_NS_PER_MS;
        fake_job_submit(&jobs[i]);
    }
    sem_post(&fake[FAKE_GPU].gate);
    sem_post(&fake[FAKE_GPU].gate);
    for (int i = 0; i < 3; i += 2) {
        fake_wait(&jobs[i].done);
        ck_assert(jobs[i].job.status == XN_ERR_DEADLINE && jobs[i].job.in_use);
        ck_assert_int_ge(jobs[i].job.finished_ns, jobs[i].job.deadline_ns);
    }
    fake[FAKE_GPU].hung[0] = fake[FAKE_GPU].hung[1] = false;
    fake_job_expect(&jobs[1], XN_OK);
    ck_assert_int_eq(jobs[1].job.batch_requests, 3);
    fake_wait(&jobs[0].released);
    fake_wait(&jobs[2].released);
    fake_job_expect(&first, XN_OK);
    fake_job_expect(&other, XN_OK);
    bench_end(&t);
}
END_TEST

/* With 1 thread none waits: it serves all others. */
START_TEST(half_of_the_threads_wait) {
    ck_assert_int_eq(xn_callers_of(1), 0);
    ck_assert_int_eq(xn_callers_of(2), 1);
    ck_assert_int_eq(xn_callers_of(3), 1);
    ck_assert_int_eq(xn_callers_of(16), 8);
}
END_TEST

/* ---- what is small ---- */

/* One channel of side x side, floats in and out, by a kernel of 3x3. */
static xn_problem layer(int64_t side, int64_t channels) {
    const xn_conv_limits limits = {INT64_C(1) << 40, INT64_C(1) << 40, INT64_C(1) << 60};
    const xn_shape shape = {4, {1, channels, side, side}};
    const xn_weights_shape weights = {.dims = {channels, channels, 3, 3}, .datatype = XN_FP32};
    xn_conv_params params;
    xn_conv conv;
    xn_problem problem;
    int64_t images;
    xn_conv_params_default(&params);
    ck_assert_int_eq(
        xn_conv_resolve(&params, XN_FP32, &shape, &weights, &limits, &conv, &images, NULL), XN_OK);
    xn_problem_of_conv(&conv, &problem);
    return problem;
}

START_TEST(what_a_gpu_does_soon) {
    const double limit_ns = 100e3; /* --inline-us */
    const xn_problem small = layer(32, 1), middle = layer(512, 1), large = layer(640, 1);
    const xn_problem wide = layer(14, 1024);
    ck_assert_double_lt(xn_work_gpu_ns(&small, 1), 15e3);
    ck_assert_double_lt(xn_work_gpu_ns(&middle, 1), limit_ns);
    ck_assert_double_gt(xn_work_gpu_ns(&large, 1), limit_ns);
    ck_assert_double_gt(xn_work_gpu_ns(&wide, 1), limit_ns);
    ck_assert_double_gt(xn_work_gpu_ns(&small, 400), limit_ns);
    const double one = xn_work_gpu_ns(&small, 1), two = xn_work_gpu_ns(&small, 2);
    ck_assert_double_lt(two - one, one); /* a launch is a launch */
}
END_TEST

/* ---- against a model ---- */

typedef struct model {
    int running[GPUS];
    bool up[GPUS], oom_waiters[GPUS], has[GPUS];
    int turn;
    bool stopping;
} model;

/* The device that the next job goes to, or -1. */
static int predict(const model *m) {
    int best = -1, any = 0;
    if (m->running[0] + m->running[1] == CALLERS)
        return -1;
    for (int k = 0; k < GPUS; k++) {
        const int i = (m->turn + k) % GPUS;
        if (!m->up[i] || m->oom_waiters[i])
            continue;
        any |= m->has[i];
        /* fewer runs first, then a device with the weights, then in turn */
        const int rank = 2 * m->running[i] + !m->has[i];
        if (best < 0 || rank < 2 * m->running[best] + !m->has[best])
            best = i;
    }
    return any && !m->stopping ? best : -1;
}

static void lose(bench *t, int device) {
    const xn_error why = {.status = XN_ERR_DEVICE_LOST, .message = "pulled out"};
    fake[FAKE_GPU].lost[device] = true;
    xn_pools_lose_device(&t->engine->pools, device, &why);
}

/* One more job: where the model says, or not at all. held: it stays in its run. */
static void more(bench *t, model *m, caller *callers, sem_t *ended, bool held) {
    const int device = predict(m);
    fake_job job;
    if (device < 0) {
        ck_assert(!try_one(t, &job));
        return;
    }
    if (held) {
        caller *c = callers;
        while (c->used)
            c++;
        ck_assert_int_eq(caller_start(c, t, ended), device);
        m->running[device]++;
    } else {
        ck_assert(try_one(t, &job));
        fake_job_expect_inline(&job, XN_OK);
        ck_assert_int_eq(job.job.device, device);
    }
    m->has[device] = true;
    m->turn = device + 1;
}

static void fewer(model *m, caller *callers, sem_t *ended) {
    if (m->running[0] + m->running[1] == 0)
        return;
    const int device = end_some(callers, ended, true);
    m->running[device]--;
}

static void step(bench *t, model *m, caller *callers, sem_t *ended, xn_rng *rng) {
    const int device = (int)xn_rng_below(rng, GPUS);
    switch (xn_rng_below(rng, 16)) {
    case 0:
        m->oom_waiters[device] = !m->oom_waiters[device];
        set_oom_waiters(t, device, m->oom_waiters[device]);
        break;
    case 1:
        if (xn_rng_below(rng, 8) == 0) {
            m->up[device] = m->has[device] = false;
            lose(t, device);
        }
        break;
    case 2:
    case 3:
    case 4:
    case 5:
        fewer(m, callers, ended);
        break;
    default:
        more(t, m, callers, ended, xn_rng_below(rng, 2));
    }
}

START_TEST(jobs_go_where_the_model_says) {
    const xn_config config = inline_config();
    xn_rng rng = {xn_test_seed() + (uint64_t)_i};
    caller callers[CALLERS] = {{0}};
    sem_t ended;
    bench t;
    model m = {.up = {true, true}, .has = {true, true}};
    fake_reset();
    sem_init(&ended, 0, 0);
    bench_start(&t, &config);
    put_everywhere(&t);
    for (int i = 0; i < 150; i++)
        step(&t, &m, callers, &ended, &rng);
    xn_engine_drain(t.engine); /* what was admitted goes on */
    more(&t, &m, callers, &ended, false);
    for (int i = 0; i < CALLERS; i++)
        fewer(&m, callers, &ended);
    for (int i = 0; i < GPUS; i++)
        set_oom_waiters(&t, i, 0);
    xn_engine_stop(t.engine);
    m.stopping = true;
    more(&t, &m, callers, &ended, false);
    bench_end(&t);
}
END_TEST

/* ---- many threads ---- */

enum { THREADS = 6, JOBS = 300 };

typedef struct crowd {
    bench t;
    uint64_t seed;
    bool loses;
    atomic_int inlined, done[GPUS + 1], at; /* jobs so far */
} crowd;

typedef struct hammer {
    crowd *all;
    int index;
    pthread_t thread;
} hammer;

/* Devices run short of memory, recover, and one is lost half-way. */
static void disturb(crowd *all, xn_rng *rng) {
    const int at = atomic_fetch_add(&all->at, 1);
    const int device = (int)xn_rng_below(rng, GPUS);
    if (all->loses && at == THREADS * JOBS / 2)
        lose(&all->t, 1);
    if (xn_rng_below(rng, 20) == 0)
        fake[FAKE_GPU].memory[device] = xn_rng_below(rng, 2) ? 40 : 0; /* images of all plans */
}

static void run_one(crowd *all, xn_rng *rng, fake_job *job) {
    const bool cancelled = xn_rng_below(rng, 10) == 0;
    const bool large = xn_rng_below(rng, 4) == 0;
    fake_job_init(job, all->t.engine, all->t.asset, 1 + (int64_t)xn_rng_below(rng, 4),
                  (float)xn_rng_below(rng, 1000));
    if (large)
        job->job.problem.conv.group_channels = LARGE;
    if (xn_rng_below(rng, 10) == 0)
        job->job.deadline_ns = xn_now_ns() + (int64_t)xn_rng_below(rng, 100) * XN_NS_PER_US;
    const bool timed = job->job.deadline_ns != INT64_MAX;
    ck_assert_int_eq(fake_admit(all->t.engine, 64, &job->ticket, NULL), XN_OK);
    const bool here = xn_engine_try_run(all->t.engine, &job->job);
    ck_assert(!here || !large);
    if (here) {
        atomic_fetch_add(&all->inlined, 1);
        job->job.done(&job->job);
    } else {
        fake_job_submit(job);
        if (cancelled)
            xn_engine_cancel(all->t.engine, &job->job, XN_ERR_CANCELLED);
    }
    fake_wait(&job->done);
    const xn_status status = job->job.status;
    sem_post(&job->done);
    ck_assert_msg(status == XN_OK || (cancelled && status == XN_ERR_CANCELLED) ||
                      (timed && status == XN_ERR_DEADLINE) ||
                      (all->loses && status == XN_ERR_DEVICE_LOST),
                  "seed %llu: %s", (unsigned long long)all->seed, job->job.error.message);
    fake_job_expect(job, status);
    atomic_fetch_add(&all->done[status == XN_OK ? job->job.device : GPUS], 1);
    xn_ticket_leave(&job->ticket);
}

static void *hammer_main(void *context) {
    hammer *self = context;
    xn_rng rng = {self->all->seed + (uint64_t)self->index};
    fake_job job;
    for (int i = 0; i < JOBS; i++) {
        disturb(self->all, &rng);
        run_one(self->all, &rng, &job);
    }
    return NULL;
}

START_TEST(a_crowd) {
    xn_config config = inline_config();
    crowd all = {.seed = xn_test_seed(), .loses = _i};
    hammer hammers[THREADS];
    config.max_batch_images = 16;
    config.canary_interval_ms = 1;
    fake_reset();
    bench_start(&all.t, &config);
    for (int i = 0; i < THREADS; i++) {
        hammers[i] = (hammer){.all = &all, .index = i};
        ck_assert_int_eq(pthread_create(&hammers[i].thread, NULL, hammer_main, &hammers[i]), 0);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(hammers[i].thread, NULL);
    ck_assert_int_eq(all.done[0] + all.done[1] + all.done[GPUS], THREADS * JOBS);
    ck_assert_int_gt(all.inlined, 0);
    ck_assert_int_gt(all.done[0], 0);
    ck_assert_int_gt(all.done[1], 0);
    xn_metrics *metrics = xn_engine_metrics(all.t.engine);
    ck_assert_int_eq(xn_metrics_gauge(metrics, XN_GAUGE_QUEUE_DEPTH), 0);
    ck_assert_int_eq(xn_metrics_gauge(metrics, XN_GAUGE_INFLIGHT), 0);
    bench_end(&all.t);
}
END_TEST

XN_SUITE(engine_callers) {
    Suite *s = suite_create("engine_callers");
    TCase *t = tcase_create("callers");
    tcase_set_timeout(t, 120);
    tcase_add_test(t, devices_take_turns);
    tcase_add_test(t, weights_follow_the_jobs);
    tcase_add_test(t, weights_that_do_not_follow);
    tcase_add_test(t, beside_a_job_that_is_about_to_start);
    tcase_add_test(t, hangs_with_a_caller);
    tcase_add_test(t, is_late_with_a_caller);
    tcase_add_test(t, hangs_with_a_worker);
    tcase_add_test(t, half_of_the_threads_wait);
    tcase_add_test(t, what_a_gpu_does_soon);
    tcase_add_loop_test(t, jobs_go_where_the_model_says, 0, 20);
    tcase_add_loop_test(t, a_crowd, 0, 2);
    suite_add_tcase(s, t);
    return s;
}
