/* The engine when devices fail: lost under both policies, out of memory, canaries. */
#include "engine_fake.h"

#include "xn_mem.h"

#include <sched.h>
#include <string.h>

static void hold(fake_job *job, xn_engine *engine, xn_asset *asset, int64_t images) {
    fake[FAKE_GPU].gated = true;
    fake_job_init(job, engine, asset, images, 100);
    fake_job_submit(job);
    fake_wait(&fake[FAKE_GPU].entered);
    fake[FAKE_GPU].gated = false;
}

static void finish(xn_engine *engine, xn_asset *asset) {
    xn_engine_stop(engine);
    xn_asset_release(asset);
    xn_engine_free(engine);
    fake_expect_all_freed();
}

/* ---- lost ---- */

static void on_fatal(void *context) {
    sem_post(context);
}

/* ---- the cache of answers ---- */

static void run(fake_job *job) {
    ck_assert(!xn_engine_cache_lookup(job->engine, &job->job));
    fake_job_submit(job);
    fake_job_expect(job, XN_OK);
    xn_engine_cache_insert(job->engine, &job->job);
}

/* What a lost device computed is forgotten, also what it was computing then. */
START_TEST(lost_devices_leave_no_answers) {
    fake_reset();
    xn_config config = fake_config();
    config.on_device_loss = XN_LOSS_CPU;
    config.response_cache_bytes = 1 << 20;
    xn_engine *engine = fake_engine_pair(&config, 1);
    xn_asset *asset = fake_weights(xn_engine_store(engine), 2.0f);
    xn_metrics *metrics = xn_engine_metrics(engine);
    fake_job kept, late, again, broken;
    fake_job_init(&kept, engine, asset, 2, 1);
    run(&kept);
    ck_assert_int_eq(kept.job.lookup, XN_LOOKUP_STORED);
    fake_job_init(&again, engine, asset, 2, 1);
    ck_assert(xn_engine_cache_lookup(engine, &again.job));
    ck_assert_mem_eq(again.output, kept.output, 2 * sizeof(float));
    ck_assert_str_eq(xn_engine_device_id(engine, again.job.device), "cuda:0");
    ck_assert(again.job.lookup == XN_LOOKUP_HIT && !again.job.batch_requests &&
              again.job.started_ns == again.job.submitted_ns && !again.job.times.compute_ns);
    fake_job_init(&again, engine, asset, 2, 1);
    ck_assert(!xn_engine_pool(engine, "cpu", &again.job.pool, NULL));
    ck_assert(!xn_engine_cache_lookup(engine, &again.job)); /* it would round otherwise */
    fake_job_init(&again, engine, asset, 2, 1);
    again.job.tenant = 5;
    ck_assert(!xn_engine_cache_lookup(engine, &again.job));

    fake_job_init(&late, engine, asset, 1, 7);
    ck_assert(!xn_engine_cache_lookup(engine, &late.job));
    fake_job_submit(&late);
    fake_job_expect(&late, XN_OK);
    fake[FAKE_GPU].lost[0] = true;
    fake_job_init(&broken, engine, asset, 1, 8);
    ck_assert(!xn_engine_cache_lookup(engine, &broken.job));
    fake_job_submit(&broken);
    fake_job_expect(&broken, XN_ERR_DEVICE_LOST);
    xn_engine_cache_insert(engine, &broken.job);
    ck_assert_int_eq(broken.job.lookup, XN_LOOKUP_MISS);
    while (xn_metrics_gauge(metrics, XN_GAUGE_RESPONSE_CACHE_ENTRIES) > 0)
        sched_yield(); /* the job is told first */
    xn_engine_cache_insert(engine, &late.job);
    ck_assert_int_eq(late.job.lookup, XN_LOOKUP_MISS);
    fake_job_init(&again, engine, asset, 2, 1);
    ck_assert(!xn_engine_pool(engine, "auto", &again.job.pool, NULL));
    run(&again);
    ck_assert_str_eq(xn_engine_device_id(engine, again.job.device), "cpu");
    ck_assert_int_eq(xn_metrics_gauge(metrics, XN_GAUGE_RESPONSE_CACHE_ENTRIES), 1);
    xn_asset_retire(asset);
    ck_assert_int_eq(xn_metrics_gauge(metrics, XN_GAUGE_RESPONSE_CACHE_ENTRIES), 0);
    finish(engine, asset);
}
END_TEST

