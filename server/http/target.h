/* target.h: the parts of a request line and the Host field, as RFC 9112 sections 3 and 3.2 and RFC
 * 3986 write them. Pure functions on bytes; nothing is copied. */
#ifndef XN_TARGET_H
#define XN_TARGET_H

#include <stdbool.h>
#include <stddef.h>

/* A token (RFC 9110 section 5.6.2): what methods and names of fields are made of. */
bool xn_token_valid(const char *text, size_t length);
/* uri-host [":" port], or nothing at all: what Host and an absolute target may name. */
bool xn_host_valid(const char *text, size_t length);

typedef enum {
    XN_TARGET_BAD,
    XN_TARGET_ORIGIN,    /* /path?query */
    XN_TARGET_ABSOLUTE,  /* http://host/path?query */
    XN_TARGET_AUTHORITY, /* host:port, of CONNECT */
    XN_TARGET_ASTERISK   /* * */
} xn_target_form;

typedef struct xn_target {
    xn_target_form form;
    /* Bytes before the path, the same in the text as it came and in the decoded one. */
    size_t prefix;
    bool has_path;     /* false: an absolute target that ends with its host */
    const char *wrong; /* BAD: what is wrong with it, for a message */
} xn_target;

/* A request's target as it came, not decoded. */
xn_target xn_target_read(const char *text, size_t length);

#endif
