/* bench.h: bench-conv's command line, and what a measurement gets. */
#ifndef XN_BENCH_H
#define XN_BENCH_H

#include "../options.h"
#include "measure.h"

typedef struct xn_bench_options {
    const char *backend; /* NULL: all that this build and machine have */
    const char *of;      /* what `time` measures */
    xn_texts models;     /* folders */
    const char *path, *json, *peer, *opencv;
    xn_texts shapes, kinds;
    xn_texts only; /* a row's name has one of them; none: all rows */
    bool chosen, check_only, print_paths;
    int batch; /* 0: all */
    int rounds, random, threads;
    double turn_ms; /* 0: the measurement's */
    uint64_t seed;
} xn_bench_options;

typedef struct xn_rows xn_rows;

typedef struct xn_bench_session {
    const xn_bench_options *options;
    xn_rows *rows; /* what is measured */
    xn_bench_device on;
    bool is_cuda;
    xn_report *report;
    int wrong, reached, missed; /* rows */
} xn_bench_session;

/* As --rounds and --ms (else `ms`) say; NULL with --check-only. */
const xn_turns *xn_bench_how(const xn_bench_session *s, double ms, xn_turns *how);
/* "", "WRONG", and counted. */
const char *xn_bench_verdict(xn_bench_session *s, int64_t wrong);

/* Each in a file of its name. */
void xn_bench_kernels(xn_bench_session *s);
void xn_bench_stages(xn_bench_session *s);
void xn_bench_runs(xn_bench_session *s); /* on GPUs only */
void xn_bench_network(xn_bench_session *s);
void xn_bench_paths(xn_bench_session *s);

#endif
