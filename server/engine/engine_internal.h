/* engine_internal.h: what the parts of the engine share, and the door for tests.
 *
 *   engine_choose.c  from the configuration to pools
 *   engine.c         creating and ending; submit and cancel
 *   worker.c         the workers: taking batches and running them
 *   inline.c         small jobs, run by the thread that has them
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
    int guests;          /* per device: how many threads may run jobs of their own there */
} xn_pool_spec;

/* The first pool is the primary one. Everything is copied. fallback_reason: "" or what
 * xn_engine_fallback_reason gives. */
xn_status xn_engine_create_with(const xn_config *config, const xn_pool_spec *pools, int pool_count,
                                const char *fallback_reason, xn_engine **out, xn_error *error);

/* ---- inside ---- */

typedef enum {
    XN_JOB_QUEUED = 1, /* in its pool's queue and in the deadlines */
    XN_JOB_ENDING,     /* will not run; the watcher calls done */
    XN_JOB_RUNNING     /* a worker has it, until done */
} xn_job_state;

/* Of an open device; guarded by engine->mutex where not constant. */
typedef struct xn_member {
    const xn_backend *backend;
    xn_device *device;
    xn_device_info info;
    int pool;
    bool up;
    int running;  /* workers and guests in a run on it, */
    int starving; /* of which so many wait to be alone on it, or are; the others start nothing */
    bool alone;   /* one of them is */
    struct xn_worker *guests; /* those that are free, linked by next */
    int64_t canary_since_ns;  /* when the canary that runs now started; 0 = none runs */
    char canary_error[128];   /* of the last canary; "" when it passed */
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
    int turn; /* the member that the next inline job goes to, of equal ones */
} xn_pool;

/* A thread with a stream, or what a thread from outside borrows to run a job of its own: a guest,
 * which has no thread. */
typedef struct xn_worker {
    xn_engine *engine;
    int member, pool;
    bool guest;
    struct xn_worker *next; /* engine->mutex: of a free guest */
    pthread_t thread;
    bool started;
    xn_stream *stream;
    xn_programs *programs;
    xn_job **jobs; /* the batch; like items, max_batch_images long; of a guest one job */
    xn_batch_item *items;
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
    xn_response_cache *responses; /* NULL: there is no cache of answers */
    char fallback_reason[256];

    void (*before_done)(void), (*after_done)(void); /* of several jobs; set before any, or NULL */

    atomic_int primary;              /* index of a pool; written under mutex */
    atomic_bool primary_memory_lost; /* pools[0]'s device must not give host memory any more */

    pthread_mutex_t mutex; /* guards all below and what says so above */
    int inline_running;
    pthread_cond_t inline_done; /* when none runs any more */
    xn_deadlines deadlines;
    bool draining, stopping;
    unsigned loading;      /* what is still being read in: a sum of xn_loading */
    char lost_reason[160]; /* set once the primary is lost with nothing to take over */

    /* the watcher */
    pthread_t watcher, canary;
    bool watcher_started, canary_started;
    pthread_cond_t watch; /* something to end, an earlier deadline, or watcher_stop */
    pthread_cond_t canary_stop;
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
void xn_engine_end_jobs(xn_job *job, const char *lost_reason);
/* Takes every queued job out whose deadline has come. */
void xn_engine_expire_locked(xn_engine *engine, int64_t now_ns);
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

/* A guest is free (again). */
void xn_guest_free_locked(xn_worker *guest);
/* Returns when no job runs inline; none starts once the engine is stopping. */
void xn_engine_await_inline(xn_engine *engine);

/* ---- worker.c: what inline.c runs jobs by ---- */

/* What a launch tells its jobs. */
typedef struct xn_launch {
    xn_run_times times;
    xn_precision precision;
} xn_launch;

/* Runs jobs of one group, whose weights are prepared, in one launch. No lock held. */
xn_status xn_worker_launch(xn_worker *worker, xn_job *const *jobs, size_t count,
                           const xn_prepared *const *prepared, xn_launch *out, xn_error *error);
/* Gives jobs of one launch their outcome, short of calling done, and counts them. */
void xn_worker_conclude(xn_worker *worker, xn_job *const *jobs, size_t count, xn_status status,
                        const xn_launch *launch, const xn_error *error);
/* Tells of a launch that failed. */
void xn_worker_report(xn_worker *worker, xn_status status, const xn_error *error,
                      const xn_job *job);
/* It has run what it took, on so many threads of the budget. */
void xn_worker_rest_locked(xn_worker *worker, int threads);

void *xn_worker_main(void *worker);
void *xn_watcher_main(void *engine);
void *xn_canary_main(void *engine);

xn_status xn_engine_create_buffers(xn_engine *engine, size_t keep_bytes, xn_error *error);
void xn_engine_free_buffers(xn_engine *engine);

/* Host threads a batch of that many images can use, 1 .. limit. Pure. */
int xn_worker_threads(const xn_problem *problem, int64_t images, int limit);

/* The ordinals of "all" or a list such as "0,2", checked against `found` devices. Writes at most
 * `found` of them. Pure. */
xn_status xn_devices_parse(const char *list, int found, int *ordinals, int *count, xn_error *error);

#endif
