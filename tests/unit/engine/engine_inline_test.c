/* Jobs that the calling thread runs itself (xn_engine_try_run), over the fake backend: when it may,
 * what the job is told, and that no other job is worse off. */
#include "engine_bench.h"

enum { LARGE = 1 << 24 }; /* channels: more work than any inline job, to the engine's eyes */

static void begin(void) {
    bench_begin();
    bench.config.inline_us = 100;
}

/* A worker gives its threads back a moment after done. */
static void await_threads(void) {
    const xn_pool *pool = &bench.engine->pools.each[0];
    bool all = false;
    while (!all) {
        xn_lock_take(&bench.engine->lock);
        all = pool->threads_free == pool->threads;
        xn_lock_drop(&bench.engine->lock);
    }
}

/* A CPU with one worker, `threads` threads to share, and as many callers. Its weights are prepared,
 * which no thread does that has others to serve. */
static void start(int threads) {
    const int ordinal = 0;
    const xn_pool_spec pool = {&fake_cpu, &ordinal, 1, 1, threads, threads};
    fake_job first;
    bench_start_pools(&pool, 1);
    ck_assert(!bench_try(&first));
    ck_assert_int_eq(fake[FAKE_CPU].prepares, 0);
    fake_job_submit(&first);
    fake_job_expect(&first, XN_OK);
    await_threads();
}

static void end(void) {
    ck_assert_int_eq(fake[FAKE_CPU].threads_now, 0);
    bench_end();
}

static const struct {
    const char *what;
    int inline_us, batch_delay_us;
    bool large, late, runs;
} cases[] = {
    {"a small one", 100, 0, false, false, true},
    {"a large one", 100, 0, true, false, false},
    {"it is off", 0, 0, false, false, false},
    {"one that waits to fill a batch would miss it", 100, 1, false, false, false},
    {"after its deadline", 100, 0, false, true, false},
};

START_TEST(when_it_may) {
    fake_job job;
    bench.config.inline_us = cases[_i].inline_us;
    bench.config.batch_delay_us = cases[_i].batch_delay_us;
    start(2);
    bench_job(&job, 1, 1);
    if (cases[_i].large)
        job.job.problem.conv.group_channels = LARGE;
    if (cases[_i].late)
        job.job.deadline_ns = xn_now_ns() - 1;
    const bool ran = xn_engine_try_run(bench.engine, &job.job);
    ck_assert_msg(ran == cases[_i].runs, "%s", cases[_i].what);
    if (ran) {
        fake_job_expect_inline(&job, XN_OK);
        ck_assert_int_eq(job.job.batch_requests, 1);
        ck_assert_int_eq(job.job.submitted_ns, job.job.started_ns); /* it did not wait */
        return;
    }
    fake_job_submit(&job);
    fake_job_expect(&job, cases[_i].late ? XN_ERR_DEADLINE : XN_OK);
}
END_TEST

/* ---- others ---- */

/* A small batch leaves a thread, a large one none. */
START_TEST(beside_a_batch) {
    fake_job running, job;
    start(2);
    bench_job(&running, 1, 100);
    if (_i)
        running.job.problem.conv.group_channels = LARGE;
    fake[FAKE_CPU].gated = true;
    fake_job_submit(&running);
    fake_wait(&fake[FAKE_CPU].entered);
    fake[FAKE_CPU].gated = false;
    ck_assert_int_eq(bench_try(&job), !_i);
    bench_let_go(FAKE_CPU, &running, XN_OK);
}
END_TEST

/* The job that came first is served first. */
START_TEST(not_while_another_waits) {
    fake_job running, waiting, job;
    start(2);
    bench_hold(FAKE_CPU, &running, 1, 100); /* the only worker; a thread is left */
    bench_submit(&waiting, 1, 1);
    ck_assert(!bench_try(&job));
    bench_let_go(FAKE_CPU, &running, XN_OK);
    fake_job_expect(&waiting, XN_OK);
    await_threads();
    ck_assert(bench_try(&job));
}
END_TEST

/* ---- failures ---- */

START_TEST(a_failure_is_its_own) {
    fake_job job;
    start(1);
    fake[FAKE_CPU].run_failure = XN_ERR_INTERNAL;
    bench_run_inline(&job, XN_ERR_INTERNAL);
    fake[FAKE_CPU].run_failure = XN_OK;
    bench_run_inline(&job, XN_OK);
}
END_TEST

/* Making room takes waiting for others: a worker does that. */
START_TEST(without_memory_a_worker_does_it) {
    fake_job job;
    start(1);
    fake[FAKE_CPU].memory[0] = 1; /* images: the worker's program has it */
    ck_assert(!bench_try(&job));
    fake_job_submit(&job);
    fake_job_expect(&job, XN_OK);
}
END_TEST

XN_SUITE(engine_inline) {
    Suite *s = suite_create("engine_inline");
    TCase *t = tcase_create("inline");
    tcase_set_timeout(t, 120);
    tcase_add_checked_fixture(t, begin, end);
    tcase_add_loop_test(t, when_it_may, 0, sizeof cases / sizeof *cases);
    tcase_add_loop_test(t, beside_a_batch, 0, 2);
    tcase_add_test(t, not_while_another_waits);
    tcase_add_test(t, a_failure_is_its_own);
    tcase_add_test(t, without_memory_a_worker_does_it);
    suite_add_tcase(s, t);
    return s;
}
