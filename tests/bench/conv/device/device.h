/* device.h: a backend's device for the benchmarks, and the memory its kernels read and write: the
 * host's for the CPU, the GPU's for CUDA. Everything here ends the program with a message when it
 * fails: a benchmark has nothing else to do. */
#ifndef XN_BENCH_DEVICE_H
#define XN_BENCH_DEVICE_H

#include "bench/conv/problem.h"
#include "xn_program.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What a run reads and writes, where the kernels do. */
typedef struct xn_bench_io {
    const void *input;
    void *output;
    const int32_t *threshold; /* of packed output: a bit is dot >= threshold, turned where */
    const uint32_t *flip;     /* bit o % 32 of word o / 32 is set */
} xn_bench_io;

/* A copy of as many bytes as a problem reads and writes: the floor where memory bounds. */
typedef struct xn_bench_copy {
    const void *from;
    void *to;
    size_t in_bytes, out_bytes;
} xn_bench_copy;

typedef struct xn_bench_place {
    double sample_us; /* launches are timed together until they take as long */
    int64_t pause_ns; /* before a turn, so that threads of the one before stop spinning */

    void *(*take)(size_t bytes);
    void (*give)(void *memory); /* NULL-safe */
    void (*upload)(void *to, const void *from, size_t bytes);
    void (*download)(void *to, const void *from, size_t bytes);
    void (*poison)(void *memory, size_t bytes); /* NaN in fp32 and fp16 */

    /* Starts a run; wait until it is done. */
    void (*enqueue)(xn_plan *plan, const xn_prepared *prepared, int64_t images,
                    const xn_bench_kind *kind, const xn_bench_io *io);
    void (*wait)(void);
    void (*copy)(void *copy); /* of an xn_bench_copy, likewise */

    /* A run of xn_backend that notes when each step begins, and microseconds of the steps of the
     * last one; of steps that run as one the first has all, those behind it are not meant. NULL in
     * the table: steps run one after the other while they are asked for. */
    xn_status (*run_steps)(xn_stream *stream, const xn_run *run, xn_recordings *recordings,
                           xn_run_times *times, xn_error *error);
    void (*steps_us)(double *us);

    /* The name of path `index`, one that runs packed problems alone included, which the backend
     * does not list; NULL past the last. NULL in the table: those that the backend lists are all.
     */
    const char *(*path_name)(const xn_device *device, int index);

    /* What a plan's cost is made of, as text, before it runs; NULL: it does not say. */
    void (*plan_terms)(const xn_plan *plan, char *text, size_t size);

    /* Ready to time what `run` enqueues; a sample is microseconds of one run. */
    void *(*timer_make)(void (*run)(void *context), void *context);
    double (*timer_sample)(void *timer);
    void (*timer_free)(void *timer);

    /* 10^12 operations a second, 2 a bit or a multiplication, that instructions alone reach on
     * operands that are there already; NAN: not known. */
    double (*peak_binary)(void);
    double (*peak_real)(void);
} xn_bench_place;

extern const xn_bench_place xn_bench_host;
/* NULL in a build without CUDA. */
const xn_bench_place *xn_bench_cuda(void);

typedef struct xn_bench_device {
    const xn_backend *backend;
    const xn_bench_place *place;
    xn_device *device;
    xn_stream *stream;
    xn_device_info info;
} xn_bench_device;

/* The first device of that backend, ready to run; false when this machine has none. options: NULL
 * for those of a stream that chooses by itself. set: an instruction set of the CPU, false where the
 * machine lacks it; NULL: the best. */
bool xn_bench_open(const char *backend, const xn_stream_options *options, const char *set,
                   xn_bench_device *out);
void xn_bench_close(xn_bench_device *device);

/* Weights on the device, and a plan with what it wants of them. False where the stream is held to a
 * path that cannot run it. */
xn_prepared *xn_bench_prepare(const xn_bench_device *on, const xn_weights *weights);
bool xn_bench_plan(const xn_bench_device *on, xn_stream *stream, const xn_conv *conv,
                   int64_t images, const xn_bench_kind *kind, const xn_prepared *prepared,
                   xn_plan **out);
/* What the chooser thinks a run costs; NAN: it does not say. */
double xn_bench_cost_us(const xn_bench_device *on, const xn_plan *plan);
/* "" where the backend names none. */
const char *xn_bench_path(const xn_bench_device *on, const xn_plan *plan);
/* A stream held to path `index` of the device; NULL past the last. Its name is kept by the device.
 */
xn_stream *xn_bench_path_stream(const xn_bench_device *on, int index, const char **name);

/* Whole runs, with transfers: microseconds of the compute stage, as answers report it. */
xn_program *xn_bench_program(const xn_bench_device *on, const xn_conv *conv, int64_t images,
                             const xn_prepared *prepared);
double xn_bench_program_run(xn_program *program, const xn_prepared *prepared, int64_t images,
                            const void *input, void *output);
/* images of conv by another backend, from host memory to host memory. */
void xn_bench_run_on(const char *backend, const xn_conv *conv, const xn_weights *weights,
                     int64_t images, const void *input, void *output);

#ifdef __cplusplus
}
#endif
#endif
