/* bench.h: what the benchmarks share beside what they run (bench_runner.h): statistics, copies, the
 * JSON file and the command line. A figure is the time of the compute stage that the backend
 * reports (kernels only: CUDA events on a GPU, the monotonic clock on the CPU); transfers are not
 * in it. */
#ifndef XN_BENCH_H
#define XN_BENCH_H

#include "bench_runner.h"

#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct xn_bench_stats {
    double median_us, mean_us, p10_us, p90_us;
    int runs;
} xn_bench_stats;

/* Sorts the samples (nanoseconds). */
void xn_bench_summarise(int64_t *samples_ns, int count, xn_bench_stats *out);

/* Times `runs` runs of a job (bench_runner.h) after warming up. */
void xn_bench_conv(const xn_bench_device *device, const xn_bench_shape *shape, xn_mode mode,
                   int runs, xn_bench_stats *out);

/* Reads in_bytes and writes out_bytes with all threads of OpenMP. */
void xn_bench_copy(void *to, const void *from, size_t in_bytes, size_t out_bytes);

/* The floor: copying as many bytes as the problem reads and writes, in parallel on the CPU or by a
 * kernel on the GPU. */
void xn_bench_floor(const xn_bench_device *device, size_t in_bytes, size_t out_bytes, int runs,
                    xn_bench_stats *out);
/* gpu_copy.cu; false without CUDA. Microseconds a launch by graph replay. */
bool xn_bench_gpu_copy(size_t in_bytes, size_t out_bytes, double *us);

/* The argument after `name`, or what there is otherwise. */
const char *xn_bench_option(int argc, char **argv, const char *name, const char *otherwise);

/* The JSON file: an array of objects, one a row. NULL path: build/bench/<name>.json of the
 * program's argument "--json FILE". */
FILE *xn_bench_json_open(int argc, char **argv, const char *default_path);
void xn_bench_json_close(FILE *file);
void xn_bench_json_row(FILE *file, const char *format, ...) __attribute__((format(printf, 2, 3)));

#ifdef __cplusplus
}
#endif
#endif
