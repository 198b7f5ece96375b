/* order_test.c: an answer with K is the same bit for bit alone and in any batch: whatever path
 * runs it, however it is cut, in a batch of 1, 4 or 64 images. On the GPU it is also what
 * common/epilogue.cuh defines, which is computed here once more, one operation after the other. */
#include "bk_step.h"

#include "xn_arith.h"
#include "xn_mem.h"

#include <math.h>
#include <string.h>

enum { MOST_IMAGES = 64, PANEL = 1024, OCTET = 8 };

/* ---- the definition ---- */

static float at_of(const float *terms, int64_t count, int64_t n) {
    return n < count ? terms[n] : 0.0f;
}

static float fours(const float *terms, int64_t count) {
    float sum = 0.0f;
    for (int64_t n = 0; n < count; n += 4)
        sum += (at_of(terms, count, n) + at_of(terms, count, n + 1)) +
               (at_of(terms, count, n + 2) + at_of(terms, count, n + 3));
    return sum;
}

static double fours_in_double(const float *terms, int64_t count) {
    double sum = 0.0;
    for (int64_t n = 0; n < count; n += 4)
        sum += ((double)at_of(terms, count, n) + at_of(terms, count, n + 1)) +
               ((double)at_of(terms, count, n + 2) + at_of(terms, count, n + 3));
    return sum;
}

/* Of up to PANEL magnitudes. */
static float panel_sum(const float *magnitudes, int64_t count) {
    float octets[PANEL / OCTET], words[PANEL / OCTET / 4];
    int64_t octet_count = 0, word_count = 0;
    for (int64_t c = 0; c < count; c += OCTET) {
        float sum = magnitudes[c];
        for (int64_t n = c + 1; n < count && n < c + OCTET; n++)
            sum += magnitudes[n];
        octets[octet_count++] = sum;
    }
    for (int64_t o = 0; o < octet_count; o += 4)
        words[word_count++] = fours(octets + o, octet_count - o < 4 ? octet_count - o : 4);
    return fours(words, word_count);
}

static float mean_of(const float *magnitudes, int64_t channels) {
    double total = 0.0;
    bool again = channels > PANEL;
    for (int64_t c = 0; c < channels; c += PANEL) {
        const int64_t count = channels - c < PANEL ? channels - c : PANEL;
        const float sum = panel_sum(magnitudes + c, count);
        if (!again && !isinf(sum))
            return sum * (1.0f / (float)channels);
        if (isinf(sum)) {
            again = true;
            for (int64_t n = 0; n < count; n++)
                total += magnitudes[c + n];
        } else {
            total += sum;
        }
    }
    return (float)(total * (1.0 / (double)channels));
}

/* The means of a plane of an image. */
static float *means_of(const bk_problem *p, int64_t plane) {
    const xn_conv *c = &p->conv;
    const int64_t pixels = (int64_t)c->height * c->width;
    float *means = xn_mem_alloc((size_t)pixels * sizeof *means);
    float *channels = xn_mem_alloc((size_t)c->group_channels * sizeof *channels);
    ck_assert(means && channels);
    for (int64_t i = 0; i < pixels; i++) {
        for (int64_t n = 0; n < c->group_channels; n++)
            channels[n] = fabsf(p->real[(plane * c->group_channels + n) * pixels + i]);
        means[i] = mean_of(channels, c->group_channels);
    }
    xn_mem_free(channels);
    return means;
}

/* The box of an output; in double where fp32 has no finite one. */
static double box_of(const xn_conv *c, const float *means, int32_t out_y, int32_t out_x) {
    float box = 0.0f, row[64];
    double again = 0.0;
    ck_assert_int_le(c->kernel_w, 64);
    for (int32_t i = 0; i < c->kernel_h; i++) {
        const int32_t y = out_y * c->stride_h - c->pad_top + i * c->dilation_h;
        for (int32_t j = 0; j < c->kernel_w; j++) {
            const int32_t x = out_x * c->stride_w - c->pad_left + j * c->dilation_w;
            const bool inside = y >= 0 && y < c->height && x >= 0 && x < c->width;
            row[j] = inside ? means[(int64_t)y * c->width + x] : 0.0f;
        }
        box += fours(row, c->kernel_w);
        again += fours_in_double(row, c->kernel_w);
    }
    return isinf(box) ? again : box;
}

