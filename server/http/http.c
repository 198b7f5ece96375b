/* http.c: the life of a request over libmicrohttpd; see http.h. The library runs a pool of epoll
 * threads. Suspending a request suspends its connection.
 *
 * What the library makes of a request's head is checked again (head.c). What the library cannot
 * parse it refuses by itself, with a page of its own. A response that is queued before the body was
 * read makes the library close the connection; a lingering close (conns.h) lets the client read the
 * answer first. A body of a few KiB is read and discarded instead, so that the connection stays. In
 * the middle of a body the library takes no response; then the answer is sent on the socket
 * directly. */
#include "http_internal.h"

#include "address.h"
#include "clock.h"
#include "config.h"
#include "xn_mem.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define DISCARD_BYTES (16u << 10)        /* the largest body read only to be thrown away */
#define MAX_HOLD_NS (100 * XN_NS_PER_MS) /* a permit of the limiter */
#define LINGER_NS XN_NS_PER_S            /* at the end, for a request that may be on its way */
#define MOST_PARAMETERS 256
#define CLIENT_DISCIPLINE_LVL ((enum MHD_OPTION)38) /* MHD_OPTION_...; headers of 0.9 lack it */

/* ---- the callbacks of the library ---- */

/* Version 0.9 of the library keeps each parameter of the query in the connection's memory. When
 * that is full it waits for headers that it has thrown away, and never answers. */
static bool has_too_many_parameters(const char *uri) {
    int count = 1;
    for (const char *c = uri ? strchr(uri, '?') : NULL; c; c = strchr(c + 1, '&'))
        if (count++ > MOST_PARAMETERS)
            return true;
    return false;
}

static void release_permit(xn_request *request) {
    if (request->limited)
        xn_limiter_release(request->http->limiter, &request->permit);
}

/* Gives back what the request holds. Last use of it. */
static void end_request(xn_request *request, int status, bool delivered) {
    xn_http *http = request->http;
    const bool kept = !request->conn->memory; /* retained: `finished` may free it */
    if (status && delivered)
        xn_metrics_add(http->metrics, XN_COUNTER_SENT_BYTES, (int64_t)request->response_length);
    xn_response_release(request);
    if (kept)
        release_permit(request);
    http->handler.finished(http->handler.context, request, status, delivered);
    if (kept)
        return;
    release_permit(request); /* after what it held was given back: the next one may need it */
    xn_request_memory_free(request);
}

/* With TLS only the library could write an answer. The request ends here: the library forgets some
 * of these connections without a word. */
static void refuse_parameters(xn_request *request) {
    xn_response_refuse(request, 414, XN_REJECT_FRAMING, "uri_too_long", "query",
                       "the query has more than 256 parameters");
    xn_response_cut_off(request);
    bool sent = request->stage == XN_REQUEST_RESPONDING;
    shutdown(request->conn->fd, sent ? SHUT_WR : SHUT_RDWR);
    end_request(request, sent ? request->status : 0, sent);
}

static void *request_line(void *context, const char *uri, struct MHD_Connection *connection) {
    xn_http *http = context;
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    xn_conn *conn = info ? info->socket_context : NULL;
    if (!conn)
        return NULL;
    xn_request *request = conn->memory;
    if (!request)
        return NULL; /* retained: no other request follows */
    memset(request, 0, offsetof(xn_request, headers));
    request->http = http;
    request->connection = connection;
    request->conn = conn;
    request->started_ns = xn_now_ns();
    request->target_text = uri;
    request->target_length = uri ? strlen(uri) : 0;
    request->target = xn_target_read(uri, request->target_length);
    request->method = "-"; /* until the headers are in */
    request->path = uri ? uri : "";
    request->bad_path = uri && strstr(uri, "%00");
    xn_request_make_id(http, request->id);
    xn_conn_enter(request->conn, XN_PHASE_HEADERS, 0, NULL);
    if (has_too_many_parameters(uri)) {
        refuse_parameters(request);
        return NULL;
    }
    return request;
}

/* Whether the request waits for a permit, suspended; the library calls again once it has one. Only
 * a request with a larger body needs a permit. */
static bool waits_for_permit(xn_request *request) {
    xn_limiter *limiter = request->http->limiter;
    if (request->responded || request->length <= DISCARD_BYTES)
        return false;
    request->limited = true;
    if (xn_limiter_acquire(limiter, &request->permit))
        return false;
    request->stage = XN_REQUEST_WAITING;
    xn_conn_enter(request->conn, XN_PHASE_SUSPENDED, 0, NULL);
    MHD_suspend_connection(request->connection);
    xn_limiter_wait(limiter, &request->permit);
    return true;
}

