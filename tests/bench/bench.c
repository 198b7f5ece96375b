/* bench.c: see bench.h. */
#include "bench.h"

#include "bench_clock.h"
#include "xn_mem.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

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

void xn_bench_conv(const xn_bench_device *d, const xn_bench_shape *shape, xn_mode mode, int runs,
                   xn_bench_stats *out) {
    xn_bench_job *job = xn_bench_job_create(d, shape, mode);
    int64_t *samples = xn_bench_take((size_t)runs, sizeof *samples);
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
    unsigned char *from = xn_bench_take(in_bytes, 1), *to = xn_bench_take(out_bytes, 1);
    int64_t *samples = xn_bench_take((size_t)runs, sizeof *samples);
    memset(from, 1, in_bytes);
    memset(to, 2, out_bytes);
    for (int i = -3; i < runs; i++) {
        int64_t start = xn_bench_now_ns();
        xn_bench_copy(to, from, in_bytes, out_bytes);
        if (i >= 0)
            samples[i] = xn_bench_now_ns() - start;
    }
    xn_bench_summarise(samples, runs, out);
    xn_mem_free(samples);
    xn_mem_free(from);
    xn_mem_free(to);
}

const char *xn_bench_option(int argc, char **argv, const char *name, const char *otherwise) {
    for (int i = 1; i + 1 < argc; i++)
        if (!strcmp(argv[i], name))
            return argv[i + 1];
    return otherwise;
}

static int rows;

FILE *xn_bench_json_open(int argc, char **argv, const char *default_path) {
    const char *path = xn_bench_option(argc, argv, "--json", default_path);
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
