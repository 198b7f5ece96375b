/* What precision fp16 rounds (MODELS.md, section 9): never the network's input, never an output,
 * always what lies between steps; and weights of real convolutions that read such values. On every
 * backend, whatever the layout of the input. */
#include "nw_net.h"
#include "nw_random.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static float rounded(float value) {
    return xn_fp16_to_fp32(xn_fp32_to_fp16(value));
}

static nw_net *half_net(int64_t channels, int64_t height, int64_t width) {
    nw_net *net = nw_create(channels, height, width);
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

/* A layer of the network's input alone; NHWC is H 2, W 2, C 3. */
static nw_net *net_of(bool nhwc, xn_op op) {
    nw_net *net = nhwc ? half_net(2, 2, 3) : half_net(3, 2, 2);
    if (nhwc)
        net->params.input_layout = XN_IMAGE_NHWC;
    xn_layer *l =
        nw_add(net, op, "y", op == XN_OP_CONCAT || op == XN_OP_ADD ? "input input" : NULL);
    l->kernel[0] = l->kernel[1] = 1;
    l->from = 1;
    l->to = 2;
    if (op == XN_OP_AFFINE)
        l->scale = nw_values(net, 3, 1., 1., 1.);
    if (op == XN_OP_CONV) {
        l->window.mode = XN_MODE_FLOAT;
        l->weight = nw_tensor(net, (const float[]){1, 0, 0}, 1, 3, 1, 1);
    }
    return net;
}

START_TEST(the_input_is_not_rounded) {
    static const xn_op ops[] = {XN_OP_AFFINE,   XN_OP_PRELU,    XN_OP_CONV,
                                XN_OP_MAX_POOL, XN_OP_AVG_POOL, XN_OP_CONCAT,
                                XN_OP_SLICE,    XN_OP_FLATTEN,  XN_OP_ADD};
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
        const float y = ops[i] == XN_OP_ADD ? 0.2f : 0.1f;
        for (int nhwc = 0; nhwc < 2; nhwc++)
            expect(net_of(nhwc, ops[i]), 0.1f, (const float[]){y, y, y, y}, 4);
    }
}
END_TEST

/* Beside other values in a concat, as a residual, and read twice. */
START_TEST(the_input_is_not_rounded_in_company) {
    for (int nhwc = 0; nhwc < 2; nhwc++) {
        nw_net *net = nhwc ? half_net(1, 1, 2) : half_net(2, 1, 1);
        if (nhwc)
            net->params.input_layout = XN_IMAGE_NHWC;
        nw_add(net, XN_OP_AFFINE, "twice", NULL)->scale = nw_values(net, 2, 2., 2.);
        nw_add(net, XN_OP_CONCAT, "both", "input twice");
        nw_add(net, XN_OP_PRELU, "kept", NULL);
        nw_add(net, XN_OP_SOFTMAX, "other", "both");
        nw_add(net, XN_OP_ADD, "sum", "twice input");
        nw_output(net, "kept");
        nw_output(net, "sum");
        nw_output(net, "other");
        const float sum = 0.2f + 0.1f;
        expect(net, 0.1f, (const float[]){0.1f, 0.1f, 0.2f, 0.2f, sum, sum}, 4);
    }
}
END_TEST

/* 0.1 once rounded is what an average of it is. */
START_TEST(what_lies_between_steps_is_rounded) {
    nw_net *net = half_net(1, 1, 1);
    nw_add(net, XN_OP_PRELU, "relu", NULL);
    nw_add(net, XN_OP_AVG_POOL, "mean", NULL)->global = true;
    expect(net, 0.1f, (const float[]){rounded(0.1f)}, 1);
    ck_assert(rounded(0.1f) != 0.1f);
}
END_TEST

/* Neither its last bits nor its range are those of fp16, whatever makes it and whatever else reads
 * it. */
START_TEST(outputs_are_not_rounded) {
    for (int read = 0; read < 2; read++) {
        nw_net *net = half_net(1, 1, 1);
        nw_add(net, XN_OP_PRELU, "relu", NULL);
        nw_add(net, XN_OP_AFFINE, "large", NULL)->scale = nw_values(net, 1, 700000.);
        if (read)
            nw_add(net, XN_OP_SIGMOID, "reader", NULL);
        nw_output(net, "large");
        expect(net, 0.1f, (const float[]){rounded(0.1f) * 700000}, 1);
    }
}
END_TEST

/* The residual is FP16, the sum FP32. */
START_TEST(a_sum_that_is_an_output_is_not_rounded) {
    nw_net *net = half_net(1, 1, 1);
    nw_add(net, XN_OP_PRELU, "relu", NULL);
    xn_layer *l = nw_add(net, XN_OP_CONV, "c", NULL);
    l->window.mode = XN_MODE_FLOAT;
    l->weight = nw_tensor(net, (const float[]){4096}, 1, 1, 1, 1);
    nw_add(net, XN_OP_ADD, "sum", "c relu");
    expect(net, 3.0f, (const float[]){12291}, 1);
}
END_TEST

/* 1 + 2^-12 is 1 in 11 bits; of a filter that reads the input as it came it is not. A filter's
 * range does not matter. */
START_TEST(weights_are_rounded_where_values_are) {
    for (int behind = 0; behind < 2; behind++) {
        nw_net *net = half_net(1, 1, 1);
        if (behind)
            nw_add(net, XN_OP_PRELU, "relu", NULL);
        xn_layer *l = nw_add(net, XN_OP_CONV, "c", NULL);
        l->window.mode = XN_MODE_FLOAT;
        const float weights[] = {1 + 0x1p-12f, 0x1.fffp100f, 0x1p-100f};
        l->weight = nw_tensor(net, weights, 3, 1, 1, 1);
        expect(net, 1,
               behind ? (const float[]){1, 0x1p101f, 0x1p-100f}
                      : (const float[]){weights[0], weights[1], weights[2]},
               3);
    }
}
END_TEST

START_TEST(the_network_says_what_was_rounded) {
    nw_net *net = half_net(1, 1, 1);
    nw_add(net, XN_OP_PRELU, "relu", NULL);
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
    TCase *t = tcase_create("precision");
    tcase_set_timeout(t, 120);
    tcase_add_test(t, the_input_is_not_rounded);
    tcase_add_test(t, the_input_is_not_rounded_in_company);
    tcase_add_test(t, what_lies_between_steps_is_rounded);
    tcase_add_test(t, outputs_are_not_rounded);
    tcase_add_test(t, a_sum_that_is_an_output_is_not_rounded);
    tcase_add_test(t, weights_are_rounded_where_values_are);
    tcase_add_test(t, the_network_says_what_was_rounded);
    tcase_add_test(t, the_layout_of_the_input_changes_no_bit);
    suite_add_tcase(s, t);
    return s;
}
