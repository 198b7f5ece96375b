/* subject.h: a problem on a device, ready to be timed: its plan, and its data where the kernels
 * read and write. */
#ifndef XN_BENCH_SUBJECT_H
#define XN_BENCH_SUBJECT_H

#include "data.h"
#include "turns.h"

typedef struct xn_subject {
    const xn_bench_device *on; /* borrowed */
    xn_bench_kind kind;
    xn_conv conv;
    int64_t images;
    xn_plan *plan;
    xn_prepared *prepared;
    void *input, *output, *threshold, *flip; /* the device's */
    size_t in_bytes, out_bytes;
} xn_subject;

/* Made and run once. False where the stream is held to a path that cannot run it. */
bool xn_subject_make(const xn_bench_device *on, const xn_bench_data *data,
                     const xn_bench_kind *kind, xn_subject *out);
void xn_subject_free(xn_subject *subject);
void xn_subject_run(void *subject); /* starts it: xn_bench_place */

/* How many of its outputs, after one run into poisoned memory, are wrong. */
int64_t xn_subject_count_wrong(const xn_subject *subject, xn_bench_data *data);

/* ---- measured ---- */

typedef struct xn_figures {
    char path[32];
    const char *precision; /* what the products were computed from */
    xn_stats ours, copy;   /* microseconds */
    double tops;           /* 10^12 operations a second, by the median */
    double cost_us;        /* what the chooser thinks it costs; NAN: it does not say */
    int64_t wrong;
} xn_figures;

/* Checks a kind of a problem and times it beside a copy of the same bytes, and beside `others`, of
 * which the stats are filled. Without `how` it is
 * only checked. False where the path that is asked for cannot run it. */
bool xn_bench_measure(const xn_bench_device *on, xn_bench_data *data, const xn_bench_kind *kind,
                      const xn_turns *how, xn_contender *others, int other_count, xn_figures *out);

/* The compute stage of `runs` whole runs of mode `mode`, as answers report it, in microseconds. */
xn_stats xn_bench_stage(const xn_bench_device *on, const xn_bench_shape *shape, xn_mode mode,
                        int runs);

#endif
