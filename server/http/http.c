/* http.c: the exchange over libmicrohttpd; see http.h. The library runs a pool of epoll threads. A
 * parked request is a suspended connection.
 *
 * What the library makes of a request's head is not trusted: the first callback has framing.c look
 * at the fields (with version 0.9 of the library at the very bytes) and closes on a reject; what
 * the library decides by itself goes through http_library.c. A response queued before the body was
 * read makes the library close the connection: the watcher then keeps the socket a moment
 * (conns.h), so that the client sees the answer. A body of a few KiB is read and thrown away
 * instead: its client keeps the connection. In the middle of a body the library takes no response;
 * then the answer is written past it. */
#include "http.h"

#include "clock.h"
#include "config.h"
#include "conns.h"
#include "framing.h"
#include "gate.h"
#include "http_library.h"
#include "listener.h"
#include "xn_mem.h"
#include "xn_proto.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#define DISCARD_BYTES (16u << 10)    /* the largest body read only to be thrown away */
#define HOLD_NS (100 * XN_NS_PER_MS) /* a place in the gate */
#define LINGER_NS XN_NS_PER_S        /* at the end, for a request that may be on its way */
#define MAX_HEADERS 8
#define CLIENT_DISCIPLINE_LVL ((enum MHD_OPTION)38) /* MHD_OPTION_...; headers of 0.9 lack it */
#define HEADER_VALUE_BYTES 352

struct xn_http {
    xn_http_handler handler;
    struct MHD_Daemon *daemon;
    xn_conns *conns;
    xn_metrics *metrics;
    xn_admission *admission;
    int listener; /* the library's to close once it runs */
    int port;
    xn_gate *gate; /* of requests with a body that is not thrown away */
    atomic_bool draining, stopping;
    atomic_uint_least64_t next_id;
    uint64_t id_salt;
};

typedef enum {
    STAGE_NEW,       /* the request line came; handler's headers not called yet */
    STAGE_WAITING,   /* for the gate, suspended */
    STAGE_BODY,      /* receiving or discarding */
    STAGE_PARKED,    /* suspended */
    STAGE_RESPONDING /* given to the library */
} xn_stage_of_request;

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
    xn_stage_of_request stage;
    bool has_length, bad_path, id_from_header;
    bool expects; /* waits for 100 Continue: answer a refusal at once, do not invite the body */
    bool aborted, responded, close;
    size_t length, received;
    unsigned char *body; /* the handler's; NULL: discard */
    size_t allowed;      /* of the body, before the handler is asked for more */
    char id[XN_PROTO_MAX_ID + 1];
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
        char value[HEADER_VALUE_BYTES];
    } headers[MAX_HEADERS];
};

static void make_id(xn_http *http, char *id, size_t size) {
    uint64_t n = atomic_fetch_add_explicit(&http->next_id, 1, memory_order_relaxed);
    snprintf(id, size, "%08llx-%08llx", (unsigned long long)(http->id_salt & 0xffffffffu),
             (unsigned long long)n);
}

/* ---- accessors ---- */