static float value_of(int32_t dot, double box, float factor, float unit, float bias) {
    const float f = factor * unit;
    const float product = (float)dot * (float)box;
    const float v = fmaf(product, f, bias);
    if (isfinite(v) && (factor == 0.0f || unit == 1.0f || fabsf(f) >= 0x1p-126f))
        return v;
    return (float)fma(dot * box, (double)factor * unit, bias);
}

/* Of the first images, FP32. */
static void define(const bk_problem *p, const int32_t *dots, int64_t images, float *out) {
    const xn_conv *c = &p->conv;
    const xn_weights *w = p->weights;
    const int64_t outputs = (int64_t)c->out_height * c->out_width;
    const float unit = 1.0f / (float)(c->kernel_h * c->kernel_w);
    for (int64_t plane = 0; plane < images * c->groups; plane++) {
        float *means = means_of(p, plane);
        for (int64_t i = 0; i < outputs; i++) {
            const double box =
                box_of(c, means, (int32_t)(i / c->out_width), (int32_t)(i % c->out_width));
            for (int32_t m = 0; m < c->group_out_channels; m++) {
                const int64_t o = plane % c->groups * c->group_out_channels + m;
                const int64_t at = (plane * c->group_out_channels + m) * outputs + i;
                out[at] = value_of(dots[at], box, w->scale ? w->scale[o] : w->alpha[o], unit,
                                   w->bias ? w->bias[o] : 0.0f);
            }
        }
        xn_mem_free(means);
    }
}

/* ---- the check ---- */

/* All NaNs are one. */
static bool is_same(float a, float b) {
    return (isnan(a) && isnan(b)) || !memcmp(&a, &b, sizeof a);
}

static void compare(const bk_target *target, const bk_case *c, int64_t images, const float *got,
                    const float *right, const char *whose, int64_t count) {
    int64_t wrong = 0, first = 0;
    char text[BK_TEXT];
    for (int64_t i = 0; i < count; i++)
        if (!is_same(got[i], right[i]) && !wrong++)
            first = i;
    if (!wrong)
        return;
    bk_case_describe(c, text);
    ck_abort_msg("%s with %lld images: %lld of %lld values are not those of %s; value %lld is %.9g,"
                 " not %.9g; %s",
                 target->name, (long long)images, (long long)wrong, (long long)count, whose,
                 (long long)first, (double)got[first], (double)right[first], text);
}

/* The problem's first images on one target; false where it cannot run them. */
static bool run_first(const bk_target *target, const bk_problem *p, int64_t images, float *out) {
    bk_problem some = *p;
    some.images = images;
    return bk_run(target, &some, &some.conv, out);
}

static void check(const bk_target *target, const bk_case *c) {
    static const int64_t batches[] = {1, 4, MOST_IMAGES};
    bk_problem p;
    bk_problem_make(c, &p);
    const int64_t each = xn_conv_output_elements(&p.conv);
    float *right = xn_mem_alloc((size_t)(MOST_IMAGES * each) * sizeof *right);
    float *got = xn_mem_alloc((size_t)(MOST_IMAGES * each) * sizeof *got);
    int32_t *dots = xn_mem_alloc((size_t)each * sizeof *dots);
    ck_assert(right && got && dots);
    ck_assert(run_first(target, &p, MOST_IMAGES, right));
    if (!strcmp(target->backend->name, "cuda")) {
        bk_problem one = p;
        one.images = 1;
        one.conv.epilogue = xn_conv_epilogue(XN_MODE_XNOR, XN_SCALING_NONE, false, false, XN_INT32);
        bk_run(bk_target_ref(), &one, &one.conv, dots);
        define(&p, dots, 1, got);
        compare(target, c, MOST_IMAGES, right, got, "the definition", each);
    }
    const bk_target *at = target;
    for (int path = 0; at; at = bk_target_forced(target, path++))
        for (size_t b = 0; b < sizeof batches / sizeof *batches; b++)
            if (run_first(at, &p, batches[b], got))
                compare(at, c, batches[b], got, right, "the free choice with 64 images",
                        batches[b] * each);
    xn_mem_free(dots);
    xn_mem_free(got);
    xn_mem_free(right);
    bk_problem_free(&p);
}

