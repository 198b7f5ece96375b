/* What precision fp16 rounds (MODELS.md, section 9): never the network's input, never an output,
 * always what lies between steps; and weights of real convolutions that read such values. On every
 * backend, whatever the layout of the input. */
#include "nw_random.h"
#include "nw_text.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static float rounded(float value) {
    return xn_fp16_to_fp32(xn_fp32_to_fp16(value));
}

static nw_net *half_net(const char *text) {
    xn_rng rng = {xn_test_seed()};
    nw_net *net = nw_text(&rng, text);
    net->params.precision = XN_PRECISION_FP16;
    return net;
}

/* The first `count` outputs of one image of all elements `value`, on ref and on every backend. */
static void expect(nw_net *net, float value, const float *want, int count) {
    const int64_t *d = net->params.input_shape.dims;
    const int64_t elements = d[0] * d[1] * d[2];
    float *input = nw_take(net, (size_t)elements * sizeof *input);
    xn_network *network = nw_lower(net);
    for (int64_t i = 0; i < elements; i++)
        input[i] = value;
    for (int s = -1; s < 0 || nw_subject_at(s); s++) {
        float *got = s < 0 ? nw_run(network, input, 1)
                           : nw_run_on(nw_subject_at(s), network, input, 1, 1, 1);
        for (int i = 0; i < count; i++)
            ck_assert_msg(got[i] == want[i], "%s: output %d is %.9g, not %.9g",
                          s < 0 ? "ref" : nw_subject_at(s)->name, i, (double)got[i],
                          (double)want[i]);
        free(got);
    }
    xn_network_free(network);
    nw_free(net);
}

START_TEST(the_input_is_not_rounded) {
    static const char *const layers[] = {"affine scale=1,1,1", "prelu",     "conv1 1 float",
                                         "max_pool1",          "avg_pool1", "concat input input",
                                         "slice from=1 to=2",  "flatten",   "add input input"};
    static const char *const inputs[] = {"3x2x2", "2x2x3 nhwc"};
    for (size_t i = 0; i < 2 * sizeof layers / sizeof *layers; i++) {
        const char *layer = layers[i / 2];
        const float y = !strncmp(layer, "add", 3) ? 0.2f : 0.1f;
        char text[80];
        snprintf(text, sizeof text, "%s: %s", inputs[i % 2], layer);
        nw_net *net = half_net(text);
        if (net->layers[0].weight)
            net->layers[0].weight = nw_tensor(net, (const float[]){1, 0, 0}, 1, 3, 1, 1);
        expect(net, 0.1f, (const float[]){y, y, y, y}, 4);
    }
}
END_TEST

/* Beside other values in a concat, as a residual, and read twice. */
START_TEST(the_input_is_not_rounded_beside_others) {
    static const char layers[] = "twice=affine scale=2,2; both=concat input twice; kept=prelu;"
                                 "other=softmax < both; sum=add twice input; out kept sum other";
    for (int nhwc = 0; nhwc < 2; nhwc++) {
        char text[200];
        snprintf(text, sizeof text, "%s: %s", nhwc ? "1x1x2 nhwc" : "2x1x1", layers);
        const float sum = 0.2f + 0.1f;
        expect(half_net(text), 0.1f, (const float[]){0.1f, 0.1f, 0.2f, 0.2f, sum, sum}, 4);
    }
}
END_TEST

/* 0.1 once rounded is what an average of it is. */
START_TEST(what_lies_between_steps_is_rounded) {
    expect(half_net("1x1x1: prelu; avg_pool global"), 0.1f, (const float[]){rounded(0.1f)}, 1);
    ck_assert(rounded(0.1f) != 0.1f);
}
END_TEST

/* Neither its last bits nor its range are those of fp16, whatever makes it and whatever else reads
 * it. */
START_TEST(outputs_are_not_rounded) {
    static const char *const nets[] = {
        "1x1x1: prelu; large=affine scale=700000; out large",
        "1x1x1: prelu; large=affine scale=700000; sigmoid; out large"};
    for (int i = 0; i < 2; i++)
        expect(half_net(nets[i]), 0.1f, (const float[]){rounded(0.1f) * 700000}, 1);
}
END_TEST

/* The residual is FP16, the sum FP32. */
START_TEST(a_sum_that_is_an_output_is_not_rounded) {
    nw_net *net = half_net("1x1x1: relu=prelu; conv1 1 float; add last relu");
    net->layers[1].weight = nw_tensor(net, (const float[]){4096}, 1, 1, 1, 1);
    expect(net, 3.0f, (const float[]){12291}, 1);
}
END_TEST

