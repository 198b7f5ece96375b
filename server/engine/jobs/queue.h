/* queue.h: the jobs that wait for one pool, in groups that may share a launch: the same asset and
 * equal xn_problem. A plain data structure: no threads, no clock; the engine's mutex guards it.
 *
 * Fair among assets, by work. A group is ready to be launched when the batcher says so: it fills a
 * batch, its oldest job has waited long enough, or a deadline is nearer than that wait. Each asset
 * has a virtual time, which grows by the estimated work of what is taken of it (work.h, and for
 * each batch XN_QUEUE_BATCH_NS). Of the assets that have a ready group, the one with the least
 * virtual time is served, and of equal ones the one whose ready job is oldest; of its ready groups,
 * the one with the oldest job. So an asset with many jobs waiting, or with large ones, does not
 * keep others waiting behind all of them; and where there is only one asset, the oldest is served
 * first.
 *
 * An asset that comes, or comes back, starts at the least virtual time of those that are there, but
 * not before its own: it is served next, or after one batch. Where assets that came like that have
 * been served meanwhile, it starts later, by up to half the work of its first job: else ever new
 * ones (inline weights are an asset each) would keep one that was served once from its next turn.
 * This is start-time fair queueing (Goyal, Vin, Cheng, 1996) with that addition.
 *
 * Jobs and groups are found in O(1); each job costs O(log n) at most, n the number of groups. */
#ifndef XN_QUEUE_H
#define XN_QUEUE_H

#include "job.h"

#define XN_QUEUE_EMPTY INT64_MAX
#define XN_QUEUE_BATCH_NS 10000 /* of the virtual time: a launch, however small */
#define XN_QUEUE_RESTING 1024   /* assets without jobs whose virtual time is remembered, at most */

typedef struct xn_queue xn_queue;

typedef struct xn_batch_policy {
    int64_t max_images; /* >= 1 */
    int64_t delay_ns; /* the linger timer: the longest the oldest job waits for others; 0 = none */
} xn_batch_policy;

/* How many nanoseconds a group with that many images, whose oldest job came at oldest_ns, still
 * waits for other jobs; 0: launch it now. Draining launches at once. Pure. */
int64_t xn_batch_wait_ns(const xn_batch_policy *policy, int64_t images, int64_t oldest_ns,
                         bool draining, int64_t now_ns);

/* depth: how many jobs to expect at most; it sizes the hash table. */
xn_status xn_queue_create(const xn_batch_policy *policy, int64_t depth, xn_queue **out,
                          xn_error *error);
void xn_queue_free(xn_queue *queue); /* NULL-safe; forgets jobs still inside */

/* The job's submitted_ns gives its place; jobs mostly come in that order. Fails only with
 * XN_ERR_NO_MEMORY. */
xn_status xn_queue_push(xn_queue *queue, xn_job *job, xn_error *error);
void xn_queue_remove(xn_queue *queue, xn_job *job);
int64_t xn_queue_count(const xn_queue *queue);
int64_t xn_queue_oldest_ns(const xn_queue *queue); /* its submitted_ns; XN_QUEUE_EMPTY */
xn_job *xn_queue_any(const xn_queue *queue); /* the oldest of its group; NULL: nothing waits */

/* 0: xn_queue_take gives a batch. XN_QUEUE_EMPTY: nothing waits. Else nanoseconds to wait. */
int64_t xn_queue_wait_ns(const xn_queue *queue, bool draining, int64_t now_ns);

/* Takes the batch to launch now: of the group whose turn it is the oldest jobs, as many as fit
 * max_images; a job that exceeds it alone comes alone. Returns them in order, linked by `next`, or
 * NULL when nothing is ready. */
xn_job *xn_queue_take(xn_queue *queue, bool draining, int64_t now_ns, size_t *count);

/* What a batch of that many images adds to its asset's virtual time. */
uint64_t xn_queue_work_ns(const xn_problem *problem, int64_t images);

#endif
