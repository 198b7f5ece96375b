/* cpu.h: what the files of the CPU backend share. One device, "cpu"; threads inside a run.
 *
 *   backend.c   the table: device, stream (scratch memory), run
 *   plan.c      chooses a path for a problem, sizes its scratch
 *   prepared.c  weights in the layouts of the paths
 *   parallel.c  the threads
 *   kernels.h   the vector kernels; kernels_body.h is their one text, compiled for each instruction
 *               set, and sets.c says which of them this machine has
 *   rows.c      padded rows of an image, in an order in which every tap reads contiguously
 *   few.c       mode xnor, few channels: one fused pass; few_kernels.h are its own kernels
 *   many.c      mode xnor, many channels: signs as bits, popcount; many.h lists its other files
 *   real.c      modes bwn and float; real.h lists its other files
 *   kmap.c      K in double, from |I|
 *   emit.c      accumulators to output elements
 *   canary.c    a known problem
 *
 * A path is two functions: one adds what a run needs to the plan's scratch sizes, one runs. All
 * scratch belongs to the stream and is one block: a part that the threads of a run share (written
 * by one phase, read by the next, with a barrier between), then one slice for each thread that the
 * machine could give, so that stream_set_threads never needs memory. */
#ifndef XN_CPU_H
#define XN_CPU_H

#include "few_kernels.h"
#include "kernels.h"
#include "many.h"
#include "real_kernels.h"
#include "xn_backend.h"
#include "xn_mem.h"

#include <pthread.h>
#include <stdatomic.h>

/* Whether helper threads are members of OpenMP teams (parallel.c). Not with clang's library: it
 * fails its own assertions when a thread that led a team ends and another leads one. */
#if defined(_OPENMP) && !defined(__clang__)
#define XN_CPU_OPENMP_TEAMS 1
#else
#define XN_CPU_OPENMP_TEAMS 0
#endif

#define XN_CPU_ALIGNMENT 64
#define XN_CPU_LINE 64 /* bytes of a line of the caches */
/* The few-channel path is for filters of at most so many channels and taps in all; prepared
 * weights of other shapes carry no tap order. */
#define XN_CPU_FEW_CHANNELS 32
#define XN_CPU_FEW_FILTER 8192

/* An instruction set: the kernels that are compiled for it, and whether this machine has it. */
typedef struct xn_cpu_set {
    const char *name; /* "avx2" */
    const xn_cpu_kernels *kernels;
    const xn_cpu_few_kernels *few;
    const xn_cpu_many_kernels *many;
    const xn_cpu_real_kernels *real;
    bool (*has)(void);
} xn_cpu_set;

struct xn_device {
    int threads; /* the most that a run may use: what the process may, or as configured */
    bool pinned; /* helper threads stay on a processor each */
    const xn_cpu_set *set;
};

typedef struct xn_cpu_path xn_cpu_path;

/* A way to run problems: a path with the kernels of one instruction set. */
typedef struct xn_cpu_way {
    const char *name; /* "few/avx2" */
    const xn_cpu_path *path;
    const xn_cpu_set *set;
} xn_cpu_way;

struct xn_stream {
    const xn_device *device; /* borrowed */
    const xn_cpu_way *way;   /* forced; NULL: plans choose */
    int threads;             /* the most a run may use: 1 .. device->threads */
    int64_t ended_ns;        /* when the last run did */
    unsigned char *scratch;  /* owned; grows in plan_create only, to the most any plan asked */
    size_t scratch_bytes;
    unsigned char *arena; /* owned: the tensors between steps */
    size_t arena_bytes;
    int64_t compute_ns; /* of the run under way */
};

/* Weights that are made when a plan first wants them: 4 bytes each, and most users want none. Set
 * once, to memory of the prepared weights; whoever runs with them has seen them set. */
typedef struct xn_cpu_real_weights {
    pthread_mutex_t making; /* held to set one of those below; no other is taken under it */
    _Atomic(float *) real;  /* as they are, in the order of real_pack.c; */
    _Atomic(float *) sign;  /* as +1 and -1 */
} xn_cpu_real_weights;

