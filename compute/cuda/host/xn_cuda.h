/* xn_cuda.h: the host side of the CUDA backend: what its handles hold, and the functions of its
 * table. Nothing here is global: every handle knows its device, and every entry point makes that
 * device current on the calling thread first. Host memory of handles comes from xn_mem. */
#ifndef XN_CUDA_H
#define XN_CUDA_H

#include "kernels.h"
#include "layout.h"
#include "xn_backends.h"
#include "xn_mem.h"

#include <cuda_runtime.h>
#include <pthread.h>

#define XN_CUDA_ALIGNMENT 256   /* bytes, of every part of a device allocation */
#define XN_CUDA_OVERLAP_MAJOR 9 /* compute capability with programmatic launch */

/* ---- errors (status.cu) ---- */

/* XN_OK for cudaSuccess; else fills *error with what failed and why, and takes a non-sticky error
 * off this thread so that it does not show up in a later, innocent call. */
xn_status xn_cuda_check(cudaError_t result, const char *what, xn_error *error);

/* ---- handles ---- */

typedef enum {
    XN_CUDA_SLIDING_WINDOW, /* few channels: sliding_window.cu, */
    XN_CUDA_DEPTHWISE,      /* depthwise.cu, */
    XN_CUDA_PATCH_GEMM,     /* patch_gemm.cu, */
    XN_CUDA_FUSED_GEMM,     /* any number of channels, small: fused_gemm.cu */
    XN_CUDA_DUAL_RAIL,
    XN_CUDA_WARP_SPECIALISED,
    XN_CUDA_FILTER_STATIONARY,
    XN_CUDA_IMPLICIT_GEMM,
    XN_CUDA_DIRECT,
    XN_CUDA_REAL_WGMMA, /* modes bwn and float from here on: real_mma.cu by wgmma, */
    XN_CUDA_REAL_MMA,   /* and by mma.sync */
    XN_CUDA_REAL,
    XN_CUDA_PATHS
} xn_cuda_path;

typedef struct xn_canary xn_canary;

struct xn_device {
    int ordinal;
    char name[256];
    int major, minor; /* compute capability */
    int multiprocessors;
    bool wide;   /* filter_stationary.cu and others by wgmma run here */
    bool matrix; /* mma.sync does, also of bits: implicit_gemm.cu, patch_gemm.cu, real_mma.cu */
    size_t memory_bytes;
    cudaStream_t setup; /* puts weights on the device; threads may share it */
    cudaMemPool_t pool; /* of weights; NULL where the driver has none */
    xn_canary *canary;
};

/* What the kernels for few channels ask of it. */
static inline xn_cuda_few_chip xn_cuda_few_chip_of(const xn_device *device) {
    const xn_cuda_few_chip chip = {device->multiprocessors, device->matrix,
                                   device->major >= XN_CUDA_OVERLAP_MAJOR};
    return chip;
}

/* Which of them a path is; XN_CUDA_FEW_NONE for the other paths. */
static inline xn_cuda_few_kind xn_cuda_few_kind_of(xn_cuda_path path) {
    switch (path) {
    case XN_CUDA_SLIDING_WINDOW:
        return XN_CUDA_FEW_SLIDING_WINDOW;
    case XN_CUDA_DEPTHWISE:
        return XN_CUDA_FEW_DEPTHWISE;
    case XN_CUDA_PATCH_GEMM:
        return XN_CUDA_FEW_PATCH_GEMM;
    default:
        return XN_CUDA_FEW_NONE;
    }
}

/* Weights on a device: one allocation, and where its parts lie. Immutable but for what
 * xn_cuda_weights_ready adds. */
struct xn_prepared {
    xn_device *device;
    void *memory;
    int32_t out_channels, group_channels;
    int64_t taps;
    const uint32_t *rows; /* layout.h */
    const void *wide;     /* NULL where filter_stationary.cu does not run */
    const void *lines;    /* likewise of warp_specialised.cu, */
    const void *rails;    /* and dual_rail.cu */
    int64_t wide_rows;    /* of all three */
    const int32_t *wide_prefix;
    const uint32_t *patches; /* NULL when the filters are too large for the fused kernel */
    const uint32_t *fields;  /* and for patch_gemm.cu */
    const int32_t *prefix;
    const float *real, *alpha;
    mutable pthread_mutex_t making; /* held while one of mma is made; guards no reading of them */
    /* real_mma.h, by precision and mode: an allocation each; NULL until a plan wanted it. Written
     * once; read and written atomically. */
    mutable void *mma[XN_CUDA_MMA_PRECISIONS][XN_CUDA_MMA_MODES];
    const int32_t *mma_exponent; /* of those of mode float in fp16 */
    bool finite;                 /* no real weight is NaN or infinite */
    const float *scale, *bias;   /* NULL when the weights have none */
};

/* What one worker owns. Workspace and arena serve all plans of the stream in turn; plans and
 * programs keep offsets, so they may move when they grow. */
struct xn_stream {
    xn_device *device;
    bool forced; /* all plans to that path */
    xn_cuda_path path;
    cudaStream_t stream;
    cudaEvent_t start, uploaded, computed, done;
    char *workspace; /* of kernels, between each other */
    size_t workspace_bytes;
    char *arena; /* the tensors of programs */
    size_t arena_bytes;
};

/* What a plan may be told beside its problem. Packed input and output (mode xnor) are device
 * memory in the layout of activations, bits[N*G][H*W][tap_words]; output counts as one group of all
 * filters, as the next layer with groups 1 reads it. Packed input has no K: scaling alpha or none.
 */
