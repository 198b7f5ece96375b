/* plans.c: see plans.h. A short array, most recently used first: a worker meets few geometries, and
 * a hash in front of each comparison keeps the scan cheap. */
#include "plans.h"

#include "xn_mem.h"

#include <string.h>

typedef struct slot {
    int64_t capacity;
    xn_problem problem;
    xn_program *program;
} slot;

struct xn_plans {
    const xn_backend *backend;
    xn_stream *stream;
    int64_t max_batch_images;
    int max_plans, count;
    slot slots[]; /* [0, count), most recently used first */
};

int64_t xn_plans_capacity(int64_t images, int64_t max_batch_images) {
    if (images >= max_batch_images)
        return images;
    int64_t capacity = 1;
    while (capacity < images)
        capacity *= 2;
    return capacity < max_batch_images ? capacity : max_batch_images;
}

xn_status xn_plans_create(const xn_backend *backend, xn_stream *stream, int max_plans,
                          int64_t max_batch_images, xn_plans **out, xn_error *error) {
    xn_plans *plans = xn_mem_alloc(sizeof *plans + (size_t)max_plans * sizeof(slot));
    if (!plans)
        return xn_fail(error, XN_ERR_NO_MEMORY, NULL, "no memory for a cache of %d plans",
                       max_plans);
    *plans = (xn_plans){.backend = backend,
                        .stream = stream,
                        .max_batch_images = max_batch_images,
                        .max_plans = max_plans};
    *out = plans;
    return XN_OK;
}

void xn_plans_trim(xn_plans *plans) {
    while (plans->count > 0)
        xn_program_free(plans->slots[--plans->count].program);
}

void xn_plans_free(xn_plans *plans) {
    if (!plans)
        return;
    xn_plans_trim(plans);
    xn_mem_free(plans);
}

static int find(const xn_plans *plans, const xn_problem *problem, int64_t capacity) {
    for (int i = 0; i < plans->count; i++) {
        const slot *s = &plans->slots[i];
        if (s->capacity == capacity && xn_problem_equal(&s->problem, problem))
            return i;
    }
    return -1;
}

/* Moves [0, at) back by one and puts the slot in front. */
static void put_first(xn_plans *plans, int at, slot first) {
    memmove(&plans->slots[1], &plans->slots[0], (size_t)at * sizeof(slot));
    plans->slots[0] = first;
}

static xn_status make(xn_plans *plans, const xn_problem *problem, int64_t capacity,
                      xn_error *error) {
    slot made = {.capacity = capacity, .problem = *problem};
    /* Room first: the memory of the plan that leaves may be what the new one needs. */
    if (plans->count == plans->max_plans)
        xn_program_free(plans->slots[--plans->count].program);
    xn_status status =
        xn_program_create(plans->backend, plans->stream, problem, capacity, &made.program, error);
    if (status == XN_OK)
        put_first(plans, plans->count++, made);
    return status;
}

xn_status xn_plans_get(xn_plans *plans, const xn_problem *problem, int64_t images, xn_program **out,
                       xn_error *error) {
    int64_t capacity = xn_plans_capacity(images, plans->max_batch_images);
    int at = find(plans, problem, capacity);
    if (at < 0)
        at = find(plans, problem, images);
    if (at > 0) {
        put_first(plans, at, plans->slots[at]);
    } else if (at < 0) {
        xn_error first;
        xn_status status = make(plans, problem, capacity, &first);
        /* What rounding up asked for in vain, the batch itself may still get. */
        if (status == XN_ERR_DEVICE_MEMORY && capacity > images)
            status = make(plans, problem, images, &first);
        if (status != XN_OK) {
            if (error)
                *error = first;
            return status;
        }
    }
    *out = plans->slots[0].program;
    return XN_OK;
}
