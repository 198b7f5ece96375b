/* cpu_few.c: `make bench-cpu-few`: convolutions of few channels on the CPU, fp32 in and out, K and
 * alpha applied, beside a parallel copy of the same bytes by the same threads. Both are timed in
 * turns, a few runs each, so that what else the machine does falls on both alike; the medians and
 * the least of all runs are shown. What is timed is checked first (bench_runner.h).
 *
 *   bench-cpu-few [--json FILE] [--threads N] [--path NAME] [--only TEXT] [--ms N]
 *
 * --path: a kernel path, such as few/avx2. --only: problems whose name has that text. --ms: about
 * how long a problem is timed. */
#include "bench.h"
#include "bench_clock.h"
#include "xn_mem.h"

#include <omp.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_RUNS = 20000, TURN = 4 };

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

typedef struct timing {
    double median_us, least_us;
} timing;

typedef struct options {
    xn_bench_device device;
    const char *only;
    double ms;
    FILE *json;
} options;

static timing summarise(int64_t *samples, int count) {
    xn_bench_stats stats;
    xn_bench_summarise(samples, count, &stats); /* sorts */
    return (timing){stats.median_us, (double)samples[0] / 1e3};
}

static int64_t time_copy(void *to, const void *from, const xn_bench_job *job) {
    const int64_t start = xn_bench_now_ns();
    xn_bench_copy(to, from, xn_bench_job_in_bytes(job), xn_bench_job_out_bytes(job));
    return xn_bench_now_ns() - start;
}

static void measure(xn_bench_job *job, double ms, timing *ours, timing *copy) {
    static int64_t mine[MOST_RUNS], theirs[MOST_RUNS];
    void *from = xn_bench_take(xn_bench_job_in_bytes(job), 1);
    void *to = xn_bench_take(xn_bench_job_out_bytes(job), 1);
    const int64_t end = xn_bench_now_ns() + (int64_t)(ms * 1e6);
    int count = 0;
    memset(from, 1, xn_bench_job_in_bytes(job)); /* pages of its own */
    while (count + TURN <= MOST_RUNS && (count < 3 * TURN || xn_bench_now_ns() < end)) {
        for (int i = -1; i < TURN; i++) /* the first of a turn is not counted */
            mine[count + (i < 0 ? 0 : i)] = xn_bench_job_run(job);
        for (int i = -1; i < TURN; i++)
            theirs[count + (i < 0 ? 0 : i)] = time_copy(to, from, job);
        count += TURN;
    }
    *ours = summarise(mine, count);
    *copy = summarise(theirs, count);
    xn_mem_free(from);
    xn_mem_free(to);
}

static void bench(const problem *p, const options *o) {
    const xn_bench_shape made = {.images = p->batch,
                                 .channels = p->channels,
                                 .side = p->side,
                                 .filters = p->filters,
                                 .kernel = p->kernel,
                                 .stride = 1,
                                 .padding = p->kernel / 2,
                                 .dilation = 1,
                                 .groups = p->groups};
    xn_bench_job *job = xn_bench_job_create(&o->device, &made, XN_MODE_XNOR);
    timing ours, copy;
    if (!job)
        return;
    measure(job, o->ms, &ours, &copy);
    const char *path = xn_bench_job_path(job);
    const double outputs = (double)(xn_bench_job_out_bytes(job) / sizeof(float));
    printf("%-22s %4lld | %-13s %9.1f %9.1f | %9.1f %9.1f | %6.2f | %7.3f\n", p->name,
           (long long)p->side, path, ours.median_us, ours.least_us, copy.median_us, copy.least_us,
           ours.median_us / copy.median_us, ours.median_us * 1e3 / outputs);
    fflush(stdout);
    xn_bench_json_row(o->json,
                      "{\"name\": \"%s\", \"side\": %lld, \"path\": \"%s\", \"threads\": %d, "
                      "\"median_us\": %.2f, \"least_us\": %.2f, \"copy_median_us\": %.2f, "
                      "\"copy_least_us\": %.2f}",
                      p->name, (long long)p->side, path, omp_get_max_threads(), ours.median_us,
                      ours.least_us, copy.median_us, copy.least_us);
    xn_bench_job_free(job);
}

int main(int argc, char **argv) {
    const xn_stream_options stream = {
        .threads = atoi(xn_bench_option(argc, argv, "--threads", "0")),
        .path = xn_bench_option(argc, argv, "--path", NULL),
    };
    options o = {.only = xn_bench_option(argc, argv, "--only", ""),
                 .ms = atof(xn_bench_option(argc, argv, "--ms", "300"))};
    if (!xn_bench_open("cpu", &stream, &o.device))
        xn_bench_fail("cpu", "not there");
    if (stream.threads)
        omp_set_num_threads(stream.threads); /* of the copy */
    o.json = xn_bench_json_open(argc, argv, "bench_cpu_few.json");
    printf("fp32 to fp32, K and alpha, padding same; copy: the same bytes, the same threads\n"
           "%-22s %4s | %-13s %9s %9s | %9s %9s | %6s | %7s\n",
           "", "side", "path", "median us", "least", "copy us", "least", "ratio", "ns/out");
    for (size_t i = 0; i < sizeof problems / sizeof *problems; i++)
        if (strstr(problems[i].name, o.only))
            bench(&problems[i], &o);
    xn_bench_json_close(o.json);
    xn_bench_close(&o.device);
    return 0;
}
