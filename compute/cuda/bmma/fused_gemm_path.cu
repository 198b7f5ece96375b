/* fused_gemm_path.cu: fused_gemm.cu in the table of paths. */
#include "costs.h"
#include "fused_gemm.h"
#include "paths.h"
#include "xn_arith.h"

static bool fits(const xn_cuda_job *job, const xn_cuda_chip *chip, void *out) {
    xn_cuda_fused_plan *s = (xn_cuda_fused_plan *)out;
    s->images = job->images;
    return xn_cuda_is_plain(job) && xn_cuda_fused_choose(&job->conv, job->images, chip, &s->shape);
}

static void terms(const xn_cuda_job *job, const xn_cuda_chip *chip, const void *state, double *t) {
    const xn_cuda_counts n = xn_cuda_counts_of(job, chip);
    t[0] = 1;
    t[1] = xn_cuda_fused_us(&((const xn_cuda_fused_plan *)state)->shape, chip->multiprocessors);
    t[2] = n.inputs;
    t[3] = n.outputs;
    t[4] = n.uneven;
    t[5] = n.outputs * n.taps * xn_packed_words(job->conv.group_channels);
    t[6] = (double)((const xn_cuda_fused_plan *)state)->shape.blocks / chip->multiprocessors;
}

static uint64_t wants(const xn_cuda_job *, const xn_prepared *) {
    return XN_CUDA_WANT(XN_CUDA_PART_ROWS) | XN_CUDA_WANT(XN_CUDA_PART_PREFIX);
}

static cudaError_t run(xn_cuda_run *r) {
    xn_cuda_fused_io io = {};
    io.input = r->input;
    io.rows = (const uint32_t *)xn_cuda_part_of(r->weights, XN_CUDA_PART_ROWS);
    io.prefix = (const int32_t *)xn_cuda_part_of(r->weights, XN_CUDA_PART_PREFIX);
    return xn_cuda_fused_launch(&r->job->conv, r->job->images, r->chip,
                                (xn_cuda_fused_plan *)r->state, &io, &r->out, r->stream);
}

static cudaError_t load(bool *) {
    return xn_cuda_fused_load();
}

extern const xn_cuda_path xn_cuda_fused_gemm_path;
const xn_cuda_path xn_cuda_fused_gemm_path = {"fused_gemm",
                                              XN_CUDA_HAS_MATRIX,
                                              XN_CUDA_WRITES_REALS,
                                              sizeof(xn_cuda_fused_plan),
                                              fits,
                                              terms,
                                              xn_cuda_costs_fused_gemm,
                                              NULL,
                                              wants,
                                              run,
                                              load};
