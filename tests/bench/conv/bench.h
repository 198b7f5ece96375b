/* bench.h: bench-conv's command line, and what a sub-command gets. */
#ifndef XN_BENCH_H
#define XN_BENCH_H

#include "../options.h"
#include "subject.h"

typedef struct xn_bench_options {
    const char *backend; /* NULL: all that this build and machine have */
    const char *path, *json, *peer, *opencv, *shapes, *mode, *kind;
    xn_texts only; /* a row's name has one of them; none: all rows */
    bool chosen, check_only;
    int batch; /* 0: all */
    int rounds, random, threads;
    double turn_ms; /* 0: the sub-command's */
    uint64_t seed;
} xn_bench_options;

typedef struct xn_bench_session {
    const xn_bench_options *options;
    xn_bench_device on;
    bool is_cuda;
    xn_report *report;
    int wrong, reached, missed; /* rows */
} xn_bench_session;

/* Whether --only and --batch take a row. */
bool xn_bench_wanted(const xn_bench_session *s, const char *name, int64_t images);
/* As --rounds and --ms say; NULL with --check-only. */
const xn_turns *xn_bench_how(const xn_bench_session *s, xn_turns *how);
/* "", "WRONG", and counted. */
const char *xn_bench_verdict(xn_bench_session *s, int64_t wrong);

/* Sub-commands, each in a file of its name. */
void xn_bench_layers(xn_bench_session *s);
void xn_bench_packed(xn_bench_session *s);
void xn_bench_few(xn_bench_session *s);
void xn_bench_real(xn_bench_session *s);
void xn_bench_shapes(xn_bench_session *s);
void xn_bench_random(xn_bench_session *s);
void xn_bench_paths(xn_bench_session *s);
void xn_bench_pack(xn_bench_session *s); /* on a GPU only */
void xn_bench_runs(xn_bench_session *s); /* on GPUs only */
void xn_bench_stages(xn_bench_session *s);
void xn_bench_network(xn_bench_session *s);
/* How many rows are wrong. */
int xn_bench_paper(const xn_bench_options *options, xn_report *report);
int xn_bench_sets(const xn_bench_options *options, xn_report *report);

#endif
