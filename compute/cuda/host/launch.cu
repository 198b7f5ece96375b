/* launch.cu: the kernels of a plan, one after the other on a stream, from device memory to device
 * memory. Allocates nothing, copies nothing, waits for nothing. */
#include "xn_cuda.h"

/* What the specification multiplies by: nothing, the given scale, or alpha (mode float has none).
 */
static xn_epilogue_args epilogue_of(const xn_plan *plan, const xn_prepared *prepared,
                                    void *output) {
    const xn_conv *c = &plan->conv;
    xn_epilogue_args e = {};
    e.factor = c->epilogue.factor == XN_FACTOR_SCALE   ? prepared->scale
               : c->epilogue.factor == XN_FACTOR_ALPHA ? prepared->alpha
                                                       : NULL;
    e.bias = c->epilogue.bias ? prepared->bias : NULL;
    e.output = output;
    return e;
}

/* Where the parts of a run over packed bits are. */
struct packed_parts {
    const uint32_t *bits;
    int32_t *popc, *pixel_part;
    float *mean, *k;
};

static packed_parts parts_of(const xn_plan *plan, const xn_cuda_run_io *io) {
    char *base = plan->stream->workspace;
    const bool gemm = plan->path == XN_CUDA_IMPLICIT_GEMM,
               lines = plan->path == XN_CUDA_WARP_SPECIALISED;
    const bool laid_out = lines || (plan->path == XN_CUDA_DUAL_RAIL && !plan->rails);
    packed_parts p = {};
    p.bits = plan->packed_input && !laid_out ? io->bits : (const uint32_t *)(base + plan->bits);
    p.popc = gemm || lines ? (int32_t *)(base + plan->popc) : NULL;
    p.pixel_part = gemm ? (int32_t *)(base + plan->pixel_part) : NULL;
    p.mean = plan->want_k ? (float *)(base + plan->mean) : NULL;
    p.k = plan->want_k ? (float *)(base + plan->k) : NULL;
    return p;
}

/* Kernels of bits that start before the one ahead has ended. */
static bool has_wgmma(xn_cuda_path path) {
    return path == XN_CUDA_DUAL_RAIL || path == XN_CUDA_WARP_SPECIALISED ||
           path == XN_CUDA_FILTER_STATIONARY;
}

/* How a path reads bits. */
static xn_cuda_bits_layout layout_of(xn_cuda_path path) {
    return path == XN_CUDA_WARP_SPECIALISED ? XN_CUDA_AS_PADDED
           : path == XN_CUDA_DUAL_RAIL      ? XN_CUDA_AS_DUAL_RAIL
                                            : XN_CUDA_PLAIN;
}

static cudaError_t launch_rails(const xn_plan *plan, const xn_prepared *prepared, int64_t images,
                                const xn_cuda_run_io *io, const packed_parts *p,
                                cudaStream_t stream) {
    xn_cuda_dual_rail_io rails = {};
    rails.bits = p->bits;
    rails.filters = prepared->rails;
    rails.filter_rows = prepared->wide_rows;
    rails.threshold = io->threshold;
    rails.flip = io->flip;
    rails.packed = io->packed;
    rails.packed_rails = plan->rails;
    rails.overlapped = true;
    return xn_cuda_dual_rail_launch(&plan->conv, images, plan->stream->device->multiprocessors,
                                    plan->rails_cut, &rails, stream);
}

static cudaError_t launch_lines(const xn_plan *plan, const xn_prepared *prepared, int64_t images,
                                const packed_parts *p, const xn_cuda_epilogue_args *epilogue,
                                cudaStream_t stream) {
    xn_cuda_specialised_io lines = {};
    lines.bits = p->bits;
    lines.counts = p->popc;
    lines.means = p->mean;
    lines.filters = prepared->lines;
    lines.filter_rows = prepared->wide_rows;
    lines.prefix = prepared->wide_prefix;
    lines.overlapped = true;
    return xn_cuda_specialised_launch(&plan->conv, images, plan->stream->device->multiprocessors,
                                      plan->lines, &lines, epilogue, stream);
}

