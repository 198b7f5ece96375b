/* plan.cu: which kernels run a problem, and where their data lies in the stream's workspace. All
 * decisions and all allocation are here. */
#include "xn_cuda.h"

#include <string.h>

#define WIDE_FILTERS 17 /* a group, for filter_stationary.cu to be worth it */

static const char *const path_names[XN_CUDA_PATHS] = {
    "sliding_window", "depthwise",        "patch_gemm",        "fused_gemm",
    "dual_rail",      "warp_specialised", "filter_stationary", "implicit_gemm",
    "direct",         "real_wgmma",       "real_mma",          "real"};

/* Whether the device has the instructions of a path. */
static bool path_exists(const xn_device *device, int path) {
    switch (path) {
    case XN_CUDA_PATCH_GEMM:
    case XN_CUDA_FUSED_GEMM:
    case XN_CUDA_IMPLICIT_GEMM:
    case XN_CUDA_REAL_MMA:
        return device->matrix;
    case XN_CUDA_DUAL_RAIL:
    case XN_CUDA_WARP_SPECIALISED:
    case XN_CUDA_FILTER_STATIONARY:
    case XN_CUDA_REAL_WGMMA:
        return device->wide;
    default:
        return true;
    }
}

/* Of those that a stream may be held to: its plans have outputs that are not packed. */
const char *xn_cuda_device_path(const xn_device *device, int index) {
    for (int path = 0; path < XN_CUDA_PATHS; path++)
        if (path != XN_CUDA_DUAL_RAIL && path_exists(device, path) && index-- == 0)
            return path_names[path];
    return NULL;
}

bool xn_cuda_path_find(const xn_device *device, const char *name, xn_cuda_path *out) {
    for (int path = 0; path < XN_CUDA_PATHS; path++)
        if (path_exists(device, path) && !strcmp(path_names[path], name)) {
            *out = (xn_cuda_path)path;
            return true;
        }
    return false;
}

const char *xn_cuda_plan_path(const xn_plan *plan) {
    return path_names[plan->path];
}

/* Adds a part; its offset to *offset. */
static bool add_bytes(xn_plan *plan, size_t bytes, size_t *offset) {
    if (!xn_add_size(bytes, XN_CUDA_ALIGNMENT - 1, &bytes))
        return false;
    *offset = plan->workspace_bytes;
    return xn_add_size(plan->workspace_bytes, bytes / XN_CUDA_ALIGNMENT * XN_CUDA_ALIGNMENT,
                       &plan->workspace_bytes);
}

/* A part of count * each bytes an image, for all images. */
static bool add_part(xn_plan *plan, int64_t count, size_t each, size_t *offset) {
    size_t bytes, images = (size_t)plan->max_images;
    return xn_mul_size((size_t)count, each, &bytes) && xn_mul_size(bytes, images, &bytes) &&
           add_bytes(plan, bytes, offset);
}

/* Whether a path can run the problem at all. */
static bool path_fits(const xn_device *device, const xn_plan *plan, xn_cuda_path path) {
    const xn_conv *conv = &plan->conv;
    const bool packed = plan->packed_input || plan->packed_output;
    const xn_cuda_few_chip chip = xn_cuda_few_chip_of(device);
    xn_cuda_few_cut cut;
    if (plan->rails && packed && path != XN_CUDA_DUAL_RAIL)
        return false; /* no other reads or writes that layout */
    if (!path_exists(device, path) || (conv->mode == XN_MODE_XNOR) == (path >= XN_CUDA_REAL_WGMMA))
        return false;
    switch (path) {
    case XN_CUDA_SLIDING_WINDOW:
    case XN_CUDA_DEPTHWISE:
    case XN_CUDA_PATCH_GEMM:
        return !packed &&
               xn_cuda_few_cut_of(xn_cuda_few_kind_of(path), conv, plan->max_images, &chip, &cut);
    case XN_CUDA_FUSED_GEMM:
        return !packed && xn_cuda_fused_fits(conv, plan->max_images, &chip);
    case XN_CUDA_DUAL_RAIL: /* a job's 64 filters are one store of rails */
        return plan->packed_output &&
               !(plan->rails && conv->groups > 1 && conv->group_out_channels % 64) &&
               xn_cuda_dual_rail_fits(conv, plan->max_images);
    case XN_CUDA_WARP_SPECIALISED:
        return !plan->packed_output && xn_cuda_specialised_fits(conv, plan->max_images);
    case XN_CUDA_FILTER_STATIONARY:
        return xn_cuda_stationary_fits(conv, plan->max_images, plan->packed_output);
    case XN_CUDA_IMPLICIT_GEMM:
        return xn_cuda_implicit_gemm_fits(conv, plan->max_images);
    case XN_CUDA_REAL_WGMMA:
    case XN_CUDA_REAL_MMA:
        return xn_cuda_real_mma_fits(conv, plan->max_images);
    default: /* direct takes any geometry of mode xnor, real any of the other modes */
        return true;
    }
}

