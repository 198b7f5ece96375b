/* turns.h: several things timed in turns, round after round, so that what else the machine does
 * meets all of them. */
#ifndef XN_BENCH_TURNS_H
#define XN_BENCH_TURNS_H

#include "device/device.h"

enum { XN_BENCH_SAMPLES = 2000 };

typedef struct xn_contender {
    const xn_bench_place *place; /* whose timer it is; NULL: takes no part */
    void *timer;
    double *samples; /* microseconds of a run */
    int count;
    xn_stats stats; /* of all its samples but the first of each turn */
} xn_contender;

/* What run enqueues on the place, or does by itself on the host. */
xn_contender xn_contender_make(const xn_bench_place *place, void (*run)(void *context),
                               void *context);

typedef struct xn_turns {
    int rounds, least; /* samples of a turn */
    double turn_us;    /* and more until it is over */
} xn_turns;

/* Fills stats, and frees the timers. */
void xn_bench_turns(xn_contender *sides, int count, const xn_turns *how);

#endif
