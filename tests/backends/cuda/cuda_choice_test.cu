/* cuda_choice_test.cu: what the CUDA backend decides without a device: which path runs a step
 * and how a stage is cut, against measured times. */
#include "cuda_times.h"
#include "fused_stage.h"
#include "xn_arith.h"
#include "xn_cuda.h"
#include "xn_test.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <vector>

/* ---- the choice ---- */

static const xn_cuda_chip h200 = {132, true, true, true, 232448};

static xn_step step_of(const xn_times *t, int64_t *images) {
    const xn_conv_limits limits = {(int64_t)1 << 40, (int64_t)1 << 40, (int64_t)1 << 60};
    const xn_shape input = {4, {t->images, t->channels, t->side, t->side}};
    const xn_weights_shape weights = {
        {t->filters, t->channels / t->groups, t->kernel, t->kernel}, XN_FP32, false, false};
    const bool from_bits = t->input == XN_BITS, to_bits = t->output == XN_BITS;
    xn_conv_params params;
    xn_conv conv;
    xn_step step;
    xn_error error;
    xn_conv_params_default(&params);
    for (int64_t &padding : params.padding)
        padding = t->kernel == t->stride ? 0 : t->dilation * (t->kernel / 2);
    params.stride[0] = params.stride[1] = t->stride;
    params.dilation[0] = params.dilation[1] = t->dilation;
    params.groups = t->groups;
    params.output_datatype = to_bits ? XN_FP32 : t->output;
    params.scaling = !from_bits                          ? XN_SCALING_XNOR
                     : params.output_datatype == XN_FP16 ? XN_SCALING_ALPHA
                                                         : XN_SCALING_NONE;
    ck_assert_int_eq(xn_conv_resolve(&params, from_bits ? XN_FP32 : t->input, &input, &weights,
                                     &limits, &conv, images, &error),
                     XN_OK);
    xn_step_of_conv(&conv, &step);
    step.conv.input_datatype = t->input;
    step.input_layout = from_bits ? XN_LAYOUT_WORDS : 0;
    if (to_bits) {
        step.conv.epilogue = {};
        step.conv.epilogue.datatype = XN_BITS;
        step.conv.epilogue.bits = 1;
        step.bits_layout = XN_LAYOUT_WORDS;
        step.output = XN_NO_TENSOR;
        step.bits = 1;
    }
    return step;
}

/* The time of the path, 0 where it was not among the fast ones. */
static double us_of(const xn_times *t, const char *path) {
    for (const xn_path_time &p : t->paths)
        if (p.path && !strcmp(p.path, path))
            return p.us;
    return 0;
}

static double best_of(const xn_times *t) {
    double best = INFINITY;
    for (const xn_path_time &p : t->paths)
        best = p.path && p.us < best ? p.us : best;
    return best;
}

/* Of each shape the times of all paths up to twice the best are known: a path that is not among
 * them is a choice that is worse than any limit here. */
START_TEST(choices_are_near_the_best) {
    double sum = 0;
    int misses = 0;
    for (int i = 0; i < xn_times_count; i++) {
        const xn_times *t = &xn_times_all[i];
        int64_t images;
        const xn_step step = step_of(t, &images);
        xn_cuda_choice choice = {};
        xn_error error;
        ck_assert_int_eq(xn_cuda_choose(&step, images, &h200, NULL, &choice, &error), XN_OK);
        const double us = us_of(t, choice.path->name), ratio = us / best_of(t);
        ck_assert_msg(us > 0 && ratio < 1.31, "%s: %s is chosen, %.2f times the best", t->name,
                      choice.path->name, ratio);
        misses += ratio > 1.05;
        sum += log(ratio);
        xn_mem_free(choice.state);
    }
    ck_assert_int_le(misses, 5);
    ck_assert_double_le(exp(sum / xn_times_count), 1.009);
}
END_TEST

/* What costs.h has a price for, and nothing else, is a term of a path's cost. */
START_TEST(terms_have_names) {
    for (int i = 0; i < xn_times_count; i++) {
        int64_t images;
        const xn_step step = step_of(&xn_times_all[i], &images);
        const xn_cuda_path *path;
        for (int n = 0; (path = xn_cuda_path_at(n)) != NULL; n++) {
            xn_cuda_choice choice;
            void *state = xn_mem_zalloc(1, path->state_bytes + 1);
            if (xn_cuda_try_path(&step, images, &h200, path, state, &choice)) {
                double terms[XN_CUDA_TERMS] = {};
                path->terms(&choice.job, &h200, state, terms);
                for (int term = 0; term < XN_CUDA_TERMS; term++)
                    ck_assert_msg(path->costs[term].term || terms[term] == 0, "%s: term %d",
                                  path->name, term);
            }
            xn_mem_free(state);
        }
    }
}
END_TEST

/* The cuts of the stages of a residual network that took the least time, up to 3% more, of all
 * those measured (NVIDIA H200, CUDA 13.0, graph replay, medians). Bands of 18 rows, and one block
 * for 512 channels: within Bi-Real-18, with 512 images; with 128 by as many rounds of blocks. */
