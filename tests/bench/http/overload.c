/* overload.c: `bench-http overload`: what xnord still answers when more comes than it can do. For
 * each workload and round: its capacity (closed loop), then an open loop (Poisson arrivals) at
 * multiples of it. Medians of the rounds; goodput as a share of the same round's capacity. CPU time
 * of daemon and generator apart: an answer's at capacity, where nothing is refused, and a
 * refusal's, as what is left of a load's when its good answers are charged the same. A generator
 * that could not keep up shows in "late" (its own lateness) and "unsent" (no connection was free).
 */
#include "load.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LOADS = 8, ROUNDS = OL_ROUNDS, CPUS_TEXT = 512 };

/* What is asked for, at a multiple of capacity. */
static double target_of(double load) {
    return load == 2 ? 95 : load == 5 ? 93 : load == 10 ? 90 : 0;
}

enum {
    OFFERED,
    GOOD,
    SHARE,
    P50,
    P99,
    REFUSED,
    UNSENT,
    LATE,
    REFUSAL_US, /* CPU time of the daemon */
    CLIENT_US,  /* of the generator, for a request that it sent */
    MOST_RESIDENT,
    RESIDENT,
    FIGURES
};
typedef double figures[FIGURES][ROUNDS];

typedef struct bench {
    const bench_options *o;
    bench_options daemon; /* with cores of its own, as the generator's: */
    char daemon_cpus[CPUS_TEXT], cpus[CPUS_TEXT];
    double loads[LOADS];
    int load_count, rounds;
    double capacity[ROUNDS];
    double answer_us[ROUNDS]; /* CPU time of the daemon, at capacity */
    figures at[LOADS];
    uint64_t faults;
    int missed;
    xn_report report;
} bench;

static const xn_column columns[] = {
    {"workload", "", 6, XN_TEXT},
    {"load", "load", 5, 0},
    {"capacity_per_s", "capacity/s", 10, 0},
    {"offered_per_s", "offered/s", 9, 0},
    {"good_per_s", "good/s", 9, 0},
    {"goodput_percent", "share %", 7, 1},
    {"least_percent", "least", 6, 1},
    {"most_percent", "most", 6, 1},
    {"p50_ms", "p50 ms", 9, 1},
    {"p99_ms", "p99 ms", 9, 1},
    {"refused_per_s", "refused/s", 9, 0},
    {"unsent_per_s", "unsent/s", 9, 0},
    {"late_p99_ms", "late p99", 8, 2},
    {"answer_cpu_us", "CPU us", 6, 1},
    {"refusal_cpu_us", "refusal", 7, 1},
    {"client_cpu_us", "client", 6, 1},
    {"hwm_mib", "HWM MiB", 7, 0},
    {"rss_mib", "RSS MiB", 7, 0},
    {"verdict", "to reach", 40, XN_TEXT},
};

/* ---- the daemon's memory ---- */

/* "VmHWM", in MiB; NAN where there is none. */
static double memory_of(pid_t pid, const char *name) {
    char path[64], line[256];
    double mib = NAN;
    long kib;
    snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    FILE *file = fopen(path, "r");
    while (file && fgets(line, sizeof line, file))
        if (!strncmp(line, name, strlen(name)) && sscanf(strchr(line, ':'), ": %ld", &kib) == 1)
            mib = (double)kib / 1024;
    if (file)
        fclose(file);
    return mib;
}

/* VmHWM counts from here, where the system allows it. */
static void forget_most(pid_t pid) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/clear_refs", (int)pid);
    FILE *file = fopen(path, "w");
    if (!file)
        return;
    fputs("5", file);
    fclose(file);
}

/* ---- rounds ---- */

/* What a second of the plan took of the daemon's CPU time and of the generator's. */
typedef struct {
    double daemon_us, client_us;
} cpu_times;

static cpu_times play(bench *b, ol_plan plan, pid_t pid, ol_counts *counts) {
    const cpu_times before = {bench_cpu_us(pid), bench_cpu_us(0)};
    ol_run(&plan, counts);
    b->faults += ol_faults(counts);
    return (cpu_times){(bench_cpu_us(pid) - before.daemon_us) / plan.seconds,
                       (bench_cpu_us(0) - before.client_us) / plan.seconds};
}

static void one_load(bench *b, int load, int round, const ol_plan *closed, pid_t pid) {
    static ol_counts c;
    ol_plan plan = *closed;
    const double window = plan.seconds - plan.warmup, capacity = b->capacity[round];
    double(*out)[ROUNDS] = b->at[load];
    plan.rate = capacity * b->loads[load];
    plan.connections = b->o->connections ? b->o->connections : 1000;
    plan.sources = b->o->sources ? b->o->sources : 8; /* one address alone has a share */
    forget_most(pid);
    const cpu_times cpu = play(b, plan, pid, &c);
    out[OFFERED][round] = (double)c.due / window;
    out[GOOD][round] = (double)c.outcomes[OL_GOOD] / window;
    out[SHARE][round] = 100 * out[GOOD][round] / capacity;
    out[P50][round] = ol_ms(&c.good, 0.5);
    out[P99][round] = ol_ms(&c.good, 0.99);
    out[REFUSED][round] = (double)c.outcomes[OL_REFUSED] / window;
    out[UNSENT][round] = (double)c.outcomes[OL_UNSENT] / window;
    out[LATE][round] = ol_ms(&c.late, 0.99);
    out[REFUSAL_US][round] =
        out[REFUSED][round] > 0
            ? (cpu.daemon_us - out[GOOD][round] * b->answer_us[round]) / out[REFUSED][round]
            : NAN;
    out[CLIENT_US][round] = cpu.client_us / (out[OFFERED][round] - out[UNSENT][round]);
    out[MOST_RESIDENT][round] = memory_of(pid, "VmHWM");
    out[RESIDENT][round] = memory_of(pid, "VmRSS");
}

