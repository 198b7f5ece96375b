/* Random networks, lowered and run on ref and on every backend that has all kinds of step, against
 * what they mean layer by layer. On a backend the outputs of an image are the same bit by bit alone
 * and in a batch, and on one thread and on several. */
#include "nw_model.h"
#include "nw_random.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    IMAGES = 3,
    EXACT_NETWORKS = 400,
    SPECIAL_NETWORKS = 300,
    REAL_NETWORKS = 400,
    HALF_NETWORKS = 100
};

/* What parameters and inputs are: such that fp32 is exact, the same with NaN, infinities and -0
 * among the inputs, or any. */
typedef enum { EXACT, SPECIAL, REAL } values;

/* What was seen over all networks of a test. */
typedef struct tally {
    int64_t values, signs, doubtful, networks, steps, layers;
    int64_t unsure;  /* networks with more than 1% of their signs doubtful */
    int64_t unknown; /* values that nothing is asked of */
    int64_t others;  /* values of other backends that are not ref's */
    int64_t unlike;  /* networks with such values */
    int64_t both, bits_alone, residuals, activated, least, views, kinds[XN_STEP_KIND_COUNT];
    double worst; /* of the errors that were allowed, the largest share that was there */
} tally;

static void count_steps(const xn_network *network, tally *t) {
    t->steps += network->step_count;
    for (int i = 0; i < network->step_count; i++) {
        const xn_step *s = &network->steps[i];
        t->kinds[s->kind]++;
        t->both += s->output != XN_NO_TENSOR && s->bits != XN_NO_TENSOR;
        t->bits_alone += s->output == XN_NO_TENSOR;
        t->residuals += s->residual != XN_NO_TENSOR;
        t->activated += s->conv.epilogue.activation != XN_ACTIVATION_NONE;
        t->least += s->least;
        t->views += s->output_view.pitch != 0 || s->input_view.pitch != 0;
    }
}

static float input_value(xn_rng *rng, values kind, xn_datatype datatype) {
    static const float specials[] = {NAN, INFINITY, -INFINITY, -0.0f};
    if (datatype == XN_UINT8)
        return (float)xn_rng_below(rng, kind == REAL ? 256 : 4);
    if (kind == SPECIAL && xn_rng_below(rng, 8) == 0)
        return specials[xn_rng_below(rng, 4)];
    return kind == REAL ? xn_rng_float(rng) : (float)((int)xn_rng_below(rng, 17) - 8) * 0.25f;
}

/* count values of the network's input, in its datatype, and as [C][H][W] in fp32. */
static void fill_input(const nw_net *net, xn_rng *rng, values kind, int64_t count, void *typed,
                       float *plain) {
    const bool nhwc = net->params.input_layout == XN_IMAGE_NHWC;
    const int64_t channels = nw_input_shape(&net->params).dims[0], pixels = count / channels;
    for (int64_t i = 0; i < count && net->params.packed_channels; i++) {
        uint8_t *byte = (uint8_t *)typed + i / channels * xn_bits_pixel_bytes(channels);
        const bool set = xn_rng_below(rng, 2);
        byte[i % channels / 8] |= (uint8_t)(set << i % channels % 8);
        plain[i % channels * pixels + i / channels] = set ? 1.0f : -1.0f;
    }
    for (int64_t i = 0; i < count && !net->params.packed_channels; i++) {
        const int64_t at = nhwc ? i % channels * pixels + i / channels : i;
        float value = input_value(rng, kind, net->params.input_datatype);
        if (net->params.input_datatype == XN_UINT8) {
            ((uint8_t *)typed)[i] = (uint8_t)value;
        } else if (net->params.input_datatype == XN_FP16) {
            ((uint16_t *)typed)[i] = xn_fp32_to_fp16(value);
            value = xn_fp16_to_fp32(((uint16_t *)typed)[i]);
        } else {
            ((float *)typed)[i] = value;
        }
        plain[at] = value;
    }
}

