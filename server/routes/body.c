/* body.c: see body.h. */
#include "body.h"

#include "xn_mem.h"

#define SMALL_BYTES ((size_t)64 << 10) /* counted whole, always */
#define STEP_BYTES ((size_t)256 << 10) /* the step in which a mapped body is counted */
#define INLINE_UNMAP_BYTES ((size_t)1 << 20)

static xn_status take_buffer(xn_body *body, xn_buffers *buffers, xn_error *error) {
    body->memory = xn_buffers_get(buffers, body->memory_bytes);
    if (!body->memory)
        return xn_fail(error, XN_ERR_NO_MEMORY, NULL, "no memory for a body of %zu bytes",
                       body->length);
    body->granted = body->length;
    return XN_OK;
}

static xn_status map(xn_body *body, xn_error *error) {
    body->memory = xn_mem_map(body->memory_bytes);
    if (!body->memory)
        return xn_fail(error, XN_ERR_NO_MEMORY, NULL, "no memory for a body of %zu bytes",
                       body->length);
    body->mapped = true;
    return XN_OK;
}

static xn_status map_pages(xn_body *body, xn_ticket *ticket, xn_error *error) {
    xn_status status = map(body, error);
    return status || ticket->reserved ? status : xn_body_grow(body, SMALL_BYTES, ticket, error);
}

xn_status xn_body_map(size_t length, size_t offset, xn_body *out, xn_error *error) {
    *out = (xn_body){.length = length, .offset = offset};
    out->memory_bytes = length + 2 * XN_MEM_ALIGNMENT;
    return map(out, error);
}

xn_status xn_body_open(size_t length, size_t offset, xn_buffers *buffers, xn_ticket *ticket,
                       xn_body *out, xn_error *error) {
    xn_body body = {.length = length, .offset = offset};
    body.memory_bytes = length + 2 * XN_MEM_ALIGNMENT;
    size_t whole = xn_buffers_size(body.memory_bytes);
    xn_status status = XN_OK;
    if (length <= SMALL_BYTES) {
        status = xn_ticket_grow(ticket, whole, error);
        if (!status)
            status = take_buffer(&body, buffers, error);
    } else if (!xn_ticket_reserve(ticket, whole)) {
        status = map_pages(&body, ticket, error);
    } else if ((body.memory = xn_buffers_get_quick(buffers, body.memory_bytes))) {
        body.granted = length;
    } else {
        status = map_pages(&body, ticket, error);
        body.granted = length;
        body.missed = true;
    }
    *out = body;
    return status;
}

xn_status xn_body_grow(xn_body *body, size_t needed, xn_ticket *ticket, xn_error *error) {
    if (needed <= body->granted)
        return XN_OK;
    size_t target =
        body->length - body->granted > STEP_BYTES ? body->granted + STEP_BYTES : body->length;
    if (!body->granted && target > SMALL_BYTES) /* the first step is a small one */
        target = SMALL_BYTES;
    if (target < needed)
        target = needed;
    xn_status status = xn_ticket_grow(ticket, target - body->granted, error);
    if (!status)
        body->granted = target;
    return status;
}

/* ---- giving back ---- */

typedef struct {
    xn_task task; /* first: the task pointer is cast back */
    size_t bytes;
    xn_buffers *warmed; /* the pool that gets a buffer of as many bytes instead, or NULL */
} unmapping;            /* in the first bytes of the mapping itself */

static void run_unmap(xn_task *task) {
    unmapping in = *(unmapping *)task;
    xn_mem_unmap(task, in.bytes);
    if (in.warmed)
        xn_buffers_put(in.warmed, xn_buffers_get(in.warmed, in.bytes), in.bytes);
}

static void unmap(void *memory, size_t bytes, xn_buffers *warmed, xn_thread_pool *pool) {
    unmapping *in = memory;
    *in = (unmapping){.task.run = run_unmap, .bytes = bytes, .warmed = warmed};
    if (bytes > INLINE_UNMAP_BYTES && pool)
        xn_thread_pool_submit_first(pool, &in->task); /* no ticket counts it any more */
    else
        run_unmap(&in->task);
}

void xn_unmap_later(void *memory, size_t bytes, xn_thread_pool *pool) {
    unmap(memory, bytes, NULL, pool);
}

void xn_body_close(xn_body *body, xn_buffers *buffers, xn_thread_pool *pool) {
    if (!body->memory)
        return;
    if (body->mapped)
        unmap(body->memory, body->memory_bytes, body->missed ? buffers : NULL, pool);
    else
        xn_buffers_put(buffers, body->memory, body->memory_bytes);
    body->memory = NULL;
}