/* Whether another path that can run it is better. The wide kernel computes tiles of 32 filters and
 * more, which few filters a group would waste. */
static bool other_pays(const xn_device *device, const xn_plan *plan, xn_cuda_path path) {
    const xn_cuda_few_chip chip = xn_cuda_few_chip_of(device);
    if (path == XN_CUDA_FUSED_GEMM)
        return !xn_cuda_fused_pays(&plan->conv, plan->max_images, &chip);
    if (path == XN_CUDA_DUAL_RAIL && path_fits(device, plan, XN_CUDA_FILTER_STATIONARY) &&
        !xn_cuda_dual_rail_pays(&plan->conv, plan->max_images, device->multiprocessors))
        return true;
    if (path == XN_CUDA_WARP_SPECIALISED &&
        !xn_cuda_specialised_pays(&plan->conv, plan->max_images, device->multiprocessors,
                                  plan->packed_input))
        return true;
    if (path == XN_CUDA_DUAL_RAIL || path == XN_CUDA_WARP_SPECIALISED ||
        path == XN_CUDA_FILTER_STATIONARY)
        return plan->conv.group_out_channels < WIDE_FILTERS &&
               path_fits(device, plan, XN_CUDA_IMPLICIT_GEMM);
    return (path == XN_CUDA_REAL_WGMMA || path == XN_CUDA_REAL_MMA) &&
           !xn_cuda_real_mma_pays(&plan->conv);
}

/* Few channels have four kernels, whose own choice it is; of the rest the first that fits. */
static xn_cuda_path choose_path(const xn_device *device, const xn_plan *plan) {
    const xn_cuda_few_chip chip = xn_cuda_few_chip_of(device);
    const xn_cuda_few_kind few = xn_cuda_few_choose(&plan->conv, plan->max_images, &chip);
    for (int path = 0; path < XN_CUDA_PATHS; path++)
        if ((path >= XN_CUDA_FUSED_GEMM || xn_cuda_few_kind_of((xn_cuda_path)path) == few) &&
            path_fits(device, plan, (xn_cuda_path)path) &&
            !other_pays(device, plan, (xn_cuda_path)path))
            return (xn_cuda_path)path;
    return XN_CUDA_REAL; /* not reached: direct or real fits */
}

static bool lay_out(xn_plan *plan) {
    const xn_conv *c = &plan->conv;
    const int64_t in_plane = (int64_t)c->height * c->width, groups = c->groups;
    const int64_t out_plane = (int64_t)c->out_height * c->out_width;
    const size_t pixel_bytes = (size_t)xn_packed_words(c->group_channels) * sizeof(uint32_t);
    const bool own_sums =
        plan->path == XN_CUDA_FILTER_STATIONARY; /* no popc, pixel_part and k in memory */
    bool fits = true;
    if (plan->path == XN_CUDA_REAL_WGMMA || plan->path == XN_CUDA_REAL_MMA)
        return fits && add_part(plan, xn_cuda_mma_pixel_bytes(c), 1, &plan->pixels) &&
               add_bytes(plan, xn_cuda_mma_partial_bytes(plan->stream->device->multiprocessors),
                         &plan->partial);
    if (xn_cuda_few_kind_of(plan->path) != XN_CUDA_FEW_NONE || plan->path == XN_CUDA_FUSED_GEMM ||
        plan->path == XN_CUDA_REAL)
        return fits;
    if (plan->path == XN_CUDA_DUAL_RAIL) {
        const int64_t units =
            plan->packed_input && plan->rails ? 0 : xn_cuda_dual_rail_of(c->group_channels).units;
        return fits && add_part(plan, groups * in_plane * units, 16, &plan->bits);
    }
    if (plan->path == XN_CUDA_WARP_SPECIALISED) {
        const xn_cuda_padded l = xn_cuda_padded_of(c);
        const int64_t positions = groups * l.plane;
        return fits && add_part(plan, positions * l.units, 16, &plan->bits) &&
               add_part(plan, positions, sizeof(int32_t), &plan->popc) &&
               add_part(plan, plan->want_k ? positions : 0, sizeof(float), &plan->mean);
    }
    if (!plan->packed_input)
        fits = fits && add_part(plan, groups * in_plane, pixel_bytes, &plan->bits);
    if (plan->want_k)
        fits = fits && add_part(plan, groups * in_plane, sizeof(float), &plan->mean) &&
               add_part(plan, own_sums ? 0 : groups * out_plane, sizeof(float), &plan->k);
    if (plan->path == XN_CUDA_IMPLICIT_GEMM)
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
    if (o->packed_input && c->epilogue.k)
        return xn_fail(error, XN_ERR_UNSUPPORTED, "scaling",
                       "scaling xnor needs the real input; packed input goes with alpha or none");
    if (o->packed_output && c->epilogue.factor != XN_FACTOR_NONE)
        return xn_fail(error, XN_ERR_UNSUPPORTED, "scaling",
                       "packed output compares dot with thresholds; scaling must be none");
    return XN_OK;
}