/* Weights of one shape. Owns all its arrays. Immutable but for `on_demand`, shared by threads. */
struct xn_prepared {
    int32_t out_channels, group_channels, kernel_h, kernel_w;
    int32_t taps;   /* KH*KW */
    int32_t filter; /* C/groups*KH*KW */
    /* The words of each filter in the order of many.h, [O][words], and the same as offsets into a
     * table of rows of 16 bytes: 16 * each nibble, the lowest first. Kernels read up to
     * XN_CPU_COLUMN_WORDS past the bits. */
    uint32_t *bits;
    uint8_t *nibbles;
    int32_t *prefix; /* [O][KH + 1][KW + 1]: +1 weights in taps [0, i) x [0, j) */
    /* [O][filter]: indices (c*KH + i)*KW + j of the filter's taps, those of weight +1 first;
     * plus[o] of them are +1. NULL for filters that are too large for the few-channel path. */
    int32_t *order, *plus;
    /* For the few-channel path too, and NULL likewise. A kernel row's taps, channel by channel, go
     * into `planes` patterns; tables is [O][KH][planes][XN_CPU_TABLE_BYTES]. above is
     * [O][KH + 1][KW]: the sum of the weights of all channels in the kernel rows above i. */
    int32_t planes;
    uint8_t *tables;
    int32_t *above;
    const xn_weights *weights; /* borrowed: what on_demand is made from */
    xn_cpu_real_weights *on_demand;
    float *alpha; /* [O] */
    float *scale; /* [O] or NULL */
    float *bias;  /* [O] or NULL */
};

/* One image of a batch, wherever its request's buffers are. */
typedef struct xn_cpu_image {
    const unsigned char *input; /* [C][H][W] */
    unsigned char *output;      /* [O][OH][OW] */
} xn_cpu_image;

/* Columns start, start + stride_w, ... of the image, count of them, stored from `offset` of a row;
 * those outside the image hold the pad value. */
typedef struct xn_cpu_segment {
    int32_t start, count;
    int64_t offset; /* elements */
} xn_cpu_segment;

/* A padded row, rearranged (rows.c): output x of tap column j reads element column[j] + x. */
typedef struct xn_cpu_rows {
    xn_cpu_segment *segments; /* owned */
    int64_t *column;          /* [KW], owned */
    int32_t segment_count;
    int64_t pitch; /* elements of a row */
} xn_cpu_rows;

/* What a path's run function gets; lives for one run. */
typedef struct xn_cpu_run {
    const xn_plan *plan;
    const xn_prepared *prepared;
    int threads;
    const int32_t *threshold; /* of packed output (xn_cpu_run_io) */
    const uint32_t *flip;
} xn_cpu_run;

struct xn_plan {
    xn_stream *stream; /* borrowed */
    xn_conv conv;
    const xn_cpu_way *way;
    const xn_cpu_path *path; /* the way's, as the kernels */
    const xn_cpu_kernels *kernels;
    const xn_cpu_few_kernels *few;
    const xn_cpu_many_kernels *many;
    const xn_cpu_real_kernels *real;
    int64_t max_images;
    xn_cpu_image *images;              /* [max_images], owned; filled by run */
    size_t shared_bytes, thread_bytes; /* of the stream's scratch */
    double image_ns;                   /* the path's */
    xn_cpu_rows rows;                  /* few, real, direct */
    int32_t ring;                      /* few: input rows a thread keeps, a slot each */
    int32_t strip;                     /* few: most output columns of a unit; rows are a strip's */
    xn_cpu_map *map;                   /* many: owned */
    int32_t lanes;                     /* many: most outputs of a unit */
    bool packed_input, packed_output;  /* many */
    int32_t wave;      /* many, real: images whose input is held in shared scratch at a time */
    bool in_place;     /* real: their rows are read where they are */
    int32_t tiles;     /* real: most tiles of filters of a unit */
    int32_t band;      /* direct: most output rows of a unit */
    size_t offset[20]; /* of the path's arrays in the shared part or the slice; path-private */
};

struct xn_cpu_path {
    /* True when it can run this problem at all. */
    bool (*fits)(const xn_conv *conv);
    /* Rough time of one image on one core with a set's kernels: decides on threads, and between
     * paths. Pure. packed_input: its signs come as bits. */
    double (*image_ns)(const xn_conv *conv, const xn_cpu_set *set, bool packed_input);
    /* Sets rows, offsets and sizes. Errors: XN_ERR_NO_MEMORY. */
    xn_status (*layout)(xn_plan *plan, xn_error *error);
    /* images [0, count) of the plan. */
    void (*run)(const xn_cpu_run *run, int64_t count);
};

extern const xn_cpu_path xn_cpu_few, xn_cpu_many, xn_cpu_real, xn_cpu_direct;

/* True when the direct path fits and is the faster one for modes bwn and float (direct.c). */
bool xn_cpu_direct_suits(const xn_conv *conv);

/* ---- sets.c ---- */

/* The sets that this machine has, best first; NULL past the last. There is always one. */
const xn_cpu_set *xn_cpu_set_at(int index);
/* The one of that name; NULL where this machine or this build lacks it. */
const xn_cpu_set *xn_cpu_set_find(const char *name);

