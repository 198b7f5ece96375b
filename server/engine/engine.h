/* engine.h: from an accepted job to its result: devices, the bounded queue, the batcher, the
 * worker pool. Knows nothing of HTTP.
 *
 * A pool is one backend with its devices, its workers and its queue. The first pool is the primary
 * one, which "auto" means. --backend auto: cuda where there is a GPU, and cpu beside it for
 * requests that ask for it; else cpu alone. cuda, cpu, ref: that one alone; cuda with
 * --on-device-loss cpu has the cpu pool standing by too.
 *
 * A worker is one thread with one stream and one cache of programs. Idle workers wait on their
 * pool's condition. A free one takes the group of jobs of the same asset and an equal problem whose
 * turn it is (queue.h) once the batcher (xn_batch_wait_ns, a pure function) says it is ready. On a
 * GPU several workers a device keep upload, compute and download of different batches overlapping.
 * On the CPU the workers share a budget of threads: each takes what its batch can use of those that
 * are free, at least one. So many small requests run side by side, and a big one gets all cores. */
#ifndef XN_ENGINE_H
#define XN_ENGINE_H

#include "config.h"
#include "job.h"
#include "services.h"

typedef struct xn_engine xn_engine;

/* Opens devices, makes streams, runs the canary, starts the workers. Errors say what is missing:
 * XN_ERR_NO_DEVICE for --backend cuda without a GPU, a bad --devices list, ... */
xn_status xn_engine_create(const xn_config *config, xn_engine **out, xn_error *error);
/* What create would say of the backend and the devices, by opening and closing them. */
#define XN_FALLBACK_REASON_MAX 256
xn_status xn_engine_check(const xn_config *config, char fallback_reason[XN_FALLBACK_REASON_MAX],
                          xn_error *error);
/* NULL-safe. Stops if that was not done, then frees everything; the submitters have released their
 * assets and buffers by then. */
void xn_engine_free(xn_engine *engine);

xn_store *xn_engine_store(xn_engine *engine);
xn_metrics *xn_engine_metrics(xn_engine *engine);
xn_buffers *xn_engine_buffers(xn_engine *engine);

/* Gives back what is only kept for later: free buffers, and the answer cache. Called when there was
 * no memory (xn_mem_set_shortage): a pool that holds all there is, in sizes that no request has any
 * more, would be the end of the service. Only by the thread that created the engine, with no lock
 * held. */
void xn_engine_reclaim(xn_engine *engine);

/* The pool for a request's backend name ("auto", "cpu", "cuda", "ref"), or XN_ERR_UNSUPPORTED with
 * what this daemon serves. */
xn_status xn_engine_pool(const xn_engine *engine, const char *backend, int *pool, xn_error *error);

/* The admission in front of it: a request enters before its body is read. */
xn_admission *xn_engine_admission(xn_engine *engine);
/* Seconds for Retry-After, >= 1, from the recent rate of finished jobs. */
int xn_engine_retry_after(const xn_engine *engine);

/* Looks an admitted job up in the answer cache, before it is submitted. True: its output is there;
 * it is done, as if `done` had been called, and is not submitted. */
bool xn_engine_cache_lookup(xn_engine *engine, xn_job *job);
/* Whether a lookup takes long for input and output of `bytes` bytes together. */
bool xn_engine_cache_is_slow(const xn_engine *engine, size_t bytes);
/* After a lookup that missed, and once the job is done: the cache may store a copy of its output,
 * which is unchanged. */
void xn_engine_cache_insert(xn_engine *engine, xn_job *job);

/* Runs an admitted job on the calling thread where that is quicker than to hand it over and delays
 * no other job: its work is small (--inline-us), nothing waits in its pool, and a thread of the
 * pool's budget is free; on a GPU, which has none, nothing waits that no idle worker takes, and few
 * threads run one at a time. True: the job is over, and its out part as in done, which is not
 * called. False: it has not run, or a device still runs it: submit it, and its done is called. */
