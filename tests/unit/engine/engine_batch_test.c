/* The engine over the fake backend: batching, waiting, cancelling, expiring, admission, ending.
 * Threads meet on semaphores; a gated run holds its worker until the test lets it go. */
#include "engine_fake.h"

#include <math.h>
#include <string.h>

typedef struct bench {
    xn_engine *engine;
    xn_asset *a, *b;
    fake_job blocker;
} bench;

/* An engine with `workers` workers on one GPU, and weights 2 and 3. */
static void bench_start(bench *t, const xn_config *config, int workers) {
    fake_reset();
    t->engine = fake_engine(config, workers);
    t->a = fake_weights(xn_engine_store(t->engine), 2.0f);
    t->b = fake_weights(xn_engine_store(t->engine), 3.0f);
}

static void bench_end(bench *t) {
    xn_engine_stop(t->engine);
    xn_asset_release(t->a);
    xn_asset_release(t->b);
    xn_engine_free(t->engine);
    fake_expect_all_freed();
}

/* Holds the only worker in a run until bench_unblock. */
static void bench_block(bench *t) {
    fake[FAKE_GPU].gated = true;
    fake_job_init(&t->blocker, t->engine, t->b, 1, 100);
    fake_job_submit(&t->blocker);
    fake_wait(&fake[FAKE_GPU].entered);
    fake[FAKE_GPU].gated = false;
}

static void bench_unblock(bench *t) {
    sem_post(&fake[FAKE_GPU].gate);
    fake_job_expect(&t->blocker, XN_OK);
}

START_TEST(one_job) {
    bench t;
    xn_config config = fake_config();
    bench_start(&t, &config, 1);
    fake_job job;
    fake_job_init(&job, t.engine, t.a, 3, 5);
    int64_t before = xn_now_ns();
    fake_job_submit(&job);
    fake_job_expect(&job, XN_OK);
    ck_assert_int_eq(job.job.device, 0);
    ck_assert_str_eq(xn_engine_device_id(t.engine, job.job.device), "cuda:0");
    ck_assert_int_eq(job.job.batch_requests, 1);
    ck_assert_int_eq(job.job.batch_images, 3);
    ck_assert_int_eq(job.job.times.compute_ns, 2000);
    ck_assert(before <= job.job.submitted_ns && job.job.submitted_ns <= job.job.started_ns &&
              job.job.started_ns <= job.job.finished_ns && job.job.finished_ns <= xn_now_ns());
    ck_assert_int_eq(xn_metrics_gauge(xn_engine_metrics(t.engine), XN_GAUGE_QUEUE_DEPTH), 0);
    bench_end(&t);
}
END_TEST

START_TEST(equal_groups_join) {
    bench t;
    xn_config config = fake_config();
    bench_start(&t, &config, 1);
    bench_block(&t);
    fake_job jobs[6];
    xn_asset *assets[6] = {t.a, t.b, t.a, t.a, t.b, t.a};
    for (int i = 0; i < 6; i++)
        fake_job_init(&jobs[i], t.engine, assets[i], 1 + i % 2, (float)(10 * i));
    jobs[5].job.problem.conv.stride_h = 2; /* the same result, but another problem */
    for (int i = 0; i < 6; i++)
        fake_job_submit(&jobs[i]);
    ck_assert_int_eq(xn_metrics_gauge(xn_engine_metrics(t.engine), XN_GAUGE_QUEUE_DEPTH), 6);
    bench_unblock(&t);
    for (int i = 0; i < 6; i++)
        fake_job_expect(&jobs[i], XN_OK);
    ck_assert_int_eq(fake_record_count(FAKE_GPU), 4);
    fake_record first = fake_record_get(FAKE_GPU, 1), second = fake_record_get(FAKE_GPU, 2),
                third = fake_record_get(FAKE_GPU, 3);
    ck_assert(first.weight == 2.0f && first.count == 3 && first.images == 4);
    ck_assert(second.weight == 3.0f && second.count == 2 && second.images == 3);
    ck_assert(third.weight == 2.0f && third.count == 1 && third.first_input == 50.0f);
    ck_assert_int_eq(jobs[3].job.batch_requests, 3);
    ck_assert_int_eq(jobs[3].job.batch_images, 4);
    bench_end(&t);
}
END_TEST

