/* Many threads against the engine: every answer is checked, every done counted once, nothing stays
 * behind. Meant for ThreadSanitizer too. */
#include "engine_bench.h"

#include <string.h>

enum { THREADS = 8, JOBS_A_THREAD = 400, IN_FLIGHT = 8 };

typedef struct hammer {
    xn_engine *engine;
    xn_asset *assets[3];
    uint64_t seed;
    int pools;
    bool unruly; /* cancels and deadlines too */
    atomic_llong ok, ended, inlined;
} hammer;

typedef struct hammer_thread {
    hammer *shared;
    int index;
    pthread_t thread;
} hammer_thread;

static void start_one(hammer *h, fake_job *job, xn_rng *rng, bool *cancel) {
    uint64_t kind = h->unruly ? xn_rng_below(rng, 8) : 7;
    int64_t images = 1 + (int64_t)xn_rng_below(rng, 6);
    fake_job_init(job, h->engine, h->assets[xn_rng_below(rng, 3)], images,
                  (float)xn_rng_below(rng, 1000));
    job->job.pool = (int)xn_rng_below(rng, (uint64_t)h->pools);
    if (kind == 0)
        job->job.deadline_ns = xn_now_ns() + (int64_t)xn_rng_below(rng, 200) * XN_NS_PER_US;
    *cancel = kind == 1;
    ck_assert_int_eq(fake_admit(h->engine, 64, &job->ticket, NULL), XN_OK);
    if (!*cancel && xn_rng_below(rng, 2) && xn_engine_try_run(h->engine, &job->job)) {
        atomic_fetch_add(&h->inlined, 1);
        job->job.done(&job->job);
    } else {
        fake_job_submit(job);
    }
}

static void end_one(hammer *h, fake_job *job, bool cancelled) {
    while (sem_wait(&job->done))
        ;
    xn_status status = job->job.status;
    sem_post(&job->done); /* for the check that waits for it once more */
    bool timed = job->job.deadline_ns != INT64_MAX;
    ck_assert_msg(status == XN_OK || (status == XN_ERR_CANCELLED && cancelled) ||
                      (status == XN_ERR_DEADLINE && timed),
                  "seed %llu: %s", (unsigned long long)h->seed, xn_status_name(status));
    fake_job_expect(job, status);
    if (status == XN_OK) {
        ck_assert_int_ge(job->job.batch_images, job->job.images);
        ck_assert_int_lt(job->job.started_ns, job->job.deadline_ns);
    }
    atomic_fetch_add(status == XN_OK ? &h->ok : &h->ended, 1);
    xn_ticket_leave(&job->ticket);
}

static void *hammer_main(void *argument) {
    hammer_thread *self = argument;
    hammer *h = self->shared;
    xn_rng rng = {h->seed + (uint64_t)self->index};
    fake_job jobs[IN_FLIGHT];
    bool cancelled[IN_FLIGHT];
    for (int i = 0; i < JOBS_A_THREAD + IN_FLIGHT; i++) {
        int slot = i % IN_FLIGHT;
        if (i >= IN_FLIGHT)
            end_one(h, &jobs[slot], cancelled[slot]);
        if (i >= JOBS_A_THREAD)
            continue;
        start_one(h, &jobs[slot], &rng, &cancelled[slot]);
        if (cancelled[slot]) /* it may be queued, running or done by now */
            xn_engine_cancel(h->engine, &jobs[slot].job, XN_ERR_CANCELLED);
    }
    return NULL;
}

static void hammer_run(hammer *h) {
    hammer_thread threads[THREADS];
    h->seed = xn_test_seed();
    for (int i = 0; i < 3; i++)
        h->assets[i] = fake_weights(xn_engine_store(h->engine), (float)(i + 2));
    for (int i = 0; i < THREADS; i++) {
        threads[i] = (hammer_thread){.shared = h, .index = i};
        ck_assert_int_eq(pthread_create(&threads[i].thread, NULL, hammer_main, &threads[i]), 0);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i].thread, NULL);
    ck_assert_int_eq(h->ok + h->ended, THREADS * JOBS_A_THREAD);
    ck_assert_int_gt(h->ok, 0);
    ck_assert(xn_engine_wait_idle(h->engine, xn_now_ns() + 60 * XN_NS_PER_S));
    xn_metrics *metrics = xn_engine_metrics(h->engine);
    ck_assert_int_eq(xn_metrics_gauge(metrics, XN_GAUGE_QUEUE_DEPTH), 0);
    ck_assert_int_eq(xn_metrics_gauge(metrics, XN_GAUGE_INFLIGHT), 0);
    ck_assert_int_eq(xn_metrics_gauge(metrics, XN_GAUGE_INFLIGHT_BYTES), 0);
    xn_engine_stop(h->engine);
    for (int i = 0; i < 3; i++)
        xn_asset_release(h->assets[i]);
    xn_engine_free(h->engine);
}

