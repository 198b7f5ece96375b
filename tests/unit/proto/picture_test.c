/* Pictures: the values that come out of them, against what Pillow made of the same files
 * (tests/pictures/make.py), and what is refused. */
#include "xn_mem.h"
#include "xn_picture.h"
#include "xn_test.h"

#include <malloc.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#define FOLDER "tests/pictures/"
#define PIXELS (INT64_C(64) << 20)

typedef struct file {
    uint8_t *bytes;
    size_t length;
} file;

static file read_file(const char *folder, const char *name) {
    char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *in = fopen(path, "rb");
    ck_assert_msg(in != NULL, "%s is missing", path);
    ck_assert_int_eq(fseek(in, 0, SEEK_END), 0);
    file out = {.length = (size_t)ftell(in)};
    rewind(in);
    out.bytes = malloc(out.length);
    ck_assert_ptr_nonnull(out.bytes);
    ck_assert_uint_eq(fread(out.bytes, 1, out.length, in), out.length);
    fclose(in);
    return out;
}

/* A copy of exactly that size, so that sanitizers see what is read behind it. */
static file cut_of(const file *whole, size_t length) {
    file out = {malloc(length ? length : 1), length};
    ck_assert_ptr_nonnull(out.bytes);
    memcpy(out.bytes, whole->bytes, length);
    return out;
}

static xn_picture_rule rule_of(int channels, int64_t resize, int64_t height, int64_t width) {
    const xn_shape shape = {3, {height, width, channels}};
    xn_picture_rule rule;
    xn_picture_rule_default(XN_UINT8, XN_IMAGE_NHWC, &shape, &rule);
    ck_assert_int_eq(rule.channels, channels);
    rule.resize = resize;
    return rule;
}

static xn_status read_picture(const file *from, const xn_picture_rule *rule, void *values,
                              xn_error *error) {
    xn_picture picture;
    xn_status status =
        xn_picture_inspect(from->bytes, from->length, PIXELS, "body", &picture, error);
    return status ? status : xn_picture_read(&picture, rule, "body", NULL, values, error);
}

static uint8_t *must_read(const file *from, const xn_picture_rule *rule, const char *name) {
    uint8_t *values = malloc(xn_picture_input_bytes(rule));
    xn_error error = {0};
    ck_assert_ptr_nonnull(values);
    xn_status status = read_picture(from, rule, values, &error);
    ck_assert_msg(!status, "%s: %s", name, error.message);
    return values;
}

/* ---- as Pillow ---- */

typedef struct picture_case {
    char name[64], filter[16];
    xn_picture_rule rule;
    size_t offset;
} picture_case;

static bool next_case(FILE *list, picture_case *out) {
    long long resize, height, width;
    int channels;
    if (fscanf(list, "%63s %lld %lld %lld %d %15s %zu", out->name, &resize, &height, &width,
               &channels, out->filter, &out->offset) != 7)
        return false;
    out->rule = rule_of(channels, resize, height, width);
    if (!strcmp(out->filter, "bicubic"))
        out->rule.filter = XN_PICTURE_BICUBIC;
    return true;
}

/* One level in at most 1% of values. */
static void check_values(const char *name, const uint8_t *got, const uint8_t *wanted,
                         size_t count) {
    size_t off = 0;
    for (size_t i = 0; i < count; i++) {
        const int difference = got[i] - wanted[i];
        ck_assert_msg(difference >= -1 && difference <= 1, "%s: value %zu is %d, not %d", name, i,
                      got[i], wanted[i]);
        off += difference != 0;
    }
    ck_assert_msg(off * 100 <= count, "%s: %zu of %zu values differ", name, off, count);
}

START_TEST(equals_pillow) {
    const char *folder = getenv("XNORD_TEST_PICTURES") ? getenv("XNORD_TEST_PICTURES") : FOLDER;
    char path[256];
    picture_case one;
    int count = 0;
    const file expected = read_file(folder, "expected.bin");
    snprintf(path, sizeof path, "%s/cases.txt", folder);
    FILE *list = fopen(path, "r");
    ck_assert_ptr_nonnull(list);
    for (; next_case(list, &one); count++) {
        const file picture = read_file(folder, one.name);
        const size_t bytes = xn_picture_input_bytes(&one.rule);
        uint8_t *values = must_read(&picture, &one.rule, one.name);
        ck_assert_uint_le(one.offset + bytes, expected.length);
        check_values(one.name, values, expected.bytes + one.offset, bytes);
        free(values);
        free(picture.bytes);
    }
    ck_assert_int_ge(count, 60);
    fclose(list);
    free(expected.bytes);
}
END_TEST

