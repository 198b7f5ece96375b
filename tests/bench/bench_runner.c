/* bench_runner.c: see bench_runner.h. */
#include "bench_runner.h"
#include "xn_program.h"

#include "xn_mem.h"
#include "xn_rng.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { REF_OPERATIONS = 300000000 }; /* about a second of the naive reference */

void xn_bench_fail(const char *what, const char *message) {
    fprintf(stderr, "bench: %s: %s\n", what, message);
    exit(1);
}

void *xn_bench_take(size_t count, size_t bytes) {
    void *memory = xn_mem_zalloc(count, bytes);
    if (!memory)
        xn_bench_fail("data", "no memory");
    return memory;
}

/* ---- devices ---- */

bool xn_bench_open(const char *name, const xn_stream_options *options, xn_bench_device *out) {
    const xn_stream_options none = {0};
    const xn_backend *backend = xn_backend_find(name);
    xn_error error;
    int count = 0;
    if (!backend || backend->device_count(&count, &error) || !count)
        return false;
    *out = (xn_bench_device){.backend = backend};
    if (backend->device_open(0, &out->device, &error) ||
        backend->stream_create(out->device, options ? options : &none, &out->stream, &error))
        xn_bench_fail(name, error.message);
    backend->device_info(out->device, &out->info);
    return true;
}

void xn_bench_close(xn_bench_device *device) {
    if (!device->backend)
        return;
    device->backend->stream_free(device->stream);
    device->backend->device_close(device->device);
}

/* ---- problems ---- */

xn_conv xn_bench_resolve(const xn_bench_shape *s, int64_t rows, int64_t bottom, xn_mode mode,
                         xn_scaling scaling) {
    const xn_conv_limits limits = {INT64_C(1) << 40, INT64_C(1) << 40, INT64_C(1) << 60};
    const xn_shape input = {4, {s->images, s->channels, rows, s->side}};
    const xn_weights_shape weights = {
        {s->filters, s->channels / s->groups, s->kernel, s->kernel}, XN_FP32, false, false};
    xn_conv_params params;
    xn_conv conv;
    xn_error error;
    int64_t images;
    xn_conv_params_default(&params);
    params.padding[0] = params.padding[1] = params.padding[3] = s->padding;
    params.padding[2] = bottom;
    params.stride[0] = params.stride[1] = s->stride;
    params.dilation[0] = params.dilation[1] = s->dilation;
    params.groups = s->groups;
    params.mode = mode;
    params.scaling = scaling;
    if (xn_conv_resolve(&params, XN_FP32, &input, &weights, &limits, &conv, &images, &error))
        xn_bench_fail("problem", error.message);
    return conv;
}

static int64_t weights_of(const xn_bench_shape *s) {
    return s->filters * (s->channels / s->groups) * s->kernel * s->kernel;
}

xn_weights *xn_bench_weights(const xn_bench_shape *s, const float *real) {
    const xn_tensor tensor = {
        .datatype = XN_FP32,
        .shape = {4, {s->filters, s->channels / s->groups, s->kernel, s->kernel}},
        .elements = weights_of(s),
        .bytes = (size_t)weights_of(s) * sizeof(float),
        .data = real};
    xn_weights *weights = NULL;
    xn_error error;
    if (xn_weights_create(&tensor, NULL, NULL, &weights, &error))
        xn_bench_fail("weights", error.message);
    return weights;
}

/* ---- plans ---- */

typedef struct runner {
    const xn_bench_device *on;
    xn_prepared *prepared;
    xn_program *program;
} runner;

static void free_runner(runner *r) {
    xn_program_free(r->program);
    r->on->backend->weights_free(r->prepared);
    r->program = NULL;
    r->prepared = NULL;
}

static xn_status create_program(const xn_bench_device *on, const xn_conv *conv, int64_t images,
                                xn_program **out, xn_error *error) {
    xn_problem problem;
    xn_problem_of_conv(conv, &problem);
    return xn_program_create(on->backend, on->stream, &problem, images, out, error);
}

/* False where the stream is held to a path that cannot. */
static bool make_runner(const xn_bench_device *on, const xn_conv *conv, const xn_weights *weights,
                        int64_t images, runner *out) {
    const xn_backend *b = on->backend;
    xn_error error;
    *out = (runner){.on = on};
    xn_status status = b->weights_prepare(on->device, weights, &out->prepared, &error);
    if (!status)
        status = create_program(on, conv, images, &out->program, &error);
    if (!status)
        status = xn_program_ready(out->program, (const xn_prepared *[]){out->prepared}, &error);
    if (status && status != XN_ERR_UNSUPPORTED)
        xn_bench_fail(b->name, error.message);
    if (status)
        free_runner(out);
    return !status;
}

