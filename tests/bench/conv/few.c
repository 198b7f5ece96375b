/* few.c: `bench-conv few`: convolutions of few channels, K and alpha applied, beside a copy of the
 * same bytes. */
#include "bench.h"

typedef struct problem {
    xn_bench_shape shape;
    int kind;
} problem;

#define SAME(N, C, SIDE, O, K, S, G, KIND)                                                         \
    { {N, C, SIDE, O, K, S, (K) / 2, 1, G}, XN_BENCH_##KIND }

static const problem problems[] = {
    SAME(1, 1, 64, 1, 3, 1, 1, FP32),        SAME(1, 1, 128, 1, 3, 1, 1, FP32),
    SAME(1, 1, 256, 1, 3, 1, 1, FP32),       SAME(1, 1, 384, 1, 3, 1, 1, FP32),
    SAME(1, 1, 512, 1, 3, 1, 1, FP32),       SAME(1, 1, 1024, 1, 3, 1, 1, FP32),
    SAME(1, 1, 2048, 1, 3, 1, 1, FP32),      SAME(1, 1, 4096, 1, 3, 1, 1, FP32),
    SAME(1, 1, 8192, 1, 3, 1, 1, FP32),      SAME(1, 1, 1023, 1, 3, 1, 1, FP32),
    SAME(1, 1, 2048, 1, 3, 1, 1, FP16),      SAME(1, 1, 4096, 1, 3, 1, 1, FP16),
    SAME(1, 1, 1024, 1, 5, 1, 1, FP32),      SAME(1, 1, 4096, 1, 5, 1, 1, FP32),
    SAME(1, 1, 1024, 1, 7, 1, 1, FP32),      SAME(1, 1, 4096, 1, 7, 1, 1, FP32),
    SAME(1, 1, 512, 16, 3, 1, 1, FP32),      SAME(1, 1, 1024, 16, 3, 1, 1, FP32),
    SAME(64, 1, 128, 1, 3, 1, 1, FP32),      SAME(1, 3, 1024, 1, 3, 1, 1, FP32),
    SAME(1, 3, 512, 16, 3, 1, 1, FP32),      SAME(16, 3, 224, 64, 3, 1, 1, FP32),
    SAME(1, 3, 224, 64, 7, 1, 1, FP32),      SAME(16, 3, 224, 64, 7, 2, 1, FP32),
    SAME(1, 8, 512, 1, 3, 1, 1, FP32),       SAME(1, 8, 256, 16, 3, 1, 1, FP32),
    SAME(1, 8, 1024, 8, 3, 1, 1, FP32),      SAME(1, 8, 512, 8, 5, 1, 1, FP32),
    SAME(1, 64, 112, 64, 3, 1, 64, FP32),    SAME(16, 64, 56, 64, 3, 1, 64, FP32),
    SAME(16, 512, 14, 512, 3, 1, 512, FP32),
};

static const xn_column columns[] = {
    {"backend", NULL, 0, XN_TEXT},    {"problem", "images x channels x side", 26, XN_TEXT},
    {"kind", "", 12, XN_TEXT},        {"path", "path", 17, XN_TEXT},
    {"median_us", "median us", 9, 2}, {"least_us", "least", 9, 2},
    {"p10_us", "p10", 9, 2},          {"p90_us", "p90", 9, 2},
    {"copy_us", "copy", 9, 2},        {"copy_least_us", "least", 9, 2},
    {"copies", "x copy", 6, 2},       {"ns_an_output", "ns/out", 7, 4},
    {"verdict", "", 5, XN_TEXT},
};

static void run_problem(xn_bench_session *s, const problem *p) {
    char name[XN_BENCH_NAME];
    xn_bench_data data;
    xn_turns turns;
    xn_figures f;
    xn_bench_name(&p->shape, name);
    if (!xn_bench_wanted(s, name, p->shape.images))
        return;
    xn_report_doing(s->report, (int)(p - problems) + 1, XN_COUNT(problems), name);
    xn_bench_data_make(&p->shape, XN_MODE_XNOR, &data);
    const double outputs = (double)(p->shape.images * xn_conv_output_elements(&data.conv));
    if (xn_bench_measure(&s->on, &data, &xn_bench_kinds[p->kind], xn_bench_how(s, &turns), NULL, 0,
                         &f))
        xn_report_row(s->report, XN_T(s->on.info.id), XN_T(name),
                      XN_T(xn_bench_kinds[p->kind].name), XN_T(f.path), XN_N(f.ours.median),
                      XN_N(f.ours.least), XN_N(f.ours.p10), XN_N(f.ours.p90), XN_N(f.copy.median),
                      XN_N(f.copy.least), XN_N(f.ours.median / f.copy.median),
                      XN_N(1e3 * f.ours.median / outputs), XN_T(xn_bench_verdict(s, f.wrong)));
    xn_bench_data_free(&data);
}

void xn_bench_few(xn_bench_session *s) {
    puts("K and alpha, padding same; copy: the same bytes");
    xn_report_table(s->report, columns, XN_COUNT(columns));
    for (int i = 0; i < XN_COUNT(problems); i++)
        run_problem(s, &problems[i]);
}
