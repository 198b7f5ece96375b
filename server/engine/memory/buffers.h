/* buffers.h: pooled host memory for bodies and outputs: pinned when a GPU serves, so that
 * transfers run at full speed and no pinned allocation happens in the steady state. Size classes
 * with free lists: a class gives what was put last, and what was put longest ago leaves first; what
 * is held and what is kept for reuse is bounded together. Thread-safe. */
#ifndef XN_BUFFERS_H
#define XN_BUFFERS_H

#include "xn_backend.h"

typedef struct xn_buffers xn_buffers;

/* device may be NULL: plain memory. max_bytes: as long as callers hold no more, what they hold and
 * what is kept is at most that. */
xn_status xn_buffers_create(const xn_backend *backend, xn_device *device, size_t max_bytes,
                            xn_buffers **out, xn_error *error);
void xn_buffers_free(xn_buffers *buffers); /* after every buffer came back */

/* What a buffer for that many bytes takes. */
size_t xn_buffers_size(size_t bytes);
/* At least `bytes` bytes, 64-byte aligned; NULL when there is no memory. Where there is none, all
 * that is kept is freed first: the caller holds no lock. */
void *xn_buffers_get(xn_buffers *buffers, size_t bytes);
/* The same for a thread that must not wait: NULL also where the buffer would have to be made and
 * making it takes milliseconds. */
void *xn_buffers_get_quick(xn_buffers *buffers, size_t bytes);
/* Memory that others take of what max_bytes bounds, more or less than before: what is kept makes
 * room for it. */
void xn_buffers_charge(xn_buffers *buffers, int64_t bytes);
void xn_buffers_put(xn_buffers *buffers, void *buffer, size_t bytes); /* the same bytes as got */

/* Gives back to the system what was returned before that time; the bytes of it. The caller holds no
 * lock: freeing pinned memory takes the driver's and milliseconds. */
size_t xn_buffers_trim(xn_buffers *buffers, int64_t returned_before_ns);

#endif