static void compare(const nw_value *want, const float *got, const char *name, uint64_t seed,
                    tally *t) {
    const int64_t count = want->channels * want->height * want->width;
    for (int64_t i = 0; i < count; i++, t->values++) {
        const double allowed = want->error[i], is = fabs((double)got[i] - want->value[i]);
        if (want->value[i] == (double)got[i] || (isnan(want->value[i]) && isnan(got[i])))
            continue;
        if (!isfinite(allowed)) { /* it may have overflowed, and anything may come of that */
            t->unknown++;
            continue;
        }
        ck_assert_msg(is <= allowed, "seed %" PRIu64 ": %s[%" PRId64 "] is %.9g, not %.9g +- %g",
                      seed, name, i, (double)got[i], want->value[i], allowed);
        t->worst = fmax(t->worst, is / allowed);
    }
}

static bool may_be(const nw_value *in, int64_t channel, double value) {
    const double is = in->value[channel];
    return is == value || (isnan(is) && isnan(value)) || !(fabs(is - value) > in->error[channel]);
}

/* a comes before b whatever rounding does. */
static bool is_before(const xn_layer *l, const nw_value *in, int64_t a, int64_t b) {
    const double x = in->value[a], y = in->value[b], error = in->error[a] + in->error[b];
    if (isnan(x) || isnan(y))
        return isnan(y) && (!isnan(x) || a < b);
    return error == 0 && x == y ? a < b : (l->attributes.largest ? x - y : y - x) > error;
}

/* in: what it chooses from. Each is what stands there, and nothing that is surely better comes
 * later, or not at all. */
static void compare_top_k(const xn_layer *l, const nw_value *in, const float *got, uint64_t seed,
                          tally *t) {
    const int64_t k = l->attributes.k;
    const int32_t *at = (const int32_t *)(const void *)(got + k);
    bool *taken = calloc((size_t)in->channels, sizeof *taken);
    ck_assert_ptr_nonnull(taken);
    t->values += 2 * k;
    for (int64_t i = 0; i < k; i++) {
        ck_assert_msg(at[i] >= 0 && at[i] < in->channels && !taken[at[i]] &&
                          may_be(in, at[i], (double)got[i]),
                      "seed %" PRIu64 ": number %" PRId64 " of %s is %.9g at %d", seed, i, l->name,
                      (double)got[i], at[i]);
        taken[at[i]] = true;
        for (int64_t c = 0; c < in->channels; c++)
            ck_assert_msg(taken[c] || !is_before(l, in, c, at[i]),
                          "seed %" PRIu64 ": number %" PRId64 " of %s is %d, not %" PRId64, seed, i,
                          l->name, at[i], c);
    }
    free(taken);
}

static int layer_index(const nw_net *net, const char *name) {
    for (int i = 0; i < net->params.layer_count; i++)
        if (!strcmp(net->layers[i].name, name))
            return i;
    return -1;
}

/* The outputs of one image, one behind the other. */
static const float *compare_outputs(const nw_net *net, const nw_answer *answer, const float *got,
                                    uint64_t seed, tally *t) {
    const int outputs = net->params.output_count;
    for (int i = 0; i < (outputs ? outputs : 1); i++) {
        const int layer = outputs ? layer_index(net, net->outputs[i]) : net->params.layer_count - 1;
        const nw_value *want = &answer->layers[layer];
        if (net->layers[layer].op == XN_OP_TOP_K)
            compare_top_k(&net->layers[layer],
                          &answer->layers[layer_index(net, net->layers[layer].inputs[0])], got,
                          seed, t);
        else
            compare(want, got, net->layers[layer].name, seed, t);
        got += want->channels * want->height * want->width;
    }
    return got;
}

/* What a network is to give. */
typedef struct wanted {
    const nw_net *net;
    const xn_network *network;
    nw_answer answers[IMAGES];  /* of ref, which computes a step in double */
    nw_answer rounding[IMAGES]; /* the same where each operation of fp32 may round */
    uint64_t seed;
} wanted;