static void one_round(bench *b, const char *workload, int round, const ol_plan *closed, pid_t pid) {
    static ol_counts c;
    char doing[64];
    snprintf(doing, sizeof doing, "bodies %.20s: its capacity, then %d loads", workload,
             b->load_count);
    xn_report_doing(&b->report, round + 1, b->rounds, doing);
    const cpu_times cpu = play(b, *closed, pid, &c);
    b->capacity[round] = (double)c.outcomes[OL_GOOD] / (closed->seconds - closed->warmup);
    b->answer_us[round] = cpu.daemon_us / b->capacity[round];
    for (int load = 0; load < b->load_count; load++)
        one_load(b, load, round, closed, pid);
}

/* ---- the report ---- */

static void judge(bench *b, double load, double share, double p99, double first_p99, char *text,
                  size_t size) {
    const bool slow = first_p99 > 0 && p99 > 2 * first_p99, few = share < target_of(load);
    snprintf(text, size, "%s%.0d%s%s", few ? "goodput below " : "", few ? (int)target_of(load) : 0,
             few ? "% " : "",
             slow  ? "p99 over twice that at 1x"
             : few ? ""
                   : "reached");
    b->missed += slow || few;
}

static void report(bench *b, const char *workload) {
    const double capacity = xn_stats_of(b->capacity, b->rounds).median;
    const double answer_us = xn_stats_of(b->answer_us, b->rounds).median;
    double first_p99 = 0;
    for (int load = 0; load < b->load_count; load++) {
        char verdict[80];
        double median[FIGURES];
        for (int f = 0; f < FIGURES; f++)
            median[f] = xn_stats_of(b->at[load][f], b->rounds).median;
        if (b->loads[load] == 1)
            first_p99 = median[P99];
        judge(b, b->loads[load], median[SHARE], median[P99], first_p99, verdict, sizeof verdict);
        xn_report_row(&b->report, XN_T(workload), XN_N(b->loads[load]), XN_N(capacity),
                      XN_N(median[OFFERED]), XN_N(median[GOOD]), XN_N(median[SHARE]),
                      XN_N(b->at[load][SHARE][0]), XN_N(b->at[load][SHARE][b->rounds - 1]),
                      XN_N(median[P50]), XN_N(median[P99]), XN_N(median[REFUSED]),
                      XN_N(median[UNSENT]), XN_N(median[LATE]), XN_N(answer_us),
                      XN_N(median[REFUSAL_US]), XN_N(median[CLIENT_US]),
                      XN_N(median[MOST_RESIDENT]), XN_N(median[RESIDENT]), XN_T(verdict));
    }
}

static void run_workload(bench *b, const char *name) {
    bench_process daemon;
    struct sockaddr_in address;
    const ol_shape *shape = ol_shape_named(name);
    bench_options of_load = b->daemon;
    of_load.connections = of_load.sources = 0;
    of_load.rate = 0;
    of_load.seconds = (b->o->seconds > 0 ? b->o->seconds : 3) + b->o->warmup;
    bench_daemon_start(&daemon, &b->daemon, NULL, &address);
    ol_plan closed = ol_plan_of(&of_load, &address);
    ol_message_make(shape, &address, &closed.message);
    for (int round = 0; round < b->rounds; round++)
        one_round(b, name, round, &closed, daemon.pid);
    bench_process_stop(&daemon);
    ol_message_free(&closed.message);
    report(b, name);
}

/* Cores first to last, as a list. */
static void list_cores(long first, long last, char text[CPUS_TEXT]) {
    size_t n = 0;
    for (long core = first; core <= last && n < CPUS_TEXT - 8; core++)
        n += (size_t)snprintf(text + n, CPUS_TEXT - n, "%s%ld", n ? "," : "", core);
}

/* Half of the cores for the daemon and for the generator each, if none are named. */
static void share_cores(bench *b) {
    const long cores = sysconf(_SC_NPROCESSORS_ONLN), half = (cores + 1) / 2;
    list_cores(0, half - 1, b->daemon_cpus);
    list_cores(cores > 1 ? half : 0, cores - 1, b->cpus);
    b->daemon = *b->o;
    if (!b->daemon.daemon_cpus)
        b->daemon.daemon_cpus = b->daemon_cpus;
    if (!b->daemon.cpus)
        b->daemon.cpus = b->cpus;
}

int bench_overload(const bench_options *o) {
    static bench b;
    const char *loads = o->loads, *workloads = o->workloads ? o->workloads : "4k 64k slow";
    char word[32];
    b.o = o;
    b.rounds = bench_rounds(o);
    while (b.load_count < LOADS && bench_next_word(&loads, word, sizeof word))
        b.loads[b.load_count++] = strtod(word, NULL);
    share_cores(&b);
    xn_report_open(&b.report, o->json);
    printf("open loop; daemon on cores %s, generator on %s; medians of %d rounds\n",
           b.daemon.daemon_cpus, b.daemon.cpus, b.rounds);
    xn_report_table(&b.report, columns, XN_COUNT(columns));
    while (bench_next_word(&workloads, word, sizeof word))
        run_workload(&b, word);
    xn_report_close(&b.report);
    if (b.faults)
        fprintf(stderr, "%llu answers were wrong, lost, or refused without Retry-After\n",
                (unsigned long long)b.faults);
    return b.faults || (o->check && b.missed) ? 1 : 0;
}
