/* real_source.c: see real.h. */
#include "parallel.h"
#include "real.h"
#include "xn_mem.h"

#include <math.h>

enum {
    WAVE_BYTES = 8 << 20,
    COPY_ROWS = 32,
    EVERY_OTHER_TAPS = 25,
    MOST_COLUMNS = 1 << 16, /* of an image that is taken as one row */
    MOST_PADDING =
        4096, /* floats of a channel's rows that are read in place, with little in them */
};

xn_conv xn_cpu_source_flat(const xn_conv *conv) {
    xn_conv flat = *conv;
    const int64_t pixels = (int64_t)conv->height * conv->width;
    if (conv->kernel_h != 1 || conv->kernel_w != 1 || conv->stride_h != 1 || conv->stride_w != 1 ||
        conv->pad_top || conv->pad_left || conv->out_height != conv->height ||
        conv->out_width != conv->width || pixels > MOST_COLUMNS)
        return flat;
    flat.height = flat.out_height = 1;
    flat.width = flat.out_width = (int32_t)pixels;
    return flat;
}

/* Every other column takes two loads and a shuffle each time a tap reads it, the copy one time
 * more: measured, 3x3 is a fifth faster without, 7x7 slower. */
bool xn_cpu_source_in_image(const xn_conv *conv) {
    return conv->input_datatype == XN_FP32 &&
           (conv->stride_w == 1 ||
            (conv->stride_w == 2 && (int64_t)conv->kernel_h * conv->kernel_w <= EVERY_OTHER_TAPS));
}

/* Image rows under all outputs, the padding's with them. */
static int64_t rows_under(const xn_conv *conv) {
    return (int64_t)(conv->out_height - 1) * conv->stride_h +
           (int64_t)(conv->kernel_h - 1) * conv->dilation_h + 1;
}

bool xn_cpu_source_fits_in_place(const xn_conv *conv) {
    const double columns = fmin((double)conv->kernel_w, conv->stride_w) * conv->out_width +
                           (double)conv->kernel_w * conv->dilation_w;
    const double most = 2 * (double)conv->height * conv->width + MOST_PADDING;
    return rows_under(conv) <= INT32_MAX && (double)rows_under(conv) * columns <= most;
}

static xn_status lay_out_image(xn_cpu_real_state *state, xn_error *error) {
    const xn_conv *conv = &state->conv;
    state->rows.column = xn_mem_zalloc((size_t)conv->kernel_w, sizeof *state->rows.column);
    if (!state->rows.column)
        return xn_fail(error, XN_ERR_NO_MEMORY, NULL,
                       "no memory for the plan of a kernel of width %d", conv->kernel_w);
    for (int32_t k = 0; k < conv->kernel_w; k++)
        state->rows.column[k] = (int64_t)k * conv->dilation_w - conv->pad_left;
    state->rows.pitch = conv->width;
    return XN_OK;
}

/* Terms as in terms.h. */
static xn_status lay_out_in_place(xn_cpu_real_state *state, xn_error *error) {
    const xn_conv *conv = &state->conv;
    const int32_t taps = conv->kernel_h * conv->kernel_w;
    int64_t *to = state->offset =
        xn_mem_zalloc((size_t)taps, (size_t)conv->group_channels * sizeof *to);
    if (!to)
        return xn_fail(error, XN_ERR_NO_MEMORY, NULL, "no memory for the plan of a kernel of %dx%d",
                       conv->kernel_h, conv->kernel_w);
    state->top = conv->pad_top;
    state->height = (int32_t)rows_under(conv);
    for (int32_t tap = 0; tap < taps; tap++)
        for (int32_t c = 0; c < conv->group_channels; c++)
            *to++ =
                ((int64_t)c * state->height + (int64_t)(tap / conv->kernel_w) * conv->dilation_h) *
                    state->rows.pitch +
                state->rows.column[tap % conv->kernel_w];
    return XN_OK;
}

static xn_status lay_out_rows(int64_t max_images, xn_cpu_real_state *state, xn_cpu_sizer *shared,
                              xn_error *error) {
    const xn_conv *conv = &state->conv;
    size_t image; /* floats */
    xn_status status = xn_cpu_rows_create(conv, &state->rows, error);
    state->height = conv->height;
    if (!status && state->reading == XN_CPU_READ_IN_PLACE)
        status = lay_out_in_place(state, error);
    if (status)
        return status;
    bool fits = xn_mul_size((size_t)conv->channels * (size_t)state->height,
                            (size_t)state->rows.pitch, &image);
    int64_t wave = fits && image <= WAVE_BYTES / sizeof(float)
                       ? (int64_t)(WAVE_BYTES / sizeof(float) / image)
                       : 1;
    state->wave = (int32_t)xn_cpu_min(max_images, wave);
    shared->failed |= !fits;
    if (fits)
        state->offsets[XN_CPU_SOURCE_ROWS] =
            xn_cpu_take(shared, image, (size_t)state->wave * sizeof(float));
    return XN_OK;
}

