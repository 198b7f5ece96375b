/* deadlines.h: jobs that wait or run, by deadline: a binary heap, so that the next one to expire is
 * known and any job leaves in O(log n). A plain data structure; the engine's mutex guards it. */
#ifndef XN_DEADLINES_H
#define XN_DEADLINES_H

#include "job.h"

typedef struct xn_deadlines {
    xn_job **heap; /* heap[i]->deadline_slot == i; no child before its parent */
    size_t count, capacity;
    size_t reserved; /* so many more can be added at any time, by add_reserved */
} xn_deadlines;

void xn_deadlines_init(xn_deadlines *deadlines);
void xn_deadlines_clear(xn_deadlines *deadlines); /* frees the heap */

/* Keeps room for so many that add_reserved adds, and that are in the heap at a time. */
xn_status xn_deadlines_reserve(xn_deadlines *deadlines, size_t count, xn_error *error);
void xn_deadlines_add_reserved(xn_deadlines *deadlines, xn_job *job);
xn_status xn_deadlines_add(xn_deadlines *deadlines, xn_job *job, xn_error *error);
void xn_deadlines_remove(xn_deadlines *deadlines, xn_job *job);
/* The job whose deadline is the earliest, or NULL. */
xn_job *xn_deadlines_first(const xn_deadlines *deadlines);

#endif
