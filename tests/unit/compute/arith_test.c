/* The arithmetic all backends share: sign, the identities of the dot product, tap ranges. */
#include "xn_arith.h"
#include "xn_test.h"

#include <float.h>
#include <math.h>

START_TEST(sign_is_the_specification_s) {
    static const struct {
        float value;
        uint32_t bit;
    } cases[] = {
        {0.0f, 1},      {-0.0f, 1},      {1, 1},         {-1, 0},       {FLT_MAX, 1},
        {-FLT_MAX, 0},  {INFINITY, 1},   {-INFINITY, 0}, {NAN, 0},      {-NAN, 0},
        {0x1p-149f, 1}, {-0x1p-149f, 0}, {FLT_MIN, 1},   {-FLT_MIN, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        ck_assert_msg(xn_sign_bit(cases[i].value) == cases[i].bit, "sign of %a", cases[i].value);
}
END_TEST

START_TEST(valid_taps_match_counting) {
    for (int kernel = 1; kernel <= 5; kernel++) {
        for (int dilation = 1; dilation <= 4; dilation++) {
            for (int size = 1; size <= 7; size++) {
                for (int start = -20; start <= 10; start++) {
                    int32_t first = -1, last = -1;
                    xn_valid_taps(start, dilation, kernel, size, &first, &last);
                    ck_assert(0 <= first && first <= last && last <= kernel);
                    for (int i = 0; i < kernel; i++) {
                        int at = start + i * dilation;
                        ck_assert_msg((at >= 0 && at < size) == (i >= first && i < last),
                                      "kernel %d dilation %d size %d start %d tap %d: [%d, %d)",
                                      kernel, dilation, size, start, i, first, last);
                    }
                }
            }
        }
    }
}
END_TEST

/* What xn_conv_resolve lets through comes close to 2^31; nothing on the way may pass it. */
START_TEST(valid_taps_at_the_ends_of_int32) {
    int32_t first, last;
    xn_valid_taps(-(INT32_MAX - 2), INT32_MAX - 2, 2, 1, &first, &last);
    ck_assert_int_eq(first, 1);
    ck_assert_int_eq(last, 2);
    xn_valid_taps(-(INT32_MAX - 1), INT32_MAX, 1, 1, &first, &last);
    ck_assert_int_eq(first, last);
    xn_valid_taps(-(INT32_MAX - 1), 1, INT32_MAX, 1, &first, &last);
    ck_assert_int_eq(first, INT32_MAX - 1);
    ck_assert_int_eq(last, INT32_MAX);
    xn_valid_taps(0, INT32_MAX - 1, 2, INT32_MAX, &first, &last);
    ck_assert_int_eq(first, 0);
    ck_assert_int_eq(last, 2);
    xn_valid_taps(INT32_MAX, 1, 1, 1, &first, &last);
    ck_assert_int_eq(first, last);
}
END_TEST

START_TEST(epilogue) {
    ck_assert_float_eq(xn_epilogue_value(4, 0.5f, 3, -1), 5);
    ck_assert_float_eq(xn_epilogue_value(-7, 1, 1, 0), -7);
    ck_assert_float_nan(xn_epilogue_value(0, 1, INFINITY, 0));
    ck_assert_float_nan(xn_epilogue_value(2, 1, NAN, 0));
    ck_assert_float_infinite(xn_epilogue_value(2, 1, 1, -INFINITY));
}
END_TEST

XN_SUITE(arith) {
    Suite *s = suite_create("arith");
    TCase *t = xn_test_case(s, "arith", 60);
    tcase_add_test(t, sign_is_the_specification_s);
    tcase_add_test(t, valid_taps_match_counting);
    tcase_add_test(t, valid_taps_at_the_ends_of_int32);
    tcase_add_test(t, epilogue);
    return s;
}