xn_status xn_cpu_source_create(int64_t max_images, xn_cpu_real_state *state, xn_cpu_sizer *shared,
                               xn_cpu_sizer *slice, xn_error *error) {
    state->wave = (int32_t)xn_cpu_min(max_images, INT32_MAX);
    state->offsets[XN_CPU_SOURCE_TEMP] =
        xn_cpu_take(slice, (size_t)state->conv.width, sizeof(float));
    if (state->reading == XN_CPU_READ_IMAGE)
        return lay_out_image(state, error);
    return lay_out_rows(max_images, state, shared, error);
}

void xn_cpu_source_free(xn_cpu_real_state *state) {
    xn_cpu_rows_free(&state->rows);
    xn_mem_free(state->offset);
}

/* Of copied rows; y counts from the first of the image. */
static float *copied_row(const xn_cpu_source *s, int64_t slot, int32_t c, int32_t y) {
    const xn_cpu_real_state *state = s->state;
    float *rows =
        (float *)(void *)(xn_cpu_shared(s->run->plan) + state->offsets[XN_CPU_SOURCE_ROWS]);
    return rows +
           ((slot * s->conv->channels + c) * state->height + y + state->top) * state->rows.pitch;
}

const float *xn_cpu_source_row(const xn_cpu_source *s, int64_t slot, int32_t c, int32_t y) {
    if (s->state->reading == XN_CPU_READ_IMAGE)
        return (const float *)(const void *)s->images[slot].input +
               ((int64_t)c * s->conv->height + y) * s->conv->width;
    return copied_row(s, slot, c, y);
}

/* Whether a kernel row ever reads image row y. */
static bool is_read(const xn_conv *conv, int32_t y) {
    for (int32_t i = 0; i < conv->kernel_h; i++) {
        int64_t at = (int64_t)y + conv->pad_top - (int64_t)i * conv->dilation_h;
        if (at >= 0 && at % conv->stride_h == 0 && at / conv->stride_h < conv->out_height)
            return true;
    }
    return false;
}

/* A padded row is the row. */
static bool is_as_it_is(const xn_conv *conv, const xn_cpu_rows *rows) {
    return conv->stride_w == 1 && rows->segment_count == 1 && rows->segments[0].start == 0 &&
           rows->segments[0].count == conv->width;
}

static void copy_row(const xn_cpu_source *s, int64_t slot, int32_t c, int32_t y, float *temp) {
    const xn_conv *conv = s->conv;
    const xn_cpu_rows *rows = &s->state->rows;
    const xn_cpu_kernels *kernels = s->run->plan->kernels;
    float *to = copied_row(s, slot, c, y);
    if (y < 0 || y >= conv->height) {
        for (int64_t x = 0; x < rows->pitch; x++)
            to[x] = (float)conv->pad_value;
    } else if (is_read(conv, y)) {
        float *at = is_as_it_is(conv, rows) ? to : temp;
        const float *row = xn_cpu_row_fp32(kernels, conv, s->images[slot].input, c, y, at);
        if (row != to)
            xn_cpu_rows_copy(kernels, conv, rows, row, to);
    }
}

static void copy_task(void *context, int64_t unit, int thread) {
    const xn_cpu_source *s = context;
    const xn_cpu_real_state *state = s->state;
    float *temp =
        (float *)(void *)(xn_cpu_slice(s->run->plan, thread) + state->offsets[XN_CPU_SOURCE_TEMP]);
    int64_t copies = xn_cpu_div_up(state->height, COPY_ROWS);
    int64_t y0 = unit % copies * COPY_ROWS, rest = unit / copies;
    int64_t y1 = xn_cpu_min(y0 + COPY_ROWS, state->height);
    int32_t c = (int32_t)(rest % s->conv->channels);
    int64_t slot = rest / s->conv->channels;
    for (int64_t y = y0; y < y1; y++)
        copy_row(s, slot, c, (int32_t)(y - state->top), temp);
}

void xn_cpu_source_fill(const xn_cpu_source *s) {
    xn_cpu_source copy = *s;
    if (s->state->reading != XN_CPU_READ_IMAGE)
        xn_cpu_for(s->run->threads,
                   s->count * s->conv->channels * xn_cpu_div_up(s->state->height, COPY_ROWS),
                   copy_task, &copy);
}
