/* text.c: bounded text building; see xn_text.h. */
#include "xn_text.h"

#include <stdio.h>
#include <string.h>

void xn_text_bytes(xn_text *text, const char *bytes, size_t length) {
    if (length > text->size - text->length) {
        text->overflow = true;
        return;
    }
    memcpy(text->data + text->length, bytes, length);
    text->length += length;
}

void xn_text_string(xn_text *text, const char *string) {
    xn_text_bytes(text, string, strlen(string));
}

size_t xn_text_u64(uint64_t value, char *out) {
    char reversed[20];
    size_t n = 0;
    do {
        reversed[n++] = (char)('0' + value % 10);
        value /= 10;
    } while (value);
    for (size_t i = 0; i < n; i++)
        out[i] = reversed[n - 1 - i];
    return n;
}

void xn_text_int(xn_text *text, int64_t value) {
    char digits[24];
    uint64_t magnitude = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    digits[0] = '-';
    size_t n = xn_text_u64(magnitude, digits + 1);
    xn_text_bytes(text, digits + (value >= 0), n + (value < 0));
}

void xn_text_thousandths(xn_text *text, int64_t value) {
    uint64_t magnitude = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    char number[32];
    size_t n = 0;
    if (value < 0)
        number[n++] = '-';
    n += xn_text_u64(magnitude / 1000, number + n);
    number[n++] = '.';
    for (unsigned rest = (unsigned)(magnitude % 1000), unit = 100; unit; unit /= 10)
        number[n++] = (char)('0' + rest / unit % 10);
    xn_text_bytes(text, number, n);
}

size_t xn_text_utf8(const char *string) {
    const unsigned char *s = (const unsigned char *)string;
    if (s[0] < 0x80)
        return 1;
    size_t length = s[0] >= 0xf0 ? 4 : s[0] >= 0xe0 ? 3 : 2;
    if (s[0] < 0xc2 || s[0] > 0xf4)
        return 0;
    /* The second byte's range excludes overlong forms, surrogates and what is past U+10FFFF. */
    unsigned low = s[0] == 0xe0 ? 0xa0 : s[0] == 0xf0 ? 0x90 : 0x80;
    unsigned high = s[0] == 0xed ? 0x9f : s[0] == 0xf4 ? 0x8f : 0xbf;
    if (s[1] < low || s[1] > high)
        return 0;
    for (size_t i = 2; i < length; i++)
        if ((s[i] & 0xc0) != 0x80)
            return 0;
    return length;
}

bool xn_text_is_utf8(const char *string) {
    size_t length = 1;
    for (; *string && length; string += length)
        length = xn_text_utf8(string);
    return length > 0;
}

void xn_text_escaped(xn_text *text, const char *string, size_t limit) {
    static const char hex[] = "0123456789abcdef";
    const char *s = string;
    if (limit > text->size)
        limit = text->size;
    while (*s) {
        char unit[6] = {'\\', 'u', '0', '0', 0, 0};
        const char *bytes = unit;
        size_t length, consumed = xn_text_utf8(s);
        if (consumed == 0) {
            bytes = "\xef\xbf\xbd"; /* U+FFFD */
            length = 3;
            consumed = 1;
        } else if (*s == '"' || *s == '\\') {
            unit[1] = *s;
            length = 2;
        } else if ((unsigned char)*s < 0x20 || *s == 0x7f) {
            unit[4] = hex[*s >> 4];
            unit[5] = hex[*s & 15];
            length = 6;
        } else {
            bytes = s;
            length = consumed;
        }
        if (text->length > limit || length > limit - text->length) {
            text->overflow = true;
            return;
        }
        xn_text_bytes(text, bytes, length);
        s += consumed;
    }
}

const char *xn_text_excerpt(const char *bytes, size_t length, char out[XN_TEXT_EXCERPT]) {
    size_t kept = length > 40 ? 40 : length;
    for (size_t i = 0; i < kept; i++)
        out[i] = (char)(bytes[i] >= ' ' && bytes[i] <= '~' ? bytes[i] : '?');
    memcpy(out + kept, length > kept ? "..." : "", length > kept ? 4 : 1);
    return out;
}

const char *xn_text_list(const char *const *names, char *out, size_t size) {
    xn_text text = xn_text_over(out, size - 1);
    for (int i = 0; names[i]; i++) {
        xn_text_string(&text, i ? ", " : "");
        xn_text_string(&text, names[i]);
    }
    out[text.length] = 0;
    return out;
}

/* ---- near misses ---- */

enum { MOST_COMPARED = 40 }; /* characters of a word; longer ones are like none */

static char lower(char c) {
    return c >= 'A' && c <= 'Z' ? (char)(c + 32) : c;
}

static int least(int a, int b) {
    return a < b ? a : b;
}

/* Insertions, deletions, replacements and swaps of neighbours that make b of a. */
static int edits(const char *a, size_t a_length, const char *b, size_t b_length) {
    int rows[3][MOST_COMPARED + 1];
    for (size_t j = 0; j <= b_length; j++)
        rows[0][j] = (int)j;
    for (size_t i = 1; i <= a_length; i++) {
        int *now = rows[i % 3];
        const int *last = rows[(i + 2) % 3], *before = rows[(i + 1) % 3];
        now[0] = (int)i;
        for (size_t j = 1; j <= b_length; j++) {
            bool same = lower(a[i - 1]) == lower(b[j - 1]);
            now[j] = least(least(last[j], now[j - 1]) + 1, last[j - 1] + !same);
            if (i > 1 && j > 1 && lower(a[i - 1]) == lower(b[j - 2]) &&
                lower(a[i - 2]) == lower(b[j - 1]))
                now[j] = least(now[j], before[j - 2] + 1);
        }
    }
    return rows[a_length % 3][b_length];
}

const char *xn_text_nearest(const char *word, const char *const *names) {
    size_t length = strnlen(word, MOST_COMPARED + 1);
    const char *best = NULL;
    if (length == 0 || length > MOST_COMPARED)
        return NULL;
    int fewest = 1 + (int)(length > 4 ? (length - 1) / 3 : length > 2); /* more are no near miss */
    for (; *names; names++) {
        size_t name_length = strlen(*names);
        if (name_length > MOST_COMPARED)
            continue;
        int count = edits(word, length, *names, name_length);
        if (count < fewest) {
            fewest = count;
            best = *names;
        }
    }
    return best;
}

const char *xn_text_hint(const char *word, const char *const *names, char out[XN_TEXT_HINT]) {
    const char *nearest = xn_text_nearest(word, names);
    out[0] = 0;
    if (nearest)
        snprintf(out, XN_TEXT_HINT, "; did you mean \"%s\"?", nearest);
    return out;
}
