/* half_test.c: every instruction set turns binary16 to fp32 and back as the plain C of xn_tensor.h
 * does: all 65,536 halves, floats around every half and spread over all bit patterns, and any
 * length. */
#include "sets.h"
#include "xn_tensor.h"
#include "xn_test.h"

#include <math.h>
#include <string.h>

enum { HALVES = 1 << 16, LENGTHS = 40 };

static float float_of(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static bool same_float(float a, float b) {
    return (isnan(a) && isnan(b)) || memcmp(&a, &b, sizeof a) == 0;
}

static bool is_nan(uint16_t half) {
    return (half & 0x7fffu) > 0x7c00u;
}

START_TEST(every_half) {
    static uint16_t halves[HALVES];
    static float floats[HALVES];
    const xn_cpu_set *set = NULL;
    for (int i = 0; i < HALVES; i++)
        halves[i] = (uint16_t)i;
    for (int n = 0; (set = xn_cpu_set_at(n)); n++) {
        set->kernels->from_fp16(halves, HALVES, floats);
        for (int i = 0; i < HALVES; i++)
            if (!same_float(floats[i], xn_fp16_to_fp32(halves[i]))) /* an assertion takes 10 us */
                ck_abort_msg("%s: half 0x%04x is %a", set->name, i, (double)floats[i]);
    }
}
END_TEST

static void check_floats(const float *floats, int32_t count) {
    static uint16_t halves[HALVES];
    const xn_cpu_set *set = NULL;
    for (int n = 0; (set = xn_cpu_set_at(n)); n++) {
        set->kernels->to_fp16(floats, count, halves);
        for (int32_t i = 0; i < count; i++) {
            uint16_t right = xn_fp32_to_fp16(floats[i]);
            if (halves[i] != right && !(is_nan(halves[i]) && is_nan(right)))
                ck_abort_msg("%s: %a is 0x%04x, not 0x%04x", set->name, (double)floats[i],
                             halves[i], right);
        }
    }
}

/* Each half, the middle between it and the next one up, and the floats on both sides of that. */
START_TEST(floats_around_every_half) {
    static float floats[HALVES];
    for (int part = 0; part < 4; part++) {
        for (int i = 0; i < HALVES; i++) {
            float low = xn_fp16_to_fp32((uint16_t)i), high = xn_fp16_to_fp32((uint16_t)(i + 1));
            float middle = low + (high - low) / 2;
            floats[i] = part == 0   ? low
                        : part == 1 ? middle
                        : part == 2 ? nextafterf(middle, INFINITY)
                                    : nextafterf(middle, -INFINITY);
        }
        check_floats(floats, HALVES);
    }
}
END_TEST

START_TEST(floats_of_all_patterns) {
    static float floats[HALVES];
    for (uint32_t part = 0; part < 16; part++) {
        for (uint32_t i = 0; i < HALVES; i++)
            floats[i] = float_of((i * 16 + part) * 4099);
        check_floats(floats, HALVES);
    }
}
END_TEST

/* Nothing past the end is written. */
START_TEST(any_length) {
    uint16_t halves[LENGTHS + 1];
    float floats[LENGTHS + 1];
    const xn_cpu_set *set = NULL;
    for (int n = 0; (set = xn_cpu_set_at(n)); n++)
        for (int32_t length = 0; length <= LENGTHS; length++) {
            for (int i = 0; i <= LENGTHS; i++) {
                floats[i] = (float)i;
                halves[i] = 0x7777;
            }
            set->kernels->to_fp16(floats, length, halves);
            for (int i = 0; i <= LENGTHS; i++)
                ck_assert_int_eq(halves[i], i < length ? xn_fp32_to_fp16((float)i) : 0x7777);
            for (int i = 0; i <= LENGTHS; i++)
                floats[i] = -1.0f;
            set->kernels->from_fp16(halves, length, floats);
            for (int i = 0; i <= LENGTHS; i++)
                ck_assert_float_eq(floats[i], i < length ? (float)i : -1.0f);
        }
}
END_TEST

XN_SUITE(half) {
    Suite *s = suite_create("half");
    TCase *t = xn_test_case(s, "conversions", 120);
    tcase_add_test(t, every_half);
    tcase_add_test(t, floats_around_every_half);
    tcase_add_test(t, floats_of_all_patterns);
    tcase_add_test(t, any_length);
    return s;
}
