/* implicit_gemm_path.cu: implicit_gemm.cu in the table of paths, after the kernels that make its
 * bits and sums. */
#include "bits_path.h"
#include "costs.h"
#include "layout.h"

static bool fits(const xn_cuda_job *job, const xn_cuda_chip *, void *) {
    return job->conv.mode == XN_MODE_XNOR && xn_cuda_has_reals(job) &&
           xn_cuda_implicit_gemm_fits(&job->conv, job->images);
}

/* Products are of whole tiles: 32 filters and as many outputs, 256 bits. */
static void terms(const xn_cuda_job *job, const xn_cuda_chip *chip, const void *, double *t) {
    const xn_conv *c = &job->conv;
    const xn_cuda_counts n = xn_cuda_counts_of(job, chip);
    const double steps = (double)xn_cuda_row_words(c->group_channels, c->kernel_h, c->kernel_w) / 8;
    const double filters = (c->group_out_channels + 31) / 32 * 32;
    t[0] = 1;
    t[1] = steps;
    t[2] = job->source == XN_CUDA_FROM_REALS ? n.inputs : 0;
    t[3] = n.windows * n.taps;
    t[4] = n.windows * filters;
    t[5] = n.windows * filters * steps;
    t[6] = n.outputs;
    t[7] = n.uneven;
}

static void lay_out(const xn_cuda_job *job, const xn_cuda_chip *, xn_cuda_scratch *scratch) {
    xn_cuda_bits_lay_out(job, true, scratch);
}

static cudaError_t run(xn_cuda_run *r) {
    xn_cuda_bit_args bits;
    const cudaError_t e = xn_cuda_bits_make(r, true, &bits);
    if (e != cudaSuccess)
        return e;
    return xn_cuda_implicit_gemm_launch(&r->job->conv, r->job->images, r->chip->multiprocessors,
                                        &bits, &r->out, r->stream);
}

const xn_cuda_path xn_cuda_implicit_gemm_path = {"implicit_gemm",
                                                 XN_CUDA_HAS_MATRIX,
                                                 0,
                                                 fits,
                                                 terms,
                                                 xn_cuda_costs_implicit_gemm,
                                                 lay_out,
                                                 xn_cuda_bits_wants,
                                                 run,
                                                 xn_cuda_implicit_gemm_load};
