/* Lowering rule by rule: of a network in words (nw_text.h) the steps that come out, in words, and
 * that they compute what the network means. A step reads
 *
 *   kind input [x gate] [scale] [k] [bias] [+residual] [prelu|clip] > real bits [shift] [least]
 *
 * where tensors are numbers, those that lie as bits have a *, and a part of one is written
 * number[first/all] in elements. */
#include "nw_model.h"
#include "nw_text.h"

#include "countdown.h"
#include "xn_mem.h"
#include "xn_problem.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { TEXT = 4000 };

typedef struct words {
    char text[TEXT];
    size_t used;
} words;

static void say(words *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void say(words *t, const char *format, ...) {
    va_list args;
    va_start(args, format);
    t->used += (size_t)vsnprintf(t->text + t->used, TEXT - t->used, format, args);
    va_end(args);
    ck_assert_uint_lt(t->used, TEXT);
}

static void say_tensor(words *t, int32_t tensor, const xn_view *view, bool bits) {
    say(t, "%d%s", tensor, bits ? "*" : "");
    if (view && view->pitch)
        say(t, "[%d/%d]", view->offset, view->pitch);
}

static void say_step(words *t, const xn_step *s) {
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
    say(t, "%s%s", e->shift ? " shift" : "", s->least ? " least" : "");
}

/* What the network means, of an input of small quarters, must come out exactly or within what
 * rounding explains. */
static void check_results(const nw_net *net, const xn_network *network, const char *rule) {
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
                          "%s: %s[%d]: %g, not %g", rule, end.name, (int)k, (double)*at,
                          want->value[k]);
    }
    nw_answer_free(&answer);
    free(got);
    xn_graph_free(graph);
}

/* Lowers the net, compares its steps and frees it. */
static void expect(nw_net *net, const char *rule, const char *steps) {
    xn_network *network = nw_lower(net);
    words t = {{0}, 0};
    for (int i = 0; i < network->step_count; i++) {
        say(&t, "%s", i ? "; " : "");
        say_step(&t, &network->steps[i]);
    }
    ck_assert_msg(!strcmp(t.text, steps), "%s: %s, not %s", rule, t.text, steps);
    /* values next to one another may change places in a top_k: network_test.c */
    bool ranked = false;
    for (int i = 0; i < net->params.layer_count; i++)
        ranked = ranked || net->layers[i].op == XN_OP_TOP_K;
    if (net->params.input_datatype == XN_FP32 && net->params.input_layout == XN_IMAGE_NCHW &&
        !ranked)
        check_results(net, network, rule);
    xn_network_free(network);
    nw_free(net);
}

static xn_rng rng_of(uint64_t n) {
    return (xn_rng){xn_test_seed() + n};
}

/* ---- the rules ---- */

typedef struct rule {
    const char *what, *net, *steps;
} rule;

