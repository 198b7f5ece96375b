/* The engine when devices fail: lost under both policies, out of memory, canaries. */
#include "engine_bench.h"

#include "xn_mem.h"

#include <sched.h>
#include <string.h>

/* ---- the cache of answers ---- */

static void run(fake_job *job) {
    ck_assert(!xn_engine_cache_lookup(bench.engine, &job->job));
    fake_job_submit(job);
    fake_job_expect(job, XN_OK);
    xn_engine_cache_insert(bench.engine, &job->job);
}

/* What a lost device computed is forgotten, also what it was computing then. */
START_TEST(lost_devices_leave_no_answers) {
    bench.config.on_device_loss = XN_LOSS_CPU;
    bench.config.response_cache_bytes = 1 << 20;
    bench_start_pair(1);
    fake_job kept, late, again, broken;
    bench_job(&kept, 2, 1);
    run(&kept);
    ck_assert_int_eq(kept.job.lookup, XN_LOOKUP_STORED);
    bench_job(&again, 2, 1);
    ck_assert(xn_engine_cache_lookup(bench.engine, &again.job));
    ck_assert_mem_eq(again.output, kept.output, 2 * sizeof(float));
    ck_assert_str_eq(xn_engine_device_id(bench.engine, again.job.device), "cuda:0");
    ck_assert(again.job.lookup == XN_LOOKUP_HIT && !again.job.batch_requests &&
              again.job.started_ns == again.job.submitted_ns && !again.job.times.compute_ns);
    bench_job(&again, 2, 1);
    ck_assert(!xn_engine_pool(bench.engine, "cpu", &again.job.pool, NULL));
    ck_assert(!xn_engine_cache_lookup(bench.engine, &again.job)); /* it would round otherwise */
    bench_job(&again, 2, 1);
    again.job.tenant = 5;
    ck_assert(!xn_engine_cache_lookup(bench.engine, &again.job));

    bench_job(&late, 1, 7);
    ck_assert(!xn_engine_cache_lookup(bench.engine, &late.job));
    fake_job_submit(&late);
    fake_job_expect(&late, XN_OK);
    fake[FAKE_GPU].lost[0] = true;
    bench_job(&broken, 1, 8);
    ck_assert(!xn_engine_cache_lookup(bench.engine, &broken.job));
    fake_job_submit(&broken);
    fake_job_expect(&broken, XN_ERR_DEVICE_LOST);
    xn_engine_cache_insert(bench.engine, &broken.job);
    ck_assert_int_eq(broken.job.lookup, XN_LOOKUP_MISS);
    while (bench_gauge(XN_GAUGE_RESPONSE_CACHE_ENTRIES) > 0)
        sched_yield(); /* the job is told first */
    xn_engine_cache_insert(bench.engine, &late.job);
    ck_assert_int_eq(late.job.lookup, XN_LOOKUP_MISS);
    bench_job(&again, 2, 1);
    ck_assert(!xn_engine_pool(bench.engine, "auto", &again.job.pool, NULL));
    run(&again);
    ck_assert_str_eq(xn_engine_device_id(bench.engine, again.job.device), "cpu");
    ck_assert_int_eq(bench_gauge(XN_GAUGE_RESPONSE_CACHE_ENTRIES), 1);
    xn_asset_retire(bench.asset);
    ck_assert_int_eq(bench_gauge(XN_GAUGE_RESPONSE_CACHE_ENTRIES), 0);
}
END_TEST

/* A job that never ran has no run whose time the cache could weigh. */
START_TEST(what_never_ran_is_not_kept) {
    bench.config.response_cache_bytes = 1 << 20;
    bench_start(1);
    fake_job running, expired;
    bench_hold(FAKE_GPU, &running, 1, 100);
    bench_job(&expired, 1, 1);
    expired.job.deadline_ns = xn_now_ns();
    ck_assert(!xn_engine_cache_lookup(bench.engine, &expired.job));
    fake_job_submit(&expired);
    fake_job_expect(&expired, XN_ERR_DEADLINE);
    ck_assert_int_eq(expired.job.batch_images, 0);
    xn_engine_cache_insert(bench.engine, &expired.job);
    ck_assert_int_eq(expired.job.lookup, XN_LOOKUP_MISS);
    bench_let_go(FAKE_GPU, &running, XN_OK);
}
END_TEST