/* Real input to bits, counts and means; of packed input only the counts are missing. */
static cudaError_t launch_pack(const xn_plan *plan, int64_t images, const xn_cuda_run_io *io,
                               const packed_parts *p, cudaStream_t stream) {
    const xn_conv *c = &plan->conv;
    if (!plan->packed_input)
        return xn_cuda_pack_launch(c, images, plan->stream->device->multiprocessors, io->input,
                                   const_cast<uint32_t *>(p->bits), p->popc, p->mean,
                                   layout_of(plan->path), has_wgmma(plan->path), stream);
    if (plan->path == XN_CUDA_WARP_SPECIALISED)
        return xn_cuda_spread_launch(c, images, io->bits, const_cast<uint32_t *>(p->bits), p->popc,
                                     stream);
    if (plan->path == XN_CUDA_DUAL_RAIL && !plan->rails)
        return xn_cuda_to_rails_launch(c, images, io->bits, const_cast<uint32_t *>(p->bits),
                                       stream);
    if (!p->popc)
        return cudaSuccess;
    return xn_cuda_count_launch(images * c->groups * c->height * c->width,
                                xn_packed_words(c->group_channels), p->bits, p->popc, stream);
}

static cudaError_t launch_wide(const xn_plan *plan, const xn_prepared *prepared, int64_t images,
                               const xn_cuda_run_io *io, const packed_parts *p,
                               const xn_cuda_epilogue_args *epilogue, cudaStream_t stream) {
    xn_cuda_stationary_io wide = {};
    wide.bits = p->bits;
    wide.filters = prepared->wide;
    wide.filter_rows = prepared->wide_rows;
    wide.prefix = prepared->wide_prefix;
    wide.mean = p->mean;
    wide.threshold = io->threshold;
    wide.flip = io->flip;
    wide.packed = plan->packed_output ? io->packed : NULL;
    wide.overlapped = true;
    return xn_cuda_stationary_launch(&plan->conv, images, plan->stream->device->multiprocessors,
                                     plan->wide, &wide, epilogue, stream);
}

/* mma.sync and population counts. Packed output goes through dots in memory. */
static cudaError_t launch_narrow(const xn_plan *plan, const xn_prepared *prepared, int64_t images,
                                 const xn_cuda_run_io *io, const packed_parts *p,
                                 const xn_cuda_epilogue_args *epilogue, cudaStream_t stream) {
    xn_conv conv = plan->conv;
    xn_cuda_epilogue_args out = *epilogue;
    if (plan->packed_output) {
        conv.epilogue.datatype = XN_INT32;
        out.output = plan->stream->workspace + plan->dots;
    }
    cudaError_t e = cudaSuccess;
    if (p->popc || p->mean)
        e = xn_cuda_box_launch(&conv, images, p->popc, p->mean, p->pixel_part, p->k, stream);
    xn_cuda_bit_args args = {p->bits,       prepared->rows, prepared->prefix,
                             p->pixel_part, p->k,           p->mean};
    if (e == cudaSuccess)
        e = plan->path == XN_CUDA_IMPLICIT_GEMM
                ? xn_cuda_implicit_gemm_launch(&conv, images, plan->stream->device->multiprocessors,
                                               &args, &out, stream)
                : xn_cuda_direct_launch(&conv, images, &args, &out, stream);
    if (e == cudaSuccess && plan->packed_output)
        e = xn_cuda_threshold_launch(&conv, images, (const int32_t *)out.output, io->threshold,
                                     io->flip, io->packed, stream);
    return e;
}

/* Border pixels are zeros that are multiplied, unlike in real.cu, and 0 * NaN would not be nothing:
 * weights that are not finite go that way, where they are not just signs. */
