/* Jobs that the calling thread runs on GPUs (xn_engine_try_run), over the fake backend: two devices
 * without a thread budget: which device a job goes to and when it may, against a model. */
#include "engine_bench.h"
#include "work.h"

#include <string.h>

enum { GPUS = 2, CALLERS = 3, WORKERS = 1 };

static void put_on(int device) {
    const xn_prepared *const *prepared;
    ck_assert_int_eq(xn_asset_prepared(bench.asset, device, &prepared, NULL), XN_OK);
}

static void put_everywhere(void) {
    for (int i = 0; i < GPUS; i++)
        put_on(i);
}

static void begin(void) {
    bench_begin();
    bench.config.inline_us = 100;
}

/* The weights are on no device yet. */
static void start(void) {
    static const int ordinals[GPUS] = {0, 1};
    const xn_pool_spec pool = {&fake_gpu, ordinals, GPUS, WORKERS, 0, CALLERS};
    bench_start_pools(&pool, 1);
}

/* All streams are given back once the engine has stopped. */
static void end(void) {
    if (bench.engine)
        xn_engine_stop(bench.engine);
    ck_assert(!bench.engine || !bench.engine->callers.by_pool[0].callers);
    for (int i = 0; bench.engine && i < GPUS; i++) {
        int streams = 0;
        for (const xn_caller_stream *at = bench.engine->callers.by_device[i].free; at;
             at = at->next)
            streams++;
        ck_assert_int_eq(streams, CALLERS);
        ck_assert_int_eq(bench.engine->pools.devices[i].running, 0);
    }
    bench_end();
}

/* Workers rest a moment after done. */
static void await_idle(void) {
    bool idle = false;
    while (!idle) {
        xn_lock_take(&bench.engine->lock);
        idle = bench.engine->pools.each[0].idle == GPUS * WORKERS;
        xn_lock_drop(&bench.engine->lock);
    }
}

/* ---- a thread within a run ---- */

typedef struct caller {
    fake_job job;
    pthread_t thread;
    sem_t *ended;
    bool used;
    atomic_bool over;
} caller;

static void *call(void *context) {
    caller *c = context;
    ck_assert(bench_try(&c->job));
    atomic_store(&c->over, true);
    sem_post(c->ended);
    return NULL;
}

