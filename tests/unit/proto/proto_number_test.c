/* Numbers: the float reader against strtof, the writer against the shortest %.Ng that reads back,
 * the halves against exact halving of intervals. */
#include "xn_proto.h"
#include "xn_test.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static float float_of(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint32_t bits_of(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* Reads text from a block of exactly its size, so that a sanitizer sees any byte read past it. Not
 * inlined: gcc 12 would move the difference of the pointers past free, and warn of it. */
__attribute__((noinline)) static bool read_exactly(const char *text, size_t length, float *out,
                                                   size_t *used) {
    char *copy = malloc(length ? length : 1);
    ck_assert_ptr_nonnull(copy);
    memcpy(copy, text, length);
    const char *at = copy;
    bool ok = xn_float_read(&at, copy + length, out);
    *used = (size_t)(at - copy);
    free(copy);
    return ok;
}

static void check_reads_as_strtof(const char *text) {
    float got = 0, expected = strtof(text, NULL);
    size_t used;
    ck_assert_msg(read_exactly(text, strlen(text), &got, &used), "\"%s\" was not read", text);
    ck_assert_msg(used == strlen(text), "\"%s\": %zu characters used", text, used);
    ck_assert_msg(bits_of(got) == bits_of(expected), "\"%s\": got %a, strtof gives %a, seed %llu",
                  text, (double)got, (double)expected, (unsigned long long)xn_test_seed());
}