static const rule rules[] = {
    /* epilogues */
    {"a convolution alone is one step", "4x6x6: conv 5 scale bias", "conv 0 scale bias > 1"},
    {"batch norm and sign go into the convolution", "4x6x6: conv 40; affine; sign; conv 3",
     "conv 0 scale bias > 1*; conv 1* > 2"},
    {"Bi-Real: a residual block is a step with two stores; a shortcut is pooled",
     "3x8x8: conv 8 float; affine; pool=max_pool; conv 8; affine; r1=add last pool; sign; conv 8;"
     "affine; r2=add last r1; conv 16 stride=2; bn3=affine; avg_pool < r2; conv1 16 float; affine;"
     "add bn3 last",
     "conv 0 scale bias > 1; max_pool 1 > 2 3*; conv 3* scale bias +2 > 4 5*; "
     "conv 5* scale bias +4 > 6 7*; conv 7* scale bias > 8; avg_pool 6 > 9; "
     "conv 9 scale bias +8 > 10"},
    {"a pooled shortcut comes behind the convolution that it is added to, wherever the file has it",
     "3x8x8: conv 4 float; x=affine; avg_pool; conv1 8 float; short=affine; conv 8 < x stride=2;"
     "affine; add last short",
     "conv 0 scale bias > 1 2*; conv 2* scale bias > 3; avg_pool 1 > 4; conv 4 scale bias +3 > 5"},
    {"ReActNet: biases around the activation go into the step's bias, the shift of the next sign, "
     "and the next residual",
     "8x6x6: sign shift; conv 8; affine; add last input; affine bias; prelu slope; b2=affine bias;"
     "sign shift; conv 8; affine; add last b2",
     "map 0 > 1* shift; conv 1* scale bias +0 prelu > 2 3* shift; conv 3* scale bias +2 > 4"},
    {"a bias stays where a border of 0 reads it, which cannot take it",
     "4x4x4: prelu; affine bias; conv 4 float", "map 0 prelu > 1; map 1 bias > 2; conv 2 > 3"},
    {"a bias that is added to itself is 2 b more, not b: it stays",
     "4x4x4: prelu; b=affine bias; add b b", "map 0 prelu > 1; map 1 bias > 2; map 2 +2 > 3"},
    {"a mean with counted padding takes only a share of the bias",
     "4x4x4: prelu; affine bias; avg_pool padding=1 count_padding",
     "map 0 prelu > 1; map 1 bias > 2; avg_pool 2 > 3"},
    {"a bias passes a mean of the image alone", "4x4x4: prelu; affine bias; avg_pool padding=1",
     "map 0 prelu > 1; avg_pool 1 bias > 2"},
    {"QuickNet: a batch norm behind the activation is a step, with the residual and the sign",
     "4x4x4: sign; conv 4 pad_value=1; prelu; affine; add last input; conv 4",
     "conv 0 prelu > 1; map 1 scale bias +0 > 2*; conv 2* > 3"},
    /* joined and cut */
    {"BinaryDenseNet: concat is no step; the signs of all earlier channels are taken anew",
     "3x4x4: stem=conv 8 float; affine; c1=conv 4; d1=concat stem c1; affine; c2=conv 4;"
     "concat d1 c2; affine; conv 2",
     "conv 0 > 1[0/256]; map 1[0/256] scale bias > 2*; conv 2* > 1[128/256]; "
     "map 1[0/256] scale bias > 3*; conv 3* > 1[192/256]; map 1 scale bias > 4*; conv 4* > 5"},
    {"what is placed twice is copied, and so is the input",
     "2x4x4: c=conv 2 float; concat input c c; softmax",
     "map 0 > 1[0/96]; conv 0 > 1[32/96]; map 1[32/96] > 1[64/96]; softmax 1 > 2"},
    {"a slice is a part", "6x4x4: s=slice from=2 to=5; conv 3; add last s",
     "map 0[32/96] > 1*; conv 1* +0[32/96] > 2"},
    /* signs and pools */
    {"VGG: the sign goes before its pool, which is an OR of bits; the hardtanh goes",
     "4x8x8: conv 8 bias; max_pool; affine scale=1,2,.5,.25,1,1,3,.1 bias; clip; sign; conv 3",
     "conv 0 scale bias > 1*; max_pool 1* > 2*; conv 2* > 3"},
    {"a sign alone goes before its pool", "4x8x8: conv 4; max_pool; conv 3",
     "conv 0 > 1*; max_pool 1* > 2*; conv 2* > 3"},
    {"a bias behind an activation goes into the batch norm that reads it",
     "4x4x4: prelu; affine bias; affine; prelu", "map 0 prelu > 1; map 1 scale bias prelu > 2"},
    {"where the batch norm turns a channel round, the pool is an AND",
     "4x8x8: conv 4; max_pool; affine scale=1,-2,.5,0 bias; sign shift; conv 3",
     "conv 0 scale bias > 1* shift; max_pool 1* > 2* least; conv 2* > 3"},
    {"two batch norms that both turn a channel round leave it as it was",
     "4x8x8: conv 4; max_pool; affine scale=-1,-2,.5,1; affine scale=-1,2,-.5,1; conv 3",
     "conv 0 scale > 1*; max_pool 1* > 2* least; conv 2* > 3"},
    {"a sum takes no factor in its epilogue: before the pool that would be a step more",
     "4x8x8: conv 4; add last input; max_pool; affine scale=1,2,.5,3; conv 3",
     "conv 0 +0 > 1; max_pool 1 scale > 2*; conv 2* > 3"},
    {"of a real convolution NaN may come, which a pool leaves out and an AND would not",
     "4x8x8: conv 4 bwn; max_pool; affine scale=1,-2,.5,0 bias; conv 3",
     "conv 0 > 1; max_pool 1 scale bias > 2*; conv 2* > 3"},
    {"nor goes a clip that makes +1 of everything: a pool of NaN alone gives -infinity, which it "
     "lifts, and NaN it does not",
     "2x8x8: affine bias=nan,1; max_pool; clip low=0; conv 3",
     "map 0 bias > 1; max_pool 1 clip > 2*; conv 2* > 3"},
    {"a negative slope is not monotone: it stays behind its pool",
     "4x8x8: conv 4; max_pool; prelu slope=1,-.5,.5,0; sign shift; conv 3",
     "conv 0 > 1; max_pool 1 prelu > 2* shift; conv 2* > 3"},
    {"a slope that is not goes before it",
     "4x8x8: conv 4; max_pool; prelu slope=1,.5,.5,0; sign shift; conv 3",
     "conv 0 prelu > 1* shift; max_pool 1* > 2*; conv 2* > 3"},
    {"a pool whose value is asked for beside its sign stays real",
     "4x8x8: conv 4; pool=max_pool; conv 4; add last pool",
     "conv 0 > 1; max_pool 1 > 2 3*; conv 3* +2 > 4"},
    {"what is behind a pool stays there where the pool's input is read too",
     "4x8x8: c1=conv 4; max_pool; affine bias; c2=conv 4; avg_pool < c1; add c2 last",
     "conv 0 > 1; max_pool 1 bias > 2*; conv 2* > 3; avg_pool 1 +3 > 4"},
    /* a clip stays where its end is on the wrong side of the threshold: it decides signs */
    {"clip -1 1", "1x8x8: conv 1; clip; sign shift=0; conv 1", "conv 0 > 1* shift; conv 1* > 2"},
    {"clip 0 1", "1x8x8: conv 1; clip low=0; sign shift=0; conv 1",
     "conv 0 clip > 1* shift; conv 1* > 2"},
    {"clip -1 0", "1x8x8: conv 1; clip high=0; sign shift=0; conv 1",
     "conv 0 > 1* shift; conv 1* > 2"},
    {"clip -1 -.5", "1x8x8: conv 1; clip high=-.5; sign shift=0; conv 1",
     "conv 0 clip > 1* shift; conv 1* > 2"},
    {"clip -1 1, 1", "1x8x8: conv 1; clip; sign shift=1; conv 1",
     "conv 0 clip > 1* shift; conv 1* > 2"},
    {"clip -1 1, .5", "1x8x8: conv 1; clip; sign shift=.5; conv 1",
     "conv 0 > 1* shift; conv 1* > 2"},
    {"clip -1 1, -1", "1x8x8: conv 1; clip; sign shift=-1; conv 1",
     "conv 0 > 1* shift; conv 1* > 2"},
    {"clip -1 1, -1.5", "1x8x8: conv 1; clip; sign shift=-1.5; conv 1",
     "conv 0 clip > 1* shift; conv 1* > 2"},
    {"of two signs of one value one goes into its step, the other is a step; equal ones are one",
     "4x4x4: c=conv 4; s1=sign shift=.5; s2=sign < c shift=.5,.5,.5,.5; s3=sign < c;"
     "s4=sign < c shift=.5,.5,.5,-.5; y1=conv 2 < s1; y2=conv 2 < s2; y3=conv 2 < s3;"
     "y4=conv 2 < c; y5=conv 2 < s4; add y1 y2 y3 y4 y5",
     "conv 0 > 1 2* shift; map 1 > 3*; map 1 > 4* shift; conv 2* > 5; conv 2* +5 > 6; "
     "conv 3* +6 > 7; conv 3* +7 > 8; conv 4* +8 > 9"},
    {"+1 and -1 are turned by shifts beyond them: a sign with a shift behind a sign is taken",
     "4x4x4: sign; sign shift=2,-2,.5,1; conv 3", "map 0 > 1*; map 1* > 2* shift; conv 2* > 3"},
    {"signs of the input are taken once", "4x4x4: y1=conv 2; y2=conv 2 < input; add y1 y2",
     "map 0 > 1*; conv 1* > 2; conv 1* +2 > 3"},
    {"a sign as a number lies as bits all the same", "40x4x4: s=sign; conv 40; add last s",
     "map 0 > 1*; conv 1* > 2; map 1* +2 > 3"},
    {"K reads magnitudes: no sign in front", "2x4x4: conv 4; conv 3 k_map",
     "conv 0 > 1; conv 1 k > 2"},
    /* shapes */
    {"a top_k takes in the dense layer in front of it, whose input is bits",
     "40x1x1: dense 30; affine; prelu slope; top_k k=3",
     "map 0 > 1*; top_k 1* scale bias prelu > 2"},
    {"not where something else reads the values", "40x1x1: d=dense 30; top_k k=3; out d last",
     "conv 0 > 1; top_k 1 > 2[30/36]; map 1 > 2[0/36]"},
    {"nor of an image, or of products of reals",
     "4x3x2: f=flatten; dense 9; t=top_k k=2; dense 9 < f float; u=top_k k=2; out t u",
     "conv 0 > 1; top_k 1 > 2[0/8]; conv 0 > 3; top_k 3 > 2[4/8]"},
    {"LFC: flatten and the dense layer behind it are one convolution",
     "8x3x4: affine; flatten; dense 10 float; softmax",
     "map 0 scale bias > 1; conv 1 > 2; softmax 2 > 3"},
    {"the same of signs", "8x3x4: affine; flatten; dense 10; softmax",
     "map 0 scale bias > 1*; conv 1* > 2; softmax 2 > 3"},
    {"the mean of K's means of channels is the mean of all of them",
     "8x2x4: flatten; dense 10 k_map", "conv 0 k > 1"},
    {"flatten is another shape of the same values", "2x3x4: flatten; affine; dense 3",
     "map 0 scale bias > 1*; conv 1* > 2"},
    {"outputs lie one after the other; what others read too is copied, and so is one asked for "
     "twice",
     "2x4x4: c=conv 3; s=sign; g=avg_pool < c global; out g c s g",
     "conv 0 > 1 2*; avg_pool 1 > 3; map 2* > 4[51/102]; map 3 > 4[0/102]; map 1 > 4[3/102]; "
     "map 3 > 4[99/102]"},
    {"what nobody asks for is left out", "2x4x4: c1=conv 3; conv 3 < input; out c1", "conv 0 > 1"},
    {"of what has two readers neither may swallow it",
     "2x4x4: c=conv 2; a=affine; avg_pool < c global; sg=sigmoid; m=mul a sg; add m m",
     "conv 0 > 1; map 1 scale bias > 2; avg_pool 1 > 3; sigmoid 3 > 4; mul 2 x 4 > 5; "
     "map 5 +5 > 6"},
    /* the input */
    {"a picture is read as it comes", "4x5x3 nhwc uint8: affine; conv 2 float", "stem 0 > 1"},
    {"a picture for another convolution is turned first", "4x5x3 nhwc: conv 2 bwn",
     "map 0 > 1; conv 1 > 2"},
    {"bytes of planes are not", "3x4x5 uint8: conv 2 bwn", "conv 0 > 1"},
};

