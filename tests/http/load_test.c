/* Many clients at once: every answer is checked value by value and must carry its own request's
 * identity; requests share launches; clients that hang up are noticed and cost nothing. */
#include "client/wire.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

static xt_daemon *daemon_;

static void start(void) {
    daemon_ = xt_daemon_start_shared(XT_FLAGS("--batch-delay-us", "300"));
}

static void stop(void) {
    xt_daemon_stop_shared(daemon_);
}

/* ---- concurrent clients ---- */

enum { CLIENTS = 6, REQUESTS = 60, NAMED = 3 };

/* clang-format off */
static const xt_case mix[] = {
    {"named, 16 channels", 1, 16, 9, 8, 8, 3, 3, .padding_name = "same", .scaling = "none",
     .output_datatype = "INT32"},
    {"named, one channel", 2, 1, 17, 19, 2, 5, 5, .padding = {2, 2, 2, 2}, .scaling = "none",
     .output_datatype = "INT32"},
    {"named, scaled", 1, 5, 8, 8, 3, 3, 3, .padding_name = "same", .scale = true, .bias = true},
    {"inline, 40 channels", 1, 40, 6, 6, 5, 3, 3, .pad_value = 1, .padding = {1, 1, 1, 1},
     .scaling = "none", .output_datatype = "INT32"},
    {"inline, int8", 3, 3, 7, 7, 4, 3, 3, .datatype = "INT8", .stride = {2, 2}},
    {"inline, bwn", 1, 3, 7, 7, 4, 3, 3, .mode = "bwn", .bias = true},
    {"inline, groups", 1, 8, 7, 7, 8, 3, 3, .groups = 4, .scaling = "none",
     .output_datatype = "INT32"},
};
/* clang-format on */
enum { MIX = sizeof mix / sizeof *mix };

typedef struct client {
    pthread_t thread;
    int number, answered;
    xt_problem problems[MIX]; /* inputs of its own, so that answers cannot be another client's */
    char error[640];
} client;

static void weights_of(int kind, char *name, size_t size) {
    snprintf(name, size, "load-%d", kind);
}

static void one_request(client *c, xt_conn *conn, xn_rng *rng, int number) {
    int kind = (int)xn_rng_below(rng, MIX);
    xt_form form = (xt_form)xn_rng_below(rng, XT_FORMS);
    xt_form answer = (xt_form)xn_rng_below(rng, XT_FORMS);
    char id[48], name[32], error[512] = "";
    xt_message message;
    xt_response response;
    snprintf(id, sizeof id, "client-%d-request-%d", c->number, number);
    weights_of(kind, name, sizeof name);
    xt_options options = {.id = id,
                          .accept = xt_form_type(answer),
                          .weights_name = kind < NAMED ? name : NULL,
                          .in_file = number % 2};
    xt_encode(&c->problems[kind], form, &options, &message);
    xt_result result = xt_post(conn, &message, &response);
    if (result != XT_GOT)
        snprintf(c->error, sizeof c->error, "%s: %s", id, xt_result_name(result));
    else if (!xt_response_matches(&response, answer, &c->problems[kind], id, error, sizeof error))
        snprintf(c->error, sizeof c->error, "%s, %s: %.400s", id, mix[kind].name, error);
    else
        c->answered++;
    xt_response_free(&response);
    xt_message_free(&message);
}

static void *run_client(void *context) {
    client *c = context;
    xn_rng rng = {xn_test_seed() * 31 + (uint64_t)c->number};
    xt_conn conn;
    if (!xt_connect(&conn, daemon_))
        snprintf(c->error, sizeof c->error, "cannot connect");
    for (int i = 0; i < REQUESTS && !c->error[0]; i++) {
        if (i % 20 == 19) { /* now and then a new connection */
            xt_disconnect(&conn);
            if (!xt_connect(&conn, daemon_))
                snprintf(c->error, sizeof c->error, "cannot connect again");
        }
        one_request(c, &conn, &rng, i);
    }
    xt_disconnect(&conn);
    return NULL;
}