/* ---- what is refused ---- */

static const char *const names[] = {"jpg/rgb420.jpg",     "jpg/progressive.jpg", "jpg/cmyk.jpg",
                                    "jpg/turned6.jpg",    "png/rgb16.png",       "png/clear.png",
                                    "png/interlaced.png", "png/turned6.png"};
enum { NAMES = sizeof names / sizeof *names };

static void check_refused(const file *from, xn_status wanted, const char *says) {
    const xn_picture_rule rule = rule_of(3, 24, 20, 20);
    uint8_t values[20 * 20 * 3];
    xn_error error = {0};
    xn_status status = read_picture(from, &rule, values, &error);
    ck_assert_msg(status == wanted, "%s: %s", says, status ? error.message : "it is taken");
    ck_assert_msg(strstr(error.message, says) != NULL, "\"%s\" says not: %s", error.message, says);
    ck_assert_str_eq(error.field, "body");
}

START_TEST(every_beginning_of_a_file_is_refused) {
    const file whole = read_file(FOLDER, names[_i]);
    for (size_t length = 0; length < whole.length; length += length % 7 + 1) {
        const file part = cut_of(&whole, length);
        check_refused(&part, XN_ERR_MALFORMED, "body is ");
        free(part.bytes);
    }
    free(whole.bytes);
}
END_TEST

/* Bytes behind a mark in a file become others. */
static const struct {
    const char *name, *mark;
    int mark_length, skip;
    const char *bytes;
    size_t count;
    xn_status status;
    const char *says;
} lies[] = {
#define JPEG "jpg/rgb420.jpg", "\xff\xc0", 2
#define PNG "png/rgb.png", "IHDR", 4
    {JPEG, 3, "\xff\xff\xff\xff", 4, XN_ERR_MALFORMED,
     "65535 x 65535 pixels; a side may have 65500"},
    {JPEG, 3, "\x75\x30\x75\x30", 4, XN_ERR_LIMIT, "30000 x 30000 pixels; at most 67108864 pixels"},
    {JPEG, 3, "\0\0", 2, XN_ERR_MALFORMED, "61 x 0 pixels"},
    {JPEG, 3, "\x10\0\x10\0", 4, XN_ERR_MALFORMED, "cannot be decoded"},
    {JPEG, 2, "\x0c", 1, XN_ERR_MALFORMED, "12 bits a sample: 8 are read"},
    {JPEG, 7, "\x02", 1, XN_ERR_MALFORMED, "a frame header of a wrong length"},
    {JPEG, 9, "\x51", 1, XN_ERR_MALFORMED, "sampling factors"},
    {"jpg/rgb420.jpg", "\xff\xc0", 2, -1, "\xc3", 1, XN_ERR_MALFORMED, "lossless"},
    {"jpg/rgb420.jpg", "\xff\xc0", 2, -1, "\xd9", 1, XN_ERR_MALFORMED, "no picture in it"},
    {PNG, 0, "\xff\xff\xff\xff", 4, XN_ERR_MALFORMED, "4294967295 x 47 pixels"},
    {PNG, 0, "\0\0\xff\0\0\0\xff\0", 8, XN_ERR_LIMIT, "65280 x 65280 pixels; at most 67108864"},
    {PNG, 4, "\0\0\0\0", 4, XN_ERR_MALFORMED, "61 x 0 pixels"},
    {PNG, 9, "\5", 1, XN_ERR_MALFORMED, "colour type 5"},
    {PNG, 8, "\3", 1, XN_ERR_MALFORMED, "3 bits a sample"},
    {PNG, 8, "\1", 1, XN_ERR_MALFORMED, "cannot be decoded"},
    {PNG, 3, "\74", 1, XN_ERR_MALFORMED, "cannot be decoded"},
    {PNG, 12, "\1", 1, XN_ERR_MALFORMED, "cannot be decoded"},
    {"png/rgb.png", "IDAT", 4, 0, "\0", 1, XN_ERR_MALFORMED, "cannot be decoded"},
    {"png/rgb.png", "IDAT", 4, 40, "\0\0\0\0", 4, XN_ERR_MALFORMED, "cannot be decoded"},
    {"png/rgb.png", "IEND", 3, 0, "X", 1, XN_ERR_MALFORMED, "cannot be decoded"},
    {"png/rgb.png", "\x89PNG", 4, 0, "\n", 1, XN_ERR_MALFORMED, "neither JPEG nor PNG"},
};

