/* callers.h: small jobs, run by the thread that has them (caller-runs). Handing a job to a worker
 * and its answer back costs two wake-ups of threads, several times the work of a small convolution.
 * So where nothing waits, the thread that would submit the job runs it, on a borrowed stream with a
 * cache of programs, which no worker has. On a CPU it is a thread of the pool's budget meanwhile.
 * On a GPU, where runs take none, it waits for the device; each device has a stream for every
 * thread that may come, and the next job goes to the device with the fewest runs.
 *
 * It delays no other request. With a job in the queue that no idle worker is about to take, or no
 * thread of the budget free, jobs are submitted and take their turn. The calling thread does work
 * of at most --inline-us, by estimate, and waits for nothing else: weights that no device has yet,
 * and a device that is short of memory, are for the workers. If one device has the weights of a
 * small asset, another makes its copy here: else jobs would go to the first for ever.
 *
 * A GPU may hang. At most half of the HTTP threads wait for GPUs at a time, so that the others can
 * tell of it whatever call of the driver does not return; and each waits for a run no longer than
 * WAIT_NS. Then try_run leaves the run to go on, submit hands it to the waiter, a thread that polls
 * all such runs in turn, and the device gets no inline job before they are over. Until then the job
 * is one that runs: at its deadline it is answered as any other (endings.h).
 *
 * A borrowed stream has programs as a worker has, of one job each: --max-batch-images bounds no
 * job. */
#ifndef XN_CALLERS_H
#define XN_CALLERS_H

#include "runner.h"

typedef struct xn_caller_stream {
    xn_runner runner;
    xn_launch launch;
    bool handed_over;              /* engine's lock: the waiter waits for its run, no caller does */
    struct xn_caller_stream *next; /* engine's lock: in the free ones, or in those handed over */
} xn_caller_stream;

/* Guarded by the engine's lock where not constant. */
typedef struct xn_caller_pool {
    int callers; /* threads that run a job here and have not left it to the waiter */
    int turn;    /* the device that the next job goes to, of equal ones */
} xn_caller_pool;

typedef struct xn_caller_device {
    xn_caller_stream *free;
    int handed_over; /* runs that their callers no longer wait for */
} xn_caller_device;

typedef struct xn_callers {
    xn_pools *pools;
    double work_ns_max; /* of a job, by estimate; 0: none runs here */
    xn_caller_pool *by_pool;
    xn_caller_device *by_device;
    xn_caller_stream *streams; /* all, in the order of their devices */
    int stream_count;
    /* guarded by the engine's lock */
    int running; /* streams that are not free */
    pthread_cond_t none_runs;
    xn_caller_stream *handed_over; /* the waiter waits for their runs, linked by next */
    bool stopping;                 /* no more of these come */
    pthread_cond_t wake;           /* the waiter: one more of those, or stopping */
    xn_loop waiter;
} xn_callers;

/* The number of HTTP threads that may wait for GPUs at a time. */
int xn_callers_of(int http_threads);

xn_status xn_callers_init(xn_callers *callers, xn_pools *pools, double work_ns_max,
                          int64_t max_batch_images, xn_error *error);
xn_status xn_callers_start(xn_callers *callers, xn_error *error);
/* Returns when no job runs here; none starts once the pools are stopping. Idempotent. */
void xn_callers_stop(xn_callers *callers);
void xn_callers_destroy(xn_callers *callers); /* both also of what was never set up */

/* See xn_engine_try_run. */
bool xn_callers_try_run(xn_callers *callers, xn_job *job);
/* From submit, of a job that try_run has begun to run: the waiter waits for it. */
void xn_callers_hand_over(xn_callers *callers, xn_job *job);
/* Frees the programs of an earlier era: of free streams now, of others as soon as they are free. */
void xn_callers_drop_programs(xn_callers *callers);
/* On the device's free streams, where one like this job would run there; without memory, none. The
 * device must have run one. */
void xn_callers_make_programs(xn_callers *callers, int device, const xn_job *job);

/* The waiter's step (loop.h); state: the callers. */
int64_t xn_callers_step(void *state, int64_t now_ns);

#endif
