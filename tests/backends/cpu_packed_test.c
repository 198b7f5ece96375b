/* cpu_packed_test.c: steps of the CPU backend with bits at their edges: in words and in bytes, to
 * INT32, FP32 and FP16, from reals to bits, on every path that can, and two layers chained. The
 * geometries are the integer cases of the table and random ones; dots come from ref and are
 * compared bit by bit. Thresholds are the weights' scale, 1 or -1, and shift. */
#include "bk_step.h"
#include "path.h"
#include "xn_arith.h"
#include "xn_mem.h"
#include "xn_rng.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    GUARD = 256,
    POISON = 0xa5,
    USUAL_RANDOM = 150,
    SMALL_IMAGES = 24,
    PARTS = 6 /* tests that share a section */
};

enum { REAL = -1 }; /* where a layout of bits may stand */

typedef struct {
    const char *name;
    int in, out; /* xn_layout, or REAL */
    xn_scaling scaling;
    xn_datatype output;
} variant;

static const variant variants[] = {
    {"words to INT32", XN_LAYOUT_WORDS, REAL, XN_SCALING_NONE, XN_INT32},
    {"words to FP32", XN_LAYOUT_WORDS, REAL, XN_SCALING_ALPHA, XN_FP32},
    {"words to FP16", XN_LAYOUT_WORDS, REAL, XN_SCALING_ALPHA, XN_FP16},
    {"words to words", XN_LAYOUT_WORDS, XN_LAYOUT_WORDS, XN_SCALING_NONE, XN_BITS},
    {"real to words", REAL, XN_LAYOUT_WORDS, XN_SCALING_NONE, XN_BITS},
    {"bytes to INT32", XN_LAYOUT_BYTES, REAL, XN_SCALING_NONE, XN_INT32},
    {"bytes to bytes", XN_LAYOUT_BYTES, XN_LAYOUT_BYTES, XN_SCALING_NONE, XN_BITS},
    {"real to bytes", REAL, XN_LAYOUT_BYTES, XN_SCALING_NONE, XN_BITS},
};
enum { VARIANTS = sizeof variants / sizeof *variants };

/* What the variants of a case share. */
typedef struct {
    bk_problem problem;
    xn_weights *weights; /* the problem's, with thresholds */
    xn_prepared *prepared;
    int32_t *dots, *threshold;
    unsigned char *bits[2]; /* the input, by layout */
    uint32_t *flip;
} packed_problem;

static const bk_target *cpu_target(void) {
    return bk_target_named("cpu");
}

static void *take(size_t count, size_t bytes) {
    return bk_take(count * bytes);
}

/* 1, 2 or a multiple of 4 words. */
static int64_t words_of(int64_t channels) {
    int64_t words = (channels + 31) / 32;
    while (words > 2 && words % 4)
        words++;
    return words;
}

/* Bytes of an image's bits. */
static size_t bits_bytes(int layout, int64_t channels, int64_t groups, int64_t pixels) {
    if (layout == XN_LAYOUT_WORDS)
        return (size_t)(groups * pixels * words_of(channels / groups)) * 4;
    return (size_t)(pixels * ((channels + 7) / 8));
}

/* The real input, packed. */
static unsigned char *pack(const bk_problem *p, int layout) {
    const xn_conv *c = &p->conv;
    const int64_t words = words_of(c->group_channels), plane = (int64_t)c->height * c->width;
    const size_t image = bits_bytes(layout, c->channels, c->groups, plane);
    unsigned char *all = take((size_t)p->images * image, 1);
    for (int64_t n = 0; n < p->images; n++)
        for (int64_t channel = 0; channel < c->channels; channel++)
            for (int64_t i = 0; i < plane; i++) {
                unsigned char *bits = all + (size_t)n * image;
                int64_t group = channel / c->group_channels, at = channel % c->group_channels;
                uint32_t bit = xn_sign_bit(p->real[(n * c->channels + channel) * plane + i]);
                if (layout == XN_LAYOUT_BYTES)
                    bits[i * ((c->channels + 7) / 8) + channel / 8] |=
                        (unsigned char)(bit << channel % 8);
                else
                    ((uint32_t *)(void *)bits)[(group * plane + i) * words + at / 32] |= bit
                                                                                         << at % 32;
            }
    return all;
}

static bool has_flip(const bk_case *c) {
    return c->seed % 4 != 3;
}

