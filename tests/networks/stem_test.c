/* The first layers of a picture in bytes, which lowering makes one step of whole numbers
 * (xn_planes.h): ref against a float64 oracle within the definition's bound, and all other backends
 * and instruction sets bit for bit as ref, alone and in batches. */
#include "nw_text.h"

#include "xn_mem.h"
#include "xn_planes.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { IMAGES = 3 };

typedef struct stem {
    nw_net *net;
    bool normalised, pool, relu, clip, sign, nhwc;
    int64_t channels, height, width, filters, kernel_h, kernel_w, stride, pad;
    int64_t out_height, out_width, pooled_height, pooled_width;
    const float *gain, *offset, *weight, *scale, *bias;
} stem;

static int64_t below(xn_rng *rng, int64_t n) {
    return (int64_t)xn_rng_below(rng, (uint64_t)n);
}

static const xn_tensor *reals(nw_net *net, xn_rng *rng, float centre, float reach, int64_t d0,
                              int64_t d1, int64_t d2, int64_t d3, const float **values) {
    const size_t count = (size_t)(d0 * (d1 ? d1 : 1) * (d2 ? d2 : 1) * (d3 ? d3 : 1));
    float *to = nw_take(net, count * sizeof *to);
    for (size_t i = 0; i < count; i++)
        to[i] = centre + reach * xn_rng_float(rng);
    *values = to;
    return nw_tensor(net, to, d0, d1, d2, d3);
}

/* Geometries of networks that are served, which kernels are made for: FAST, WIDE as stem_wide.cuh
 * takes them. */
enum { ANY, FAST, WIDE };

static void draw(xn_rng *rng, int kind, stem *s) {
    const bool fast = kind > ANY, wide = kind == WIDE;
    *s =
        (stem){.normalised = below(rng, 4) > 0,
               .pool = wide || below(rng, 3) > 0,
               .relu = below(rng, 4) == 0,
               .clip = below(rng, 8) == 0,
               .sign = below(rng, 3) == 0,
               .nhwc = below(rng, 3) > 0,
               .channels = fast ? 3 : 1 + below(rng, 5),
               .height = wide   ? 9 + below(rng, 14)
                         : fast ? 20 + below(rng, 30)
                                : 3 + below(rng, 20),
               .width = wide   ? 224 + 16 * below(rng, 8)
                        : fast ? 4 * (5 + below(rng, 24)) + (below(rng, 4) ? 0 : 70 * below(rng, 4))
                               : 3 + below(rng, 40),
               .filters = wide   ? 64 * (1 + below(rng, 2))
                          : fast ? 16 * (below(rng, 2) ? 4 : 1 + below(rng, 8))
                                 : 1 + below(rng, 70),
               .stride = fast ? 2 : 1 + below(rng, 3)};
    s->kernel_h = s->kernel_w = fast ? (below(rng, 2) ? 7 : 3) : 1 + below(rng, 7);
    s->pad = fast || below(rng, 2) ? s->kernel_h / 2 : below(rng, 5);
    while (s->height + 2 * s->pad < s->kernel_h || s->width + 2 * s->pad < s->kernel_w)
        s->kernel_h = s->kernel_w = s->kernel_h - 1;
    s->out_height = (s->height + 2 * s->pad - s->kernel_h) / s->stride + 1;
    s->out_width = (s->width + 2 * s->pad - s->kernel_w) / s->stride + 1;
    s->pooled_height = s->pool ? (s->out_height - 1) / 2 + 1 : s->out_height;
    s->pooled_width = s->pool ? (s->out_width - 1) / 2 + 1 : s->out_width;
}

static void window(xn_layer *l, int64_t stride, int64_t pad) {
    l->window.stride[0] = l->window.stride[1] = stride;
    for (int i = 0; i < 4; i++)
        l->window.padding[i] = pad;
}

/* With `sign` the network ends in a 1x1 convolution of signs, one filter a channel, which has the
 * signs come out. */
