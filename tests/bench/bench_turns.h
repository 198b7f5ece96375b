/* bench_turns.h: several things timed in turns, round after round, so that what else the machine
 * does meets all of them. Before each turn is a pause in which the threads of the one before, which
 * spin for a while, go to sleep. */
#ifndef XN_BENCH_TURNS_H
#define XN_BENCH_TURNS_H

#include "bench.h"

enum { XN_BENCH_ROUNDS = 5, XN_BENCH_TURN_RUNS = 100 };

typedef struct xn_contender {
    void (*run)(void *context); /* NULL: takes no part */
    void *context;
    int64_t samples[XN_BENCH_ROUNDS * XN_BENCH_TURN_RUNS];
    int count;
    xn_bench_stats stats; /* of all its runs but the first of each turn */
} xn_contender;

/* A turn is some runs, at most TURN_RUNS and about 15 ms, and never fewer than two. */
void xn_bench_turns(xn_contender *sides, int count);

/* So many contenders that take no part yet; exits when there is no memory. */
xn_contender *xn_bench_contenders(int count);

#endif
