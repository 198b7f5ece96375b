/* framing.c: see framing.h. Faults of syntax are reported as they are met, those of meaning (how
 * many, which together) at the end, in the order of RFC 9112 section 6.3. */
#include "framing.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define LONGEST_NAME 60 /* of a name that a message quotes */

/* Fields that the daemon reads, or that frame the request, and that may stand only once. */
static const char *const singletons[] = {
    "Authorization", "Content-Encoding", "Content-Type", "Inference-Header-Content-Length",
    "Origin",        "X-Request-Id",
};

void xn_framing_refuse(xn_framing *framing, int status, const char *code, const char *field,
                       const char *message) {
    if (framing->status)
        return;
    framing->status = status;
    framing->code = code;
    framing->field = field;
    snprintf(framing->message, sizeof framing->message, "%s", message);
}

static void malformed(xn_framing *framing, const char *field, const char *message) {
    xn_framing_refuse(framing, 400, "bad_request", field, message);
}

static bool same(const char *name, size_t length, const char *known) {
    return strlen(known) == length && !strncasecmp(name, known, length);
}

static bool is_blank(char c) {
    return c == ' ' || c == '\t';
}

static void trim(const char **text, size_t *length) {
    while (*length && is_blank(**text)) {
        ++*text;
        --*length;
    }
    while (*length && is_blank((*text)[*length - 1]))
        --*length;
}

/* ---- the request line ---- */

void xn_framing_start(xn_framing *framing, const char *method, size_t method_length,
                      const xn_target *target) {
    char message[200];
    if (!xn_token_valid(method, method_length)) {
        malformed(framing, "method", "the method is not a token (RFC 9110 section 5.6.2)");
        return;
    }
    if (same(method, method_length, "CONNECT")) {
        xn_framing_refuse(framing, 501, "not_implemented", "method",
                          "the method is CONNECT; this server is no proxy");
        return;
    }
    switch (target->form) {
    case XN_TARGET_BAD:
        snprintf(message, sizeof message, "the request's target is not valid: %s", target->wrong);
        malformed(framing, "path", message);
        break;
    case XN_TARGET_AUTHORITY:
        malformed(framing, "path", "the request's target is a host and a port; give a path");
        break;
    case XN_TARGET_ASTERISK:
        if (method_length != 7 || memcmp(method, "OPTIONS", 7))
            malformed(framing, "path", "the request's target is *, which is for OPTIONS only");
        break;
    case XN_TARGET_ORIGIN:
    case XN_TARGET_ABSOLUTE:
        break;
    }
}

/* ---- fields ---- */

typedef enum { NUMBER_GOOD, NUMBER_BAD, NUMBER_HUGE } number;

/* Digits only, up to what a signed 64-bit number holds. */
static number parse_length(const char *text, size_t count, size_t *out) {
    uint64_t value = 0;
    bool huge = false;
    for (size_t i = 0; i < count; i++) {
        if (text[i] < '0' || text[i] > '9')
            return NUMBER_BAD;
        unsigned digit = (unsigned)(text[i] - '0');
        huge = huge || value > ((uint64_t)INT64_MAX - digit) / 10;
        value = huge ? 0 : value * 10 + digit;
    }
    if (!count)
        return NUMBER_BAD;
    *out = (size_t)value;
    return huge || value > SIZE_MAX ? NUMBER_HUGE : NUMBER_GOOD;
}

static void count_singleton(xn_framing *framing, const char *name, size_t length) {
    char message[200];
    for (unsigned i = 0; i < sizeof singletons / sizeof *singletons; i++) {
        if (!same(name, length, singletons[i]))
            continue;
        if (framing->seen & (1u << i)) {
            snprintf(message, sizeof message, "%s is given more than once; give it once",
                     singletons[i]);
            malformed(framing, singletons[i], message);
        }
        framing->seen |= 1u << i;
        return;
    }
}

static void note_length(xn_framing *framing, const char *value, size_t length) {
    size_t bytes = 0;
    number kind = parse_length(value, length, &bytes);
    framing->content_lengths++;
    framing->bad_length |= kind == NUMBER_BAD;
    framing->huge_length |= kind == NUMBER_HUGE;
    framing->length = kind == NUMBER_GOOD ? bytes : 0;
}

static void note_field(xn_framing *framing, const char *name, size_t name_length, const char *value,
                       size_t length) {
    if (same(name, name_length, "Content-Length")) {
        note_length(framing, value, length);
    } else if (same(name, name_length, "Transfer-Encoding")) {
        framing->chunked = same(value, length, "chunked") && !framing->blank_behind;
        framing->encodings++;
    } else if (same(name, name_length, "Host")) {
        framing->hosts++;
        framing->bad_host |= !xn_host_valid(value, length);
    } else if (same(name, name_length, "Expect")) {
        framing->known_expectations = same(value, length, "100-continue") &&
                                      (!framing->expectations || framing->known_expectations);
        framing->expectations++;
    } else {
        count_singleton(framing, name, name_length);
    }
}

