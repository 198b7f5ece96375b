/* log.h: one line an event to stderr, as text or JSON, written with one write(2) so that lines of
 * threads never mix. Never blocks the caller for long, never fails visibly, never logs keys. */
#ifndef XN_LOG_H
#define XN_LOG_H

#include "config.h"

void xn_log_init(xn_log_format format, xn_log_level level);
bool xn_log_enabled(xn_log_level level);

/* id: the request id, or NULL. Text: "2026-11-21T02:45:01.123Z info  message id=..."; JSON:
 * {"time": "...", "level": "info", "message": "...", "id": "..."}. Control characters and invalid
 * UTF-8 in the message are escaped, so a request cannot forge lines. */
void xn_log(xn_log_level level, const char *id, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
