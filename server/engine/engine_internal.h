/* engine_internal.h: what the parts of the engine share, and the door for tests.
 *
 *   engine_choose.c  from the configuration to pools
 *   engine.c         creating and ending; submit and cancel
 *   worker.c         the workers: taking batches and running them
 *   inline.c         small jobs, run by the thread that has them; the thread that waits for the
 *                    rest of such runs
 *   watcher.c        the thread of deadlines and of jobs that will not run
 *   canary.c         the thread of self-tests
 *   engine_loss.c    the loss of a device
 *   engine_recall.c  answers that need no run
 *   engine_end.c     taking a job out that will not run
 *   engine_state.c   what can be asked: parts, devices, readiness
 *   engine_memory.c  host memory for bodies that survives the loss of the device it is pinned for
 *   devices.c        the list of devices, and opening one
 *   queue, batcher, deadlines, programs, buffers: data structures, each with its own header
 *
 * A file calls those below it.
 *
 * Locks. engine->mutex guards the queues, the deadlines, the states of jobs, workers, devices and
 * pools. It is never held while a backend, a `done` or a callback runs. Below it, taken while it
 * may be held: the admission's mutex. The store's locks are never taken under it, nor it under
 * them. A caller may hold locks of its own in submit and cancel, because `done` comes without any
 * lock of the engine. */
#ifndef XN_ENGINE_INTERNAL_H
#define XN_ENGINE_INTERNAL_H

#include "admission.h"
#include "deadlines.h"
#include "engine.h"
#include "programs.h"
#include "queue.h"

#include <pthread.h>
#include <stdatomic.h>

#define XN_PROGRAMS_PER_WORKER 64

/* ---- the door for tests: pools given explicitly ---- */

typedef struct xn_pool_spec {
    const xn_backend *backend;
    const int *ordinals; /* devices to open */
    int ordinal_count;   /* >= 1 */
    int workers;         /* per device, >= 1 */
    int threads;         /* the budget its workers share, >= 1; 0 = runs use no host threads */
    int callers;         /* how many threads may run jobs of their own in the pool at a time */
} xn_pool_spec;

/* The first pool is the primary one. Everything is copied. fallback_reason: "" or what
 * xn_engine_fallback_reason gives. */
xn_status xn_engine_create_with(const xn_config *config, const xn_pool_spec *pools, int pool_count,
                                const char *fallback_reason, xn_engine **out, xn_error *error);

/* ---- inside ---- */

typedef enum {
    XN_JOB_QUEUED = 1, /* in its pool's queue and in the deadlines */
    XN_JOB_ENDING,     /* will not run; the watcher calls done */
    XN_JOB_RUNNING,    /* a worker or the waiter has it, until done; in the deadlines */
    XN_JOB_LATE,       /* in a run that passed the deadline; the watcher calls done */
    XN_JOB_LATE_OVER,  /* the same, and the run is over: released follows done */
    XN_JOB_ANSWERED    /* done was called; the end of the run calls released */
} xn_job_state;

/* Of an open device; guarded by engine->mutex where not constant. */
typedef struct xn_member {
    const xn_backend *backend;
    xn_device *device;
    xn_device_info info;
    int pool;
    bool up;
    int running;  /* workers and callers in a run on it, */
    int starving; /* of which so many wait to be alone on it, or are; the others start nothing */
    bool alone;   /* one of them is */
    struct xn_worker *streams; /* free ones that callers borrow, linked by next */
    int handed_over;           /* runs that their callers no longer wait for */
    int64_t canary_since_ns;   /* when the canary that runs now started; 0 = none runs */
    char canary_error[128];    /* of the last canary; "" when it passed */
} xn_member;

typedef struct xn_pool {
    const xn_backend *backend;
    xn_queue *queue;
    pthread_cond_t work;  /* idle workers: work to do, or to stop */
    pthread_cond_t quiet; /* workers of a device short of memory: see be_alone in worker.c */
    int members_up;       /* 0: the pool is lost */
    int idle;             /* workers in a wait on `work` */
    bool timing;          /* one of them wakes by itself when the oldest group is due */
    int threads;          /* the budget; 0 = none */
    int threads_free;
    int callers_max; /* constant */
    int callers;     /* threads from outside that run a job here, or wait for it */
    int turn;        /* the member that the next inline job goes to, of equal ones */
} xn_pool;

