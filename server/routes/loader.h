/* loader.h: a few threads for work that must not run on an HTTP thread or a worker: what grows with
 * a large body or answer (decoding, packing, writing JSON, giving memory back), and registering
 * weights, which waits for devices. Tasks start in the order of submission; several run at once. */
#ifndef XN_LOADER_H
#define XN_LOADER_H

#include "xn_status.h"

/* Threads of the loader that loads models: so many load side by side. */
enum { XN_LOADER_OF_MODELS = 4 };

typedef struct xn_loader xn_loader;

typedef struct xn_task xn_task;
struct xn_task {
    void (*run)(xn_task *task); /* the task is run's from then on */
    xn_task *next;              /* the loader's own */
};

xn_status xn_loader_create(int threads, xn_loader **out, xn_error *error);
/* Runs what is left and ends the threads; what is submitted later runs on its submitter's. */
void xn_loader_stop(xn_loader *loader); /* NULL-safe, idempotent */
void xn_loader_free(xn_loader *loader); /* NULL-safe; stops */
void xn_loader_submit(xn_loader *loader, xn_task *task);
/* In front of all that wait: for a task that is short and gives back what others may wait for. */
void xn_loader_submit_first(xn_loader *loader, xn_task *task);

#endif
