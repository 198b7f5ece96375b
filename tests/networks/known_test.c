/* Networks that people serve, in small: how many steps each takes, and that it computes what it
 * means. */
#include "nw_model.h"
#include "nw_text.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>

/* The network's text (nw_text.h) in the making. */
static struct {
    char text[8000];
    size_t used;
} net;

static void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void say(const char *format, ...) {
    va_list args;
    va_start(args, format);
    net.used += (size_t)vsnprintf(net.text + net.used, sizeof net.text - net.used, format, args);
    va_end(args);
    ck_assert_uint_lt(net.used, sizeof net.text);
}

/* Factors like those of a folded batch norm: around 1 / 8, some of them negative. */
static void shrink_scales(nw_net *made) {
    for (int i = 0; i < made->params.layer_count; i++) {
        const xn_tensor *scale = made->layers[i].scale;
        for (int64_t c = 0; scale && scale->elements > 1 && c < scale->elements; c++)
            ((float *)(uintptr_t)scale->data)[c] /= 8;
    }
}

static void expect_outputs(const char *name, const char *backend, const nw_value *want,
                           const float *got) {
    for (int64_t i = 0; i < want->channels * want->height * want->width; i++)
        ck_assert_msg(fabs((double)got[i] - want->value[i]) <= want->error[i],
                      "%s on %s [%d]: %g, not %g", name, backend, (int)i, (double)got[i],
                      want->value[i]);
}

/* Lowers what was said and runs it on all backends. */
static void expect_steps(const char *name, int steps) {
    xn_rng rng = {xn_test_seed()};
    nw_net *made = nw_text(&rng, net.text);
    net.used = 0; /* the next test may run in this process */
    const int64_t *d = made->params.input_shape.dims;
    const int64_t count = d[0] * d[1] * d[2];
    shrink_scales(made);
    xn_graph *graph = nw_graph(made);
    xn_network *network = nw_lower(made);
    float *input = nw_take(made, (size_t)count * sizeof *input);
    nw_answer answer;
    const nw_subject *s;
    for (int64_t i = 0; i < count; i++)
        input[i] = xn_rng_float(&rng);
    float *got = nw_run(network, input, 1);
    nw_model(&made->params, graph, input, 0x1p-22, &answer);
    printf("%s: %d layers in %d steps; %" PRId64 " of %" PRId64 " signs doubtful\n", name,
           made->params.layer_count, network->step_count, answer.doubtful, answer.signs);
    const nw_value *want = &answer.layers[answer.count - 1];
    expect_outputs(name, "ref", want, got);
    free(got);
    for (int i = 0; (s = nw_subject_at(i)); i++) {
        got = nw_run_on(s, network, input, 1, 1, 3);
        expect_outputs(name, s->name, want, got);
        free(got);
    }
    ck_assert_msg(answer.doubtful * 100 <= answer.signs, "%s: too many doubtful signs", name);
    ck_assert_int_eq(network->step_count, steps);
    nw_answer_free(&answer);
    xn_network_free(network);
    xn_graph_free(graph);
    nw_free(made);
}

static void classify(void) {
    say("; avg_pool global; flatten; dense 10 float bias");
}

/* Bi-Real-18 and ReActNet-18: 16 blocks, three of them with a shortcut of their own. A block is one
 * step, a shortcut two; stem, pool, mean and dense layer are one each. */
static void residual_18(bool react) {
    static const int width[4] = {8, 16, 32, 64};
    say("3x32x32: conv7 8 float stride=2; affine; x0=max_pool3 stride=2 padding=1");
    for (int block = 0; block < 16; block++) {
        const bool down = block > 0 && block % 4 == 0;
        const int out = width[block / 4];
        const char *sum = react ? "sum" : "x"; /* what the next block reads is named x */
        if (react)
            say("; sign < x%d shift; conv %d", block, out);
        else
            say("; conv %d < x%d", out, block);
        say(" stride=%d; main%d=affine", down ? 2 : 1, block);
        if (down)
            say("; avg_pool < x%d; conv1 %d float; affine; %s%d=add main%d last", block, out, sum,
                block + 1, block);
        else
            say("; %s%d=add main%d x%d", sum, block + 1, block, block);
        if (react)
            say("; affine bias; prelu slope; x%d=affine bias", block + 1);
    }
    classify();
    expect_steps(react ? "ReActNet-18" : "Bi-Real-18", 1 + 1 + 16 + 3 * 2 + 1 + 1);
}

