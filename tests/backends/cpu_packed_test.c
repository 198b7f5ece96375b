/* cpu_packed_test.c: packed tensors, which are internal to the CPU backend (cpu.h) and so have a
 * test there: packed input to INT32, FP32 and FP16, packed and real input to packed output, on
 * every path that can, and two layers chained. The geometries are the integer cases of the table
 * and random ones; dots come from ref and are compared bit by bit. */
#include "bk_run.h"
#include "cpu.h"
#include "xn_arith.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    GUARD = 256,
    POISON = 0xa5,
    USUAL_RANDOM = 150,
    PARTS = 6
}; /* PARTS: tests that share a section */

typedef struct {
    const char *name;
    bool packed_in, packed_out;
    xn_scaling scaling;
    xn_datatype output;
} variant;

static const variant variants[] = {
    {"packed to INT32", true, false, XN_SCALING_NONE, XN_INT32},
    {"packed to FP32", true, false, XN_SCALING_ALPHA, XN_FP32},
    {"packed to FP16", true, false, XN_SCALING_ALPHA, XN_FP16},
    {"packed to packed", true, true, XN_SCALING_NONE, XN_INT32},
    {"real to packed", false, true, XN_SCALING_NONE, XN_INT32},
};
enum { VARIANTS = sizeof variants / sizeof *variants };

/* What the variants of a case share. */
typedef struct {
    bk_problem problem;
    xn_prepared *prepared;
    int32_t *dots, *threshold;
    uint32_t *bits, *flip;
} packed_problem;

static const bk_target *cpu_target(void) {
    for (int i = 0; i < bk_target_count(); i++)
        if (!strcmp(xn_backend_all()[i]->name, "cpu"))
            return bk_target_open(i);
    ck_abort_msg("this build has no backend cpu");
    return NULL;
}

static void *take(size_t count, size_t bytes) {
    void *memory = xn_mem_zalloc(count, bytes);
    ck_assert_ptr_nonnull(memory);
    return memory;
}

/* 1, 2 or a multiple of 4 words. */
static int64_t words_of(int64_t channels) {
    int64_t words = (channels + 31) / 32;
    while (words > 2 && words % 4)
        words++;
    return words;
}

/* bits[N*G][H*W][words] from the real input. */
static uint32_t *pack(const bk_problem *p) {
    const xn_conv *c = &p->conv;
    int64_t words = words_of(c->group_channels), plane = (int64_t)c->height * c->width;
    uint32_t *bits = take((size_t)(p->images * c->groups * plane * words), sizeof *bits);
    for (int64_t n = 0; n < p->images; n++)
        for (int64_t channel = 0; channel < c->channels; channel++)
            for (int64_t i = 0; i < plane; i++) {
                int64_t group = channel / c->group_channels, at = channel % c->group_channels;
                bits[((n * c->groups + group) * plane + i) * words + at / 32] |=
                    xn_sign_bit(p->real[(n * c->channels + channel) * plane + i]) << at % 32;
            }
    return bits;
}

static bool has_flip(const bk_case *c) {
    return c->seed % 4 != 3;
}

static void make(const bk_target *target, const bk_case *c, packed_problem *out) {
    bk_problem_make(c, &out->problem);
    const xn_conv *conv = &out->problem.conv;
    size_t filters = (size_t)conv->out_channels;
    out->dots = take((size_t)(out->problem.images * xn_conv_output_elements(conv)), 4);
    bk_run(bk_target_ref(), &out->problem, conv, out->dots);
    out->prepared = bk_prepare(target, &out->problem);
    out->bits = pack(&out->problem);
    out->threshold = take(filters, sizeof *out->threshold);
    out->flip = take(filters / 32 + 1, sizeof *out->flip);
    /* about half of the dots pass, and a few thresholds are ones that all or none do */
    int32_t most = conv->group_channels * conv->kernel_h * conv->kernel_w;
    int32_t spread = (int32_t)sqrt((double)most) + 1;
    xn_rng rng = {c->seed};
    for (size_t o = 0; o < filters; o++) {
        uint64_t kind = xn_rng_below(&rng, 16);
        out->threshold[o] = kind == 0 ? INT32_MIN
                            : kind == 1
                                ? INT32_MAX
                                : (int32_t)xn_rng_below(&rng, 2u * (uint32_t)spread + 1) - spread;
        if (has_flip(c))
            out->flip[o / 32] |= (uint32_t)xn_rng_below(&rng, 2) << o % 32;
    }
}

