/* soak_test.c: mixed work for as long as wanted: all forms, sizes, registered and inline weights,
 * PUT and DELETE, errors and hang-ups. What the daemon holds must be flat. SOAK_SECONDS (60; an
 * hour is 3600). A line a minute, or six lines of a shorter run. */
#include "stress.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

enum { CLIENTS = 6 };

/* clang-format off */
static const xt_case cases[] = {
    {"one channel", 1, 1, 32, 32, 1, 3, 3, .padding_name = "same"},
    {"many channels", 2, 40, 9, 9, 16, 3, 3, .padding_name = "same", .scaling = "none",
     .output_datatype = "INT32"},
    {"scale and bias", 1, 16, 12, 12, 8, 3, 3, .padding = {1, 1, 1, 1}, .scale = true, .bias = true},
    {"int8, stride 2", 3, 3, 17, 19, 4, 3, 3, .datatype = "INT8", .stride = {2, 2}},
    {"bwn", 1, 3, 14, 14, 4, 5, 5, .mode = "bwn"},
    {"float, groups", 1, 8, 14, 14, 8, 3, 3, .mode = "float", .groups = 4},
    {"a picture", 1, 1, 300, 200, 1, 3, 3, .padding_name = "same"},
};
/* clang-format on */
enum { CASES = sizeof cases / sizeof *cases };

typedef struct client {
    pthread_t thread;
    const xt_daemon *daemon;
    atomic_bool *stop;
    int number;
    xn_rng rng;
    xt_problem problems[CASES];
    atomic_long answered, refused, gone;
    char error[640];
} client;

static void went_wrong(client *c, const char *what, xt_result result, const xt_response *response,
                       const char *error) {
    snprintf(c->error, sizeof c->error, "%s: %s, %d, %s %.200s", what, xt_result_name(result),
             response->status, error, response->body ? response->body : "");
}

static void convolve(client *c, xt_conn *conn, const char *weights, int kind) {
    xt_form form = (xt_form)xn_rng_below(&c->rng, XT_FORMS);
    xt_form answer = (xt_form)xn_rng_below(&c->rng, XT_FORMS);
    xt_message message;
    xt_response response = {0};
    char error[400] = "";
    xt_encode(&c->problems[kind], form,
              &(xt_options){.accept = xt_form_type(answer), .weights_name = weights}, &message);
    xt_result result = xt_post(conn, &message, &response);
    if (result == XT_GOT &&
        xt_response_matches(&response, answer, &c->problems[kind], NULL, error, sizeof error))
        atomic_fetch_add(&c->answered, 1);
    else
        went_wrong(c, cases[kind].name, result, &response, error);
    xt_response_free(&response);
    xt_message_free(&message);
}

/* Weights of its own: registered, used, deleted. */
static void register_and_use(client *c, xt_conn *conn, int kind) {
    xt_message message;
    xt_response response = {0};
    char target[64];
    snprintf(target, sizeof target, "/weights/soak-%d-%d", c->number, kind);
    xt_encode_weights(&c->problems[kind], xn_rng_below(&c->rng, 2) ? XT_SAFETENSORS : XT_JSON,
                      &message);
    xt_result result = xt_put(conn, target, &message, &response);
    bool good = result == XT_GOT && (response.status == 201 || response.status == 200);
    if (!good)
        went_wrong(c, "PUT", result, &response, "");
    xt_response_free(&response);
    xt_message_free(&message);
    for (int i = 0; good && !c->error[0] && i < 3; i++)
        convolve(c, conn, target + strlen("/weights/"), kind);
    if (!good || c->error[0])
        return;
    result = xt_request(conn, "DELETE", target, "", NULL, 0, &response);
    if (result != XT_GOT || response.status != 204)
        went_wrong(c, "DELETE", result, &response, "");
    xt_response_free(&response);
}

static void ask_wrongly(client *c, xt_conn *conn) {
    static const struct {
        const char *method, *target, *headers, *body;
        int status;
    } wrong[] = {
        {"GET", "/nothing", "", NULL, 404},
        {"PATCH", "/conv", "", NULL, 405},
        {"POST", "/conv", "Content-Type: text/plain\r\n", "x", 415},
        {"POST", "/conv", "Content-Type: application/json\r\n", "{\"input\": [", 400},
        {"POST", "/conv", "Content-Type: application/json\r\n",
         "{\"input\": {\"shape\": [1,1,2,2], \"datatype\": \"FP32\", \"data\": [1,2,3,4]}, "
         "\"weights\": {\"shape\": [1,1,3,3], \"datatype\": \"FP32\", \"data\": "
         "[1,1,1,1,1,1,1,1,1]}}",
         422},
        {"GET", "/weights/none", "", NULL, 404},
        {"GET", "/metrics", "", NULL, 200},
        {"GET", "/openapi.yaml", "", NULL, 200},
    };
    size_t i = (size_t)xn_rng_below(&c->rng, sizeof wrong / sizeof *wrong);
    xt_response response = {0};
    xt_result result =
        xt_request(conn, wrong[i].method, wrong[i].target, wrong[i].headers, wrong[i].body,
                   wrong[i].body ? strlen(wrong[i].body) : 0, &response);
    if (result != XT_GOT || response.status != wrong[i].status)
        went_wrong(c, wrong[i].target, result, &response, "");
    else
        atomic_fetch_add(&c->refused, 1);
    bool closes = response.close;
    xt_response_free(&response);
    if (closes)
        xt_disconnect(conn);
}