static const struct {
    int channels, images;
    xn_datatype reals;
    xn_cuda_stage_cut cuts[3];
} stage_cuts[] = {
    {64, 1, XN_FP16, {{2, 1, 2}}},
    {64, 8, XN_FP16, {{8, 1, 2}}},
    {64, 32, XN_FP16, {{14, 1, 1}, {28, 1, 2}}},
    {64, 64, XN_FP16, {{14, 1, 1}, {28, 1, 2}}},
    {64, 128, XN_FP16, {{18, 1, 1}}},
    {64, 512, XN_FP16, {{18, 1, 1}}},
    {128, 1, XN_FP16, {{2, 1, 4}}},
    {128, 8, XN_FP16, {{4, 1, 2}}},
    {128, 32, XN_FP16, {{14, 1, 2}}},
    {128, 64, XN_FP16, {{14, 1, 1}}},
    {128, 128, XN_FP16, {{14, 1, 1}}},
    {128, 512, XN_FP16, {{14, 1, 1}}},
    {256, 1, XN_FP16, {{2, 1, 8}}},
    {256, 8, XN_FP16, {{8, 1, 4}, {6, 1, 4}, {14, 1, 8}}},
    {256, 32, XN_FP16, {{8, 1, 2}}},
    {256, 64, XN_FP16, {{14, 1, 2}}},
    {256, 128, XN_FP16, {{14, 1, 1}}},
    {256, 512, XN_FP16, {{14, 1, 1}, {14, 2, 2}}},
    {512, 1, XN_FP16, {{7, 1, 16}}},
    {512, 8, XN_FP16, {{7, 1, 8}}},
    {512, 32, XN_FP16, {{7, 3, 8}}},
    {512, 64, XN_FP16, {{7, 1, 2}}},
    {512, 128, XN_FP16, {{7, 1, 1}}},
    {512, 512, XN_FP16, {{7, 1, 1}}},
    {512, 1, XN_FP32, {{7, 1, 16}}},
    {512, 8, XN_FP32, {{7, 1, 8}}},
    {512, 32, XN_FP32, {{7, 3, 8}}},
    {512, 64, XN_FP32, {{7, 3, 4}}},
    {512, 128, XN_FP32, {{7, 3, 4}}},
    {512, 512, XN_FP32, {{7, 3, 4}}},
};

START_TEST(stages_are_cut_near_the_best) {
    for (const auto &best : stage_cuts) {
        const bool last = best.channels == 512;
        xn_step step = {};
        step.conv.channels = step.conv.out_channels = best.channels;
        step.conv.height = step.conv.width = 56 * 64 / best.channels;
        step.conv.epilogue.datatype = best.reals;
        const xn_cuda_stage_cut cut =
            xn_cuda_stage_cut_of(&step, best.channels == 64 ? 4 : 3, last, best.images, &h200);
        bool near = false;
        for (const xn_cuda_stage_cut &c : best.cuts)
            near |= c.band == cut.band && c.images == cut.images && c.cluster == cut.cluster;
        ck_assert_msg(near && cut.band, "%d channels, %d images: %d rows, %d images, %d blocks",
                      best.channels, best.images, cut.band, cut.images, cut.cluster);
    }
}
END_TEST

/* A step that nothing runs by itself is run by a path and what is around it. */
START_TEST(chips_have_a_path_for_every_epilogue) {
    static const xn_cuda_chip chips[] = {{68, false, false, false, 65536},
                                         {108, true, false, false, 166912},
                                         {132, true, true, true, 232448}};
    for (const xn_cuda_chip &chip : chips)
        for (int has = 0; has < 64; has++) {
            xn_times t = {};
            int64_t images;
            t.images = 2;
            t.channels = has & 1 ? 6 : 128;
            t.side = 9;
            t.filters = 10;
            t.kernel = 3;
            t.stride = 1 + (has >> 1 & 1);
            t.dilation = t.groups = 1;
            t.input = has >> 2 & 1 ? XN_BITS : XN_FP32;
            t.output = XN_FP32;
            xn_step step = step_of(&t, &images);
            xn_epilogue *e = &step.conv.epilogue;
            step.input_layout = XN_LAYOUT_BYTES;
            e->residual = has >> 3 & 1;
            e->activation = has >> 4 & 1 ? XN_ACTIVATION_PRELU : XN_ACTIVATION_NONE;
            e->bits = has >> 5 & 1;
            xn_cuda_choice choice = {};
            xn_error error;
            ck_assert_int_eq(xn_cuda_choose(&step, images, &chip, NULL, &choice, &error), XN_OK);
            ck_assert(xn_cuda_path_exists(choice.path, &chip));
            xn_mem_free(choice.state);
        }
}
END_TEST

XN_SUITE(cuda_choice) {
    Suite *s = suite_create("cuda_choice");
    TCase *t = xn_test_case(s, "choice", 120);
    tcase_add_test(t, choices_are_near_the_best);
    tcase_add_test(t, terms_have_names);
    tcase_add_test(t, stages_are_cut_near_the_best);
    tcase_add_test(t, chips_have_a_path_for_every_epilogue);
    return s;
}