static void compare_images(const wanted *w, const nw_answer *answers, const float *got, tally *t) {
    for (int n = 0; n < IMAGES; n++)
        got = compare_outputs(w->net, &answers[n], got, w->seed, t);
}

/* right: of ref. */
static void check_subject(const nw_subject *s, const wanted *w, const void *input,
                          const float *right, tally *t) {
    static const struct {
        int64_t batch;
        int threads;
    } runs[] = {{1, 1}, {IMAGES, 3}, {2, 1}};
    const size_t bytes = w->network->output_bytes * IMAGES;
    float *first = nw_run_on(s, w->network, input, IMAGES, IMAGES, 1);
    compare_images(w, w->rounding, first, t);
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        float *again = nw_run_on(s, w->network, input, IMAGES, runs[i].batch, runs[i].threads);
        ck_assert_msg(!memcmp(first, again, bytes),
                      "%s: seed %" PRIu64 ": other bits in batches of %d on %d threads", s->name,
                      w->seed, (int)runs[i].batch, runs[i].threads);
        free(again);
    }
    for (size_t i = 0; i < bytes / sizeof *first; i++)
        t->others += first[i] != right[i] && !(isnan(first[i]) && isnan(right[i]));
    free(first);
}

/* What a backend chooses by itself has all networks, each of its instruction sets some of them. */
static void check_subjects(const wanted *w, const void *input, const float *right, tally *t) {
    const nw_subject *s;
    const int64_t before = t->others;
    for (int i = 0; (s = nw_subject_at(i)); i++)
        if (!strchr(s->name, '/') || t->networks % 4 == i % 4)
            check_subject(s, w, input, right, t);
    t->unlike += t->others > before;
}

static void check(const nw_net *net, xn_rng *rng, values kind, double unit, uint64_t seed,
                  tally *t) {
    xn_graph *graph = nw_graph(net);
    xn_network *network = nw_lower(net);
    const int64_t count = network->input_elements;
    const size_t bytes = network->input_bytes;
    wanted w = {.net = net, .network = network, .seed = seed};
    char *typed = calloc(IMAGES, bytes);
    float *plain = calloc((size_t)count * IMAGES, sizeof *plain);
    ck_assert(typed && plain);
    for (int n = 0; n < IMAGES; n++)
        fill_input(net, rng, kind, count, typed + (size_t)n * bytes, plain + n * count);
    int64_t signs = 0, doubtful = 0;
    float *got = nw_run(network, typed, IMAGES);
    for (int n = 0; n < IMAGES; n++) {
        nw_model(&net->params, graph, plain + n * count, unit, &w.answers[n]);
        nw_model(&net->params, graph, plain + n * count, unit > 0 ? unit : 0x1p-22, &w.rounding[n]);
        signs += w.answers[n].signs;
        doubtful += w.answers[n].doubtful;
    }
    compare_images(&w, w.answers, got, t);
    check_subjects(&w, typed, got, t);
    count_steps(network, t);
    t->signs += signs;
    t->doubtful += doubtful;
    t->unsure += doubtful * 100 > signs;
    t->networks++;
    t->layers += net->params.layer_count;
    for (int n = 0; n < IMAGES; n++) {
        nw_answer_free(&w.answers[n]);
        nw_answer_free(&w.rounding[n]);
    }
    free(got);
    free(plain);
    free(typed);
    xn_network_free(network);
    xn_graph_free(graph);
}

static void print(const char *what, const tally *t) {
    printf("%s: %" PRId64 " networks, %" PRId64 " layers in %" PRId64 " steps, %" PRId64
           " values; %" PRId64 " signs, %" PRId64 " of them doubtful, over 1%% of them in %" PRId64
           " networks; of the error allowed %.2f; %" PRId64 " other than ref's\n",
           what, t->networks, t->layers, t->steps, t->values, t->signs, t->doubtful, t->unsure,
           t->worst, t->others);
    printf("    bits %" PRId64 ", both %" PRId64 ", residual %" PRId64 ", activation %" PRId64
           ", least %" PRId64 ", parts %" PRId64 "; by kind",
           t->bits_alone, t->both, t->residuals, t->activated, t->least, t->views);
    for (int i = 0; i < XN_STEP_KIND_COUNT; i++)
        printf(" %s %" PRId64, xn_step_kind_name((xn_step_kind)i), t->kinds[i]);
    printf("\n");
}

