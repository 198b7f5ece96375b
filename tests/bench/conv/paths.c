/* paths.c: `bench-conv paths`: each row on every path that can run it, in turns, and against its
 * own floor, so that a cliff shows, and a wrong choice. The floor is the largest of a copy of the
 * same bytes in the same run, a launch, and the operations at the rate that instructions alone
 * reach; which of them it is stands beside it. */
#include "rows.h"

#include "xn_mem.h"

#include <stdlib.h>
#include <string.h>

enum { PATHS = 48, FARTHEST = 20 };
#define LAUNCH_US 1.2 /* an empty kernel's share of a graph of launches */

/* What the summary says of a row. */
typedef struct result {
    char name[2 * XN_BENCH_NAME], path[32];
    double us, best_us, floor_us;
    const char *floor_by;
} result;

typedef struct bench {
    xn_bench_session *s;
    int path_count;
    const char *names[PATHS];
    xn_stream *streams[PATHS]; /* each held to its path */
    double peak_binary, peak_real;
    result *results;
    int count;
} bench;

static void open_paths(bench *b) {
    for (int i = 0; i < PATHS; i++) {
        b->streams[i] = xn_bench_path_stream(&b->s->on, i, &b->names[i]);
        if (!b->streams[i])
            return;
        b->path_count++;
    }
    xn_bench_fail("paths", "the device has more than this program knows room for");
}

/* ---- measuring ---- */

/* The path that the plan chooses; -1: it cannot run that, or not by the path of --path. */
static int choose(const bench *b, const xn_row *r, const xn_bench_data *data) {
    const xn_bench_device *on = &b->s->on;
    const xn_conv conv = xn_bench_resolve(&r->shape, r->kind);
    xn_prepared *prepared =
        xn_bench_prepare(on, r->kind->packed_output ? data->bit_weights : data->weights);
    int chosen = -1;
    xn_plan *plan;
    if (xn_bench_plan(on, on->stream, &conv, r->shape.images, r->kind, prepared, &plan)) {
        for (int i = 0; i < b->path_count; i++)
            if (!strcmp(b->names[i], xn_bench_path(on, plan)))
                chosen = i;
        on->backend->plan_free(plan);
    }
    on->backend->weights_free(prepared);
    return chosen;
}

static void find_floor(const bench *b, const xn_row *r, double copy_us, result *out) {
    const xn_conv conv = xn_bench_resolve(&r->shape, r->kind);
    const double peak = r->kind->mode == XN_MODE_XNOR ? b->peak_binary : b->peak_real;
    const double matrix = xn_bench_operations(&conv, r->shape.images) / peak / 1e6; /* or NAN */
    out->floor_us = b->s->is_cuda ? LAUNCH_US : 0;
    out->floor_by = "launch";
    if (copy_us > out->floor_us) {
        out->floor_us = copy_us;
        out->floor_by = "copy";
    }
    if (matrix > out->floor_us) {
        out->floor_us = matrix;
        out->floor_by = "matrix";
    }
}

static const xn_column columns[] = {
    {"backend", NULL, 0, XN_TEXT}, {"shape", "shape", 46, XN_TEXT},
    {"kind", NULL, 0, XN_TEXT},    {"images", NULL, 0, 0},
    {"channels", NULL, 0, 0},      {"side", NULL, 0, 0},
    {"filters", NULL, 0, 0},       {"kernel", NULL, 0, 0},
    {"stride", NULL, 0, 0},        {"padding", NULL, 0, 0},
    {"dilation", NULL, 0, 0},      {"groups", NULL, 0, 0},
    {"path", "path", 24, XN_TEXT}, {"us", "us", 10, 2},
    {"least_us", "least", 10, 2},  {"cost_us", "predicted", 10, 2},
    {"chosen", "chosen", 6, 0},    {"best", "best", 6, 0},
    {"of_best", "x best", 6, 2},   {"floor_us", "floor us", 9, 2},
    {"floor", "by", 6, XN_TEXT},   {"of_floor", "x floor", 7, 2},
    {"terms", NULL, 0, XN_TEXT},   {"verdict", "", 5, XN_TEXT},
};

