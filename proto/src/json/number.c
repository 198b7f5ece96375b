/* number.c: the exact part of reading numbers: cutting long ones, and rounding decided by comparing
 * decimals digit by digit where double arithmetic cannot tell. Also the table of powers of ten. */
#include "xn_number.h"
#include "xn_proto.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

const double xn_pow10_table[XN_POW10_MAX - XN_POW10_MIN + 1] = {
    1e-60, 1e-59, 1e-58, 1e-57, 1e-56, 1e-55, 1e-54, 1e-53, 1e-52, 1e-51, 1e-50, 1e-49, 1e-48,
    1e-47, 1e-46, 1e-45, 1e-44, 1e-43, 1e-42, 1e-41, 1e-40, 1e-39, 1e-38, 1e-37, 1e-36, 1e-35,
    1e-34, 1e-33, 1e-32, 1e-31, 1e-30, 1e-29, 1e-28, 1e-27, 1e-26, 1e-25, 1e-24, 1e-23, 1e-22,
    1e-21, 1e-20, 1e-19, 1e-18, 1e-17, 1e-16, 1e-15, 1e-14, 1e-13, 1e-12, 1e-11, 1e-10, 1e-9,
    1e-8,  1e-7,  1e-6,  1e-5,  1e-4,  1e-3,  1e-2,  1e-1,  1e0,   1e1,   1e2,   1e3,   1e4,
    1e5,   1e6,   1e7,   1e8,   1e9,   1e10,  1e11,  1e12,  1e13,  1e14,  1e15,  1e16,  1e17,
    1e18,  1e19,  1e20,  1e21,  1e22,  1e23,  1e24,  1e25,  1e26,  1e27,  1e28,  1e29,  1e30,
    1e31,  1e32,  1e33,  1e34,  1e35,  1e36,  1e37,  1e38,  1e39,  1e40,  1e41,  1e42,  1e43,
    1e44,  1e45,  1e46,  1e47,  1e48,  1e49,  1e50,  1e51,  1e52,  1e53,  1e54,  1e55,  1e56,
    1e57,  1e58,  1e59,  1e60};

/* A midpoint of two neighbours of binary32, bfloat16 or binary16 has at most 113 significant
 * decimal digits: it is an odd multiple of 2^-150 or more, below 2^25 in units of its last bit.
 * 120 digits of a number, and a last 1 when any digit after them is not 0, therefore compare with
 * a midpoint as the whole number does. */
#define EXACT_DIGITS 120

/* value = 0.DDD... * 10^point; no zero at either end; count 0 is zero. */
typedef struct decimal {
    char digits[EXACT_DIGITS + 1];
    int count;
    int64_t point;
} decimal;

static void strip_zeros(decimal *d) {
    while (d->count && d->digits[d->count - 1] == '0')
        d->count--;
}

static decimal decimal_of(const xn_number *number) {
    decimal out = {.count = 0};
    int64_t dropped = 0;
    bool sticky = false;
    for (const char *p = number->begin; p < number->end && *p != 'e' && *p != 'E'; p++) {
        if (!xn_is_digit(*p) || (*p == '0' && out.count == 0))
            continue; /* the sign, the point, zeros in front */
        if (out.count < EXACT_DIGITS) {
            out.digits[out.count++] = *p;
        } else {
            dropped++;
            sticky = sticky || *p != '0';
        }
    }
    out.point = number->last_exponent + dropped + out.count;
    if (sticky)
        out.digits[out.count++] = '1';
    strip_zeros(&out);
    return out;
}

/* A positive double with at most 120 significant digits, exactly. */
static decimal decimal_of_double(double value) {
    char text[EXACT_DIGITS + 16]; /* "d.ddd...e-324" */
    int length = snprintf(text, sizeof text, "%.*e", EXACT_DIGITS - 1, value);
    decimal out = {.count = 0};
    const char *p = text;
    for (; p < text + length && *p != 'e'; p++)
        if (xn_is_digit(*p)) /* whatever the locale's decimal point is */
            out.digits[out.count++] = *p;
    out.point = strtol(p + 1, NULL, 10) + 1;
    strip_zeros(&out);
    return out;
}

static int decimal_compare(const decimal *a, const decimal *b) {
    if (a->point != b->point)
        return a->point < b->point ? -1 : 1;
    int common = a->count < b->count ? a->count : b->count;
    int order = memcmp(a->digits, b->digits, (size_t)common);
    return order ? order : a->count - b->count;
}

/* The nearest double; no decimal point in the text, so the locale does not matter. */
static double decimal_to_double(const decimal *d) {
    char text[EXACT_DIGITS + 32];
    snprintf(text, sizeof text, "%.*se%d", d->count, d->digits, (int)(d->point - d->count));
    return strtod(text, NULL);
}

/* d is the double nearest to the exact value x. Where d is no midpoint of the format, both lie on
 * the same side of every midpoint (rounding is monotonic and midpoints are doubles), so rounding d
 * is right. Where it is one, x is compared with it exactly. */
float xn_number_round(const xn_number *number, xn_real_format format) {
    float sign = number->negative ? -1.0f : 1.0f;
    decimal exact = decimal_of(number);
    if (exact.count == 0 || exact.point < -60)
        return sign * 0.0f;
    if (exact.point > 60)
        return sign * INFINITY;
    double d = decimal_to_double(&exact);
    int exponent;
    frexp(d, &exponent);
    exponent--; /* d = 1.xxx * 2^exponent */
    int unit = (exponent > format.min_exponent ? exponent : format.min_exponent) - format.bits + 1;
    double scaled = ldexp(d, -unit), whole = floor(scaled), rest = scaled - whole;
    bool up = rest > 0.5;
    if (rest == 0.5) {
        decimal midpoint = decimal_of_double(d);
        int order = decimal_compare(&exact, &midpoint);
        up = order > 0 || (order == 0 && fmod(whole, 2) != 0);
    }
    double rounded = ldexp(whole + up, unit);
    if (rounded >= ldexp(1, format.max_exponent + 1))
        return sign * INFINITY;
    return sign * (float)rounded;
}

void xn_number_cut(xn_number *number) {
    uint64_t value = 0;
    int kept = 0;
    int64_t dropped = 0;
    for (const char *p = number->begin; p < number->end && *p != 'e' && *p != 'E'; p++) {
        if (!xn_is_digit(*p))
            continue;
        if (kept == XN_NUMBER_DIGITS) {
            dropped++;
            continue;
        }
        value = value * 10 + (uint64_t)(*p - '0');
        kept += value != 0;
    }
    number->significand = value;
    number->exponent = number->last_exponent + dropped;
}

bool xn_float_read(const char **text, const char *end, float *out) {
    xn_number number;
    if (!xn_number_scan(*text, end, &number))
        return false;
    *text = number.end;
    *out = xn_number_to_float(&number);
    return true;
}
