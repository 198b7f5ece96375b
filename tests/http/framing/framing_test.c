/* The bytes of HTTP itself, on a real daemon: framing attacks, garbage, pipelining, splits at every
 * byte, Expect, HTTP/1.0. No case may hang, and what follows a refused request on its connection
 * must never be taken for another request. */
#include "http/client/wire.h"

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

static xt_daemon *daemon_;

static void start(void) {
    daemon_ = xt_daemon_start_shared(XT_FLAGS("--max-body-bytes", "1M"));
}

/* For requests that may lack their end: short deadlines instead of long waits. */
static void start_impatient(void) {
    daemon_ =
        xt_daemon_start_shared(XT_FLAGS("--header-timeout-ms", "700", "--body-timeout-ms", "700"));
}

static void stop(void) {
    xt_daemon_stop_shared(daemon_);
}

#define POST_CONV "POST /conv HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
#define TENSOR(values) "{\"shape\": [1,1,1,1], \"datatype\": \"FP32\", \"data\": [" values "]}"
#define BODY "{\"input\": " TENSOR("2") ", \"weights\": " TENSOR("3") "}"

static void check_alive(void) {
    char *live = xt_get(daemon_, "/v2/health/live");
    free(live);
}

/* However many: an answer at once, in any number of pieces, and then no other. */
START_TEST(query_parameters) {
    static const int counts[] = {1, 255, 256, 257, 400, 470, 480, 500, 1000, 4000, 15000};
    static const char *const parameters[] = {"a", "", "a=1", "key%41=value+%42"};
    const char *parameter = parameters[_i];
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        xt_conn conn;
        xt_response response;
        xt_buffer head = {0};
        bool few = counts[i] <= 256;
        if ((size_t)counts[i] * (strlen(parameter) + 1) > 30000)
            break;
        xt_print(&head, "GET /v2?");
        for (int n = 0; n < counts[i]; n++)
            xt_print(&head, "%s%s", n ? "&" : "", parameter);
        xt_print(&head, " HTTP/1.1\r\nHost: a\r\nX-Filler: %0300d\r\n\r\n", 0);
        ck_assert(xt_connect(&conn, daemon_));
        ck_assert(xt_send(&conn, head.data, head.length - 200));
        if (few)
            xt_send(&conn, head.data + head.length - 200, 200);
        ck_assert_msg(xt_receive(&conn, false, false, &response) == XT_GOT, "%d of \"%s\"",
                      counts[i], parameter);
        if (few)
            ck_assert_int_eq(response.status, 200);
        else
            xt_check_error(&response, 414, "query", "256", parameter);
        xt_response_free(&response);
        xt_disconnect(&conn);
        xt_buffer_free(&head);
    }
    check_alive();
}
END_TEST

/* ---- chunked bodies ---- */

static void expect_chunked(const char *target, const char *body, size_t length, int status,
                           const char *text) {
    static uint64_t round;
    xn_rng rng = {xn_test_seed() + ++round};
    xt_message message = {0};
    xt_conn conn;
    xt_response response;
    xt_print(&message.target, "%s", target);
    xt_print(&message.headers, "Content-Type: application/json\r\n");
    xt_append(&message.body, body, length);
    ck_assert(xt_connect(&conn, daemon_));
    ck_assert_int_eq(xt_post_chunked(&conn, &message, &rng, &response), XT_GOT);
    ck_assert_msg(response.status == status && strstr(response.body, text), "%s: %d %s", target,
                  response.status, response.body);
    xt_response_free(&response);
    xt_disconnect(&conn);
    xt_message_free(&message);
}

/* Whatever was announced, no more than the limit; and what was counted is given back. */
START_TEST(chunked_bodies_that_grow_too_long) {
    size_t length = (1u << 20) + 1;
    char *body = malloc(length);
    ck_assert_ptr_nonnull(body);
    memset(body, ' ', length);
    memcpy(body, BODY, sizeof BODY - 1);
    for (int i = 0; i < 5; i++) {
        expect_chunked("/conv", body, length, 413, "--max-body-bytes");
        expect_chunked("/conv", body, length - 1, 400, "white space");
        expect_chunked("/v2/repository/models/none/load", body, length, 413, "--max-body-bytes");
    }
    free(body);
    ck_assert(xt_metric_becomes(daemon_, "xnord_inflight_bytes", 0));
    ck_assert(xt_metric_becomes(daemon_, "xnord_inflight_requests", 0));
}
END_TEST