static void permit_granted(xn_permit *permit) {
    xn_request *request = XN_ITEM(permit, xn_request, permit);
    struct MHD_Connection *connection = request->connection;
    xn_conn_enter(request->conn, XN_PHASE_HEADERS, 0, NULL);
    MHD_resume_connection(connection);
}

static void refuse_body(xn_request *request) {
    xn_response_refuse(request, 413, XN_REJECT_TOO_LARGE, "too_large", "Content-Length",
                       "this route takes no body of that size");
}

static enum MHD_Result complete(xn_request *request) {
    const xn_http_handler *handler = &request->http->handler;
    bool unknown = request->length == XN_HTTP_UNKNOWN_LENGTH;
    if (request->received != request->length && !unknown)
        return MHD_NO;
    request->length = request->received;
    request->received_ns = xn_now_ns();
    xn_metrics_add(request->http->metrics, XN_COUNTER_RECEIVED_BYTES, (int64_t)request->length);
    xn_conn_enter(request->conn, XN_PHASE_BUSY, 0, NULL);
    if (!request->responded)
        handler->complete(handler->context, request);
    /* The stage is written by this thread alone. */
    return request->stage == XN_REQUEST_SUSPENDED ? MHD_YES : xn_response_deliver(request);
}

static enum MHD_Result take_body(xn_request *request) {
    if (!xn_request_responded(request))
        request->http->handler.headers(request->http->handler.context, request);
    if (request->aborted)
        return MHD_NO;
    bool early = request->close || request->expects || request->length > DISCARD_BYTES;
    if (request->responded && early)
        return xn_response_deliver(request);
    if (!request->responded && !request->body && request->length > DISCARD_BYTES &&
        request->length != XN_HTTP_UNKNOWN_LENGTH) {
        request->close = true;
        refuse_body(request);
        return xn_response_deliver(request);
    }
    request->stage = XN_REQUEST_BODY;
    if (request->expects && !request->length) {
        /* Version 0.9 would invite a body and take no response then. It closes after one that comes
         * now. */
        request->close = true;
        return complete(request);
    }
    xn_conn_enter(request->conn, XN_PHASE_BODY, 0, NULL);
    return MHD_YES;
}

/* Headers are in. Returns what the library's callback returns. */
static enum MHD_Result begin(xn_request *request, const char *url, const char *method,
                             const char *version) {
    xn_head_read(request, url, method, version);
    return waits_for_permit(request) ? MHD_YES : take_body(request);
}

/* Whether the body may grow to `bytes` bytes; else the request has a response. */
static bool may_grow(xn_request *request, size_t bytes) {
    const xn_http_handler *handler = &request->http->handler;
    if (request->body && bytes > request->allowed)
        handler->more(handler->context, request, bytes);
    else if (!request->body && bytes > DISCARD_BYTES)
        refuse_body(request);
    return !xn_request_responded(request);
}

static enum MHD_Result receive(xn_request *request, const char *data, size_t *size) {
    size_t bytes = request->received + *size;
    if (bytes > request->length)
        return MHD_NO; /* the library never delivers more than Content-Length */
    if (!request->responded) {
        if (!may_grow(request, bytes))
            return xn_response_cut_off(request);
        if (request->body)
            memcpy(request->body + request->received, data, *size);
    }
    request->received = bytes;
    *size = 0;
    xn_conn_received(request->conn, request->received);
    return MHD_YES;
}

static enum MHD_Result handle(void *context, struct MHD_Connection *connection, const char *url,
                              const char *method, const char *version, const char *data,
                              size_t *size, void **state) {
    xn_request *request = *state;
    (void)context, (void)connection;
    if (!request)
        return MHD_NO; /* refused, or no memory, at the request line */
    /* Once it is being stopped the library takes a response for given and sends none. */
    if (atomic_load_explicit(&request->http->stopping, memory_order_relaxed))
        return MHD_NO;
    switch (request->stage) {
    case XN_REQUEST_NEW:
        return begin(request, url, method, version);
    case XN_REQUEST_WAITING:
        return take_body(request);
    case XN_REQUEST_BODY:
        return *size ? receive(request, data, size) : complete(request);
    case XN_REQUEST_SUSPENDED:
        if (!xn_request_responded(request))
            request->http->handler.answer(request->http->handler.context, request);
        return xn_response_deliver(request);
    case XN_REQUEST_RESPONDING:
        break;
    }
    return MHD_NO;
}

