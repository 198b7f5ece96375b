/* rows.c: see rows.h. */
#include "rows.h"

#include "../../xn_rng.h"
#include "xn_mem.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum { LIST = 8, LINE = 512 };

/* A line of a file: the rows that it makes share all but what is a list. */
typedef struct line {
    const xn_bench_options *options;
    int64_t images[LIST];
    const xn_bench_kind *kinds[LIST];
    int images_count, kind_count;
    xn_row row;
} line;

/* ---- rows ---- */

static void add(xn_rows *rows, const xn_row *row, const char *title) {
    enum { STEP = 64 };
    char shape[XN_BENCH_NAME];
    if (rows->count % STEP == 0) {
        xn_row *more = xn_bench_take((size_t)rows->count + STEP, sizeof *more);
        for (int i = 0; i < rows->count; i++)
            more[i] = rows->all[i];
        xn_mem_free(rows->all);
        rows->all = more;
    }
    xn_row *to = &rows->all[rows->count++];
    *to = *row;
    xn_bench_name(&to->shape, shape);
    snprintf(to->name, sizeof to->name, "%s%s %s", title, shape, to->kind->name);
}

static const xn_bench_kind *kind_named(const char *name) {
    for (int i = 0; i < XN_BENCH_KINDS; i++)
        if (!strcmp(name, xn_bench_kinds[i].name))
            return &xn_bench_kinds[i];
    xn_bench_fail("no such kind; help lists them", name);
}

/* --kind takes the place of what a line names. */
static void choose_kinds(line *l) {
    const xn_texts *asked = &l->options->kinds;
    if (asked->count)
        l->kind_count = 0;
    for (int i = 0; i < asked->count; i++)
        l->kinds[l->kind_count++] = kind_named(asked->text[i]);
    if (!l->kind_count)
        l->kinds[l->kind_count++] = &xn_bench_kinds[XN_BENCH_FP32];
}

static void add_line(xn_rows *rows, line *l, const char *title) {
    xn_bench_shape *s = &l->row.shape;
    choose_kinds(l);
    s->padding = s->kernel == s->stride ? 0 : s->dilation * (s->kernel / 2);
    for (int i = 0; i < l->images_count; i++)
        for (int k = 0; k < l->kind_count; k++) {
            s->images = l->images[i];
            l->row.kind = l->kinds[k];
            add(rows, &l->row, title);
        }
}

/* ---- files ---- */

/* "1,64x128x56". */
static bool parse_size(char *word, line *l) {
    char *at = word;
    long long channels, side;
    do {
        if (l->images_count == LIST)
            return false;
        l->images[l->images_count++] = strtoll(at + (at > word), &at, 10);
    } while (*at == ',');
    if (sscanf(at, "x%lldx%lld", &channels, &side) != 2)
        return false;
    l->row.shape = (xn_bench_shape){.channels = channels,
                                    .side = side,
                                    .filters = channels,
                                    .kernel = 3,
                                    .stride = 1,
                                    .dilation = 1,
                                    .groups = 1};
    return true;
}

/* "o64". */
static bool parse_member(const char *word, xn_bench_shape *s) {
    static const char letters[] = "oksdg";
    int64_t *const members[] = {&s->filters, &s->kernel, &s->stride, &s->dilation, &s->groups};
    const char *letter = strchr(letters, word[0]);
    char *end;
    const int64_t value = strtoll(word + 1, &end, 10);
    if (!letter || *end || value < 1)
        return false;
    *members[letter - letters] = value;
    return true;
}

/* "cpu.peers=2". */
static bool parse_target(const char *word, xn_row *row) {
    static const struct {
        const char *name;
        size_t at;
    } goals[] = {
        {"us", offsetof(xn_target, us)},
        {"copies", offsetof(xn_target, copies)},
        {"tops", offsetof(xn_target, tops)},
        {"peak", offsetof(xn_target, peak)},
        {"peers", offsetof(xn_target, peers)},
        {"filters", offsetof(xn_target, filters)},
        {"openvino", offsetof(xn_target, openvino)},
        {"published", offsetof(xn_target, published_us)},
    };
    char backend[8], goal[16];
    double value;
    if (sscanf(word, "%7[a-z].%15[a-z]=%lf", backend, goal, &value) != 3)
        return false;
    xn_target *target = &row->target[strcmp(backend, "cpu") ? XN_BENCH_CUDA : XN_BENCH_CPU];
    for (int i = 0; i < XN_COUNT(goals); i++)
        if (!strcmp(goal, goals[i].name)) {
            memcpy((char *)target + goals[i].at, &value, sizeof value);
            return true;
        }
    return false;
}

