/* compare.h: `bench-http compare`: the same work of several servers, or sent in several ways, by
 * the same generator, in turns, round after round. */
#ifndef XN_BENCH_COMPARE_H
#define XN_BENCH_COMPARE_H

#include "load.h"

enum { BENCH_SIDES = 10 };

typedef struct bench_side {
    const char *name;
    bench_process process; /* pid 0: the one of another side */
    struct sockaddr_in server;
    ol_message message;
    bool is_echo;
} bench_side;

/* Each work fills one, compares as often as it has loads, and stops it. */
typedef struct bench_contest {
    const bench_options *o;
    xn_report *report;
    const char *work; /* the row's name */
    bench_side sides[BENCH_SIDES];
    int count;
    int connections;
    int images;    /* of a request */
    double asked;  /* of the second side, over the first; 0: nothing */
    double repeat; /* ol_plan */
    uint64_t seed; /* of the run before */
    double hits;   /* percent, that the last side counted; NAN: it has no cache */
    double failures;
} bench_contest;

/* Plays all rounds; then a row a side. */
void bench_play_sides(bench_contest *contest);
void bench_report_sides(bench_contest *contest);
/* Both, for each of these numbers of connections that --connections takes. */
void bench_compare_sides(bench_contest *contest, const int *connections, int count);
/* Frees the messages. */
void bench_contest_next(bench_contest *contest);
/* And stops the processes. */
void bench_contest_end(bench_contest *contest);
/* The echo ceiling. */
void bench_echo_side(const bench_options *o, bench_side *side);

/* ---- works, each in a file of its name: how many answers were not good ---- */

double bench_ways(const bench_options *o, xn_report *report, const char *name);
double bench_network(const bench_options *o, xn_report *report, const char *name);
double bench_devices(const bench_options *o, xn_report *report, const char *name);
double bench_cache(const bench_options *o, xn_report *report, const char *name);

#endif
