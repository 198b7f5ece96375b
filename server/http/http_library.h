/* http_library.h: what libmicrohttpd does by itself, without asking the server above it: it reads
 * the length of a body and looks for Host, and answers what it cannot read with pages of its own
 * (0.9.75 sends the head of some of them twice). Both go through functions that the library
 * exports, and a shared library calls the program's definition of an exported function where there
 * is one. http_library.c defines two of them, so that the length of a body is what our own rules
 * make of it, and every answer has our form. With a library that was linked otherwise (statically,
 * -Bsymbolic) nothing is replaced, and it behaves as it came. */
#ifndef XN_HTTP_LIBRARY_H
#define XN_HTTP_LIBRARY_H

#include "xn_status.h"

#include <microhttpd.h>
#include <stdbool.h>

/* The answer in place of the library's own for that status, or NULL to keep the library's. */
typedef struct MHD_Response *(*xn_library_refusal)(void *context, struct MHD_Connection *connection,
                                                   unsigned status);

/* Finds the library's own functions; before all others here. A process has one daemon at a time:
 * the refusals are its. */
xn_status xn_library_bind(xn_library_refusal refusal, void *context, xn_error *error);
void xn_library_unbind(void);

/* 1.0 and later read a request's head strictly when told to; before, the reader must look at the
 * bytes himself. Of the library that runs, not of the one it was built with. */
bool xn_library_strict(void);

/* A field of the request, or NULL. */
const char *xn_library_header(struct MHD_Connection *connection, const char *name);
/* Queues an answer of ours. */
enum MHD_Result xn_library_queue(struct MHD_Connection *connection, unsigned status,
                                 struct MHD_Response *response);

#endif