const char *xn_request_method(const xn_request *request) {
    return request->method;
}
const char *xn_request_path(const xn_request *request) {
    return request->path;
}
const struct sockaddr *xn_request_client(const xn_request *request) {
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(request->connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    return info ? info->client_addr : NULL;
}
size_t xn_request_bytes_in(const xn_request *request) {
    return request->received;
}
size_t xn_request_bytes_out(const xn_request *request) {
    bool sent = request->stage == STAGE_RESPONDING && strcmp(request->method, "HEAD") != 0;
    return sent ? request->response_length : 0;
}
const char *xn_request_header(const xn_request *request, const char *name) {
    return xn_library_header(request->connection, name);
}
bool xn_request_has_length(const xn_request *request) {
    return request->has_length;
}
size_t xn_request_length(const xn_request *request) {
    return request->length;
}
int64_t xn_request_started_ns(const xn_request *request) {
    return request->started_ns;
}
int64_t xn_request_received_ns(const xn_request *request) {
    return request->received_ns;
}
const char *xn_request_id(const xn_request *request) {
    return request->id;
}
void xn_request_set_id(xn_request *request, const char *id) {
    if (!request->id_from_header)
        snprintf(request->id, sizeof request->id, "%s", id);
}
void xn_request_set_user(xn_request *request, void *user) {
    request->user = user;
}
void *xn_request_user(const xn_request *request) {
    return request->user;
}
void xn_request_receive(xn_request *request, void *buffer, size_t allowed) {
    request->body = buffer;
    request->allowed = allowed;
}
xn_client *xn_request_address_share(const xn_request *request) {
    return request->conn->address;
}
bool xn_request_responded(const xn_request *request) {
    return request->responded || request->aborted;
}

typedef struct {
    bool (*visit)(void *context, const char *key, const char *value);
    void *context;
} query_visit;

static enum MHD_Result visit_query(void *context, enum MHD_ValueKind kind, const char *key,
                                   const char *value) {
    query_visit *visit = context;
    (void)kind;
    return visit->visit(visit->context, key, value) ? MHD_YES : MHD_NO;
}

void xn_request_query(const xn_request *request,
                      bool (*visit)(void *context, const char *key, const char *value),
                      void *context) {
    query_visit state = {visit, context};
    MHD_get_connection_values(request->connection, MHD_GET_ARGUMENT_KIND, visit_query, &state);
}

/* ---- the response ---- */

void xn_request_respond(xn_request *request, int status, const char *content_type, void *body,
                        size_t length, void (*release)(void *context), void *release_context) {
    if (xn_request_responded(request)) { /* the first one counts */
        if (release)
            release(release_context);
        return;
    }
    request->responded = true;
    request->status = status;
    request->content_type = content_type;
    request->response_body = body;
    request->response_length = length;
    request->release = release;
    request->release_context = release_context;
}

void xn_request_add_header(xn_request *request, const char *name, const char *value) {
    if (request->header_count == MAX_HEADERS)
        return;
    int i = request->header_count++;
    request->headers[i].name = name;
    snprintf(request->headers[i].value, sizeof request->headers[i].value, "%s", value);
}

void xn_request_abort(xn_request *request) {
    request->aborted = true;
}

static void release_body(xn_request *request) {
    if (request->release)
        request->release(request->release_context);
    request->release = NULL;
}

/* The library calls this when it no longer needs the body. */
typedef struct {
    void (*release)(void *context);
    void *context;
} body_owner;

static void library_released(void *context) {
    body_owner *owner = context;
    owner->release(owner->context);
    xn_mem_free(owner);
}

static struct MHD_Response *make_response(xn_request *request) {
    struct MHD_Response *response = NULL;
    if (!request->release)
        return MHD_create_response_from_buffer(request->response_length, request->response_body,
                                               MHD_RESPMEM_PERSISTENT);
    body_owner *owner = xn_mem_alloc(sizeof *owner);
    if (owner) {
        *owner = (body_owner){request->release, request->release_context};
        response = MHD_create_response_from_buffer_with_free_callback_cls(
            request->response_length, request->response_body, library_released, owner);
        if (!response)
            xn_mem_free(owner);
    }
    if (response)
        request->release = NULL;
    return response;
}

/* False when there was no memory for one: an answer that lacks a header would be a wrong one. */
static bool add_headers(const xn_request *request, struct MHD_Response *response) {
    bool close =
        request->close || atomic_load_explicit(&request->http->draining, memory_order_relaxed);
    bool ok = MHD_add_response_header(response, "X-Request-Id", request->id) == MHD_YES;
    if (request->content_type)
        ok &= MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE,
                                      request->content_type) == MHD_YES;
    for (int i = 0; i < request->header_count; i++)
        ok &= MHD_add_response_header(response, request->headers[i].name,
                                      request->headers[i].value) == MHD_YES;
    if (close)
        ok &= MHD_add_response_header(response, MHD_HTTP_HEADER_CONNECTION, "close") == MHD_YES;
    return ok;
}

static enum MHD_Result deliver(xn_request *request) {
    if (request->aborted || !request->responded)
        return MHD_NO;
    struct MHD_Response *response = make_response(request);
    if (!response)
        return MHD_NO;
    if (!add_headers(request, response)) {
        MHD_destroy_response(response);
        return MHD_NO;
    }
    request->stage = STAGE_RESPONDING;
    request->conn->linger = request->close || request->received < request->length;
    xn_conn_enter(request->conn, XN_PHASE_SENDING, request->response_length, NULL);
    enum MHD_Result queued =
        xn_library_queue(request->connection, (unsigned)request->status, response);
    MHD_destroy_response(response);
    return queued;
}

