/* http.c: the life of an exchange over libmicrohttpd; see http.h. The library runs a pool of epoll
 * threads. A parked request is a suspended connection.
 *
 * What the library makes of a request's head is not trusted (head.c), and what it decides by itself
 * goes through http_library.c. A response queued before the body was read makes the library close
 * the connection: the watcher then keeps the socket a moment (conns.h), so that the client sees the
 * answer. A body of a few KiB is read and thrown away instead: its client keeps the connection. In
 * the middle of a body the library takes no response; then the answer is written past it. */
#include "http_internal.h"

#include "clock.h"
#include "config.h"
#include "listener.h"
#include "xn_mem.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>

#define DISCARD_BYTES (16u << 10)    /* the largest body read only to be thrown away */
#define HOLD_NS (100 * XN_NS_PER_MS) /* a place in the gate */
#define LINGER_NS XN_NS_PER_S        /* at the end, for a request that may be on its way */
#define CLIENT_DISCIPLINE_LVL ((enum MHD_OPTION)38) /* MHD_OPTION_...; headers of 0.9 lack it */

/* ---- the callbacks of the library ---- */

static void *request_line(void *context, const char *uri, struct MHD_Connection *connection) {
    xn_http *http = context;
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    xn_conn *conn = info ? info->socket_context : NULL;
    if (!conn)
        return NULL;
    xn_request *request = conn->memory;
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
    return request;
}

/* Only a request with such a body ever has to do with the gate and its lock. */
static bool is_for_gate(const xn_request *request) {
    return request->length > DISCARD_BYTES;
}

/* Whether the request has to wait, suspended; it is called again when it may go on. */
static bool waits_at_gate(xn_request *request) {
    xn_gate *gate = request->http->gate;
    if (request->responded || !is_for_gate(request) || xn_gate_enter(gate, &request->place))
        return false;
    request->stage = XN_REQUEST_WAITING;
    xn_conn_enter(request->conn, XN_PHASE_PARKED, 0, NULL);
    MHD_suspend_connection(request->connection);
    xn_gate_wait(gate, &request->place);
    return true;
}

static void gate_opens(xn_gate_place *place) {
    xn_request *request = (xn_request *)(void *)((char *)place - offsetof(xn_request, place));
    struct MHD_Connection *connection = request->connection;
    xn_conn_enter(request->conn, XN_PHASE_HEADERS, 0, NULL);
    xn_library_resume(connection);
}

static enum MHD_Result take_body(xn_request *request) {
    if (!xn_request_responded(request))
        request->http->handler.headers(request->http->handler.context, request);
    if (request->aborted)
        return MHD_NO;
    bool early = request->close || request->expects || request->length > DISCARD_BYTES;
    if (request->responded && early)
        return xn_response_deliver(request);
    if (!request->responded && !request->body && request->length > DISCARD_BYTES) {
        request->close = true;
        xn_response_refuse(request, 413, XN_REJECT_TOO_LARGE, "too_large", "Content-Length",
                           "this route takes no body of that size");
        return xn_response_deliver(request);
    }
    request->stage = XN_REQUEST_BODY;
    xn_conn_enter(request->conn, XN_PHASE_BODY, 0, NULL);
    return MHD_YES;
}

/* Headers are in. Returns what the library's callback returns. */
static enum MHD_Result begin(xn_request *request, const char *url, const char *method,
                             const char *version) {
    xn_head_read(request, url, method, version);
    return waits_at_gate(request) ? MHD_YES : take_body(request);
}

static enum MHD_Result receive(xn_request *request, const char *data, size_t *size) {
    if (*size > request->length - request->received)
        return MHD_NO; /* the library never delivers more than Content-Length */
    if (request->body && !request->responded && *size > request->allowed - request->received) {
        request->http->handler.more(request->http->handler.context, request,
                                    request->received + *size);
        if (xn_request_responded(request))
            return xn_response_cut_off(request);
    }
    if (request->body && !request->responded)
        xn_direct_take(request, data, *size);
    request->received += *size;
    *size = 0;
    if (request->body && !request->responded && request->received < request->length)
        xn_direct_begin(request);
    xn_conn_received(request->conn, request->received);
    return MHD_YES;
}

static enum MHD_Result complete(xn_request *request) {
    if (request->received != request->length)
        return MHD_NO;
    xn_direct_end(request);
    request->received_ns = xn_now_ns();
    xn_metrics_add(request->http->metrics, XN_COUNTER_RECEIVED_BYTES, (int64_t)request->length);
    xn_conn_enter(request->conn, XN_PHASE_BUSY, 0, NULL);
    if (!request->responded)
        request->http->handler.complete(request->http->handler.context, request);
    return MHD_YES;
}

