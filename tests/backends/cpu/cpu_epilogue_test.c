/* cpu_epilogue_test.c: every combination of the fields of an epilogue, on every path of the CPU
 * that can run it, against ref. Values are small integers, factors powers of 2 and boxes of K have
 * a power of 2 of taps, so that every step of the equation is exact and results are equal bit by
 * bit. */
#include "backends/bk_step.h"

#include "xn_mem.h"

#include <string.h>

enum { PARTS = 2, FACTORS = 3 };

typedef struct shape {
    int images, channels, groups, height, width, out_channels, kernel_h, kernel_w, padding, stride;
    xn_mode mode;
} shape;

/* With K: groups of 1, 2, 4 or 32 channels and 40 of 64, which is a long box. */
static const shape shapes[] = {
    {2, 1, 1, 9, 70, 1, 2, 2, 1, 1, XN_MODE_XNOR},   {1, 4, 1, 7, 11, 37, 2, 2, 0, 1, XN_MODE_XNOR},
    {2, 64, 2, 5, 6, 36, 2, 2, 1, 1, XN_MODE_XNOR},  {1, 64, 1, 5, 5, 9, 1, 1, 0, 1, XN_MODE_XNOR},
    {3, 128, 1, 3, 3, 70, 2, 2, 1, 2, XN_MODE_XNOR}, {2, 3, 1, 6, 9, 20, 3, 3, 1, 1, XN_MODE_FLOAT},
    {2, 5, 5, 8, 9, 10, 3, 3, 1, 1, XN_MODE_BWN},    {1, 34, 1, 4, 5, 33, 2, 2, 1, 1, XN_MODE_BWN},
    {3, 70, 1, 1, 1, 60, 1, 1, 0, 1, XN_MODE_FLOAT}, {2, 5, 1, 3, 3, 50, 3, 3, 0, 1, XN_MODE_BWN},
    {2, 4, 2, 9, 7, 4, 3, 2, 1, 3, XN_MODE_FLOAT},   {1, 2, 2, 70, 80, 2, 3, 3, 1, 1, XN_MODE_BWN},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

/* The convolution of a shape; its epilogue is a combination's. */
static void make_subject(const shape *of, bk_step *s) {
    bk_case c = bk_geometry(of->images, of->channels, of->height, of->width, of->out_channels,
                            of->kernel_h, of->kernel_w);
    c.params.groups = of->groups, c.params.mode = of->mode;
    c.params.stride[0] = c.params.stride[1] = of->stride;
    bk_pad(&c, of->padding, of->padding, of->padding, of->padding);
    c.seed = xn_test_seed() + (uint64_t)(of - shapes);
    xn_rng rng = {c.seed};
    bk_step_of_case(&c, s);
    bk_step_fill(&rng, false, s);
    bk_step_weigh(&rng, true, true, s);
}

/* ---- combinations ---- */

static const xn_datatype datatypes[] = {XN_FP32, XN_FP16, XN_INT32, XN_BITS};
enum { DATATYPES = 4, COMBINATIONS = FACTORS * 2 * 2 * 2 * 3 * DATATYPES * 2 * 2 };

/* Combination n; false where it means nothing. */
static bool epilogue_of(int n, const xn_conv *conv, xn_epilogue *e) {
    *e = (xn_epilogue){0};
    e->factor = n % FACTORS, n /= FACTORS;
    e->k = n % 2, n /= 2;
    e->bias = n % 2, n /= 2;
    e->residual = n % 2, n /= 2;
    e->activation = n % 3, n /= 3;
    e->datatype = (int32_t)datatypes[n % DATATYPES], n /= DATATYPES;
    e->bits = n % 2, n /= 2;
    e->shift = n % 2;
    if (e->activation == XN_ACTIVATION_CLIP)
        e->low = -2.25f, e->high = 3.5f;
    return (e->datatype != XN_BITS || e->bits) && (!e->shift || e->bits) &&
           (!e->k || conv->mode == XN_MODE_XNOR) && !(e->residual && e->datatype == XN_INT32);
}

static void set_epilogue(bk_step *s, const xn_epilogue *e, int layout) {
    xn_rng rng = {s->seed};
    xn_conv conv = s->step.conv;
    conv.epilogue = *e;
    xn_step_of_conv(&conv, &s->step);
    s->step.bits_layout = e->bits ? layout : 0;
    s->step.residual = e->residual ? 2 : XN_NO_TENSOR;
    if (e->residual && e->datatype != XN_BITS)
        s->step.residual_datatype = e->datatype;
    else if (e->residual) /* beside bits alone it may be either */
        s->step.residual_datatype = e->shift ? XN_FP16 : XN_FP32;
    s->step.bits = e->bits ? 3 : XN_NO_TENSOR;
    if (e->residual) {
        const size_t bytes = (size_t)s->images * xn_step_residual_bytes(&s->step);
        xn_mem_free(s->residual);
        s->residual = bk_take(bytes);
        bk_fill_quarters(&rng, false, s->step.residual_datatype, bytes, s->residual);
    }
}

static void compare(const bk_target *target, bk_step *s, const bk_written *right) {
    bk_written got;
    if (!bk_step_run(target, s, s->images, &got))
        return;
    bk_step_expect(target->name, s, &got, right);
    bk_tally_add(target);
    bk_written_free(&got);
}

static void check_combination(bk_step *s, int n) {
    const bk_target *cpu = bk_target_named("cpu"), *forced;
    xn_epilogue e;
    bk_written right;
    if (!epilogue_of(n, &s->step.conv, &e))
        return;
    set_epilogue(s, &e, n / 5 % 2 ? XN_LAYOUT_WORDS : XN_LAYOUT_BYTES);
    ck_assert(bk_step_run(bk_target_ref(), s, s->images, &right));
    compare(cpu, s, &right); /* whatever the combination is, some path has it */
    for (int path = 0; (forced = bk_target_forced(cpu, path)) != NULL; path++)
        compare(forced, s, &right);
    bk_written_free(&right);
}

START_TEST(combinations) {
    bk_step s;
    make_subject(&shapes[_i / PARTS], &s);
    for (int n = _i % PARTS; n < COMBINATIONS; n += PARTS * bk_every())
        check_combination(&s, n);
    bk_step_free(&s);
}
END_TEST

START_TEST(every_path_ran) {
    const bk_target *forced;
    for (int path = 0; (forced = bk_target_forced(bk_target_named("cpu"), path)) != NULL; path++)
        ck_assert_msg(bk_tally_of(forced) > 0, "%s ran no epilogue", forced->path);
}
END_TEST

XN_SUITE(cpu_epilogue) {
    bk_tally_start();
    Suite *s = suite_create("cpu_epilogue");
    TCase *t = bk_tally_case(s, "epilogue");
    tcase_add_loop_test(t, combinations, 0, SHAPES * PARTS);
    tcase_add_test(t, every_path_ran);
    return s;
}
