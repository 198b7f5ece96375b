/* http.h: HTTP/1.1 over libmicrohttpd, of which nothing is seen above this header. It owns sockets,
 * framing checks, deadlines of headers, bodies and idle connections, and the life of a request;
 * what a request means is the handler's.
 *
 * One request: headers -> (body received straight into the handler's buffer) -> complete -> respond
 * at once, or suspend the connection and respond from another thread -> finished. */
#ifndef XN_HTTP_H
#define XN_HTTP_H

#include "admission.h"
#include "trace_context.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct xn_http xn_http;
typedef struct xn_request xn_request;
struct sockaddr;

typedef struct xn_http_options {
    const char *listen; /* numeric address */
    int port;           /* 0 = any */
    /* Gives each handshake its certificate (a gnutls_certificate_retrieve_function3); NULL: no TLS.
     */
    void (*tls_retrieve)(void);
    const char *tls_priorities; /* of the TLS library; outlives the server */
    int threads;
    int max_connections, max_connections_per_address; /* per address: 0 = no limit */
    int max_active; /* requests with a body of over 16 KiB at a time; 0 = no limit */
    int64_t header_timeout_ms, body_timeout_ms, send_timeout_ms, idle_timeout_ms;
    int64_t body_min_rate; /* bytes a second */
    bool any_host;         /* Host is not looked at: what matters needs a key */
    /* Names that Host may have, and origins of web pages that may do what our own may (origin.h).
     * They outlive the server. */
    const char *allowed_hosts, *allowed_origins;
    bool traces;        /* spans are sent: traces may begin here */
    uint64_t trace_ids; /* as xn_trace_begin takes them */
    xn_metrics *metrics;
    xn_admission *admission; /* counts connections */
} xn_http_options;

/* What the server above does with requests. headers, more, complete and finished are called on an
 * HTTP thread, one at a time for a request; gone on the watcher thread. */
typedef struct xn_http_handler {
    void *context;
    /* The request line and headers are in. Respond to refuse before the body is read; otherwise
     * call xn_request_receive if there is a body to keep (else it is read and thrown away). */
    void (*headers)(void *context, xn_request *request);
    /* The body grows beyond what may be received so far: allow `bytes` of it or more by
     * xn_request_receive, or respond to refuse the rest of it. */
    void (*more)(void *context, xn_request *request, size_t bytes);
    /* The body is complete. Respond, or suspend. Not called after a refusal in headers. */
    void (*complete)(void *context, xn_request *request);
    /* A suspended request's client reset the connection. (One that only ended its own direction is
     * answered.) The request stays valid during the call; it still has to be resumed, by the thread
     * that would have answered. */
    void (*gone)(void *context, xn_request *request);
    /* The request was resumed without a response: make it now, on an HTTP thread. */
    void (*answer)(void *context, xn_request *request);
    /* The request is over, its answer delivered or not; free what belongs to it. Last call for a
     * request. status is what was answered, 0 when nothing was. */
    void (*finished)(void *context, xn_request *request, int status, bool delivered);
    /* Writes the body of an error, in JSON, for a request whose path is known: all of text at most,
     * terminated; returns its length. The HTTP layer's own errors too. */
    size_t (*write_error)(void *context, const xn_request *request, const char *code,
                          const char *field, const char *message, char *text, size_t size);
} xn_http_handler;

xn_status xn_http_start(const xn_http_options *options, const xn_http_handler *handler,
                        xn_http **out, xn_error *error);
/* Of the HTTP library that runs, such as "1.0.1". */
const char *xn_http_library_version(void);
int xn_http_port(const xn_http *http);
/* Answers carry "Connection: close" from now on. */
void xn_http_drain(xn_http *http);
/* Accepts no more connections, waits up to the deadline until all answers are delivered and no
 * connection has been used for a second (so that a request on its way gets its answer), closes
 * everything. Every suspended request must have been resumed or be about to be. */
void xn_http_stop(xn_http *http, int64_t deadline_ns);

