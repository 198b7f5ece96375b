/* ref_conv.c: the formulas of xn_conv.h, read aloud. */
#include "ref.h"

#include "xn_arith.h"

#include <math.h>

/* One output position: its group and the input coordinates of its tap (0, 0). */
typedef struct place {
    const xn_conv *conv;
    const xn_prepared *weights;
    const float *image;
    int32_t group;
    int64_t top, left;
} place;

/* The input value under tap (i, j) of the group's channel c; false outside the image. */
static bool tap_value(const place *p, int32_t c, int32_t i, int32_t j, float *value) {
    const xn_conv *v = p->conv;
    int64_t y = p->top + (int64_t)i * v->dilation_h, x = p->left + (int64_t)j * v->dilation_w;
    if (y < 0 || y >= v->height || x < 0 || x >= v->width)
        return false;
    int64_t channel = (int64_t)p->group * v->group_channels + c;
    *value = p->image[(channel * v->height + y) * v->width + x];
    return true;
}

static float packed_at(const xn_weights *w, int64_t o, int32_t c, int32_t i, int32_t j) {
    const uint32_t *tap = w->bits + ((o * w->kernel_h + i) * w->kernel_w + j) * w->words;
    return tap[c / 32] >> (c % 32) & 1 ? 1 : -1;
}

static float weight_at(const place *p, int32_t o, int32_t c, int32_t i, int32_t j) {
    const xn_prepared *w = p->weights;
    if (!w->real)
        return packed_at(w->packed, o, c, i, j);
    int64_t channel = (int64_t)o * w->group_channels + c;
    return w->real[(channel * w->kernel_h + i) * w->kernel_w + j];
}

static int32_t sign_of(float value) {
    return xn_sign_bit(value) ? 1 : -1;
}

static int32_t dot_at(const place *p, int32_t o) {
    int32_t dot = 0;
    for (int32_t c = 0; c < p->conv->group_channels; c++) {
        for (int32_t i = 0; i < p->conv->kernel_h; i++) {
            for (int32_t j = 0; j < p->conv->kernel_w; j++) {
                float value;
                bool inside = tap_value(p, c, i, j, &value);
                int32_t a = inside ? sign_of(value) : p->conv->pad_value;
                dot += a * sign_of(weight_at(p, o, c, i, j));
            }
        }
    }
    return dot;
}

/* I conv W, or I conv sign(W). A 0 outside adds nothing, even to a weight that is NaN. */
static double real_conv_at(const place *p, int32_t o, bool binary_weights) {
    double sum = 0;
    for (int32_t c = 0; c < p->conv->group_channels; c++) {
        for (int32_t i = 0; i < p->conv->kernel_h; i++) {
            for (int32_t j = 0; j < p->conv->kernel_w; j++) {
                float value, weight = weight_at(p, o, c, i, j);
                if (!tap_value(p, c, i, j, &value)) {
                    if (p->conv->pad_value == 0)
                        continue;
                    value = (float)p->conv->pad_value;
                }
                sum += (double)value * (binary_weights ? (double)sign_of(weight) : (double)weight);
            }
        }
    }
    return sum;
}

/* Eq. 10: the mean over the kernel's box of A, itself the mean over the group's channels of |I|;
 * outside counts 0, the divisors stay. */
static double k_at(const place *p) {
    const xn_conv *v = p->conv;
    double box = 0;
    for (int32_t i = 0; i < v->kernel_h; i++) {
        for (int32_t j = 0; j < v->kernel_w; j++) {
            double sum = 0;
            for (int32_t c = 0; c < v->group_channels; c++) {
                float value;
                if (tap_value(p, c, i, j, &value))
                    sum += fabs((double)value);
            }
            box += sum / v->group_channels;
        }
    }
    return box / ((double)v->kernel_h * v->kernel_w);
}

int32_t xn_ref_dot(const xn_ref_image *image, int32_t o) {
    const place p = {.conv = &image->step->conv, .weights = image->weights, .image = image->input};
    return dot_at(&p, o);
}

void xn_ref_conv(const xn_ref_image *image) {
    const xn_conv *v = &image->step->conv;
    place p = {.conv = v, .weights = image->weights, .image = image->input};
    for (p.group = 0; p.group < v->groups; p.group++) {
        for (int32_t y = 0; y < v->out_height; y++) {
            for (int32_t x = 0; x < v->out_width; x++) {
                p.top = (int64_t)y * v->stride_h - v->pad_top;
                p.left = (int64_t)x * v->stride_w - v->pad_left;
                double k = v->epilogue.k ? k_at(&p) : 1;
                for (int32_t i = 0; i < v->group_out_channels; i++) {
                    int32_t o = p.group * v->group_out_channels + i;
                    double acc = v->mode == XN_MODE_XNOR
                                     ? dot_at(&p, o)
                                     : real_conv_at(&p, o, v->mode == XN_MODE_BWN);
                    xn_ref_finish(image, o, y, x, acc, k);
                }
            }
        }
    }
}
