/* Networks that people serve, in small: how many steps each takes, and that it computes what it
 * means. */
#include "nw_model.h"
#include "nw_net.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

/* A network in the making: layers are named by their numbers. */
typedef struct maker {
    nw_net *net;
    xn_rng rng;
    char names[NW_LAYERS][16];
} maker;

static maker *start(int64_t channels, int64_t size) {
    maker *m = calloc(1, sizeof *m);
    ck_assert_ptr_nonnull(m);
    m->net = nw_create(channels, size, size);
    m->rng.state = xn_test_seed();
    return m;
}

/* The layer's number; inputs by their numbers, -1 the layer before. */
static int add(maker *m, xn_op op, int first, int second) {
    const int index = m->net->params.layer_count;
    char inputs[40];
    snprintf(m->names[index], sizeof m->names[index], "l%d", index);
    if (second >= 0)
        snprintf(inputs, sizeof inputs, "l%d l%d", first, second);
    else if (first >= 0)
        snprintf(inputs, sizeof inputs, "l%d", first);
    nw_add(m->net, op, m->names[index], first >= 0 ? inputs : NULL);
    return index;
}

static xn_layer *layer(maker *m, int index) {
    return &m->net->layers[index];
}

static int conv(maker *m, xn_mode mode, int from, int64_t out, int64_t in, int64_t kernel,
                int64_t stride, int64_t padding) {
    const int index = add(m, XN_OP_CONV, from, -1);
    xn_layer *l = layer(m, index);
    l->weight = nw_random(m->net, &m->rng, false, out, in, kernel, kernel);
    l->window.mode = mode;
    l->window.stride[0] = l->window.stride[1] = stride;
    for (int i = 0; i < 4; i++)
        l->window.padding[i] = padding;
    return index;
}

/* Like a folded batch norm: factors around 1 / 8, some of them negative. */
static int norm(maker *m, int from, int64_t channels) {
    const int index = add(m, XN_OP_AFFINE, from, -1);
    xn_layer *l = layer(m, index);
    l->scale = nw_random_scale(m->net, &m->rng, false, channels);
    l->bias = nw_random(m->net, &m->rng, false, channels, 0, 0, 0);
    for (int64_t c = 0; c < channels; c++)
        ((float *)l->scale->data)[c] /= 8;
    return index;
}

static int shifted(maker *m, int from, int64_t channels) {
    const int index = add(m, XN_OP_AFFINE, from, -1);
    layer(m, index)->bias = nw_random(m->net, &m->rng, false, channels, 0, 0, 0);
    return index;
}

static int pool(maker *m, xn_op op, int from, int64_t kernel, int64_t stride, int64_t padding) {
    const int index = add(m, op, from, -1);
    xn_layer *l = layer(m, index);
    l->kernel[0] = l->kernel[1] = kernel;
    l->window.stride[0] = l->window.stride[1] = stride;
    for (int i = 0; i < 4; i++)
        l->window.padding[i] = padding;
    return index;
}

/* Global mean, flatten, dense. */
static void classify(maker *m, int64_t channels, int64_t classes) {
    layer(m, add(m, XN_OP_AVG_POOL, -1, -1))->global = true;
    add(m, XN_OP_FLATTEN, -1, -1);
    xn_layer *l = layer(m, add(m, XN_OP_CONV, -1, -1));
    l->weight = nw_random(m->net, &m->rng, false, classes, channels, 0, 0);
    l->bias = nw_random(m->net, &m->rng, false, classes, 0, 0, 0);
    l->window.mode = XN_MODE_FLOAT;
}

static void expect_outputs(const char *name, const char *backend, const nw_value *want,
                           const float *got) {
    for (int64_t i = 0; i < want->channels * want->height * want->width; i++)
        ck_assert_msg(fabs((double)got[i] - want->value[i]) <= want->error[i],
                      "%s on %s [%d]: %g, not %g", name, backend, (int)i, (double)got[i],
                      want->value[i]);
}

/* Lowers it and runs it on all backends; frees it. */
static void expect_steps(maker *m, const char *name, int steps) {
    const int64_t *d = m->net->params.input_shape.dims;
    const int64_t count = d[0] * d[1] * d[2];
    xn_graph *graph = nw_graph(m->net);
    xn_network *network = nw_lower(m->net);
    float *input = nw_take(m->net, (size_t)count * sizeof *input);
    nw_answer answer;
    const nw_subject *s;
    for (int64_t i = 0; i < count; i++)
        input[i] = xn_rng_float(&m->rng);
    float *got = nw_run(network, input, 1);
    nw_model(&m->net->params, graph, input, 0x1p-22, &answer);
    printf("%s: %d layers in %d steps; %" PRId64 " of %" PRId64 " signs doubtful\n", name,
           m->net->params.layer_count, network->step_count, answer.doubtful, answer.signs);
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
    nw_free(m->net);
    free(m);
}

