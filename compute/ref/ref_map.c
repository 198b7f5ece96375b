/* ref_map.c: kinds of step that take each value for itself, and softmax, which takes a pixel. */
#include "ref.h"

#include <math.h>

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
    const xn_step *s = image->step;
    double level = rint((double)((float)value / s->quantum));
    (void)c;
    if (level < (double)s->low)
        level = (double)s->low;
    if (level > (double)s->high)
        level = (double)s->high;
    return level * (double)s->quantum;
}

void xn_ref_map(const xn_ref_image *image) {
    each(image, itself);
}

void xn_ref_mul(const xn_ref_image *image) {
    each(image, gated);
}

void xn_ref_sigmoid(const xn_ref_image *image) {
    each(image, logistic);
}

void xn_ref_quantize(const xn_ref_image *image) {
    each(image, quantized);
}

void xn_ref_softmax(const xn_ref_image *image) {
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
