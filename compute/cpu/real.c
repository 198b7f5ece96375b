/* real.c: modes bwn (real inputs, binary weights) and float (plain convolution).
 *
 * Phase 1 copies the images into padded rows (rows.c) of fp32, so that in phase 2 each tap of an
 * output row is one contiguous row of floats: sums of rows, vectors along x. bwn adds a row or its
 * negation by flipping the sign bit; alpha is a factor of the epilogue.
 *
 * Rows outside the image are left out for pad value 0; columns outside it hold 0, which adds
 * nothing but where the weight is Inf or NaN. That, and sums that overflow in fp32 though the
 * result does not, show as a row that is not finite: such a row is computed again in double, tap by
 * tap over the outputs that the tap is inside for. */
#include "cpu.h"
#include "xn_arith.h"

#include <string.h>

enum {
    REALS,   /* shared: float [wave][C][H][pitch] */
    PAD,     /* shared: float [pitch]: a row outside the image, pad value +-1 */
    TAPS,    /* const float *[filter] */
    WEIGHTS, /* float [filter]: of the taps in TAPS, where that is not all */
    ACC,     /* float [OW] */
    EXACT,   /* double [OW] */
    TEMP,    /* float [W] */
};

enum { WAVE_BYTES = 32 << 20, COPY_ROWS = 32 };

static xn_status layout(xn_plan *plan, xn_error *error) {
    const xn_conv *conv = &plan->conv;
    xn_status status = xn_cpu_rows_create(conv, &plan->rows, error);
    if (status)
        return status;
    size_t pitch = (size_t)plan->rows.pitch, outputs = (size_t)conv->out_width;
    size_t filter = (size_t)conv->group_channels * (size_t)conv->kernel_h * (size_t)conv->kernel_w;
    size_t image; /* floats */
    bool fits = xn_mul_size((size_t)conv->channels * (size_t)conv->height, pitch, &image);
    int64_t wave = fits && image <= WAVE_BYTES / sizeof(float)
                       ? (int64_t)(WAVE_BYTES / sizeof(float) / image)
                       : 1;
    plan->wave = (int32_t)xn_cpu_min(plan->max_images, wave);

    xn_cpu_sizer shared = {.failed = !fits}, slice = {0};
    if (fits)
        plan->offset[REALS] = xn_cpu_take(&shared, image, (size_t)plan->wave * sizeof(float));
    plan->offset[PAD] = xn_cpu_take(&shared, pitch, sizeof(float));
    plan->offset[TAPS] = xn_cpu_take(&slice, filter, sizeof(float *));
    plan->offset[WEIGHTS] = xn_cpu_take(&slice, filter, sizeof(float));
    plan->offset[ACC] = xn_cpu_take(&slice, outputs, sizeof(float));
    plan->offset[EXACT] = xn_cpu_take(&slice, outputs, sizeof(double));
    plan->offset[TEMP] = xn_cpu_take(&slice, (size_t)conv->width, sizeof(float));
    if (shared.failed || slice.failed)
        return xn_fail(error, XN_ERR_NO_MEMORY, NULL, "the scratch memory's size overflows");
    plan->shared_bytes = shared.bytes;
    plan->thread_bytes = slice.bytes;
    plan->image_ns = 0.6 * (double)xn_conv_operations(conv) / (plan->kernels->byte_lanes / 4) +
                     0.15 * (double)xn_conv_input_elements(conv) +
                     0.15 * (double)xn_conv_output_elements(conv);
    return XN_OK;
}

/* One wave: `images` are those of the wave, in slots 0.. of the shared array. */
typedef struct job {
    const xn_cpu_run *run;
    const xn_plan *plan;
    const xn_conv *conv;
    const xn_cpu_image *images;
    int64_t copies;        /* phase 1: units of a channel */
    int64_t bands, splits; /* phase 2: of rows, and of a group's output channels */
    int32_t band;          /* output rows */
} job;