/* The precision is part of the problem, and comes back as the backend took it. */
/* A client with one job, while a thousand of others wait, has it run next or second. */
START_TEST(one_asset_does_not_starve_another) {
    enum { MANY = 900 };
    static fake_job many[MANY];
    bench t;
    xn_config config = fake_config();
    config.max_batch_images = 8;
    bench_start(&t, &config, 1);
    bench_block(&t);
    for (int i = 0; i < MANY; i++) {
        fake_job_init(&many[i], t.engine, t.a, 1, (float)i);
        fake_job_submit(&many[i]);
    }
    fake_job one;
    fake_job_init(&one, t.engine, t.b, 1, 7);
    fake_job_submit(&one);
    bench_unblock(&t);
    fake_job_expect(&one, XN_OK);
    for (int i = 0; i < MANY; i++)
        fake_job_expect(&many[i], XN_OK);
    int at = 1; /* behind what blocked */
    while (fake_record_get(FAKE_GPU, at).weight != 3.0f)
        at++;
    ck_assert_int_le(at, 2);
    bench_end(&t);
}
END_TEST

START_TEST(precisions_do_not_join) {
    bench t;
    xn_config config = fake_config();
    bench_start(&t, &config, 1);
    bench_block(&t);
    fake_job jobs[3];
    for (int i = 0; i < 3; i++)
        fake_job_init(&jobs[i], t.engine, t.a, 1, (float)i);
    jobs[1].job.problem.conv.precision = XN_PRECISION_FP16;
    for (int i = 0; i < 3; i++)
        fake_job_submit(&jobs[i]);
    bench_unblock(&t);
    for (int i = 0; i < 3; i++)
        fake_job_expect(&jobs[i], XN_OK);
    ck_assert_int_eq(jobs[0].job.batch_requests, 2);
    ck_assert_int_eq(jobs[1].job.batch_requests, 1);
    ck_assert_int_eq(jobs[0].job.precision, XN_PRECISION_FP32);
    ck_assert_int_eq(jobs[1].job.precision, XN_PRECISION_FP16);
    bench_end(&t);
}
END_TEST

START_TEST(max_images_bounds_a_batch) {
    bench t;
    xn_config config = fake_config();
    config.max_batch_images = 4;
    bench_start(&t, &config, 1);
    bench_block(&t);
    const int64_t images[5] = {3, 1, 1, 9, 2};
    fake_job jobs[5];
    for (int i = 0; i < 5; i++) {
        fake_job_init(&jobs[i], t.engine, t.a, images[i], (float)(20 * i));
        fake_job_submit(&jobs[i]);
    }
    bench_unblock(&t);
    for (int i = 0; i < 5; i++)
        fake_job_expect(&jobs[i], XN_OK);
    const int64_t expected[4] = {4, 1, 9, 2};
    ck_assert_int_eq(fake_record_count(FAKE_GPU), 5);
    for (int i = 0; i < 4; i++)
        ck_assert_int_eq(fake_record_get(FAKE_GPU, i + 1).images, expected[i]);
    bench_end(&t);
}
END_TEST

START_TEST(delay_waits_for_company) {
    bench t;
    xn_config config = fake_config();
    config.max_batch_images = 2;
    config.batch_delay_us = INT64_C(3600) * 1000000; /* longer than any test runs */
    bench_start(&t, &config, 2);
    fake_job first, second, drained;
    fake_job_init(&first, t.engine, t.a, 1, 1);
    fake_job_init(&second, t.engine, t.a, 1, 2);
    fake_job_submit(&first);
    fake_job_submit(&second);
    fake_job_expect(&first, XN_OK);
    fake_job_expect(&second, XN_OK);
    ck_assert_int_eq(first.job.batch_images, 2);
    /* Draining launches what waits to fill a batch. */
    fake_job_init(&drained, t.engine, t.a, 1, 3);
    fake_job_submit(&drained);
    xn_engine_drain(t.engine);
    fake_job_expect(&drained, XN_OK);
    ck_assert_int_eq(drained.job.batch_images, 1);
    bench_end(&t);
}
END_TEST

