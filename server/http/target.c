/* target.c: see target.h. */
#include "target.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <string.h>
#include <strings.h>

/* strchr finds the terminator too, which no set here holds. */
static bool among(const char *set, char c) {
    return c && strchr(set, c);
}

bool xn_token_valid(const char *text, size_t length) {
    for (size_t i = 0; i < length; i++)
        if (!isalnum((unsigned char)text[i]) && !among("!#$%&'*+-.^_`|~", text[i]))
            return false;
    return length > 0;
}

/* Digits, 65535 at most; none is allowed by the grammar. */
static bool is_port(const char *text, size_t length) {
    unsigned value = 0;
    for (size_t i = 0; i < length; i++) {
        if (!isdigit((unsigned char)text[i]))
            return false;
        value = value * 10 + (unsigned)(text[i] - '0');
        if (value > 65535)
            return false;
    }
    return true;
}

static bool is_registered_name(const char *text, size_t length) {
    for (size_t i = 0; i < length; i++) {
        if (text[i] == '%') {
            if (length - i < 3 || !isxdigit((unsigned char)text[i + 1]) ||
                !isxdigit((unsigned char)text[i + 2]))
                return false;
            i += 2;
        } else if (!isalnum((unsigned char)text[i]) && !among("-._~!$&'()*+,;=", text[i])) {
            return false;
        }
    }
    return true;
}

static bool is_address_v6(const char *text, size_t length) {
    char copy[INET6_ADDRSTRLEN];
    unsigned char address[16];
    if (length >= sizeof copy || memchr(text, 0, length))
        return false;
    memcpy(copy, text, length);
    copy[length] = 0;
    return inet_pton(AF_INET6, copy, address) == 1;
}

bool xn_host_valid(const char *text, size_t length) {
    const char *end = text + length;
    if (length && text[0] == '[') {
        const char *close = memchr(text, ']', length);
        if (!close || !is_address_v6(text + 1, (size_t)(close - text - 1)))
            return false;
        return close + 1 == end ||
               (close[1] == ':' && is_port(close + 2, (size_t)(end - close - 2)));
    }
    const char *colon = length ? memchr(text, ':', length) : NULL;
    const char *name_end = colon ? colon : end;
    return is_registered_name(text, (size_t)(name_end - text)) &&
           (!colon || is_port(colon + 1, (size_t)(end - colon - 1)));
}

/* The length of "http://" or "https://" at the start, or 0. */
static size_t scheme_length(const char *text, size_t length) {
    static const char *const schemes[] = {"http://", "https://"};
    for (size_t i = 0; i < sizeof schemes / sizeof *schemes; i++) {
        size_t n = strlen(schemes[i]);
        if (length >= n && !strncasecmp(text, schemes[i], n))
            return n;
    }
    return 0;
}

static xn_target bad(const char *what) {
    return (xn_target){.form = XN_TARGET_BAD, .wrong = what};
}

static xn_target read_absolute(const char *text, size_t length, size_t scheme) {
    size_t end = scheme;
    while (end < length && text[end] != '/' && text[end] != '?')
        end++;
    /* A percent sign would be decoded before the path is looked for, and may become a '/'. */
    if (end == scheme || memchr(text + scheme, '%', end - scheme) ||
        !xn_host_valid(text + scheme, end - scheme))
        return bad("its host is not valid");
    return (xn_target){
        .form = XN_TARGET_ABSOLUTE, .prefix = end, .has_path = end < length && text[end] == '/'};
}

xn_target xn_target_read(const char *text, size_t length) {
    if (!length)
        return bad("it is empty");
    for (size_t i = 0; i < length; i++)
        if (text[i] <= ' ' || text[i] > '~' || text[i] == '#')
            return bad("it holds a byte that must be percent-encoded");
    if (text[0] == '/')
        return (xn_target){.form = XN_TARGET_ORIGIN, .has_path = true};
    if (length == 1 && text[0] == '*')
        return (xn_target){.form = XN_TARGET_ASTERISK, .has_path = true};
    size_t scheme = scheme_length(text, length);
    if (scheme)
        return read_absolute(text, length, scheme);
    if (memchr(text, ':', length) && xn_host_valid(text, length))
        return (xn_target){.form = XN_TARGET_AUTHORITY};
    return bad("it is neither a path nor a URL");
}
