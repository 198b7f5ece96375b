/* load_conn.c: one HTTP/1.1 connection of bench-http load: sends the prepared request, reads
 * the answer wherever it comes, also in the middle of a body, and checks it. Sockets are
 * edge-triggered: read and write until there is no more. */
#include "load.h"

#include "../clock.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

static void hang_up(ol_conn *conn) {
    if (conn->fd >= 0)
        close(conn->fd); /* leaves the epoll set by itself */
    conn->fd = -1;
    conn->state = OL_CLOSED;
}

static void forget_answer(ol_conn *conn) {
    conn->head_length = conn->length = conn->received = conn->skip = 0;
    conn->head_done = conn->closes = conn->retry_after = conn->differs = false;
    conn->status = 0;
    conn->compute_ns = 0;
}

static int number_of(const ol_conn *conn) {
    const ol_thread *thread = conn->thread;
    return (int)(conn - thread->conns) * thread->plan->threads + thread->index;
}

static bool open_socket(ol_conn *conn) {
    ol_thread *thread = conn->thread;
    const ol_plan *plan = thread->plan;
    int on = 1, number = number_of(conn);
    conn->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (conn->fd < 0)
        return false;
    setsockopt(conn->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (plan->sources > 1) { /* 127.0.0.1 and its neighbours: clients of different addresses */
        struct sockaddr_in from = {.sin_family = AF_INET};
        from.sin_addr.s_addr = htonl(INADDR_LOOPBACK + (uint32_t)(number % plan->sources));
        setsockopt(conn->fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof on);
        if (bind(conn->fd, (struct sockaddr *)&from, sizeof from))
            return false;
    }
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET,
                                .data.ptr = conn};
    if (connect(conn->fd, (const struct sockaddr *)&plan->server, sizeof plan->server) &&
        errno != EINPROGRESS)
        return false;
    conn->fresh = true;
    return !epoll_ctl(thread->epoll_fd, EPOLL_CTL_ADD, conn->fd, &event);
}

static void finish(ol_conn *conn, ol_outcome outcome) {
    ol_counts *counts = &conn->thread->counts;
    if (conn->counted && conn->status > 0 && conn->status < 600)
        counts->statuses[conn->status]++;
    ol_thread_done(conn, outcome);
}

static void lose(ol_conn *conn) {
    bool stale = !conn->fresh && !conn->head_length;
    int64_t due_ns = conn->due_ns;
    hang_up(conn);
    if (stale) { /* it was closed while idle: any client sends again on a new one */
        conn->thread->counts.reconnects++;
        conn->thread->busy--;
        ol_conn_start(conn, due_ns, conn->counted);
        return;
    }
    finish(conn, OL_LOST);
}

/* ---- sending ---- */

/* What is still to be sent, around the stamp; how many pieces. */
static size_t pieces_of(ol_conn *conn, struct iovec out[3]) {
    const ol_message *message = &conn->thread->plan->message;
    const size_t stamp = message->stamp_at ? OL_STAMP : 0;
    const size_t lengths[] = {message->stamp_at, stamp,
                              message->length - message->stamp_at - stamp};
    const size_t variant = (size_t)number_of(conn) % message->variants;
    char *const bytes = message->bytes + variant * message->length;
    char *const pieces[] = {bytes, (char *)&conn->stamp, bytes + message->stamp_at + stamp};
    size_t count = 0, skip = conn->sent;
    for (int i = 0; i < 3; i++) {
        const size_t off = skip < lengths[i] ? skip : lengths[i];
        if (lengths[i] > off)
            out[count++] = (struct iovec){pieces[i] + off, lengths[i] - off};
        skip -= off;
    }
    return count;
}

/* False when the peer takes no more: its answer may be there all the same. */
static bool send_more(ol_conn *conn) {
    struct iovec pieces[3];
    struct msghdr message = {.msg_iov = pieces};
    while ((message.msg_iovlen = pieces_of(conn, pieces)) > 0) {
        ssize_t n = sendmsg(conn->fd, &message, MSG_NOSIGNAL);
        if (n < 0)
            return errno == EAGAIN || errno == ENOTCONN || errno == EINTR;
        conn->sent += (size_t)n;
    }
    return true;
}

/* New ones begin with the seed's and the thread's number. */
static uint64_t next_stamp(ol_thread *thread) {
    const double chance = (double)(xn_rng_next(&thread->rng) >> 11) / 9007199254740992.0;
    if (chance < thread->plan->repeat)
        return xn_rng_below(&thread->rng, OL_STAMPS);
    return thread->plan->seed << 40 | (uint64_t)(thread->index + 1) << 32 | thread->stamps++;
}

