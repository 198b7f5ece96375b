/* ops.c: steps that are no convolutions: plans and runs (ops.h). */
#include "ops.h"

#include "parallel.h"
#include "xn_mem.h"

enum {
    CHUNK = 1024,     /* most output pixels of a unit, and least: */
    LEAST_CHUNK = 64, /* what threads are given less of is not worth the unit */
    HELD =
        16 << 10, /* floats of several channels that a unit holds, where chunks can be so short */
    UNITS = 4,    /* a thread */
};

static bool is_pool(const xn_step *step) {
    return step->kind == XN_STEP_MAX_POOL || step->kind == XN_STEP_AVG_POOL;
}

static bool fits(const xn_step *step) {
    return step->kind != XN_STEP_CONV && step->kind != XN_STEP_STEM &&
           (step->conv.input_datatype == XN_BITS || step->input_layout != XN_LAYOUT_NHWC ||
            !is_pool(step));
}

/* Measured (NOTES.md): an element that is read, one that is written. */
static double cost_ns(const xn_step *step, const void *kernels) {
    const xn_conv *conv = &step->conv;
    const double inputs = (double)xn_conv_input_elements(conv);
    const double outputs = (double)xn_conv_output_elements(conv);
    const double taps = (double)conv->kernel_h * conv->kernel_w;
    (void)kernels;
    return 0.1 * inputs + (0.3 + (is_pool(step) ? 0.1 * taps : 0)) * outputs + 200;
}

/* ---- the plan ---- */

static void destroy(void *state) {
    xn_cpu_ops_state *s = state;
    if (!s)
        return;
    xn_mem_free(s->columns);
    xn_mem_free(s);
}

static int64_t out_pixels(const xn_conv *conv) {
    return (int64_t)conv->out_height * conv->out_width;
}

/* Whole rows of a pool. */
static int64_t most_pixels(const xn_step *step) {
    const xn_conv *conv = &step->conv;
    const int64_t rows = xn_cpu_max(1, CHUNK / conv->out_width);
    if (is_pool(step))
        return xn_cpu_min(rows, conv->out_height) * conv->out_width;
    int64_t pixels = CHUNK;
    if (step->kind == XN_STEP_SOFTMAX)
        pixels = xn_cpu_max(1, xn_cpu_min(CHUNK, HELD / conv->channels));
    return xn_cpu_min(pixels, out_pixels(conv));
}

/* Input pixels that the most output pixels read. */
static int64_t most_reach(const xn_step *step, int64_t chunk) {
    const xn_conv *conv = &step->conv;
    if (!is_pool(step))
        return chunk;
    const int64_t rows = (chunk / conv->out_width - 1) * conv->stride_h +
                         (int64_t)(conv->kernel_h - 1) * conv->dilation_h + 1;
    return xn_cpu_min(rows, conv->height) * conv->width;
}

static void lay_out(const xn_step *step, int64_t reach, xn_cpu_ops_state *state,
                    xn_cpu_sizer *slice) {
    const xn_conv *conv = &step->conv;
    const size_t in = (size_t)reach, out = (size_t)state->chunk, channels = (size_t)conv->channels;
    const size_t block = (size_t)xn_cpu_min(XN_CPU_OPS_BLOCK, conv->channels);
    const bool bits = conv->input_datatype == XN_BITS, softmax = step->kind == XN_STEP_SOFTMAX;
    const bool nhwc = !bits && step->input_layout == XN_LAYOUT_NHWC;
    const bool in_place = conv->input_datatype == XN_FP32 && !nhwc;
    size_t pixels = 0;
    if (nhwc && !xn_mul_size(in, block, &pixels))
        slice->failed = true;
    state->offset[XN_CPU_OPS_IN_WORDS] = xn_cpu_take(slice, bits ? in : 0, sizeof(uint32_t));
    state->offset[XN_CPU_OPS_PIXELS] = xn_cpu_take(slice, pixels, sizeof(float));
    state->offset[XN_CPU_OPS_FLOATS] =
        xn_cpu_take(slice, in_place ? 0 : in, (state->by_planes ? block : 1) * sizeof(float));
    state->offset[XN_CPU_OPS_ACC] =
        xn_cpu_take(slice, out, (softmax ? channels : 1) * sizeof(float));
    state->offset[XN_CPU_OPS_VALUES] = xn_cpu_take(slice, out, sizeof(float));
    state->offset[XN_CPU_OPS_WORDS] =
        xn_cpu_take(slice, conv->epilogue.bits ? out : 0, sizeof(uint32_t));
    state->offset[XN_CPU_OPS_ROWS] =
        xn_cpu_take(slice, is_pool(step) ? (size_t)conv->kernel_h : 0, sizeof(float *));
    state->offset[XN_CPU_OPS_ROW] =
        xn_cpu_take(slice, softmax ? out : (size_t)conv->width, sizeof(float));
    state->offset[XN_CPU_OPS_SUMS] =
        xn_cpu_take(slice, softmax ? out : (size_t)conv->out_width, sizeof(double));
}

