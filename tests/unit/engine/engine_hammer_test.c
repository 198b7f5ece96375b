/* Many threads against the engine: every answer is checked, every done counted once, nothing stays
 * behind. Meant for ThreadSanitizer too. */
#include "engine_bench.h"

enum { GPUS = 3, THREADS = 8, JOBS_A_THREAD = 400, IN_FLIGHT = 8 };

typedef struct hammer {
    xn_engine *engine;
    xn_asset *assets[3];
    uint64_t seed;
    bool loses; /* all GPUs, half-way */
    atomic_llong begun, ok, ended, inlined;
} hammer;

typedef struct hammer_thread {
    hammer *shared;
    int index;
    pthread_t thread;
} hammer_thread;

static void lose_gpus(hammer *h) {
    if (h->loses && atomic_fetch_add(&h->begun, 1) == THREADS * JOBS_A_THREAD / 2)
        for (int i = 0; i < GPUS; i++)
            fake[FAKE_GPU].lost[i] = true;
}

static void start_one(hammer *h, fake_job *job, xn_rng *rng, bool *cancel) {
    uint64_t kind = xn_rng_below(rng, 8);
    int64_t images = 1 + (int64_t)xn_rng_below(rng, 6);
    fake_job_init(job, h->engine, h->assets[xn_rng_below(rng, 3)], images,
                  (float)xn_rng_below(rng, 1000));
    job->job.pool = (int)xn_rng_below(rng, 2);
    job->job.any_pool = h->loses;
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
                      (status == XN_ERR_DEADLINE && timed) ||
                      (status == XN_ERR_DEVICE_LOST && h->loses),
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
        lose_gpus(h);
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
    ck_assert_str_eq(xn_engine_primary(h->engine), h->loses ? "cpu" : "cuda");
    xn_engine_stop(h->engine);
    for (int i = 0; i < 3; i++)
        xn_asset_release(h->assets[i]);
    xn_engine_free(h->engine);
}

static const struct {
    int inline_us, batch_delay_us;
    int64_t memory; /* of the first GPU, in images; 0: any */
    bool loses;
} cases[] = {{100, 0, 0, false}, {0, 100, 40, false}, {100, 0, 0, true}};

START_TEST(three_gpus_and_a_cpu) {
    xn_config config = fake_config();
    config.max_batch_images = 16;
    config.canary_interval_ms = 1;
    config.inline_us = cases[_i].inline_us;
    config.batch_delay_us = cases[_i].batch_delay_us;
    config.on_device_loss = XN_LOSS_CPU;
    fake_reset();
    fake[FAKE_GPU].memory[0] = cases[_i].memory;
    hammer h = {.engine = fake_engine_pair(&config, GPUS), .loses = cases[_i].loses};
    hammer_run(&h);
    ck_assert_int_le(fake[FAKE_CPU].threads_most, 2); /* the budget */
    ck_assert_int_eq(h.inlined > 0, config.inline_us > 0);
    ck_assert_int_gt(fake_record_count(FAKE_CPU), 0);
    ck_assert_int_gt(fake_record_count(FAKE_GPU), 0);
    fake_expect_all_freed();
}
END_TEST

XN_SUITE(engine_hammer) {
    Suite *s = suite_create("engine_hammer");
    TCase *t = tcase_create("hammer");
    tcase_set_timeout(t, 300);
    tcase_add_loop_test(t, three_gpus_and_a_cpu, 0, sizeof cases / sizeof *cases);
    suite_add_tcase(s, t);
    return s;
}