/* An allocation that fails frees none of them, whatever lock it is under. */
START_TEST(answers_give_memory_back) {
    bench.config.response_cache_bytes = 1 << 20;
    bench_start(1);
    fake_job job;
    bench_job(&job, 2, 1);
    run(&job);
    ck_assert_int_eq(job.job.lookup, XN_LOOKUP_STORED);
    ck_assert_ptr_null(xn_mem_map(SIZE_MAX / 4)); /* more than all there is */
    ck_assert_int_eq(bench_gauge(XN_GAUGE_RESPONSE_CACHE_ENTRIES), 1);
    xn_engine_reclaim(bench.engine);
    ck_assert_int_eq(bench_gauge(XN_GAUGE_RESPONSE_CACHE_ENTRIES), 0);
}
END_TEST

/* A job that moved belongs to the other pool, however it ends. */
START_TEST(moved_and_then_ended) {
    const bool expires = _i;
    bench.config.on_device_loss = XN_LOSS_CPU;
    bench_start_pair(1);
    fake_job running, blocker, moves;
    bench_hold(FAKE_GPU, &running, 1, 100);
    bench_job(&blocker, 1, 1);
    blocker.job.pool = 1;
    blocker.job.problem.conv.group_channels = 1 << 24; /* all threads, to the engine's eyes */
    fake[FAKE_CPU].gated = true;
    fake_job_submit(&blocker);
    fake_wait(&fake[FAKE_CPU].entered);
    bench_job(&moves, 1, 2);
    moves.job.any_pool = true;
    if (expires)
        moves.job.deadline_ns = xn_now_ns() + 500 * XN_NS_PER_MS;
    fake_job_submit(&moves);
    fake[FAKE_GPU].lost[0] = true;
    bench_let_go(FAKE_GPU, &running, XN_ERR_DEVICE_LOST);
    ck_assert_str_eq(xn_engine_primary(bench.engine), "cpu");
    if (!expires)
        xn_engine_cancel(bench.engine, &moves.job, XN_ERR_CANCELLED);
    fake_job_expect(&moves, expires ? XN_ERR_DEADLINE : XN_ERR_CANCELLED);
    for (int p = 0; p < 2; p++)
        ck_assert_int_eq(xn_queue_count(bench.engine->pools.each[p].queue), 0);
    fake[FAKE_CPU].gated = false;
    sem_post(&fake[FAKE_CPU].gate);
    fake_job_expect(&blocker, XN_OK);
}
END_TEST

START_TEST(other_devices_go_on) {
    bench.config.on_device_loss = XN_LOSS_EXIT;
    bench_start_pair(2);
    fake_job running, next[8];
    bench_hold(FAKE_GPU, &running, 1, 100);
    int device = fake_record_get(FAKE_GPU, 0).ordinal;
    fake[FAKE_GPU].lost[device] = true;
    bench_let_go(FAKE_GPU, &running, XN_ERR_DEVICE_LOST);
    for (int i = 0; i < 8; i++) {
        bench_run(&next[i], 1, (float)i, XN_OK);
        ck_assert_int_eq(next[i].job.device, 1 - device);
    }
    ck_assert(bench_health().ready);
    /* New names are put on the devices that are left. */
    float value = 5.0f;
    xn_tensor tensor = {XN_FP32, {4, {1, 1, 1, 1}}, 1, sizeof value, &value};
    bool created = false;
    int prepares = fake[FAKE_GPU].prepares;
    ck_assert_int_eq(
        xn_store_put(xn_engine_store(bench.engine), "w", &tensor, NULL, NULL, &created, NULL, NULL),
        XN_OK);
    ck_assert_int_eq(fake[FAKE_GPU].prepares, prepares + 1);
}
END_TEST

/* ---- canaries ---- */

START_TEST(canary_at_start) {
    int first = 0;
    xn_pool_spec pool = {&fake_gpu, &first, 1, 1, 0, 0};
    xn_engine *engine = NULL;
    xn_error error = {0};
    fake[FAKE_GPU].canary_failure = XN_ERR_INTERNAL;
    ck_assert_int_eq(xn_engine_create_with(&bench.config, &pool, 1, "", &engine, &error),
                     XN_ERR_INTERNAL);
    ck_assert_ptr_null(engine);
    ck_assert_ptr_nonnull(strstr(error.message, "cuda:0"));
    ck_assert_ptr_nonnull(strstr(error.message, "41 instead of 42"));
}
END_TEST

/* After two more canaries of a device have begun, the first one's result has been noted. */
static void two_canaries(void) {
    while (!sem_trywait(&fake[FAKE_GPU].canary_done))
        ;
    fake_wait(&fake[FAKE_GPU].canary_done);
    fake_wait(&fake[FAKE_GPU].canary_done);
    fake_wait(&fake[FAKE_GPU].canary_done);
}

