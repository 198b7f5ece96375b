/* paper.c: `bench-conv paper`: the three tables of Kaya, Inci and Temizel (arXiv 2007.14178):
 * vanilla against XNOR convolution on the GPU, CPU against GPU for each; one channel, 3x3, mean of
 * 100 runs, computation only; beside the published figures (GTX 1080 Ti, 4-core i7). And
 * `bench-conv stage`: the same stage of other layers. */
#include "bench.h"

#define RUNS 100
#define SIZES 4

static const int64_t sides[SIZES] = {256, 512, 1024, 2048};

typedef struct {
    const char *name;
    const char *backend;
    xn_mode mode;
    double published_ms[SIZES];
    double ms[SIZES]; /* measured here; 0: no such device */
} series;

static series all[] = {
    {"vanilla CPU", "cpu", XN_MODE_FLOAT, {3.437, 10.623, 35.811, 132.714}, {0}},
    {"XNOR CPU", "cpu", XN_MODE_XNOR, {0.743, 2.531, 10.088, 42.011}, {0}},
    {"vanilla GPU", "cuda", XN_MODE_FLOAT, {0.062, 0.186, 0.671, 2.641}, {0}},
    {"XNOR GPU", "cuda", XN_MODE_XNOR, {0.024, 0.069, 0.252, 0.986}, {0}},
};
enum { VANILLA_CPU, XNOR_CPU, VANILLA_GPU, XNOR_GPU, SERIES };

static void measure(series *s) {
    xn_bench_device on;
    if (!xn_bench_open(s->backend, NULL, NULL, &on))
        return;
    for (int i = 0; i < SIZES; i++) {
        const xn_bench_shape shape = XN_BENCH_LAYER(1, 1, sides[i]);
        s->ms[i] = xn_bench_stage(&on, &shape, s->mode, RUNS).mean / 1e3;
    }
    printf("%-12s measured on %s: %s\n", s->name, on.info.id, on.info.description);
    xn_bench_close(&on);
}

static double ratio(double slow, double fast) {
    return slow > 0 && fast > 0 ? slow / fast : NAN;
}

static void table(xn_report *report, const series *slow, const series *fast) {
    const xn_column columns[] = {
        {"table", "", 26, XN_TEXT},       {"side", "side", 5, 0},
        {"slow_ms", slow->name, 11, 4},   {"fast_ms", fast->name, 11, 4},
        {"ratio", "ratio", 6, 2},         {"published_slow_ms", "published", 11, 3},
        {"published_fast_ms", "", 11, 3}, {"published_ratio", "ratio", 6, 2},
    };
    char title[64];
    snprintf(title, sizeof title, "%s, %s", slow->name, fast->name);
    putchar('\n');
    xn_report_table(report, columns, XN_COUNT(columns));
    for (int i = 0; i < SIZES; i++)
        xn_report_row(
            report, XN_T(title), XN_N(sides[i]), XN_N(slow->ms[i] > 0 ? slow->ms[i] : NAN),
            XN_N(fast->ms[i] > 0 ? fast->ms[i] : NAN), XN_N(ratio(slow->ms[i], fast->ms[i])),
            XN_N(slow->published_ms[i]), XN_N(fast->published_ms[i]),
            XN_N(ratio(slow->published_ms[i], fast->published_ms[i])));
}

int xn_bench_paper(const xn_bench_options *options, xn_report *report) {
    (void)options;
    puts("one channel, 3x3, padding 1, fp32, mean of 100 runs, computation only; milliseconds");
    for (int s = 0; s < SERIES; s++)
        measure(&all[s]);
    table(report, &all[VANILLA_GPU], &all[XNOR_GPU]);
    table(report, &all[VANILLA_CPU], &all[VANILLA_GPU]);
    table(report, &all[XNOR_CPU], &all[XNOR_GPU]);
    report->columns = NULL; /* they end here */
    return 0;
}

/* ---- stage ---- */

static const xn_bench_shape layers[] = {XN_BENCH_LAYER(1, 1, 256),  XN_BENCH_LAYER(1, 1, 512),
                                        XN_BENCH_LAYER(1, 1, 1024), XN_BENCH_LAYER(1, 1, 2048),
                                        XN_BENCH_RESNET(1),         XN_BENCH_RESNET(64)};

static const xn_column stage_columns[] = {
    {"backend", NULL, 0, XN_TEXT},    {"workload", "images x channels x side", 24, XN_TEXT},
    {"median_us", "median us", 9, 2}, {"p10_us", "p10", 9, 2},
    {"p90_us", "p90", 9, 2},          {"tops", "Tops", 8, 3},
};

void xn_bench_stages(xn_bench_session *s) {
    puts("3x3, padding 1, fp32 in and out, K and alpha; launching is in it");
    xn_report_table(s->report, stage_columns, XN_COUNT(stage_columns));
    for (int i = 0; i < XN_COUNT(layers); i++) {
        const xn_conv conv = xn_bench_resolve(&layers[i], &xn_bench_kinds[XN_BENCH_FP32]);
        char name[XN_BENCH_NAME];
        xn_bench_name(&layers[i], name);
        if (!xn_bench_wanted(s, name, layers[i].images))
            continue;
        xn_report_doing(s->report, i + 1, XN_COUNT(layers), name);
        const xn_stats us = xn_bench_stage(&s->on, &layers[i], XN_MODE_XNOR, 31);
        xn_report_row(s->report, XN_T(s->on.info.id), XN_T(name), XN_N(us.median), XN_N(us.p10),
                      XN_N(us.p90),
                      XN_N(xn_bench_operations(&conv, layers[i].images) / us.median / 1e6));
    }
}
