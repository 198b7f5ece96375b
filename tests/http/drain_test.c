/* The way out of the daemon under requests that go on: whoever was let in gets a whole answer, 503
 * with Retry-After once the drain has begun, up to the moment when nobody is let in any more. */
#include "client/wire.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { ROUNDS = 12, CLIENTS = 6 };

#define CONV_JSON                                                                                  \
    "{\"input\": {\"shape\": [1,1,1,1], \"datatype\": \"FP32\", \"data\": [2]}, \"weights\": "     \
    "{\"shape\": [1,1,1,1], \"datatype\": \"FP32\", \"data\": [3]}}"

/* A client that asks until it is not let in any more. */
typedef struct client {
    const xt_daemon *daemon;
    pthread_t thread;
    bool kept;          /* on one connection as long as that is kept open */
    atomic_int refused; /* 503s */
    char wrong[300];    /* the first thing that must not be; "" */
} client;

static const char *judge(xt_result result, const xt_response *response, char text[200]) {
    const char *retry = result == XT_GOT ? XT_HEADER(response, "Retry-After") : NULL;
    if (result != XT_GOT)
        snprintf(text, 200, "instead of an answer: %s", xt_result_name(result));
    else if (response->status != 200 && response->status != 503)
        snprintf(text, 200, "status %d: %.120s", response->status, response->body);
    else if (response->status == 503 && (!retry || !response->close))
        snprintf(text, 200, "503 without Retry-After or Connection: close");
    else
        return NULL;
    return text;
}

static void *ask_until_refused(void *context) {
    client *c = context;
    xt_conn conn = {.fd = -1};
    char text[200];
    for (int64_t end = xt_now_ms() + 4 * XT_PATIENCE_MS; xt_now_ms() < end && !c->wrong[0];) {
        xt_response response = {0};
        if (conn.fd < 0 && !xt_connect(&conn, c->daemon))
            break;
        xt_result result = xt_request(&conn, "POST", "/conv", "Content-Type: application/json\r\n",
                                      CONV_JSON, sizeof CONV_JSON - 1, &response);
        const char *wrong = judge(result, &response, text);
        if (wrong)
            snprintf(c->wrong, sizeof c->wrong, "%s", wrong);
        if (result == XT_GOT && response.status == 503)
            atomic_fetch_add(&c->refused, 1);
        if (result != XT_GOT || response.close || !c->kept)
            xt_disconnect(&conn);
        xt_response_free(&response);
    }
    xt_disconnect(&conn);
    return NULL;
}

static bool all_were_refused(const client *clients) {
    for (int64_t end = xt_now_ms() + XT_PATIENCE_MS; xt_now_ms() < end; xt_nap()) {
        int count = 0;
        for (int i = 0; i < CLIENTS; i++)
            count += atomic_load(&clients[i].refused) > 0;
        if (count == CLIENTS)
            return true;
    }
    return false;
}

/* A request whose body is held back keeps the daemon in its drain until every client has had its
 * 503; then it ends under their fire. */
START_TEST(who_was_let_in_gets_an_answer) {
    static const char head[] = "POST /conv HTTP/1.1\r\nHost: a\r\nContent-Type: "
                               "application/json\r\nContent-Length: %zu\r\n\r\n{";
    client clients[CLIENTS] = {{0}};
    xt_buffer start = {0};
    xt_conn held;
    xt_response response;
    xt_daemon *d = xt_daemon_start(XT_FLAGS("--backend", "cpu", "--threads", "2"));
    xt_print(&start, head, sizeof CONV_JSON - 1);
    ck_assert(xt_connect(&held, d) && xt_send(&held, start.data, start.length));
    ck_assert(xt_metric_becomes(d, "xnord_inflight_requests", 1));
    for (int i = 0; i < CLIENTS; i++) {
        clients[i].daemon = d;
        clients[i].kept = i % 2;
        ck_assert_int_eq(pthread_create(&clients[i].thread, NULL, ask_until_refused, &clients[i]),
                         0);
    }
    kill(d->pid, _i % 2 ? SIGQUIT : SIGTERM);
    ck_assert(all_were_refused(clients));
    ck_assert(xt_send_text(&held, &CONV_JSON[1]));
    xt_result last = xt_receive(&held, false, false, &response);
    ck_assert_msg(last == XT_GOT && response.status == 200, "the held request: %s",
                  xt_result_name(last));
    for (int i = 0; i < CLIENTS; i++) {
        pthread_join(clients[i].thread, NULL);
        ck_assert_msg(!clients[i].wrong[0], "client %d (%s): %s", i,
                      clients[i].kept ? "kept connection" : "new connections", clients[i].wrong);
    }
    xt_response_free(&response);
    xt_disconnect(&held);
    xt_buffer_free(&start);
    ck_assert_int_eq(xt_daemon_wait(d), 0);
}
END_TEST

XN_SUITE(http_drain) {
    Suite *s = suite_create("http_drain");
    TCase *t = tcase_create("drain");
    tcase_set_timeout(t, 300);
    tcase_add_checked_fixture(t, NULL, xt_reap);
    tcase_add_loop_test(t, who_was_let_in_gets_an_answer, 0, ROUNDS);
    suite_add_tcase(s, t);
    return s;
}
