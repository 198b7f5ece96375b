/* direct.c: modes bwn and float by direct sums of rows, for few filters a group (depth-wise): what
 * a panel costs there is more than what its filters gain.
 *
 * Phase 1 copies the images into padded rows of fp32 (real_source.c), so that in phase 2 each tap
 * of an output row is one contiguous row of floats: sums of rows, vectors along x.
 *
 * Rows outside the image are left out for pad value 0; columns outside it hold 0, which adds
 * nothing but where the weight is Inf or NaN. That, and sums that overflow in fp32 though the
 * result does not, show as a row that is not finite: such a row is computed again in double, tap by
 * tap over the outputs that the tap is inside for. */
#include "real.h"
#include "xn_arith.h"

enum {
    PAD = XN_CPU_SOURCE_OFFSETS, /* shared: float [pitch]: a row outside the image, pad value +-1 */
    TAPS,                        /* const float *[filter] */
    WEIGHTS,                     /* float [filter]: of the taps in TAPS */
    ACC,                         /* float [OW] */
    EXACT,                       /* double [OW] */
};

static xn_status layout(xn_plan *plan, xn_error *error) {
    const xn_conv *conv = &plan->conv;
    xn_cpu_sizer shared = {0}, slice = {0};
    xn_status status = xn_cpu_source_layout(plan, false, &shared, &slice, error);
    if (status)
        return status;
    size_t outputs = (size_t)conv->out_width;
    size_t filter = (size_t)conv->group_channels * (size_t)conv->kernel_h * (size_t)conv->kernel_w;
    plan->offset[PAD] = xn_cpu_take(&shared, (size_t)plan->rows.pitch, sizeof(float));
    plan->offset[TAPS] = xn_cpu_take(&slice, filter, sizeof(float *));
    plan->offset[WEIGHTS] = xn_cpu_take(&slice, filter, sizeof(float));
    plan->offset[ACC] = xn_cpu_take(&slice, outputs, sizeof(float));
    plan->offset[EXACT] = xn_cpu_take(&slice, outputs, sizeof(double));
    if (shared.failed || slice.failed)
        return xn_fail(error, XN_ERR_NO_MEMORY, NULL, "the scratch memory's size overflows");
    plan->shared_bytes = shared.bytes;
    plan->thread_bytes = slice.bytes;
    plan->image_ns = 0.6 * (double)xn_conv_operations(conv) / (plan->kernels->byte_lanes / 4) +
                     0.15 * (double)xn_conv_input_elements(conv) +
                     0.15 * (double)xn_conv_output_elements(conv);
    return XN_OK;
}

/* One wave. */
typedef struct job {
    xn_cpu_source source;
    int64_t bands, splits; /* units: of rows, and of a group's output channels */
    int32_t band;          /* output rows */
} job;

static float *pad_row(const xn_plan *plan) {
    return (float *)(void *)(xn_cpu_shared(plan) + plan->offset[PAD]);
}

typedef struct walk {
    const job *j;
    unsigned char *slice;
    int64_t slot;
    int32_t group;
    int32_t start, i0, i1; /* of the output row: input row of tap row 0, valid tap rows */
    int32_t count;         /* taps in TAPS */
} walk;

static void *array(const walk *w, int which) {
    return w->slice + w->j->source.plan->offset[which];
}

/* Where tap row i of channel c of the group reads; NULL where it is outside and adds nothing. */
static const float *tap_row(const walk *w, int32_t c, int32_t i) {
    const xn_conv *conv = w->j->source.conv;
    if (i >= w->i0 && i < w->i1)
        return xn_cpu_source_row(&w->j->source, w->slot, w->group * conv->group_channels + c,
                                 w->start + i * conv->dilation_h);
    return conv->pad_value ? pad_row(w->j->source.plan) : NULL;
}

static void find_taps(walk *w) {
    const xn_conv *conv = w->j->source.conv;
    const float **tap = array(w, TAPS);
    w->count = 0;
    for (int32_t c = 0; c < conv->group_channels; c++)
        for (int32_t i = 0; i < conv->kernel_h; i++) {
            const float *row = tap_row(w, c, i);
            if (!row)
                continue;
            for (int32_t k = 0; k < conv->kernel_w; k++)
                tap[w->count++] = row + w->j->source.plan->rows.column[k];
        }
}