/* A part of a request, or all of it, and away. */
static void leave(client *c, int kind) {
    xt_message message;
    xt_buffer bytes = {0};
    xt_conn conn;
    xt_encode(&c->problems[kind], XT_OIP, &(xt_options){0}, &message);
    xt_print(&bytes, "POST /conv HTTP/1.1\r\nHost: localhost\r\n%sContent-Length: %zu\r\n\r\n",
             message.headers.data, message.body.length);
    xt_append(&bytes, message.body.data, message.body.length);
    if (xt_connect(&conn, c->daemon))
        xt_send(&conn, bytes.data, 1 + (size_t)xn_rng_below(&c->rng, bytes.length));
    if (xn_rng_below(&c->rng, 2))
        xt_reset(&conn);
    xt_disconnect(&conn);
    atomic_fetch_add(&c->gone, 1);
    xt_buffer_free(&bytes);
    xt_message_free(&message);
}

static void *run(void *context) {
    client *c = context;
    xt_conn conn = {.fd = -1};
    for (long i = 0; !atomic_load(c->stop) && !c->error[0]; i++) {
        int kind = (int)xn_rng_below(&c->rng, CASES), what = (int)xn_rng_below(&c->rng, 20);
        if (i % 50 == 0)
            xt_disconnect(&conn);
        if (conn.fd < 0 && !xt_connect(&conn, c->daemon))
            snprintf(c->error, sizeof c->error, "cannot connect");
        else if (what < 14)
            convolve(c, &conn, NULL, kind);
        else if (what < 16)
            register_and_use(c, &conn, kind);
        else if (what < 18)
            ask_wrongly(c, &conn);
        else
            leave(c, kind);
    }
    xt_disconnect(&conn);
    return NULL;
}

/* ---- what must be flat ---- */

static void report(const xt_daemon *daemon, client *clients, double began, st_usage *usage) {
    long answered = 0, refused = 0, gone = 0;
    char what[96];
    for (int i = 0; i < CLIENTS; i++) {
        answered += atomic_load(&clients[i].answered);
        refused += atomic_load(&clients[i].refused);
        gone += atomic_load(&clients[i].gone);
        ck_assert_msg(!clients[i].error[0], "%s", clients[i].error);
    }
    *usage = st_usage_of(daemon);
    snprintf(what, sizeof what, "%5.0f s: %ld answered, %ld other, %ld left",
             (st_now_ms() - began) / 1e3, answered, refused, gone);
    st_print_usage(what, usage);
}

static void watch(const xt_daemon *daemon, client *clients, double seconds, st_usage *early) {
    double began = st_now_ms(), end = began + seconds * 1e3;
    double step = seconds >= 360 ? 60e3 : seconds * 1e3 / 6, next = began + step;
    st_usage usage;
    for (long lines = 0; next <= end + 1;) {
        while (st_now_ms() < next)
            usleep(50000);
        report(daemon, clients, began, &usage);
        next += step;
        if (lines++ == 0 || next - step <= began + seconds * 1e3 / 4)
            *early = usage; /* the caches are full by then */
    }
}

START_TEST(soak) {
    static client clients[CLIENTS];
    atomic_bool stop = false;
    long seconds = st_number("SOAK_SECONDS", 60);
    st_usage start, early, last;
    xt_daemon *daemon = xt_daemon_start(XT_FLAGS("--weights-cache-bytes", "4M"));
    start = st_settle(daemon, "the start");
    st_print_usage("at the start", &start);
    for (int i = 0; i < CLIENTS; i++) {
        client *c = &clients[i];
        *c = (client){.daemon = daemon, .stop = &stop, .number = i};
        c->rng = (xn_rng){xn_test_seed() + (uint64_t)i};
        for (int kind = 0; kind < CASES; kind++)
            xt_problem_make(&c->problems[kind], &cases[kind],
                            xn_test_seed() + (uint64_t)(i * CASES + kind));
    }
    for (int i = 0; i < CLIENTS; i++)
        ck_assert_int_eq(pthread_create(&clients[i].thread, NULL, run, &clients[i]), 0);
    watch(daemon, clients, (double)seconds, &early);
    atomic_store(&stop, true);
    for (int i = 0; i < CLIENTS; i++) {
        pthread_join(clients[i].thread, NULL);
        ck_assert_msg(!clients[i].error[0], "%s", clients[i].error);
    }
    last = st_settle(daemon, "the soak");
    st_print_usage("afterwards", &last);
    ck_assert_double_eq(xt_metric(daemon, "xnord_weights"), 0);
    ck_assert_msg(last.rss_kb <= early.rss_kb + early.rss_kb / 10 + 16 * 1024,
                  "%ld kB resident, %ld after the first quarter", last.rss_kb, early.rss_kb);
    ck_assert_msg(last.threads <= early.threads, "%ld threads, %ld before", last.threads,
                  early.threads);
    ck_assert_msg(last.descriptors <= start.descriptors + 4, "%ld descriptors, %ld before",
                  last.descriptors, start.descriptors);
    ck_assert_int_eq(xt_daemon_stop(daemon), 0);
}
END_TEST

XN_SUITE(stress_soak) {
    Suite *s = suite_create("stress_soak");
    ST_CASE(s, soak);
    return s;
}
