/* auth.h: bearer keys. Keys live in memory only as SHA-256-sized comparisons need them; they are
 * never logged or shown. */
#ifndef XN_AUTH_H
#define XN_AUTH_H

#include "xn_status.h"

#include <stdbool.h>

typedef struct xn_auth xn_auth;

/* Reads a file of keys, one a line, blank lines and '#' comments skipped, 16..256 printable
 * characters each; no key at all is an error. */
xn_status xn_auth_load(const char *path, xn_auth **out, xn_error *error);
void xn_auth_free(xn_auth *auth); /* NULL-safe; wipes the keys */

/* header: the Authorization header's value or NULL. "Bearer KEY", scheme case-insensitive. The
 * time taken depends neither on which key matches nor on how much of one does. auth NULL: true. */
bool xn_auth_allows(const xn_auth *auth, const char *header);

#endif
