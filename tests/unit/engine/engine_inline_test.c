/* Jobs that the calling thread runs itself (xn_engine_try_run), over the fake backend: when it may,
 * what the job is told, and that no other job is worse off. */
#include "engine_fake.h"

#include <string.h>

enum { LARGE = 1 << 24 }; /* channels: more work than any inline job, to the engine's eyes */

typedef struct bench {
    xn_engine *engine;
    xn_asset *asset;
} bench;

/* A worker gives its threads back a moment after done. */
static void await_threads(xn_engine *engine) {
    const xn_pool *pool = &engine->pools.each[0];
    bool all = false;
    while (!all) {
        xn_lock_take(&engine->lock);
        all = pool->threads_free == pool->threads;
        xn_lock_drop(&engine->lock);
    }
}

/* A CPU with one worker, so many threads to share, and as many callers. Its weights are prepared.
 */
static void bench_start_with(bench *t, const xn_config *config, int threads) {
    const int ordinal = 0;
    const xn_pool_spec pool = {&fake_cpu, &ordinal, 1, 1, threads, threads};
    fake_job first;
    fake_reset();
    ck_assert_int_eq(xn_engine_create_with(config, &pool, 1, "", &t->engine, NULL), XN_OK);
    t->asset = fake_weights(xn_engine_store(t->engine), 2.0f);
    fake_job_init(&first, t->engine, t->asset, 1, 1);
    ck_assert(!xn_engine_try_run(t->engine, &first.job)); /* no thread that has others to serve */
    ck_assert_int_eq(fake[FAKE_CPU].prepares, 0);         /* prepares weights */
    fake_job_submit(&first);
    fake_job_expect(&first, XN_OK);
    await_threads(t->engine);
}

static xn_config inline_config(void) {
    xn_config config = fake_config();
    config.inline_us = 100;
    return config;
}

static void bench_start(bench *t, int threads) {
    const xn_config config = inline_config();
    bench_start_with(t, &config, threads);
}

static void bench_end(bench *t) {
    ck_assert_int_eq(fake[FAKE_CPU].threads_now, 0);
    xn_engine_stop(t->engine);
    xn_asset_release(t->asset);
    xn_engine_free(t->engine);
    fake_expect_all_freed();
}

static bool try_one(bench *t, fake_job *job) {
    fake_job_init(job, t->engine, t->asset, 1, 7);
    return xn_engine_try_run(t->engine, &job->job);
}

START_TEST(runs_on_the_calling_thread) {
    bench t;
    fake_job job;
    bench_start(&t, 2);
    int64_t before = xn_now_ns();
    fake_job_init(&job, t.engine, t.asset, 3, 5);
    ck_assert(xn_engine_try_run(t.engine, &job.job));
    fake_job_expect_inline(&job, XN_OK);
    ck_assert_str_eq(xn_engine_device_id(t.engine, job.job.device), "cpu");
    ck_assert_int_eq(job.job.batch_requests, 1);
    ck_assert_int_eq(job.job.batch_images, 3);
    ck_assert_int_eq(job.job.times.compute_ns, 2000);
    /* It did not wait. */
    ck_assert(before <= job.job.submitted_ns && job.job.submitted_ns == job.job.started_ns &&
              job.job.started_ns <= job.job.finished_ns && job.job.finished_ns <= xn_now_ns());
    ck_assert_int_eq(xn_metrics_gauge(xn_engine_metrics(t.engine), XN_GAUGE_QUEUE_DEPTH), 0);
    fake_record record = fake_record_get(FAKE_CPU, fake_record_count(FAKE_CPU) - 1);
    ck_assert_int_eq(record.images, 3);
    ck_assert(record.first_input == 5.0f);
    ck_assert_int_eq(fake[FAKE_CPU].threads_most, 1);
    bench_end(&t);
}
END_TEST

START_TEST(only_what_is_small) {
    bench t;
    fake_job job;
    bench_start(&t, 2);
    fake_job_init(&job, t.engine, t.asset, 1, 1);
    job.job.problem.conv.group_channels = LARGE;
    ck_assert(!xn_engine_try_run(t.engine, &job.job));
    ck_assert(try_one(&t, &job));
    bench_end(&t);
}
END_TEST

START_TEST(not_where_it_is_off) {
    xn_config config = fake_config(); /* inline_us 0 */
    bench t;
    fake_job job;
    bench_start_with(&t, &config, 2);
    ck_assert(!try_one(&t, &job));
    bench_end(&t);
}
END_TEST

