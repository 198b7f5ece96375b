/* direct.c: bodies from the socket straight to where they belong. The library reads into a buffer
 * of its own, of half a connection's memory, and hands over what is there: a system call and a copy
 * for every 16 KiB. Here its recv (http_library.h) is answered otherwise while a body is received:
 * the bytes go to the body, as many as the socket has, and the library is told of them piece by
 * piece, as many at a time as its buffer would hold. What stands in that buffer then means nothing,
 * and nobody reads it: the callback that gets a piece knows that it lies in the body already. The
 * library counts the same bytes as ever, so it finds the next request where it begins.
 *
 * Not with TLS, not while a body may not grow, and not before the library's buffer is known to be
 * empty, which it is when it has handed over a first piece. A request and its entry in the table
 * are used by the thread of the connection alone. */
#include "http_internal.h"

#include "xn_mem.h"

#include <errno.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>

#define MOST_BYTES ((size_t)256 << 10) /* at once: others of the thread wait meanwhile */
#define MOST_DESCRIPTORS 65536 /* of those beyond, bodies are received as the library does */

static size_t descriptors(void) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_cur > MOST_DESCRIPTORS)
        return MOST_DESCRIPTORS;
    return (size_t)limit.rlim_cur;
}

xn_status xn_direct_open(xn_http *http, xn_error *error) {
    size_t count = descriptors();
    http->receiving = xn_mem_zalloc(count, sizeof *http->receiving);
    if (!http->receiving)
        return xn_fail(error, XN_ERR_NO_MEMORY, NULL, "no memory for a table of %zu sockets",
                       count);
    http->receiving_count = count;
    return XN_OK;
}

void xn_direct_close(xn_http *http) {
    xn_mem_free(http->receiving);
}

static _Atomic(xn_request *) *entry(const xn_request *request) {
    const size_t fd = (size_t)request->conn->fd;
    return fd < request->http->receiving_count ? &request->http->receiving[fd] : NULL;
}

void xn_direct_begin(xn_request *request) {
    _Atomic(xn_request *) *at = request->direct || request->conn->tls ? NULL : entry(request);
    if (!at)
        return;
    request->direct = true;
    atomic_store_explicit(at, request, memory_order_relaxed);
}

void xn_direct_end(xn_request *request) {
    if (request->direct)
        atomic_store_explicit(entry(request), NULL, memory_order_relaxed);
    request->direct = false;
}

void xn_direct_take(xn_request *request, const char *data, size_t size) {
    size_t there = request->placed < size ? request->placed : size;
    request->placed -= there;
    memcpy(request->body + request->received + there, data + there, size - there);
}

/* ---- in place of the library's recv ---- */

/* Where the next byte from the socket belongs, as an offset in the body. */
static size_t filled(const xn_request *request) {
    return request->received + request->placed + request->ahead;
}

/* Whether bytes may go to the body: any, or where that is not all of it, a buffer's worth, for one
 * that stops at what may be received now stops before it asked for more. */
static bool may_fill(const xn_request *request, size_t size) {
    size_t room = request->allowed - filled(request);
    return request->body && !request->responded && room > 0 &&
           (room >= size || request->allowed == request->length);
}

/* One recv into the body; as recv. drained: the socket has no more. */
static ssize_t fill(xn_request *request, int fd, int flags, bool *drained) {
    size_t room = request->allowed - filled(request);
    size_t wanted = room < MOST_BYTES ? room : MOST_BYTES;
    ssize_t got = recvfrom(fd, request->body + filled(request), wanted, flags, NULL, NULL);
    *drained = got < (ssize_t)wanted;
    if (got > 0)
        request->ahead += (size_t)got;
    return got;
}

static size_t give(xn_request *request, size_t most) {
    size_t given = request->ahead < most ? request->ahead : most;
    request->ahead -= given;
    request->placed += given;
    return given;
}

/* A short answer tells the library that the socket is empty, and it waits for the next edge of its
 * epoll set. So the socket is asked until it is empty now, whatever it was when earlier pieces
 * came, or the buffer is full. What comes behind the body goes into the buffer as it is. */
static ssize_t receive(xn_request *request, int fd, char *buffer, size_t size, int flags) {
    size_t given = give(request, size);
    bool drained = false;
    while (given < size && !drained) {
        bool direct = may_fill(request, size - given);
        ssize_t got = direct ? fill(request, fd, flags, &drained)
                             : recvfrom(fd, buffer + given, size - given, flags, NULL, NULL);
        if (got <= 0)
            return given ? (ssize_t)given : got;
        given += direct ? give(request, size - given) : (size_t)got;
        if (!direct)
            break;
    }
    return (ssize_t)given;
}

ssize_t xn_direct_receive(void *context, int fd, void *buffer, size_t size, int flags) {
    const xn_http *http = context;
    xn_request *request = NULL;
    if (fd >= 0 && (size_t)fd < http->receiving_count)
        request = atomic_load_explicit(&http->receiving[fd], memory_order_relaxed);
    return request ? receive(request, fd, buffer, size, flags)
                   : recvfrom(fd, buffer, size, flags, NULL, NULL);
}