START_TEST(delay_ends) {
    bench t;
    xn_config config = fake_config();
    config.batch_delay_us = 2000;
    bench_start(&t, &config, 3);
    for (int round = 0; round < 5; round++) {
        fake_job a, b;
        fake_job_init(&a, t.engine, t.a, 1, 1);
        fake_job_init(&b, t.engine, t.b, 1, 1);
        fake_job_submit(&a);
        fake_job_submit(&b);
        fake_job_expect(&a, XN_OK);
        fake_job_expect(&b, XN_OK);
        ck_assert_int_ge(a.job.started_ns - a.job.submitted_ns, 2000 * XN_NS_PER_US);
        ck_assert_int_ge(b.job.started_ns - b.job.submitted_ns, 2000 * XN_NS_PER_US);
    }
    bench_end(&t);
}
END_TEST

START_TEST(near_deadline_shortens_the_delay) {
    bench t;
    xn_config config = fake_config();
    config.batch_delay_us = INT64_C(3600) * 1000000;
    bench_start(&t, &config, 1);
    fake_job job;
    fake_job_init(&job, t.engine, t.a, 1, 1);
    job.job.deadline_ns = xn_now_ns() + 600 * XN_NS_PER_S;
    fake_job_submit(&job);
    fake_job_expect(&job, XN_OK);
    bench_end(&t);
}
END_TEST

START_TEST(workers_run_side_by_side) {
    bench t;
    xn_config config = fake_config();
    config.max_batch_images = 1;
    bench_start(&t, &config, 3);
    fake[FAKE_GPU].gated = true;
    fake_job jobs[3];
    for (int i = 0; i < 3; i++) {
        fake_job_init(&jobs[i], t.engine, t.a, 1, (float)i);
        fake_job_submit(&jobs[i]);
    }
    for (int i = 0; i < 3; i++) /* all three are in their runs before any is let go */
        fake_wait(&fake[FAKE_GPU].entered);
    for (int i = 0; i < 3; i++)
        sem_post(&fake[FAKE_GPU].gate);
    for (int i = 0; i < 3; i++)
        fake_job_expect(&jobs[i], XN_OK);
    bench_end(&t);
}
END_TEST

/* One worker lingers for all; a worker that takes a batch wakes the next. */
START_TEST(due_groups_wake_all_workers) {
    bench t;
    xn_config config = fake_config();
    config.batch_delay_us = 2000;
    bench_start(&t, &config, 3);
    fake[FAKE_GPU].gated = true;
    fake_job jobs[3];
    for (int i = 0; i < 3; i++) {
        fake_job_init(&jobs[i], t.engine, t.a, 1, (float)i);
        jobs[i].job.problem.conv.stride_h = i + 1; /* a group each */
        fake_job_submit(&jobs[i]);
    }
    for (int i = 0; i < 3; i++)
        fake_wait(&fake[FAKE_GPU].entered);
    for (int i = 0; i < 3; i++)
        sem_post(&fake[FAKE_GPU].gate);
    for (int i = 0; i < 3; i++)
        fake_job_expect(&jobs[i], XN_OK);
    bench_end(&t);
}
END_TEST

