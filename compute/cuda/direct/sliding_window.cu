/* sliding_window.cu: the path sliding_window: which strip kernel runs a problem, how it is cut, and
 * the launch. */
#include "costs.h"
#include "sliding_window.cuh"

enum {
    MAX_PADDED = 1 << 30, /* of an axis, so that columns past its end fit 32 bits */
    MAX_GRID_YZ = 65535,
    MAX_PLANES = 1 << 30, /* with the last stack they fit 32 bits */
    MIN_WARPS = 3,        /* a multiprocessor's, below which threads take single rows, */
    CHUNK_WARPS = 7,      /* and which it keeps when they take more, */
    MAX_CHUNKS = 8,       /* up to so many times 4 */
    STREAM_CHUNKS = 4,    /* for what does not, */
    HIGH_CHUNKS = 2,      /* or for planes as high as HIGH */
    HIGH = 2048,
    MAX_PHASES = 1 << 10,
};

/* A thread makes `rows` * `chunks` output rows of 4 columns; `lanes` threads side by side make a
 * segment; a block is `threads` / `lanes` segments: `across` of them side by side, of `stack`
 * planes, the rest below each other. All are powers of 2. */
struct strip_cut {
    int32_t rows;   /* 1 or 4: compiled in */
    int32_t chunks; /* 1 unless the kernel is of the shape of one that is compiled for it */
    int32_t depth;  /* chunks on their way at a time: 0 (in registers), 2 or 4: compiled in */
    int32_t lanes;  /* 4, 8, 16 or 32: shuffles stay inside a segment */
    int32_t across, stack;
    int32_t threads; /* 32 .. 128 */
};

typedef void (*strip_function)(const xn_strip_args);

struct strip_kernel {
    int32_t kernel, rows;
    int32_t kind, depth, dilation; /* of columns; 1: of rows too, else those have any */
    int32_t ring;                  /* bytes */
    strip_function function;
};

#define SINGLE(K, ROWS, KIND, D)                                                                   \
    { K, ROWS, KIND, 0, D, 0, xn_strip_kernel<K, K, ROWS, KIND, 0, D> }
#define RING(KIND, DEPTH)                                                                          \
    {                                                                                              \
        3, 4, KIND, DEPTH, 1, xn_strip_ring<3, 3, 4, KIND, DEPTH>::TOTAL_BYTES,                    \
            xn_strip_kernel<3, 3, 4, KIND, DEPTH, 1>                                               \
    }
/* Of those that take a problem the first is the fastest. */
static const strip_kernel kernels[] = {
    RING(XN_STRIP_FP32, 2),          RING(XN_STRIP_FP32, 4),
    RING(XN_STRIP_FP16, 2),          SINGLE(3, 4, XN_STRIP_FP32, 1),
    SINGLE(3, 1, XN_STRIP_FP32, 1),  SINGLE(3, 4, XN_STRIP_FP16, 1),
    SINGLE(3, 1, XN_STRIP_FP16, 1),  SINGLE(5, 4, XN_STRIP_FP32, 1),
    SINGLE(7, 4, XN_STRIP_FP32, 1),  SINGLE(3, 4, XN_STRIP_FP32, 2),
    SINGLE(3, 1, XN_STRIP_FP32, 2),  SINGLE(3, 4, XN_STRIP_FP16, 2),
    SINGLE(3, 1, XN_STRIP_FP16, 2),  SINGLE(3, 4, XN_STRIP_LOOSE, 1),
    SINGLE(5, 4, XN_STRIP_LOOSE, 1), SINGLE(7, 4, XN_STRIP_LOOSE, 1),
    SINGLE(3, 4, XN_STRIP_ANY, 1),   SINGLE(3, 1, XN_STRIP_ANY, 1),
    SINGLE(5, 4, XN_STRIP_ANY, 1),   SINGLE(7, 4, XN_STRIP_ANY, 1),
};

/* 4 elements at a time: the input's rows start at such a multiple, and so do the windows. */
static bool vector_in(const xn_conv *c) {
    return c->width % XN_STRIP_WIDTH == 0 && (c->kernel_w / 2 - c->pad_left) % XN_STRIP_WIDTH == 0;
}

/* FP32 and FP16 also want each thread's own columns to be under its outputs. */
static bool has_kind(const xn_conv *c, int32_t kind) {
    if (kind == XN_STRIP_ANY)
        return true;
    const int32_t datatype = kind == XN_STRIP_FP16 ? XN_FP16 : XN_FP32;
    if (c->input_datatype != datatype || c->epilogue.datatype != datatype || !c->epilogue.k ||
        c->pad_value < 0)
        return false;
    return kind == XN_STRIP_LOOSE ||
           (c->pad_left == c->kernel_w / 2 * c->dilation_w && c->out_width <= c->width &&
            c->width % XN_STRIP_WIDTH == 0 && c->out_width % XN_STRIP_WIDTH == 0);
}

