/* trace_context.c: see trace_context.h; https://www.w3.org/TR/trace-context/. */
#include "trace_context.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

enum { VERSION = 0, TRACE_ID = 3, PARENT_ID = 36, FLAGS = 53, LENGTH = 55, RANDOM_BYTES = 32 };

#define DIGITS "0123456789abcdef"

/* Whether `digits` digits stand there, followed by a dash or the end of what is read. */
static bool is_field(const char *text, int at, int digits) {
    const int end = at + digits;
    return (int)strspn(text + at, DIGITS) == digits &&
           (text[end] == '-' || (end == LENGTH && !text[end]));
}

static bool is_zero(const char *digits, size_t count) {
    return strspn(digits, "0") >= count;
}

bool xn_trace_parse(const char *text, xn_trace *out) {
    memset(out, 0, sizeof *out);
    if (strnlen(text, LENGTH) < LENGTH || !is_field(text, VERSION, 2) ||
        !is_field(text, TRACE_ID, 32) || !is_field(text, PARENT_ID, 16) ||
        !is_field(text, FLAGS, 2) || !strncmp(text, "ff", 2) ||
        (!strncmp(text, "00", 2) && text[LENGTH]) || is_zero(text + TRACE_ID, 32) ||
        is_zero(text + PARENT_ID, 16))
        return false;
    memcpy(out->trace_id, text + TRACE_ID, 32);
    memcpy(out->parent_id, text + PARENT_ID, 16);
    out->sampled = strtoul(text + FLAGS, NULL, 16) & 1;
    return true;
}

bool xn_trace_make_id(char *text, size_t bytes) {
    unsigned char random[RANDOM_BYTES];
    assert(bytes <= sizeof random);
    do {
        text[0] = '\0';
        if (getrandom(random, bytes, 0) != (ssize_t)bytes)
            return false;
        for (size_t i = 0; i < bytes; i++) {
            text[2 * i] = DIGITS[random[i] >> 4];
            text[2 * i + 1] = DIGITS[random[i] & 15];
        }
        text[2 * bytes] = '\0';
    } while (is_zero(text, 2 * bytes));
    return true;
}

/* The last 14 digits of a trace's id decide, so that all who sample by it agree. */
static bool begin_here(xn_trace *trace, uint64_t ids) {
    trace->sampled = ids && xn_trace_make_id(trace->trace_id, 16) &&
                     strtoull(trace->trace_id + 18, NULL, 16) < ids;
    return trace->sampled;
}

void xn_trace_begin(xn_trace *trace, uint64_t ids) {
    if (trace->trace_id[0] ? trace->sampled : begin_here(trace, ids))
        xn_trace_make_id(trace->span_id, 8);
    if (!trace->parent_id[0] && !trace->span_id[0]) /* none begins */
        memset(trace, 0, sizeof *trace);
}

void xn_trace_format(const xn_trace *trace, char text[XN_TRACEPARENT_BYTES]) {
    snprintf(text, XN_TRACEPARENT_BYTES, "00-%s-%s-%02x", trace->trace_id,
             trace->span_id[0] ? trace->span_id : trace->parent_id, trace->sampled);
}
