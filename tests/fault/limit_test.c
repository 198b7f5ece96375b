/* A daemon that may not have more memory: its address space is limited to a little more than it
 * takes at its start. Large requests are refused then; small ones must be served all the same, also
 * those that need new plans, whatever sizes the pool of buffers has kept of the large ones. */
#include "http/client/wire.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#define MIB 1024 /* in kB */
#define SQUEEZE_KB (130L * MIB)
#define CLIENTS 8
#define ROUNDS 14
#define SMALL 60

/* ---- large requests ---- */

typedef struct flood {
    const xt_daemon *daemon;
    int side;
    atomic_long served, refused;
} flood;

/* One image of side x side in form OIP. The header is padded to a fixed length, so that one body
 * serves all. */
enum { HEADER_BYTES = 512 };

static void *send_large(void *argument) {
    flood *f = argument;
    size_t bytes = (size_t)f->side * (size_t)f->side * 4, length = HEADER_BYTES + bytes + 4;
    char *body = malloc(length), header[HEADER_BYTES + 1], headers[160];
    if (!body)
        return NULL;
    int used = snprintf(header, sizeof header,
                        "{\"input\":{\"shape\":[1,1,%d,%d],\"datatype\":\"FP32\",\"parameters\":"
                        "{\"binary_data_size\":%zu}},\"weights\":{\"shape\":[1,1,1,1],\"datatype\":"
                        "\"FP32\",\"parameters\":{\"binary_data_size\":4}}}",
                        f->side, f->side, bytes);
    memset(body, 0, length);
    memset(body, ' ', HEADER_BYTES);
    memcpy(body, header, (size_t)used);
    snprintf(headers, sizeof headers,
             "Content-Type: application/octet-stream\r\nInference-Header-Content-Length: %d\r\n",
             HEADER_BYTES);
    for (int i = 0; i < 3; i++) {
        xt_conn conn;
        xt_response response = {0};
        bool served =
            xt_connect(&conn, f->daemon) &&
            xt_request(&conn, "POST", "/conv", headers, body, length, &response) == XT_GOT &&
            response.status == 200;
        atomic_fetch_add(served ? &f->served : &f->refused, 1);
        xt_response_free(&response);
        xt_disconnect(&conn);
    }
    free(body);
    return NULL;
}

static void send_round(flood *f, int side) {
    pthread_t clients[CLIENTS];
    f->side = side;
    for (int i = 0; i < CLIENTS; i++)
        ck_assert(!pthread_create(&clients[i], NULL, send_large, f));
    for (int i = 0; i < CLIENTS; i++)
        pthread_join(clients[i], NULL);
}

/* ---- small ones ---- */

/* From several clients at once, each on a connection of its own, so that all threads have to do. */
typedef struct small {
    const xt_daemon *daemon;
    int first;
    char wrong[400];
} small;

static void *send_small(void *argument) {
    small *s = argument;
    for (int i = 0; i < SMALL && !s->wrong[0]; i++) {
        const xt_case what = {"small", 1, 2, 5 + i, 5 + s->first, 3, 3, 3, .padding_name = "same"};
        xt_problem problem;
        xt_message message;
        xt_conn conn;
        xt_response response = {0};
        char text[300] = "no answer";
        xt_form form = (xt_form)(i % XT_FORMS);
        xt_problem_make(&problem, &what, (uint64_t)i);
        xt_encode(&problem, form, &(xt_options){0}, &message);
        bool ok = xt_connect(&conn, s->daemon) && xt_post(&conn, &message, &response) == XT_GOT &&
                  xt_response_matches(&response, form, &problem, NULL, text, sizeof text);
        if (!ok)
            snprintf(s->wrong, sizeof s->wrong, "request %d: %.300s", i, text);
        xt_response_free(&response);
        xt_disconnect(&conn);
        xt_message_free(&message);
        xt_problem_free(&problem);
    }
    return NULL;
}

static void expect_small_served(const xt_daemon *daemon, const char *when) {
    pthread_t threads[CLIENTS];
    static small clients[CLIENTS];
    for (int i = 0; i < CLIENTS; i++) {
        clients[i] = (small){.daemon = daemon, .first = i};
        ck_assert(!pthread_create(&threads[i], NULL, send_small, &clients[i]));
    }
    for (int i = 0; i < CLIENTS; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < CLIENTS; i++)
        ck_assert_msg(!clients[i].wrong[0], "%s: %s", when, clients[i].wrong);
}

START_TEST(small_requests_outlive_large_ones) {
    static const int sides[ROUNDS] = {1200, 500, 600,  1500, 900,  500,  700,
                                      400,  500, 2000, 500,  2500, 3000, 1800};
    xt_daemon *daemon = xt_daemon_start(
        XT_FLAGS("--backend", "cpu", "--threads", "4", "--http-threads", "4", "--workers", "2"));
    struct rlimit limit;
    flood f = {.daemon = daemon};
    limit.rlim_cur = limit.rlim_max =
        (rlim_t)(xt_daemon_memory_kb(daemon, "VmSize") + SQUEEZE_KB) * 1024;
    ck_assert(!prlimit(daemon->pid, RLIMIT_AS, &limit, NULL));
    for (int round = 0; round < ROUNDS; round++)
        send_round(&f, sides[round]);
    ck_assert_msg(atomic_load(&f.refused) > 0, "nothing was refused: the limit was not met");
    ck_assert_msg(atomic_load(&f.served) > 0, "no large request was served");
    expect_small_served(daemon, "under the limit");
    expect_small_served(daemon, "later");
    ck_assert_int_eq(xt_daemon_stop(daemon), 0);
}
END_TEST

XN_SUITE(fault_limit) {
    Suite *s = suite_create("fault_limit");
    TCase *t = tcase_create("address space");
    tcase_set_timeout(t, 300);
    tcase_add_checked_fixture(t, NULL, xt_reap);
    /* A sanitizer's shadow memory is part of the address space. */
    if (!XN_TEST_SANITIZED)
        tcase_add_test(t, small_requests_outlive_large_ones);
    suite_add_tcase(s, t);
    return s;
}
