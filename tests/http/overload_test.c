/* More work than there is room for: 429 with Retry-After, and what SIGTERM does to work in
 * progress. Requests are made to wait with a long batch delay, which a drain cuts short: no test
 * depends on how fast anything is. Deadlines are in device_test.c. */
#include "client/wire.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

static const xt_case small = {"small", 1, 3, 6, 7, 4, 3, 3, .padding_name = "same"};

typedef struct request {
    xt_conn conn;
    xt_problem problem;
    xt_message message;
} request;

static void make_request(request *r, const xt_case *what, uint64_t seed) {
    xt_problem_make(&r->problem, what, seed);
    xt_encode(&r->problem, XT_OIP, &(xt_options){0}, &r->message);
}

/* Sends the head and the first `bytes` of the body. */
static void send_made(request *r, xt_daemon *daemon, size_t bytes) {
    xt_buffer head = {0};
    xt_print(&head, "POST /conv HTTP/1.1\r\nHost: a\r\n%sContent-Length: %zu\r\n\r\n",
             r->message.headers.data, r->message.body.length);
    ck_assert(xt_connect(&r->conn, daemon));
    ck_assert(xt_send(&r->conn, head.data, head.length));
    bytes = bytes < r->message.body.length ? bytes : r->message.body.length;
    ck_assert(xt_send(&r->conn, r->message.body.data, bytes));
    xt_buffer_free(&head);
}

static void send_part(request *r, xt_daemon *daemon, uint64_t seed, size_t bytes) {
    make_request(r, &small, seed);
    send_made(r, daemon, bytes);
}

static void free_request(request *r) {
    xt_disconnect(&r->conn);
    xt_message_free(&r->message);
    xt_problem_free(&r->problem);
}

static void expect_answer(request *r, bool last, const char *what) {
    xt_response response;
    char error[512] = "";
    xt_result result = xt_receive(&r->conn, false, false, &response);
    ck_assert_msg(result == XT_GOT, "%s: got %s", what, xt_result_name(result));
    ck_assert_msg(xt_response_matches(&response, XT_OIP, &r->problem, NULL, error, sizeof error),
                  "%s: %s", what, error);
    if (last) {
        ck_assert_msg(response.close, "%s: no Connection: close while draining", what);
        ck_assert_msg(xt_closed_within(&r->conn, XT_PATIENCE_MS), "%s: stays open", what);
    }
    xt_response_free(&response);
}

static void check_retry_after(const xt_response *response) {
    const char *after = XT_HEADER(response, "Retry-After");
    ck_assert_msg(after && strtol(after, NULL, 10) >= 1 && strtol(after, NULL, 10) <= 3600,
                  "Retry-After: %s", after ? after : "missing");
}

/* ---- overload ---- */

#define LONG_DELAY "--batch-delay-us", "10000000", "--timeout-ms", "300000"

START_TEST(queue_depth) {
    enum { DEPTH = 3 };
    request waiting[DEPTH];
    xt_problem problem;
    xt_response response;
    xt_daemon *d = xt_daemon_start(XT_FLAGS(LONG_DELAY, "--queue-depth", "3"));
    for (uint64_t i = 0; i < DEPTH; i++)
        send_part(&waiting[i], d, xn_test_seed() + i, SIZE_MAX);
    ck_assert(xt_metric_becomes(d, "xnord_inflight_requests", DEPTH));
    xt_problem_make(&problem, &small, xn_test_seed());
    xt_conv(d, &problem, XT_OIP, &(xt_options){0}, &response);
    xt_problem_free(&problem);
    xt_check_error(&response, 429, NULL, "3", "a fourth request");
    check_retry_after(&response);
    xt_response_free(&response);
    char *live = xt_get(d, "/v2/health/ready"); /* full is not sick */
    free(live);
    ck_assert(xt_metric_becomes(d, "xnord_rejected_requests_total{reason=\"queue_full\"}", 1));
    xt_reset(&waiting[0].conn); /* one hangs up: there is room again */
    free_request(&waiting[0]);
    ck_assert(xt_metric_becomes(d, "xnord_inflight_requests", DEPTH - 1));
    send_part(&waiting[0], d, xn_test_seed(), SIZE_MAX);
    ck_assert(xt_metric_becomes(d, "xnord_inflight_requests", DEPTH));
    kill(d->pid, SIGTERM); /* launches what waits */
    for (int i = 0; i < DEPTH; i++) {
        expect_answer(&waiting[i], true, "an accepted request");
        free_request(&waiting[i]);
    }
    ck_assert_int_eq(xt_daemon_wait(d), 0);
}
END_TEST

