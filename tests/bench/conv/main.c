/* main.c: bench-conv: how fast convolutions are, on the CPU and on a GPU; two sides in one run, and
 * every output checked before it is timed. `bench-conv help` lists the sub-commands. */
#include "bench.h"

#include <omp.h>
#include <string.h>

typedef struct command {
    const char *name, *what;
    const char *backend; /* where it runs if none is named; NULL: wherever there is a device */
    void (*run)(xn_bench_session *session);
    /* or one that opens devices itself; how many rows are wrong */
    int (*run_all)(const xn_bench_options *options, xn_report *report);
} command;

static const command commands[] = {
    {"layers", "the layers with a target, beside a copy, the peak and a peer", NULL,
     xn_bench_layers, NULL},
    {"packed", "many channels, packed and real, beside the peak", NULL, xn_bench_packed, NULL},
    {"few", "few channels beside a copy of the same bytes", NULL, xn_bench_few, NULL},
    {"real", "modes float and bwn", NULL, xn_bench_real, NULL},
    {"shapes", "143 other shapes on every path, each against its floor", "cuda", xn_bench_shapes,
     NULL},
    {"random", "the same on --random shapes of --seed", "cuda", xn_bench_random, NULL},
    {"paths", "a row a path and shape, with what the chooser thought it costs: to fit costs",
     "cuda", xn_bench_paths, NULL},
    {"pack", "binarise and pack on a GPU beside reading and copying the same bytes", "cuda",
     xn_bench_pack, NULL},
    {"runs", "whole runs on GPUs from host memory, without copies beside with", "cuda",
     xn_bench_runs, NULL},
    {"stage", "the compute stage as answers report it", NULL, xn_bench_stages, NULL},
    {"network", "Bi-Real-18: the compute stage, on the CPU step by step", NULL, xn_bench_network,
     NULL},
    {"paper", "the paper's three tables beside its published figures", NULL, NULL, xn_bench_paper},
    {"sets", "each instruction set of the CPU", "cpu", NULL, xn_bench_sets},
};

static xn_bench_options o = {.rounds = 5, .random = 100, .seed = 1};

static const xn_option options[] = {
    {"backend", XN_OPTION_TEXT, &o.backend, "NAME", "cpu or cuda; else both, or what it is for"},
    {"path", XN_OPTION_TEXT, &o.path, "NAME", "by that path only, such as bitgemm/avx2"},
    {"only", XN_OPTION_TEXTS, &o.only, "TEXT", "rows with that in their name; again: or that"},
    {"batch", XN_OPTION_COUNT, &o.batch, "N", "rows of so many images"},
    {"chosen", XN_OPTION_FLAG, &o.chosen, "", "shapes: time only the path that the plan chose"},
    {"check-only", XN_OPTION_FLAG, &o.check_only, "", "check the outputs, time nothing"},
    {"rounds", XN_OPTION_COUNT, &o.rounds, "N", "turns of each side (5)"},
    {"ms", XN_OPTION_NUMBER, &o.turn_ms, "N", "length of a turn (15; shapes: 2)"},
    {"threads", XN_OPTION_COUNT, &o.threads, "N", "of the CPU"},
    {"kind", XN_OPTION_TEXT, &o.kind, "NAME",
     "shapes, random, paths: fp32, fp16, packed-int32, packed-fp16, packed (bits to bits), int32"},
    {"mode", XN_OPTION_TEXT, &o.mode, "NAME", "real: float or bwn only"},
    {"random", XN_OPTION_COUNT, &o.random, "N", "random, paths: shapes to draw (100)"},
    {"seed", XN_OPTION_SEED, &o.seed, "N", "of the first of them (1); each has its own"},
    {"shapes", XN_OPTION_TEXT, &o.shapes, "FILE",
     "paths: of each line the shape IMAGES CHANNELS SIDE FILTERS KERNEL STRIDE DILATION GROUPS; "
     "built-in: those of shapes; layers: those of layers"},
    {"peer", XN_OPTION_TEXT, &o.peer, "COMMAND", "prints cuDNN's figures; none: no peers at all"},
    {"opencv", XN_OPTION_TEXT, &o.opencv, "COMMAND",
     "layers: prints figures of filter2D; the number of threads is added to it"},
    {"json", XN_OPTION_TEXT, &o.json, "FILE", "the rows, as an array of objects"},
};

static int usage(FILE *out) {
    fputs("usage: bench-conv COMMAND [option ...]\n", out);
    for (int i = 0; i < XN_COUNT(commands); i++)
        fprintf(out, "  %-22s %s\n", commands[i].name, commands[i].what);
    fputs("options:\n", out);
    xn_options_help(out, options, XN_COUNT(options));
    return out == stdout ? 0 : 2;
}

/* ---- what sub-commands share ---- */

bool xn_bench_wanted(const xn_bench_session *s, const char *name, int64_t images) {
    const xn_texts *only = &s->options->only;
    bool named = !only->count;
    for (int i = 0; i < only->count; i++)
        named = named || strstr(name, only->text[i]);
    return named && (!s->options->batch || s->options->batch == images);
}

const xn_turns *xn_bench_how(const xn_bench_session *s, xn_turns *how) {
    const double ms = s->options->turn_ms;
    *how = (xn_turns){s->options->rounds, 2, 1e3 * (ms > 0 ? ms : 15)};
    return s->options->check_only ? NULL : how;
}

const char *xn_bench_verdict(xn_bench_session *s, int64_t wrong) {
    s->wrong += wrong != 0;
    return wrong ? "WRONG" : "";
}

/* ---- the run ---- */

/* False where this build or machine has no such device. */
static bool run_on(const command *c, const char *backend, xn_report *report, int *wrong) {
    const xn_stream_options stream = {.threads = o.threads, .path = o.path};
    xn_bench_session s = {.options = &o, .is_cuda = !strcmp(backend, "cuda"), .report = report};
    if (!xn_bench_open(backend, &stream, NULL, &s.on))
        return false;
    printf("\n%s: %s (%s)\n", c->name, s.on.info.id, s.on.info.description);
    c->run(&s);
    xn_bench_close(&s.on);
    if (s.reached + s.missed)
        printf("%d targets reached, %d missed; ", s.reached, s.missed);
    printf("%d rows wrong\n", s.wrong);
    *wrong += s.wrong;
    return true;
}

static int run(const command *c) {
    static const char *const backends[] = {"cpu", "cuda"};
    const char *only = o.backend ? o.backend : c->backend;
    xn_report report;
    int wrong = 0;
    if (o.threads)
        omp_set_num_threads(o.threads); /* of copies and peaks too */
    xn_report_open(&report, o.json);
    if (c->run_all && (!only || !c->backend || !strcmp(only, c->backend)))
        wrong = c->run_all(&o, &report);
    for (int i = 0; c->run && i < XN_COUNT(backends); i++)
        if ((!only || !strcmp(only, backends[i])) && !run_on(c, backends[i], &report, &wrong))
            printf("%s: %s: no device on this machine, or not in this build\n", c->name,
                   backends[i]);
    xn_report_close(&report);
    return wrong != 0;
}

int main(int argc, char **argv) {
    char **rest;
    if (argc > 1 && (!strcmp(argv[1], "help") || !strcmp(argv[1], "--help")))
        return usage(stdout);
    for (int i = 0; argc > 1 && i < XN_COUNT(commands); i++)
        if (!strcmp(argv[1], commands[i].name)) {
            if (!xn_options_parse(argc, argv, options, XN_COUNT(options), &rest) || !o.rounds)
                return 2;
            return run(&commands[i]);
        }
    return usage(stderr);
}