bool xn_cuda_wants_matrix_units(const xn_plan *plan, const xn_prepared *prepared) {
    return (plan->path == XN_CUDA_REAL_WGMMA || plan->path == XN_CUDA_REAL_MMA) &&
           (plan->conv.mode == XN_MODE_BWN || prepared->finite);
}

/* The filters for the matrix units, NULL where the run is in fp32. */
static const void *matrix_filters(const xn_plan *plan, const xn_prepared *prepared) {
    return xn_cuda_wants_matrix_units(plan, prepared)
               ? xn_cuda_mma_filters_of(prepared, &plan->conv)
               : NULL;
}

xn_precision xn_cuda_precision(const xn_plan *plan, const xn_prepared *prepared) {
    return matrix_filters(plan, prepared) ? (xn_precision)plan->conv.precision : XN_PRECISION_FP32;
}

static cudaError_t launch_real(const xn_plan *plan, const xn_prepared *prepared, int64_t images,
                               const xn_cuda_run_io *io, const xn_cuda_epilogue_args *epilogue,
                               cudaStream_t stream) {
    const xn_conv *c = &plan->conv;
    const void *filters = matrix_filters(plan, prepared);
    if (!filters)
        return xn_cuda_real_launch(c, images, io->input, prepared->real, epilogue, stream);
    const bool fp16 = c->precision == XN_PRECISION_FP16, real = c->mode == XN_MODE_FLOAT;
    xn_cuda_mma_io mma = {};
    mma.input = io->input;
    mma.pixels = plan->stream->workspace + plan->pixels;
    mma.partial = (float *)(plan->stream->workspace + plan->partial);
    mma.filters = filters;
    mma.exponent = fp16 && real ? prepared->mma_exponent : NULL;
    mma.wgmma = plan->path == XN_CUDA_REAL_WGMMA;
    mma.overlapped = plan->stream->device->major >= 9;
    return xn_cuda_real_mma_launch(c, images, plan->stream->device->multiprocessors, &mma, epilogue,
                                   stream);
}

cudaError_t xn_cuda_enqueue(const xn_plan *plan, const xn_prepared *prepared, int64_t images,
                            const xn_cuda_run_io *io, cudaStream_t stream) {
    const xn_cuda_epilogue_args epilogue = epilogue_of(plan, prepared, io->output);
    if (plan->few) {
        const xn_cuda_few_chip chip = xn_cuda_few_chip_of(plan->stream->device);
        const xn_cuda_few_io few = {io->input, prepared->patches, prepared->rows, prepared->fields};
        return xn_cuda_few_launch(&plan->conv, images, &chip, plan->few, &few, &epilogue, stream);
    }
    if (plan->fused) {
        const xn_cuda_few_chip chip = xn_cuda_few_chip_of(plan->stream->device);
        const xn_cuda_fused_io fused = {io->input, prepared->rows, prepared->prefix};
        return xn_cuda_fused_launch(&plan->conv, images, &chip, plan->fused, &fused, &epilogue,
                                    stream);
    }
    if (plan->conv.mode != XN_MODE_XNOR)
        return launch_real(plan, prepared, images, io, &epilogue, stream);
    const packed_parts parts = parts_of(plan, io);
    cudaError_t e = launch_pack(plan, images, io, &parts, stream);
    if (e != cudaSuccess)
        return e;
    if (plan->path == XN_CUDA_DUAL_RAIL)
        return launch_rails(plan, prepared, images, io, &parts, stream);
    if (plan->path == XN_CUDA_WARP_SPECIALISED)
        return launch_lines(plan, prepared, images, &parts, &epilogue, stream);
    if (plan->path == XN_CUDA_FILTER_STATIONARY)
        return launch_wide(plan, prepared, images, io, &parts, &epilogue, stream);
    return launch_narrow(plan, prepared, images, io, &parts, &epilogue, stream);
}
