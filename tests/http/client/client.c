/* client.c: see client.h. The connection part; daemon.c has the child processes. */
#include "client.h"

#include <arpa/inet.h>
#include <errno.h>
#include <math.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* ---- growing text ---- */

static void reserve(xt_buffer *buffer, size_t more) {
    size_t need = buffer->length + more + 1;
    if (need <= buffer->capacity)
        return;
    size_t capacity = buffer->capacity ? buffer->capacity : 256;
    while (capacity < need)
        capacity *= 2;
    char *data = realloc(buffer->data, capacity);
    if (!data)
        abort();
    buffer->data = data;
    buffer->capacity = capacity;
}

void xt_append(xt_buffer *buffer, const void *bytes, size_t length) {
    reserve(buffer, length);
    if (length)
        memcpy(buffer->data + buffer->length, bytes, length);
    buffer->length += length;
    buffer->data[buffer->length] = 0;
}

void xt_print(xt_buffer *buffer, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int need = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    reserve(buffer, (size_t)need);
    va_start(arguments, format);
    vsnprintf(buffer->data + buffer->length, (size_t)need + 1, format, arguments);
    va_end(arguments);
    buffer->length += (size_t)need;
}

void xt_buffer_free(xt_buffer *buffer) {
    free(buffer->data);
    *buffer = (xt_buffer){0};
}

int64_t xt_now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

void xt_nap(void) {
    nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
}

/* ---- connections ---- */

static bool connect_address(xt_conn *conn, int port, const char *source) {
    *conn = (xt_conn){.fd = -1};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return false;
    struct sockaddr_in from = {.sin_family = AF_INET};
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int one = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (source && (inet_pton(AF_INET, source, &from.sin_addr) != 1 ||
                   bind(fd, (struct sockaddr *)&from, sizeof from))) {
        close(fd);
        return false;
    }
    if (connect(fd, (struct sockaddr *)&to, sizeof to)) {
        close(fd);
        return false;
    }
    conn->fd = fd;
    return true;
}

bool xt_connect(xt_conn *conn, const xt_daemon *daemon) {
    return connect_address(conn, daemon->port, NULL);
}

bool xt_connect_from(xt_conn *conn, const xt_daemon *daemon, const char *source) {
    return connect_address(conn, daemon->port, source);
}

void xt_disconnect(xt_conn *conn) {
    if (conn->fd >= 0)
        close(conn->fd);
    conn->fd = -1;
    xt_buffer_free(&conn->in);
}

