/* shapes.c: `bench-conv shapes`, `random` and `paths`: shapes beside the square dense layers, each
 * on every path that can run it and against its own floor, so that a cliff shows, and a wrong
 * choice. The floor is the largest of a copy of the same bytes in the same run, a launch, and the
 * operations at the rate that instructions alone reach; which of them it is stands beside it. */
#include "shapes.h"

#include "../../xn_rng.h"
#include "shapes_table.h"
#include "xn_mem.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { TITLE = 12, FARTHEST = 20, AROUND = 9, BEHIND = 9 };

/* ---- shapes ---- */

/* Padding that keeps the size at stride 1, none where patches do not overlap. */
static xn_bench_shape shape_of(const xn_named_shape *n) {
    return (xn_bench_shape){.images = n->images,
                            .channels = n->channels,
                            .side = n->side,
                            .filters = n->filters,
                            .kernel = n->kernel,
                            .stride = n->stride,
                            .padding = n->kernel == n->stride ? 0 : n->dilation * (n->kernel / 2),
                            .dilation = n->dilation,
                            .groups = n->groups};
}

static int64_t pick(xn_rng *rng, const int64_t *values, int count) {
    return values[xn_rng_below(rng, (uint64_t)count)];
}
#define PICK(rng, ...)                                                                             \
    pick(rng, (const int64_t[]){__VA_ARGS__}, XN_COUNT(((const int64_t[]){__VA_ARGS__})))

/* As many small ones as large ones: uniform in the logarithm. */
static int64_t between(xn_rng *rng, int64_t least, int64_t most) {
    const double share = ((double)xn_rng_float(rng) + 1) / 2;
    const int64_t value = (int64_t)((double)least * pow((double)(most + 1) / (double)least, share));
    return value < most ? value : most;
}

/* Of the kinds that networks have. */
static xn_named_shape draw_usual(xn_rng *rng) {
    xn_named_shape n = {.family = "random"};
    n.images = PICK(rng, 1, 1, 1, 2, 4, 8, 16, 32, 64, 128, 256);
    n.channels =
        PICK(rng, 1, 3, 16, 32, 64, 64, 96, 128, 128, 192, 256, 256, 384, 512, 768, 1024, 2048);
    n.side = PICK(rng, 4, 7, 8, 14, 14, 16, 28, 28, 32, 56, 56, 64, 112, 128, 224, 256);
    n.kernel = PICK(rng, 1, 1, 3, 3, 3, 3, 5, 7);
    n.stride = PICK(rng, 1, 1, 1, 2);
    n.dilation = PICK(rng, 1, 1, 1, 1, 1, 2);
    n.groups = PICK(rng, 1, 1, 1, 1, n.channels, n.channels, 4, 32);
    if (n.channels % n.groups)
        n.groups = 1;
    n.filters = n.channels * PICK(rng, 1, 1, 1, 2);
    if (n.channels <= 3 && n.groups == 1)
        n.filters = PICK(rng, 1, 16, 32, 64);
    return n;
}

static xn_named_shape draw_odd(xn_rng *rng) {
    xn_named_shape n = {.family = "random odd"};
    n.groups = xn_rng_below(rng, 3) ? 1 : between(rng, 2, 64);
    n.images = between(rng, 1, 256);
    n.channels = n.groups * between(rng, 1, 2048 / n.groups);
    n.filters = n.groups * between(rng, 1, 2048 / n.groups);
    n.side = between(rng, 4, 256);
    n.kernel = between(rng, 1, 7);
    n.stride = PICK(rng, 1, 1, 1, 2, 3);
    n.dilation = PICK(rng, 1, 1, 1, 2, 3);
    return n;
}

/* Bounds that keep a run of a good path under about 20 ms, and all memory under 1 GiB. */
static bool is_bounded(const xn_bench_session *s, const xn_named_shape *n) {
    const double most_operations = s->is_cuda ? 1e12 : 1e10;
    const int64_t most_bytes = (int64_t)(s->is_cuda ? 1024 : 128) << 20;
    const xn_bench_shape shape = shape_of(n);
    if (shape.dilation * (shape.kernel - 1) + 1 > shape.side + 2 * shape.padding)
        return false;
    const xn_conv conv = xn_bench_resolve(&shape, &xn_bench_kinds[XN_BENCH_FP32]);
    const int64_t elements = xn_conv_input_elements(&conv) + 3 * xn_conv_output_elements(&conv);
    return xn_bench_operations(&conv, n->images) <= most_operations &&
           n->images * elements * (int64_t)sizeof(float) <= most_bytes;
}

/* Shape i is the first of seed + i. */
static xn_named_shape draw(const xn_bench_session *s, int i) {
    xn_rng rng = {s->options->seed + (uint64_t)i};
    for (;;) {
        const xn_named_shape n = xn_rng_below(&rng, 2) ? draw_odd(&rng) : draw_usual(&rng);
        if (is_bounded(s, &n))
            return n;
    }
}

