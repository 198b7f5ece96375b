/* The exporter of spans against collectors that take them, refuse, stall, reset, answer nonsense or
 * are not there: every span counts once, as sent or as dropped, and what adds one never waits for a
 * collector. */
#include "clock.h"
#include "exporter.h"
#include "http/client/collector.h"
#include "log.h"
#include "xn_mem.h"

#include <stdio.h>
#include <string.h>

#define OK "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
#define BUSY "HTTP/1.1 503 Busy\r\nRetry-After: 0\r\n\r\n"

/* A collector and the exporter that sends to it. */
typedef struct pair {
    xt_collector collector;
    xn_metrics *metrics;
    xn_exporter *exporter;
} pair;

static void begin(pair *p, const xt_reply *replies, int count) {
    const char *const devices[] = {"cpu"};
    xn_otlp_target target;
    xn_error error;
    char url[40];
    xn_log_init(XN_LOG_TEXT, XN_LOG_ERROR);
    xt_collector_start(&p->collector, replies, count);
    ck_assert(!xn_metrics_create(devices, 1, "1", "cpu", &p->metrics, &error));
    ck_assert(!xn_otlp_target_parse(xt_collector_url(&p->collector, url), &target, &error));
    ck_assert(!xn_exporter_create(&target, p->metrics, &p->exporter, &error));
}

static int64_t counted(const pair *p, const char *counter) {
    size_t length;
    char *page = xn_metrics_render(p->metrics, &length);
    const double value = xt_sample(page, counter);
    xn_mem_free(page);
    return (int64_t)value;
}

static int64_t sent(const pair *p) {
    return counted(p, "xnord_spans_sent_total");
}

static int64_t dropped(const pair *p) {
    return counted(p, "xnord_spans_dropped_total");
}

/* Ends the exporter; how long that took. */
static int64_t end(pair *p, int64_t most_ms) {
    const int64_t start_ms = xt_now_ms(), deadline_ns = xn_now_ns() + most_ms * XN_NS_PER_MS;
    xn_exporter_stop(p->exporter, deadline_ns);
    ck_assert(xn_exporter_ended(p->exporter, deadline_ns + XT_PATIENCE_MS * XN_NS_PER_MS));
    xn_exporter_free(p->exporter);
    return xt_now_ms() - start_ms;
}

static void release(pair *p) {
    xt_collector_free(&p->collector);
    xn_metrics_free(p->metrics);
}

static void add(const pair *p, int stages) {
    xn_span span = {.status = 200, .method = "POST", .route = "/conv", .path = "/conv"};
    xn_trace_begin(&span.trace, XN_OTLP_ALL_IDS);
    span.ended_ns = xn_now_ns();
    span.started_ns = span.ended_ns - 1000;
    for (int i = 0; i < stages; i++)
        xn_span_add_stage(&span, "compute", span.started_ns + i, 1);
    xn_exporter_add(p->exporter, &span);
}

static void wait_for_posts(const xt_collector *c, int posts, const char *what) {
    for (int64_t end_ms = xt_now_ms() + XT_PATIENCE_MS; atomic_load(&c->posts) < posts; xt_nap())
        ck_assert_msg(xt_now_ms() < end_ms, "%s: %d posts", what, atomic_load(&c->posts));
}

static void wait_for_counts(const pair *p, int spans) {
    for (int64_t end_ms = xt_now_ms() + XT_PATIENCE_MS; sent(p) + dropped(p) < spans; xt_nap())
        ck_assert(xt_now_ms() < end_ms);
}

/* Of three spans. */
static const struct {
    const char *what;
    xt_reply replies[4];
    int posts, sent;
    int64_t least_ms; /* between the first post and the last */
} cases[] = {
    {"taken", {{XT_REPLY_TEXT, OK}}, 1, 3, 0},
    {"accepted, by HTTP/1.0", {{XT_REPLY_TEXT, "HTTP/1.0 202 \r\n\r\n"}}, 1, 3, 0},
    {"slow", {{XT_REPLY_SLOWLY, OK}}, 1, 3, 0},
    {"early", {{XT_REPLY_EARLY, "HTTP/1.1 413 Large\r\n\r\n"}}, 1, 0, 0},
    {"refused", {{XT_REPLY_TEXT, "HTTP/1.1 400 Bad\r\n\r\n"}, {XT_REPLY_TEXT, OK}}, 1, 0, 0},
    {"redirected", {{XT_REPLY_TEXT, "HTTP/1.1 307 There\r\nLocation: /x\r\n\r\n"}}, 1, 0, 0},
    {"busy once", {{XT_REPLY_TEXT, BUSY}, {XT_REPLY_TEXT, OK}}, 2, 3, 0},
    {"too many",
     {{XT_REPLY_TEXT, "HTTP/1.1 429 Many\r\nretry-after:\t2\r\n\r\n"}, {XT_REPLY_TEXT, OK}},
     2,
     3,
     2000},
    {"busy, with a date",
     {{XT_REPLY_TEXT, "HTTP/1.1 503 B\r\nRetry-After: Fri, 1 Jan\r\n\r\n"}, {XT_REPLY_TEXT, OK}},
     2,
     3,
     1000},
    {"busy for ever", {{XT_REPLY_TEXT, BUSY}}, 5, 0, 0},
    {"closed, reset",
     {{XT_REPLY_TEXT, ""}, {XT_REPLY_RESET, NULL}, {XT_REPLY_TEXT, OK}},
     3,
     3,
     3000},
    {"nonsense", {{XT_REPLY_TEXT, "HTTP/2.0 500 OK\r\n\r\n"}, {XT_REPLY_TEXT, OK}}, 2, 3, 1000},
    {"cut short", {{XT_REPLY_TEXT, "HTTP/1.1 200 OK\r\n"}, {XT_REPLY_TEXT, OK}}, 2, 3, 1000},
};

