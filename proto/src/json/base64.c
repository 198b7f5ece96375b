/* base64.c: base64 text (RFC 4648, section 4) to bytes. Strict: no white space, no missing padding,
 * no bits that are thrown away. */
#include "xn_mem.h"
#include "xn_oip.h"
#include "xn_text.h"

#include <string.h>

#define NONE 0x80 /* in a table of digits: no digit */

static void make_table(uint8_t table[256]) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    memset(table, NONE, 256);
    for (uint8_t i = 0; i < 64; i++)
        table[(unsigned char)digits[i]] = i;
}

static uint32_t digit(const uint8_t table[256], char c) {
    return table[(unsigned char)c];
}

static xn_status fail_digit(const uint8_t table[256], const char *text, size_t at,
                            xn_error *error) {
    char excerpt[XN_TEXT_EXCERPT];
    while (digit(table, text[at]) != NONE)
        at++;
    return xn_fail(error, XN_ERR_MALFORMED, "",
                   "the base64 text has '%s' at byte %zu; it takes A-Z a-z 0-9 + / and, at its end "
                   "only, up to two =",
                   xn_text_excerpt(text + at, 1, excerpt), at);
}

/* The last four, with padding: 1 or 2 bytes of 2 or 3 digits, the rest of whose bits are 0. */
static xn_status decode_tail(const uint8_t table[256], const char *text, size_t at, int digits,
                             uint8_t *out, xn_error *error) {
    uint32_t bits = 0, wrong = 0;
    for (int i = 0; i < digits; i++) {
        const uint32_t value = digit(table, text[at + (size_t)i]);
        wrong |= value;
        bits = bits << 6 | value;
    }
    if (wrong & NONE)
        return fail_digit(table, text, at, error);
    const int spare = digits == 2 ? 4 : 2;
    if (bits & ((1u << spare) - 1))
        return xn_fail(error, XN_ERR_MALFORMED, "",
                       "the base64 text ends with bits that are no byte's, before byte %zu: it was "
                       "cut or changed",
                       at + 4);
    bits >>= spare;
    for (int i = digits - 2; i >= 0; i--, bits >>= 8)
        out[i] = (uint8_t)bits;
    return XN_OK;
}

static xn_status decode(const char *text, size_t length, size_t padding, uint8_t *out,
                        xn_error *error) {
    uint8_t table[256];
    make_table(table);
    const size_t whole = length - (padding ? 4 : 0);
    for (size_t i = 0; i < whole; i += 4, out += 3) {
        const uint32_t a = digit(table, text[i]), b = digit(table, text[i + 1]),
                       c = digit(table, text[i + 2]), d = digit(table, text[i + 3]);
        if ((a | b | c | d) & NONE)
            return fail_digit(table, text, i, error);
        const uint32_t bits = a << 18 | b << 12 | c << 6 | d;
        out[0] = (uint8_t)(bits >> 16);
        out[1] = (uint8_t)(bits >> 8);
        out[2] = (uint8_t)bits;
    }
    return padding ? decode_tail(table, text, whole, 4 - (int)padding, out, error) : XN_OK;
}

/* How many bytes the text stands for, and how many of its characters are padding. */
static xn_status measure(const char *text, size_t length, size_t *bytes, size_t *padding,
                         xn_error *error) {
    *padding = 0;
    if (length % 4)
        return xn_fail(
            error, XN_ERR_MALFORMED, "",
            "the base64 text has %zu characters; it takes a multiple of 4, padded with =", length);
    while (length && *padding < 2 && text[length - 1 - *padding] == '=')
        ++*padding;
    *bytes = length / 4 * 3 - *padding;
    return XN_OK;
}

xn_status xn_base64_decode_in_place(char *text, size_t length, size_t *bytes, xn_error *error) {
    size_t padding;
    xn_status status = measure(text, length, bytes, &padding, error);
    return status ? status : decode(text, length, padding, (uint8_t *)text, error);
}

xn_status xn_base64_decode(const char *text, size_t length, void **out, size_t *bytes,
                           xn_error *error) {
    size_t size = 0, padding;
    xn_status status = measure(text, length, &size, &padding, error);
    if (status)
        return status;
    uint8_t *memory = xn_mem_alloc(size);
    if (!memory)
        return xn_fail(error, XN_ERR_NO_MEMORY, "", "no memory for %zu bytes of base64", size);
    status = decode(text, length, padding, memory, error);
    if (status) {
        xn_mem_free(memory);
        return status;
    }
    *out = memory;
    *bytes = size;
    return XN_OK;
}