/* A job that never ran has no run whose time the cache could weigh. */
START_TEST(what_never_ran_is_not_kept) {
    fake_reset();
    xn_config config = fake_config();
    config.response_cache_bytes = 1 << 20;
    xn_engine *engine = fake_engine(&config, 1);
    xn_asset *asset = fake_weights(xn_engine_store(engine), 2.0f);
    fake_job running, expired;
    hold(&running, engine, asset, 1);
    fake_job_init(&expired, engine, asset, 1, 1);
    expired.job.deadline_ns = xn_now_ns();
    ck_assert(!xn_engine_cache_lookup(engine, &expired.job));
    fake_job_submit(&expired);
    fake_job_expect(&expired, XN_ERR_DEADLINE);
    ck_assert_int_eq(expired.job.batch_images, 0);
    xn_engine_cache_insert(engine, &expired.job);
    ck_assert_int_eq(expired.job.lookup, XN_LOOKUP_MISS);
    sem_post(&fake[FAKE_GPU].gate);
    fake_job_expect(&running, XN_OK);
    finish(engine, asset);
}
END_TEST

/* An allocation that fails frees none of them, whatever lock it is under. */
START_TEST(answers_give_memory_back) {
    fake_reset();
    xn_config config = fake_config();
    config.response_cache_bytes = 1 << 20;
    xn_engine *engine = fake_engine(&config, 1);
    xn_asset *asset = fake_weights(xn_engine_store(engine), 2.0f);
    fake_job job;
    fake_job_init(&job, engine, asset, 2, 1);
    run(&job);
    ck_assert_int_eq(job.job.lookup, XN_LOOKUP_STORED);
    ck_assert_ptr_null(xn_mem_map(SIZE_MAX / 4)); /* more than all there is */
    ck_assert_int_eq(xn_metrics_gauge(xn_engine_metrics(engine), XN_GAUGE_RESPONSE_CACHE_ENTRIES),
                     1);
    xn_engine_reclaim(engine);
    ck_assert_int_eq(xn_metrics_gauge(xn_engine_metrics(engine), XN_GAUGE_RESPONSE_CACHE_ENTRIES),
                     0);
    finish(engine, asset);
}
END_TEST

START_TEST(loss_policy_exit) {
    fake_reset();
    xn_config config = fake_config();
    config.on_device_loss = XN_LOSS_EXIT;
    xn_engine *engine = fake_engine_pair(&config, 1);
    xn_asset *asset = fake_weights(xn_engine_store(engine), 2.0f);
    sem_t fatal;
    sem_init(&fatal, 0, 0);
    xn_engine_on_fatal(engine, on_fatal, &fatal);
    fake_job running, queued, any;
    hold(&running, engine, asset, 1);
    fake_job_init(&queued, engine, asset, 1, 1);
    fake_job_init(&any, engine, asset, 1, 2);
    any.job.any_pool = true;
    any.job.problem.conv.precision = XN_PRECISION_TF32;
    fake_job_submit(&queued);
    fake_job_submit(&any);
    fake[FAKE_GPU].lost[0] = true;
    sem_post(&fake[FAKE_GPU].gate);
    fake_job_expect(&running, XN_ERR_DEVICE_LOST);
    fake_job_expect(&queued, XN_ERR_DEVICE_LOST);
    fake_job_expect(&any, XN_ERR_DEVICE_LOST); /* the process is to end: nothing moves */
    fake_wait(&fatal);
    xn_engine_health health;
    xn_engine_health_get(engine, &health);
    ck_assert(!health.ready && health.device_lost);
    ck_assert_ptr_nonnull(strstr(health.reason, "cuda:0"));
    ck_assert_int_eq(fake_admit(engine, 1, &(xn_ticket){0}, NULL), XN_ERR_DEVICE_LOST);
    fake_job_init(&queued, engine, asset, 1, 1);
    ck_assert_int_eq(xn_engine_submit(engine, &queued.job, NULL), XN_ERR_DEVICE_LOST);
    xn_engine_drain(engine);
    ck_assert_int_eq(fake_admit(engine, 1, &(xn_ticket){0}, NULL), XN_ERR_DEVICE_LOST);
    finish(engine, asset);
    ck_assert_int_ne(sem_trywait(&fatal), 0); /* called once */
    ck_assert_int_eq(fake_record_count(FAKE_GPU), 1);
}
END_TEST

