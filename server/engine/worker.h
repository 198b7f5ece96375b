/* worker.h: one thread with one runner: takes batches out of its pool's queue and runs them.
 *
 * Waking is bounded: a submit wakes at most one worker, and a worker that takes a batch wakes
 * another when something is left. While the oldest group waits to fill a batch, one idle worker
 * lingers: it sleeps until that group is due; the others sleep until they are woken. */
#ifndef XN_WORKER_H
#define XN_WORKER_H

#include "runner.h"

typedef struct xn_worker {
    xn_runner runner;
    xn_pools *pools;
    xn_pool *pool;
    int64_t max_batch_images;
    /* guarded by the engine's lock */
    bool idle;       /* it sleeps on pool->work, and pool->idle counts it */
    bool lingers;    /* it is the one of pool->lingering */
    int64_t rest_ns; /* when its last run ended */
    xn_loop loop;
} xn_worker;

xn_status xn_worker_init(xn_worker *worker, xn_pools *pools, xn_engine_device *device,
                         int64_t max_batch_images, xn_error *error);
/* number: for the thread's name. */
xn_status xn_worker_start(xn_worker *worker, int number, xn_error *error);

/* Its step (loop.h); state: the worker. */
int64_t xn_worker_step(void *state, int64_t now_ns);

/* Host threads a batch of that many images can use, 1 .. limit. Pure. */
int xn_worker_threads(const xn_problem *problem, int64_t images, int limit);

#endif
