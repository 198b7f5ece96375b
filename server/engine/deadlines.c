/* deadlines.c: see deadlines.h. */
#include "deadlines.h"

#include "arrays.h"
#include "xn_mem.h"

#include <assert.h>

void xn_deadlines_init(xn_deadlines *deadlines) {
    *deadlines = (xn_deadlines){0};
}

void xn_deadlines_clear(xn_deadlines *deadlines) {
    xn_mem_free(deadlines->heap);
    *deadlines = (xn_deadlines){0};
}

static void place(xn_deadlines *deadlines, size_t slot, xn_job *job) {
    deadlines->heap[slot] = job;
    job->deadline_slot = slot;
}

static void sift_up(xn_deadlines *deadlines, size_t slot, xn_job *job) {
    while (slot > 0) {
        size_t parent = (slot - 1) / 2;
        if (deadlines->heap[parent]->deadline_ns <= job->deadline_ns)
            break;
        place(deadlines, slot, deadlines->heap[parent]);
        slot = parent;
    }
    place(deadlines, slot, job);
}

static void sift_down(xn_deadlines *deadlines, size_t slot, xn_job *job) {
    for (;;) {
        size_t child = 2 * slot + 1;
        if (child >= deadlines->count)
            break;
        xn_job *const *heap = deadlines->heap;
        if (child + 1 < deadlines->count && heap[child + 1]->deadline_ns < heap[child]->deadline_ns)
            child++;
        if (job->deadline_ns <= heap[child]->deadline_ns)
            break;
        place(deadlines, slot, heap[child]);
        slot = child;
    }
    place(deadlines, slot, job);
}

/* Room for one more beside what is reserved. */
static xn_status grow(xn_deadlines *deadlines, xn_error *error) {
    enum { FIRST_CAPACITY = 256 };
    xn_job **heap = xn_array_grow(deadlines->heap, deadlines->count + deadlines->reserved,
                                  &deadlines->capacity, sizeof(xn_job *), FIRST_CAPACITY);
    if (!heap)
        return xn_fail(error, XN_ERR_NO_MEMORY, NULL, "no memory to queue the request");
    deadlines->heap = heap;
    return XN_OK;
}

xn_status xn_deadlines_reserve(xn_deadlines *deadlines, size_t count, xn_error *error) {
    xn_status status = XN_OK;
    for (; status == XN_OK && deadlines->reserved < count; deadlines->reserved++)
        status = grow(deadlines, error);
    return status;
}

void xn_deadlines_add_reserved(xn_deadlines *deadlines, xn_job *job) {
    assert(deadlines->count < deadlines->capacity);
    sift_up(deadlines, deadlines->count++, job);
}

xn_status xn_deadlines_add(xn_deadlines *deadlines, xn_job *job, xn_error *error) {
    xn_status status = grow(deadlines, error);
    if (status == XN_OK)
        sift_up(deadlines, deadlines->count++, job);
    return status;
}

void xn_deadlines_remove(xn_deadlines *deadlines, xn_job *job) {
    size_t slot = job->deadline_slot;
    assert(slot < deadlines->count && deadlines->heap[slot] == job);
    xn_job *last = deadlines->heap[--deadlines->count];
    if (last == job)
        return;
    if (last->deadline_ns < job->deadline_ns)
        sift_up(deadlines, slot, last);
    else
        sift_down(deadlines, slot, last);
}

xn_job *xn_deadlines_first(const xn_deadlines *deadlines) {
    return deadlines->count ? deadlines->heap[0] : NULL;
}
