/* plan.cu: a step made ready to run: how (paths.h), and how much memory of the stream it takes. All
 * decisions and all allocation are here. */
#include "xn_cuda.h"
#include "xn_planes.h"

#include <string.h>

/* Of those that a stream may be held to: most steps have outputs that are not bits. */
const char *xn_cuda_device_path(const xn_device *device, int index) {
    const xn_cuda_path *path;
    for (int i = 0; (path = xn_cuda_path_at(i)) != NULL; i++)
        if (xn_cuda_path_exists(path, &device->chip) && index-- == 0)
            return path->name;
    return NULL;
}

const xn_cuda_path *xn_cuda_path_find(const xn_device *device, const char *name) {
    const xn_cuda_path *path;
    for (int i = 0; (path = xn_cuda_path_at(i)) != NULL; i++)
        if (xn_cuda_path_exists(path, &device->chip) && !strcmp(path->name, name))
            return path;
    return NULL;
}

/* Kinds other than conv have one way, by the kind's name. */
const char *xn_cuda_plan_path(const xn_plan *plan) {
    return plan->how.path ? plan->how.path->name : xn_step_kind_name((xn_step_kind)plan->step.kind);
}

double xn_cuda_plan_cost_ns(const xn_plan *plan) {
    return plan->how.ns; /* 0 of kinds other than conv */
}

const xn_cuda_cost *xn_cuda_plan_terms(const xn_plan *plan, double terms[XN_CUDA_TERMS]) {
    memset(terms, 0, XN_CUDA_TERMS * sizeof *terms);
    plan->how.path->terms(&plan->how.job, &plan->stream->device->chip, plan->how.state, terms);
    return plan->how.path->costs;
}

xn_cuda_part xn_cuda_stem_part(const xn_plan *plan) {
    if (xn_cuda_stem_is_wide(&plan->step, &plan->stream->device->chip))
        return XN_CUDA_PART_STEM_WIDE;
    if (!xn_cuda_stem_has_tiles(&plan->step, &plan->stream->device->chip))
        return XN_CUDA_PART_STEM;
    return xn_stem_shift(&plan->step.conv) ? XN_CUDA_PART_STEM_SHIFTED : XN_CUDA_PART_STEM_TILES;
}

uint64_t xn_cuda_plan_wants(const xn_plan *plan, const xn_prepared *prepared) {
    const xn_cuda_choice *how = &plan->how;
    if (plan->step.kind == XN_STEP_STEM)
        return XN_CUDA_WANT(xn_cuda_stem_part(plan)) | XN_CUDA_WANT(XN_CUDA_PART_STEM_BORDER);
    if (plan->step.kind == XN_STEP_TOP_K && plan->step.conv.mode == XN_MODE_XNOR)
        return XN_CUDA_WANT(XN_CUDA_PART_CODES);
    if (!how->path)
        return 0;
    uint64_t wanted = how->path->wants(&how->job, prepared);
    if (plan->stream->path || !plan->stream->device->chip.matrix)
        return wanted;
    if (xn_cuda_stage_takes(&plan->step))
        wanted |= XN_CUDA_WANT(XN_CUDA_PART_STAGE);
    if (xn_cuda_strided_takes(&plan->step))
        wanted |= XN_CUDA_WANT(XN_CUDA_PART_STAGE) | XN_CUDA_WANT(XN_CUDA_PART_PREFIX);
    return wanted;
}

static xn_status reserve(xn_plan *plan, xn_error *error) {
    xn_cuda_scratch scratch = {};
    scratch.images = plan->max_images;
    (void)xn_cuda_around_take(plan, &scratch);
    (void)xn_cuda_op_take(plan, &scratch);
    (void)xn_cuda_top_k_take(&plan->step, &plan->stream->device->chip, &scratch);
    if (plan->how.path && plan->how.path->lay_out)
        plan->how.path->lay_out(&plan->how.job, &plan->stream->device->chip, &scratch);
    if (scratch.passes)
        return xn_fail(error, XN_ERR_DEVICE_MEMORY, NULL,
                       "the workspace for %lld images passes the address space",
                       (long long)plan->max_images);
    plan->workspace_bytes = scratch.bytes;
    return xn_cuda_workspace_reserve(plan->stream, scratch.bytes, error);
}

xn_status xn_cuda_plan_create(xn_stream *stream, const xn_step *step, int64_t max_images,
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
    plan->step = *step;
    plan->max_images = max_images;
    if (step->kind == XN_STEP_CONV)
        status = xn_cuda_choose(step, max_images, &stream->device->chip, stream->path, &plan->how,
                                error);
    if (status == XN_OK)
        status = reserve(plan, error);
    if (status) {
        xn_cuda_plan_free(plan);
        return status;
    }
    *out = plan;
    return XN_OK;
}

void xn_cuda_plan_free(xn_plan *plan) {
    if (plan)
        xn_mem_free(plan->how.state);
    xn_mem_free(plan); /* the workspace stays with the stream */
}
