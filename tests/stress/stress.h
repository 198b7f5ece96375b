/* stress.h: what the parts of `make stress` share. They run a real daemon for minutes or hours,
 * print figures, and fail where a condition does: see tests/bench/BENCHMARKS.md. Sizes come from
 * the environment, so that a short run is possible. */
#ifndef XT_STRESS_H
#define XT_STRESS_H

#include "http/client/wire.h"

#include <stdio.h>

long st_number(const char *environment, long otherwise);

/* What must not grow. */
typedef struct st_usage {
    long rss_kb, descriptors, threads;
    double requests, bytes, queued, connections; /* the gauges */
} st_usage;

st_usage st_usage_of(const xt_daemon *daemon);
/* Waits until nothing is in flight and no connection but the asking one is open, checks that, and
 * that one request more is answered; what the daemon holds then. what: for messages. */
st_usage st_settle(const xt_daemon *daemon, const char *what);
void st_print_usage(const char *what, const st_usage *usage);

/* Many latencies; sorted by st_quantile. */
typedef struct st_times {
    double *ms;
    size_t count, size;
} st_times;

double st_now_ms(void);
void st_times_add(st_times *times, double ms);
double st_quantile(st_times *times, double share); /* 0 without any */
void st_times_free(st_times *times);

/* A request for an answer of (2 * side + 1)^2 floats and hardly any work: head and body. */
void st_large_answer(xt_buffer *out, int side);

#define ST_CASE(suite_, test_)                                                                     \
    do {                                                                                           \
        TCase *tcase_ = tcase_create(#test_);                                                      \
        tcase_set_timeout(tcase_, 7200 + (double)st_number("SOAK_SECONDS", 0));                    \
        tcase_add_checked_fixture(tcase_, NULL, xt_reap);                                          \
        tcase_add_test(tcase_, test_);                                                             \
        suite_add_tcase(suite_, tcase_);                                                           \
    } while (0)

#endif
