/* json_string.c: the strings that the scanner takes out of a JSON text, decoded; see
 * xn_json_tree.h. */
#include "xn_json_tree.h"
#include "xn_text.h"

#include <string.h>

/* Four hexadecimal digits at text, or -1. */
static int32_t read_unit(const char *text, const char *end) {
    int32_t unit = 0;
    if (end - text < 4)
        return -1;
    for (int i = 0; i < 4; i++) {
        const char c = text[i], low = (char)(c | 0x20);
        if (c >= '0' && c <= '9')
            unit = unit * 16 + (c - '0');
        else if (low >= 'a' && low <= 'f')
            unit = unit * 16 + (low - 'a' + 10);
        else
            return -1;
    }
    return unit;
}

static bool is_surrogate(int32_t unit, int32_t first) {
    return unit >= first && unit < first + 0x400;
}

/* The character behind "\u" at *text, of one unit or a pair; 0 or less where there is none. */
static int32_t read_character(const char **text, const char *end) {
    int32_t unit = read_unit(*text, end);
    if (unit < 0 || is_surrogate(unit, 0xdc00))
        return -1;
    *text += 4;
    if (!is_surrogate(unit, 0xd800))
        return unit;
    if (end - *text < 6 || (*text)[0] != '\\' || (*text)[1] != 'u')
        return -1;
    int32_t low = read_unit(*text + 2, end);
    if (!is_surrogate(low, 0xdc00))
        return -1;
    *text += 6;
    return 0x10000 + ((unit - 0xd800) << 10) + (low - 0xdc00);
}

/* At most 4 bytes, which is less than the escape has. */
static char *write_utf8(int32_t c, char *out) {
    if (c < 0x80) {
        *out++ = (char)c;
        return out;
    }
    const int more = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
    static const int lead[] = {0, 0xc0, 0xe0, 0xf0};
    *out++ = (char)(lead[more] | c >> (6 * more));
    for (int i = more - 1; i >= 0; i--)
        *out++ = (char)(0x80 | (c >> (6 * i) & 0x3f));
    return out;
}

/* The escape behind the '\' at *text, at *out. */
static bool read_escape(const char **text, const char *end, char **out) {
    static const char names[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
    if (*text == end)
        return false;
    const char c = *(*text)++;
    const char *at = c ? strchr(names, c) : NULL;
    int32_t character = at ? values[at - names] : c == 'u' ? read_character(text, end) : -1;
    if (character <= 0)
        return false;
    *out = write_utf8(character, *out);
    return true;
}

bool xn_json_unescape(const xn_json_span *span, char *out, size_t *length) {
    const char *at = span->text, *end = at + span->length;
    char *p = out;
    while (at < end) {
        const unsigned char c = (unsigned char)*at++;
        if (c < ' ')
            return false;
        if (c != '\\')
            *p++ = (char)c;
        else if (!read_escape(&at, end, &p))
            return false;
    }
    *p = 0;
    *length = (size_t)(p - out);
    return xn_text_is_utf8(out);
}
