/* bench_paper.c: `make bench-paper`: the three tables of Kaya, Inci and Temizel (arXiv 2007.14178):
 * vanilla against XNOR convolution on the GPU, CPU against GPU for each; one channel, 3x3, mean of
 * 100 runs, computation only; beside the published figures (GTX 1080 Ti, 4-core i7).
 *   bench_paper [--json FILE] */
#include "bench.h"

#define RUNS 100
#define SIZES 4

static const int64_t sides[SIZES] = {256, 512, 1024, 2048};

typedef struct {
    const char *name;
    const char *backend;
    xn_mode mode;
    double published_ms[SIZES];
    double ms[SIZES]; /* measured here; 0: no such device */
} series;

static series all[] = {
    {"vanilla CPU", "cpu", XN_MODE_FLOAT, {3.437, 10.623, 35.811, 132.714}, {0}},
    {"XNOR CPU", "cpu", XN_MODE_XNOR, {0.743, 2.531, 10.088, 42.011}, {0}},
    {"vanilla GPU", "cuda", XN_MODE_FLOAT, {0.062, 0.186, 0.671, 2.641}, {0}},
    {"XNOR GPU", "cuda", XN_MODE_XNOR, {0.024, 0.069, 0.252, 0.986}, {0}},
};
enum { VANILLA_CPU, XNOR_CPU, VANILLA_GPU, XNOR_GPU, SERIES };

static void measure(series *s) {
    xn_bench_device device;
    if (!xn_bench_open(s->backend, NULL, &device))
        return;
    for (int i = 0; i < SIZES; i++) {
        const xn_bench_shape shape = XN_BENCH_LAYER(1, 1, sides[i]);
        xn_bench_stats stats;
        xn_bench_conv(&device, &shape, s->mode, RUNS, &stats);
        s->ms[i] = stats.mean_us / 1e3;
    }
    printf("%-12s measured on %s: %s\n", s->name, device.info.id, device.info.description);
    xn_bench_close(&device);
}

static void cell(double ms) {
    if (ms > 0)
        printf("%-12.4f ", ms);
    else
        printf("%-12s ", "no device");
}

static void ratio(double slow, double fast) {
    if (slow > 0 && fast > 0)
        printf("%8.2f", slow / fast);
    else
        printf("%8s", "-");
}

static void table(const char *title, const series *slow, const series *fast) {
    printf("\n%s\n%6s | %-12s %-12s %8s | %-12s %-12s %8s\n", title, "side", slow->name, fast->name,
           "ratio", slow->name, fast->name, "ratio");
    printf("%6s | %-34s | %-34s\n", "", "here, ms", "published, ms");
    for (int i = 0; i < SIZES; i++) {
        printf("%6lld | ", (long long)sides[i]);
        cell(slow->ms[i]);
        cell(fast->ms[i]);
        ratio(slow->ms[i], fast->ms[i]);
        printf(" | %-12.3f %-12.3f %8.2f\n", slow->published_ms[i], fast->published_ms[i],
               slow->published_ms[i] / fast->published_ms[i]);
    }
}

static void write_json(FILE *json) {
    for (int s = 0; s < SERIES; s++) {
        for (int i = 0; i < SIZES; i++) {
            if (all[s].ms[i] > 0)
                xn_bench_json_row(json,
                                  "{\"series\": \"%s\", \"side\": %lld, \"mean_ms\": %.5f, "
                                  "\"published_ms\": %.3f, \"runs\": %d}",
                                  all[s].name, (long long)sides[i], all[s].ms[i],
                                  all[s].published_ms[i], RUNS);
            else
                xn_bench_json_row(json,
                                  "{\"series\": \"%s\", \"side\": %lld, \"mean_ms\": null, "
                                  "\"published_ms\": %.3f, \"runs\": 0}",
                                  all[s].name, (long long)sides[i], all[s].published_ms[i]);
        }
    }
}

int main(int argc, char **argv) {
    FILE *json = xn_bench_json_open(argc, argv, "bench_paper.json");
    puts("one channel, 3x3, padding 1, fp32, mean of 100 runs, computation only");
    for (int s = 0; s < SERIES; s++)
        measure(&all[s]);
    table("GPU: vanilla against XNOR", &all[VANILLA_GPU], &all[XNOR_GPU]);
    table("Vanilla: CPU against GPU", &all[VANILLA_CPU], &all[VANILLA_GPU]);
    table("XNOR: CPU against GPU", &all[XNOR_CPU], &all[XNOR_GPU]);
    write_json(json);
    xn_bench_json_close(json);
    return 0;
}
