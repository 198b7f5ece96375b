/* cpu_real.c: `make bench-cpu-real`: modes float and bwn on the CPU, fp32 NCHW in and out, on
 * layers of a ResNet and of a MobileNet, beside the machine's peak of fused multiplications
 * (cpu_peak.h), which is measured in turns with each layer.
 *
 *   bench-cpu-real [--json FILE] [--threads N] [--path NAME] [--only TEXT] [--batch N] [--ms N]
 *                  [--mode bwn]
 *
 * --path: a kernel path, such as real/avx2. --only: layers whose name has that text. --ms: about
 * how long a layer is timed. The last image of a result is first compared with backend ref's. */
#include "bench.h"
#include "cpu_peak.h"
#include "xn_mem.h"
#include "xn_rng.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST_RUNS = 4000 };

typedef struct layer {
    const char *name;
    int64_t channels, side, filters, kernel, stride, padding, groups;
} layer;

static const layer layers[] = {
    {"64x56", 64, 56, 64, 3, 1, 1, 1},
    {"128x28", 128, 28, 128, 3, 1, 1, 1},
    {"256x14", 256, 14, 256, 3, 1, 1, 1},
    {"512x7", 512, 7, 512, 3, 1, 1, 1},
    {"stem 7x7 s2", 3, 224, 64, 7, 2, 3, 1},
    {"1x1 64-256", 64, 56, 256, 1, 1, 0, 1},
    {"1x1 256-64", 256, 56, 64, 1, 1, 0, 1},
    {"1x1 1024-256", 1024, 14, 256, 1, 1, 0, 1},
    {"1x1 s2 256-512", 256, 56, 512, 1, 2, 0, 1},
    {"dw 64x112", 64, 112, 64, 3, 1, 1, 64},
    {"dw 512x14", 512, 14, 512, 3, 1, 1, 512},
    {"dw s2 128x56", 128, 56, 128, 3, 2, 1, 128},
    {"groups 32 128x56", 128, 56, 128, 3, 1, 1, 32},
};

typedef struct problem {
    xn_conv conv;
    int64_t images;
    xn_weights *weights;
    float *input, *output;
} problem;

typedef struct options {
    xn_stream_options stream;
    const char *only;
    int64_t batch; /* 0: 64 and 1 */
    double ms;
    xn_mode mode;
    FILE *json;
} options;

static void fail(const char *what, const xn_error *error) {
    fprintf(stderr, "bench-cpu-real: %s: %s\n", what, error ? error->message : "no memory");
    exit(1);
}

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static float *random_values(xn_rng *rng, int64_t count) {
    float *values = xn_mem_alloc((size_t)count * sizeof *values);
    if (!values)
        fail("values", NULL);
    for (int64_t i = 0; i < count; i++)
        values[i] = xn_rng_float(rng);
    return values;
}

static void make(const layer *l, int64_t images, xn_mode mode, problem *out) {
    xn_rng rng = {2026};
    xn_error error;
    const xn_conv_limits limits = {INT64_C(1) << 40, INT64_C(1) << 40, INT64_C(1) << 60};
    const xn_shape input = {4, {images, l->channels, l->side, l->side}};
    const xn_shape filter = {4, {l->filters, l->channels / l->groups, l->kernel, l->kernel}};
    const int64_t taps = l->filters * l->channels / l->groups * l->kernel * l->kernel;
    float *values = random_values(&rng, taps);
    xn_tensor real = {.datatype = XN_FP32,
                      .shape = filter,
                      .elements = taps,
                      .bytes = (size_t)taps * sizeof(float),
                      .data = values};
    xn_conv_params params;
    xn_weights_shape shape;
    if (xn_weights_create(&real, NULL, NULL, &out->weights, &error))
        fail("weights", &error);
    xn_mem_free(values);
    xn_conv_params_default(&params);
    for (int i = 0; i < 4; i++)
        params.padding[i] = l->padding;
    params.stride[0] = params.stride[1] = l->stride;
    params.groups = l->groups;
    params.mode = mode;
    xn_weights_shape_of(out->weights, &shape);
    if (xn_conv_resolve(&params, XN_FP32, &input, &shape, &limits, &out->conv, &out->images,
                        &error))
        fail("problem", &error);
    out->input = random_values(&rng, images * xn_conv_input_elements(&out->conv));
    out->output = xn_mem_zalloc((size_t)images, xn_conv_output_bytes(&out->conv));
    if (!out->output)
        fail("output", NULL);
}

static void free_problem(problem *p) {
    xn_weights_free(p->weights);
    xn_mem_free(p->input);
    xn_mem_free(p->output);
}

/* ---- running ---- */

typedef struct runner {
    const xn_backend *backend;
    xn_device *device;
    xn_stream *stream;
    xn_prepared *prepared;
    xn_plan *plan;
} runner;

static void open_runner(const char *name, const xn_stream_options *stream, const problem *p,
                        int64_t images, runner *out) {
    xn_error error;
    *out = (runner){.backend = xn_backend_find(name)};
    const xn_backend *b = out->backend;
    if (b->device_open(0, &out->device, &error) ||
        b->stream_create(out->device, stream, &out->stream, &error) ||
        b->weights_prepare(out->device, p->weights, &out->prepared, &error) ||
        b->plan_create(out->stream, &p->conv, images, &out->plan, &error))
        fail(name, &error);
}

