/* launch.cu: the kernels of a plan, one after the other on a stream, from device memory to device
 * memory: what comes before the path, the path, what comes after it. Allocates nothing, copies
 * nothing, waits for nothing. */
#include "xn_cuda.h"

xn_cuda_around xn_cuda_around_take(const xn_plan *plan, xn_cuda_scratch *scratch) {
    const xn_conv *c = &plan->step.conv;
    const int64_t out_plane = (int64_t)c->out_height * c->out_width;
    const size_t words = (size_t)xn_packed_words(c->group_channels) * sizeof(uint32_t);
    xn_cuda_around a = {};
    if (plan->how.from_part)
        a.part = xn_cuda_take(scratch, xn_conv_input_elements(c),
                              xn_datatype_bytes((xn_datatype)c->input_datatype));
    if (plan->how.from_bytes)
        a.words =
            (uint32_t *)xn_cuda_take(scratch, (int64_t)c->groups * c->height * c->width, words);
    if (plan->how.finish)
        a.reals = xn_cuda_take(scratch, c->out_channels * out_plane, sizeof(float));
    if (plan->how.to_bytes)
        a.bits = (uint32_t *)xn_cuda_take(
            scratch, out_plane, (size_t)xn_packed_words(c->out_channels) * sizeof(uint32_t));
    return a;
}

xn_op_pixel *xn_cuda_op_take(const xn_plan *plan, xn_cuda_scratch *scratch) {
    const xn_conv *c = &plan->step.conv;
    if (plan->step.kind != XN_STEP_SOFTMAX)
        return NULL;
    return (xn_op_pixel *)xn_cuda_take(scratch, (int64_t)c->height * c->width, sizeof(xn_op_pixel));
}

/* Where the real output and the residual lie in their tensors. */
static void set_places(const xn_step *step, const xn_step_io *io, xn_epilogue_args *e) {
    const int32_t whole = (int32_t)xn_conv_output_elements(&step->conv);
    const xn_view *out = &step->output_view, *residual = &step->residual_view;
    e->output = xn_cuda_part_at(io->output, out, step->conv.epilogue.datatype);
    e->output_gap = out->pitch ? out->pitch - whole : 0;
    e->bits = (uint32_t *)io->bits;
    if (step->conv.epilogue.residual) {
        e->residual = xn_cuda_part_at(io->residual, residual, step->residual_datatype);
        e->residual_gap = residual->pitch ? residual->pitch - whole : 0;
        e->residual_fp16 = step->residual_datatype == XN_FP16;
    }
    if (e->output_gap || e->residual_gap)
        e->image = xn_fast_divisor_of(whole);
}

/* What the specification multiplies by: nothing, the given scale, or alpha (mode float has none).
 */
xn_epilogue_args xn_cuda_epilogue_args(const xn_step *step, const xn_prepared *prepared,
                                       const xn_step_io *io) {
    const xn_epilogue *what = &step->conv.epilogue;
    xn_epilogue_args e = {};
    set_places(step, io, &e);
    if (!prepared)
        return e;
    e.factor = what->factor == XN_FACTOR_SCALE   ? prepared->scale
               : what->factor == XN_FACTOR_ALPHA ? prepared->alpha
                                                 : NULL;
    e.bias = what->bias ? prepared->bias : NULL;
    e.slope = what->activation == XN_ACTIVATION_PRELU ? prepared->slope : NULL;
    e.shift = what->shift ? prepared->shift : NULL;
    return e;
}

/* The state is of the number of images of the last run. */
static bool keep_state(xn_cuda_choice *how, int64_t images, const xn_cuda_chip *chip) {
    how->job.images = images;
    if (!how->path->state_bytes || *(int64_t *)how->state == images)
        return true;
    const bool fits = how->path->fits(&how->job, chip, how->state);
    if (!fits)
        *(int64_t *)how->state = 0;
    return fits; /* a plan's path takes fewer images too */
}