/* ---- garbage ---- */

/* Bytes that are no requests: whatever the answer, it comes at once or the connection closes, and
 * it is no success. */
static void check_garbage(const char *name, const void *bytes, size_t length) {
    xt_conn conn;
    xt_response response;
    ck_assert(xt_connect(&conn, daemon_));
    xt_send(&conn, bytes, length);
    shutdown(conn.fd, SHUT_WR);
    xt_result result = xt_receive(&conn, false, false, &response);
    ck_assert_msg(result != XT_SILENT, "%s: silence", name);
    ck_assert_msg(result != XT_GOT || response.status >= 400, "%s: status %d", name,
                  response.status);
    xt_response_free(&response);
    xt_disconnect(&conn);
}

START_TEST(garbage_is_no_request) {
#define GARBAGE(text)                                                                              \
    { text, sizeof text - 1 }
    static const struct {
        const char *bytes;
        size_t length;
    } table[] = {
        GARBAGE("\r\n\r\n\r\n\r\n"),
        GARBAGE("\0\0\0\0\0\0\0\0\r\n\r\n"),
        GARBAGE("GET\r\n\r\n"),
        GARBAGE("GET /v2\r\n\r\n"),
        GARBAGE("GET /v2 HTTX/1.1\r\nHost: a\r\n\r\n"),
        GARBAGE("GET\0/v2 HTTP/1.1\r\nHost: a\r\n\r\n"),
        GARBAGE("GET /v2 HTTP/1.1\r\nHost: a\r\nno colon here\r\n\r\n"),
        GARBAGE("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
        GARBAGE("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"),
        GARBAGE("SSH-2.0-OpenSSH_9.2\r\n"),
        GARBAGE("GET /v2 HTTP/1.1\r\nHost: a"),
        GARBAGE(POST_CONV "Content-Length: 100\r\n\r\n{"),
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        check_garbage(table[i].bytes, table[i].bytes, table[i].length);
    check_alive();
}
END_TEST

START_TEST(random_bytes) {
    xn_rng rng = {xn_test_seed() + 4711};
    unsigned char bytes[512];
    char name[64];
    for (int round = 0; round < 60; round++) {
        size_t length = 1 + (size_t)xn_rng_below(&rng, sizeof bytes - 4);
        for (size_t i = 0; i < length; i++)
            bytes[i] = (unsigned char)xn_rng_next(&rng);
        memcpy(bytes + length - (length > 4 ? 4 : 0), length > 4 ? "\r\n\r\n" : "",
               length > 4 ? 4 : 0);
        snprintf(name, sizeof name, "seed %llu round %d", (unsigned long long)xn_test_seed(),
                 round);
        check_garbage(name, bytes, length);
    }
    check_alive();
}
END_TEST

/* A good request with one byte changed: any answer or a close, but never silence or a crash. */
START_TEST(flipped_bytes) {
    static const char good[] = POST_CONV "Content-Length: 130\r\nConnection: close\r\n\r\n" BODY;
    _Static_assert(sizeof BODY - 1 == 130, "the Content-Length above");
    xn_rng rng = {xn_test_seed() + 17};
    for (int round = 0; round < 150; round++) {
        char bytes[sizeof good];
        xt_conn conn;
        xt_response response;
        memcpy(bytes, good, sizeof good);
        size_t at = (size_t)xn_rng_below(&rng, sizeof good - 1);
        bytes[at] = (char)xn_rng_next(&rng);
        ck_assert(xt_connect(&conn, daemon_));
        xt_send(&conn, bytes, sizeof bytes - 1);
        shutdown(conn.fd, SHUT_WR);
        xt_result result = xt_receive(&conn, false, false, &response);
        ck_assert_msg(result != XT_SILENT && result != XT_GARBLED,
                      "byte %zu changed to %d, seed %llu: got %s", at, bytes[at],
                      (unsigned long long)xn_test_seed(), xt_result_name(result));
        xt_response_free(&response);
        xt_disconnect(&conn);
    }
    check_alive();
    ck_assert(xt_metric_becomes(daemon_, "xnord_inflight_requests", 0));
}
END_TEST

START_TEST(heads_that_are_too_large) {
    static const char *const parts[][2] = {{"GET /", " HTTP/1.1\r\nHost: a\r\n\r\n"},
                                           {"GET /v2?", " HTTP/1.1\r\nHost: a\r\n\r\n"},
                                           {"GET /v2 HTTP/1.1\r\nHost: a\r\nX-Long: ", "\r\n\r\n"},
                                           {"GET /v2 HTTP/1.1\r\nHost: a\r\nX", ": 1\r\n\r\n"}};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        xt_buffer bytes = {0};
        xt_conn conn;
        xt_response response;
        xt_print(&bytes, "%s", parts[i][0]);
        for (int n = 0; n < 200000; n++)
            xt_append(&bytes, "a", 1);
        xt_print(&bytes, "%s", parts[i][1]);
        ck_assert(xt_connect(&conn, daemon_));
        xt_send(&conn, bytes.data, bytes.length);
        xt_result result = xt_receive(&conn, false, false, &response);
        /* the rest of the bytes may meet a closed socket, whose reset can swallow the answer */
        ck_assert_msg(result == XT_CLOSED || result == XT_CUT ||
                          (result == XT_GOT && (response.status == 431 || response.status == 414 ||
                                                response.status == 413 || response.status == 400)),
                      "%s...: %s, status %d", parts[i][0], xt_result_name(result), response.status);
        xt_response_free(&response);
        xt_disconnect(&conn);
        xt_buffer_free(&bytes);
    }
    check_alive();
}
END_TEST

START_TEST(many_small_headers) {
    xt_buffer bytes = {0};
    xt_conn conn;
    xt_response response;
    xt_print(&bytes, "GET /v2 HTTP/1.1\r\nHost: a\r\n");
    for (int i = 0; i < 20000; i++)
        xt_print(&bytes, "X-%d: %d\r\n", i, i);
    xt_print(&bytes, "\r\n");
    ck_assert(xt_connect(&conn, daemon_));
    xt_send(&conn, bytes.data, bytes.length);
    xt_result result = xt_receive(&conn, false, false, &response);
    ck_assert_msg(result == XT_CLOSED || result == XT_CUT ||
                      (result == XT_GOT && response.status >= 400 && response.status < 500),
                  "%s, status %d", xt_result_name(result), response.status);
    xt_response_free(&response);
    xt_disconnect(&conn);
    xt_buffer_free(&bytes);
    check_alive();
}
END_TEST

/* ---- pipelining and splits ---- */

static void conv_text(xt_buffer *bytes, int value, const char *id) {
    xt_buffer body = {0};
    xt_print(&body,
             "{\"input\": {\"shape\": [1,1,1,2], \"datatype\": \"FP32\", \"data\": [%d,-1]}, "
             "\"weights\": " TENSOR("3") ", \"mode\": \"float\"}",
             value);
    xt_print(bytes, POST_CONV "X-Request-Id: %s\r\nContent-Length: %zu\r\n\r\n%s", id, body.length,
             body.data);
    xt_buffer_free(&body);
}

static void expect_conv(xt_conn *conn, int value, const char *id, const char *what) {
    xt_response response;
    char expected[48];
    xt_result result = xt_receive(conn, false, false, &response);
    ck_assert_msg(result == XT_GOT, "%s: got %s", what, xt_result_name(result));
    ck_assert_msg(response.status == 200 && xt_json_is(response.body, "id", id), "%s: %d %s", what,
                  response.status, response.body);
    snprintf(expected, sizeof expected, "[%d,-3]", 3 * value);
    const char *data = xt_json_at(response.body, "output.data");
    char compact[64] = "";
    for (size_t n = 0; data && *data && n + 1 < sizeof compact; data++) {
        if (*data != ' ')
            compact[n++] = *data;
        if (*data == ']')
            break;
    }
    ck_assert_msg(!strcmp(compact, expected), "%s: %s, expected %s", what, compact, expected);
    xt_response_free(&response);
}

START_TEST(pipelined_requests) {
    enum { COUNT = 40 };
    xt_conn conn;
    xt_response response;
    xt_buffer bytes = {0};
    char id[32];
    for (int i = 0; i < COUNT; i++) {
        snprintf(id, sizeof id, "pipe-%d", i);
        if (i % 4 == 3)
            xt_print(&bytes, "GET /v2/health/live HTTP/1.1\r\nHost: a\r\nX-Request-Id: %s\r\n\r\n",
                     id);
        else
            conv_text(&bytes, i, id);
    }
    ck_assert(xt_connect(&conn, daemon_));
    ck_assert(xt_send(&conn, bytes.data, bytes.length));
    for (int i = 0; i < COUNT; i++) {
        snprintf(id, sizeof id, "pipe-%d", i);
        if (i % 4 != 3) {
            expect_conv(&conn, i, id, id);
            continue;
        }
        ck_assert_int_eq(xt_receive(&conn, false, false, &response), XT_GOT);
        ck_assert_int_eq(response.status, 200);
        ck_assert_str_eq(XT_HEADER(&response, "X-Request-Id"), id);
        xt_response_free(&response);
    }
    ck_assert(xt_quiet(&conn, 20));
    xt_disconnect(&conn);
    xt_buffer_free(&bytes);
}
END_TEST

/* In two writes, cut at every place. The pause only makes it likely that the daemon sees two
 * pieces; the test holds without it. */
START_TEST(split_at_every_byte) {
    xt_conn conn;
    xt_buffer bytes = {0};
    conv_text(&bytes, 5, "split");
    ck_assert(xt_connect(&conn, daemon_));
    for (size_t cut = 1; cut < bytes.length; cut++) {
        char what[32];
        snprintf(what, sizeof what, "cut at %zu", cut);
        ck_assert(xt_send(&conn, bytes.data, cut));
        xt_nap();
        ck_assert(xt_send(&conn, bytes.data + cut, bytes.length - cut));
        expect_conv(&conn, 5, "split", what);
    }
    for (size_t i = 0; i < bytes.length; i++) /* and all cuts at once */
        ck_assert(xt_send(&conn, bytes.data + i, 1));
    expect_conv(&conn, 5, "split", "byte by byte");
    xt_disconnect(&conn);
    xt_buffer_free(&bytes);
}
END_TEST

/* ---- Expect, refusals before the body, HTTP/1.0 ---- */

START_TEST(expect_continue) {
    xt_conn conn;
    xt_response response;
    xt_buffer head = {0};
    ck_assert(xt_connect(&conn, daemon_));
    xt_print(&head, POST_CONV "Expect: 100-continue\r\nContent-Length: %zu\r\n\r\n", strlen(BODY));
    ck_assert(xt_send(&conn, head.data, head.length));
    ck_assert_int_eq(xt_receive(&conn, false, true, &response), XT_GOT);
    ck_assert_int_eq(response.status, 100);
    xt_response_free(&response);
    ck_assert(xt_send_text(&conn, BODY));
    ck_assert_int_eq(xt_receive(&conn, false, true, &response), XT_GOT);
    ck_assert_int_eq(response.status, 200);
    xt_response_free(&response);
    xt_disconnect(&conn);
    xt_buffer_free(&head);
}
END_TEST

XN_SUITE(http_framing) {
    Suite *s = suite_create("http_framing");
    TCase *t = tcase_create("framing");
    tcase_set_timeout(t, 180);
    tcase_add_unchecked_fixture(t, start, stop);
    tcase_add_loop_test(t, query_parameters, 0, 4);
    tcase_add_test(t, chunked_bodies_that_grow_too_long);
    tcase_add_test(t, heads_that_are_too_large);
    tcase_add_test(t, many_small_headers);
    tcase_add_test(t, pipelined_requests);
    tcase_add_test(t, split_at_every_byte);
    tcase_add_test(t, expect_continue);
    suite_add_tcase(s, t);
    xt_add_stopped_case(s);
    t = tcase_create("garbage");
    tcase_set_timeout(t, 180);
    tcase_add_unchecked_fixture(t, start_impatient, stop);
    tcase_add_test(t, garbage_is_no_request);
    tcase_add_test(t, random_bytes);
    tcase_add_test(t, flipped_bytes);
    suite_add_tcase(s, t);
    xt_add_stopped_case(s);
    return s;
}