static void build(xn_rng *rng, xn_precision precision, stem *s) {
    nw_net *net = s->net = nw_create(s->channels, s->height, s->width);
    net->params.input_datatype = XN_UINT8;
    net->params.precision = precision;
    if (s->nhwc) {
        net->params.input_layout = XN_IMAGE_NHWC;
        net->params.input_shape = (xn_shape){3, {s->height, s->width, s->channels}};
    }
    xn_layer *l;
    if (s->normalised) {
        l = nw_add(net, XN_OP_AFFINE, "norm", NULL);
        l->scale = reals(net, rng, 0.017f, 0.003f, s->channels, 0, 0, 0, &s->gain);
        l->bias = reals(net, rng, -2.0f, 0.2f, s->channels, 0, 0, 0, &s->offset);
    }
    l = nw_add(net, XN_OP_CONV, "conv", NULL);
    l->window.mode = XN_MODE_FLOAT;
    window(l, s->stride, s->pad);
    l->weight =
        reals(net, rng, 0, 1, s->filters, s->channels, s->kernel_h, s->kernel_w, &s->weight);
    l = nw_add(net, XN_OP_AFFINE, "bn", NULL);
    l->scale = reals(net, rng, 0, 0.25f, s->filters, 0, 0, 0, &s->scale);
    l->bias = reals(net, rng, 0, 1, s->filters, 0, 0, 0, &s->bias);
    if (s->relu)
        nw_add(net, XN_OP_PRELU, "relu", NULL)->attributes.slope = 0;
    else if (s->clip) {
        l = nw_add(net, XN_OP_CLIP, "clip", NULL);
        l->attributes.low = -1;
        l->attributes.high = 1;
    }
    if (s->pool) {
        l = nw_add(net, XN_OP_MAX_POOL, "pool", NULL);
        l->kernel[0] = l->kernel[1] = 3;
        window(l, 2, 1);
    }
    if (!s->sign)
        return;
    float *ones = nw_take(net, (size_t)s->filters * sizeof *ones);
    for (int64_t o = 0; o < s->filters; o++)
        ones[o] = 1;
    const char *last = s->pool ? "pool" : s->relu ? "relu" : s->clip ? "clip" : "bn";
    l = nw_add(net, XN_OP_CONV, "signs", NULL);
    l->window.mode = XN_MODE_XNOR;
    l->window.groups = s->filters;
    l->weight = nw_tensor(net, ones, s->filters, 1, 1, 1);
    nw_output(net, last); /* the reals and the signs */
    nw_output(net, "signs");
}

/* In double: the convolution's value with its batch norm, and what it may be off by. */
static double value_of(const stem *s, const uint8_t *u, int64_t o, int64_t y, int64_t x,
                       xn_precision precision, double *bound) {
    double sum = 0, size = 0, reach = 0, most = 0;
    const float *w = s->weight + o * s->channels * s->kernel_h * s->kernel_w;
    for (int64_t c = 0; c < s->channels; c++)
        for (int64_t i = 0; i < s->kernel_h; i++)
            for (int64_t j = 0; j < s->kernel_w; j++, w++) {
                const int64_t at_y = y * s->stride - s->pad + i, at_x = x * s->stride - s->pad + j;
                const double gain = s->normalised ? (double)s->gain[c] : 1;
                const double offset = s->normalised ? (double)s->offset[c] : 0;
                most = fmax(most, fabs((double)*w * gain));
                if (at_y < 0 || at_y >= s->height || at_x < 0 || at_x >= s->width)
                    continue;
                const double byte = u[s->nhwc ? (at_y * s->width + at_x) * s->channels + c
                                              : (c * s->height + at_y) * s->width + at_x];
                sum += (double)*w * (gain * byte + offset);
                size += fabs((double)*w) * (fabs(gain * byte) + fabs(offset));
                reach += fabs(byte + offset / gain);
            }
    const double scale = (double)s->scale[o];
    const double plane = precision == XN_PRECISION_FP16 ? 0x1p-13 * 0.54 : 0x1p-20 * 0.54;
    *bound = fabs(scale) * (most * plane * reach + 0x1p-22 * size) + 0x1p-22;
    return sum * scale + (double)s->bias[o];
}

static double activated(const stem *s, double v) {
    return s->relu ? fmax(v, 0) : s->clip ? fmin(fmax(v, -1), 1) : v;
}

static double right_of(const stem *s, const uint8_t *u, int64_t o, int64_t y, int64_t x,
                       xn_precision precision, double *bound) {
    if (!s->pool)
        return activated(s, value_of(s, u, o, y, x, precision, bound));
    double best = -INFINITY, each;
    *bound = 0;
    for (int64_t at_y = 2 * y - 1; at_y <= 2 * y + 1; at_y++)
        for (int64_t at_x = 2 * x - 1; at_x <= 2 * x + 1; at_x++)
            if (at_y >= 0 && at_y < s->out_height && at_x >= 0 && at_x < s->out_width) {
                best = fmax(best, value_of(s, u, o, at_y, at_x, precision, &each));
                *bound = fmax(*bound, each);
            }
    return activated(s, best);
}

static void check_oracle(const stem *s, const uint8_t *u, const float *got, xn_precision precision,
                         const char *text) {
    const int64_t plane = s->pooled_height * s->pooled_width;
    for (int64_t n = 0; n < s->filters * plane; n++) {
        double bound;
        const double right = right_of(s, u, n / plane, n % plane / s->pooled_width,
                                      n % s->pooled_width, precision, &bound);
        if (precision == XN_PRECISION_FP16) /* kept between layers */
            bound += 0x1p-11 * fabs(right);
        ck_assert_msg(fabs((double)got[n] - right) <= bound, "%s: value %lld is %g, not %g (%g)",
                      text, (long long)n, (double)got[n], right, bound);
        if (s->sign && fabs(right) > bound)
            ck_assert_msg(got[s->filters * plane + n] == (right >= 0 ? 1 : -1), "%s: sign %lld",
                          text, (long long)n);
    }
}

