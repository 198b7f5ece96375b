/* probe.c: `bench-http probe`: how long a health probe waits, every 10 ms, while two clients send
 * JSON bodies of 112 MB. */
#include "../clock.h"
#include "http.h"

#include <netinet/tcp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { CLIENTS = 2, HEIGHT = 3500, WIDTH = 4000, MOST_PROBES = 100000, ANSWER = 65536 };

typedef struct bench {
    struct sockaddr_in server;
    char *request; /* head and body */
    size_t length;
    atomic_bool stop;
    atomic_int answered, wrong;
} bench;

static char *put(char *at, const char *text) {
    const size_t length = strlen(text);
    memcpy(at, text, length);
    return at + length;
}

static void make_request(bench *b) {
    static const char number[] = "0.12345,";
    static const char tail[] = "]}, \"weights\": {\"shape\": [1,1,1,1], \"datatype\": \"FP32\", "
                               "\"data\": [1]}}";
    char start[128], head[256];
    const size_t numbers = (size_t)HEIGHT * WIDTH * (sizeof number - 1) - 1; /* no last comma */
    snprintf(start, sizeof start,
             "{\"input\": {\"shape\": [1,1,%d,%d], \"datatype\": \"FP32\", \"data\": [", HEIGHT,
             WIDTH);
    const size_t body = strlen(start) + numbers + strlen(tail);
    snprintf(head, sizeof head,
             "POST /conv HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
             "Content-Type: application/json\r\nAccept: application/octet-stream\r\n"
             "Content-Length: %zu\r\n\r\n",
             body);
    b->length = strlen(head) + body;
    b->request = bench_take(b->length + sizeof number + 1);
    char *at = put(put(b->request, head), start);
    for (int i = 0; i < HEIGHT * WIDTH; i++)
        at = put(at, number);
    put(at - 1, tail);
}

static void *send_bodies(void *context) {
    bench *b = context;
    while (!b->stop) {
        char *answer = bench_exchange(&b->server, b->request, b->length, NULL);
        b->answered++;
        b->wrong += !answer || strncmp(answer, "HTTP/1.1 200", 12) != 0;
        free(answer);
    }
    return NULL;
}

/* One probe on the connection: milliseconds. */
static double probe_once(int fd) {
    static const char request[] = "GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\n\r\n";
    static char answer[ANSWER];
    const int64_t start = xn_bench_now_ns();
    const char *end = NULL;
    size_t have = 0;
    if (send(fd, request, sizeof request - 1, MSG_NOSIGNAL) != (ssize_t)sizeof request - 1)
        xn_bench_fail("probe", "the daemon hung up");
    while (!end || have < (size_t)(end - answer)) {
        const ssize_t n = recv(fd, answer + have, sizeof answer - 1 - have, 0);
        if (n <= 0)
            xn_bench_fail("probe", "no answer");
        answer[have += (size_t)n] = '\0';
        const char *body = strstr(answer, "\r\n\r\n"), *length = strstr(answer, "Content-Length: ");
        if (body && length)
            end = body + 4 + strtoul(length + 16, NULL, 10);
    }
    return (double)(xn_bench_now_ns() - start) / 1e6;
}

static int probe(const bench *b, double seconds, double *waits) {
    const struct timespec step = {0, 10000000};
    const int64_t end = xn_bench_now_ns() + (int64_t)(seconds * 1e9);
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    int count = 0;
    if (fd < 0 || connect(fd, (const struct sockaddr *)&b->server, sizeof b->server))
        xn_bench_fail("probe", "cannot connect");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    while (count < MOST_PROBES && xn_bench_now_ns() < end) {
        waits[count++] = probe_once(fd);
        nanosleep(&step, NULL);
    }
    close(fd);
    return count;
}

static const xn_column columns[] = {
    {"body_bytes", "body bytes", 10, 0}, {"answered", "answered", 8, 0},
    {"probes", "probes", 6, 0},          {"p50_ms", "p50 ms", 8, 2},
    {"p99_ms", "p99 ms", 8, 2},          {"most_ms", "at most", 8, 2},
};

int bench_probe(const bench_options *o) {
    static const char *const more[] = {"--http-threads", "2", NULL};
    static double waits[MOST_PROBES];
    static bench b;
    bench_process daemon;
    pthread_t clients[CLIENTS];
    xn_report r;
    make_request(&b);
    bench_daemon_start(&daemon, o, more, &b.server);
    bench_pin(o->cpus);
    fprintf(stderr, "probing for %g s\n", o->seconds > 0 ? o->seconds : 10);
    for (int i = 0; i < CLIENTS; i++)
        if (pthread_create(&clients[i], NULL, send_bodies, &b))
            xn_bench_fail("probe", "no thread");
    const int count = probe(&b, o->seconds > 0 ? o->seconds : 10, waits);
    b.stop = true;
    for (int i = 0; i < CLIENTS; i++)
        pthread_join(clients[i], NULL);
    bench_process_stop(&daemon);
    const xn_stats stats = xn_stats_of(waits, count);
    xn_report_open(&r, o->json);
    xn_report_table(&r, columns, XN_COUNT(columns));
    xn_report_row(&r, XN_N(b.length), XN_N(b.answered), XN_N(count), XN_N(stats.median),
                  XN_N(stats.p99), XN_N(waits[count - 1]));
    xn_report_close(&r);
    free(b.request);
    return b.wrong ? 1 : 0;
}
