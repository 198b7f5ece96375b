/* warp_specialised_path.cu: warp_specialised.cu in the table of paths, after the kernel that lays
 * its input out with borders (layout.h: lines). */
#include "costs.h"
#include "packing.h"
#include "paths.h"
#include "warp_specialised.h"

struct state {
    int64_t images;
    xn_cuda_specialised_shape shape;
};

struct padded {
    uint32_t *bits;
    int32_t *counts;
    float *means; /* NULL without K */
};

static padded take(const xn_cuda_job *job, xn_cuda_scratch *scratch) {
    const xn_conv *c = &job->conv;
    const xn_cuda_padded l = xn_cuda_padded_of(c);
    const int64_t positions = (int64_t)c->groups * l.plane;
    padded p = {};
    p.bits = (uint32_t *)xn_cuda_take(scratch, positions * l.units, 16);
    p.counts = (int32_t *)xn_cuda_take(scratch, positions, sizeof(int32_t));
    if (c->epilogue.k)
        p.means = (float *)xn_cuda_take(scratch, positions, sizeof(float));
    return p;
}

static bool fits(const xn_cuda_job *job, const xn_cuda_chip *chip, void *out) {
    state *s = (state *)out;
    s->images = job->images;
    return xn_cuda_has_reals(job) &&
           xn_cuda_specialised_plan(&job->conv, job->images, chip->multiprocessors, &s->shape);
}

/* The kernel's cycles by its own model, its products, and what the kernel before it reads. */
static void terms(const xn_cuda_job *job, const xn_cuda_chip *chip, const void *cut, double *t) {
    const xn_conv *c = &job->conv;
    const xn_cuda_counts n = xn_cuda_counts_of(job, chip);
    const bool reals = job->source == XN_CUDA_FROM_REALS;
    const bool values = c->epilogue.datatype != XN_BITS;
    t[0] = reals ? 1 : 0;
    t[1] = reals ? 0 : 1;
    t[2] = ((const state *)cut)->shape.cycles;
    t[3] = reals ? n.inputs * (double)xn_datatype_bytes((xn_datatype)c->input_datatype) : 0;
    t[4] = reals ? 0 : n.inputs;
    t[5] = values ? n.outputs * (double)xn_datatype_bytes((xn_datatype)c->epilogue.datatype) : 0;
    t[6] = values ? n.uneven : 0;
    t[7] = n.windows * n.taps * ((c->group_out_channels - 1) / 64 + 1);
    t[8] = job->target == XN_CUDA_TO_ALL ? n.outputs : 0; /* with what comes after the value */
}

static void lay_out(const xn_cuda_job *job, const xn_cuda_chip *, xn_cuda_scratch *scratch) {
    (void)take(job, scratch);
}

/* Filters in the order of the phases that taps are in. */
static xn_cuda_part filters_of(const xn_conv *c) {
    const xn_cuda_padded l = xn_cuda_padded_of(c);
    return (xn_cuda_part)(XN_CUDA_PART_SPECIALISED + (l.phases_h - 1) * 2 + l.phases_w - 1);
}

static uint64_t wants(const xn_cuda_job *job, const xn_prepared *) {
    return XN_CUDA_WANT(filters_of(&job->conv)) | XN_CUDA_WANT(XN_CUDA_PART_PREFIX);
}

static cudaError_t run(xn_cuda_run *r) {
    const xn_conv *c = &r->job->conv;
    const padded p = take(r->job, &r->scratch);
    cudaError_t e =
        r->job->source == XN_CUDA_FROM_REALS
            ? xn_cuda_pack_launch(c, r->job->images, r->chip->multiprocessors, r->input, p.bits,
                                  p.counts, p.means, XN_CUDA_AS_PADDED, true, r->stream)
            : xn_cuda_spread_launch(c, r->job->images, (const uint32_t *)r->input, p.bits, p.counts,
                                    r->stream);
    if (e != cudaSuccess)
        return e;
    xn_cuda_specialised_io io = {};
    io.bits = p.bits;
    io.counts = p.counts;
    io.means = p.means;
    io.filters = xn_cuda_part_of(r->weights, filters_of(c));
    io.filter_rows = xn_cuda_wgmma_rows(c->out_channels);
    io.prefix = (const int32_t *)xn_cuda_part_of(r->weights, XN_CUDA_PART_PREFIX);
    io.overlapped = true;
    return xn_cuda_specialised_launch(c, r->job->images, &((const state *)r->state)->shape, &io,
                                      &r->out, r->stream);
}

const xn_cuda_path xn_cuda_warp_specialised_path = {"warp_specialised",
                                                    XN_CUDA_HAS_WGMMA,
                                                    sizeof(state),
                                                    fits,
                                                    terms,
                                                    xn_cuda_costs_warp_specialised,
                                                    lay_out,
                                                    wants,
                                                    run,
                                                    xn_cuda_specialised_load};
