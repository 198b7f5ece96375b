/* open_loop.c: bench-open-loop: a load generator with a schedule of its own (see open_loop.h).
 *
 *   bench-open-loop --port N --workload 4k|64k|slow|heavy [--rate R] [--seconds S] ...
 *
 * Without --rate it is a closed loop: every connection sends its next request when it has its
 * answer; that is how capacity is found. Prints a table, and with --json FILE the same for
 * programs. Exit status 1 when an answer was wrong, lost, or a refusal without Retry-After. */
#include "open_loop.h"

#include "bench_clock.h"

#include <arpa/inet.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_THREADS 64

const char *const ol_outcome_names[OL_OUTCOMES] = {
    "good", "refused", "expired", "bare", "other", "wrong", "lost", "unanswered", "unsent"};

typedef struct {
    ol_plan plan;
    const char *json;
    const char *workload;
} options;

static int usage(void) {
    fprintf(stderr,
            "usage: bench-open-loop --port N --workload NAME [options]\n"
            "  --workload NAME       one of %s\n"
            "  --rate R              requests a second; 0 (default): closed loop\n"
            "  --arrivals poisson|constant\n"
            "  --seed N              of the arrivals\n"
            "  --seconds S, --warmup S   the schedule, and what of it is not counted\n"
            "  --connections N, --threads N\n"
            "  --sources N           client addresses 127.0.0.1, 127.0.0.2, ...\n"
            "  --patience-ms MS      how long a request that is due waits for a connection\n"
            "  --cpus 2,3            one core a thread\n"
            "  --json FILE           the figures as one JSON object\n",
            ol_shape_names);
    return 2;
}

static void parse_cpus(ol_plan *plan, const char *text) {
    for (char *end; plan->cpu_count < 64; text = end + 1) {
        long cpu = strtol(text, &end, 10);
        if (end == text)
            return;
        plan->cpus[plan->cpu_count++] = (int)cpu;
        if (*end != ',')
            return;
    }
}

static bool parse(int argc, char **argv, options *o) {
    static const struct option known[] = {
        {"port", 1, NULL, 'p'},        {"workload", 1, NULL, 'w'},
        {"rate", 1, NULL, 'r'},        {"arrivals", 1, NULL, 'a'},
        {"seed", 1, NULL, 'e'},        {"seconds", 1, NULL, 's'},
        {"warmup", 1, NULL, 'u'},      {"connections", 1, NULL, 'c'},
        {"threads", 1, NULL, 't'},     {"sources", 1, NULL, 'o'},
        {"patience-ms", 1, NULL, 'm'}, {"cpus", 1, NULL, 'k'},
        {"json", 1, NULL, 'j'},        {0}};
    ol_plan *plan = &o->plan;
    for (int c; (c = getopt_long(argc, argv, "", known, NULL)) != -1;) {
        switch (c) {
        case 'p':
            plan->server.sin_port = htons((uint16_t)atoi(optarg));
            break;
        case 'w':
            o->workload = optarg;
            break;
        case 'r':
            plan->rate = strtod(optarg, NULL);
            break;
        case 'a':
            plan->poisson = !strcmp(optarg, "poisson");
            break;
        case 'e':
            plan->seed = strtoull(optarg, NULL, 10);
            break;
        case 's':
            plan->seconds = strtod(optarg, NULL);
            break;
        case 'u':
            plan->warmup = strtod(optarg, NULL);
            break;
        case 'c':
            plan->connections = atoi(optarg);
            break;
        case 't':
            plan->threads = atoi(optarg);
            break;
        case 'o':
            plan->sources = atoi(optarg);
            break;
        case 'm':
            plan->patience_ns = (int64_t)(strtod(optarg, NULL) * 1e6);
            break;
        case 'k':
            parse_cpus(plan, optarg);
            break;
        case 'j':
            o->json = optarg;
            break;
        default:
            return false;
        }
    }
    return plan->server.sin_port && o->workload && ol_shape_find(o->workload) &&
           plan->threads >= 1 && plan->threads <= MAX_THREADS && plan->sources >= 1 &&
           plan->connections >= plan->threads && plan->seconds > plan->warmup;
}

/* ---- the report ---- */

static double ms(const xn_histogram *h, double share) {
    return (double)xn_histogram_quantile(h, share) / 1e6;
}

