/* What the engine keeps for later, over the fake backend: when it goes, and what it counts for. */
#include "engine_bench.h"

#include <malloc.h>
#include <stdio.h>
#include <unistd.h>

enum { KEPT_BYTES = 300000, THREADS = 2 };

static void start(void) {
    const int ordinal = 0;
    const xn_pool_spec pool = {&fake_cpu, &ordinal, 1, 1, THREADS, THREADS};
    bench.config.inline_us = 100;
    bench.config.max_bytes_per_client = bench.config.queue_bytes;
    bench_start_pools(&pool, 1);
}

START_TEST(reclaim_frees_what_is_kept) {
    start();
    xn_buffers *buffers = xn_engine_buffers(bench.engine);
    xn_buffers_put(buffers, xn_buffers_get(buffers, KEPT_BYTES), KEPT_BYTES);
    ck_assert_int_eq(fake[FAKE_CPU].live_host, 1);
    xn_engine_reclaim(bench.engine);
    ck_assert_int_eq(fake[FAKE_CPU].live_host, 0);
}
END_TEST

/* ---- programs ---- */

static bool becomes(const atomic_int *value, int wanted) {
    for (int64_t end = xn_now_ns() + 10 * XN_NS_PER_S; xn_now_ns() < end; usleep(1000))
        if (atomic_load(value) == wanted)
            return true;
    return false;
}

/* Those of the worker, which sleeps, and of borrowed streams, which are free: without another
 * request. */
START_TEST(programs_are_dropped_and_made_again) {
    fake_job job;
    start();
    for (int round = 0; round < 3; round++) {
        bench_run(&job, 2, 3, XN_OK);
        do {
            bench_job(&job, 1, 3);
        } while (!xn_engine_try_run(bench.engine, &job.job));
        fake_job_expect_inline(&job, XN_OK);
        ck_assert_int_eq(fake[FAKE_CPU].live_plans, 2);
        ck_assert_int_gt(bench_gauge(XN_GAUGE_PROGRAMS_BYTES), 0);
        xn_engine_drop_programs(bench.engine);
        ck_assert_msg(becomes(&fake[FAKE_CPU].live_plans, 0), "%d plans are left",
                      fake[FAKE_CPU].live_plans);
        for (int i = 0; i < 5000 && bench_gauge(XN_GAUGE_PROGRAMS_BYTES); i++)
            usleep(1000);
        ck_assert_int_eq(bench_gauge(XN_GAUGE_PROGRAMS_BYTES), 0);
    }
}
END_TEST

/* A job whose program the requests leave no room for is refused; it runs once there is some. */
START_TEST(a_program_without_room_is_busy) {
    fake_job job;
    xn_ticket ticket;
    start();
    ck_assert_int_eq(fake_admit(bench.engine, (size_t)3 << 18, &ticket, NULL), XN_OK);
    for (size_t step = 1 << 17; step; step /= 2) /* to the last byte */
        while (!xn_ticket_grow(&ticket, step, NULL))
            ;
    bench_run(&job, 1, 3, XN_ERR_BUSY);
    xn_ticket_leave(&ticket);
    bench_run(&job, 1, 3, XN_OK);
}
END_TEST

/* ---- what small weights count for ---- */

/* Of all arenas, as the C library counts it. */
static int64_t heap_bytes(void) {
    const struct mallinfo2 info = mallinfo2();
    return (int64_t)(info.uordblks + info.hblkhd);
}

static void put_small(xn_store *store, int n) {
    const float value = (float)n;
    char name[16];
    bool created;
    snprintf(name, sizeof name, "w%d", n);
    const xn_tensor weights = {XN_FP32, {4, {1, 1, 1, 1}}, 1, sizeof value, &value};
    ck_assert_int_eq(xn_store_put(store, name, &weights, NULL, NULL, &created, NULL, NULL), XN_OK);
}

static void intern_small(xn_store *store, int n) {
    const float values[2] = {(float)n, 1};
    const xn_prepared *const *prepared;
    const xn_tensor weights = {XN_FP32, {4, {1, 1, 1, 2}}, 2, sizeof values, values};
    xn_asset *asset = NULL;
    ck_assert_int_eq(xn_store_intern(store, NULL, &weights, NULL, NULL, &asset, NULL), XN_OK);
    ck_assert_int_eq(xn_asset_prepared(asset, 0, &prepared, NULL), XN_OK);
    xn_asset_release(asset);
}

/* Within a tenth of what the heap has more of, structures and prepared forms and all. */
START_TEST(small_weights_count_for_what_they_weigh) {
    enum { COUNT = 2000 };
    static const xn_gauge gauges[] = {XN_GAUGE_WEIGHTS_BYTES, XN_GAUGE_WEIGHTS_CACHE_BYTES};
    static void (*const add[])(xn_store *, int) = {put_small, intern_small};
    xn_config config = fake_config();
    xn_engine *engine = NULL;
    config.max_weights = COUNT;
    config.max_weights_bytes = config.weights_cache_bytes = 1 << 30;
    snprintf(config.backend, sizeof config.backend, "cpu");
    config.threads = 2;
    ck_assert_int_eq(xn_engine_create(&config, &engine, NULL), XN_OK);
    for (int kind = 0; kind < 2; kind++) {
        xn_metrics *metrics = xn_engine_metrics(engine);
        const int64_t before = heap_bytes();
        const int64_t empty =
            xn_metrics_gauge(metrics, gauges[kind]); /* a table, which is mapped */
        for (int n = 0; n < COUNT; n++)
            add[kind](xn_engine_store(engine), n);
        const int64_t held = heap_bytes() - before;
        const int64_t counted = xn_metrics_gauge(metrics, gauges[kind]) - empty;
        ck_assert_msg(held < counted + counted / 10 && counted < held + held / 2,
                      "%lld bytes each, counted %lld", (long long)held / COUNT,
                      (long long)counted / COUNT);
    }
    xn_engine_free(engine);
}
END_TEST

XN_SUITE(engine_memory) {
    Suite *s = suite_create("engine_memory");
    TCase *t = tcase_create("memory");
    tcase_set_timeout(t, 60);
    tcase_add_checked_fixture(t, bench_begin, bench_end);
    tcase_add_test(t, reclaim_frees_what_is_kept);
    tcase_add_test(t, programs_are_dropped_and_made_again);
    tcase_add_test(t, a_program_without_room_is_busy);
    if (!XN_TEST_SANITIZED) /* which has another heap */
        tcase_add_test(t, small_weights_count_for_what_they_weigh);
    suite_add_tcase(s, t);
    return s;
}
