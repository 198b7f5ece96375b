/* xn_cuda.h: the host side of the CUDA backend: what its handles hold, and the functions of its
 * table. Nothing here is global: every handle knows its device, and every entry point makes that
 * device current on the calling thread first. Host memory of handles comes from xn_mem. */
#ifndef XN_CUDA_H
#define XN_CUDA_H

#include "fused_stage.h"
#include "op.h"
#include "packing.h"
#include "paths.h"
#include "real_mma.h"
#include "stem.h"
#include "strided.h"
#include "top_k.h"
#include "xn_backends.h"
#include "xn_mem.h"
#include "zero_copy.h"

#include <cuda_runtime.h>
#include <pthread.h>

#define XN_CUDA_OVERLAP_MAJOR 9 /* compute capability with programmatic launch */

/* ---- errors (status.cu) ---- */

/* XN_OK for cudaSuccess; else fills *error with what failed and why, and takes a non-sticky error
 * off this thread so that it does not show up in a later, innocent call. */
xn_status xn_cuda_check(cudaError_t result, const char *what, xn_error *error);

/* ---- handles ---- */

typedef struct xn_canary xn_canary;

struct xn_device {
    int ordinal;
    char name[256];
    int major, minor; /* compute capability */
    xn_cuda_chip chip;
    size_t memory_bytes;
    cudaStream_t setup; /* puts weights on the device; threads may share it */
    cudaMemPool_t pool; /* of weights; NULL where the driver has none */
    xn_canary *canary;
    uint64_t serials; /* of weights so far; atomic */
};

/* Weights on a device. Immutable but for what xn_cuda_weights_ready adds. */
struct xn_prepared {
    xn_device *device;
    uint64_t serial;          /* no other weights of the device have it, or will; never 0 */
    const xn_weights *source; /* borrowed */
    bool finite;              /* no real weight is NaN or infinite */
    bool uniform;             /* all filters have one scale, one bias and one slope */
    void *values;             /* memory of the following, [O] each; NULL where there are none */
    const float *alpha, *scale, *bias, *slope, *shift;
    mutable pthread_mutex_t making; /* held while a part is made; guards no reading of them */
    /* parts.h: an allocation each; NULL until a plan wanted it. Written once; read and written
     * atomically. */
    mutable void *parts[XN_CUDA_PARTS];
};

/* What one worker owns. Workspace and arena serve all plans of the stream in turn, and may move
 * when they grow. */
struct xn_stream {
    xn_device *device;
    const xn_cuda_path *path; /* of all its plans; NULL: each has the cheapest */
    cudaStream_t stream;
    cudaEvent_t start, uploaded, computed, done;
    int64_t poll_ns;         /* how long a wait for zero_copy polls */
    xn_zero_copy *zero_copy; /* or NULL */
    bool by_zero_copy;       /* the run under way is; */
    bool recorded;           /* and `done` is recorded behind it */
    char *workspace;         /* of kernels, between each other */
    size_t workspace_bytes;
    char *arena; /* the tensors of programs */
    size_t arena_bytes;
};

struct xn_plan {
    xn_stream *stream;
    xn_step step;
    int64_t max_images;
    /* Of a convolution; its job and state have the images of the last run. Other kinds have no path
     * here (op.h). */
    mutable xn_cuda_choice how;
    size_t workspace_bytes;
};

/* What lies between the path and the kernels around it, in the workspace before the path's own;
 * NULL where there is none. */
typedef struct xn_cuda_around {
    void *part;      /* the input, where it is part of a tensor */
    uint32_t *words; /* made of an input in bytes */
    void *reals;     /* what the epilogue's rest is made of, fp32 or int32 */
    uint32_t *bits;  /* words that bytes are made of */
} xn_cuda_around;

/* ---- the table's functions, by file ---- */

/* device.cu */
xn_status xn_cuda_device_count(int *count, xn_error *error);
xn_status xn_cuda_device_open(int ordinal, xn_device **out, xn_error *error);
void xn_cuda_device_close(xn_device *device);
void xn_cuda_device_info(const xn_device *device, xn_device_info *out);
/* Makes the device current on this thread. */
xn_status xn_cuda_device_use(const xn_device *device, xn_error *error);

/* host_memory.cu */
void *xn_cuda_host_alloc(xn_device *device, size_t bytes);
void xn_cuda_host_free(xn_device *device, void *memory);
xn_status xn_cuda_host_register(xn_device *device, void *memory, size_t bytes, xn_error *error);
xn_status xn_cuda_host_unregister(xn_device *device, void *memory, xn_error *error);

/* canary.cu */
xn_status xn_cuda_canary_create(xn_device *device, xn_canary **out, xn_error *error);
void xn_cuda_canary_free(xn_canary *canary);
xn_status xn_cuda_device_canary(xn_device *device, xn_error *error);

/* weights.cu */
xn_status xn_cuda_weights_prepare(xn_device *device, const xn_weights *weights, xn_prepared **out,
                                  xn_error *error);
void xn_cuda_weights_free(xn_prepared *prepared);
xn_status xn_cuda_weights_ready(const xn_prepared *prepared, const xn_plan *plan, xn_error *error);
/* Whether all parts of a set (XN_CUDA_WANT) have been made. */
bool xn_cuda_weights_have(const xn_prepared *prepared, uint64_t wanted);

/* stream.cu */
xn_status xn_cuda_stream_create(xn_device *device, const xn_stream_options *options,
                                xn_stream **out, xn_error *error);
