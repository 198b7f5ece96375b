/* bench_conv.c: the convolution on the backends named: the paper's single-channel sizes and the 3x3
 * layers of a ResNet, fp32 in and out, K and alpha applied; beside each the floor: copying the same
 * bytes.   bench_conv [--json FILE] [--runs N] [BACKEND ...] */
#include "bench.h"

#include <stdlib.h>
#include <string.h>

static const xn_bench_shape layers[] = {
    XN_BENCH_LAYER(1, 1, 256),   XN_BENCH_LAYER(1, 1, 512),   XN_BENCH_LAYER(1, 1, 1024),
    XN_BENCH_LAYER(1, 1, 2048),  XN_BENCH_LAYER(1, 64, 56),   XN_BENCH_LAYER(1, 128, 28),
    XN_BENCH_LAYER(1, 256, 14),  XN_BENCH_LAYER(1, 512, 7),   XN_BENCH_LAYER(64, 64, 56),
    XN_BENCH_LAYER(64, 128, 28), XN_BENCH_LAYER(64, 256, 14), XN_BENCH_LAYER(64, 512, 7)};

static void bench_device(const xn_bench_device *d, int runs, FILE *json) {
    printf("\n%s (%s)\n%5s %5s %5s | %12s %25s %9s | %12s %7s\n", d->info.id, d->info.description,
           "batch", "chan", "side", "median us", "p10 .. p90", "Tops", "copy us", "ratio");
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++) {
        const xn_bench_shape *p = &layers[i];
        xn_bench_stats ours, floor;
        size_t in = (size_t)(p->images * p->channels * p->side * p->side) * sizeof(float);
        size_t out = (size_t)(p->images * p->filters * p->side * p->side) * sizeof(float);
        double operations = 2.0 * (double)(p->images * p->filters * p->side * p->side) *
                            (double)(p->channels * p->kernel * p->kernel);
        xn_bench_conv(d, p, XN_MODE_XNOR, runs, &ours);
        xn_bench_floor(d, in, out, runs, &floor);
        double tops = operations / ours.median_us / 1e6;
        printf("%5lld %5lld %5lld | %12.2f %11.2f .. %10.2f %9.3f | %12.2f %7.2f\n",
               (long long)p->images, (long long)p->channels, (long long)p->side, ours.median_us,
               ours.p10_us, ours.p90_us, tops, floor.median_us, ours.median_us / floor.median_us);
        fflush(stdout);
        xn_bench_json_row(
            json,
            "{\"backend\": \"%s\", \"batch\": %lld, \"channels\": %lld, \"side\": %lld, "
            "\"kernel\": %lld, \"median_us\": %.3f, \"p10_us\": %.3f, \"p90_us\": %.3f, "
            "\"tops\": %.4f, \"copy_us\": %.3f, \"runs\": %d}",
            d->info.id, (long long)p->images, (long long)p->channels, (long long)p->side,
            (long long)p->kernel, ours.median_us, ours.p10_us, ours.p90_us, tops, floor.median_us,
            runs);
    }
}

static bool wanted(const char *name, int argc, char **argv) {
    bool named = false;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--json") || !strcmp(argv[i], "--runs")) {
            i++;
            continue;
        }
        named = true;
        if (!strcmp(argv[i], name))
            return true;
    }
    return !named && strcmp(name, "ref");
}

int main(int argc, char **argv) {
    int runs = 31;
    for (int i = 1; i + 1 < argc; i++)
        if (!strcmp(argv[i], "--runs"))
            runs = atoi(argv[i + 1]);
    if (runs < 1) {
        fprintf(stderr, "bench_conv: --runs must be 1 or more\n");
        return 2;
    }
    FILE *json = xn_bench_json_open(argc, argv, "bench_conv.json");
    puts(
        "3x3, padding 1, fp32 in and out, scaling xnor; compute stage only; copy = the same bytes");
    for (const xn_backend *const *b = xn_backend_all(); *b; b++) {
        xn_bench_device device;
        if (!wanted((*b)->name, argc, argv))
            continue;
        if (!xn_bench_open((*b)->name, NULL, &device)) {
            printf("\n%s: no device on this machine\n", (*b)->name);
            continue;
        }
        bench_device(&device, runs, json);
        xn_bench_close(&device);
    }
    xn_bench_json_close(json);
    return 0;
}