void xn_request_suspend(xn_request *request) {
    request->stage = XN_REQUEST_SUSPENDED;
    xn_conn_enter(request->conn, XN_PHASE_SUSPENDED, 0, request);
    MHD_suspend_connection(request->connection);
}

void xn_request_resume(xn_request *request) {
    struct MHD_Connection *connection = request->connection;
    xn_conn_enter(request->conn, XN_PHASE_BUSY, 0, NULL);
    MHD_resume_connection(connection);
}

/* What the library answered by itself, where it could make nothing of the headers; 0: nothing. */
static int library_status(struct MHD_Connection *connection) {
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_HTTP_STATUS);
    return info ? (int)info->http_status : 0;
}

static void completed(void *context, struct MHD_Connection *connection, void **state,
                      enum MHD_RequestTerminationCode why) {
    xn_request *request = *state;
    xn_http *http = context;
    if (!request)
        return;
    xn_conn *conn = request->conn;
    bool ours = request->stage == XN_REQUEST_RESPONDING;
    bool cut_off = ours && request->release;
    int status = ours ? request->status : library_status(connection);
    /* The library ends what it answered by itself as an error, sent or not. */
    bool delivered = why == MHD_REQUEST_TERMINATED_COMPLETED_OK || cut_off || (!ours && status);
    if (!ours && status) {
        xn_metrics_rejected(http->metrics, XN_REJECT_FRAMING);
        conn->linger = true;
    }
    end_request(request, status, delivered);
    xn_conn_enter(conn, XN_PHASE_IDLE, 0, NULL);
    *state = NULL;
}

static xn_conn *watch_connection(xn_http *http, struct MHD_Connection *connection) {
    unsigned char identity[XN_CLIENT_IDENTITY_BYTES];
    /* One question after the other: 1.0 gives every answer in the same place. */
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    int on = 1, fd = info->connect_fd;
    info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_GNUTLS_SESSION);
    bool tls = info && info->tls_session;
    info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    xn_address_identity(info->client_addr, identity);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    xn_client *address = xn_client_get(http->admission, XN_CLIENT_ADDRESS, identity);
    void *memory = address ? xn_request_memory() : NULL;
    xn_conn *conn = memory ? xn_conns_add(http->conns, fd, tls, address, memory) : NULL;
    if (conn)
        return conn;
    xn_mem_free(memory);
    xn_client_put(http->admission, address);
    shutdown(fd, SHUT_RDWR); /* no memory to watch it: it must not stay */
    return NULL;
}

static void connection_changed(void *context, struct MHD_Connection *connection,
                               void **socket_context, enum MHD_ConnectionNotificationCode code) {
    xn_http *http = context;
    xn_conn *conn = *socket_context;
    if (code != MHD_CONNECTION_NOTIFY_CLOSED) {
        *socket_context = watch_connection(http, connection);
    } else if (conn) {
        xn_client *address = conn->address;
        void *memory = conn->memory;
        xn_mem_free(conn->data);
        xn_conns_remove(http->conns, conn);
        xn_mem_free(memory);
        xn_client_put(http->admission, address);
        *socket_context = NULL;
    }
}

static void request_gone(void *context, void *request) {
    xn_http *http = context;
    http->handler.gone(http->handler.context, request);
}

/* The library closes what it cannot take. */
static void add_connection(void *context, int fd, const struct sockaddr *address,
                           socklen_t length) {
    const xn_http *http = context;
    MHD_add_connection(http->daemon, fd, address, length);
}

static void tick(void *context, int64_t now_ns) {
    xn_http *http = context;
    xn_limiter_tick(http->limiter, now_ns);
}

/* ---- start and stop ---- */