/* With a delay requests wait to fill a batch: one that ran alone would miss it. */
START_TEST(not_where_requests_wait_for_company) {
    xn_config config = inline_config();
    bench t;
    fake_job job;
    config.batch_delay_us = 1;
    bench_start_with(&t, &config, 2);
    ck_assert(!try_one(&t, &job));
    bench_end(&t);
}
END_TEST

START_TEST(not_after_its_deadline) {
    bench t;
    fake_job job;
    bench_start(&t, 2);
    fake_job_init(&job, t.engine, t.asset, 1, 1);
    job.job.deadline_ns = xn_now_ns() - 1;
    ck_assert(!xn_engine_try_run(t.engine, &job.job));
    fake_job_submit(&job);
    fake_job_expect(&job, XN_ERR_DEADLINE);
    bench_end(&t);
}
END_TEST

/* ---- others ---- */

static void submit_gated(bench *t, fake_job *job, bool large) {
    fake_job_init(job, t->engine, t->asset, 1, 100);
    if (large)
        job->job.problem.conv.group_channels = LARGE;
    fake[FAKE_CPU].gated = true;
    fake_job_submit(job);
    fake_wait(&fake[FAKE_CPU].entered);
    fake[FAKE_CPU].gated = false;
}

START_TEST(beside_a_batch_that_leaves_a_thread) {
    bench t;
    fake_job running, job;
    bench_start(&t, 2);
    submit_gated(&t, &running, false);
    ck_assert(try_one(&t, &job));
    sem_post(&fake[FAKE_CPU].gate);
    fake_job_expect(&running, XN_OK);
    bench_end(&t);
}
END_TEST

START_TEST(not_beside_a_batch_that_has_all_threads) {
    bench t;
    fake_job running, job;
    bench_start(&t, 2);
    submit_gated(&t, &running, true);
    ck_assert(!try_one(&t, &job));
    sem_post(&fake[FAKE_CPU].gate);
    fake_job_expect(&running, XN_OK);
    bench_end(&t);
}
END_TEST

/* The job that came first is served first. */
START_TEST(not_while_another_waits) {
    bench t;
    fake_job running, waiting, job;
    bench_start(&t, 2);
    submit_gated(&t, &running, false); /* the only worker; a thread is left */
    fake_job_init(&waiting, t.engine, t.asset, 1, 1);
    fake_job_submit(&waiting);
    ck_assert(!try_one(&t, &job));
    sem_post(&fake[FAKE_CPU].gate);
    fake_job_expect(&running, XN_OK);
    fake_job_expect(&waiting, XN_OK);
    await_threads(t.engine);
    ck_assert(try_one(&t, &job));
    bench_end(&t);
}
END_TEST

/* ---- while one runs inline ---- */

typedef struct caller {
    bench *bench;
    fake_job job;
    pthread_t thread;
    atomic_bool ran;
} caller;

static void *call(void *context) {
    caller *c = context;
    c->ran = try_one(c->bench, &c->job);
    return NULL;
}

/* A thread within an inline run, until the gate opens. */
static void caller_start(caller *c, bench *t) {
    c->bench = t;
    c->ran = false;
    fake[FAKE_CPU].gated = true;
    ck_assert_int_eq(pthread_create(&c->thread, NULL, call, c), 0);
    fake_wait(&fake[FAKE_CPU].entered);
}

static void caller_end(caller *c, xn_status status) {
    pthread_join(c->thread, NULL);
    ck_assert(c->ran);
    fake_job_expect_inline(&c->job, status);
}

START_TEST(threads_are_of_the_budget) {
    bench t;
    caller callers[2];
    fake_job job;
    bench_start(&t, 2);
    for (int i = 0; i < 2; i++)
        caller_start(&callers[i], &t);
    ck_assert(!try_one(&t, &job)); /* no thread is left, neither for it */
    fake_job_submit(&job);         /* nor for the worker */
    ck_assert_int_eq(xn_metrics_gauge(xn_engine_metrics(t.engine), XN_GAUGE_QUEUE_DEPTH), 1);
    fake[FAKE_CPU].gated = false;
    sem_post(&fake[FAKE_CPU].gate); /* the first thread that is given back is the worker's */
    fake_job_expect(&job, XN_OK);
    sem_post(&fake[FAKE_CPU].gate);
    for (int i = 0; i < 2; i++)
        caller_end(&callers[i], XN_OK);
    ck_assert_int_eq(fake[FAKE_CPU].threads_most, 2);
    bench_end(&t);
}
END_TEST

static void *stop(void *engine) {
    xn_engine_stop(engine);
    return NULL;
}

