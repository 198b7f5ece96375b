/* endings.h: the owner of deadlines, and of jobs that will not run: expired, cancelled, or without
 * a device. Such a job leaves its queue under the lock, and the watcher, a thread, calls its `done`
 * without the lock. The watcher does so too for a job whose deadline passes in a run: a device may
 * hang, and a run cannot be stopped. The device may still use the job's memory then, so the
 * submitter has it back (`released`) only when the run is over.
 *
 * The watcher sleeps until the earliest deadline, so that a job expires on time however busy the
 * workers are. A submit wakes it only for an earlier deadline: a steady load hardly ever does. */
#ifndef XN_ENDINGS_H
#define XN_ENDINGS_H

#include "job.h"
#include "lock.h"
#include "loop.h"
#include "metrics.h"

typedef struct xn_endings {
    xn_lock *lock; /* the engine's; guards all below */
    xn_metrics *metrics;
    xn_heap deadlines;    /* of jobs that wait or run */
    xn_job *first, *last; /* jobs to end, linked by next */
    void (*on_fatal)(void *context);
    void *on_fatal_context;
    bool fatal_pending;  /* on_fatal is still to be called */
    bool closed;         /* nothing more will come: the watcher ends when it has nothing to do */
    pthread_cond_t wake; /* the watcher: there is something for it */
    xn_loop watcher;
} xn_endings;

void xn_endings_init(xn_endings *endings, xn_lock *lock);
void xn_endings_destroy(xn_endings *endings); /* after close */
xn_status xn_endings_start(xn_endings *endings, xn_metrics *metrics, xn_error *error);
/* Ends what is left to end, then the watcher. Idempotent; no lock held. */
void xn_endings_close(xn_endings *endings);

/* on_fatal is called once, by the watcher, after fail; also where fail came before. No lock held
 * for on_fatal, the lock for fail. */
void xn_endings_on_fatal(xn_endings *endings, void (*callback)(void *context), void *context);
void xn_endings_fail_locked(xn_endings *endings);

/* Watches the job's deadline from now on, until it is ended or settled. */
void xn_endings_watch_locked(xn_endings *endings, xn_job *job);
/* Takes a queued job out of its queue; the watcher will call its done with that status. Of
 * DEVICE_LOST lost_reason says why, or is "". */
void xn_endings_end_locked(xn_endings *endings, xn_job *job, xn_status status,
                           const char *lost_reason);
/* Ends every job whose deadline has come: queued ones leave the queue; those in a run are answered,
 * and keep their memory until the run is over. */
void xn_endings_expire_locked(xn_endings *endings, int64_t now_ns);

/* A run is over. Those of its jobs that are still to be told so come first in jobs; returns how
 * many. *late: those that were answered before, linked by next; for xn_endings_release. */
size_t xn_endings_settle(xn_endings *endings, xn_job **jobs, size_t count, xn_job **late);
void xn_endings_release(xn_job *late);

/* The watcher's step (loop.h); state: the endings. */
int64_t xn_endings_step(void *state, int64_t now_ns);

#endif
