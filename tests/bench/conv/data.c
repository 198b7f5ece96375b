/* data.c: see data.h. */
#include "data.h"

#include "../../xn_rng.h"
#include "device/device.h"
#include "xn_arith.h"
#include "xn_mem.h"

#include <math.h>
#include <string.h>

enum { SAMPLE_ROWS = 32, SAMPLE_FILTERS = 8 };

/* ---- data ---- */

/* Values that fp16 has. Element i of a sequence is the same however many threads fill it. */
static void fill(float *values, int64_t count, uint64_t seed) {
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < count; i++) {
        xn_rng rng = {seed + (uint64_t)i * 0x9e3779b97f4a7c15u};
        values[i] = xn_fp16_to_fp32(xn_fp32_to_fp16(xn_rng_float(&rng)));
    }
}

/* The weights with a scale of 1 or -1 and a shift, so that the sign of the output is the bit. */
static xn_weights *make_bit_weights(const xn_bench_data *d) {
    const int64_t filters = d->shape.filters;
    float *scale = xn_bench_take((size_t)filters, sizeof(float));
    float *shift = xn_bench_take((size_t)filters, sizeof(float));
    for (int64_t o = 0; o < filters; o++) {
        const bool turned = d->flip[o / 32] >> o % 32 & 1;
        scale[o] = turned ? -1.0f : 1.0f;
        shift[o] = (float)(turned ? d->threshold[o] - 1 : -d->threshold[o]);
    }
    xn_weights *weights = xn_bench_bit_weights(&d->shape, d->real, scale, shift);
    xn_mem_free(scale);
    xn_mem_free(shift);
    return weights;
}

void xn_bench_data_make(const xn_bench_shape *s, xn_mode mode, xn_bench_data *out) {
    const int64_t elements = s->images * s->channels * s->side * s->side;
    const int64_t weights = xn_bench_weight_count(s);
    const int32_t spread = (int32_t)sqrt((double)(weights / s->filters)) + 1;
    xn_rng rng = {77};
    *out = (xn_bench_data){.shape = *s, .kind = xn_bench_kinds[XN_BENCH_FP32]};
    out->kind.mode = mode;
    out->real = xn_bench_take((size_t)weights, sizeof(float));
    out->input = xn_bench_take((size_t)elements, sizeof(float));
    out->threshold = xn_bench_take((size_t)s->filters, sizeof(int32_t));
    out->flip = xn_bench_take((size_t)s->filters / 32 + 1, sizeof(uint32_t));
    fill(out->real, weights, 7);
    fill(out->input, elements, 11);
    for (int64_t o = 0; o < s->filters; o++) {
        out->threshold[o] = (int32_t)xn_rng_below(&rng, 2u * (unsigned)spread + 1) - spread;
        out->flip[o / 32] |= (uint32_t)xn_rng_below(&rng, 2) << o % 32;
    }
    out->conv = xn_bench_resolve(s, &out->kind);
    out->weights = xn_bench_weights(s, out->real);
    out->bit_weights = make_bit_weights(out);
}

void xn_bench_data_free(xn_bench_data *d) {
    xn_weights_free(d->weights);
    xn_weights_free(d->bit_weights);
    xn_mem_free(d->real);
    xn_mem_free(d->input);
    xn_mem_free(d->outputs);
    xn_mem_free(d->magnitude);
    xn_mem_free(d->dots);
    xn_mem_free(d->threshold);
    xn_mem_free(d->flip);
    *d = (xn_bench_data){0};
}

/* ---- what is right ---- */

/* Whether what is right of a kind follows from the dots. */
static bool is_of_dots(const xn_bench_kind *kind) {
    return kind->mode == XN_MODE_XNOR && kind->scaling != XN_SCALING_XNOR;
}

/* The bound of fp32 sums in another order, as a part of the sum of the terms' magnitudes. */
static double sum_bound(const xn_conv *conv) {
    const double terms = (double)conv->group_channels * conv->kernel_h * conv->kernel_w;
    return 1e-6 + terms / 8 * 0x1p-23;
}

static double slack_of(const xn_bench_data *d, int64_t i) {
    if (d->kind.mode == XN_MODE_XNOR)
        return 1e-5 * fabs((double)d->outputs[i]);
    return sum_bound(&d->conv) * (double)d->magnitude[i];
}

/* The first rows of image 0 and the first filters, by ref; outputs there do not depend on the
 * rest. */
