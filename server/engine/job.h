/* job.h: one request's work for the engine, and what came of it. */
#ifndef XN_JOB_H
#define XN_JOB_H

#include "asset.h"
#include "xn_problem.h"

#include <stdatomic.h>

typedef struct xn_job xn_job;

/* What the cache of answers did for a job. */
typedef enum {
    XN_RECALL_OFF,    /* there is none, or it was not asked */
    XN_RECALL_BYPASS, /* too large for it */
    XN_RECALL_MISS,
    XN_RECALL_STORED, /* a miss, but it has the answer now */
    XN_RECALL_HIT /* nothing ran: no batch and no times; device and precision are those of then */
} xn_recall;

/* The submitter fills the first part, keeps the memory alive and untouched
 * from a successful submit until `done` is called, exactly once, from an engine thread (never from
 * inside submit or cancel; never with an engine lock held). Where `done` finds in_use set, the
 * deadline has passed and a device is still at the job: then the job, its memory and its asset stay
 * until `released`, which follows that done, once, from an engine thread. */
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
    uint64_t tenant;     /* who may share answers with it: those with the same number */
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
    /* of xn_engine_recall and xn_engine_keep, else zeroes */
    xn_recall recall;
    xn_cache_ticket ticket;
    int recall_pool;   /* whose answer was looked for */
    int64_t recall_ns; /* time that both took */
    /* the engine's own */
    xn_job *next, *previous; /* in its pool's order of arrival, or a list of taken ones */
    xn_job *group_next, *group_previous; /* in its group's */
    struct xn_group *group;
    uint64_t arrival;     /* the order of jobs with the same submitted_ns */
    size_t deadline_slot; /* in the heap of deadlines */
    atomic_int unwanted;  /* the xn_status it was cancelled with while it ran, or XN_OK */
    int state;
    struct xn_worker *caller; /* inline.c: has begun to run it; or NULL */
};

#endif
