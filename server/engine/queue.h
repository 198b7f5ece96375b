/* queue.h: the jobs that wait for one pool, in groups that may share a launch: the same asset and
 * equal xn_problem. A plain data structure: no threads, no clock; the engine's mutex guards it.
 *
 * Every job is in two lists: the queue's, in order of arrival, and its group's. So the oldest job
 * names the oldest group, whatever was taken or cancelled before, and leaving is O(1). Groups are
 * found by a hash of their key. A group that need not wait for more company, because it fills a
 * batch or because a deadline is nearer than the batch delay, is also in the list of ripe groups:
 * when the oldest group is still waiting for company, only a ripe one can be launched. */
#ifndef XN_QUEUE_H
#define XN_QUEUE_H

#include "batcher.h"
#include "job.h"

#define XN_QUEUE_EMPTY INT64_MAX

typedef struct xn_queue xn_queue;

/* depth: how many jobs to expect at most; it sizes the hash table. */
xn_status xn_queue_create(const xn_batch_policy *policy, int64_t depth, xn_queue **out,
                          xn_error *error);
void xn_queue_free(xn_queue *queue); /* NULL-safe; forgets jobs still inside */

/* The job's submitted_ns gives its place; jobs mostly come in that order. Fails only with
 * XN_ERR_NO_MEMORY. */
xn_status xn_queue_push(xn_queue *queue, xn_job *job, xn_error *error);
void xn_queue_remove(xn_queue *queue, xn_job *job);
int64_t xn_queue_count(const xn_queue *queue);
xn_job *xn_queue_oldest(const xn_queue *queue); /* or NULL */

/* 0: xn_queue_take gives a batch. XN_QUEUE_EMPTY: nothing waits. Else nanoseconds to wait. */
int64_t xn_queue_wait_ns(const xn_queue *queue, bool draining, int64_t now_ns);

/* Takes the batch to launch now: the oldest group that is ready; of it the oldest jobs, as many as
 * fit max_images; a job that exceeds it alone comes alone. Returns them in order, linked by
 * `next`, or NULL when nothing is ready. */
xn_job *xn_queue_take(xn_queue *queue, bool draining, int64_t now_ns, size_t *count);

#endif
