/* top_k_test.c: steps of kind top_k on every backend that has them but ref, against a plain model:
 * many rows, rows that are all alike, few values, values that get better from row to row, with all
 * that an epilogue has; and plain rows of reals. All of it is exact. */
#include "bk_run.h"

#include "xn_arith.h"
#include "xn_mem.h"
#include "xn_rng.h"
#include "xn_test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CASES = 150, GUARD = 64, POISON = 0x5a, MODELLED = 5 /* images of a case, about */ };

static int32_t below(xn_rng *rng, int64_t n) {
    return (int32_t)xn_rng_below(rng, (uint64_t)n);
}

typedef enum { CODES_ANY, CODES_ALIKE, CODES_FEW, CODES_RISING, CODES_KINDS } codes;

typedef struct subject {
    xn_step step;
    xn_weights weights; /* of a dense layer */
    uint32_t *bits;     /* its own */
    int64_t images;
    size_t input_bytes, output_bytes; /* of an image */
    unsigned char *input;
    char text[160];
} subject;

/* ---- drawing ---- */

static uint32_t code_word(xn_rng *rng, codes kind, int64_t row, int64_t rows, int word) {
    switch (kind) {
    case CODES_ALIKE:
        return 0x5a5a5a5au;
    case CODES_FEW:
        return (uint32_t)below(rng, 3) * 0x01010101u;
    case CODES_RISING:
        return row * 32 / rows > word % 32 ? ~0u : 0u;
    default:
        return (uint32_t)xn_rng_next(rng);
    }
}

static float *values(int32_t count, float value) {
    float *all = xn_mem_zalloc((size_t)count, sizeof *all);
    for (int32_t i = 0; i < count; i++)
        all[i] = value;
    return all;
}

/* Of small multiples of 1/4, so that all of it is exact. */
static void draw_epilogue(xn_rng *rng, subject *s) {
    xn_epilogue *e = &s->step.conv.epilogue;
    const int32_t rows = s->step.conv.out_channels, way = below(rng, 6);
    e->datatype = XN_FP32;
    e->factor = way > 0 ? XN_FACTOR_SCALE : XN_FACTOR_NONE;
    e->bias = way > 0;
    e->activation = way < 4 ? XN_ACTIVATION_NONE : way - 3;
    e->low = e->activation == XN_ACTIVATION_CLIP ? -2 : 0;
    e->high = e->activation == XN_ACTIVATION_CLIP ? 40 : 0;
    s->weights.scale = values(rows, way == 2 ? 2.0f : -0.5f);
    s->weights.bias = values(rows, (float)s->step.conv.channels * 0.5f);
    s->weights.slope = values(rows, below(rng, 2) ? 0.5f : -0.25f);
    for (int32_t o = 0; way == 3 && o < rows; o++) { /* each row has its own */
        s->weights.scale[o] = (float)(below(rng, 9) - 4) * 0.25f;
        s->weights.bias[o] = below(rng, 30)  ? (float)(below(rng, 33) - 16) * 0.25f
                             : below(rng, 2) ? NAN
                                             : INFINITY;
    }
}

static void draw_codes(xn_rng *rng, codes kind, subject *s) {
    const xn_conv *v = &s->step.conv;
    xn_weights *w = &s->weights;
    const uint32_t tail = v->channels % 32 ? (1u << v->channels % 32) - 1 : ~0u;
    w->out_channels = v->out_channels;
    w->group_channels = v->channels;
    w->kernel_h = w->kernel_w = 1;
    w->words = (v->channels - 1) / 32 + 1;
    s->bits = xn_mem_zalloc((size_t)w->out_channels * (size_t)w->words, sizeof *s->bits);
    w->bits = s->bits;
    uint32_t *to = s->bits;
    for (int64_t o = 0; o < w->out_channels; o++)
        for (int32_t n = 0; n < w->words; n++)
            *to++ = code_word(rng, kind, o, w->out_channels, n) & (n == w->words - 1 ? tail : ~0u);
}

static void draw_input(xn_rng *rng, codes kind, subject *s) {
    static const float specials[] = {NAN, INFINITY, -INFINITY, -0.0f, 0.0f};
    const xn_conv *v = &s->step.conv;
    s->input_bytes = xn_step_input_bytes(&s->step);
    s->output_bytes = xn_step_output_bytes(&s->step);
    s->input = xn_mem_zalloc((size_t)s->images, s->input_bytes);
    for (int64_t n = 0; n < s->images; n++)
        for (int32_t c = 0; c < v->channels; c++) {
            unsigned char *image = s->input + (size_t)n * s->input_bytes;
            if (v->mode == XN_MODE_XNOR)
                image[c / 8] |= (unsigned char)((kind == CODES_RISING || below(rng, 2)) << c % 8);
            else
                ((float *)(void *)image)[c] =
                    below(rng, 20) ? (float)(below(rng, 999) - 500) : specials[below(rng, 5)];
        }
}