/* Of `images` images, of which the first are compared with the oracle, in batches of each size. */
static void check_stem(uint64_t seed, int kind, xn_precision precision, int images, int smallest,
                       int largest) {
    xn_rng rng = {seed};
    stem s;
    char text[200];
    draw(&rng, kind, &s);
    build(&rng, precision, &s);
    snprintf(text, sizeof text, "seed %llu: %lldx%lldx%lld to %lld by %lld, stride %lld%s%s%s",
             (unsigned long long)seed, (long long)s.channels, (long long)s.height,
             (long long)s.width, (long long)s.filters, (long long)s.kernel_h, (long long)s.stride,
             s.pool ? ", pool" : "", s.sign ? ", sign" : "", s.nhwc ? ", nhwc" : "");
    xn_network *network = nw_lower(s.net);
    ck_assert_int_eq(network->steps[0].kind, XN_STEP_STEM);
    ck_assert_int_eq(network->steps[0].pool, s.pool);
    uint8_t *u = nw_take(s.net, (size_t)images * network->input_bytes);
    for (size_t i = 0; i < (size_t)images * network->input_bytes; i++)
        u[i] = (uint8_t)below(&rng, 256);
    float *right = nw_run(network, u, images);
    for (int n = 0; n < IMAGES; n++)
        check_oracle(&s, u + (size_t)n * network->input_bytes, right + n * network->output_elements,
                     precision, text);
    const nw_subject *subject;
    for (int i = 0; (subject = nw_subject_at(i)); i++)
        for (int batch = smallest; batch <= largest; batch++) {
            float *got = nw_run_on(subject, network, u, images, batch, batch);
            for (int64_t n = 0; n < images * network->output_elements; n++)
                ck_assert_msg(got[n] == right[n], "%s on %s: value %lld is %g, ref's %g", text,
                              subject->name, (long long)n, (double)got[n], (double)right[n]);
            xn_mem_free(got);
        }
    xn_mem_free(right);
    xn_network_free(network);
    nw_free(s.net);
}

START_TEST(stems) {
    const int kind = _i / 2;
    const uint64_t count = kind == WIDE ? nw_chains() / 10 : nw_chains() * 2 / 5;
    for (uint64_t n = 0; n < count || n == 0; n++)
        check_stem(xn_test_seed() + n, kind, _i & 1 ? XN_PRECISION_FP16 : XN_PRECISION_FP32, IMAGES,
                   1, 2);
}
END_TEST

/* Many images: a kernel cuts them into larger parts. */
START_TEST(many_images) {
    const int many = (int)nw_chains() + 4;
    check_stem(xn_test_seed() + (uint64_t)_i, FAST + _i / 2,
               _i & 1 ? XN_PRECISION_FP16 : XN_PRECISION_FP32, many, many, many);
}
END_TEST

/* Planes put together are what was taken apart. */
START_TEST(digits) {
    for (int32_t count = 2; count <= 3; count++) {
        const int32_t most = count == 2 ? 127 * 128 : 127 * 128 * 128;
        for (int32_t m = -most; m <= most; m += count == 2 ? 1 : 97) {
            int32_t sum = 0;
            for (int32_t p = count - 1; p >= 0; p--) {
                const int32_t digit = xn_plane_digit(m, p, count);
                ck_assert(digit >= -128 && digit <= 127);
                sum = sum * 128 + digit;
            }
            ck_assert_int_eq(sum, m);
        }
    }
}
END_TEST

/* What is no picture in bytes, or has weights that no planes hold, is served as before. */
START_TEST(others_stay) {
    for (int i = 0; i < 4; i++) {
        xn_rng rng = {0};
        nw_net *net = nw_text(&rng, i == 1   ? "3x8x8: conv 4 float"
                                    : i == 3 ? "3x8x8 uint8: conv 4 float pad_value=1"
                                             : "3x8x8 uint8: conv 4 float");
        float *w = nw_take(net, 4 * 27 * sizeof *w);
        for (int n = 0; n < 4 * 27; n++)
            w[n] = (float)n;
        w[5] = i == 2 ? INFINITY : 1;
        net->layers[0].weight = nw_tensor(net, w, 4, 3, 3, 3);
        xn_network *network = nw_lower(net);
        ck_assert_int_eq(network->steps[0].kind, i ? XN_STEP_CONV : XN_STEP_STEM);
        xn_network_free(network);
        nw_free(net);
    }
}
END_TEST

XN_SUITE(networks_stem) {
    Suite *s = suite_create("networks_stem");
    TCase *t = xn_test_case(s, "stem", 300);
    tcase_add_loop_test(t, stems, 0, 6);
    tcase_add_loop_test(t, many_images, 0, 4);
    tcase_add_test(t, digits);
    tcase_add_test(t, others_stay);
    return s;
}
