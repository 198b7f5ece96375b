/* otlp_target.h: what --otlp-endpoint and --otlp-sample mean. */
#ifndef XN_OTLP_TARGET_H
#define XN_OTLP_TARGET_H

#include "xn_status.h"

#include <stdint.h>

/* Where spans are posted to. */
typedef struct xn_otlp_target {
    char host[128], port[6]; /* as getaddrinfo takes them: an IPv6 address without its brackets */
    char authority[140];     /* host and port as the URL has them: the field Host */
    char path[256];          /* "/v1/traces" where the URL has none, or "/" */
} xn_otlp_target;

/* url: http://HOST[:PORT][/PATH]. XN_ERR_MALFORMED says what is wrong with it; https has a reason
 * of its own. */
xn_status xn_otlp_target_parse(const char *url, xn_otlp_target *out, xn_error *error);

/* ratio: a decimal number from 0 to 1 with up to 9 places. How many of 2^56 trace ids it takes. */
#define XN_OTLP_ALL_IDS (UINT64_C(1) << 56)
xn_status xn_otlp_sample_parse(const char *ratio, uint64_t *ids, xn_error *error);

#endif