static void free_problem(const bk_target *target, packed_problem *p) {
    target->backend->weights_free(p->prepared);
    bk_problem_free(&p->problem);
    xn_mem_free(p->dots);
    xn_mem_free(p->threshold);
    xn_mem_free(p->bits);
    xn_mem_free(p->flip);
}

/* ---- what is right ---- */

static double alpha_of(const xn_weights *w, int64_t filter) {
    int64_t count = (int64_t)w->group_channels * w->kernel_h * w->kernel_w;
    double sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += fabs((double)w->real[filter * count + i]);
    return sum / (double)count;
}

static bool is_real_right(const packed_problem *p, const variant *v, const void *got, int64_t i) {
    const xn_conv *c = &p->problem.conv;
    int64_t filter = i / ((int64_t)c->out_height * c->out_width) % c->out_channels;
    double factor = v->scaling == XN_SCALING_ALPHA ? alpha_of(p->problem.weights, filter) : 1.0;
    double right = p->dots[i] * factor;
    double denormal = (fabs((double)p->dots[i]) + 1) * 0x1p-149; /* alpha and product are rounded */
    return bk_is_right(v->output, bk_value(v->output, got, i), right, 1e-5 * fabs(right) + denormal,
                       false);
}

/* Word i of [N][OH*OW][words]. */
static uint32_t right_word(const packed_problem *p, int64_t i) {
    const xn_conv *c = &p->problem.conv;
    int64_t words = words_of(c->out_channels), plane = (int64_t)c->out_height * c->out_width;
    int64_t pixel = i / words % plane, image = i / words / plane, first = i % words * 32;
    uint32_t word = 0;
    for (int64_t o = first; o < first + 32 && o < c->out_channels; o++) {
        int32_t dot = p->dots[(image * c->out_channels + o) * plane + pixel];
        uint32_t turned = p->flip[o / 32] >> o % 32 & 1u;
        word |= ((uint32_t)(dot >= p->threshold[o]) ^ turned) << o % 32;
    }
    return word;
}

static void judge(const packed_problem *p, const variant *v, const char *path,
                  const unsigned char *got, size_t bytes) {
    int64_t count = (int64_t)(bytes / (v->packed_out ? 4 : xn_datatype_bytes(v->output)));
    int64_t wrong = 0, first = 0;
    for (int64_t i = 0; i < count; i++) {
        const void *output = got + GUARD;
        bool right = v->packed_out ? ((const uint32_t *)output)[i] == right_word(p, i)
                                   : is_real_right(p, v, output, i);
        if (!right && !wrong++)
            first = i;
    }
    for (size_t i = 0; i < GUARD; i++)
        wrong += got[i] != POISON || got[GUARD + bytes + i] != POISON;
    char text[BK_TEXT];
    bk_case_describe(p->problem.c, text);
    ck_assert_msg(!wrong, "%s on %s: %lld of %lld wrong, first %lld, of %s; run seed %llu", v->name,
                  path, (long long)wrong, (long long)count, (long long)first, text,
                  (unsigned long long)xn_test_seed());
}

/* ---- a run ---- */

static xn_conv conv_of(const packed_problem *p, const variant *v) {
    xn_conv conv = p->problem.conv;
    conv.epilogue = xn_conv_epilogue(XN_MODE_XNOR, v->scaling, false, false, v->output);
    return conv;
}

static size_t output_bytes(const packed_problem *p, const variant *v) {
    xn_conv conv = conv_of(p, v);
    if (!v->packed_out)
        return (size_t)p->problem.images * xn_conv_output_bytes(&conv);
    return (size_t)(p->problem.images * conv.out_height * conv.out_width *
                    words_of(conv.out_channels)) *
           4;
}