START_TEST(loss_policy_cpu) {
    fake_reset();
    xn_config config = fake_config();
    config.on_device_loss = XN_LOSS_CPU;
    xn_engine *engine = fake_engine_pair(&config, 1);
    xn_asset *asset = fake_weights(xn_engine_store(engine), 2.0f);
    xn_buffers *buffers = xn_engine_buffers(engine);
    void *pinned = xn_buffers_get(buffers, 5000);
    ck_assert_ptr_nonnull(pinned);
    ck_assert_uint_eq((uintptr_t)pinned % 64, 0);
    fake_job running, queued, any, after, stale;
    hold(&running, engine, asset, 1);
    fake_job_init(&queued, engine, asset, 1, 1);
    fake_job_init(&any, engine, asset, 1, 2);
    any.job.any_pool = true;
    fake_job_submit(&queued);
    fake_job_submit(&any);
    fake[FAKE_GPU].lost[0] = true;
    sem_post(&fake[FAKE_GPU].gate);
    fake_job_expect(&running, XN_ERR_DEVICE_LOST);
    fake_job_expect(&queued, XN_ERR_DEVICE_LOST); /* it asked for cuda */
    fake_job_expect(&any, XN_OK);
    ck_assert_str_eq(xn_engine_device_id(engine, any.job.device), "cpu");
    ck_assert_int_eq(any.job.precision, XN_PRECISION_FP32); /* what ran it, not what was asked */
    xn_engine_health health;
    xn_engine_health_get(engine, &health);
    ck_assert(health.ready && !health.device_lost);
    ck_assert_str_eq(health.backend, "cpu");
    ck_assert_str_eq(xn_engine_primary(engine), "cpu");
    xn_ticket ticket;
    ck_assert_int_eq(fake_admit(engine, 1, &ticket, NULL), XN_OK);
    xn_ticket_leave(&ticket);

    fake_job_init(&after, engine, asset, 1, 3);
    after.job.any_pool = true;
    ck_assert_int_eq(xn_engine_pool(engine, "auto", &after.job.pool, NULL), XN_OK);
    fake_job_submit(&after);
    fake_job_expect(&after, XN_OK);
    fake_job_init(&stale, engine, asset, 1, 4); /* chose its pool before the loss */
    stale.job.any_pool = true;
    fake_job_submit(&stale);
    fake_job_expect(&stale, XN_OK);

    /* Host memory no longer comes from the lost device, and old blocks still go back to it. */
    void *plain = xn_buffers_get(buffers, 100000);
    ck_assert_ptr_nonnull(plain);
    ck_assert_uint_eq((uintptr_t)plain % 64, 0);
    memset(plain, 1, 100000);
    xn_buffers_put(buffers, plain, 100000);
    xn_buffers_put(buffers, pinned, 5000);
    finish(engine, asset);
}
END_TEST