static float *row_of(const job *j, int64_t slot, int32_t c, int32_t in_y) {
    float *reals = (float *)(void *)(xn_cpu_shared(j->plan) + j->plan->offset[REALS]);
    int64_t row = (slot * j->conv->channels + c) * j->conv->height + in_y;
    return reals + row * j->plan->rows.pitch;
}

static float *pad_row(const job *j) {
    return (float *)(void *)(xn_cpu_shared(j->plan) + j->plan->offset[PAD]);
}

/* ---- phase 1 ---- */

static void fill(float *to, int32_t n, float value) {
    for (int32_t x = 0; x < n; x++)
        to[x] = value;
}

static void copy_row(const job *j, const float *row, float *to) {
    const xn_conv *conv = j->conv;
    const xn_cpu_rows *rows = &j->plan->rows;
    for (int32_t s = 0; s < rows->segment_count; s++) {
        const xn_cpu_segment *segment = &rows->segments[s];
        float *part = to + segment->offset;
        int32_t first, last;
        xn_cpu_segment_inside(conv, segment, &first, &last);
        fill(part, first, (float)conv->pad_value);
        fill(part + last, segment->count - last, (float)conv->pad_value);
        for (int32_t x = first; x < last; x++)
            part[x] = row[(int64_t)x * conv->stride_w + segment->start];
    }
}

static void copy_task(void *context, int64_t unit, int thread) {
    const job *j = context;
    const xn_conv *conv = j->conv;
    float *temp = (float *)(void *)(xn_cpu_slice(j->plan, thread) + j->plan->offset[TEMP]);
    int64_t y0 = unit % j->copies * COPY_ROWS, rest = unit / j->copies;
    int32_t y1 = (int32_t)xn_cpu_min(y0 + COPY_ROWS, conv->height);
    int32_t c = (int32_t)(rest % conv->channels);
    int64_t slot = rest / conv->channels;
    for (int32_t y = (int32_t)y0; y < y1; y++)
        copy_row(j, xn_cpu_row_fp32(conv, j->images[slot].input, c, y, temp),
                 row_of(j, slot, c, y));
}

/* ---- phase 2 ---- */

typedef struct walk {
    const job *j;
    unsigned char *slice;
    int64_t slot;
    int32_t group;
    int32_t start, i0, i1; /* of the output row: input row of tap row 0, valid tap rows */
    int32_t count;         /* taps in TAPS */
} walk;

static void *array(const walk *w, int which) {
    return w->slice + w->j->plan->offset[which];
}

/* Where tap row i of channel c of the group reads; NULL where it is outside and adds nothing. */
static const float *tap_row(const walk *w, int32_t c, int32_t i) {
    const xn_conv *conv = w->j->conv;
    if (i >= w->i0 && i < w->i1)
        return row_of(w->j, w->slot, w->group * conv->group_channels + c,
                      w->start + i * conv->dilation_h);
    return conv->pad_value ? pad_row(w->j) : NULL;
}

static void find_taps(walk *w) {
    const xn_conv *conv = w->j->conv;
    const float **tap = array(w, TAPS);
    w->count = 0;
    for (int32_t c = 0; c < conv->group_channels; c++)
        for (int32_t i = 0; i < conv->kernel_h; i++) {
            const float *row = tap_row(w, c, i);
            if (!row)
                continue;
            for (int32_t k = 0; k < conv->kernel_w; k++)
                tap[w->count++] = row + w->j->plan->rows.column[k];
        }
}

/* The weights of the taps in TAPS. */
static const float *tap_weights(const walk *w, const float *filter) {
    const xn_conv *conv = w->j->conv;
    if (w->count == w->j->run->prepared->filter)
        return filter;
    float *to = array(w, WEIGHTS), *start = to;
    size_t columns = (size_t)conv->kernel_w, rows = (size_t)(w->i1 - w->i0) * columns;
    for (int32_t c = 0; c < conv->group_channels; c++, to += rows)
        memcpy(to, filter + ((size_t)c * (size_t)conv->kernel_h + (size_t)w->i0) * columns,
               rows * sizeof *to);
    return start;
}

