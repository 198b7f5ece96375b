/* log.h: one line an event to stderr or a file, as text or JSON, written with one write(2) so that
 * lines of threads never mix. Never blocks the caller for long; a line that cannot be written is
 * dropped. Never logs keys. */
#ifndef XN_LOG_H
#define XN_LOG_H

#include "log_line.h"
#include "xn_status.h"

#include <stdbool.h>

typedef enum { XN_LOG_TEXT, XN_LOG_JSON } xn_log_format;
typedef enum { XN_LOG_DEBUG, XN_LOG_INFO, XN_LOG_WARN, XN_LOG_ERROR } xn_log_level;

void xn_log_init(xn_log_format format, xn_log_level level);
bool xn_log_enabled(xn_log_level level);
/* From now on to the end of this file, which is made if need be; again the same path for one that
 * was moved aside. On failure all stays as it was. */
xn_status xn_log_open(const char *path, xn_error *error);
/* What xn_log_open would return, without creating the file. */
xn_status xn_log_check(const char *path, xn_error *error);

/* id: the request id, or NULL. Text: "2026-11-21T02:45:01.123Z info  message id=..."; JSON:
 * {"time": "...", "level": "info", "message": "...", "id": "..."}. Control characters and invalid
 * UTF-8 in the message are escaped, so a request cannot forge lines. */
void xn_log(xn_log_level level, const char *id, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

void xn_log_line(const xn_line *line); /* a line that another has built, with its newline */

#endif
