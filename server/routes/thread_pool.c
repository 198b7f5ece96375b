/* thread_pool.c: see thread_pool.h. */
#include "thread_pool.h"

#include "threads.h"
#include "xn_mem.h"

#include <pthread.h>
#include <stdbool.h>

struct xn_thread_pool {
    pthread_mutex_t lock; /* guards tasks and stopping; never held while a task runs */
    pthread_cond_t wake;
    xn_list tasks;
    bool stopping;
    int started;
    pthread_t threads[];
};

static void *work(void *context) {
    xn_thread_pool *pool = context;
    pthread_mutex_lock(&pool->lock);
    for (;;) {
        while (xn_list_is_empty(&pool->tasks) && !pool->stopping)
            pthread_cond_wait(&pool->wake, &pool->lock);
        xn_list *first = xn_list_take_first(&pool->tasks);
        if (!first)
            break;
        pthread_mutex_unlock(&pool->lock);
        XN_ITEM(first, xn_task, node)->run(XN_ITEM(first, xn_task, node));
        pthread_mutex_lock(&pool->lock);
    }
    pthread_mutex_unlock(&pool->lock);
    return NULL;
}

xn_status xn_thread_pool_create(int threads, xn_thread_pool **out, xn_error *error) {
    xn_thread_pool *pool = xn_mem_zalloc(1, sizeof *pool + (size_t)threads * sizeof *pool->threads);
    if (!pool)
        return xn_fail(error, XN_ERR_NO_MEMORY, NULL, "no memory for background threads");
    xn_list_init(&pool->tasks);
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->wake, NULL);
    for (; pool->started < threads; pool->started++) {
        xn_status status =
            xn_thread_start(&pool->threads[pool->started], "xn-background", work, pool, error);
        if (status) {
            xn_thread_pool_free(pool);
            return status;
        }
    }
    *out = pool;
    return XN_OK;
}

void xn_thread_pool_stop(xn_thread_pool *pool) {
    if (!pool)
        return;
    pthread_mutex_lock(&pool->lock);
    pool->stopping = true;
    pthread_cond_broadcast(&pool->wake);
    pthread_mutex_unlock(&pool->lock);
    for (; pool->started; pool->started--)
        pthread_join(pool->threads[pool->started - 1], NULL);
}

void xn_thread_pool_free(xn_thread_pool *pool) {
    if (!pool)
        return;
    xn_thread_pool_stop(pool);
    pthread_cond_destroy(&pool->wake);
    pthread_mutex_destroy(&pool->lock);
    xn_mem_free(pool);
}

static void submit(xn_thread_pool *pool, xn_task *task, bool in_front) {
    pthread_mutex_lock(&pool->lock);
    bool stopping = pool->stopping;
    if (!stopping) {
        (in_front ? xn_list_add_first : xn_list_add_last)(&pool->tasks, &task->node);
        pthread_cond_signal(&pool->wake);
    }
    pthread_mutex_unlock(&pool->lock);
    if (stopping)
        task->run(task);
}

void xn_thread_pool_submit(xn_thread_pool *pool, xn_task *task) {
    submit(pool, task, false);
}

void xn_thread_pool_submit_first(xn_thread_pool *pool, xn_task *task) {
    submit(pool, task, true);
}
