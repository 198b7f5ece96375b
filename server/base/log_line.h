/* log_line.h: one line of a log: its memory, and what may stand in it.
 *
 * What is not plain text is escaped: control characters (C1 and the line separators of Unicode
 * too), invalid UTF-8, direction marks that make a terminal show another text than there is. So no
 * request can forge a line. */
#ifndef XN_LOG_LINE_H
#define XN_LOG_LINE_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

#define XN_LINE_MAX_BYTES 4096
_Static_assert(XN_LINE_MAX_BYTES <= PIPE_BUF, "a pipe must take a line whole");

typedef struct xn_line {
    char bytes[XN_LINE_MAX_BYTES];
    size_t length;
    size_t limit; /* how far the part being written may reach */
    bool full;    /* something did not fit, so nothing after it may follow */
} xn_line;

/* Empties the line; its last `reserve` bytes are kept for what comes after xn_line_rest. */
void xn_line_begin(xn_line *line, size_t reserve);
/* Opens the reserved part; true when the part before it was cut. */
bool xn_line_rest(xn_line *line);

/* All of it or nothing: an escape or a UTF-8 sequence is never cut. */
void xn_line_put(xn_line *line, const char *bytes, size_t length);
void xn_line_text(xn_line *line, const char *text);
void xn_line_print(xn_line *line, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Escapes text. In JSON a reader decodes \u001b and \\xff; in text both are there to be read.
 * extra: further ASCII characters to escape, for ids in text, which a space would end. */
void xn_line_escaped(xn_line *line, const char *text, size_t length, bool json, const char *extra);
void xn_line_time(xn_line *line); /* 2026-11-21T02:45:01.123Z */

#endif
