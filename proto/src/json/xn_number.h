/* xn_number.h: a JSON number from text to float, correctly rounded, inline because it is the inner
 * loop of reading a tensor.
 *
 * The scan gives value = significand * 10^exponent with the first 19 significant digits in a
 * uint64. The fast way multiplies in double: d = (double)significand * 10^exponent, the power from
 * a table of correctly rounded doubles. Its relative error is at most
 *     2^-53 (significand to double) + 2^-53 (table) + 2^-53 (product) + 10^-18 (digits past the
 *     19th) < 4 * 2^-53, which is under 4 units in the last place of d.
 * Rounding d to float gives what rounding the exact value gives, unless a midpoint of two floats
 * lies between the two: midpoints of normal floats are the doubles whose low 29 bits are 2^28, so
 * a d whose low bits are not within 8 of that is safe. The rest (about one number in 30 million,
 * and numbers outside the normal range) goes to xn_number_round, which compares decimals exactly.
 *
 * Needs round-to-nearest and doubles evaluated as doubles (FLT_EVAL_METHOD 0, as on x86-64 and
 * AArch64). */
#ifndef XN_NUMBER_H
#define XN_NUMBER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define XN_POW10_MIN (-60)
#define XN_POW10_MAX 60
extern const double xn_pow10_table[XN_POW10_MAX - XN_POW10_MIN + 1];
#define XN_POW10(exponent) (xn_pow10_table[(exponent)-XN_POW10_MIN])

#define XN_NUMBER_DIGITS 19 /* the most decimal digits that always fit a uint64 */

typedef struct xn_number {
    uint64_t significand;  /* the first 19 significant digits */
    int64_t exponent;      /* value = significand * 10^exponent, but for the digits cut off */
    int64_t last_exponent; /* power of ten of the last digit in the text */
    const char *begin, *end;
    bool negative;
    bool integer; /* neither '.' nor 'e' in the text */
} xn_number;

/* A binary floating-point format by its significand bits (hidden one included) and the exponents
 * of its least normal and greatest numbers: values 1.xxx * 2^e, min <= e <= max. */
typedef struct xn_real_format {
    int bits, min_exponent, max_exponent;
} xn_real_format;

/* The value rounded to nearest even in that format, exactly; as a float, which holds every value
 * of the formats used here. Overflow gives an infinity. Slow. */
float xn_number_round(const xn_number *number, xn_real_format format);

/* The first 19 significant digits of a number with more digits in its text than that. */
void xn_number_cut(xn_number *number);

static inline bool xn_is_digit(char c) {
    return (unsigned char)(c - '0') < 10;
}

/* The digits at text, up to 8 of them, at once: *value gets the number they make. Returns how many.
 * No branch depends on the count, which random data would make the processor guess wrong. Reads 8
 * bytes. Little-endian: the first character is the low byte. */
static inline int xn_eight_digits(const char *text, uint64_t *value) {
    uint64_t v;
    memcpy(&v, text, sizeof v);
    v ^= 0x3030303030303030u; /* digits become 0 .. 9, all else 10 and more */
    /* High bits where there is no digit; a carry out of such a byte reaches only bytes after it. */
    uint64_t others = ((v + 0x7676767676767676u) | v) & 0x8080808080808080u;
    int count = others ? __builtin_ctzll(others) >> 3 : 8;
    v = count ? v << (64 - 8 * count) : 0; /* zeros in front, what is no digit shifted out */
    v = v * 10 + (v >> 8);                 /* pairs, in every other byte */
    v = ((v & 0x000000ff000000ffu) * 0x000f424000000064u +
         ((v >> 16) & 0x000000ff000000ffu) * 0x0000271000000001u) >>
        32;
    *value = v & 0xffffffffu;
    return count;
}

/* Appends the digits at *text to *value (modulo 2^64) and advances past them. */
static inline void xn_take_digits(const char **text, const char *end, uint64_t *value) {
    const char *p = *text;
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    static const uint64_t powers[] = {1,      10,      100,      1000,     10000,
                                      100000, 1000000, 10000000, 100000000};
    while (end - p >= 8) {
        uint64_t eight;
        int count = xn_eight_digits(p, &eight);
        *value = *value * powers[count] + eight;
        p += count;
        if (count < 8) {
            *text = p;
            return;
        }
    }
#endif
    for (; p < end && xn_is_digit(*p); p++)
        *value = *value * 10 + (uint64_t)(*p - '0');
    *text = p;
}

/* Scans number = [ "-" ] int [ "." digits ] [ ( "e" / "E" ) [ "+" / "-" ] digits ] at text (RFC
 * 8259: no '+', no leading zeros, digits on both sides of the point). False when there is none. */
static inline bool xn_number_scan(const char *text, const char *end, xn_number *out) {
    const char *p = text;
    out->begin = text;
    out->negative = p < end && *p == '-';
    p += out->negative;
    const char *first = p;
    uint64_t value = 0;
    if (end - p >= 2 && xn_is_digit(p[0]) && p[1] == '.') /* 0.1234: very common */
        value = (uint64_t)(*p++ - '0');
    else
        xn_take_digits(&p, end, &value);
    ptrdiff_t digits = p - first;
    if (digits == 0 || (digits > 1 && *first == '0'))
        return false;
    int64_t exponent = 0;
    out->integer = true;
    if (p < end && *p == '.') {
        const char *fraction = ++p;
        xn_take_digits(&p, end, &value);
        if (p == fraction)
            return false;
        exponent = fraction - p;
        digits -= exponent;
        out->integer = false;
    }
    if (p < end && (*p == 'e' || *p == 'E')) {
        p++;
        bool down = p < end && *p == '-';
        p += p < end && (*p == '-' || *p == '+');
        const char *power = p;
        int64_t e = 0;
        for (; p < end && xn_is_digit(*p); p++)
            if (e < INT64_C(1000000000000000)) /* far past any length of digits */
                e = e * 10 + (*p - '0');
        if (p == power)
            return false;
        exponent += down ? -e : e;
        out->integer = false;
    }
    out->significand = value;
    out->exponent = out->last_exponent = exponent;
    out->end = p;
    if (digits > XN_NUMBER_DIGITS)
        xn_number_cut(out);
    return true;
}

/* |value| as a double within 4 units in the last place; false when the power is off the table. */
static inline bool xn_number_approximate(const xn_number *number, double *out) {
    if (number->exponent < XN_POW10_MIN || number->exponent > XN_POW10_MAX)
        return false;
    *out = (double)number->significand * XN_POW10(number->exponent);
    return true;
}

/* The correctly rounded float; overflow gives an infinity. */
static inline float xn_number_to_float(const xn_number *number) {
    double d;
    if (number->significand == 0)
        return number->negative ? -0.0f : 0.0f;
    if (xn_number_approximate(number, &d) && d >= 0x1.0001p-126 && d < 0x1.fffffp127) {
        uint64_t bits;
        memcpy(&bits, &d, sizeof bits);
        uint32_t low = (uint32_t)bits & 0x1fffffffu;
        if (low - (0x10000000u - 8) > 16) {
            float f = (float)d;
            return number->negative ? -f : f;
        }
    }
    return xn_number_round(number, (xn_real_format){24, -126, 127});
}

#endif
