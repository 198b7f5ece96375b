/* load.c: `bench-http load`: a load generator with a schedule of its own (see load.h).
 *
 *   bench-http load --port N --workloads 4k|64k|slow|heavy [--rate R] [--seconds S] ...
 *
 * Without --rate it is a closed loop: every connection sends its next request when it has its
 * answer; that is how capacity is found. Exit status 1 when an answer was wrong, lost, or a refusal
 * without Retry-After. */
#include "load.h"

#include "../clock.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_THREADS = 64 };

const char *const ol_outcome_names[OL_OUTCOMES] = {
    "good", "refused", "expired", "bare", "other", "wrong", "lost", "unanswered", "unsent"};

/* ---- a run ---- */

ol_plan ol_plan_of(const bench_options *o, const struct sockaddr_in *server) {
    char word[16];
    const char *cpus = o->cpus;
    ol_plan plan = {.server = *server,
                    .rate = o->rate,
                    .poisson = !o->constant,
                    .seed = o->seed,
                    .threads = o->threads,
                    .connections = o->connections ? o->connections : 64,
                    .sources = o->sources ? o->sources : 1,
                    .seconds = o->seconds > 0 ? o->seconds : 4,
                    .warmup = o->warmup,
                    .patience_ns = (int64_t)(o->patience_ms * 1e6),
                    .slice_ns = (int64_t)(o->slice_ms * 1e6)};
    while (cpus && plan.cpu_count < XN_COUNT(plan.cpus) &&
           bench_next_word(&cpus, word, sizeof word))
        plan.cpus[plan.cpu_count++] = atoi(word);
    if (!plan.threads)
        plan.threads = plan.cpu_count ? plan.cpu_count : 2;
    if (plan.threads > MAX_THREADS || plan.connections < plan.threads ||
        plan.seconds <= plan.warmup)
        xn_bench_fail("load", "at most 64 threads, a connection for each, more than the warm-up");
    return plan;
}

static void merge(ol_counts *all, const ol_counts *one) {
    for (int i = 0; i < OL_OUTCOMES; i++)
        all->outcomes[i] += one->outcomes[i];
    for (int i = 0; i < XN_COUNT(all->statuses); i++)
        all->statuses[i] += one->statuses[i];
    for (int i = 0; i < OL_SLICES; i++) {
        all->slices[i].due += one->slices[i].due;
        all->slices[i].good += one->slices[i].good;
    }
    all->due += one->due;
    all->reconnects += one->reconnects;
    xn_histogram_merge(&all->good, &one->good);
    xn_histogram_merge(&all->refused, &one->refused);
    xn_histogram_merge(&all->compute, &one->compute);
    xn_histogram_merge(&all->late, &one->late);
}

void ol_run(ol_plan *plan, ol_counts *counts) {
    static ol_thread threads[MAX_THREADS];
    memset(threads, 0, sizeof threads);
    memset(counts, 0, sizeof *counts);
    plan->start_ns = xn_bench_now_ns() + 20000000;
    plan->window_ns = plan->start_ns + (int64_t)(plan->warmup * 1e9);
    plan->end_ns = plan->start_ns + (int64_t)(plan->seconds * 1e9);
    for (int i = 0; i < plan->threads; i++) {
        threads[i].plan = plan;
        threads[i].index = i;
        if (pthread_create(&threads[i].thread, NULL, ol_thread_main, &threads[i]))
            xn_bench_fail("load", "no thread");
    }
    for (int i = 0; i < plan->threads; i++) {
        pthread_join(threads[i].thread, NULL);
        merge(counts, &threads[i].counts);
    }
}

uint64_t ol_faults(const ol_counts *c) {
    return c->outcomes[OL_BARE] + c->outcomes[OL_OTHER] + c->outcomes[OL_WRONG] +
           c->outcomes[OL_LOST];
}

double ol_ms(const xn_histogram *h, double share) {
    return (double)xn_histogram_quantile(h, share) / 1e6;
}

int bench_rounds(const bench_options *o) {
    return o->rounds < OL_ROUNDS ? o->rounds : OL_ROUNDS;
}

void ol_play_round(ol_plan *plan, pid_t server, int round, ol_rounds *out) {
    static ol_counts c;
    const double before = bench_cpu_us(server);
    ol_run(plan, &c);
    const double took = bench_cpu_us(server) - before;
    out->rate[round] = (double)c.outcomes[OL_GOOD] / (plan->seconds - plan->warmup);
    out->cpu_us[round] = took / (out->rate[round] * plan->seconds); /* the warm-up took some too */
    out->p50_us[round] = 1e3 * ol_ms(&c.good, 0.5);
    out->p99_us[round] = 1e3 * ol_ms(&c.good, 0.99);
    out->compute_us[round] = 1e3 * ol_ms(&c.compute, 0.5);
    for (int i = 0; i < OL_OUTCOMES; i++)
        out->failures += i == OL_GOOD ? 0 : (double)c.outcomes[i];
}