/* Problems of one kind share the weights of client 0. */
static void share_weights(xt_problem *to, const xt_problem *from) {
    const xt_tensor *const sources[] = {&from->weights, &from->scale, &from->bias};
    xt_tensor *const targets[] = {&to->weights, &to->scale, &to->bias};
    for (int i = 0; i < 3; i++) {
        if (!sources[i]->datatype)
            continue;
        memcpy(targets[i]->raw, sources[i]->raw, sources[i]->bytes);
        memcpy(targets[i]->values, sources[i]->values, (size_t)sources[i]->count * sizeof(double));
    }
    xt_problem_solve(to);
}

START_TEST(concurrent_clients_get_their_own_answers) {
    static client clients[CLIENTS];
    char name[32];
    for (int c = 0; c < CLIENTS; c++) {
        clients[c].number = c;
        for (int kind = 0; kind < MIX; kind++) {
            uint64_t seed = xn_test_seed() + (uint64_t)(c * MIX + kind) * 1000;
            xt_problem_make(&clients[c].problems[kind], &mix[kind], seed);
            if (c) {
                share_weights(&clients[c].problems[kind], &clients[0].problems[kind]);
            } else if (kind < NAMED) {
                weights_of(kind, name, sizeof name);
                ck_assert(
                    xt_put_weights(daemon_, name, &clients[0].problems[kind], XT_SAFETENSORS));
            }
        }
    }
    for (int c = 0; c < CLIENTS; c++)
        ck_assert_int_eq(pthread_create(&clients[c].thread, NULL, run_client, &clients[c]), 0);
    for (int c = 0; c < CLIENTS; c++)
        pthread_join(clients[c].thread, NULL);
    for (int c = 0; c < CLIENTS; c++) {
        ck_assert_msg(!clients[c].error[0], "seed %llu: %s", (unsigned long long)xn_test_seed(),
                      clients[c].error);
        ck_assert_int_eq(clients[c].answered, REQUESTS);
        for (int kind = 0; kind < MIX; kind++)
            xt_problem_free(&clients[c].problems[kind]);
    }
    ck_assert(xt_metric_becomes(daemon_, "xnord_inflight_requests", 0));
    ck_assert(xt_metric_becomes(daemon_, "xnord_inflight_bytes", 0));
    ck_assert(xt_metric_becomes(daemon_, "xnord_queue_depth", 0));
}
END_TEST

/* ---- hang-ups ---- */

/* At every stage of sending a request, and before reading the answer. */
START_TEST(hang_ups_anywhere) {
    static const xt_case what = {"cut", 1, 2, 12, 12, 4, 3, 3, .groups = 1};
    xt_problem problem;
    xt_message message;
    xt_conn conn;
    xt_buffer bytes = {0};
    xn_rng rng = {xn_test_seed() + 5};
    xt_problem_make(&problem, &what, xn_test_seed());
    xt_encode(&problem, XT_JSON, &(xt_options){0}, &message);
    xt_print(&bytes, "POST /conv HTTP/1.1\r\nHost: a\r\n%sContent-Length: %zu\r\n\r\n",
             message.headers.data, message.body.length);
    xt_append(&bytes, message.body.data, message.body.length);
    for (int i = 0; i < 120; i++) {
        size_t length = i % 3 ? (size_t)xn_rng_below(&rng, bytes.length) : bytes.length;
        ck_assert(xt_connect(&conn, daemon_));
        xt_send(&conn, bytes.data, length);
        if (i % 2)
            xt_reset(&conn);
        xt_disconnect(&conn);
    }
    ck_assert(xt_metric_becomes(daemon_, "xnord_inflight_requests", 0));
    ck_assert(xt_metric_becomes(daemon_, "xnord_inflight_bytes", 0));
    ck_assert(xt_metric_becomes(daemon_, "xnord_connections", 1)); /* this very request's */
    ck_assert(xt_metric_becomes(daemon_, "xnord_queue_depth", 0));
    xt_buffer_free(&bytes);
    xt_message_free(&message);
    xt_problem_free(&problem);
}
END_TEST