static void check_sample(const xn_bench_data *d, const xn_bench_kind *kind) {
    const xn_bench_shape *s = &d->shape;
    const int64_t extent = s->dilation * (s->kernel - 1) + 1;
    const bool all = s->side <= SAMPLE_ROWS + extent;
    const int64_t rows = all ? s->side : SAMPLE_ROWS + extent;
    xn_bench_shape part_shape = *s;
    part_shape.images = 1;
    if (s->groups == 1 && s->filters > SAMPLE_FILTERS)
        part_shape.filters = SAMPLE_FILTERS;
    const xn_conv conv = xn_bench_resolve_rows(&part_shape, rows, all ? s->padding : 0, kind);
    xn_weights *weights = xn_bench_weights(&part_shape, d->real);
    const int64_t plane = (int64_t)d->conv.out_height * d->conv.out_width;
    const int64_t part = (int64_t)conv.out_height * conv.out_width;
    float *input = xn_bench_take((size_t)(s->channels * rows * s->side), sizeof(float));
    float *right = xn_bench_take((size_t)(part_shape.filters * part), sizeof(float));
    for (int64_t c = 0; c < s->channels; c++)
        memcpy(input + c * rows * s->side, d->input + c * s->side * s->side,
               (size_t)(rows * s->side) * sizeof(float));
    xn_bench_run_on("ref", &conv, weights, 1, input, right);
    for (int64_t i = 0; i < part_shape.filters * part; i++) {
        const int64_t at = i / part * plane + i % part;
        const bool good = is_of_dots(kind)
                              ? ((const int32_t *)right)[i] == d->dots[at]
                              : fabs((double)d->outputs[at] - (double)right[i]) <= slack_of(d, at);
        if (!good)
            xn_bench_fail("check", "the CPU backend differs from ref");
    }
    xn_mem_free(input);
    xn_mem_free(right);
    xn_weights_free(weights);
}

/* By the CPU, of all images. */
static void *by_cpu(const xn_bench_data *d, const xn_bench_kind *kind, const float *input,
                    const xn_weights *weights) {
    const xn_conv conv = xn_bench_resolve(&d->shape, kind);
    void *out = xn_bench_take((size_t)d->shape.images, xn_conv_output_bytes(&conv));
    xn_bench_run_on("cpu", &conv, weights, d->shape.images, input, out);
    return out;
}

static float *magnitudes(const float *values, int64_t count) {
    float *out = xn_bench_take((size_t)count, sizeof *out);
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < count; i++)
        out[i] = fabsf(values[i]);
    return out;
}

static void expect_magnitudes(xn_bench_data *d) {
    float *input = magnitudes(d->input, d->shape.images * xn_conv_input_elements(&d->conv));
    float *real = magnitudes(d->real, xn_bench_weight_count(&d->shape));
    xn_weights *weights = xn_bench_weights(&d->shape, real);
    d->magnitude = by_cpu(d, &d->kind, input, weights);
    xn_weights_free(weights);
    xn_mem_free(real);
    xn_mem_free(input);
}

static void expect(xn_bench_data *d, const xn_bench_kind *kind) {
    const xn_bench_kind *dots = &xn_bench_kinds[XN_BENCH_DOTS];
    if (is_of_dots(kind) && !d->dots) {
        d->dots = by_cpu(d, dots, d->input, d->weights);
        check_sample(d, dots);
    }
    if (!is_of_dots(kind) && !d->outputs) {
        d->outputs = by_cpu(d, &d->kind, d->input, d->weights);
        if (d->kind.mode != XN_MODE_XNOR)
            expect_magnitudes(d);
        check_sample(d, &d->kind);
    }
}

void xn_bench_expect_dots(xn_bench_data *data) {
    expect(data, &xn_bench_kinds[XN_BENCH_DOTS]);
}

/* ---- kinds ---- */

static size_t packed_bytes(int64_t pixels, int32_t channels) {
    return (size_t)pixels * (size_t)xn_packed_words(channels) * sizeof(uint32_t);
}

size_t xn_bench_input_bytes(const xn_bench_data *d, const xn_bench_kind *kind) {
    const xn_conv *c = &d->conv;
    if (kind->packed_input)
        return packed_bytes(d->shape.images * c->groups * c->height * c->width, c->group_channels);
    return (size_t)(d->shape.images * xn_conv_input_elements(c)) * xn_datatype_bytes(kind->input);
}

size_t xn_bench_output_bytes(const xn_bench_data *d, const xn_bench_kind *kind) {
    const xn_conv *c = &d->conv;
    if (kind->packed_output)
        return packed_bytes(d->shape.images * c->out_height * c->out_width, c->out_channels);
    return (size_t)(d->shape.images * xn_conv_output_elements(c)) * xn_datatype_bytes(kind->output);
}