/* A job that moved belongs to the other pool, however it ends. */
START_TEST(moved_and_then_ended) {
    fake_reset();
    const bool expires = _i;
    xn_config config = fake_config();
    config.on_device_loss = XN_LOSS_CPU;
    xn_engine *engine = fake_engine_pair(&config, 1);
    xn_asset *asset = fake_weights(xn_engine_store(engine), 2.0f);
    fake_job running, blocker, moves;
    hold(&running, engine, asset, 1);
    fake_job_init(&blocker, engine, asset, 1, 1);
    blocker.job.pool = 1;
    blocker.job.problem.conv.group_channels = 1 << 24; /* all threads, to the engine's eyes */
    fake[FAKE_CPU].gated = true;
    fake_job_submit(&blocker);
    fake_wait(&fake[FAKE_CPU].entered);
    fake_job_init(&moves, engine, asset, 1, 2);
    moves.job.any_pool = true;
    if (expires)
        moves.job.deadline_ns = xn_now_ns() + 500 * XN_NS_PER_MS;
    fake_job_submit(&moves);
    fake[FAKE_GPU].lost[0] = true;
    sem_post(&fake[FAKE_GPU].gate);
    fake_job_expect(&running, XN_ERR_DEVICE_LOST);
    ck_assert_str_eq(xn_engine_primary(engine), "cpu");
    if (!expires)
        xn_engine_cancel(engine, &moves.job, XN_ERR_CANCELLED);
    fake_job_expect(&moves, expires ? XN_ERR_DEADLINE : XN_ERR_CANCELLED);
    for (int p = 0; p < 2; p++)
        ck_assert_int_eq(xn_queue_count(engine->pools.each[p].queue), 0);
    fake[FAKE_CPU].gated = false;
    sem_post(&fake[FAKE_CPU].gate);
    fake_job_expect(&blocker, XN_OK);
    finish(engine, asset);
}
END_TEST

START_TEST(other_devices_go_on) {
    fake_reset();
    xn_config config = fake_config();
    config.on_device_loss = XN_LOSS_EXIT;
    xn_engine *engine = fake_engine_pair(&config, 2);
    xn_asset *asset = fake_weights(xn_engine_store(engine), 2.0f);
    fake_job running, next[8];
    hold(&running, engine, asset, 1);
    int device = fake_record_get(FAKE_GPU, 0).ordinal;
    fake[FAKE_GPU].lost[device] = true;
    sem_post(&fake[FAKE_GPU].gate);
    fake_job_expect(&running, XN_ERR_DEVICE_LOST);
    for (int i = 0; i < 8; i++) {
        fake_job_init(&next[i], engine, asset, 1, (float)i);
        fake_job_submit(&next[i]);
        fake_job_expect(&next[i], XN_OK);
        ck_assert_int_eq(next[i].job.device, 1 - device);
    }
    xn_engine_health health;
    xn_engine_health_get(engine, &health);
    ck_assert(health.ready);
    /* New names are put on the devices that are left. */
    float value = 5.0f;
    xn_tensor tensor = {XN_FP32, {4, {1, 1, 1, 1}}, 1, sizeof value, &value};
    bool created = false;
    int prepares = fake[FAKE_GPU].prepares;
    ck_assert_int_eq(
        xn_store_put(xn_engine_store(engine), "w", &tensor, NULL, NULL, &created, NULL, NULL),
        XN_OK);
    ck_assert_int_eq(fake[FAKE_GPU].prepares, prepares + 1);
    finish(engine, asset);
}
END_TEST

START_TEST(lost_while_preparing) {
    fake_reset();
    xn_config config = fake_config();
    config.on_device_loss = XN_LOSS_CPU;
    xn_engine *engine = fake_engine_pair(&config, 1);
    xn_asset *asset = fake_weights(xn_engine_store(engine), 2.0f);
    fake[FAKE_GPU].lost[0] = true;
    fake_job job;
    fake_job_init(&job, engine, asset, 1, 1);
    fake_job_submit(&job);
    fake_job_expect(&job, XN_ERR_DEVICE_LOST);
    ck_assert_str_eq(xn_engine_primary(engine), "cpu");
    finish(engine, asset);
}
END_TEST