static int replies_of(const xt_reply *replies) {
    int count = 1;
    while (replies[count].text || replies[count].kind == XT_REPLY_RESET)
        count++;
    return count;
}

enum { CASES = sizeof cases / sizeof *cases };

START_TEST(collectors) {
    static pair pairs[CASES];
    for (int i = 0; i < CASES; i++) {
        begin(&pairs[i], cases[i].replies, replies_of(cases[i].replies));
        add(&pairs[i], 1);
        add(&pairs[i], 0);
    }
    for (int i = 0; i < CASES; i++) {
        pair *p = &pairs[i];
        const int posts = cases[i].posts;
        wait_for_posts(&p->collector, posts, cases[i].what);
        wait_for_counts(p, 3);
        end(p, XT_PATIENCE_MS);
        xt_collector_stop(&p->collector);
        ck_assert_msg(sent(p) == cases[i].sent && dropped(p) == 3 - cases[i].sent, "%s: %d sent",
                      cases[i].what, (int)sent(p));
        ck_assert_msg(atomic_load(&p->collector.posts) == posts, "%s", cases[i].what);
        const int64_t took_ms = p->collector.came_ms[posts - 1] - p->collector.came_ms[0];
        ck_assert_msg(took_ms >= cases[i].least_ms, "%s: %d ms", cases[i].what, (int)took_ms);
        ck_assert_msg(xt_collector_count(&p->collector, "\"spanId\"") == cases[i].sent, "%s",
                      cases[i].what);
        release(p);
    }
}
END_TEST

/* Neither the full queue nor the end waits for it. */
START_TEST(one_that_stalls) {
    static const xt_reply never = {XT_REPLY_NEVER, NULL};
    enum { ADDED = 2 * XN_EXPORTER_QUEUE };
    pair p;
    begin(&p, &never, 1);
    add(&p, 0);
    wait_for_posts(&p.collector, 1, "stalls");
    const int64_t start_ms = xt_now_ms();
    for (int i = 1; i < ADDED; i++)
        add(&p, 0);
    ck_assert_int_lt(xt_now_ms() - start_ms, 5000);
    ck_assert_int_eq(dropped(&p), ADDED - XN_EXPORTER_QUEUE);
    const int64_t took_ms = end(&p, 300);
    ck_assert_int_ge(took_ms, 290);
    ck_assert_int_lt(took_ms, 5000);
    ck_assert_int_eq(dropped(&p), ADDED);
    ck_assert_int_eq(sent(&p), 0);
    ck_assert_int_eq(atomic_load(&p.collector.posts), 1);
    xt_collector_stop(&p.collector);
    release(&p);
}
END_TEST

/* What is left is tried once. */
START_TEST(one_that_is_away) {
    static const xt_reply ok = {XT_REPLY_TEXT, OK};
    pair p;
    begin(&p, &ok, 1);
    xt_collector_stop(&p.collector);
    for (int i = 0; i < XN_EXPORTER_QUEUE; i++)
        add(&p, 1);
    ck_assert_int_lt(end(&p, XT_PATIENCE_MS), XT_PATIENCE_MS / 2);
    ck_assert_int_eq(dropped(&p), 2 * XN_EXPORTER_QUEUE);
    release(&p);
}
END_TEST

enum { THREADS = 4, EACH = 3000 };

static void *add_many(void *context) {
    for (int i = 0; i < EACH; i++) {
        add(context, i % 3);
        if (i % 100 == 0)
            xt_nap();
    }
    return NULL;
}

/* From several threads, more than the queue takes. */
START_TEST(every_span_counts_once) {
    static const xt_reply ok = {XT_REPLY_TEXT, OK};
    pair p;
    pthread_t threads[THREADS];
    begin(&p, &ok, 1);
    for (int i = 0; i < THREADS; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, add_many, &p), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    end(&p, XT_PATIENCE_MS);
    xt_collector_stop(&p.collector);
    ck_assert_int_eq(sent(&p) + dropped(&p), 2 * THREADS * EACH);
    ck_assert_int_eq(sent(&p), xt_collector_count(&p.collector, "\"spanId\""));
    ck_assert_int_ge(sent(&p), XN_EXPORTER_QUEUE);
    release(&p);
}
END_TEST

XN_SUITE(exporter) {
    Suite *s = suite_create("exporter");
    TCase *t = tcase_create("exporter");
    tcase_set_timeout(t, 120);
    tcase_add_test(t, collectors);
    tcase_add_test(t, one_that_stalls);
    tcase_add_test(t, one_that_is_away);
    tcase_add_test(t, every_span_counts_once);
    suite_add_tcase(s, t);
    return s;
}
