/* plan.c: one step on one stream: the way it goes, its scratch. All memory of a run is allocated
 * here. */
#include "path.h"
#include "xn_mem.h"

enum { SIGN_BYTES = 8 << 20 /* of a wave, if more than one image */ };

/* Grows the stream's scratch to what the plan needs with all threads that the device has: other
 * plans find it through the stream, so it may move. */
static xn_status reserve(xn_stream *stream, const xn_plan *plan, xn_error *error) {
    size_t bytes;
    bool fits = xn_mul_size(plan->thread_bytes, (size_t)stream->device->threads, &bytes) &&
                xn_add_size(bytes, plan->shared_bytes, &bytes);
    if (fits && bytes <= stream->scratch_bytes)
        return XN_OK;
    if (!fits || bytes > stream->most_scratch_bytes)
        return xn_fail(error, XN_ERR_LIMIT, NULL,
                       "this geometry needs scratch memory of %zu bytes, and of %zu for each of %d "
                       "threads; a run may have %zu",
                       plan->shared_bytes, plan->thread_bytes, stream->device->threads,
                       stream->most_scratch_bytes);
    unsigned char *scratch = fits ? xn_mem_zalloc(bytes, 1) : NULL;
    if (!scratch)
        return xn_fail(error, XN_ERR_NO_MEMORY, NULL,
                       "no memory for the scratch of this step: %zu bytes shared and "
                       "%zu bytes for each of %d threads",
                       plan->shared_bytes, plan->thread_bytes, stream->device->threads);
    xn_mem_free(stream->scratch);
    stream->scratch = scratch;
    stream->scratch_bytes = bytes;
    return XN_OK;
}

static bool has_layout(int32_t layout) {
    return layout == XN_LAYOUT_BYTES || layout == XN_LAYOUT_WORDS;
}

static bool is_real(int32_t datatype) {
    return datatype == XN_FP32 || datatype == XN_FP16;
}

/* What no path of this backend can do. */
static bool can_run(const xn_step *step) {
    const xn_conv *conv = &step->conv;
    const bool packed = conv->input_datatype == XN_BITS;
    if (!xn_cpu_epilogue_fits(&conv->epilogue) ||
        (conv->epilogue.bits && !has_layout(step->bits_layout)) ||
        (conv->epilogue.residual && !is_real(step->residual_datatype)) ||
        (packed && !has_layout(step->input_layout)))
        return false;
    if (step->kind != XN_STEP_CONV)
        return !conv->epilogue.k;
    if (!packed)
        return step->input_layout != XN_LAYOUT_NHWC;
    return conv->mode == XN_MODE_XNOR && !conv->epilogue.k;
}

/* A stream that is held to a path is held to it for convolutions, and to its set for the rest. */
static const xn_cpu_way *way_of(const xn_stream *stream, const xn_step *step) {
    const xn_cpu_set *set = stream->way ? stream->way->set : stream->device->set;
    if (!can_run(step))
        return NULL;
    if (step->kind != XN_STEP_CONV) {
        const xn_cpu_way *way = xn_cpu_way_of_kind(step->kind, set);
        return way->path->fits(step) ? way : NULL;
    }
    if (!stream->way)
        return xn_cpu_way_choose(step, set);
    return stream->way->path->fits(step) ? stream->way : NULL;
}

/* Room for what run.c makes: the channels' factors and biases, and, where it makes bits of them,
 * signs. */
static xn_status add_epilogue(xn_plan *plan, xn_error *error) {
    const xn_conv *conv = &plan->step.conv;
    const size_t image = (size_t)xn_conv_output_elements(conv); /* bytes of signs */
    if (plan->step.kind == XN_STEP_TOP_K) /* of which there may be millions, and one value of all */
        return XN_OK;
    xn_cpu_sizer sizer = {.bytes = plan->shared_bytes};
    plan->factor_offset = xn_cpu_take(&sizer, (size_t)conv->out_channels, sizeof(float));
    plan->bias_offset = xn_cpu_take(&sizer, (size_t)conv->out_channels, sizeof(float));
    const xn_cpu_path *path = plan->way->path;
    if (conv->epilogue.bits && !(path->writes_bits && path->writes_bits(&plan->step))) {
        plan->signs_images =
            xn_cpu_min(plan->max_images, xn_cpu_max(1, (int64_t)(SIGN_BYTES / image)));
        plan->signs_offset = xn_cpu_take(&sizer, image, (size_t)plan->signs_images);
    }
    if (sizer.failed)
        return xn_fail(error, XN_ERR_NO_MEMORY, NULL, "the scratch memory's size overflows");
    plan->shared_bytes = sizer.bytes;
    return XN_OK;
}

static xn_status fill(xn_plan *plan, xn_error *error) {
    const xn_cpu_path *path = plan->way->path;
    plan->kernels = plan->way->set->kernels;
    plan->path_kernels = path->kernels[plan->way->set->isa];
    plan->cost_ns = path->cost_ns(&plan->step, plan->path_kernels);
    plan->images = xn_mem_zalloc((size_t)plan->max_images, sizeof *plan->images);
    if (!plan->images)
        return xn_fail(error, XN_ERR_NO_MEMORY, NULL, "no memory for the plan of a batch");
    xn_status status = path->create(plan, error);
    if (!status)
        status = add_epilogue(plan, error);
    return status ? status : reserve(plan->stream, plan, error);
}

xn_status xn_cpu_plan_create(xn_stream *stream, const xn_step *step, int64_t max_images,
                             xn_plan **out, xn_error *error) {
    const xn_cpu_way *way = way_of(stream, step);
    if (!way)
        return xn_fail(error, XN_ERR_UNSUPPORTED, NULL, "%s cannot run this step, %s",
                       stream->way ? stream->way->name : "the cpu",
                       xn_step_kind_name((xn_step_kind)step->kind));
    xn_plan *plan = xn_mem_zalloc(1, sizeof *plan);
    if (!plan)
        return xn_fail(error, XN_ERR_NO_MEMORY, NULL, "no memory for the plan of a batch");
    plan->stream = stream;
    plan->step = *step;
    plan->way = way;
    plan->max_images = max_images;
    xn_status status = fill(plan, error);
    if (status) {
        xn_cpu_plan_free(plan);
        return status;
    }
    *out = plan;
    return XN_OK;
}

void xn_cpu_plan_free(xn_plan *plan) {
    if (!plan)
        return;
    plan->way->path->destroy(plan->state);
    xn_mem_free(plan->images);
    xn_mem_free(plan);
}

xn_status xn_cpu_weights_ready(const xn_prepared *prepared, const xn_plan *plan, xn_error *error) {
    return plan->way->path->prepare(plan, prepared, error);
}
