/* framing.h: whether a request's head says without doubt where the request ends (RFC 9112). A head
 * that two servers could read in two ways is refused, or a part of a body could be taken for a
 * second request. Pure: fields in, a verdict out. */
#ifndef XN_FRAMING_H
#define XN_FRAMING_H

#include "target.h"

typedef struct xn_framing {
    /* The verdict, after xn_framing_finish. status 0: well-formed; else refuse with it and close,
     * since what follows on the connection is not known to be a request. */
    int status;
    const char *code, *field;
    char message[200];
    bool has_length; /* exactly one valid Content-Length */
    size_t length;   /* its value, else 0 */
    bool chunked;    /* Transfer-Encoding: chunked */
    bool expects;    /* waits for 100 Continue */
    /* While it reads. */
    int content_lengths, encodings, hosts, expectations;
    bool bad_length, huge_length, bad_host, known_expectations;
    bool blank_behind; /* the last value, which version 0.9 of the library does not trim */
    unsigned seen;     /* a bit for each field that may stand only once */
} xn_framing;

/* The request line. Here and below, the first verdict that is reached stays. */
void xn_framing_start(xn_framing *framing, const char *method, size_t method_length,
                      const xn_target *target);
/* One field; white space around the value does not count. */
void xn_framing_field(xn_framing *framing, const char *name, size_t name_length, const char *value,
                      size_t value_length);
/* old: HTTP/1.0, which needs no Host and knows no Expect. */
void xn_framing_finish(xn_framing *framing, bool old);

/* A walk through a header section as libmicrohttpd 0.9 leaves it in memory, from the first name to
 * the end of the empty line. The library has written NUL over the colon behind each name, over CR
 * and over LF; all else is as it came. The caller tells in order where the library found each name,
 * and it must be where the walk has got to. So what the library would have made something of is
 * refused: any other NUL, a bare CR or LF, a folded line, a name that is no token. NUL beside a
 * bare LF cannot be told from CR LF.
 *
 * Each field goes to xn_framing_field. Its value is ended behind the last visible byte: the library
 * leaves the blanks there. */
typedef struct xn_framing_walk {
    char *at, *end;
} xn_framing_walk;
void xn_framing_walk_field(xn_framing *framing, xn_framing_walk *walk, const char *name);
void xn_framing_walk_end(xn_framing *framing, const xn_framing_walk *walk);

/* The verdict for what only the caller can see. The first one counts. */
void xn_framing_refuse(xn_framing *framing, int status, const char *code, const char *field,
                       const char *message);

#endif
