/* version_policy.c: see version_policy.h. */
#include "version_policy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool xn_version_valid(const char *text, size_t length) {
    return length > 0 && length <= XN_VERSION_DIGITS_MAX && text[0] != '0' &&
           strspn(text, "0123456789") >= length;
}

static bool read_latest(const char *text, xn_version_policy *out) {
    const size_t length = strlen(text);
    out->latest = xn_version_valid(text, length) && length <= 2 ? atoi(text) : 0;
    return out->latest >= 1 && out->latest <= XN_VERSIONS_MAX;
}

static bool is_listed(const xn_version_policy *policy, const char *version) {
    for (int i = 0; i < policy->count; i++)
        if (!strcmp(policy->listed[i], version))
            return true;
    return false;
}

static bool read_listed(const char *text, xn_version_policy *out) {
    for (;; text++) {
        const size_t length = strcspn(text, ",");
        if (out->count >= XN_VERSIONS_MAX || !xn_version_valid(text, length))
            return false;
        char *version = out->listed[out->count];
        snprintf(version, sizeof out->listed[0], "%.*s", (int)length, text);
        if (is_listed(out, version))
            return false;
        out->count++;
        text += length;
        if (!*text)
            return true;
    }
}

xn_status xn_version_policy_parse(const char *text, xn_version_policy *out, xn_error *error) {
    static const char latest[] = "latest:", specific[] = "specific:";
    bool valid = false;
    *out = (xn_version_policy){0};
    if (!strcmp(text, "all")) {
        valid = out->all = true;
        out->latest = XN_VERSIONS_MAX;
    } else if (!strncmp(text, latest, sizeof latest - 1)) {
        valid = read_latest(text + sizeof latest - 1, out);
    } else if (!strncmp(text, specific, sizeof specific - 1)) {
        valid = read_listed(text + sizeof specific - 1, out);
    }
    if (valid)
        return XN_OK;
    return xn_fail(error, XN_ERR_MALFORMED, "version-policy",
                   "\"%.100s\" is no policy; give latest:N (1 to %d), all, or specific:N,N with at "
                   "most %d numbers, each once, of up to %d digits and without leading zeros",
                   text, XN_VERSIONS_MAX, XN_VERSIONS_MAX, XN_VERSION_DIGITS_MAX);
}
