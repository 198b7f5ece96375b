/* loader.c: see loader.h. */
#include "loader.h"

#include "threads.h"
#include "xn_mem.h"

#include <pthread.h>
#include <stdbool.h>

struct xn_loader {
    pthread_mutex_t lock; /* guards first, last and stopping; never held while a task runs */
    pthread_cond_t wake;
    xn_task *first, **last;
    bool stopping;
    int started;
    pthread_t threads[];
};

static void *work(void *context) {
    xn_loader *loader = context;
    pthread_mutex_lock(&loader->lock);
    for (;;) {
        while (!loader->first && !loader->stopping)
            pthread_cond_wait(&loader->wake, &loader->lock);
        xn_task *task = loader->first;
        if (!task)
            break;
        loader->first = task->next;
        if (!loader->first)
            loader->last = &loader->first;
        pthread_mutex_unlock(&loader->lock);
        task->run(task);
        pthread_mutex_lock(&loader->lock);
    }
    pthread_mutex_unlock(&loader->lock);
    return NULL;
}

xn_status xn_loader_create(int threads, xn_loader **out, xn_error *error) {
    xn_loader *loader =
        xn_mem_zalloc(1, sizeof *loader + (size_t)threads * sizeof *loader->threads);
    if (!loader)
        return xn_fail(error, XN_ERR_NO_MEMORY, NULL, "no memory for the loader");
    loader->last = &loader->first;
    pthread_mutex_init(&loader->lock, NULL);
    pthread_cond_init(&loader->wake, NULL);
    for (; loader->started < threads; loader->started++) {
        xn_status status =
            xn_thread_start(&loader->threads[loader->started], "xn-loader", work, loader, error);
        if (status) {
            xn_loader_free(loader);
            return status;
        }
    }
    *out = loader;
    return XN_OK;
}

void xn_loader_stop(xn_loader *loader) {
    if (!loader)
        return;
    pthread_mutex_lock(&loader->lock);
    loader->stopping = true;
    pthread_cond_broadcast(&loader->wake);
    pthread_mutex_unlock(&loader->lock);
    for (; loader->started; loader->started--)
        pthread_join(loader->threads[loader->started - 1], NULL);
}

void xn_loader_free(xn_loader *loader) {
    if (!loader)
        return;
    xn_loader_stop(loader);
    pthread_cond_destroy(&loader->wake);
    pthread_mutex_destroy(&loader->lock);
    xn_mem_free(loader);
}

static void submit(xn_loader *loader, xn_task *task, bool in_front) {
    pthread_mutex_lock(&loader->lock);
    bool stopping = loader->stopping;
    if (!stopping) {
        xn_task **at = in_front ? &loader->first : loader->last;
        task->next = in_front ? loader->first : NULL;
        *at = task;
        if (!task->next)
            loader->last = &task->next;
        pthread_cond_signal(&loader->wake);
    }
    pthread_mutex_unlock(&loader->lock);
    if (stopping)
        task->run(task);
}

void xn_loader_submit(xn_loader *loader, xn_task *task) {
    submit(loader, task, false);
}

void xn_loader_submit_first(xn_loader *loader, xn_task *task) {
    submit(loader, task, true);
}