static xn_status start_daemon(xn_http *http, const xn_http_options *options, xn_error *error) {
    unsigned flags = MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ITC |
                     MHD_USE_NO_LISTEN_SOCKET | (options->tls_retrieve ? MHD_USE_TLS : 0);
    struct MHD_OptionItem tls[] = {
        {options->tls_retrieve ? MHD_OPTION_HTTPS_CERT_CALLBACK2 : MHD_OPTION_END, 0,
         (void *)(uintptr_t)options->tls_retrieve},
        {MHD_OPTION_HTTPS_PRIORITIES, 0, (void *)(uintptr_t)options->tls_priorities},
        {MHD_OPTION_END, 0, NULL}};
    /* Version 0.9 sends the head of some of its own refusals twice; not strict it makes few. */
    struct MHD_OptionItem strictness[] = {
        {xn_http_library_version()[0] == '0' ? MHD_OPTION_END : CLIENT_DISCIPLINE_LVL, 1, NULL},
        {MHD_OPTION_END, 0, NULL}};
    struct MHD_OptionItem pool[] = {
        {options->threads > 1 ? MHD_OPTION_THREAD_POOL_SIZE : MHD_OPTION_END, options->threads,
         NULL},
        {MHD_OPTION_END, 0, NULL}};
    http->daemon = MHD_start_daemon(
        flags, 0, NULL, NULL, handle, http, MHD_OPTION_NOTIFY_COMPLETED, completed, http,
        MHD_OPTION_NOTIFY_CONNECTION, connection_changed, http, MHD_OPTION_URI_LOG_CALLBACK,
        request_line, http, MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)XN_CONNECTION_HEADERS_BYTES,
        MHD_OPTION_CONNECTION_LIMIT, (unsigned)options->max_connections,
        MHD_OPTION_PER_IP_CONNECTION_LIMIT, (unsigned)options->max_connections_per_address,
        MHD_OPTION_ARRAY, strictness, MHD_OPTION_ARRAY, pool, MHD_OPTION_ARRAY, tls,
        MHD_OPTION_END);
    if (!http->daemon)
        return xn_fail(error, XN_ERR_IO, "listen", "the HTTP library did not start%s",
                       options->tls_retrieve ? "; was it built with TLS?" : "");
    return XN_OK;
}

static void release(xn_http *http) {
    if (http->listener >= 0)
        close(http->listener);
    xn_conns_free(http->conns);
    xn_limiter_free(http->limiter);
    xn_mem_free(http);
}

xn_status xn_http_start(const xn_http_options *options, const xn_http_handler *handler,
                        xn_http **out, xn_error *error) {
    xn_http *http = xn_mem_zalloc(1, sizeof *http);
    if (!http)
        return xn_fail(error, XN_ERR_NO_MEMORY, NULL, "no memory for the HTTP server");
    http->handler = *handler;
    http->metrics = options->metrics;
    http->admission = options->admission;
    http->listener = -1;
    http->any_host = options->any_host;
    http->traces = options->traces;
    http->trace_ids = options->trace_ids;
    http->allowed_hosts = options->allowed_hosts;
    http->allowed_origins = options->allowed_origins;
    gethostname(http->machine, sizeof http->machine - 1);
    http->id_salt = (uint64_t)xn_now_ns() * 0x9e3779b97f4a7c15u >> 16;
    const xn_conns_options conns = {.header_timeout_ns = options->header_timeout_ms * XN_NS_PER_MS,
                                    .body_timeout_ns = options->body_timeout_ms * XN_NS_PER_MS,
                                    .send_timeout_ns = options->send_timeout_ms * XN_NS_PER_MS,
                                    .idle_timeout_ns = options->idle_timeout_ms * XN_NS_PER_MS,
                                    .body_min_rate = options->body_min_rate,
                                    .metrics = options->metrics,
                                    .gone = request_gone,
                                    .tick = tick,
                                    .context = http};
    xn_status status =
        xn_limiter_create(options->max_active, MAX_HOLD_NS, permit_granted, &http->limiter, error);
    if (!status)
        status = xn_conns_create(&conns, &http->conns, error);
    if (!status)
        status =
            xn_listener_open(options->listen, options->port, &http->listener, &http->port, error);
    if (!status)
        status = start_daemon(http, options, error);
    if (!status)
        status = xn_acceptor_start(http->listener, add_connection, http, &http->acceptor, error);
    if (status) {
        if (http->daemon)
            MHD_stop_daemon(http->daemon);
        release(http);
        return status;
    }
    *out = http;
    return XN_OK;
}

const char *xn_http_library_version(void) {
    return MHD_get_version();
}

int xn_http_port(const xn_http *http) {
    return http->port;
}

void xn_http_drain(xn_http *http) {
    atomic_store(&http->draining, true);
    xn_limiter_lift(http->limiter); /* what waits there is refused */
}

/* Until every request has its answer and no connection is so young, or so lately used, that a
 * request may be on its way. */
static void wait_for_silence(xn_http *http, int64_t deadline_ns) {
    const struct timespec pause = {0, 2 * XN_NS_PER_MS};
    while (xn_now_ns() < deadline_ns &&
           (xn_listener_waits(http->listener) || xn_conns_expected(http->conns, LINGER_NS)))
        nanosleep(&pause, NULL);
}

void xn_http_stop(xn_http *http, int64_t deadline_ns) {
    xn_http_drain(http);
    xn_listener_refuse(http->listener);
    wait_for_silence(http, deadline_ns);
    xn_acceptor_stop(http->acceptor);
    atomic_store(&http->stopping, true);
    MHD_stop_daemon(http->daemon);
    release(http);
}
