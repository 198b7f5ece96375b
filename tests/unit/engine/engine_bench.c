/* engine_bench.c: see engine_bench.h. */
#include "engine_bench.h"

#include <string.h>

engine_bench bench;

xn_config fake_config(void) {
    xn_config config = {0};
    config.max_batch_images = 64;
    config.queue_depth = 1000;
    config.queue_bytes = 1 << 20;
    config.max_weights = 100;
    config.max_weights_bytes = 1 << 20;
    config.weights_cache_bytes = 1 << 20;
    return config;
}

static const int ordinals[FAKE_DEVICES] = {0, 1, 2, 3};

static xn_engine *create(const xn_config *config, const xn_pool_spec *pools, int count) {
    xn_engine *engine = NULL;
    xn_error error = {0};
    xn_status status = xn_engine_create_with(config, pools, count, "", &engine, &error);
    ck_assert_msg(status == XN_OK, "%s", error.message);
    return engine;
}

xn_engine *fake_engine(const xn_config *config, int workers) {
    const xn_pool_spec pool = {&fake_gpu, ordinals, 1, workers, 0, 0};
    return create(config, &pool, 1);
}

xn_engine *fake_engine_pair(const xn_config *config, int gpus) {
    const xn_pool_spec pools[2] = {{&fake_gpu, ordinals, gpus, 1, 0, 2},
                                   {&fake_cpu, ordinals, 1, 2, 2, 2}};
    return create(config, pools, 2);
}

xn_asset *fake_weights(xn_store *store, float value) {
    xn_tensor tensor = {XN_FP32, {4, {1, 1, 1, 1}}, 1, sizeof value, &value};
    xn_asset *asset = NULL;
    xn_error error = {0};
    xn_status status = xn_store_intern(store, NULL, &tensor, NULL, NULL, &asset, &error);
    ck_assert_msg(status == XN_OK, "%s", error.message);
    return asset;
}

/* The submitter's part of the contract: after done, the memory may go at once. */
static void job_done(xn_job *job) {
    fake_job *self = job->context;
    xn_engine_health health;
    xn_engine_health_get(self->engine, &health); /* would hang if a lock were held */
    atomic_fetch_add(&self->done_calls, 1);
    sem_post(&self->done);
}

static void job_released(xn_job *job) {
    fake_job *self = job->context;
    sem_post(&self->released);
}

void fake_job_init(fake_job *job, xn_engine *engine, xn_asset *asset, int64_t images, float start) {
    memset(job, 0, sizeof *job);
    for (int64_t i = 0; i < images; i++)
        job->input[i] = start + (float)i;
    sem_init(&job->done, 0, 0);
    sem_init(&job->released, 0, 0);
    job->engine = engine;
    job->weight = xn_asset_weights(asset)->real[0];
    job->job = (xn_job){.images = images,
                        .asset = asset,
                        .input = job->input,
                        .output = job->output,
                        .deadline_ns = INT64_MAX,
                        .id = "test",
                        .done = job_done,
                        .released = job_released,
                        .context = job};
    xn_conv_params params;
    xn_conv_params_default(&params);
    params.mode = XN_MODE_FLOAT;
    xn_shape shape = {4, {images, 1, 1, 1}};
    xn_weights_shape weights;
    xn_weights_shape_of(xn_asset_weights(asset), &weights);
    xn_conv_limits limits = {1 << 20, 1 << 20, 1 << 20};
    int64_t resolved;
    xn_error error = {0};
    xn_conv conv;
    xn_status status =
        xn_conv_resolve(&params, XN_FP32, &shape, &weights, &limits, &conv, &resolved, &error);
    ck_assert_msg(status == XN_OK, "%s", error.message);
    xn_problem_of_conv(&conv, &job->job.problem);
}

void fake_job_submit(fake_job *job) {
    xn_error error = {0};
    xn_problem_of_conv(&job->job.problem.conv, &job->job.problem); /* tests change it */
    xn_status status = xn_engine_submit(job->engine, &job->job, &error);
    ck_assert_msg(status == XN_OK, "%s", error.message);
}

