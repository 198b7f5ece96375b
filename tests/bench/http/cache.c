/* cache.c: `bench-http cache`: two daemons, one with a cache of answers, one without, by the same
 * generator, in turns, round after round. Of the requests a share has one of 64 inputs, and all
 * others an input that never came before. So the share is the rate of hits, but for the first of
 * each input; what the daemon counted stands beside it. CPU is
 * the time of all threads of a daemon for a request, which other work on the machine changes less
 * than the rest. */
#include "../birealnet.h"
#include "load.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { OFF, ON, SIDES, ROUNDS = 64, HEAD = 512, PIXELS = 224 * 224 * 3 };

static const char cache_bytes[] = "64M";

typedef struct bench {
    const bench_options *o;
    const char *workload;
    int rounds;
    uint64_t seed;
    bench_process processes[SIDES];
    struct sockaddr_in servers[SIDES];
    ol_message messages[SIDES];
    uint64_t faults;
    xn_report report;
} bench;

/* Of a side and each round. */
typedef struct rows {
    double rate[ROUNDS], cpu[ROUNDS], p50[ROUNDS], p99[ROUNDS];
} rows;

static const xn_column columns[] = {
    {"workload", "workload", 8, XN_TEXT}, {"repeated_percent", "repeated %", 10, 0},
    {"hits_percent", "hits %", 8, 1},     {"off_per_second", "off/s", 9, 0},
    {"on_per_second", "on/s", 9, 0},      {"on_over_off", "on / off", 8, 2},
    {"least_on_over_off", "least", 6, 2}, {"most_on_over_off", "most", 6, 2},
    {"off_cpu_us", "off CPU us", 10, 1},  {"on_cpu_us", "on CPU us", 10, 1},
    {"off_p50_us", "off p50 us", 10, 0},  {"on_p50_us", "on p50 us", 10, 0},
    {"off_p99_us", "off p99 us", 10, 0},  {"on_p99_us", "on p99 us", 10, 0},
};

/* ---- servers and requests ---- */

static void picture_message(ol_message *out) {
    char head[HEAD];
    xn_rng rng = {8};
    snprintf(head, sizeof head,
             "POST /v2/models/birealnet/infer HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
             "application/octet-stream\r\nInference-Header-Content-Length: 0\r\n"
             "Content-Length: %d\r\n\r\n",
             PIXELS);
    const size_t length = strlen(head);
    *out = (ol_message){.bytes = malloc(length + PIXELS),
                        .length = length + PIXELS,
                        .body_length = PIXELS,
                        .output_bytes = XN_BIREALNET_CLASSES * sizeof(float),
                        .stamp_at = length};
    if (!out->bytes)
        xn_bench_fail("cache", "no memory");
    memcpy(out->bytes, head, length);
    for (int i = 0; i < PIXELS; i++)
        out->bytes[length + (size_t)i] = (char)xn_rng_next(&rng);
}

/* The values are the end of the body. */
static void shape_message(const ol_shape *shape, const struct sockaddr_in *server,
                          ol_message *out) {
    if (!ol_message_make(shape, server, out))
        xn_bench_fail("cache", "the first request failed");
    free(out->output); /* other inputs have other outputs */
    out->output = NULL;
    out->stamp_at = out->length - (size_t)shape->channels * (size_t)shape->side *
                                      (size_t)shape->side * sizeof(float);
}

static void start(bench *b) {
    const char *const cache[] = {"--response-cache-bytes", cache_bytes, NULL};
    const ol_shape *shape = ol_shape_find(b->workload);
    xn_birealnet *net = shape ? NULL : xn_birealnet_make(224, XN_PRECISION_FP32);
    char backend[32];
    if (!shape && strcmp(b->workload, "network") != 0)
        xn_bench_fail("--workloads are network and", ol_shape_names);
    for (int i = 0; i < SIDES; i++) {
        const char *const *more = i == ON ? cache : NULL;
        if (!shape) {
            bench_birealnet_start(&b->processes[i], b->o, net, more, &b->servers[i]);
            picture_message(&b->messages[i]);
        } else {
            bench_daemon_start(&b->processes[i], b->o, more, &b->servers[i]);
            bench_daemon_ready(&b->servers[i], backend, sizeof backend);
            shape_message(shape, &b->servers[i], &b->messages[i]);
        }
    }
    if (!shape)
        xn_birealnet_free(net);
}