START_TEST(files_that_lie_are_refused) {
    file one = read_file(FOLDER, lies[_i].name);
    uint8_t *at = memmem(one.bytes, one.length, lies[_i].mark, (size_t)lies[_i].mark_length);
    ck_assert_ptr_nonnull(at);
    memcpy(at + lies[_i].mark_length + lies[_i].skip, lies[_i].bytes, lies[_i].count);
    check_refused(&one, lies[_i].status, lies[_i].says);
    free(one.bytes);
}
END_TEST

/* Each scan of a progressive file is a pass over all of it. */
START_TEST(many_scans_are_refused) {
    enum { TIMES = 120 };
    const file one = read_file(FOLDER, "jpg/progressive.jpg");
    const uint8_t *scan = memmem(one.bytes, one.length, "\xff\xda", 2), *end = scan;
    ck_assert_ptr_nonnull(scan);
    do
        end++;
    while (end[0] != 0xff || end[1] == 0);
    const size_t before = (size_t)(end - one.bytes), bytes = (size_t)(end - scan);
    file many = {malloc(one.length + TIMES * bytes), before};
    ck_assert_ptr_nonnull(many.bytes);
    memcpy(many.bytes, one.bytes, before);
    for (int i = 0; i < TIMES; i++, many.length += bytes)
        memcpy(many.bytes + many.length, scan, bytes);
    memcpy(many.bytes + many.length, end, one.length - before);
    many.length += one.length - before;
    check_refused(&many, XN_ERR_MALFORMED, "more than 100 scans");
    free(many.bytes);
    free(one.bytes);
}
END_TEST

/* ---- memory ---- */

START_TEST(allocations_that_fail_are_told) {
    const xn_picture_rule rule = rule_of(3, 24, 20, 20);
    const file one = read_file(FOLDER, names[_i]);
    uint8_t values[20 * 20 * 3];
    xn_error error = {0};
    int failed = 0;
    for (;; failed++) {
        atomic_int countdown = failed;
        xn_mem_set_hook(xn_test_count_down, &countdown);
        xn_status status = read_picture(&one, &rule, values, &error);
        xn_mem_set_hook(NULL, NULL);
        if (!status)
            break;
        ck_assert_msg(status == XN_ERR_NO_MEMORY, "allocation %d: %s", failed, error.message);
    }
    ck_assert_int_ge(failed, 1);
    free(one.bytes);
}
END_TEST

/* What malloc holds more than before, the decoders' own memory included, at each look of a watch.
 */
typedef struct meter {
    size_t before, most;
} meter;

static size_t held(void) {
    const struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
}

static xn_status look(void *context, xn_error *error) {
    meter *m = context;
    (void)error;
    const size_t now = held();
    m->most = now > m->before && now - m->before > m->most ? now - m->before : m->most;
    return XN_OK;
}

/* Files of all kinds that say they are wide, or high: decoders take what the header asks for, and
 * fail only then. */
START_TEST(no_more_memory_is_taken_than_said) {
    static const uint16_t sides[][2] = {{61, 47}, {65500, 64}, {1000, 65000}, {8000, 8000}};
    const uint16_t *side = sides[_i % 4];
    const bool jpeg = strstr(names[_i / 4], "jpg") != NULL;
    const xn_picture_rule rule = rule_of(3, 24, 20, 20);
    file one = read_file(FOLDER, names[_i / 4]);
    const char *mark =
        jpeg ? strstr(names[_i / 4], "progressive") ? "\xff\xc2" : "\xff\xc0" : "IHDR";
    uint8_t *at = memmem(one.bytes, one.length, mark, strlen(mark)), values[20 * 20 * 3];
    xn_picture picture;
    xn_error error;
    ck_assert_ptr_nonnull(at);
    if (jpeg) {
        const uint8_t size[] = {(uint8_t)(side[1] >> 8), (uint8_t)side[1], (uint8_t)(side[0] >> 8),
                                (uint8_t)side[0]};
        memcpy(at + 5, size, sizeof size);
    } else if (_i % 4) {
        free(one.bytes); /* its checksum would not hold */
        return;
    }
    ck_assert(
        !xn_picture_inspect(one.bytes, one.length, PIXELS + (8 << 20), "body", &picture, &error));
    meter m = {.before = held()};
    const xn_picture_watch watch = {look, &m};
    (void)xn_picture_read(&picture, &rule, "body", &watch, values, &error);
    if (!XN_TEST_SANITIZED) /* whose malloc tells nothing */
        ck_assert_uint_gt(m.most, 0);
    ck_assert_msg(m.most <= xn_picture_memory(&picture, &rule), "%s as %d x %d: %zu bytes, not %zu",
                  names[_i / 4], side[0], side[1], m.most, xn_picture_memory(&picture, &rule));
    free(one.bytes);
}
END_TEST