static xn_status create(xn_plan *plan, xn_error *error) {
    const xn_step *step = &plan->step;
    const int64_t chunk = most_pixels(step), reach = most_reach(step, chunk);
    xn_cpu_sizer shared = {0}, slice = {0};
    xn_cpu_ops_state *state = plan->state = xn_mem_zalloc(1, sizeof *state);
    if (state && step->kind == XN_STEP_AVG_POOL)
        state->columns = xn_mem_zalloc((size_t)step->conv.out_width, sizeof *state->columns);
    if (!state || (step->kind == XN_STEP_AVG_POOL && !state->columns))
        return xn_fail(error, XN_ERR_NO_MEMORY, NULL, "no memory for the plan of a step");
    if (state->columns)
        xn_cpu_ops_count_columns(step, state->columns);
    if (is_pool(step))
        xn_cpu_ops_find_inner(step, state);
    state->conv = step->conv;
    state->conv.groups = 1;
    state->conv.group_channels = state->conv.channels;
    state->conv.group_out_channels = state->conv.out_channels;
    state->chunk = (int32_t)chunk;
    slice.failed = chunk > INT32_MAX || reach > INT32_MAX;
    lay_out(step, reach, state, &slice);
    return xn_cpu_set_scratch(plan, &shared, &slice, error);
}

/* Nothing but the values of the channels, as they are. */
static xn_status prepare(const xn_plan *plan, const xn_prepared *prepared, xn_error *error) {
    (void)plan, (void)prepared, (void)error;
    return XN_OK;
}

/* ---- a run ---- */

static void task(void *context, int64_t unit, int thread) {
    const xn_cpu_ops_job *j = context;
    const xn_conv *conv = j->conv;
    const int64_t block = unit / j->chunks % j->blocks;
    xn_cpu_ops_unit u = {.j = j,
                         .image = &j->images[unit / j->chunks / j->blocks],
                         .slice = xn_cpu_slice(j->run->plan, thread),
                         .first = (int32_t)(block * XN_CPU_OPS_BLOCK)};
    u.last = (int32_t)xn_cpu_min(u.first + XN_CPU_OPS_BLOCK, conv->channels);
    u.out_pixel = unit % j->chunks * j->chunk;
    u.out_n = (int32_t)xn_cpu_min(j->chunk, out_pixels(conv) - u.out_pixel);
    if (is_pool(j->step))
        xn_cpu_ops_pool(&u);
    else if (j->step->kind == XN_STEP_SOFTMAX)
        xn_cpu_ops_softmax(&u);
    else
        xn_cpu_ops_map(&u);
}

/* Pixels of a unit: less than the most where there would be too few units. */
static int32_t chunk_of(const xn_cpu_ops_job *j, int64_t count) {
    const int32_t most = j->state->chunk, threads = j->run->threads;
    const int64_t planes = count * j->blocks;
    const int64_t wanted = threads > 1 ? xn_cpu_div_up((int64_t)UNITS * threads, planes) : 1;
    int64_t unit = xn_cpu_max(xn_cpu_div_up(out_pixels(j->conv), wanted), LEAST_CHUNK);
    if (is_pool(j->step))
        unit = xn_cpu_div_up(unit, j->conv->out_width) * j->conv->out_width;
    return (int32_t)xn_cpu_min(most, unit);
}

static void run_images(const xn_cpu_run *run, const xn_cpu_image *images, int64_t count) {
    const xn_cpu_ops_state *state = run->plan->state;
    const xn_epilogue *e = &state->conv.epilogue;
    xn_cpu_ops_job j = {.run = run,
                        .step = &run->plan->step,
                        .conv = &state->conv,
                        .state = state,
                        .kernels = run->plan->path_kernels,
                        .images = images,
                        .blocks = xn_cpu_div_up(state->conv.channels, XN_CPU_OPS_BLOCK),
                        .linear = e->factor != XN_FACTOR_NONE || e->bias};
    if (j.step->kind == XN_STEP_SOFTMAX)
        j.blocks = 1;
    j.chunk = chunk_of(&j, count);
    j.chunks = xn_cpu_div_up(out_pixels(j.conv), j.chunk);
    xn_cpu_for(run->threads, count * j.blocks * j.chunks, task, &j);
}

const xn_cpu_path xn_cpu_ops = {
    .kernels = XN_CPU_PATH_KERNELS(ops, avx512, avx512, avx512),
    .writes_bits = xn_cpu_writes_all_bits,
    .fits = fits,
    .cost_ns = cost_ns,
    .create = create,
    .destroy = destroy,
    .prepare = prepare,
    .run = run_images,
};
