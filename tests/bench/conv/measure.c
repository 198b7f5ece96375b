/* measure.c: see measure.h. */
#include "measure.h"

#include "xn_mem.h"

#include <string.h>

/* ---- a problem on a device ---- */

typedef struct subject {
    const xn_bench_device *on; /* borrowed, as are: */
    xn_bench_data *data;
    const xn_bench_kind *kind;
    xn_conv conv;
    int64_t images;
    xn_prepared *prepared;
    xn_bench_io io; /* the device's memory */
    size_t in_bytes, out_bytes;
} subject;

static void *to_device(const xn_bench_place *place, const void *data, size_t bytes) {
    void *memory = place->take(bytes);
    place->upload(memory, data, bytes);
    return memory;
}

static void make_subject(const xn_bench_device *on, xn_bench_data *data, const xn_bench_kind *kind,
                         subject *s) {
    const xn_bench_place *place = on->place;
    const size_t filters = (size_t)data->shape.filters;
    *s = (subject){.on = on,
                   .data = data,
                   .kind = kind,
                   .conv = xn_bench_resolve(&data->shape, kind),
                   .images = data->shape.images,
                   .in_bytes = xn_bench_input_bytes(data, kind),
                   .out_bytes = xn_bench_output_bytes(data, kind)};
    void *plain = xn_bench_take(s->in_bytes, 1);
    xn_bench_fill_input(data, kind, plain);
    s->prepared = xn_bench_prepare(on, kind->packed_output ? data->bit_weights : data->weights);
    s->io =
        (xn_bench_io){.input = to_device(place, plain, s->in_bytes),
                      .output = place->take(s->out_bytes),
                      .threshold = to_device(place, data->threshold, filters * sizeof(int32_t)),
                      .flip = to_device(place, data->flip, (filters / 32 + 1) * sizeof(uint32_t))};
    xn_mem_free(plain);
}

static void free_subject(subject *s) {
    const xn_bench_place *place = s->on->place;
    s->on->backend->weights_free(s->prepared);
    place->give((void *)(uintptr_t)s->io.input);
    place->give(s->io.output);
    place->give((void *)(uintptr_t)s->io.threshold);
    place->give((void *)(uintptr_t)s->io.flip);
}

/* ---- checked ---- */

static int64_t count_wrong(const subject *s, xn_plan *plan, const xn_bench_kind *kind) {
    const xn_bench_place *place = s->on->place;
    void *got = xn_bench_take(s->out_bytes, 1);
    place->poison(s->io.output, s->out_bytes);
    place->enqueue(plan, s->prepared, s->images, kind, &s->io);
    place->wait();
    place->download(got, s->io.output, s->out_bytes);
    const int64_t wrong = xn_bench_count_wrong(s->data, kind, got);
    xn_mem_free(got);
    return wrong;
}

/* Reals are compared within a bound: where K and alpha are applied to dots, the same way's dots are
 * compared exactly too. */
static int64_t count_wrong_dots(const subject *s, xn_stream *stream) {
    const xn_bench_kind *dots = &xn_bench_kinds[XN_BENCH_DOTS];
    const xn_conv conv = xn_bench_resolve(&s->data->shape, dots);
    xn_plan *plan;
    if (s->kind != &xn_bench_kinds[XN_BENCH_FP32] ||
        !xn_bench_plan(s->on, stream, &conv, s->images, dots, s->prepared, &plan))
        return 0;
    const int64_t wrong = count_wrong(s, plan, dots);
    s->on->backend->plan_free(plan);
    return wrong;
}

static void check(const subject *s, xn_figures *way) {
    const xn_backend *b = s->on->backend;
    way->path[0] = way->terms[0] = '\0';
    way->us = (xn_stats){NAN, NAN, NAN, NAN, NAN, NAN, NAN, 0};
    way->cost_us = way->tops = NAN;
    if (!xn_bench_plan(s->on, way->stream, &s->conv, s->images, s->kind, s->prepared, &way->plan)) {
        way->plan = NULL;
        return;
    }
    snprintf(way->path, sizeof way->path, "%s", xn_bench_path(s->on, way->plan));
    way->precision =
        xn_precision_name(b->precision ? b->precision(way->plan, s->prepared) : XN_PRECISION_FP32);
    way->cost_us = xn_bench_cost_us(s->on, way->plan);
    if (s->on->place->plan_terms)
        s->on->place->plan_terms(way->plan, way->terms, sizeof way->terms);
    way->wrong = count_wrong(s, way->plan, s->kind) + count_wrong_dots(s, way->stream);
}

/* ---- timed ---- */

typedef struct runner {
    const subject *of;
    xn_plan *plan;
} runner;

static void run(void *context) {
    const runner *r = context;
    const subject *s = r->of;
    s->on->place->enqueue(r->plan, s->prepared, s->images, s->kind, &s->io);
}

static xn_stats time_all(const subject *s, const xn_turns *how, xn_figures *ways, int count,
                         xn_contender *others, int other_count) {
    const xn_bench_place *place = s->on->place;
    const xn_bench_copy copy = {s->io.input, s->io.output, s->in_bytes, s->out_bytes};
    const int all = count + 1 + other_count;
    xn_contender *sides = xn_bench_take((size_t)all, sizeof *sides);
    runner *runners = xn_bench_take((size_t)count, sizeof *runners);
    for (int i = 0; i < count; i++) {
        runners[i] = (runner){s, ways[i].plan};
        if (ways[i].plan && ways[i].is_timed)
            sides[i] = xn_contender_make(place, run, &runners[i]);
    }
    sides[count] = xn_contender_make(place, place->copy, (void *)&copy);
    for (int i = 0; i < other_count; i++)
        sides[count + 1 + i] = others[i];
    xn_bench_turns(sides, all, how);
    for (int i = 0; i < count; i++)
        if (sides[i].place) {
            ways[i].us = sides[i].stats;
            ways[i].tops = xn_bench_operations(&s->conv, s->images) / ways[i].us.median / 1e6;
        }
    for (int i = 0; i < other_count; i++)
        others[i] = sides[count + 1 + i];
    const xn_stats copy_us = sides[count].stats;
    xn_mem_free(runners);
    xn_mem_free(sides);
    return copy_us;
}

xn_stats xn_bench_measure(const xn_bench_device *on, xn_bench_data *data, const xn_bench_kind *kind,
                          const xn_turns *how, xn_figures *ways, int count, xn_contender *others,
                          int other_count) {
    xn_stats copy = {NAN, NAN, NAN, NAN, NAN, NAN, NAN, 0};
    subject s;
    make_subject(on, data, kind, &s);
    for (int i = 0; i < count; i++)
        check(&s, &ways[i]);
    if (how)
        copy = time_all(&s, how, ways, count, others, other_count);
    for (int i = 0; i < count; i++)
        on->backend->plan_free(ways[i].plan);
    free_subject(&s);
    return copy;
}

bool xn_bench_measure_one(const xn_bench_device *on, xn_bench_data *data, const xn_bench_kind *kind,
                          const xn_turns *how, xn_contender *others, int other_count,
                          xn_figures *out, xn_stats *copy) {
    *out = (xn_figures){.stream = on->stream, .is_timed = true};
    *copy = xn_bench_measure(on, data, kind, how, out, 1, others, other_count);
    return out->path[0];
}
