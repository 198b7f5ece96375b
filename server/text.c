/* text.c: see text.h. */
#include "text.h"

#include "xn_mem.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static bool reserve(xn_text *text, size_t more) {
    if (text->failed)
        return false;
    if (text->capacity - text->length > more)
        return true;
    size_t capacity = (text->capacity + more) * 2 + 256;
    char *bytes = xn_mem_alloc(capacity);
    if (!bytes) {
        text->failed = true;
        return false;
    }
    if (text->length)
        memcpy(bytes, text->bytes, text->length);
    xn_mem_free(text->bytes);
    text->bytes = bytes;
    text->capacity = capacity;
    return true;
}

void xn_text_append(xn_text *text, const char *format, ...) {
    va_list list, again;
    va_start(list, format);
    va_copy(again, list);
    int length = vsnprintf(NULL, 0, format, list);
    va_end(list);
    if (length < 0)
        text->failed = true;
    else if (reserve(text, (size_t)length + 1)) {
        vsnprintf(text->bytes + text->length, (size_t)length + 1, format, again);
        text->length += (size_t)length;
    }
    va_end(again);
}

void xn_text_append_json(xn_text *text, const char *value) {
    xn_text_append(text, "\"");
    for (; *value; value++) {
        unsigned char c = (unsigned char)*value;
        if (c == '"' || c == '\\')
            xn_text_append(text, "\\%c", c);
        else if (c < 0x20)
            xn_text_append(text, "\\u%04x", c);
        else
            xn_text_append(text, "%c", c < 0x7f ? c : '?');
    }
    xn_text_append(text, "\"");
}

char *xn_text_take(xn_text *text, size_t *length) {
    char *bytes = text->bytes;
    if (text->failed || !bytes) {
        xn_mem_free(bytes);
        bytes = NULL;
    } else {
        bytes[text->length] = '\0';
        *length = text->length;
    }
    *text = (xn_text){0};
    return bytes;
}