/* ---- the rest of a rule ---- */

static xn_status too_late(void *context, xn_error *error) {
    ++*(int *)context;
    return xn_fail(error, XN_ERR_DEADLINE, "timeout_ms", "too late");
}

START_TEST(a_watch_ends_the_reading) {
    const xn_picture_rule rule = rule_of(3, 24, 20, 20);
    const file one = read_file(FOLDER, names[_i]);
    uint8_t values[20 * 20 * 3];
    xn_picture picture;
    xn_error error = {0};
    int calls = 0;
    const xn_picture_watch watch = {too_late, &calls};
    ck_assert(!xn_picture_inspect(one.bytes, one.length, PIXELS, "body", &picture, &error));
    ck_assert_int_eq(xn_picture_read(&picture, &rule, "body", &watch, values, &error),
                     XN_ERR_DEADLINE);
    ck_assert_int_eq(calls, 1);
    ck_assert_str_eq(error.message, "too late");
    free(one.bytes);
}
END_TEST

START_TEST(values_follow_datatype_and_layout) {
    enum { SIDE = 20, PLANE = SIDE * SIDE };
    const file one = read_file(FOLDER, names[_i]);
    xn_picture_rule rule = rule_of(3, 24, SIDE, SIDE);
    uint8_t *bytes = must_read(&one, &rule, names[_i]);
    rule.layout = XN_IMAGE_NCHW;
    uint8_t *planes = must_read(&one, &rule, names[_i]);
    rule.datatype = XN_FP32;
    rule.mean[0] = 0.485;
    rule.std[0] = 0.229;
    uint8_t *floats = must_read(&one, &rule, names[_i]);
    rule.layout = XN_IMAGE_NHWC;
    rule.datatype = XN_FP16;
    uint8_t *halves = must_read(&one, &rule, names[_i]);
    for (int i = 0; i < 3 * PLANE; i++) {
        const int at = i % 3 * PLANE + i / 3;
        const double unit = bytes[i] / 255.0;
        const float wanted = (float)(i % 3 ? unit : (unit - 0.485) / 0.229);
        ck_assert_int_eq(planes[at], bytes[i]);
        ck_assert(((float *)(void *)floats)[at] == wanted);
        ck_assert_int_eq(((uint16_t *)(void *)halves)[i], xn_fp32_to_fp16(wanted));
    }
    free(bytes);
    free(planes);
    free(floats);
    free(halves);
    free(one.bytes);
}
END_TEST

/* Another picture, and not far from it: of this one, which is all fine structure, Pillow's draft
 * mode is 14 levels off. */
START_TEST(fast_is_close) {
    const file one = read_file(FOLDER, "jpg/rgb444.jpg");
    xn_picture_rule rule = rule_of(3, 11, 11, 11);
    uint8_t *exact = must_read(&one, &rule, "exact");
    rule.fast = true;
    uint8_t *fast = must_read(&one, &rule, "fast");
    int differences = 0, sum = 0, count = 11 * 11 * 3;
    for (int i = 0; i < count; i++) {
        differences += exact[i] != fast[i];
        sum += abs(exact[i] - fast[i]);
    }
    ck_assert_int_gt(differences, 0);
    ck_assert_msg(sum < 20 * count, "%g levels off", (double)sum / count);
    free(exact);
    free(fast);
    free(one.bytes);
}
END_TEST

XN_SUITE(picture) {
    Suite *s = suite_create("picture");
    TCase *t = xn_test_case(s, "picture", 120);
    tcase_add_test(t, equals_pillow);
    tcase_add_loop_test(t, every_beginning_of_a_file_is_refused, 0, NAMES);
    tcase_add_loop_test(t, files_that_lie_are_refused, 0, sizeof lies / sizeof *lies);
    tcase_add_test(t, many_scans_are_refused);
    tcase_add_loop_test(t, allocations_that_fail_are_told, 0, NAMES);
    tcase_add_loop_test(t, no_more_memory_is_taken_than_said, 0, 4 * NAMES);
    tcase_add_loop_test(t, a_watch_ends_the_reading, 0, NAMES);
    tcase_add_loop_test(t, values_follow_datatype_and_layout, 0, NAMES);
    tcase_add_test(t, fast_is_close);
    return s;
}