START_TEST(bi_real_18) {
    residual_18(false);
}
END_TEST

START_TEST(react_net_18) {
    residual_18(true);
}
END_TEST

/* BinaryDenseNet: a layer is two steps, its signs and its convolution; concat is none. */
START_TEST(binary_dense_net) {
    enum { LAYERS = 5, GROWTH = 8 };
    say("3x16x16: conv 16 float; affine; a0=max_pool3 stride=2 padding=1");
    for (int i = 0; i < LAYERS; i++)
        say("; affine < a%d; conv %d; a%d=concat a%d last", i, GROWTH, i + 1, i);
    say("; affine; max_pool; prelu; b0=conv1 %d float", (16 + LAYERS * GROWTH) / 2);
    for (int i = 0; i < LAYERS; i++)
        say("; affine < b%d; conv %d; b%d=concat b%d last", i, GROWTH, i + 1, i);
    say("; affine");
    say("; prelu");
    classify();
    /* stem and pool; layers; transition: norm, pool with ReLU, 1x1; norm with ReLU; mean, dense */
    expect_steps("BinaryDenseNet", 2 + 2 * LAYERS * 2 + 3 + 1 + 2);
}
END_TEST

/* QuickNet: a block is two steps, since its batch norm stands behind the activation. */
START_TEST(quick_net) {
    say("3x32x32: conv 8 float stride=2; affine; prelu; conv 8 float stride=2 groups=8; affine; "
        "conv1 16 float; x0=affine");
    for (int block = 0; block < 6; block++) {
        const int channels = block < 3 ? 16 : 32;
        if (block == 3)
            say("; prelu; max_pool stride=1; conv 16 float stride=2 groups=16; conv1 32 float; "
                "y=affine");
        say("; sign; conv %d pad_value=1; prelu; affine; x%d=add last ", channels, block + 1);
        say(block == 3 ? "y" : "x%d", block);
    }
    say("; prelu");
    classify();
    /* stem; blocks, the last of a stage with the ReLU; pool, blur, 1x1; mean, dense */
    expect_steps("QuickNet", 3 + 2 * 3 * 2 + 3 + 2);
}
END_TEST

/* Bits from the first convolution to the last layer but one: a step for each convolution, each pool
 * and each dense layer. VGG of Hubara. */
START_TEST(vgg) {
    static const int widths[6] = {16, 16, 32, 32, 48, 48};
    say("3x16x16: ");
    for (int i = 0; i < 6; i++)
        say("conv %d %s bias; %saffine; clip; sign; ", widths[i], i ? "xnor" : "bwn",
            i % 2 ? "max_pool; " : "");
    say("flatten; dense 64; affine; clip; sign; dense 10; affine");
    expect_steps("VGG", 6 + 3 + 2);
}
END_TEST

/* CNV of FINN: the pool stands behind the sign. */
START_TEST(cnv) {
    say("3x14x14: affine scale=2 bias=-1; quantize quantum=.0078125 low=-128 high=127; ");
    for (int i = 0; i < 4; i++)
        say("conv 40 %s padding=0; affine; sign; %s", i ? "xnor" : "bwn",
            i == 1 ? "max_pool; " : "");
    say("flatten; dense 10; affine scale=.125 bias=.5");
    expect_steps("CNV", 2 + 4 + 1 + 1);
}
END_TEST

XN_SUITE(networks_known) {
    Suite *s = suite_create("networks_known");
    TCase *t = xn_test_case(s, "known", 120);
    tcase_add_test(t, bi_real_18);
    tcase_add_test(t, react_net_18);
    tcase_add_test(t, binary_dense_net);
    tcase_add_test(t, quick_net);
    tcase_add_test(t, vgg);
    tcase_add_test(t, cnv);
    return s;
}
