/* access_log.h: one line a request, when it is over, to where the log goes.
 *
 *   2026-11-21T02:45:01.123Z access 10.0.0.7:53422 "POST /conv" 200 in=658 out=656 ms=3.2 id=a
 *   {"time": "...", "level": "access", "client": "10.0.0.7:53422", "method": "POST",
 *    "path": "/conv", "status": 200, "bytes_in": 658, "bytes_out": 656, "ms": 3.212,
 *    "delivered": true, "id": "a"}
 *
 * behind the id, of a request that belongs to a trace: trace=..., "trace_id": "...".
 *
 * status 0: the connection was closed without an answer. Bytes are those of bodies: what was read
 * of the request's, the length of the answer's. "cut" at the end of a line, or "delivered": false:
 * the client did not take all of the answer. ms: from the request line to the last byte handed to
 * the system. The path has no query. Lines that cannot be written are dropped and counted as those
 * of the log are. */
#ifndef XN_ACCESS_LOG_H
#define XN_ACCESS_LOG_H

#include "config.h"
#include "http.h"

/* status, delivered: as the finished hook of xn_http_handler has them. */
void xn_access_log(xn_access_format format, const xn_request *request, int status, bool delivered);

#endif
