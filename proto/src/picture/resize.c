/* resize.c: resampling by a filter that is as wide as the step between outputs, so that nothing
 * aliases; across each row first, then down, each rounded to bytes. The arithmetic is Pillow's for
 * pictures of bytes: an output's centre lies at (i + 0.5) * in / out, a tap weighs the filter at
 * its distance from there, an output's weights are divided by their sum and rounded to integers of
 * XN_RESIZE_BITS. So every output has the same bits. */
#include "xn_picture_inside.h"

#include <math.h>
#include <string.h>

enum { PAIR_BITS = XN_RESIZE_PAIR_BITS };

typedef struct filter {
    double support; /* half its width, where it is not stretched */
    double (*at)(double x);
} filter;

static double bilinear(double x) {
    x = fabs(x);
    return x < 1 ? 1 - x : 0;
}

static double bicubic(double x) {
    const double a = -0.5;
    x = fabs(x);
    if (x < 1)
        return ((a + 2) * x - (a + 3)) * x * x + 1;
    return x < 2 ? (((x - 5) * x + 8) * x - 4) * a : 0;
}

static const filter filters[] = {
    [XN_PICTURE_BILINEAR] = {1, bilinear}, [XN_PICTURE_BICUBIC] = {2, bicubic}};

static double stretch_of(const xn_axis_shape *shape) {
    const double scale = (double)shape->in / (double)shape->out;
    return scale < 1 ? 1 : scale;
}

static int64_t taps_of(const xn_axis_shape *shape, const filter *f) {
    return 2 * (int64_t)ceil(f->support * stretch_of(shape)) + 1;
}

int64_t xn_axis_taps(const xn_axis_shape *shape, xn_picture_filter which) {
    return taps_of(shape, &filters[which]);
}

static int64_t pairs_of(int64_t taps) {
    return (taps + 1) / 2;
}

size_t xn_axis_bytes(const xn_axis_shape *shape, xn_picture_filter which) {
    const int64_t taps = taps_of(shape, &filters[which]);
    const size_t words = (size_t)(2 + taps) * sizeof(int32_t);
    return (size_t)shape->size * (words + (size_t)pairs_of(taps) * sizeof(xn_tap_pair));
}

/* Output i of the whole axis: its first input, the number of taps and their weights. */
static int32_t weigh(const xn_axis_shape *shape, const filter *f, int64_t i, int32_t *first,
                     int32_t *weights) {
    const double scale = (double)shape->in / (double)shape->out, stretch = stretch_of(shape);
    const double support = f->support * stretch, centre = ((double)i + 0.5) * scale;
    int64_t from = (int64_t)(centre - support + 0.5), to = (int64_t)(centre + support + 0.5);
    double sum = 0;
    from = from < 0 ? 0 : from;
    to = to > shape->in ? shape->in : to;
    for (int64_t t = from; t < to; t++)
        sum += f->at(((double)t - centre + 0.5) * (1 / stretch));
    for (int64_t t = from; t < to; t++) {
        double weight = f->at(((double)t - centre + 0.5) * (1 / stretch));
        weight = (sum != 0 ? weight / sum : weight) * (1 << XN_RESIZE_BITS);
        weights[t - from] = (int32_t)(weight < 0 ? weight - 0.5 : weight + 0.5);
    }
    *first = (int32_t)from;
    return (int32_t)(to - from);
}

/* Weights as pairs: weight = high << XN_RESIZE_PAIR_BITS | low, of an odd tap's other half 0. */
static void split(const int32_t *weights, int64_t taps, xn_tap_pair *out) {
    for (int64_t t = 0; t < taps; t += 2) {
        const int32_t a = weights[t], b = t + 1 < taps ? weights[t + 1] : 0;
        const int32_t low = (1 << PAIR_BITS) - 1;
        *out++ = (xn_tap_pair){{(int16_t)(a >> PAIR_BITS), (int16_t)(b >> PAIR_BITS)},
                               {(int16_t)(a & low), (int16_t)(b & low)}};
    }
}

void xn_axis_make(const xn_axis_shape *shape, xn_picture_filter which, void *memory, xn_axis *out) {
    const filter *f = &filters[which];
    *out = (xn_axis){
        .size = shape->size, .in = shape->in, .taps = taps_of(shape, f), .from = shape->in};
    out->pairs_per_output = pairs_of(out->taps);
    out->first = memory;
    out->count = out->first + out->size;
    out->weights = out->count + out->size;
    out->pairs = (xn_tap_pair *)(void *)(out->weights + out->size * out->taps);
    memset(out->weights, 0, (size_t)(out->size * out->taps) * sizeof *out->weights);
    for (int64_t i = 0; i < out->size; i++) {
        out->count[i] =
            weigh(shape, f, shape->begin + i, &out->first[i], out->weights + i * out->taps);
        split(out->weights + i * out->taps, out->taps, out->pairs + i * out->pairs_per_output);
        out->most = out->count[i] > out->most ? out->count[i] : out->most;
        const int64_t end = out->first[i] + out->count[i];
        out->from = out->first[i] < out->from ? out->first[i] : out->from;
        out->to = end > out->to ? end : out->to;
    }
}

/* ---- sums, one by one ---- */

static uint8_t to_byte(int32_t sum) {
    const int32_t value = sum >> XN_RESIZE_BITS;
    return (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value);
}

void xn_resize_output(const xn_axis *axis, int64_t i, const uint8_t *inputs, size_t step,
                      uint8_t *out) {
    const int32_t *weights = axis->weights + i * axis->taps, count = axis->count[i];
    int32_t sum = XN_RESIZE_HALF;
    for (int32_t t = 0; t < count; t++)
        sum += inputs[(size_t)t * step] * weights[t];
    *out = to_byte(sum);
}
