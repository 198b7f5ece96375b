/* sliding_window_path.cu: sliding_window.cu in the table of paths. */
#include "costs.h"
#include "paths.h"
#include "sliding_window.h"

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

static void terms(const xn_cuda_job *job, const xn_cuda_chip *chip, const void *state_, double *t) {
    xn_cuda_sliding_terms(&job->conv, job->images, chip->multiprocessors,
                          &((const state *)state_)->cut, t);
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

const xn_cuda_path xn_cuda_sliding_window_path = {"sliding_window",
                                                  XN_CUDA_ANY_CHIP,
                                                  sizeof(state),
                                                  fits,
                                                  terms,
                                                  xn_cuda_costs_sliding_window,
                                                  NULL,
                                                  wants,
                                                  run,
                                                  load};