static enum MHD_Result handle(void *context, struct MHD_Connection *connection, const char *url,
                              const char *method, const char *version, const char *data,
                              size_t *size, void **state) {
    xn_request *request = *state;
    (void)context, (void)connection;
    if (!request)
        return MHD_NO; /* no memory at the request line */
    /* Once it is being stopped the library takes a response for given and sends none. */
    if (atomic_load_explicit(&request->http->stopping, memory_order_relaxed))
        return MHD_NO;
    switch (request->stage) {
    case XN_REQUEST_NEW:
        return begin(request, url, method, version);
    case XN_REQUEST_WAITING:
        return take_body(request);
    case XN_REQUEST_BODY: {
        if (*size)
            return receive(request, data, size);
        if (complete(request) != MHD_YES)
            return MHD_NO;
        if (request->stage == XN_REQUEST_PARKED) /* written by this thread alone */
            return MHD_YES;
        return xn_response_deliver(request);
    }
    case XN_REQUEST_PARKED:
        if (!xn_request_responded(request))
            request->http->handler.answer(request->http->handler.context, request);
        return xn_response_deliver(request);
    case XN_REQUEST_RESPONDING:
        break;
    }
    return MHD_NO;
}

void xn_request_park(xn_request *request) {
    request->stage = XN_REQUEST_PARKED;
    xn_conn_enter(request->conn, XN_PHASE_PARKED, 0, request);
    MHD_suspend_connection(request->connection);
}

void xn_request_unpark(xn_request *request) {
    struct MHD_Connection *connection = request->connection;
    xn_conn_enter(request->conn, XN_PHASE_BUSY, 0, NULL);
    xn_library_resume(connection);
}

void xn_http_hold_wakes(void) {
    xn_library_hold_wakes();
}

void xn_http_send_wakes(void) {
    xn_library_send_wakes();
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
    bool ours = request->stage == XN_REQUEST_RESPONDING;
    bool cut_off = ours && request->release;
    int status = ours ? request->status : library_status(connection);
    /* The library ends what it answered by itself as an error, sent or not. */
    bool delivered = why == MHD_REQUEST_TERMINATED_COMPLETED_OK || cut_off || (!ours && status);
    if (status && delivered)
        xn_metrics_add(http->metrics, XN_COUNTER_SENT_BYTES, (int64_t)request->response_length);
    xn_direct_end(request);
    xn_response_release(request);
    if (is_for_gate(request))
        xn_gate_leave(http->gate, &request->place);
    http->handler.finished(http->handler.context, request, status, delivered);
    xn_conn_enter(request->conn, XN_PHASE_IDLE, 0, NULL);
    xn_request_memory_free(request);
    *state = NULL;
}

/* IPv4 as it is, IPv6 by the 64 bits that are a network's: one client has as many addresses in it
 * as he likes. */
