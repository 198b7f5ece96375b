/* listener.c: see listener.h. */
#include "listener.h"

#include "clock.h"
#include "threads.h"
#include "xn_mem.h"

#include <errno.h>
#include <linux/filter.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static xn_status fail_listen(const char *listen_on, int port, xn_error *error) {
    return xn_fail(error, XN_ERR_IO, "listen", "cannot listen on %s port %d: %s", listen_on, port,
                   strerror(errno));
}

/* On failure fd is -1 and, where the system said so, errno is the cause. */
static xn_status bind_address(const char *listen_on, int port, int *fd, xn_error *error) {
    const struct addrinfo numeric = {.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE,
                                     .ai_socktype = SOCK_STREAM};
    struct addrinfo *address = NULL;
    char service[16];
    const int on = 1;
    *fd = -1;
    errno = 0;
    snprintf(service, sizeof service, "%d", port);
    if (getaddrinfo(listen_on, service, &numeric, &address))
        return xn_fail(error, XN_ERR_MALFORMED, "listen",
                       "listen is \"%s\"; it must be a numeric IPv4 or IPv6 address", listen_on);
    *fd = socket(address->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (*fd >= 0)
        setsockopt(*fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    const bool bound = *fd >= 0 && !bind(*fd, address->ai_addr, address->ai_addrlen);
    const int cause = errno;
    freeaddrinfo(address);
    if (!bound && *fd >= 0)
        close(*fd);
    errno = cause;
    if (bound)
        return XN_OK;
    *fd = -1;
    return fail_listen(listen_on, port, error);
}

xn_status xn_listener_open(const char *listen_on, int port, int *out, int *actual,
                           xn_error *error) {
    struct sockaddr_storage address;
    socklen_t length = sizeof address;
    int fd = -1;
    memset(&address, 0, sizeof address);
    xn_status status = bind_address(listen_on, port, &fd, error);
    if (status)
        return status;
    if (listen(fd, SOMAXCONN) || getsockname(fd, (struct sockaddr *)&address, &length)) {
        status = fail_listen(listen_on, port, error);
        close(fd);
        return status;
    }
    *actual = ntohs(address.ss_family == AF_INET ? ((struct sockaddr_in *)&address)->sin_port
                                                 : ((struct sockaddr_in6 *)&address)->sin6_port);
    *out = fd;
    return XN_OK;
}

xn_status xn_listener_check(const char *listen_on, int port, xn_error *error) {
    int fd = -1;
    xn_status status = bind_address(listen_on, port, &fd, error);
    if (fd >= 0)
        close(fd);
    return status && errno == EADDRINUSE ? XN_OK : status;
}

void xn_listener_refuse(int listener) {
    enum { FLAGS_OFFSET = 13, PASS = 0xffff }; /* within the header of TCP */
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_B | BPF_ABS, FLAGS_OFFSET),
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, TH_SYN, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, 0),
        BPF_STMT(BPF_RET | BPF_K, PASS),
    };
    const struct sock_fprog program = {.len = sizeof code / sizeof *code, .filter = code};
    (void)!setsockopt(listener, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program);
}

bool xn_listener_waits(int listener) {
    struct pollfd waiting = {.fd = listener, .events = POLLIN};
    return poll(&waiting, 1, 0) > 0;
}

/* ---- accepting ---- */

struct xn_acceptor {
    int listener;
    xn_acceptor_add add;
    void *context;
    atomic_bool stopping;
    pthread_t thread;
};

/* Without a free descriptor or memory the connection stays in the listener's queue. */
static void *accept_all(void *context) {
    xn_acceptor *a = context;
    struct pollfd waiting = {.fd = a->listener, .events = POLLIN};
    const struct timespec pause = {0, 10 * XN_NS_PER_MS};
    while (!atomic_load(&a->stopping)) {
        struct sockaddr_storage address;
        socklen_t length = sizeof address;
        int fd = accept4(a->listener, (struct sockaddr *)&address, &length,
                         SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0)
            a->add(a->context, fd, (struct sockaddr *)&address, length);
        else if (errno == EAGAIN)
            (void)poll(&waiting, 1, -1);
        else if (errno != EINTR && errno != ECONNABORTED)
            nanosleep(&pause, NULL);
    }
    return NULL;
}

xn_status xn_acceptor_start(int listener, xn_acceptor_add add, void *context, xn_acceptor **out,
                            xn_error *error) {
    xn_acceptor *a = xn_mem_zalloc(1, sizeof *a);
    if (!a)
        return xn_fail(error, XN_ERR_NO_MEMORY, NULL, "no memory to accept connections");
    a->listener = listener;
    a->add = add;
    a->context = context;
    xn_status status = xn_thread_start(&a->thread, "xn-accept", accept_all, a, error);
    if (status) {
        xn_mem_free(a);
        return status;
    }
    *out = a;
    return XN_OK;
}

void xn_acceptor_stop(xn_acceptor *acceptor) {
    if (!acceptor)
        return;
    atomic_store(&acceptor->stopping, true);
    shutdown(acceptor->listener, SHUT_RDWR);
    pthread_join(acceptor->thread, NULL);
    xn_mem_free(acceptor);
}