START_TEST(the_end_waits_for_it) {
    bench t;
    caller c;
    fake_job job;
    pthread_t stopper;
    bench_start(&t, 2);
    caller_start(&c, &t);
    xn_engine_drain(t.engine); /* what was admitted goes on */
    ck_assert_int_eq(pthread_create(&stopper, NULL, stop, t.engine), 0);
    xn_engine_health health = {0};
    while (!health.draining)
        xn_engine_health_get(t.engine, &health);
    ck_assert(!c.ran); /* and nothing it uses is gone */
    sem_post(&fake[FAKE_CPU].gate);
    pthread_join(stopper, NULL);
    caller_end(&c, XN_OK);
    ck_assert(!try_one(&t, &job)); /* none begins any more */
    bench_end(&t);
}
END_TEST

START_TEST(draining_goes_on) {
    bench t;
    fake_job job;
    bench_start(&t, 1);
    xn_engine_drain(t.engine);
    ck_assert(try_one(&t, &job));
    fake_job_expect_inline(&job, XN_OK);
    bench_end(&t);
}
END_TEST

/* ---- failures ---- */

START_TEST(a_failure_is_its_own) {
    bench t;
    fake_job job;
    bench_start(&t, 1);
    fake[FAKE_CPU].run_failure = XN_ERR_INTERNAL;
    ck_assert(try_one(&t, &job));
    fake_job_expect_inline(&job, XN_ERR_INTERNAL);
    fake[FAKE_CPU].run_failure = XN_OK;
    ck_assert(try_one(&t, &job));
    fake_job_expect_inline(&job, XN_OK);
    bench_end(&t);
}
END_TEST

/* Making room takes waiting for others: a worker does that. */
START_TEST(without_memory_a_worker_does_it) {
    bench t;
    fake_job job;
    bench_start(&t, 1);
    fake[FAKE_CPU].memory[0] = 1; /* images: the worker's program has it */
    ck_assert(!try_one(&t, &job));
    fake_job_submit(&job);
    fake_job_expect(&job, XN_OK);
    bench_end(&t);
}
END_TEST

static void fatal(void *context) {
    sem_post(context);
}

START_TEST(it_may_lose_the_device) {
    bench t;
    fake_job job;
    sem_t told;
    bench_start(&t, 2);
    sem_init(&told, 0, 0);
    xn_engine_on_fatal(t.engine, fatal, &told);
    fake[FAKE_CPU].lost[0] = true;
    ck_assert(try_one(&t, &job));
    fake_job_expect_inline(&job, XN_ERR_DEVICE_LOST);
    fake_wait(&told);
    xn_engine_health health;
    xn_engine_health_get(t.engine, &health);
    ck_assert(health.device_lost && !health.ready);
    ck_assert(!try_one(&t, &job));
    bench_end(&t);
}
END_TEST

/* A worker that needs the device for itself waits for it, and it for no worker. */
START_TEST(a_worker_short_of_memory_waits_for_it) {
    bench t;
    caller c;
    fake_job job;
    bench_start(&t, 2);
    caller_start(&c, &t);
    fake[FAKE_CPU].gated = false;
    fake[FAKE_CPU].memory[0] = 2; /* the worker's program and the caller's, of an image each */
    fake_job_init(&job, t.engine, t.asset, 2, 1);
    fake_job_submit(&job);
    sem_post(&fake[FAKE_CPU].gate);
    caller_end(&c, XN_OK);
    fake_job_expect(&job, XN_OK);
    bench_end(&t);
}
END_TEST

XN_SUITE(engine_inline) {
    Suite *s = suite_create("engine_inline");
    TCase *t = tcase_create("inline");
    tcase_set_timeout(t, 120);
    tcase_add_test(t, runs_on_the_calling_thread);
    tcase_add_test(t, only_what_is_small);
    tcase_add_test(t, not_where_it_is_off);
    tcase_add_test(t, not_where_requests_wait_for_company);
    tcase_add_test(t, not_after_its_deadline);
    tcase_add_test(t, beside_a_batch_that_leaves_a_thread);
    tcase_add_test(t, not_beside_a_batch_that_has_all_threads);
    tcase_add_test(t, not_while_another_waits);
    tcase_add_test(t, threads_are_of_the_budget);
    tcase_add_test(t, the_end_waits_for_it);
    tcase_add_test(t, draining_goes_on);
    tcase_add_test(t, a_failure_is_its_own);
    tcase_add_test(t, without_memory_a_worker_does_it);
    tcase_add_test(t, it_may_lose_the_device);
    tcase_add_test(t, a_worker_short_of_memory_waits_for_it);
    suite_add_tcase(s, t);
    return s;
}
