/* echo.c: `bench-http echo`: the ceiling of `bench-http wrk`: the least this HTTP library can do
 * with a POST. It takes the body into memory and sends it back, or as many bytes as the path says
 * ("/4096"); no parsing, no limits, no deadlines. Prints the port it took on 127.0.0.1. */
#include "http.h"

#include <arpa/inet.h>
#include <microhttpd.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_ASKED = 16 << 20 };

typedef struct {
    size_t used, size;
    size_t asked; /* bytes of the answer; 0: the body */
    char *bytes;
} echo_body;

static echo_body *begin(struct MHD_Connection *connection, const char *url) {
    const char *text =
        MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_CONTENT_LENGTH);
    echo_body *body = calloc(1, sizeof *body);
    if (!body)
        return NULL;
    body->size = text ? strtoull(text, NULL, 10) : 0;
    body->asked = strtoull(url + 1, NULL, 10);
    body->bytes = malloc(body->size ? body->size : 1);
    return body;
}

/* Zeros, or the body, which is the response's then. */
static struct MHD_Response *make_response(echo_body *body) {
    static char zeros[MOST_ASKED];
    if (body->asked)
        return MHD_create_response_from_buffer(body->asked < MOST_ASKED ? body->asked : MOST_ASKED,
                                               zeros, MHD_RESPMEM_PERSISTENT);
    char *bytes = body->bytes;
    body->bytes = NULL;
    return MHD_create_response_from_buffer(body->used, bytes, MHD_RESPMEM_MUST_FREE);
}

static enum MHD_Result answer(struct MHD_Connection *connection, echo_body *body) {
    struct MHD_Response *response = make_response(body);
    enum MHD_Result queued = MHD_queue_response(connection, MHD_HTTP_OK, response);
    MHD_destroy_response(response);
    return queued;
}

static enum MHD_Result handle(void *context, struct MHD_Connection *connection, const char *url,
                              const char *method, const char *version, const char *data,
                              size_t *size, void **state) {
    echo_body *body = *state;
    (void)context, (void)method, (void)version;
    if (!body) {
        *state = body = begin(connection, url);
        return body && body->bytes ? MHD_YES : MHD_NO;
    }
    if (!*size)
        return answer(connection, body);
    if (*size > body->size - body->used)
        return MHD_NO;
    memcpy(body->bytes + body->used, data, *size);
    body->used += *size;
    *size = 0;
    return MHD_YES;
}

static void completed(void *context, struct MHD_Connection *connection, void **state,
                      enum MHD_RequestTerminationCode why) {
    echo_body *body = *state;
    (void)context, (void)connection, (void)why;
    if (body)
        free(body->bytes);
    free(body);
    *state = NULL;
}

int bench_echo(const bench_options *o) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const int threads = o->threads ? o->threads : 1;
    struct MHD_OptionItem pool[] = {
        {threads > 1 ? MHD_OPTION_THREAD_POOL_SIZE : MHD_OPTION_END, threads, NULL},
        {MHD_OPTION_END, 0, NULL}};
    struct MHD_Daemon *daemon = MHD_start_daemon(
        MHD_USE_EPOLL_INTERNAL_THREAD | MHD_USE_TURBO, 0, NULL, NULL, handle, NULL,
        MHD_OPTION_SOCK_ADDR, (struct sockaddr *)&address, MHD_OPTION_NOTIFY_COMPLETED, completed,
        NULL, MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)131072, MHD_OPTION_ARRAY, pool,
        MHD_OPTION_END);
    const union MHD_DaemonInfo *info =
        daemon ? MHD_get_daemon_info(daemon, MHD_DAEMON_INFO_BIND_PORT) : NULL;
    if (!info)
        xn_bench_fail("echo", "cannot start");
    printf("%u\n", (unsigned)info->port);
    fflush(stdout);
    pause();
    return 0;
}
