/* filter_stationary_path.cu: filter_stationary.cu in the table of paths, after the kernel that
 * packs its input. */
#include "bits_path.h"
#include "costs.h"
#include "filter_stationary.h"
#include "wgmma_terms.h"

static bool fits(const xn_cuda_job *job, const xn_cuda_chip *chip, void *out) {
    xn_cuda_stationary_cut *s = (xn_cuda_stationary_cut *)out;
    s->images = job->images;
    return (xn_cuda_has_reals(job) || job->target == XN_CUDA_TO_WORDS) &&
           xn_cuda_stationary_plan(&job->conv, job->images, chip->multiprocessors,
                                   job->target == XN_CUDA_TO_WORDS, &s->shape);
}

static void terms(const xn_cuda_job *job, const xn_cuda_chip *chip, const void *state, double *t) {
    xn_wgmma_terms(job, chip, ((const xn_cuda_stationary_cut *)state)->shape.cycles, t);
}

static void lay_out(const xn_cuda_job *job, const xn_cuda_chip *, xn_cuda_scratch *scratch) {
    (void)xn_cuda_bits_take(job, scratch);
}

static uint64_t wants(const xn_cuda_job *, const xn_prepared *) {
    return XN_CUDA_WANT(XN_CUDA_PART_STATIONARY) | XN_CUDA_WANT(XN_CUDA_PART_PREFIX_BY_TAP);
}

static cudaError_t run(xn_cuda_run *r) {
    const xn_conv *c = &r->job->conv;
    xn_cuda_bits b = xn_cuda_bits_take(r->job, &r->scratch);
    cudaError_t e = xn_cuda_bits_make(r, &b, true);
    if (e != cudaSuccess)
        return e;
    xn_cuda_stationary_io io = {};
    io.bits = b.bits;
    io.filters = xn_cuda_part_of(r->weights, XN_CUDA_PART_STATIONARY);
    io.filter_rows = xn_cuda_wgmma_rows(c->out_channels);
    io.prefix = (const int32_t *)xn_cuda_part_of(r->weights, XN_CUDA_PART_PREFIX_BY_TAP);
    io.mean = b.mean;
    io.threshold = r->threshold;
    io.flip = r->flip;
    io.packed = r->job->target == XN_CUDA_TO_WORDS ? r->out.bits : NULL;
    io.overlapped = true;
    return xn_cuda_stationary_launch(c, r->job->images, r->chip->multiprocessors,
                                     (xn_cuda_stationary_cut *)r->state, &io, &r->out, r->stream);
}

extern const xn_cuda_path xn_cuda_filter_stationary_path;
const xn_cuda_path xn_cuda_filter_stationary_path = {"filter_stationary",
                                                     XN_CUDA_HAS_WGMMA,
                                                     XN_CUDA_WRITES_ALL,
                                                     sizeof(xn_cuda_stationary_cut),
                                                     fits,
                                                     terms,
                                                     xn_cuda_costs_filter_stationary,
                                                     lay_out,
                                                     wants,
                                                     run,
                                                     xn_cuda_stationary_load};