START_TEST(lost_while_registering) {
    fake_reset();
    xn_config config = fake_config();
    config.on_device_loss = XN_LOSS_CPU;
    xn_engine *engine = fake_engine_pair(&config, 1);
    float value = 5.0f;
    xn_tensor tensor = {XN_FP32, {4, {1, 1, 1, 1}}, 1, sizeof value, &value};
    bool created = false;
    fake[FAKE_GPU].lost[0] = true;
    xn_store *store = xn_engine_store(engine);
    ck_assert_int_eq(xn_store_put(store, "w", &tensor, NULL, NULL, &created, NULL, NULL),
                     XN_ERR_DEVICE_LOST);
    ck_assert_str_eq(xn_engine_primary(engine), "cpu");
    ck_assert_int_eq(xn_store_put(store, "w", &tensor, NULL, NULL, &created, NULL, NULL), XN_OK);
    ck_assert(created);
    xn_engine_free(engine);
    fake_expect_all_freed();
}
END_TEST

/* ---- canaries ---- */

START_TEST(canary_at_start) {
    fake_reset();
    xn_config config = fake_config();
    int first = 0;
    xn_pool_spec pool = {&fake_gpu, &first, 1, 1, 0, 0};
    xn_engine *engine = NULL;
    xn_error error = {0};
    fake[FAKE_GPU].canary_failure = XN_ERR_INTERNAL;
    ck_assert_int_eq(xn_engine_create_with(&config, &pool, 1, "", &engine, &error),
                     XN_ERR_INTERNAL);
    ck_assert_ptr_null(engine);
    ck_assert_ptr_nonnull(strstr(error.message, "cuda:0"));
    ck_assert_ptr_nonnull(strstr(error.message, "41 instead of 42"));
    fake_expect_all_freed();
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
    fake_reset();
    xn_config config = fake_config();
    config.canary_interval_ms = 1;
    xn_engine *engine = fake_engine(&config, 1);
    xn_engine_health health;
    two_canaries();
    xn_engine_health_get(engine, &health);
    ck_assert(health.ready);
    fake[FAKE_GPU].canary_failure = XN_ERR_INTERNAL;
    two_canaries();
    xn_engine_health_get(engine, &health);
    ck_assert(!health.ready && !health.device_lost);
    ck_assert_ptr_nonnull(strstr(health.reason, "cuda:0 fails its canary"));
    ck_assert_int_eq(xn_metrics_gauge(xn_engine_metrics(engine), XN_GAUGE_READY), 0);
    fake[FAKE_GPU].canary_failure = XN_OK;
    two_canaries();
    xn_engine_health_get(engine, &health);
    ck_assert(health.ready);
    xn_engine_free(engine);
    fake_expect_all_freed();
}
END_TEST

/* One that never comes back: as if it had begun a minute ago. */
START_TEST(canary_that_hangs) {
    fake_reset();
    xn_config config = fake_config();
    xn_engine *engine = fake_engine(&config, 1);
    xn_engine_health health;
    for (int hangs = 0; hangs < 3; hangs++) {
        xn_lock_take(&engine->lock);
        engine->pools.devices[0].canary_since_ns = hangs == 1 ? xn_now_ns() - 60 * XN_NS_PER_S : 0;
        xn_lock_drop(&engine->lock);
        xn_engine_health_get(engine, &health);
        ck_assert_int_eq(health.ready, hangs != 1);
        ck_assert(hangs != 1 || strstr(health.reason, "cuda:0 has not answered its canary"));
    }
    xn_engine_free(engine);
    fake_expect_all_freed();
}
END_TEST

/* While one is out the engine is not idle: to stop it would be to wait for the device. */
START_TEST(drains_beside_a_canary_that_hangs) {
    fake_reset();
    xn_config config = fake_config();
    config.canary_interval_ms = 1;
    xn_engine *engine = fake_engine(&config, 1);
    bool runs = false;
    fake[FAKE_GPU].hung[0] = true;
    while (!runs) {
        xn_lock_take(&engine->lock);
        runs = engine->pools.devices[0].canary_since_ns;
        xn_lock_drop(&engine->lock);
    }
    xn_engine_drain(engine);
    ck_assert(!xn_engine_wait_idle(engine, xn_now_ns() + 20 * XN_NS_PER_MS));
    fake[FAKE_GPU].hung[0] = false;
    ck_assert(xn_engine_wait_idle(engine, xn_now_ns() + 60 * XN_NS_PER_S));
    const int canaries = fake[FAKE_GPU].canaries;
    nanosleep(&(struct timespec){0, 20 * XN_NS_PER_MS}, NULL);
    ck_assert_int_eq(fake[FAKE_GPU].canaries, canaries); /* none begins any more */
    xn_engine_free(engine);
    fake_expect_all_freed();
}
END_TEST

