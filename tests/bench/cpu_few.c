/* cpu_few.c: `make bench-cpu-few`: convolutions of few channels on the CPU, fp32 in and out, K and
 * alpha applied, beside a parallel memcpy of the same bytes by the same threads. Both are timed in
 * turns, a few runs each, so that what else the machine does falls on both alike; the medians and
 * the least of all runs are shown. Before it is timed, a result is compared with backend ref's,
 * where that takes less than a second or so.
 *
 *   bench-cpu-few [--json FILE] [--threads N] [--path NAME] [--only TEXT] [--ms N]
 *
 * --path: a kernel path, such as few/avx2. --only: problems whose name has that text. --ms: about
 * how long a problem is timed. */
#include "bench.h"
#include "xn_mem.h"
#include "xn_rng.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST_RUNS = 20000, TURN = 4, REF_OPERATIONS = 200000000 };

typedef struct problem {
    const char *name;
    int64_t batch, channels, side, filters, kernel, groups;
} problem;

static const problem problems[] = {
    {"3x3", 1, 1, 64, 1, 3, 1},
    {"3x3", 1, 1, 128, 1, 3, 1},
    {"3x3", 1, 1, 256, 1, 3, 1},
    {"3x3", 1, 1, 512, 1, 3, 1},
    {"3x3", 1, 1, 1024, 1, 3, 1},
    {"3x3", 1, 1, 2048, 1, 3, 1},
    {"3x3", 1, 1, 4096, 1, 3, 1},
    {"3x3 odd", 1, 1, 1023, 1, 3, 1},
    {"5x5", 1, 1, 1024, 1, 5, 1},
    {"7x7", 1, 1, 1024, 1, 7, 1},
    {"3x3 rgb", 1, 3, 1024, 1, 3, 1},
    {"3x3 eight", 1, 8, 512, 1, 3, 1},
    {"3x3 16 filters", 1, 1, 512, 16, 3, 1},
    {"3x3 rgb 16 filters", 1, 3, 512, 16, 3, 1},
    {"3x3 eight 16 filters", 1, 8, 256, 16, 3, 1},
    {"7x7 rgb 64 filters", 1, 3, 224, 64, 7, 1},
    {"3x3 depth-wise", 1, 64, 112, 64, 3, 64},
    {"3x3 batch", 64, 1, 128, 1, 3, 1},
};

typedef struct made {
    xn_conv conv;
    int64_t images;
    xn_weights *weights;
    float *input, *output;
} made;

