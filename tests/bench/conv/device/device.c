/* device.c: see device.h. */
#include "device.h"

#include <string.h>

static const xn_bench_place *place_of(const xn_backend *backend) {
    return strcmp(backend->name, "cuda") ? &xn_bench_host : xn_bench_cuda();
}

bool xn_bench_open(const char *name, const xn_stream_options *options, const char *set,
                   xn_bench_device *out) {
    const xn_stream_options none = {0};
    const xn_device_options of_device = {.instruction_set = set};
    const xn_backend *b = xn_backend_find(name);
    xn_error error;
    int count = 0;
    if (!b || b->device_count(&count, &error) || !count)
        return false;
    *out = (xn_bench_device){.backend = b, .place = place_of(b)};
    if (b->device_open(0, &out->device, &error))
        xn_bench_fail(name, error.message);
    if (set && b->device_configure(out->device, &of_device, &error)) {
        b->device_close(out->device);
        return false;
    }
    if (b->stream_create(out->device, options ? options : &none, &out->stream, &error))
        xn_bench_fail(name, error.message);
    b->device_info(out->device, &out->info);
    return true;
}

void xn_bench_close(xn_bench_device *device) {
    device->backend->stream_free(device->stream);
    device->backend->device_close(device->device);
}

xn_prepared *xn_bench_prepare(const xn_bench_device *on, const xn_weights *weights) {
    xn_prepared *prepared = NULL;
    xn_error error;
    if (on->backend->weights_prepare(on->device, weights, &prepared, &error))
        xn_bench_fail("weights", error.message);
    return prepared;
}

bool xn_bench_plan(const xn_bench_device *on, xn_stream *stream, const xn_conv *conv,
                   int64_t images, const xn_bench_kind *kind, const xn_prepared *prepared,
                   xn_plan **out) {
    const xn_backend *b = on->backend;
    xn_error error;
    xn_step step;
    *out = NULL;
    xn_step_of_conv(conv, &step);
    if (kind->packed_input) {
        step.conv.input_datatype = XN_BITS;
        step.input_layout = XN_LAYOUT_WORDS;
    }
    if (kind->packed_output) { /* the sign of dot * scale + shift */
        step.conv.epilogue =
            (xn_epilogue){.factor = XN_FACTOR_SCALE, .datatype = XN_BITS, .bits = 1, .shift = 1};
        step.output = XN_NO_TENSOR;
        step.bits = 1;
        step.bits_layout = XN_LAYOUT_WORDS;
    }
    xn_status status = b->plan_create(stream, &step, images, out, &error);
    if (!status && b->weights_ready)
        status = b->weights_ready(prepared, *out, &error);
    if (status && status != XN_ERR_UNSUPPORTED)
        xn_bench_fail(b->name, error.message);
    if (status && *out)
        b->plan_free(*out);
    return !status;
}

const char *xn_bench_path(const xn_bench_device *on, const xn_plan *plan) {
    return on->backend->plan_path ? on->backend->plan_path(plan) : "";
}

double xn_bench_cost_us(const xn_bench_device *on, const xn_plan *plan) {
    return on->backend->plan_cost_ns ? on->backend->plan_cost_ns(plan) / 1e3 : NAN;
}

static const char *path_name(const xn_bench_device *on, int index) {
    if (on->place->path_name)
        return on->place->path_name(on->device, index);
    return on->backend->device_path ? on->backend->device_path(on->device, index) : NULL;
}

xn_stream *xn_bench_path_stream(const xn_bench_device *on, int index, const char **name) {
    xn_stream *stream = NULL;
    xn_error error;
    *name = path_name(on, index);
    if (!*name)
        return NULL;
    const xn_stream_options options = {.path = *name};
    if (on->backend->stream_create(on->device, &options, &stream, &error))
        xn_bench_fail(*name, error.message);
    return stream;
}

/* ---- whole runs, with transfers ---- */

xn_program *xn_bench_program(const xn_bench_device *on, const xn_conv *conv, int64_t images,
                             const xn_prepared *prepared) {
    xn_program *program = NULL;
    xn_problem problem;
    xn_error error;
    xn_problem_of_conv(conv, &problem);
    if (xn_program_create(on->backend, on->stream, &problem, images, &program, &error) ||
        xn_program_ready(program, &prepared, &error))
        xn_bench_fail(on->backend->name, error.message);
    return program;
}

double xn_bench_program_run(xn_program *program, const xn_prepared *prepared, int64_t images,
                            const void *input, void *output) {
    const xn_batch_item item = {input, output, images};
    xn_run_times times;
    xn_error error;
    if (xn_program_run(program, &prepared, &item, 1, &times, &error))
        xn_bench_fail("run", error.message);
    return (double)times.compute_ns / 1e3;
}

void xn_bench_run_on(const char *backend, const xn_conv *conv, const xn_weights *weights,
                     int64_t images, const void *input, void *output) {
    xn_bench_device on;
    if (!xn_bench_open(backend, NULL, NULL, &on))
        xn_bench_fail(backend, "not there");
    xn_prepared *prepared = xn_bench_prepare(&on, weights);
    xn_program *program = xn_bench_program(&on, conv, images, prepared);
    xn_bench_program_run(program, prepared, images, input, output);
    xn_program_free(program);
    on.backend->weights_free(prepared);
    xn_bench_close(&on);
}