static xn_tensor tensor_of(const float *data, int rank, const int64_t dims[4]) {
    xn_tensor t = {.datatype = XN_FP32, .data = data};
    t.shape.rank = rank;
    for (int i = 0; i < rank; i++)
        t.shape.dims[i] = dims[i];
    ck_assert_int_eq(
        xn_shape_elements(&t.shape, XN_FP32, INT64_MAX, "weights", &t.elements, &t.bytes, NULL),
        XN_OK);
    return t;
}

/* dot >= threshold is the sign of dot - threshold, the opposite that of threshold - 1 - dot. */
static void make_weights(const bk_target *target, packed_problem *p) {
    const xn_weights *w = p->problem.weights;
    const size_t filters = (size_t)w->out_channels;
    const int64_t dims[4] = {w->out_channels, w->group_channels, w->kernel_h, w->kernel_w};
    float *scale = take(filters, sizeof *scale), *shift = take(filters, sizeof *shift);
    for (size_t o = 0; o < filters; o++) {
        const bool turned = p->flip[o / 32] >> o % 32 & 1u;
        const double threshold = p->threshold[o];
        scale[o] = turned ? -1.0f : 1.0f;
        shift[o] = (float)(turned ? threshold - 1 : -threshold);
    }
    const xn_tensor weights = tensor_of(w->real, 4, dims), scales = tensor_of(scale, 1, dims),
                    shifts = tensor_of(shift, 1, dims);
    const xn_weights_parts parts = {.weights = &weights, .scale = &scales, .shift = &shifts};
    xn_error error = {0};
    ck_assert_int_eq(xn_weights_create_parts(&parts, &p->weights, &error), XN_OK);
    ck_assert_int_eq(
        target->backend->weights_prepare(target->device, p->weights, &p->prepared, &error), XN_OK);
    xn_mem_free(scale);
    xn_mem_free(shift);
}

static void make(const bk_target *target, const bk_case *c, packed_problem *out) {
    bk_problem_make(c, &out->problem);
    const xn_conv *conv = &out->problem.conv;
    size_t filters = (size_t)conv->out_channels;
    out->dots = take((size_t)(out->problem.images * xn_conv_output_elements(conv)), 4);
    bk_run(bk_target_ref(), &out->problem, conv, out->dots);
    out->bits[XN_LAYOUT_BYTES] = pack(&out->problem, XN_LAYOUT_BYTES);
    out->bits[XN_LAYOUT_WORDS] = pack(&out->problem, XN_LAYOUT_WORDS);
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
    make_weights(target, out);
}