START_TEST(canary_finds_the_loss) {
    fake_reset();
    xn_config config = fake_config();
    config.canary_interval_ms = 1;
    xn_engine *engine = fake_engine(&config, 1);
    sem_t fatal;
    sem_init(&fatal, 0, 0);
    fake[FAKE_GPU].lost[0] = true;
    xn_engine_on_fatal(engine, on_fatal, &fatal); /* perhaps after the loss: still called */
    fake_wait(&fatal);
    xn_engine_health health;
    xn_engine_health_get(engine, &health);
    ck_assert(!health.ready && health.device_lost);
    xn_engine_free(engine);
    fake_expect_all_freed();
}
END_TEST

/* ---- late ---- */

static sem_t told, go_on;

static void wait_in_done(xn_job *job) {
    (void)job;
    sem_post(&told);
    fake_wait(&go_on);
}

static void await_state(xn_engine *engine, const xn_job *job, xn_job_state state) {
    bool is = false;
    while (!is) {
        xn_lock_take(&engine->lock);
        is = job->state == state;
        xn_lock_drop(&engine->lock);
    }
}

/* A run may end after its job's deadline and before the watcher has told of it: done comes first.
 */
START_TEST(released_after_done) {
    fake_reset();
    xn_config config = fake_config();
    xn_engine *engine = fake_engine(&config, 1);
    xn_asset *asset = fake_weights(xn_engine_store(engine), 2.0f);
    fake_job first, late;
    sem_init(&told, 0, 0);
    sem_init(&go_on, 0, 0);
    fake[FAKE_GPU].hung[0] = true;
    fake_job_init(&late, engine, asset, 1, 3);
    late.job.deadline_ns = xn_now_ns() + 500 * XN_NS_PER_MS;
    fake_job_submit(&late);
    await_state(engine, &late.job, XN_JOB_RUNNING);
    fake_job_init(&first, engine, asset, 1, 1);
    first.job.deadline_ns = xn_now_ns();
    first.job.done = wait_in_done; /* keeps the watcher */
    fake_job_submit(&first);
    fake_wait(&told);
    xn_lock_take(&engine->lock);
    xn_endings_expire_locked(&engine->endings, late.job.deadline_ns);
    xn_lock_drop(&engine->lock);
    fake[FAKE_GPU].hung[0] = false;
    await_state(engine, &late.job, XN_JOB_LATE_OVER);
    ck_assert(!late.done_calls && sem_trywait(&late.released));
    sem_post(&go_on);
    fake_job_expect(&late, XN_ERR_DEADLINE);
    ck_assert(late.output[0] == 6);
    finish(engine, asset);
}
END_TEST

/* ---- device memory ---- */

START_TEST(batch_is_halved) {
    fake_reset();
    xn_config config = fake_config();
    xn_engine *engine = fake_engine(&config, 1);
    xn_asset *asset = fake_weights(xn_engine_store(engine), 2.0f);
    fake_job running, jobs[7];
    hold(&running, engine, asset, 1);
    for (int i = 0; i < 7; i++) {
        fake_job_init(&jobs[i], engine, asset, 1, (float)i);
        fake_job_submit(&jobs[i]);
    }
    fake[FAKE_GPU].memory[0] = 2;
    sem_post(&fake[FAKE_GPU].gate);
    fake_job_expect(&running, XN_OK);
    for (int i = 0; i < 7; i++) {
        fake_job_expect(&jobs[i], XN_OK);
        ck_assert_int_eq(jobs[i].job.batch_images, i < 6 ? 2 : 1); /* 7, 4, 2 */
    }
    finish(engine, asset);
}
END_TEST

