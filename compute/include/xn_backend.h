/* xn_backend.h: what runs steps. A backend is a table of functions; ref, cpu and cuda each provide
 * one, and the registry (xn_backend_find) is the only place that knows which exist.
 *
 *   device    one GPU, or the CPU. Opened once.
 *   prepared  weights on one device, ready for any geometry. Shared by that device's streams.
 *   stream    what one worker thread owns: a CUDA stream with its events and memory, or the CPU's
 *             scratch memory. Used by one thread at a time.
 *   plan      one step on one stream, for up to max_images images. Making it allocates all it
 *             needs; enqueuing it allocates nothing.
 *   recordings  what a backend keeps of a program's runs, so that the next ones cost the host less
 *             (CUDA graphs). A program's own.
 *   path      a way to run a step. The backend's table of paths says which can, and what each
 *             would cost; the cheapest is taken.
 *
 * A run is begin, enqueue for each step in order, end; a program (xn_program.h) does that, for a
 * large batch several times, with some of the images each.
 * On one device, with one instruction set, the outputs of an image are the same bit for bit alone
 * and in any batch, on whatever path and threads, and whatever runs beside it. Handles are opaque
 * and belong to the table that made them: never hand one to another backend. */
#ifndef XN_BACKEND_H
#define XN_BACKEND_H

#include "xn_step.h"
#include "xn_weights.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct xn_device xn_device;
typedef struct xn_prepared xn_prepared;
typedef struct xn_stream xn_stream;
typedef struct xn_plan xn_plan;
typedef struct xn_recordings xn_recordings;

typedef struct xn_device_info {
    char id[24];           /* "cuda:0", "cpu", "ref": what answers and metrics carry */
    char description[128]; /* "NVIDIA H200, sm_90, 132 SMs", "16 threads, avx512" */
    uint64_t memory_bytes; /* total; 0 if not known */
    int compute_units;     /* SMs or hardware threads */
    /* The instruction set whose kernels run: "avx2", "neon", ...; "" where there is no choice. */
    char instruction_set[24];
} xn_device_info;

typedef struct xn_device_options {
    /* CPU: the kernels' instruction set (amx, avx512-vpopcnt, avx512, avx2, neon, portable); NULL
     * takes the best that the machine has. Read during device_configure only. */
    const char *instruction_set;
    int threads;      /* CPU: the most threads of any run; 0 = all that the process may use */
    bool pin_threads; /* CPU: helper threads stay on a processor each */
} xn_device_options;

typedef struct xn_stream_options {
    int threads; /* CPU: the most threads a run may use; 0 = all. Ignored by cuda. */
    /* CPU: the most bytes of scratch that a plan may take; one that needs more is refused with
     * XN_ERR_LIMIT before it takes any. 0: no limit. */
    size_t most_scratch_bytes;
    /* NULL: plan_create takes the path that should be fastest. Otherwise the name of one of the
     * device's paths: the plans of this stream take that one, or are refused with
     * XN_ERR_UNSUPPORTED where it cannot run the step. For tests and benchmarks; read during
     * stream_create only. */
    const char *path;
} xn_stream_options;

/* Durations in nanoseconds. On cuda by the device's clock, from events on the stream or read by
 * kernels; on cpu and ref upload and download are 0. */
typedef struct xn_run_times {
    int64_t upload_ns, compute_ns, download_ns;
} xn_run_times;

/* A step of a run: what enqueue takes. */
typedef struct xn_enqueued {
    xn_plan *plan;
    const xn_prepared *prepared;
    xn_step_io io;
    int fused; /* this step and those behind it that may run as one (fuses); at least 1 */
} xn_enqueued;

/* A run as a whole; input, output: as begin and end take them. */
typedef struct xn_run {
    const xn_batch *batch;
    void *input, *output;
    const xn_enqueued *steps; /* in their order */
    int count;
} xn_run;