static bool parse_kinds(char *word, line *l) {
    char *rest;
    for (char *name = strtok_r(word, ",", &rest); name; name = strtok_r(NULL, ",", &rest)) {
        if (l->kind_count == LIST)
            return false;
        l->kinds[l->kind_count++] = kind_named(name);
    }
    return true;
}

static void read_line(xn_rows *rows, const xn_bench_options *options, const char *path,
                      char *text) {
    line l = {.options = options};
    char *rest, *word;
    text[strcspn(text, "#\n")] = '\0';
    for (word = strtok_r(text, " ", &rest); word; word = strtok_r(NULL, " ", &rest))
        if (!(!l.images_count     ? parse_size(word, &l)
              : strchr(word, '=') ? parse_target(word, &l.row)
                                  : parse_member(word, &l.row.shape) || parse_kinds(word, &l)))
            xn_bench_fail(path, word);
    if (l.images_count)
        add_line(rows, &l, "");
}

/* A path, or the name of a file of shapes/. */
static void read_file(xn_rows *rows, const xn_bench_options *options, const char *name) {
    char path[LINE], text[LINE];
    snprintf(path, sizeof path, strchr(name, '/') ? "%s" : "tests/bench/conv/shapes/%s.txt", name);
    FILE *file = fopen(path, "r");
    if (!file)
        xn_bench_fail(path, strerror(errno));
    while (fgets(text, sizeof text, file))
        read_line(rows, options, path, text);
    fclose(file);
}

/* ---- random ones ---- */

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
static xn_bench_shape draw_usual(xn_rng *rng) {
    xn_bench_shape n;
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

static xn_bench_shape draw_odd(xn_rng *rng) {
    xn_bench_shape n;
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
static bool is_bounded(xn_bench_shape s, bool is_small) {
    const double most_operations = is_small ? 1e10 : 1e12;
    const int64_t most_bytes = (int64_t)(is_small ? 128 : 1024) << 20;
    s.padding = s.kernel == s.stride ? 0 : s.dilation * (s.kernel / 2);
    if (s.dilation * (s.kernel - 1) + 1 > s.side + 2 * s.padding)
        return false;
    const xn_conv conv = xn_bench_resolve(&s, &xn_bench_kinds[XN_BENCH_FP32]);
    const int64_t elements = xn_conv_input_elements(&conv) + 3 * xn_conv_output_elements(&conv);
    return xn_bench_operations(&conv, s.images) <= most_operations &&
           s.images * elements * (int64_t)sizeof(float) <= most_bytes;
}

/* Shape i is the first of seed + i. */
static void draw(xn_rows *rows, const xn_bench_options *options, int i, bool is_small) {
    xn_rng rng = {options->seed + (uint64_t)i};
    line l = {.options = options, .images_count = 1};
    bool is_odd;
    do {
        is_odd = xn_rng_below(&rng, 2);
        l.row.shape = is_odd ? draw_odd(&rng) : draw_usual(&rng);
    } while (!is_bounded(l.row.shape, is_small));
    l.images[0] = l.row.shape.images;
    add_line(rows, &l, is_odd ? "random odd " : "random ");
}

/* ---- all of them ---- */

xn_rows *xn_rows_make(const xn_bench_options *options, bool is_small) {
    xn_rows *rows = xn_bench_take(1, sizeof *rows);
    for (int i = 0; i < options->shapes.count; i++)
        read_file(rows, options, options->shapes.text[i]);
    for (int i = 0; i < options->random; i++)
        draw(rows, options, i, is_small);
    if (options->random)
        printf("%d random shapes, seeds %llu and on\n", options->random,
               (unsigned long long)options->seed);
    return rows;
}

void xn_rows_free(xn_rows *rows) {
    xn_mem_free(rows->all);
    xn_mem_free(rows);
}

static bool is_wanted(const xn_bench_options *options, const xn_row *row) {
    const xn_texts *only = &options->only;
    bool named = !only->count;
    for (int i = 0; i < only->count; i++)
        named = named || strstr(row->name, only->text[i]);
    return named && (!options->batch || options->batch == row->shape.images);
}

xn_row *xn_rows_next(const xn_bench_session *s, int *at) {
    for (; *at < s->rows->count; (*at)++)
        if (is_wanted(s->options, &s->rows->all[*at])) {
            xn_row *row = &s->rows->all[(*at)++];
            xn_report_doing(s->report, *at, s->rows->count, row->name);
            return row;
        }
    return NULL;
}