static void close_runner(runner *r) {
    r->backend->plan_free(r->plan);
    r->backend->weights_free(r->prepared);
    r->backend->stream_free(r->stream);
    r->backend->device_close(r->device);
}

static void run(const runner *r, const float *input, float *output, int64_t images) {
    const xn_batch_item item = {input, output, images};
    xn_error error;
    if (r->backend->run(r->plan, r->prepared, &item, 1, NULL, &error))
        fail("run", &error);
}

/* The last image, whole. Terms are below 1, so that their number bounds the sum of magnitudes. */
static void check(const problem *p) {
    const int64_t outputs = xn_conv_output_elements(&p->conv), last = p->images - 1;
    const double terms = (double)xn_conv_operations(&p->conv) / (double)outputs;
    float *right = xn_mem_alloc((size_t)outputs * sizeof *right);
    if (!right)
        fail("reference", NULL);
    runner ref;
    open_runner("ref", &(xn_stream_options){0}, p, 1, &ref);
    run(&ref, p->input + last * xn_conv_input_elements(&p->conv), right, 1);
    for (int64_t i = 0; i < outputs; i++) {
        const float got = p->output[last * outputs + i];
        if (!(fabs((double)got - (double)right[i]) <= 1e-5 * terms)) {
            fprintf(stderr, "bench-cpu-real: output %lld is %g, not %g\n", (long long)i,
                    (double)got, (double)right[i]);
            exit(1);
        }
    }
    close_runner(&ref);
    xn_mem_free(right);
}

static int by_size(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void measure(const options *o, const layer *l, int64_t images) {
    static int64_t samples[MOST_RUNS];
    static double peaks[MOST_RUNS];
    problem p;
    runner r;
    int count = 0, rounds = 0;
    make(l, images, o->mode, &p);
    open_runner("cpu", &o->stream, &p, images, &r);
    run(&r, p.input, p.output, images);
    check(&p);
    const int64_t end = now_ns() + (int64_t)(o->ms * 1e6);
    while (count < MOST_RUNS && (count < 3 || now_ns() < end)) {
        if (count % 8 == 0)
            peaks[rounds++] = xn_cpu_peak_multiply_add();
        const int64_t start = now_ns();
        run(&r, p.input, p.output, images);
        samples[count++] = now_ns() - start;
    }
    xn_bench_stats stats;
    xn_bench_summarise(samples, count, &stats); /* sorts */
    qsort(peaks, (size_t)rounds, sizeof *peaks, by_size);
    const double operations = 2.0 * (double)(images * xn_conv_operations(&p.conv));
    const double rate = operations / stats.median_us / 1e3, peak = peaks[rounds / 2];
    printf("%4lld %-16s | %-13s %10.1f %10.1f | %8.1f %5.0f%%\n", (long long)images, l->name,
           r.backend->plan_path(r.plan), stats.median_us, (double)samples[0] / 1e3, rate,
           peak > 0 ? 100 * rate / peak : 0);
    fflush(stdout);
    xn_bench_json_row(o->json,
                      "{\"name\": \"%s\", \"batch\": %lld, \"mode\": \"%s\", \"path\": \"%s\", "
                      "\"median_us\": %.2f, \"least_us\": %.2f, \"gflops\": %.2f, "
                      "\"peak_gflops\": %.2f, \"runs\": %d}",
                      l->name, (long long)images, xn_mode_name(o->mode),
                      r.backend->plan_path(r.plan), stats.median_us, (double)samples[0] / 1e3, rate,
                      peak, count);
    close_runner(&r);
    free_problem(&p);
}

static const char *option(int argc, char **argv, const char *name, const char *otherwise) {
    for (int i = 1; i + 1 < argc; i++)
        if (!strcmp(argv[i], name))
            return argv[i + 1];
    return otherwise;
}

int main(int argc, char **argv) {
    options o = {
        .stream = {.threads = atoi(option(argc, argv, "--threads", "0")),
                   .path = option(argc, argv, "--path", NULL)},
        .only = option(argc, argv, "--only", ""),
        .batch = atoll(option(argc, argv, "--batch", "0")),
        .ms = atof(option(argc, argv, "--ms", "300")),
    };
    const int64_t batches[] = {64, 1};
    if (!xn_mode_parse(option(argc, argv, "--mode", "float"), &o.mode))
        fail("--mode", NULL);
    o.json = xn_bench_json_open(argc, argv, "bench_cpu_real.json");
    printf("mode %s, fp32 NCHW in and out; peak %.0f Gflop/s\n%4s %-16s | %-13s %10s %10s | %8s "
           "%6s\n",
           xn_mode_name(o.mode), xn_cpu_peak_multiply_add(), "", "layer", "path", "median us",
           "least", "Gflop/s", "peak");
    for (size_t b = 0; b < sizeof batches / sizeof *batches; b++)
        for (size_t i = 0; i < sizeof layers / sizeof *layers; i++)
            if ((!o.batch || o.batch == batches[b]) && strstr(layers[i].name, o.only))
                measure(&o, &layers[i], batches[b]);
    xn_bench_json_close(o.json);
    return 0;
}
