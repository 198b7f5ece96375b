/* recent.h: a cache of one parsed JSON header a connection. Most clients send the same header again
 * and again, with other values behind it: then it is compared, not parsed. Only a header whose
 * length was given, and that parsed without an error, is cached; of /conv or of an inference
 * request. */
#ifndef XN_RECENT_H
#define XN_RECENT_H

#include "xn_oip.h"

typedef struct xn_recent xn_recent;

/* What parsing this body would give, without query parameters: the connection's last body had the
 * same header and length. recent may be NULL. */
bool xn_recent_find(const xn_recent *recent, const xn_proto_body *body, xn_conv_request *out);
/* *recent: NULL, or of an earlier call; in one block (xn_mem_free). Without memory, or where the
 * header is long, nothing is kept. */
void xn_recent_keep(void **recent, const xn_proto_body *body, const xn_conv_request *parsed);

/* The same of inference requests, whose inputs, outputs and names stay in what is kept: they are
 * valid until another request of the connection is looked for or parsed. */
bool xn_recent_find_infer(xn_recent *recent, const xn_proto_body *body, xn_infer_request *out);
/* For an xn_oip_memory, in three steps: memory for the parts of a request that is about to be
 * parsed; NULL where nothing will be kept of it. What was kept before is gone. Then the parsed
 * request, if it lies there; else nothing happens. */
void *xn_recent_take_infer(void **recent, const xn_proto_body *body, size_t bytes);
void xn_recent_keep_infer(xn_recent *recent, const xn_proto_body *body,
                          const xn_infer_request *parsed);

#endif
