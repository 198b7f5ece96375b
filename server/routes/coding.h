/* coding.h: the content codings of bodies, gzip and deflate (RFC 9110 section 8.4.1): the one file
 * that knows zlib. Nothing here keeps state. */
#ifndef XN_CODING_H
#define XN_CODING_H

#include "xn_status.h"

#include <stdbool.h>
#include <stddef.h>

typedef enum { XN_CODING_IDENTITY, XN_CODING_GZIP, XN_CODING_DEFLATE } xn_coding;

const char *xn_coding_name(xn_coding coding); /* "gzip" */
/* Of a Content-Encoding; false: another coding, or several. */
bool xn_coding_parse(const char *content_encoding, xn_coding *out);
/* The coding of the two that Accept-Encoding prefers, by its q-values. Identity if it is NULL or
 * names neither: "*" alone asks for none. */
xn_coding xn_coding_choose(const char *accept_encoding);

/* The most that `length` coded bytes can become: no stream of deflate is better than 1032 to 1. */
size_t xn_coding_most(size_t length);

/* Decodes a whole body. Before bytes are written, grow is asked for the number of them so far and
 * in the next step, at most `room`; what it answers ends decoding. XN_ERR_MALFORMED: no such
 * coding, or bytes behind its end. XN_ERR_LIMIT with that limit's name: more than room. */
typedef xn_status (*xn_coding_grow)(void *context, size_t bytes, xn_error *error);
xn_status xn_coding_decode(xn_coding coding, const void *body, size_t length, void *out,
                           size_t room, const char *limit, xn_coding_grow grow, void *context,
                           size_t *decoded, xn_error *error);

/* Codes a body, fast rather than small. False: no memory, or it takes more than room. */
bool xn_coding_encode(xn_coding coding, const void *body, size_t length, void *out, size_t room,
                      size_t *coded);

#endif