/* The kernel of so many rows and that depth; with rows 0, the fastest of that depth. */
static const strip_kernel *find_kernel(const xn_conv *c, int32_t rows, int32_t depth) {
    for (const strip_kernel &k : kernels)
        if (k.kernel == c->kernel_w && k.kernel == c->kernel_h && k.dilation == c->dilation_w &&
            (!rows || rows == k.rows) && depth == k.depth && has_kind(c, k.kind))
            return &k;
    return NULL;
}

static int64_t tiles_across(const xn_conv *c, const strip_cut *s) {
    return (c->out_width - 1) / (s->lanes * s->across * XN_STRIP_WIDTH) + 1;
}

static int32_t segments_down(const strip_cut *s) {
    return s->threads / (s->lanes * s->across * s->stack);
}

/* Rows of outputs of a phase. */
static int32_t phase_rows(const xn_conv *c) {
    return (c->out_height - 1) / c->dilation_h + 1;
}

static int64_t tiles_down(const xn_conv *c, const strip_cut *s) {
    return (phase_rows(c) - 1) / ((int64_t)segments_down(s) * s->rows * s->chunks) + 1;
}

/* Each phase of the rows is one. */
static int64_t planes_of(const xn_conv *c, int64_t images) {
    return images * c->groups * c->dilation_h;
}

static int64_t stacks_of(const xn_conv *c, int64_t images, const strip_cut *s) {
    return (planes_of(c, images) - 1) / s->stack + 1;
}

/* z has the stacks of planes as far as it goes, x the rest of them. */
static int64_t grid_z(const xn_conv *c, int64_t images, const strip_cut *s) {
    const int64_t stacks = stacks_of(c, images, s);
    return stacks < MAX_GRID_YZ ? stacks : (int64_t)MAX_GRID_YZ;
}

static int64_t grid_x(const xn_conv *c, int64_t images, const strip_cut *s) {
    const int64_t folds = (stacks_of(c, images, s) - 1) / grid_z(c, images, s) + 1;
    return tiles_across(c, s) * folds;
}

static bool takes(const xn_conv *c) {
    return c->stride_h == 1 && c->stride_w == 1 && find_kernel(c, 0, 0) &&
           (c->dilation_w == 1 ? c->dilation_h == 1 : c->dilation_h <= MAX_PHASES) &&
           c->group_channels == 1 && c->group_out_channels == 1 &&
           (int64_t)c->height * c->width <= INT32_MAX &&
           (int64_t)c->out_height * c->out_width <= INT32_MAX &&
           (int64_t)c->height + c->pad_top + c->pad_bottom <= MAX_PADDED &&
           (int64_t)c->width + c->pad_left + c->pad_right <= MAX_PADDED;
}

/* The largest that is not more than v; 1 at least. */
static int32_t power_of_2_until(int64_t v, int32_t most) {
    int32_t power = 1;
    while (2 * power <= v && power < most)
        power *= 2;
    return power;
}

static int32_t power_of_2_from(int64_t v, int32_t most) {
    int32_t power = 1;
    while (power < v && power < most)
        power *= 2;
    return power;
}

static double bytes_of(const xn_conv *c, int64_t images) {
    return (double)images * (double)(xn_conv_input_bytes(c) + xn_conv_output_bytes(c));
}

/* Input and output stay in the L2 cache together. */
static bool is_cached(const xn_conv *c, int64_t images) {
    return bytes_of(c, images) < 40 << 20;
}

/* Data from the L2 cache comes fast enough for the instructions to count: long strips, which make
 * fewer sums twice, as far as all multiprocessors are kept busy. Not so long that much of the last
 * one is beyond the plane. */
static int32_t choose_chunks(const xn_conv *c, int64_t images, int64_t warps) {
    const bool high = phase_rows(c) >= HIGH && has_kind(c, XN_STRIP_FP32) && c->kernel_w == 3;
    int32_t chunks = high ? HIGH_CHUNKS : STREAM_CHUNKS;
    if (is_cached(c, images)) {
        const int32_t most = c->input_datatype == XN_FP16 ? MAX_CHUNKS / 2 : MAX_CHUNKS;
        chunks = power_of_2_until(warps / CHUNK_WARPS, most);
        chunks = chunks > 2 ? chunks : 1; /* two do not pay for what they add */
    }
    for (; chunks > 1; chunks /= 2) {
        const int64_t strip = 4 * (int64_t)chunks;
        if (((phase_rows(c) - 1) / strip + 1) * strip - phase_rows(c) <= phase_rows(c) / 6)
            break;
    }
    return chunks;
}

/* Few rows a thread while only that fills the multiprocessors; else more, which reads less of the
 * rows between strips again. */
static void choose_rows(const xn_conv *c, int64_t images, int multiprocessors, strip_cut *s) {
    const int64_t warps = planes_of(c, images) * ((phase_rows(c) - 1) / 4 + 1) *
                          ((c->out_width - 1) / (s->lanes * XN_STRIP_WIDTH) + 1) * s->lanes / 32;
    s->rows = find_kernel(c, 0, 0)->rows;
    s->chunks = 1;
    if (warps < MIN_WARPS * (int64_t)multiprocessors && find_kernel(c, 1, 0))
        s->rows = 1;
    else
        s->chunks = choose_chunks(c, images, warps / multiprocessors);
    const int32_t depth = s->chunks >= MAX_CHUNKS ? 4 : 2;
    if (s->chunks > 1 && find_kernel(c, s->rows, depth))
        s->depth = depth;
    if (c->input_datatype == XN_FP16 && is_cached(c, images))
        s->depth = 0; /* half the bytes: the copies' instructions cost more than they hide */
}

