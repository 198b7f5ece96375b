/* version_policy.h: --version-policy: which of the numbered folders of a model are served. */
#ifndef XN_VERSION_POLICY_H
#define XN_VERSION_POLICY_H

#include "xn_status.h"

#include <stdbool.h>
#include <stddef.h>

#define XN_VERSIONS_MAX 32       /* of a model that are served at a time */
#define XN_VERSION_DIGITS_MAX 18 /* so that every version fits 64 bits */

typedef struct xn_version_policy {
    int latest; /* the number of highest ones; 0: those listed */
    bool all;   /* latest is the most that there may be */
    int count;
    char listed[XN_VERSIONS_MAX][XN_VERSION_DIGITS_MAX + 1];
} xn_version_policy;

/* A version: a number without leading zeros, of at most 18 digits. */
bool xn_version_valid(const char *text, size_t length);
/* "latest:N", "all" or "specific:N,N". The error names the value and what there is. */
xn_status xn_version_policy_parse(const char *text, xn_version_policy *out, xn_error *error);

#endif
