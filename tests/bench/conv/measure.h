/* measure.h: a problem on a device: its data where the kernels read and write them, its plans,
 * whether their outputs are right, and how long they take. */
#ifndef XN_BENCH_MEASURE_H
#define XN_BENCH_MEASURE_H

#include "data.h"
#include "turns.h"

enum { XN_BENCH_TERMS = 600 /* characters */ };

/* A way to run it, and what came of it. */
typedef struct xn_figures {
    xn_stream *stream; /* given: the one that it is planned on */
    bool is_timed;     /* given */
    xn_plan *plan;
    char path[32];              /* "": this stream cannot run it, and nothing else is filled */
    const char *precision;      /* what the products were computed from */
    double cost_us;             /* what the chooser thinks it costs; NAN: it does not say */
    char terms[XN_BENCH_TERMS]; /* what that is made of; "": likewise */
    xn_stats us;                /* samples 0: not timed, and the others NAN */
    double tops;                /* 10^12 operations a second, by the median */
    int64_t wrong;              /* outputs, after a run into poisoned memory */
} xn_figures;

/* Checks each of `count` ways and times those that are to be, in turns, beside a copy of the same
 * bytes and beside `others`, of which the stats are filled. how: NULL to check alone. The copy's
 * times. */
xn_stats xn_bench_measure(const xn_bench_device *on, xn_bench_data *data, const xn_bench_kind *kind,
                          const xn_turns *how, xn_figures *ways, int count, xn_contender *others,
                          int other_count);
/* The same of the device's own stream alone. False where it is held to a path that cannot. */
bool xn_bench_measure_one(const xn_bench_device *on, xn_bench_data *data, const xn_bench_kind *kind,
                          const xn_turns *how, xn_contender *others, int other_count,
                          xn_figures *out, xn_stats *copy);

#endif