/* mode: XN_MODE_XNOR, a dense layer of `bits` bits; XN_MODE_FLOAT, a row of reals. */
static void make(xn_rng *rng, xn_mode mode, int32_t rows, int32_t bits, codes kind, subject *s) {
    xn_conv *v = &s->step.conv;
    const bool dense = mode == XN_MODE_XNOR;
    s->step.kind = XN_STEP_TOP_K;
    s->step.residual = s->step.second = s->step.bits = XN_NO_TENSOR;
    s->step.output = 1;
    s->step.weights = dense ? 0 : XN_NO_WEIGHTS;
    s->step.attributes.largest = below(rng, 2);
    *v = (xn_conv){.channels = dense ? bits : rows, .out_channels = rows, .mode = (int32_t)mode};
    v->group_channels = v->channels;
    v->group_out_channels = rows;
    v->height = v->width = v->out_height = v->out_width = v->kernel_h = v->kernel_w = 1;
    v->groups = v->stride_h = v->stride_w = v->dilation_h = v->dilation_w = 1;
    v->input_datatype = dense ? XN_BITS : XN_FP32;
    v->epilogue.datatype = XN_FP32;
    s->step.input_layout = dense && below(rng, 2) ? XN_LAYOUT_WORDS : XN_LAYOUT_BYTES;
    if (dense) {
        draw_epilogue(rng, s);
        draw_codes(rng, kind, s);
    }
    draw_input(rng, kind, s);
    snprintf(s->text, sizeof s->text, "%d rows of %d bits, codes %d, %d images, k %d, %s", rows,
             bits, (int)kind, (int)s->images, (int)s->step.attributes.k,
             s->step.attributes.largest ? "largest" : "least");
}

static void drop(subject *s) {
    xn_mem_free(s->weights.scale);
    xn_mem_free(s->weights.bias);
    xn_mem_free(s->weights.slope);
    xn_mem_free(s->bits);
    xn_mem_free(s->input);
}

/* ---- the model ---- */

typedef struct candidate {
    float value;
    int32_t row;
} candidate;

static float value_of(const subject *s, const unsigned char *image, int32_t row) {
    const xn_conv *v = &s->step.conv;
    const xn_epilogue *e = &v->epilogue;
    if (v->mode != XN_MODE_XNOR)
        return ((const float *)(const void *)image)[row];
    const unsigned char *code =
        (const unsigned char *)(s->bits + (size_t)row * (size_t)s->weights.words);
    int32_t differ = 0;
    for (int32_t n = 0; n < (v->channels + 7) / 8; n++)
        differ += __builtin_popcount((unsigned)(code[n] ^ image[n]));
    float y = (float)(v->channels - 2 * differ);
    if (e->factor)
        y = y * s->weights.scale[row] + s->weights.bias[row];
    if (e->activation == XN_ACTIVATION_PRELU && !(y >= 0))
        y *= s->weights.slope[row];
    if (e->activation == XN_ACTIVATION_CLIP)
        y = y < e->low ? e->low : y > e->high ? e->high : y;
    return y;
}

static int by_rank(const void *a, const void *b, bool largest) {
    const candidate *x = a, *y = b;
    if (isnan(x->value) != isnan(y->value))
        return isnan(x->value) ? 1 : -1;
    if (x->value < y->value || x->value > y->value)
        return (x->value > y->value) == largest ? -1 : 1;
    return x->row < y->row ? -1 : 1;
}
static int by_largest(const void *a, const void *b) {
    return by_rank(a, b, true);
}
static int by_least(const void *a, const void *b) {
    return by_rank(a, b, false);
}

static void judge(const subject *s, int64_t image, const unsigned char *output) {
    const int32_t rows = s->step.conv.out_channels, k = (int32_t)s->step.attributes.k;
    candidate *all = xn_mem_zalloc((size_t)rows, sizeof *all);
    for (int32_t o = 0; o < rows; o++)
        all[o] = (candidate){value_of(s, s->input + (size_t)image * s->input_bytes, o), o};
    qsort(all, (size_t)rows, sizeof *all, s->step.attributes.largest ? by_largest : by_least);
    for (int32_t i = 0; i < k; i++) {
        float value;
        int32_t row;
        memcpy(&value, output + i * 4, sizeof value);
        memcpy(&row, output + (k + i) * 4, sizeof row);
        ck_assert_msg(row == all[i].row &&
                          (isnan(value) ? isnan(all[i].value) : value == all[i].value),
                      "%s: place %d of image %d is %g of row %d, right is %g of row %d", s->text, i,
                      (int)image, (double)value, row, (double)all[i].value, all[i].row);
    }
    xn_mem_free(all);
}

/* ---- runs ---- */

/* The images of a run from the first on, in one item. */
static void run(const bk_target *t, const subject *s, xn_program *program,
                const xn_prepared *prepared, int64_t first, int64_t images, unsigned char *output) {
    const xn_batch_item item = {s->input + (size_t)first * s->input_bytes, output, images};
    const size_t bytes = (size_t)images * s->output_bytes;
    xn_run_times times;
    xn_error error;
    memset(output, POISON, bytes + GUARD);
    ck_assert_msg(xn_program_run(program, &prepared, &item, 1, &times, &error) == XN_OK, "%s: %s",
                  t->name, error.message);
    for (size_t i = 0; i < GUARD; i++)
        ck_assert_msg(output[bytes + i] == POISON, "%s, %s: written behind the output", t->name,
                      s->text);
}

