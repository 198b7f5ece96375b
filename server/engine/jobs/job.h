/* job.h: one request's work for the engine, and what came of it. */
#ifndef XN_JOB_H
#define XN_JOB_H

#include "asset.h"
#include "heap.h"
#include "list.h"
#include "xn_problem.h"

#include <stdatomic.h>

typedef struct xn_job xn_job;

/* What the answer cache did for a job. */
typedef enum {
    XN_LOOKUP_OFF,    /* there is no cache, or it was not asked */
    XN_LOOKUP_BYPASS, /* the answer is too large for it */
    XN_LOOKUP_MISS,
    XN_LOOKUP_STORED, /* it was a miss; the cache has the answer now */
    XN_LOOKUP_HIT /* nothing ran: no batch, no times; device and precision are the stored ones */
} xn_lookup;

typedef enum {
    XN_JOB_QUEUED = 1, /* in its pool's queue and in the deadlines */
    XN_JOB_ENDING,     /* will not run; the watcher calls done */
    XN_JOB_RUNNING,    /* a worker or the waiter has it, until done; in the deadlines */
    XN_JOB_LATE,       /* in a run that passed the deadline; the watcher calls done */
    XN_JOB_LATE_OVER,  /* the same, and the run is over: released follows done */
    XN_JOB_ANSWERED    /* done was called; the end of the run calls released */
} xn_job_state;

/* The submitter fills the first part. From a successful submit on it keeps the memory alive and
 * untouched until `done` is called: exactly once, from an engine thread, never from inside submit
 * or cancel, never with an engine lock held. Where `done` finds in_use set, the deadline has passed
 * and a device still uses the job: then the job, its memory and its asset stay until `released`,
 * which follows that done, once, from an engine thread. */
struct xn_job {
    /* in */
    xn_problem problem;
    int64_t images;
    xn_asset *asset;   /* a reference, the submitter's; held until done */
    const void *input; /* as xn_batch_item */
    void *output;
    int pool;            /* from xn_engine_pool */
    bool any_pool;       /* the request said "auto": may move to the pool that is primary then */
    int64_t deadline_ns; /* monotonic; not started after it, and not gone on with */
    const char *id;      /* request id for logs, borrowed */
    uint64_t tenant;     /* jobs with the same number may share answers */
    void (*done)(xn_job *job);
    void (*released)(xn_job *job);
    void *context;
    /* out, valid in done */
    xn_status status; /* XN_OK, DEADLINE, CANCELLED, DRAINING, DEVICE_LOST, DEVICE_MEMORY, ... */
    xn_error error;
    bool in_use;            /* set before done: `released` follows */
    int device;             /* index for xn_engine_device_id; -1 if it never ran */
    xn_precision precision; /* what the launch computed products from */
    int64_t batch_requests, batch_images;
    /* queue time = started - submitted; started = finished for a job that never ran */
    int64_t submitted_ns, started_ns, finished_ns;
    xn_run_times times; /* of the whole batch */
    /* of xn_engine_cache_lookup and xn_engine_cache_insert, else zeroes */
    xn_lookup lookup;
    xn_cache_ticket ticket;
    int lookup_pool;  /* whose answer was looked for */
    int64_t cache_ns; /* time that both took */
    /* the engine's own */
    xn_job *next;     /* in a list of jobs that left the queue */
    xn_list in_group; /* by arrival */
    xn_list in_queue; /* by submitted_ns */
    struct xn_group *group;
    uint64_t arrival;       /* the order of jobs with the same submitted_ns */
    xn_heap_node deadline;  /* in the heap of deadlines */
    struct xn_queue *queue; /* that it waits in */
    atomic_int cancelled;   /* the xn_status it was cancelled with while it ran, or XN_OK */
    xn_job_state state;
    struct xn_caller_stream *caller; /* callers.c: has begun to run it; or NULL */
};

#endif