/* From here to its end it is in a run; the device of that. */
static int caller_start(caller *c, sem_t *ended) {
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

/* A copy that does not succeed is no failure of the job. */
START_TEST(weights_that_do_not_follow) {
    caller first;
    fake_job job;
    sem_t ended;
    sem_init(&ended, 0, 0);
    start();
    put_on(0);
    ck_assert_int_eq(caller_start(&first, &ended), 0);
    fake[FAKE_GPU].prepare_failure = XN_ERR_INTERNAL;
    ck_assert(!bench_try(&job));
    fake[FAKE_GPU].prepare_failure = XN_OK;
    fake_job_submit(&job);
    fake_job_expect(&job, XN_OK);
    end_some(&first, &ended, false);
}
END_TEST

/* What an idle worker is about to take does not keep others waiting: a GPU runs both. */
START_TEST(beside_a_job_that_is_about_to_start) {
    fake_job job, queued;
    start();
    put_everywhere();
    await_idle();
    bench_job(&queued, 1, 1);
    queued.job.submitted_ns = xn_now_ns();
    xn_lock_take(&bench.engine->lock);
    ck_assert_int_eq(xn_queue_push(bench.engine->pools.each[0].queue, &queued.job, NULL), XN_OK);
    xn_lock_drop(&bench.engine->lock); /* no worker was woken: it stays there */
    bench_run_inline(&job, XN_OK);
    xn_lock_take(&bench.engine->lock);
    xn_queue_remove(bench.engine->pools.each[0].queue, &queued.job);
    xn_lock_drop(&bench.engine->lock);
}
END_TEST

/* ---- a device that hangs ---- */

/* The waiter gives a stream back a moment after done. */
static void await_returned(void) {
    bool returned = false;
    while (!returned) {
        xn_lock_take(&bench.engine->lock);
        returned = !bench.engine->callers.running;
        xn_lock_drop(&bench.engine->lock);
    }
}

static void set_oom_waiters(int device, int waiters) {
    xn_lock_take(&bench.engine->lock);
    bench.engine->pools.devices[device].oom_waiters = waiters;
    pthread_cond_broadcast(&bench.engine->pools.each[0].work);
    pthread_cond_broadcast(&bench.engine->pools.devices[device].changed);
    xn_lock_drop(&bench.engine->lock);
}

/* Its caller waits a moment only. Others go to the device that is left; the job is answered at its
 * deadline, and keeps its memory until the device has done with it. */
START_TEST(hangs_with_a_caller) {
    fake_job caught, other;
    start();
    put_everywhere();
    fake[FAKE_GPU].hung[0] = true;
    bench_job(&caught, 1, 5);
    caught.job.deadline_ns = xn_now_ns() + 300 * XN_NS_PER_MS;
    ck_assert(!xn_engine_try_run(bench.engine, &caught.job));
    fake_job_submit(&caught);
    for (int i = 0; i < 4; i++) {
        bench_run_inline(&other, XN_OK);
        ck_assert_int_eq(other.job.device, 1);
    }
    set_oom_waiters(1, 1); /* the hung one is not tried again */
    ck_assert(!bench_try(&other) && !other.job.caller);
    set_oom_waiters(1, 0);
    fake_wait(&caught.done);
    ck_assert_int_eq(caught.job.status, XN_ERR_DEADLINE);
    ck_assert_ptr_nonnull(strstr(caught.job.error.message, "during the computation"));
    ck_assert(caught.job.in_use && caught.output[0] == 0);
    fake[FAKE_GPU].hung[0] = false;
    fake_wait(&caught.released);
    ck_assert(caught.output[0] == 10 && caught.done_calls == 1);
    await_returned();
    bench.engine->callers.by_pool[0].turn = 0;
    ck_assert(bench_try(&other));
    ck_assert_int_eq(other.job.device, 0);
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

static void lose(int device) {
    const xn_error why = {.status = XN_ERR_DEVICE_LOST, .message = "pulled out"};
    fake[FAKE_GPU].lost[device] = true;
    xn_pools_lose_device(&bench.engine->pools, device, &why);
}

/* One more job: where the model says, or not at all. held: it stays in its run. */
static void more(model *m, caller *callers, sem_t *ended, bool held) {
    const int device = predict(m);
    fake_job job;
    if (device < 0) {
        ck_assert(!bench_try(&job));
        return;
    }
    if (held) {
        caller *c = callers;
        while (c->used)
            c++;
        ck_assert_int_eq(caller_start(c, ended), device);
        m->running[device]++;
    } else {
        bench_run_inline(&job, XN_OK);
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

static void step(model *m, caller *callers, sem_t *ended, xn_rng *rng) {
    const int device = (int)xn_rng_below(rng, GPUS);
    switch (xn_rng_below(rng, 16)) {
    case 0:
        m->oom_waiters[device] = !m->oom_waiters[device];
        set_oom_waiters(device, m->oom_waiters[device]);
        break;
    case 1:
        if (xn_rng_below(rng, 8) == 0) {
            m->up[device] = m->has[device] = false;
            lose(device);
        }
        break;
    case 2:
    case 3:
    case 4:
    case 5:
        fewer(m, callers, ended);
        break;
    default:
        more(m, callers, ended, xn_rng_below(rng, 2));
    }
}

/* In half of the rounds one device has the weights at first. Another takes them as well as soon as
 * it is less busy; where none has them, the job is a worker's. */
START_TEST(jobs_go_where_the_model_says) {
    xn_rng rng = {xn_test_seed() + (uint64_t)_i};
    caller callers[CALLERS] = {0};
    sem_t ended;
    model m = {.up = {true, true}, .has = {true, _i % 2}};
    sem_init(&ended, 0, 0);
    start();
    for (int i = 0; i < GPUS; i++)
        if (m.has[i])
            put_on(i);
    for (int i = 0; i < 150; i++)
        step(&m, callers, &ended, &rng);
    xn_engine_drain(bench.engine); /* what was admitted goes on */
    more(&m, callers, &ended, false);
    for (int i = 0; i < CALLERS; i++)
        fewer(&m, callers, &ended);
    for (int i = 0; i < GPUS; i++)
        set_oom_waiters(i, 0);
    xn_engine_stop(bench.engine);
    m.stopping = true;
    more(&m, callers, &ended, false);
}
END_TEST

XN_SUITE(engine_callers) {
    Suite *s = suite_create("engine_callers");
    TCase *t = tcase_create("callers");
    tcase_set_timeout(t, 120);
    tcase_add_checked_fixture(t, begin, end);
    tcase_add_test(t, weights_that_do_not_follow);
    tcase_add_test(t, beside_a_job_that_is_about_to_start);
    tcase_add_test(t, hangs_with_a_caller);
    tcase_add_test(t, half_of_the_threads_wait);
    tcase_add_test(t, what_a_gpu_does_soon);
    tcase_add_loop_test(t, jobs_go_where_the_model_says, 0, 20);
    suite_add_tcase(s, t);
    return s;
}
