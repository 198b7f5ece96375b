/* real_source.c: see real.h. */
#include "parallel.h"
#include "real.h"
#include "xn_mem.h"

enum { WAVE_BYTES = 8 << 20, COPY_ROWS = 32, EVERY_OTHER_TAPS = 25 };

/* Every other column takes two loads and a shuffle each time a tap reads it, the copy one time
 * more: measured, 3x3 is a fifth faster without, 7x7 slower. */
bool xn_cpu_source_in_place(const xn_conv *conv) {
    return conv->input_datatype == XN_FP32 &&
           (conv->stride_w == 1 ||
            (conv->stride_w == 2 && (int64_t)conv->kernel_h * conv->kernel_w <= EVERY_OTHER_TAPS));
}

static xn_status lay_out_in_place(const xn_conv *conv, xn_cpu_real_state *state, xn_error *error) {
    state->rows.column = xn_mem_zalloc((size_t)conv->kernel_w, sizeof *state->rows.column);
    if (!state->rows.column)
        return xn_fail(error, XN_ERR_NO_MEMORY, NULL,
                       "no memory for the plan of a kernel of width %d", conv->kernel_w);
    for (int32_t k = 0; k < conv->kernel_w; k++)
        state->rows.column[k] = (int64_t)k * conv->dilation_w - conv->pad_left;
    state->rows.pitch = conv->width;
    return XN_OK;
}

xn_status xn_cpu_source_create(const xn_conv *conv, int64_t max_images, xn_cpu_real_state *state,
                               xn_cpu_sizer *shared, xn_cpu_sizer *slice, xn_error *error) {
    state->in_place = xn_cpu_source_in_place(conv);
    state->wave = (int32_t)xn_cpu_min(max_images, INT32_MAX);
    state->offset[XN_CPU_SOURCE_TEMP] = xn_cpu_take(slice, (size_t)conv->width, sizeof(float));
    if (state->in_place)
        return lay_out_in_place(conv, state, error);
    xn_status status = xn_cpu_rows_create(conv, &state->rows, error);
    if (status)
        return status;
    size_t image; /* floats */
    bool fits = xn_mul_size((size_t)conv->channels * (size_t)conv->height,
                            (size_t)state->rows.pitch, &image);
    int64_t wave = fits && image <= WAVE_BYTES / sizeof(float)
                       ? (int64_t)(WAVE_BYTES / sizeof(float) / image)
                       : 1;
    state->wave = (int32_t)xn_cpu_min(max_images, wave);
    shared->failed |= !fits;
    if (fits)
        state->offset[XN_CPU_SOURCE_ROWS] =
            xn_cpu_take(shared, image, (size_t)state->wave * sizeof(float));
    return XN_OK;
}

static float *copied_row(const xn_cpu_source *s, int64_t slot, int32_t c, int32_t y) {
    float *rows =
        (float *)(void *)(xn_cpu_shared(s->run->plan) + s->state->offset[XN_CPU_SOURCE_ROWS]);
    return rows + ((slot * s->conv->channels + c) * s->conv->height + y) * s->state->rows.pitch;
}

const float *xn_cpu_source_row(const xn_cpu_source *s, int64_t slot, int32_t c, int32_t y) {
    if (s->state->in_place)
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

static void copy_task(void *context, int64_t unit, int thread) {
    const xn_cpu_source *s = context;
    const xn_conv *conv = s->conv;
    float *temp = (float *)(void *)(xn_cpu_slice(s->run->plan, thread) +
                                    s->state->offset[XN_CPU_SOURCE_TEMP]);
    int64_t copies = xn_cpu_div_up(conv->height, COPY_ROWS);
    int64_t y0 = unit % copies * COPY_ROWS, rest = unit / copies;
    int32_t y1 = (int32_t)xn_cpu_min(y0 + COPY_ROWS, conv->height);
    int32_t c = (int32_t)(rest % conv->channels);
    int64_t slot = rest / conv->channels;
    for (int32_t y = (int32_t)y0; y < y1; y++)
        if (is_read(conv, y))
            xn_cpu_rows_copy(
                conv, &s->state->rows,
                xn_cpu_row_fp32(s->run->plan->kernels, conv, s->images[slot].input, c, y, temp),
                copied_row(s, slot, c, y));
}

void xn_cpu_source_fill(const xn_cpu_source *s) {
    xn_cpu_source copy = *s;
    if (!s->state->in_place)
        xn_cpu_for(s->run->threads,
                   s->count * s->conv->channels * xn_cpu_div_up(s->conv->height, COPY_ROWS),
                   copy_task, &copy);
}