/* ---- problems ---- */

typedef struct shape {
    int64_t groups, group_channels, height, width, out_channels, kernel_h, kernel_w;
    int64_t stride, dilation;
} shape;

static const shape shapes[] = {
    {1, 1, 33, 40, 1, 3, 3, 1, 1},    {1, 1, 20, 36, 8, 5, 5, 1, 1},
    {1, 1, 31, 31, 1, 3, 3, 2, 1},    {16, 1, 14, 14, 16, 3, 3, 1, 1},
    {24, 1, 15, 17, 24, 5, 5, 2, 1},  {8, 1, 30, 30, 8, 7, 7, 1, 1},
    {8, 1, 21, 28, 8, 3, 3, 1, 2},    {1, 3, 28, 28, 40, 3, 3, 1, 1},
    {1, 3, 36, 36, 16, 7, 7, 2, 1},   {1, 3, 32, 32, 24, 11, 11, 4, 1},
    {1, 8, 14, 16, 40, 3, 3, 1, 1},   {4, 8, 12, 12, 32, 5, 5, 1, 1},
    {2, 24, 9, 13, 48, 3, 3, 1, 1},   {2, 48, 14, 16, 40, 3, 3, 1, 1},
    {1, 64, 14, 14, 64, 3, 3, 1, 1},  {1, 64, 16, 16, 72, 5, 5, 1, 1},
    {1, 64, 13, 15, 96, 1, 1, 1, 1},  {1, 64, 16, 16, 64, 3, 3, 2, 1},
    {1, 64, 15, 15, 64, 3, 3, 1, 2},  {1, 200, 7, 9, 130, 3, 3, 1, 1},
    {1, 200, 10, 10, 33, 1, 7, 1, 1}, {1, 256, 8, 8, 64, 7, 7, 1, 1},
    {1, 1100, 5, 6, 40, 3, 3, 1, 1},  {2, 1024, 4, 5, 36, 2, 4, 1, 1},
};

static void check_shape(const bk_target *target, const shape *s, bk_fill fill, uint64_t seed) {
    bk_case c = bk_geometry(MOST_IMAGES, s->groups * s->group_channels, s->height, s->width,
                            s->out_channels, s->kernel_h, s->kernel_w);
    c.params.groups = s->groups;
    c.params.stride[0] = c.params.stride[1] = s->stride;
    c.params.dilation[0] = c.params.dilation[1] = s->dilation;
    c.params.padding_kind = XN_PADDING_SAME;
    c.params.scaling = XN_SCALING_XNOR;
    c.input_fill = fill;
    c.weights_fill = seed % 3 == 2 ? BK_DENORMAL : BK_RANDOM;
    c.bias = seed % 2;
    c.spare = 0;
    c.seed = seed;
    check(target, &c);
}

START_TEST(one_order) {
    const bk_target *target = bk_target_named("cuda");
    if (!target)
        return;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        check_shape(target, &shapes[i], BK_RANDOM, i);
}
END_TEST

/* Sums of magnitudes, and what they are multiplied by, pass what fp32 holds. */
START_TEST(extremes) {
    static const bk_fill fills[] = {BK_MIXED, BK_HUGE, BK_DENORMAL, BK_INFINITY, BK_NAN};
    const bk_target *target = bk_target_named("cuda");
    if (!target)
        return;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        check_shape(target, &shapes[i], fills[i % (sizeof fills / sizeof *fills)], i);
}
END_TEST

XN_SUITE(backends_order) {
    Suite *s = suite_create("backends_order");
    TCase *t = xn_test_case(s, "order", 600);
    tcase_add_test(t, one_order);
    tcase_add_test(t, extremes);
    return s;
}