/* 1 + 2^-12 is 1 in 11 bits; of a filter that reads the input as it came it is not. A filter's
 * range does not matter. */
START_TEST(weights_are_rounded_where_values_are) {
    for (int behind = 0; behind < 2; behind++) {
        nw_net *net = half_net(behind ? "1x1x1: prelu; conv1 3 float" : "1x1x1: conv1 3 float");
        const float weights[] = {1 + 0x1p-12f, 0x1.fffp100f, 0x1p-100f};
        net->layers[behind].weight = nw_tensor(net, weights, 3, 1, 1, 1);
        expect(net, 1,
               behind ? (const float[]){1, 0x1p101f, 0x1p-100f}
                      : (const float[]){weights[0], weights[1], weights[2]},
               3);
    }
}
END_TEST

START_TEST(the_network_says_what_was_rounded) {
    nw_net *net = half_net("1x1x1: prelu");
    xn_network *network = nw_lower(net);
    ck_assert_int_eq(network->precision, XN_PRECISION_FP32); /* nothing lies between */
    xn_network_free(network);
    nw_add(net, XN_OP_AVG_POOL, "mean", NULL)->global = true;
    network = nw_lower(net);
    ck_assert_int_eq(network->precision, XN_PRECISION_FP16);
    xn_network_free(network);
    net->params.precision = XN_PRECISION_FP32;
    network = nw_lower(net);
    ck_assert_int_eq(network->precision, XN_PRECISION_FP32);
    xn_network_free(network);
    nw_free(net);
}
END_TEST

/* ---- random networks: the layout of the input changes no bit ---- */

static float *run_in(nw_net *net, bool nhwc, const float *image, int64_t channels, int64_t pixels,
                     size_t *bytes) {
    const int64_t *d = net->params.input_shape.dims;
    float *input = calloc((size_t)(channels * pixels), sizeof *input);
    ck_assert_ptr_nonnull(input);
    for (int64_t i = 0; i < channels * pixels; i++)
        input[i] = nhwc ? image[i % channels * pixels + i / channels] : image[i];
    if (nhwc)
        net->params.input_shape = (xn_shape){3, {d[1], d[2], d[0]}};
    net->params.input_layout = nhwc ? XN_IMAGE_NHWC : XN_IMAGE_NCHW;
    xn_network *network = nw_lower(net);
    float *output = nw_run(network, input, 1);
    *bytes = network->output_bytes;
    xn_network_free(network);
    free(input);
    return output;
}

START_TEST(the_layout_of_the_input_changes_no_bit) {
    int compared = 0;
    for (uint64_t n = 0; n < 300; n++) {
        xn_rng rng = {xn_test_seed() + n * 1000};
        nw_net *net = nw_random_net(&rng, false);
        const int64_t *d = net->params.input_shape.dims;
        net->params.precision = n % 4 ? XN_PRECISION_FP16 : XN_PRECISION_FP32;
        net->params.input_datatype = XN_FP32;
        if (net->params.input_layout == XN_IMAGE_NCHW && net->params.input_shape.rank == 3) {
            const int64_t channels = d[0], pixels = d[1] * d[2];
            float *image = nw_take(net, (size_t)(channels * pixels) * sizeof *image);
            size_t bytes, other_bytes;
            for (int64_t i = 0; i < channels * pixels; i++)
                image[i] = xn_rng_float(&rng);
            float *want = run_in(net, false, image, channels, pixels, &bytes);
            float *got = run_in(net, true, image, channels, pixels, &other_bytes);
            ck_assert_uint_eq(bytes, other_bytes);
            ck_assert_msg(!memcmp(want, got, bytes), "seed %" PRIu64, n);
            compared++;
            free(want);
            free(got);
        }
        nw_free(net);
    }
    ck_assert_int_gt(compared, 150);
}
END_TEST

XN_SUITE(networks_precision) {
    Suite *s = suite_create("networks_precision");
    TCase *t = xn_test_case(s, "precision", 120);
    tcase_add_test(t, the_input_is_not_rounded);
    tcase_add_test(t, the_input_is_not_rounded_beside_others);
    tcase_add_test(t, what_lies_between_steps_is_rounded);
    tcase_add_test(t, outputs_are_not_rounded);
    tcase_add_test(t, a_sum_that_is_an_output_is_not_rounded);
    tcase_add_test(t, weights_are_rounded_where_values_are);
    tcase_add_test(t, the_network_says_what_was_rounded);
    tcase_add_test(t, the_layout_of_the_input_changes_no_bit);
    return s;
}
