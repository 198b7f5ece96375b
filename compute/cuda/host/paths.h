/* paths.h: the table of paths, which is all that the rest of the backend knows of its kernels. A
 * path is a way to run a convolution: a row of the table (paths.cu) and a file X_path.cu in the
 * folder of its kernels, which adapts them to the functions below. All but run and load are pure
 * functions of the geometry and the chip: they need no device. */
#ifndef XN_CUDA_PATHS_H
#define XN_CUDA_PATHS_H

#include "kernel.h"
#include "parts.h"
#include "xn_step.h"

/* What a path reads: reals as they come (NCHW); bits in words [N*G][H][W][words]. */
typedef enum { XN_CUDA_FROM_REALS, XN_CUDA_FROM_WORDS } xn_cuda_source;

/* What it writes. */
typedef enum {
    XN_CUDA_TO_REALS, /* the plain epilogue: reals or INT32 */
    XN_CUDA_TO_ALL    /* the whole epilogue, its bits in words of one group; reals and residuals may
                         be parts of tensors (kernel.h) */
} xn_cuda_target;

/* A convolution as a path is asked for it. */
typedef struct xn_cuda_job {
    xn_conv conv; /* its epilogue is what the path is to compute */
    int64_t images;
    xn_cuda_source source;
    xn_cuda_target target;
} xn_cuda_job;

#define XN_CUDA_ALIGNMENT 256 /* bytes, of every part of a device allocation */

/* Memory of a run, given out part by part. The same calls in the same order give the sizes, with
 * base NULL, and the places. */
typedef struct xn_cuda_scratch {
    char *base;
    int64_t images; /* the most of the plan */
    size_t bytes;
    bool passes; /* the address space */
} xn_cuda_scratch;

/* Reals of the plain epilogue or of the whole one: one launcher has both. INT32 is the accumulator,
 * whose bits are made after the path. */
static inline bool xn_cuda_has_reals(const xn_cuda_job *job) {
    return job->target == XN_CUDA_TO_REALS ||
           (job->target == XN_CUDA_TO_ALL && job->conv.epilogue.datatype != XN_INT32);
}

/* From reals to reals in mode xnor, which is all that paths of one kernel do. */
static inline bool xn_cuda_is_plain(const xn_cuda_job *job) {
    return job->conv.mode == XN_MODE_XNOR && job->source == XN_CUDA_FROM_REALS &&
           job->target == XN_CUDA_TO_REALS;
}

/* count * each bytes an image. */
void *xn_cuda_take(xn_cuda_scratch *scratch, int64_t count, size_t each);
/* So many bytes in all. */
void *xn_cuda_take_bytes(xn_cuda_scratch *scratch, size_t bytes);

/* What run gets. */
typedef struct xn_cuda_run {
    const xn_cuda_job *job;
    const xn_cuda_chip *chip;
    void *state;             /* for job->images */
    xn_cuda_scratch scratch; /* as lay_out took it */
    const xn_prepared *weights;
    const void *input;
    xn_epilogue_args out;
    cudaStream_t stream;
} xn_cuda_run;

#define XN_CUDA_TERMS 20 /* of a path's cost, at most */

/* A term: its name, and the nanoseconds of one. No name: there is no such term. */
typedef struct xn_cuda_cost {
    const char *term;
    double ns;
} xn_cuda_cost;

static inline double xn_cuda_cost_ns(const xn_cuda_cost *costs, const double *terms) {
    double ns = 0;
    for (int i = 0; i < XN_CUDA_TERMS; i++)
        ns += terms[i] * costs[i].ns;
    return ns;
}

typedef enum { XN_CUDA_ANY_CHIP, XN_CUDA_HAS_MATRIX, XN_CUDA_HAS_WGMMA } xn_cuda_needs;

typedef struct xn_cuda_path {
    const char *name;
    xn_cuda_needs needs;
    /* Bytes of its state: how it cuts the work of so many images, which starts with that number
     * (int64_t); 0 without. */
    size_t state_bytes;
    /* Whether it can run the job; decides the state. One that takes a job takes it with fewer
     * images too. */
    bool (*fits)(const xn_cuda_job *job, const xn_cuda_chip *chip, void *state);
    /* What its time is made of; costs.h has the name of each and its nanoseconds. */
    void (*terms)(const xn_cuda_job *job, const xn_cuda_chip *chip, const void *state,
                  double terms[XN_CUDA_TERMS]);
    const xn_cuda_cost *costs;
    /* Takes what run needs of scratch. NULL: nothing. */
    void (*lay_out)(const xn_cuda_job *job, const xn_cuda_chip *chip, xn_cuda_scratch *scratch);
    /* The parts of the weights that run reads, as bits by xn_cuda_part. */
    uint64_t (*wants)(const xn_cuda_job *job, const xn_prepared *weights);
    /* Enqueues its kernels. */
    cudaError_t (*run)(xn_cuda_run *run);
    /* Loads its kernels onto the current device; usable stays true unless the chip or this build
     * cannot run them. */
    cudaError_t (*load)(bool *usable);
} xn_cuda_path;

/* What terms are made of: counts of a job, shared by the chip's multiprocessors. */
typedef struct xn_cuda_counts {
    double inputs, outputs; /* elements */
    double windows;         /* outputs of a group's filter */
    double uneven;          /* outputs of planes that are no whole vectors of 4 */
    double taps;            /* of a filter in a channel */
} xn_cuda_counts;
xn_cuda_counts xn_cuda_counts_of(const xn_cuda_job *job, const xn_cuda_chip *chip);

/* The rows. */
extern const xn_cuda_path xn_cuda_sliding_window_path, xn_cuda_patch_path,
    xn_cuda_warp_specialised_path, xn_cuda_implicit_gemm_path, xn_cuda_direct_path,
    xn_cuda_real_mma_path, xn_cuda_real_depthwise_path, xn_cuda_real_gemm_path;

/* Path 0, 1, ...; NULL past the last. */
const xn_cuda_path *xn_cuda_path_at(int index);
/* Whether a chip has what a path needs. */
bool xn_cuda_path_exists(const xn_cuda_path *path, const xn_cuda_chip *chip);
/* What a job would take by a path that fits; state as fits left it. */
double xn_cuda_path_ns(const xn_cuda_path *path, const xn_cuda_job *job, const xn_cuda_chip *chip,
                       const void *state);

/* ---- the choice ---- */

/* How a convolution is run: by a path, with what the path leaves to the kernels of ops/ around it.
 */
typedef struct xn_cuda_choice {
    const xn_cuda_path *path;
    xn_cuda_job job;
    bool from_bytes; /* the input is made words of first */
    bool from_part;  /* the input is copied from its tensor first */
    bool finish;     /* the path writes v of the epilogue, the rest is made of that */
    bool to_bytes;   /* the path writes words, of which bytes are made */
    void *state;     /* of the path, from xn_mem; the plan frees it */
    double ns;       /* about what it takes */
} xn_cuda_choice;

/* The cheapest way; with path not NULL, that path's. XN_ERR_UNSUPPORTED where there is none,
 * XN_ERR_NO_MEMORY. Needs no device. */
xn_status xn_cuda_choose(const xn_step *step, int64_t images, const xn_cuda_chip *chip,
                         const xn_cuda_path *path, xn_cuda_choice *out, xn_error *error);
/* The path with what is around it; false where it cannot. state is of path->state_bytes. */
bool xn_cuda_try_path(const xn_step *step, int64_t images, const xn_cuda_chip *chip,
                      const xn_cuda_path *path, void *state, xn_cuda_choice *out);

#endif
