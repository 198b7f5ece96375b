/* recent.h: what the last header of a connection meant. Most clients send the same header over and
 * over, with other values behind it: then it is compared, not parsed. Only headers of OIP binary,
 * and only what parsed without an error. */
#ifndef XN_RECENT_H
#define XN_RECENT_H

#include "xn_proto.h"

typedef struct xn_recent xn_recent;

/* What parsing this body would give, without query parameters: the connection's last body had the
 * same header and length. recent may be NULL. */
bool xn_recent_find(const xn_recent *recent, const xn_proto_body *body, xn_conv_request *out);
/* *recent: NULL, or of an earlier call; in one block (xn_mem_free). Without memory, or where the
 * header is long, nothing is kept. */
void xn_recent_keep(void **recent, const xn_proto_body *body, const xn_conv_request *parsed);

#endif