static void fail(const char *what, const xn_error *error) {
    fprintf(stderr, "bench-cpu-few: %s: %s\n", what, error ? error->message : "no memory");
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

static void make(const problem *p, made *out) {
    xn_rng rng = {2026};
    xn_error error;
    const xn_conv_limits limits = {INT64_C(1) << 40, INT64_C(1) << 40, INT64_C(1) << 60};
    const xn_shape input = {4, {p->batch, p->channels, p->side, p->side}};
    const xn_shape filter = {4, {p->filters, p->channels / p->groups, p->kernel, p->kernel}};
    const int64_t taps = p->filters * p->channels / p->groups * p->kernel * p->kernel;
    xn_tensor real = {.datatype = XN_FP32,
                      .shape = filter,
                      .elements = taps,
                      .bytes = (size_t)taps * sizeof(float),
                      .data = random_values(&rng, taps)};
    xn_conv_params params;
    xn_weights_shape shape;
    if (xn_weights_create(&real, NULL, NULL, &out->weights, &error))
        fail("weights", &error);
    xn_mem_free((void *)(uintptr_t)real.data);
    xn_conv_params_default(&params);
    for (int i = 0; i < 4; i++)
        params.padding[i] = p->kernel / 2;
    params.groups = p->groups;
    xn_weights_shape_of(out->weights, &shape);
    if (xn_conv_resolve(&params, XN_FP32, &input, &shape, &limits, &out->conv, &out->images,
                        &error))
        fail("problem", &error);
    out->input = random_values(&rng, out->images * xn_conv_input_elements(&out->conv));
    out->output = xn_mem_zalloc((size_t)out->images, xn_conv_output_bytes(&out->conv));
    if (!out->output)
        fail("output", NULL);
}

static void free_made(made *m) {
    xn_weights_free(m->weights);
    xn_mem_free(m->input);
    xn_mem_free(m->output);
}

/* ---- running ---- */

typedef struct runner {
    const xn_backend *backend;
    xn_device *device;
    xn_stream *stream;
    xn_prepared *prepared;
    xn_plan *plan;
} runner;

/* False where the path cannot run the problem. */
static bool open_runner(const char *name, const xn_stream_options *options, const made *m,
                        runner *out) {
    xn_error error;
    *out = (runner){.backend = xn_backend_find(name)};
    const xn_backend *b = out->backend;
    if (b->device_open(0, &out->device, &error) ||
        b->stream_create(out->device, options, &out->stream, &error) ||
        b->weights_prepare(out->device, m->weights, &out->prepared, &error))
        fail(name, &error);
    const xn_status status = b->plan_create(out->stream, &m->conv, m->images, &out->plan, &error);
    if (status && status != XN_ERR_UNSUPPORTED)
        fail(name, &error);
    return !status;
}

static void close_runner(runner *r) {
    r->backend->plan_free(r->plan);
    r->backend->weights_free(r->prepared);
    r->backend->stream_free(r->stream);
    r->backend->device_close(r->device);
}

static void run(const runner *r, const made *m, float *output) {
    const xn_batch_item item = {m->input, output, m->images};
    xn_error error;
    if (r->backend->run(r->plan, r->prepared, &item, 1, NULL, &error))
        fail("run", &error);
}

static void check(const made *m) {
    const int64_t count = m->images * xn_conv_output_elements(&m->conv);
    if (xn_conv_operations(&m->conv) * m->images > REF_OPERATIONS)
        return;
    float *right = xn_mem_alloc((size_t)count * sizeof *right);
    if (!right)
        fail("reference", NULL);
    runner ref;
    open_runner("ref", &(xn_stream_options){0}, m, &ref);
    run(&ref, m, right);
    for (int64_t i = 0; i < count; i++)
        if (!(fabsf(m->output[i] - right[i]) <= 1e-5f * fabsf(right[i]))) {
            fprintf(stderr, "bench-cpu-few: output %lld is %g, not %g\n", (long long)i,
                    (double)m->output[i], (double)right[i]);
            exit(1);
        }
    close_runner(&ref);
    xn_mem_free(right);
}

/* Reads the input's bytes and writes the output's: each thread copies a part of the larger, over
 * and over into or out of the smaller. */
static void copy(const made *m, float *to, int threads) {
    const size_t in = (size_t)m->images * xn_conv_input_bytes(&m->conv);
    const size_t out = (size_t)m->images * xn_conv_output_bytes(&m->conv);
    const size_t larger = in > out ? in : out;
    const unsigned char *from = (const unsigned char *)m->input;
    unsigned char *dst = (unsigned char *)to;
#pragma omp parallel num_threads(threads) if (threads > 1)
    {
        const size_t n = (size_t)omp_get_num_threads(), t = (size_t)omp_get_thread_num();
        const size_t end = larger / n * (t + 1);
        for (size_t at = larger / n * t; at < end;) {
            const size_t read = at % in, write = at % out;
            size_t part = end - at;
            part = part < in - read ? part : in - read;
            part = part < out - write ? part : out - write;
            memcpy(dst + write, from + read, part);
            at += part;
        }
    }
}

typedef struct timing {
    double median_us, least_us;
} timing;

static timing summarise(int64_t *samples, int count) {
    xn_bench_stats stats;
    xn_bench_summarise(samples, count, &stats); /* sorts */
    return (timing){stats.median_us, (double)samples[0] / 1e3};
}

static void measure(const runner *r, const made *m, int threads, double ms, timing *ours,
                    timing *floor) {
    int64_t *mine = xn_mem_alloc(MOST_RUNS * sizeof *mine);
    int64_t *theirs = xn_mem_alloc(MOST_RUNS * sizeof *theirs);
    if (!mine || !theirs)
        fail("samples", NULL);
    const int64_t end = now_ns() + (int64_t)(ms * 1e6);
    int count = 0;
    while (count + TURN <= MOST_RUNS && (count < 3 * TURN || now_ns() < end)) {
        for (int i = -1; i < TURN; i++) { /* the first of a turn is not counted */
            const int64_t start = now_ns();
            run(r, m, m->output);
            mine[count + (i < 0 ? 0 : i)] = now_ns() - start;
        }
        for (int i = -1; i < TURN; i++) {
            const int64_t start = now_ns();
            copy(m, m->output, threads);
            theirs[count + (i < 0 ? 0 : i)] = now_ns() - start;
        }
        count += TURN;
    }
    *ours = summarise(mine, count);
    *floor = summarise(theirs, count);
    xn_mem_free(mine);
    xn_mem_free(theirs);
}

static const char *option(int argc, char **argv, const char *name, const char *otherwise) {
    for (int i = 1; i + 1 < argc; i++)
        if (!strcmp(argv[i], name))
            return argv[i + 1];
    return otherwise;
}

static void bench(const problem *p, const xn_stream_options *options, double ms, FILE *json) {
    made m;
    runner r;
    timing ours, floor;
    make(p, &m);
    if (open_runner("cpu", options, &m, &r)) {
        run(&r, &m, m.output);
        check(&m);
        const int threads = options->threads ? options->threads : omp_get_num_procs();
        measure(&r, &m, threads, ms, &ours, &floor);
        const char *path = r.backend->plan_path(r.plan);
        const double outputs = (double)(m.images * xn_conv_output_elements(&m.conv));
        printf("%-22s %4lld | %-13s %9.1f %9.1f | %9.1f %9.1f | %6.2f | %7.3f\n", p->name,
               (long long)p->side, path, ours.median_us, ours.least_us, floor.median_us,
               floor.least_us, ours.median_us / floor.median_us, ours.median_us * 1e3 / outputs);
        fflush(stdout);
        xn_bench_json_row(json,
                          "{\"name\": \"%s\", \"side\": %lld, \"path\": \"%s\", \"threads\": %d, "
                          "\"median_us\": %.2f, \"least_us\": %.2f, \"copy_median_us\": %.2f, "
                          "\"copy_least_us\": %.2f}",
                          p->name, (long long)p->side, path, threads, ours.median_us, ours.least_us,
                          floor.median_us, floor.least_us);
    }
    close_runner(&r);
    free_made(&m);
}

int main(int argc, char **argv) {
    const xn_stream_options options = {
        .threads = atoi(option(argc, argv, "--threads", "0")),
        .path = option(argc, argv, "--path", NULL),
    };
    const double ms = atof(option(argc, argv, "--ms", "300"));
    const char *only = option(argc, argv, "--only", "");
    FILE *json = xn_bench_json_open(argc, argv, "bench_cpu_few.json");
    printf("fp32 to fp32, K and alpha, padding same; copy: the same bytes, the same threads\n"
           "%-22s %4s | %-13s %9s %9s | %9s %9s | %6s | %7s\n",
           "", "side", "path", "median us", "least", "copy us", "least", "ratio", "ns/out");
    for (size_t i = 0; i < sizeof problems / sizeof *problems; i++)
        if (strstr(problems[i].name, only))
            bench(&problems[i], &options, ms, json);
    xn_bench_json_close(json);
    return 0;
}
