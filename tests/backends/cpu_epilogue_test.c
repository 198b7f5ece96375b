/* cpu_epilogue_test.c: every combination of the fields of an epilogue, on every path of the CPU
 * that can run it, against ref. Values are small integers, factors powers of 2 and boxes of K have
 * a power of 2 of taps, so that every step of the equation is exact and results are equal bit by
 * bit. */
#include "bk_run.h"

#include "xn_mem.h"

#include <stdio.h>
#include <string.h>

enum { PARTS = 2, FACTORS = 3, GUARD = 64, POISON = 0xa5 };

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

typedef struct subject {
    const shape *shape;
    bk_case c;
    xn_conv conv;
    xn_weights *weights;
    float *input, *residual;   /* the residual's values */
    xn_prepared *prepared;     /* on the cpu, */
    xn_prepared *ref_prepared; /* and on ref */
} subject;

static const bk_target *target_named(const char *name) {
    for (int i = 0; i < bk_target_count(); i++)
        if (!strcmp(xn_backend_all()[i]->name, name))
            return bk_target_open(i);
    ck_abort_msg("this build has no backend %s", name);
    return NULL;
}

static void *take(size_t bytes) {
    void *memory = xn_mem_zalloc(bytes, 1);
    ck_assert_ptr_nonnull(memory);
    return memory;
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

/* Multiples of 1/4 between -limit and limit. */
static void fill_quarters(xn_rng *rng, int limit, int64_t count, float *to) {
    for (int64_t i = 0; i < count; i++)
        to[i] = (float)((double)xn_rng_below(rng, 8u * (uint32_t)limit + 1) / 4 - limit);
}

/* Weights are 1 and -1, so that alpha is 1; scales are powers of 2 of both signs, and 0. */
static void make_weights(subject *s, xn_rng *rng) {
    static const float scales[] = {0.5f, -2.0f, 4.0f, -0.25f, 0.0f, 1.0f, -1.0f};
    const xn_conv *v = &s->conv;
    const int64_t filter = (int64_t)v->group_channels * v->kernel_h * v->kernel_w;
    const int64_t dims[4] = {v->out_channels, v->group_channels, v->kernel_h, v->kernel_w};
    const size_t filters = (size_t)v->out_channels;
    float *real = take((size_t)(v->out_channels * filter) * sizeof *real);
    float *parts_of[4]; /* scale, bias, slope, shift */
    xn_tensor tensors[4];
    for (int64_t i = 0; i < v->out_channels * filter; i++)
        real[i] = xn_rng_below(rng, 2) ? 1.0f : -1.0f;
    for (int k = 0; k < 4; k++) {
        parts_of[k] = take(filters * sizeof(float));
        fill_quarters(rng, k == 2 ? 2 : 6, v->out_channels, parts_of[k]);
        tensors[k] = tensor_of(parts_of[k], 1, dims);
    }
    for (size_t o = 0; o < filters; o++)
        parts_of[0][o] = scales[xn_rng_below(rng, sizeof scales / sizeof *scales)];
    const xn_tensor weights = tensor_of(real, 4, dims);
    const xn_weights_parts parts = {&weights, &tensors[0], &tensors[1], &tensors[2], &tensors[3]};
    xn_error error = {0};
    xn_status status = xn_weights_create_parts(&parts, &s->weights, &error);
    ck_assert_msg(status == XN_OK, "%s", error.message);
    xn_mem_free(real);
    for (int k = 0; k < 4; k++)
        xn_mem_free(parts_of[k]);
}

static void make_subject(const shape *of, subject *s) {
    xn_rng rng = {xn_test_seed() + (uint64_t)(of - shapes)};
    bk_problem problem;
    *s = (subject){.shape = of, .c = bk_case_default()};
    bk_case *c = &s->c;
    c->images = of->images, c->channels = of->channels, c->height = of->height;
    c->width = of->width, c->out_channels = of->out_channels;
    c->kernel_h = of->kernel_h, c->kernel_w = of->kernel_w;
    c->params.groups = of->groups, c->params.mode = of->mode;
    c->params.stride[0] = c->params.stride[1] = of->stride;
    for (int i = 0; i < 4; i++)
        c->params.padding[i] = of->padding;
    bk_problem_make(c, &problem);
    s->conv = problem.conv;
    bk_problem_free(&problem);
    make_weights(s, &rng);
    const int64_t count = of->images * xn_conv_input_elements(&s->conv);
    s->input = take((size_t)count * sizeof *s->input);
    for (int64_t i = 0; i < count; i++)
        s->input[i] = (float)((int)xn_rng_below(&rng, 9) - 4);
    const int64_t outputs = of->images * xn_conv_output_elements(&s->conv);
    s->residual = take((size_t)outputs * sizeof *s->residual);
    for (int64_t i = 0; i < outputs; i++)
        s->residual[i] = (float)((int)xn_rng_below(&rng, 17) - 8);
    const bk_target *cpu = target_named("cpu"), *ref = bk_target_ref();
    xn_error error = {0};
    ck_assert_int_eq(cpu->backend->weights_prepare(cpu->device, s->weights, &s->prepared, &error),
                     XN_OK);
    ck_assert_int_eq(
        ref->backend->weights_prepare(ref->device, s->weights, &s->ref_prepared, &error), XN_OK);
}

static void free_subject(subject *s) {
    target_named("cpu")->backend->weights_free(s->prepared);
    bk_target_ref()->backend->weights_free(s->ref_prepared);
    xn_weights_free(s->weights);
    xn_mem_free(s->input);
    xn_mem_free(s->residual);
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

static xn_step step_of(const subject *s, const xn_epilogue *e, int layout) {
    xn_conv conv = s->conv;
    xn_step step;
    conv.epilogue = *e;
    xn_step_of_conv(&conv, &step);
    step.bits_layout = e->bits ? layout : 0;
    step.residual = e->residual ? 2 : XN_NO_TENSOR;
    if (e->residual && e->datatype != XN_BITS)
        step.residual_datatype = e->datatype;
    else if (e->residual) /* beside bits alone it may be either */
        step.residual_datatype = e->shift ? XN_FP16 : XN_FP32;
    step.bits = e->bits ? 3 : XN_NO_TENSOR;
    return step;
}

/* What a step writes, with a guard behind each. */
typedef struct written {
    unsigned char *real, *bits; /* NULL: there is none */
    size_t real_bytes, bits_bytes;
} written;

static unsigned char *guarded(size_t bytes) {
    unsigned char *memory = take(bytes + GUARD);
    memset(memory, POISON, bytes + GUARD);
    return bytes ? memory : (xn_mem_free(memory), NULL);
}

static void free_written(written *w) {
    xn_mem_free(w->real);
    xn_mem_free(w->bits);
}

static void expect_guard(const unsigned char *memory, size_t bytes) {
    for (size_t i = bytes; memory && i < bytes + GUARD; i++)
        ck_assert_int_eq(memory[i], POISON);
}

/* The residual as a tensor of that datatype. */
static void *residual_of(const subject *s, xn_datatype datatype) {
    const int64_t count = s->shape->images * xn_conv_output_elements(&s->conv);
    float *floats = take((size_t)count * sizeof *floats);
    for (int64_t i = 0; i < count; i++)
        if (datatype == XN_FP16)
            ((uint16_t *)(void *)floats)[i] = xn_fp32_to_fp16(s->residual[i]);
        else
            floats[i] = s->residual[i];
    return floats;
}

/* False where the path cannot run it. */
static bool run_step(const bk_target *target, const subject *s, const xn_prepared *prepared,
                     const xn_step *step, written *out) {
    const xn_backend *b = target->backend;
    const int64_t images = s->shape->images;
    const xn_batch_item item = {.images = images};
    const xn_batch batch = {.items = &item, .count = 1, .images = images};
    xn_plan *plan = NULL;
    xn_error error = {0};
    xn_run_times times;
    xn_status status = b->plan_create(target->stream, step, images, &plan, &error);
    if (status == XN_ERR_UNSUPPORTED && target->path)
        return false;
    ck_assert_msg(status == XN_OK, "%s: %s", target->name, error.message);
    if (b->weights_ready)
        ck_assert_int_eq(b->weights_ready(prepared, plan, &error), XN_OK);
    *out = (written){.real_bytes = (size_t)images * xn_step_output_bytes(step),
                     .bits_bytes = (size_t)images * xn_step_bits_bytes(step)};
    out->real = guarded(out->real_bytes);
    out->bits = guarded(out->bits_bytes);
    void *residual = residual_of(s, (xn_datatype)step->residual_datatype);
    const xn_step_io io = {.input = s->input,
                           .residual = step->residual == XN_NO_TENSOR ? NULL : residual,
                           .output = out->real,
                           .bits = out->bits,
                           .batch = &batch};
    ck_assert_int_eq(b->begin(target->stream, &batch, NULL, &error), XN_OK);
    ck_assert_int_eq(b->enqueue(plan, prepared, &io, &error), XN_OK);
    ck_assert_int_eq(b->end(target->stream, &batch, NULL, &times, &error), XN_OK);
    expect_guard(out->real, out->real_bytes);
    expect_guard(out->bits, out->bits_bytes);
    xn_mem_free(residual);
    b->plan_free(plan);
    return true;
}

/* Elements that differ, where 0 and -0 are equal. */
static size_t differences(const xn_step *step, const written *a, const written *b) {
    const xn_datatype datatype = (xn_datatype)step->conv.epilogue.datatype;
    const size_t size = xn_datatype_bytes(datatype);
    const uint32_t sign = datatype == XN_FP32 ? 0x80000000u : datatype == XN_FP16 ? 0x8000u : 0;
    size_t count = 0;
    for (size_t i = 0; i < b->real_bytes; i += size) {
        uint32_t x = 0, y = 0;
        memcpy(&x, a->real + i, size);
        memcpy(&y, b->real + i, size);
        count += x != y && (x | y) != sign;
    }
    for (size_t i = 0; i < a->bits_bytes; i++)
        count += a->bits[i] != b->bits[i];
    return count;
}

static void compare(const bk_target *target, const subject *s, const xn_step *step,
                    const written *right) {
    const xn_epilogue *e = &step->conv.epilogue;
    written got;
    if (!run_step(target, s, s->prepared, step, &got))
        return;
    char text[BK_TEXT];
    const size_t wrong = differences(step, &got, right);
    bk_case_describe(&s->c, text);
    ck_assert_msg(!wrong,
                  "%s: %zu differ: factor %d k %d bias %d residual %d activation %d datatype %s "
                  "bits %d shift %d, layout %d, of %s; run seed %llu",
                  target->name, wrong, e->factor, e->k, e->bias, e->residual, e->activation,
                  xn_datatype_name((xn_datatype)e->datatype), e->bits, e->shift, step->bits_layout,
                  text, (unsigned long long)xn_test_seed());
    bk_tally_add(target);
    free_written(&got);
}

static void check_combination(const subject *s, int n) {
    const bk_target *cpu = target_named("cpu"), *forced;
    xn_epilogue e;
    written right;
    if (!epilogue_of(n, &s->conv, &e))
        return;
    const xn_step step = step_of(s, &e, n / 5 % 2 ? XN_LAYOUT_WORDS : XN_LAYOUT_BYTES);
    ck_assert(run_step(bk_target_ref(), s, s->ref_prepared, &step, &right));
    compare(cpu, s, &step, &right); /* whatever the combination is, some path has it */
    for (int path = 0; (forced = bk_target_forced(cpu, path)) != NULL; path++)
        compare(forced, s, &step, &right);
    free_written(&right);
}

START_TEST(combinations) {
    subject s;
    make_subject(&shapes[_i / PARTS], &s);
    for (int n = _i % PARTS; n < COMBINATIONS; n += PARTS * bk_every())
        check_combination(&s, n);
    free_subject(&s);
}
END_TEST

START_TEST(every_path_ran) {
    const bk_target *forced;
    for (int path = 0; (forced = bk_target_forced(target_named("cpu"), path)) != NULL; path++)
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