static cudaError_t run_path(const xn_plan *plan, const xn_prepared *prepared, const void *input,
                            const xn_epilogue_args *out, const xn_cuda_scratch *scratch,
                            cudaStream_t stream) {
    xn_cuda_run run = {};
    run.job = &plan->how.job;
    run.chip = &plan->stream->device->chip;
    run.state = plan->how.state;
    run.scratch = *scratch;
    run.weights = prepared;
    run.input = input;
    run.out = *out;
    run.stream = stream;
    return plan->how.path->run(&run);
}

/* What a path reads: the input as it is, or made so first. */
static cudaError_t make_input(const xn_plan *plan, int64_t images, const xn_cuda_around *around,
                              const void **input, cudaStream_t stream) {
    const xn_step *step = &plan->step;
    cudaError_t e = cudaSuccess;
    if (plan->how.from_part) {
        const size_t unit = xn_datatype_bytes((xn_datatype)step->conv.input_datatype);
        const size_t bytes = (size_t)xn_conv_input_elements(&step->conv) * unit;
        e = cudaMemcpy2DAsync(around->part, bytes,
                              xn_cuda_part_at(*input, &step->input_view, step->conv.input_datatype),
                              (size_t)step->input_view.pitch * unit, bytes, (size_t)images,
                              cudaMemcpyDeviceToDevice, stream);
        *input = around->part;
    }
    if (plan->how.from_bytes) {
        e = xn_cuda_words_launch(&step->conv, images, (const uint8_t *)*input, around->words,
                                 stream);
        *input = around->words;
    }
    return e;
}

static cudaError_t enqueue_conv(const xn_plan *plan, const xn_prepared *prepared, int64_t images,
                                const xn_step_io *io, cudaStream_t stream) {
    const xn_step *step = &plan->step;
    const xn_cuda_choice *how = &plan->how;
    const xn_cuda_chip *chip = &plan->stream->device->chip;
    const xn_epilogue_args all = xn_cuda_epilogue_args(step, prepared, io);
    xn_epilogue_args out = all;
    xn_cuda_scratch scratch = {plan->stream->workspace, plan->max_images, 0, false};
    const xn_cuda_around around = xn_cuda_around_take(plan, &scratch);
    const void *input = io->input;
    if (!keep_state(&plan->how, images, chip))
        return cudaErrorInvalidValue;
    cudaError_t e = make_input(plan, images, &around, &input, stream);
    if (how->finish) {
        out.output = around.reals;
        out.output_gap = 0;
    }
    if (how->to_bytes)
        out.bits = around.bits;
    if (e == cudaSuccess)
        e = run_path(plan, prepared, input, &out, &scratch, stream);
    if (e == cudaSuccess && how->finish) {
        const xn_op_args finish = xn_op_finish_args_of(step, images, around.reals, &all);
        e = xn_cuda_op_launch(&finish, chip->overlaps, stream);
    }
    if (e == cudaSuccess && how->to_bytes)
        e = xn_cuda_bytes_launch(&step->conv, images, around.bits, (uint8_t *)io->bits, stream);
    return e;
}

xn_op_args xn_cuda_op_args(const xn_plan *plan, const xn_prepared *prepared, int64_t images,
                           const xn_step_io *io) {
    const xn_epilogue_args epilogue = xn_cuda_epilogue_args(&plan->step, prepared, io);
    xn_cuda_scratch scratch = {plan->stream->workspace, plan->max_images, 0, false};
    const xn_op_inputs in = {io->input, io->second, prepared ? prepared->scale : NULL,
                             xn_cuda_op_take(plan, &scratch)};
    return xn_op_args_of(&plan->step, images, &in, &epilogue);
}

static cudaError_t enqueue_stem(const xn_plan *plan, const xn_prepared *prepared, int64_t images,
                                const xn_step_io *io, cudaStream_t stream) {
    const xn_epilogue_args epilogue = xn_cuda_epilogue_args(&plan->step, prepared, io);
    xn_cuda_stem_io in = {};
    in.input = io->input;
    in.filters = xn_cuda_part_of(prepared, xn_cuda_stem_part(plan));
    in.border = (const float *)xn_cuda_part_of(prepared, XN_CUDA_PART_STEM_BORDER);
    in.scale = prepared->scale;
    in.planes = prepared->source->planes;
    return xn_cuda_stem_launch(&plan->step, images, &plan->stream->device->chip, &in, &epilogue,
                               stream);
}

