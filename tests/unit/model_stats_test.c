/* model_stats_test.c: what many threads count of a model is all there, and a snapshot agrees with
 * itself while they do. */
#include "model_stats.h"

#include "xn_mem.h"
#include "xn_test.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#define THREADS 8
#define SAMPLES 20000 /* a thread */
#define BATCH 3       /* requests a launch */

/* Each stage has a time of its own, always the same, so a torn snapshot shows. */
static xn_model_sample sample_of(unsigned number) {
    xn_rng rng = {xn_test_seed() + number};
    xn_model_sample s = {.success = xn_rng_below(&rng, 5) != 0,
                         .images = (int64_t)xn_rng_below(&rng, 100),
                         .batch_requests = BATCH,
                         .total_ns = 11,
                         .queue_ns = 7,
                         .input_ns = 5,
                         .infer_ns = 3,
                         .output_ns = 2,
                         .cache_ns = 13};
    s.cache_asked = xn_rng_below(&rng, 2);
    s.cache_hit = s.cache_asked && xn_rng_below(&rng, 2);
    return s;
}

static void expect_duration(xn_model_duration d, uint64_t count, uint64_t ns_each) {
    ck_assert_uint_eq(d.count, count);
    ck_assert_uint_eq(d.ns, count * ns_each);
}

static void expect_whole(const xn_model_stats *s) {
    const uint64_t computed = s->success.count - s->cache_hit.count;
    expect_duration(s->success, s->success.count, 11);
    expect_duration(s->fail, s->fail.count, 11);
    expect_duration(s->queue, s->success.count, 7);
    expect_duration(s->compute_input, computed, 5);
    expect_duration(s->compute_infer, computed, 3);
    expect_duration(s->compute_output, computed, 2);
    expect_duration(s->cache_hit, s->cache_hit.count, 13);
    expect_duration(s->cache_miss, s->cache_miss.count, 13);
    ck_assert_uint_eq(s->execution_count, (2 * computed + BATCH) / (2 * BATCH)); /* rounded */
}

typedef struct counting {
    xn_model_counters *counters;
    unsigned thread;
    atomic_int *running;
} counting;

static void *count_samples(void *argument) {
    const counting *own = argument;
    for (unsigned i = 0; i < SAMPLES; i++) {
        const xn_model_sample s = sample_of(own->thread * SAMPLES + i);
        xn_model_counters_add(own->counters, &s);
        if (i % 100 == 0)
            sched_yield();
    }
    atomic_fetch_sub(own->running, 1);
    return NULL;
}

static void expect_all(const xn_model_stats *s) {
    xn_model_stats sums = {0};
    for (unsigned i = 0; i < THREADS * SAMPLES; i++) {
        const xn_model_sample one = sample_of(i);
        sums.success.count += one.success;
        sums.fail.count += !one.success;
        sums.cache_hit.count += one.success && one.cache_hit;
        sums.cache_miss.count += one.success && one.cache_asked && !one.cache_hit;
        sums.inference_count += one.success && !one.cache_hit ? (uint64_t)one.images : 0;
    }
    ck_assert_uint_eq(s->success.count, sums.success.count);
    ck_assert_uint_eq(s->fail.count, sums.fail.count);
    ck_assert_uint_eq(s->cache_hit.count, sums.cache_hit.count);
    ck_assert_uint_eq(s->cache_miss.count, sums.cache_miss.count);
    ck_assert_uint_eq(s->inference_count, sums.inference_count);
    ck_assert_int_gt(s->last_inference_ms, 0);
}

START_TEST(threads_count_exactly) {
    xn_model_counters *counters = xn_model_counters_create();
    pthread_t threads[THREADS];
    counting own[THREADS];
    atomic_int running = THREADS;
    xn_model_stats s;
    ck_assert_ptr_nonnull(counters);
    xn_model_counters_read(counters, &s);
    ck_assert_int_eq(s.last_inference_ms, 0);
    expect_whole(&s);
    for (unsigned i = 0; i < THREADS; i++) {
        own[i] = (counting){counters, i, &running};
        ck_assert_int_eq(pthread_create(&threads[i], NULL, count_samples, &own[i]), 0);
    }
    uint64_t before = 0;
    while (atomic_load(&running)) {
        xn_model_counters_read(counters, &s);
        expect_whole(&s);
        ck_assert_uint_ge(s.success.count, before);
        before = s.success.count;
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    xn_model_counters_read(counters, &s);
    expect_whole(&s);
    expect_all(&s);
    xn_model_counters_release(counters);
}
END_TEST

START_TEST(no_memory) {
    atomic_int countdown = 0;
    xn_mem_set_hook(xn_test_count_down, &countdown);
    ck_assert_ptr_null(xn_model_counters_create());
    xn_mem_set_hook(NULL, NULL);
    xn_model_counters_release(NULL);
}
END_TEST

XN_SUITE(model_stats) {
    Suite *s = suite_create("model_stats");
    TCase *t = tcase_create("model_stats");
    tcase_set_timeout(t, 60);
    tcase_add_test(t, threads_count_exactly);
    tcase_add_test(t, no_memory);
    suite_add_tcase(s, t);
    return s;
}