void xt_reset(xt_conn *conn) {
    struct linger now = {.l_onoff = 1, .l_linger = 0};
    if (conn->fd >= 0)
        setsockopt(conn->fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    xt_disconnect(conn);
}

static bool wait_for(int fd, short events, int64_t deadline) {
    for (;;) {
        int64_t left = deadline - xt_now_ms();
        struct pollfd p = {.fd = fd, .events = events};
        int n = poll(&p, 1, left > 0 ? (int)left : 0);
        if (n > 0)
            return true;
        if (n == 0 || errno != EINTR)
            return false;
    }
}

bool xt_send(xt_conn *conn, const void *bytes, size_t length) {
    const char *at = bytes;
    int64_t deadline = xt_now_ms() + XT_PATIENCE_MS;
    while (length) {
        if (conn->fd < 0 || !wait_for(conn->fd, POLLOUT, deadline))
            return false;
        ssize_t n = send(conn->fd, at, length, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && (errno == EINTR || errno == EAGAIN))
            continue;
        if (n <= 0)
            return false;
        at += n;
        length -= (size_t)n;
    }
    return true;
}

bool xt_send_text(xt_conn *conn, const char *text) {
    return xt_send(conn, text, strlen(text));
}

/* More bytes into conn->in: 1, 0 at the peer's close, -1 when the deadline passes. */
static int fill(xt_conn *conn, int64_t deadline) {
    char piece[65536];
    for (;;) {
        if (conn->fd < 0)
            return 0;
        if (!wait_for(conn->fd, POLLIN, deadline))
            return -1;
        ssize_t n = recv(conn->fd, piece, sizeof piece, MSG_DONTWAIT);
        if (n > 0) {
            xt_append(&conn->in, piece, (size_t)n);
            return 1;
        }
        if (n < 0 && (errno == EINTR || errno == EAGAIN))
            continue;
        return 0; /* end of stream, or a reset */
    }
}

bool xt_closed_within(xt_conn *conn, int64_t ms) {
    int64_t deadline = xt_now_ms() + ms;
    int got;
    do
        got = fill(conn, deadline);
    while (got > 0);
    return got == 0;
}

bool xt_quiet(xt_conn *conn, int64_t ms) {
    return !conn->in.length && !wait_for(conn->fd, POLLIN, xt_now_ms() + ms);
}

/* ---- responses ---- */

const char *xt_result_name(xt_result result) {
    static const char *const names[] = {"a response", "a close before any response",
                                        "a close inside the response", "silence",
                                        "bytes that are not HTTP"};
    return names[result];
}

void xt_response_free(xt_response *response) {
    free(response->head);
    free(response->body);
    *response = (xt_response){0};
}

/* The line of header number `skip` of that name, or NULL. */
static const char *find_header(const xt_response *response, const char *name, int skip) {
    size_t length = strlen(name);
    for (const char *line = response->head; line; line = strstr(line, "\r\n")) {
        line += line == response->head ? 0 : 2;
        if (!strncasecmp(line, name, length) && line[length] == ':' && skip-- == 0)
            return line + length + 1;
    }
    return NULL;
}

int xt_header_count(const xt_response *response, const char *name) {
    int count = 0;
    while (find_header(response, name, count))
        count++;
    return count;
}

const char *xt_header(const xt_response *response, const char *name, char *text, size_t size) {
    const char *value = find_header(response, name, 0);
    if (!value)
        return NULL;
    value += strspn(value, " \t");
    size_t length = strcspn(value, "\r");
    while (length && (value[length - 1] == ' ' || value[length - 1] == '\t'))
        length--;
    if (length >= size)
        length = size - 1;
    memcpy(text, value, length);
    text[length] = 0;
    return text;
}

static void consume(xt_conn *conn, size_t length) {
    memmove(conn->in.data, conn->in.data + length, conn->in.length - length);
    conn->in.length -= length;
    conn->in.data[conn->in.length] = 0;
}

/* Makes `need` bytes available. */
static xt_result need_bytes(xt_conn *conn, size_t need, int64_t deadline) {
    while (conn->in.length < need) {
        int got = fill(conn, deadline);
        if (got <= 0)
            return got < 0 ? XT_SILENT : XT_CUT;
    }
    return XT_GOT;
}

/* Makes everything up to and including the mark available, from an offset; *at gets its place. */
static xt_result need_mark(xt_conn *conn, const char *mark, size_t from, size_t *at,
                           int64_t deadline) {
    size_t length = strlen(mark);
    for (;;) {
        if (conn->in.length >= from + length) {
            char *found = memmem(conn->in.data + from, conn->in.length - from, mark, length);
            if (found) {
                *at = (size_t)(found - conn->in.data);
                return XT_GOT;
            }
        }
        int got = fill(conn, deadline);
        if (got <= 0)
            return got < 0 ? XT_SILENT : XT_CUT;
    }
}

static xt_result read_chunked(xt_conn *conn, xt_buffer *body, int64_t deadline) {
    for (;;) {
        size_t line;
        xt_result result = need_mark(conn, "\r\n", 0, &line, deadline);
        if (result != XT_GOT)
            return result;
        char *end;
        unsigned long long length = strtoull(conn->in.data, &end, 16);
        if (end == conn->in.data || length > (1u << 30))
            return XT_GARBLED;
        size_t whole = line + 2 + (size_t)length + 2;
        result = need_bytes(conn, whole, deadline);
        if (result != XT_GOT)
            return result;
        if (memcmp(conn->in.data + whole - 2, "\r\n", 2))
            return XT_GARBLED;
        xt_append(body, conn->in.data + line + 2, (size_t)length);
        consume(conn, whole);
        if (!length)
            return XT_GOT;
    }
}

static xt_result read_body(xt_conn *conn, xt_response *response, bool head, int64_t deadline) {
    const char *length_text = XT_HEADER(response, "Content-Length");
    const char *encoding = XT_HEADER(response, "Transfer-Encoding");
    xt_buffer body = {0};
    xt_append(&body, "", 0);
    xt_result result = XT_GOT;
    if (head || response->status < 200 || response->status == 204 || response->status == 304) {
        ;
    } else if (encoding && !strcasecmp(encoding, "chunked")) {
        result = read_chunked(conn, &body, deadline);
    } else if (length_text) {
        char *end;
        unsigned long long length = strtoull(length_text, &end, 10);
        if (*end || end == length_text) {
            result = XT_GARBLED;
        } else if ((result = need_bytes(conn, (size_t)length, deadline)) == XT_GOT) {
            xt_append(&body, conn->in.data, (size_t)length);
            consume(conn, (size_t)length);
        }
    } else { /* until the close */
        int got;
        while ((got = fill(conn, deadline)) > 0)
            ;
        result = got < 0 ? XT_SILENT : XT_GOT;
        xt_append(&body, conn->in.data, conn->in.length);
        consume(conn, conn->in.length);
    }
    response->body = body.data;
    response->length = body.length;
    return result;
}

/* Reads exactly one message, interim ones too. */
static xt_result receive_one(xt_conn *conn, bool head, xt_response *response, int64_t deadline) {
    size_t end = 0;
    xt_append(&conn->in, "", 0);
    xt_result result = need_mark(conn, "\r\n\r\n", 0, &end, deadline);
    if (result == XT_CUT && !conn->in.length)
        return XT_CLOSED;
    if (result != XT_GOT)
        return result;
    response->head = strndup(conn->in.data, end);
    consume(conn, end + 4);
    int minor = 0, used = 0;
    if (!response->head ||
        sscanf(response->head, "HTTP/1.%1d %3d%n", &minor, &response->status, &used) != 2 ||
        used != 12 || response->status < 100 || response->status > 599)
        return XT_GARBLED;
    const char *connection = XT_HEADER(response, "Connection");
    response->close = connection && !strcasecmp(connection, "close");
    return read_body(conn, response, head, deadline);
}

xt_result xt_receive(xt_conn *conn, bool head, bool interim, xt_response *response) {
    int64_t deadline = xt_now_ms() + XT_PATIENCE_MS;
    *response = (xt_response){0};
    for (;;) {
        xt_result result = receive_one(conn, head, response, deadline);
        if (result != XT_GOT || response->status >= 200 || interim)
            return result;
        xt_response_free(response);
    }
}

xt_result xt_request(xt_conn *conn, const char *method, const char *target, const char *headers,
                     const void *body, size_t length, xt_response *response) {
    xt_buffer head = {0};
    *response = (xt_response){0};
    xt_print(&head, "%s %s HTTP/1.1\r\nHost: xnord.test\r\n%s", method, target, headers);
    if (body)
        xt_print(&head, "Content-Length: %zu\r\n", length);
    xt_print(&head, "\r\n");
    /* A refusal may come, and the socket be closed, before the body is through: the answer counts.
     */
    if (xt_send(conn, head.data, head.length) && body)
        xt_send(conn, body, length);
    xt_buffer_free(&head);
    return xt_receive(conn, !strcmp(method, "HEAD"), false, response);
}

void xt_fetch(const xt_daemon *daemon, const char *method, const char *target, const char *headers,
              const void *body, size_t length, xt_response *response) {
    xt_conn conn;
    ck_assert_msg(xt_connect(&conn, daemon), "cannot connect for %s %s: %s", method, target,
                  strerror(errno));
    xt_result result = xt_request(&conn, method, target, headers, body, length, response);
    xt_disconnect(&conn);
    ck_assert_msg(result == XT_GOT, "%s %s got %s", method, target, xt_result_name(result));
}

void xt_expect(const xt_daemon *daemon, const char *method, const char *target, const char *headers,
               const char *body, int status) {
    xt_response response;
    xt_fetch(daemon, method, target, headers, body, body ? strlen(body) : 0, &response);
    ck_assert_msg(response.status == status, "%s %s: %d, expected %d: %s", method, target,
                  response.status, status, response.body);
    xt_response_free(&response);
}

char *xt_get(const xt_daemon *daemon, const char *target) {
    xt_response response;
    xt_fetch(daemon, "GET", target, "", NULL, 0, &response);
    ck_assert_msg(response.status == 200, "GET %s: %d %s", target, response.status, response.body);
    char *body = response.body;
    response.body = NULL;
    xt_response_free(&response);
    return body;
}

/* ---- metrics ---- */

double xt_sample(const char *page, const char *sample) {
    size_t length = strlen(sample);
    for (const char *line = page; line; line = strchr(line, '\n')) {
        line += line == page ? 0 : 1;
        if (!strncmp(line, sample, length) && line[length] == ' ')
            return strtod(line + length + 1, NULL);
    }
    return NAN;
}

double xt_metric(const xt_daemon *daemon, const char *sample) {
    char *page = xt_get(daemon, "/metrics");
    double value = xt_sample(page, sample);
    free(page);
    return value;
}

bool xt_metric_reaches(const xt_daemon *daemon, const char *sample, double at_least) {
    for (int64_t end = xt_now_ms() + XT_PATIENCE_MS; xt_now_ms() < end; xt_nap())
        if (xt_metric(daemon, sample) >= at_least)
            return true;
    return false;
}

bool xt_metric_becomes(const xt_daemon *daemon, const char *sample, double value) {
    for (int64_t end = xt_now_ms() + XT_PATIENCE_MS; xt_now_ms() < end; xt_nap()) {
        double now = xt_metric(daemon, sample);
        if (now >= value && now <= value)
            return true;
    }
    return false;
}