void ol_conn_start(ol_conn *conn, int64_t due_ns, bool counted) {
    if (conn->thread->plan->message.stamp_at)
        conn->stamp = next_stamp(conn->thread);
    conn->due_ns = due_ns;
    conn->counted = counted;
    conn->sent = 0;
    forget_answer(conn);
    conn->thread->busy++;
    if (conn->state == OL_CLOSED && !open_socket(conn)) {
        hang_up(conn);
        finish(conn, OL_LOST);
        return;
    }
    conn->state = OL_BUSY;
    if (!send_more(conn))
        ol_conn_ready(conn);
}

/* ---- receiving ---- */

static int64_t compute_of(const char *timing) {
    const char *at = strstr(timing, "compute;dur=");
    return at ? (int64_t)(1e6 * strtod(at + 12, NULL)) : 0;
}

static void read_header(ol_conn *conn, const char *line) {
    if (!strncasecmp(line, "Content-Length:", 15))
        conn->length = strtoull(line + 15, NULL, 10);
    else if (!strncasecmp(line, "Inference-Header-Content-Length:", 32))
        conn->skip = strtoull(line + 32, NULL, 10);
    else if (!strncasecmp(line, "Retry-After:", 12))
        conn->retry_after = strtol(line + 12, NULL, 10) >= 1;
    else if (!strncasecmp(line, "Connection: close", 17))
        conn->closes = true;
    else if (!strncasecmp(line, "Server-Timing:", 14))
        conn->compute_ns = compute_of(line + 14);
}

/* Takes what belongs to the head; the bytes used. */
static size_t take_head(ol_conn *conn, const char *bytes, size_t count) {
    size_t room = sizeof conn->head - 1 - conn->head_length, n = count < room ? count : room;
    size_t before = conn->head_length;
    memcpy(conn->head + before, bytes, n);
    conn->head[before + n] = 0;
    char *end = strstr(conn->head + (before > 3 ? before - 3 : 0), "\r\n\r\n");
    conn->head_length += n;
    if (!end)
        return n;
    end[2] = 0;
    conn->head_done = true;
    conn->status = strncmp(conn->head, "HTTP/1.1 ", 9) ? 0 : atoi(conn->head + 9);
    for (char *line = strstr(conn->head, "\r\n"); line; line = strstr(line + 2, "\r\n"))
        read_header(conn, line + 2);
    return (size_t)(end + 4 - conn->head) - before;
}

static void take_body(ol_conn *conn, const unsigned char *bytes, size_t count) {
    const ol_message *message = &conn->thread->plan->message;
    if (conn->status == 200 && message->output) {
        size_t at = conn->received, from = at < conn->skip ? conn->skip - at : 0;
        size_t place = at + from - conn->skip; /* in the output, if any of it is here */
        if (from < count && place + (count - from) <= message->output_bytes)
            conn->differs |= memcmp(bytes + from, message->output + place, count - from) != 0;
    }
    conn->received += count;
}

static ol_outcome judge(const ol_conn *conn) {
    const ol_message *message = &conn->thread->plan->message;
    switch (conn->status) {
    case 200:
        if (message->any_length)
            return OL_GOOD;
        return conn->differs || conn->length != conn->skip + message->output_bytes ? OL_WRONG
                                                                                   : OL_GOOD;
    case 429:
    case 503:
        return conn->retry_after ? OL_REFUSED : OL_BARE;
    case 504:
        return OL_EXPIRED;
    default:
        return OL_OTHER;
    }
}

/* A whole answer is there. */
static void answered(ol_conn *conn) {
    ol_outcome outcome = judge(conn);
    conn->fresh = false;
    if (conn->closes || conn->sent < conn->thread->plan->message.length)
        hang_up(conn); /* it does not want the rest of the body */
    else
        conn->state = OL_IDLE;
    finish(conn, outcome);
}

/* Everything that is there to read. False: the connection is finished, one way or the other. */
static bool receive(ol_conn *conn) {
    unsigned char *scratch = conn->thread->scratch;
    for (;;) {
        ssize_t n = recv(conn->fd, scratch, OL_SCRATCH_BYTES, 0);
        if (n < 0 && errno == EAGAIN)
            return true;
        if (n <= 0) {
            if (conn->state == OL_BUSY)
                lose(conn);
            else
                hang_up(conn);
            return false;
        }
        size_t used = 0, count = (size_t)n;
        if (conn->state != OL_BUSY) { /* bytes nobody asked for, as a 408 of an idle connection */
            hang_up(conn);
            return false;
        }
        if (!conn->head_done)
            used = take_head(conn, (char *)scratch, count);
        if (conn->head_done && used < count)
            take_body(conn, scratch + used, count - used);
        if (conn->head_done && conn->received >= conn->length) {
            answered(conn);
            return false;
        }
        if (!conn->head_done && conn->head_length >= sizeof conn->head - 1) {
            hang_up(conn);
            finish(conn, OL_OTHER);
            return false;
        }
    }
}

void ol_conn_ready(ol_conn *conn) {
    if (conn->fd < 0 || !receive(conn) || conn->state != OL_BUSY)
        return;
    if (!send_more(conn) && receive(conn))
        lose(conn);
}
