/* shapes_measure.c: see shapes.h. */
#include "shapes.h"

#include "xn_mem.h"

#include <string.h>

enum { REF_OPERATIONS = 60000000 };
#define LAUNCH_US 1.2 /* an empty kernel's share of a graph of launches */

void xn_path_list_open(const xn_bench_session *s, xn_path_list *out) {
    *out = (xn_path_list){0};
    for (int i = 0; i < XN_BENCH_PATHS; i++) {
        out->streams[i] = xn_bench_path_stream(&s->on, i, &out->names[i]);
        if (!out->streams[i])
            return;
        out->count++;
    }
    xn_bench_fail("paths", "the device has more than this program knows room for");
}

void xn_path_list_close(const xn_bench_session *s, xn_path_list *paths) {
    for (int i = 0; i < paths->count; i++)
        s->on.backend->stream_free(paths->streams[i]);
}

/* ---- a shape's data ---- */

enum { REALS, DOTS, FORMS }; /* what is computed: fp32 with K and alpha, and the dots alone */

typedef struct problem {
    const xn_bench_session *s;
    xn_bench_shape shape;
    const xn_bench_kind *kinds[FORMS];
    xn_conv conv[FORMS];
    xn_weights *weights;
    xn_prepared *prepared;
    void *input, *output, *want[FORMS]; /* the device's; want: of the first path */
    size_t in_bytes, out_bytes;
} problem;

static void make_problem(const xn_bench_session *s, const xn_bench_shape *shape, problem *p) {
    const xn_bench_place *place = s->on.place;
    const size_t count = (size_t)xn_bench_weight_count(shape);
    float *real = xn_bench_take(count, sizeof *real);
    *p = (problem){.s = s,
                   .shape = *shape,
                   .kinds = {&xn_bench_kinds[XN_BENCH_FP32], &xn_bench_kinds[XN_BENCH_DOTS]}};
    xn_bench_host.fill(real, count);
    p->weights = xn_bench_weights(shape, real);
    xn_mem_free(real);
    p->prepared = xn_bench_prepare(&s->on, p->weights);
    for (int form = 0; form < FORMS; form++)
        p->conv[form] = xn_bench_resolve(shape, p->kinds[form]);
    p->in_bytes = (size_t)shape->images * xn_conv_input_bytes(&p->conv[REALS]);
    p->out_bytes = (size_t)shape->images * xn_conv_output_bytes(&p->conv[REALS]);
    p->input = place->take(p->in_bytes);
    p->output = place->take(p->out_bytes);
    place->fill(p->input, p->in_bytes / sizeof(float));
}

static void free_problem(problem *p) {
    const xn_bench_place *place = p->s->on.place;
    p->s->on.backend->weights_free(p->prepared);
    xn_weights_free(p->weights);
    place->give(p->input);
    place->give(p->output);
    for (int form = 0; form < FORMS; form++)
        place->give(p->want[form]);
}

/* NULL where the stream's path cannot. */
static xn_plan *plan_of(const problem *p, xn_stream *stream, int form) {
    xn_plan *plan;
    return xn_bench_plan(&p->s->on, stream, &p->conv[form], p->shape.images, p->kinds[form],
                         p->prepared, &plan)
               ? plan
               : NULL;
}

/* ---- checking ---- */

/* The first image of `want` by backend ref. */
static int64_t differs_from_ref(const problem *p, int form) {
    const xn_bench_place *place = p->s->on.place;
    const xn_conv *conv = &p->conv[form];
    const size_t outputs = (size_t)xn_conv_output_elements(conv);
    if (xn_conv_operations(conv) > REF_OPERATIONS)
        return 0;
    void *input = xn_bench_take(1, xn_conv_input_bytes(conv));
    void *got = xn_bench_take(outputs, sizeof(float)), *right = xn_bench_take(outputs, 4);
    place->download(input, p->input, xn_conv_input_bytes(conv));
    place->download(got, p->want[form], outputs * sizeof(float));
    xn_bench_run_on("ref", conv, p->weights, 1, input, right);
    const int64_t wrong = xn_bench_host.differ(got, right, outputs, form == DOTS);
    xn_mem_free(input);
    xn_mem_free(got);
    xn_mem_free(right);
    return wrong;
}

