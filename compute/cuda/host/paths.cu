/* paths.cu: the table of paths, and which of them runs a step. */
#include "paths.h"

#include "costs.h"
#include "layout.h"
#include "xn_mem.h"

#include <math.h>

/* Of those that cost the same the first is taken. */
static const xn_cuda_path *const paths[] = {
    &xn_cuda_sliding_window_path, &xn_cuda_patch_path,     &xn_cuda_warp_specialised_path,
    &xn_cuda_implicit_gemm_path,  &xn_cuda_direct_path,    &xn_cuda_real_mma_path,
    &xn_cuda_real_depthwise_path, &xn_cuda_real_gemm_path,
};

const xn_cuda_path *xn_cuda_path_at(int index) {
    return index < (int)(sizeof paths / sizeof *paths) ? paths[index] : NULL;
}

bool xn_cuda_path_exists(const xn_cuda_path *path, const xn_cuda_chip *chip) {
    return (path->needs != XN_CUDA_HAS_MATRIX || chip->matrix) &&
           (path->needs != XN_CUDA_HAS_WGMMA || chip->wgmma);
}

double xn_cuda_path_ns(const xn_cuda_path *path, const xn_cuda_job *job, const xn_cuda_chip *chip,
                       const void *state) {
    double terms[XN_CUDA_TERMS] = {};
    path->terms(job, chip, state, terms);
    return xn_cuda_cost_ns(path->costs, terms);
}

xn_cuda_counts xn_cuda_counts_of(const xn_cuda_job *job, const xn_cuda_chip *chip) {
    const xn_conv *c = &job->conv;
    const double share = (double)job->images / chip->multiprocessors;
    xn_cuda_counts n;
    n.inputs = share * (double)xn_conv_input_elements(c);
    n.outputs = share * (double)xn_conv_output_elements(c);
    n.windows = n.outputs / c->group_out_channels;
    n.uneven = (int64_t)c->out_height * c->out_width % 4 ? n.outputs : 0;
    n.taps = (double)c->kernel_h * c->kernel_w;
    return n;
}

/* ---- scratch ---- */

void *xn_cuda_take_bytes(xn_cuda_scratch *s, size_t bytes) {
    const size_t at = s->bytes;
    s->passes = !xn_add_size(bytes, XN_CUDA_ALIGNMENT - 1, &bytes) ||
                !xn_add_size(s->bytes, bytes / XN_CUDA_ALIGNMENT * XN_CUDA_ALIGNMENT, &s->bytes) ||
                s->passes;
    return s->base ? s->base + at : NULL;
}

void *xn_cuda_take(xn_cuda_scratch *s, int64_t count, size_t each) {
    size_t bytes;
    s->passes = !xn_mul_size((size_t)count, each, &bytes) ||
                !xn_mul_size(bytes, (size_t)s->images, &bytes) || s->passes;
    return xn_cuda_take_bytes(s, s->passes ? 0 : bytes);
}

/* ---- around a path ---- */

/* Whether words of one group and bytes are the same (xn_step.h). */
static bool words_are_bytes(int32_t channels) {
    return (channels + 7) / 8 == xn_packed_words(channels) * 4;
}

static bool source_of(const xn_step *step, xn_cuda_choice *c) {
    c->job.source = step->conv.input_datatype != XN_BITS ? XN_CUDA_FROM_REALS : XN_CUDA_FROM_WORDS;
    c->from_bytes = step->conv.input_datatype == XN_BITS && step->input_layout == XN_LAYOUT_BYTES &&
                    (step->conv.groups > 1 || !words_are_bytes(step->conv.channels));
    c->from_part = c->job.source == XN_CUDA_FROM_REALS && step->input_view.pitch;
    return step->input_layout != XN_LAYOUT_NHWC &&
           (c->job.source == XN_CUDA_FROM_REALS || !step->conv.epilogue.k);
}

/* The epilogue up to v, for the rest to be made of. */
static xn_epilogue first_part_of(const xn_epilogue *e) {
    xn_epilogue first = {};
    first.factor = e->factor;
    first.k = e->k;
    first.bias = e->bias;
    first.datatype = e->datatype == XN_INT32 ? XN_INT32 : XN_FP32;
    return first;
}

static bool has_parts(const xn_step *step) {
    return step->output_view.pitch || step->residual_view.pitch;
}

/* Whether kernels know where the step's tensors are. */
static bool has_places(const xn_step *step, int64_t images) {
    const xn_view *out = &step->output_view;
    const int64_t whole = xn_conv_output_elements(&step->conv);
    const int64_t gap = out->pitch ? out->pitch - whole : 0;
    return !has_parts(step) ||
           (images <= INT32_MAX / whole && out->offset % 8 == 0 && gap % 8 == 0);
}

/* Of epilogues that are plain, kernels write whole tensors alone: for a part a clip that changes
 * nothing makes it another. */
static xn_epilogue all_of(const xn_step *step) {
    xn_epilogue e = step->conv.epilogue;
    if (xn_is_plain(e)) {
        e.activation = XN_ACTIVATION_CLIP;
        e.low = -INFINITY;
        e.high = INFINITY;
    }
    return e;
}