/* The networks of a test have what it is about. */
static void expect_coverage(const tally *t, bool exact) {
    ck_assert_int_gt(t->both, 20);
    ck_assert_int_gt(t->bits_alone, 20);
    ck_assert_int_gt(t->residuals, 20);
    ck_assert_int_gt(t->activated, 20);
    ck_assert_int_gt(t->least, 0);
    ck_assert_int_lt(t->unknown * 100, t->values);
    ck_assert_int_gt(t->views, 20);
    ck_assert_int_lt(t->steps, t->layers);
    for (int i = 0; i < XN_STEP_KIND_COUNT; i++)
        ck_assert_msg(t->kinds[i] > 5 || i == XN_STEP_STEM || /* stem_test.c */
                          (exact && (i == XN_STEP_SIGMOID || i == XN_STEP_SOFTMAX)),
                      "few steps of kind %s", xn_step_kind_name((xn_step_kind)i));
}

static void run_random(const char *what, int networks, values kind, double unit,
                       xn_precision precision, tally *t) {
    for (int i = 0; i < networks; i++) {
        const uint64_t seed = xn_test_seed() + (uint64_t)i * 1000 + (uint64_t)precision;
        xn_rng rng = {seed};
        nw_net *net = nw_random_net(&rng, kind != REAL);
        net->params.precision = precision;
        if (i % 4 == 1)
            nw_random_top_k(net, &rng, kind != REAL);
        if (i % 5 == 2)
            nw_pack_input(net);
        check(net, &rng, kind, unit, seed, t);
        nw_free(net);
    }
    print(what, t);
}

/* fp32 computes them without rounding, but for means of three values and what grows too large:
 * every value of ref is equal, and in nearly all networks those of other backends. */
START_TEST(exact_networks_are_equal) {
    tally t = {0};
    run_random("exact", EXACT_NETWORKS, EXACT, 0, XN_PRECISION_FP32, &t);
    expect_coverage(&t, true);
    ck_assert_int_lt(t.unlike * 20, t.networks);
    ck_assert_int_lt(t.unsure * 30, t.networks);
}
END_TEST

/* No rule changes what becomes of NaN, infinities and -0. */
START_TEST(special_values_come_out_the_same) {
    tally t = {0};
    run_random("special", SPECIAL_NETWORKS, SPECIAL, 0, XN_PRECISION_FP32, &t);
    expect_coverage(&t, true);
    ck_assert_int_lt(t.unlike * 20, t.networks);
}
END_TEST

/* Every value is within the rounding of its own terms, and of signs that rounding may turn, of
 * which there are few. */
START_TEST(real_networks_are_within_rounding) {
    tally t = {0};
    run_random("fp32", REAL_NETWORKS, REAL, 0x1p-22, XN_PRECISION_FP32, &t);
    expect_coverage(&t, false);
    ck_assert_int_lt(t.unsure * 10, t.networks);
}
END_TEST

START_TEST(networks_with_fp16_between_steps_are_within_its_rounding) {
    tally t = {0};
    run_random("fp16", HALF_NETWORKS, REAL, 0x1p-9, XN_PRECISION_FP16, &t);
    ck_assert_int_lt(t.unsure * 2, t.networks);
}
END_TEST

XN_SUITE(networks_random) {
    Suite *s = suite_create("networks_random");
    TCase *t = xn_test_case(s, "networks_random", 300);
    tcase_add_test(t, exact_networks_are_equal);
    tcase_add_test(t, special_values_come_out_the_same);
    tcase_add_test(t, real_networks_are_within_rounding);
    tcase_add_test(t, networks_with_fp16_between_steps_are_within_its_rounding);
    return s;
}
