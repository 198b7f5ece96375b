/* text.h: growing text for the small JSON documents the daemon writes itself. A failed allocation
 * sticks: later appends do nothing and xn_text_take returns NULL. */
#ifndef XN_TEXT_H
#define XN_TEXT_H

#include <stdbool.h>
#include <stddef.h>

typedef struct xn_text {
    char *bytes; /* owned until taken */
    size_t length, capacity;
    bool failed;
} xn_text;

void xn_text_append(xn_text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* As a JSON string with its quotation marks; bytes that are not ASCII become '?'. */
void xn_text_append_json(xn_text *text, const char *value);
/* The text, terminated, now the caller's (xn_mem_free); NULL if anything failed. */
char *xn_text_take(xn_text *text, size_t *length);

#endif