START_TEST(hammer_fakes) {
    fake_reset();
    xn_config config = fake_config();
    config.max_batch_images = 16;
    config.canary_interval_ms = 1;
    config.inline_us = 100;
    hammer h = {.engine = fake_engine_pair(&config, 3), .pools = 2, .unruly = true};
    hammer_run(&h);
    ck_assert_int_le(fake[FAKE_CPU].threads_most, 2); /* the budget */
    ck_assert_int_gt(h.inlined, 0);
    ck_assert_int_gt(fake_record_count(FAKE_CPU), 0);
    ck_assert_int_gt(fake_record_count(FAKE_GPU), 0);
    fake_expect_all_freed();
}
END_TEST

START_TEST(hammer_with_delay_and_little_memory) {
    fake_reset();
    xn_config config = fake_config();
    config.max_batch_images = 16;
    config.batch_delay_us = 100;
    fake[FAKE_GPU].memory[0] = 40;
    hammer h = {.engine = fake_engine(&config, 4), .pools = 1, .unruly = true};
    hammer_run(&h);
    fake_expect_all_freed();
}
END_TEST

START_TEST(hammer_ref) {
    xn_config config = fake_config();
    snprintf(config.backend, sizeof config.backend, "ref");
    config.threads = 3;
    config.inline_us = 100;
    hammer h = {.pools = 1, .unruly = false};
    xn_error error = {0};
    xn_status status = xn_engine_create(&config, &h.engine, &error);
    ck_assert_msg(status == XN_OK, "%s", error.message);
    ck_assert_str_eq(xn_engine_primary(h.engine), "ref");
    hammer_run(&h);
}
END_TEST

/* Devices are lost one after the other while threads submit work that any pool may do. */
typedef struct storm {
    xn_engine *engine;
    xn_asset *asset;
    atomic_int gone; /* devices to lose have been lost */
} storm;

static void *storm_main(void *argument) {
    storm *s = argument;
    fake_job job;
    for (int i = 0, after = 0; after < 50; i++) {
        fake_job_init(&job, s->engine, s->asset, 1, (float)i);
        job.job.any_pool = true;
        ck_assert_int_eq(xn_engine_pool(s->engine, "auto", &job.job.pool, NULL), XN_OK);
        after += atomic_load(&s->gone);
        if (i % 2 && xn_engine_try_run(s->engine, &job.job))
            job.job.done(&job.job);
        else
            fake_job_submit(&job);
        while (sem_wait(&job.done))
            ;
        xn_status status = job.job.status;
        sem_post(&job.done);
        ck_assert(status == XN_OK || status == XN_ERR_DEVICE_LOST);
        fake_job_expect(&job, status);
    }
    return NULL;
}

START_TEST(devices_die_under_load) {
    fake_reset();
    xn_config config = fake_config();
    config.on_device_loss = XN_LOSS_CPU;
    config.inline_us = 100;
    storm s = {.engine = fake_engine_pair(&config, 3)};
    s.asset = fake_weights(xn_engine_store(s.engine), 2.0f);
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, storm_main, &s), 0);
    for (int i = 0; i < 3; i++)
        fake[FAKE_GPU].lost[i] = true;
    atomic_store(&s.gone, 1);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    ck_assert_str_eq(xn_engine_primary(s.engine), "cpu");
    xn_engine_stop(s.engine);
    xn_asset_release(s.asset);
    xn_engine_free(s.engine);
    fake_expect_all_freed();
}
END_TEST

XN_SUITE(engine_hammer) {
    Suite *s = suite_create("engine_hammer");
    TCase *t = tcase_create("hammer");
    tcase_set_timeout(t, 300);
    tcase_add_test(t, hammer_fakes);
    tcase_add_test(t, hammer_with_delay_and_little_memory);
    tcase_add_test(t, hammer_ref);
    tcase_add_test(t, devices_die_under_load);
    suite_add_tcase(s, t);
    return s;
}
