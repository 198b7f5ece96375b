/* bk_model.c: the formulas on a padded copy of the image, where no tap is ever outside. */
#include "bk_model.h"

#include "xn_mem.h"

#include <float.h>
#include <math.h>

/* One image with its border: what it holds there, and whether a position is a real one. */
typedef struct board {
    int64_t height, width;
    float *values; /* [C][height][width]; pad_value in the border */
    bool *inside;  /* [height][width] */
} board;

static board board_make(const xn_conv *v) {
    board made = {.height = (int64_t)v->height + v->pad_top + v->pad_bottom,
                  .width = (int64_t)v->width + v->pad_left + v->pad_right};
    size_t area = (size_t)(made.height * made.width);
    made.values = xn_mem_alloc((size_t)v->channels * area * sizeof *made.values);
    made.inside = xn_mem_alloc(area * sizeof *made.inside);
    ck_assert(made.values && made.inside);
    return made;
}

static void board_paint(board *b, const xn_conv *v, const float *image) {
    for (int64_t y = 0; y < b->height; y++) {
        for (int64_t x = 0; x < b->width; x++) {
            int64_t at = y * b->width + x, from_y = y - v->pad_top, from_x = x - v->pad_left;
            bool inside = from_y >= 0 && from_y < v->height && from_x >= 0 && from_x < v->width;
            b->inside[at] = inside;
            for (int64_t c = 0; c < v->channels; c++)
                b->values[c * b->height * b->width + at] =
                    inside ? image[(c * v->height + from_y) * v->width + from_x]
                           : (float)v->pad_value;
        }
    }
}

/* What one filter finds at one place. */
typedef struct sums {
    double dot, absolute;   /* of mode xnor; absolute: of |I| inside the image */
    double real, magnitude; /* of the others: I * W; magnitude of its finite terms */
} sums;

static int sign(float value) {
    if (value < 0 || value != value)
        return -1;
    return 1;
}

static sums sum_at(const board *b, const xn_conv *v, const float *filter, int64_t group,
                   int64_t top, int64_t left) {
    sums s = {0};
    int64_t area = b->height * b->width, taps = (int64_t)v->kernel_h * v->kernel_w;
    for (int64_t tap = 0; tap < taps; tap++) {
        int64_t at = (top + tap / v->kernel_w * v->dilation_h) * b->width + left +
                     tap % v->kernel_w * v->dilation_w;
        bool counts = b->inside[at] || v->pad_value != 0;
        const float *values = b->values + group * v->group_channels * area + at;
        for (int64_t c = 0; counts && c < v->group_channels; c++) {
            float value = values[c * area], weight = filter[c * taps + tap];
            if (v->mode == XN_MODE_XNOR) {
                s.dot += sign(value) * sign(weight);
                s.absolute += b->inside[at] ? fabs((double)value) : 0;
                continue;
            }
            double term = (double)value * (v->mode == XN_MODE_BWN ? sign(weight) : (double)weight);
            s.real += term;
            s.magnitude += isfinite(term) ? fabs(term) : 0;
        }
    }
    return s;
}

static double factor_of(const xn_weights *w, int64_t o) {
    int64_t count = (int64_t)w->group_channels * w->kernel_h * w->kernel_w;
    double sum = 0;
    if (w->scale)
        return (double)w->scale[o];
    for (int64_t i = 0; i < count; i++)
        sum += fabs((double)w->real[o * count + i]) / (double)count;
    return sum;
}

/* Magnitude; 0 for what is not finite. */
static double size_of(double value) {
    return isfinite(value) ? fabs(value) : 0;
}

static bool overflows(double value) {
    return size_of(value) > (double)FLT_MAX / 4;
}

/* The least denormal, twice: one rounding to it, and one to spare. */
static const double TINY = 0x1p-148;

static bk_expected expect_xnor(const xn_conv *v, const sums *s, double factor, double bias) {
    double count = (double)v->group_channels * v->kernel_h * v->kernel_w;
    double k = v->epilogue.k ? s->absolute / count : 1;
    double used = v->epilogue.factor == XN_FACTOR_NONE ? 1 : factor;
    double term = s->dot * used * k;
    return (bk_expected){
        .value = term + bias,
        .magnitude = size_of(term) + size_of(bias),
        .slack = TINY * (2 + count * size_of(s->dot * used) + size_of(s->dot * k) + size_of(k)),
        .overflows = overflows(s->dot * used) || overflows(s->dot * k) || overflows(used * k) ||
                     overflows(term + bias),
    };
}

static bk_expected expect_real(const xn_conv *v, const sums *s, double factor, double bias) {
    bool scaled = v->epilogue.factor != XN_FACTOR_NONE;
    double used = scaled ? factor : 1;
    double count = (double)v->group_channels * v->kernel_h * v->kernel_w;
    double magnitude = s->magnitude * size_of(used) + size_of(bias);
    /* a sum that rounding may make 0 or not, times infinity, is NaN or not */
    bool cancels = !isfinite(used) && fabs(s->real) <= 1e-5 * s->magnitude;
    return (bk_expected){
        .value = (scaled ? s->real * factor : s->real) + bias,
        .magnitude = magnitude,
        .slack = TINY * (2 + count * (1 + size_of(used)) + s->magnitude),
        .loose = cancels,
        .overflows = overflows(s->magnitude) || overflows(magnitude),
    };
}

static void model_image(const bk_problem *p, const board *b, bk_expected *out) {
    const xn_conv *v = &p->conv;
    const xn_weights *w = p->weights;
    int64_t filter = (int64_t)w->group_channels * w->kernel_h * w->kernel_w;
    for (int64_t o = 0; o < v->out_channels; o++) {
        double factor = factor_of(w, o), bias = w->bias ? (double)w->bias[o] : 0;
        for (int64_t y = 0; y < v->out_height; y++) {
            for (int64_t x = 0; x < v->out_width; x++) {
                sums s = sum_at(b, v, w->real + o * filter, o / v->group_out_channels,
                                y * v->stride_h, x * v->stride_w);
                *out++ = v->mode == XN_MODE_XNOR ? expect_xnor(v, &s, factor, bias)
                                                 : expect_real(v, &s, factor, bias);
            }
        }
    }
}

bk_expected *bk_model(const bk_problem *p) {
    int64_t outputs = xn_conv_output_elements(&p->conv);
    bk_expected *all = xn_mem_zalloc((size_t)(p->images * outputs), sizeof *all);
    ck_assert_ptr_nonnull(all);
    board b = board_make(&p->conv);
    for (int64_t n = 0; n < p->images; n++) {
        board_paint(&b, &p->conv, p->real + n * xn_conv_input_elements(&p->conv));
        model_image(p, &b, all + n * outputs);
    }
    xn_mem_free(b.inside);
    xn_mem_free(b.values);
    return all;
}