/* The sum in double, adding each tap only to the outputs where it counts. */
static const double *exact_row(const walk *w, const float *filter) {
    const xn_conv *conv = w->j->conv;
    double *sums = array(w, EXACT);
    memset(sums, 0, (size_t)conv->out_width * sizeof *sums);
    for (int32_t c = 0; c < conv->group_channels; c++)
        for (int32_t i = 0; i < conv->kernel_h; i++) {
            const float *row = tap_row(w, c, i);
            for (int32_t k = 0; row && k < conv->kernel_w; k++) {
                float weight = filter[((size_t)c * (size_t)conv->kernel_h + (size_t)i) *
                                          (size_t)conv->kernel_w +
                                      (size_t)k];
                if (conv->mode == XN_MODE_BWN)
                    weight = xn_sign_bit(weight) ? 1.0f : -1.0f;
                int32_t first = 0, last = conv->out_width;
                if (conv->pad_value == 0)
                    xn_cpu_valid_outputs((int64_t)k * conv->dilation_w - conv->pad_left,
                                         conv->stride_w, conv->width, conv->out_width, &first,
                                         &last);
                const float *tap = row + w->j->plan->rows.column[k];
                for (int32_t x = first; x < last; x++)
                    sums[x] += (double)weight * tap[x];
            }
        }
    return sums;
}

static void output_row(const walk *w, int32_t y, int32_t o) {
    const job *j = w->j;
    const xn_conv *conv = j->conv;
    const xn_prepared *prepared = j->run->prepared;
    const xn_cpu_kernels *kernels = j->plan->kernels;
    const float *filter = prepared->real + (size_t)o * (size_t)prepared->filter;
    unsigned char *to = xn_cpu_output_row(conv, j->images[w->slot].output, o, y);
    float *acc = array(w, ACC);
    xn_cpu_epilogue epilogue;
    xn_cpu_epilogue_of(conv, prepared, o, &epilogue);
    kernels->sum_products(array(w, TAPS), tap_weights(w, filter), w->count, conv->out_width,
                          conv->mode == XN_MODE_BWN, acc);
    if (kernels->all_finite(acc, conv->out_width))
        xn_cpu_emit_f32(kernels, &epilogue, acc, conv->out_width, to);
    else
        xn_cpu_emit_f64(&epilogue, exact_row(w, filter), conv->out_width, to);
}

static void sums_task(void *context, int64_t unit, int thread) {
    const job *j = context;
    const xn_conv *conv = j->conv;
    int64_t split = unit % j->splits, rest = unit / j->splits;
    int32_t y0 = (int32_t)(rest % j->bands) * j->band;
    int32_t y1 = (int32_t)xn_cpu_min((int64_t)y0 + j->band, conv->out_height);
    rest /= j->bands;
    walk w = {.j = j, .slice = xn_cpu_slice(j->plan, thread)};
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
    job j = {.run = run, .plan = plan, .conv = conv};
    j.copies = xn_cpu_div_up(conv->height, COPY_ROWS);
    fill(pad_row(&j), (int32_t)plan->rows.pitch, (float)conv->pad_value);
    for (int64_t first = 0; first < count; first += plan->wave) {
        int64_t images = xn_cpu_min(plan->wave, count - first);
        int64_t whole = images * conv->groups;
        int64_t wanted = run->threads > 1 ? xn_cpu_div_up(3 * (int64_t)run->threads, whole) : 1;
        j.images = plan->images + first;
        j.band = (int32_t)xn_cpu_div_up(conv->out_height, xn_cpu_min(wanted, conv->out_height));
        j.bands = xn_cpu_div_up(conv->out_height, j.band);
        j.splits = xn_cpu_min(conv->group_out_channels, xn_cpu_div_up(wanted, j.bands));
        xn_cpu_for(run->threads, images * conv->channels * j.copies, copy_task, &j);
        xn_cpu_for(run->threads, whole * j.bands * j.splits, sums_task, &j);
    }
}

static bool fits(const xn_conv *conv) {
    return conv->mode != XN_MODE_XNOR;
}

const xn_cpu_path xn_cpu_real = {.fits = fits, .layout = layout, .run = run_images};