typedef struct xn_backend {
    const char *name; /* "ref", "cpu", "cuda" */
    /* The kinds of step it runs, a bit 1 << xn_step_kind each; 0: convolutions alone. */
    uint32_t kinds;

    /* Usable devices; 0 with XN_OK when there are none. On XN_ERR_NO_DEVICE the message says why
     * (no driver, driver too old, ...). */
    xn_status (*device_count)(int *count, xn_error *error);
    xn_status (*device_open)(int ordinal, xn_device **out, xn_error *error);
    /* Settles how the device works, before anything else is made from it. XN_ERR_UNSUPPORTED,
     * saying what there is, for an instruction set that the machine lacks. NULL in the table: there
     * is nothing to choose. */
    xn_status (*device_configure)(xn_device *device, const xn_device_options *options,
                                  xn_error *error);
    void (*device_close)(xn_device *device); /* NULL-safe; after all that was made from it */
    void (*device_info)(const xn_device *device, xn_device_info *out);
    /* A tiny fixed computation checked against known results: XN_OK, or why the device is not
     * fit to serve. Thread-safe beside running streams. */
    xn_status (*device_canary)(xn_device *device, xn_error *error);

    /* Memory that transfers to this device at full speed (pinned for cuda). 64-byte aligned.
     * NULL when there is none. Slow on a GPU: pool it. */
    void *(*host_alloc)(xn_device *device, size_t bytes);
    void (*host_free)(xn_device *device, void *memory); /* NULL-safe */

    /* Both NULL in the table, or: pins memory of another's where it lies, whole pages of it, for
     * transfers of all devices of the backend; slow. Between the two calls runs that have inputs or
     * outputs in it reach them by the devices alone, which go on to use the pages that were there:
     * the host touches none of them, so it does no harm where the memory's file is cut short.
     * Thread-safe. register: XN_ERR_NO_MEMORY, XN_ERR_UNSUPPORTED, XN_ERR_DEVICE_LOST; the memory
     * then is as good as any other, transfers from it are slower. unregister, when no run uses it
     * any more: after an error (of a lost device) the addresses must not serve anything else, as
     * the devices may still take them for the old pages. */
    xn_status (*host_register)(xn_device *device, void *memory, size_t bytes, xn_error *error);
    xn_status (*host_unregister)(xn_device *device, void *memory, xn_error *error);

    /* Puts weights on the device. What only some plans want is made by weights_ready. Borrows
     * weights until weights_free. Thread-safe. */
    xn_status (*weights_prepare)(xn_device *device, const xn_weights *weights, xn_prepared **out,
                                 xn_error *error);
    void (*weights_free)(xn_prepared *prepared); /* NULL-safe; when no run uses it any more */

    xn_status (*stream_create)(xn_device *device, const xn_stream_options *options, xn_stream **out,
                               xn_error *error);
    void (*stream_free)(xn_stream *stream); /* NULL-safe; after its plans */
    /* Changes the most threads later runs may use (CPU). May be NULL in the table. */
    void (*stream_set_threads)(xn_stream *stream, int threads);

    /* A plan borrows the stream. It fits any prepared weights of the same shape with the same
     * parts. Errors: XN_ERR_DEVICE_MEMORY (ask for fewer images), XN_ERR_NO_MEMORY,
     * XN_ERR_UNSUPPORTED, XN_ERR_DEVICE_LOST. Only steps that the table says it
     * runs are asked for. */
    xn_status (*plan_create)(xn_stream *stream, const xn_step *step, int64_t max_images,
                             xn_plan **out, xn_error *error);
    void (*plan_free)(xn_plan *plan); /* NULL-safe */

    /* The paths of this device: the name of path 0, 1, ...; NULL past the last. Which steps each
     * can run, only plan_create knows. Both may be NULL in the table: then there is one way,
     * without a name. */
    const char *(*device_path)(const xn_device *device, int index);
    const char *(*plan_path)(const xn_plan *plan); /* the name of the path that a plan takes */

    /* What a run of this plan with these weights computes its products from: the step's precision
     * or a better one. NULL in the table: always fp32. */
    xn_precision (*precision)(const xn_plan *plan, const xn_prepared *prepared);

    /* Makes what such plans want of these weights and what is not there yet; it stays until
     * weights_free. Comes before the first run of a plan with these weights. Thread-safe; quick
     * when there is nothing to make. Errors: XN_ERR_NO_MEMORY, XN_ERR_DEVICE_MEMORY,
     * XN_ERR_DEVICE_LOST. NULL in the table: there is never anything to make. */
    xn_status (*weights_ready)(const xn_prepared *prepared, const xn_plan *plan, xn_error *error);

    /* ---- a run ---- */

    /* The stream's memory for the tensors of programs: at least that many bytes from now on. Grows
     * only; may move. Programs share it in turn. Errors: as plan_create. */
    xn_status (*arena_reserve)(xn_stream *stream, size_t bytes, xn_error *error);
    /* Where it is, aligned to 256 bytes; NULL where it has fewer bytes, since growing it failed. */
    void *(*arena)(const xn_stream *stream, size_t bytes);
    /* Gives back what the stream has grown by: memory for tensors and for its plans. It has no plan
     * and no run. NULL in the table: nothing grows. */
    void (*stream_trim)(xn_stream *stream);
    /* True: inputs and outputs of programs stay in the items' memory. False: begin copies the
     * inputs to the device, end the outputs from it. */
    bool in_place;

    /* input, output: device memory of the program's input and output; NULL where in_place. begin
     * and enqueue may return before anything is done. prepared is NULL for a step without weights.
     * Where wait is NULL, end returns when every output is written. times is not NULL. After an
     * error of one of the three, of run or of wait, comes abandon, which waits for what is under
     * way. Errors: XN_ERR_DEVICE_LOST, XN_ERR_INTERNAL. */
    xn_status (*begin)(xn_stream *stream, const xn_batch *batch, void *input, xn_error *error);
    xn_status (*enqueue)(xn_plan *plan, const xn_prepared *prepared, const xn_step_io *io,
                         xn_error *error);
    xn_status (*end)(xn_stream *stream, const xn_batch *batch, const void *output,
                     xn_run_times *times, xn_error *error);
    void (*abandon)(xn_stream *stream);
    /* NULL in the table, or: end and run return while the device works, and leave times alone. wait
     * returns XN_OK when every output is written, and then sets times. XN_ERR_DEADLINE: until_ns
     * (CLOCK_MONOTONIC; INT64_MAX: never) has come first. The run then goes on and uses the batch's
     * memory, until a later wait says that it is over. batch: as for begin. */
    xn_status (*wait)(xn_stream *stream, const xn_batch *batch, int64_t until_ns,
                      xn_run_times *times, xn_error *error);

    /* All three NULL in the table, or: a run in one call, in place of begin, enqueue and end, and
     * what is kept of a program's runs, made with it for its number of steps: NULL where there is
     * no memory, runs are as without then. The calls for a program are of the same plans each time.
     * What is freed is of a program that does not run. */
    xn_status (*run)(xn_stream *stream, const xn_run *run, xn_recordings *recordings,
                     xn_run_times *times, xn_error *error);
    xn_recordings *(*recordings_create)(int steps);
    void (*recordings_free)(xn_recordings *recordings); /* NULL-safe */

    /* What a run of max_images by the plan's path is thought to cost, as paths are chosen by; on
     * cpu by one core. NULL in the table: it does not say. For fitting the costs to a chip. */
    double (*plan_cost_ns)(const xn_plan *plan);
    /* How many of these steps, from the first on, a run may do as one: at least 1. Their tensors
     * then share no memory with each other, as the backend may read and write all of them at any
     * moment of the run. reads: how often the program's steps read each tensor. NULL in the table:
     * each step is alone. */
    int (*fuses)(const xn_step *steps, int count, const int32_t *reads);
    /* Its steps read and write parts of tensors too; false: only those are asked for of which
     * xn_step_is_whole is true. */
    bool parts;
    /* How many images are best run at a time where the tensors between steps take image_bytes an
     * image, so that they stay in a cache: a program runs larger batches in passes through all of
     * its steps. At least 1. NULL in the table: all images at once. */
    int64_t (*pass_images)(const xn_stream *stream, size_t image_bytes);
} xn_backend;

/* The backend of that name, or NULL when this build has none. */
const xn_backend *xn_backend_find(const char *name);
/* All of this build, in the order of preference of "auto" (cuda, cpu, ref); NULL-terminated. */
const xn_backend *const *xn_backend_all(void);

#ifdef __cplusplus
}
#endif
#endif