bool xn_engine_try_run(xn_engine *engine, xn_job *job);
/* Hands over an admitted job. On failure done is not called and the job stays the caller's. */
xn_status xn_engine_submit(xn_engine *engine, xn_job *job, xn_error *error);

/* Runs an asset with 1, 8 and `images` images of zeroes on every device, so that first requests
 * find made what first runs make; on the CPU with as many as are 25 ms of work, if that is fewer.
 * Where there is no memory for a batch, smaller ones are run; what does not work is logged. Blocks;
 * engine: an xn_engine. XN_ERR_DRAINING is the only failure. */
typedef struct xn_warm_up_wish {
    const char *name, *version; /* of the model, for the log */
    xn_asset *asset;
    const xn_problem *problem;
    int64_t images; /* >= 1: the largest batch */
} xn_warm_up_wish;
xn_status xn_engine_warm_up(void *engine, const xn_warm_up_wish *wish, xn_error *error);

/* Takes the job out if it is still queued: its done comes soon with that status. One that has
 * started is given up, with that status, where all of its batch are, and where the program comes
 * to another step; else it finishes as if nothing were. Only valid until done was called (the
 * caller makes sure of that with its own lock). */
void xn_engine_cancel(xn_engine *engine, xn_job *job, xn_status status);

int xn_engine_device_count(const xn_engine *engine);
void xn_engine_device_info(const xn_engine *engine, int device, xn_device_info *out);
const char *xn_engine_device_id(const xn_engine *engine, int device);
const char *xn_engine_primary(const xn_engine *engine); /* "cuda", "cpu", "ref" */
/* Why --backend auto took the CPU, for the log; "" when it did not have to. */
const char *xn_engine_fallback_reason(const xn_engine *engine);

/* What /v2/health/ready reports. */
typedef struct xn_engine_health {
    bool ready;
    bool draining;
    bool device_lost; /* the process should exit non-zero once drained (policy exit) */
    char backend[8];  /* the primary's name now: "cpu" after a loss under policy cpu */
    char reason[200]; /* why not ready, or "" */
} xn_engine_health;
void xn_engine_health_get(xn_engine *engine, xn_engine_health *out);
/* How long the oldest job has waited for a worker; 0: none waits. */
int64_t xn_engine_oldest_wait_ns(xn_engine *engine);
/* While anything is being read in, the engine is not ready; while it is weights, names that the
 * store does not know are XN_ERR_LOADING. */
void xn_engine_set_loading(xn_engine *engine, xn_loading what, bool loading);

/* Pins memory of another's for the devices of the primary pool (xn_backend.h: host_register), which
 * takes milliseconds. XN_ERR_UNSUPPORTED also where the pool needs nothing of the kind, and once
 * its first device is lost. After a failed unpin the addresses must stay what they are for the rest
 * of the process's life. */
xn_status xn_engine_pin(xn_engine *engine, void *memory, size_t bytes, xn_error *error);
xn_status xn_engine_unpin(xn_engine *engine, void *memory, xn_error *error);
/* Whether jobs of that pool may have input and output in pinned memory, with any_pool false: then
 * devices alone touch them, whatever comes of the job. It changes once at most, to false. */
bool xn_engine_uses_pinned(const xn_engine *engine, int pool);

/* Called (from an engine thread) once when a device is lost under policy exit. Set before serving.
 */
void xn_engine_on_fatal(xn_engine *engine, void (*callback)(void *context), void *context);

/* No new admissions; what was admitted goes on. Idempotent, any thread. */
void xn_engine_drain(xn_engine *engine);
/* Waits until nothing is admitted any more, and no canary runs, or until the deadline; true when
 * all is done: then xn_engine_stop waits for no device. */
bool xn_engine_wait_idle(xn_engine *engine, int64_t deadline_ns);
/* Drops what is still queued (status DRAINING), finishes what runs, stops and joins all threads:
 * every done was called when it returns. Idempotent; by the thread that frees the engine. */
void xn_engine_stop(xn_engine *engine);

#endif