static void print_table(const options *o, const ol_counts *all, double window) {
    const ol_plan *plan = &o->plan;
    printf("%s: %s, %d connections from %d addresses, %d threads, %.1f s\n", o->workload,
           plan->rate > 0 ? (plan->poisson ? "Poisson arrivals" : "constant rate") : "closed loop",
           plan->connections, plan->sources, plan->threads, window);
    printf("  offered %.0f/s, good %.0f/s, refused %.0f/s, unsent %.0f/s\n",
           (double)all->due / window, (double)all->outcomes[OL_GOOD] / window,
           (double)all->outcomes[OL_REFUSED] / window, (double)all->outcomes[OL_UNSENT] / window);
    printf("  latency of good, ms: p50 %.3f, p99 %.3f, p99.9 %.3f, max %.3f\n", ms(&all->good, 0.5),
           ms(&all->good, 0.99), ms(&all->good, 0.999), (double)all->good.max / 1e6);
    printf("  latency of refusals, ms: p50 %.3f, p99 %.3f\n", ms(&all->refused, 0.5),
           ms(&all->refused, 0.99));
    printf("  the generator was late by, ms: p50 %.3f, p99 %.3f, max %.3f\n", ms(&all->late, 0.5),
           ms(&all->late, 0.99), (double)all->late.max / 1e6);
    for (int i = 0; i < OL_OUTCOMES; i++)
        printf("%s%s %llu", i ? ", " : "  ", ol_outcome_names[i],
               (unsigned long long)all->outcomes[i]);
    printf("\n ");
    for (int i = 0; i < 600; i++)
        if (all->statuses[i])
            printf(" %d: %llu", i, (unsigned long long)all->statuses[i]);
    printf("\n");
}

static void json_histogram(FILE *out, const char *name, const xn_histogram *h) {
    fprintf(out, ", \"%s_ms\": {\"p50\": %.4f, \"p99\": %.4f, \"p999\": %.4f, \"max\": %.4f}", name,
            ms(h, 0.5), ms(h, 0.99), ms(h, 0.999), (double)h->max / 1e6);
}

static bool write_json(const options *o, const ol_counts *all, double window) {
    FILE *out = fopen(o->json, "w");
    if (!out) {
        perror(o->json);
        return false;
    }
    fprintf(out, "{\"workload\": \"%s\", \"rate\": %.1f, \"seconds\": %.3f, \"connections\": %d",
            o->workload, o->plan.rate, window, o->plan.connections);
    fprintf(out, ", \"offered_per_s\": %.1f", (double)all->due / window);
    for (int i = 0; i < OL_OUTCOMES; i++)
        fprintf(out, ", \"%s\": %llu, \"%s_per_s\": %.1f", ol_outcome_names[i],
                (unsigned long long)all->outcomes[i], ol_outcome_names[i],
                (double)all->outcomes[i] / window);
    json_histogram(out, "good", &all->good);
    json_histogram(out, "refused", &all->refused);
    json_histogram(out, "late", &all->late);
    fprintf(out, ", \"statuses\": {");
    const char *separator = "";
    for (int i = 0; i < 600; i++)
        if (all->statuses[i]) {
            fprintf(out, "%s\"%d\": %llu", separator, i, (unsigned long long)all->statuses[i]);
            separator = ", ";
        }
    fprintf(out, "}}\n");
    return !fclose(out);
}

static void merge(ol_counts *all, const ol_counts *one) {
    for (int i = 0; i < OL_OUTCOMES; i++)
        all->outcomes[i] += one->outcomes[i];
    for (int i = 0; i < 600; i++)
        all->statuses[i] += one->statuses[i];
    all->due += one->due;
    all->reconnects += one->reconnects;
    xn_histogram_merge(&all->good, &one->good);
    xn_histogram_merge(&all->refused, &one->refused);
    xn_histogram_merge(&all->late, &one->late);
}

/* ---- the run ---- */

static bool run_threads(ol_plan *plan, ol_counts *all) {
    static ol_thread threads[MAX_THREADS];
    int started = 0;
    plan->start_ns = xn_bench_now_ns() + 20000000;
    plan->window_ns = plan->start_ns + (int64_t)(plan->warmup * 1e9);
    plan->end_ns = plan->start_ns + (int64_t)(plan->seconds * 1e9);
    for (; started < plan->threads; started++) {
        threads[started].plan = plan;
        threads[started].index = started;
        if (pthread_create(&threads[started].thread, NULL, ol_thread_main, &threads[started]))
            break;
    }
    for (int i = 0; i < started; i++) {
        pthread_join(threads[i].thread, NULL);
        merge(all, &threads[i].counts);
    }
    return started == plan->threads;
}

int main(int argc, char **argv) {
    static ol_counts all;
    options o = {.plan = {.server = {.sin_family = AF_INET},
                          .poisson = true,
                          .seed = 1,
                          .threads = 2,
                          .connections = 64,
                          .sources = 1,
                          .seconds = 4,
                          .warmup = 1,
                          .patience_ns = 0}};
    o.plan.server.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (!parse(argc, argv, &o))
        return usage();
    if (!ol_message_make(ol_shape_find(o.workload), &o.plan.server, &o.plan.message))
        return 1;
    double window = o.plan.seconds - o.plan.warmup;
    bool ok = run_threads(&o.plan, &all);
    print_table(&o, &all, window);
    if (o.json)
        ok = write_json(&o, &all, window) && ok;
    ol_message_free(&o.plan.message);
    uint64_t faults = all.outcomes[OL_BARE] + all.outcomes[OL_OTHER] + all.outcomes[OL_WRONG] +
                      all.outcomes[OL_LOST];
    if (faults)
        fprintf(stderr, "bench-open-loop: %llu answers were wrong, lost or without Retry-After\n",
                (unsigned long long)faults);
    return ok && !faults ? 0 : 1;
}