/* What a launch tells its jobs. */
typedef struct xn_launch {
    int64_t requests, images;
    int64_t finished_ns;
    xn_run_times times;
    xn_precision precision;
} xn_launch;

/* A thread with a stream; or, without a thread, a stream that a thread from outside borrows to run
 * a job of its own. */
typedef struct xn_worker {
    xn_engine *engine;
    int member, pool;
    bool borrowed;          /* by callers: it has no thread */
    bool handed_over;       /* engine->mutex: its caller no longer waits for its run */
    struct xn_worker *next; /* engine->mutex: in member->streams, or engine->handed_over */
    pthread_t thread;
    bool started;
    xn_stream *stream;
    xn_programs *programs;
    uint64_t era;    /* engine->era when its programs were last dropped; a worker's own */
    int64_t rest_ns; /* a worker's own: when its last run ended */
    xn_job **jobs;   /* the batch; like items, max_batch_images long; of a borrowed one one job */
    xn_batch_item *items;
    xn_program *program; /* of the launch under way */
    xn_launch launch;    /* of a borrowed one */
} xn_worker;

struct xn_engine {
    /* constant after creation */
    xn_loss_policy loss_policy;
    int64_t canary_interval_ns, max_batch_images;
    double inline_ns; /* the most work of an inline job, by estimate; 0: there are none */
    int pool_count, member_count, worker_count;
    xn_pool *pools;
    xn_member *members;
    xn_worker *workers;
    xn_metrics *metrics;
    xn_admission *admission;
    xn_store *store;
    xn_buffers *buffers;
    xn_cache *responses; /* NULL: there is no cache of answers */
    char fallback_reason[256];

    pthread_t maker; /* the thread that created it: see xn_engine_reclaim */

    atomic_int primary;              /* index of a pool; written under mutex */
    atomic_bool primary_memory_lost; /* pools[0]'s device must not give host memory any more */

    pthread_mutex_t mutex; /* guards all below and what says so above */
    uint64_t era;          /* workers drop programs that they made before it began */
    int inline_running;
    pthread_cond_t inline_done; /* when none runs any more */
    xn_worker *handed_over;     /* whose runs the waiter waits for, linked by next */
    pthread_cond_t waiter_work; /* one more of those, or waiter_stop */
    pthread_t waiter;
    bool waiter_started, waiter_stop;
    xn_deadlines deadlines;
    bool draining, stopping;
    unsigned loading;      /* what is still being read in: a sum of xn_loading */
    char lost_reason[160]; /* set once the primary is lost with nothing to take over */

    /* the watcher */
    pthread_t watcher, canary;
    bool watcher_started, canary_started;
    pthread_cond_t watch;               /* something to end, an earlier deadline, or watcher_stop */
    pthread_cond_t canary_stop;         /* draining, or a canary has ended */
    int64_t watch_until_ns;             /* when the watcher wakes by itself */
    xn_job *ending_first, *ending_last; /* linked by next */
    void (*on_fatal)(void *context);
    void *on_fatal_context;
    bool fatal_pending; /* on_fatal is still to be called */
    bool watcher_stop;  /* nothing more will come */
};

/* Takes a queued job out; the watcher will call its done with that status. */
void xn_engine_end_job_locked(xn_engine *engine, xn_job *job, xn_status status);
/* The same for a job that is out of its queue already. */
void xn_engine_end_taken_locked(xn_engine *engine, xn_job *job, xn_status status);
/* Calls `done` of what was taken so, linked by next. No lock held. */
void xn_engine_end_jobs(xn_engine *engine, xn_job *job, const char *lost_reason);
/* Ends every job whose deadline has come: queued ones leave the queue; those in a run are answered,
 * and keep their memory until the run is over. */
