/* trace_context.h: whose trace a request belongs to: the header traceparent of the W3C's Trace
 * Context, and ids made here. The header is a client's: what is not valid counts as not there. */
#ifndef XN_TRACE_CONTEXT_H
#define XN_TRACE_CONTEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct xn_trace {
    char trace_id[33];  /* 32 lower-case hexadecimal digits; "": the request has no trace */
    char parent_id[17]; /* 16 of the caller's span; "": the trace begins here */
    char span_id[17];   /* 16 of the span that is sent for the request; "": none is */
    bool sampled;       /* its flag */
} xn_trace;

/* False: the value is not valid, and out is without a trace. Of versions after 00 the fields of 00
 * are read, and what follows them is not looked at. */
bool xn_trace_parse(const char *traceparent, xn_trace *out);

/* Of a request whose spans may be sent: a trace that has come goes on as its flag says; without one
 * a trace begins for `ids` of 2^56 requests, at random. */
void xn_trace_begin(xn_trace *trace, uint64_t ids);

/* The header in version 00, with the span that is sent, else the caller's; of a trace. */
#define XN_TRACEPARENT_BYTES 56
void xn_trace_format(const xn_trace *trace, char text[XN_TRACEPARENT_BYTES]);

/* 2 * bytes digits of random bytes (at most 32), not all zero; false, and "", where the system has
 * none. */
bool xn_trace_make_id(char *text, size_t bytes);

#endif
