/* auth.h: bearer keys. Of a key only its SHA-256 digest stays in memory; a digest is not worth
 * guessing at, since keys are long. Keys are never logged or shown. */
#ifndef XN_AUTH_H
#define XN_AUTH_H

#include "xn_status.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct xn_auth xn_auth;

/* Reads a file of keys, one a line, blank lines and '#' comments skipped, 16..256 printable
 * characters each; no key at all is an error. */
xn_status xn_auth_load(const char *path, xn_auth **out, xn_error *error);
/* Reads the file anew; from then on its keys count, those of before no more. On failure they stay.
 * Any thread, also while others match. */
xn_status xn_auth_reload(xn_auth *auth, const char *path, xn_error *error);
void xn_auth_free(xn_auth *auth); /* NULL-safe; wipes the digests */

/* header: the Authorization header's value or NULL. "Bearer KEY", scheme case-insensitive. The
 * time taken depends neither on which key matches nor on how much of one does. *identity tells keys
 * apart: it is a part of the digest, so a key has the same one after a reload or a restart; it may
 * be NULL. auth NULL: no key is needed, true with identity 0. */
bool xn_auth_match(xn_auth *auth, const char *header, uint64_t *identity);

#endif
