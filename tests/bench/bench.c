/* bench.c: see bench.h. */
#include "bench.h"

#include "xn_mem.h"
#include "xn_rng.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#define REF_OPERATIONS 300000000 /* about a second of the naive reference */

static void fail(const char *what, const xn_error *error) {
    fprintf(stderr, "bench: %s: %s\n", what, error ? error->message : "no memory");
    exit(1);
}

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

bool xn_bench_open(const char *name, xn_bench_device *out) {
    const xn_backend *backend = xn_backend_find(name);
    xn_error error;
    int count = 0;
    if (!backend || backend->device_count(&count, &error) || !count)
        return false;
    *out = (xn_bench_device){.backend = backend};
    if (backend->device_open(0, &out->device, &error) ||
        backend->stream_create(out->device, &(xn_stream_options){0}, &out->stream, &error))
        fail(name, &error);
    backend->device_info(out->device, &out->info);
    return true;
}

void xn_bench_close(xn_bench_device *device) {
    if (!device->backend)
        return;
    device->backend->stream_free(device->stream);
    device->backend->device_close(device->device);
}

static int compare(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

void xn_bench_summarise(int64_t *samples, int count, xn_bench_stats *out) {
    double sum = 0;
    qsort(samples, (size_t)count, sizeof *samples, compare);
    for (int i = 0; i < count; i++)
        sum += (double)samples[i];
    *out = (xn_bench_stats){.median_us = (double)samples[count / 2] / 1e3,
                            .mean_us = sum / count / 1e3,
                            .p10_us = (double)samples[count / 10] / 1e3,
                            .p90_us = (double)samples[count - 1 - count / 10] / 1e3,
                            .runs = count};
}

static xn_tensor random_tensor(xn_rng *rng, const int64_t dims[4]) {
    xn_tensor tensor = {.datatype = XN_FP32, .shape = {.rank = 4}};
    memcpy(tensor.shape.dims, dims, 4 * sizeof *dims);
    tensor.elements = dims[0] * dims[1] * dims[2] * dims[3];
    tensor.bytes = (size_t)tensor.elements * sizeof(float);
    float *values = xn_mem_alloc(tensor.bytes);
    if (!values)
        fail("input", NULL);
    for (int64_t i = 0; i < tensor.elements; i++)
        values[i] = xn_rng_float(rng);
    tensor.data = values;
    return tensor;
}

typedef struct {
    xn_conv conv;
    int64_t images;
    xn_weights *weights;
    xn_tensor input;
} made_problem;

static void make_problem(const xn_bench_problem *p, made_problem *out) {
    xn_rng rng = {12345};
    xn_conv_params params;
    xn_weights_shape shape;
    const xn_conv_limits limits = {INT64_C(1) << 40, INT64_C(1) << 40, INT64_C(1) << 60};
    const int64_t dims[4] = {p->batch, p->channels, p->side, p->side};
    const int64_t filter[4] = {p->out_channels, p->channels, p->kernel, p->kernel};
    xn_error error;
    out->input = random_tensor(&rng, dims);
    xn_tensor real = random_tensor(&rng, filter);
    if (xn_weights_create(&real, NULL, NULL, &out->weights, &error))
        fail("weights", &error);
    xn_mem_free((void *)(uintptr_t)real.data);
    xn_conv_params_default(&params);
    for (int i = 0; i < 4; i++)
        params.padding[i] = p->padding;
    params.mode = p->mode;
    params.scaling = p->scaling;
    xn_weights_shape_of(out->weights, &shape);
    if (xn_conv_resolve(&params, XN_FP32, &out->input.shape, &shape, &limits, &out->conv,
                        &out->images, &error))
        fail("problem", &error);
}

typedef struct {
    xn_prepared *prepared;
    xn_plan *plan;
} made_plan;

static void make_plan(const xn_bench_device *d, const made_problem *p, made_plan *out) {
    xn_error error;
    if (d->backend->weights_prepare(d->device, p->weights, &out->prepared, &error))
        fail("prepare", &error);
    if (d->backend->plan_create(d->stream, &p->conv, p->images, &out->plan, &error))
        fail("plan", &error);
}

static void free_plan(const xn_bench_device *d, made_plan *plan) {
    d->backend->plan_free(plan->plan);
    d->backend->weights_free(plan->prepared);
}

static int64_t run_once(const xn_bench_device *d, const made_plan *plan, const void *input,
                        void *output, int64_t images) {
    xn_batch_item item = {input, output, images};
    xn_run_times times;
    xn_error error;
    if (d->backend->run(plan->plan, plan->prepared, &item, 1, &times, &error))
        fail("run", &error);
    return times.compute_ns;
}

/* Exits when the outputs differ by more than 1e-5 of the largest one. */
static void check(const made_problem *p, const float *got) {
    xn_bench_device ref;
    made_plan plan;
    size_t count = (size_t)(p->images * xn_conv_output_elements(&p->conv));
    if (xn_conv_operations(&p->conv) * p->images > REF_OPERATIONS || !xn_bench_open("ref", &ref))
        return;
    float *want = xn_mem_alloc(count * sizeof *want);
    if (!want)
        fail("reference", NULL);
    make_plan(&ref, p, &plan);
    run_once(&ref, &plan, p->input.data, want, p->images);
    double largest = 0;
    for (size_t i = 0; i < count; i++)
        largest = fmax(largest, fabs((double)want[i]));
    for (size_t i = 0; i < count; i++) {
        if (!(fabs((double)got[i] - (double)want[i]) <= 1e-5 * largest)) {
            fprintf(stderr, "bench: output %zu is %g, the reference says %g\n", i, (double)got[i],
                    (double)want[i]);
            exit(1);
        }
    }
    free_plan(&ref, &plan);
    xn_bench_close(&ref);
    xn_mem_free(want);
}

struct xn_bench_job {
    xn_bench_device device;
    made_problem problem;
    made_plan plan;
    void *input;
    float *output;
};

xn_bench_job *xn_bench_job_create(const xn_bench_device *d, const xn_bench_problem *problem) {
    xn_bench_job *job = xn_mem_zalloc(1, sizeof *job);
    if (!job)
        fail("job", NULL);
    made_problem *p = &job->problem;
    job->device = *d;
    make_problem(problem, p);
    make_plan(d, p, &job->plan);
    size_t output_bytes = (size_t)p->images * xn_conv_output_bytes(&p->conv);
    job->input = d->backend->host_alloc(d->device, p->input.bytes);
    job->output = d->backend->host_alloc(d->device, output_bytes);
    if (!job->input || !job->output)
        fail("buffers", NULL);
    memcpy(job->input, p->input.data, p->input.bytes);
    memset(job->output, 0xff, output_bytes);
    xn_bench_job_run(job);
    check(p, job->output);
    return job;
}

int64_t xn_bench_job_run(xn_bench_job *job) {
    return run_once(&job->device, &job->plan, job->input, job->output, job->problem.images);
}

void xn_bench_job_free(xn_bench_job *job) {
    if (!job)
        return;
    const xn_bench_device *d = &job->device;
    d->backend->host_free(d->device, job->input);
    d->backend->host_free(d->device, job->output);
    free_plan(d, &job->plan);
    xn_weights_free(job->problem.weights);
    xn_mem_free((void *)(uintptr_t)job->problem.input.data);
    xn_mem_free(job);
}

void xn_bench_conv(const xn_bench_device *d, const xn_bench_problem *problem, int runs,
                   xn_bench_stats *out) {
    xn_bench_job *job = xn_bench_job_create(d, problem);
    int64_t *samples = xn_mem_alloc((size_t)runs * sizeof *samples);
    if (!samples)
        fail("samples", NULL);
    for (int i = 0; i < 3; i++)
        xn_bench_job_run(job);
    for (int i = 0; i < runs; i++)
        samples[i] = xn_bench_job_run(job);
    xn_bench_summarise(samples, runs, out);
    xn_mem_free(samples);
    xn_bench_job_free(job);
}

void xn_bench_copy(void *target, const void *source, size_t in_bytes, size_t out_bytes) {
    unsigned char *to = target;
    const unsigned char *from = source;
    const size_t block = 64 << 10;
    size_t larger = in_bytes > out_bytes ? in_bytes : out_bytes;
    long blocks = (long)((larger + block - 1) / block);
    unsigned long long sum = 0;
#pragma omp parallel for schedule(static) reduction(+ : sum) if (larger > 4 * block)
    for (long b = 0; b < blocks; b++) {
        size_t at = (size_t)b * block;
        size_t end = at + block;
        size_t both = in_bytes < out_bytes ? in_bytes : out_bytes;
        size_t copy_end = end < both ? end : both;
        if (copy_end > at)
            memcpy(to + at, from + at, copy_end - at);
        for (size_t i = at > both ? at : both; i < end && i < out_bytes; i += 64)
            memset(to + i, 1, out_bytes - i < 64 ? out_bytes - i : 64);
        for (size_t i = at > both ? at : both; i < end && i < in_bytes; i += 64)
            sum += from[i];
    }
    if (sum == 1) /* keep the reads */
        to[0] = 1;
}

void xn_bench_floor(const xn_bench_device *d, size_t in_bytes, size_t out_bytes, int runs,
                    xn_bench_stats *out) {
    double us = 0;
    if (!strcmp(d->backend->name, "cuda") && xn_bench_gpu_copy(in_bytes, out_bytes, &us)) {
        *out = (xn_bench_stats){us, us, us, us, runs};
        return;
    }
    unsigned char *from = xn_mem_alloc(in_bytes), *to = xn_mem_alloc(out_bytes);
    int64_t *samples = xn_mem_alloc((size_t)runs * sizeof *samples);
    if (!from || !to || !samples)
        fail("floor", NULL);
    memset(from, 1, in_bytes);
    memset(to, 2, out_bytes);
    for (int i = -3; i < runs; i++) {
        int64_t start = now_ns();
        xn_bench_copy(to, from, in_bytes, out_bytes);
        if (i >= 0)
            samples[i] = now_ns() - start;
    }
    xn_bench_summarise(samples, runs, out);
    xn_mem_free(samples);
    xn_mem_free(from);
    xn_mem_free(to);
}

static int rows;

FILE *xn_bench_json_open(int argc, char **argv, const char *default_path) {
    const char *path = default_path;
    for (int i = 1; i + 1 < argc; i++)
        if (!strcmp(argv[i], "--json"))
            path = argv[i + 1];
    FILE *file = fopen(path, "w");
    if (!file) {
        fprintf(stderr, "bench: cannot write %s: %s\n", path, strerror(errno));
        exit(1);
    }
    printf("JSON: %s\n", path);
    fputs("[", file);
    rows = 0;
    return file;
}

void xn_bench_json_row(FILE *file, const char *format, ...) {
    va_list list;
    va_start(list, format);
    fputs(rows++ ? ",\n " : "\n ", file);
    vfprintf(file, format, list);
    va_end(list);
}

void xn_bench_json_close(FILE *file) {
    fputs("\n]\n", file);
    if (fclose(file)) {
        fprintf(stderr, "bench: the JSON file could not be written\n");
        exit(1);
    }
}
