/* path.h: what a path is: a way to run a step, a row of the table in paths.c. Everything else that
 * it needs is its own: kernels, the state of a plan, forms of the weights.
 *
 * All memory of a run is allocated when its plan is made. Scratch belongs to the stream and is one
 * block: a part that the threads of a run share (written by one phase, read by the next, with a
 * barrier between), then a slice for each thread that the device could give, so that
 * stream_set_threads never needs memory. */
#ifndef XN_CPU_PATH_H
#define XN_CPU_PATH_H

#include "epilogue.h"
#include "index.h"
#include "prepared.h"
#include "sets.h"

#define XN_CPU_ALIGNMENT 64
#define XN_CPU_LINE 64 /* bytes of a line of the caches */

struct xn_device {
    int threads; /* the most that a run may use: what the process may, or as configured */
    bool pinned; /* helper threads stay on a processor each */
    const xn_cpu_set *set;
};

typedef struct xn_cpu_path xn_cpu_path;

/* A path with the kernels of one instruction set. */
typedef struct xn_cpu_way {
    const char *name; /* "lookup/avx2" */
    const xn_cpu_path *path;
    const xn_cpu_set *set;
} xn_cpu_way;

struct xn_stream {
    const xn_device *device; /* borrowed */
    const xn_cpu_way *way;   /* forced; NULL: plans choose */
    int threads;             /* the most a run may use: 1 .. device->threads */
    int64_t ended_ns;        /* when the last run did */
    unsigned char *scratch;  /* owned; grows in plan_create only, to the most any plan asked */
    size_t scratch_bytes, most_scratch_bytes;
    unsigned char *arena; /* owned: the tensors between steps */
    size_t arena_bytes;
    int64_t compute_ns; /* of the run under way */
};

struct xn_plan {
    xn_stream *stream; /* borrowed */
    xn_step step;
    const xn_cpu_way *way;
    const xn_cpu_kernels *kernels; /* common ones, and the path's own: */
    const void *path_kernels;
    int64_t max_images;
    xn_cpu_image *images; /* [max_images], owned; filled by run */
    double cost_ns;       /* of an image, the path's */
    /* Set by the path's create: */
    void *state;
    size_t shared_bytes, thread_bytes; /* of the stream's scratch */
    size_t factor_offset, bias_offset; /* of the epilogue, in shared scratch */
    /* Of paths that do not write bits: signs lie in shared scratch, from here on, of so many images
     * at a time; 0: there are none. */
    size_t signs_offset;
    int64_t signs_images;
};

/* What a path's run function gets; lives for one run. */
typedef struct xn_cpu_run {
    const xn_plan *plan;
    const xn_prepared *prepared;
    xn_cpu_epilogue epilogue;
    int threads;
} xn_cpu_run;

struct xn_cpu_path {
    const void *kernels[XN_CPU_SETS]; /* for each instruction set (XN_CPU_PATH_KERNELS) */
    /* Whether it writes image.bits. Where not, or where this is NULL, it leaves a byte a sign in
     * image.signs (xn_cpu_finish), of which run.c makes bits. */
    bool (*writes_bits)(const xn_step *step);
    /* Whether it can run this step at all. */
    bool (*fits)(const xn_step *step);
    /* Rough time of an image on one thread: decides between paths and on threads. Pure. */
    double (*cost_ns)(const xn_step *step, const void *kernels);
    /* Makes the plan's state and sets its sizes of scratch. Errors: XN_ERR_NO_MEMORY. */
    xn_status (*create)(xn_plan *plan, xn_error *error);
    void (*destroy)(void *state); /* NULL-safe */
    /* Makes the forms that runs of the plan want. Errors: XN_ERR_NO_MEMORY. */
    xn_status (*prepare)(const xn_plan *plan, const xn_prepared *prepared, xn_error *error);
    void (*run)(const xn_cpu_run *run, const xn_cpu_image *images, int64_t count);
};

