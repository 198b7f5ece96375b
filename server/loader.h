/* loader.h: one background thread for work that may wait on a device and so must not run on an
 * HTTP thread: registering weights. Tasks run in order; the number waiting is bounded by the
 * admission of their requests. */
#ifndef XN_LOADER_H
#define XN_LOADER_H

#include "xn_status.h"

typedef struct xn_loader xn_loader;

typedef struct xn_task {
    void (*run)(struct xn_task *task); /* may free the task */
    struct xn_task *next;
} xn_task;

xn_status xn_loader_create(xn_loader **out, xn_error *error);
void xn_loader_free(xn_loader *loader); /* NULL-safe; runs what is waiting, then joins */
void xn_loader_submit(xn_loader *loader, xn_task *task);

#endif
