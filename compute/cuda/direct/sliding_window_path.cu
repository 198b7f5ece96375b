/* sliding_window_path.cu: sliding_window.cu in the table of paths. */
#include "costs.h"
#include "paths.h"
#include "sliding_window.h"

enum { COLUMNS = 4 /* of a thread */ };

struct state {
    int64_t images;
    xn_cuda_sliding cut;
};

static bool fits(const xn_cuda_job *job, const xn_cuda_chip *chip, void *out) {
    state *s = (state *)out;
    s->images = job->images;
    return xn_cuda_is_plain(job) &&
           xn_cuda_sliding_choose(&job->conv, job->images, chip->multiprocessors, &s->cut);
}

/* Whether one of the kernels for one channel and filter a group runs it, */
static bool is_single(const xn_conv *c) {
    return c->group_channels == 1 && c->group_out_channels == 1 && c->kernel_h == c->kernel_w &&
           c->kernel_w % 2 && c->kernel_w > 1;
}

/* and whether one for whole vectors does: those are 3 x 3, or single. */
static bool has_vectors(const xn_conv *c) {
    return xn_cuda_sliding_vectors(c) && (is_single(c) || (c->kernel_h == 3 && c->kernel_w == 3));
}

/* What whole units have of what is wanted. */
static double whole(int32_t wanted, int32_t unit) {
    return (double)((wanted - 1) / unit + 1) * unit / wanted;
}

/* Each window costs its channels' sums and patterns, and for each filter an output and its table
 * look-ups: another price for one channel and filter a group or more of them, and where rows are
 * whole vectors or not. Threads past a row's end work too. */
static void terms(const xn_cuda_job *job, const xn_cuda_chip *chip, const void *state_, double *t) {
    const xn_conv *c = &job->conv;
    const xn_cuda_sliding *cut = &((const state *)state_)->cut;
    const int32_t rows = cut->rows * cut->chunks;
    const double waste = whole(c->out_width, cut->lanes * COLUMNS) * whole(c->out_height, rows);
    const double read = 1 + (c->kernel_h - 1.0) / rows; /* rows, for each row of windows */
    xn_cuda_counts n = xn_cuda_counts_of(job, chip);
    n.outputs *= waste;
    n.windows *= waste;
    const double tables = c->group_channels * c->kernel_h * ((c->kernel_w + 2) / 3);
    double *each = t + 5 * (2 * is_single(c) + has_vectors(c));
    each[0] = 1;
    each[1] = tables;
    each[2] = n.outputs + n.windows * c->group_channels * read;
    each[4] = each[2] / (cut->lanes * COLUMNS); /* accesses to a row */
    each[3] = n.outputs * tables;
}

static uint64_t wants(const xn_cuda_job *, const xn_prepared *) {
    return XN_CUDA_WANT(XN_CUDA_PART_PATCHES);
}

static cudaError_t run(xn_cuda_run *r) {
    xn_cuda_few_io io = {};
    io.input = r->input;
    io.patches = (const uint32_t *)xn_cuda_part_of(r->weights, XN_CUDA_PART_PATCHES);
    return xn_cuda_sliding_launch(&r->job->conv, r->job->images, &((const state *)r->state)->cut,
                                  &io, &r->out, r->chip->overlaps, r->stream);
}

static cudaError_t load(bool *) {
    return xn_cuda_sliding_load();
}

extern const xn_cuda_path xn_cuda_sliding_window_path;
const xn_cuda_path xn_cuda_sliding_window_path = {"sliding_window",
                                                  XN_CUDA_ANY_CHIP,
                                                  XN_CUDA_WRITES_REALS,
                                                  sizeof(state),
                                                  fits,
                                                  terms,
                                                  xn_cuda_costs_sliding_window,
                                                  NULL,
                                                  wants,
                                                  run,
                                                  load};