static void pack_image(const xn_conv *c, const float *image, uint32_t *bits) {
    const int64_t plane = (int64_t)c->height * c->width, words = xn_packed_words(c->group_channels);
    for (int64_t channel = 0; channel < c->channels; channel++) {
        const int64_t group = channel / c->group_channels, at = channel % c->group_channels;
        for (int64_t i = 0; i < plane; i++)
            bits[(group * plane + i) * words + at / 32] |= xn_sign_bit(image[channel * plane + i])
                                                           << at % 32;
    }
}

void xn_bench_fill_input(const xn_bench_data *d, const xn_bench_kind *kind, void *out) {
    const size_t bytes = xn_bench_input_bytes(d, kind);
    const int64_t count = xn_conv_input_elements(&d->conv), images = d->shape.images;
    memset(out, 0, bytes);
#pragma omp parallel for schedule(static)
    for (int64_t n = 0; n < images; n++) {
        const float *image = d->input + n * count;
        char *to = (char *)out + (size_t)n * (bytes / (size_t)images);
        if (kind->packed_input)
            pack_image(&d->conv, image, (uint32_t *)(void *)to);
        else if (kind->input == XN_FP32)
            memcpy(to, image, (size_t)count * sizeof(float));
        else if (kind->input == XN_FP16)
            for (int64_t i = 0; i < count; i++)
                ((uint16_t *)(void *)to)[i] = xn_fp32_to_fp16(image[i]);
        else /* bytes: the sign is all that counts */
            for (int64_t i = 0; i < count; i++)
                to[i] = image[i] >= 0 ? 1 : -1;
    }
}

/* ---- judging ---- */

static double alpha_of(const xn_bench_data *d, int64_t filter) {
    const int64_t count = xn_bench_weight_count(&d->shape) / d->shape.filters;
    double sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += fabs((double)d->real[filter * count + i]);
    return sum / (double)count;
}

/* Within the slack, and then rounded. */
static bool is_near(xn_datatype datatype, const void *got, int64_t i, double right, double slack) {
    if (datatype == XN_FP32)
        return fabs((double)((const float *)got)[i] - right) <= slack;
    const float low = xn_fp16_to_fp32(xn_fp32_to_fp16((float)(right - slack)));
    const float high = xn_fp16_to_fp32(xn_fp32_to_fp16((float)(right + slack)));
    const float value = xn_fp16_to_fp32(((const uint16_t *)got)[i]);
    return value >= low && value <= high;
}

/* Of one plane of outputs, of that filter. */
static int64_t wrong_in_plane(const xn_bench_data *d, const xn_bench_kind *kind, const void *got,
                              int64_t first, int64_t count, double alpha) {
    int64_t wrong = 0;
    for (int64_t i = first; i < first + count; i++) {
        if (kind->output == XN_INT32)
            wrong += ((const int32_t *)got)[i] != d->dots[i];
        else if (is_of_dots(kind))
            wrong +=
                !is_near(kind->output, got, i, d->dots[i] * alpha, 1e-5 * fabs(d->dots[i] * alpha));
        else
            wrong += !is_near(kind->output, got, i, (double)d->outputs[i], slack_of(d, i));
    }
    return wrong;
}

/* Of one pixel of packed output. */
static int64_t wrong_words(const xn_bench_data *d, const uint32_t *got, int64_t image,
                           int64_t pixel) {
    const int64_t plane = (int64_t)d->conv.out_height * d->conv.out_width;
    const int32_t words = xn_packed_words(d->conv.out_channels);
    int64_t wrong = 0;
    for (int32_t w = 0; w < words; w++) {
        uint32_t right = 0;
        for (int32_t o = w * 32; o < w * 32 + 32 && o < d->conv.out_channels; o++) {
            const int32_t dot = d->dots[(image * d->conv.out_channels + o) * plane + pixel];
            right |= ((uint32_t)(dot >= d->threshold[o]) ^ (d->flip[o / 32] >> o % 32 & 1))
                     << o % 32;
        }
        wrong += got[(image * plane + pixel) * words + w] != right;
    }
    return wrong;
}

int64_t xn_bench_count_wrong(xn_bench_data *d, const xn_bench_kind *kind, const void *got) {
    const int64_t plane = (int64_t)d->conv.out_height * d->conv.out_width;
    const int64_t images = d->shape.images, filters = d->shape.filters;
    int64_t wrong = 0;
    expect(d, kind);
#pragma omp parallel for schedule(static) reduction(+ : wrong)
    for (int64_t n = 0; n < images; n++) {
        if (kind->packed_output)
            for (int64_t pixel = 0; pixel < plane; pixel++)
                wrong += wrong_words(d, got, n, pixel);
        else
            for (int64_t o = 0; o < filters; o++)
                wrong +=
                    wrong_in_plane(d, kind, got, (n * filters + o) * plane, plane, alpha_of(d, o));
    }
    return wrong;
}
