/* log_line.c: one line of a log, built in its own memory; see log_line.h. */
#include "log_line.h"

#include "clock.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

void xn_line_begin(xn_line *l, size_t reserve) {
    l->length = 0;
    l->full = false;
    l->limit = sizeof l->bytes - reserve;
}

bool xn_line_rest(xn_line *l) {
    bool cut = l->full;
    l->full = false;
    l->limit = sizeof l->bytes;
    return cut;
}

/* All of it or nothing: an escape or a UTF-8 sequence is never cut. */
void xn_line_put(xn_line *l, const char *bytes, size_t length) {
    if (l->full || length > l->limit - l->length) {
        l->full = true;
        return;
    }
    memcpy(l->bytes + l->length, bytes, length);
    l->length += length;
}

void xn_line_text(xn_line *l, const char *text) {
    xn_line_put(l, text, strlen(text));
}

/* The length of the valid UTF-8 sequence at text (RFC 3629), its code point in *code; 0 if none. */
static size_t utf8_length(const unsigned char *text, size_t left, uint32_t *code) {
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    size_t length = text[0] < 0x80             ? 1
                    : (text[0] & 0xe0) == 0xc0 ? 2
                    : (text[0] & 0xf0) == 0xe0 ? 3
                    : (text[0] & 0xf8) == 0xf0 ? 4
                                               : 0;
    if (!length || length > left)
        return 0;
    uint32_t value = length == 1 ? text[0] : text[0] & (0x7fu >> length);
    for (size_t i = 1; i < length; i++) {
        if ((text[i] & 0xc0) != 0x80)
            return 0;
        value = value << 6 | (text[i] & 0x3fu);
    }
    if (length > 1 && (value < least[length] || value > 0x10ffff || value >> 11 == 0x1b))
        return 0;
    *code = value;
    return length;
}

/* Valid, but must not reach a terminal or a line-wise reader as it is. */
static bool is_unsafe(uint32_t code) {
    return code < 0x20 || (code >= 0x7f && code < 0xa0) || code == 0x2028 || code == 0x2029 ||
           code == 0x200e || code == 0x200f || code == 0x061c ||
           (code >= 0x202a && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069) ||
           code == 0xfeff;
}

/* The letter of a two-character escape that JSON and C have in common, or 0. */
static char short_escape(uint32_t code) {
    switch (code) {
    case '\n':
        return 'n';
    case '\r':
        return 'r';
    case '\t':
        return 't';
    case '\\':
        return '\\';
    default:
        return 0;
    }
}

void xn_line_escaped(xn_line *l, const char *text, size_t length, bool json, const char *extra) {
    const unsigned char *at = (const unsigned char *)text, *end = at + length;
    while (at < end && !l->full) {
        uint32_t code = 0;
        char escape[16];
        size_t n = utf8_length(at, (size_t)(end - at), &code);
        if (!n)
            snprintf(escape, sizeof escape, json ? "\\\\x%02x" : "\\x%02x", *at);
        else if (short_escape(code))
            snprintf(escape, sizeof escape, "\\%c", short_escape(code));
        else if (is_unsafe(code) || (code < 0x80 && strchr(extra, (int)code)))
            snprintf(escape, sizeof escape, "\\u%04x", (unsigned)code);
        else
            escape[0] = 0;
        if (escape[0])
            xn_line_text(l, escape);
        else
            xn_line_put(l, (const char *)at, n);
        at += n ? n : 1;
    }
}

void xn_line_time(xn_line *l) {
    const int64_t now_ms = xn_wall_ns() / XN_NS_PER_MS;
    const time_t now_s = now_ms / 1000;
    struct tm utc;
    char text[64];
    gmtime_r(&now_s, &utc);
    size_t n = strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &utc);
    snprintf(text + n, sizeof text - n, ".%03dZ", (int)(now_ms % 1000));
    xn_line_text(l, text);
}

void xn_line_print(xn_line *l, const char *format, ...) {
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    xn_line_put(l, text,
                length < 0                     ? 0
                : (size_t)length < sizeof text ? (size_t)length
                                               : sizeof text - 1);
}