extern const xn_cpu_set xn_cpu_set_portable;
#if defined(__x86_64__)
extern const xn_cpu_set xn_cpu_set_vpopcnt, xn_cpu_set_avx512, xn_cpu_set_avx2;
#elif defined(__aarch64__)
extern const xn_cpu_set xn_cpu_set_neon;
#endif

/* ---- plan.c ---- */

/* Way `index` of the ways that this machine can go, NULL past the last. */
const xn_cpu_way *xn_cpu_way_at(int index);
/* The one of that name, NULL if there is none. */
const xn_cpu_way *xn_cpu_way_find(const char *name);

/* ---- sizes ---- */

/* Adds up arrays with checked arithmetic; `failed` sticks. */
typedef struct xn_cpu_sizer {
    size_t bytes;
    bool failed;
} xn_cpu_sizer;

/* Room for count objects of `bytes` each, aligned, with 64 elements' slack for vectors that run
 * past the end. Returns its offset. */
size_t xn_cpu_take(xn_cpu_sizer *sizer, size_t count, size_t bytes);

static inline unsigned char *xn_cpu_shared(const xn_plan *plan) {
    return plan->stream->scratch;
}

static inline unsigned char *xn_cpu_slice(const xn_plan *plan, int thread) {
    return plan->stream->scratch + plan->shared_bytes + (size_t)thread * plan->thread_bytes;
}

