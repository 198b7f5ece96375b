/* thread_pool.h: a few threads for work that must not run on an HTTP thread or a worker: what grows
 * with a large body or answer (decoding, packing, writing JSON, giving memory back), and
 * registering weights, which waits for devices. Tasks start in the order of submission; several run
 * at once. */
#ifndef XN_THREAD_POOL_H
#define XN_THREAD_POOL_H

#include "list.h"
#include "xn_status.h"

/* Threads of the pool that loads models: the number that load side by side. */
enum { XN_MODEL_POOL_THREADS = 4 };

typedef struct xn_thread_pool xn_thread_pool;

typedef struct xn_task xn_task;
struct xn_task {
    void (*run)(xn_task *task); /* run owns the task from then on */
    xn_list node;               /* the pool's own */
};

xn_status xn_thread_pool_create(int threads, xn_thread_pool **out, xn_error *error);
/* Runs what is left and ends the threads. A task that is submitted later runs on the thread that
 * submits it. */
void xn_thread_pool_stop(xn_thread_pool *pool); /* NULL-safe, idempotent */
void xn_thread_pool_free(xn_thread_pool *pool); /* NULL-safe; stops */
void xn_thread_pool_submit(xn_thread_pool *pool, xn_task *task);
/* In front of all waiting tasks: for a short task that frees what others may wait for. */
void xn_thread_pool_submit_first(xn_thread_pool *pool, xn_task *task);

#endif
