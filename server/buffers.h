/* buffers.h: pooled host memory for bodies and outputs: pinned when a GPU serves, so that
 * transfers run at full speed and no pinned allocation happens in the steady state. Power-of-two
 * size classes with free lists; what is kept for reuse is bounded. Thread-safe. */
#ifndef XN_BUFFERS_H
#define XN_BUFFERS_H

#include "xn_backend.h"

typedef struct xn_buffers xn_buffers;

/* device may be NULL: plain memory. keep_bytes: the most memory kept in free lists. */
xn_status xn_buffers_create(const xn_backend *backend, xn_device *device, size_t keep_bytes,
                            xn_buffers **out, xn_error *error);
void xn_buffers_free(xn_buffers *buffers); /* after every buffer came back */

/* At least `bytes` bytes, 64-byte aligned; NULL when there is no memory. */
void *xn_buffers_get(xn_buffers *buffers, size_t bytes);
void xn_buffers_put(xn_buffers *buffers, void *buffer, size_t bytes); /* the same bytes as got */

#endif