START_TEST(canary_makes_unready_and_ready) {
    bench.config.canary_interval_ms = 1;
    bench_start(1);
    two_canaries();
    ck_assert(bench_health().ready);
    fake[FAKE_GPU].canary_failure = XN_ERR_INTERNAL;
    two_canaries();
    const xn_engine_health health = bench_health();
    ck_assert(!health.ready && !health.device_lost);
    ck_assert_ptr_nonnull(strstr(health.reason, "cuda:0 fails its canary"));
    ck_assert_int_eq(bench_gauge(XN_GAUGE_READY), 0);
    fake[FAKE_GPU].canary_failure = XN_OK;
    two_canaries();
    ck_assert(bench_health().ready);
}
END_TEST

/* ---- late ---- */

static sem_t told, go_on;

static void wait_in_done(xn_job *job) {
    (void)job;
    sem_post(&told);
    fake_wait(&go_on);
}

static void await_state(const xn_job *job, xn_job_state state) {
    bool is = false;
    while (!is) {
        xn_lock_take(&bench.engine->lock);
        is = job->state == state;
        xn_lock_drop(&bench.engine->lock);
    }
}

/* A run may end after its job's deadline and before the watcher has told of it: done comes first.
 */
START_TEST(released_after_done) {
    bench_start(1);
    fake_job first, late;
    sem_init(&told, 0, 0);
    sem_init(&go_on, 0, 0);
    fake[FAKE_GPU].hung[0] = true;
    bench_job(&late, 1, 3);
    late.job.deadline_ns = xn_now_ns() + 500 * XN_NS_PER_MS;
    fake_job_submit(&late);
    await_state(&late.job, XN_JOB_RUNNING);
    bench_job(&first, 1, 1);
    first.job.deadline_ns = xn_now_ns();
    first.job.done = wait_in_done; /* keeps the watcher */
    fake_job_submit(&first);
    fake_wait(&told);
    xn_lock_take(&bench.engine->lock);
    xn_endings_expire_locked(&bench.engine->endings, late.job.deadline_ns);
    xn_lock_drop(&bench.engine->lock);
    fake[FAKE_GPU].hung[0] = false;
    await_state(&late.job, XN_JOB_LATE_OVER);
    ck_assert(!late.done_calls && sem_trywait(&late.released));
    sem_post(&go_on);
    fake_job_expect(&late, XN_ERR_DEADLINE);
    ck_assert(late.output[0] == 6);
}
END_TEST

/* ---- device memory ---- */

enum { HALVED = 7 };
static const struct {
    int64_t memory, run_memory; /* in images, of all programs and of a run; 0: any */
    int64_t images[HALVED];     /* of jobs that share a batch */
    int64_t batch[HALVED];      /* what each of them runs in; 0: it does not fit even alone */
} halved[] = {
    {2, 0, {1, 1, 1, 1, 1, 1, 1}, {2, 2, 2, 2, 2, 2, 1}}, /* 7, 4, 2 */
    {0, 3, {1, 1, 5, 1}, {2, 2, 0, 1}},
};

START_TEST(a_batch_is_halved) {
    bench_start(1);
    fake_job running, jobs[HALVED];
    bench_hold(FAKE_GPU, &running, 1, 100);
    for (int i = 0; i < HALVED && halved[_i].images[i]; i++)
        bench_submit(&jobs[i], halved[_i].images[i], (float)(10 * i));
    fake[FAKE_GPU].memory[0] = halved[_i].memory;
    fake[FAKE_GPU].run_memory = halved[_i].run_memory;
    bench_let_go(FAKE_GPU, &running, XN_OK);
    for (int i = 0; i < HALVED && halved[_i].images[i]; i++) {
        const bool fits = halved[_i].batch[i];
        fake_job_expect(&jobs[i], fits ? XN_OK : XN_ERR_DEVICE_MEMORY);
        ck_assert(!fits || jobs[i].job.batch_images == halved[_i].batch[i]);
        ck_assert(fits || strstr(jobs[i].job.error.message, "5 images"));
    }
    ck_assert(bench_health().ready); /* not sticky */
}
END_TEST

START_TEST(rounding_up_is_given_up_first) {
    bench_start(1);
    fake[FAKE_GPU].memory[0] = 5; /* the class of 5 images is 8 */
    fake_job job;
    for (int i = 0; i < 2; i++)
        bench_run(&job, 5, 1, XN_OK);
    ck_assert_int_eq(fake[FAKE_GPU].plan_creates, 1);
}
END_TEST