/* Visible ASCII, the upper half, blanks: RFC 9110 section 5.5. */
static bool value_valid(const char *value, size_t length) {
    for (size_t i = 0; i < length; i++) {
        unsigned char c = (unsigned char)value[i];
        if ((c < ' ' && c != '\t') || c == 0x7f)
            return false;
    }
    return true;
}

void xn_framing_field(xn_framing *framing, const char *name, size_t name_length, const char *value,
                      size_t value_length) {
    char message[200];
    if (!xn_token_valid(name, name_length)) {
        malformed(framing, "headers",
                  name_length ? "the name of a header is not a token: white space or another "
                                "character that no name holds, or a folded line"
                              : "the name of a header is empty");
        return;
    }
    framing->blank_behind = value_length && is_blank(value[value_length - 1]);
    trim(&value, &value_length);
    if (!value_valid(value, value_length)) {
        int shown = name_length < LONGEST_NAME ? (int)name_length : LONGEST_NAME;
        snprintf(message, sizeof message, "the value of %.*s holds a control character", shown,
                 name);
        malformed(framing, "headers", message);
        return;
    }
    note_field(framing, name, name_length, value, value_length);
}

/* ---- together ---- */

static void finish_body(xn_framing *framing, bool old) {
    if (framing->content_lengths > 1)
        malformed(framing, "Content-Length",
                  "Content-Length is given more than once; give it once");
    else if (framing->content_lengths && framing->encodings)
        malformed(framing, "Transfer-Encoding",
                  "both Content-Length and Transfer-Encoding are given; give Content-Length");
    else if (framing->encodings > 1)
        malformed(framing, "Transfer-Encoding",
                  "Transfer-Encoding is given more than once; give it once");
    else if (framing->encodings && !framing->chunked)
        xn_framing_refuse(framing, 501, "not_implemented", "Transfer-Encoding",
                          "this Transfer-Encoding is not known; send the body chunked, or with "
                          "Content-Length");
    else if (framing->encodings && old)
        malformed(framing, "Transfer-Encoding",
                  "Transfer-Encoding is of HTTP/1.1; send the body with Content-Length");
    else if (framing->bad_length)
        malformed(framing, "Content-Length", "Content-Length is not a decimal number of bytes");
    else if (framing->huge_length)
        xn_framing_refuse(framing, 413, "too_large", "Content-Length",
                          "Content-Length is more than 9223372036854775807");
}

static void finish_host(xn_framing *framing, bool old) {
    if (framing->hosts > 1)
        malformed(framing, "Host", "Host is given more than once; give it once");
    else if (!framing->hosts && !old)
        malformed(framing, "Host", "Host is missing; HTTP/1.1 needs it");
    else if (framing->bad_host)
        malformed(framing, "Host", "Host is not a host with or without a port");
}

void xn_framing_finish(xn_framing *framing, bool old) {
    finish_body(framing, old);
    finish_host(framing, old);
    if (!old && framing->expectations && !framing->known_expectations)
        xn_framing_refuse(framing, 417, "expectation_failed", "Expect",
                          "only the expectation 100-continue is known");
    framing->has_length = !framing->status && framing->content_lengths;
    if (!framing->has_length)
        framing->length = 0;
    framing->chunked &= !framing->status;
    framing->expects = !old && framing->expectations > 0;
}

static const char *const not_plain =
    "a header holds NUL, is folded, has no name, or its line does not end with CR LF";

void xn_framing_walk_field(xn_framing *framing, xn_framing_walk *walk, const char *name) {
    char *at = walk->at, *end = walk->end;
    char *colon = at == name && at < end ? memchr(at, 0, (size_t)(end - at)) : NULL;
    char *value = colon ? colon + 1 : end;
    char *stop = value < end ? memchr(value, 0, (size_t)(end - value)) : NULL;
    if (!stop || stop + 1 >= end || stop[1]) {
        malformed(framing, "headers", not_plain);
        walk->at = end;
        return;
    }
    xn_framing_field(framing, at, (size_t)(colon - at), value, (size_t)(stop - value));
    for (char *last = stop; last > value && is_blank(last[-1]); last--)
        last[-1] = 0;
    walk->at = stop + 2;
}

void xn_framing_walk_end(xn_framing *framing, const xn_framing_walk *walk) {
    if (walk->end - walk->at != 2 || walk->at[0] || walk->at[1])
        malformed(framing, "headers", not_plain);
}
