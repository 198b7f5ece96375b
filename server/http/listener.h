/* listener.h: the socket that connections come in by: a socket of our own instead of the HTTP
 * library's, so that a failure names the address and the cause. */
#ifndef XN_LISTENER_H
#define XN_LISTENER_H

#include "xn_status.h"

#include <stdbool.h>
#include <sys/socket.h>

/* listen_on: a numeric address. port: 0 takes any; *actual is the one it is. */
xn_status xn_listener_open(const char *listen_on, int port, int *out, int *actual, xn_error *error);
/* Whether the address could be listened on. A port that is in use passes: a check beside the daemon
 * that uses it finds nothing wrong. */
xn_status xn_listener_check(const char *listen_on, int port, xn_error *error);

/* No new connection: the kernel drops the first segment (SYN) of any that would be opened, so that
 * its sender tries again and is refused once the socket is closed. Shutting the socket down instead
 * would reset the connections that wait in it to be accepted, with the requests that they sent. The
 * segments that end a handshake still pass: their senders believe that they were let in. */
void xn_listener_refuse(int listener);
/* Whether connections wait to be accepted. */
bool xn_listener_waits(int listener);

/* A thread that accepts connections. add gets each, with O_NONBLOCK and O_CLOEXEC, and owns the
 * socket from then on. */
typedef struct xn_acceptor xn_acceptor;
typedef void (*xn_acceptor_add)(void *context, int fd, const struct sockaddr *address,
                                socklen_t length);
xn_status xn_acceptor_start(int listener, xn_acceptor_add add, void *context, xn_acceptor **out,
                            xn_error *error);
/* Shuts the listener down, so that new connections are refused. NULL-safe. */
void xn_acceptor_stop(xn_acceptor *acceptor);

#endif
