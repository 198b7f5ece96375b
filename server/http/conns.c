/* conns.c: the list of connections and its watcher thread; see conns.h. */
#include "conns.h"

#include "clock.h"
#include "threads.h"
#include "xn_mem.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define TICK_NS (25 * XN_NS_PER_MS)
#define RATE_FREE_NS (5 * XN_NS_PER_S) /* a body's rate is not judged before */
#define ACCEPT_DELAY_NS                                                                            \
    (50 * XN_NS_PER_MS)      /* from the system's accept to the list, at the very most */
#define ENDED_NS XN_NS_PER_S /* between the stream's end and giving its request up */
#define LINGER_NS (2 * XN_NS_PER_S)
#define LINGER_BYTES ((size_t)1 << 20) /* thrown away at most */
#define LINGER_QUIET_NS (200 * XN_NS_PER_MS)
#define MAX_LINGERING 256 /* at a time; one more is closed at once */

typedef struct {
    int fd;
    int64_t until_ns;
    size_t left;
} lingering_socket;

struct xn_conns {
    xn_conns_options options;
    pthread_mutex_t lock; /* guards all below to polled; taken before any conn's lock */
    pthread_cond_t wake;
    pthread_t thread;
    xn_list all;
    size_t count;
    bool stopping;
    int64_t added_ns;      /* when the last one came */
    struct pollfd *polled; /* capacity entries, parallel to owners */
    xn_conn **owners;
    size_t capacity;
    lingering_socket lingering[MAX_LINGERING]; /* guarded by lock, as is: */
    int lingering_count;
};

#define TIMEOUT_BODY                                                                               \
    "{\"error\": {\"code\": \"request_timeout\", \"message\": \"the request did not arrive in "    \
    "time; "                                                                                       \
    "the connection is closed\", \"field\": \"\"}}\n"
static const char timeout_response[] =
    "HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Type: application/json\r\n"
    "X-Content-Type-Options: nosniff\r\n"
    "Content-Length: 127\r\n\r\n" TIMEOUT_BODY;
_Static_assert(sizeof TIMEOUT_BODY - 1 == 127, "the Content-Length above");

/* Both locks held. In these phases nothing of a response has been sent, so a whole one may be sent
 * on the socket directly, except with TLS. */
static void shut_locked(xn_conns *conns, xn_conn *conn, xn_close_reason reason, bool tell) {
    if (conn->shut)
        return;
    conn->shut = true;
    if (tell && !conn->tls)
        (void)!send(conn->fd, timeout_response, sizeof timeout_response - 1,
                    MSG_DONTWAIT | MSG_NOSIGNAL);
    shutdown(conn->fd, SHUT_RDWR);
    xn_metrics_closed(conns->options.metrics, reason);
}

static bool body_too_slow(const xn_conns_options *o, const xn_conn *conn, int64_t age_ns) {
    if (age_ns > o->body_timeout_ns)
        return true;
    if (age_ns < RATE_FREE_NS || o->body_min_rate <= 0)
        return false;
    return (double)conn->bytes < (double)o->body_min_rate * ((double)age_ns / (double)XN_NS_PER_S);
}

/* How many bytes the client has acknowledged on this connection so far. False where the system does
 * not say. */
static bool acknowledged(int fd, uint64_t *out) {
    struct tcp_info info;
    socklen_t length = sizeof info;
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) ||
        length < offsetof(struct tcp_info, tcpi_bytes_acked) + sizeof info.tcpi_bytes_acked)
        return false;
    *out = info.tcpi_bytes_acked;
    return true;
}

/* Judged once in each send timeout: whether the client has taken what the least rate asks for.
 * Where acknowledgements are not known, the whole answer has that time, and the rate's for its
 * length. */
