/* compare.c: see compare.h. */
#include "compare.h"

#include <stdlib.h>
#include <string.h>

static const xn_column columns[] = {
    {"work", "work", 20, XN_TEXT},
    {"side", "side", 13, XN_TEXT},
    {"images", "images", 6, 0},
    {"body_bytes", "body bytes", 10, 0},
    {"connections", "conns", 5, 0},
    {"requests_per_second", "requests/s", 10, 1},
    {"least_per_second", "least", 9, 1},
    {"most_per_second", "most", 9, 1},
    {"images_per_second", "images/s", 9, 1},
    {"megabytes_per_second", "MB/s in", 9, 1},
    {"p50_us", "p50 us", 9, 0},
    {"p99_us", "p99 us", 9, 0},
    {"compute_us", "compute us", 10, 1},
    {"cpu_us", "CPU us", 9, 1},
    {"over_first", "/ first", 7, 2},
    {"least_over_first", "least", 6, 2},
    {"most_over_first", "most", 6, 2},
    {"asked", "asked", 5, 1},
    {"over_echo", "/ echo", 7, 3},
    {"repeated_percent", "again %", 7, 0},
    {"hits_percent", "hits %", 7, 1},
    {"failures", "failures", 8, 0},
};

void bench_contest_next(bench_contest *c) {
    for (int i = 0; i < c->count; i++)
        ol_message_free(&c->sides[i].message);
}

void bench_contest_end(bench_contest *c) {
    bench_contest_next(c);
    for (int i = 0; i < c->count; i++)
        bench_process_stop(&c->sides[i].process);
}

void bench_echo_side(const bench_options *o, bench_side *side) {
    side->name = "echo";
    side->is_echo = true;
    bench_echo_start(&side->process, o, &side->server);
}

/* ---- rounds ---- */

static ol_rounds all[BENCH_SIDES]; /* of the contest that is played */

/* A closed loop. */
static ol_plan plan_of(bench_contest *c, const bench_side *side) {
    bench_options o = *c->o;
    const int cores = bench_pin(NULL);
    const int threads = o.threads ? o.threads : cores > 16 ? 8 : cores > 4 ? 4 : 1;
    o.connections = c->connections;
    o.threads = threads < o.connections ? threads : o.connections;
    o.rate = 0;
    o.seed = ++c->seed;
    ol_plan plan = ol_plan_of(&o, &side->server);
    plan.message = side->message;
    plan.repeat = c->repeat;
    return plan;
}

/* Another side begins each round. */
void bench_play_sides(bench_contest *c) {
    const int rounds = bench_rounds(c->o);
    memset(all, 0, sizeof all);
    for (int round = 0; round < rounds; round++) {
        char doing[96];
        snprintf(doing, sizeof doing, "round of %.40s, %d connections", c->work, c->connections);
        xn_report_doing(c->report, round + 1, rounds, doing);
        for (int i = 0; i < c->count; i++) {
            const int turn = (i + round) % c->count;
            const bench_side *side = &c->sides[turn];
            const pid_t own = side->process.pid;
            ol_plan plan = plan_of(c, side);
            ol_play_round(&plan, own ? own : c->sides[0].process.pid, round, &all[turn]);
        }
    }
}

/* ---- the report ---- */

static double median(double *samples, int rounds) {
    return xn_stats_of(samples, rounds).median;
}

static void report_side(bench_contest *c, int index, ol_rounds *r, const xn_stats *over_first,
                        double echo) {
    const bench_side *side = &c->sides[index];
    const int rounds = bench_rounds(c->o);
    const xn_stats rate = xn_stats_of(r->rate, rounds);
    const double bytes = (double)side->message.body_length;
    const bool is_judged = index && !side->is_echo;
    xn_report_row(
        c->report, XN_T(c->work), XN_T(side->name), XN_N(c->images), XN_N(bytes),
        XN_N(c->connections), XN_N(rate.median), XN_N(rate.least), XN_N(rate.most),
        XN_N(rate.median * c->images), XN_N(rate.median * bytes / 1e6),
        XN_N(median(r->p50_us, rounds)), XN_N(median(r->p99_us, rounds)),
        XN_N(side->is_echo ? NAN : median(r->compute_us, rounds)), XN_N(median(r->cpu_us, rounds)),
        XN_N(is_judged ? over_first->median : NAN), XN_N(is_judged ? over_first->least : NAN),
        XN_N(is_judged ? over_first->most : NAN), XN_N(is_judged && c->asked > 0 ? c->asked : NAN),
        XN_N(side->is_echo ? NAN : rate.median / echo),
        XN_N(isnan(c->hits) ? NAN : 100 * c->repeat), XN_N(index == c->count - 1 ? c->hits : NAN),
        XN_N(r->failures));
}

void bench_report_sides(bench_contest *c) {
    double echo = NAN;
    const int rounds = bench_rounds(c->o);
    xn_stats over_first[BENCH_SIDES];
    for (int i = 0; i < c->count; i++) { /* before they are sorted */
        double ratios[OL_ROUNDS];
        for (int round = 0; round < rounds; round++)
            ratios[round] = all[i].rate[round] / all[0].rate[round];
        over_first[i] = xn_stats_of(ratios, rounds);
    }
    for (int i = 0; i < c->count; i++)
        if (c->sides[i].is_echo)
            echo = median(all[i].rate, rounds);
    for (int i = 0; i < c->count; i++) {
        report_side(c, i, &all[i], &over_first[i], echo);
        c->failures += all[i].failures;
    }
}

void bench_compare_sides(bench_contest *c, const int *connections, int count) {
    const int only = c->o->connections;
    if (only > connections[count - 1]) /* each has its range of shared memory */
        xn_bench_fail("--connections", "more than the work has");
    for (int i = 0; i < (only ? 1 : count); i++) {
        c->connections = only ? only : connections[i];
        bench_play_sides(c);
        bench_report_sides(c);
    }
}

/* ---- works ---- */

typedef struct work {
    const char *name;
    double (*run)(const bench_options *o, xn_report *report, const char *name);
} work;

static const work works[] = {
    {"bits", bench_ways},           {"shm", bench_ways},       {"network", bench_network},
    {"devices", bench_devices},     {"cache-4k", bench_cache}, {"cache-layer", bench_cache},
    {"cache-network", bench_cache},
};

static const work *work_named(const char *name) {
    for (int i = 0; i < XN_COUNT(works); i++)
        if (!strcmp(works[i].name, name))
            return &works[i];
    xn_bench_fail("no such work; help lists them", name);
}

int bench_compare(const bench_options *o) {
    const char *list = o->workloads ? o->workloads : "bits shm";
    char word[32];
    xn_report report;
    double failures = 0;
    xn_report_open(&report, o->json);
    printf(
        "closed loops in turns, medians of %d rounds; / first: of the same round; CPU: of all of "
        "the server's threads, a request; %d cores\n",
        bench_rounds(o), bench_pin(NULL));
    xn_report_table(&report, columns, XN_COUNT(columns));
    while (bench_next_word(&list, word, sizeof word)) {
        const work *w = work_named(word);
        failures += w->run(o, &report, w->name);
    }
    xn_report_close(&report);
    if (failures > 0)
        fprintf(stderr, "%.0f answers were not good\n", failures);
    return failures > 0;
}