/* While the body is still coming, without any deadline to end it: the end of the stream does. */
START_TEST(hang_ups_in_the_body) {
    static const char *const parts[] = {
        "POST /conv HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n",
        "POST /conv HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
        "Content-Length: 100000000\r\n\r\n",
        "POST /conv HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
        "Content-Length: 100000000\r\n\r\n{\"input\": "};
    xt_conn conn;
    xt_daemon *d = xt_daemon_start(XT_FLAGS("--body-timeout-ms", "3600000", "--body-min-rate", "0",
                                            "--header-timeout-ms", "3600000"));
    for (int i = 0; i < 30; i++) {
        ck_assert(xt_connect(&conn, d));
        ck_assert(xt_send_text(&conn, parts[i % 3]));
        if (i % 2)
            xt_reset(&conn);
        xt_disconnect(&conn);
    }
    ck_assert(xt_metric_becomes(d, "xnord_connections", 1)); /* this very request's */
    ck_assert(xt_metric_becomes(d, "xnord_inflight_requests", 0));
    ck_assert(xt_metric_becomes(d, "xnord_inflight_bytes", 0));
    ck_assert_int_eq(xt_daemon_stop(d), 0);
}
END_TEST

/* ---- one launch for many ---- */

/* Those that wait for company are answered by one worker, which wakes each HTTP thread once for all
 * of them: nobody is forgotten. */
START_TEST(all_of_a_batch_are_answered) {
    enum { CONNS = 24, ROUNDS = 5 };
    static const char request[] =
        "POST /conv HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
        "Content-Length: 130\r\n\r\n"
        "{\"input\": {\"shape\": [1,1,1,1], \"datatype\": \"FP32\", \"data\": [1]}, "
        "\"weights\": {\"shape\": [1,1,1,1], \"datatype\": \"INT8\", \"data\": [1]}}";
    xt_conn conns[CONNS];
    xt_daemon *d =
        xt_daemon_start(XT_FLAGS("--batch-delay-us", "50000", "--http-threads", _i ? "3" : "1"));
    for (int i = 0; i < CONNS; i++)
        ck_assert(xt_connect(&conns[i], d));
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < CONNS; i++)
            ck_assert(xt_send_text(&conns[i], request));
        for (int i = 0; i < CONNS; i++) {
            xt_response response;
            xt_result result = xt_receive(&conns[i], false, false, &response);
            ck_assert_msg(result == XT_GOT && response.status == 200, "%d: %s, %d", i,
                          xt_result_name(result), response.status);
            xt_response_free(&response);
        }
    }
    ck_assert_double_eq(xt_metric(d, "xnord_batch_requests_sum"), CONNS * ROUNDS);
    ck_assert_double_lt(xt_metric(d, "xnord_batch_requests_count"), CONNS * ROUNDS / 2);
    for (int i = 0; i < CONNS; i++)
        xt_disconnect(&conns[i]);
    ck_assert_int_eq(xt_daemon_stop(d), 0);
}
END_TEST

XN_SUITE(http_load) {
    Suite *s = suite_create("http_load");
    TCase *t = tcase_create("shared");
    tcase_set_timeout(t, 240);
    tcase_add_unchecked_fixture(t, start, stop);
    tcase_add_test(t, concurrent_clients_get_their_own_answers);
    tcase_add_test(t, hang_ups_anywhere);
    suite_add_tcase(s, t);
    xt_add_stopped_case(s);
    t = tcase_create("own");
    tcase_set_timeout(t, 180);
    tcase_add_checked_fixture(t, NULL, xt_reap);
    tcase_add_test(t, hang_ups_in_the_body);
    tcase_add_loop_test(t, all_of_a_batch_are_answered, 0, 2);
    suite_add_tcase(s, t);
    return s;
}
