/* cpu_invariance_test.c: an answer of the CPU is the same bit for bit alone and in any batch: on
 * every path of an instruction set, in batches of 1 to 5 images, with 1 to 4 threads, and while
 * other streams compute. Where it is NaN it is NaN everywhere. What is right, other tests say. */
#include "backends/bk_step.h"

#include "xn_backends.h"
#include "xn_mem.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { THREADS = 4, IMAGES = 5, RANDOM = 60, PARTS = 6, ROUNDS = 6, MOST_SETS = 8 };

/* What all runs share: a device of this test's own, so that there are as many threads as it asks
 * for on any machine. */
typedef struct subject {
    xn_device *device;
    bk_case c;
    bk_problem problem;
    xn_prepared *prepared;
    size_t input_bytes, output_bytes;
    /* The first answer of each instruction set, and the path that gave it. */
    unsigned char *first[MOST_SETS];
    char sets[MOST_SETS][24], paths[MOST_SETS][48];
} subject;

static void open_device(subject *s) {
    const xn_device_options options = {.threads = THREADS};
    xn_error error = {0};
    ck_assert_int_eq(xn_backend_cpu.device_open(0, &s->device, &error), XN_OK);
    ck_assert_int_eq(xn_backend_cpu.device_configure(s->device, &options, &error), XN_OK);
}

static void make_subject(const bk_case *c, subject *s) {
    xn_error error = {0};
    s->c = *c;
    bk_problem_make(&s->c, &s->problem);
    ck_assert_int_eq(
        xn_backend_cpu.weights_prepare(s->device, s->problem.weights, &s->prepared, &error), XN_OK);
    s->input_bytes = xn_conv_input_bytes(&s->problem.conv);
    s->output_bytes = xn_conv_output_bytes(&s->problem.conv);
    for (int set = 0; set < MOST_SETS; set++)
        s->first[set] = NULL, s->sets[set][0] = '\0';
}

static void free_subject(subject *s) {
    for (int set = 0; set < MOST_SETS; set++)
        xn_mem_free(s->first[set]);
    xn_backend_cpu.weights_free(s->prepared);
    bk_problem_free(&s->problem);
}

/* Runs images [first, first + count) in one batch; false where the path cannot. No assertions:
 * other threads call this. */
static bool run(const subject *s, const char *path, int threads, int64_t first, int64_t count,
                unsigned char *output, xn_error *error) {
    const xn_backend *b = &xn_backend_cpu;
    const xn_stream_options options = {.threads = threads, .path = path};
    const xn_prepared *const prepared[] = {s->prepared};
    xn_stream *stream = NULL;
    xn_program *program = NULL;
    xn_problem problem;
    xn_problem_of_conv(&s->problem.conv, &problem);
    xn_status status = b->stream_create(s->device, &options, &stream, error);
    if (!status)
        status = xn_program_create(b, stream, &problem, count, &program, error);
    if (!status)
        status = xn_program_ready(program, prepared, error);
    if (!status) {
        const xn_batch_item item = {.input = (const char *)s->problem.input +
                                             (size_t)first * s->input_bytes,
                                    .output = output,
                                    .images = count};
        status = xn_program_run(program, prepared, &item, 1, NULL, error);
    }
    xn_program_free(program);
    b->stream_free(stream);
    error->status = status;
    return !status;
}

static bool is_nan(xn_datatype datatype, const unsigned char *at) {
    float single;
    uint16_t half;
    memcpy(&half, at, sizeof half);
    if (datatype == XN_FP16)
        return (half & 0x7fffu) > 0x7c00u;
    memcpy(&single, at, datatype == XN_FP32 ? sizeof single : 0);
    return datatype == XN_FP32 && isnan(single);
}

/* Elements that differ. */
static size_t differences(const subject *s, const unsigned char *a, const unsigned char *b,
                          size_t bytes) {
    const xn_datatype datatype = (xn_datatype)s->problem.conv.epilogue.datatype;
    const size_t size = datatype == XN_BITS ? 1 : xn_datatype_bytes(datatype);
    size_t count = 0;
    for (size_t i = 0; i < bytes; i += size)
        count +=
            memcmp(a + i, b + i, size) && !(is_nan(datatype, a + i) && is_nan(datatype, b + i));
    return count;
}

