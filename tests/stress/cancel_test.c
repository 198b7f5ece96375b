/* cancel_test.c: a storm of clients that hang up, in every stage of a request and in every way. All
 * that they took must come back. CANCEL_COUNT (5000): in each stage. */
#include "stress.h"

#include <string.h>
#include <sys/socket.h>

enum { BATCH = 60 }; /* connections at a time, a multiple of the three ways to go */

typedef enum { HEADERS, BODY, QUEUED, RUNNING, ANSWER, STAGES } stage;
static const char *const stage_names[STAGES] = {"in the headers", "in the body", "queued",
                                                "running", "while the answer is sent"};

typedef struct storm {
    xt_buffer large;   /* a request for an answer that does not fit the socket's buffers */
    xt_buffer request; /* one that takes a while */
    size_t head;       /* bytes of its head */
    xn_rng rng;
} storm;

static void prepare(storm *s) {
    static const xt_case what = {"waits", 1, 24, 14, 14, 24, 3, 3, .padding_name = "same"};
    xt_problem problem;
    xt_message message;
    s->rng = (xn_rng){xn_test_seed()};
    st_large_answer(&s->large, 600);
    xt_problem_make(&problem, &what, xn_test_seed());
    xt_encode(&problem, XT_OIP, &(xt_options){0}, &message);
    xt_print(&s->request, "POST /conv HTTP/1.1\r\nHost: localhost\r\n%sContent-Length: %zu\r\n\r\n",
             message.headers.data, message.body.length);
    s->head = s->request.length;
    xt_append(&s->request, message.body.data, message.body.length);
    xt_message_free(&message);
    xt_problem_free(&problem);
}

/* As far as the stage. */
static void go(storm *s, xt_conn *conn, const xt_daemon *daemon, stage at) {
    char byte;
    ck_assert(xt_connect(conn, daemon));
    switch (at) {
    case HEADERS:
        xt_send(conn, s->request.data, 1 + (size_t)xn_rng_below(&s->rng, s->head - 1));
        break;
    case BODY:
        xt_send(conn, s->request.data,
                s->head + (size_t)xn_rng_below(&s->rng, s->request.length - s->head));
        break;
    case QUEUED:
    case RUNNING:
        xt_send(conn, s->request.data, s->request.length);
        break;
    case ANSWER:
        xt_send(conn, s->large.data, s->large.length);
        ck_assert_msg(recv(conn->fd, &byte, 1, MSG_PEEK) == 1, "no answer");
        break;
    case STAGES:
        break;
    }
}

/* By close, by reset, or by the end of what the client sends: then the daemon is the one to close,
 * with or without an answer. */
static void hang_up(xt_conn *conn, int way, const char *what) {
    if (way == 1)
        xt_reset(conn);
    else if (way == 2 && conn->fd >= 0) {
        shutdown(conn->fd, SHUT_WR);
        ck_assert_msg(xt_closed_within(conn, XT_PATIENCE_MS), "%s: stays open after a half-close",
                      what);
    }
    xt_disconnect(conn);
}

static void one_stage(storm *s, const xt_daemon *daemon, stage at, long count) {
    xt_conn conns[BATCH];
    int batch = at == ANSWER ? BATCH / 6 : BATCH; /* answers are 6 MB each */
    for (long done = 0; done < count; done += batch) {
        for (int i = 0; i < batch; i++)
            go(s, &conns[i], daemon, at);
        for (int i = 0; i < batch; i++) /* who goes at once, before who waits for the daemon */
            if ((done + i) % 3 != 2)
                hang_up(&conns[i], (int)((done + i) % 3), stage_names[at]);
        for (int i = 0; i < batch; i++)
            if ((done + i) % 3 == 2)
                hang_up(&conns[i], 2, stage_names[at]);
    }
}

/* Every stage. What the daemon holds afterwards. */
static st_usage all_stages(storm *s, const xt_daemon *quick, const xt_daemon *waits, long count,
                           bool print) {
    st_usage usage = {0};
    for (int at = 0; at < STAGES; at++) {
        const xt_daemon *daemon = at == QUEUED ? waits : quick;
        double began = st_now_ms();
        one_stage(s, daemon, (stage)at, count);
        double took = st_now_ms() - began;
        usage = st_settle(daemon, stage_names[at]);
        if (!print)
            continue;
        char what[64];
        snprintf(what, sizeof what, "%ld %s, %.0f s", count, stage_names[at], took / 1e3);
        st_print_usage(what, &usage);
    }
    return usage;
}

START_TEST(cancel_storm) {
    long count = st_number("CANCEL_COUNT", 5000);
    storm s = {0};
    prepare(&s);
    /* In the second every request waits for company that does not come. */
    xt_daemon *quick = xt_daemon_start(XT_FLAGS("--queue-bytes", "256M"));
    xt_daemon *waits =
        xt_daemon_start(XT_FLAGS("--batch-delay-us", "20000", "--queue-bytes", "256M"));
    st_usage first = all_stages(&s, quick, waits, count / 10 + BATCH, false);
    st_print_usage("after a tenth of it", &first);
    st_usage last = all_stages(&s, quick, waits, count, true);
    char *page = xt_get(quick, "/metrics");
    printf("connections that were closed because the client went: %.0f\n",
           xt_sample(page, "xnord_connections_closed_total{reason=\"client_gone\"}"));
    free(page);
    ck_assert_msg(last.descriptors <= first.descriptors + 4, "%ld descriptors, %ld before",
                  last.descriptors, first.descriptors);
    ck_assert_msg(last.threads <= first.threads, "%ld threads, %ld before", last.threads,
                  first.threads);
    ck_assert_msg(last.rss_kb <= first.rss_kb + 32 * 1024, "%ld kB resident, %ld before",
                  last.rss_kb, first.rss_kb);
    ck_assert_int_eq(xt_daemon_stop(quick), 0);
    ck_assert_int_eq(xt_daemon_stop(waits), 0);
    xt_buffer_free(&s.large);
    xt_buffer_free(&s.request);
}
END_TEST

XN_SUITE(stress_cancel) {
    Suite *s = suite_create("stress_cancel");
    ST_CASE(s, cancel_storm);
    return s;
}