START_TEST(run_out_of_memory_is_halved) {
    fake_reset();
    xn_config config = fake_config();
    xn_engine *engine = fake_engine(&config, 1);
    xn_asset *asset = fake_weights(xn_engine_store(engine), 2.0f);
    fake_job running, jobs[4];
    hold(&running, engine, asset, 1);
    const int64_t images[4] = {1, 1, 5, 1};
    for (int i = 0; i < 4; i++) {
        fake_job_init(&jobs[i], engine, asset, images[i], (float)(10 * i));
        fake_job_submit(&jobs[i]);
    }
    fake[FAKE_GPU].run_memory = 3;
    sem_post(&fake[FAKE_GPU].gate);
    fake_job_expect(&running, XN_OK);
    fake_job_expect(&jobs[0], XN_OK);
    fake_job_expect(&jobs[1], XN_OK);
    fake_job_expect(&jobs[2], XN_ERR_DEVICE_MEMORY); /* does not fit even alone */
    fake_job_expect(&jobs[3], XN_OK);
    ck_assert_ptr_nonnull(strstr(jobs[2].job.error.message, "5 images"));
    ck_assert_int_eq(jobs[0].job.batch_images, 2);
    xn_engine_health health;
    xn_engine_health_get(engine, &health); /* not sticky */
    ck_assert(health.ready);
    finish(engine, asset);
}
END_TEST

START_TEST(rounding_up_is_given_up_first) {
    fake_reset();
    xn_config config = fake_config();
    xn_engine *engine = fake_engine(&config, 1);
    xn_asset *asset = fake_weights(xn_engine_store(engine), 2.0f);
    fake[FAKE_GPU].memory[0] = 5; /* the class of 5 images is 8 */
    fake_job job;
    for (int i = 0; i < 2; i++) {
        fake_job_init(&job, engine, asset, 5, 1);
        fake_job_submit(&job);
        fake_job_expect(&job, XN_OK);
    }
    ck_assert_int_eq(fake[FAKE_GPU].plan_creates, 1);
    finish(engine, asset);
}
END_TEST

START_TEST(plans_make_room) {
    fake_reset();
    xn_config config = fake_config();
    xn_engine *engine = fake_engine(&config, 2);
    xn_asset *asset = fake_weights(xn_engine_store(engine), 2.0f);
    /* Both workers keep a plan of 4 images; then neither has room for 8. */
    fake[FAKE_GPU].memory[0] = 8;
    fake[FAKE_GPU].gated = true;
    fake_job first, second, large, again;
    fake_job_init(&first, engine, asset, 4, 1);
    fake_job_submit(&first);
    fake_wait(&fake[FAKE_GPU].entered);
    fake_job_init(&second, engine, asset, 4, 1);
    fake_job_submit(&second);
    fake_wait(&fake[FAKE_GPU].entered);
    fake[FAKE_GPU].gated = false;
    sem_post(&fake[FAKE_GPU].gate);
    sem_post(&fake[FAKE_GPU].gate);
    fake_job_expect(&first, XN_OK);
    fake_job_expect(&second, XN_OK);
    ck_assert_int_eq(fake[FAKE_GPU].live_plans, 2);
    fake_job_init(&large, engine, asset, 8, 1);
    fake_job_submit(&large);
    fake_job_expect(&large, XN_OK);
    ck_assert_int_eq(fake[FAKE_GPU].live_plans, 1);
    fake_job_init(&again, engine, asset, 8, 1);
    fake_job_submit(&again);
    fake_job_expect(&again, XN_OK);
    finish(engine, asset);
}
END_TEST

/* Two workers whose runs fill the device together: each waits for the other, none is refused. */
START_TEST(two_starve) {
    fake_reset();
    xn_config config = fake_config();
    config.max_batch_images = 8;
    xn_engine *engine = fake_engine(&config, 3);
    xn_asset *asset = fake_weights(xn_engine_store(engine), 2.0f);
    fake[FAKE_GPU].memory[0] = 8;
    fake_job jobs[24];
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < 24; i++) {
            fake_job_init(&jobs[i], engine, asset, 8, (float)i);
            jobs[i].job.problem.conv.stride_h = 1 + i % 3; /* plans are of no use to each other */
            fake_job_submit(&jobs[i]);
        }
        for (int i = 0; i < 24; i++)
            fake_job_expect(&jobs[i], XN_OK);
    }
    finish(engine, asset);
}
END_TEST

