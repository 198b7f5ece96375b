/* peers_test.c: slow clients in the four ways of slowhttptest (headers, body, ranges, reading),
 * many from one address and more from several, while an honest client works from another one.
 * PEERS_SECONDS (10): of each attack; PEERS_COUNT (200): connections from one address. */
#include "stress.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/socket.h>

typedef enum { SLOW_HEADERS, SLOW_BODY, RANGES, SLOW_READ, WAYS } way;
static const char *const way_names[WAYS] = {"slow headers", "slow body", "ranges", "slow read"};

/* ---- the attackers: one thread, all connections ---- */

typedef struct attack {
    const xt_daemon *daemon;
    way how;
    long count;
    int addresses;
    atomic_bool stop;
    long opened, again; /* connections; those the daemon closed and that came back */
} attack;

static void begin(const attack *a, xt_conn *conn) {
    xt_buffer text = {0};
    int small = 2048;
    switch (a->how) {
    case SLOW_HEADERS:
        xt_print(&text, "POST /conv HTTP/1.1\r\nHost: localhost\r\n");
        break;
    case SLOW_BODY:
        xt_print(&text,
                 "POST /conv HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                 "Content-Length: 1000000\r\n\r\n{");
        break;
    case RANGES:
        xt_print(&text, "GET /openapi.yaml HTTP/1.1\r\nHost: localhost\r\nRange: bytes=0-");
        for (int i = 1; i < 1300; i++)
            xt_print(&text, ",5-%d", i);
        xt_print(&text, "\r\n\r\n");
        break;
    case SLOW_READ:
        setsockopt(conn->fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
        st_large_answer(&text, 100);
        break;
    case WAYS:
        break;
    }
    if (send(conn->fd, text.data, text.length, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
        xt_disconnect(conn);
    xt_buffer_free(&text);
}

/* One small step, as late as the peer dares. False: the daemon has closed. */
static bool step(const attack *a, const xt_conn *conn) {
    static const char *const drops[WAYS] = {"X-a: b\r\n", " ", NULL, NULL};
    char bytes[32];
    ssize_t n = 0;
    if (a->how == SLOW_HEADERS || a->how == SLOW_BODY) {
        n = send(conn->fd, drops[a->how], strlen(drops[a->how]), MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno != EAGAIN)
            return false;
    }
    n = recv(conn->fd, bytes, sizeof bytes, MSG_DONTWAIT);
    return n > 0 || (n < 0 && errno == EAGAIN);
}

static void open_peer(attack *a, xt_conn *conn, long number) {
    char source[32];
    snprintf(source, sizeof source, "127.0.0.%ld", 10 + number % a->addresses);
    if (xt_connect_from(conn, a->daemon, source)) {
        a->opened++;
        begin(a, conn);
    }
}

static void *run_attack(void *context) {
    attack *a = context;
    xt_conn *conns = calloc((size_t)a->count, sizeof *conns);
    for (long i = 0; conns && i < a->count; i++)
        conns[i].fd = -1;
    while (conns && !atomic_load(&a->stop)) {
        for (long i = 0; i < a->count && !atomic_load(&a->stop); i++) {
            if (conns[i].fd >= 0 && step(a, &conns[i]))
                continue;
            a->again += conns[i].fd >= 0;
            xt_disconnect(&conns[i]);
            open_peer(a, &conns[i], i);
        }
        for (int i = 0; i < 100 && !atomic_load(&a->stop); i++)
            xt_nap();
    }
    for (long i = 0; conns && i < a->count; i++)
        xt_reset(&conns[i]);
    free(conns);
    return NULL;
}

/* ---- the honest client ---- */

typedef struct honest {
    const xt_message *message;
    const xt_problem *problem;
    st_times times;
    long asked, answered;
    char error[512];
} honest;

static void work(honest *h, const xt_daemon *daemon, double seconds) {
    xt_conn conn = {.fd = -1};
    double end = st_now_ms() + seconds * 1e3;
    for (long i = 0; st_now_ms() < end; i++) {
        xt_response response = {0};
        char error[400] = "";
        if (i % 10 == 0) {
            xt_disconnect(&conn);
            if (!xt_connect_from(&conn, daemon, "127.0.0.9"))
                conn.fd = -1;
        }
        double began = st_now_ms();
        h->asked++;
        xt_result result = conn.fd < 0 ? XT_CLOSED : xt_post(&conn, h->message, &response);
        bool good = result == XT_GOT &&
                    xt_response_matches(&response, XT_OIP, h->problem, NULL, error, sizeof error);
        if (good)
            h->answered++;
        else
            snprintf(h->error, sizeof h->error, "%s, %s", xt_result_name(result), error);
        st_times_add(&h->times, st_now_ms() - began);
        xt_response_free(&response);
    }
    xt_disconnect(&conn);
}

static void under_attack(const xt_daemon *daemon, attack *a, honest *h, double seconds) {
    pthread_t thread;
    ck_assert_int_eq(pthread_create(&thread, NULL, run_attack, a), 0);
    work(h, daemon, seconds);
    atomic_store(&a->stop, true);
    pthread_join(thread, NULL);
}

static void one_attack(const xt_daemon *daemon, way how, int addresses, const honest *model,
                       double quiet_p99) {
    long seconds = st_number("PEERS_SECONDS", 10), count = st_number("PEERS_COUNT", 200);
    attack a = {.daemon = daemon,
                .how = how,
                .count = addresses > 1 ? count * 4 : count,
                .addresses = addresses};
    honest h = {.message = model->message, .problem = model->problem};
    under_attack(daemon, &a, &h, (double)seconds);
    double p99 = st_quantile(&h.times, 0.99);
    printf("%-13s %4ld peers, %d addresses: %6ld connections, %6ld closed on them; honest: %ld of "
           "%ld answered, p50 %.2f, p99 %.2f, max %.1f ms\n",
           way_names[how], a.count, addresses, a.opened, a.again, h.answered, h.asked,
           st_quantile(&h.times, 0.5), p99, st_quantile(&h.times, 1));
    fflush(stdout);
    ck_assert_msg(h.asked && h.answered == h.asked, "%s, %d addresses: %ld of %ld answered; %s",
                  way_names[how], addresses, h.answered, h.asked, h.error);
    ck_assert_msg(p99 <= 20 * quiet_p99 + 100, "%s: p99 %.1f ms, %.1f when quiet", way_names[how],
                  p99, quiet_p99);
    st_times_free(&h.times);
    st_settle(daemon, way_names[how]);
}

START_TEST(slow_peers) {
    static const xt_case what = {"honest", 1, 1, 32, 32, 1, 3, 3, .padding_name = "same"};
    xt_problem problem;
    xt_message message;
    xt_problem_make(&problem, &what, xn_test_seed());
    xt_encode(&problem, XT_OIP, &(xt_options){0}, &message);
    honest quiet = {.message = &message, .problem = &problem};
    /* Deadlines short enough to be seen at work; all else as it comes. */
    xt_daemon *daemon =
        xt_daemon_start(XT_FLAGS("--header-timeout-ms", "3000", "--body-timeout-ms", "5000"));
    work(&quiet, daemon, 2);
    double quiet_p99 = st_quantile(&quiet.times, 0.99);
    printf("quiet: %ld of %ld answered, p50 %.2f, p99 %.2f ms\n", quiet.answered, quiet.asked,
           st_quantile(&quiet.times, 0.5), quiet_p99);
    for (int how = 0; how < WAYS; how++) {
        one_attack(daemon, (way)how, 1, &quiet, quiet_p99);
        one_attack(daemon, (way)how, 8, &quiet, quiet_p99);
    }
    st_usage usage = st_settle(daemon, "all attacks");
    st_print_usage("afterwards", &usage);
    ck_assert_int_eq(xt_daemon_stop(daemon), 0);
    st_times_free(&quiet.times);
    xt_message_free(&message);
    xt_problem_free(&problem);
}
END_TEST

XN_SUITE(stress_peers) {
    Suite *s = suite_create("stress_peers");
    ST_CASE(s, slow_peers);
    return s;
}
