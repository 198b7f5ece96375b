/* runner.h: one stream of a device with its cache of programs, and the run of a batch on it. A
 * worker has one; a thread that runs a job of its own borrows one (callers.h). Used by one thread
 * at a time. No function here needs a lock, none may be called with one. */
#ifndef XN_RUNNER_H
#define XN_RUNNER_H

#include "pools.h"

#define XN_RUNNER_PROGRAMS_MAX 64 /* programs that one keeps */

/* What a launch tells its jobs. */
typedef struct xn_launch {
    int64_t requests, images;
    int64_t finished_ns;
    xn_run_times times;
    xn_precision precision;
} xn_launch;

typedef struct xn_runner {
    xn_pools *pools;
    xn_engine_device *device;
    xn_stream *stream;
    xn_programs *programs;
    xn_job **jobs; /* the batch; like items, jobs_max long */
    xn_batch_item *items;
    xn_program *program; /* of the launch under way */
    uint64_t era;        /* pools->era when the programs were last dropped */
} xn_runner;

/* threads: the most host threads of a run; 0: none. */
xn_status xn_runner_init(xn_runner *runner, xn_pools *pools, xn_engine_device *device,
                         int64_t jobs_max, int threads, int64_t max_batch_images, xn_error *error);
void xn_runner_destroy(xn_runner *runner); /* also of one that was never set up */

/* A launch of these jobs that has not begun. */
xn_launch xn_launch_of(xn_job *const *jobs, size_t count);
/* Runs jobs of one group, whose weights are prepared, in one launch. until_ns: as
 * xn_cancel_token; at XN_ERR_DEADLINE runner->program goes on. */
xn_status xn_runner_launch(xn_runner *runner, xn_job *const *jobs, size_t count,
                           const xn_prepared *const *prepared, int64_t until_ns, xn_launch *out,
                           xn_error *error);
/* Counts a launch that is over. */
void xn_runner_count(const xn_runner *runner, const xn_job *first, xn_status status,
                     xn_launch *launch);
/* Gives a job its outcome. */
void xn_runner_conclude(const xn_runner *runner, xn_job *job, xn_status status,
                        const xn_launch *launch, const xn_error *error);
/* Both, and hands the jobs back, which are gone then. */
void xn_runner_finish(const xn_runner *runner, xn_job **jobs, size_t count, xn_status status,
                      xn_launch *launch, const xn_error *error);
/* Logs and counts a launch that failed by what is wrong with the device; of others it says nothing.
 */
void xn_runner_report(const xn_runner *runner, xn_status status, const xn_error *error,
                      const xn_job *job);

/* Whether it keeps more memory for the next run than is worth making anew. */
bool xn_runner_keeps_much(const xn_runner *runner);

#endif
