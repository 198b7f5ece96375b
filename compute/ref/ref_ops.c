/* ref_ops.c: the arithmetic of every kind of step but conv and stem. */
#include "ref.h"

#include <math.h>

/* ---- pools ---- */

/* The values of channel c under the window of output (y, x), one after the other. */
typedef struct window {
    const xn_conv *conv;
    const float *channel;
    int64_t top, left;
    int32_t i, j;
} window;

static window window_at(const xn_ref_image *image, int32_t c, int32_t y, int32_t x) {
    const xn_conv *v = &image->step->conv;
    return (window){.conv = v,
                    .channel = image->input + (int64_t)c * v->height * v->width,
                    .top = (int64_t)y * v->stride_h - v->pad_top,
                    .left = (int64_t)x * v->stride_w - v->pad_left};
}

/* The next value that lies in the image; false when there is none left. */
static bool next_value(window *w, double *value) {
    const xn_conv *v = w->conv;
    while (w->i < v->kernel_h) {
        int64_t y = w->top + (int64_t)w->i * v->dilation_h;
        int64_t x = w->left + (int64_t)w->j * v->dilation_w;
        if (++w->j == v->kernel_w) {
            w->j = 0;
            w->i++;
        }
        if (y >= 0 && y < v->height && x >= 0 && x < v->width) {
            *value = (double)w->channel[y * v->width + x];
            return true;
        }
    }
    return false;
}

static double extreme(window *w, bool least) {
    double best = least ? INFINITY : -INFINITY, value;
    while (next_value(w, &value))
        if (least ? value < best : value > best)
            best = value;
    return best;
}

static double mean(window *w, bool count_padding) {
    double sum = 0, value;
    int64_t values = 0;
    for (; next_value(w, &value); values++)
        sum += value;
    return sum / (double)(count_padding ? (int64_t)w->conv->kernel_h * w->conv->kernel_w : values);
}

static void pool(const xn_ref_image *image) {
    const xn_step *s = image->step;
    const xn_conv *v = &s->conv;
    const bool average = s->kind == XN_STEP_AVG_POOL;
    for (int32_t c = 0; c < v->channels; c++) {
        const bool least = s->least && image->weights->scale[c] < 0;
        for (int32_t y = 0; y < v->out_height; y++) {
            for (int32_t x = 0; x < v->out_width; x++) {
                window w = window_at(image, c, y, x);
                xn_ref_finish(image, c, y, x,
                              average ? mean(&w, s->attributes.count_padding) : extreme(&w, least),
                              1);
            }
        }
    }
}

/* ---- kinds that take each value by itself ---- */

typedef double (*element)(const xn_ref_image *image, int32_t c, double value);

static void each(const xn_ref_image *image, element function) {
    const xn_conv *v = &image->step->conv;
    int64_t at = 0;
    for (int32_t c = 0; c < v->channels; c++)
        for (int32_t y = 0; y < v->height; y++)
            for (int32_t x = 0; x < v->width; x++, at++)
                xn_ref_finish(image, c, y, x, function(image, c, (double)image->input[at]), 1);
}

static double itself(const xn_ref_image *image, int32_t c, double value) {
    (void)image, (void)c;
    return value;
}

static double gated(const xn_ref_image *image, int32_t c, double value) {
    const xn_step *s = image->step;
    return value * xn_ref_read_real(s->second_datatype, image->second, s->second_view.offset + c);
}

static double logistic(const xn_ref_image *image, int32_t c, double value) {
    (void)image, (void)c;
    return 1 / (1 + exp(-value));
}

/* value / quantum in fp32, as the other backends have it: halves must be found alike. */
static double quantized(const xn_ref_image *image, int32_t c, double value) {
    const xn_attributes *a = &image->step->attributes;
    double level = rint((double)((float)value / a->quantum));
    (void)c;
    if (level < (double)a->low)
        level = (double)a->low;
    if (level > (double)a->high)
        level = (double)a->high;
    return level * (double)a->quantum;
}

/* ---- kinds that take a pixel ---- */

static void softmax(const xn_ref_image *image) {
    const xn_conv *v = &image->step->conv;
    const int64_t pixels = (int64_t)v->height * v->width;
    for (int64_t at = 0; at < pixels; at++) {
        const float *pixel = image->input + at;
        float greatest = -INFINITY;
        double sum = 0;
        for (int32_t c = 0; c < v->channels; c++)
            greatest = fmaxf(greatest, pixel[c * pixels]);
        const double most = (double)greatest;
        for (int32_t c = 0; c < v->channels; c++)
            sum += exp((double)pixel[c * pixels] - most);
        for (int32_t c = 0; c < v->channels; c++)
            xn_ref_finish(image, c, (int32_t)(at / v->width), (int32_t)(at % v->width),
                          exp((double)pixel[c * pixels] - most) / sum, 1);
    }
}

/* ---- all ---- */

static const element elements[XN_STEP_KIND_COUNT] = {
    [XN_STEP_MAP] = itself,
    [XN_STEP_MUL] = gated,
    [XN_STEP_SIGMOID] = logistic,
    [XN_STEP_QUANTIZE] = quantized,
};

static void (*const others[XN_STEP_KIND_COUNT])(const xn_ref_image *image) = {
    [XN_STEP_CONV] = xn_ref_conv, [XN_STEP_STEM] = xn_ref_stem, [XN_STEP_MAX_POOL] = pool,
    [XN_STEP_AVG_POOL] = pool,    [XN_STEP_SOFTMAX] = softmax,  [XN_STEP_TOP_K] = xn_ref_top_k,
};

void xn_ref_run(const xn_ref_image *image) {
    const int32_t kind = image->step->kind;
    if (elements[kind])
        each(image, elements[kind]);
    else
        others[kind](image);
}