/* An error of this layer, as JSON like all others. */
static void refuse(xn_request *request, int status, xn_reject_reason reason, const char *code,
                   const char *field, const char *message) {
    char text[640];
    size_t length = xn_proto_write_error(code, message, field, text, sizeof text);
    char *copy = xn_mem_alloc(length);
    if (!copy) {
        xn_request_abort(request);
        return;
    }
    memcpy(copy, text, length);
    xn_metrics_rejected(request->http->metrics, reason);
    xn_request_respond(request, status, "application/json", copy, length, xn_mem_free, copy);
}

/* ---- an answer in the middle of a body ---- */

static const char *reason_phrase(int status) {
    switch (status) {
    case 413:
        return "Content Too Large";
    case 429:
        return "Too Many Requests";
    default:
        return "Service Unavailable";
    }
}

/* Written at once and whole, or not at all: nothing else is in the socket's buffer. With TLS only
 * the library could write it. */
static void send_past_library(xn_request *request) {
    char text[2048];
    int n = snprintf(text, sizeof text,
                     "HTTP/1.1 %d %s\r\nConnection: close\r\nContent-Type: %s\r\n"
                     "Content-Length: %zu\r\nX-Request-Id: %s\r\n",
                     request->status, reason_phrase(request->status), request->content_type,
                     request->response_length, request->id);
    for (int i = 0; i < request->header_count && n < (int)sizeof text; i++)
        n += snprintf(text + n, sizeof text - (size_t)n, "%s: %s\r\n", request->headers[i].name,
                      request->headers[i].value);
    if ((size_t)n + 2 + request->response_length >= sizeof text)
        return;
    memcpy(text + n, "\r\n", 2);
    memcpy(text + n + 2, request->response_body, request->response_length);
    size_t length = (size_t)n + 2 + request->response_length;
    if (send(request->conn->fd, text, length, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)length)
        request->stage = STAGE_RESPONDING;
}

/* The handler has responded and the body is not complete: the rest is not read. */
static enum MHD_Result cut_off(xn_request *request) {
    request->conn->linger = true;
    if (!request->aborted && !request->conn->tls)
        send_past_library(request);
    return MHD_NO;
}

/* ---- framing ---- */

static enum MHD_Result visit_field(void *context, enum MHD_ValueKind kind, const char *key,
                                   size_t key_size, const char *value, size_t value_size) {
    (void)kind;
    xn_framing_field(context, key, key_size, value, value_size);
    return MHD_YES;
}

typedef struct {
    xn_framing *framing;
    xn_framing_walk walk;
} line_walk;

static enum MHD_Result visit_line(void *context, enum MHD_ValueKind kind, const char *key,
                                  size_t key_size, const char *value, size_t value_size) {
    line_walk *lines = context;
    (void)kind, (void)key_size, (void)value, (void)value_size;
    xn_framing_walk_field(lines->framing, &lines->walk, key);
    return MHD_YES;
}

/* The bytes of the request line and the header section, which version 0.9 of the library leaves in
 * one piece, as long as it met nothing strange: where it joins folded lines and then needs more
 * room, what it copied elsewhere lies behind the fold, and the walk ends there. The lengths are
 * inside its memory in any case. */
static void walk_head(const xn_request *request, xn_framing *f, const char *version) {
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(request->connection, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);
    const char *line = request->method;
    char *fields = (char *)(uintptr_t)version + strlen("HTTP/1.1") + 2;
    const char *end = info ? line + info->header_size : line;
    if (request->target_text != line + strlen(line) + 1 ||
        version != request->target_text + request->target_length + 1 || fields > end ||
        fields[-1] || fields[-2]) {
        xn_framing_refuse(f, 400, "bad_request", "path",
                          "the request line is not METHOD, TARGET and VERSION with one space "
                          "between and CR LF behind them");
        return;
    }
    line_walk lines = {f, {fields, fields + (end - fields)}};
    MHD_get_connection_values_n(request->connection, MHD_HEADER_KIND, visit_line, &lines);
    xn_framing_walk_end(f, &lines.walk);
}