START_TEST(threads_are_dealt_out) {
    fake_reset();
    xn_config config = fake_config();
    config.max_batch_images = 1;
    const int ordinal = 0;
    xn_pool_spec pool = {&fake_cpu, &ordinal, 1, 4, 4, 0};
    xn_engine *engine = NULL;
    ck_assert_int_eq(xn_engine_create_with(&config, &pool, 1, "", &engine, NULL), XN_OK);
    xn_asset *asset = fake_weights(xn_engine_store(engine), 2.0f);
    fake[FAKE_CPU].gated = true;
    fake_job jobs[40];
    for (int i = 0; i < 40; i++) {
        fake_job_init(&jobs[i], engine, asset, 1, (float)i);
        if (i % 2 == 0) /* work for more threads than there are, to the engine's eyes */
            jobs[i].job.problem.conv.group_channels = 1 << 24;
        fake_job_submit(&jobs[i]);
        if (i == 0) {
            fake_wait(&fake[FAKE_CPU].entered);
            ck_assert_int_eq(fake[FAKE_CPU].threads_now, 4); /* all that is free */
        }
    }
    /* Nothing starts while no thread is free. */
    ck_assert_int_eq(xn_metrics_gauge(xn_engine_metrics(engine), XN_GAUGE_QUEUE_DEPTH), 39);
    fake[FAKE_CPU].gated = false;
    sem_post(&fake[FAKE_CPU].gate);
    for (int i = 0; i < 40; i++)
        fake_job_expect(&jobs[i], XN_OK);
    ck_assert_int_eq(fake[FAKE_CPU].threads_most, 4);
    xn_engine_stop(engine);
    xn_asset_release(asset);
    xn_engine_free(engine);
    fake_expect_all_freed();
}
END_TEST

START_TEST(devices_share_the_queue) {
    fake_reset();
    xn_config config = fake_config();
    config.max_batch_images = 1;
    xn_engine *engine = fake_engine_pair(&config, 2);
    xn_asset *asset = fake_weights(xn_engine_store(engine), 2.0f);
    fake[FAKE_GPU].gated = true;
    fake_job jobs[2];
    for (int i = 0; i < 2; i++) {
        fake_job_init(&jobs[i], engine, asset, 1, (float)i);
        fake_job_submit(&jobs[i]);
    }
    fake_wait(&fake[FAKE_GPU].entered);
    fake_wait(&fake[FAKE_GPU].entered);
    sem_post(&fake[FAKE_GPU].gate);
    sem_post(&fake[FAKE_GPU].gate);
    fake_job_expect(&jobs[0], XN_OK);
    fake_job_expect(&jobs[1], XN_OK);
    ck_assert_int_eq(jobs[0].job.device + jobs[1].job.device, 1); /* one each */
    ck_assert_int_eq(fake[FAKE_GPU].prepares, 2);                 /* once a device */
    xn_engine_stop(engine);
    xn_asset_release(asset);
    xn_engine_free(engine);
    fake_expect_all_freed();
}
END_TEST

START_TEST(cancel) {
    bench t;
    xn_config config = fake_config();
    bench_start(&t, &config, 1);
    bench_block(&t);
    fake_job jobs[3];
    for (int i = 0; i < 3; i++) {
        fake_job_init(&jobs[i], t.engine, t.a, 1, (float)i);
        fake_job_submit(&jobs[i]);
    }
    xn_engine_cancel(t.engine, &jobs[1].job, XN_ERR_CANCELLED);
    fake_job_expect(&jobs[1], XN_ERR_CANCELLED); /* while the only worker is held */
    ck_assert_int_eq(jobs[1].job.device, -1);
    xn_engine_cancel(t.engine, &t.blocker.job, XN_ERR_CANCELLED); /* it runs: nothing changes */
    bench_unblock(&t);
    fake_job_expect(&jobs[0], XN_OK);
    fake_job_expect(&jobs[2], XN_OK);
    ck_assert_int_eq(fake_record_get(FAKE_GPU, 1).images, 2); /* without the cancelled one */
    bench_end(&t);
}
END_TEST

