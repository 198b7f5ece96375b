/* document.c: see document.h. */
#include "document.h"

#include "xn_mem.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static bool reserve(xn_document *text, size_t more) {
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

void xn_document_add(xn_document *text, const char *format, ...) {
    va_list list, again;
    size_t room = text->failed ? 0 : text->capacity - text->length;
    va_start(list, format);
    va_copy(again, list);
    int length = vsnprintf(room ? text->bytes + text->length : NULL, room, format, list);
    va_end(list);
    if (length < 0)
        text->failed = true;
    else if ((size_t)length >= room && reserve(text, (size_t)length + 1))
        vsnprintf(text->bytes + text->length, (size_t)length + 1, format, again);
    if (!text->failed)
        text->length += (size_t)length;
    va_end(again);
}

static bool is_plain(unsigned char c, bool ascii) {
    return c >= 0x20 && c != 0x7f && c != '"' && c != '\\' && (c < 0x80 || !ascii);
}

static void add_string(xn_document *text, const char *value, bool ascii) {
    xn_document_add(text, "\"");
    while (*value) {
        const char *rest = value;
        while (*rest && is_plain((unsigned char)*rest, ascii))
            rest++;
        xn_document_add(text, "%.*s", (int)(rest - value), value);
        value = rest;
        unsigned char c = (unsigned char)*value;
        if (!c)
            break;
        if (c == '"' || c == '\\')
            xn_document_add(text, "\\%c", c);
        else if (c > 0x7f)
            xn_document_add(text, "?");
        else
            xn_document_add(text, "\\u%04x", c);
        value++;
    }
    xn_document_add(text, "\"");
}

void xn_document_string(xn_document *text, const char *value) {
    add_string(text, value, true);
}

void xn_document_text(xn_document *text, const char *value) {
    add_string(text, value, false);
}

char *xn_document_take(xn_document *text, size_t *length) {
    char *bytes = text->bytes;
    if (text->failed || !bytes) {
        xn_mem_free(bytes);
        bytes = NULL;
    } else {
        bytes[text->length] = '\0';
        *length = text->length;
    }
    *text = (xn_document){0};
    return bytes;
}
