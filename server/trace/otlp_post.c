/* otlp_post.c: see otlp_post.h. */
#include "otlp_post.h"

#include "clock.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#define LOOK_NS (100 * XN_NS_PER_MS)
#define CONNECT_NS (2 * XN_NS_PER_S) /* for one of a host's addresses */
#define HEAD_BYTES 4096              /* of an answer; what is behind it is not read */

typedef struct post {
    const xn_otlp_target *target;
    int64_t deadline_ns;
    const atomic_int_least64_t *stop_ns;
    xn_otlp_answer *out;
    int fd;
} post;

static bool fail(const post *p, const char *what, const char *why) {
    snprintf(p->out->why, sizeof p->out->why, "%s: %s", what, why);
    return false;
}

static int64_t left_ns(const post *p, int64_t until_ns) {
    const int64_t stop_ns = atomic_load(p->stop_ns);
    int64_t end_ns = p->deadline_ns < until_ns ? p->deadline_ns : until_ns;
    end_ns = stop_ns < end_ns ? stop_ns : end_ns;
    return end_ns - xn_now_ns();
}

/* What of `events` came, or an error's; 0: the time is over. */
static short wait_for(const post *p, short events, int64_t until_ns) {
    for (int64_t left; (left = left_ns(p, until_ns)) > 0;) {
        struct pollfd one = {.fd = p->fd, .events = events};
        const int64_t look = left < LOOK_NS ? left : LOOK_NS;
        if (poll(&one, 1, (int)(look / XN_NS_PER_MS) + 1) > 0)
            return one.revents;
    }
    return 0;
}

/* ---- connecting ---- */

static bool connect_to(post *p, const struct addrinfo *address) {
    const int64_t until_ns = xn_now_ns() + CONNECT_NS;
    int error = 0;
    socklen_t size = sizeof error;
    p->fd = socket(address->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (p->fd < 0)
        return fail(p, "socket", strerror(errno));
    if (connect(p->fd, address->ai_addr, address->ai_addrlen) && errno != EINPROGRESS)
        error = errno;
    else if (!wait_for(p, POLLOUT, until_ns))
        error = ETIMEDOUT;
    else
        getsockopt(p->fd, SOL_SOCKET, SO_ERROR, &error, &size);
    if (!error)
        return true;
    close(p->fd);
    return fail(p, "connect", strerror(error));
}

static bool open_connection(post *p) {
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    struct addrinfo *all = NULL;
    const int failed = getaddrinfo(p->target->host, p->target->port, &hints, &all);
    if (failed)
        return fail(p, "its host name", gai_strerror(failed));
    bool connected = false;
    for (const struct addrinfo *one = all; one && !connected; one = one->ai_next)
        connected = connect_to(p, one);
    freeaddrinfo(all);
    return connected;
}

/* ---- sending ---- */

/* An answer, or a close, may come before all is sent: what is left is not sent then. */
static bool send_bytes(const post *p, const char *bytes, size_t length) {
    while (length) {
        const short got = wait_for(p, POLLIN | POLLOUT, INT64_MAX);
        if (!got)
            return fail(p, "sending", "the time is over");
        if (got & ~POLLOUT)
            return true;
        const ssize_t sent = send(p->fd, bytes, length, MSG_NOSIGNAL);
        if (sent < 0 && errno != EAGAIN && errno != EINTR)
            return fail(p, "sending", strerror(errno));
        bytes += sent > 0 ? sent : 0;
        length -= sent > 0 ? (size_t)sent : 0;
    }
    return true;
}

static bool send_request(const post *p, const char *body, size_t length) {
    char head[sizeof *p->target + 160];
    const int bytes = snprintf(head, sizeof head,
                               "POST %s HTTP/1.1\r\nHost: %s\r\nUser-Agent: xnord/" XN_VERSION
                               "\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n"
                               "Connection: close\r\n\r\n",
                               p->target->path, p->target->authority, length);
    return send_bytes(p, head, (size_t)bytes) && send_bytes(p, body, length);
}

/* ---- the answer ---- */

/* "HTTP/1.1 200 ", or 0. */
static int read_status(const char *head) {
    if (strncmp(head, "HTTP/1.", 7) != 0 || (head[7] != '0' && head[7] != '1') || head[8] != ' ' ||
        strspn(head + 9, "0123456789") != 3 || !strchr(" \r", head[12]))
        return 0;
    const int status = atoi(head + 9);
    return status >= 200 && status < 600 ? status : 0;
}

/* Seconds; as a date it counts as not given. */
static int read_retry_after(const char *head) {
    static const char name[] = "\r\nRetry-After:";
    const char *at = head;
    while (*at && strncasecmp(at, name, sizeof name - 1) != 0)
        at++;
    if (!*at)
        return -1;
    at += sizeof name - 1;
    at += strspn(at, " \t");
    const size_t digits = strspn(at, "0123456789");
    return digits && digits < 7 && at[digits] == '\r' ? atoi(at) : -1;
}

static bool read_answer(const post *p) {
    char head[HEAD_BYTES + 1] = "";
    size_t length = 0;
    while (length < HEAD_BYTES && !strstr(head, "\r\n\r\n")) {
        if (!wait_for(p, POLLIN, INT64_MAX))
            return fail(p, "waiting for its answer", "the time is over");
        const ssize_t got = recv(p->fd, head + length, HEAD_BYTES - length, 0);
        if (got < 0 && (errno == EAGAIN || errno == EINTR))
            continue;
        if (got <= 0)
            return fail(p, "reading its answer",
                        got ? strerror(errno) : "it closed the connection");
        length += (size_t)got;
        head[length] = '\0';
    }
    p->out->status = read_status(head);
    p->out->retry_after_s = read_retry_after(head);
    return p->out->status || fail(p, "reading its answer", "it is not HTTP/1.1");
}

void xn_otlp_post(const xn_otlp_target *target, const char *body, size_t length,
                  int64_t deadline_ns, const atomic_int_least64_t *stop_ns, xn_otlp_answer *out) {
    post p = {target, deadline_ns, stop_ns, out, -1};
    *out = (xn_otlp_answer){.retry_after_s = -1};
    if (!open_connection(&p))
        return;
    if (send_request(&p, body, length))
        read_answer(&p);
    close(p.fd);
}
