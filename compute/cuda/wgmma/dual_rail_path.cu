/* dual_rail_path.cu: dual_rail.cu in the table of paths, after the kernel that makes dual rail of
 * its input where it is not. */
#include "costs.h"
#include "dual_rail.h"
#include "packing.h"
#include "paths.h"

static uint32_t *take(const xn_cuda_job *job, xn_cuda_scratch *scratch) {
    const xn_conv *c = &job->conv;
    const int64_t pixels = (int64_t)c->groups * c->height * c->width;
    if (job->source == XN_CUDA_FROM_DUAL_RAIL)
        return NULL;
    return (uint32_t *)xn_cuda_take(scratch, pixels * xn_cuda_dual_rail_of(c->group_channels).units,
                                    16);
}

static bool fits(const xn_cuda_job *job, const xn_cuda_chip *chip, void *out) {
    const xn_conv *c = &job->conv;
    xn_cuda_dual_rail_cut *s = (xn_cuda_dual_rail_cut *)out;
    s->images = job->images;
    /* a job's 64 filters are one store of dual rail */
    const bool stores = job->target == XN_CUDA_TO_DUAL_RAIL
                            ? c->groups == 1 || c->group_out_channels % 64 == 0
                            : job->target == XN_CUDA_TO_WORDS;
    return stores && xn_cuda_dual_rail_plan(c, job->images, chip->multiprocessors, &s->shape);
}

/* As of the other wgmma kernels. */
static void terms(const xn_cuda_job *job, const xn_cuda_chip *chip, const void *state, double *t) {
    const xn_cuda_counts n = xn_cuda_counts_of(job, chip);
    t[0] = 1;
    t[1] = ((const xn_cuda_dual_rail_cut *)state)->shape.cycles;
    t[2] = job->source != XN_CUDA_FROM_DUAL_RAIL;
    t[3] = job->source == XN_CUDA_FROM_REALS
               ? n.inputs * (double)xn_datatype_bytes((xn_datatype)job->conv.input_datatype)
               : 0;
    t[4] = job->source == XN_CUDA_FROM_WORDS ? n.inputs : 0;
    t[5] = n.outputs;
}

static void lay_out(const xn_cuda_job *job, const xn_cuda_chip *, xn_cuda_scratch *scratch) {
    (void)take(job, scratch);
}

static uint64_t wants(const xn_cuda_job *, const xn_prepared *) {
    return XN_CUDA_WANT(XN_CUDA_PART_DUAL_RAIL);
}

static cudaError_t run(xn_cuda_run *r) {
    const xn_conv *c = &r->job->conv;
    uint32_t *made = take(r->job, &r->scratch);
    cudaError_t e = cudaSuccess;
    if (r->job->source == XN_CUDA_FROM_REALS)
        e = xn_cuda_pack_launch(c, r->job->images, r->chip->multiprocessors, r->input, made, NULL,
                                NULL, XN_CUDA_AS_DUAL_RAIL, true, r->stream);
    else if (made)
        e = xn_cuda_to_rails_launch(c, r->job->images, (const uint32_t *)r->input, made, r->stream);
    if (e != cudaSuccess)
        return e;
    xn_cuda_dual_rail_io io = {};
    io.bits = made ? made : (const uint32_t *)r->input;
    io.filters = xn_cuda_part_of(r->weights, XN_CUDA_PART_DUAL_RAIL);
    io.filter_rows = xn_cuda_wgmma_rows(c->out_channels);
    io.threshold = r->threshold;
    io.flip = r->flip;
    io.packed = r->out.bits;
    io.packed_rails = r->job->target == XN_CUDA_TO_DUAL_RAIL;
    io.overlapped = true;
    return xn_cuda_dual_rail_launch(c, r->job->images, r->chip->multiprocessors,
                                    (xn_cuda_dual_rail_cut *)r->state, &io, r->stream);
}

extern const xn_cuda_path xn_cuda_dual_rail_path;
const xn_cuda_path xn_cuda_dual_rail_path = {"dual_rail",
                                             XN_CUDA_HAS_WGMMA,
                                             XN_CUDA_WRITES_BITS,
                                             sizeof(xn_cuda_dual_rail_cut),
                                             fits,
                                             terms,
                                             xn_cuda_costs_dual_rail,
                                             lay_out,
                                             wants,
                                             run,
                                             xn_cuda_dual_rail_load};
