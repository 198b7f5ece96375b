/* direct_path.cu: direct.cu in the table of paths, after the kernels that make its bits and sums.
 * It takes any geometry of mode xnor on any chip. */
#include "bits_path.h"
#include "costs.h"
#include "direct.h"
#include "xn_arith.h"

static bool fits(const xn_cuda_job *job, const xn_cuda_chip *, void *) {
    return job->conv.mode == XN_MODE_XNOR && xn_cuda_has_reals(job);
}

static void terms(const xn_cuda_job *job, const xn_cuda_chip *chip, const void *, double *t) {
    const xn_conv *c = &job->conv;
    const xn_cuda_counts n = xn_cuda_counts_of(job, chip);
    const double words = n.taps * xn_packed_words(c->group_channels);
    t[0] = 1;
    t[1] = words;
    t[2] = job->source == XN_CUDA_FROM_REALS ? n.inputs : 0;
    t[3] = n.windows * n.taps;
    t[4] = n.outputs;
    t[5] = n.outputs * n.taps;
    t[6] = n.outputs * words;
    t[7] = n.uneven;
}

static void lay_out(const xn_cuda_job *job, const xn_cuda_chip *, xn_cuda_scratch *scratch) {
    (void)xn_cuda_bits_take_sums(job, false, scratch);
}

static uint64_t wants(const xn_cuda_job *, const xn_prepared *) {
    return XN_CUDA_WANT(XN_CUDA_PART_ROWS) | XN_CUDA_WANT(XN_CUDA_PART_PREFIX);
}

static cudaError_t run(xn_cuda_run *r) {
    xn_cuda_bits b = xn_cuda_bits_take_sums(r->job, false, &r->scratch);
    cudaError_t e = xn_cuda_bits_make(r, &b, false);
    if (e != cudaSuccess)
        return e;
    const xn_cuda_bit_args args = {
        b.bits,
        (const uint32_t *)xn_cuda_part_of(r->weights, XN_CUDA_PART_ROWS),
        (const int32_t *)xn_cuda_part_of(r->weights, XN_CUDA_PART_PREFIX),
        NULL,
        b.box,
        b.mean};
    return xn_cuda_direct_launch(&r->job->conv, r->job->images, &args, &r->out, r->stream);
}

static cudaError_t load(bool *) {
    return xn_cuda_direct_load();
}

extern const xn_cuda_path xn_cuda_direct_path;
const xn_cuda_path xn_cuda_direct_path = {"direct",
                                          XN_CUDA_ANY_CHIP,
                                          XN_CUDA_WRITES_ALL,
                                          0,
                                          fits,
                                          terms,
                                          xn_cuda_costs_direct,
                                          lay_out,
                                          wants,
                                          run,
                                          load};