typedef struct xn_cuda_plan_options {
    bool packed_input, packed_output;
    bool rails;  /* packed tensors lie as layout.h's rails, which path rails alone can do */
    bool forced; /* to that path; XN_ERR_UNSUPPORTED where it cannot */
    xn_cuda_path path;
} xn_cuda_plan_options;

/* Device memory of one run: input or bits; output, or packed with the threshold of every filter
 * on dot: bit = dot >= threshold, turned where flip (bit o % 32 of word o / 32; NULL: nowhere) has
 * one. threshold and flip of batch norm and sign, gamma * (dot * alpha - mean) / sigma + beta >= 0:
 * with negative gamma the bit is dot <= t, which is dot >= t + 1 turned. All 16-byte aligned. */
typedef struct xn_cuda_run_io {
    const void *input;
    const uint32_t *bits;
    void *output;
    uint32_t *packed;
    const int32_t *threshold;
    const uint32_t *flip;
} xn_cuda_run_io;

struct xn_plan {
    xn_stream *stream;
    xn_conv conv;
    int64_t max_images;
    xn_cuda_path path;
    bool packed_input, packed_output, rails;
    bool want_k;                      /* scaling xnor of mode xnor */
    xn_cuda_stationary_cut *wide;     /* of path wide: how the last run was cut */
    xn_cuda_few_cut *few;             /* of the paths for few channels: likewise */
    xn_cuda_specialised_cut *lines;   /* of path lines, likewise */
    xn_cuda_dual_rail_cut *rails_cut; /* of path rails, likewise */
    xn_cuda_fused_plan *fused;        /* of path fused, likewise */
    /* Offsets into the workspace; those a path does not use are 0. */
    size_t bits, popc, mean, pixel_part, k, dots, pixels, partial;
    size_t workspace_bytes;
};

/* ---- the table's functions, by file ---- */

/* device.cu */
xn_status xn_cuda_device_count(int *count, xn_error *error);
xn_status xn_cuda_device_open(int ordinal, xn_device **out, xn_error *error);
void xn_cuda_device_close(xn_device *device);
void xn_cuda_device_info(const xn_device *device, xn_device_info *out);
void *xn_cuda_host_alloc(xn_device *device, size_t bytes);
void xn_cuda_host_free(xn_device *device, void *memory);
/* Makes the device current on this thread. */
xn_status xn_cuda_device_use(const xn_device *device, xn_error *error);

/* canary.cu */
xn_status xn_cuda_canary_create(xn_device *device, xn_canary **out, xn_error *error);
void xn_cuda_canary_free(xn_canary *canary);
xn_status xn_cuda_device_canary(xn_device *device, xn_error *error);

/* weights.cu */
xn_status xn_cuda_weights_prepare(xn_device *device, const xn_weights *weights, xn_prepared **out,
                                  xn_error *error);
void xn_cuda_weights_free(xn_prepared *prepared);
xn_status xn_cuda_weights_ready(const xn_prepared *prepared, const xn_plan *plan, xn_error *error);
/* The filters of real_mma.h that a problem multiplies by; NULL where they have not been made. */
const void *xn_cuda_mma_filters_of(const xn_prepared *prepared, const xn_conv *conv);

/* stream.cu */
xn_status xn_cuda_stream_create(xn_device *device, const xn_stream_options *options,
                                xn_stream **out, xn_error *error);
void xn_cuda_stream_free(xn_stream *stream);
/* Makes the workspace, or the arena, at least that large. Not while a run is under way. */
xn_status xn_cuda_workspace_reserve(xn_stream *stream, size_t bytes, xn_error *error);
xn_status xn_cuda_arena_reserve(xn_stream *stream, size_t bytes, xn_error *error);
void *xn_cuda_arena(const xn_stream *stream, size_t bytes);
/* Blocks until the stream's `done` event: polls for a moment, then sleeps. */
xn_status xn_cuda_stream_wait(xn_stream *stream, xn_error *error);

/* plan.cu */
xn_status xn_cuda_plan_create(xn_stream *stream, const xn_step *step, int64_t max_images,
                              xn_plan **out, xn_error *error);
xn_status xn_cuda_plan_create_with(xn_stream *stream, const xn_conv *conv, int64_t max_images,
                                   const xn_cuda_plan_options *options, xn_plan **out,
                                   xn_error *error);
void xn_cuda_plan_free(xn_plan *plan);
const char *xn_cuda_plan_path(const xn_plan *plan);
const char *xn_cuda_device_path(const xn_device *device, int index);
/* The path of that name; false when the device has none. */
bool xn_cuda_path_find(const xn_device *device, const char *name, xn_cuda_path *out);

/* launch.cu: the kernels of a plan on device memory, without transfers, on any stream of the
 * device; what lies between kernels is in the workspace of the plan's stream. Can be captured in a
 * graph. */
cudaError_t xn_cuda_enqueue(const xn_plan *plan, const xn_prepared *prepared, int64_t images,
                            const xn_cuda_run_io *io, cudaStream_t stream);
/* Whether a run of this plan would multiply in the matrix units, given filters for them. */
bool xn_cuda_wants_matrix_units(const xn_plan *plan, const xn_prepared *prepared);
/* xn_backend.h: precision. */
xn_precision xn_cuda_precision(const xn_plan *plan, const xn_prepared *prepared);

/* run.cu */
xn_status xn_cuda_begin(xn_stream *stream, const xn_batch *batch, void *input, xn_error *error);
xn_status xn_cuda_enqueue_step(xn_plan *plan, const xn_prepared *prepared, const xn_step_io *io,
                               xn_error *error);
xn_status xn_cuda_end(xn_stream *stream, const xn_batch *batch, const void *output,
                      xn_run_times *times, xn_error *error);
void xn_cuda_abandon(xn_stream *stream);

#endif