/* Room for how the path cuts its work; false without memory. */
static bool keep_cut(xn_plan *plan) {
    const xn_cuda_few_kind few = xn_cuda_few_kind_of(plan->path);
    if (plan->path == XN_CUDA_FILTER_STATIONARY)
        return (plan->wide = (xn_cuda_stationary_cut *)xn_mem_zalloc(1, sizeof *plan->wide)) !=
               NULL;
    if (plan->path == XN_CUDA_DUAL_RAIL)
        return (plan->rails_cut =
                    (xn_cuda_dual_rail_cut *)xn_mem_zalloc(1, sizeof *plan->rails_cut)) != NULL;
    if (plan->path == XN_CUDA_WARP_SPECIALISED)
        return (plan->lines = (xn_cuda_specialised_cut *)xn_mem_zalloc(1, sizeof *plan->lines)) !=
               NULL;
    if (plan->path == XN_CUDA_FUSED_GEMM)
        return (plan->fused = (xn_cuda_fused_plan *)xn_mem_zalloc(1, sizeof *plan->fused)) != NULL;
    if (few == XN_CUDA_FEW_NONE)
        return true;
    const xn_cuda_few_chip chip = xn_cuda_few_chip_of(plan->stream->device);
    plan->few = (xn_cuda_few_cut *)xn_mem_zalloc(1, sizeof *plan->few);
    return plan->few && /* path_fits said so */
           xn_cuda_few_cut_of(few, &plan->conv, plan->max_images, &chip, plan->few);
}

static xn_status fill_plan(xn_plan *plan, const xn_cuda_plan_options *options, xn_error *error) {
    const xn_conv *conv = &plan->conv;
    const xn_device *device = plan->stream->device;
    plan->packed_input = options->packed_input;
    plan->packed_output = options->packed_output;
    plan->rails = options->rails;
    plan->want_k = conv->epilogue.k;
    const bool rails = plan->rails && (plan->packed_input || plan->packed_output);
    plan->path = options->forced ? options->path
                 : rails         ? XN_CUDA_DUAL_RAIL
                                 : choose_path(device, plan);
    if ((options->forced || rails) && !path_fits(device, plan, plan->path))
        return xn_fail(error, XN_ERR_UNSUPPORTED, NULL, "path %s cannot run this convolution",
                       path_names[plan->path]);
    if (!keep_cut(plan))
        return xn_fail(error, XN_ERR_NO_MEMORY, NULL, "no memory for a plan");
    if (!lay_out(plan))
        return xn_fail(error, XN_ERR_DEVICE_MEMORY, NULL,
                       "the workspace for %lld images passes the address space",
                       (long long)plan->max_images);
    return xn_cuda_workspace_reserve(plan->stream, plan->workspace_bytes, error);
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

xn_status xn_cuda_plan_create(xn_stream *stream, const xn_step *step, int64_t max_images,
                              xn_plan **out, xn_error *error) {
    xn_cuda_plan_options options = {};
    options.forced = stream->forced;
    options.path = stream->path;
    return xn_cuda_plan_create_with(stream, &step->conv, max_images, &options, out, error);
}

void xn_cuda_plan_free(xn_plan *plan) {
    if (plan) {
        xn_mem_free(plan->wide);
        xn_mem_free(plan->few);
        xn_mem_free(plan->lines);
        xn_mem_free(plan->rails_cut);
        xn_mem_free(plan->fused);
    }
    xn_mem_free(plan); /* the workspace stays with the stream */
}
