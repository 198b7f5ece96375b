/* cpu_layers.c: the CPU's path for many channels on the 3x3 layers of a ResNet, packed and real
 * tensors, beside what the machine can count (cpu_peak.h) and copy, all of a row in turn, round by
 * round, so that what else runs on the machine disturbs all alike.
 *
 *   bench-cpu-layers [--path many/avx2] [--rounds N] [--batch N] [--json FILE]
 *
 * A figure is the least and the median time of a whole run; Tops counts 2 operations a tap. */
#include "bench_clock.h"
#include "cpu_peak.h"
#include "cpu_subject.h"

#include <stdlib.h>

enum { MOST_ROUNDS = 1000 };

static const xn_bench_kind kinds[] = {XN_BENCH_PACKED_INT32, XN_BENCH_PACKED_PACKED, XN_BENCH_FP32};
static const char *const kind_names[] = {"packed int32", "packed packed", "fp32 fp32"};
enum { KINDS = sizeof kinds / sizeof *kinds };

typedef struct {
    const char *path;
    int rounds;
    int64_t batch; /* 0: all */
    FILE *json;
    xn_bench_device on;
} bench;

/* One kind of a layer. */
typedef struct {
    xn_cpu_subject on_cpu;
    int64_t samples[MOST_ROUNDS];
} subject;

static double median(double *values, int count) {
    for (int i = 1; i < count; i++)
        for (int k = i; k > 0 && values[k] < values[k - 1]; k--) {
            double swap = values[k];
            values[k] = values[k - 1];
            values[k - 1] = swap;
        }
    return values[count / 2];
}

static void print_row(const bench *b, const xn_bench_shape *shape, int kind, subject *s,
                      double peak, double copy_us) {
    double operations = 2.0 * (double)(shape->images * shape->filters * shape->side * shape->side *
                                       shape->channels * shape->kernel * shape->kernel);
    xn_bench_stats stats;
    xn_bench_summarise(s->samples, b->rounds, &stats);
    double least_us = (double)s->samples[0] / 1e3, tops = operations / stats.median_us / 1e6;
    printf("%5lld %4lldx%-3lld %-14s | %10.1f %10.1f | %7.3f %6.3f %5.0f%% | %10.1f\n",
           (long long)shape->images, (long long)shape->channels, (long long)shape->side,
           kind_names[kind], least_us, stats.median_us, tops, operations / least_us / 1e6,
           peak > 0 ? 100 * tops / peak : 0, copy_us);
    xn_bench_json_row(b->json,
                      "{\"path\": \"%s\", \"batch\": %lld, \"channels\": %lld, \"side\": %lld, "
                      "\"kind\": \"%s\", \"least_us\": %.3f, \"median_us\": %.3f, \"tops\": %.4f, "
                      "\"peak_tops\": %.4f, \"copy_us\": %.3f, \"rounds\": %d}",
                      b->path ? b->path : "auto", (long long)shape->images,
                      (long long)shape->channels, (long long)shape->side, kind_names[kind],
                      least_us, stats.median_us, tops, peak, copy_us, b->rounds);
}

static void bench_layer(const bench *b, int64_t images, int64_t channels, int64_t side) {
    const xn_bench_shape shape = XN_BENCH_LAYER(images, channels, side);
    static subject subjects[KINDS];
    static double peaks[MOST_ROUNDS], copies[KINDS][MOST_ROUNDS];
    xn_bench_layer layer;
    xn_prepared *prepared = NULL;
    xn_error error;
    xn_bench_layer_make(&shape, &layer);
    if (xn_cpu_weights_prepare(b->on.device, layer.weights, &prepared, &error))
        xn_bench_fail("weights", error.message);
    for (int k = 0; k < KINDS; k++)
        xn_cpu_subject_make(b->on.stream, &layer, kinds[k], prepared, &subjects[k].on_cpu);
    for (int round = 0; round < b->rounds; round++) {
        peaks[round] = xn_cpu_peak_xor_count_add();
        for (int k = 0; k < KINDS; k++) {
            subject *s = &subjects[k];
            xn_bench_stats copy;
            xn_bench_floor(&b->on, s->on_cpu.in_bytes, s->on_cpu.out_bytes, 1, &copy);
            copies[k][round] = copy.median_us;
            int64_t start = xn_bench_now_ns();
            xn_cpu_subject_run(&s->on_cpu);
            s->samples[round] = xn_bench_now_ns() - start;
        }
    }
    double peak = median(peaks, b->rounds);
    for (int k = 0; k < KINDS; k++) {
        print_row(b, &shape, k, &subjects[k], peak, median(copies[k], b->rounds));
        xn_cpu_subject_free(&subjects[k].on_cpu);
    }
    printf("%20s peak %.2f Tops (most %.2f); popcount alone %.2f\n", "", peak, peaks[b->rounds - 1],
           xn_cpu_peak_count());
    fflush(stdout);
    xn_cpu_weights_free(prepared);
    xn_bench_layer_free(&layer);
}

int main(int argc, char **argv) {
    static const int64_t layers[][2] = {{64, 56}, {128, 28}, {256, 14}, {512, 7}};
    static const int64_t batches[] = {1, 64};
    bench b = {.path = xn_bench_option(argc, argv, "--path", NULL),
               .rounds = atoi(xn_bench_option(argc, argv, "--rounds", "15")),
               .batch = atoll(xn_bench_option(argc, argv, "--batch", "0"))};
    if (b.rounds < 1 || b.rounds > MOST_ROUNDS)
        xn_bench_fail("--rounds", "must be 1 to 1000");
    const xn_stream_options options = {.path = b.path};
    if (!xn_bench_open("cpu", &options, &b.on))
        xn_bench_fail("cpu", "not there");
    b.json = xn_bench_json_open(argc, argv, "bench_cpu_layers.json");
    printf("%s, path %s\n%5s %8s %-14s | %10s %10s | %7s %6s %6s | %10s\n", b.on.info.description,
           b.path ? b.path : "auto", "batch", "layer", "in, out", "least us", "median us", "Tops",
           "most", "peak", "copy us");
    for (size_t n = 0; n < sizeof batches / sizeof *batches; n++)
        for (size_t l = 0; l < sizeof layers / sizeof *layers; l++)
            if (!b.batch || b.batch == batches[n])
                bench_layer(&b, batches[n], layers[l][0], layers[l][1]);
    xn_bench_json_close(b.json);
    xn_bench_close(&b.on);
    return 0;
}
