/* ref_pool.c: pools. */
#include "ref.h"

#include <math.h>

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

static void pool(const xn_ref_image *image, bool average) {
    const xn_step *s = image->step;
    const xn_conv *v = &s->conv;
    for (int32_t c = 0; c < v->channels; c++) {
        const bool least = s->least && image->weights->scale[c] < 0;
        for (int32_t y = 0; y < v->out_height; y++) {
            for (int32_t x = 0; x < v->out_width; x++) {
                window w = window_at(image, c, y, x);
                xn_ref_finish(image, c, y, x,
                              average ? mean(&w, s->count_padding) : extreme(&w, least), 1);
            }
        }
    }
}

void xn_ref_max_pool(const xn_ref_image *image) {
    pool(image, false);
}

void xn_ref_avg_pool(const xn_ref_image *image) {
    pool(image, true);
}