static void check_framing(xn_request *request, const char *version) {
    xn_framing f = {0};
    bool old = !strcmp(version, "HTTP/1.0");
    xn_framing_start(&f, request->method, strlen(request->method), &request->target);
    if (request->bad_path)
        xn_framing_refuse(&f, 400, "bad_request", "path",
                          "the path holds an encoded NUL byte (%00)");
    if (xn_library_strict())
        MHD_get_connection_values_n(request->connection, MHD_HEADER_KIND, visit_field, &f);
    else
        walk_head(request, &f, version);
    xn_framing_finish(&f, old);
    request->has_length = f.has_length;
    request->length = f.length;
    request->expects = f.expects;
    if (!f.status)
        return;
    request->close = true;
    refuse(request, f.status, XN_REJECT_FRAMING, f.code, f.field, f.message);
}

/* The path of the target, which the library has decoded as a whole. */
static const char *path_of(const xn_request *request, const char *url) {
    const xn_target *target = &request->target;
    if (target->form != XN_TARGET_ABSOLUTE)
        return url;
    if (target->has_path)
        return url + target->prefix;
    return strcmp(request->method, "OPTIONS") ? "/" : "*"; /* RFC 9112 section 3.2.4 */
}

/* What the library answers by itself; see http_library.h. */
static struct MHD_Response *library_refusal(void *context, struct MHD_Connection *connection,
                                            unsigned status) {
    static const struct {
        unsigned status;
        const char *code, *message;
    } refusals[] = {
        {400, "bad_request", "the request line or a header is malformed"},
        {413, "too_large", "the request is too large"},
        {414, "uri_too_long", "the request line is too long"},
        {431, "header_too_large", "the headers are too large"},
        {501, "not_implemented", "the request needs what this server does not do"},
        {505, "version_not_supported", "the version is not HTTP/1.0 or HTTP/1.1"},
    };
    xn_http *http = context;
    char text[640], id[XN_PROTO_MAX_ID + 1];
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        if (refusals[i].status != status)
            continue;
        size_t length =
            xn_proto_write_error(refusals[i].code, refusals[i].message, "", text, sizeof text);
        struct MHD_Response *response =
            MHD_create_response_from_buffer(length, text, MHD_RESPMEM_MUST_COPY);
        if (!response)
            return NULL;
        make_id(http, id, sizeof id);
        MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, "application/json");
        MHD_add_response_header(response, "X-Request-Id", id);
        xn_metrics_rejected(http->metrics, XN_REJECT_FRAMING);
        const union MHD_ConnectionInfo *info =
            MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
        if (info && info->socket_context)
            ((xn_conn *)info->socket_context)->linger = true;
        return response;
    }
    return NULL;
}

static void check_id(xn_request *request) {
    const char *id = xn_request_header(request, "X-Request-Id");
    if (!id)
        return;
    if (xn_proto_id_valid(id)) {
        snprintf(request->id, sizeof request->id, "%s", id);
        request->id_from_header = true;
    } else if (!request->responded) {
        refuse(request, 400, XN_REJECT_MALFORMED, "bad_request", "X-Request-Id",
               "X-Request-Id must be 1 to 128 printable ASCII characters without quotation mark "
               "or backslash");
    }
}

/* ---- the callbacks of the library ---- */

static void *request_line(void *context, const char *uri, struct MHD_Connection *connection) {
    xn_http *http = context;
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    xn_request *request = info && info->socket_context ? xn_mem_alloc(sizeof *request) : NULL;
    if (!request)
        return NULL;
    memset(request, 0, offsetof(xn_request, headers));
    request->http = http;
    request->connection = connection;
    request->conn = info->socket_context;
    request->started_ns = xn_now_ns();
    request->target_text = uri;
    request->target_length = uri ? strlen(uri) : 0;
    request->target = xn_target_read(uri, request->target_length);
    request->method = "-"; /* until the headers are in */
    request->path = uri ? uri : "";
    request->bad_path = uri && strstr(uri, "%00");
    make_id(http, request->id, sizeof request->id);
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
    request->stage = STAGE_WAITING;
    xn_conn_enter(request->conn, XN_PHASE_PARKED, 0, NULL);
    MHD_suspend_connection(request->connection);
    xn_gate_wait(gate, &request->place);
    return true;
}

static void gate_opens(xn_gate_place *place) {
    xn_request *request = (xn_request *)(void *)((char *)place - offsetof(xn_request, place));
    struct MHD_Connection *connection = request->connection;
    xn_conn_enter(request->conn, XN_PHASE_HEADERS, 0, NULL);
    MHD_resume_connection(connection);
}

