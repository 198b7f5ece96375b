/* pools.h: the owner of the pools. A pool is one backend with its devices, its queue and its budget
 * of threads. One pool is the primary one, which "auto" means. Here is also what is true of the
 * whole service: whether it drains, what it still loads, why it is lost. */
#ifndef XN_POOLS_H
#define XN_POOLS_H

#include "device.h"
#include "endings.h"
#include "queue.h"

typedef struct xn_pool {
    const xn_backend *backend; /* constant */
    int threads;               /* constant: the budget; 0: runs use no host threads */
    int callers_max;           /* constant: threads that may run a job of their own (callers.h) */
    /* guarded by the engine's lock */
    xn_queue *queue;
    int threads_free;
    int devices_up;      /* 0: the pool is lost */
    int idle;            /* workers that sleep until there is work */
    bool lingering;      /* one of them wakes by itself when the oldest group is due */
    pthread_cond_t work; /* idle workers: work to do, or to stop */
} xn_pool;

/* A run of an asset before it serves (warm_up.c), by one device alone; of the thread that waits for
 * it. Its job is in no queue: the workers of the device look for it first. */
typedef struct xn_warm_up {
    xn_job job;
    int device;
    xn_ticket ticket;
    pthread_cond_t ended;
    /* guarded by the engine's lock */
    bool over; /* the job is, and its memory is free */
    struct xn_warm_up *next;
} xn_warm_up;

typedef struct xn_pools {
    /* constant after creation */
    int count, device_count;
    xn_pool *each;
    xn_engine_device *devices; /* of all pools, those of the first pool first */
    const xn_services *services;
    xn_endings *endings;
    xn_loss_policy loss_policy;
    xn_lock *lock; /* the engine's; guards all below */

    atomic_int primary; /* index of a pool; written with the lock */
    bool draining, stopping;
    unsigned loading;      /* what is still being read in: a sum of xn_loading */
    char lost_reason[160]; /* set once the primary is lost with nothing to take over */
    uint64_t era;          /* programs made before it began are dropped */
    xn_warm_up *warm_ups;  /* under way */
} xn_pools;

xn_status xn_pools_init(xn_pools *pools, int pool_count, int device_count, xn_error *error);
void xn_pools_destroy(xn_pools *pools);

/* The pool of that backend name, or XN_ERR_UNSUPPORTED with what there is. */
xn_status xn_pools_find(const xn_pools *pools, const char *backend, int *pool, xn_error *error);

/* Whether an idle worker is to be woken (by a signal to pool->work, without the lock, which it
 * would only wait for): there is one, and something for it: a batch to take, or a group that waits
 * to fill a batch while no worker lingers. */
bool xn_pools_want_worker_locked(const xn_pools *pools, const xn_pool *pool, int64_t now_ns);
/* The job of a warm-up that waits for that device of the pool, or where it is NULL for any; or
 * NULL.
 */
xn_job *xn_pools_warm_up_locked(const xn_pools *pools, const xn_pool *pool,
                                const xn_engine_device *device);
/* Wakes all workers of all pools, to look at what has changed. */
void xn_pools_wake_all_locked(xn_pools *pools);

/* Whether the service is ready, else why not. Called after anything it depends on changed, show
 * sets the gauge. */
bool xn_pools_ready_locked(const xn_pools *pools, int64_t now_ns, char *reason, size_t size);
void xn_pools_show_ready_locked(xn_pools *pools);

/* A device answered XN_ERR_DEVICE_LOST. That is sticky: nothing on it can work again, and its
 * backend is only called to free things afterwards. Its workers stop; with the last device of a
 * pool the pool is lost. A lost primary is replaced by the next pool that lives
 * (--on-device-loss cpu), or the daemon is to end (exit). Any thread, no lock held; only the first
 * call for a device counts. */
void xn_pools_lose_device(xn_pools *pools, int device, const xn_error *why);

#endif
