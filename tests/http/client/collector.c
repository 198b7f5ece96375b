/* collector.c: see collector.h. One request at a time, each on a connection of its own. */
#include "collector.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

enum { LOOK_MS = 20, READ_BYTES = 1 << 16 };

/* Whether something comes before the collector stops. */
static bool comes(const xt_collector *c, int fd) {
    struct pollfd one = {.fd = fd, .events = POLLIN};
    while (!atomic_load(&c->stops))
        if (poll(&one, 1, LOOK_MS) > 0)
            return true;
    return false;
}

/* How long the request is; 0: its head is not there yet. */
static size_t length_of(const xt_buffer *request) {
    const char *end = request->length ? strstr(request->data, "\r\n\r\n") : NULL;
    const char *field = end ? strcasestr(request->data, "\r\nContent-Length: ") : NULL;
    if (!end)
        return 0;
    const size_t body = field && field < end ? strtoul(field + 18, NULL, 10) : 0;
    return (size_t)(end + 4 - request->data) + body;
}

static bool read_request(const xt_collector *c, int fd, bool head_alone, xt_buffer *request) {
    char *bytes = malloc(READ_BYTES);
    size_t length = 0;
    while (!length || (!head_alone && request->length < length)) {
        const ssize_t got = comes(c, fd) ? read(fd, bytes, READ_BYTES) : 0;
        if (got <= 0)
            break;
        xt_append(request, bytes, (size_t)got);
        length = length_of(request);
    }
    free(bytes);
    return length && (head_alone || request->length == length);
}

static void reset(int fd) {
    const struct linger now = {1, 0};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
}

static void reply(xt_collector *c, int fd, const xt_reply *how) {
    const size_t length = how->text ? strlen(how->text) : 0;
    const size_t piece = how->kind == XT_REPLY_SLOWLY ? 1 : length;
    for (size_t at = 0; at < length; at += piece) {
        if (send(fd, how->text + at, piece, MSG_NOSIGNAL) != (ssize_t)piece)
            break;
        if (piece == 1)
            xt_nap();
    }
    if (how->kind == XT_REPLY_RESET)
        reset(fd);
    while (how->kind == XT_REPLY_NEVER && !atomic_load(&c->stops))
        xt_nap();
}

static void serve(xt_collector *c, int fd) {
    xt_buffer request = {0};
    const int post = atomic_load(&c->posts);
    const xt_reply *how = &c->replies[post < c->reply_count ? post : c->reply_count - 1];
    const bool whole = read_request(c, fd, how->kind == XT_REPLY_EARLY, &request);
    pthread_mutex_lock(&c->mutex);
    if (post < XT_COLLECTOR_POSTS)
        c->came_ms[post] = xt_now_ms();
    if (whole && how->text && how->text[0] && how->text[9] == '2' && strstr(how->text, "\r\n\r\n"))
        xt_append(&c->taken, request.data, request.length);
    pthread_mutex_unlock(&c->mutex);
    atomic_fetch_add(&c->posts, 1);
    if (whole)
        reply(c, fd, how);
    xt_buffer_free(&request);
}

static void *run(void *context) {
    xt_collector *c = context;
    while (comes(c, c->listener)) {
        const int fd = accept(c->listener, NULL, NULL);
        if (fd < 0)
            continue;
        serve(c, fd);
        close(fd);
    }
    return NULL;
}

void xt_collector_start(xt_collector *c, const xt_reply *replies, int count) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    memset(c, 0, sizeof *c);
    c->replies = replies;
    c->reply_count = count;
    pthread_mutex_init(&c->mutex, NULL);
    c->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert(c->listener >= 0);
    ck_assert(!bind(c->listener, (struct sockaddr *)&address, size) && !listen(c->listener, 8));
    ck_assert(!getsockname(c->listener, (struct sockaddr *)&address, &size));
    c->port = ntohs(address.sin_port);
    ck_assert_int_eq(pthread_create(&c->thread, NULL, run, c), 0);
}

void xt_collector_stop(xt_collector *c) {
    atomic_store(&c->stops, true);
    pthread_join(c->thread, NULL);
    close(c->listener);
}

void xt_collector_free(xt_collector *c) {
    xt_buffer_free(&c->taken);
    pthread_mutex_destroy(&c->mutex);
}

const char *xt_collector_url(const xt_collector *c, char url[40]) {
    snprintf(url, 40, "http://127.0.0.1:%d", c->port);
    return url;
}

int xt_collector_count(xt_collector *c, const char *text) {
    int count = 0;
    pthread_mutex_lock(&c->mutex);
    for (const char *at = c->taken.data; at && (at = strstr(at, text)); at += strlen(text))
        count++;
    pthread_mutex_unlock(&c->mutex);
    return count;
}
