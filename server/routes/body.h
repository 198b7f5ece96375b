/* body.h: the memory of a request's body while it arrives.
 *
 * A small body gets a buffer of the pool, and all of it is counted in the request's ticket at once.
 * So is a larger one, as long as the reserved bytes of all bodies are within their limit
 * (xn_ticket_reserve). Any other body gets a mapping of its own, whose pages take no memory before
 * they are written; it is counted in steps, each before its bytes arrive. A body is never copied.
 */
#ifndef XN_BODY_H
#define XN_BODY_H

#include "admission.h"
#include "buffers.h"
#include "thread_pool.h"

typedef struct xn_body {
    unsigned char *memory; /* NULL: none */
    size_t memory_bytes;
    size_t offset;  /* where the body begins */
    size_t length;  /* as announced */
    size_t granted; /* bytes of the body that are counted, and may be written */
    bool mapped;    /* not a buffer of the pool */
    bool missed;    /* the pool had no buffer of its size: closing it adds one */
} xn_body;

/* Room for `length` bytes, `offset` bytes behind a 64-byte boundary, and as many as that boundary
 * asks for behind them. Does not wait: also on an HTTP thread. */
xn_status xn_body_open(size_t length, size_t offset, xn_buffers *buffers, xn_ticket *ticket,
                       xn_body *out, xn_error *error);
/* The same for a body that is written by the daemon, at most `length` bytes of it: pages of its
 * own, of which none are counted yet. */
xn_status xn_body_map(size_t length, size_t offset, xn_body *out, xn_error *error);
/* Makes granted at least `needed`, which is at most the length. */
xn_status xn_body_grow(xn_body *body, size_t needed, xn_ticket *ticket, xn_error *error);
/* Frees the memory: a large mapping on a thread of the pool, or here if pool is NULL. Idempotent.
 * The ticket still counts it. */
void xn_body_close(xn_body *body, xn_buffers *buffers, xn_thread_pool *pool);

/* Unmaps what xn_mem_map gave, more than a little of it on a background thread. */
void xn_unmap_later(void *memory, size_t bytes, xn_thread_pool *pool);

#endif
