/* Warm-ups over the fake backends: which devices run how many images, and what happens where memory
 * is short, a device is lost or the service drains. */
#include "engine_bench.h"

enum { GPUS = 3, LARGEST = 50 };

static fake_job like; /* whose asset and problem are warmed up */
static xn_warm_up_wish wish;
static xn_status came; /* of the warm-up */
static pthread_t thread;

static void start(int64_t timeout_ms) {
    bench.config.timeout_ms = timeout_ms;
    bench_start_pair(GPUS);
    bench_job(&like, 1, 1);
    xn_problem_of_conv(&like.job.problem.conv, &like.job.problem);
    wish = (xn_warm_up_wish){"a", "1", like.job.asset, &like.job.problem, .images = LARGEST};
}

static void end(void) {
    ck_assert_ptr_null(bench.engine->pools.warm_ups);
    ck_assert_int_eq(bench_gauge(XN_GAUGE_INFLIGHT), 0);
    ck_assert_int_eq(bench_gauge(XN_GAUGE_INFLIGHT_BYTES), 0);
    ck_assert_int_eq(bench_gauge(XN_GAUGE_QUEUE_DEPTH), 0);
    bench_end();
}

static void *warm_up(void *argument) {
    xn_error error = {0};
    came = xn_engine_warm_up(bench.engine, &wish, &error);
    return argument;
}

static void begin(void) {
    ck_assert(!pthread_create(&thread, NULL, warm_up, NULL));
}

static void finish(xn_status status) {
    pthread_join(thread, NULL);
    ck_assert_int_eq(came, status);
}

static void await_state(xn_job_state state) {
    for (bool is = false; !is;) {
        xn_lock_take(&bench.engine->lock);
        is = bench.engine->pools.warm_ups && bench.engine->pools.warm_ups->job.state == state;
        xn_lock_drop(&bench.engine->lock);
    }
}

/* Requests that hold the workers of all GPUs, and a warm-up that waits behind them. */
static void begin_behind(fake_job requests[GPUS]) {
    for (int i = 0; i < GPUS; i++)
        bench_hold(FAKE_GPU, &requests[i], 1, 7);
    begin();
    await_state(XN_JOB_QUEUED);
}

static void let_go(void) {
    fake[FAKE_GPU].gated = false; /* of runs that begin now */
    sem_post(&fake[FAKE_GPU].gate);
}

/* The lost device's ends as lost. */
static void let_all_go(fake_job requests[GPUS]) {
    for (int i = 0; i < GPUS; i++)
        let_go();
    for (int i = 0; i < GPUS; i++) {
        fake_wait(&requests[i].done); /* until then its device is the worker's to write */
        sem_post(&requests[i].done);
        fake_job_expect(&requests[i], requests[i].job.device == 0 ? XN_ERR_DEVICE_LOST : XN_OK);
    }
}

/* The images of the runs of one device, in order. */
static void expect_runs(int kind, int ordinal, const int64_t *images, int count) {
    int found = 0;
    for (int i = 0; i < fake_record_count(kind); i++) {
        const fake_record r = fake_record_get(kind, i);
        if (r.ordinal != ordinal || r.first_input == 7) /* a request's */
            continue;
        ck_assert_int_lt(found, count);
        ck_assert_int_eq(r.images, images[found]);
        ck_assert(r.count == 1 && r.first_input == 0 && r.weight == 2);
        found++;
    }
    ck_assert_int_eq(found, count);
}

static const struct {
    int64_t images; /* the largest batch */
    int64_t room;   /* of a run; 0: any */
    int64_t runs[8];
    int count;
} sizes[] = {
    {LARGEST, 0, {1, 8, LARGEST}, 3},
    {1, 0, {1}, 1},
    {5, 0, {1, 5}, 2},
    {8, 0, {1, 8}, 2},
    /* one without memory is run twice: the second time alone on the device */
    {LARGEST, 20, {1, 8, 50, 50, 25, 25, 12}, 7},
    {9, 8, {1, 8, 9, 9}, 4},
};

START_TEST(every_device_runs_every_size) {
    start(60000);
    wish.images = sizes[_i].images;
    fake[FAKE_GPU].run_memory = fake[FAKE_CPU].run_memory = sizes[_i].room;
    warm_up(NULL);
    ck_assert_int_eq(came, XN_OK);
    for (int i = 0; i < GPUS; i++)
        expect_runs(FAKE_GPU, i, sizes[_i].runs, sizes[_i].count);
    expect_runs(FAKE_CPU, 0, sizes[_i].runs, sizes[_i].count);
}
END_TEST

