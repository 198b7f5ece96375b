/* wrk.c: `bench-http wrk`: wrk against xnord, against the echo ceiling and, where python3 has torch
 * and aiohttp, against the PyTorch peer; all in one run, in turns, round after round. */
#include "http.h"
#include "load.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { XNORD, ECHO, PEER, SERVERS, ROUNDS = OL_ROUNDS, URL = 128 };

static const char *const names[SERVERS] = {"xnord", "echo", "peer"};

typedef struct server {
    bench_process process;
    char url[URL];
    const char *form; /* of post.lua */
    bool there, asks_side;
} server;

/* Of each round. */
typedef struct rows {
    double rate[ROUNDS], p50[ROUNDS], p90[ROUNDS], p99[ROUNDS];
    double errors;
} rows;

static const xn_column columns[] = {
    {"body_bytes", "body bytes", 10, 0},
    {"server", "server", 6, XN_TEXT},
    {"backend", NULL, 0, XN_TEXT},
    {"requests_per_second", "requests/s", 12, 0},
    {"least_per_second", "least", 10, 0},
    {"most_per_second", "most", 10, 0},
    {"p50_us", "p50 us", 9, 0},
    {"p90_us", "p90 us", 9, 0},
    {"p99_us", "p99 us", 9, 0},
    {"errors", "errors", 6, 0},
    {"xnord_over_this", "xnord / this", 12, 2},
};

/* ---- the servers ---- */

static void start_xnord(const bench_options *o, server *s, char *backend, size_t size) {
    struct sockaddr_in address;
    bench_daemon_start(&s->process, o, NULL, &address);
    snprintf(s->url, URL, "http://127.0.0.1:%u/conv", (unsigned)ntohs(address.sin_port));
    ol_put_weights("bench", 1, 1, &address);
    bench_daemon_ready(&address, backend, size);
}

static void start_echo(const bench_options *o, server *s) {
    struct sockaddr_in address;
    bench_echo_start(&s->process, o, &address);
    snprintf(s->url, URL, "http://127.0.0.1:%u/", (unsigned)ntohs(address.sin_port));
}

static void start_peer(const bench_options *o, server *s) {
    char script[512], line[64];
    char *argv[] = {(char *)"python3", script, NULL};
    s->there = !system("python3 -c 'import torch, aiohttp' 2>/dev/null");
    if (!s->there)
        return;
    snprintf(script, sizeof script, "%s/peer_torch_server.py", o->scripts);
    bench_process_start(&s->process, argv, NULL, STDOUT_FILENO, "", line, sizeof line);
    snprintf(s->url, URL, "http://127.0.0.1:%d/conv", atoi(line));
}

/* ---- wrk ---- */

static int connections(const bench_options *o) {
    return o->connections ? o->connections : 32;
}

/* Each has a connection at least: else wrk refuses. */
static int threads(const bench_options *o, int cores) {
    const int most = cores > 4 ? 4 : 1;
    return most < connections(o) ? most : connections(o);
}

/* One round, into place `round`. */
static void load(const bench_options *o, const server *s, int side, int cores, int round,
                 rows *out) {
    char command[1024], line[512], query[32] = "";
    double v[5];
    bool found = false;
    if (s->asks_side)
        snprintf(query, sizeof query, "?side=%d", side);
    snprintf(command, sizeof command, "FORM=%s SIDE=%d wrk -t%d -c%d -d%gs -s '%s/post.lua' '%s%s'",
             s->form, side, threads(o, cores), connections(o), o->seconds > 0 ? o->seconds : 3,
             o->scripts, s->url, query);
    FILE *pipe = popen(command, "r");
    while (pipe && fgets(line, sizeof line, pipe))
        found = found ||
                sscanf(line, "RESULT %lf %lf %lf %lf %lf", &v[0], &v[1], &v[2], &v[3], &v[4]) == 5;
    if (!pipe || pclose(pipe) || !found)
        xn_bench_fail("wrk", "failed; it comes with deploy/install-deps.sh --with-bench");
    out->rate[round] = v[0];
    out->p50[round] = v[1];
    out->p90[round] = v[2];
    out->p99[round] = v[3];
    out->errors += v[4];
}

/* 1 when there were errors. */
static int run_side(const bench_options *o, const server *servers, const char *backend, int side,
                    xn_report *r) {
    static rows all[SERVERS];
    const int cores = bench_pin(NULL), rounds = bench_rounds(o);
    double xnord = NAN;
    int status = 0;
    memset(all, 0, sizeof all);
    for (int round = 0; round < rounds; round++) {
        char doing[48];
        snprintf(doing, sizeof doing, "round of %dx%d", side, side);
        xn_report_doing(r, round + 1, rounds, doing);
        for (int i = 0; i < SERVERS; i++)
            if (servers[i].there)
                load(o, &servers[i], side, cores, round, &all[i]);
    }
    for (int i = 0; i < SERVERS; i++) {
        if (!servers[i].there)
            continue;
        const xn_stats rate = xn_stats_of(all[i].rate, rounds);
        if (i == XNORD)
            xnord = rate.median;
        status = status || all[i].errors > 0;
        xn_report_row(r, XN_N(4 * side * side), XN_T(names[i]), XN_T(i == XNORD ? backend : ""),
                      XN_N(rate.median), XN_N(rate.least), XN_N(rate.most),
                      XN_N(xn_stats_of(all[i].p50, rounds).median),
                      XN_N(xn_stats_of(all[i].p90, rounds).median),
                      XN_N(xn_stats_of(all[i].p99, rounds).median), XN_N(all[i].errors),
                      XN_N(i == XNORD ? NAN : xnord / rate.median));
    }
    return status;
}

int bench_wrk(const bench_options *o) {
    server servers[SERVERS] = {[XNORD] = {.form = "oip", .there = true},
                               [ECHO] = {.form = "raw", .there = true},
                               [PEER] = {.form = "raw", .asks_side = true}};
    const int cores = bench_pin(NULL);
    const char *sides = o->sides;
    char backend[32], word[16];
    xn_report r;
    int status = 0;
    start_xnord(o, &servers[XNORD], backend, sizeof backend);
    start_echo(o, &servers[ECHO]);
    start_peer(o, &servers[PEER]);
    bench_pin(o->cpus); /* wrk's */
    xn_report_open(&r, o->json);
    printf(
        "xnord backend %s; wrk %d threads, %d connections, %g s x %d rounds; medians; %d cores\n",
        backend, threads(o, cores), connections(o), o->seconds > 0 ? o->seconds : 3, o->rounds,
        cores);
    xn_report_table(&r, columns, XN_COUNT(columns));
    while (bench_next_word(&sides, word, sizeof word))
        status |= run_side(o, servers, backend, atoi(word), &r);
    xn_report_close(&r);
    for (int i = 0; i < SERVERS; i++)
        bench_process_stop(&servers[i].process);
    return status;
}