void fake_job_expect_at(fake_job *job, xn_status status, const char *file, int line) {
    fake_wait_at(&job->done, file, line);
    if (job->job.in_use)
        fake_wait_at(&job->released, file, line);
    ck_assert_msg(job->job.status == status, "%s:%d: status %s instead of %s (%s)", file, line,
                  xn_status_name(job->job.status), xn_status_name(status), job->job.error.message);
    ck_assert_msg(job->done_calls == 1, "%s:%d: done was called %d times", file, line,
                  job->done_calls);
    if (status != XN_OK) {
        ck_assert_msg(job->job.error.status == status && job->job.error.message[0],
                      "%s:%d: no message", file, line);
        return;
    }
    for (int64_t i = 0; i < job->job.images; i++)
        ck_assert_msg(job->output[i] == job->input[i] * job->weight, "%s:%d: image %lld is wrong",
                      file, line, (long long)i);
}

void fake_job_expect_inline_at(fake_job *job, xn_status status, const char *file, int line) {
    ck_assert_msg(!job->done_calls, "%s:%d: done was called", file, line);
    atomic_fetch_add(&job->done_calls, 1);
    sem_post(&job->done);
    fake_job_expect_at(job, status, file, line);
}

typedef struct plain_job {
    xn_job job;
    sem_t done;
} plain_job;

static void plain_done(xn_job *job) {
    sem_post(&((plain_job *)job->context)->done);
}

void fake_run(xn_engine *engine, xn_asset *asset, const xn_problem *problem, const void *input,
              int64_t images, void *output) {
    plain_job mine = {.job = {.problem = *problem,
                              .images = images,
                              .asset = asset,
                              .input = input,
                              .output = output,
                              .deadline_ns = INT64_MAX,
                              .id = "test",
                              .done = plain_done,
                              .context = &mine}};
    sem_init(&mine.done, 0, 0);
    ck_assert_int_eq(xn_engine_submit(engine, &mine.job, NULL), XN_OK);
    fake_wait(&mine.done);
    ck_assert_msg(mine.job.status == XN_OK, "%s", mine.job.error.message);
    ck_assert_int_ge(mine.job.batch_images, images);
}

xn_status fake_admit(xn_engine *engine, size_t bytes, xn_ticket *out, xn_error *error) {
    xn_status status = xn_ticket_enter(xn_engine_admission(engine), NULL, NULL, bytes, out, error);
    return status ? status : xn_ticket_grow(out, bytes, error);
}

/* ---- the bench ---- */

void bench_begin(void) {
    fake_reset();
    bench = (engine_bench){.config = fake_config()};
}

void bench_end(void) {
    if (bench.engine)
        xn_engine_stop(bench.engine);
    xn_asset_release(bench.asset);
    xn_engine_free(bench.engine);
    fake_expect_all_freed();
}

static void started(xn_engine *engine) {
    bench.engine = engine;
    bench.asset = fake_weights(xn_engine_store(engine), 2.0f);
}

void bench_start(int workers) {
    started(fake_engine(&bench.config, workers));
}

void bench_start_pair(int gpus) {
    started(fake_engine_pair(&bench.config, gpus));
}

void bench_start_pools(const xn_pool_spec *pools, int count) {
    started(create(&bench.config, pools, count));
}

void bench_job(fake_job *job, int64_t images, float start) {
    fake_job_init(job, bench.engine, bench.asset, images, start);
}

void bench_submit(fake_job *job, int64_t images, float start) {
    bench_job(job, images, start);
    fake_job_submit(job);
}

void bench_run_at(fake_job *job, int64_t images, float start, xn_status status, const char *file,
                  int line) {
    bench_submit(job, images, start);
    fake_job_expect_at(job, status, file, line);
}

void bench_hold(int kind, fake_job *job, int64_t images, float start) {
    fake[kind].gated = true;
    bench_submit(job, images, start);
    fake_wait(&fake[kind].entered);
    fake[kind].gated = false;
}

void bench_let_go_at(int kind, fake_job *job, xn_status status, const char *file, int line) {
    sem_post(&fake[kind].gate);
    fake_job_expect_at(job, status, file, line);
}

bool bench_try(fake_job *job) {
    bench_job(job, 1, 7);
    return xn_engine_try_run(bench.engine, &job->job);
}

void bench_run_inline_at(fake_job *job, xn_status status, const char *file, int line) {
    ck_assert_msg(bench_try(job), "%s:%d: not inline", file, line);
    fake_job_expect_inline_at(job, status, file, line);
}

xn_engine_health bench_health(void) {
    xn_engine_health health;
    xn_engine_health_get(bench.engine, &health);
    return health;
}

int64_t bench_gauge(xn_gauge gauge) {
    return xn_metrics_gauge(xn_engine_metrics(bench.engine), gauge);
}
