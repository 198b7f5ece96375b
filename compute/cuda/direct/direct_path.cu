/* direct_path.cu: direct.cu in the table of paths, after the kernels that make its bits and sums.
 * It takes any geometry of mode xnor on any chip. */
#include "bits_path.h"
#include "costs.h"
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
    xn_cuda_bits_lay_out(job, false, scratch);
}

static cudaError_t run(xn_cuda_run *r) {
    xn_cuda_bit_args bits;
    const cudaError_t e = xn_cuda_bits_make(r, false, &bits);
    if (e != cudaSuccess)
        return e;
    return xn_cuda_direct_launch(&r->job->conv, r->job->images, &bits, &r->out, r->stream);
}

const xn_cuda_path xn_cuda_direct_path = {
    "direct", XN_CUDA_ANY_CHIP,   0, fits, terms, xn_cuda_costs_direct, lay_out, xn_cuda_bits_wants,
    run,      xn_cuda_direct_load};
