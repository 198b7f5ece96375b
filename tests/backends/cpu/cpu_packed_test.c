/* cpu_packed_test.c: convolutions whose input, output or both are bits, in words and in bytes, on
 * every path of the CPU, against ref: with the geometries of the table's integer cases, random
 * ones, small images, and outputs that do not fit the caches. Kernels are signs, factors powers of
 * 2 and shifts quarters, so that all is exact and equal bit by bit. */
#include "backends/bk_step.h"
#include "path.h"
#include "xn_mem.h"

#include <stdio.h>
#include <string.h>

enum { USUAL_RANDOM = 150, SMALL_IMAGES = 24, PARTS = 6 /* tests that share a section */ };
enum { VERY_SLOW = 30 /* XNORD_TEST_EVERY of checkers that take less elsewhere too */ };

enum { REAL = -1 }; /* where a layout of bits may stand */

typedef struct variant {
    const char *name;
    int in, out; /* xn_layout, or REAL */
    xn_datatype output;
} variant;

/* A case of the table has two of them in turn, one that stores reals or INT32 among them. */
static const variant variants[] = {
    {"words to INT32", XN_LAYOUT_WORDS, REAL, XN_INT32},
    {"words to words", XN_LAYOUT_WORDS, XN_LAYOUT_WORDS, XN_BITS},
    {"words to FP32", XN_LAYOUT_WORDS, REAL, XN_FP32},
    {"real to words", REAL, XN_LAYOUT_WORDS, XN_BITS},
    {"words to FP16", XN_LAYOUT_WORDS, REAL, XN_FP16},
    {"bytes to bytes", XN_LAYOUT_BYTES, XN_LAYOUT_BYTES, XN_BITS},
    {"bytes to INT32", XN_LAYOUT_BYTES, REAL, XN_INT32},
    {"real to bytes", REAL, XN_LAYOUT_BYTES, XN_BITS},
};
enum { VARIANTS = sizeof variants / sizeof *variants };

static const bk_target *cpu_target(void) {
    return bk_target_named("cpu");
}

/* ---- a case ---- */

static void set_variant(const variant *v, const bk_case *c, bk_step *s) {
    xn_rng rng = {c->seed};
    xn_conv conv = s->step.conv;
    conv.input_datatype = v->in == REAL ? (int32_t)c->input_datatype : XN_BITS;
    conv.epilogue = (xn_epilogue){.datatype = (int32_t)v->output, .bits = v->out != REAL};
    conv.epilogue.factor = v->output == XN_INT32 ? XN_FACTOR_NONE : XN_FACTOR_SCALE;
    conv.epilogue.shift = conv.epilogue.bits;
    xn_step_of_conv(&conv, &s->step);
    s->step.input_layout = v->in == REAL ? 0 : v->in;
    s->step.bits_layout = v->out == REAL ? 0 : v->out;
    bk_step_fill(&rng, false, s);
}

/* Only the paths for many channels take bits as input, and these take all variants. */
static void run_on(const bk_target *target, const variant *v, int64_t room, bk_step *s,
                   const bk_written *right) {
    const bool many = !strncmp(target->path, "bitgemm/", 8);
    bk_written got;
    if (target->stream->scratch)
        memset(target->stream->scratch, 0xff, target->stream->scratch_bytes);
    const bool ran = bk_step_run(target, s, room, &got);
    ck_assert_msg(ran || !many, "%s on %s: refused", v->name, target->path);
    ck_assert_msg(!ran || many || v->in == REAL, "%s took bits", target->path);
    if (!ran)
        return;
    bk_step_expect(target->name, s, &got, right);
    bk_tally_add(target);
    bk_written_free(&got);
}

