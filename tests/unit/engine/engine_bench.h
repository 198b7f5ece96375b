/* engine_bench.h: engines over the fake backends (engine_fake.h), and jobs for them. A test case
 * has bench_begin and bench_end as its fixture; a test changes bench.config where it must, starts
 * an engine, and leaves the rest to bench_end. */
#ifndef XN_ENGINE_BENCH_H
#define XN_ENGINE_BENCH_H

#include "engine_fake.h"

typedef struct engine_bench {
    xn_config config;
    xn_engine *engine; /* NULL until the test starts it */
    xn_asset *asset;   /* weights of value 2 */
} engine_bench;
extern engine_bench bench;

void bench_begin(void);
void bench_end(void); /* stops the engine; all that the fakes gave must be freed */

/* With one pool of one GPU with that many workers. */
void bench_start(int workers);
/* With GPUs 0 .. gpus-1, one worker each, and the cpu with two threads beside them; two callers run
 * jobs in each pool. */
void bench_start_pair(int gpus);
void bench_start_pools(const xn_pool_spec *pools, int count);

/* ---- jobs ---- */

enum { FAKE_JOB_IMAGES = 16 };
typedef struct fake_job {
    xn_job job;
    float input[FAKE_JOB_IMAGES], output[FAKE_JOB_IMAGES];
    float weight;
    xn_engine *engine;
    atomic_int done_calls;
    sem_t done, released;
    xn_ticket ticket; /* where a test admits its jobs */
} fake_job;

/* A job of `images` values start, start+1, ... for those weights, without a deadline. */
void fake_job_init(fake_job *job, xn_engine *engine, xn_asset *asset, int64_t images, float start);
void fake_job_submit(fake_job *job); /* must be accepted */
/* Waits for done, and for released where the job is in use; the status must be that one, the
 * outputs right when it is XN_OK. */
void fake_job_expect_at(fake_job *job, xn_status status, const char *file, int line);
#define fake_job_expect(job, status) fake_job_expect_at(job, status, __FILE__, __LINE__)
/* The same of one that ran inline, whose done is not called. */
void fake_job_expect_inline_at(fake_job *job, xn_status status, const char *file, int line);
#define fake_job_expect_inline(job, status)                                                        \
    fake_job_expect_inline_at(job, status, __FILE__, __LINE__)

/* The same with the bench's engine and weights: make one; make and submit one; make one, submit it
 * and wait for that end; submit one that stays in its run until bench_let_go lets it end. */
void bench_job(fake_job *job, int64_t images, float start);
void bench_submit(fake_job *job, int64_t images, float start);
void bench_run_at(fake_job *job, int64_t images, float start, xn_status status, const char *file,
                  int line);
#define bench_run(job, images, start, status)                                                      \
    bench_run_at(job, images, start, status, __FILE__, __LINE__)
void bench_hold(int kind, fake_job *job, int64_t images, float start);
void bench_let_go_at(int kind, fake_job *job, xn_status status, const char *file, int line);
#define bench_let_go(kind, job, status) bench_let_go_at(kind, job, status, __FILE__, __LINE__)

/* Whether a job of one image ran at once on this thread (xn_engine_try_run); it must, with that
 * end. */
bool bench_try(fake_job *job);
void bench_run_inline_at(fake_job *job, xn_status status, const char *file, int line);
#define bench_run_inline(job, status) bench_run_inline_at(job, status, __FILE__, __LINE__)

/* ---- parts ---- */

/* Settings that tests start from: 64 images, no delay, depth 1000, bytes 1 MiB, no canary thread.
 */
xn_config fake_config(void);
/* The engines of bench_start and bench_start_pair, for tests with another fixture. */
xn_engine *fake_engine(const xn_config *config, int workers);
xn_engine *fake_engine_pair(const xn_config *config, int gpus);
/* Weights of one value, 1x1x1x1: a reference to an asset. */
xn_asset *fake_weights(xn_store *store, float value);

/* Runs images of an asset's problem to their end, which must be XN_OK. */
void fake_run(xn_engine *engine, xn_asset *asset, const xn_problem *problem, const void *input,
              int64_t images, void *output);

/* Admits a request without a client that holds `bytes` at once. */
xn_status fake_admit(xn_engine *engine, size_t bytes, xn_ticket *out, xn_error *error);

xn_engine_health bench_health(void);
int64_t bench_gauge(xn_gauge gauge);

#endif
