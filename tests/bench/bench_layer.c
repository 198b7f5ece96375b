/* bench_layer.c: see bench_layer.h. */
#include "bench_layer.h"

#include "xn_arith.h"
#include "xn_mem.h"
#include "xn_rng.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SAMPLE_ROWS = 32, SAMPLE_FILTERS = 8 };

/* ---- data ---- */

/* Element i of a sequence is the same however many threads fill it. */
static void fill(float *values, int64_t count, uint64_t seed, bool halves) {
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < count; i++) {
        xn_rng rng = {seed + (uint64_t)i * 0x9e3779b97f4a7c15u};
        values[i] = xn_rng_float(&rng);
        if (halves)
            values[i] = xn_fp16_to_fp32(xn_fp32_to_fp16(values[i]));
    }
}

void xn_bench_layer_make(const xn_bench_shape *s, xn_bench_layer *out) {
    const int64_t elements = s->images * s->channels * s->side * s->side;
    const int64_t filter = s->channels / s->groups * s->kernel * s->kernel;
    const int32_t spread = (int32_t)sqrt((double)filter) + 1;
    xn_rng rng = {77};
    *out = (xn_bench_layer){.shape = *s};
    out->real = xn_bench_take((size_t)(s->filters * filter), sizeof(float));
    out->input = xn_bench_take((size_t)elements, sizeof(float));
    out->threshold = xn_bench_take((size_t)s->filters, sizeof(int32_t));
    out->flip = xn_bench_take((size_t)s->filters / 32 + 1, sizeof(uint32_t));
    fill(out->real, s->filters * filter, 7, false);
    fill(out->input, elements, 11, true);
    for (int64_t o = 0; o < s->filters; o++) {
        out->threshold[o] = (int32_t)xn_rng_below(&rng, 2u * (unsigned)spread + 1) - spread;
        out->flip[o / 32] |= (uint32_t)xn_rng_below(&rng, 2) << o % 32;
    }
    out->conv = xn_bench_resolve(s, s->side, s->padding, XN_MODE_XNOR, XN_SCALING_XNOR);
    out->weights = xn_bench_weights(s, out->real);
}

void xn_bench_layer_free(xn_bench_layer *l) {
    xn_weights_free(l->weights);
    xn_mem_free(l->real);
    xn_mem_free(l->input);
    xn_mem_free(l->scaled);
    xn_mem_free(l->dots);
    xn_mem_free(l->threshold);
    xn_mem_free(l->flip);
}

/* ---- what is right ---- */

static bool has_dots(xn_bench_kind kind) {
    return kind >= XN_BENCH_PACKED_INT32;
}

static xn_conv of_dots(xn_conv conv) {
    conv.epilogue = xn_conv_epilogue(XN_MODE_XNOR, XN_SCALING_NONE, false, false, XN_INT32);
    return conv;
}

static bool is_near(double got, double right) {
    return fabs(got - right) <= 1e-5 * fabs(right);
}

/* The first rows of image 0 and the first filters, by ref; outputs there do not depend on the
 * rest. */
static void check_sample(const xn_bench_layer *l, bool dots) {
    const xn_bench_shape *s = &l->shape;
    const int64_t extent = s->dilation * (s->kernel - 1) + 1;
    const bool all = s->side <= SAMPLE_ROWS + extent;
    const int64_t rows = all ? s->side : SAMPLE_ROWS + extent;
    const int64_t filters =
        s->groups > 1 || s->filters < SAMPLE_FILTERS ? s->filters : SAMPLE_FILTERS;
    xn_bench_shape part_shape = *s;
    part_shape.images = 1;
    part_shape.filters = filters;
    xn_conv conv =
        xn_bench_resolve(&part_shape, rows, all ? s->padding : 0, XN_MODE_XNOR, XN_SCALING_XNOR);
    xn_weights *weights = xn_bench_weights(&part_shape, l->real);
    const int64_t plane = (int64_t)l->conv.out_height * l->conv.out_width;
    const int64_t part = (int64_t)conv.out_height * conv.out_width;
    float *input = xn_bench_take((size_t)(s->channels * rows * s->side), sizeof(float));
    float *right = xn_bench_take((size_t)(filters * part), sizeof(float));
    if (dots)
        conv = of_dots(conv);
    for (int64_t c = 0; c < s->channels; c++)
        memcpy(input + c * rows * s->side, l->input + c * s->side * s->side,
               (size_t)(rows * s->side) * sizeof(float));
    xn_bench_run_on("ref", &conv, weights, 1, input, right);
    for (int64_t i = 0; i < filters * part; i++) {
        const int64_t at = i / part * plane + i % part;
        const bool good = dots ? ((const int32_t *)right)[i] == l->dots[at]
                               : is_near((double)l->scaled[at], (double)right[i]);
        if (!good)
            xn_bench_fail("check", "the CPU backend differs from ref");
    }
    xn_mem_free(input);
    xn_mem_free(right);
    xn_weights_free(weights);
}

