/* main.c: bench-conv: how fast convolutions are, on the CPU and on a GPU; two sides in one run, and
 * every output checked before it is timed. `bench-conv help` lists what can be asked. */
#include "rows.h"

#include <omp.h>
#include <string.h>

typedef struct measurement {
    const char *command, *of; /* of: NULL: the command has that one alone */
    const char *what;
    const char *backend; /* where it runs if none is named; NULL: wherever there is a device */
    void (*run)(xn_bench_session *session);
} measurement;

static const measurement measurements[] = {
    {"time", "kernel", "convolutions alone, beside a copy, the peak and peers", NULL,
     xn_bench_kernels},
    {"time", "stage", "the compute stage as answers report it", NULL, xn_bench_stages},
    {"time", "runs", "whole runs on GPUs from host memory, without copies beside with", "cuda",
     xn_bench_runs},
    {"time", "network", "whole networks: the compute stage, and step by step: --model", NULL,
     xn_bench_network},
    {"paths", NULL, "every path of a row, what the chooser thinks it costs, and its floor", NULL,
     xn_bench_paths},
};

static xn_bench_options o = {.of = "kernel", .rounds = 5, .seed = 1};

static const xn_option options[] = {
    {"of", XN_OPTION_TEXT, &o.of, "NAME", "time: kernel (as it is without), stage, ..."},
    {"shapes", XN_OPTION_TEXTS, &o.shapes, "FILE",
     "a path, or a name such as layers: a file of tests/bench/conv/shapes/; again: and that"},
    {"random", XN_OPTION_COUNT, &o.random, "N", "and so many random shapes"},
    {"seed", XN_OPTION_SEED, &o.seed, "N", "of the first of them (1); each has its own"},
    {"kind", XN_OPTION_TEXTS, &o.kinds, "NAME", "in place of those of the lines; again: and that"},
    {"model", XN_OPTION_TEXTS, &o.models, "FOLDER",
     "network, runs: a model folder; again: and that"},
    {"only", XN_OPTION_TEXTS, &o.only, "TEXT", "rows with that in their name; again: or that"},
    {"batch", XN_OPTION_COUNT, &o.batch, "N", "rows of so many images"},
    {"backend", XN_OPTION_TEXT, &o.backend, "NAME", "cpu or cuda; else both, or what it is for"},
    {"path", XN_OPTION_TEXT, &o.path, "NAME", "by that path only, such as bitgemm/avx2"},
    {"chosen", XN_OPTION_FLAG, &o.chosen, "", "paths: time only the path that the plan chose"},
    {"print-paths", XN_OPTION_FLAG, &o.print_paths, "",
     "paths: below each row what its cost is made of, counts by nanoseconds"},
    {"check-only", XN_OPTION_FLAG, &o.check_only, "", "check the outputs, time nothing"},
    {"rounds", XN_OPTION_COUNT, &o.rounds, "N", "turns of each side (5)"},
    {"ms", XN_OPTION_NUMBER, &o.turn_ms, "N",
     "length of a turn (kernel: 15; paths: 2; runs: 100; network: 200)"},
    {"threads", XN_OPTION_COUNT, &o.threads, "N", "of the CPU"},
    {"peer", XN_OPTION_TEXT, &o.peer, "COMMAND", "prints cuDNN's figures; none: no peers at all"},
    {"opencv", XN_OPTION_TEXT, &o.opencv, "COMMAND",
     "prints figures of filter2D; the number of threads is added to it"},
    {"json", XN_OPTION_TEXT, &o.json, "FILE", "the rows, as an array of objects"},
};

static int usage(FILE *out) {
    fputs("usage: bench-conv time|paths [option ...]\n", out);
    for (int i = 0; i < XN_COUNT(measurements); i++) {
        const measurement *m = &measurements[i];
        char name[32];
        snprintf(name, sizeof name, "%s%s%s", m->command, m->of ? " --of " : "",
                 m->of ? m->of : "");
        fprintf(out, "  %-22s %s\n", name, m->what);
    }
    fputs("options:\n", out);
    xn_options_help(out, options, XN_COUNT(options));
    fputs("kinds:", out);
    for (int i = 0; i < XN_BENCH_KINDS; i++)
        fprintf(out, " %s", xn_bench_kinds[i].name);
    fputc('\n', out);
    return out == stdout ? 0 : 2;
}

/* ---- what measurements share ---- */

const xn_turns *xn_bench_how(const xn_bench_session *s, double ms, xn_turns *how) {
    *how = (xn_turns){s->options->rounds, 2,
                      1e3 * (s->options->turn_ms > 0 ? s->options->turn_ms : ms)};
    return s->options->check_only ? NULL : how;
}

const char *xn_bench_verdict(xn_bench_session *s, int64_t wrong) {
    s->wrong += wrong != 0;
    return wrong ? "WRONG" : "";
}

/* ---- the run ---- */

/* How many rows are wrong. */
static int run_on(const measurement *m, const char *backend, xn_rows *rows, xn_report *report) {
    const xn_stream_options stream = {.threads = o.threads, .path = o.path};
    xn_bench_session s = {
        .options = &o, .rows = rows, .is_cuda = !strcmp(backend, "cuda"), .report = report};
    if (!xn_bench_open(backend, &stream, NULL, &s.on)) {
        printf("%s: no device on this machine, or not in this build\n", backend);
        return 0;
    }
    printf("\n%s: %s (%s)\n", m->of ? m->of : m->command, s.on.info.id, s.on.info.description);
    m->run(&s);
    xn_bench_close(&s.on);
    if (s.reached + s.missed)
        printf("%d targets reached, %d missed; ", s.reached, s.missed);
    printf("%d rows wrong\n", s.wrong);
    return s.wrong;
}

static int run(const measurement *m) {
    static const char *const backends[] = {"cpu", "cuda"};
    const char *only = o.backend ? o.backend : m->backend;
    xn_rows *rows = xn_rows_make(&o, !only || strcmp(only, "cuda") != 0);
    xn_report report;
    int wrong = 0;
    if (!rows->count && m->run != xn_bench_network)
        xn_bench_fail("nothing to measure", "name --shapes or --random");
    if (o.threads)
        omp_set_num_threads(o.threads); /* of copies and peaks too */
    xn_report_open(&report, o.json);
    for (int i = 0; i < XN_COUNT(backends); i++)
        if (!only || !strcmp(only, backends[i]))
            wrong += run_on(m, backends[i], rows, &report);
    xn_report_close(&report);
    xn_rows_free(rows);
    return wrong != 0;
}

int main(int argc, char **argv) {
    char **rest;
    if (argc > 1 && (!strcmp(argv[1], "help") || !strcmp(argv[1], "--help")))
        return usage(stdout);
    if (argc < 2)
        return usage(stderr);
    if (!xn_options_parse(argc, argv, options, XN_COUNT(options), &rest) || !o.rounds)
        return 2;
    for (int i = 0; i < XN_COUNT(measurements); i++)
        if (!strcmp(argv[1], measurements[i].command) &&
            (!measurements[i].of || !strcmp(o.of, measurements[i].of)))
            return run(&measurements[i]);
    return usage(stderr);
}
