/* bench_runner.h: what the benchmarks run: a backend's device, a random problem, and a plan for it.
 * All of it exits with a message on any failure: a benchmark has nothing else to do. */
#ifndef XN_BENCH_RUNNER_H
#define XN_BENCH_RUNNER_H

#include "xn_backend.h"

#ifdef __cplusplus
extern "C" {
#endif

void xn_bench_fail(const char *what, const char *message) __attribute__((noreturn));
/* Zero-filled. */
void *xn_bench_take(size_t count, size_t bytes);

/* ---- devices ---- */

typedef struct xn_bench_device {
    const xn_backend *backend;
    xn_device *device;
    xn_stream *stream;
    xn_device_info info;
} xn_bench_device;

/* The first device of that backend, ready to run; false when this machine has none. options: NULL
 * for those of a stream that chooses by itself. */
bool xn_bench_open(const char *backend, const xn_stream_options *options, xn_bench_device *out);
void xn_bench_close(xn_bench_device *device);

/* ---- problems: square images and kernels, fp32 in and out ---- */

typedef struct xn_bench_shape {
    int64_t images, channels, side, filters, kernel, stride, padding, dilation, groups;
} xn_bench_shape;

/* A layer that keeps its channels and its size: 3x3, padding 1. */
#define XN_BENCH_LAYER(images, channels, side)                                                     \
    { images, channels, side, channels, 3, 1, 1, 1, 1 }

/* rows: of an image, of which the shape's side are the columns; bottom: the padding below them. */
xn_conv xn_bench_resolve(const xn_bench_shape *shape, int64_t rows, int64_t bottom, xn_mode mode,
                         xn_scaling scaling);
xn_weights *xn_bench_weights(const xn_bench_shape *shape, const float *real);

/* images of conv through the backend, from input to output. */
void xn_bench_run_on(const char *backend, const xn_conv *conv, const xn_weights *weights,
                     int64_t images, const void *input, void *output);

/* ---- jobs ---- */

/* A problem, with scaling xnor, and its data on a device: made, run once, and its last image
 * checked against backend ref, where that takes less than a second or so. NULL where the stream is
 * held to a path that cannot run it. The device must live as long. */
typedef struct xn_bench_job xn_bench_job;
xn_bench_job *xn_bench_job_create(const xn_bench_device *device, const xn_bench_shape *shape,
                                  xn_mode mode);
int64_t xn_bench_job_run(xn_bench_job *job); /* nanoseconds of the compute stage */
void xn_bench_job_free(xn_bench_job *job);   /* NULL-safe */

const char *xn_bench_job_path(const xn_bench_job *job); /* "" where the backend names none */
/* Of all images: bytes of input and output, and operations, 2 of them a tap. */
size_t xn_bench_job_in_bytes(const xn_bench_job *job);
size_t xn_bench_job_out_bytes(const xn_bench_job *job);
double xn_bench_job_operations(const xn_bench_job *job);

#ifdef __cplusplus
}
#endif
#endif