static bool choose(const xn_conv *c, int64_t images, int multiprocessors, strip_cut *out) {
    strip_cut s = {};
    if (!takes(c))
        return false;
    s.lanes = power_of_2_from((c->out_width - 1) / XN_STRIP_WIDTH + 1, 32);
    s.lanes = s.lanes < 4 ? 4 : s.lanes;
    choose_rows(c, images, multiprocessors, &s);
    s.threads = XN_STRIP_MAX_THREADS;
    s.across = power_of_2_from((c->out_width - 1) / (s.lanes * XN_STRIP_WIDTH) + 1,
                               s.threads / s.lanes < 2 ? 1 : 2);
    const int32_t segments = s.threads / (s.lanes * s.across);
    const int32_t down = power_of_2_from((phase_rows(c) - 1) / (s.rows * s.chunks) + 1, segments);
    s.stack = power_of_2_from(planes_of(c, images), segments / down);
    if (planes_of(c, images) > MAX_PLANES || grid_x(c, images, &s) > INT32_MAX ||
        tiles_down(c, &s) > MAX_GRID_YZ)
        return false;
    *out = s;
    return true;
}

/* ---- the path ---- */

typedef xn_few_state<strip_cut> strip_state;

static void terms(const xn_cuda_job *job, const xn_cuda_chip *chip, const void *state, double *t) {
    const xn_conv *c = &job->conv;
    const int64_t images = job->images;
    const strip_cut *s = &((const strip_state *)state)->cut;
    const strip_kernel *k = find_kernel(c, s->rows, s->depth);
    const double out_rows = s->rows * s->chunks, in_rows = out_rows + k->kernel - 1;
    const double tables = (double)k->kernel * ((k->kernel + 2) / 3);
    const double blocks =
        (double)grid_x(c, images, s) * tiles_down(c, s) * (double)grid_z(c, images, s);
    const double warps = xn_few_share(blocks, chip->multiprocessors) * s->threads / 32;
    const double digests = warps * in_rows * (k->kernel + 5);
    const double outputs = warps * out_rows * (tables + 10);
    const bool vectors = k->kind == XN_STRIP_FP32 || k->kind == XN_STRIP_FP16;
    t[0] = 1;
    t[1] = vectors ? 0 : s->chunks - 1; /* which wait for one another */
    t[2] = vectors ? digests : 0;
    t[3] = vectors ? 0 : digests;
    t[4] = vectors ? 0 : warps * in_rows * 32 / s->lanes; /* rows of memory */
    t[5] = outputs;
    t[6] = is_cached(c, images) ? 0 : bytes_of(c, images) / 1024 / chip->multiprocessors;
}

static cudaError_t run(xn_cuda_run *r) {
    const xn_conv *c = &r->job->conv;
    const int64_t images = r->job->images;
    const strip_cut *s = &((const strip_state *)r->state)->cut;
    const strip_kernel *k = find_kernel(c, s->rows, s->depth);
    xn_strip_args a = {};
    xn_few_set(&a, r);
    a.vector_in = vector_in(c);
    a.vector_out = c->out_width % XN_STRIP_WIDTH == 0;
    a.lanes_log2 = xn_few_log2(s->lanes);
    a.across_log2 = xn_few_log2(s->across);
    a.down_log2 = xn_few_log2(segments_down(s));
    a.stack_log2 = xn_few_log2(s->stack);
    a.chunks = s->chunks;
    a.tiles_x = (int32_t)tiles_across(c, s);
    a.planes = (int32_t)planes_of(c, images);
    a.in_plane = (int64_t)c->height * c->width;
    a.out_plane = (int64_t)c->out_height * c->out_width;
    const dim3 grid((unsigned)grid_x(c, images, s), (unsigned)tiles_down(c, s),
                    (unsigned)grid_z(c, images, s));
    return xn_cuda_launch_with(k->function, grid, s->threads, (size_t)k->ring, r->chip->overlaps,
                               r->stream, a);
}

static cudaError_t load(bool *) {
    for (const strip_kernel &k : kernels) {
        cudaError_t e = xn_cuda_load(k.function);
        if (e != cudaSuccess)
            return e;
    }
    return cudaSuccess;
}

const xn_cuda_path xn_cuda_sliding_window_path = {"sliding_window",
                                                  XN_CUDA_ANY_CHIP,
                                                  sizeof(strip_state),
                                                  xn_few_fits<strip_cut, choose>,
                                                  terms,
                                                  xn_cuda_costs_sliding_window,
                                                  NULL,
                                                  xn_few_wants,
                                                  run,
                                                  load};
