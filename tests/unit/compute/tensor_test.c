/* Datatypes, shapes, and the conversions of real formats: every binary16 and bfloat16 bit pattern,
 * and every boundary between two of them, against definitions that share no code with them. */
#include "xn_tensor.h"
#include "xn_test.h"

#include <math.h>
#include <string.h>

START_TEST(datatypes_have_names_and_sizes) {
    static const struct {
        xn_datatype datatype;
        const char *name;
        size_t bytes;
    } cases[] = {{XN_FP32, "FP32", 4},   {XN_FP16, "FP16", 2},   {XN_BF16, "BF16", 2},
                 {XN_INT8, "INT8", 1},   {XN_UINT8, "UINT8", 1}, {XN_BOOL, "BOOL", 1},
                 {XN_INT32, "INT32", 4}, {XN_BITS, "BITS", 0}};
    ck_assert_uint_eq(sizeof cases / sizeof *cases, XN_DATATYPE_COUNT);
    for (size_t i = 0; i < XN_DATATYPE_COUNT; i++) {
        xn_datatype parsed = XN_DATATYPE_COUNT;
        ck_assert_str_eq(xn_datatype_name(cases[i].datatype), cases[i].name);
        ck_assert_uint_eq(xn_datatype_bytes(cases[i].datatype), cases[i].bytes);
        ck_assert(xn_datatype_parse(cases[i].name, &parsed) && parsed == cases[i].datatype);
    }
    static const char *const wrong[] = {"", "fp32", "FP", "FP322", "F32", " FP32", "FP64", "INT"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        xn_datatype untouched = XN_BF16;
        ck_assert_msg(!xn_datatype_parse(wrong[i], &untouched), "\"%s\" was accepted", wrong[i]);
        ck_assert_int_eq(untouched, XN_BF16);
    }
    ck_assert_ptr_nonnull(xn_datatype_name((xn_datatype)99));
}
END_TEST

/* ---- shapes ---- */

START_TEST(shapes_are_formatted_and_cut_short) {
    char text[200];
    xn_shape shape = {.rank = 4, .dims = {1, 3, 224, 224}}, empty = {.rank = 0};
    xn_shape_format(&shape, text, sizeof text);
    ck_assert_str_eq(text, "[1, 3, 224, 224]");
    xn_shape_format(&empty, text, sizeof text);
    ck_assert_str_eq(text, "[]");
    for (size_t size = 1; size <= 17; size++) {
        memset(text, '#', sizeof text);
        xn_shape_format(&shape, text, size);
        ck_assert_uint_eq(strlen(text), size - 1);
        ck_assert_int_eq(strncmp(text, "[1, 3, 224, 224]", size - 1), 0);
        ck_assert_int_eq(text[size], '#');
    }
    xn_shape longest = {.rank = XN_MAX_RANK};
    for (int i = 0; i < XN_MAX_RANK; i++)
        longest.dims[i] = INT64_MIN;
    xn_shape_format(&longest, text, sizeof text);
    ck_assert_int_eq(text[strlen(text) - 1], ']');
}
END_TEST

START_TEST(elements_and_bytes) {
    int64_t elements = 0;
    size_t bytes = 0;
    xn_shape shape = {.rank = 4, .dims = {2, 3, 5, 7}};
    ck_assert_int_eq(xn_shape_elements(&shape, XN_FP16, 210, "input", &elements, &bytes, NULL), 0);
    ck_assert_int_eq(elements, 210);
    ck_assert_uint_eq(bytes, 420);
    ck_assert_int_eq(xn_shape_elements(&shape, XN_BOOL, 210, "input", &elements, NULL, NULL), 0);
}
END_TEST