/* Outputs of a plan that differ from the first path's, or, of that one, from ref's. */
static int64_t check(problem *p, xn_plan *plan, int form) {
    const xn_bench_place *place = p->s->on.place;
    const bool first = !p->want[form];
    if (first)
        p->want[form] = place->take(p->out_bytes);
    void *output = first ? p->want[form] : p->output;
    const xn_bench_io io = {.input = p->input, .output = output};
    place->poison(output, p->out_bytes);
    place->enqueue(plan, p->prepared, p->shape.images, p->kinds[form], &io);
    place->wait();
    return first ? differs_from_ref(p, form)
                 : place->differ(output, p->want[form], p->out_bytes / sizeof(float), form == DOTS);
}

static int64_t check_path(problem *p, xn_stream *stream, xn_plan *reals) {
    int64_t wrong = check(p, reals, REALS);
    xn_plan *dots = plan_of(p, stream, DOTS);
    if (dots)
        wrong += check(p, dots, DOTS);
    p->s->on.backend->plan_free(dots);
    return wrong;
}

/* ---- timing ---- */

typedef struct runner {
    const problem *p;
    xn_plan *plan; /* NULL: the path does not fit */
    bool timed;
} runner;

static void run(void *context) {
    const runner *r = context;
    const xn_bench_io io = {.input = r->p->input, .output = r->p->output};
    r->p->s->on.place->enqueue(r->plan, r->p->prepared, r->p->shape.images, r->p->kinds[REALS],
                               &io);
}

static int index_of(const xn_path_list *paths, const char *name) {
    for (int i = 0; i < paths->count; i++)
        if (!strcmp(paths->names[i], name))
            return i;
    xn_bench_fail("paths", "the plan's path is not in the device's list");
}

static int chosen_of(const problem *p, const xn_path_list *paths) {
    xn_plan *plan = plan_of(p, p->s->on.stream, REALS);
    if (!plan)
        return -1;
    const int chosen = index_of(paths, xn_bench_path(&p->s->on, plan));
    p->s->on.backend->plan_free(plan);
    return chosen;
}

static xn_turns how_of(const xn_bench_options *o) {
    return (xn_turns){o->rounds, 1, 1e3 * (o->turn_ms > 0 ? o->turn_ms : 2)};
}

static void time_paths(problem *p, runner *runners, const xn_path_list *paths, xn_shape_result *out,
                       xn_stats *copy_us) {
    const xn_bench_place *place = p->s->on.place;
    const xn_bench_copy copy = {p->input, p->output, p->in_bytes, p->out_bytes};
    const xn_turns how = how_of(p->s->options);
    xn_contender *sides = xn_bench_take((size_t)paths->count + 1, sizeof *sides);
    for (int i = 0; i < paths->count; i++)
        if (runners[i].timed)
            sides[i] = xn_contender_make(place, run, &runners[i]);
    sides[paths->count] = xn_contender_make(place, place->copy, (void *)&copy);
    xn_bench_turns(sides, paths->count + 1, &how);
    out->best = out->chosen;
    for (int i = 0; i < paths->count; i++) {
        out->us[i] = sides[i].stats;
        if (out->us[i].samples && (out->best < 0 || out->us[i].median < out->us[out->best].median))
            out->best = i;
    }
    *copy_us = sides[paths->count].stats;
    xn_mem_free(sides);
}