/* ---- a request; strings are valid until finished ---- */
const char *xn_request_method(const xn_request *request); /* "-" when it ended before its headers */
const char *xn_request_path(const xn_request *request);   /* percent-decoded, without the query */
/* The client's address and port, NULL if not known. */
const struct sockaddr *xn_request_client(const xn_request *request);
size_t xn_request_bytes_in(const xn_request *request);  /* of the body, read so far */
size_t xn_request_bytes_out(const xn_request *request); /* of the answer's body, 0 without one */
/* A header's value or NULL; of the ones that may stand only once, duplicates were refused. */
const char *xn_request_header(const xn_request *request, const char *name);
/* Calls visit for each query parameter (value NULL when there is no '='); stops on false. */
void xn_request_query(const xn_request *request,
                      bool (*visit)(void *context, const char *key, const char *value),
                      void *context);
/* Whether it announces a body, by Content-Length (also 0) or chunked. */
bool xn_request_has_body(const xn_request *request);
/* The body's length, 0 without one. Of a chunked body XN_HTTP_UNKNOWN_LENGTH until it is complete,
 * then what came. */
#define XN_HTTP_UNKNOWN_LENGTH SIZE_MAX
size_t xn_request_length(const xn_request *request);
int64_t xn_request_started_ns(const xn_request *request);  /* the request line came */
int64_t xn_request_received_ns(const xn_request *request); /* the body was complete */
/* The identifier answers and logs carry: X-Request-Id if valid, else its trace's, else a made one.
 */
const char *xn_request_id(const xn_request *request);
void xn_request_set_id(xn_request *request, const char *id); /* unless the header gave one */

/* Whose trace it belongs to; without one until its headers are in. */
const xn_trace *xn_request_trace(const xn_request *request);

void xn_request_set_user(xn_request *request, void *user);
void *xn_request_user(const xn_request *request);

/* Memory that lives as long as the request, zeroed; NULL where there is none. A few KiB of it cost
 * nothing: they are the connection's. Not from two threads at a time. */
void *xn_request_alloc(xn_request *request, size_t bytes);
/* How many bytes of it are left of those that are the connection's. */
size_t xn_request_room(const xn_request *request);
/* While it is suspended: keeps the request's memory, and what was allocated with it, after
 * `finished`, until any thread calls xn_request_release. Its answer is the last of its connection.
 */
void xn_request_retain(xn_request *request);
void xn_request_release(xn_request *request);
/* Where the handler stores a pointer for the next request of the connection; NULL at first. The
 * connection frees it (xn_mem_free) when it ends. Only the thread that handles the request uses it.
 * It counts as XN_CONNECTION_REQUEST_BYTES. */
void **xn_request_connection_data(const xn_request *request);

/* Where the body goes, and how many bytes it may fill before `more` is asked: at most
 * xn_request_length, where that is known. The bytes so far stay where they are, so `more` gives the
 * same buffer or one that holds them already. Only in headers and more. */
void xn_request_receive(xn_request *request, void *buffer, size_t allowed);
/* Whose connection it is, for admission. */
xn_client *xn_request_address_client(const xn_request *request);

/* Sets the response; once per request. body is released by release(release_context) when sent or
 * dropped; release NULL: body is static. */
void xn_request_respond(xn_request *request, int status, const char *content_type, void *body,
                        size_t length, void (*release)(void *context), void *release_context);
void xn_request_respond_empty(xn_request *request, int status);
/* The same with an error, as the handler writes it; gives up where there is no memory. */
void xn_request_respond_error(xn_request *request, int status, const char *code, const char *field,
                              const char *message);
void xn_request_add_header(xn_request *request, const char *name, const char *value);
/* Gives up: the connection is closed without an answer. */
void xn_request_abort(xn_request *request);
bool xn_request_responded(const xn_request *request);

/* Suspends the connection (only in complete). Then, exactly once and from any thread, resume it. */
void xn_request_suspend(xn_request *request);
void xn_request_resume(xn_request *request);

#endif