static void expect_same(const subject *s, const char *path, const char *than, int threads,
                        int64_t first, int64_t count, const unsigned char *got,
                        const unsigned char *all) {
    char text[BK_TEXT];
    const size_t wrong =
        differences(s, got, all + (size_t)first * s->output_bytes, (size_t)count * s->output_bytes);
    bk_case_describe(&s->c, text);
    ck_assert_msg(!wrong,
                  "%s, images %lld to %lld on %d threads: %zu differ from %s, of %s; run seed %llu",
                  path, (long long)first, (long long)(first + count - 1), threads, wrong, than,
                  text, (unsigned long long)xn_test_seed());
}

/* Its number; the set of "lookup/avx2" is "avx2". */
static int set_of(subject *s, const char *path) {
    const char *name = strchr(path, '/') + 1;
    int set = 0;
    while (s->sets[set][0] && strcmp(s->sets[set], name) != 0)
        set++;
    ck_assert_int_lt(set, MOST_SETS);
    snprintf(s->sets[set], sizeof s->sets[set], "%s", name);
    return set;
}

/* One path: each image alone, then batches on ever more threads. Returns whether it can. */
static bool check_path(subject *s, const char *path) {
    const int64_t images = s->problem.images;
    const int set = set_of(s, path);
    unsigned char *got = bk_take((size_t)images * s->output_bytes);
    xn_error error = {0};
    bool can = true;
    for (int64_t n = 0; n < images && can; n++)
        can = run(s, path, 1, n, 1, got + (size_t)n * s->output_bytes, &error);
    ck_assert_msg(can || error.status == XN_ERR_UNSUPPORTED, "%s: %s", path, error.message);
    if (can && !s->first[set]) {
        s->first[set] = bk_take((size_t)images * s->output_bytes);
        memcpy(s->first[set], got, (size_t)images * s->output_bytes);
        snprintf(s->paths[set], sizeof s->paths[set], "%s", path);
    }
    if (can)
        expect_same(s, path, s->paths[set], 1, 0, images, got, s->first[set]);
    for (int threads = 1; can && threads <= THREADS; threads++)
        for (int64_t count = 1 + threads % 2; count <= images; count += 2) {
            const int64_t first = (images - count) * (threads % 3) / 2;
            ck_assert(run(s, path, threads, first, count, got, &error));
            expect_same(s, path, s->paths[set], threads, first, count, got, s->first[set]);
        }
    xn_mem_free(got);
    return can;
}

static void check_case(subject *s, const bk_case *c, int *ran) {
    const char *path = NULL;
    make_subject(c, s);
    for (int i = 0; (path = xn_backend_cpu.device_path(s->device, i)); i++)
        ran[i] += check_path(s, path);
    free_subject(s);
}

/* ---- cases ---- */

/* Chosen so that several paths can, and what each might do otherwise comes up: short boxes and long
 * ones, strips and bands, panels across images, values that are computed again; last, problems of
 * more than 60 us, which several threads share. */
enum { SHAPES = 23, CASES = SHAPES * 6 }; /* each part of the test has all shapes */

static bk_case case_of(int number) {
    static const int64_t shapes[SHAPES][6] = {
        /* channels, height, width, filters, kernel, groups */
        {1, 40, 150, 1, 3, 1},  {1, 23, 1700, 2, 3, 1},  {3, 30, 33, 5, 3, 1},
        {8, 17, 19, 4, 5, 1},   {32, 9, 10, 6, 3, 1},    {24, 12, 9, 24, 3, 24},
        {40, 9, 8, 35, 3, 1},   {6, 20, 21, 9, 3, 3},    {2, 40, 41, 2, 1, 2},
        {80, 7, 7, 40, 3, 1},   {4, 33, 64, 3, 7, 1},    {16, 56, 20, 16, 3, 16},
        {1, 40, 44, 1, 31, 1},  {300, 1, 1, 70, 1, 1},   {20, 7, 7, 85, 1, 1},
        {40, 1, 1, 50, 3, 1},   {150, 14, 14, 24, 1, 1}, {1, 400, 400, 2, 3, 1},
        {64, 28, 28, 64, 3, 1}, {32, 28, 28, 32, 3, 1},  {64, 40, 40, 64, 3, 64},
        {300, 1, 1, 500, 1, 1}, {900, 1, 1, 90, 1, 1},
    };
    static const bk_fill fills[] = {BK_RANDOM, BK_MIXED, BK_INFINITY, BK_NAN, BK_HUGE, BK_DENORMAL};
    const int64_t *shape = shapes[number % SHAPES];
    bk_case c = bk_geometry(IMAGES, shape[0], shape[1], shape[2], shape[3], shape[4], shape[4]);
    c.params.groups = shape[5];
    c.params.mode = (xn_mode)(number / SHAPES % 3);
    c.params.padding_kind = XN_PADDING_SAME;
    c.params.stride[0] = c.params.stride[1] = 1 + number % 4 / 3;
    c.params.output_datatype = number % 5 == 4 ? XN_FP16 : number % 7 == 6 ? XN_BITS : XN_FP32;
    c.input_fill = fills[(number / SHAPES + number) % (int)(sizeof fills / sizeof *fills)];
    c.bias = number % 2, c.scale = number % 3 == 2;
    c.seed = (uint64_t)number;
    return c;
}
START_TEST(chosen) {
    static int ran[64];
    subject s = {0};
    open_device(&s);
    for (int number = _i; number < CASES; number += PARTS)
        if (number / PARTS % bk_every() == 0) {
            const bk_case c = case_of(number);
            check_case(&s, &c, ran);
        }
    for (int i = 0; bk_every() == 1 && xn_backend_cpu.device_path(s.device, i); i++)
        ck_assert_msg(ran[i] > 0, "%s ran nothing", xn_backend_cpu.device_path(s.device, i));
    xn_backend_cpu.device_close(s.device);
}
END_TEST