static cudaError_t enqueue_top_k(const xn_plan *plan, const xn_prepared *prepared, int64_t images,
                                 const xn_step_io *io, cudaStream_t stream) {
    const xn_cuda_chip *chip = &plan->stream->device->chip;
    const xn_epilogue_args epilogue = xn_cuda_epilogue_args(&plan->step, prepared, io);
    xn_cuda_scratch scratch = {plan->stream->workspace, plan->max_images, 0, false};
    const xn_cuda_top_k_room room = xn_cuda_top_k_take(&plan->step, chip, &scratch);
    xn_cuda_top_k_io in = {};
    in.input = io->input;
    in.output = io->output;
    if (plan->step.conv.mode == XN_MODE_XNOR) {
        in.rows = (const uint32_t *)xn_cuda_part_of(prepared, XN_CUDA_PART_CODES);
        in.weights = prepared->source;
        in.uniform = prepared->uniform;
    }
    return xn_cuda_top_k_launch(&plan->step, images, chip, &room, &in, &epilogue, stream);
}

cudaError_t xn_cuda_enqueue(const xn_plan *plan, const xn_prepared *prepared, int64_t images,
                            const xn_step_io *io, cudaStream_t stream) {
    const int32_t kind = plan->step.kind;
    if (kind != XN_STEP_CONV && kind != XN_STEP_STEM && kind != XN_STEP_TOP_K) {
        const xn_op_args args = xn_cuda_op_args(plan, prepared, images, io);
        return xn_cuda_op_launch(&args, plan->stream->device->chip.overlaps, stream);
    }
    if (!xn_cuda_weights_have(prepared, xn_cuda_plan_wants(plan, prepared)))
        return cudaErrorInvalidValue;
    return kind == XN_STEP_STEM    ? enqueue_stem(plan, prepared, images, io, stream)
           : kind == XN_STEP_TOP_K ? enqueue_top_k(plan, prepared, images, io, stream)
                                   : enqueue_conv(plan, prepared, images, io, stream);
}

/* Layers of a stage that the steps begin with. */
static int layers_of(const xn_step *steps, int count) {
    int n = 0;
    while (n < count && xn_cuda_stage_takes(&steps[n]))
        n++;
    return n;
}

int xn_cuda_fuses(const xn_step *steps, int count, const int32_t *reads) {
    const int stage = xn_cuda_stage_length(steps, count, reads);
    const int layers = stage > 1 ? layers_of(steps, stage) : 0;
    const int rest =
        layers < count ? xn_cuda_strided_length(steps + layers, count - layers, reads) : 1;
    return rest > 1 && (!layers || stage == layers + 2) ? layers + rest : stage;
}

int xn_cuda_stage_pool_of(const xn_enqueued *first, int layers) {
    if (layers == first->fused)
        return 0;
    return first[layers].plan->step.kind == XN_STEP_AVG_POOL ? layers : layers + 1;
}

bool xn_cuda_stage_of(const xn_enqueued *first, xn_cuda_stage_io *io) {
    const xn_plan *plan = first->plan;
    const xn_cuda_chip *chip = &plan->stream->device->chip;
    const int64_t images = first->io.batch->images;
    *io = {};
    while (io->layers < first->fused && xn_cuda_stage_takes(&first[io->layers].plan->step))
        io->layers++;
    if (io->layers < 2 || plan->stream->path)
        return false;
    const int pool = xn_cuda_stage_pool_of(first, io->layers);
    const xn_conv *made = &first[pool].plan->step.conv;
    io->pools = pool > 0;
    io->whole = io->pools && made->out_height * made->out_width == 1;
    io->cut = xn_cuda_stage_cut_of(&plan->step, io->layers, io->whole, images, chip);
    if (!io->cut.band && io->whole) {
        io->pools = io->whole = false;
        io->cut = xn_cuda_stage_cut_of(&plan->step, io->layers, false, images, chip);
    }
    return io->cut.band > 0;
}