static void identify(const struct sockaddr *address, unsigned char out[XN_CLIENT_IDENTITY_BYTES]) {
    memset(out, 0, XN_CLIENT_IDENTITY_BYTES);
    if (address->sa_family == AF_INET) {
        memcpy(out, &((const struct sockaddr_in *)address)->sin_addr, 4);
    } else if (address->sa_family == AF_INET6) {
        const struct in6_addr *v6 = &((const struct sockaddr_in6 *)address)->sin6_addr;
        bool mapped = IN6_IS_ADDR_V4MAPPED(v6);
        memcpy(out, mapped ? &v6->s6_addr[12] : v6->s6_addr, mapped ? 4 : 8);
    }
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
    identify(info->client_addr, identity);
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
        xn_mem_free(conn->kept);
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

static void tick(void *context, int64_t now_ns) {
    xn_http *http = context;
    xn_gate_tick(http->gate, now_ns);
}

/* ---- start and stop ---- */

/* Takes the listener, also when it fails: the library has closed it then, except before it got as
 * far as to look at it. */
static xn_status start_daemon(xn_http *http, const xn_http_options *options, xn_error *error) {
    unsigned flags = MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ITC |
                     (options->tls_retrieve ? MHD_USE_TLS : 0);
    struct MHD_OptionItem tls[] = {
        {options->tls_retrieve ? MHD_OPTION_HTTPS_CERT_CALLBACK2 : MHD_OPTION_END, 0,
         (void *)(uintptr_t)options->tls_retrieve},
        {MHD_OPTION_HTTPS_PRIORITIES, 0, (void *)(uintptr_t)options->tls_priorities},
        {MHD_OPTION_END, 0, NULL}};
    /* 0.9 strict would answer a missing Host by itself, which head.c sees. */
    struct MHD_OptionItem strictness[] = {
        {xn_library_strict() ? CLIENT_DISCIPLINE_LVL : MHD_OPTION_STRICT_FOR_CLIENT,
         xn_library_strict() ? 1 : 0, NULL},
        {MHD_OPTION_END, 0, NULL}};
    struct MHD_OptionItem pool[] = {
        {options->threads > 1 ? MHD_OPTION_THREAD_POOL_SIZE : MHD_OPTION_END, options->threads,
         NULL},
        {MHD_OPTION_END, 0, NULL}};
    http->daemon = MHD_start_daemon(
        flags, 0, NULL, NULL, handle, http, MHD_OPTION_LISTEN_SOCKET, (MHD_socket)http->listener,
        MHD_OPTION_NOTIFY_COMPLETED, completed, http, MHD_OPTION_NOTIFY_CONNECTION,
        connection_changed, http, MHD_OPTION_URI_LOG_CALLBACK, request_line, http,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)XN_CONNECTION_HEADERS_BYTES,
        MHD_OPTION_CONNECTION_LIMIT, (unsigned)options->max_connections,
        MHD_OPTION_PER_IP_CONNECTION_LIMIT, (unsigned)options->max_connections_per_address,
        MHD_OPTION_ARRAY, strictness, MHD_OPTION_ARRAY, pool, MHD_OPTION_ARRAY, tls,
        MHD_OPTION_END);
    if (!http->daemon)
        return xn_fail(error, XN_ERR_IO, "listen", "the HTTP library did not start on %s port %d%s",
                       options->listen, http->port,
                       options->tls_retrieve ? "; was it built with TLS?" : "");
    return XN_OK;
}

xn_status xn_http_start(const xn_http_options *options, const xn_http_handler *handler,
                        xn_http **out, xn_error *error) {
    xn_http *http = xn_mem_zalloc(1, sizeof *http);
    if (!http)
        return xn_fail(error, XN_ERR_NO_MEMORY, NULL, "no memory for the HTTP server");
    http->handler = *handler;
    http->metrics = options->metrics;
    http->admission = options->admission;
    xn_share_open(http, options->threads);
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
    xn_status status = xn_gate_create(options->max_active, HOLD_NS, gate_opens, &http->gate, error);
    if (!status)
        status = xn_conns_create(&conns, &http->conns, error);
    if (!status)
        status = xn_direct_open(http, error);
    if (!status)
        status = xn_library_bind(
            &(xn_library_hooks){http, xn_response_for_library, xn_direct_receive, xn_share_accept},
            error);
    if (!status)
        status =
            xn_listener_open(options->listen, options->port, &http->listener, &http->port, error);
    if (!status)
        status = start_daemon(http, options, error);
    if (!status)
        xn_share_with(http, http->daemon);
    if (status) {
        xn_library_unbind();
        xn_conns_free(http->conns);
        xn_gate_free(http->gate);
        xn_direct_close(http);
        xn_share_close(http);
        xn_mem_free(http);
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
    xn_gate_unlock(http->gate); /* who waits there is refused */
}

/* Until everybody who was let in has an answer and no connection is so young, or so lately used,
 * that a request may be on its way. */
static void wait_for_silence(xn_http *http, int64_t deadline_ns) {
    const struct timespec pause = {0, 2 * XN_NS_PER_MS};
    while (xn_now_ns() < deadline_ns &&
           (xn_listener_waits(http->listener) || xn_conns_expected(http->conns, LINGER_NS)))
        nanosleep(&pause, NULL);
}

/* Not by MHD_quiesce_daemon: it takes the socket out of the epoll sets of threads that may be doing
 * the same at that moment, and whichever comes second makes the library abort the process. A
 * listening socket that is shut down refuses new connections too; the library's threads spin on it
 * until they are stopped, which is soon. */
void xn_http_stop(xn_http *http, int64_t deadline_ns) {
    xn_http_drain(http);
    xn_listener_refuse(http->listener);
    wait_for_silence(http, deadline_ns);
    shutdown(http->listener, SHUT_RDWR);
    atomic_store(&http->stopping, true);
    xn_share_with(http, NULL);
    MHD_stop_daemon(http->daemon);
    xn_library_unbind();
    xn_conns_free(http->conns);
    xn_gate_free(http->gate);
    xn_direct_close(http);
    xn_share_close(http);
    xn_mem_free(http);
}