START_TEST(random_problems) {
    static int ran[64];
    subject s = {0};
    open_device(&s);
    for (int i = _i; i < RANDOM; i += PARTS) {
        bk_case c;
        bk_case_random(xn_test_seed() + 7000 + (uint64_t)i, &c);
        c.images = 1 + c.images % IMAGES;
        check_case(&s, &c, ran);
    }
    xn_backend_cpu.device_close(s.device);
}
END_TEST

/* ---- under load ---- */

typedef struct worker {
    subject *s;
    int number;
    unsigned char *got;
    size_t wrong;
    xn_error error;
} worker;

static void *work(void *context) {
    worker *w = context;
    const int64_t images = w->s->problem.images;
    for (int round = 0; round < ROUNDS && !w->wrong && !w->error.status; round++) {
        const int64_t count = 1 + (round + w->number) % images, first = (images - count) / 2;
        if (run(w->s, NULL, 1 + (round + w->number) % THREADS, first, count, w->got, &w->error))
            w->wrong =
                differences(w->s, w->got, w->s->first[0] + (size_t)first * w->s->output_bytes,
                            (size_t)count * w->s->output_bytes);
    }
    return NULL;
}

/* The free choice on several streams at once gives what one image gave alone. */
START_TEST(under_load) {
    subject s = {0};
    open_device(&s);
    for (int number = _i; number < CASES; number += PARTS) {
        const bk_case c = case_of(number);
        worker workers[THREADS];
        pthread_t threads[THREADS];
        xn_error error = {0};
        make_subject(&c, &s);
        s.first[0] = bk_take((size_t)s.problem.images * s.output_bytes);
        for (int64_t n = 0; n < s.problem.images; n++)
            ck_assert(run(&s, NULL, 1, n, 1, s.first[0] + (size_t)n * s.output_bytes, &error));
        for (int i = 0; i < THREADS; i++) {
            workers[i] = (worker){.s = &s, .number = i};
            workers[i].got = bk_take((size_t)s.problem.images * s.output_bytes);
            ck_assert_int_eq(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
        }
        for (int i = 0; i < THREADS; i++)
            pthread_join(threads[i], NULL);
        for (int i = 0; i < THREADS; i++) {
            char text[BK_TEXT];
            bk_case_describe(&c, text);
            ck_assert_msg(!workers[i].error.status, "%s", workers[i].error.message);
            ck_assert_msg(!workers[i].wrong, "%zu differ under load, of %s", workers[i].wrong,
                          text);
            xn_mem_free(workers[i].got);
        }
        free_subject(&s);
    }
    xn_backend_cpu.device_close(s.device);
}
END_TEST

XN_SUITE(cpu_invariance) {
    Suite *s = suite_create("cpu_invariance");
    TCase *t = xn_test_case(s, "invariance", 300);
    tcase_add_loop_test(t, chosen, 0, PARTS);
    tcase_add_loop_test(t, random_problems, 0, PARTS);
    tcase_add_loop_test(t, under_load, 0, PARTS);
    return s;
}
