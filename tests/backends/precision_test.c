/* Modes bwn and float with precision tf32 and fp16 on the targets that have them: the case table
 * again, judged by what xn_conv.h promises. The model computes from inputs that are rounded here to
 * the precision the backend says it took; what is left to tolerate is the rounding of the weights
 * of mode float, and the sum's own error. With fp32, the default, nothing here differs from the
 * other tests. */
#include "bk_run.h"

#include "xn_mem.h"

#include <math.h>
#include <pthread.h>
#include <string.h>

enum { RANDOM_CASES = 600 };

/* To 11 significant bits, ties away from zero; what overflows is infinite. */
static float round_tf32(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if (isfinite(value))
        bits = (bits + 0x1000u) & ~0x1fffu;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static float rounded(xn_precision precision, float value) {
    if (precision == XN_PRECISION_TF32)
        return round_tf32(value);
    return precision == XN_PRECISION_FP16 ? xn_fp16_to_fp32(xn_fp32_to_fp16(value)) : value;
}

/* ---- what a target says it computes ---- */

/* False where the target is held to a path that cannot run this. The plan is for as many images as
 * the one of bk_run, since the path, and so the precision, may depend on that. */
static bool precision_of(const bk_target *target, const bk_problem *problem,
                         xn_precision *precision) {
    const xn_backend *b = target->backend;
    xn_program *program = NULL;
    xn_error error = {0};
    *precision = XN_PRECISION_FP32;
    xn_status status = bk_program_create(target, target->stream, &problem->conv,
                                         problem->images + problem->c->spare, &program, &error);
    if (target->path && status == XN_ERR_UNSUPPORTED)
        return false;
    bk_expect_ok(target, problem, "plan", status, &error);
    if (b->precision) {
        xn_prepared *prepared = bk_prepare(target, problem);
        const xn_prepared *const weights[] = {prepared};
        if (b->weights_ready) {
            ck_assert_int_eq(xn_program_precision(program, weights), XN_PRECISION_FP32);
            bk_expect_ok(target, problem, "ready", xn_program_ready(program, weights, &error),
                         &error);
        }
        *precision = xn_program_precision(program, weights);
        b->weights_free(prepared);
    }
    xn_program_free(program);
    return true;
}

/* ---- what it may err by ---- */

typedef struct bounds {
    double relative; /* of the sum of magnitudes */
    double absolute; /* of the factor of the filter: fp16 keeps multiples of 2^-39 of the largest
                        weight */
    bool extreme;    /* a small weight may round to 0, and 0 times infinity is NaN */
} bounds;

static bounds bounds_of(const bk_problem *p, xn_precision precision) {
    const xn_conv *v = &p->conv;
    const xn_weights *w = p->weights;
    int64_t terms = (int64_t)v->group_channels * v->kernel_h * v->kernel_w;
    bool weights = v->mode == XN_MODE_FLOAT && precision != XN_PRECISION_FP32;
    bounds b = {.relative = 1e-5};
    double most_x = 1, most_w = 0, least_w = INFINITY;
    for (int64_t i = 0; i < p->images * xn_conv_input_elements(v); i++)
        most_x = isfinite(p->real[i]) ? fmax(most_x, fabs((double)p->real[i])) : most_x;
    for (int64_t i = 0; i < terms * v->out_channels; i++) {
        double size = fabs((double)w->real[i]);
        most_w = isfinite(size) ? fmax(most_w, size) : most_w;
        least_w = fmin(least_w, size);
    }
    if (precision != XN_PRECISION_FP32)
        b.relative += (double)(terms / 8 + 1) * 0x1p-23;
    if (weights) {
        b.relative += 0x1p-11;
        b.absolute = precision == XN_PRECISION_FP16
                         ? (double)terms * most_x * most_w * 0x1p-39
                         : (double)terms * (most_x + most_w) * 0x1p-126; /* denormals may be 0 */
        b.extreme = least_w < most_w * 0x1p-28 || least_w < 0x1p-126;
    } else if (precision == XN_PRECISION_TF32) {
        b.absolute = (double)terms * 0x1p-126;
    }
    return b;
}

static double scale_of(const bk_problem *p, int64_t o) {
    const xn_weights *w = p->weights;
    if (p->conv.epilogue.factor == XN_FACTOR_NONE)
        return 1;
    double scale = (double)(p->conv.epilogue.factor == XN_FACTOR_SCALE ? w->scale : w->alpha)[o];
    return isfinite(scale) ? fabs(scale) : 0;
}

static void judge(const bk_target *target, const bk_problem *p, xn_precision precision,
                  const void *got, const bk_expected *expected) {
    const xn_conv *v = &p->conv;
    const bounds b = bounds_of(p, precision);
    int64_t count = p->images * xn_conv_output_elements(v), area = v->out_height * v->out_width;
    char text[BK_TEXT];
    for (int64_t i = 0; i < count; i++) {
        const bk_expected *e = &expected[i];
        double value = bk_value((xn_datatype)v->epilogue.datatype, got, i);
        double tolerance = b.relative * e->magnitude + e->slack +
                           b.absolute * scale_of(p, i / area % v->out_channels);
        bool loose = e->loose || e->overflows || (b.extreme && !isfinite(e->value));
        if (bk_is_right((xn_datatype)v->epilogue.datatype, value, e->value, tolerance, loose))
            continue;
        bk_case_describe(p->c, text);
        ck_abort_msg("%s, %s for %s: output %lld is %.9g, expected %.9g within %.3g of %s; run "
                     "seed %llu",
                     target->name, xn_precision_name(precision),
                     xn_precision_name((xn_precision)v->precision), (long long)i, value, e->value,
                     tolerance, text, (unsigned long long)xn_test_seed());
    }
}

/* Runs the case twice: results must be right, and the same. False where the target's path cannot;
 * otherwise *taken is the precision it took. */
static bool check(const bk_target *target, const bk_case *c, xn_precision *taken) {
    bk_problem problem;
    xn_precision precision;
    bk_problem_make(c, &problem);
    if (!precision_of(target, &problem, &precision)) {
        bk_problem_free(&problem);
        return false;
    }
    ck_assert_msg(precision <= (xn_precision)problem.conv.precision,
                  "%s computes in %s where at least %s is asked for", target->name,
                  xn_precision_name(precision),
                  xn_precision_name((xn_precision)problem.conv.precision));
    size_t bytes = (size_t)problem.images * xn_conv_output_bytes(&problem.conv);
    int64_t inputs = problem.images * xn_conv_input_elements(&problem.conv);
    char *got = xn_mem_alloc(2 * bytes);
    ck_assert_ptr_nonnull(got);
    for (int64_t i = 0; i < inputs; i++)
        problem.real[i] = rounded(precision, problem.real[i]);
    bk_expected *expected = bk_model(&problem);
    bk_run(target, &problem, &problem.conv, got);
    bk_run(target, &problem, &problem.conv, got + bytes);
    judge(target, &problem, precision, got, expected);
    ck_assert_msg(!memcmp(got, got + bytes, bytes), "%s gives different results for equal runs",
                  target->name);
    xn_mem_free(expected);
    xn_mem_free(got);
    bk_problem_free(&problem);
    *taken = precision;
    return true;
}

/* ---- cases ---- */

typedef struct tally {
    const bk_target *target;
    int cases[3];         /* by the precision taken */
    int forced[BK_PATHS]; /* in less than fp32, by path */
} tally;

static void check_precisions(const bk_case *c, void *context) {
    tally *t = context;
    bk_case narrow = *c;
    if (c->params.mode == XN_MODE_XNOR)
        return;
    for (int p = XN_PRECISION_TF32; p <= XN_PRECISION_FP16; p++) {
        const bk_target *at = NULL;
        xn_precision taken;
        narrow.params.precision = (xn_precision)p;
        ck_assert(check(t->target, &narrow, &taken));
        t->cases[taken]++;
        for (int path = 0; (at = bk_target_forced(t->target, path)); path++)
            if ((strstr(at->path, "mma") || strstr(at->path, "tile")) &&
                check(at, &narrow, &taken) && taken != XN_PRECISION_FP32)
                t->forced[path]++;
    }
}

static void count_reals(const bk_case *c, void *context) {
    *(int *)context += c->params.mode != XN_MODE_XNOR;
}

START_TEST(section) {
    tally t = {.target = bk_target_open(_i / bk_section_count)};
    if (!t.target)
        return;
    const bk_section *s = &bk_sections[_i % bk_section_count];
    int of_reals = 0;
    s->each(count_reals, &of_reals);
    s->each(check_precisions, &t);
    ck_assert_int_eq(t.cases[0] + t.cases[1] + t.cases[2], 2 * of_reals);
}
END_TEST

static bk_case layer(int64_t images, int64_t channels, int64_t side, int64_t filters,
                     int64_t kernel) {
    bk_case c = bk_geometry(images, channels, side, side, filters, kernel, kernel);
    c.params.padding_kind = XN_PADDING_SAME;
    c.input_datatype = XN_FP16;
    c.seed = (uint64_t)(channels * filters + side);
    return c;
}

/* Filters, pixels and steps around the tiles of matrix kernels, splits, and the groups that such
 * kernels leave to others. */
START_TEST(tiles) {
    static const int64_t filters[] = {4, 8, 31, 32, 33, 63, 64, 65, 66, 127, 128, 129};
    static const int64_t channels[] = {1, 2, 3, 4, 5, 8, 9, 16, 31, 32, 63, 64, 65, 128};
    static const int64_t sides[] = {1, 2, 7, 8, 9, 11, 12, 13};
    tally t = {.target = bk_target_open(_i)};
    if (!t.target)
        return;
    for (size_t i = 0; i < sizeof filters / sizeof *filters; i++)
        for (size_t j = 0; j < sizeof channels / sizeof *channels; j++) {
            bk_case c = layer(1 + (int64_t)(i + j) % 3, channels[j], sides[(i * 5 + j) % 8],
                              filters[i], 1 + (int64_t)(i + j) % 3);
            c.params.mode = (i + j) % 2 ? XN_MODE_BWN : XN_MODE_FLOAT;
            c.params.output_datatype = i % 2 ? XN_FP16 : XN_FP32;
            c.params.pad_value = (int)(j % 3) - 1;
            c.bias = j % 2;
            c.items = 2;
            check_precisions(&c, &t);
        }
    /* as the first layers of networks are: few channels, even strides */
    for (int64_t kernel = 1; kernel <= 11; kernel++)
        for (int64_t stride = 1; stride <= 4; stride++) {
            bk_case c = layer(1 + kernel % 2, 1 + (kernel + stride) % 4, 9 + 3 * kernel,
                              kernel % 3 ? 17 + kernel : 33, kernel);
            c.params.stride[0] = 1 + (kernel + stride) % 3;
            c.params.stride[1] = stride;
            c.params.mode = (kernel + stride) % 3 ? XN_MODE_FLOAT : XN_MODE_BWN;
            c.params.output_datatype = stride % 3 ? XN_FP16 : XN_FP32;
            c.params.pad_value = (int)(kernel % 3) - 1;
            c.input_datatype = kernel % 2 ? XN_FP16 : XN_FP32;
            c.bias = stride % 2;
            check_precisions(&c, &t);
        }
    for (int64_t groups = 2; groups <= 8; groups *= 2) {
        bk_case c = layer(2, 24 * groups, 9, 5 * groups, 3);
        c.params.groups = groups;
        c.params.mode = XN_MODE_FLOAT;
        check_precisions(&c, &t);
    }
    ck_assert_msg(t.cases[1] > 100 && t.cases[2] > 100,
                  "%d of these cases were computed in tf32 and %d in fp16", t.cases[1], t.cases[2]);
    const bk_target *at = NULL;
    for (int path = 0; (at = bk_target_forced(t.target, path)); path++)
        if (strstr(at->path, "mma") || strstr(at->path, "tile"))
            ck_assert_msg(t.forced[path] > (strstr(at->path, "mma") ? 100 : 15),
                          "%s took %d of these cases", at->name, t.forced[path]);
}
END_TEST

START_TEST(random_problems) {
    tally t = {.target = bk_target_open(_i)};
    for (uint64_t i = 0; t.target && i < RANDOM_CASES; i++) {
        bk_case c;
        bk_case_random(xn_test_seed() + i, &c);
        c.params.output_datatype = i % 3 ? XN_FP32 : XN_FP16;
        c.params.mode = i % 2 ? XN_MODE_BWN : XN_MODE_FLOAT;
        check_precisions(&c, &t);
    }
}
END_TEST

/* What is asked for has no part in mode xnor, and the default is fp32. */
START_TEST(exact) {
    const bk_target *target = bk_target_open(_i);
    for (int mode = XN_MODE_XNOR; target && mode <= XN_MODE_FLOAT; mode++) {
        bk_problem p;
        xn_precision taken;
        bk_case c = layer(1, 64, 9, 64, 3);
        c.params.mode = (xn_mode)mode;
        if (mode == XN_MODE_XNOR)
            c.params.precision = XN_PRECISION_FP16;
        bk_problem_make(&c, &p);
        ck_assert_int_eq(p.conv.precision, XN_PRECISION_FP32);
        ck_assert(precision_of(target, &p, &taken));
        ck_assert_int_eq(taken, XN_PRECISION_FP32);
        bk_problem_free(&p);
    }
}
END_TEST

/* Weights that are not finite, in mode float, with taps outside the image that count as nothing. */
START_TEST(weights_not_finite) {
    tally t = {.target = bk_target_open(_i)};
    for (int fill = BK_NAN; t.target && fill <= BK_INFINITY; fill++) {
        bk_case c = layer(1, 32, 6, 32, 3);
        c.weights_fill = (bk_fill)fill;
        c.params.mode = XN_MODE_FLOAT;
        check_precisions(&c, &t);
        ck_assert_int_eq(t.cases[XN_PRECISION_FP32], 2 * (fill - BK_NAN + 1));
    }
}
END_TEST

/* ---- threads ---- */

enum { READY_THREADS = 4 };

/* One thread's share. Check's assertions are not for other threads: it records, main judges. */
typedef struct readier {
    const bk_target *target;
    xn_conv conv;
    const xn_prepared *prepared;
    pthread_barrier_t *start;
    xn_status status;
    xn_precision precision;
    xn_error error;
} readier;

static void *make_ready(void *context) {
    readier *r = context;
    const xn_backend *b = r->target->backend;
    const xn_stream_options options = {0};
    xn_stream *stream = NULL;
    xn_program *program = NULL;
    r->status = b->stream_create(r->target->device, &options, &stream, &r->error);
    if (!r->status)
        r->status = bk_program_create(r->target, stream, &r->conv, 1, &program, &r->error);
    (void)pthread_barrier_wait(r->start);
    if (!r->status)
        r->status = xn_program_ready(program, &r->prepared, &r->error);
    if (!r->status)
        r->precision = xn_program_precision(program, &r->prepared);
    xn_program_free(program);
    b->stream_free(stream);
    return NULL;
}

/* Threads ask at once for the same weights in two precisions; the weights then compute right. */
START_TEST(ready_at_once) {
    const bk_target *t = bk_target_open(_i);
    if (!t || !t->backend->weights_ready)
        return;
    bk_case c = layer(1, 64, 9, 64, 3);
    c.params.mode = XN_MODE_FLOAT;
    bk_problem p;
    bk_problem_make(&c, &p);
    xn_prepared *prepared = bk_prepare(t, &p);
    readier readiers[READY_THREADS];
    pthread_t threads[READY_THREADS];
    pthread_barrier_t start;
    ck_assert_int_eq(pthread_barrier_init(&start, NULL, READY_THREADS), 0);
    for (int i = 0; i < READY_THREADS; i++) {
        readiers[i] = (readier){.target = t, .conv = p.conv, .prepared = prepared, .start = &start};
        readiers[i].conv.precision = XN_PRECISION_TF32 + i % 2;
        ck_assert_int_eq(pthread_create(&threads[i], NULL, make_ready, &readiers[i]), 0);
    }
    for (int i = 0; i < READY_THREADS; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < READY_THREADS; i++) {
        bk_expect_ok(t, &p, "ready", readiers[i].status, &readiers[i].error);
        const xn_precision precision = readiers[i].precision;
        ck_assert(precision == XN_PRECISION_FP32 ||
                  precision == (xn_precision)readiers[i].conv.precision);
        bk_batch batch;
        char *got = xn_mem_alloc(xn_conv_output_bytes(&p.conv));
        ck_assert_ptr_nonnull(got);
        for (int64_t n = 0; n < xn_conv_input_elements(&p.conv); n++)
            p.real[n] = rounded(precision, p.real[n]);
        bk_batch_make(t, &p, &readiers[i].conv, 1, 1, &batch);
        ck_assert(bk_run_batch(t, &batch, &readiers[i].conv, prepared, got));
        bk_expected *expected = bk_model(&p);
        judge(t, &p, precision, got, expected);
        xn_mem_free(expected);
        xn_mem_free(got);
        bk_batch_free(&batch);
    }
    (void)pthread_barrier_destroy(&start);
    t->backend->weights_free(prepared);
    bk_problem_free(&p);
}
END_TEST

XN_SUITE(backends_precision) {
    Suite *s = suite_create("backends_precision");
    for (int target = 0; target < bk_target_count(); target++) {
        TCase *t = xn_test_case(s, xn_backend_all()[target]->name, 600);
        tcase_add_loop_test(t, exact, target, target + 1);
        tcase_add_loop_test(t, weights_not_finite, target, target + 1);
        if (xn_backend_all()[target]->precision) {
            tcase_add_loop_test(t, ready_at_once, target, target + 1);
            tcase_add_loop_test(t, tiles, target, target + 1);
            tcase_add_loop_test(t, section, target * bk_section_count,
                                (target + 1) * bk_section_count);
            tcase_add_loop_test(t, random_problems, target, target + 1);
        }
    }
    return s;
}