/* ---- the report ---- */

static const xn_column columns[] = {
    {"workload", "workload", 8, XN_TEXT},     {"connections", "conns", 6, 0},
    {"offered_per_s", "offered/s", 10, 0},    {"good_per_s", "good/s", 10, 0},
    {"refused_per_s", "refused/s", 9, 0},     {"unsent_per_s", "unsent/s", 9, 0},
    {"good_p50_ms", "p50 ms", 9, 3},          {"good_p99_ms", "p99 ms", 9, 3},
    {"good_p999_ms", "p99.9 ms", 9, 3},       {"good_max_ms", "max ms", 9, 3},
    {"refused_p99_ms", "refused p99", 11, 3}, {"late_p99_ms", "late p99", 9, 3},
    {"late_max_ms", "late max", 9, 3},
};

/* In the JSON alone: how each request ended, and the slices. */
static const xn_column outcome_columns[] = {{"outcome", NULL, 0, XN_TEXT},
                                            {"requests", NULL, 0, 0}};
static const xn_column status_columns[] = {{"status", NULL, 0, 0}, {"requests", NULL, 0, 0}};
static const xn_column slice_columns[] = {
    {"from_ms", NULL, 0, 0}, {"due", NULL, 0, 0}, {"good", NULL, 0, 0}};

static void report_in_detail(xn_report *r, const ol_plan *plan, const ol_counts *c) {
    xn_report_table(r, outcome_columns, XN_COUNT(outcome_columns));
    for (int i = 0; i < OL_OUTCOMES; i++)
        xn_report_row(r, XN_T(ol_outcome_names[i]), XN_N(c->outcomes[i]));
    xn_report_table(r, status_columns, XN_COUNT(status_columns));
    for (int i = 0; i < XN_COUNT(c->statuses); i++)
        if (c->statuses[i])
            xn_report_row(r, XN_N(i), XN_N(c->statuses[i]));
    xn_report_table(r, slice_columns, XN_COUNT(slice_columns));
    const int64_t window_ns = plan->slice_ns ? plan->end_ns - plan->window_ns : 0;
    for (int64_t i = 0; i < OL_SLICES && i * plan->slice_ns < window_ns; i++)
        xn_report_row(r, XN_N(i * plan->slice_ns / 1000000), XN_N(c->slices[i].due),
                      XN_N(c->slices[i].good));
}

static void report(xn_report *r, const char *workload, const ol_plan *plan, const ol_counts *c) {
    const double window = plan->seconds - plan->warmup;
    printf("%s from %d addresses, %d threads, %.1f s\n",
           plan->rate > 0 ? (plan->poisson ? "Poisson arrivals" : "constant rate") : "closed loop",
           plan->sources, plan->threads, window);
    xn_report_table(r, columns, XN_COUNT(columns));
    xn_report_row(r, XN_T(workload), XN_N(plan->connections), XN_N((double)c->due / window),
                  XN_N((double)c->outcomes[OL_GOOD] / window),
                  XN_N((double)c->outcomes[OL_REFUSED] / window),
                  XN_N((double)c->outcomes[OL_UNSENT] / window), XN_N(ol_ms(&c->good, 0.5)),
                  XN_N(ol_ms(&c->good, 0.99)), XN_N(ol_ms(&c->good, 0.999)),
                  XN_N((double)c->good.max / 1e6), XN_N(ol_ms(&c->refused, 0.99)),
                  XN_N(ol_ms(&c->late, 0.99)), XN_N((double)c->late.max / 1e6));
    for (int i = 0; i < OL_OUTCOMES; i++)
        printf("%s%s %llu", i ? ", " : "", ol_outcome_names[i], (unsigned long long)c->outcomes[i]);
    printf("; by status:");
    for (int i = 0; i < XN_COUNT(c->statuses); i++)
        if (c->statuses[i])
            printf(" %d: %llu", i, (unsigned long long)c->statuses[i]);
    putchar('\n');
}

int bench_load(const bench_options *o) {
    static ol_counts counts;
    const struct sockaddr_in server = {.sin_family = AF_INET,
                                       .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                                       .sin_port = htons((uint16_t)o->port)};
    const ol_shape *shape = ol_shape_named(o->workloads ? o->workloads : "");
    ol_plan plan = ol_plan_of(o, &server);
    xn_report r;
    if (!o->port)
        xn_bench_fail("--port", "is missing");
    ol_message_make(shape, &server, &plan.message);
    ol_run(&plan, &counts);
    xn_report_open(&r, o->json);
    report(&r, shape->name, &plan, &counts);
    if (o->json)
        report_in_detail(&r, &plan, &counts);
    xn_report_close(&r);
    ol_message_free(&plan.message);
    if (ol_faults(&counts))
        fprintf(stderr, "bench-http load: %llu answers were wrong, lost or without Retry-After\n",
                (unsigned long long)ol_faults(&counts));
    return ol_faults(&counts) ? 1 : 0;
}