START_TEST(weights_that_do_not_fit) {
    fake_reset();
    xn_config config = fake_config();
    xn_engine *engine = fake_engine(&config, 1);
    xn_asset *asset = fake_weights(xn_engine_store(engine), 2.0f);
    fake[FAKE_GPU].prepare_failure = XN_ERR_DEVICE_MEMORY;
    fake_job job;
    fake_job_init(&job, engine, asset, 2, 1);
    fake_job_submit(&job);
    fake_job_expect(&job, XN_ERR_DEVICE_MEMORY);
    ck_assert_int_eq(fake[FAKE_GPU].prepares, 2); /* tried again after making room */
    fake[FAKE_GPU].prepare_failure = XN_OK;
    fake_job_init(&job, engine, asset, 2, 1);
    fake_job_submit(&job);
    fake_job_expect(&job, XN_OK);
    finish(engine, asset);
}
END_TEST

START_TEST(plans_are_reused_and_bounded) {
    fake_reset();
    xn_config config = fake_config();
    xn_engine *engine = fake_engine(&config, 1);
    xn_asset *asset = fake_weights(xn_engine_store(engine), 2.0f);
    fake_job job;
    for (int round = 0; round < 3; round++)
        for (int images = 1; images <= 8; images++) {
            fake_job_init(&job, engine, asset, images, 1);
            fake_job_submit(&job);
            fake_job_expect(&job, XN_OK);
        }
    ck_assert_int_eq(fake[FAKE_GPU].plan_creates, 4); /* 1, 2, 4, 8 */
    for (int i = 0; i < XN_RUNNER_PROGRAMS_MAX; i++) {
        fake_job_init(&job, engine, asset, 1, 1);
        job.job.problem.conv.stride_h =
            2 + i; /* another problem to the cache, the same to the fake */
        fake_job_submit(&job);
        fake_job_expect(&job, XN_OK);
    }
    ck_assert_int_eq(fake[FAKE_GPU].live_plans, XN_RUNNER_PROGRAMS_MAX);
    ck_assert_int_eq(fake[FAKE_GPU].plan_creates, 4 + XN_RUNNER_PROGRAMS_MAX);
    finish(engine, asset);
}
END_TEST

XN_SUITE(engine_device) {
    Suite *s = suite_create("engine_device");
    TCase *t = tcase_create("device");
    tcase_set_timeout(t, 120);
    tcase_add_test(t, lost_devices_leave_no_answers);
    tcase_add_test(t, what_never_ran_is_not_kept);
    tcase_add_test(t, answers_give_memory_back);
    tcase_add_test(t, loss_policy_exit);
    tcase_add_test(t, loss_policy_cpu);
    tcase_add_loop_test(t, moved_and_then_ended, 0, 2);
    tcase_add_test(t, other_devices_go_on);
    tcase_add_test(t, lost_while_preparing);
    tcase_add_test(t, lost_while_registering);
    tcase_add_test(t, canary_at_start);
    tcase_add_test(t, canary_makes_unready_and_ready);
    tcase_add_test(t, canary_that_hangs);
    tcase_add_test(t, drains_beside_a_canary_that_hangs);
    tcase_add_test(t, canary_finds_the_loss);
    tcase_add_test(t, released_after_done);
    tcase_add_test(t, batch_is_halved);
    tcase_add_test(t, run_out_of_memory_is_halved);
    tcase_add_test(t, rounding_up_is_given_up_first);
    tcase_add_test(t, plans_make_room);
    tcase_add_test(t, two_starve);
    tcase_add_test(t, weights_that_do_not_fit);
    tcase_add_test(t, plans_are_reused_and_bounded);
    suite_add_tcase(s, t);
    return s;
}