/* kernels of a path: the tables xn_cpu_<family>_<set>. avx512, vpopcnt, amx: whose is taken where
 * there is AVX-512, VPOPCNTDQ or AMX, its own or that of a set before. */
#if defined(__x86_64__)
#define XN_CPU_PATH_KERNELS(family, avx512, vpopcnt, amx)                                          \
    {                                                                                              \
        [XN_CPU_PORTABLE] = &xn_cpu_##family##_portable, [XN_CPU_AVX2] = &xn_cpu_##family##_avx2,  \
        [XN_CPU_AVX512] = &xn_cpu_##family##_##avx512,                                             \
        [XN_CPU_VPOPCNT] = &xn_cpu_##family##_##vpopcnt, [XN_CPU_AMX] = &xn_cpu_##family##_##amx   \
    }
#elif defined(__aarch64__)
#define XN_CPU_PATH_KERNELS(family, avx512, vpopcnt, amx)                                          \
    { [XN_CPU_PORTABLE] = &xn_cpu_##family##_portable, [XN_CPU_NEON] = &xn_cpu_##family##_neon }
#else
#define XN_CPU_PATH_KERNELS(family, avx512, vpopcnt, amx)                                          \
    { [XN_CPU_PORTABLE] = &xn_cpu_##family##_portable }
#endif

/* ---- paths.c ---- */

extern const xn_cpu_path xn_cpu_lookup, xn_cpu_bitgemm, xn_cpu_real, xn_cpu_direct, xn_cpu_ops,
    xn_cpu_stem, xn_cpu_top_k;

/* Way `index` of the ways that this machine can run convolutions, NULL past the last. */
const xn_cpu_way *xn_cpu_way_at(int index);
/* The one of that name, NULL if there is none. */
const xn_cpu_way *xn_cpu_way_find(const char *name);
/* Of those with this set that fit, the one that costs least; NULL where none fits. */
const xn_cpu_way *xn_cpu_way_choose(const xn_step *step, const xn_cpu_set *set);
/* The one way, with this set, of steps of a kind that is not conv. */
const xn_cpu_way *xn_cpu_way_of_kind(int32_t kind, const xn_cpu_set *set);

/* ---- run.c ---- */

/* images [0, count) of the plan, on so many threads. */
void xn_cpu_run_images(const xn_plan *plan, const xn_prepared *prepared, int64_t count,
                       int threads);
/* ---- plan.c ---- */

xn_status xn_cpu_plan_create(xn_stream *stream, const xn_step *step, int64_t max_images,
                             xn_plan **out, xn_error *error);
void xn_cpu_plan_free(xn_plan *plan); /* NULL-safe */
xn_status xn_cpu_weights_ready(const xn_prepared *prepared, const xn_plan *plan, xn_error *error);

/* ---- path.c: what paths call ---- */

/* writes_bits of paths that always do. */
bool xn_cpu_writes_all_bits(const xn_step *step);

/* Adds up arrays with checked arithmetic; `failed` sticks. */
typedef struct xn_cpu_sizer {
    size_t bytes;
    bool failed;
} xn_cpu_sizer;

/* Room for count objects of `bytes` each, aligned, with 64 elements' slack for vectors that run
 * past the end. Returns its offset. */
size_t xn_cpu_take(xn_cpu_sizer *sizer, size_t count, size_t bytes);

/* Makes plan->state, so many bytes of zeros: what a path's create begins with. NULL with an error.
 */
void *xn_cpu_state_create(xn_plan *plan, size_t bytes, xn_error *error);
/* What it does with the sums of both parts at its end. */
xn_status xn_cpu_set_scratch(xn_plan *plan, const xn_cpu_sizer *shared, const xn_cpu_sizer *slice,
                             xn_error *error);

static inline unsigned char *xn_cpu_shared(const xn_plan *plan) {
    return plan->stream->scratch;
}

static inline unsigned char *xn_cpu_slice(const xn_plan *plan, int thread) {
    return plan->stream->scratch + plan->shared_bytes + (size_t)thread * plan->thread_bytes;
}

#endif
