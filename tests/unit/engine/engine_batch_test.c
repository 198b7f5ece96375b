/* The engine over the fake backend: what joins a batch and waits for it, whom a failure concerns,
 * and what Retry-After counts. A gated run holds its worker until the test lets it go. */
#include "engine_bench.h"

#include <math.h>

/* The precision is part of the problem, and comes back as the backend took it. */
START_TEST(equal_groups_join) {
    fake_job running, jobs[6];
    bench_start(1);
    xn_asset *other = fake_weights(xn_engine_store(bench.engine), 3.0f);
    xn_asset *assets[6] = {other, bench.asset, other, other, bench.asset, other};
    bench_hold(FAKE_GPU, &running, 1, 100);
    for (int i = 0; i < 6; i++)
        fake_job_init(&jobs[i], bench.engine, assets[i], 1 + i % 2, (float)(10 * i));
    jobs[5].job.problem.conv.precision = XN_PRECISION_FP16;
    for (int i = 0; i < 6; i++)
        fake_job_submit(&jobs[i]);
    ck_assert_int_eq(bench_gauge(XN_GAUGE_QUEUE_DEPTH), 6);
    bench_let_go(FAKE_GPU, &running, XN_OK);
    for (int i = 0; i < 6; i++)
        fake_job_expect(&jobs[i], XN_OK);
    ck_assert_int_eq(fake_record_count(FAKE_GPU), 4);
    fake_record first = fake_record_get(FAKE_GPU, 1), second = fake_record_get(FAKE_GPU, 2),
                third = fake_record_get(FAKE_GPU, 3);
    ck_assert(first.weight == 3.0f && first.count == 3 && first.images == 4);
    ck_assert(second.weight == 2.0f && second.count == 2 && second.images == 3);
    ck_assert(third.weight == 3.0f && third.count == 1 && third.first_input == 50.0f);
    ck_assert_int_eq(jobs[3].job.batch_requests, 3);
    ck_assert_int_eq(jobs[3].job.batch_images, 4);
    ck_assert_int_eq(jobs[3].job.precision, XN_PRECISION_FP32);
    ck_assert_int_eq(jobs[5].job.precision, XN_PRECISION_FP16);
    xn_asset_release(other);
}
END_TEST

START_TEST(delay_waits_for_company) {
    bench.config.max_batch_images = 2;
    bench.config.batch_delay_us = INT64_C(3600) * 1000000; /* longer than any test runs */
    bench_start(2);
    fake_job first, second, drained;
    bench_submit(&first, 1, 1);
    bench_submit(&second, 1, 2);
    fake_job_expect(&first, XN_OK);
    fake_job_expect(&second, XN_OK);
    ck_assert_int_eq(first.job.batch_images, 2);
    /* Draining launches what waits to fill a batch. */
    bench_submit(&drained, 1, 3);
    xn_engine_drain(bench.engine);
    fake_job_expect(&drained, XN_OK);
    ck_assert_int_eq(drained.job.batch_images, 1);
}
END_TEST

START_TEST(run_failure_fails_its_batch_only) {
    bench_start(1);
    fake[FAKE_GPU].run_failure = XN_ERR_INTERNAL;
    fake_job job;
    bench_run(&job, 1, 1, XN_ERR_INTERNAL);
    fake[FAKE_GPU].run_failure = XN_OK;
    bench_run(&job, 1, 1, XN_OK);
}
END_TEST

/* Retry-After follows the jobs that were computed, however many of them share a launch. */
START_TEST(retry_after_counts_jobs) {
    enum { JOBS = 8, WAITING = 80 };
    const double tau_s = 5; /* of the rate (admission.h) */
    static xn_ticket waiting[WAITING];
    fake_job jobs[JOBS];
    bench.config.max_batch_images = JOBS;
    bench.config.batch_delay_us = 60000000;
    bench_start(1);
    const int64_t before_ns = xn_now_ns();
    for (int i = 0; i < JOBS; i++)
        bench_submit(&jobs[i], 1, (float)i);
    for (int i = 0; i < JOBS; i++)
        fake_job_expect(&jobs[i], XN_OK);
    ck_assert_int_eq(jobs[0].job.batch_requests, JOBS);
    for (int i = 0; i < WAITING; i++)
        ck_assert_int_eq(fake_admit(bench.engine, 1, &waiting[i], NULL), XN_OK);
    nanosleep(&(struct timespec){0, 500 * XN_NS_PER_MS}, NULL);
    const int told_s = xn_engine_retry_after(bench.engine);
    const double since_s = (double)(xn_now_ns() - before_ns) / 1e9;
    ck_assert_int_ge(told_s, WAITING / JOBS / 2);
    ck_assert_double_le(told_s, WAITING / JOBS * tau_s * expm1(since_s / tau_s) + 1);
    for (int i = 0; i < WAITING; i++)
        xn_ticket_leave(&waiting[i]);
}
END_TEST

XN_SUITE(engine_batch) {
    Suite *s = suite_create("engine_batch");
    TCase *t = tcase_create("engine");
    tcase_set_timeout(t, 120);
    tcase_add_checked_fixture(t, bench_begin, bench_end);
    tcase_add_test(t, equal_groups_join);
    tcase_add_test(t, delay_waits_for_company);
    tcase_add_test(t, run_failure_fails_its_batch_only);
    tcase_add_test(t, retry_after_counts_jobs);
    suite_add_tcase(s, t);
    return s;
}
