/* bench.h: what the benchmarks share: devices, random problems, statistics, the table and the JSON
 * file. A figure is the time of the compute stage that the backend reports (kernels only: CUDA
 * events on a GPU, the monotonic clock on the CPU); transfers are not in it. */
#ifndef XN_BENCH_H
#define XN_BENCH_H

#include "xn_backend.h"

#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct xn_bench_device {
    const xn_backend *backend;
    xn_device *device;
    xn_stream *stream;
    xn_device_info info;
} xn_bench_device;

/* The first device of that backend, ready to run; false when this machine has none. */
bool xn_bench_open(const char *backend, xn_bench_device *out);
void xn_bench_close(xn_bench_device *device);

typedef struct xn_bench_problem {
    int64_t batch, channels, side, out_channels, kernel, padding;
    xn_mode mode;
    xn_scaling scaling;
} xn_bench_problem;

typedef struct xn_bench_stats {
    double median_us, mean_us, p10_us, p90_us;
    int runs;
} xn_bench_stats;

/* Sorts the samples (nanoseconds). */
void xn_bench_summarise(int64_t *samples_ns, int count, xn_bench_stats *out);

/* Checks the device's result against the reference backend on this data where the reference takes
 * less than a second or so (false: wrong), then times `runs` runs after warming up. Exits with a
 * message on any failure: a benchmark has nothing else to do. */
void xn_bench_conv(const xn_bench_device *device, const xn_bench_problem *problem, int runs,
                   xn_bench_stats *out);

/* The same in parts, for measuring it in turn with others: made, run once and checked. */
typedef struct xn_bench_job xn_bench_job;
xn_bench_job *xn_bench_job_create(const xn_bench_device *device, const xn_bench_problem *problem);
int64_t xn_bench_job_run(xn_bench_job *job); /* nanoseconds of the compute stage */
void xn_bench_job_free(xn_bench_job *job);

/* Reads in_bytes and writes out_bytes with all threads of OpenMP. */
void xn_bench_copy(void *to, const void *from, size_t in_bytes, size_t out_bytes);

/* The floor: copying as many bytes as the problem reads and writes, in parallel on the CPU or by a
 * kernel on the GPU. */
void xn_bench_floor(const xn_bench_device *device, size_t in_bytes, size_t out_bytes, int runs,
                    xn_bench_stats *out);
/* gpu_copy.cu; false without CUDA. Microseconds a launch by graph replay. */
bool xn_bench_gpu_copy(size_t in_bytes, size_t out_bytes, double *us);

/* The JSON file: an array of objects, one a row. NULL path: build/bench/<name>.json of the
 * program's argument "--json FILE". */
FILE *xn_bench_json_open(int argc, char **argv, const char *default_path);
void xn_bench_json_close(FILE *file);
void xn_bench_json_row(FILE *file, const char *format, ...) __attribute__((format(printf, 2, 3)));

#ifdef __cplusplus
}
#endif
#endif