START_TEST(rule_by_rule) {
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        xn_rng rng = rng_of(i);
        expect(nw_text(&rng, rules[i].net), rules[i].what, rules[i].steps);
    }
}
END_TEST

static xn_network *lowered(const char *text) {
    xn_rng rng = rng_of(0);
    nw_net *net = nw_text(&rng, text);
    xn_network *network = nw_lower(net);
    nw_free(net);
    return network;
}

/* ---- what steps do not say in words ---- */

/* The step is the one that /conv makes of the same request, byte for byte in what both have. */
START_TEST(it_is_the_step_of_a_request) {
    xn_rng rng = rng_of(2);
    nw_net *net = nw_text(&rng, "4x6x7: conv 6 groups=2 stride=2 scale");
    xn_network *network = nw_lower(net);
    xn_conv_params params = net->layers[0].window;
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

START_TEST(folded_parameters_are_computed_in_double) {
    xn_rng rng = rng_of(0);
    nw_net *net = nw_text(&rng, "1x1x1: conv1 1 scale=.1 bias=.7; affine scale=.3 bias=.2;"
                                "affine scale=-1.3 bias=.9");
    net->layers[0].weight = nw_values(net, 1, 1.);
    ((xn_tensor *)net->layers[0].weight)->shape = (xn_shape){2, {1, 1}};
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

/* Words have one group's channels; convolutions with groups read bytes. */
START_TEST(grouped_convolutions_read_bytes) {
    static const struct {
        const char *text;
        int layout;
    } nets[] = {
        {"40x4x4: sign shift; conv 20 groups=2", XN_LAYOUT_BYTES},
        {"40x4x4: sign shift; conv 20", XN_LAYOUT_WORDS},
    };
    for (int i = 0; i < 2; i++) {
        xn_network *network = lowered(nets[i].text);
        ck_assert_int_eq(network->steps[0].bits_layout, nets[i].layout);
        ck_assert_int_eq(network->steps[1].input_layout, nets[i].layout);
        xn_network_free(network);
    }
}
END_TEST

START_TEST(a_dense_layer_behind_flatten_has_the_shape_of_what_was_flat) {
    xn_network *network = lowered("8x3x4: affine; flatten; dense 10; softmax");
    const xn_conv *v = &network->steps[1].conv;
    ck_assert(v->kernel_h == 3 && v->kernel_w == 4 && v->channels == 8 && v->out_height == 1);
    xn_network_free(network);
}
END_TEST

START_TEST(an_affine_layer_of_elements_is_one_of_flat_channels) {
    xn_rng rng = rng_of(22);
    nw_net *net = nw_text(&rng, "2x3x4: affine scale; prelu");
    net->layers[0].bias = nw_random(net, &rng, false, 2, 3, 4, 0);
    expect(net, "elements", "map 0 scale bias > 1; map 1 prelu > 2");
}
END_TEST

START_TEST(pictures_are_read_as_they_come) {
    xn_network *network = lowered("4x5x3 nhwc uint8: affine; conv 2 float");
    ck_assert_int_eq(network->steps[0].input_layout, XN_LAYOUT_NHWC);
    ck_assert_int_eq(network->steps[0].conv.input_datatype, XN_UINT8);
    ck_assert_uint_eq(xn_step_input_bytes(&network->steps[0]), 60);
    xn_network_free(network);
}
END_TEST

/* The product of the factors, or a folded bias, would be no normal number: they are not folded. */
START_TEST(parameters_that_leave_the_range_stay_apart) {
    static const char *const nets[] = {"2x4x4: conv 1 scale=1e-30; affine scale=1e-30",
                                       "2x4x4: conv 1 scale=1e30; affine scale=1e30",
                                       "2x4x4: conv 1 scale=1 bias=1e30; affine scale=1e30"};
    for (int i = 0; i < 3; i++) {
        xn_network *network = lowered(nets[i]);
        ck_assert_int_eq(network->step_count, 2);
        xn_network_free(network);
    }
}
END_TEST

/* ---- problems ---- */

START_TEST(a_problem_is_a_network_or_a_convolution) {
    xn_rng rng = rng_of(34);
    nw_net *net = nw_text(&rng, "3x4x5 uint8: affine; conv1 7");
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
    ck_assert_int_eq(xn_problem_output_elements(&a), 7 * 20);
    ck_assert_uint_eq(xn_problem_output_bytes(&a), 7 * 20 * 4);
    ck_assert_int_eq(xn_problem_operations(&a), 7 * 20 * 3);
    xn_network_free(one);
    xn_network_free(other);
    nw_free(net);
}
END_TEST

/* A cache keeps problems of networks that are gone: what lies there now is no such network. */
START_TEST(a_network_where_another_was_is_another) {
    xn_rng rng = rng_of(35);
    nw_net *net = nw_text(&rng, "3x4x5: affine");
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

static nw_net *some_network(xn_rng *rng) {
    nw_net *net = nw_text(rng, "3x8x8: conv 8 float; affine; conv 8; pool=max_pool; affine; conv 8;"
                               "prelu; b=affine bias; s=sign; conv 8; r=add last b;"
                               "concat r pool r; whole=affine scale; out whole s");
    xn_layer *whole = &net->layers[net->params.layer_count - 1];
    whole->scale = NULL;
    whole->bias = nw_random(net, rng, true, 24, 4, 4, 0);
    return net;
}

/* Every allocation of graph and lowering fails once: a clear error, nothing lost, nothing made. */
START_TEST(every_allocation_failed_in_turn) {
    xn_rng rng = rng_of(30);
    nw_net *net = some_network(&rng);
    for (int fail = 0;; fail++) {
        xn_countdown c = {.left = fail};
        xn_graph *graph = NULL;
        xn_network *network = NULL;
        xn_error error = {0};
        xn_mem_set_hook(xn_countdown_hook, &c);
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

/* One value for 2^27 channels, which cost the graph nothing. */
START_TEST(parameters_of_too_many_channels_are_refused) {
    const xn_conv_limits limits = {INT64_C(1) << 32, INT64_C(1) << 40, INT64_C(1) << 40};
    char text[1024] = "32768x1x1: concat";
    xn_rng rng = rng_of(0);
    xn_graph *graph = NULL;
    xn_network *network = NULL;
    xn_error error = {0};
    for (int i = 0; i < 64; i++)
        strcat(text, " input");
    strcat(text, "; concat");
    for (int i = 0; i < 64; i++)
        strcat(text, " last");
    strcat(text, "; sign shift=.5; slice from=0 to=1");
    nw_net *net = nw_text(&rng, text);
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
    TCase *t = xn_test_case(s, "lower", 60);
    tcase_add_test(t, parameters_of_too_many_channels_are_refused);
    tcase_add_test(t, rule_by_rule);
    tcase_add_test(t, it_is_the_step_of_a_request);
    tcase_add_test(t, grouped_convolutions_read_bytes);
    tcase_add_test(t, a_dense_layer_behind_flatten_has_the_shape_of_what_was_flat);
    tcase_add_test(t, an_affine_layer_of_elements_is_one_of_flat_channels);
    tcase_add_test(t, pictures_are_read_as_they_come);
    tcase_add_test(t, parameters_that_leave_the_range_stay_apart);
    tcase_add_test(t, folded_parameters_are_computed_in_double);
    tcase_add_test(t, a_problem_is_a_network_or_a_convolution);
    tcase_add_test(t, a_network_where_another_was_is_another);
    tcase_add_test(t, every_allocation_failed_in_turn);
    return s;
}