static bool reader_too_slow(const xn_conns_options *o, xn_conn *conn, int64_t now) {
    uint64_t bytes = 0;
    int64_t passed = now - conn->acknowledged_ns;
    if (conn->acknowledged_ns && passed < o->send_timeout_ns)
        return false;
    if (!acknowledged(conn->fd, &bytes)) {
        double allowed = (double)o->send_timeout_ns;
        if (o->body_min_rate > 0)
            allowed += (double)conn->bytes / (double)o->body_min_rate * (double)XN_NS_PER_S;
        return (double)(now - conn->since_ns) > allowed;
    }
    double wanted = (double)o->body_min_rate * ((double)passed / (double)XN_NS_PER_S);
    uint64_t progress = bytes - conn->acknowledged_bytes;
    if (conn->acknowledged_ns && (!progress || (double)progress < wanted))
        return true;
    conn->acknowledged_bytes = bytes;
    conn->acknowledged_ns = now;
    return false;
}

/* Both locks held. Closes with a reset: unsent bytes would keep the socket, and the client reads
 * none. */
static void drop_reader_locked(xn_conns *conns, xn_conn *conn) {
    const struct linger at_once = {1, 0};
    setsockopt(conn->fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    shut_locked(conns, conn, XN_CLOSE_SEND_TIMEOUT, false);
}

/* Both locks held. */
static void check_locked(xn_conns *conns, xn_conn *conn, int64_t now) {
    const xn_conns_options *o = &conns->options;
    int64_t age = now - conn->since_ns;
    switch (conn->phase) {
    case XN_PHASE_NEW:
    case XN_PHASE_HEADERS:
        if (age > o->header_timeout_ns)
            shut_locked(conns, conn, XN_CLOSE_HEADER_TIMEOUT, true);
        break;
    case XN_PHASE_IDLE:
        if (age > o->idle_timeout_ns)
            shut_locked(conns, conn, XN_CLOSE_IDLE_TIMEOUT, false);
        break;
    case XN_PHASE_BODY:
        if (body_too_slow(o, conn, age))
            shut_locked(conns, conn, XN_CLOSE_BODY_TIMEOUT, true);
        break;
    case XN_PHASE_SENDING:
        if (age >= TICK_NS && !conn->shut && reader_too_slow(o, conn, now))
            drop_reader_locked(conns, conn);
        break;
    case XN_PHASE_BUSY:
    case XN_PHASE_SUSPENDED:
        break;
    }
}

static bool watched_phase(xn_phase phase) {
    return phase == XN_PHASE_SUSPENDED || phase == XN_PHASE_HEADERS || phase == XN_PHASE_BODY ||
           phase == XN_PHASE_IDLE;
}

/* Both locks held. The client has closed its direction, or has reset the connection if its request
 * is suspended: then there is no client to answer. A request that is still being received cannot
 * become complete once all its bytes were read and nothing more has happened for a while. The
 * library misses the end of the stream if it came together with the last bytes: its epoll is
 * edge-triggered, and it reads once per edge. */
static void client_ended_locked(xn_conns *conns, xn_conn *conn, int64_t now) {
    int unread = 0;
    if (conn->phase == XN_PHASE_SUSPENDED) {
        if (conn->request)
            conns->options.gone(conns->options.context, conn->request);
    } else if (ioctl(conn->fd, FIONREAD, &unread) || unread) {
        return;
    } else if (conn->phase == XN_PHASE_IDLE) { /* a half-closing client that has its answer */
        conn->shut = true;
        shutdown(conn->fd, SHUT_RDWR);
        return;
    } else if (!conn->ended_ns) {
        conn->ended_ns = now;
        return;
    } else if (now - conn->ended_ns < ENDED_NS) {
        return;
    }
    shut_locked(conns, conn, XN_CLOSE_CLIENT_GONE, false);
}

/* conns->lock held. One poll for all phases worth watching that have lasted a tick or more. */
static void watch_clients_locked(xn_conns *conns, size_t watched, int64_t now) {
    if (!watched || poll(conns->polled, watched, 0) <= 0)
        return;
    for (size_t i = 0; i < watched; i++) {
        xn_conn *conn = conns->owners[i];
        if (!(conns->polled[i].revents & (POLLRDHUP | POLLHUP | POLLERR)))
            continue;
        pthread_mutex_lock(&conn->lock);
        if (watched_phase(conn->phase) && !conn->shut)
            client_ended_locked(conns, conn, now);
        pthread_mutex_unlock(&conn->lock);
    }
}

/* conns->lock held. Grows the poll array; without memory some clients go unwatched until
 * there is. */
static void reserve_locked(xn_conns *conns) {
    if (conns->capacity >= conns->count)
        return;
    size_t capacity = conns->count * 2;
    struct pollfd *polled = xn_mem_zalloc(capacity, sizeof *polled);
    xn_conn **owners = xn_mem_zalloc(capacity, sizeof *owners);
    if (!polled || !owners) {
        xn_mem_free(polled);
        xn_mem_free(owners);
        return;
    }
    xn_mem_free(conns->polled);
    xn_mem_free(conns->owners);
    conns->polled = polled;
    conns->owners = owners;
    conns->capacity = capacity;
}

/* ---- lingering close ---- */

/* conns->lock held. Whether the socket can be closed: the client has closed it, or its time or its
 * bytes are used up. For LINGER_QUIET_NS nothing is read: most clients read the answer and close.
 * Then MSG_TRUNC discards the bytes without a copy. */
static bool drained_locked(lingering_socket *item, int64_t now) {
    struct pollfd socket = {.fd = item->fd, .events = POLLRDHUP};
    if (poll(&socket, 1, 0) > 0)
        return true;
    if (item->until_ns - now > LINGER_NS - LINGER_QUIET_NS)
        return false;
    for (;;) {
        ssize_t got = recv(item->fd, NULL, item->left, MSG_TRUNC | MSG_DONTWAIT);
        if (got < 0 && (errno == EAGAIN || errno == EINTR))
            return now > item->until_ns;
        if (got <= 0 || (size_t)got >= item->left)
            return true;
        item->left -= (size_t)got;
    }
}

static void check_lingering_locked(xn_conns *conns, int64_t now) {
    for (int i = conns->lingering_count - 1; i >= 0; i--)
        if (drained_locked(&conns->lingering[i], now)) {
            close(conns->lingering[i].fd);
            conns->lingering[i] = conns->lingering[--conns->lingering_count];
        }
}

static void linger_locked(xn_conns *conns, int fd) {
    if (conns->lingering_count == MAX_LINGERING)
        return;
    int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (copy < 0)
        return;
    shutdown(copy, SHUT_WR);
    conns->lingering[conns->lingering_count++] =
        (lingering_socket){copy, xn_now_ns() + LINGER_NS, LINGER_BYTES};
}

/* ---- the watcher ---- */

/* conns->lock held. */
static void tick_locked(xn_conns *conns) {
    int64_t now = xn_now_ns();
    size_t watched = 0;
    reserve_locked(conns);
    for (xn_list *at = conns->all.next; at != &conns->all; at = at->next) {
        xn_conn *conn = XN_ITEM(at, xn_conn, node);
        pthread_mutex_lock(&conn->lock);
        check_locked(conns, conn, now);
        if (watched_phase(conn->phase) && !conn->shut && now - conn->since_ns >= TICK_NS &&
            watched < conns->capacity) {
            short events = conn->phase == XN_PHASE_SUSPENDED ? 0 : POLLRDHUP;
            conns->polled[watched] = (struct pollfd){.fd = conn->fd, .events = events};
            conns->owners[watched++] = conn;
        }
        pthread_mutex_unlock(&conn->lock);
    }
    watch_clients_locked(conns, watched, now);
    check_lingering_locked(conns, now);
}

static void *watch(void *context) {
    xn_conns *conns = context;
    pthread_mutex_lock(&conns->lock);
    while (!conns->stopping) {
        if (!conns->count && !conns->lingering_count) {
            pthread_cond_wait(&conns->wake, &conns->lock);
            continue;
        }
        const int64_t until_ns = xn_now_ns() + TICK_NS;
        while (!conns->stopping && xn_cond_wait_until(&conns->wake, &conns->lock, until_ns))
            ;
        if (conns->stopping)
            break;
        tick_locked(conns);
        pthread_mutex_unlock(&conns->lock);
        conns->options.tick(conns->options.context, xn_now_ns());
        pthread_mutex_lock(&conns->lock);
    }
    pthread_mutex_unlock(&conns->lock);
    return NULL;
}

xn_status xn_conns_create(const xn_conns_options *options, xn_conns **out, xn_error *error) {
    xn_conns *conns = xn_mem_zalloc(1, sizeof *conns);
    if (!conns)
        return xn_fail(error, XN_ERR_NO_MEMORY, NULL, "no memory for the list of connections");
    conns->options = *options;
    xn_list_init(&conns->all);
    xn_cond_init(&conns->wake);
    xn_mutex_init_adaptive(&conns->lock);
    xn_status status = xn_thread_start(&conns->thread, "xn-connections", watch, conns, error);
    if (status) {
        pthread_mutex_destroy(&conns->lock);
        pthread_cond_destroy(&conns->wake);
        xn_mem_free(conns);
        return status;
    }
    *out = conns;
    return XN_OK;
}

void xn_conns_free(xn_conns *conns) {
    if (!conns)
        return;
    pthread_mutex_lock(&conns->lock);
    conns->stopping = true;
    pthread_cond_signal(&conns->wake);
    pthread_mutex_unlock(&conns->lock);
    pthread_join(conns->thread, NULL);
    while (conns->lingering_count)
        close(conns->lingering[--conns->lingering_count].fd);
    pthread_mutex_destroy(&conns->lock);
    pthread_cond_destroy(&conns->wake);
    xn_mem_free(conns->polled);
    xn_mem_free(conns->owners);
    xn_mem_free(conns);
}

xn_conn *xn_conns_add(xn_conns *conns, int fd, bool tls, xn_client *address, void *memory) {
    xn_conn *conn = xn_mem_zalloc(1, sizeof *conn);
    if (!conn)
        return NULL;
    pthread_mutex_init(&conn->lock, NULL);
    conn->fd = fd;
    conn->tls = tls;
    conn->address = address;
    conn->memory = memory;
    conn->phase = XN_PHASE_NEW;
    conn->since_ns = xn_now_ns();
    pthread_mutex_lock(&conns->lock);
    conns->added_ns = conn->since_ns;
    xn_list_add_first(&conns->all, &conn->node);
    if (!conns->count++)
        pthread_cond_signal(&conns->wake);
    pthread_mutex_unlock(&conns->lock);
    xn_metrics_gauge_add(conns->options.metrics, XN_GAUGE_CONNECTIONS, 1);
    return conn;
}

void xn_conns_remove(xn_conns *conns, xn_conn *conn) {
    pthread_mutex_lock(&conns->lock);
    xn_list_remove(&conn->node);
    conns->count--;
    if (conn->linger)
        linger_locked(conns, conn->fd);
    pthread_mutex_unlock(&conns->lock);
    xn_metrics_gauge_add(conns->options.metrics, XN_GAUGE_CONNECTIONS, -1);
    pthread_mutex_destroy(&conn->lock);
    xn_mem_free(conn);
}

void xn_conn_enter(xn_conn *conn, xn_phase phase, size_t bytes, void *request) {
    pthread_mutex_lock(&conn->lock);
    conn->phase = phase;
    conn->since_ns = xn_now_coarse_ns();
    conn->ended_ns = 0;
    conn->acknowledged_ns = 0;
    conn->bytes = bytes;
    conn->request = request;
    pthread_mutex_unlock(&conn->lock);
}

void xn_conn_received(xn_conn *conn, size_t bytes) {
    pthread_mutex_lock(&conn->lock);
    conn->bytes = bytes;
    conn->ended_ns = 0;
    pthread_mutex_unlock(&conn->lock);
}

bool xn_conns_expected(xn_conns *conns, int64_t quiet_ns) {
    int64_t now = xn_now_ns();
    pthread_mutex_lock(&conns->lock);
    bool expected = conns->added_ns && now - conns->added_ns < ACCEPT_DELAY_NS;
    for (xn_list *at = conns->all.next; at != &conns->all && !expected; at = at->next) {
        xn_conn *conn = XN_ITEM(at, xn_conn, node);
        pthread_mutex_lock(&conn->lock);
        bool between = conn->phase == XN_PHASE_NEW || conn->phase == XN_PHASE_IDLE;
        expected = !between || now - conn->since_ns < quiet_ns;
        pthread_mutex_unlock(&conn->lock);
    }
    pthread_mutex_unlock(&conns->lock);
    return expected;
}
