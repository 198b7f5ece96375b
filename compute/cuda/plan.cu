/* plan.cu: which kernels run a problem, and where their data lies in the stream's workspace. All
 * decisions and all allocation are here. */
#include "xn_cuda.h"

#define WIDE_FILTERS 17 /* a group, for gemm_wide.cu to be worth it */

/* Adds a part of count * each bytes per image for all images; its offset to *offset. */
static bool add_part(xn_plan *plan, int64_t count, size_t each, size_t *offset) {
    size_t bytes, images = (size_t)plan->max_images;
    if (!xn_mul_size((size_t)count, each, &bytes) || !xn_mul_size(bytes, images, &bytes) ||
        !xn_add_size(bytes, XN_CUDA_ALIGNMENT - 1, &bytes))
        return false;
    *offset = plan->workspace_bytes;
    return xn_add_size(plan->workspace_bytes, bytes / XN_CUDA_ALIGNMENT * XN_CUDA_ALIGNMENT,
                       &plan->workspace_bytes);
}

/* Whether a path can run the problem at all. */
static bool path_fits(const xn_device *device, const xn_plan *plan, xn_cuda_path path) {
    const xn_conv *conv = &plan->conv;
    const bool packed = plan->packed_input || plan->packed_output;
    const xn_cuda_few_chip chip = xn_cuda_few_chip_of(device);
    switch (path) {
    case XN_CUDA_FEW:
        return !packed && conv->mode == XN_MODE_XNOR &&
               xn_cuda_few_choose(conv, plan->max_images, &chip) != XN_CUDA_FEW_NONE;
    case XN_CUDA_WIDE:
        return device->wide && xn_cuda_wide_fits(conv, plan->max_images, plan->packed_output);
    case XN_CUDA_GEMM:
        return conv->mode == XN_MODE_XNOR && device->major >= XN_CUDA_MATRIX_MAJOR &&
               xn_cuda_gemm_fits(conv, plan->max_images);
    case XN_CUDA_DIRECT:
        return conv->mode == XN_MODE_XNOR;
    default:
        return conv->mode != XN_MODE_XNOR;
    }
}

/* The wide kernel computes tiles of 32 filters and more, which few filters a group would waste. */
static xn_cuda_path choose_path(const xn_device *device, const xn_plan *plan) {
    for (int path = 0; path < XN_CUDA_PATHS; path++)
        if (path_fits(device, plan, (xn_cuda_path)path) &&
            !(path == XN_CUDA_WIDE && plan->conv.group_out_channels < WIDE_FILTERS &&
              path_fits(device, plan, XN_CUDA_GEMM)))
            return (xn_cuda_path)path;
    return XN_CUDA_DIRECT; /* takes any geometry of mode xnor, and real.cu the other modes */
}

static bool lay_out(xn_plan *plan) {
    const xn_conv *c = &plan->conv;
    const int64_t in_plane = (int64_t)c->height * c->width, groups = c->groups;
    const int64_t out_plane = (int64_t)c->out_height * c->out_width;
    const size_t pixel_bytes = (size_t)xn_cuda_tap_words(c->group_channels) * sizeof(uint32_t);
    const bool own_sums = plan->path == XN_CUDA_WIDE; /* no popc, pixel_part and k in memory */
    bool fits = add_part(plan, 1, plan->input_bytes, &plan->input) &&
                add_part(plan, 1, plan->output_bytes, &plan->output);
    if (plan->path == XN_CUDA_FEW || plan->path == XN_CUDA_REAL)
        return fits;
    if (!plan->packed_input)
        fits = fits && add_part(plan, groups * in_plane, pixel_bytes, &plan->bits);
    if (plan->want_k)
        fits = fits && add_part(plan, groups * in_plane, sizeof(float), &plan->mean) &&
               add_part(plan, own_sums ? 0 : groups * out_plane, sizeof(float), &plan->k);
    if (plan->path == XN_CUDA_GEMM)
        fits = fits && add_part(plan, groups * in_plane, sizeof(int32_t), &plan->popc) &&
               add_part(plan, groups * out_plane, sizeof(int32_t), &plan->pixel_part);
    if (plan->packed_output && !own_sums)
        fits = fits && add_part(plan, c->out_channels * out_plane, sizeof(int32_t), &plan->dots);
    return fits;
}

/* What a packed side asks of the problem. */
static xn_status check_options(const xn_conv *c, const xn_cuda_plan_options *o, xn_error *error) {
    if ((o->packed_input || o->packed_output) && c->mode != XN_MODE_XNOR)
        return xn_fail(error, XN_ERR_UNSUPPORTED, "mode", "packed tensors are for mode xnor");
    if (o->packed_input && c->scaling == XN_SCALING_XNOR)
        return xn_fail(error, XN_ERR_UNSUPPORTED, "scaling",
                       "scaling xnor needs the real input; packed input goes with alpha or none");
    if (o->packed_output && c->scaling != XN_SCALING_NONE)
        return xn_fail(error, XN_ERR_UNSUPPORTED, "scaling",
                       "packed output compares dot with thresholds; scaling must be none");
    return XN_OK;
}

static xn_status fill_plan(xn_plan *plan, const xn_cuda_plan_options *options, xn_error *error) {
    const xn_conv *conv = &plan->conv;
    const xn_device *device = plan->stream->device;
    plan->packed_input = options->packed_input;
    plan->packed_output = options->packed_output;
    plan->input_bytes = plan->packed_input ? 0 : xn_conv_input_bytes(conv);
    plan->output_bytes = plan->packed_output ? 0 : xn_conv_output_bytes(conv);
    plan->want_k = conv->mode == XN_MODE_XNOR && conv->scaling == XN_SCALING_XNOR;
    plan->path = options->forced ? options->path : choose_path(device, plan);
    if (options->forced && !path_fits(device, plan, plan->path))
        return xn_fail(error, XN_ERR_UNSUPPORTED, NULL, "the path asked for cannot run this");
    if (!lay_out(plan))
        return xn_fail(error, XN_ERR_DEVICE_MEMORY, NULL,
                       "the workspace for %lld images passes the address space",
                       (long long)plan->max_images);
    return xn_cuda_stream_reserve(plan->stream, plan->workspace_bytes, error);
}

xn_status xn_cuda_plan_create_with(xn_stream *stream, const xn_conv *conv, int64_t max_images,
                                   const xn_cuda_plan_options *options, xn_plan **out,
                                   xn_error *error) {
    if (max_images < 1)
        return xn_fail(error, XN_ERR_INTERNAL, NULL, "a plan for %lld images; at least 1",
                       (long long)max_images);
    xn_status status = check_options(conv, options, error);
    if (status == XN_OK)
        status = xn_cuda_device_use(stream->device, error);
    if (status)
        return status;
    xn_plan *plan = (xn_plan *)xn_mem_zalloc(1, sizeof *plan);
    if (!plan)
        return xn_fail(error, XN_ERR_NO_MEMORY, NULL, "no memory for a plan");
    plan->stream = stream;
    plan->conv = *conv;
    plan->max_images = max_images;
    status = fill_plan(plan, options, error);
    if (status) {
        xn_cuda_plan_free(plan);
        return status;
    }
    *out = plan;
    return XN_OK;
}

xn_status xn_cuda_plan_create(xn_stream *stream, const xn_conv *conv, int64_t max_images,
                              xn_plan **out, xn_error *error) {
    const xn_cuda_plan_options options = {};
    return xn_cuda_plan_create_with(stream, conv, max_images, &options, out, error);
}

void xn_cuda_plan_free(xn_plan *plan) {
    xn_mem_free(plan); /* the workspace stays with the stream */
}
