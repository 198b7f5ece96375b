/* sets.c: `bench-conv sets`: every instruction set of the CPU that this machine has, in turns. */
#include "bench.h"

#include <string.h>

static const char *const sets[] = {"avx512-vpopcnt", "avx512", "avx2", "neon", "portable"};
enum { SETS = sizeof sets / sizeof *sets };

static const xn_bench_shape shapes[] = {XN_BENCH_LAYER(1, 1, 256),  XN_BENCH_LAYER(1, 1, 512),
                                        XN_BENCH_LAYER(1, 1, 1024), XN_BENCH_LAYER(1, 1, 2048),
                                        XN_BENCH_LAYER(1, 1, 4096), XN_BENCH_RESNET(1)};

static const xn_column columns[] = {
    {"workload", "images x channels x side", 24, XN_TEXT},
    {"mode", "mode", 5, XN_TEXT},
    {"instruction_set", "instruction set", 16, XN_TEXT},
    {"path", "path", 20, XN_TEXT},
    {"median_us", "median us", 10, 2},
    {"least_us", "least", 10, 2},
    {"of_portable", "faster", 6, 2},
    {"verdict", "", 5, XN_TEXT},
};

typedef struct bench {
    xn_bench_session session; /* of options and report */
    xn_bench_device on[SETS];
    bool has[SETS];
} bench;

static void run_shape(bench *b, const xn_bench_shape *shape, xn_mode mode) {
    char name[XN_BENCH_NAME];
    xn_contender sides[SETS] = {{0}};
    xn_subject subjects[SETS];
    int64_t wrong[SETS];
    xn_bench_data data;
    xn_turns how;
    xn_bench_name(shape, name);
    if (!xn_bench_wanted(&b->session, name, shape->images))
        return;
    xn_report_doing(b->session.report, 0, 0, name);
    xn_bench_data_make(shape, mode, &data);
    for (int i = 0; i < SETS; i++) {
        if (!b->has[i])
            continue;
        xn_subject_make(&b->on[i], &data, &data.kind, &subjects[i]);
        wrong[i] = xn_subject_count_wrong(&subjects[i], &data);
        sides[i] = xn_contender_make(b->on[i].place, xn_subject_run, &subjects[i]);
    }
    xn_bench_how(&b->session, &how);
    xn_bench_turns(sides, SETS, &how);
    for (int i = 0; i < SETS; i++) {
        if (!b->has[i])
            continue;
        xn_report_row(b->session.report, XN_T(name), XN_T(xn_mode_name(mode)), XN_T(sets[i]),
                      XN_T(xn_bench_path(&b->on[i], subjects[i].plan)), XN_N(sides[i].stats.median),
                      XN_N(sides[i].stats.least),
                      XN_N(sides[SETS - 1].stats.median / sides[i].stats.median),
                      XN_T(xn_bench_verdict(&b->session, wrong[i])));
        xn_subject_free(&subjects[i]);
    }
    xn_bench_data_free(&data);
}

int xn_bench_sets(const xn_bench_options *options, xn_report *report) {
    static const xn_bench_shape real = XN_BENCH_LAYER(1, 64, 56);
    bench b = {.session = {.options = options, .report = report}};
    const xn_stream_options stream = {.threads = options->threads};
    for (int i = 0; i < SETS; i++)
        b.has[i] = xn_bench_open("cpu", &stream, sets[i], &b.on[i]);
    puts("each instruction set of the CPU; faster: than portable");
    xn_report_table(report, columns, XN_COUNT(columns));
    for (int i = 0; i < XN_COUNT(shapes); i++)
        run_shape(&b, &shapes[i], XN_MODE_XNOR);
    run_shape(&b, &real, XN_MODE_FLOAT);
    for (int i = 0; i < SETS; i++)
        if (b.has[i])
            xn_bench_close(&b.on[i]);
    return b.session.wrong;
}
