/* patch_gemm_path.cu: patch_gemm.cu in the table of paths. */
#include "costs.h"
#include "patch_gemm.h"
#include "paths.h"

struct state {
    int64_t images;
    xn_cuda_patch_cut cut;
};

static bool fits(const xn_cuda_job *job, const xn_cuda_chip *chip, void *out) {
    state *s = (state *)out;
    s->images = job->images;
    return xn_cuda_is_plain(job) &&
           xn_cuda_patch_choose(&job->conv, job->images, chip->multiprocessors, &s->cut);
}

static void terms(const xn_cuda_job *job, const xn_cuda_chip *chip, const void *state_, double *t) {
    xn_cuda_patch_terms(&job->conv, job->images, chip->multiprocessors,
                        &((const state *)state_)->cut, t);
    t[8] = xn_cuda_counts_of(job, chip).uneven;
}

static uint64_t wants(const xn_cuda_job *, const xn_prepared *) {
    return XN_CUDA_WANT(XN_CUDA_PART_ROWS) | XN_CUDA_WANT(XN_CUDA_PART_FIELDS);
}

static cudaError_t run(xn_cuda_run *r) {
    xn_cuda_few_io io = {};
    io.input = r->input;
    io.rows = (const uint32_t *)xn_cuda_part_of(r->weights, XN_CUDA_PART_ROWS);
    io.fields = (const uint32_t *)xn_cuda_part_of(r->weights, XN_CUDA_PART_FIELDS);
    return xn_cuda_patch_launch(&r->job->conv, r->job->images, &((const state *)r->state)->cut, &io,
                                &r->out, r->chip->overlaps, r->stream);
}

static cudaError_t load(bool *) {
    return xn_cuda_patch_load();
}

const xn_cuda_path xn_cuda_patch_gemm_path = {"patch_gemm",  XN_CUDA_HAS_MATRIX,
                                              sizeof(state), fits,
                                              terms,         xn_cuda_costs_patch_gemm,
                                              NULL,          wants,
                                              run,           load};