/* On every path, `count` variants from number `first` on. */
static void check_case(const bk_case *c, int64_t first, int count) {
    const bk_target *forced;
    xn_rng rng = {c->seed};
    bk_step s;
    bk_step_of_case(c, &s);
    bk_step_weigh(&rng, true, true, &s);
    for (int n = 0; n < count; n++) {
        const variant *v = &variants[(first + n) % VARIANTS];
        bk_written right;
        set_variant(v, c, &s);
        ck_assert(bk_step_run(bk_target_ref(), &s, s.images, &right));
        for (int path = 0; (forced = bk_target_forced(cpu_target(), path)) != NULL; path++)
            run_on(forced, v, s.images + c->spare, &s, &right);
        bk_written_free(&right);
    }
    bk_step_free(&s);
}

/* ---- tests ---- */

typedef struct table_walk {
    int64_t number;
    int part;
} table_walk;

static void visit(const bk_case *c, void *context) {
    table_walk *walk = context;
    if (c->params.mode != XN_MODE_XNOR || c->params.output_datatype != XN_INT32)
        return;
    const int64_t number = walk->number++;
    if (number % bk_every() == 0 && number / bk_every() % PARTS == walk->part)
        check_case(c, number * 2, 2);
}

START_TEST(section) {
    table_walk walk = {0, _i % PARTS};
    bk_sections[_i / PARTS].each(visit, &walk);
}
END_TEST

/* After the tests whose runs are counted: all paths of mode xnor ran, and no others. */
START_TEST(every_path_ran) {
    const bk_target *target = cpu_target(), *forced;
    printf("packed:");
    for (int path = 0; (forced = bk_target_forced(target, path)) != NULL; path++) {
        bool xnor = !strncmp(forced->path, "bitgemm/", 8) || !strncmp(forced->path, "lookup/", 7);
        if (xnor)
            printf(" %s %d", forced->path, bk_tally_of(forced));
        ck_assert_msg((bk_tally_of(forced) > 0) == xnor, "%s ran %d times", forced->path,
                      bk_tally_of(forced));
    }
    printf("\n");
}
END_TEST

static void as_dots(bk_case *c) {
    c->params.mode = XN_MODE_XNOR;
    c->params.scaling = XN_SCALING_NONE;
    c->params.output_datatype = XN_INT32;
    c->scale = c->bias = false;
    bk_case_signed(c);
}

START_TEST(random_problems) {
    const char *text = getenv("XNORD_TEST_RANDOM");
    int count = text ? atoi(text) : USUAL_RANDOM;
    for (int i = _i; i < count; i += PARTS) {
        bk_case c;
        bk_case_random(xn_test_seed() + (uint64_t)i, &c);
        as_dots(&c);
        check_case(&c, 0, VARIANTS);
    }
}
END_TEST

/* As /conv has them, and with bits: the first `count` variants. */
static void check_both(bk_case *cases, int case_count, int count) {
    bk_check(cpu_target(), cases, case_count);
    bk_tally_clear(); /* of all paths */
    for (int i = 0; i < case_count; i++) {
        as_dots(&cases[i]);
        check_case(&cases[i], 0, count);
    }
}

static int64_t between(xn_rng *rng, int64_t least, int64_t most) {
    return least + (int64_t)xn_rng_below(rng, (uint64_t)(most - least + 1));
}

/* Of small images with many channels and filters by 16: much of what a filter sees is outside, and
 * where it is not counted (bitgemm_turned.h) rows of the kernel begin and end anywhere. */
static bk_case small_image(uint64_t seed) {
    xn_rng rng = {seed};
    bk_case c = bk_case_default();
    const int64_t groups = between(&rng, 1, 2);
    c.params.groups = groups;
    c.channels = groups * between(&rng, 40, 300);
    c.out_channels = groups * 16 * between(&rng, 1, 3);
    c.images = between(&rng, 1, 3);
    c.height = between(&rng, 3, 9), c.width = between(&rng, 3, 9);
    c.kernel_h = between(&rng, 1, 5), c.kernel_w = between(&rng, 1, 5);
    for (int axis = 0; axis < 2; axis++) {
        const int64_t extent = axis ? c.kernel_w : c.kernel_h;
        c.params.dilation[axis] = between(&rng, 1, 2);
        c.params.stride[axis] = xn_rng_below(&rng, 4) ? 1 : 2;
        for (int end = 0; end < 2; end++)
            c.params.padding[axis + 2 * end] = between(&rng, extent / 2, extent * 2);
    }
    c.params.pad_value = (int)between(&rng, -1, 1);
    c.params.padding_kind = XN_PADDING_EXPLICIT;
    c.items = (int)between(&rng, 1, 2);
    c.seed = seed;
    return c;
}

