/* Chains of equal binary layers with residuals: where a backend runs several as one step, the bits
 * of every output are those of the same layers one by one. Whatever the sides of the image, the
 * values beyond it, the shifts, the precision, the number of images and the length of the chain. */
#include "nw_text.h"
#include "xn_mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_IMAGES = 5, MANY_IMAGES = 40 };

/* 64 to 512 channels; the last layer is read as reals, as bits or by a pool. */
static nw_net *chain(xn_rng *rng) {
    static const int sides[] = {2, 3, 4, 7, 8, 10, 11, 12, 14, 16, 20, 28, 30, 37};
    const int channels = 64 << xn_rng_below(rng, 4), layers = 2 + (int)xn_rng_below(rng, 5);
    const int most = channels == 512 ? 6 : channels == 256 ? 9 : channels == 128 ? 12 : 14;
    const int height = sides[xn_rng_below(rng, (uint64_t)most)];
    const int width = sides[xn_rng_below(rng, (uint64_t)most)];
    const int pad = (int)xn_rng_below(rng, 4);
    char text[1024];
    int at = snprintf(text, sizeof text, "%dx%dx%d: x0=affine", channels, height, width);
    for (int n = 0; n < layers; n++)
        at += snprintf(text + at, sizeof text - (size_t)at,
                       "; sign < x%d%s; conv %d%s; %sx%d=add last x%d", n,
                       xn_rng_below(rng, 2) ? " shift" : "", channels,
                       pad == 0   ? " pad_value=1"
                       : pad == 1 ? " pad_value=-1"
                                  : "",
                       xn_rng_below(rng, 4) ? "affine; " : "", n + 1, n);
    const int end = (int)xn_rng_below(rng, 3);
    if (end == 0) /* as a stage ends */
        snprintf(text + at, sizeof text - (size_t)at,
                 "; c=conv 16 < x%d stride=2; avg_pool < x%d; d=affine; out c d", layers, layers);
    else if (end == 1) /* as a network ends */
        snprintf(text + at, sizeof text - (size_t)at, "; avg_pool global; sigmoid");
    else
        snprintf(text + at, sizeof text - (size_t)at,
                 "; reals=affine < x%d; bits=conv1 8 < x%d; out reals bits", layers, layers);
    nw_net *net = nw_text(rng, text);
    net->params.precision = xn_rng_below(rng, 2) ? XN_PRECISION_FP16 : XN_PRECISION_FP32;
    return net;
}

static void check_chain(const nw_subject *s, uint64_t seed) {
    const xn_stream_options each = {.path = "implicit_gemm"};
    xn_rng rng = {seed};
    nw_net *net = chain(&rng);
    xn_network *network = nw_lower(net);
    const int64_t few = 1 + (int64_t)xn_rng_below(&rng, MOST_IMAGES);
    const bool many =
        network->steps[0].conv.channels == 512 && xn_rng_below(&rng, 4) == 0; /* filters by rings */
    const int64_t images = many ? MANY_IMAGES * few : few;
    const float *input = nw_images(net, network, &rng, images);
    nw_subject alone = *s;
    xn_error error;
    ck_assert_int_eq(s->backend->stream_create(s->device, &each, &alone.stream, &error), XN_OK);
    float *want = nw_run_on(&alone, network, input, images, images, 1);
    nw_expect_layers(s, net, network, seed, input, images, want,
                     network->output_bytes / sizeof *want);
    free(want);
    s->backend->stream_free(alone.stream);
    xn_network_free(network);
    nw_free(net);
}

START_TEST(a_stage_is_its_layers) {
    const nw_subject *s;
    for (int i = 0; (s = nw_subject_at(i)); i++)
        for (uint64_t n = 0; s->backend->fuses && n < nw_chains(); n++)
            check_chain(s, xn_test_seed() + n);
}
END_TEST

/* Which steps a backend takes as one: the chain without its ends, in pieces. */
START_TEST(chains_are_found) {
    static const struct {
        const char *text;
        int fused[8];
    } cases[] = {
        {"64x8x8: x0=affine; conv 64; x1=add last x0; conv 64; x2=add last x1; conv 64;"
         "x3=add last x2; affine; avg_pool",
         {1, 3, 1}},
        {"64x8x8: x0=affine; conv 64; x1=add last x0; conv 64; x2=add last x1; out x1 x2",
         {1, 1, 1}},
        {"64x8x7: x0=affine; conv 64; x1=add last x0; conv 64; x2=add last x1; affine; avg_pool",
         {1, 2, 1}},
        {"512x7x7: x0=affine; conv 512; x1=add last x0; conv 512; x2=add last x1; avg_pool"
         " global; sigmoid",
         {1, 3, 1}},
        {"64x8x8: x0=affine; conv 64; x1=add last x0; conv 64; x2=add last x1; avg_pool7",
         {1, 2, 1}},
        {"32x8x8: x0=affine; conv 32; x1=add last x0; conv 32; x2=add last x1; affine; avg_pool",
         {1, 1, 1, 1}},
        {"64x8x8: x0=affine; conv 64; prelu; x1=add last x0; conv 64; x2=add last x1; affine;"
         "avg_pool",
         {1, 1}},
    };
    const xn_backend *b = xn_backend_find("cuda");
    for (size_t i = 0; b && i < sizeof cases / sizeof *cases; i++) {
        xn_rng rng = {i};
        nw_net *net = nw_text(&rng, cases[i].text);
        xn_network *network = nw_lower(net);
        int32_t reads[NW_READS];
        nw_count_reads(network, reads);
        for (int n = 0, at = 0; n < network->step_count && cases[i].fused[at]; at++) {
            const int fused = b->fuses(&network->steps[n], network->step_count - n, reads);
            ck_assert_msg(fused == cases[i].fused[at], "case %zu, step %d: %d as one", i, n, fused);
            n += fused;
        }
        xn_network_free(network);
        nw_free(net);
    }
}
END_TEST

XN_SUITE(networks_stages) {
    Suite *s = suite_create("networks_stages");
    TCase *t = xn_test_case(s, "stages", 300);
    tcase_add_test(t, a_stage_is_its_layers);
    tcase_add_test(t, chains_are_found);
    return s;
}