/* Bi-Real-18 and ReActNet-18: 16 blocks, three of them with a shortcut of their own. A block is one
 * step, a shortcut two; stem, pool, mean and dense layer are one each. */
static void residual_18(bool react) {
    static const int64_t width[4] = {8, 16, 32, 64};
    maker *m = start(3, 32);
    conv(m, XN_MODE_FLOAT, -1, width[0], 3, 7, 2, 3);
    norm(m, -1, width[0]);
    int x = pool(m, XN_OP_MAX_POOL, -1, 3, 2, 1);
    for (int block = 0; block < 16; block++) {
        const bool down = block > 0 && block % 4 == 0;
        const int64_t in = width[(block - down) / 4], out = width[block / 4];
        int shortcut = x;
        if (react)
            layer(m, add(m, XN_OP_SIGN, x, -1))->shift =
                nw_random(m->net, &m->rng, false, in, 0, 0, 0);
        conv(m, XN_MODE_XNOR, react ? -1 : x, out, in, 3, down ? 2 : 1, 1);
        const int main = norm(m, -1, out);
        if (down) {
            pool(m, XN_OP_AVG_POOL, x, 2, 2, 0);
            conv(m, XN_MODE_FLOAT, -1, out, in, 1, 1, 0);
            shortcut = norm(m, -1, out);
        }
        x = add(m, XN_OP_ADD, main, shortcut);
        if (!react)
            continue;
        shifted(m, -1, out);
        layer(m, add(m, XN_OP_PRELU, -1, -1))->slope =
            nw_random(m->net, &m->rng, false, out, 0, 0, 0);
        x = shifted(m, -1, out);
    }
    classify(m, width[3], 10);
    expect_steps(m, react ? "ReActNet-18" : "Bi-Real-18", 1 + 1 + 16 + 3 * 2 + 1 + 1);
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
    maker *m = start(3, 16);
    int64_t channels = 16;
    conv(m, XN_MODE_FLOAT, -1, channels, 3, 3, 1, 1);
    norm(m, -1, channels);
    int x = pool(m, XN_OP_MAX_POOL, -1, 3, 2, 1);
    for (int block = 0; block < 2; block++) {
        for (int i = 0; i < LAYERS; i++, channels += GROWTH) {
            norm(m, x, channels);
            const int grown = conv(m, XN_MODE_XNOR, -1, GROWTH, channels, 3, 1, 1);
            x = add(m, XN_OP_CONCAT, x, grown);
        }
        norm(m, x, channels);
        if (block == 0)
            pool(m, XN_OP_MAX_POOL, -1, 2, 2, 0);
        add(m, XN_OP_PRELU, -1, -1);
        if (block == 0)
            x = conv(m, XN_MODE_FLOAT, -1, channels / 2, channels, 1, 1, 0);
        channels = block == 0 ? channels / 2 : channels;
    }
    classify(m, channels, 10);
    /* stem and pool; layers; transition: norm, pool with ReLU, 1x1; norm with ReLU; mean, dense */
    expect_steps(m, "BinaryDenseNet", 2 + 2 * LAYERS * 2 + 3 + 1 + 2);
}
END_TEST