/* Each device's two callers, beside its worker, for each size: the first requests make none. */
START_TEST(callers_find_their_programs) {
    fake_job job;
    bench.config.inline_us = 100;
    start(60000);
    warm_up(NULL);
    const int made = fake[FAKE_GPU].plan_creates;
    ck_assert_int_eq(made, GPUS * (1 + 2) * 3);
    for (int i = 0; i < GPUS; i++)
        bench_run_inline(&job, XN_OK);
    ck_assert_int_eq(fake[FAKE_GPU].plan_creates, made);
}
END_TEST

/* On the CPU none that is more than 25 ms of work, by estimate, but one image is always run. */
START_TEST(large_batches_are_left_out) {
    static const int32_t channels[2] = {60 * 1000 * 1000, INT32_MAX}; /* 2.4 and 86 ms an image */
    start(60000);
    like.job.problem.conv.group_channels = channels[_i];
    xn_problem_of_conv(&like.job.problem.conv, &like.job.problem);
    warm_up(NULL);
    ck_assert_int_eq(came, XN_OK);
    expect_runs(FAKE_GPU, 0, (int64_t[]){1, 8, LARGEST}, 3);
    expect_runs(FAKE_CPU, 0, (int64_t[]){1, 8, 10}, _i ? 1 : 3);
}
END_TEST

/* Its memory is a request's while it runs; where requests leave too little, smaller ones run. */
START_TEST(memory_is_counted) {
    xn_ticket others;
    start(60000);
    fake[FAKE_GPU].gated = true;
    begin();
    fake_wait(&fake[FAKE_GPU].entered);
    ck_assert_int_eq(bench_gauge(XN_GAUGE_INFLIGHT_BYTES),
                     2 * (int64_t)xn_buffers_size(sizeof(float)));
    ck_assert_int_eq(bench_gauge(XN_GAUGE_INFLIGHT), 1);
    let_go();
    finish(XN_OK);
    ck_assert_int_eq(bench_gauge(XN_GAUGE_INFLIGHT_BYTES), 0);
    const size_t most = (size_t)bench.config.queue_bytes / 4 * 3; /* a client's share */
    ck_assert_int_eq(fake_admit(bench.engine, most, &others, NULL), XN_OK);
    wish.images = 1 << 20;
    warm_up(NULL);
    ck_assert_int_eq(came, XN_OK);
    const fake_record last = fake_record_get(FAKE_CPU, fake_record_count(FAKE_CPU) - 1);
    ck_assert(last.images > 8 && last.images < 1 << 15);
    xn_ticket_leave(&others);
}
END_TEST

START_TEST(ends_with_a_drain) {
    start(60000);
    fake[FAKE_GPU].gated = true;
    begin();
    fake_wait(&fake[FAKE_GPU].entered);
    xn_engine_drain(bench.engine);
    let_go();
    finish(XN_ERR_DRAINING);
    ck_assert_int_eq(fake_record_count(FAKE_GPU), 1);
    ck_assert_int_eq(fake_record_count(FAKE_CPU), 0);
    ck_assert(xn_engine_wait_idle(bench.engine, xn_now_ns() + 60 * XN_NS_PER_S));
}
END_TEST

/* While the warm-up waits for it. */
START_TEST(a_lost_device_is_left_out) {
    fake_job requests[GPUS];
    start(60000);
    begin_behind(requests);
    fake[FAKE_GPU].lost[0] = true;
    xn_pools_lose_device(&bench.engine->pools, 0, &(xn_error){.message = "test"});
    for (bool next = false; !next;) { /* while the first request runs on */
        xn_lock_take(&bench.engine->lock);
        next = bench.engine->pools.warm_ups && bench.engine->pools.warm_ups->device == 1;
        xn_lock_drop(&bench.engine->lock);
    }
    let_all_go(requests);
    finish(XN_OK);
    expect_runs(FAKE_GPU, 0, NULL, 0);
    for (int i = 1; i < GPUS; i++)
        expect_runs(FAKE_GPU, i, (int64_t[]){1, 8, LARGEST}, 3);
}
END_TEST

XN_SUITE(engine_warm_up) {
    Suite *s = suite_create("engine_warm_up");
    TCase *t = tcase_create("warm_up");
    tcase_add_checked_fixture(t, bench_begin, end);
    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, every_device_runs_every_size, 0, sizeof sizes / sizeof *sizes);
    tcase_add_test(t, callers_find_their_programs);
    tcase_add_loop_test(t, large_batches_are_left_out, 0, 2);
    tcase_add_test(t, memory_is_counted);
    tcase_add_test(t, ends_with_a_drain);
    tcase_add_test(t, a_lost_device_is_left_out);
    suite_add_tcase(s, t);
    return s;
}
