/* Spans of a real daemon: what its collector gets, by the end at the latest, and that a collector
 * that takes nothing holds up neither requests nor the end. */
#include "client/collector.h"
#include "client/wire.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#define TRACE "0af7651916cd43dd8448eb211c80319c"
#define PARENT "b7ad6b7169203331"
#define HEADERS "Content-Type: application/json\r\ntraceparent: 00-" TRACE "-" PARENT "-01\r\n"

static const char conv[] = "{\"input\": {\"shape\": [1,1,1,1], \"datatype\": \"FP32\", \"data\": "
                           "[2]}, \"weights\": {\"shape\": [1,1,1,1], \"datatype\": \"FP32\", "
                           "\"data\": [3]}}";

static xt_daemon *start(const xt_collector *c, const char *grace_ms) {
    char url[40];
    return xt_daemon_start(XT_FLAGS("--backend", "cpu", "--inline-us", "0", "--grace-ms", grace_ms,
                                    "--otlp-endpoint", xt_collector_url(c, url), "--otlp-sample",
                                    "0"));
}

START_TEST(spans_of_requests) {
    static const xt_reply ok = {XT_REPLY_TEXT, "HTTP/1.1 200 OK\r\n\r\n"};
    static const char *const expected[] = {
        "POST /v1/traces HTTP/1.1\r\n",
        ("\"traceId\":\"" TRACE "\""),
        ("\"parentSpanId\":\"" PARENT "\",\"kind\":2,"),
        "\"name\":\"POST /conv\"",
        "\"name\":\"receive\"",
        "\"name\":\"decode\"",
        "\"name\":\"queue\"",
        "\"name\":\"compute\",\"attributes\":[{\"key\":\"xnord.device\",",
        "\"value\":{\"stringValue\":\"cpu\"}}",
        "\"name\":\"encode\"",
        "{\"key\":\"http.route\",\"value\":{\"stringValue\":\"/weights/*\"}}",
        "{\"key\":\"http.response.status_code\",\"value\":{\"intValue\":\"404\"}}",
        "{\"key\":\"error.type\",\"value\":{\"stringValue\":\"client_gone\"}}",
        "{\"key\":\"http.request.method_original\",\"value\":{\"stringValue\":\"BREW\"}}",
    };
    xt_collector c;
    xt_response response;
    xt_conn conn;
    xt_collector_start(&c, &ok, 1);
    xt_daemon *d = start(&c, "10000");
    xt_expect(d, "POST", "/conv", HEADERS, conv, 200);
    xt_expect(d, "GET", "/weights/none", HEADERS, NULL, 404);
    xt_fetch(d, "BREW", "/pot", HEADERS, NULL, 0, &response);
    xt_response_free(&response);
    ck_assert(xt_metric_reaches(d, "xnord_spans_sent_total", 6));
    kill(d->pid, SIGHUP);
    ck_assert(xt_connect(&conn, d) &&
              xt_send_text(&conn, "POST /conv HTTP/1.1\r\nHost: a\r\n" HEADERS
                                  "Content-Length: 10\r\n\r\n{"));
    ck_assert(xt_metric_becomes(d, "xnord_inflight_requests", 1));
    xt_disconnect(&conn);
    ck_assert_int_eq(xt_daemon_stop(d), 0);
    xt_collector_stop(&c);
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++)
        ck_assert_msg(xt_collector_count(&c, expected[i]) > 0, "no %s in %s", expected[i],
                      c.taken.data);
    ck_assert_int_eq(xt_collector_count(&c, "\"kind\":2"), 4);
    xt_collector_free(&c);
}
END_TEST

START_TEST(a_collector_that_stalls) {
    static const xt_reply never = {XT_REPLY_NEVER, NULL};
    xt_collector c;
    xt_collector_start(&c, &never, 1);
    xt_daemon *d = start(&c, "2000");
    for (int i = 0; i < 20; i++)
        xt_expect(d, "POST", "/conv", HEADERS, conv, 200);
    while (!atomic_load(&c.posts))
        xt_nap();
    const int64_t start_ms = xt_now_ms();
    xt_expect(d, "POST", "/conv", HEADERS, conv, 200);
    ck_assert_int_eq(xt_daemon_stop(d), 0);
    ck_assert_int_lt(xt_now_ms() - start_ms, XT_PATIENCE_MS / 2);
    xt_collector_stop(&c);
    xt_collector_free(&c);
}
END_TEST

/* Spans that wait for the collector do not keep a second signal from ending the daemon. */
START_TEST(a_second_signal) {
    static const xt_reply never = {XT_REPLY_NEVER, NULL};
    xt_collector c;
    xt_collector_start(&c, &never, 1);
    xt_daemon *d = start(&c, "60000");
    xt_expect(d, "POST", "/conv", HEADERS, conv, 200);
    while (!atomic_load(&c.posts))
        xt_nap();
    kill(d->pid, SIGTERM);
    ck_assert(xt_daemon_log_wait(d, "draining"));
    for (int64_t end_ms = xt_now_ms() + 4000;
         xt_now_ms() < end_ms;) /* its sockets are shut by then */
        xt_nap();
    const int64_t start_ms = xt_now_ms();
    kill(d->pid, SIGTERM);
    ck_assert_int_eq(xt_daemon_wait(d), 130);
    ck_assert_int_lt(xt_now_ms() - start_ms, 3000);
    xt_collector_stop(&c);
    xt_collector_free(&c);
}
END_TEST

XN_SUITE(http_spans) {
    Suite *s = suite_create("http_spans");
    TCase *t = tcase_create("spans");
    tcase_set_timeout(t, 180);
    tcase_add_checked_fixture(t, NULL, xt_reap);
    tcase_add_test(t, spans_of_requests);
    tcase_add_test(t, a_collector_that_stalls);
    tcase_add_test(t, a_second_signal);
    suite_add_tcase(s, t);
    return s;
}