static void run_on(const bk_target *target, const packed_problem *p, const variant *v) {
    xn_conv conv = conv_of(p, v);
    xn_cpu_plan_options options = {v->packed_in, v->packed_out};
    xn_plan *plan = NULL;
    xn_error error = {0};
    xn_status status = xn_cpu_plan_create_with(
        target->stream, &conv, p->problem.images + p->problem.c->spare, &options, &plan, &error);
    if (strncmp(target->path, "many/", 5) != 0) {
        ck_assert_msg(status == XN_ERR_UNSUPPORTED, "%s took a packed tensor", target->path);
        return;
    }
    ck_assert_msg(status == XN_OK, "%s: %s", v->name, error.message);
    size_t bytes = output_bytes(p, v);
    unsigned char *output = take(GUARD + bytes + GUARD, 1);
    memset(output, POISON, GUARD + bytes + GUARD);
    xn_cpu_run_io io = {.input = v->packed_in ? NULL : p->problem.input,
                        .bits = v->packed_in ? p->bits : NULL,
                        .output = v->packed_out ? NULL : output + GUARD,
                        .packed = v->packed_out ? (uint32_t *)(void *)(output + GUARD) : NULL,
                        .threshold = p->threshold,
                        .flip = has_flip(p->problem.c) ? p->flip : NULL};
    memset(target->stream->scratch, 0xff, target->stream->scratch_bytes);
    xn_cpu_run_with(plan, p->prepared, p->problem.images, &io);
    judge(p, v, target->path, output, bytes);
    bk_tally_add(target);
    xn_mem_free(output);
    xn_cpu_plan_free(plan);
}

static void check_case(const bk_target *target, const bk_case *c, int variant_count) {
    packed_problem p = {0};
    const bk_target *forced;
    make(target, c, &p);
    for (int path = 0; (forced = bk_target_forced(target, path)) != NULL; path++)
        for (int v = 0; v < variant_count; v++)
            run_on(forced, &p, &variants[v]);
    free_problem(target, &p);
}

/* ---- tests ---- */

typedef struct {
    const bk_target *target;
    int64_t number;
    int part;
} table_walk;

static void visit(const bk_case *c, void *context) {
    table_walk *walk = context;
    if (c->params.mode != XN_MODE_XNOR || c->params.output_datatype != XN_INT32)
        return;
    const int64_t number = walk->number++;
    if (number % bk_every() == 0 && number / bk_every() % PARTS == walk->part)
        check_case(walk->target, c, VARIANTS);
}

START_TEST(section) {
    table_walk walk = {cpu_target(), 0, _i % PARTS};
    bk_sections[_i / PARTS].each(visit, &walk);
}
END_TEST

/* After the tests whose runs are counted: all paths for many channels ran, and no others. */
static void report(void) {
    const bk_target *target = cpu_target(), *forced;
    printf("packed:");
    for (int path = 0; (forced = bk_target_forced(target, path)) != NULL; path++) {
        bool many = !strncmp(forced->path, "many/", 5);
        if (many)
            printf(" %s %d", forced->path, bk_tally_of(forced));
        ck_assert_msg((bk_tally_of(forced) > 0) == many, "%s ran %d times", forced->path,
                      bk_tally_of(forced));
    }
    printf("\n");
}

START_TEST(every_path_ran) {
    report();
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
    const bk_target *target = cpu_target();
    const char *text = getenv("XNORD_TEST_RANDOM");
    int count = text ? atoi(text) : USUAL_RANDOM;
    for (int i = _i; i < count; i += PARTS) {
        bk_case c;
        bk_case_random(xn_test_seed() + (uint64_t)i, &c);
        as_dots(&c);
        check_case(target, &c, VARIANTS);
    }
}
END_TEST

/* Outputs that are too large for the cache, 4 MiB, take other stores: rows that start with a line,
 * rows that do not, and images that are gathered; FP32 with K among them. Of the variants these are
 * the first two: the others' outputs are half of that and less. The slowest checkers take two
 * sizes. */