START_TEST(expiry_while_workers_are_blocked) {
    bench t;
    xn_config config = fake_config();
    bench_start(&t, &config, 1);
    bench_block(&t);
    fake_job late, soon, later, none;
    int64_t now = xn_now_ns();
    fake_job_init(&none, t.engine, t.a, 1, 0);
    fake_job_init(&later, t.engine, t.a, 1, 1);
    fake_job_init(&soon, t.engine, t.a, 1, 2);
    fake_job_init(&late, t.engine, t.a, 1, 3);
    later.job.deadline_ns = now + 20 * XN_NS_PER_MS;
    soon.job.deadline_ns = now + 5 * XN_NS_PER_MS;
    late.job.deadline_ns = now - 1; /* already over */
    fake_job_submit(&none);
    fake_job_submit(&later);
    fake_job_submit(&soon);
    fake_job_submit(&late);
    fake_job_expect(&late, XN_ERR_DEADLINE);
    fake_job_expect(&soon, XN_ERR_DEADLINE);
    fake_job_expect(&later, XN_ERR_DEADLINE);
    ck_assert_int_ge(soon.job.finished_ns, soon.job.deadline_ns);
    ck_assert_int_ge(later.job.finished_ns, later.job.deadline_ns);
    ck_assert_int_eq(later.job.started_ns, later.job.finished_ns);
    bench_unblock(&t);
    fake_job_expect(&none, XN_OK);
    ck_assert_int_eq(none.job.batch_requests, 1); /* the expired ones were never launched */
    ck_assert_int_eq(fake_record_count(FAKE_GPU), 2);
    bench_end(&t);
}
END_TEST

START_TEST(run_failure_fails_its_batch_only) {
    bench t;
    xn_config config = fake_config();
    bench_start(&t, &config, 1);
    fake[FAKE_GPU].run_failure = XN_ERR_INTERNAL;
    fake_job job;
    fake_job_init(&job, t.engine, t.a, 1, 1);
    fake_job_submit(&job);
    fake_job_expect(&job, XN_ERR_INTERNAL);
    fake[FAKE_GPU].run_failure = XN_OK;
    fake_job_init(&job, t.engine, t.a, 1, 1);
    fake_job_submit(&job);
    fake_job_expect(&job, XN_OK);
    bench_end(&t);
}
END_TEST

/* ---- admission and ending ---- */

START_TEST(admission_bounds) {
    bench t;
    xn_ticket a, b, c;
    xn_config config = fake_config();
    config.queue_depth = 2;
    config.queue_bytes = 1000;
    config.max_requests_per_client = 2;
    config.max_bytes_per_client = 1000;
    bench_start(&t, &config, 1);
    xn_metrics *metrics = xn_engine_metrics(t.engine);
    xn_error error = {0};
    ck_assert_int_eq(fake_admit(t.engine, 1001, &a, &error), XN_ERR_LIMIT);
    ck_assert_str_eq(error.limit, "queue-bytes");
    ck_assert_int_eq(fake_admit(t.engine, 400, &a, &error), XN_OK);
    ck_assert_int_eq(fake_admit(t.engine, 601, &b, &error), XN_ERR_BUSY);
    ck_assert_str_eq(error.field, "");
    ck_assert_ptr_nonnull(strstr(error.message, "1000"));
    ck_assert_int_eq(fake_admit(t.engine, 500, &b, &error), XN_OK);
    ck_assert_int_eq(fake_admit(t.engine, 0, &c, &error), XN_ERR_BUSY);
    ck_assert_ptr_nonnull(strstr(error.message, "--queue-depth is 2"));
    ck_assert_int_eq(xn_ticket_grow(&a, 101, &error), XN_ERR_BUSY);
    ck_assert_int_eq(xn_ticket_grow(&a, 100, &error), XN_OK);
    ck_assert_int_eq(xn_metrics_gauge(metrics, XN_GAUGE_INFLIGHT), 2);
    ck_assert_int_eq(xn_metrics_gauge(metrics, XN_GAUGE_INFLIGHT_BYTES), 1000);
    ck_assert_int_ge(xn_engine_retry_after(t.engine), 1);
    xn_ticket_leave(&a);
    xn_ticket_leave(&a); /* once is enough */
    ck_assert_int_eq(fake_admit(t.engine, 500, &a, &error), XN_OK);
    xn_engine_drain(t.engine);
    xn_engine_drain(t.engine);
    ck_assert_int_eq(fake_admit(t.engine, 0, &c, &error), XN_ERR_DRAINING);
    ck_assert(!xn_engine_wait_idle(t.engine, xn_now_ns() + XN_NS_PER_MS));
    xn_ticket_leave(&a);
    ck_assert_int_eq(xn_ticket_grow(&b, 100, &error), XN_OK); /* still admitted */
    xn_ticket_leave(&b);
    ck_assert(xn_engine_wait_idle(t.engine, INT64_MAX));
    ck_assert_int_eq(xn_metrics_gauge(metrics, XN_GAUGE_INFLIGHT_BYTES), 0);
    bench_end(&t);
}
END_TEST