START_TEST(plans_make_room) {
    bench_start(2);
    /* Both workers keep a plan of 4 images; then neither has room for 8. */
    fake[FAKE_GPU].memory[0] = 8;
    fake[FAKE_GPU].gated = true;
    fake_job first, second, large, again;
    bench_submit(&first, 4, 1);
    fake_wait(&fake[FAKE_GPU].entered);
    bench_submit(&second, 4, 1);
    fake_wait(&fake[FAKE_GPU].entered);
    fake[FAKE_GPU].gated = false;
    sem_post(&fake[FAKE_GPU].gate);
    sem_post(&fake[FAKE_GPU].gate);
    fake_job_expect(&first, XN_OK);
    fake_job_expect(&second, XN_OK);
    ck_assert_int_eq(fake[FAKE_GPU].live_plans, 2);
    bench_run(&large, 8, 1, XN_OK);
    ck_assert_int_eq(fake[FAKE_GPU].live_plans, 1);
    bench_run(&again, 8, 1, XN_OK);
}
END_TEST

/* Two workers whose runs fill the device together: each waits for the other, none is refused. */
START_TEST(two_starve) {
    bench.config.max_batch_images = 8;
    bench_start(3);
    fake[FAKE_GPU].memory[0] = 8;
    fake_job jobs[24];
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < 24; i++) {
            bench_job(&jobs[i], 8, (float)i);
            jobs[i].job.problem.conv.stride_h = 1 + i % 3; /* plans are of no use to each other */
            fake_job_submit(&jobs[i]);
        }
        for (int i = 0; i < 24; i++)
            fake_job_expect(&jobs[i], XN_OK);
    }
}
END_TEST

START_TEST(weights_that_do_not_fit) {
    bench_start(1);
    fake[FAKE_GPU].prepare_failure = XN_ERR_DEVICE_MEMORY;
    fake_job job;
    bench_run(&job, 2, 1, XN_ERR_DEVICE_MEMORY);
    ck_assert_int_eq(fake[FAKE_GPU].prepares, 2); /* tried again after making room */
    fake[FAKE_GPU].prepare_failure = XN_OK;
    bench_run(&job, 2, 1, XN_OK);
}
END_TEST

START_TEST(plans_are_reused_and_bounded) {
    bench_start(1);
    fake_job job;
    for (int round = 0; round < 3; round++)
        for (int images = 1; images <= 8; images++)
            bench_run(&job, images, 1, XN_OK);
    ck_assert_int_eq(fake[FAKE_GPU].plan_creates, 4); /* 1, 2, 4, 8 */
    for (int i = 0; i < XN_RUNNER_PROGRAMS_MAX; i++) {
        bench_job(&job, 1, 1);
        job.job.problem.conv.stride_h =
            2 + i; /* another problem to the cache, the same to the fake */
        fake_job_submit(&job);
        fake_job_expect(&job, XN_OK);
    }
    ck_assert_int_eq(fake[FAKE_GPU].live_plans, XN_RUNNER_PROGRAMS_MAX);
    ck_assert_int_eq(fake[FAKE_GPU].plan_creates, 4 + XN_RUNNER_PROGRAMS_MAX);
}
END_TEST

XN_SUITE(engine_device) {
    Suite *s = suite_create("engine_device");
    TCase *t = tcase_create("device");
    tcase_set_timeout(t, 120);
    tcase_add_checked_fixture(t, bench_begin, bench_end);
    tcase_add_test(t, lost_devices_leave_no_answers);
    tcase_add_test(t, what_never_ran_is_not_kept);
    tcase_add_test(t, answers_give_memory_back);
    tcase_add_loop_test(t, moved_and_then_ended, 0, 2);
    tcase_add_test(t, other_devices_go_on);
    tcase_add_test(t, canary_at_start);
    tcase_add_test(t, canary_makes_unready_and_ready);
    tcase_add_test(t, released_after_done);
    tcase_add_loop_test(t, a_batch_is_halved, 0, sizeof halved / sizeof *halved);
    tcase_add_test(t, rounding_up_is_given_up_first);
    tcase_add_test(t, plans_make_room);
    tcase_add_test(t, two_starve);
    tcase_add_test(t, weights_that_do_not_fit);
    tcase_add_test(t, plans_are_reused_and_bounded);
    suite_add_tcase(s, t);
    return s;
}
