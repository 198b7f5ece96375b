/* http_internal.h: what the parts of the HTTP server share: one server, one request.
 *
 *   http.c       the life of an exchange: what the library calls, in which order; start and stop
 *   head.c       whether a request's head can be trusted, and what it says
 *   direct.c     bodies from the socket to their memory
 *   share.c      which thread serves a connection
 *   response.c   from an answer of ours to the library, or past it
 *   request.c    what the handler sees of a request
 *
 * http.c calls the others, head.c the response to refuse a request. Of a request only its HTTP
 * thread changes anything; while it is parked, whoever will unpark it may respond. */
#ifndef XN_HTTP_INTERNAL_H
#define XN_HTTP_INTERNAL_H

#include "conns.h"
#include "gate.h"
#include "http.h"
#include "http_library.h"
#include "target.h"
#include "xn_proto.h"

#include <stdatomic.h>

#define XN_HTTP_MAX_HEADERS 8 /* of an answer, besides those of every answer */
#define XN_HTTP_HEADER_BYTES 352

struct xn_http {
    xn_http_handler handler;
    struct MHD_Daemon *daemon;
    xn_conns *conns;
    xn_metrics *metrics;
    xn_admission *admission;
    int listener; /* the library's to close once it runs */
    int port;
    bool shares;                      /* connections among several threads, */
    pthread_mutex_t sharing;          /* guards pool, also while it is given a connection */
    struct MHD_Daemon *pool;          /* whose threads they are; NULL while it starts and ends */
    _Atomic(xn_request *) *receiving; /* by descriptor: whose body its bytes are, or NULL */
    size_t receiving_count;
    xn_gate *gate; /* of requests with a body that is not thrown away */
    atomic_bool draining, stopping;
    atomic_uint_least64_t next_id;
    uint64_t id_salt;
};

typedef enum {
    XN_REQUEST_NEW,       /* the request line came; handler's headers not called yet */
    XN_REQUEST_WAITING,   /* for the gate, suspended */
    XN_REQUEST_BODY,      /* receiving or discarding */
    XN_REQUEST_PARKED,    /* suspended */
    XN_REQUEST_RESPONDING /* given to the library */
} xn_request_stage;

struct xn_request {
    xn_http *http;
    struct MHD_Connection *connection;
    xn_conn *conn;
    xn_gate_place place;
    const char *method, *path;
    const char *target_text; /* where the target stood; the library decodes it in place */
    size_t target_length;    /* as it came */
    xn_target target;
    void *user;
    int64_t started_ns, received_ns;
    xn_request_stage stage;
    bool has_length, bad_path, id_from_header;
    bool expects; /* waits for 100 Continue: answer a refusal at once, do not invite the body */
    bool aborted, responded, close;
    size_t length, received;
    unsigned char *body; /* the handler's; NULL: discard */
    size_t allowed;      /* of the body, before the handler is asked for more */
    /* direct.c: bytes lie in the body behind those received that the library was told of, and
     * behind those others that it was not. */
    size_t placed, ahead;
    bool direct;
    char id[XN_PROTO_MAX_ID + 1];
    /* what the handler took: of the room behind the request, and beyond it */
    size_t room_used;
    struct xn_request_block *blocks;
    /* the response */
    int status;
    void *response_body;
    size_t response_length;
    void (*release)(void *context);
    void *release_context;
    const char *content_type;
    int header_count;
    struct {
        const char *name; /* static */
        char value[XN_HTTP_HEADER_BYTES];
    } headers[XN_HTTP_MAX_HEADERS];
};

/* request.c. An identifier that no other request of this server has. */
void xn_request_make_id(xn_http *http, char id[XN_PROTO_MAX_ID + 1]);
/* Memory for a connection's requests, one at a time, with room behind it for xn_request_take; NULL
 * where there is none. */
void *xn_request_memory(void);
/* Frees what the request took beyond that. */
void xn_request_memory_free(xn_request *request);

/* head.c. Reads the head: method, path, length of the body, identifier. What is wrong with it is
 * the request's response then. The strings are the library's, as its callback gives them. */
void xn_head_read(xn_request *request, const char *url, const char *method, const char *version);

/* direct.c. */
xn_status xn_direct_open(xn_http *http, xn_error *error);
void xn_direct_close(xn_http *http);
/* From here to the end the bytes of the socket go to the body; idempotent, like the end. */
void xn_direct_begin(xn_request *request);
void xn_direct_end(xn_request *request);
/* The next `size` bytes of the body, as the library hands them over, to where they belong. */
void xn_direct_take(xn_request *request, const char *data, size_t size);
/* As recv, for the library. */
ssize_t xn_direct_receive(void *http, int fd, void *buffer, size_t size, int flags);

/* share.c. */
void xn_share_open(xn_http *http, int threads);
void xn_share_close(xn_http *http);
/* From here on connections are handed to that pool; NULL: no longer. */
void xn_share_with(xn_http *http, struct MHD_Daemon *pool);
/* As accept4, for the library. */
int xn_share_accept(void *http, int listener, struct sockaddr *address, socklen_t *length,
                    int flags);

/* response.c. */

/* Responds with an error of this layer, and counts it. */
void xn_response_refuse(xn_request *request, int status, xn_reject_reason reason, const char *code,
                        const char *field, const char *message);
/* Hands the response to the library; returns what the library's callback is to return. */
enum MHD_Result xn_response_deliver(xn_request *request);
/* Delivers a response in the middle of a body, whose rest is not read; returns the same. */
enum MHD_Result xn_response_cut_off(xn_request *request);
/* Gives the body back, unless the library has it. */
void xn_response_release(xn_request *request);
/* What the library is to answer in place of its own pages (an xn_library_refusal). */
struct MHD_Response *xn_response_for_library(void *http, struct MHD_Connection *connection,
                                             unsigned status);

#endif
