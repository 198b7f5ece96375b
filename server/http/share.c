/* share.c: which thread serves a connection. In the library's pool of threads each accepts for
 * itself, and a thread that is awake takes ten at a time: of 32 clients that connect at once one
 * thread may get all, and the others sleep while it is late. Here what a thread accepts is handed
 * to the pool as a whole, which deals connections out by their descriptors, in turn. */
#include "http_internal.h"

#include <errno.h>

void xn_share_open(xn_http *http, int threads) {
    http->shares = threads > 1;
    pthread_mutex_init(&http->sharing, NULL);
}

void xn_share_close(xn_http *http) {
    pthread_mutex_destroy(&http->sharing);
}

void xn_share_with(xn_http *http, struct MHD_Daemon *pool) {
    pthread_mutex_lock(&http->sharing);
    http->pool = pool;
    pthread_mutex_unlock(&http->sharing);
}

/* Takes the connection. False: there is no pool to hand it to. */
static bool hand_over(xn_http *http, int fd, const struct sockaddr *address, socklen_t length) {
    pthread_mutex_lock(&http->sharing);
    bool handed = http->pool != NULL;
    if (handed)
        MHD_add_connection(http->pool, fd, address, length); /* which closes what it cannot take */
    pthread_mutex_unlock(&http->sharing);
    return handed;
}

int xn_share_accept(void *context, int listener, struct sockaddr *address, socklen_t *length,
                    int flags) {
    xn_http *http = context;
    int fd = xn_library_accept(listener, address, length, flags);
    if (fd < 0 || !http->shares || !hand_over(http, fd, address, *length))
        return fd;
    errno = EAGAIN; /* there is none for this thread */
    return -1;
}