static void find_floor(const xn_bench_session *s, double operations, double copy_us,
                       xn_shape_result *out) {
    static double peak;
    if (peak == 0)
        peak = s->on.place->peak_binary();
    const double matrix = operations / peak / 1e6; /* NAN: not known */
    out->floor_us = s->is_cuda ? LAUNCH_US : 0;
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

/* Whether the options have this path timed. */
static bool is_timed(const xn_bench_session *s, int path, int chosen) {
    return !(s->options->chosen || s->options->path) || path == chosen;
}

/* fp32 on data that the device makes itself, all paths in turns. */
static void measure_fp32(xn_bench_session *s, const xn_path_list *paths,
                         const xn_bench_shape *shape, xn_shape_result *out) {
    runner runners[XN_BENCH_PATHS] = {{0}};
    xn_stats copy = {0};
    problem p;
    make_problem(s, shape, &p);
    out->chosen = out->best = chosen_of(&p, paths);
    for (int i = 0; i < paths->count; i++) {
        runners[i] = (runner){.p = &p, .plan = plan_of(&p, paths->streams[i], REALS)};
        if (!runners[i].plan)
            continue;
        runners[i].timed = is_timed(s, i, out->chosen);
        out->cost_us[i] = xn_bench_cost_us(&s->on, runners[i].plan);
        if (s->on.place->plan_terms)
            s->on.place->plan_terms(runners[i].plan, out->terms[i], sizeof out->terms[i]);
        out->wrong[i] = check_path(&p, paths->streams[i], runners[i].plan);
    }
    if (!s->options->check_only)
        time_paths(&p, runners, paths, out, &copy);
    find_floor(s, xn_bench_operations(&p.conv[REALS], shape->images), copy.median, out);
    for (int i = 0; i < paths->count; i++)
        s->on.backend->plan_free(runners[i].plan);
    free_problem(&p);
}

/* Another kind: every path by itself, its outputs compared with what is right. */
static void measure_kind(xn_bench_session *s, const xn_path_list *paths,
                         const xn_bench_shape *shape, const xn_bench_kind *kind,
                         xn_shape_result *out) {
    const xn_turns turns = how_of(s->options), *how = s->options->check_only ? NULL : &turns;
    xn_bench_device on = s->on;
    xn_bench_data data;
    xn_figures f;
    double copy_us = 0;
    xn_bench_data_make(shape, XN_MODE_XNOR, &data);
    if (xn_bench_measure(&on, &data, kind, how, NULL, 0, &f))
        out->chosen = out->best = index_of(paths, f.path);
    for (int i = 0; i < paths->count; i++) {
        on.stream = paths->streams[i];
        if (!xn_bench_measure(&on, &data, kind, is_timed(s, i, out->chosen) ? how : NULL, NULL, 0,
                              &f))
            continue;
        out->cost_us[i] = f.cost_us;
        out->wrong[i] = f.wrong;
        out->us[i] = f.ours;
        if (!f.ours.samples)
            continue;
        copy_us = f.copy.median;
        if (f.ours.median < out->us[out->best].median)
            out->best = i;
    }
    find_floor(s, xn_bench_operations(&data.conv, shape->images), copy_us, out);
    xn_bench_data_free(&data);
}

static const xn_bench_kind *kind_of(const xn_bench_options *o) {
    for (int i = 0; i < XN_BENCH_KINDS; i++)
        if (!strcmp(o->kind ? o->kind : "fp32", xn_bench_kinds[i].key))
            return &xn_bench_kinds[i];
    xn_bench_fail("--kind", "no such kind; help lists them");
}

void xn_shape_measure(xn_bench_session *s, const xn_path_list *paths, const xn_bench_shape *shape,
                      xn_shape_result *out) {
    const xn_bench_kind *kind = kind_of(s->options);
    *out = (xn_shape_result){.chosen = -1, .best = -1};
    for (int i = 0; i < XN_BENCH_PATHS; i++)
        out->cost_us[i] = NAN;
    if (kind == &xn_bench_kinds[XN_BENCH_FP32])
        measure_fp32(s, paths, shape, out);
    else
        measure_kind(s, paths, shape, kind, out);
}