static void expect(xn_bench_layer *l, xn_bench_kind kind) {
    const size_t count = (size_t)(l->shape.images * xn_conv_output_elements(&l->conv));
    if (has_dots(kind) && !l->dots) {
        const xn_conv conv = of_dots(l->conv);
        l->dots = xn_bench_take(count, sizeof(int32_t));
        xn_bench_run_on("cpu", &conv, l->weights, l->shape.images, l->input, l->dots);
        check_sample(l, true);
    }
    if (!has_dots(kind) && !l->scaled) {
        l->scaled = xn_bench_take(count, sizeof(float));
        xn_bench_run_on("cpu", &l->conv, l->weights, l->shape.images, l->input, l->scaled);
        check_sample(l, false);
    }
}

/* ---- kinds ---- */

xn_conv xn_bench_layer_conv(const xn_bench_layer *l, xn_bench_kind kind) {
    xn_conv conv = l->conv;
    if (kind == XN_BENCH_FP16)
        conv.input_datatype = conv.epilogue.datatype = XN_FP16;
    if (has_dots(kind))
        conv = of_dots(conv);
    if (kind == XN_BENCH_PACKED_FP16)
        conv.epilogue = xn_conv_epilogue(XN_MODE_XNOR, XN_SCALING_ALPHA, false, false, XN_FP16);
    return conv;
}

size_t xn_bench_input_bytes(const xn_bench_layer *l, xn_bench_kind kind, xn_bench_words words) {
    const xn_conv conv = xn_bench_layer_conv(l, kind);
    if (!has_dots(kind))
        return (size_t)l->shape.images * xn_conv_input_bytes(&conv);
    return (size_t)(l->shape.images * conv.groups * conv.height * conv.width) * (size_t)words.in *
           sizeof(uint32_t);
}

size_t xn_bench_output_bytes(const xn_bench_layer *l, xn_bench_kind kind, xn_bench_words words) {
    const xn_conv conv = xn_bench_layer_conv(l, kind);
    if (kind != XN_BENCH_PACKED_PACKED)
        return (size_t)l->shape.images * xn_conv_output_bytes(&conv);
    return (size_t)(l->shape.images * conv.out_height * conv.out_width) * (size_t)words.out *
           sizeof(uint32_t);
}

static void pack_image(const xn_conv *c, const float *image, int32_t words, uint32_t *bits) {
    const int64_t plane = (int64_t)c->height * c->width;
    for (int64_t channel = 0; channel < c->channels; channel++) {
        const int64_t group = channel / c->group_channels, at = channel % c->group_channels;
        for (int64_t i = 0; i < plane; i++)
            bits[(group * plane + i) * words + at / 32] |= xn_sign_bit(image[channel * plane + i])
                                                           << at % 32;
    }
}

