/* http_internal.h: what the parts of the HTTP server share: one server, one request.
 *
 *   http.c       the life of a request: what the library calls, in which order; start and stop
 *   head.c       whether a request's head can be trusted, and what it says
 *   listener.c   the listening socket, and the thread that accepts connections
 *   response.c   from an answer to the library, or past it
 *   request.c    what the handler sees of a request
 *
 * http.c calls the others; head.c calls response.c to refuse a request. Only the HTTP thread of a
 * request changes it; while it is suspended, the thread that will resume it may respond. */
#ifndef XN_HTTP_INTERNAL_H
#define XN_HTTP_INTERNAL_H

#include "conns.h"
#include "http.h"
#include "limiter.h"
#include "listener.h"
#include "target.h"
#include "xn_proto.h"

#include <microhttpd.h>
#include <stdatomic.h>

#define XN_HTTP_MAX_HEADERS 8 /* of an answer, besides those of every answer */
#define XN_HTTP_HEADER_BYTES 352

struct xn_http {
    xn_http_handler handler;
    struct MHD_Daemon *daemon;
    xn_conns *conns;
    xn_metrics *metrics;
    xn_admission *admission;
    int listener, port;
    xn_acceptor *acceptor;
    xn_limiter *limiter; /* of requests with a body that is not thrown away */
    bool any_host, traces;
    uint64_t trace_ids;
    const char *allowed_hosts, *allowed_origins;
    char machine[256]; /* its host name */
    atomic_bool draining, stopping;
    atomic_uint_least64_t next_id;
    uint64_t id_salt;
};

typedef enum {
    XN_REQUEST_NEW,       /* the request line came; handler's headers not called yet */
    XN_REQUEST_WAITING,   /* for a permit, suspended */
    XN_REQUEST_BODY,      /* receiving or discarding */
    XN_REQUEST_SUSPENDED, /* by the handler: another thread works on it */
    XN_REQUEST_RESPONDING /* its response is the library's */
} xn_request_stage;

struct xn_request {
    xn_http *http;
    struct MHD_Connection *connection;
    xn_conn *conn;
    xn_client *retained_address; /* of a retained request, which outlives its connection; or NULL */
    xn_permit permit;
    const char *method, *path;
    const char *target_text; /* where the target stood; the library decodes it in place */
    size_t target_length;    /* as it came */
    xn_target target;
    void *user;
    int64_t started_ns, received_ns;
    xn_request_stage stage;
    bool has_body, bad_path, id_from_header;
    bool expects; /* waits for 100 Continue: answer a refusal at once, do not invite the body */
    const char *allowed_origin; /* of the page that sends it, or NULL */
    bool aborted, responded, close;
    bool limited;  /* `permit` is in use */
    size_t length; /* XN_HTTP_UNKNOWN_LENGTH until a chunked body is complete */
    size_t received;
    unsigned char *body; /* the handler's; NULL: discard */
    size_t allowed;      /* of the body, before the handler is asked for more */
    char id[XN_PROTO_MAX_ID + 1];
    xn_trace trace;
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
/* Memory for a connection's requests, one at a time, with room behind it for xn_request_alloc; NULL
 * where there is none. */
void *xn_request_memory(void);
/* Frees what the request took beyond that. */
void xn_request_memory_free(xn_request *request);

/* head.c. Reads the head: method, path, length of the body, identifier. What is wrong with it is
 * the request's response then. The strings are the library's, as its callback gives them. */
void xn_head_read(xn_request *request, const char *url, const char *method, const char *version);

/* response.c. */

/* Responds with an error of this layer, and counts it. */
void xn_response_refuse(xn_request *request, int status, xn_reject_reason reason, const char *code,
                        const char *field, const char *message);
/* Hands the response to the library; returns what the library's callback is to return. */
enum MHD_Result xn_response_deliver(xn_request *request);
/* Delivers a response where the library takes none: at the request line and in the middle of a
 * body, whose rest is not read. Returns what the library's callback is to return. */
enum MHD_Result xn_response_cut_off(xn_request *request);
/* Gives the body back, unless the library has it. */
void xn_response_release(xn_request *request);

#endif