/* ---- runs ---- */

typedef struct bench {
    xn_bench_session *s;
    xn_path_list paths;
    xn_shape_result *results;
    int count, room;
    int number, total; /* the shape under way, of so many; 0: not known */
    void (*report)(struct bench *b, const xn_bench_shape *shape, const xn_shape_result *r);
} bench;

static void run_shape(bench *b, const xn_named_shape *n) {
    const xn_bench_shape shape = shape_of(n);
    char base[XN_BENCH_NAME], name[2 * XN_BENCH_NAME];
    xn_bench_name(&shape, base);
    snprintf(name, sizeof name, "%s %s", n->family, base);
    if (!xn_bench_wanted(b->s, name, shape.images))
        return;
    xn_report_doing(b->s->report, b->number, b->total, name);
    if (b->count == b->room) {
        const int room = b->room ? 2 * b->room : 256;
        xn_shape_result *more = xn_bench_take((size_t)room, sizeof *more);
        for (int i = 0; i < b->count; i++)
            more[i] = b->results[i];
        xn_mem_free(b->results);
        b->results = more;
        b->room = room;
    }
    xn_shape_result *r = &b->results[b->count];
    xn_shape_measure(b->s, &b->paths, &shape, r);
    if (r->chosen < 0) /* --path: it cannot */
        return;
    snprintf(r->name, sizeof r->name, "%s", name);
    b->report(b, &shape, r);
    b->count++;
}

static void run_table(bench *b, const xn_named_shape *table, int count) {
    b->total = count;
    for (int i = 0; i < count; i++) {
        b->number = i + 1;
        run_shape(b, &table[i]);
    }
}

static void run_random(bench *b) {
    printf("%d random shapes, seeds %llu and on\n", b->s->options->random,
           (unsigned long long)b->s->options->seed);
    b->total = b->s->options->random;
    for (int i = 0; i < b->total; i++) {
        b->number = i + 1;
        const xn_named_shape n = draw(b->s, i);
        run_shape(b, &n);
    }
}

static void run_file(bench *b) {
    char line[256];
    b->total = 0;
    FILE *file = fopen(b->s->options->shapes, "r");
    if (!file)
        xn_bench_fail(b->s->options->shapes, strerror(errno));
    while (fgets(line, sizeof line, file)) {
        long long v[8];
        if (line[0] == '#' || line[0] == '\n')
            continue;
        if (sscanf(line, "%lld %lld %lld %lld %lld %lld %lld %lld", &v[0], &v[1], &v[2], &v[3],
                   &v[4], &v[5], &v[6], &v[7]) != 8)
            xn_bench_fail(b->s->options->shapes, line);
        const xn_named_shape n = {"file", v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7]};
        run_shape(b, &n);
    }
    fclose(file);
}

/* ---- a row a shape ---- */

/* How many paths gave wrong outputs; each is named. */
static int name_wrong(const bench *b, const xn_shape_result *r) {
    int wrong = 0;
    for (int i = 0; i < b->paths.count; i++)
        if (r->wrong[i]) {
            printf("%s by %s: %lld wrong\n", r->name, b->paths.names[i], (long long)r->wrong[i]);
            wrong++;
        }
    return wrong;
}

static void report_shape(bench *b, const xn_bench_shape *shape, const xn_shape_result *r) {
    xn_cell cells[AROUND + XN_BENCH_PATHS + BEHIND];
    int n = 0;
    (void)shape;
    cells[n++] = (xn_cell)XN_T(b->s->on.info.id);
    cells[n++] = (xn_cell)XN_T(r->name);
    for (int i = 0; i < b->paths.count; i++)
        cells[n++] = (xn_cell)XN_N(r->us[i].samples ? r->us[i].median : NAN);
    const double us = r->us[r->chosen].median;
    const xn_cell rest[] = {XN_T(b->paths.names[r->chosen]),
                            XN_N(us),
                            XN_T(b->paths.names[r->best]),
                            XN_N(us / r->us[r->best].median),
                            XN_N(r->floor_us),
                            XN_T(r->floor_by),
                            XN_N(us / r->floor_us),
                            XN_T(xn_bench_verdict(b->s, name_wrong(b, r)))};
    for (int i = 0; i < XN_COUNT(rest); i++)
        cells[n++] = rest[i];
    xn_report_cells(b->s->report, cells, n);
}

