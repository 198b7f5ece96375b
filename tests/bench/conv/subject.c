/* subject.c: see subject.h. */
#include "subject.h"

#include "xn_arith.h"
#include "xn_mem.h"

#include <string.h>

static void *to_device(const xn_bench_place *place, const void *data, size_t bytes) {
    void *memory = place->take(bytes);
    place->upload(memory, data, bytes);
    return memory;
}

static void upload_input(xn_subject *s, const xn_bench_data *data) {
    void *plain = xn_bench_take(s->in_bytes, 1);
    xn_bench_fill_input(data, &s->kind, plain);
    s->input = to_device(s->on->place, plain, s->in_bytes);
    xn_mem_free(plain);
}

/* ---- subjects ---- */

static void start(const xn_subject *s) {
    const xn_bench_io io = {s->input, s->output, s->threshold, s->flip};
    s->on->place->enqueue(s->plan, s->prepared, s->images, &s->kind, &io);
}

void xn_subject_run(void *subject) {
    start(subject);
}

bool xn_subject_make(const xn_bench_device *on, const xn_bench_data *data,
                     const xn_bench_kind *kind, xn_subject *s) {
    const xn_bench_place *place = on->place;
    const size_t filters = (size_t)data->shape.filters;
    *s = (xn_subject){.on = on,
                      .kind = *kind,
                      .conv = xn_bench_resolve(&data->shape, kind),
                      .images = data->shape.images,
                      .in_bytes = xn_bench_input_bytes(data, kind),
                      .out_bytes = xn_bench_output_bytes(data, kind)};
    s->prepared = xn_bench_prepare(on, kind->packed_output ? data->bit_weights : data->weights);
    if (!xn_bench_plan(on, on->stream, &s->conv, s->images, kind, s->prepared, &s->plan)) {
        on->backend->weights_free(s->prepared);
        return false;
    }
    upload_input(s, data);
    s->threshold = to_device(place, data->threshold, filters * sizeof(int32_t));
    s->flip = to_device(place, data->flip, (filters / 32 + 1) * sizeof(uint32_t));
    s->output = place->take(s->out_bytes);
    start(s);
    place->wait();
    return true;
}

void xn_subject_free(xn_subject *s) {
    const xn_bench_place *place = s->on->place;
    s->on->backend->plan_free(s->plan);
    s->on->backend->weights_free(s->prepared);
    place->give(s->input);
    place->give(s->output);
    place->give(s->threshold);
    place->give(s->flip);
}

int64_t xn_subject_count_wrong(const xn_subject *s, xn_bench_data *data) {
    const xn_bench_place *place = s->on->place;
    void *got = xn_bench_take(s->out_bytes, 1);
    place->poison(s->output, s->out_bytes);
    start(s);
    place->wait();
    place->download(got, s->output, s->out_bytes);
    const int64_t wrong = xn_bench_count_wrong(data, &s->kind, got);
    xn_mem_free(got);
    return wrong;
}

/* ---- measured ---- */

static void time_subject(const xn_subject *s, const xn_turns *how, xn_contender *others,
                         int other_count, xn_figures *out) {
    enum { OURS, COPY, OTHERS };
    const xn_bench_place *place = s->on->place;
    const xn_bench_copy copy = {s->input, s->output, s->in_bytes, s->out_bytes};
    xn_contender *sides = xn_bench_take((size_t)(OTHERS + other_count), sizeof *sides);
    sides[OURS] = xn_contender_make(place, xn_subject_run, (void *)s);
    sides[COPY] = xn_contender_make(place, place->copy, (void *)&copy);
    for (int i = 0; i < other_count; i++)
        sides[OTHERS + i] = others[i];
    xn_bench_turns(sides, OTHERS + other_count, how);
    out->ours = sides[OURS].stats;
    out->copy = sides[COPY].stats;
    out->tops = xn_bench_operations(&s->conv, s->images) / out->ours.median / 1e6;
    for (int i = 0; i < other_count; i++)
        others[i] = sides[OTHERS + i];
    xn_mem_free(sides);
}

bool xn_bench_measure(const xn_bench_device *on, xn_bench_data *data, const xn_bench_kind *kind,
                      const xn_turns *how, xn_contender *others, int other_count, xn_figures *out) {
    const xn_backend *b = on->backend;
    xn_subject s;
    if (!xn_subject_make(on, data, kind, &s))
        return false;
    const xn_stats none = {NAN, NAN, NAN, NAN, NAN, NAN, 0};
    *out = (xn_figures){
        .ours = none, .copy = none, .tops = NAN, .wrong = xn_subject_count_wrong(&s, data)};
    snprintf(out->path, sizeof out->path, "%s", xn_bench_path(on, s.plan));
    out->precision =
        xn_precision_name(b->precision ? b->precision(s.plan, s.prepared) : XN_PRECISION_FP32);
    out->cost_us = xn_bench_cost_us(on, s.plan);
    if (how)
        time_subject(&s, how, others, other_count, out);
    xn_subject_free(&s);
    return true;
}

/* ---- whole runs, with transfers ---- */

xn_stats xn_bench_stage(const xn_bench_device *on, const xn_bench_shape *shape, xn_mode mode,
                        int runs) {
    const xn_backend *b = on->backend;
    double *us = xn_bench_take((size_t)runs, sizeof *us);
    xn_bench_data data;
    xn_bench_data_make(shape, mode, &data);
    const size_t in_bytes = xn_bench_input_bytes(&data, &data.kind);
    const size_t out_bytes = xn_bench_output_bytes(&data, &data.kind);
    void *input = b->host_alloc(on->device, in_bytes);
    void *output = b->host_alloc(on->device, out_bytes);
    if (!input || !output)
        xn_bench_fail("buffers", "no memory");
    memcpy(input, data.input, in_bytes);
    memset(output, 0xff, out_bytes);
    xn_prepared *prepared = xn_bench_prepare(on, data.weights);
    xn_program *program = xn_bench_program(on, &data.conv, shape->images, prepared);
    for (int i = -3; i < runs; i++)
        us[i < 0 ? 0 : i] = xn_bench_program_run(program, prepared, shape->images, input, output);
    if (xn_bench_count_wrong(&data, &data.kind, output))
        xn_bench_fail("check", "outputs are wrong");
    const xn_stats stats = xn_stats_of(us, runs);
    xn_program_free(program);
    b->weights_free(prepared);
    b->host_free(on->device, input);
    b->host_free(on->device, output);
    xn_bench_data_free(&data);
    xn_mem_free(us);
    return stats;
}
