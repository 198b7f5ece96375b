/* xn_request.h: what the parsers of all forms share: tensors found in a body and the checks
 * that make them tensor references. */
#ifndef XN_REQUEST_H
#define XN_REQUEST_H

#include "xn_json_tree.h"
#include "xn_params.h"
#include "xn_proto.h"

/* Where a parser puts what it finds: refs[XN_MEMBER_*] points at the request's field, or is NULL
 * where the message has no such tensor. */
typedef struct xn_targets {
    xn_tensor_ref *refs[XN_MEMBER_COUNT];
    xn_conv_request *conv; /* parameters go here; NULL: the message takes none */
} xn_targets;

xn_targets xn_targets_conv(xn_conv_request *request);
xn_targets xn_targets_weights(xn_weights_request *request);

/* Reads an array of 1 to XN_MAX_RANK integers into a shape (sizes are checked later). name is the
 * tensor, for messages about name.shape. */
xn_status xn_request_shape(const xn_json *value, const char *name, xn_shape *out, xn_error *error);

/* Behind a message about the number of bytes that a tensor of `needed` bytes has: what to do when
 * it is that of FP64. */
const char *xn_request_hint_bytes(xn_datatype datatype, uint64_t got, size_t needed);

#endif
