/* Slow and idle clients, and the limits on connections: each is closed by its own deadline, nobody
 * else suffers. Small values in the flags; the test waits for the close, never for a time. */
#include "client/wire.h"

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#define POST_CONV "POST /conv HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"

/* Sends the filler over and over until the daemon closes; it must, although bytes keep coming. */
static void trickle(xt_conn *conn, const char *filler, const char *what) {
    int64_t deadline = xt_now_ms() + XT_PATIENCE_MS;
    while (xt_now_ms() < deadline) {
        if (!xt_quiet(conn, 10) || !xt_send_text(conn, filler))
            return;
    }
    ck_abort_msg("%s: still open after %d ms", what, XT_PATIENCE_MS);
}

/* What ends such a connection: a 408 and the close, the close alone behind a number of answers, or
 * the close with or without a word. */
typedef enum { TOLD, CLOSED, EITHER } ending;

#define BODY POST_CONV "Content-Length: 100000000\r\n\r\n{"
#define BEGUN "GET /v2 HTTP/1.1\r\nHost: a\r\n"
/* clang-format off */
static const struct {
    const char *flags[5], *start, *filler;
    ending ending;
    int answers;
    const char *reason; /* of the close, as it is counted; NULL: any */
} slow[] = {
    {{"--header-timeout-ms", "300"}, BEGUN "X-Slow: ", NULL, TOLD, 0, "header_timeout"},
    {{"--header-timeout-ms", "300"}, BEGUN, "X-A: b\r\n", TOLD, 0, "header_timeout"},
    {{"--header-timeout-ms", "300"}, POST_CONV "X-A: b\r\n", NULL, TOLD, 0, "header_timeout"},
    /* not even a request line */
    {{"--header-timeout-ms", "300"}, "", NULL, EITHER, 0, NULL},
    {{"--header-timeout-ms", "300"}, "GET /v2 HT", NULL, EITHER, 0, NULL},
    {{"--header-timeout-ms", "300"}, "G", NULL, EITHER, 0, NULL},
    {{"--body-timeout-ms", "300"}, BODY, NULL, TOLD, 0, "body_timeout"},
    {{"--body-timeout-ms", "300"}, BODY, "          ", TOLD, 0, "body_timeout"},
    /* within the total time, but below the rate, which is judged after the first 5 seconds */
    {{"--body-timeout-ms", "3600000", "--body-min-rate", "1M"}, BODY, " ", TOLD, 0, NULL},
    {{"--idle-timeout-ms", "300"}, BEGUN "\r\n" BEGUN "\r\n", NULL, CLOSED, 2, "idle_timeout"},
};
/* clang-format on */

START_TEST(ended_by_its_deadline) {
    const char *start = slow[_i].start;
    char sample[80];
    xt_conn conn;
    xt_response response;
    xt_daemon *d = xt_daemon_start(slow[_i].flags);
    ck_assert(xt_connect(&conn, d) && xt_send_text(&conn, start));
    if (slow[_i].filler)
        trickle(&conn, slow[_i].filler, start);
    for (int i = 0; i < slow[_i].answers; i++) {
        ck_assert_int_eq(xt_receive(&conn, false, false, &response), XT_GOT);
        ck_assert_int_eq(response.status, 200);
        xt_response_free(&response);
    }
    if (slow[_i].ending != EITHER) {
        const xt_result result = xt_receive(&conn, false, false, &response);
        ck_assert_msg(result == (slow[_i].ending == TOLD ? XT_GOT : XT_CLOSED), "%s: got %s", start,
                      xt_result_name(result));
        if (slow[_i].ending == TOLD)
            xt_check_error(&response, 408, NULL, NULL, start);
        xt_response_free(&response);
    }
    ck_assert_msg(xt_closed_within(&conn, XT_PATIENCE_MS), "'%s' stays open", start);
    xt_disconnect(&conn);
    snprintf(sample, sizeof sample, "xnord_connections_closed_total{reason=\"%s\"}",
             slow[_i].reason);
    ck_assert(!slow[_i].reason || xt_metric_becomes(d, sample, 1));
    ck_assert(xt_metric_becomes(d, "xnord_inflight_requests", 0));
    ck_assert(xt_metric_becomes(d, "xnord_inflight_bytes", 0));
    ck_assert_int_eq(xt_daemon_stop(d), 0);
}
END_TEST

/* All deadlines of the connection pass while its request waits for company: it is answered. */
START_TEST(waiting_for_an_answer_is_no_idleness) {
    static const xt_case what = {"waits", 1, 1, 4, 4, 1, 3, 3, .padding_name = "same"};
    xt_daemon *d =
        xt_daemon_start(XT_FLAGS("--idle-timeout-ms", "200", "--header-timeout-ms", "200",
                                 "--body-timeout-ms", "200", "--batch-delay-us", "600000"));
    xt_problem problem;
    xt_problem_make(&problem, &what, xn_test_seed());
    xt_conv_check(d, &problem, XT_OIP, XT_OIP, &(xt_options){0});
    xt_problem_free(&problem);
    ck_assert_int_eq(xt_daemon_stop(d), 0);
}
END_TEST