void xn_bench_fill_input(const xn_bench_layer *l, xn_bench_kind kind, xn_bench_words words,
                         void *out) {
    const size_t bytes = xn_bench_input_bytes(l, kind, words);
    const int64_t count = xn_conv_input_elements(&l->conv), images = l->shape.images;
    memset(out, 0, bytes);
#pragma omp parallel for schedule(static)
    for (int64_t n = 0; n < images; n++) {
        const float *image = l->input + n * count;
        if (has_dots(kind))
            pack_image(&l->conv, image, words.in,
                       (uint32_t *)out + (size_t)n * (bytes / (size_t)images / sizeof(uint32_t)));
        else if (kind == XN_BENCH_FP32)
            memcpy((float *)out + n * count, image, (size_t)count * sizeof(float));
        else
            for (int64_t i = 0; i < count; i++)
                ((uint16_t *)out)[n * count + i] = xn_fp32_to_fp16(image[i]);
    }
}

/* ---- judging ---- */

static double alpha_of(const xn_bench_layer *l, int64_t filter) {
    const int64_t count = l->shape.channels / l->shape.groups * l->shape.kernel * l->shape.kernel;
    double sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += fabs((double)l->real[filter * count + i]);
    return sum / (double)count;
}

/* Within 1e-5, then rounded. */
static bool is_near_half(uint16_t got, double right) {
    const double slack = 1e-5 * fabs(right);
    const float low = xn_fp16_to_fp32(xn_fp32_to_fp16((float)(right - slack)));
    const float high = xn_fp16_to_fp32(xn_fp32_to_fp16((float)(right + slack)));
    const float value = xn_fp16_to_fp32(got);
    return value >= low && value <= high;
}

/* Of one plane of outputs: image n, filter o. */
static int64_t wrong_in_plane(const xn_bench_layer *l, xn_bench_kind kind, const void *got,
                              int64_t first, int64_t count, double alpha) {
    int64_t wrong = 0;
    for (int64_t i = first; i < first + count; i++)
        switch (kind) {
        case XN_BENCH_FP32:
            wrong += !is_near((double)((const float *)got)[i], (double)l->scaled[i]);
            break;
        case XN_BENCH_FP16:
            wrong += !is_near_half(((const uint16_t *)got)[i], (double)l->scaled[i]);
            break;
        case XN_BENCH_PACKED_INT32:
            wrong += ((const int32_t *)got)[i] != l->dots[i];
            break;
        default:
            wrong += !is_near_half(((const uint16_t *)got)[i], l->dots[i] * alpha);
        }
    return wrong;
}

/* Of one pixel of packed output. */
static int64_t wrong_words(const xn_bench_layer *l, const uint32_t *got, int32_t words,
                           int64_t image, int64_t pixel) {
    const int64_t plane = (int64_t)l->conv.out_height * l->conv.out_width;
    int64_t wrong = 0;
    for (int32_t w = 0; w < words; w++) {
        uint32_t right = 0;
        for (int32_t o = w * 32; o < w * 32 + 32 && o < l->conv.out_channels; o++) {
            const int32_t dot = l->dots[(image * l->conv.out_channels + o) * plane + pixel];
            right |= ((uint32_t)(dot >= l->threshold[o]) ^ (l->flip[o / 32] >> o % 32 & 1))
                     << o % 32;
        }
        wrong += got[(image * plane + pixel) * words + w] != right;
    }
    return wrong;
}

int64_t xn_bench_count_wrong(xn_bench_layer *l, xn_bench_kind kind, xn_bench_words words,
                             const void *got) {
    const int64_t plane = (int64_t)l->conv.out_height * l->conv.out_width;
    const int64_t images = l->shape.images, filters = l->shape.filters;
    int64_t wrong = 0;
    expect(l, kind);
#pragma omp parallel for schedule(static) reduction(+ : wrong)
    for (int64_t n = 0; n < images; n++) {
        if (kind == XN_BENCH_PACKED_PACKED)
            for (int64_t pixel = 0; pixel < plane; pixel++)
                wrong += wrong_words(l, got, words.out, n, pixel);
        else
            for (int64_t o = 0; o < filters; o++)
                wrong +=
                    wrong_in_plane(l, kind, got, (n * filters + o) * plane, plane, alpha_of(l, o));
    }
    return wrong;
}