/* One round of requests that come all at once; how many were refused. */
static int crowd(xt_daemon *daemon) {
    enum { COUNT = 8 };
    static const xt_case large = {"large", 1, 1, 80, 80, 1, 3, 3, .padding_name = "same"};
    static request requests[COUNT];
    int refused = 0;
    for (int i = 0; i < COUNT; i++)
        make_request(&requests[i], &large, xn_test_seed());
    for (int i = 0; i < COUNT; i++)
        send_made(&requests[i], daemon, 100);
    ck_assert(xt_metric_reaches(daemon, "xnord_inflight_requests", 1));
    for (int i = 0; i < COUNT; i++) /* the sockets have room for all of it */
        xt_send(&requests[i].conn, requests[i].message.body.data + 100,
                requests[i].message.body.length - 100);
    for (int i = 0; i < COUNT; i++) {
        xt_response response;
        ck_assert_int_eq(xt_receive(&requests[i].conn, false, false, &response), XT_GOT);
        ck_assert(response.status == 200 || response.status == 429);
        refused += response.status == 429;
        xt_response_free(&response);
        free_request(&requests[i]);
    }
    return refused;
}

/* Larger bodies wait at their headers, where they cost little, and are not refused: but by a daemon
 * that has no time for those in work, so that they take longer than others wait for them. */
START_TEST(larger_bodies_wait_for_the_queue) {
    int refused = 1;
    xt_daemon *d = xt_daemon_start(XT_FLAGS("--queue-depth", "2"));
    for (int round = 0; round < 50 && refused; round++)
        refused = crowd(d);
    ck_assert_int_eq(refused, 0);
    ck_assert_int_eq(xt_daemon_stop(d), 0);
}
END_TEST

/* What a request needs besides its body counts too: more than all of --queue-bytes is 413, however
 * little is in use, and not a 429 that no time would cure. */
START_TEST(queue_bytes_of_outputs) {
    static const char body[] =
        "{\"weights\": {\"shape\": [1,1,1,1], \"datatype\": \"INT8\", \"data\": [1]}, "
        "\"padding\": %d, \"input\": {\"shape\": [1,1,1,1], \"datatype\": \"INT8\", \"data\": [1";
    static const char binary[] =
        "Content-Type: application/json\r\nAccept: application/octet-stream\r\n";
    xt_buffer text = {0};
    xt_response response;
    xt_daemon *d = xt_daemon_start(
        XT_FLAGS("--queue-bytes", "5M", "--max-bytes-per-client", "5M", "--http-threads", "1"));
    /* (2 * padding + 1)^2 floats: 4 MB and some room fit alone, not beside a body of 1.2 MB;
     * 16 MB do not fit at all. */
    static const int paddings[] = {500, 1000};
    for (size_t i = 0; i < 2; i++) {
        xt_print(&text, body, paddings[i]);
        for (int n = 0; n < 1200000; n++) /* white space counts as well */
            xt_append(&text, "\n", 1);
        xt_print(&text, "]}}");
        xt_fetch(d, "POST", "/conv", binary, text.data, text.length, &response);
        xt_check_error(&response, 413, NULL, "--queue-bytes", "an output beside its body");
        xt_response_free(&response);
        xt_buffer_free(&text);
    }
    ck_assert(xt_metric_becomes(d, "xnord_inflight_bytes", 0));
    xt_print(&text, body, paddings[0]);
    xt_print(&text, "]}}");
    xt_fetch(d, "POST", "/conv", binary, text.data, text.length, &response);
    ck_assert_msg(response.status == 200, "%d %s", response.status, response.body);
    xt_response_free(&response);
    xt_buffer_free(&text);
    ck_assert_int_eq(xt_daemon_stop(d), 0);
}
END_TEST

/* So do weights: in the form they are computed with, and the copy of registered ones that a scale
 * of the request's own needs. */
START_TEST(queue_bytes_of_weights) {
    enum { CHANNELS = 330000 };
    static const char *const paths[] = {"/weights/many", "/conv", "/conv"};
    static const char *const methods[] = {"PUT", "POST", "POST"};
#define ONE_INPUT "\"input\": {\"shape\": [1,1,1,1], \"datatype\": \"INT8\", \"data\": [1]}, "
    static const char *const heads[] = {"", ONE_INPUT, ONE_INPUT "\"weights\": \"many\", "};
#undef ONE_INPUT
    static const char *const names[] = {"weights", "weights", "bias"};
    static const char *const more[] = {",1,1,1", ",1,1,1", ""};
    static const int statuses[] = {201, 413, 413};
    xt_response response;
    xt_daemon *d =
        xt_daemon_start(XT_FLAGS("--queue-bytes", "4400K", "--max-bytes-per-client", "4400K"));
    for (int i = 0; i < 3; i++) {
        xt_buffer text = {0};
        xt_print(&text, "{%s\"%s\": {\"shape\": [%d%s], \"datatype\": \"INT8\", \"data\": [1",
                 heads[i], names[i], CHANNELS, more[i]);
        for (int n = 1; n < CHANNELS; n++)
            xt_append(&text, ",1", 2);
        xt_print(&text, "]}}");
        xt_fetch(d, methods[i], paths[i],
                 "Content-Type: application/json\r\nAccept: application/octet-stream\r\n",
                 text.data, text.length, &response);
        if (statuses[i] == 413)
            xt_check_error(&response, 413, NULL, "--queue-bytes", names[i]);
        else
            ck_assert_msg(response.status == statuses[i], "%d %s", response.status, response.body);
        xt_response_free(&response);
        xt_buffer_free(&text);
        /* The answer comes before what the request held is given back. */
        ck_assert(xt_metric_becomes(d, "xnord_inflight_bytes", 0));
    }
    ck_assert_int_eq(xt_daemon_stop(d), 0);
}
END_TEST

