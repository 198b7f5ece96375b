/* Lowering rule by rule: the steps that come out, in words, and that they compute what the network
 * means. A step reads
 *
 *   kind input [x gate] [scale] [k] [bias] [+residual] [prelu|clip] > real bits [shift] [least]
 *
 * where tensors are numbers, those that lie as bits have a *, and a part of one is written
 * number[first/all] in elements. */
#include "nw_model.h"
#include "nw_net.h"

#include "xn_mem.h"
#include "xn_problem.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { TEXT = 4000 };

typedef struct text {
    char text[TEXT];
    size_t used;
} text;

static void say(text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void say(text *t, const char *format, ...) {
    va_list args;
    va_start(args, format);
    t->used += (size_t)vsnprintf(t->text + t->used, TEXT - t->used, format, args);
    va_end(args);
    ck_assert_uint_lt(t->used, TEXT);
}

static void say_tensor(text *t, int32_t tensor, const xn_view *view, bool bits) {
    say(t, "%d%s", tensor, bits ? "*" : "");
    if (view && view->pitch)
        say(t, "[%d/%d]", view->offset, view->pitch);
}

static void say_step(text *t, const xn_step *s) {
    const xn_epilogue *e = &s->conv.epilogue;
    say(t, "%s ", xn_step_kind_name((xn_step_kind)s->kind));
    say_tensor(t, s->input, &s->input_view, s->conv.input_datatype == XN_BITS);
    if (s->second != XN_NO_TENSOR) {
        say(t, " x ");
        say_tensor(t, s->second, &s->second_view, false);
    }
    say(t, "%s%s%s", e->factor == XN_FACTOR_SCALE ? " scale" : "", e->k ? " k" : "",
        e->bias ? " bias" : "");
    if (s->residual != XN_NO_TENSOR) {
        say(t, " +");
        say_tensor(t, s->residual, &s->residual_view, false);
    }
    say(t, "%s >",
        e->activation == XN_ACTIVATION_PRELU  ? " prelu"
        : e->activation == XN_ACTIVATION_CLIP ? " clip"
                                              : "");
    if (s->output != XN_NO_TENSOR) {
        say(t, " ");
        say_tensor(t, s->output, &s->output_view, false);
    }
    if (s->bits != XN_NO_TENSOR)
        say(t, " %d*", s->bits);
    say(t, "%s%s\n", e->shift ? " shift" : "", s->least ? " least" : "");
}

/* What the network means, of an input of small quarters, must come out exactly or within what
 * rounding explains. */
static void check_results(const nw_net *net, const xn_network *network) {
    xn_graph *graph = nw_graph(net);
    const int64_t *d = net->params.input_shape.dims;
    const int64_t count = d[0] * (d[1] ? d[1] : 1) * (d[2] ? d[2] : 1);
    float *input = nw_take((nw_net *)net, (size_t)count * sizeof *input);
    nw_answer answer;
    xn_rng rng = {xn_test_seed()};
    for (int64_t i = 0; i < count; i++)
        input[i] = (float)((int)xn_rng_below(&rng, 17) - 8) * 0.25f;
    float *got = nw_run(network, input, 1), *at = got;
    nw_model(&net->params, graph, input, 0x1p-22, &answer);
    for (int i = 0; i < xn_graph_output_count(graph); i++) {
        xn_graph_end end;
        int layer = 0;
        xn_graph_output(graph, i, &end);
        while (strcmp(net->layers[layer].name, end.name) != 0)
            layer++;
        const nw_value *want = &answer.layers[layer];
        for (int64_t k = 0; k < want->channels * want->height * want->width; k++, at++)
            ck_assert_msg((double)*at == want->value[k] ||
                              fabs((double)*at - want->value[k]) <= want->error[k],
                          "%s[%d]: %g, not %g", end.name, (int)k, (double)*at, want->value[k]);
    }
    nw_answer_free(&answer);
    free(got);
    xn_graph_free(graph);
}

/* Lowers the net, compares its steps and frees it. */
static void expect(nw_net *net, const char *steps) {
    xn_network *network = nw_lower(net);
    text t = {{0}, 0};
    for (int i = 0; i < network->step_count; i++)
        say_step(&t, &network->steps[i]);
    ck_assert_str_eq(t.text, steps);
    if (net->params.input_datatype == XN_FP32 && net->params.input_layout == XN_IMAGE_NCHW)
        check_results(net, network);
    xn_network_free(network);
    nw_free(net);
}

static xn_rng rng_of(uint64_t n) {
    return (xn_rng){xn_test_seed() + n};
}

/* 3x3, padding 1, as many output channels as asked for. */
static xn_layer *conv(nw_net *net, xn_rng *rng, const char *name, const char *inputs, int64_t out,
                      int64_t in) {
    xn_layer *l = nw_add(net, XN_OP_CONV, name, inputs);
    l->weight = nw_random(net, rng, true, out, in, 3, 3);
    for (int i = 0; i < 4; i++)
        l->window.padding[i] = 1;
    return l;
}

static xn_layer *affine(nw_net *net, xn_rng *rng, const char *name, const char *inputs, int64_t c) {
    xn_layer *l = nw_add(net, XN_OP_AFFINE, name, inputs);
    l->scale = nw_random_scale(net, rng, false, c);
    l->bias = nw_random(net, rng, false, c, 0, 0, 0);
    return l;
}

static xn_layer *bias(nw_net *net, xn_rng *rng, const char *name, const char *inputs, int64_t c) {
    xn_layer *l = nw_add(net, XN_OP_AFFINE, name, inputs);
    l->bias = nw_random(net, rng, false, c, 0, 0, 0);
    return l;
}

static xn_layer *pool(nw_net *net, xn_op op, const char *name, const char *inputs) {
    xn_layer *l = nw_add(net, op, name, inputs);
    l->kernel[0] = l->kernel[1] = 2;
    return l;
}

/* ---- one convolution ---- */

START_TEST(a_convolution_alone_is_one_step) {
    xn_rng rng = rng_of(1);
    nw_net *net = nw_create(4, 6, 6);
    xn_layer *l = conv(net, &rng, "c", NULL, 5, 4);
    l->scale = nw_random_scale(net, &rng, true, 5);
    l->bias = nw_random(net, &rng, true, 5, 0, 0, 0);
    expect(net, "conv 0 scale bias > 1\n");
}
END_TEST

/* The step is the one that /conv makes of the same request, byte for byte in what both have. */
START_TEST(it_is_the_step_of_a_request) {
    xn_rng rng = rng_of(2);
    nw_net *net = nw_create(4, 6, 7);
    xn_layer *l = conv(net, &rng, "c", NULL, 6, 2);
    l->window.groups = 2;
    l->window.stride[0] = 2;
    l->scale = nw_random_scale(net, &rng, true, 6);
    xn_network *network = nw_lower(net);
    xn_conv_params params = l->window;
    params.scaling = XN_SCALING_ALPHA;
    const xn_weights_shape weights = {.dims = {6, 2, 3, 3}, .has_scale = true};
    const xn_shape input = {4, {1, 4, 6, 7}};
    xn_conv conv_alone;
    int64_t images;
    xn_step step;
    ck_assert_int_eq(
        xn_conv_resolve(&params, XN_FP32, &input, &weights, &nw_limits, &conv_alone, &images, NULL),
        XN_OK);
    xn_step_of_conv(&conv_alone, &step);
    ck_assert_int_eq(network->step_count, 1);
    ck_assert_mem_eq(&network->steps[0], &step, sizeof step);
    ck_assert(xn_step_is_whole(&step));
    xn_network_free(network);
    nw_free(net);
}
END_TEST

/* ---- epilogues ---- */

START_TEST(batch_norm_and_sign_go_into_the_convolution) {
    xn_rng rng = rng_of(3);
    nw_net *net = nw_create(4, 6, 6);
    conv(net, &rng, "c1", NULL, 40, 4);
    affine(net, &rng, "bn", NULL, 40);
    nw_add(net, XN_OP_SIGN, "s", NULL);
    conv(net, &rng, "c2", NULL, 3, 40);
    expect(net, "conv 0 scale bias > 1*\n"
                "conv 1* > 2\n");
}
END_TEST

START_TEST(folded_parameters_are_computed_in_double) {
    nw_net *net = nw_create(1, 1, 1);
    xn_layer *c = nw_add(net, XN_OP_CONV, "c", NULL);
    c->weight = nw_tensor(net, (const float[]){1}, 1, 1, 0, 0);
    c->scale = nw_values(net, 1, 0.1);
    c->bias = nw_values(net, 1, 0.7);
    for (int i = 0; i < 2; i++) {
        xn_layer *a = nw_add(net, XN_OP_AFFINE, i ? "a1" : "a0", NULL);
        a->scale = nw_values(net, 1, i ? -1.3 : 0.3);
        a->bias = nw_values(net, 1, i ? 0.9 : 0.2);
    }
    xn_network *network = nw_lower(net);
    const double s0 = (double)0.1f, b0 = (double)0.7f, s1 = (double)0.3f, b1 = (double)0.2f;
    const double s2 = (double)-1.3f, b2 = (double)0.9f;
    ck_assert_int_eq(network->step_count, 1);
    ck_assert(network->weights[0]->scale[0] == (float)(s0 * s1 * s2));
    ck_assert(network->weights[0]->bias[0] == (float)((b0 * s1 + b1) * s2 + b2));
    xn_network_free(network);
    nw_free(net);
}
END_TEST

/* Bi-Real: the stem, two blocks, a block with stride whose shortcut is pooled. */
START_TEST(a_residual_block_is_a_step_with_two_stores) {
    xn_rng rng = rng_of(4);
    nw_net *net = nw_create(3, 8, 8);
    conv(net, &rng, "stem", NULL, 8, 3)->window.mode = XN_MODE_FLOAT;
    affine(net, &rng, "bn0", NULL, 8);
    pool(net, XN_OP_MAX_POOL, "pool", NULL);
    conv(net, &rng, "c1", NULL, 8, 8); /* the sign is left out */
    affine(net, &rng, "bn1", NULL, 8);
    nw_add(net, XN_OP_ADD, "r1", "bn1 pool");
    nw_add(net, XN_OP_SIGN, "s2", NULL);
    conv(net, &rng, "c2", NULL, 8, 8);
    affine(net, &rng, "bn2", NULL, 8);
    nw_add(net, XN_OP_ADD, "r2", "bn2 r1");
    conv(net, &rng, "c3", "r2", 16, 8)->window.stride[0] = 2;
    net->layers[net->params.layer_count - 1].window.stride[1] = 2;
    affine(net, &rng, "bn3", NULL, 16);
    pool(net, XN_OP_AVG_POOL, "down", "r2");
    xn_layer *l = nw_add(net, XN_OP_CONV, "short", NULL);
    l->weight = nw_random(net, &rng, true, 16, 8, 1, 1);
    l->window.mode = XN_MODE_FLOAT;
    affine(net, &rng, "bn4", NULL, 16);
    nw_add(net, XN_OP_ADD, "r3", "bn3 bn4");
    expect(net, "conv 0 scale bias > 1\n"
                "max_pool 1 > 2 3*\n"
                "conv 3* scale bias +2 > 4 5*\n"
                "conv 5* scale bias +4 > 6 7*\n"
                "conv 7* scale bias > 8\n"
                "avg_pool 6 > 9\n"
                "conv 9 scale bias +8 > 10\n");
}
END_TEST

/* ReActNet: biases around the activation go into the step's bias, the shift of the next sign, and
 * the next residual. */
START_TEST(a_shifted_prelu_block_is_one_step) {
    xn_rng rng = rng_of(5);
    nw_net *net = nw_create(8, 6, 6);
    xn_layer *l;
    nw_add(net, XN_OP_SIGN, "s1", NULL)->shift = nw_random(net, &rng, false, 8, 0, 0, 0);
    conv(net, &rng, "c1", NULL, 8, 8);
    affine(net, &rng, "bn1", NULL, 8);
    nw_add(net, XN_OP_ADD, "r1", "bn1 input");
    bias(net, &rng, "b1", NULL, 8);
    l = nw_add(net, XN_OP_PRELU, "p1", NULL);
    l->slope = nw_random_scale(net, &rng, false, 8); /* negative slopes too */
    bias(net, &rng, "b2", NULL, 8);
    nw_add(net, XN_OP_SIGN, "s2", NULL)->shift = nw_random(net, &rng, false, 8, 0, 0, 0);
    conv(net, &rng, "c2", NULL, 8, 8);
    affine(net, &rng, "bn2", NULL, 8);
    nw_add(net, XN_OP_ADD, "r2", "bn2 b2");
    expect(net, "map 0 > 1* shift\n"
                "conv 1* scale bias +0 prelu > 2 3* shift\n"
                "conv 3* scale bias +2 > 4\n");
}
END_TEST

/* The bias stays where something reads it that cannot take it. */
START_TEST(a_bias_that_must_be_seen_is_a_step) {
    xn_rng rng = rng_of(6);
    nw_net *net = nw_create(4, 4, 4);
    nw_add(net, XN_OP_PRELU, "relu", NULL);
    bias(net, &rng, "b", NULL, 4);
    conv(net, &rng, "c", NULL, 4, 4)->window.mode = XN_MODE_FLOAT; /* pads with 0, not with b */
    expect(net, "map 0 prelu > 1\n"
                "map 1 bias > 2\n"
                "conv 2 > 3\n");
}
END_TEST

/* x + b in both places of a sum is 2 b more, not b. */
START_TEST(a_bias_that_is_added_to_itself_stays) {
    xn_rng rng = rng_of(33);
    nw_net *net = nw_create(4, 4, 4);
    nw_add(net, XN_OP_PRELU, "relu", NULL);
    bias(net, &rng, "b", NULL, 4);
    nw_add(net, XN_OP_ADD, "y", "b b");
    expect(net, "map 0 prelu > 1\n"
                "map 1 bias > 2\n"
                "map 2 +2 > 3\n");
}
END_TEST

/* A mean with counted padding takes only a share of the bias. */
START_TEST(a_bias_passes_a_mean_of_the_image_alone) {
    for (int counted = 0; counted < 2; counted++) {
        xn_rng rng = rng_of(31);
        nw_net *net = nw_create(4, 4, 4);
        nw_add(net, XN_OP_PRELU, "relu", NULL);
        bias(net, &rng, "b", NULL, 4);
        xn_layer *l = pool(net, XN_OP_AVG_POOL, "mean", NULL);
        l->count_padding = counted;
        for (int i = 0; i < 4; i++)
            l->window.padding[i] = 1;
        expect(net, counted ? "map 0 prelu > 1\nmap 1 bias > 2\navg_pool 2 > 3\n"
                            : "map 0 prelu > 1\navg_pool 1 bias > 2\n");
    }
}
END_TEST

/* QuickNet: the batch norm behind the activation is a step, with the residual and the sign. */
START_TEST(a_batch_norm_behind_relu_is_a_step) {
    xn_rng rng = rng_of(7);
    nw_net *net = nw_create(4, 4, 4);
    nw_add(net, XN_OP_SIGN, "s", NULL);
    conv(net, &rng, "c1", NULL, 4, 4)->window.pad_value = 1;
    nw_add(net, XN_OP_PRELU, "relu", NULL);
    affine(net, &rng, "bn", NULL, 4);
    nw_add(net, XN_OP_ADD, "r", "bn input");
    conv(net, &rng, "c2", NULL, 4, 4);
    expect(net, "conv 0 prelu > 1\n"
                "map 1 scale bias +0 > 2*\n"
                "conv 2* > 3\n");
}
END_TEST

/* BinaryDenseNet: concat is no step; the signs of all earlier channels are taken anew. */
START_TEST(concat_costs_no_step) {
    xn_rng rng = rng_of(8);
    nw_net *net = nw_create(3, 4, 4);
    conv(net, &rng, "stem", NULL, 8, 3)->window.mode = XN_MODE_FLOAT;
    affine(net, &rng, "bn1", NULL, 8);
    conv(net, &rng, "c1", NULL, 4, 8);
    nw_add(net, XN_OP_CONCAT, "d1", "stem c1");
    affine(net, &rng, "bn2", NULL, 12);
    conv(net, &rng, "c2", NULL, 4, 12);
    nw_add(net, XN_OP_CONCAT, "d2", "d1 c2");
    affine(net, &rng, "bn3", NULL, 16);
    conv(net, &rng, "c3", NULL, 2, 16);
    expect(net, "conv 0 > 1[0/256]\n"
                "map 1[0/256] scale bias > 2*\n"
                "conv 2* > 1[128/256]\n"
                "map 1[0/256] scale bias > 3*\n"
                "conv 3* > 1[192/256]\n"
                "map 1 scale bias > 4*\n"
                "conv 4* > 5\n");
}
END_TEST

/* A value can lie in one place: a second concat, and the input, are copied. */
START_TEST(what_is_placed_twice_is_copied) {
    xn_rng rng = rng_of(9);
    nw_net *net = nw_create(2, 4, 4);
    conv(net, &rng, "c", NULL, 2, 2)->window.mode = XN_MODE_FLOAT;
    nw_add(net, XN_OP_CONCAT, "d", "input c c");
    nw_add(net, XN_OP_SOFTMAX, "y", NULL);
    expect(net, "map 0 > 1[0/96]\n"
                "conv 0 > 1[32/96]\n"
                "map 1[32/96] > 1[64/96]\n"
                "softmax 1 > 2\n");
}
END_TEST

START_TEST(slice_is_a_part) {
    xn_rng rng = rng_of(10);
    nw_net *net = nw_create(6, 4, 4);
    xn_layer *l = nw_add(net, XN_OP_SLICE, "s", NULL);
    l->from = 2;
    l->to = 5;
    conv(net, &rng, "c", NULL, 3, 3);
    nw_add(net, XN_OP_ADD, "y", "c s");
    expect(net, "map 0[32/96] > 1*\n"
                "conv 1* +0[32/96] > 2\n");
}
END_TEST

/* ---- signs and pools ---- */

/* VGG: the pool is an OR of bits; the hardtanh goes. */
START_TEST(a_sign_goes_before_its_pool) {
    xn_rng rng = rng_of(11);
    nw_net *net = nw_create(4, 8, 8);
    conv(net, &rng, "c1", NULL, 8, 4)->bias = nw_random(net, &rng, false, 8, 0, 0, 0);
    pool(net, XN_OP_MAX_POOL, "pool", NULL);
    xn_layer *bn = affine(net, &rng, "bn", NULL, 8);
    bn->scale = nw_values(net, 8, 1., 2., .5, .25, 1., 1., 3., .1);
    nw_add(net, XN_OP_CLIP, "hardtanh", NULL);
    nw_add(net, XN_OP_SIGN, "s", NULL);
    conv(net, &rng, "c2", NULL, 3, 8);
    expect(net, "conv 0 scale bias > 1*\n"
                "max_pool 1* > 2*\n"
                "conv 2* > 3\n");
}
END_TEST

/* Where the batch norm turns a channel round, it is an AND. */
START_TEST(a_falling_channel_takes_the_least) {
    xn_rng rng = rng_of(12);
    nw_net *net = nw_create(4, 8, 8);
    conv(net, &rng, "c1", NULL, 4, 4);
    pool(net, XN_OP_MAX_POOL, "pool", NULL);
    xn_layer *bn = affine(net, &rng, "bn", NULL, 4);
    bn->scale = nw_values(net, 4, 1., -2., .5, 0.);
    nw_add(net, XN_OP_SIGN, "s", NULL)->shift = nw_random(net, &rng, false, 4, 0, 0, 0);
    conv(net, &rng, "c2", NULL, 3, 4);
    expect(net, "conv 0 scale bias > 1* shift\n"
                "max_pool 1* > 2* least\n"
                "conv 2* > 3\n");
}
END_TEST

/* Two batch norms that both turn a channel round leave it as it was. */
START_TEST(a_channel_that_falls_twice_rises) {
    xn_rng rng = rng_of(34);
    nw_net *net = nw_create(4, 8, 8);
    conv(net, &rng, "c1", NULL, 4, 4);
    pool(net, XN_OP_MAX_POOL, "pool", NULL);
    nw_add(net, XN_OP_AFFINE, "bn1", NULL)->scale = nw_values(net, 4, -1., -2., .5, 1.);
    nw_add(net, XN_OP_AFFINE, "bn2", NULL)->scale = nw_values(net, 4, -1., 2., -.5, 1.);
    conv(net, &rng, "c2", NULL, 3, 4);
    expect(net, "conv 0 scale > 1*\n"
                "max_pool 1* > 2* least\n"
                "conv 2* > 3\n");
}
END_TEST

/* A sum takes no factor in its epilogue: before the pool that would be a step more. */
START_TEST(a_scale_behind_the_pool_of_a_sum_stays) {
    xn_rng rng = rng_of(35);
    nw_net *net = nw_create(4, 8, 8);
    conv(net, &rng, "c1", NULL, 4, 4);
    nw_add(net, XN_OP_ADD, "sum", "c1 input");
    pool(net, XN_OP_MAX_POOL, "pool", NULL);
    nw_add(net, XN_OP_AFFINE, "bn", NULL)->scale = nw_values(net, 4, 1., 2., .5, 3.);
    conv(net, &rng, "c2", NULL, 3, 4);
    expect(net, "conv 0 +0 > 1\n"
                "max_pool 1 scale > 2*\n"
                "conv 2* > 3\n");
}
END_TEST

/* Of a real convolution NaN may come, which a pool leaves out and an AND would not. */
START_TEST(a_falling_channel_of_reals_stays_behind_its_pool) {
    xn_rng rng = rng_of(13);
    nw_net *net = nw_create(4, 8, 8);
    conv(net, &rng, "c1", NULL, 4, 4)->window.mode = XN_MODE_BWN;
    pool(net, XN_OP_MAX_POOL, "pool", NULL);
    xn_layer *bn = affine(net, &rng, "bn", NULL, 4);
    bn->scale = nw_values(net, 4, 1., -2., .5, 0.);
    conv(net, &rng, "c2", NULL, 3, 4);
    expect(net, "conv 0 > 1\n"
                "max_pool 1 scale bias > 2*\n"
                "conv 2* > 3\n");
}
END_TEST

/* Nor is a clip that makes +1 of everything moved: a pool of NaN alone gives -infinity, which it
 * lifts, and NaN it does not. */
START_TEST(a_clip_of_reals_stays_behind_its_pool) {
    xn_rng rng = rng_of(29);
    nw_net *net = nw_create(2, 8, 8);
    nw_add(net, XN_OP_AFFINE, "a", NULL)->bias = nw_values(net, 2, (double)NAN, 1.);
    pool(net, XN_OP_MAX_POOL, "pool", NULL);
    nw_add(net, XN_OP_CLIP, "clip", NULL)->low = 0;
    conv(net, &rng, "c", NULL, 3, 2);
    expect(net, "map 0 bias > 1\n"
                "max_pool 1 clip > 2*\n"
                "conv 2* > 3\n");
}
END_TEST

/* A negative slope is not monotone: y first, then its sign. */
START_TEST(a_negative_slope_stays_behind_its_pool) {
    for (int negative = 0; negative < 2; negative++) {
        xn_rng rng = rng_of(14);
        nw_net *net = nw_create(4, 8, 8);
        conv(net, &rng, "c1", NULL, 4, 4);
        pool(net, XN_OP_MAX_POOL, "pool", NULL);
        xn_layer *p = nw_add(net, XN_OP_PRELU, "p", NULL);
        p->slope = nw_values(net, 4, 1., negative ? -.5 : .5, .5, 0.);
        nw_add(net, XN_OP_SIGN, "s", NULL)->shift = nw_random(net, &rng, false, 4, 0, 0, 0);
        conv(net, &rng, "c2", NULL, 3, 4);
        expect(net, negative ? "conv 0 > 1\n"
                               "max_pool 1 prelu > 2* shift\n"
                               "conv 2* > 3\n"
                             : "conv 0 prelu > 1* shift\n"
                               "max_pool 1* > 2*\n"
                               "conv 2* > 3\n");
    }
}
END_TEST

/* The value of the pool is asked for beside its sign. */
START_TEST(a_pool_that_is_read_stays_real) {
    xn_rng rng = rng_of(15);
    nw_net *net = nw_create(4, 8, 8);
    conv(net, &rng, "c1", NULL, 4, 4);
    pool(net, XN_OP_MAX_POOL, "pool", NULL);
    conv(net, &rng, "c2", NULL, 4, 4);
    nw_add(net, XN_OP_ADD, "y", "c2 pool");
    expect(net, "conv 0 > 1\n"
                "max_pool 1 > 2 3*\n"
                "conv 3* +2 > 4\n");
}
END_TEST

/* The convolution's value is asked for too: what is behind the pool stays there. */
START_TEST(what_is_behind_a_pool_stays_where_its_input_is_read) {
    xn_rng rng = rng_of(32);
    nw_net *net = nw_create(4, 8, 8);
    conv(net, &rng, "c1", NULL, 4, 4);
    pool(net, XN_OP_MAX_POOL, "pool", NULL);
    affine(net, &rng, "bn", NULL, 4)->scale = NULL;
    conv(net, &rng, "c2", NULL, 4, 4);
    pool(net, XN_OP_AVG_POOL, "mean", "c1");
    nw_add(net, XN_OP_ADD, "y", "c2 mean");
    expect(net, "conv 0 > 1\n"
                "max_pool 1 bias > 2*\n"
                "conv 2* > 3\n"
                "avg_pool 1 +3 > 4\n");
}
END_TEST

/* A clip whose end is on the wrong side of the threshold decides signs. */
START_TEST(a_clip_that_decides_signs_stays) {
    static const struct {
        float low, high, shift;
        bool stays;
    } cases[] = {{-1, 1, 0, false}, {0, 1, 0, true},      {-1, 0, 0, false},  {-1, -0.5f, 0, true},
                 {-1, 1, 1, true},  {-1, 1, 0.5f, false}, {-1, 1, -1, false}, {-1, 1, -1.5f, true}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        xn_rng rng = rng_of(16);
        nw_net *net = nw_create(1, 8, 8);
        conv(net, &rng, "c1", NULL, 1, 1);
        xn_layer *clip = nw_add(net, XN_OP_CLIP, "clip", NULL);
        clip->low = cases[i].low;
        clip->high = cases[i].high;
        nw_add(net, XN_OP_SIGN, "s", NULL)->shift = nw_values(net, 1, (double)cases[i].shift);
        conv(net, &rng, "c2", NULL, 1, 1);
        expect(net, cases[i].stays ? "conv 0 clip > 1* shift\nconv 1* > 2\n"
                                   : "conv 0 > 1* shift\nconv 1* > 2\n");
    }
}
END_TEST

/* Two signs of one value: one goes into its step, the other is a step. Equal ones are one. */
START_TEST(equal_signs_are_one) {
    xn_rng rng = rng_of(17);
    nw_net *net = nw_create(4, 4, 4);
    conv(net, &rng, "c", NULL, 4, 4);
    nw_add(net, XN_OP_SIGN, "s1", "c")->shift = nw_values(net, 1, .5);
    nw_add(net, XN_OP_SIGN, "s2", "c")->shift = nw_values(net, 4, .5, .5, .5, .5);
    nw_add(net, XN_OP_SIGN, "s3", "c");
    nw_add(net, XN_OP_SIGN, "s4", "c")->shift = nw_values(net, 4, .5, .5, .5, -.5);
    conv(net, &rng, "y1", "s1", 2, 4);
    conv(net, &rng, "y2", "s2", 2, 4);
    conv(net, &rng, "y3", "s3", 2, 4);
    conv(net, &rng, "y4", "c", 2, 4); /* s3 is implied */
    conv(net, &rng, "y5", "s4", 2, 4);
    nw_add(net, XN_OP_ADD, "y", "y1 y2 y3 y4 y5");
    expect(net, "conv 0 > 1 2* shift\n"
                "map 1 > 3*\n"
                "map 1 > 4* shift\n"
                "conv 2* > 5\n"
                "conv 2* +5 > 6\n"
                "conv 3* +6 > 7\n"
                "conv 3* +7 > 8\n"
                "conv 4* +8 > 9\n");
}
END_TEST

/* Two convolutions of the input: its signs are taken once. */
/* +1 and -1 are turned by shifts beyond them. */
START_TEST(a_sign_with_a_shift_behind_a_sign_is_taken) {
    xn_rng rng = rng_of(36);
    nw_net *net = nw_create(4, 4, 4);
    nw_add(net, XN_OP_SIGN, "s1", NULL);
    nw_add(net, XN_OP_SIGN, "s2", NULL)->shift = nw_values(net, 4, 2., -2., .5, 1.);
    conv(net, &rng, "c", NULL, 3, 4);
    expect(net, "map 0 > 1*\n"
                "map 1* > 2* shift\n"
                "conv 2* > 3\n");
}
END_TEST

START_TEST(signs_of_the_input_are_taken_once) {
    xn_rng rng = rng_of(33);
    nw_net *net = nw_create(4, 4, 4);
    conv(net, &rng, "y1", "input", 2, 4);
    conv(net, &rng, "y2", "input", 2, 4);
    nw_add(net, XN_OP_ADD, "y", "y1 y2");
    expect(net, "map 0 > 1*\n"
                "conv 1* > 2\n"
                "conv 1* +2 > 3\n");
}
END_TEST

/* A sign as a number lies as bits all the same. */
START_TEST(a_sign_that_is_added_is_read_from_bits) {
    xn_rng rng = rng_of(18);
    nw_net *net = nw_create(40, 4, 4);
    nw_add(net, XN_OP_SIGN, "s", NULL);
    conv(net, &rng, "c", NULL, 40, 40);
    nw_add(net, XN_OP_ADD, "y", "c s");
    expect(net, "map 0 > 1*\n"
                "conv 1* > 2\n"
                "map 1* +2 > 3\n");
}
END_TEST

/* Words have one group's channels; convolutions with groups read bytes. */
START_TEST(grouped_convolutions_read_bytes) {
    xn_rng rng = rng_of(19);
    nw_net *net = nw_create(40, 4, 4);
    nw_add(net, XN_OP_SIGN, "s", NULL)->shift = nw_random(net, &rng, false, 40, 0, 0, 0);
    conv(net, &rng, "c", NULL, 20, 20)->window.groups = 2;
    xn_network *network = nw_lower(net);
    ck_assert_int_eq(network->steps[0].bits_layout, XN_LAYOUT_BYTES);
    ck_assert_int_eq(network->steps[1].input_layout, XN_LAYOUT_BYTES);
    xn_network_free(network);
    net->layers[1].window.groups = 1;
    net->layers[1].weight = nw_random(net, &rng, true, 20, 40, 3, 3);
    network = nw_lower(net);
    ck_assert_int_eq(network->steps[0].bits_layout, XN_LAYOUT_WORDS);
    ck_assert_int_eq(network->steps[1].input_layout, XN_LAYOUT_WORDS);
    xn_network_free(network);
    nw_free(net);
}
END_TEST

/* ---- shapes ---- */

/* LFC, and any network's end: flatten and the dense layer behind it are one convolution. */
START_TEST(a_dense_layer_behind_flatten_is_a_convolution) {
    for (int xnor = 0; xnor < 2; xnor++) {
        xn_rng rng = rng_of(20);
        nw_net *net = nw_create(8, 3, 4);
        affine(net, &rng, "bn", NULL, 8);
        nw_add(net, XN_OP_FLATTEN, "flat", NULL);
        xn_layer *l = nw_add(net, XN_OP_CONV, "dense", NULL);
        l->weight = nw_random(net, &rng, true, 10, 96, 0, 0);
        l->window.mode = xnor ? XN_MODE_XNOR : XN_MODE_FLOAT;
        nw_add(net, XN_OP_SOFTMAX, "y", NULL);
        xn_network *network = nw_lower(net);
        const xn_conv *v = &network->steps[1].conv;
        ck_assert(v->kernel_h == 3 && v->kernel_w == 4 && v->channels == 8 && v->out_height == 1);
        xn_network_free(network);
        expect(net, xnor ? "map 0 scale bias > 1*\nconv 1* > 2\nsoftmax 2 > 3\n"
                         : "map 0 scale bias > 1\nconv 1 > 2\nsoftmax 2 > 3\n");
    }
}
END_TEST

/* The mean of K's means of channels is the mean of all of them. */
START_TEST(a_dense_layer_with_k_behind_flatten_is_a_convolution) {
    xn_rng rng = rng_of(37);
    nw_net *net = nw_create(8, 2, 4);
    nw_add(net, XN_OP_FLATTEN, "flat", NULL);
    xn_layer *l = nw_add(net, XN_OP_CONV, "dense", NULL);
    l->weight = nw_random(net, &rng, true, 10, 64, 0, 0);
    l->window.mode = XN_MODE_XNOR;
    l->k_map = true;
    expect(net, "conv 0 k > 1\n");
}
END_TEST

START_TEST(flatten_is_another_shape_of_the_same_values) {
    xn_rng rng = rng_of(21);
    nw_net *net = nw_create(2, 3, 4);
    nw_add(net, XN_OP_FLATTEN, "flat", NULL);
    affine(net, &rng, "bn", NULL, 24);
    xn_layer *l = nw_add(net, XN_OP_CONV, "dense", NULL);
    l->weight = nw_random(net, &rng, true, 3, 24, 0, 0);
    expect(net, "map 0 scale bias > 1*\n"
                "conv 1* > 2\n");
}
END_TEST

START_TEST(an_affine_layer_of_elements_is_one_of_flat_channels) {
    xn_rng rng = rng_of(22);
    nw_net *net = nw_create(2, 3, 4);
    xn_layer *l = nw_add(net, XN_OP_AFFINE, "a", NULL);
    l->scale = nw_random_scale(net, &rng, false, 2);
    l->bias = nw_random(net, &rng, false, 2, 3, 4, 0);
    nw_add(net, XN_OP_PRELU, "y", NULL);
    expect(net, "map 0 scale bias > 1\n"
                "map 1 prelu > 2\n");
}
END_TEST

START_TEST(outputs_lie_one_after_the_other) {
    xn_rng rng = rng_of(23);
    nw_net *net = nw_create(2, 4, 4);
    conv(net, &rng, "c", NULL, 3, 2);
    nw_add(net, XN_OP_SIGN, "s", NULL);
    xn_layer *l = pool(net, XN_OP_AVG_POOL, "g", "c");
    l->global = true;
    nw_output(net, "g");
    nw_output(net, "c");
    nw_output(net, "s");
    nw_output(net, "g");
    /* c is read by others too, so what is asked for is a copy; so is the second g. */
    expect(net, "conv 0 > 1 2*\n"
                "avg_pool 1 > 3\n"
                "map 2* > 4[51/102]\n"
                "map 3 > 4[0/102]\n"
                "map 1 > 4[3/102]\n"
                "map 3 > 4[99/102]\n");
}
END_TEST

START_TEST(what_nobody_asks_for_is_left_out) {
    xn_rng rng = rng_of(24);
    nw_net *net = nw_create(2, 4, 4);
    conv(net, &rng, "c1", NULL, 3, 2);
    conv(net, &rng, "c2", "input", 3, 2);
    nw_output(net, "c1");
    expect(net, "conv 0 > 1\n");
}
END_TEST

/* ---- the input ---- */

START_TEST(pictures_are_read_as_they_come) {
    xn_rng rng = rng_of(25);
    nw_net *net = nw_create(4, 5, 3);
    net->params.input_layout = XN_IMAGE_NHWC;
    net->params.input_datatype = XN_UINT8;
    affine(net, &rng, "normalise", NULL, 3);
    conv(net, &rng, "c", NULL, 2, 3)->window.mode = XN_MODE_FLOAT;
    xn_network *network = nw_lower(net);
    ck_assert_int_eq(network->steps[0].input_layout, XN_LAYOUT_NHWC);
    ck_assert_int_eq(network->steps[0].conv.input_datatype, XN_UINT8);
    ck_assert_uint_eq(xn_step_input_bytes(&network->steps[0]), 60);
    xn_network_free(network);
    expect(net, "stem 0 > 1\n");
}
END_TEST

START_TEST(a_picture_for_a_convolution_is_turned_first) {
    xn_rng rng = rng_of(26);
    nw_net *net = nw_create(4, 5, 3);
    net->params.input_layout = XN_IMAGE_NHWC;
    conv(net, &rng, "c", NULL, 2, 3)->window.mode = XN_MODE_BWN;
    expect(net, "map 0 > 1\nconv 1 > 2\n");
    net = nw_create(3, 4, 5);
    net->params.input_datatype = XN_UINT8;
    conv(net, &rng, "c", NULL, 2, 3)->window.mode = XN_MODE_BWN;
    expect(net, "conv 0 > 1\n");
}
END_TEST

/* ---- what is not done ---- */

/* The product of the factors would be no normal number: they are not folded. */
START_TEST(parameters_that_leave_the_range_stay_apart) {
    static const float scales[][2] = {{1e-30f, 1e-30f}, {1e30f, 1e30f}, {1, 1e30f}};
    for (int i = 0; i < 3; i++) {
        xn_rng rng = rng_of(27);
        nw_net *net = nw_create(2, 4, 4);
        xn_layer *l = conv(net, &rng, "c", NULL, 1, 2);
        l->scale = nw_values(net, 1, (double)scales[i][0]);
        if (i == 2) /* and so would a folded bias */
            l->bias = nw_values(net, 1, 1e30);
        nw_add(net, XN_OP_AFFINE, "a", NULL)->scale = nw_values(net, 1, (double)scales[i][1]);
        xn_network *network = nw_lower(net);
        ck_assert_int_eq(network->step_count, 2);
        xn_network_free(network);
        nw_free(net);
    }
}
END_TEST

/* K reads magnitudes: no sign in front. */
START_TEST(a_convolution_with_k_reads_reals) {
    xn_rng rng = rng_of(28);
    nw_net *net = nw_create(2, 4, 4);
    conv(net, &rng, "c1", NULL, 4, 2);
    conv(net, &rng, "c2", NULL, 3, 4)->k_map = true;
    expect(net, "conv 0 > 1\n"
                "conv 1 k > 2\n");
}
END_TEST

/* Of what has two readers neither may swallow it. */
START_TEST(a_value_with_two_readers_is_stored) {
    xn_rng rng = rng_of(29);
    nw_net *net = nw_create(2, 4, 4);
    conv(net, &rng, "c", NULL, 2, 2);
    affine(net, &rng, "a", "c", 2);
    nw_add(net, XN_OP_MUL, "m", "c g");
    net->params.layer_count--;
    pool(net, XN_OP_AVG_POOL, "g", "c")->global = true;
    nw_add(net, XN_OP_SIGMOID, "sg", NULL);
    nw_add(net, XN_OP_MUL, "m", "a sg");
    nw_add(net, XN_OP_ADD, "y", "m m");
    expect(net, "conv 0 > 1\n"
                "map 1 scale bias > 2\n"
                "avg_pool 1 > 3\n"
                "sigmoid 3 > 4\n"
                "mul 2 x 4 > 5\n"
                "map 5 +5 > 6\n");
}
END_TEST

/* ---- problems ---- */

START_TEST(a_problem_is_a_network_or_a_convolution) {
    xn_rng rng = rng_of(34);
    nw_net *net = nw_create(3, 4, 5);
    net->params.input_datatype = XN_UINT8;
    affine(net, &rng, "a", NULL, 3);
    xn_layer *l = nw_add(net, XN_OP_CONV, "c", NULL);
    l->weight = nw_random(net, &rng, true, 7, 3, 2, 2);
    xn_network *one = nw_lower(net), *other = nw_lower(net);
    xn_problem a, b, c;
    xn_problem_of_network(one, &a);
    xn_problem_of_network(one, &b);
    xn_problem_of_network(other, &c);
    ck_assert(xn_problem_equal(&a, &b) && !xn_problem_equal(&a, &c));
    xn_problem_of_conv(&one->steps[1].conv, &b);
    ck_assert(!xn_problem_equal(&a, &b));
    ck_assert_int_eq(xn_problem_input_elements(&a), 60);
    ck_assert_uint_eq(xn_problem_input_bytes(&a), 60);
    ck_assert_int_eq(xn_problem_output_elements(&a), 7 * 12);
    ck_assert_uint_eq(xn_problem_output_bytes(&a), 7 * 12 * 4);
    ck_assert_int_eq(xn_problem_operations(&a), 7 * 12 * 12);
    xn_network_free(one);
    xn_network_free(other);
    nw_free(net);
}
END_TEST

/* A cache keeps problems of networks that are gone: what lies there now is no such network. */
START_TEST(a_network_where_another_was_is_another) {
    xn_rng rng = rng_of(35);
    nw_net *net = nw_create(3, 4, 5);
    affine(net, &rng, "a", NULL, 3);
    xn_network *one = nw_lower(net), *other = nw_lower(net), place = *one;
    xn_problem before, after;
    xn_problem_of_network(&place, &before);
    place = *other;
    xn_problem_of_network(&place, &after);
    ck_assert(!xn_problem_equal(&before, &after));
    xn_network_free(one);
    xn_network_free(other);
    nw_free(net);
}
END_TEST

/* ---- memory ---- */

typedef struct countdown {
    int left, calls;
} countdown;

static bool counting(void *context, size_t bytes) {
    countdown *c = context;
    (void)bytes;
    c->calls++;
    return c->left-- != 0;
}

static nw_net *some_network(xn_rng *rng) {
    nw_net *net = nw_create(3, 8, 8);
    conv(net, rng, "stem", NULL, 8, 3)->window.mode = XN_MODE_FLOAT;
    affine(net, rng, "bn0", NULL, 8);
    conv(net, rng, "c1", NULL, 8, 8);
    pool(net, XN_OP_MAX_POOL, "pool", NULL);
    affine(net, rng, "bn1", NULL, 8);
    conv(net, rng, "c2", NULL, 8, 8);
    nw_add(net, XN_OP_PRELU, "p", NULL);
    bias(net, rng, "b", NULL, 8);
    nw_add(net, XN_OP_SIGN, "s", NULL);
    conv(net, rng, "c3", NULL, 8, 8);
    nw_add(net, XN_OP_ADD, "r", "c3 b");
    nw_add(net, XN_OP_CONCAT, "d", "r pool r");
    xn_layer *l = nw_add(net, XN_OP_AFFINE, "whole", NULL);
    l->bias = nw_random(net, rng, true, 24, 4, 4, 0);
    nw_output(net, "whole");
    nw_output(net, "s");
    return net;
}

/* Every allocation of graph and lowering fails once: a clear error, nothing lost, nothing made. */
START_TEST(every_allocation_failed_in_turn) {
    xn_rng rng = rng_of(30);
    nw_net *net = some_network(&rng);
    for (int fail = 0;; fail++) {
        countdown c = {.left = fail};
        xn_graph *graph = NULL;
        xn_network *network = NULL;
        xn_error error = {0};
        xn_mem_set_hook(counting, &c);
        xn_status status = xn_graph_create(&net->params, &nw_limits, &graph, &error);
        if (!status)
            status = xn_network_lower(graph, &network, &error);
        xn_mem_set_hook(NULL, NULL);
        xn_graph_free(graph);
        if (!status) {
            ck_assert_int_eq(c.calls, fail);
            ck_assert_int_gt(fail, 50);
            xn_network_free(network);
            break;
        }
        ck_assert_int_eq(status, XN_ERR_NO_MEMORY);
        ck_assert_int_eq(error.status, XN_ERR_NO_MEMORY);
        ck_assert_ptr_null(network);
        ck_assert_int_lt(fail, 1000);
    }
    nw_free(net);
}
END_TEST

/* 64 times the same layer, as nw_add has inputs. */
static void copies(const char *name, char inputs[64 * 8]) {
    inputs[0] = '\0';
    for (int i = 0; i < 64; i++)
        snprintf(inputs + strlen(inputs), 64 * 8 - strlen(inputs), "%s%s", i ? " " : "", name);
}

/* One value for 2^27 channels, which cost the graph nothing. */
START_TEST(parameters_of_too_many_channels_are_refused) {
    const xn_conv_limits limits = {INT64_C(1) << 32, INT64_C(1) << 40, INT64_C(1) << 40};
    nw_net *net = nw_create(1 << 15, 1, 1);
    char inputs[64 * 8];
    xn_graph *graph = NULL;
    xn_network *network = NULL;
    xn_error error = {0};
    copies("input", inputs);
    nw_add(net, XN_OP_CONCAT, "d", inputs);
    copies("d", inputs);
    nw_add(net, XN_OP_CONCAT, "e", inputs);
    nw_add(net, XN_OP_AFFINE, "half", NULL)->scale = nw_values(net, 1, 0.5);
    xn_layer *first = nw_add(net, XN_OP_SLICE, "first", NULL);
    first->from = 0;
    first->to = 1;
    ck_assert_msg(!xn_graph_create(&net->params, &limits, &graph, &error), "%s", error.message);
    ck_assert_int_eq(xn_network_lower(graph, &network, &error), XN_ERR_LIMIT);
    ck_assert_msg(strstr(error.message, "1024 MiB") != NULL, "%s", error.message);
    ck_assert_ptr_null(network);
    xn_graph_free(graph);
    nw_free(net);
}
END_TEST

XN_SUITE(networks_lower) {
    Suite *s = suite_create("networks_lower");
    TCase *t = tcase_create("lower");
    tcase_set_timeout(t, 60);
    tcase_add_test(t, a_convolution_alone_is_one_step);
    tcase_add_test(t, parameters_of_too_many_channels_are_refused);
    tcase_add_test(t, it_is_the_step_of_a_request);
    tcase_add_test(t, batch_norm_and_sign_go_into_the_convolution);
    tcase_add_test(t, folded_parameters_are_computed_in_double);
    tcase_add_test(t, a_residual_block_is_a_step_with_two_stores);
    tcase_add_test(t, a_shifted_prelu_block_is_one_step);
    tcase_add_test(t, a_bias_that_must_be_seen_is_a_step);
    tcase_add_test(t, a_bias_that_is_added_to_itself_stays);
    tcase_add_test(t, a_bias_passes_a_mean_of_the_image_alone);
    tcase_add_test(t, a_batch_norm_behind_relu_is_a_step);
    tcase_add_test(t, concat_costs_no_step);
    tcase_add_test(t, what_is_placed_twice_is_copied);
    tcase_add_test(t, slice_is_a_part);
    tcase_add_test(t, a_sign_goes_before_its_pool);
    tcase_add_test(t, a_falling_channel_takes_the_least);
    tcase_add_test(t, a_channel_that_falls_twice_rises);
    tcase_add_test(t, a_scale_behind_the_pool_of_a_sum_stays);
    tcase_add_test(t, a_falling_channel_of_reals_stays_behind_its_pool);
    tcase_add_test(t, a_clip_of_reals_stays_behind_its_pool);
    tcase_add_test(t, a_negative_slope_stays_behind_its_pool);
    tcase_add_test(t, a_pool_that_is_read_stays_real);
    tcase_add_test(t, what_is_behind_a_pool_stays_where_its_input_is_read);
    tcase_add_test(t, a_clip_that_decides_signs_stays);
    tcase_add_test(t, equal_signs_are_one);
    tcase_add_test(t, a_sign_with_a_shift_behind_a_sign_is_taken);
    tcase_add_test(t, signs_of_the_input_are_taken_once);
    tcase_add_test(t, a_sign_that_is_added_is_read_from_bits);
    tcase_add_test(t, grouped_convolutions_read_bytes);
    tcase_add_test(t, a_dense_layer_behind_flatten_is_a_convolution);
    tcase_add_test(t, a_dense_layer_with_k_behind_flatten_is_a_convolution);
    tcase_add_test(t, flatten_is_another_shape_of_the_same_values);
    tcase_add_test(t, an_affine_layer_of_elements_is_one_of_flat_channels);
    tcase_add_test(t, outputs_lie_one_after_the_other);
    tcase_add_test(t, what_nobody_asks_for_is_left_out);
    tcase_add_test(t, pictures_are_read_as_they_come);
    tcase_add_test(t, a_picture_for_a_convolution_is_turned_first);
    tcase_add_test(t, parameters_that_leave_the_range_stay_apart);
    tcase_add_test(t, a_convolution_with_k_reads_reals);
    tcase_add_test(t, a_value_with_two_readers_is_stored);
    tcase_add_test(t, a_problem_is_a_network_or_a_convolution);
    tcase_add_test(t, a_network_where_another_was_is_another);
    tcase_add_test(t, every_allocation_failed_in_turn);
    suite_add_tcase(s, t);
    return s;
}
