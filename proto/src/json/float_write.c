/* float_write.c: a float as the shortest of 6 to 9 significant digits that reads back as the same
 * float.
 *
 * For a float a > 0 with decimal exponent e, the candidate of P digits is n = round(x),
 * x = a * 10^(P-1-e), meaning n * 10^(e-P+1). It reads back as a when it lies within half a unit
 * in the last place of a, that is |n - x| < h with h = ulp/2 * 10^(P-1-e) (half of that below a
 * power of two, whose lower neighbour is twice as near). In double, x < 10^9 has a relative error
 * of at most 2^-52 (table and product), so an absolute one below 2.3e-7; h likewise. Comparing
 * with a margin of 1e-6 is therefore certain, and the few candidates inside the margin are decided
 * by reading them back. Nine digits always do: half a unit of the ninth digit is at most 5e-9 of
 * the value, half an ulp at least 2.9e-8.
 *
 * Lengths: a sign, 9 digits, and the longest of "." + "e-45" and "0.000" make 15 characters. */
#include "xn_number.h"
#include "xn_proto.h"
#include "xn_text.h"

#include <math.h>
#include <string.h>

#define FEWEST_DIGITS 6
#define MOST_DIGITS 9
#define MARGIN 1e-6

/* n * 10^exponent reads back as that float. */
static bool reads_back(uint64_t n, int exponent, float value) {
    char text[32];
    xn_text t = xn_text_over(text, sizeof text);
    xn_text_int(&t, (int64_t)n);
    xn_text_string(&t, "e");
    xn_text_int(&t, exponent);
    const char *at = text;
    float back;
    return xn_float_read(&at, text + t.length, &back) && back == value;
}

static double power_of_two(int exponent) { /* of a normal double */
    uint64_t bits = (uint64_t)(exponent + 1023) << 52;
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* value = *n * 10^result, with the fewest digits. value is positive and finite. */
static int shortest(float value, uint32_t bits, uint64_t *n) {
    double a = value;
    int biased = (int)(bits >> 23);
    int e2 = biased ? biased - 127 : -118 - __builtin_clz(bits);
    int e10 = e2 * 1233 >> 12; /* log10(2) * e2, rounded down: right or one too small */
    if (a >= XN_POW10(e10 + 1))
        e10++;
    double half = power_of_two((biased ? biased : 1) - 127 - 24);
    double half_below = (bits & 0x7fffffu) == 0 && biased > 1 ? half / 2 : half;
    for (int digits = FEWEST_DIGITS;; digits++) {
        int shift = digits - 1 - e10;
        double scale = XN_POW10(shift), x = a * scale;
        *n = (uint64_t)(x + 0.5);
        if (digits == MOST_DIGITS)
            return -shift;
        double off = (double)*n - x;
        double room = (off > 0 ? half : half_below) * scale - fabs(off);
        if (room > MARGIN || (room > -MARGIN && reads_back(*n, -shift, value)))
            return -shift;
    }
}

/* digits * 10^exponent, plainly where that is short, else as d.ddde-N. */
static size_t layout(const char *digits, int count, int exponent, char *text) {
    int point = count + exponent; /* value = 0.DDD * 10^point */
    char *p = text;
    if (exponent >= 0 && point <= 10) {
        memcpy(p, digits, (size_t)count);
        memset(p + count, '0', (size_t)exponent);
        return (size_t)point;
    }
    if (point > 0 && exponent < 0) {
        memcpy(p, digits, (size_t)point);
        p[point] = '.';
        memcpy(p + point + 1, digits + point, (size_t)(count - point));
        return (size_t)count + 1;
    }
    if (point <= 0 && point > -4) {
        memcpy(p, "0.000", 5);
        p += 2 - point;
        memcpy(p, digits, (size_t)count);
        return (size_t)(2 - point + count);
    }
    *p++ = digits[0];
    if (count > 1) {
        *p++ = '.';
        memcpy(p, digits + 1, (size_t)(count - 1));
        p += count - 1;
    }
    *p++ = 'e';
    int e = point - 1;
    if (e < 0)
        *p++ = '-';
    p += xn_text_u64((uint64_t)(e < 0 ? -e : e), p);
    return (size_t)(p - text);
}

size_t xn_float_write(float value, char *text) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    char *p = text;
    uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude >= 0x7f800000u) {
        memcpy(text, "null", 4);
        return 4;
    }
    if (bits >> 31)
        *p++ = '-';
    float a = fabsf(value);
    if (a < 1e7f && a == (float)(uint32_t)a) {
        p += xn_text_u64((uint32_t)a, p);
        if (magnitude == 0 && p != text + 1) { /* "-0" may be read as the integer 0 */
            memcpy(p, ".0", 2);
            p += 2;
        }
        return (size_t)(p - text);
    }
    uint64_t n;
    int exponent = shortest(a, magnitude, &n);
    while (n % 10 == 0) {
        n /= 10;
        exponent++;
    }
    char digits[20];
    int count = (int)xn_text_u64(n, digits);
    return (size_t)(p - text) + layout(digits, count, exponent, p);
}