START_TEST(small_images) {
    const int count = bk_every() < VERY_SLOW ? SMALL_IMAGES / PARTS : 1;
    bk_case cases[SMALL_IMAGES / PARTS];
    for (int i = 0; i < count; i++)
        cases[i] = small_image(xn_test_seed() + (uint64_t)(i * PARTS + _i));
    check_both(cases, count, VARIANTS);
}
END_TEST

/* Outputs that are too large for the cache, 4 MiB, take other stores: rows that start with a line,
 * rows that do not, and images that are gathered; FP32 with K among them. Of the variants these are
 * the first and the third: the others' outputs are half of that and less. The slowest checkers take
 * two sizes. */
START_TEST(large_outputs) {
    static const int64_t shapes[][3] = {
        {12, 48, 40}, {540, 7, 40}, {28, 31, 40}, {98, 13, 64}, {65, 16, 64}};
    enum { SIZES = sizeof shapes / sizeof *shapes, STREAMED = 3 };
    const int sizes = bk_every() < VERY_SLOW ? SIZES : 2;
    bk_case cases[SIZES];
    for (int i = 0; i < sizes; i++) {
        const int64_t *s = shapes[i];
        const int64_t border = i == SIZES - 1 ? 2 : 0; /* of the input, in place of padding */
        bk_case *c = &cases[i];
        *c = bk_geometry(s[0], 3, s[1] + border, s[1] + border, s[2], 3, 3);
        c->params.padding_kind = border ? XN_PADDING_VALID : XN_PADDING_SAME;
        c->items = 3;
        c->seed = (uint64_t)i;
        ck_assert(s[0] * s[2] * s[1] * s[1] * 4 >= 4 << 20);
    }
    check_both(cases, sizes, STREAMED);
}
END_TEST

/* What no path can do is refused: K of bits, bits as input of reals, and bits that lie as reals do.
 */
START_TEST(refused) {
    const bk_target *target = cpu_target();
    bk_case c = bk_case_default();
    bk_step s;
    bk_step_of_case(&c, &s);
    s.step.conv.epilogue.k = 0;
    s.step.conv.input_datatype = XN_BITS;
    for (int i = 0; i < 5; i++) {
        xn_plan *plan = NULL;
        xn_error error = {0};
        xn_step step = s.step;
        switch (i) {
        case 1:
            step.conv.epilogue.k = 1;
            break;
        case 2:
            step.conv.mode = XN_MODE_BWN;
            break;
        case 3:
            step.input_layout = XN_LAYOUT_NHWC;
            break;
        case 4:
            step.conv.epilogue.bits = 1, step.bits = 2;
            step.bits_layout = XN_LAYOUT_NHWC;
            break;
        default:
            break;
        }
        xn_status status = target->backend->plan_create(target->stream, &step, 1, &plan, &error);
        ck_assert_msg(status == (i ? XN_ERR_UNSUPPORTED : XN_OK), "case %d: %s", i, error.message);
        ck_assert(!plan == (i > 0));
        target->backend->plan_free(plan);
    }
}
END_TEST

XN_SUITE(cpu_packed) {
    bk_tally_start();
    Suite *s = suite_create("cpu_packed");
    TCase *table = bk_tally_case(s, "table"), *random = bk_tally_case(s, "random"),
          *other = bk_tally_case(s, "packed");
    tcase_add_loop_test(table, section, 0, bk_section_count * PARTS);
    tcase_add_test(table, every_path_ran);
    tcase_add_loop_test(random, random_problems, 0, PARTS);
    tcase_add_test(random, every_path_ran);
    tcase_add_test(other, large_outputs);
    tcase_add_loop_test(other, small_images, 0, PARTS);
    tcase_add_test(other, refused);
    return s;
}
