/* document.h: a string builder for small JSON documents and the page of metrics. After a failed
 * allocation appends do nothing and xn_document_take returns NULL. */
#ifndef XN_DOCUMENT_H
#define XN_DOCUMENT_H

#include <stdbool.h>
#include <stddef.h>

typedef struct xn_document {
    char *bytes; /* owned until taken */
    size_t length, capacity;
    bool failed;
} xn_document;

void xn_document_add(xn_document *text, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* As a JSON string with its quotation marks; bytes that are not ASCII become '?'. */
void xn_document_string(xn_document *text, const char *value);
/* The same for UTF-8, whose bytes are not changed. */
void xn_document_text(xn_document *text, const char *value);
/* The text with a NUL behind it; the caller owns it (xn_mem_free). NULL if anything failed. */
char *xn_document_take(xn_document *text, size_t *length);

#endif