static void start_shapes(bench *b) {
    static xn_column columns[AROUND + XN_BENCH_PATHS + BEHIND] = {
        {"backend", NULL, 0, XN_TEXT}, {"shape", "us of a run", 46, XN_TEXT}};
    static char titles[XN_BENCH_PATHS][TITLE + 1];
    static const xn_column rest[] = {{"path", "chosen", 17, XN_TEXT}, {"us", "us", 9, 2},
                                     {"best", "best", 17, XN_TEXT},   {"of_best", "x best", 6, 2},
                                     {"floor_us", "floor us", 9, 2},  {"floor", "by", 6, XN_TEXT},
                                     {"ratio", "x floor", 7, 2},      {"verdict", "", 5, XN_TEXT}};
    int n = 2;
    for (int i = 0; i < b->paths.count; i++) {
        snprintf(titles[i], sizeof titles[i], "%.*s", TITLE, b->paths.names[i]);
        columns[n++] = (xn_column){b->paths.names[i], titles[i], TITLE, 2};
    }
    for (int i = 0; i < XN_COUNT(rest); i++)
        columns[n++] = rest[i];
    xn_report_table(b->s->report, columns, n);
}

static double of_floor(const xn_shape_result *r) {
    return r->us[r->chosen].median / r->floor_us;
}

static double of_best(const xn_shape_result *r) {
    return r->us[r->chosen].median / r->us[r->best].median;
}

static int farthest_first(const void *a, const void *b) {
    const double x = of_floor(a), y = of_floor(b);
    return (x < y) - (x > y);
}

static void summarise(const bench *b) {
    double logarithms = 0, worst = 1;
    int over_5 = 0, over_10 = 0;
    if (b->s->options->check_only || !b->count)
        return;
    for (int i = 0; i < b->count; i++) {
        const double ratio = of_best(&b->results[i]);
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
        const xn_shape_result *r = &b->results[i];
        printf("  %-46s %-17s %9.2f / %8.2f %-6s = %6.2f\n", r->name, b->paths.names[r->chosen],
               r->us[r->chosen].median, r->floor_us, r->floor_by, of_floor(r));
    }
}

/* ---- a row a path ---- */

static const xn_column path_columns[] = {
    {"backend", NULL, 0, XN_TEXT}, {"shape", "shape", 46, XN_TEXT},
    {"kind", NULL, 0, XN_TEXT},    {"images", NULL, 0, 0},
    {"channels", NULL, 0, 0},      {"side", NULL, 0, 0},
    {"filters", NULL, 0, 0},       {"kernel", NULL, 0, 0},
    {"stride", NULL, 0, 0},        {"padding", NULL, 0, 0},
    {"dilation", NULL, 0, 0},      {"groups", NULL, 0, 0},
    {"path", "path", 18, XN_TEXT}, {"us", "us", 10, 2},
    {"least_us", "least", 10, 2},  {"cost_us", "predicted", 10, 2},
    {"chosen", "chosen", 6, 0},    {"best", "best", 6, 0},
    {"terms", NULL, 0, XN_TEXT},   {"verdict", "", 5, XN_TEXT},
};

static void report_paths(bench *b, const xn_bench_shape *shape, const xn_shape_result *r) {
    for (int i = 0; i < b->paths.count; i++)
        if (r->us[i].samples || r->wrong[i])
            xn_report_row(b->s->report, XN_T(b->s->on.info.id), XN_T(r->name),
                          XN_T(b->s->options->kind ? b->s->options->kind : "fp32"),
                          XN_N(shape->images), XN_N(shape->channels), XN_N(shape->side),
                          XN_N(shape->filters), XN_N(shape->kernel), XN_N(shape->stride),
                          XN_N(shape->padding), XN_N(shape->dilation), XN_N(shape->groups),
                          XN_T(b->paths.names[i]), XN_N(r->us[i].median), XN_N(r->us[i].least),
                          XN_N(r->cost_us[i]), XN_N(i == r->chosen), XN_N(i == r->best),
                          XN_T(r->terms[i]), XN_T(xn_bench_verdict(b->s, r->wrong[i])));
}

/* ---- sub-commands ---- */

static bench begin(xn_bench_session *s) {
    bench b = {.s = s, .report = report_shape};
    xn_path_list_open(s, &b.paths);
    return b;
}

static void end(bench *b) {
    summarise(b);
    xn_path_list_close(b->s, &b->paths);
    xn_mem_free(b->results);
}

void xn_bench_shapes(xn_bench_session *s) {
    bench b = begin(s);
    start_shapes(&b);
    run_table(&b, xn_shapes_table, XN_COUNT(xn_shapes_table));
    end(&b);
}

void xn_bench_random(xn_bench_session *s) {
    bench b = begin(s);
    start_shapes(&b);
    run_random(&b);
    end(&b);
}

void xn_bench_paths(xn_bench_session *s) {
    bench b = begin(s);
    b.report = report_paths;
    xn_report_table(s->report, path_columns, XN_COUNT(path_columns));
    const char *shapes = s->options->shapes ? s->options->shapes : "built-in";
    if (!strcmp(shapes, "built-in"))
        run_table(&b, xn_shapes_table, XN_COUNT(xn_shapes_table));
    else if (!strcmp(shapes, "layers"))
        run_table(&b, xn_layers_table, XN_COUNT(xn_layers_table));
    else
        run_file(&b);
    run_random(&b);
    end(&b);
}