/* QuickNet: a block is two steps, since its batch norm stands behind the activation. */
START_TEST(quick_net) {
    maker *m = start(3, 32);
    int64_t channels = 16;
    conv(m, XN_MODE_FLOAT, -1, 8, 3, 3, 2, 1);
    norm(m, -1, 8);
    add(m, XN_OP_PRELU, -1, -1);
    layer(m, conv(m, XN_MODE_FLOAT, -1, 8, 1, 3, 2, 1))->window.groups = 8;
    norm(m, -1, 8);
    conv(m, XN_MODE_FLOAT, -1, channels, 8, 1, 1, 0);
    int x = norm(m, -1, channels);
    for (int stage = 0; stage < 2; stage++) {
        for (int block = 0; block < 3; block++) {
            add(m, XN_OP_SIGN, x, -1);
            layer(m, conv(m, XN_MODE_XNOR, -1, channels, channels, 3, 1, 1))->window.pad_value = 1;
            add(m, XN_OP_PRELU, -1, -1);
            const int y = norm(m, -1, channels);
            x = add(m, XN_OP_ADD, y, x);
        }
        add(m, XN_OP_PRELU, -1, -1);
        if (stage == 1)
            break;
        pool(m, XN_OP_MAX_POOL, -1, 2, 1, 0);
        layer(m, conv(m, XN_MODE_FLOAT, -1, channels, 1, 3, 2, 1))->window.groups = channels;
        conv(m, XN_MODE_FLOAT, -1, 2 * channels, channels, 1, 1, 0);
        channels *= 2;
        x = norm(m, -1, channels);
    }
    classify(m, channels, 10);
    /* stem; blocks, the last of a stage with the ReLU; pool, blur, 1x1; mean, dense */
    expect_steps(m, "QuickNet", 3 + 2 * 3 * 2 + 3 + 2);
}
END_TEST

/* Bits from the first convolution to the last layer but one: a step for each convolution, each pool
 * and each dense layer. VGG of Hubara. */
START_TEST(vgg) {
    static const int64_t widths[6] = {16, 16, 32, 32, 48, 48};
    maker *m = start(3, 16);
    int64_t channels = 3;
    for (int i = 0; i < 6; i++) {
        const int c = conv(m, i ? XN_MODE_XNOR : XN_MODE_BWN, -1, widths[i], channels, 3, 1, 1);
        channels = widths[i];
        layer(m, c)->bias = nw_random(m->net, &m->rng, false, channels, 0, 0, 0);
        if (i % 2)
            pool(m, XN_OP_MAX_POOL, -1, 2, 2, 0);
        norm(m, -1, channels);
        add(m, XN_OP_CLIP, -1, -1);
        add(m, XN_OP_SIGN, -1, -1);
    }
    add(m, XN_OP_FLATTEN, -1, -1);
    for (int64_t in = channels * 4, i = 0; i < 2; i++, in = 64) {
        layer(m, add(m, XN_OP_CONV, -1, -1))->weight =
            nw_random(m->net, &m->rng, false, i ? 10 : 64, in, 0, 0);
        norm(m, -1, i ? 10 : 64);
        if (i == 0) {
            add(m, XN_OP_CLIP, -1, -1);
            add(m, XN_OP_SIGN, -1, -1);
        }
    }
    expect_steps(m, "VGG", 6 + 3 + 2);
}
END_TEST

/* CNV of FINN: the pool stands behind the sign. */
START_TEST(cnv) {
    maker *m = start(3, 14);
    xn_layer *l = layer(m, add(m, XN_OP_AFFINE, -1, -1));
    l->scale = nw_values(m->net, 1, 2.);
    l->bias = nw_values(m->net, 1, -1.);
    l = layer(m, add(m, XN_OP_QUANTIZE, -1, -1));
    l->quantum = 1.f / 128;
    l->low = -128;
    l->high = 127;
    int64_t channels = 3;
    for (int i = 0; i < 4; i++) {
        conv(m, i ? XN_MODE_XNOR : XN_MODE_BWN, -1, 40, channels, 3, 1, 0);
        channels = 40;
        norm(m, -1, channels);
        add(m, XN_OP_SIGN, -1, -1);
        if (i == 1)
            pool(m, XN_OP_MAX_POOL, -1, 2, 2, 0);
    }
    add(m, XN_OP_FLATTEN, -1, -1);
    layer(m, add(m, XN_OP_CONV, -1, -1))->weight =
        nw_random(m->net, &m->rng, false, 10, channels, 0, 0);
    l = layer(m, add(m, XN_OP_AFFINE, -1, -1));
    l->scale = nw_values(m->net, 1, .125);
    l->bias = nw_values(m->net, 1, .5);
    expect_steps(m, "CNV", 2 + 4 + 1 + 1);
}
END_TEST

XN_SUITE(networks_known) {
    Suite *s = suite_create("networks_known");
    TCase *t = tcase_create("known");
    tcase_set_timeout(t, 120);
    tcase_add_test(t, bi_real_18);
    tcase_add_test(t, react_net_18);
    tcase_add_test(t, binary_dense_net);
    tcase_add_test(t, quick_net);
    tcase_add_test(t, vgg);
    tcase_add_test(t, cnv);
    suite_add_tcase(s, t);
    return s;
}
