/* http_library.h: what libmicrohttpd does by itself, without asking the server above it: it reads
 * the length of a body and looks for Host, answers what it cannot read with pages of its own
 * (0.9.75 sends the head of some of them twice), receives every byte into its own buffer,
 * leaves a connection to the thread that accepts it, and wakes a thread for each that goes on. All
 * that goes through functions that the library exports, or has from the system, and a shared
 * library calls the program's definition of such a function where there is one. http_library.c
 * defines five of them, so that the length of a body is what our own rules make of it, every answer
 * has our form, bodies go where they belong (direct.c), the threads share the connections
 * (share.c), and one that is to answer several requests is woken once. With a library that was
 * linked otherwise (statically, -Bsymbolic) nothing is replaced, and it behaves as it came. */
#ifndef XN_HTTP_LIBRARY_H
#define XN_HTTP_LIBRARY_H

#include "xn_status.h"

#include <microhttpd.h>
#include <stdbool.h>
#include <sys/socket.h>

/* The answer in place of the library's own for that status, or NULL to keep the library's. */
typedef struct MHD_Response *(*xn_library_refusal)(void *context, struct MHD_Connection *connection,
                                                   unsigned status);

typedef struct xn_library_hooks {
    void *context;
    xn_library_refusal refusal;
    /* In place of recv on any socket, and of accept4, as these. */
    ssize_t (*receive)(void *context, int fd, void *buffer, size_t size, int flags);
    int (*accept)(void *context, int fd, struct sockaddr *address, socklen_t *length, int flags);
} xn_library_hooks;

/* Finds the library's own functions; before all others here. A process has one daemon at a time,
 * whose hooks these are. */
xn_status xn_library_bind(const xn_library_hooks *hooks, xn_error *error);
void xn_library_unbind(void);

/* 1.0 and later read a request's head strictly when told to; before, the reader must look at the
 * bytes himself. Of the library that runs, not of the one it was built with. */
bool xn_library_strict(void);

/* The system's, whatever stands in its place. */
int xn_library_accept(int fd, struct sockaddr *address, socklen_t *length, int flags);

/* MHD_resume_connection. Between hold and send, on the same thread, the wake-ups that it makes are
 * put off: at the end each of the library's threads gets one. */
void xn_library_resume(struct MHD_Connection *connection);
void xn_library_hold_wakes(void);
void xn_library_send_wakes(void);

/* A field of the request, or NULL. */
const char *xn_library_header(struct MHD_Connection *connection, const char *name);
/* Queues an answer of ours. */
enum MHD_Result xn_library_queue(struct MHD_Connection *connection, unsigned status,
                                 struct MHD_Response *response);

#endif