/* All images at once, some of them judged; and one alone, which is the same. */
static void check(const bk_target *t, const subject *s) {
    const bool dense = s->step.weights != XN_NO_WEIGHTS;
    unsigned char *all = xn_mem_zalloc((size_t)s->images * s->output_bytes + GUARD, 1);
    unsigned char *alone = xn_mem_zalloc(s->output_bytes + GUARD, 1);
    const int64_t last = s->images - 1, step = s->images / MODELLED + 1;
    xn_prepared *prepared = NULL;
    xn_program *program;
    xn_error error;
    if (dense)
        ck_assert_int_eq(t->backend->weights_prepare(t->device, &s->weights, &prepared, &error),
                         XN_OK);
    ck_assert_msg(xn_program_create_steps(t->backend, t->stream, &s->step, 1, s->images, &program,
                                          &error) == XN_OK,
                  "%s: %s", t->name, error.message);
    const xn_prepared *const of_steps = prepared;
    ck_assert_int_eq(xn_program_ready(program, &of_steps, &error), XN_OK);
    run(t, s, program, prepared, 0, s->images, all);
    for (int64_t image = 0; image < s->images; image += step)
        judge(s, image, all + (size_t)image * s->output_bytes);
    run(t, s, program, prepared, last, 1, alone);
    ck_assert_msg(!memcmp(alone, all + (size_t)last * s->output_bytes, s->output_bytes),
                  "%s, %s: the last image alone is another one", t->name, s->text);
    xn_program_free(program);
    if (dense)
        t->backend->weights_free(prepared);
    xn_mem_free(all);
    xn_mem_free(alone);
}

/* On the CPU with each of its instruction sets, which those paths stand for. */
static void check_sets(const bk_target *t, const subject *s) {
    const bk_target *held;
    for (int i = 0; (held = bk_target_forced(t, i)); i++)
        if (!strncmp(held->path, "bitgemm/", strlen("bitgemm/")))
            check(held, s);
}

static void check_all(subject *s, bool sets) {
    for (int i = 0; i < bk_target_count(); i++) {
        const bk_target *t = bk_target_open(i);
        if (!t || !(t->backend->kinds >> XN_STEP_TOP_K & 1) || !strcmp(t->backend->name, "ref"))
            continue;
        check(t, s);
        if (sets)
            check_sets(t, s);
    }
    drop(s);
}

START_TEST(random_rows) {
    static const int32_t widths[] = {1,   7,   32,  33,   64,   100,  128,  256,  500,
                                     512, 513, 999, 1024, 1030, 2048, 2049, 3000, 5000};
    static const int32_t ks[] = {1, 3, 10, 100, 1000, 1024}, images[] = {12, 12, 40, 300};
    for (uint64_t i = 0; i < CASES; i++) {
        xn_rng rng = {xn_test_seed() + i * 7919};
        const int32_t rows = 1 + below(&rng, below(&rng, 2) ? 200 : below(&rng, 4) ? 3000 : 40000);
        const int32_t bits = widths[below(&rng, 18)];
        const xn_mode mode = below(&rng, 4) ? XN_MODE_XNOR : XN_MODE_FLOAT;
        subject s = {.images = 1 + below(&rng, images[below(&rng, 4)])};
        s.step.attributes.k = below(&rng, 5) ? ks[below(&rng, 6)] : rows;
        if (s.step.attributes.k > rows || s.step.attributes.k > XN_TOP_K_MAX)
            s.step.attributes.k = rows < XN_TOP_K_MAX ? rows : XN_TOP_K_MAX;
        make(&rng, mode, rows, bits, (codes)below(&rng, CODES_KINDS), &s);
        check_all(&s, true);
    }
}
END_TEST

START_TEST(a_million_rows) {
    static const struct {
        int32_t rows, bits, k;
        int64_t images;
        codes kind;
    } cases[] = {{1000000, 1024, 10, 20, CODES_ANY},
                 {1000003, 64, 10, 40, CODES_ALIKE},
                 {1000003, 64, 1024, 40, CODES_FEW},
                 {1000000, 128, 1024, 9, CODES_ANY},
                 {1000000, 256, 100, 20, CODES_RISING}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        xn_rng rng = {xn_test_seed() + i};
        subject s = {.images = cases[i].images};
        s.step.attributes.k = cases[i].k;
        make(&rng, XN_MODE_XNOR, cases[i].rows, cases[i].bits, cases[i].kind, &s);
        check_all(&s, false);
    }
}
END_TEST

XN_SUITE(backends_top_k) {
    Suite *s = suite_create("backends_top_k");
    TCase *t = xn_test_case(s, "top_k", 300);
    tcase_add_test(t, random_rows);
    tcase_add_test(t, a_million_rows);
    return s;
}
