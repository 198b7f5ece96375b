/* real_path.cu: the kernels of this folder in the table of paths: modes bwn and float. */
#include "costs.h"
#include "paths.h"
#include "real.h"
#include "real_mma.h"

static bool reads_reals(const xn_cuda_job *job) {
    return job->conv.mode != XN_MODE_XNOR && job->source == XN_CUDA_FROM_REALS &&
           xn_cuda_has_reals(job);
}

static bool depthwise_fits(const xn_cuda_job *job, const xn_cuda_chip *, void *) {
    return reads_reals(job) && xn_cuda_real_depthwise_fits(&job->conv, job->images);
}

/* For the other paths: what that one can run is its alone, so that no number of images makes its
 * sums others. */
static bool is_real(const xn_cuda_job *job, const xn_cuda_chip *chip) {
    return reads_reals(job) && !depthwise_fits(job, chip, NULL);
}

/* ---- runs ---- */

static cudaError_t run_with(xn_cuda_run *r, xn_cuda_part weights, xn_cuda_real_launcher *launch) {
    const xn_conv *c = &r->job->conv;
    xn_cuda_real_io io = {};
    io.input = r->input;
    io.weights = xn_cuda_part_of(r->weights, weights);
    if (weights == XN_CUDA_PART_FP16_REALS)
        io.exponent = (const int32_t *)xn_cuda_part_of(r->weights, XN_CUDA_PART_EXPONENTS);
    if (launch == xn_cuda_real_mma_launch)
        io.pixels = xn_cuda_take(&r->scratch, xn_cuda_mma_pixel_bytes(c), 1);
    io.overlapped = r->chip->overlaps;
    return launch(c, r->job->images, r->chip->multiprocessors, &io, &r->out, r->stream);
}

static uint64_t real_wants(const xn_cuda_job *, const xn_prepared *) {
    return XN_CUDA_WANT(XN_CUDA_PART_REALS);
}

static cudaError_t gemm_run(xn_cuda_run *r) {
    return run_with(r, XN_CUDA_PART_REALS, xn_cuda_real_gemm_launch);
}

static xn_cuda_part filters_of(const xn_conv *c) {
    const bool fp16 = c->precision == XN_PRECISION_FP16;
    if (c->mode == XN_MODE_BWN)
        return fp16 ? XN_CUDA_PART_FP16_SIGNS : XN_CUDA_PART_TF32_SIGNS;
    return fp16 ? XN_CUDA_PART_FP16_REALS : XN_CUDA_PART_TF32_REALS;
}

/* Border pixels are zeros that are multiplied, and 0 * NaN would not be nothing: weights that are
 * not finite go to real_gemm.cu, where they are not just signs. */
static uint64_t mma_wants(const xn_cuda_job *job, const xn_prepared *weights) {
    if (job->conv.mode == XN_MODE_FLOAT && !xn_cuda_is_finite(weights))
        return real_wants(job, weights);
    const xn_cuda_part filters = filters_of(&job->conv);
    return XN_CUDA_WANT(filters) |
           (filters == XN_CUDA_PART_FP16_REALS ? XN_CUDA_WANT(XN_CUDA_PART_EXPONENTS) : 0);
}

static cudaError_t mma_run(xn_cuda_run *r) {
    const xn_cuda_part filters = filters_of(&r->job->conv);
    return mma_wants(r->job, r->weights) & XN_CUDA_WANT(filters)
               ? run_with(r, filters, xn_cuda_real_mma_launch)
               : gemm_run(r);
}

/* ---- real_gemm.cu ---- */

static void gemm_terms(const xn_cuda_job *job, const xn_cuda_chip *chip, const void *, double *t) {
    const xn_conv *c = &job->conv;
    const xn_cuda_counts n = xn_cuda_counts_of(job, chip);
    const double sum = n.taps * c->group_channels;
    t[0] = 1;
    t[1] = sum;
    t[2] = n.windows * ((c->group_out_channels + 63) / 64 * 64) * sum;
    t[3] = n.outputs;
}

/* The sums of shortcuts are real_mma.cu's, as strided.cu has them. */
static bool gemm_fits(const xn_cuda_job *job, const xn_cuda_chip *chip, void *) {
    return is_real(job, chip) && xn_cuda_real_gemm_fits(&job->conv, job->images) &&
           !(chip->matrix && xn_cuda_real_pointwise_fits(&job->conv, job->images));
}

const xn_cuda_path xn_cuda_real_gemm_path = {"real_gemm", XN_CUDA_ANY_CHIP,        0,    gemm_fits,
                                             gemm_terms,  xn_cuda_costs_real_gemm, NULL, real_wants,
                                             gemm_run,    xn_cuda_real_gemm_load};

/* ---- real_mma.cu ---- */

/* Products are of whole tiles of 64 filters; of the input a copy with its border is made first. */
static void mma_terms(const xn_cuda_job *job, const xn_cuda_chip *chip, const void *, double *t) {
    const xn_conv *c = &job->conv;
    const xn_cuda_counts n = xn_cuda_counts_of(job, chip);
    const double bytes = (double)xn_cuda_mma_row_bytes(c->precision, c->group_channels,
                                                       (int64_t)c->kernel_h * c->kernel_w);
    const double filters = (c->group_out_channels + 63) / 64 * 64;
    t[0] = 1;
    t[1] = bytes;
    t[2] = (double)job->images * (double)xn_cuda_mma_pixel_bytes(c) / chip->multiprocessors;
    t[3] = n.windows * filters * bytes;
    t[4] = n.outputs;
}

static bool mma_fits(const xn_cuda_job *job, const xn_cuda_chip *chip, void *) {
    return is_real(job, chip) && xn_cuda_real_mma_fits(&job->conv, job->images);
}

static void mma_lay_out(const xn_cuda_job *job, const xn_cuda_chip *, xn_cuda_scratch *scratch) {
    (void)xn_cuda_take(scratch, xn_cuda_mma_pixel_bytes(&job->conv), 1);
}

const xn_cuda_path xn_cuda_real_mma_path = {
    "real_mma", XN_CUDA_HAS_MATRIX,     0,           mma_fits,
    mma_terms,  xn_cuda_costs_real_mma, mma_lay_out, mma_wants,
    mma_run,    xn_cuda_real_mma_load};

/* ---- real_depthwise.cu ---- */

static void depthwise_terms(const xn_cuda_job *job, const xn_cuda_chip *chip, const void *,
                            double *t) {
    const xn_cuda_counts n = xn_cuda_counts_of(job, chip);
    t[0] = 1;
    t[1] = n.inputs + n.outputs;
}

static cudaError_t depthwise_run(xn_cuda_run *r) {
    return xn_cuda_is_finite(r->weights)
               ? run_with(r, XN_CUDA_PART_REALS, xn_cuda_real_depthwise_launch)
               : gemm_run(r);
}

const xn_cuda_path xn_cuda_real_depthwise_path = {"real_depthwise",
                                                  XN_CUDA_ANY_CHIP,
                                                  0,
                                                  depthwise_fits,
                                                  depthwise_terms,
                                                  xn_cuda_costs_real_depthwise,
                                                  NULL,
                                                  real_wants,
                                                  depthwise_run,
                                                  xn_cuda_real_depthwise_load};
