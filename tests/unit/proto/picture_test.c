/* Pictures: the values that come out of them, against what Pillow made of the same files
 * (tests/pictures/make.py), and what is refused. */
#include "xn_mem.h"
#include "xn_picture.h"
#include "xn_test.h"

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
__attribute__((unused)) static file cut_of(const file *whole, size_t length) {
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

XN_SUITE(picture) {
    Suite *s = suite_create("picture");
    TCase *t = tcase_create("picture");
    tcase_set_timeout(t, 120);
    tcase_add_test(t, equals_pillow);
    suite_add_tcase(s, t);
    return s;
}