void xn_cuda_stream_free(xn_stream *stream);
/* Makes the workspace, or the arena, at least that large. Not while a run is under way. */
xn_status xn_cuda_workspace_reserve(xn_stream *stream, size_t bytes, xn_error *error);
xn_status xn_cuda_arena_reserve(xn_stream *stream, size_t bytes, xn_error *error);
void xn_cuda_stream_trim(xn_stream *stream);
void *xn_cuda_arena(const xn_stream *stream, size_t bytes);
/* Waits for the stream's `done` event, at most until until_ns (xn_backend.h: wait): polls for a
 * moment, then sleeps. */
xn_status xn_cuda_stream_wait(xn_stream *stream, int64_t until_ns, xn_error *error);
/* The same for the end of the run that stream->zero_copy began. */
xn_status xn_cuda_stream_wait_zero_copy(xn_stream *stream, int64_t until_ns, xn_error *error);

/* plan.cu */
xn_status xn_cuda_plan_create(xn_stream *stream, const xn_step *step, int64_t max_images,
                              xn_plan **out, xn_error *error);
void xn_cuda_plan_free(xn_plan *plan);
const char *xn_cuda_plan_path(const xn_plan *plan);
const char *xn_cuda_device_path(const xn_device *device, int index);
/* The path of that name; NULL when the device has none. */
const xn_cuda_path *xn_cuda_path_find(const xn_device *device, const char *name);
/* What a run of max_images should take, as paths are chosen by, and what that is made of: for who
 * fits costs.h. Before the plan has run. */
double xn_cuda_plan_cost_ns(const xn_plan *plan);
const xn_cuda_cost *xn_cuda_plan_terms(const xn_plan *plan, double terms[XN_CUDA_TERMS]);
/* The form of a stem's filters that its kernel reads. */
xn_cuda_part xn_cuda_stem_part(const xn_plan *plan);
/* The parts of these weights that a run reads (XN_CUDA_WANT). */
uint64_t xn_cuda_plan_wants(const xn_plan *plan, const xn_prepared *prepared);

/* launch.cu: the kernels of a plan on device memory (io->batch is not read), without transfers, on
 * any stream of the device; what lies between kernels is in the workspace of the plan's stream. Can
 * be captured in a graph. cudaErrorInvalidValue where xn_cuda_weights_ready has not been called. */
cudaError_t xn_cuda_enqueue(const xn_plan *plan, const xn_prepared *prepared, int64_t images,
                            const xn_step_io *io, cudaStream_t stream);
/* What lies in the workspace before the path's own, and all that does of a step without one. */
xn_cuda_around xn_cuda_around_take(const xn_plan *plan, xn_cuda_scratch *scratch);
xn_op_pixel *xn_cuda_op_take(const xn_plan *plan, xn_cuda_scratch *scratch);
/* What kernels take of a step: its epilogue, with the places of its parts; a step that is no
 * convolution. Of the host alone. */
xn_epilogue_args xn_cuda_epilogue_args(const xn_step *step, const xn_prepared *prepared,
                                       const xn_step_io *io);
xn_op_args xn_cuda_op_args(const xn_plan *plan, const xn_prepared *prepared, int64_t images,
                           const xn_step_io *io);
/* xn_backend.h: fuses. Layers of a stage, and up to the pool that the stage makes; a strided layer,
 * the step between and its shortcut (strided.h); or both, where the strided layer is the step
 * behind the stage. */
int xn_cuda_fuses(const xn_step *steps, int count, const int32_t *reads);
/* Which of such steps is the pool behind `layers` layers of a stage; 0 where there is none. */
int xn_cuda_stage_pool_of(const xn_enqueued *first, int layers);
/* Whether the layers that such steps begin with are run as a stage; sets how many they are, and
 * then their cut. Not where the stream is held to a path. */
bool xn_cuda_stage_of(const xn_enqueued *first, xn_cuda_stage_io *io);
/* The kernel of that stage, on the steps' stream. */
xn_status xn_cuda_enqueue_stage(const xn_enqueued *first, const xn_cuda_stage_io *stage,
                                xn_error *error);
/* The same for a strided layer and its shortcut, two steps behind it. */
bool xn_cuda_strided_of(const xn_enqueued *first, xn_cuda_strided_cut *cut);
xn_status xn_cuda_enqueue_strided(const xn_enqueued *first, const xn_cuda_strided_cut *cut,
                                  xn_error *error);
/* xn_backend.h: precision. */
xn_precision xn_cuda_precision(const xn_plan *plan, const xn_prepared *prepared);

/* run.cu */
xn_status xn_cuda_begin(xn_stream *stream, const xn_batch *batch, void *input, xn_error *error);
xn_status xn_cuda_enqueue_step(xn_plan *plan, const xn_prepared *prepared, const xn_step_io *io,
                               xn_error *error);
xn_status xn_cuda_end(xn_stream *stream, const xn_batch *batch, const void *output,
                      xn_run_times *times, xn_error *error);
void xn_cuda_abandon(xn_stream *stream);
xn_status xn_cuda_wait(xn_stream *stream, const xn_batch *batch, int64_t until_ns,
                       xn_run_times *times, xn_error *error);
xn_status xn_cuda_run_batch(xn_stream *stream, const xn_run *run, xn_recordings *recordings,
                            xn_run_times *times, xn_error *error);

/* graphs.cu: all of a run's kernels: those of its steps, and where it is by zero copy those that
 * gather and scatter. */
xn_status xn_cuda_enqueue_run(xn_stream *stream, const xn_run *run, bool zero_copy,
                              xn_recordings *recordings, xn_error *error);
void xn_cuda_recordings_free(xn_recordings *recordings);

#endif