START_TEST(large_outputs) {
    static const int64_t shapes[][3] = {
        {12, 48, 40}, {540, 7, 40}, {28, 31, 40}, {98, 13, 64}, {65, 16, 64}};
    enum { SIZES = sizeof shapes / sizeof *shapes, STREAMED = 2, VERY_SLOW = 30 };
    const int sizes = bk_every() < VERY_SLOW ? SIZES : 2;
    const bk_target *target = cpu_target();
    bk_case cases[SIZES];
    for (int i = 0; i < sizes; i++) {
        bk_case *c = &cases[i];
        *c = bk_case_default();
        c->images = shapes[i][0], c->channels = 3, c->out_channels = shapes[i][2];
        c->height = c->width = shapes[i][1];
        c->params.padding_kind = XN_PADDING_SAME;
        c->items = 3;
        c->seed = (uint64_t)i;
        ck_assert(c->images * c->out_channels * c->height * c->width * 4 >= 4 << 20);
    }
    bk_check(target, cases, sizes);
    bk_tally_clear(); /* of all paths */
    for (int i = 0; i < sizes; i++) {
        as_dots(&cases[i]);
        check_case(target, &cases[i], STREAMED);
    }
    report();
}
END_TEST

/* Packed output of a plan is packed input of the next: two layers against two runs of ref. */
START_TEST(chained) {
    const bk_target *target = cpu_target(), *forced;
    bk_case c = bk_case_default();
    c.channels = 70, c.out_channels = 70, c.height = 9, c.width = 11, c.images = 3;
    c.params.padding_kind = XN_PADDING_SAME;
    c.seed = 5;
    as_dots(&c);
    packed_problem p = {0};
    make(target, &c, &p);
    const xn_conv *conv = &p.problem.conv;
    size_t outputs = (size_t)(p.problem.images * xn_conv_output_elements(conv));
    size_t words = outputs / 70 * (size_t)words_of(70);
    uint32_t *between = take(words, sizeof *between);
    int32_t *got = take(outputs, sizeof *got), *right = take(outputs, sizeof *right);
    float *signs = p.problem.input;
    for (size_t i = 0; i < outputs; i++) { /* the first layer's bits as the second's input */
        size_t plane = 99, o = i / plane % 70;
        bool bit = (p.dots[i] >= p.threshold[o]) != (p.flip[o / 32] >> o % 32 & 1u);
        signs[i] = bit ? 1.0f : -1.0f;
    }
    bk_run(bk_target_ref(), &p.problem, conv, right);
    for (int path = 0; (forced = bk_target_forced(target, path)) != NULL; path++) {
        xn_cpu_plan_options first = {true, true}, second = {true, false};
        xn_plan *plans[2] = {NULL, NULL};
        xn_error error;
        if (strncmp(forced->path, "many/", 5) != 0)
            continue;
        ck_assert_int_eq(
            xn_cpu_plan_create_with(forced->stream, conv, 3, &first, &plans[0], &error), XN_OK);
        ck_assert_int_eq(
            xn_cpu_plan_create_with(forced->stream, conv, 3, &second, &plans[1], &error), XN_OK);
        xn_cpu_run_io to = {
            .bits = p.bits, .packed = between, .threshold = p.threshold, .flip = p.flip};
        xn_cpu_run_io from = {.bits = between, .output = got};
        xn_cpu_run_with(plans[0], p.prepared, 3, &to);
        xn_cpu_run_with(plans[1], p.prepared, 3, &from);
        ck_assert_msg(!memcmp(got, right, outputs * sizeof *got), "%s differs", forced->path);
        xn_cpu_plan_free(plans[0]);
        xn_cpu_plan_free(plans[1]);
    }
    xn_mem_free(between);
    xn_mem_free(got);
    xn_mem_free(right);
    free_problem(target, &p);
}
END_TEST

/* What cannot be packed is refused: K of packed input, and packed output of reals. */
START_TEST(refused) {
    const bk_target *target = cpu_target();
    bk_case c = bk_case_default();
    bk_problem p;
    bk_problem_make(&c, &p);
    xn_cpu_plan_options in = {true, false}, out = {false, true};
    xn_plan *plan = NULL;
    xn_error error = {0};
    ck_assert_int_eq(xn_cpu_plan_create_with(target->stream, &p.conv, 1, &in, &plan, &error),
                     XN_ERR_UNSUPPORTED);
    ck_assert_int_eq(xn_cpu_plan_create_with(target->stream, &p.conv, 1, &out, &plan, &error),
                     XN_ERR_UNSUPPORTED);
    ck_assert_ptr_null(plan);
    bk_problem_free(&p);
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
    tcase_add_test(other, chained);
    tcase_add_test(other, refused);
    return s;
}
