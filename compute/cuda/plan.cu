/* plan.cu: which kernels run a problem, and where their data lies in the stream's workspace. All
 * decisions and all allocation are here. */
#include "xn_cuda.h"

#define MATRIX_CAPABILITY 80 /* mma with AND and population count */

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

static xn_cuda_path choose_path(const xn_device *device, const xn_conv *conv, int64_t images) {
    if (conv->mode != XN_MODE_XNOR)
        return XN_CUDA_REAL;
    if (xn_cuda_few_fits(conv, images))
        return XN_CUDA_FEW;
    if (device->major * 10 + device->minor >= MATRIX_CAPABILITY && xn_cuda_gemm_fits(conv, images))
        return XN_CUDA_GEMM;
    return XN_CUDA_DIRECT;
}

static bool lay_out(xn_plan *plan) {
    const xn_conv *c = &plan->conv;
    const int64_t in_plane = (int64_t)c->height * c->width, groups = c->groups;
    const int64_t out_plane = (int64_t)c->out_height * c->out_width;
    const size_t pixel_bytes = (size_t)xn_cuda_tap_words(c->group_channels) * sizeof(uint32_t);
    bool fits = add_part(plan, 1, plan->input_bytes, &plan->input) &&
                add_part(plan, 1, plan->output_bytes, &plan->output);
    if (plan->path == XN_CUDA_GEMM || plan->path == XN_CUDA_DIRECT) {
        fits = fits && add_part(plan, groups * in_plane, pixel_bytes, &plan->bits);
        if (plan->want_k)
            fits = fits && add_part(plan, groups * in_plane, sizeof(float), &plan->mean) &&
                   add_part(plan, groups * out_plane, sizeof(float), &plan->k);
    }
    if (plan->path == XN_CUDA_GEMM)
        fits = fits && add_part(plan, groups * in_plane, sizeof(int32_t), &plan->popc) &&
               add_part(plan, groups * out_plane, sizeof(int32_t), &plan->pixel_part);
    return fits;
}

xn_status xn_cuda_plan_create(xn_stream *stream, const xn_conv *conv, int64_t max_images,
                              xn_plan **out, xn_error *error) {
    if (max_images < 1)
        return xn_fail(error, XN_ERR_INTERNAL, NULL, "a plan for %lld images; at least 1",
                       (long long)max_images);
    xn_status status = xn_cuda_device_use(stream->device, error);
    if (status)
        return status;
    xn_plan *plan = (xn_plan *)xn_mem_zalloc(1, sizeof *plan);
    if (!plan)
        return xn_fail(error, XN_ERR_NO_MEMORY, NULL, "no memory for a plan");
    plan->stream = stream;
    plan->conv = *conv;
    plan->max_images = max_images;
    plan->input_bytes = xn_conv_input_bytes(conv);
    plan->output_bytes = xn_conv_output_bytes(conv);
    plan->want_k = conv->mode == XN_MODE_XNOR && conv->scaling == XN_SCALING_XNOR;
    plan->path = choose_path(stream->device, conv, max_images);
    if (lay_out(plan))
        status = xn_cuda_stream_reserve(stream, plan->workspace_bytes, error);
    else
        status = xn_fail(error, XN_ERR_DEVICE_MEMORY, NULL,
                         "the workspace for %lld images passes the address space",
                         (long long)max_images);
    if (status) {
        xn_cuda_plan_free(plan);
        return status;
    }
    *out = plan;
    return XN_OK;
}

void xn_cuda_plan_free(xn_plan *plan) {
    xn_mem_free(plan); /* the workspace stays with the stream */
}