START_TEST(reads_edges) {
    static const char *const texts[] = {
        "0",
        "-0",
        "0.0",
        "-0.0",
        "0e99999",
        "-0e-99999999999999999999",
        "1",
        "-1",
        "0.1",
        "3.25",
        "16777215",
        "16777216",
        "16777217",
        "16777219",
        "16777217.0000000000000000000000000001",
        "16777216.9999999999999999999999999999",
        "9007199254740993",
        "18446744073709551615",
        "18446744073709551616",
        "99999999999999999999",
        "123456789012345678901234567890e-10",
        "3.4028234e38",
        "3.40282347e38",
        "3.4028235677973366e38",
        "3.4028235677973365e38",
        "340282356779733661637539395458142568447",
        "340282356779733661637539395458142568448",
        "1.17549435e-38",
        "1.1754943e-38",
        "1.17549421e-38",
        "1.401298464e-45",
        "7.006492321e-46",
        "7.0064923216240853546186479164495806564013097093825788587853e-46",
        "7.0064923216240853546186479164495806564013097093825788587854e-46",
        "7e-46",
        "1e-46",
        "1e39",
        "-1e39",
        "1e400",
        "1e-400",
        "1e999999999999999999999",
        "1e-999999999999999999999",
        "0.000000000000000000000000000000000000000000001401298464324817",
        "1E5",
        "1e+5",
        "1E-5",
        "12345678.12345678",
        "0.12345678901234567",
        "8.5899345920000000000000001e9",
        "0.50000002980232238769531250000",
        "0.5000000298023223876953125000000000000000000000001"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        check_reads_as_strtof(texts[i]);
}
END_TEST

START_TEST(reads_long_texts) {
    /* A midpoint, then a thousand zeros, then a 1: only the last digit says to round up. */
    static char text[2400];
    size_t length = (size_t)snprintf(text, sizeof text, "16777217.");
    memset(text + length, '0', 1000);
    length += 1000;
    text[length] = 0;
    check_reads_as_strtof(text);
    memcpy(text + length, "1", 2);
    check_reads_as_strtof(text);
    /* A thousand zeros on either side of the point, undone by the exponent. */
    length = (size_t)snprintf(text, sizeof text, "0.");
    memset(text + length, '0', 1000);
    memcpy(text + length + 1000, "25e1001", 8);
    check_reads_as_strtof(text);
    text[0] = '3';
    memset(text + 1, '0', 1000);
    memcpy(text + 1001, "e-1000", 7);
    check_reads_as_strtof(text);
}
END_TEST

START_TEST(refuses_what_is_no_json_number) {
    static const struct {
        const char *text;
        int used; /* -1: refused */
    } cases[] = {{"", -1},    {"-", -1},    {"+1", -1},  {".5", -1},   {"-.5", -1},
                 {"1.", -1},  {"1.e5", -1}, {"01", -1},  {"-01", -1},  {"00", -1},
                 {"1e", -1},  {"1e+", -1},  {"1e-", -1}, {"NaN", -1},  {"Infinity", -1},
                 {"inf", -1}, {"abc", -1},  {" 1", -1},  {"--1", -1},  {"0x10", 1},
                 {"1 ", 1},   {"1,2", 1},   {"1]", 1},   {"1.5.5", 3}, {"1e5e5", 3},
                 {"-0", 2},   {"0", 1},     {"10", 2},   {"1.50,", 4}, {"12345678.12345678x", 17}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        float value = 7;
        size_t used;
        bool ok = read_exactly(cases[i].text, strlen(cases[i].text), &value, &used);
        ck_assert_msg(ok == (cases[i].used >= 0), "\"%s\": %s", cases[i].text,
                      ok ? "read" : "refused");
        if (ok)
            ck_assert_msg((int)used == cases[i].used, "\"%s\": %zu", cases[i].text, used);
    }
}
END_TEST

START_TEST(reads_random_texts) {
    xn_rng rng = {xn_test_seed()};
    char text[300];
    for (int i = 0; i < 400000; i++) {
        float f = float_of((uint32_t)xn_rng_next(&rng));
        if (!isfinite(f))
            continue;
        double middle = ((double)f + (double)nextafterf(f, INFINITY)) / 2;
        int digits = (int)xn_rng_below(&rng, 130);
        switch (i % 5) {
        case 0:
            snprintf(text, sizeof text, "%.9g", (double)f);
            break;
        case 1: /* a midpoint, cut somewhere */
            snprintf(text, sizeof text, "%.*e", digits, middle);
            break;
        case 2: { /* a midpoint and a little more or less */
            snprintf(text, sizeof text, "%.125e", middle);
            char *e = strchr(text, 'e');
            if (e)
                e[-1] = i % 2 ? '1' : '0';
            break;
        }
        case 3:
            snprintf(text, sizeof text, "%.17g", (double)xn_rng_float(&rng));
            break;
        default:
            snprintf(text, sizeof text, "%llu.%llue%d",
                     (unsigned long long)(xn_rng_next(&rng) >> xn_rng_below(&rng, 64)),
                     (unsigned long long)(xn_rng_next(&rng) >> xn_rng_below(&rng, 64)),
                     (int)xn_rng_below(&rng, 120) - 65);
        }
        if (!strstr(text, "inf"))
            check_reads_as_strtof(text);
    }
}
END_TEST

/* ---- writing ---- */

/* Significant digits in a number's text. */
static int significant_digits(const char *text) {
    int count = 0, zeros = 0;
    for (; *text && *text != 'e'; text++) {
        if (*text == '0') {
            zeros += count > 0;
        } else if (*text >= '1' && *text <= '9') {
            count += zeros + 1;
            zeros = 0;
        }
    }
    return count;
}

static void check_write(uint32_t bits) {
    float value = float_of(bits);
    char text[XN_FLOAT_CHARS + 1], shortest[32];
    size_t length = xn_float_write(value, text);
    ck_assert_uint_lt(length, XN_FLOAT_CHARS); /* a comma fits behind it */
    text[length] = 0;
    const char *at = text;
    float back;
    ck_assert_msg(xn_float_read(&at, text + length, &back) && at == text + length,
                  "%08x is written \"%s\", which is no JSON number", bits, text);
    ck_assert_msg(bits_of(strtof(text, NULL)) == bits && bits_of(back) == bits,
                  "%08x is written \"%s\" and reads back as %a, seed %llu", bits, text,
                  (double)strtof(text, NULL), (unsigned long long)xn_test_seed());
    int digits = 6;
    while (digits < 9) {
        snprintf(shortest, sizeof shortest, "%.*e", digits - 1, (double)value);
        if (bits_of(strtof(shortest, NULL)) == bits)
            break;
        digits++;
    }
    ck_assert_msg(significant_digits(text) <= digits, "%08x is written \"%s\"; %d digits do", bits,
                  text, digits);
}

START_TEST(writes_all_exponents) {
    static const uint32_t fractions[] = {0,        1,        2,        0x3fffff,
                                         0x400000, 0x400001, 0x7ffffe, 0x7fffff,
                                         0x4ccccd, 0x1999ba, 0x555555, 0x2aaaab};
    for (uint32_t exponent = 0; exponent < 255; exponent++)
        for (size_t i = 0; i < sizeof fractions / sizeof *fractions; i++)
            for (uint32_t sign = 0; sign < 2; sign++)
                check_write(sign << 31 | exponent << 23 | fractions[i]);
}
END_TEST

START_TEST(writes_random_bits) {
    xn_rng rng = {xn_test_seed() + 1};
    for (int i = 0; i < 2000000; i++) {
        uint32_t bits = (uint32_t)xn_rng_next(&rng);
        if ((bits & 0x7f800000u) == 0x7f800000u)
            bits &= 0xbfffffffu;
        if (i % 8) { /* checked fully one time in eight, for speed */
            char text[XN_FLOAT_CHARS + 1];
            size_t length = xn_float_write(float_of(bits), text);
            text[length] = 0;
            ck_assert_msg(bits_of(strtof(text, NULL)) == bits, "%08x is written \"%s\", seed %llu",
                          bits, text, (unsigned long long)xn_test_seed());
        } else {
            check_write(bits);
        }
    }
}
END_TEST

START_TEST(writes_expected_texts) {
    static const struct {
        float value;
        const char *text;
    } cases[] = {{0.0f, "0"},
                 {-0.0f, "-0.0"},
                 {3.0f, "3"},
                 {-3.0f, "-3"},
                 {0.5f, "0.5"},
                 {0.1f, "0.1"},
                 {-2.25f, "-2.25"},
                 {100.0f, "100"},
                 {9999999.0f, "9999999"},
                 {10000000.0f, "10000000"},
                 {16777216.0f, "16777216"},
                 {1e9f, "1000000000"},
                 {1e10f, "1e10"},
                 {1e-3f, "0.001"},
                 {1e-4f, "0.0001"},
                 {1e-5f, "1e-5"},
                 {3.40282347e38f, "3.4028235e38"},
                 {-1.17549435e-38f, "-1.1754944e-38"},
                 {1.40129846e-45f, "1.4013e-45"},
                 {NAN, "null"},
                 {INFINITY, "null"},
                 {-INFINITY, "null"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[XN_FLOAT_CHARS + 1];
        text[xn_float_write(cases[i].value, text)] = 0;
        ck_assert_str_eq(text, cases[i].text);
    }
}
END_TEST

/* ---- halves ---- */

static bool read_value(xn_datatype datatype, const char *text, void *out, xn_error *error) {
    xn_tensor_ref ref = {.present = true, .datatype = datatype, .elements = 1};
    ref.shape = (xn_shape){1, {1}};
    ref.bytes = xn_datatype_bytes(datatype);
    ref.text = text;
    ref.text_length = strlen(text);
    return xn_proto_tensor_read(&ref, "input", out, error) == XN_OK;
}

/* Every finite value of the format reads as itself; a midpoint goes to the even neighbour, and a
 * digit 30 places behind it decides otherwise. `largest` is the greatest finite pattern. */
static void check_half_format(xn_datatype datatype, float (*to_float)(uint16_t), uint16_t largest) {
    char text[400], digits[300];
    xn_error error;
    for (uint32_t pattern = 0; pattern < largest; pattern++) {
        uint16_t got = 0xffff;
        double low = to_float((uint16_t)pattern), high = to_float((uint16_t)(pattern + 1));
        snprintf(text, sizeof text, "[%.9g]", low);
        ck_assert(read_value(datatype, text, &got, &error));
        ck_assert_msg(got == pattern, "%s: got %04x, not %04x", text, got, pattern);
        snprintf(digits, sizeof digits, "%.150e", (low + high) / 2);
        char *e = strchr(digits, 'e');
        ck_assert_ptr_nonnull(e);
        *e = 0;
        snprintf(text, sizeof text, "[%se%s]", digits, e + 1);
        ck_assert(read_value(datatype, text, &got, &error));
        ck_assert_msg(got == pattern + (pattern & 1), "%s: got %04x between %04x", text, got,
                      pattern);
        snprintf(text, sizeof text, "[%s1e%s]", digits, e + 1);
        ck_assert(read_value(datatype, text, &got, &error));
        ck_assert_msg(got == pattern + 1, "%s: got %04x above %04x", text, got, pattern);
        snprintf(text, sizeof text, "[-%.17g]", low + (high - low) * 0.4999);
        ck_assert(read_value(datatype, text, &got, &error));
        ck_assert_msg(got == (pattern | 0x8000u), "%s: got %04x", text, got);
    }
}

START_TEST(reads_every_half) {
    check_half_format(XN_FP16, xn_fp16_to_fp32, 0x7bff);
}
END_TEST

START_TEST(reads_every_bfloat) {
    check_half_format(XN_BF16, xn_bf16_to_fp32, 0x7f7f);
}
END_TEST

START_TEST(refuses_overflow) {
    static const struct {
        xn_datatype datatype;
        const char *text;
        bool fits;
    } cases[] = {{XN_FP16, "[65504]", true},
                 {XN_FP16, "[65519.9999999999999999999999]", true},
                 {XN_FP16, "[65520]", false},
                 {XN_FP16, "[-1e300]", false},
                 {XN_BF16, "[3.3895313892515355e38]", true},
                 {XN_BF16, "[3.4e38]", false},
                 {XN_FP32, "[3.4028235677973365e38]", true},
                 {XN_FP32, "[3.4028235677973367e38]", false},
                 {XN_FP32, "[-1e39]", false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint32_t out;
        xn_error error = {0};
        bool ok = read_value(cases[i].datatype, cases[i].text, &out, &error);
        ck_assert_msg(ok == cases[i].fits, "%s", cases[i].text);
        if (!ok)
            ck_assert_msg(strstr(error.message, "input.data[0] is ") &&
                              strstr(error.message, "out of the range"),
                          "%s", error.message);
    }
}
END_TEST

XN_SUITE(proto_number) {
    Suite *s = suite_create("proto_number");
    TCase *t = xn_test_case(s, "numbers", 240);
    tcase_add_test(t, reads_edges);
    tcase_add_test(t, reads_long_texts);
    tcase_add_test(t, refuses_what_is_no_json_number);
    tcase_add_test(t, reads_random_texts);
    tcase_add_test(t, writes_all_exponents);
    tcase_add_test(t, writes_random_bits);
    tcase_add_test(t, writes_expected_texts);
    tcase_add_test(t, reads_every_half);
    tcase_add_test(t, reads_every_bfloat);
    tcase_add_test(t, refuses_overflow);
    return s;
}