static inline int64_t xn_cpu_min(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static inline int64_t xn_cpu_max(int64_t a, int64_t b) {
    return a > b ? a : b;
}

static inline int64_t xn_cpu_div_up(int64_t a, int64_t b) {
    return (a - 1) / b + 1; /* a >= 1 */
}

/* The outputs [*first, *last) of one axis whose tap at `offset` (= i*dilation - pad) is inside the
 * image: 0 <= x*stride + offset < size. */
static inline void xn_cpu_valid_outputs(int64_t offset, int32_t stride, int32_t size,
                                        int32_t outputs, int32_t *first, int32_t *last) {
    int64_t lo = offset >= 0 ? 0 : xn_cpu_div_up(-offset, stride);
    int64_t room = size - offset;
    int64_t hi = room <= 0 ? 0 : xn_cpu_min(xn_cpu_div_up(room, stride), outputs);
    *first = (int32_t)xn_cpu_min(lo, hi);
    *last = (int32_t)hi;
}

/* ---- parallel.c ---- */

/* Calls task(context, unit, thread) for every unit of [0, units), by the calling thread (number 0)
 * and at most threads - 1 of the pool's helpers; returns when all are done. Any thread, but not
 * from within a task. One thread or unit: no other thread is asked. */
typedef void (*xn_cpu_task)(void *context, int64_t unit, int thread);
void xn_cpu_for(int threads, int64_t units, xn_cpu_task task, void *context);
/* Of a clock that only moves on. */
int64_t xn_cpu_now_ns(void);
/* How many threads, 1 .. most, work of about so many nanoseconds is worth, when its caller's last
 * work ended idle_ns ago. Pure. */
int xn_cpu_threads_worth(double work_ns, int64_t idle_ns, int most);

/* The pool of helpers lives while a device is open. start adds what is missing to so many of them,
 * pinned to a processor each or not; with fewer, or none, regions are done by fewer threads. */
#define XN_CPU_MAX_THREADS 1024
void xn_cpu_threads_open(void);
void xn_cpu_threads_close(void);
void xn_cpu_threads_start(int helpers, bool pinned);

/* ---- rows.c ---- */

xn_status xn_cpu_rows_create(const xn_conv *conv, xn_cpu_rows *out, xn_error *error);
void xn_cpu_rows_free(xn_cpu_rows *rows); /* NULL-safe */

/* The part of a segment that lies inside the image: elements [*first, *last) of it. */
static inline void xn_cpu_segment_inside(const xn_conv *conv, const xn_cpu_segment *segment,
                                         int32_t *first, int32_t *last) {
    xn_cpu_valid_outputs(segment->start, conv->stride_w, conv->width, segment->count, first, last);
}

/* Input elements as fp32. */
void xn_cpu_to_fp32(const xn_cpu_kernels *kernels, const xn_conv *conv, const void *src,
                    int32_t count, float *dst);
/* Row y of channel c of an image as fp32: in place where it is fp32 already, else converted into
 * temp [W]. */
const float *xn_cpu_row_fp32(const xn_cpu_kernels *kernels, const xn_conv *conv,
                             const unsigned char *input, int32_t c, int32_t y, float *temp);

/* ---- kmap.c ---- */

/* K[y][0..OW) of a group whose mean of |I| over its channels is a [H][W], summed in double.
 * Scratch: vertical [W], sums [OW]. */
void xn_cpu_k_row(const xn_cpu_kernels *kernels, const xn_conv *conv, const float *a, int32_t y,
                  double *vertical, double *sums, float *k);
/* The same from the image itself; also scratch temp [W] for rows that are not fp32. */
void xn_cpu_k_row_exact(const xn_cpu_kernels *kernels, const xn_conv *conv,
                        const unsigned char *input, int32_t group, int32_t y, float *temp,
                        double *vertical, double *sums, float *k);

/* ---- emit.c ---- */

/* The epilogue of one output channel of one run. */
typedef struct xn_cpu_epilogue {
    float factor; /* 1 for scaling none */
    float bias;   /* 0 if none */
    bool wide;    /* acc * factor may pass FLT_MAX before K brings it back: multiply in double */
    bool counter; /* so may all of the product before the bias, which is as large, brings it back */
    int32_t datatype;
} xn_cpu_epilogue;

/* Whether fp32 is enough for it: for an accumulator of mode xnor, with or without K. */
static inline bool xn_cpu_fits_fp32(const xn_cpu_epilogue *epilogue, bool with_k) {
    return !(epilogue->wide && with_k) && !epilogue->counter;
}

void xn_cpu_epilogue_of(const xn_conv *conv, const xn_prepared *prepared, int32_t o,
                        xn_cpu_epilogue *out);
/* n elements from accumulators to dst, in the output's datatype. k is [n] or NULL. */
void xn_cpu_emit_i32(const xn_cpu_kernels *kernels, const xn_cpu_epilogue *epilogue,
                     const int32_t *acc, const float *k, int32_t n, void *dst);
void xn_cpu_emit_f32(const xn_cpu_kernels *kernels, const xn_cpu_epilogue *epilogue,
                     const float *acc, int32_t n, void *dst);
void xn_cpu_emit_f64(const xn_cpu_epilogue *epilogue, const double *acc, int32_t n, void *dst);

/* Where row y of output channel o goes. */
static inline unsigned char *xn_cpu_output_row(const xn_conv *conv, unsigned char *output,
                                               int32_t o, int32_t y) {
    return output + ((size_t)o * (size_t)conv->out_height + (size_t)y) * (size_t)conv->out_width *
                        xn_datatype_bytes((xn_datatype)conv->epilogue.datatype);
}

/* ---- prepared.c, plan.c, canary.c: the table's functions ---- */

/* p->on_demand, with nothing made yet; false where memory is short (real_pack.c). */
bool xn_cpu_real_open(xn_prepared *p);
void xn_cpu_real_close(xn_prepared *p); /* also of one that is not open */
xn_status xn_cpu_weights_ready(const xn_prepared *prepared, const xn_plan *plan, xn_error *error);
xn_status xn_cpu_weights_prepare(xn_device *device, const xn_weights *weights, xn_prepared **out,
                                 xn_error *error);
void xn_cpu_weights_free(xn_prepared *prepared);
xn_status xn_cpu_plan_create(xn_stream *stream, const xn_step *step, int64_t max_images,
                             xn_plan **out, xn_error *error);
void xn_cpu_plan_free(xn_plan *plan);

/* What a plan may be told beside its problem. Packed tensors (mode xnor) are bits[N*G][H*W][words],
 * channel c of the group bit c % 32 of word c / 32, words of a pixel as xn_packed_words, the
 * bits and words past the channels 0: the layout of the CUDA backend. Packed output counts as one
 * group of all filters, as the next layer with groups 1 reads it; its problem is one of INT32
 * output. Packed input has no K: scaling alpha or none. */
typedef struct xn_cpu_plan_options {
    bool packed_input, packed_output;
} xn_cpu_plan_options;

/* Errors: those of the table's plan_create; XN_ERR_UNSUPPORTED where the problem cannot be packed
 * or the stream is held to a path without packed tensors. */
xn_status xn_cpu_plan_create_with(xn_stream *stream, const xn_conv *conv, int64_t max_images,
                                  const xn_cpu_plan_options *options, xn_plan **out,
                                  xn_error *error);

/* Memory of one run: input or bits; output, or packed with the threshold of every filter on dot:
 * bit = dot >= threshold, turned where flip (bit o % 32 of word o / 32; NULL: nowhere) has one. */
typedef struct xn_cpu_run_io {
    const void *input;
    const uint32_t *bits;
    void *output;
    uint32_t *packed;
    const int32_t *threshold;
    const uint32_t *flip;
} xn_cpu_run_io;

/* As the table's run, for plans of either kind. */
void xn_cpu_run_with(xn_plan *plan, const xn_prepared *prepared, int64_t images,
                     const xn_cpu_run_io *io);
xn_status xn_cpu_canary(xn_device *device, xn_error *error);

#endif