static void free_problem(const bk_target *target, packed_problem *p) {
    target->backend->weights_free(p->prepared);
    xn_weights_free(p->weights);
    bk_problem_free(&p->problem);
    xn_mem_free(p->dots);
    xn_mem_free(p->threshold);
    xn_mem_free(p->bits[0]);
    xn_mem_free(p->bits[1]);
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

/* What a variant's outputs must be, worked out once for all paths. */
typedef struct {
    const variant *variant;
    unsigned char *bytes; /* of packed outputs, or of dots: these and no others; */
    double *values;       /* of reals: within a bound */
    size_t count, size;   /* outputs, and the bytes of each */
} expected;

/* Byte i of the packed output. */
static unsigned char right_byte(const packed_problem *p, int layout, int64_t i) {
    const xn_conv *c = &p->problem.conv;
    const int64_t plane = (int64_t)c->out_height * c->out_width;
    const int64_t pitch = (int64_t)bits_bytes(layout, c->out_channels, 1, 1);
    const int64_t pixel = i / pitch % plane, image = i / pitch / plane, first = i % pitch * 8;
    unsigned byte = 0;
    for (int64_t o = first; o < first + 8 && o < c->out_channels; o++) {
        int32_t dot = p->dots[(image * c->out_channels + o) * plane + pixel];
        unsigned turned = p->flip[o / 32] >> o % 32 & 1u;
        byte |= ((unsigned)(dot >= p->threshold[o]) ^ turned) << (o - first);
    }
    return (unsigned char)byte;
}

static expected expect(const packed_problem *p, const variant *v) {
    const xn_conv *c = &p->problem.conv;
    const int64_t plane = (int64_t)c->out_height * c->out_width;
    const size_t outputs = (size_t)(p->problem.images * xn_conv_output_elements(c));
    expected e = {.variant = v, .count = outputs, .size = 1};
    if (v->out != REAL) {
        e.count = (size_t)p->problem.images * bits_bytes(v->out, c->out_channels, 1, plane);
        e.bytes = take(e.count, 1);
        for (size_t i = 0; i < e.count; i++)
            e.bytes[i] = right_byte(p, v->out, (int64_t)i);
        return e;
    }
    e.size = xn_datatype_bytes(v->output);
    if (v->output == XN_INT32) {
        e.bytes = take(e.count, e.size);
        memcpy(e.bytes, p->dots, e.count * e.size);
        return e;
    }
    ck_assert_int_gt(plane, 0);
    e.values = take(e.count, sizeof *e.values);
    for (size_t first = 0; first < e.count; first += (size_t)plane) {
        const int64_t filter = (int64_t)first / plane % c->out_channels;
        const double factor =
            v->scaling == XN_SCALING_ALPHA ? alpha_of(p->problem.weights, filter) : 1.0;
        for (size_t i = first; i < first + (size_t)plane; i++)
            e.values[i] = p->dots[i] * factor;
    }
    return e;
}

static void free_expected(expected *e) {
    xn_mem_free(e->bytes);
    xn_mem_free(e->values);
}

static bool is_right(const packed_problem *p, const expected *e, const unsigned char *got,
                     size_t i) {
    if (e->bytes)
        return !memcmp(got + i * e->size, e->bytes + i * e->size, e->size);
    const double denormal = (fabs((double)p->dots[i]) + 1) * 0x1p-149; /* alpha and product round */
    return bk_is_right(e->variant->output, bk_value(e->variant->output, got, (int64_t)i),
                       e->values[i], 1e-5 * fabs(e->values[i]) + denormal, false);
}

static void judge(const packed_problem *p, const expected *e, const char *path,
                  const unsigned char *got) {
    const size_t bytes = e->count * e->size;
    size_t wrong = 0, first = 0;
    if (!e->bytes || memcmp(got + GUARD, e->bytes, bytes) != 0)
        for (size_t i = 0; i < e->count; i++)
            if (!is_right(p, e, got + GUARD, i) && !wrong++)
                first = i;
    for (size_t i = 0; i < GUARD; i++)
        wrong += got[i] != POISON || got[GUARD + bytes + i] != POISON;
    char text[BK_TEXT];
    bk_case_describe(p->problem.c, text);
    ck_assert_msg(!wrong, "%s on %s: %zu of %zu wrong, first %zu, of %s; run seed %llu",
                  e->variant->name, path, wrong, e->count, first, text,
                  (unsigned long long)xn_test_seed());
}

/* ---- a run ---- */

static xn_step step_of(const packed_problem *p, const variant *v) {
    xn_conv conv = p->problem.conv;
    xn_step step;
    conv.epilogue = xn_conv_epilogue(XN_MODE_XNOR, v->scaling, false, false, v->output);
    if (v->out != REAL) {
        conv.epilogue.factor = XN_FACTOR_SCALE;
        conv.epilogue.shift = 1;
    }
    if (v->in != REAL)
        conv.input_datatype = XN_BITS;
    xn_step_of_conv(&conv, &step);
    step.input_layout = v->in != REAL ? v->in : 0;
    step.bits_layout = v->out != REAL ? v->out : 0;
    return step;
}

static const void *input_of(const packed_problem *p, const variant *v) {
    return v->in == REAL ? p->problem.input : p->bits[v->in];
}

/* NULL where the path cannot run these. */
static xn_program *program_of(const bk_target *target, const xn_step *steps, int count,
                              int64_t images, const xn_prepared *const *prepared) {
    xn_program *program = NULL;
    xn_error error = {0};
    xn_status status = xn_program_create_steps(target->backend, target->stream, steps, count,
                                               images, &program, &error);
    if (status == XN_ERR_UNSUPPORTED)
        return NULL;
    ck_assert_msg(status == XN_OK, "%s: %s", target->name, error.message);
    ck_assert_int_eq(xn_program_ready(program, prepared, &error), XN_OK);
    memset(target->stream->scratch, 0xff, target->stream->scratch_bytes);
    return program;
}

/* Of bits as input only the paths for many channels take any, and these take all. */
static void run_on(const bk_target *target, const packed_problem *p, const expected *e) {
    const variant *v = e->variant;
    const xn_step step = step_of(p, v);
    const xn_prepared *const prepared[] = {p->prepared};
    const bool many = !strncmp(target->path, "bitgemm/", 8);
    xn_program *program =
        program_of(target, &step, 1, p->problem.images + p->problem.c->spare, prepared);
    ck_assert_msg(program || !many, "%s on %s: refused", v->name, target->path);
    ck_assert_msg(!program || many || v->in == REAL, "%s took bits", target->path);
    if (!program)
        return;
    const size_t bytes = (size_t)p->problem.images *
                         (v->out == REAL ? xn_step_output_bytes(&step) : xn_step_bits_bytes(&step));
    unsigned char *output = take(GUARD + bytes + GUARD, 1);
    memset(output, POISON, GUARD + bytes + GUARD);
    const xn_batch_item item = {
        .input = input_of(p, v), .output = output + GUARD, .images = p->problem.images};
    ck_assert_int_eq(xn_program_run(program, prepared, &item, 1, NULL, NULL), XN_OK);
    ck_assert_uint_eq(bytes, e->count * e->size);
    judge(p, e, target->path, output);
    bk_tally_add(target);
    xn_mem_free(output);
    xn_program_free(program);
}

static void check_case(const bk_target *target, const bk_case *c, int variant_count) {
    packed_problem p = {0};
    const bk_target *forced;
    make(target, c, &p);
    for (int v = 0; v < variant_count; v++) {
        expected e = expect(&p, &variants[v]);
        for (int path = 0; (forced = bk_target_forced(target, path)) != NULL; path++)
            run_on(forced, &p, &e);
        free_expected(&e);
    }
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

/* After the tests whose runs are counted: all paths of mode xnor ran, and no others. */
static void report(void) {
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
    const bk_target *target = cpu_target();
    bk_case cases[SMALL_IMAGES / PARTS];
    for (int i = 0; i < SMALL_IMAGES / PARTS; i++)
        cases[i] = small_image(xn_test_seed() + (uint64_t)(i * PARTS + _i));
    bk_check(target, cases, SMALL_IMAGES / PARTS);
    bk_tally_clear(); /* of all paths */
    for (int i = 0; i < SMALL_IMAGES / PARTS; i++) {
        as_dots(&cases[i]);
        check_case(target, &cases[i], VARIANTS);
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
}
END_TEST

/* Bits of a step are the input of the next: two layers against two runs of ref. */
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
    int32_t *got = take(outputs, sizeof *got), *right = take(outputs, sizeof *right);
    float *signs = p.problem.input;
    for (size_t i = 0; i < outputs; i++) { /* the first layer's bits as the second's input */
        size_t plane = 99, o = i / plane % 70;
        bool bit = (p.dots[i] >= p.threshold[o]) != (p.flip[o / 32] >> o % 32 & 1u);
        signs[i] = bit ? 1.0f : -1.0f;
    }
    bk_run(bk_target_ref(), &p.problem, conv, right);
    for (int path = 0; (forced = bk_target_forced(target, path)) != NULL; path++)
        for (int layout = XN_LAYOUT_BYTES; layout <= XN_LAYOUT_WORDS; layout++) {
            const variant first = {"", layout, layout, XN_SCALING_NONE, XN_BITS};
            const variant second = {"", layout, REAL, XN_SCALING_NONE, XN_INT32};
            xn_step steps[2] = {step_of(&p, &first), step_of(&p, &second)};
            const xn_prepared *const prepared[] = {p.prepared};
            steps[1].input = steps[0].bits, steps[1].output = 2;
            xn_program *program = program_of(forced, steps, 2, 3, prepared);
            if (!program)
                continue;
            const xn_batch_item item = {.input = p.bits[layout], .output = got, .images = 3};
            ck_assert_int_eq(xn_program_run(program, prepared, &item, 1, NULL, NULL), XN_OK);
            ck_assert_msg(!memcmp(got, right, outputs * sizeof *got), "%s differs", forced->path);
            xn_program_free(program);
            bk_tally_add(forced);
        }
    for (int path = 0; (forced = bk_target_forced(target, path)) != NULL; path++)
        ck_assert(!strncmp(forced->path, "bitgemm/", 8) == (bk_tally_of(forced) > 0));
    xn_mem_free(got);
    xn_mem_free(right);
    free_problem(target, &p);
}
END_TEST

/* What no path can do is refused: K of bits, bits as input of reals, and bits that lie as reals do.
 */
START_TEST(refused) {
    const bk_target *target = cpu_target();
    bk_case c = bk_case_default();
    bk_problem p;
    bk_problem_make(&c, &p);
    xn_step good, step;
    p.conv.epilogue.k = 0;
    p.conv.input_datatype = XN_BITS;
    xn_step_of_conv(&p.conv, &good);
    for (int i = 0; i < 5; i++) {
        xn_plan *plan = NULL;
        xn_error error = {0};
        step = good;
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
    tcase_add_loop_test(other, small_images, 0, PARTS);
    tcase_add_test(other, chained);
    tcase_add_test(other, refused);
    return s;
}