/* ---- drain ---- */

static int ready_status(xt_conn *conn) {
    xt_response response;
    xt_result result = xt_request(conn, "GET", "/v2/health/ready", "", NULL, 0, &response);
    int status = result == XT_GOT ? response.status : 0;
    if (status == 503)
        check_retry_after(&response);
    xt_response_free(&response);
    return status;
}

#define SEVEN "1,1,1,1,1,1,1"

/* Some 5e7 multiply-adds on the naive backend, which are under way when the signal comes. */
START_TEST(what_runs_is_finished) {
    static const char body[] =
        "{\"input\": {\"shape\": [1,1,1,1], \"datatype\": \"INT8\", \"data\": [1]}, \"weights\": "
        "{\"shape\": [1,1,7,7], \"datatype\": \"INT8\", \"data\": [" SEVEN "," SEVEN "," SEVEN
        "," SEVEN "," SEVEN "," SEVEN "," SEVEN "]}, "
        "\"padding\": 500, \"pad_value\": 1}";
    xt_conn conn;
    xt_buffer bytes = {0};
    xt_response response;
    xt_daemon *d = xt_daemon_start(XT_FLAGS("--backend", "ref", "--workers", "1", "--timeout-ms",
                                            "300000", "--grace-ms", "300000"));
    xt_print(&bytes,
             "POST /conv HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
             "Accept: application/octet-stream\r\nContent-Length: %zu\r\n\r\n%s",
             sizeof body - 1, body);
    ck_assert(xt_connect(&conn, d) && xt_send(&conn, bytes.data, bytes.length));
    ck_assert(xt_metric_reaches(d, "xnord_inflight_requests", 1));
    kill(d->pid, SIGTERM);
    ck_assert_int_eq(xt_receive(&conn, false, false, &response), XT_GOT);
    ck_assert_int_eq(response.status, 200);
    xt_response_free(&response);
    xt_disconnect(&conn);
    xt_buffer_free(&bytes);
    ck_assert_int_eq(xt_daemon_wait(d), 0);
}
END_TEST

START_TEST(idle_connections_do_not_delay_the_end) {
    xt_conn idle, silent;
    xt_daemon *d = xt_daemon_start(XT_FLAGS("--grace-ms", "600000"));
    ck_assert(xt_connect(&idle, d));
    ck_assert(xt_connect(&silent, d));
    ck_assert_int_eq(ready_status(&idle), 200);
    kill(d->pid, _i ? SIGINT : SIGTERM);
    ck_assert_int_eq(xt_daemon_wait(d), 0);
    ck_assert(xt_closed_within(&idle, XT_PATIENCE_MS));
    xt_disconnect(&idle);
    xt_disconnect(&silent);
}
END_TEST

START_TEST(second_signal_exits_at_once) {
    request half;
    xt_daemon *d = xt_daemon_start(XT_FLAGS("--grace-ms", "600000"));
    send_part(&half, d, xn_test_seed(), 100);
    ck_assert(xt_metric_becomes(d, "xnord_inflight_requests", 1));
    kill(d->pid, SIGTERM);
    ck_assert(xt_daemon_log_wait(d, "draining"));
    ck_assert(xt_daemon_alive(d));
    kill(d->pid, SIGTERM);
    ck_assert_int_eq(xt_daemon_wait(d), 130);
    free_request(&half);
}
END_TEST

START_TEST(grace_time_ends) {
    request half;
    xt_daemon *d = xt_daemon_start(XT_FLAGS("--grace-ms", "300"));
    send_part(&half, d, xn_test_seed(), 100);
    ck_assert(xt_metric_becomes(d, "xnord_inflight_requests", 1));
    ck_assert_int_eq(xt_daemon_stop(d), 1);
    free_request(&half);
}
END_TEST

XN_SUITE(http_overload) {
    Suite *s = suite_create("http_overload");
    TCase *t = tcase_create("overload");
    tcase_set_timeout(t, 180);
    tcase_add_checked_fixture(t, NULL, xt_reap);
    tcase_add_test(t, queue_depth);
    tcase_add_test(t, larger_bodies_wait_for_the_queue);
    tcase_add_test(t, queue_bytes_of_outputs);
    tcase_add_test(t, queue_bytes_of_weights);
    suite_add_tcase(s, t);
    t = tcase_create("drain");
    tcase_set_timeout(t, 180);
    tcase_add_checked_fixture(t, NULL, xt_reap);
    tcase_add_test(t, what_runs_is_finished);
    tcase_add_loop_test(t, idle_connections_do_not_delay_the_end, 0, 2);
    tcase_add_test(t, second_signal_exits_at_once);
    tcase_add_test(t, grace_time_ends);
    suite_add_tcase(s, t);
    return s;
}