void xn_engine_expire_locked(xn_engine *engine, int64_t now_ns);
/* A run is over. Those of its jobs that are still to be told so come first in jobs; returns how
 * many. *late: those that were answered before, linked by next; for xn_engine_release. */
size_t xn_engine_settle(xn_engine *engine, xn_job **jobs, size_t count, xn_job **late);
void xn_engine_release(xn_job *late);
/* Whether an idle worker is to be woken: there is one, and something for it: a batch to take, or a
 * group that waits for company while no worker watches the time. */
bool xn_pool_wants_worker_locked(const xn_engine *engine, const xn_pool *pool, int64_t now_ns);
/* Wakes one; without the lock, which it would only wait for. */
void xn_pool_wake(xn_pool *pool);
/* The gauge of readiness, after anything it depends on changed. */
void xn_engine_show_ready_locked(xn_engine *engine);
bool xn_engine_ready_locked(const xn_engine *engine, int64_t now_ns, char *reason, size_t size);

/* A device answered XN_ERR_DEVICE_LOST. Any thread, no lock held; only the first call counts. */
void xn_engine_lose_member(xn_engine *engine, int member, const xn_error *why);

xn_status xn_engine_create_responses(xn_engine *engine, int64_t limit_bytes, xn_error *error);

/* ---- inline.c ---- */

/* How many of so many HTTP threads may wait for GPUs at a time. */
int xn_inline_callers(int http_threads);
/* A borrowed stream is free (again). */
void xn_inline_free_locked(xn_worker *borrowed);
/* From submit, of a job that try_run has begun to run: the waiter waits for it. */
void xn_inline_hand_over(xn_engine *engine, xn_job *job);
/* Gives back what a borrowed stream, which the caller has taken, need not keep; without the lock
 * meanwhile. */
void xn_inline_tidy_drop_lock(xn_worker *borrowed);
/* Returns when no job runs inline; none starts once the engine is stopping. */
void xn_engine_await_inline(xn_engine *engine);

/* ---- worker.c: what inline.c runs jobs by ---- */

/* Runs jobs of one group, whose weights are prepared, in one launch. No lock held. until_ns: as
 * xn_run_wish; at XN_ERR_DEADLINE worker->program goes on. */
xn_status xn_worker_launch(xn_worker *worker, xn_job *const *jobs, size_t count,
                           const xn_prepared *const *prepared, int64_t until_ns, xn_launch *out,
                           xn_error *error);
/* Counts a launch of these jobs that is over, and gives a job of it its outcome. */
void xn_worker_count(xn_worker *worker, const xn_job *first, xn_status status, xn_launch *launch);
void xn_worker_conclude(const xn_worker *worker, xn_job *job, xn_status status,
                        const xn_launch *launch, const xn_error *error);
/* Both, and hands the jobs back, which are gone then. */
void xn_worker_finish(xn_worker *worker, xn_job **jobs, size_t count, xn_status status,
                      xn_launch *launch, const xn_error *error);
/* Whether a launch failed by what is wrong with the device, which is to be told. */
bool xn_worker_is_fault(xn_status status);
/* Tells of a launch that failed. */
void xn_worker_report(xn_worker *worker, xn_status status, const xn_error *error,
                      const xn_job *job);
/* A network is gone: the programs of all workers are freed, of a busy one as soon as it is done. */
void xn_engine_drop_programs(xn_engine *engine);
/* It has run what it took, on so many threads of the budget. */
void xn_worker_rest_locked(xn_worker *worker, int threads);

void *xn_worker_main(void *worker);
void *xn_waiter_main(void *engine);
void *xn_watcher_main(void *engine);
void *xn_canary_main(void *engine);

xn_status xn_engine_create_buffers(xn_engine *engine, size_t keep_bytes, xn_error *error);

/* Host threads a batch of that many images can use, 1 .. limit. Pure. */
int xn_worker_threads(const xn_problem *problem, int64_t images, int limit);

/* The ordinals of "all" or a list such as "0,2", checked against `found` devices. Writes at most
 * `found` of them. Pure. */
xn_status xn_devices_parse(const char *list, int found, int *ordinals, int *count, xn_error *error);

#endif
