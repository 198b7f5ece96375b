/* otlp_target.c: see otlp_target.h. */
#include "otlp_target.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HOST_CHARACTERS                                                                            \
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789.-_" /* of a name or IPv4 */
#define V6_CHARACTERS "0123456789abcdefABCDEF:."
#define PATH_CHARACTERS HOST_CHARACTERS "/~%!$&'()*+,;=:@"

static xn_status fail(xn_error *error, const char *why) {
    return xn_fail(error, XN_ERR_MALFORMED, "otlp-endpoint",
                   "%s; accepted is http://HOST[:PORT][/PATH], such as http://127.0.0.1:4318", why);
}

/* A host's first character and length; returns what follows it, or NULL. */
static const char *read_host(const char *at, const char **host, size_t *length) {
    const bool v6 = *at == '[';
    *host = at + v6;
    *length = strspn(*host, v6 ? V6_CHARACTERS : HOST_CHARACTERS);
    const char *end = *host + *length;
    if (!*length || (v6 && *end != ']'))
        return NULL;
    return end + v6;
}

/* ":4318", or nothing, which is 80; returns what follows it, or NULL. */
static const char *read_port(const char *at, char port[6]) {
    snprintf(port, 6, "80");
    if (*at != ':')
        return at;
    const size_t digits = strspn(++at, "0123456789");
    if (!digits || digits > 5 || *at == '0' || atoi(at) > 65535)
        return NULL;
    snprintf(port, 6, "%.*s", (int)digits, at);
    return at + digits;
}

xn_status xn_otlp_target_parse(const char *url, xn_otlp_target *out, xn_error *error) {
    const size_t scheme = strlen("http://");
    const char *host;
    size_t length;
    if (!strncmp(url, "https://", scheme + 1))
        return fail(error, "https is not spoken to collectors: send to one on this host or in this "
                           "network, which forwards");
    if (strncmp(url, "http://", scheme) != 0)
        return fail(error, "its scheme is not http");
    const char *end = read_host(url + scheme, &host, &length);
    if (!end || length >= sizeof out->host)
        return fail(error, "its host is not a name of up to 127 characters or an address");
    const char *path = read_port(end, out->port);
    if (!path)
        return fail(error, "its port is not 1 to 65535");
    if ((*path && *path != '/') || path[strspn(path, PATH_CHARACTERS)] ||
        strlen(path) >= sizeof out->path)
        return fail(error, "behind host and port stands what is no path of up to 255 characters");
    snprintf(out->host, sizeof out->host, "%.*s", (int)length, host);
    snprintf(out->authority, sizeof out->authority, "%.*s", (int)(path - url - (int)scheme),
             url + scheme);
    snprintf(out->path, sizeof out->path, "%s", path[0] && path[1] ? path : "/v1/traces");
    return XN_OK;
}

xn_status xn_otlp_sample_parse(const char *ratio, uint64_t *ids, xn_error *error) {
    enum { MOST_PLACES = 9 };
    const char *places = ratio + (ratio[0] == '0' || ratio[0] == '1');
    size_t count = 0;
    double value = atof(ratio);
    if (places > ratio && *places == '.') {
        count = strspn(++places, "0123456789");
        places = count ? places + count : "without places";
    }
    if (places == ratio || *places || count > MOST_PLACES || value > 1)
        return xn_fail(error, XN_ERR_MALFORMED, "otlp-sample",
                       "accepted is a number from 0 to 1 with up to 9 places, such as 0.05");
    *ids = (uint64_t)(value * (double)XN_OTLP_ALL_IDS);
    return XN_OK;
}