static void report(bench *b, const xn_row *r, const xn_figures *ways, int chosen, int best,
                   const result *of) {
    const xn_bench_shape *s = &r->shape;
    for (int i = 0; i < b->path_count; i++) {
        const xn_figures *f = &ways[i];
        const double us = f->us.median;
        if (f->us.samples || f->wrong) {
            xn_report_row(b->s->report, XN_T(b->s->on.info.id), XN_T(r->name), XN_T(r->kind->name),
                          XN_N(s->images), XN_N(s->channels), XN_N(s->side), XN_N(s->filters),
                          XN_N(s->kernel), XN_N(s->stride), XN_N(s->padding), XN_N(s->dilation),
                          XN_N(s->groups), XN_T(b->names[i]), XN_N(us), XN_N(f->us.least),
                          XN_N(f->cost_us), XN_N(i == chosen), XN_N(i == best),
                          XN_N(us / of->best_us), XN_N(of->floor_us), XN_T(of->floor_by),
                          XN_N(us / of->floor_us), XN_T(f->terms),
                          XN_T(xn_bench_verdict(b->s, f->wrong)));
            if (b->s->options->print_paths && f->terms[0])
                printf("    %s: %s\n", b->names[i], f->terms);
        }
    }
}

static void run_row(bench *b, const xn_row *r) {
    static xn_figures ways[PATHS];
    const xn_bench_options *o = b->s->options;
    xn_bench_data data;
    xn_turns turns;
    xn_bench_data_make(&r->shape, r->kind->mode, &data);
    const int chosen = choose(b, r, &data);
    int best = chosen;
    for (int i = 0; i < b->path_count; i++)
        ways[i] = (xn_figures){.stream = b->streams[i],
                               .is_timed = !(o->chosen || o->path) || i == chosen};
    if (chosen >= 0) {
        const xn_stats copy = xn_bench_measure(
            &b->s->on, &data, r->kind, xn_bench_how(b->s, 2, &turns), ways, b->path_count, NULL, 0);
        for (int i = 0; i < b->path_count; i++)
            if (ways[i].us.median < ways[best].us.median)
                best = i;
        result *of = &b->results[b->count++];
        *of = (result){.us = ways[chosen].us.median, .best_us = ways[best].us.median};
        snprintf(of->name, sizeof of->name, "%s", r->name);
        snprintf(of->path, sizeof of->path, "%s", b->names[chosen]);
        find_floor(b, r, copy.median, of);
        report(b, r, ways, chosen, best, of);
    }
    xn_bench_data_free(&data);
}

/* ---- the summary ---- */

static int farthest_first(const void *a, const void *b) {
    const result *x = a, *y = b;
    const double of_x = x->us / x->floor_us, of_y = y->us / y->floor_us;
    return (of_x < of_y) - (of_x > of_y);
}

static void summarise(const bench *b) {
    double logarithms = 0, worst = 1;
    int over_5 = 0, over_10 = 0;
    if (b->s->options->check_only || !b->count)
        return;
    for (int i = 0; i < b->count; i++) {
        const double ratio = b->results[i].us / b->results[i].best_us;
        logarithms += log(ratio);
        over_5 += ratio > 1.05;
        over_10 += ratio > 1.10;
        worst = fmax(worst, ratio);
    }
    printf("%d shapes: the choice is more than 5%% over the best path on %d, 10%% on %d, at most "
           "%.2f times it; geometric mean %.4f\n",
           b->count, over_5, over_10, worst, exp(logarithms / b->count));
    qsort(b->results, (size_t)b->count, sizeof *b->results, farthest_first);
    puts("farthest from the floor:");
    for (int i = 0; i < b->count && i < FARTHEST; i++) {
        const result *r = &b->results[i];
        printf("  %-46s %-24s %9.2f / %8.2f %-6s = %6.2f\n", r->name, r->path, r->us, r->floor_us,
               r->floor_by, r->us / r->floor_us);
    }
}

void xn_bench_paths(xn_bench_session *s) {
    bench b = {
        .s = s, .peak_binary = s->on.place->peak_binary(), .peak_real = s->on.place->peak_real()};
    b.results = xn_bench_take((size_t)s->rows->count + 1, sizeof *b.results);
    open_paths(&b);
    xn_report_table(s->report, columns, XN_COUNT(columns));
    const xn_row *r;
    for (int i = 0; (r = xn_rows_next(s, &i));)
        run_row(&b, r);
    summarise(&b);
    for (int i = 0; i < b.path_count; i++)
        s->on.backend->stream_free(b.streams[i]);
    xn_mem_free(b.results);
}
