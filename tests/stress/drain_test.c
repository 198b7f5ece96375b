/* drain_test.c: SIGTERM at a random moment of a busy daemon, many times: whoever was accepted is
 * answered, the daemon ends with status 0, and starts again. That a request is accepted its client
 * knows from 100 Continue. With one exception: the library, when it is stopped, ignores a refusal
 * and sends 100 Continue before it closes; the daemon's log has the refusal then. DRAIN_COUNT
 * (200): drains. */
#include "stress.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>

enum { CLIENTS = 8 };

typedef struct client {
    pthread_t thread;
    const xt_daemon *daemon;
    const xt_problem *problem;
    const xt_message *message;
    int number;
    long accepted, answered, refused; /* refused: 503, or closed before 100 Continue */
    char cut_off[48];                 /* the id of a request that was closed after 100 Continue */
    char error[600];
} client;

/* One request on a connection of its own; false: it was not accepted. */
static bool ask(client *c, xt_conn *conn) {
    xt_buffer head = {0};
    xt_response response = {0};
    char error[400] = "", id[48];
    snprintf(id, sizeof id, "client-%d-%ld", c->number, c->accepted + c->refused);
    xt_print(
        &head,
        "POST /conv HTTP/1.1\r\nHost: localhost\r\n%sExpect: 100-continue\r\nX-Request-Id: %s\r\n"
        "Content-Length: %zu\r\n\r\n",
        c->message->headers.data, id, c->message->body.length);
    bool sent = xt_send(conn, head.data, head.length);
    xt_result result = sent ? xt_receive(conn, false, true, &response) : XT_CLOSED;
    int status = response.status;
    xt_buffer_free(&head);
    xt_response_free(&response);
    if (result != XT_GOT || status != 100) {
        c->refused++;
        if (result != XT_CLOSED && (result != XT_GOT || status != 503))
            snprintf(c->error, sizeof c->error, "instead of 100: %s, %d", xt_result_name(result),
                     status);
        return false;
    }
    c->accepted++;
    xt_send(conn, c->message->body.data, c->message->body.length);
    result = xt_receive(conn, false, false, &response);
    if (result == XT_GOT &&
        xt_response_matches(&response, XT_OIP, c->problem, NULL, error, sizeof error))
        c->answered++;
    else if (result == XT_CLOSED)
        snprintf(c->cut_off, sizeof c->cut_off, "%s", id);
    else
        snprintf(c->error, sizeof c->error, "an accepted request: %s, %s", xt_result_name(result),
                 error);
    bool open = result == XT_GOT && !response.close;
    xt_response_free(&response);
    return open;
}

static void *run(void *context) {
    client *c = context;
    xt_conn conn;
    while (!c->error[0] && !c->cut_off[0] && xt_connect(&conn, c->daemon)) {
        while (ask(c, &conn))
            ;
        xt_disconnect(&conn);
    }
    xt_disconnect(&conn);
    return NULL;
}

/* Closed after 100 Continue: was it refused? */
static void check_cut_off(client *c, const xt_daemon *daemon) {
    char id[sizeof c->cut_off], refusal[160];
    if (!c->cut_off[0])
        return;
    memcpy(id, c->cut_off, sizeof id);
    c->cut_off[0] = 0;
    snprintf(refusal, sizeof refusal, "the service is shutting down id=%.47s\n", id);
    char *log = xt_daemon_log(daemon);
    if (strstr(log, refusal)) {
        c->accepted--;
        c->refused++;
    } else {
        snprintf(c->error, sizeof c->error, "%.47s was accepted and got no answer", id);
    }
    free(log);
}

static void one_drain(client *clients, xn_rng *rng, long number) {
    xt_daemon *daemon = xt_daemon_start(XT_NO_FLAGS);
    for (int i = 0; i < CLIENTS; i++) {
        clients[i].daemon = daemon;
        ck_assert_int_eq(pthread_create(&clients[i].thread, NULL, run, &clients[i]), 0);
    }
    for (uint64_t naps = xn_rng_below(rng, 30); naps; naps--) /* the random moment */
        xt_nap();
    kill(daemon->pid, SIGTERM);
    for (int i = 0; i < CLIENTS; i++) /* they end when nobody listens any more */
        pthread_join(clients[i].thread, NULL);
    for (int i = 0; i < CLIENTS; i++)
        check_cut_off(&clients[i], daemon);
    int status = xt_daemon_wait(daemon);
    for (int i = 0; i < CLIENTS; i++)
        ck_assert_msg(!clients[i].error[0], "drain %ld: %s", number, clients[i].error);
    ck_assert_msg(status == 0, "drain %ld: exit status %d", number, status);
}

START_TEST(drains) {
    static const xt_case what = {"drained", 1, 24, 14, 14, 24, 3, 3, .padding_name = "same"};
    long count = st_number("DRAIN_COUNT", 200), accepted = 0, answered = 0, refused = 0;
    client clients[CLIENTS] = {0};
    xt_problem problem;
    xt_message message;
    xn_rng rng = {xn_test_seed()};
    xt_problem_make(&problem, &what, xn_test_seed());
    xt_encode(&problem, XT_OIP, &(xt_options){0}, &message);
    for (int i = 0; i < CLIENTS; i++)
        clients[i] = (client){.number = i, .problem = &problem, .message = &message};
    double began = st_now_ms();
    for (long n = 0; n < count; n++)
        one_drain(clients, &rng, n);
    for (int i = 0; i < CLIENTS; i++) {
        accepted += clients[i].accepted;
        answered += clients[i].answered;
        refused += clients[i].refused;
    }
    printf("%ld drains under load, %.0f s: %ld requests accepted, %ld answered, %ld not accepted; "
           "exit status 0 each time\n",
           count, (st_now_ms() - began) / 1e3, accepted, answered, refused);
    ck_assert_int_eq(accepted, answered);
    ck_assert_int_gt(answered, count);
    xt_message_free(&message);
    xt_problem_free(&problem);
}
END_TEST

XN_SUITE(stress_drains) {
    Suite *s = suite_create("stress_drains");
    ST_CASE(s, drains);
    return s;
}