/* The weights of the taps in TAPS. */
static const float *tap_weights(const walk *w, int32_t o) {
    const xn_conv *conv = w->j->source.conv;
    bool outside = conv->pad_value != 0;
    float *to = array(w, WEIGHTS), *start = to;
    for (int32_t c = 0; c < conv->group_channels; c++)
        for (int32_t i = outside ? 0 : w->i0; i < (outside ? conv->kernel_h : w->i1); i++)
            for (int32_t k = 0; k < conv->kernel_w; k++)
                *to++ = xn_cpu_real_weight(w->j->source.run->prepared, (xn_mode)conv->mode, o, c,
                                           i * conv->kernel_w + k);
    return start;
}

static void output_row(const walk *w, int32_t y, int32_t o) {
    const xn_cpu_source *source = &w->j->source;
    const xn_conv *conv = source->conv;
    const xn_cpu_kernels *kernels = source->plan->kernels;
    unsigned char *to = xn_cpu_output_row(conv, source->images[w->slot].output, o, y);
    float *acc = array(w, ACC);
    xn_cpu_epilogue epilogue;
    xn_cpu_epilogue_of(conv, source->run->prepared, o, &epilogue);
    kernels->sum_products(array(w, TAPS), tap_weights(w, o), w->count, conv->out_width, acc);
    if (kernels->all_finite(acc, conv->out_width)) {
        xn_cpu_emit_f32(kernels, &epilogue, acc, conv->out_width, to);
        return;
    }
    double *exact = array(w, EXACT);
    xn_cpu_source_exact(source, w->slot, o, y, 0, conv->out_width, exact);
    xn_cpu_emit_f64(&epilogue, exact, conv->out_width, to);
}

static void sums_task(void *context, int64_t unit, int thread) {
    const job *j = context;
    const xn_conv *conv = j->source.conv;
    int64_t split = unit % j->splits, rest = unit / j->splits;
    int32_t y0 = (int32_t)(rest % j->bands) * j->band;
    int32_t y1 = (int32_t)xn_cpu_min((int64_t)y0 + j->band, conv->out_height);
    rest /= j->bands;
    walk w = {.j = j, .slice = xn_cpu_slice(j->source.plan, thread)};
    w.group = (int32_t)(rest % conv->groups);
    w.slot = rest / conv->groups;
    int64_t channels = conv->group_out_channels, base = w.group * channels;
    int32_t first = (int32_t)(base + channels * split / j->splits);
    int32_t last = (int32_t)(base + channels * (split + 1) / j->splits);
    for (int32_t y = y0; y < y1; y++) {
        w.start = y * conv->stride_h - conv->pad_top;
        xn_valid_taps(w.start, conv->dilation_h, conv->kernel_h, conv->height, &w.i0, &w.i1);
        find_taps(&w);
        for (int32_t o = first; o < last; o++)
            output_row(&w, y, o);
    }
}

/* Rows are split first, then output channels, which repeat the search for taps. */
static void run_images(const xn_cpu_run *run, int64_t count) {
    const xn_plan *plan = run->plan;
    const xn_conv *conv = &plan->conv;
    job j = {.source = {.run = run, .plan = plan, .conv = conv}};
    for (int64_t x = 0; x < plan->rows.pitch; x++)
        pad_row(plan)[x] = (float)conv->pad_value;
    for (int64_t first = 0; first < count; first += plan->wave) {
        int64_t images = xn_cpu_min(plan->wave, count - first);
        int64_t whole = images * conv->groups;
        int64_t wanted = run->threads > 1 ? xn_cpu_div_up(3 * (int64_t)run->threads, whole) : 1;
        j.source.images = plan->images + first;
        j.source.count = images;
        j.band = (int32_t)xn_cpu_div_up(conv->out_height, xn_cpu_min(wanted, conv->out_height));
        j.bands = xn_cpu_div_up(conv->out_height, j.band);
        j.splits = xn_cpu_min(conv->group_out_channels, xn_cpu_div_up(wanted, j.bands));
        xn_cpu_source_fill(&j.source);
        xn_cpu_for(run->threads, whole * j.bands * j.splits, sums_task, &j);
    }
}

static bool fits(const xn_conv *conv) {
    return conv->mode != XN_MODE_XNOR;
}

const xn_cpu_path xn_cpu_direct = {.fits = fits, .layout = layout, .run = run_images};
