/* Dense layers, the last of most networks: the outputs of an image are the same bit for bit alone
 * and among many, for which backends have other kernels. The first of two layers lets the second
 * read FP16. */
#include "nw_text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { IMAGES = 130 };

static void check_net(const nw_subject *s, uint64_t seed) {
    static const int batches[] = {1, 7, 8, 30, 64, 65};
    xn_rng rng = {seed};
    const bool large = seed % 6 < 2; /* for a batch to have many more tiles than an image */
    const int channels =
        large ? 960 + 4 * (int)xn_rng_below(&rng, 40) : 4 * (1 + (int)xn_rng_below(&rng, 300));
    const int filters = large ? 1000 : 16 + (int)xn_rng_below(&rng, 100);
    const char *affine = xn_rng_below(&rng, 2) ? "; affine" : "";
    char text[80];
    if (seed % 2)
        snprintf(text, sizeof text, "8x1x1: conv1 %d float; conv1 %d float%s", channels, filters,
                 affine);
    else
        snprintf(text, sizeof text, "%dx1x1: conv1 %d float%s", channels, filters, affine);
    nw_net *net = nw_text(&rng, text);
    net->params.precision = xn_rng_below(&rng, 2) ? XN_PRECISION_FP16 : XN_PRECISION_FP32;
    xn_network *network = nw_lower(net);
    const size_t elements = (size_t)(IMAGES * network->input_elements);
    float *input = nw_take(net, elements * sizeof *input);
    for (size_t i = 0; i < elements; i++)
        input[i] = xn_rng_float(&rng);
    float *want = nw_run_on(s, network, input, IMAGES, IMAGES, 1);
    for (size_t i = 0; i < sizeof batches / sizeof *batches; i++) {
        float *got = nw_run_on(s, network, input, IMAGES, batches[i], 1);
        ck_assert_msg(!memcmp(got, want, network->output_bytes * IMAGES),
                      "seed %d: %s, batches of %d", (int)seed, text, batches[i]);
        free(got);
    }
    free(want);
    xn_network_free(network);
    nw_free(net);
}

START_TEST(an_image_has_the_same_sums_in_any_batch) {
    const nw_subject *s;
    for (int i = 0; (s = nw_subject_at(i)); i++)
        for (uint64_t n = 0; n < nw_chains() / 5 || n == 0; n++)
            check_net(s, xn_test_seed() + n);
}
END_TEST

XN_SUITE(networks_dense) {
    Suite *s = suite_create("networks_dense");
    TCase *t = xn_test_case(s, "dense", 300);
    tcase_add_test(t, an_image_has_the_same_sums_in_any_batch);
    return s;
}