/* INT32 is the accumulator itself. */
static bool is_known(const xn_epilogue *e) {
    return e->datatype != XN_INT32 || (!e->residual && e->activation == XN_ACTIVATION_NONE);
}

/* Whether the path takes the job with this target; the job is so from then on. */
static bool takes(xn_cuda_choice *c, const xn_cuda_chip *chip, xn_cuda_target target,
                  const xn_epilogue *epilogue, void *state) {
    c->job.target = target;
    c->job.conv.epilogue = *epilogue;
    return c->path->fits(&c->job, chip, state);
}

/* What the path is asked to write: all that it can of the epilogue. */
static bool target_of(const xn_step *step, const xn_cuda_chip *chip, void *state,
                      xn_cuda_choice *c) {
    const xn_epilogue *e = &step->conv.epilogue, first = first_part_of(e);
    const xn_epilogue all = all_of(step);
    const bool to_bytes =
        step->bits_layout == XN_LAYOUT_BYTES && !words_are_bytes(step->conv.out_channels);
    if (xn_is_plain(*e) && !has_parts(step))
        return takes(c, chip, XN_CUDA_TO_REALS, e, state);
    c->to_bytes = e->bits && to_bytes;
    /* INT32 is stored as it is, and no path has more than that beside it */
    if (e->datatype != XN_INT32 && has_places(step, c->job.images) &&
        takes(c, chip, XN_CUDA_TO_ALL, &all, state))
        return true;
    c->to_bytes = false;
    c->finish = true;
    return takes(c, chip, XN_CUDA_TO_REALS, &first, state);
}

/* Nanoseconds of the kernels around the path, and of bits that it sets one by one. */
static double around_ns(const xn_step *step, const xn_cuda_choice *c, const xn_cuda_chip *chip) {
    const double share = 1.0 / chip->multiprocessors;
    const double in = (double)c->job.images * (double)xn_conv_input_elements(&step->conv);
    const double out = (double)c->job.images * (double)xn_conv_output_elements(&step->conv);
    const double *each = xn_cuda_costs_around;
    const bool atomics = c->job.target == XN_CUDA_TO_ALL && c->job.conv.epilogue.bits &&
                         !xn_has_half_words(step->conv);
    return (c->from_bytes ? each[0] + each[1] * in * share : 0) +
           (c->from_part ? each[0] + each[1] * in * share : 0) +
           (c->to_bytes ? each[0] + each[1] * out * share : 0) +
           (c->finish ? each[0] + each[2] * out * share : 0) +
           (atomics ? each[0] + each[3] * out * share : 0);
}

bool xn_cuda_try_path(const xn_step *step, int64_t images, const xn_cuda_chip *chip,
                      const xn_cuda_path *path, void *state, xn_cuda_choice *out) {
    xn_cuda_choice c = {};
    c.path = path;
    c.job.conv = step->conv;
    c.job.images = images;
    c.state = state;
    if (step->kind != XN_STEP_CONV || !is_known(&step->conv.epilogue) ||
        !xn_cuda_path_exists(path, chip) || !source_of(step, &c) ||
        !target_of(step, chip, state, &c))
        return false;
    c.ns = xn_cuda_path_ns(path, &c.job, chip, state) + around_ns(step, &c, chip);
    *out = c;
    return true;
}

/* ---- the choice ---- */

/* Leaves *best as it is, or makes it this path's where that is cheaper. */
static xn_status consider(const xn_step *step, int64_t images, const xn_cuda_chip *chip,
                          const xn_cuda_path *path, xn_cuda_choice *best, xn_error *error) {
    xn_cuda_choice c;
    void *state = NULL;
    if (path->state_bytes && !(state = xn_mem_zalloc(1, path->state_bytes)))
        return xn_fail(error, XN_ERR_NO_MEMORY, NULL, "no memory for a plan");
    if (xn_cuda_try_path(step, images, chip, path, state, &c) && (!best->path || c.ns < best->ns)) {
        xn_mem_free(best->state);
        *best = c;
    } else {
        xn_mem_free(state);
    }
    return XN_OK;
}

xn_status xn_cuda_choose(const xn_step *step, int64_t images, const xn_cuda_chip *chip,
                         const xn_cuda_path *path, xn_cuda_choice *out, xn_error *error) {
    xn_cuda_choice best = {};
    xn_status status = XN_OK;
    if (path)
        status = consider(step, images, chip, path, &best, error);
    for (int i = 0; !path && xn_cuda_path_at(i) && status == XN_OK; i++)
        status = consider(step, images, chip, xn_cuda_path_at(i), &best, error);
    if (status) {
        xn_mem_free(best.state);
        return status;
    }
    if (!best.path)
        return path ? xn_fail(error, XN_ERR_UNSUPPORTED, NULL,
                              "path %s cannot run this convolution", path->name)
                    : xn_fail(error, XN_ERR_UNSUPPORTED, NULL,
                              "no kernel of this GPU runs such a step");
    *out = best;
    return XN_OK;
}
