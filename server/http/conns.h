/* conns.h: every open connection and its deadlines. libmicrohttpd's own timeout is for silence
 * only, is not a deadline, and is off while a connection is suspended; so one watcher thread looks
 * at all connections a few times a second: headers or bodies that take too long, idle ones, readers
 * that take too little of an answer, and (by polling the socket) clients that hung up while their
 * request was received or suspended. It never closes a descriptor of the library's, it shuts the
 * socket down and lets the library notice.
 *
 * A suspended request whose client ended its own direction (a half-close) is answered: only a reset
 * is a hang-up there.
 *
 * Lingering close: closing a socket with unread bytes sends a reset, and the reset may discard an
 * answer that the client has not read yet. So a connection that was answered in the middle of a
 * body leaves a duplicate of its socket here, which is read and discarded for a moment, until the
 * client closes. */
#ifndef XN_CONNS_H
#define XN_CONNS_H

#include "admission.h"
#include "list.h"

#include <pthread.h>
#include <stdbool.h>

typedef struct xn_conns xn_conns;

typedef enum {
    XN_PHASE_NEW,     /* accepted, nothing of a request seen */
    XN_PHASE_IDLE,    /* between requests */
    XN_PHASE_HEADERS, /* the request line came */
    XN_PHASE_BODY,
    XN_PHASE_BUSY,      /* being handled */
    XN_PHASE_SUSPENDED, /* another thread works on the request */
    XN_PHASE_SENDING
} xn_phase;

typedef struct xn_conn {
    int fd;               /* open as long as the connection is in the list */
    bool tls;             /* no raw bytes may be written */
    xn_client *address;   /* the HTTP thread's, like the next two */
    void *memory;         /* of its requests, one at a time */
    void *data;           /* xn_request_connection_data */
    bool linger;          /* the HTTP thread's: the client's bytes were not all read */
    pthread_mutex_t lock; /* guards the fields below; taken after xn_conns' lock, before none */
    xn_phase phase;
    int64_t since_ns;            /* when the phase began */
    int64_t ended_ns;            /* when the end of the client's stream was first seen, or 0 */
    size_t bytes;                /* BODY: received so far; SENDING: to be sent */
    int64_t acknowledged_ns;     /* SENDING: when `acknowledged_bytes` was looked at, or 0 */
    uint64_t acknowledged_bytes; /* SENDING: bytes that the client had acknowledged then */
    void *request;               /* SUSPENDED: whose client is watched */
    bool shut;                   /* the watcher has shut the socket down */
    xn_list node;                /* of xn_conns, guarded by its lock */
} xn_conn;

typedef struct xn_conns_options {
    int64_t header_timeout_ns, body_timeout_ns, send_timeout_ns, idle_timeout_ns;
    int64_t body_min_rate; /* bytes a second: of a body after the first 5 s, of an answer always */
    xn_metrics *metrics;
    /* Called with conn->lock held when a suspended request's client hung up. */
    void (*gone)(void *context, void *request);
    /* Called with no lock held some forty times a second while there are connections. */
    void (*tick)(void *context, int64_t now_ns);
    void *context;
} xn_conns_options;

xn_status xn_conns_create(const xn_conns_options *options, xn_conns **out, xn_error *error);
void xn_conns_free(xn_conns *conns); /* NULL-safe; when every connection was removed */

/* NULL without memory. */
xn_conn *xn_conns_add(xn_conns *conns, int fd, bool tls, xn_client *address, void *memory);
/* Before its socket is closed. Frees it. */
void xn_conns_remove(xn_conns *conns, xn_conn *conn);
void xn_conn_enter(xn_conn *conn, xn_phase phase, size_t bytes, void *request);
void xn_conn_received(xn_conn *conn, size_t bytes); /* BODY: the total so far */
/* Whether a request is in work or may be on its way: a connection is neither NEW nor IDLE, or
 * became so less than quiet_ns ago, or was added so lately that another one may be about to be. */
bool xn_conns_expected(xn_conns *conns, int64_t quiet_ns);

#endif