static int64_t run(const runner *r, const void *input, void *output, int64_t images) {
    const xn_batch_item item = {input, output, images};
    xn_run_times times;
    xn_error error;
    if (xn_program_run(r->program, (const xn_prepared *[]){r->prepared}, &item, 1, &times, &error))
        xn_bench_fail(r->on->backend->name, error.message);
    return times.compute_ns;
}

void xn_bench_run_on(const char *backend, const xn_conv *conv, const xn_weights *weights,
                     int64_t images, const void *input, void *output) {
    xn_bench_device device;
    runner r;
    if (!xn_bench_open(backend, NULL, &device))
        xn_bench_fail(backend, "not there");
    if (!make_runner(&device, conv, weights, images, &r))
        xn_bench_fail(backend, "cannot run it");
    run(&r, input, output, images);
    free_runner(&r);
    xn_bench_close(&device);
}

/* ---- jobs ---- */

struct xn_bench_job {
    xn_bench_device device;
    int64_t images;
    xn_conv conv;
    xn_weights *weights;
    runner runner;
    void *input, *output;
};

static void fill(xn_rng *rng, float *values, int64_t count) {
    for (int64_t i = 0; i < count; i++)
        values[i] = xn_rng_float(rng);
}

/* The last image, within 1e-5 of its largest output. */
static void check(const xn_bench_job *job) {
    const int64_t outputs = xn_conv_output_elements(&job->conv), last = job->images - 1;
    const float *got = (const float *)job->output + last * outputs;
    double largest = 0;
    if (xn_conv_operations(&job->conv) > REF_OPERATIONS)
        return;
    float *want = xn_bench_take((size_t)outputs, sizeof *want);
    xn_bench_run_on("ref", &job->conv, job->weights, 1,
                    (const float *)job->input + last * xn_conv_input_elements(&job->conv), want);
    for (int64_t i = 0; i < outputs; i++)
        largest = fmax(largest, fabs((double)want[i]));
    for (int64_t i = 0; i < outputs; i++)
        if (!(fabs((double)got[i] - (double)want[i]) <= 1e-5 * largest)) {
            fprintf(stderr, "bench: output %lld is %g, the reference says %g\n", (long long)i,
                    (double)got[i], (double)want[i]);
            exit(1);
        }
    xn_mem_free(want);
}

static void fill_job(xn_bench_job *job, const xn_bench_shape *s) {
    const xn_bench_device *d = &job->device;
    const int64_t inputs = s->images * xn_conv_input_elements(&job->conv);
    xn_rng rng = {12345};
    float *real = xn_bench_take((size_t)weights_of(s), sizeof *real);
    job->input = d->backend->host_alloc(d->device, xn_bench_job_in_bytes(job));
    job->output = d->backend->host_alloc(d->device, xn_bench_job_out_bytes(job));
    if (!job->input || !job->output)
        xn_bench_fail("buffers", "no memory");
    fill(&rng, job->input, inputs);
    fill(&rng, real, weights_of(s));
    memset(job->output, 0xff, xn_bench_job_out_bytes(job));
    job->weights = xn_bench_weights(s, real);
    xn_mem_free(real);
}

xn_bench_job *xn_bench_job_create(const xn_bench_device *d, const xn_bench_shape *s, xn_mode mode) {
    xn_bench_job *job = xn_bench_take(1, sizeof *job);
    job->device = *d;
    job->images = s->images;
    job->conv = xn_bench_resolve(s, s->side, s->padding, mode, XN_SCALING_XNOR);
    fill_job(job, s);
    if (!make_runner(&job->device, &job->conv, job->weights, job->images, &job->runner)) {
        xn_bench_job_free(job);
        return NULL;
    }
    xn_bench_job_run(job);
    check(job);
    return job;
}

int64_t xn_bench_job_run(xn_bench_job *job) {
    return run(&job->runner, job->input, job->output, job->images);
}

void xn_bench_job_free(xn_bench_job *job) {
    if (!job)
        return;
    const xn_bench_device *d = &job->device;
    d->backend->host_free(d->device, job->input);
    d->backend->host_free(d->device, job->output);
    free_runner(&job->runner);
    xn_weights_free(job->weights);
    xn_mem_free(job);
}

const char *xn_bench_job_path(const xn_bench_job *job) {
    const xn_backend *b = job->device.backend;
    return b->plan_path ? b->plan_path(xn_program_plan(job->runner.program, 0)) : "";
}

size_t xn_bench_job_in_bytes(const xn_bench_job *job) {
    return (size_t)job->images * xn_conv_input_bytes(&job->conv);
}

size_t xn_bench_job_out_bytes(const xn_bench_job *job) {
    return (size_t)job->images * xn_conv_output_bytes(&job->conv);
}

double xn_bench_job_operations(const xn_bench_job *job) {
    return 2.0 * (double)(job->images * xn_conv_operations(&job->conv));
}