START_TEST(bad_shapes_are_refused) {
    static const struct {
        xn_shape shape;
        xn_datatype datatype;
        int64_t limit;
        xn_status status;
        const char *text;
    } cases[] = {
        {{4, {1, 3, 0, 5}}, XN_FP32, 100, XN_ERR_MALFORMED, "input.shape[2] is 0"},
        {{2, {-7, 3}}, XN_FP32, 100, XN_ERR_MALFORMED, "input.shape[0] is -7"},
        {{2, {INT64_MIN, -1}}, XN_FP32, 100, XN_ERR_MALFORMED, "input.shape[0]"},
        {{9, {1}}, XN_FP32, 100, XN_ERR_MALFORMED, "9 dimensions; at most 8"},
        {{-1, {1}}, XN_FP32, 100, XN_ERR_MALFORMED, "-1 dimensions"},
        {{2, {10, 11}}, XN_FP32, 109, XN_ERR_LIMIT, "[10, 11] has more than 109 elements"},
        {{2, {(int64_t)1 << 32, (int64_t)1 << 32}}, XN_BOOL, INT64_MAX, XN_ERR_LIMIT, "elements"},
        {{3, {INT64_MAX, INT64_MAX, 4}}, XN_BOOL, INT64_MAX, XN_ERR_LIMIT, "elements"},
        {{1, {INT64_MAX / 2}}, XN_FP32, INT64_MAX, XN_ERR_LIMIT, "elements"},
        /* wraps to a small number where the product is not checked */
        {{2, {((int64_t)1 << 62) + 1, 4}}, XN_BOOL, 100, XN_ERR_LIMIT, "more than 100"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int64_t elements = -5;
        size_t bytes = 5;
        xn_error error = {0};
        xn_status status = xn_shape_elements(&cases[i].shape, cases[i].datatype, cases[i].limit,
                                             "input", &elements, &bytes, &error);
        ck_assert_msg(status == cases[i].status, "case %zu: %s", i, xn_status_name(status));
        ck_assert_int_eq(error.status, status);
        ck_assert_str_eq(error.field, "input.shape");
        ck_assert_str_eq(error.limit, status == XN_ERR_LIMIT ? "max-elements" : "");
        ck_assert_msg(strstr(error.message, cases[i].text) != NULL, "case %zu: \"%s\"", i,
                      error.message);
        ck_assert_int_eq(elements, -5);
        ck_assert_uint_eq(bytes, 5);
    }
}
END_TEST

/* ---- real formats ---- */

/* By the definition of a binary format: (-1)^s * 1.f * 2^(e - bias), subnormals without the 1. */
static double format_value(uint32_t bits, int exponent_bits, int fraction_bits) {
    int bias = (1 << (exponent_bits - 1)) - 1;
    int exponent = (int)(bits >> fraction_bits) & ((1 << exponent_bits) - 1);
    double fraction = (double)(bits & ((1u << fraction_bits) - 1)) / (1 << fraction_bits);
    double magnitude;
    if (exponent == (1 << exponent_bits) - 1)
        magnitude = fraction != 0 ? NAN : INFINITY;
    else if (exponent == 0)
        magnitude = ldexp(fraction, 1 - bias);
    else
        magnitude = ldexp(1 + fraction, exponent - bias);
    return bits >> (exponent_bits + fraction_bits) & 1 ? -magnitude : magnitude;
}

typedef struct format {
    const char *name;
    int exponent_bits, fraction_bits;
    float (*widen)(uint16_t);
    uint16_t (*narrow)(float);
} format;

static const format formats[] = {
    {"fp16", 5, 10, xn_fp16_to_fp32, xn_fp32_to_fp16},
    {"bf16", 8, 7, xn_bf16_to_fp32, xn_fp32_to_bf16},
};

START_TEST(every_pattern_widens_and_comes_back) {
    const format *f = &formats[_i];
    for (uint32_t bits = 0; bits < 65536; bits++) {
        double expected = format_value(bits, f->exponent_bits, f->fraction_bits);
        float got = f->widen((uint16_t)bits);
        if (isnan(expected)) {
            ck_assert_msg(isnan(got), "%s %04x is %a", f->name, bits, got);
            uint16_t back = f->narrow(got);
            ck_assert_msg(isnan(f->widen(back)) && back >> 15 == bits >> 15, "%s %04x NaN to %04x",
                          f->name, bits, back);
            continue;
        }
        ck_assert_msg((double)got == expected && !signbit(got) == !signbit(expected),
                      "%s %04x is %a, expected %a", f->name, bits, got, expected);
        ck_assert_msg(f->narrow(got) == bits, "%s %04x came back as %04x", f->name, bits,
                      f->narrow(got));
    }
}
END_TEST

/* Round to nearest, ties to even, of a magnitude that lies between the neighbours low and low + 1
 * (as patterns); the infinity pattern stands for the power of two after the largest value. */
static uint16_t nearest(const format *f, uint16_t low, double magnitude) {
    uint32_t infinity = ((1u << f->exponent_bits) - 1) << f->fraction_bits;
    int bias = (1 << (f->exponent_bits - 1)) - 1;
    double below = format_value(low, f->exponent_bits, f->fraction_bits);
    double above = low + 1u == infinity
                       ? ldexp(1, bias + 1)
                       : format_value(low + 1u, f->exponent_bits, f->fraction_bits);
    double middle = (below + above) / 2;
    if (magnitude == middle)
        return low & 1 ? (uint16_t)(low + 1) : low;
    return magnitude < middle ? low : (uint16_t)(low + 1);
}

/* Around every midpoint of two neighbours, and around every value: the only places where the
 * result of rounding changes. */
START_TEST(every_boundary_rounds_to_nearest_even) {
    const format *f = &formats[_i];
    uint32_t infinity = ((1u << f->exponent_bits) - 1) << f->fraction_bits;
    for (uint32_t low = 0; low < infinity; low++) {
        double below = format_value(low, f->exponent_bits, f->fraction_bits);
        double step = ldexp(1, (low >> f->fraction_bits ? (int)(low >> f->fraction_bits) : 1) -
                                   (1 << (f->exponent_bits - 1)) + 1 - f->fraction_bits);
        float middle = (float)(below + step / 2);
        float tries[4] = {nextafterf((float)below, INFINITY), nextafterf(middle, 0), middle,
                          nextafterf(middle, INFINITY)};
        for (int i = 0; i < 4; i++) {
            if ((double)tries[i] >= below + step)
                continue;
            uint16_t expected = nearest(f, (uint16_t)low, (double)tries[i]);
            ck_assert_msg(f->narrow(tries[i]) == expected, "%s of %a is %04x, expected %04x",
                          f->name, tries[i], f->narrow(tries[i]), expected);
            ck_assert_msg(f->narrow(-tries[i]) == (expected | 0x8000), "%s of %a", f->name,
                          -tries[i]);
        }
    }
}
END_TEST

START_TEST(special_values_narrow) {
    const format *f = &formats[_i];
    uint16_t infinity = (uint16_t)(((1u << f->exponent_bits) - 1) << f->fraction_bits);
    ck_assert_uint_eq(f->narrow(INFINITY), infinity);
    ck_assert_uint_eq(f->narrow(-INFINITY), infinity | 0x8000u);
    ck_assert_uint_eq(f->narrow(3.4028234664e38f), infinity);
    ck_assert_uint_eq(f->narrow(0.0f), 0);
    ck_assert_uint_eq(f->narrow(-0.0f), 0x8000u);
    /* NaNs whose payload is only in the bits that are cut off must not become infinities */
    static const uint32_t nans[] = {0x7f800001u, 0xff800001u, 0x7fc00000u, 0x7fffffffu,
                                    0xffffffffu, 0x7f80ffffu, 0x7f801fffu};
    for (size_t i = 0; i < sizeof nans / sizeof *nans; i++) {
        float nan;
        memcpy(&nan, &nans[i], sizeof nan);
        ck_assert_msg(isnan(f->widen(f->narrow(nan))), "%s of NaN %08x is %04x", f->name, nans[i],
                      f->narrow(nan));
    }
    if (f->exponent_bits == 5) {
        ck_assert_uint_eq(f->narrow(65519.996f), 0x7bffu);
        ck_assert_uint_eq(f->narrow(65520.0f), 0x7c00u);
        ck_assert_uint_eq(f->narrow(0x1p-25f), 0);
        ck_assert_uint_eq(f->narrow(nextafterf(0x1p-25f, 1)), 1);
        ck_assert_uint_eq(f->narrow(0x1p-149f), 0);
    }
}
END_TEST

START_TEST(every_input_datatype_becomes_fp32) {
    static const int8_t ints[] = {-128, -1, 0, 1, 127};
    static const uint8_t bytes[] = {0, 1, 2, 128, 255};
    static const uint16_t halves[] = {0x3c00, 0xc000, 0x8000, 0x0001, 0x7c00};
    static const uint16_t brains[] = {0x3f80, 0xc000, 0x8000, 0x0001, 0x7f80};
    static const float floats[] = {1.5f, -0.0f, 0x1p-149f, 3e38f, -INFINITY};
    static const struct {
        xn_datatype datatype;
        const void *source;
        float expected[5];
    } cases[] = {
        {XN_INT8, ints, {-128, -1, 0, 1, 127}},
        {XN_UINT8, bytes, {0, 1, 2, 128, 255}},
        {XN_BOOL, bytes, {0, 1, 1, 1, 1}},
        {XN_FP16, halves, {1, -2, -0.0f, 0x1p-24f, INFINITY}},
        {XN_BF16, brains, {1, -2, -0.0f, 0x1p-133f, INFINITY}},
        {XN_FP32, floats, {1.5f, -0.0f, 0x1p-149f, 3e38f, -INFINITY}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        float got[6] = {9, 9, 9, 9, 9, 9};
        xn_tensor_to_fp32(cases[i].datatype, cases[i].source, got, 5);
        ck_assert_msg(!memcmp(got, cases[i].expected, sizeof cases[i].expected), "%s",
                      xn_datatype_name(cases[i].datatype));
        ck_assert_float_eq(got[5], 9);
        xn_tensor_to_signed_fp32(cases[i].datatype, cases[i].source, got, 5);
        if (cases[i].datatype == XN_BOOL)
            ck_assert(got[0] == -1 && got[1] == 1 && got[2] == 1 && got[4] == 1);
        else
            ck_assert(!memcmp(got, cases[i].expected, sizeof cases[i].expected));
        ck_assert_float_eq(got[5], 9);
    }
}
END_TEST

/* ---- errors ---- */

START_TEST(errors_are_filled_and_cut) {
    xn_error error;
    char text[600];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = 0;
    ck_assert_int_eq(xn_fail(&error, XN_ERR_GEOMETRY, text, "%s", text), XN_ERR_GEOMETRY);
    ck_assert_uint_eq(strlen(error.field), sizeof error.field - 1);
    ck_assert_uint_eq(strlen(error.message), sizeof error.message - 1);
    ck_assert_str_eq(error.limit, "");
    ck_assert_int_eq(xn_fail_limit(&error, "max-elements", "input.shape", "%d over", 3),
                     XN_ERR_LIMIT);
    ck_assert_str_eq(error.limit, "max-elements");
    /* built from its own text */
    ck_assert_int_eq(xn_fail(&error, XN_ERR_IO, error.field, "again: %s", error.message),
                     XN_ERR_IO);
    ck_assert_str_eq(error.message, "again: 3 over");
    ck_assert_str_eq(error.field, "input.shape");
    ck_assert_str_eq(error.limit, "");
    ck_assert_int_eq(xn_fail(NULL, XN_ERR_BUSY, NULL, "nobody listens"), XN_ERR_BUSY);
    ck_assert_int_eq(xn_fail_limit(NULL, "x", NULL, "nobody listens"), XN_ERR_LIMIT);
}
END_TEST

START_TEST(every_status_has_a_name_of_its_own) {
    for (int i = 0; i < XN_STATUS_COUNT; i++) {
        const char *name = xn_status_name((xn_status)i);
        ck_assert_msg(name && *name && strcmp(name, "unknown"), "status %d", i);
        for (int j = 0; j < i; j++)
            ck_assert_str_ne(name, xn_status_name((xn_status)j));
    }
    ck_assert_str_eq(xn_status_name(XN_STATUS_COUNT), "unknown");
    ck_assert_str_eq(xn_status_name(XN_ERR_DEVICE_LOST), "device_lost");
}
END_TEST

XN_SUITE(tensor) {
    Suite *s = suite_create("tensor");
    TCase *t = xn_test_case(s, "tensor", 60);
    tcase_add_test(t, datatypes_have_names_and_sizes);
    tcase_add_test(t, shapes_are_formatted_and_cut_short);
    tcase_add_test(t, elements_and_bytes);
    tcase_add_test(t, bad_shapes_are_refused);
    tcase_add_loop_test(t, every_pattern_widens_and_comes_back, 0, 2);
    tcase_add_loop_test(t, every_boundary_rounds_to_nearest_even, 0, 2);
    tcase_add_loop_test(t, special_values_narrow, 0, 2);
    tcase_add_test(t, every_input_datatype_becomes_fp32);
    tcase_add_test(t, errors_are_filled_and_cut);
    tcase_add_test(t, every_status_has_a_name_of_its_own);
    return s;
}