static enum MHD_Result take_body(xn_request *request) {
    if (!xn_request_responded(request))
        request->http->handler.headers(request->http->handler.context, request);
    if (request->aborted)
        return MHD_NO;
    bool early = request->close || request->expects || request->length > DISCARD_BYTES;
    if (request->responded && early)
        return deliver(request);
    if (!request->responded && !request->body && request->length > DISCARD_BYTES) {
        request->close = true;
        refuse(request, 413, XN_REJECT_TOO_LARGE, "too_large", "Content-Length",
               "this route takes no body of that size");
        return deliver(request);
    }
    request->stage = STAGE_BODY;
    xn_conn_enter(request->conn, XN_PHASE_BODY, 0, NULL);
    return MHD_YES;
}

/* Headers are in. Returns what the library's callback returns. */
static enum MHD_Result begin(xn_request *request, const char *url, const char *method,
                             const char *version) {
    request->method = method;
    request->path = path_of(request, url);
    check_framing(request, version);
    check_id(request);
    return waits_at_gate(request) ? MHD_YES : take_body(request);
}

static enum MHD_Result receive(xn_request *request, const char *data, size_t *size) {
    if (*size > request->length - request->received)
        return MHD_NO; /* the library never delivers more than Content-Length */
    if (request->body && !request->responded && *size > request->allowed - request->received) {
        request->http->handler.more(request->http->handler.context, request,
                                    request->received + *size);
        if (xn_request_responded(request))
            return cut_off(request);
    }
    if (request->body && !request->responded)
        memcpy(request->body + request->received, data, *size);
    request->received += *size;
    *size = 0;
    xn_conn_received(request->conn, request->received);
    return MHD_YES;
}

static enum MHD_Result complete(xn_request *request) {
    if (request->received != request->length)
        return MHD_NO;
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
    case STAGE_NEW:
        return begin(request, url, method, version);
    case STAGE_WAITING:
        return take_body(request);
    case STAGE_BODY: {
        if (*size)
            return receive(request, data, size);
        if (complete(request) != MHD_YES)
            return MHD_NO;
        if (request->stage == STAGE_PARKED) /* written by this thread alone */
            return MHD_YES;
        return deliver(request);
    }
    case STAGE_PARKED:
        if (!xn_request_responded(request))
            request->http->handler.answer(request->http->handler.context, request);
        return deliver(request);
    case STAGE_RESPONDING:
        break;
    }
    return MHD_NO;
}

void xn_request_park(xn_request *request) {
    request->stage = STAGE_PARKED;
    xn_conn_enter(request->conn, XN_PHASE_PARKED, 0, request);
    MHD_suspend_connection(request->connection);
}

void xn_request_unpark(xn_request *request) {
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
    bool ours = request->stage == STAGE_RESPONDING;
    bool cut_off = ours && request->release;
    int status = ours ? request->status : library_status(connection);
    /* The library ends what it answered by itself as an error, sent or not. */
    bool delivered = why == MHD_REQUEST_TERMINATED_COMPLETED_OK || cut_off || (!ours && status);
    if (status && delivered)
        xn_metrics_add(http->metrics, XN_COUNTER_SENT_BYTES, (int64_t)request->response_length);
    release_body(request);
    if (is_for_gate(request))
        xn_gate_leave(http->gate, &request->place);
    http->handler.finished(http->handler.context, request, status, delivered);
    xn_conn_enter(request->conn, XN_PHASE_IDLE, 0, NULL);
    xn_mem_free(request);
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
    xn_conn *conn = address ? xn_conns_add(http->conns, fd, tls, address) : NULL;
    if (conn)
        return conn;
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
        xn_conns_remove(http->conns, conn);
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
    /* 0.9 strict would answer a missing Host by itself, which walk_head and framing.c see. */
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
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)XN_CONNECTION_BYTES,
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
        status = xn_library_bind(library_refusal, http, error);
    if (!status)
        status =
            xn_listener_open(options->listen, options->port, &http->listener, &http->port, error);
    if (!status)
        status = start_daemon(http, options, error);
    if (status) {
        xn_library_unbind();
        xn_conns_free(http->conns);
        xn_gate_free(http->gate);
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
    MHD_stop_daemon(http->daemon);
    xn_library_unbind();
    xn_conns_free(http->conns);
    xn_gate_free(http->gate);
    xn_mem_free(http);
}