/* Retry-After follows what is finished: one job in a hundredth of a second or more, and 2,000 that
 * wait, are 20 s or more; nothing finished yet would be 1. */
START_TEST(retry_after_follows_the_rate) {
    enum { WAITING = 2000 };
    static xn_ticket waiting[WAITING];
    bench t;
    xn_config config = fake_config();
    config.queue_depth = WAITING;
    config.max_requests_per_client = WAITING;
    bench_start(&t, &config, 1);
    fake_job job;
    fake_job_init(&job, t.engine, t.a, 1, 1);
    ck_assert_int_eq(xn_engine_retry_after(t.engine), 1);
    fake_job_submit(&job);
    fake_job_expect(&job, XN_OK);
    for (int i = 0; i < WAITING; i++)
        ck_assert_int_eq(fake_admit(t.engine, 0, &waiting[i], NULL), XN_OK);
    ck_assert_int_ge(xn_engine_retry_after(t.engine), 20);
    for (int i = 0; i < WAITING; i++)
        xn_ticket_leave(&waiting[i]);
    bench_end(&t);
}
END_TEST

/* What counts are jobs, however many of them share a launch. */
START_TEST(retry_after_counts_jobs) {
    enum { JOBS = 8, WAITING = 80 };
    const double tau_s = 5; /* of the rate (admission.h) */
    static xn_ticket waiting[WAITING];
    bench t;
    fake_job jobs[JOBS];
    xn_config config = fake_config();
    config.max_batch_images = JOBS;
    config.batch_delay_us = 60000000;
    bench_start(&t, &config, 1);
    const int64_t before_ns = xn_now_ns();
    for (int i = 0; i < JOBS; i++) {
        fake_job_init(&jobs[i], t.engine, t.a, 1, (float)i);
        fake_job_submit(&jobs[i]);
    }
    for (int i = 0; i < JOBS; i++)
        fake_job_expect(&jobs[i], XN_OK);
    ck_assert_int_eq(jobs[0].job.batch_requests, JOBS);
    for (int i = 0; i < WAITING; i++)
        ck_assert_int_eq(fake_admit(t.engine, 1, &waiting[i], NULL), XN_OK);
    nanosleep(&(struct timespec){0, 500 * XN_NS_PER_MS}, NULL);
    const int told_s = xn_engine_retry_after(t.engine);
    const double since_s = (double)(xn_now_ns() - before_ns) / 1e9;
    ck_assert_double_le(told_s, WAITING / JOBS * tau_s * expm1(since_s / tau_s) + 1);
    for (int i = 0; i < WAITING; i++)
        xn_ticket_leave(&waiting[i]);
    bench_end(&t);
}
END_TEST

static void *wait_idle_main(void *engine) {
    return xn_engine_wait_idle(engine, INT64_MAX) ? engine : NULL;
}

