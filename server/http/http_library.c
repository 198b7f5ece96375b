/* http_library.c: see http_library.h. */
#include "http_library.h"

#include "framing.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <strings.h>
#include <sys/syscall.h>
#include <unistd.h>

#define REPLACES __attribute__((visibility("default"))) /* the library must see it */

typedef enum MHD_Result (*queue_function)(struct MHD_Connection *, unsigned, struct MHD_Response *);
typedef enum MHD_Result (*lookup_function)(struct MHD_Connection *, enum MHD_ValueKind,
                                           const char *, size_t, const char **, size_t *);

/* Written before the daemon's threads start. */
static queue_function library_queue;
static lookup_function library_lookup;
static xn_library_hooks bound;

/* A pointer to a function by the way that POSIX gives. */
static void find(const char *name, void *function, size_t size) {
    void *symbol = dlsym(RTLD_NEXT, name);
    memcpy(function, &symbol, size);
}

xn_status xn_library_bind(const xn_library_hooks *hooks, xn_error *error) {
    find("MHD_queue_response", &library_queue, sizeof library_queue);
    find("MHD_lookup_connection_value_n", &library_lookup, sizeof library_lookup);
    if (!library_queue || !library_lookup)
        return xn_fail(error, XN_ERR_INTERNAL, NULL,
                       "the HTTP library lacks a function; link it as a shared library");
    bound = *hooks;
    return XN_OK;
}

void xn_library_unbind(void) {
    bound = (xn_library_hooks){0};
}

bool xn_library_strict(void) {
    return MHD_get_version()[0] != '0';
}

const char *xn_library_header(struct MHD_Connection *connection, const char *name) {
    const char *value = NULL;
    library_lookup(connection, MHD_HEADER_KIND, name, strlen(name), &value, NULL);
    return value;
}

enum MHD_Result xn_library_queue(struct MHD_Connection *connection, unsigned status,
                                 struct MHD_Response *response) {
    return library_queue(connection, status, response);
}

/* ---- wake-ups ---- */

/* A thread of the library sleeps until its eventfd is written to, and looks at all its connections
 * then. That a connection goes on is noted before the write, so the write may come later. */
#define WAKE_BYTES sizeof(uint64_t)

enum { MOST_WAKES = 64 }; /* as many as --http-threads may be */

static _Thread_local struct {
    bool held, resuming; /* resuming: what is written now is a wake-up, put off */
    int count;
    int fds[MOST_WAKES];
} wakes;

void xn_library_resume(struct MHD_Connection *connection) {
    wakes.resuming = wakes.held;
    MHD_resume_connection(connection);
    wakes.resuming = false;
}

void xn_library_hold_wakes(void) {
    wakes.held = true;
}

void xn_library_send_wakes(void) {
    const uint64_t one = 1;
    wakes.held = false;
    for (int i = 0; i < wakes.count; i++)
        (void)syscall(SYS_write, wakes.fds[i], &one, WAKE_BYTES);
    wakes.count = 0;
}

static bool put_off(int fd) {
    int i = 0;
    while (i < wakes.count && wakes.fds[i] != fd)
        i++;
    if (i == MOST_WAKES)
        return false;
    wakes.fds[i] = fd;
    wakes.count += i == wakes.count;
    return true;
}

/* ---- in place of the library's ---- */

REPLACES ssize_t write(int fd, const void *bytes, size_t size) {
    if (wakes.resuming && size == WAKE_BYTES && put_off(fd))
        return (ssize_t)size;
    return syscall(SYS_write, fd, bytes, size);
}

/* The library's own refusals come this way, on the thread of the connection; it marks the
 * connection to be closed behind them itself. */
REPLACES enum MHD_Result MHD_queue_response(struct MHD_Connection *connection, unsigned status,
                                            struct MHD_Response *response) {
    struct MHD_Response *ours =
        bound.refusal && status >= 400 ? bound.refusal(bound.context, connection, status) : NULL;
    enum MHD_Result queued = library_queue(connection, status, ours ? ours : response);
    if (ours)
        MHD_destroy_response(ours);
    return queued;
}

static enum MHD_Result visit_length(void *context, enum MHD_ValueKind kind, const char *key,
                                    size_t key_size, const char *value, size_t value_size) {
    (void)kind;
    xn_body_length_field(context, key, key_size, value, value_size);
    return MHD_YES;
}

static bool is(const char *key, size_t size, const char *name) {
    return strlen(name) == size && !strncasecmp(key, name, size);
}

static enum MHD_Result give(const char *text, size_t length, const char **value, size_t *size) {
    if (value)
        *value = text;
    if (size)
        *size = length;
    return MHD_YES;
}

/* What the library asks before it shows a request to the server. It refuses by itself what it does
 * not like, so it is told what it likes: a request whose framing is not plain has no body, has a
 * host; the server, which sees the fields as they came, then refuses it and closes. Blanks behind a
 * length are legal and not its length. Cookies nobody reads. */
REPLACES enum MHD_Result MHD_lookup_connection_value_n(struct MHD_Connection *connection,
                                                       enum MHD_ValueKind kind, const char *key,
                                                       size_t key_size, const char **value,
                                                       size_t *value_size) {
    if (kind != MHD_HEADER_KIND || !key)
        return library_lookup(connection, kind, key, key_size, value, value_size);
    bool length = is(key, key_size, "Content-Length"), expect = is(key, key_size, "Expect");
    if (is(key, key_size, "Host"))
        return give("", 0, value, value_size);
    if (is(key, key_size, "Transfer-Encoding") || is(key, key_size, "Cookie"))
        return MHD_NO;
    if (!length && !expect)
        return library_lookup(connection, kind, key, key_size, value, value_size);
    xn_body_length body = {0};
    MHD_get_connection_values_n(connection, MHD_HEADER_KIND, visit_length, &body);
    int known = xn_body_length_known(&body);
    if (length)
        return known == 0  ? MHD_NO
               : known > 0 ? give(body.digits, body.count, value, value_size)
                           : give("0", 1, value, value_size);
    /* 0.9.75 invites a body that there is not and then forgets what follows the request. */
    bool comes = known > 0 && strspn(body.digits, "0") < body.count;
    return comes ? library_lookup(connection, kind, key, key_size, value, value_size) : MHD_NO;
}

REPLACES ssize_t recv(int fd, void *buffer, size_t size, int flags) {
    return bound.receive ? bound.receive(bound.context, fd, buffer, size, flags)
                         : recvfrom(fd, buffer, size, flags, NULL, NULL);
}

int xn_library_accept(int fd, struct sockaddr *address, socklen_t *length, int flags) {
    return (int)syscall(SYS_accept4, fd, address, length, flags);
}

/* Declared by its symbol: the system's header has it with a type that only it may use. */
REPLACES int replaced_accept(int fd, struct sockaddr *address, socklen_t *length,
                             int flags) __asm__("accept4");
int replaced_accept(int fd, struct sockaddr *address, socklen_t *length, int flags) {
    return bound.accept ? bound.accept(bound.context, fd, address, length, flags)
                        : xn_library_accept(fd, address, length, flags);
}