/* 16 MiB of answer for a client that does not read. */
START_TEST(readers_that_do_not_read) {
    static const char body[] =
        "{\"input\": {\"shape\": [1,1,1,1], \"datatype\": \"INT8\", \"data\": [1]}, \"weights\": "
        "{\"shape\": [1,1,1,1], \"datatype\": \"INT8\", \"data\": [1]}, \"padding\": 1024}";
    xt_daemon *d = xt_daemon_start(XT_FLAGS("--send-timeout-ms", "500"));
    xt_conn conn;
    xt_buffer head = {0};
    int small = 4096;
    xt_print(&head, POST_CONV "Accept: application/octet-stream\r\nContent-Length: %zu\r\n\r\n%s",
             sizeof body - 1, body);
    ck_assert(xt_connect(&conn, d));
    setsockopt(conn.fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    ck_assert(xt_send(&conn, head.data, head.length));
    ck_assert(xt_metric_becomes(d, "xnord_connections_closed_total{reason=\"send_timeout\"}", 1));
    ck_assert(xt_metric_becomes(d, "xnord_inflight_requests", 0));
    ck_assert(xt_metric_becomes(d, "xnord_inflight_bytes", 0));
    ck_assert_double_lt(xt_metric(d, "xnord_sent_body_bytes_total"), 16e6); /* it was not sent */
    xt_disconnect(&conn);
    xt_buffer_free(&head);
    ck_assert_int_eq(xt_daemon_stop(d), 0);
}
END_TEST

/* ---- limits on connections ---- */

static bool served(xt_conn *conn) {
    xt_response response;
    xt_result result = xt_request(conn, "GET", "/v2/health/live", "", NULL, 0, &response);
    bool ok = result == XT_GOT && response.status == 200;
    xt_response_free(&response);
    return ok;
}

START_TEST(connections_in_total) {
    enum { LIMIT = 6 };
    xt_daemon *d = xt_daemon_start(XT_FLAGS("--max-connections", "6", "--http-threads", "1",
                                            "--max-connections-per-address", "0",
                                            "--idle-timeout-ms", "600000"));
    xt_conn conns[LIMIT], extra;
    for (int i = 0; i < LIMIT; i++) {
        ck_assert(xt_connect(&conns[i], d));
        ck_assert_msg(served(&conns[i]), "connection %d of %d", i + 1, LIMIT);
    }
    ck_assert(xt_connect(&extra, d)); /* the system's queue takes it; the daemon does not */
    xt_send_text(&extra, "GET /v2 HTTP/1.1\r\nHost: a\r\n\r\n");
    bool waits = xt_quiet(&extra, 300);
    ck_assert_msg(waits || xt_closed_within(&extra, XT_PATIENCE_MS), "a connection too many");
    ck_assert_uint_eq(extra.in.length, 0);
    for (int i = 1; i < LIMIT; i++)
        ck_assert_msg(served(&conns[i]), "connection %d suffers", i + 1);
    xt_disconnect(&extra);
    xt_disconnect(&conns[0]); /* a place: the next one is served */
    bool again = false;
    for (int64_t end = xt_now_ms() + XT_PATIENCE_MS; !again && xt_now_ms() < end; xt_nap()) {
        again = xt_connect(&extra, d) && served(&extra);
        xt_disconnect(&extra);
    }
    ck_assert_msg(again, "no connection is taken after one was closed");
    for (int i = 1; i < LIMIT; i++)
        xt_disconnect(&conns[i]);
    ck_assert_int_eq(xt_daemon_stop(d), 0);
}
END_TEST

START_TEST(connections_per_address) {
    enum { LIMIT = 3 };
    xt_daemon *d = xt_daemon_start(XT_FLAGS("--max-connections-per-address", "3"));
    xt_conn conns[LIMIT], extra, other;
    /* The one that asked for readiness may still be counted for a moment. */
    for (int i = 0; i < LIMIT; i++) {
        bool ok = false;
        for (int64_t end = xt_now_ms() + XT_PATIENCE_MS; !ok && xt_now_ms() < end; xt_nap()) {
            ok = xt_connect(&conns[i], d) && served(&conns[i]);
            if (!ok)
                xt_disconnect(&conns[i]);
        }
        ck_assert_msg(ok, "connection %d of %d", i + 1, LIMIT);
    }
    ck_assert(xt_connect(&extra, d));
    xt_send_text(&extra, "GET /v2 HTTP/1.1\r\nHost: a\r\n\r\n");
    ck_assert_msg(xt_closed_within(&extra, XT_PATIENCE_MS), "one too many stays open");
    ck_assert_msg(!extra.in.length, "one too many is served");
    ck_assert(xt_connect_from(&other, d, "127.0.0.2"));
    ck_assert_msg(served(&other), "another address suffers");
    for (int i = 0; i < LIMIT; i++) {
        ck_assert_msg(served(&conns[i]), "connection %d suffers", i + 1);
        xt_disconnect(&conns[i]);
    }
    xt_disconnect(&extra);
    xt_disconnect(&other);
    ck_assert_int_eq(xt_daemon_stop(d), 0);
}
END_TEST

XN_SUITE(http_slow) {
    Suite *s = suite_create("http_slow");
    TCase *t = tcase_create("slow");
    tcase_set_timeout(t, 180);
    tcase_add_checked_fixture(t, NULL, xt_reap);
    tcase_add_loop_test(t, ended_by_its_deadline, 0, sizeof slow / sizeof *slow);
    tcase_add_test(t, waiting_for_an_answer_is_no_idleness);
    tcase_add_test(t, readers_that_do_not_read);
    tcase_add_test(t, connections_in_total);
    tcase_add_test(t, connections_per_address);
    suite_add_tcase(s, t);
    return s;
}