START_TEST(drain_finishes_what_was_admitted) {
    bench t;
    xn_config config = fake_config();
    bench_start(&t, &config, 1);
    xn_engine_health health;
    xn_engine_health_get(t.engine, &health);
    ck_assert(health.ready && !health.draining && !health.reason[0]);
    ck_assert_str_eq(health.backend, "cuda");
    xn_ticket tickets[2];
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(fake_admit(t.engine, 10, &tickets[i], NULL), XN_OK);
    bench_block(&t);
    fake_job queued;
    fake_job_init(&queued, t.engine, t.a, 1, 1);
    xn_engine_drain(t.engine);
    xn_engine_health_get(t.engine, &health);
    ck_assert(!health.ready && health.draining && health.reason[0]);
    ck_assert_int_eq(xn_metrics_gauge(xn_engine_metrics(t.engine), XN_GAUGE_READY), 0);
    fake_job_submit(&queued); /* admitted before */
    pthread_t waiter;
    ck_assert_int_eq(pthread_create(&waiter, NULL, wait_idle_main, t.engine), 0);
    bench_unblock(&t);
    fake_job_expect(&queued, XN_OK);
    for (int i = 0; i < 2; i++)
        xn_ticket_leave(&tickets[i]);
    void *idle = NULL;
    pthread_join(waiter, &idle);
    ck_assert_ptr_eq(idle, t.engine);
    bench_end(&t);
}
END_TEST

START_TEST(pools_by_name) {
    fake_reset();
    xn_config config = fake_config();
    xn_engine *engine = fake_engine_pair(&config, 1);
    xn_error error = {0};
    int pool = -1;
    ck_assert_int_eq(xn_engine_pool(engine, "auto", &pool, &error), XN_OK);
    ck_assert_int_eq(pool, 0);
    ck_assert_int_eq(xn_engine_pool(engine, "cpu", &pool, &error), XN_OK);
    ck_assert_int_eq(pool, 1);
    ck_assert_int_eq(xn_engine_pool(engine, "cuda", &pool, &error), XN_OK);
    ck_assert_int_eq(pool, 0);
    ck_assert_int_eq(xn_engine_pool(engine, "ref", &pool, &error), XN_ERR_UNSUPPORTED);
    ck_assert_str_eq(error.field, "backend");
    ck_assert_ptr_nonnull(strstr(error.message, "auto, cuda, cpu"));
    ck_assert_str_eq(xn_engine_primary(engine), "cuda");
    ck_assert_str_eq(xn_engine_fallback_reason(engine), "");
    ck_assert_int_eq(xn_engine_device_count(engine), 2);
    xn_device_info info;
    xn_engine_device_info(engine, 1, &info);
    ck_assert_str_eq(info.id, "cpu");
    xn_engine_free(engine); /* stops by itself */
    fake_expect_all_freed();
}
END_TEST

XN_SUITE(engine_batch) {
    Suite *s = suite_create("engine_batch");
    TCase *t = tcase_create("engine");
    tcase_set_timeout(t, 120);
    tcase_add_test(t, one_job);
    tcase_add_test(t, equal_groups_join);
    tcase_add_test(t, one_asset_does_not_starve_another);
    tcase_add_test(t, precisions_do_not_join);
    tcase_add_test(t, max_images_bounds_a_batch);
    tcase_add_test(t, delay_waits_for_company);
    tcase_add_test(t, delay_ends);
    tcase_add_test(t, near_deadline_shortens_the_delay);
    tcase_add_test(t, workers_run_side_by_side);
    tcase_add_test(t, due_groups_wake_all_workers);
    tcase_add_test(t, threads_are_dealt_out);
    tcase_add_test(t, devices_share_the_queue);
    tcase_add_test(t, cancel);
    tcase_add_test(t, expiry_while_workers_are_blocked);
    tcase_add_test(t, run_failure_fails_its_batch_only);
    tcase_add_test(t, admission_bounds);
    tcase_add_test(t, retry_after_follows_the_rate);
    tcase_add_test(t, retry_after_counts_jobs);
    tcase_add_test(t, drain_finishes_what_was_admitted);
    tcase_add_test(t, pools_by_name);
    suite_add_tcase(s, t);
    return s;
}