static double counter(const bench *b, const char *name) {
    char line[64];
    char *page = bench_get(&b->servers[ON], "/metrics");
    snprintf(line, sizeof line, "\nxnord_response_cache_%s_total ", name);
    const char *at = page ? strstr(page, line) : NULL;
    const double value = at ? strtod(at + strlen(line), NULL) : NAN;
    free(page);
    return value;
}

/* ---- measuring ---- */

static void play(bench *b, int side, double repeat, int round, rows *out) {
    static ol_counts c;
    bench_options o = *b->o;
    o.connections = o.connections ? o.connections : 32;
    o.rate = 0; /* a closed loop */
    o.threads = o.threads ? o.threads : sysconf(_SC_NPROCESSORS_ONLN) > 4 ? 4 : 1;
    ol_plan plan = ol_plan_of(&o, &b->servers[side]);
    plan.message = b->messages[side];
    plan.repeat = repeat;
    plan.seed = ++b->seed;
    const double before = bench_cpu_us(b->processes[side].pid);
    ol_run(&plan, &c);
    const double took = bench_cpu_us(b->processes[side].pid) - before;
    out->rate[round] = (double)c.outcomes[OL_GOOD] / (plan.seconds - plan.warmup);
    out->cpu[round] = took / (out->rate[round] * plan.seconds); /* the warm-up took some too */
    out->p50[round] = 1000 * ol_ms(&c.good, 0.5);
    out->p99[round] = 1000 * ol_ms(&c.good, 0.99);
    b->faults += ol_faults(&c);
}

/* Each round asks both, now the one first and now the other. */
static void run_rounds(bench *b, double repeat, rows all[SIDES], double ratios[ROUNDS]) {
    for (int round = 0; round < b->rounds; round++) {
        char doing[64];
        snprintf(doing, sizeof doing, "round of %.16s, %g%% hits", b->workload, 100 * repeat);
        xn_report_doing(&b->report, round + 1, b->rounds, doing);
        for (int i = 0; i < SIDES; i++)
            play(b, (i + round) % SIDES, repeat, round, &all[(i + round) % SIDES]);
        ratios[round] = all[ON].rate[round] / all[OFF].rate[round];
    }
}

static double median(double *samples, const bench *b) {
    return xn_stats_of(samples, b->rounds).median;
}

static void run(bench *b, double percent) {
    static rows all[SIDES];
    double ratios[ROUNDS];
    const double hits = counter(b, "hits"), misses = counter(b, "misses");
    run_rounds(b, percent / 100, all, ratios);
    const double hit = counter(b, "hits") - hits, missed = counter(b, "misses") - misses;
    const double ratio = median(ratios, b); /* sorts them */
    xn_report_row(&b->report, XN_T(b->workload), XN_N(percent), XN_N(100 * hit / (hit + missed)),
                  XN_N(median(all[OFF].rate, b)), XN_N(median(all[ON].rate, b)), XN_N(ratio),
                  XN_N(ratios[0]), XN_N(ratios[b->rounds - 1]), XN_N(median(all[OFF].cpu, b)),
                  XN_N(median(all[ON].cpu, b)), XN_N(median(all[OFF].p50, b)),
                  XN_N(median(all[ON].p50, b)), XN_N(median(all[OFF].p99, b)),
                  XN_N(median(all[ON].p99, b)));
}

static void run_workload(bench *b) {
    const char *hits = b->o->hits;
    char word[16];
    start(b);
    while (bench_next_word(&hits, word, sizeof word))
        run(b, atof(word));
    for (int i = 0; i < SIDES; i++) {
        bench_process_stop(&b->processes[i]);
        ol_message_free(&b->messages[i]);
    }
}

int bench_cache(const bench_options *o) {
    bench b = {.o = o, .rounds = o->rounds < ROUNDS ? o->rounds : ROUNDS, .seed = o->seed};
    const char *workloads = o->workloads ? o->workloads : "4k layer network";
    char word[16];
    xn_report_open(&b.report, o->json);
    printf("a cache of answers of %s and none, %d connections, medians of %d rounds, %ld cores\n",
           cache_bytes, o->connections ? o->connections : 32, b.rounds,
           sysconf(_SC_NPROCESSORS_ONLN));
    xn_report_table(&b.report, columns, XN_COUNT(columns));
    while (bench_next_word(&workloads, word, sizeof word)) {
        b.workload = word;
        run_workload(&b);
    }
    xn_report_close(&b.report);
    if (b.faults)
        fprintf(stderr, "bench-http cache: %llu answers were wrong or lost\n",
                (unsigned long long)b.faults);
    return b.faults ? 1 : 0;
}