static bool set_stage_layer(const xn_enqueued *step, xn_cuda_stage_layer *layer) {
    const xn_epilogue_args e = xn_cuda_epilogue_args(&step->plan->step, step->prepared, &step->io);
    layer->filters = (const uint32_t *)xn_cuda_part_of(step->prepared, XN_CUDA_PART_STAGE);
    layer->factor = e.factor;
    layer->bias = e.bias;
    layer->shift = e.shift;
    return layer->filters != NULL;
}

xn_status xn_cuda_enqueue_stage(const xn_enqueued *first, const xn_cuda_stage_io *stage,
                                xn_error *error) {
    const xn_stream *s = first->plan->stream;
    xn_cuda_stage_io io = *stage;
    io.bits = (const uint32_t *)first->io.input;
    io.residual = first->io.residual;
    io.words = (uint32_t *)first[io.layers - 1].io.bits;
    if (io.pools)
        io.pooled = first[xn_cuda_stage_pool_of(first, io.layers)].io.output;
    else
        io.output = first[io.layers - 1].io.output;
    for (int i = 0; i < io.layers; i++)
        if (!set_stage_layer(first + i, &io.layer[i]))
            return xn_fail(error, XN_ERR_INTERNAL, NULL,
                           "a stage is run with weights that were not made ready for it");
    return xn_cuda_check(xn_cuda_stage_launch(&first->plan->step, first->io.batch->images,
                                              &s->device->chip, &io, s->stream),
                         "launching a stage", error);
}

bool xn_cuda_strided_of(const xn_enqueued *first, xn_cuda_strided_cut *cut) {
    const xn_plan *plan = first->plan;
    *cut = {};
    if (!xn_cuda_strided_takes(&plan->step) || plan->stream->path ||
        !xn_cuda_is_finite(first[2].prepared))
        return false;
    *cut =
        xn_cuda_strided_cut_of(&plan->step, first->io.batch->images, &plan->stream->device->chip);
    return cut->filters > 0;
}

xn_status xn_cuda_enqueue_strided(const xn_enqueued *first, const xn_cuda_strided_cut *cut,
                                  xn_error *error) {
    const xn_stream *s = first->plan->stream;
    const xn_enqueued *shortcut = first + 2;
    const xn_epilogue_args e =
        xn_cuda_epilogue_args(&first->plan->step, first->prepared, &first->io);
    xn_cuda_strided_io io = {};
    io.bits = (const uint32_t *)first->io.input;
    io.filters = (const uint32_t *)xn_cuda_part_of(first->prepared, XN_CUDA_PART_STAGE);
    io.prefix = (const int32_t *)xn_cuda_part_of(first->prepared, XN_CUDA_PART_PREFIX);
    io.factor = e.factor;
    io.bias = e.bias;
    io.pooled = shortcut->io.input;
    io.reals = xn_cuda_part_of(shortcut->prepared, XN_CUDA_PART_FP16_REALS);
    io.exponent = (const int32_t *)xn_cuda_part_of(shortcut->prepared, XN_CUDA_PART_EXPONENTS);
    io.out = xn_cuda_epilogue_args(&shortcut->plan->step, shortcut->prepared, &shortcut->io);
    if (!io.filters || !io.prefix || !io.reals || !io.exponent)
        return xn_fail(error, XN_ERR_INTERNAL, NULL,
                       "a strided layer is run with weights that were not made ready for it");
    return xn_cuda_check(xn_cuda_strided_launch(&first->plan->step, &shortcut->plan->step,
                                                first->io.batch->images, &s->device->chip, cut, &io,
                                                s->stream),
                         "launching a strided layer", error);
}

xn_precision xn_cuda_precision(const xn_plan *plan, const xn_prepared *prepared) {
    const uint64_t wanted = xn_cuda_plan_wants(plan, prepared);
    const bool real = wanted & XN_CUDA_WANT(XN_CUDA_PART_REALS); /* real_gemm.cu runs */
    return plan->step.conv.mode != XN_MODE_XNOR && !real && xn_cuda_weights_have(prepared, wanted)
               ? (xn_precision)plan->step.conv.precision
               : XN_PRECISION_FP32;
}
