/* Slow and idle clients, and the limits on connections: each is closed by its own deadline, nobody
 * else suffers. Small values in the flags; the test waits for the close, never for a time. */
#include "client/wire.h"

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#define POST_CONV "POST /conv HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"

/* A 408 and the close, or only the close when `told` is false. */
static void expect_timeout(xt_conn *conn, bool told, const char *what) {
    xt_response response;
    xt_result result = xt_receive(conn, false, false, &response);
    if (told) {
        ck_assert_msg(result == XT_GOT, "%s: got %s", what, xt_result_name(result));
        xt_check_error(&response, 408, NULL, NULL, what);
        ck_assert_msg(xt_closed_within(conn, XT_PATIENCE_MS), "%s: stays open", what);
    } else {
        ck_assert_msg(result == XT_CLOSED, "%s: got %s", what, xt_result_name(result));
    }
    xt_response_free(&response);
}

/* Sends the filler over and over until the daemon closes; it must, although bytes keep coming. */
static void trickle(xt_conn *conn, const char *filler, const char *what) {
    int64_t deadline = xt_now_ms() + XT_PATIENCE_MS;
    while (xt_now_ms() < deadline) {
        if (!xt_quiet(conn, 10) || !xt_send_text(conn, filler))
            return;
    }
    ck_abort_msg("%s: still open after %d ms", what, XT_PATIENCE_MS);
}

START_TEST(slow_headers) {
    static const struct {
        const char *start, *filler;
        bool told; /* a request had begun */
    } table[] = {
        {"GET /v2 HTTP/1.1\r\nHost: a\r\nX-Slow: ", NULL, true},
        {"GET /v2 HTTP/1.1\r\nHost: a\r\n", "X-A: b\r\n", true},
        {POST_CONV "Content-Length: 10\r\n", NULL, true},
    };
    xt_daemon *d = xt_daemon_start(XT_FLAGS("--header-timeout-ms", "300"));
    xt_conn conn;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        ck_assert(xt_connect(&conn, d));
        ck_assert(xt_send_text(&conn, table[i].start));
        if (table[i].filler)
            trickle(&conn, table[i].filler, table[i].start);
        expect_timeout(&conn, table[i].told, table[i].start);
        xt_disconnect(&conn);
    }
    ck_assert(xt_metric_becomes(d, "xnord_connections_closed_total{reason=\"header_timeout\"}", 3));
    ck_assert_int_eq(xt_daemon_stop(d), 0);
}
END_TEST

/* Not even a request line: closed all the same, with or without a word. */
START_TEST(silent_connections) {
    static const char *const starts[] = {"", "GET /v2 HT", "G"};
    xt_daemon *d = xt_daemon_start(XT_FLAGS("--header-timeout-ms", "300"));
    xt_conn conn;
    for (size_t i = 0; i < sizeof starts / sizeof *starts; i++) {
        ck_assert(xt_connect(&conn, d));
        ck_assert(xt_send_text(&conn, starts[i]));
        ck_assert_msg(xt_closed_within(&conn, XT_PATIENCE_MS), "'%s' stays open", starts[i]);
        xt_disconnect(&conn);
    }
    ck_assert_int_eq(xt_daemon_stop(d), 0);
}
END_TEST

START_TEST(slow_body) {
    xt_daemon *d = xt_daemon_start(XT_FLAGS("--body-timeout-ms", "300"));
    xt_conn conn;
    for (int filled = 0; filled < 2; filled++) {
        ck_assert(xt_connect(&conn, d));
        ck_assert(xt_send_text(&conn, POST_CONV "Content-Length: 100000000\r\n\r\n{"));
        if (filled)
            trickle(&conn, "          ", "a slow body");
        expect_timeout(&conn, true, "a slow body");
        xt_disconnect(&conn);
    }
    ck_assert(xt_metric_becomes(d, "xnord_connections_closed_total{reason=\"body_timeout\"}", 2));
    ck_assert(xt_metric_becomes(d, "xnord_inflight_requests", 0));
    ck_assert(xt_metric_becomes(d, "xnord_inflight_bytes", 0));
    ck_assert_int_eq(xt_daemon_stop(d), 0);
}
END_TEST

/* Within the total time, but below the rate, which is judged after the first 5 seconds. */
START_TEST(body_below_the_rate) {
    xt_daemon *d =
        xt_daemon_start(XT_FLAGS("--body-timeout-ms", "3600000", "--body-min-rate", "1M"));
    xt_conn conn;
    ck_assert(xt_connect(&conn, d));
    ck_assert(xt_send_text(&conn, POST_CONV "Content-Length: 100000000\r\n\r\n{"));
    trickle(&conn, " ", "a body below the rate");
    expect_timeout(&conn, true, "a body below the rate");
    xt_disconnect(&conn);
    ck_assert_int_eq(xt_daemon_stop(d), 0);
}
END_TEST

START_TEST(idle_connections) {
    xt_daemon *d = xt_daemon_start(XT_FLAGS("--idle-timeout-ms", "300"));
    xt_conn conn;
    xt_response response;
    ck_assert(xt_connect(&conn, d));
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(xt_request(&conn, "GET", "/v2", "", NULL, 0, &response), XT_GOT);
        ck_assert_int_eq(response.status, 200);
        xt_response_free(&response);
    }
    expect_timeout(&conn, false, "an idle connection");
    xt_disconnect(&conn);
    ck_assert(xt_metric_becomes(d, "xnord_connections_closed_total{reason=\"idle_timeout\"}", 1));
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
    tcase_add_test(t, slow_headers);
    tcase_add_test(t, silent_connections);
    tcase_add_test(t, slow_body);
    tcase_add_test(t, body_below_the_rate);
    tcase_add_test(t, idle_connections);
    tcase_add_test(t, waiting_for_an_answer_is_no_idleness);
    tcase_add_test(t, readers_that_do_not_read);
    tcase_add_test(t, connections_in_total);
    tcase_add_test(t, connections_per_address);
    suite_add_tcase(s, t);
    return s;
}
