/* secrets.h: small files that only the daemon should read: keys of clients and of TLS. */
#ifndef XN_SECRETS_H
#define XN_SECRETS_H

#include "xn_status.h"

#include <stdbool.h>
#include <stddef.h>

/* Reads the file that the setting (its flag without dashes) names: at most `most` bytes, with a NUL
 * behind them. What is no regular file is refused and never waited for. A secret that other users
 * can read or change is a warning in the log. The text is the caller's, for xn_secret_free. */
xn_status xn_secret_read(const char *setting, const char *path, size_t most, bool secret,
                         char **text, size_t *length, xn_error *error);
void xn_secret_free(char *text, size_t length); /* NULL-safe; wipes it */

#endif
