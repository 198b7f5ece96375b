/* The layer that begins a residual stage, a binary convolution of stride 2 with a real 1x1 shortcut
 * beside it: where a backend runs both as one step, the bits of every output are those of the same
 * layers one by one. Alone, and behind the layers of a stage. */
#include "nw_text.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NETS = 60, MOST_IMAGES = 6, TEXT = 1024 };

/* The layer's output is read as reals and as bits. apart: something else reads the convolution too,
 * so that no backend runs it with its shortcut; all else is the same. */
static nw_net *net_of(uint64_t seed, bool apart) {
    static const int sides[] = {8, 9, 10, 14, 15, 18, 20, 21, 28, 40, 56, 70};
    xn_rng of_seed = {seed}, *rng = &of_seed;
    const int channels = 64 << xn_rng_below(rng, 3), filters = 32 << xn_rng_below(rng, 5);
    const int most = channels == 256 ? 7 : channels == 128 ? 10 : 12;
    const int height = sides[xn_rng_below(rng, (uint64_t)most)];
    const int width = sides[xn_rng_below(rng, (uint64_t)most)];
    const int pad = (int)xn_rng_below(rng, 4), before = (int)xn_rng_below(rng, 4);
    const char *pads = pad == 0 ? " pad_value=1" : pad == 1 ? " pad_value=-1" : "";
    const bool odd = height % 2 || width % 2;
    char text[TEXT];
    int at = snprintf(text, sizeof text, "%dx%dx%d: x0=affine", channels, height, width);
    for (int n = 0; n < before; n++)
        at += snprintf(text + at, sizeof text - (size_t)at,
                       "; sign < x%d; conv %d%s; affine; x%d=add last x%d", n, channels, pads,
                       n + 1, n);
    at += snprintf(text + at, sizeof text - (size_t)at,
                   "; sign < x%d; conv %d stride=2%s; a=affine", before, filters, pads);
    at +=
        snprintf(text + at, sizeof text - (size_t)at,
                 "; %s < x%d%s; conv1 %d float%s; y=add a last; r=affine < y; sign < y%s; "
                 "b=conv1 8",
                 odd ? "max_pool3" : "avg_pool", before, odd ? " stride=2 padding=1" : "", filters,
                 xn_rng_below(rng, 4) ? "; affine" : "", xn_rng_below(rng, 2) ? " shift" : "");
    snprintf(text + at, sizeof text - (size_t)at,
             apart ? "; c=affine < a; out b r c" : "; out b r");
    nw_net *net = nw_text(rng, text);
    net->params.precision = XN_PRECISION_FP16;
    return net;
}

/* Whether the backend runs the strided convolution and the step two behind it as one. */
static bool is_fused(const xn_backend *b, const xn_network *network) {
    int32_t reads[NW_READS];
    int strided = 0;
    nw_count_reads(network, reads);
    for (int n = 0; n < network->step_count; n++)
        if (network->steps[n].kind == XN_STEP_CONV && network->steps[n].conv.stride_h == 2)
            strided = n;
    for (int n = 0, one; n < network->step_count; n += one) {
        one = b->fuses(&network->steps[n], network->step_count - n, reads);
        if (n <= strided && strided + 2 < n + one)
            return true;
    }
    return false;
}

static void check_net(const nw_subject *s, uint64_t seed) {
    nw_net *net = net_of(seed, false), *net_apart = net_of(seed, true);
    xn_network *network = nw_lower(net), *apart = nw_lower(net_apart);
    xn_rng rng = {seed + 1};
    const int64_t images = 1 + (int64_t)xn_rng_below(&rng, MOST_IMAGES);
    const float *input = nw_images(net, network, &rng, images);
    float *want = nw_run_on(s, apart, input, images, images, 1);
    nw_expect_layers(s, net, network, seed, input, images, want,
                     apart->output_bytes / sizeof *want);
    free(want);
    xn_network_free(network);
    xn_network_free(apart);
    nw_free(net);
    nw_free(net_apart);
}

START_TEST(a_strided_layer_is_its_steps) {
    const nw_subject *s;
    for (int i = 0; (s = nw_subject_at(i)); i++)
        for (uint64_t n = 0; s->backend->fuses && n < nw_chains(); n++)
            check_net(s, xn_test_seed() + n);
}
END_TEST

/* The convolution, the pool and the shortcut are one, also behind a stage; not where something else
 * reads the convolution. */
START_TEST(strided_layers_are_found) {
    const xn_backend *b = xn_backend_find("cuda");
    for (uint64_t n = 0; b && n < NETS; n++)
        for (int apart = 0; apart < 2; apart++) {
            nw_net *net = net_of(n, apart);
            xn_network *network = nw_lower(net);
            ck_assert_msg(is_fused(b, network) == !apart, "seed %" PRIu64, n);
            xn_network_free(network);
            nw_free(net);
        }
}
END_TEST

XN_SUITE(networks_strided) {
    Suite *s = suite_create("networks_strided");
    TCase *t = xn_test_case(s, "strided", 300);
    tcase_add_test(t, a_strided_layer_is_its_steps);
    tcase_add_test(t, strided_layers_are_found);
    return s;
}
