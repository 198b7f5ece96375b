/* cpu_real.c: `make bench-cpu-real`: modes float and bwn on the CPU, fp32 NCHW in and out, on
 * layers of a ResNet and of a MobileNet, beside the machine's peak of fused multiplications
 * (cpu_peak.h), which is measured in turns with each layer.
 *
 *   bench-cpu-real [--json FILE] [--threads N] [--path NAME] [--only TEXT] [--batch N] [--ms N]
 *                  [--mode bwn]
 *
 * --path: a kernel path, such as real/avx2. --only: layers whose name has that text. --ms: about
 * how long a layer is timed. What is timed is checked first (bench_runner.h). */
#include "bench.h"
#include "bench_clock.h"
#include "cpu_peak.h"

#include <stdlib.h>
#include <string.h>

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
    {"3x3 s2 128x56", 128, 56, 128, 3, 2, 1, 1},
    {"dw 64x112", 64, 112, 64, 3, 1, 1, 64},
    {"dw 512x14", 512, 14, 512, 3, 1, 1, 512},
    {"dw s2 128x56", 128, 56, 128, 3, 2, 1, 128},
    {"groups 32 128x56", 128, 56, 128, 3, 1, 1, 32},
};

typedef struct options {
    xn_bench_device device;
    const char *only;
    int64_t batch; /* 0: 64 and 1 */
    double ms;
    xn_mode mode;
    FILE *json;
} options;

static int by_size(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static xn_bench_job *make(const options *o, const layer *l, int64_t images) {
    const xn_bench_shape shape = {.images = images,
                                  .channels = l->channels,
                                  .side = l->side,
                                  .filters = l->filters,
                                  .kernel = l->kernel,
                                  .stride = l->stride,
                                  .padding = l->padding,
                                  .dilation = 1,
                                  .groups = l->groups};
    return xn_bench_job_create(&o->device, &shape, o->mode);
}

static void measure(const options *o, const layer *l, int64_t images) {
    static int64_t samples[MOST_RUNS];
    static double peaks[MOST_RUNS];
    xn_bench_job *job = make(o, l, images);
    int count = 0, rounds = 0;
    if (!job)
        return;
    const int64_t end = xn_bench_now_ns() + (int64_t)(o->ms * 1e6);
    while (count < MOST_RUNS && (count < 3 || xn_bench_now_ns() < end)) {
        if (count % 8 == 0)
            peaks[rounds++] = xn_cpu_peak_multiply_add();
        samples[count++] = xn_bench_job_run(job);
    }
    xn_bench_stats stats;
    xn_bench_summarise(samples, count, &stats); /* sorts */
    qsort(peaks, (size_t)rounds, sizeof *peaks, by_size);
    const double rate = xn_bench_job_operations(job) / stats.median_us / 1e3;
    const double peak = peaks[rounds / 2], least_us = (double)samples[0] / 1e3;
    const char *path = xn_bench_job_path(job);
    printf("%4lld %-16s | %-13s %10.1f %10.1f | %8.1f %5.0f%%\n", (long long)images, l->name, path,
           stats.median_us, least_us, rate, peak > 0 ? 100 * rate / peak : 0);
    fflush(stdout);
    xn_bench_json_row(o->json,
                      "{\"name\": \"%s\", \"batch\": %lld, \"mode\": \"%s\", \"path\": \"%s\", "
                      "\"median_us\": %.2f, \"least_us\": %.2f, \"gflops\": %.2f, "
                      "\"peak_gflops\": %.2f, \"runs\": %d}",
                      l->name, (long long)images, xn_mode_name(o->mode), path, stats.median_us,
                      least_us, rate, peak, count);
    xn_bench_job_free(job);
}

int main(int argc, char **argv) {
    const xn_stream_options stream = {
        .threads = atoi(xn_bench_option(argc, argv, "--threads", "0")),
        .path = xn_bench_option(argc, argv, "--path", NULL),
    };
    const char *mode = xn_bench_option(argc, argv, "--mode", "float");
    options o = {
        .only = xn_bench_option(argc, argv, "--only", ""),
        .batch = atoll(xn_bench_option(argc, argv, "--batch", "0")),
        .ms = atof(xn_bench_option(argc, argv, "--ms", "300")),
    };
    const int64_t batches[] = {64, 1};
    if (!xn_mode_parse(mode, &o.mode))
        xn_bench_fail("--mode", mode);
    if (!xn_bench_open("cpu", &stream, &o.device))
        xn_bench_fail("cpu", "not there");
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
    xn_bench_close(&o.device);
    return 0;
}
