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

/* Reads an array of 1 to XN_MAX_RANK integers into a shape (sizes are checked later). value NULL:
 * it is missing. name is the tensor, for messages about name.shape. */
xn_status xn_request_shape(const xn_json *value, const char *name, xn_shape *out, xn_error *error);

/* Bytes behind a JSON header that are no tensor's yet. */
typedef struct xn_request_values {
    const uint8_t *at;
    size_t left;
} xn_request_values;

/* Where the values of a tensor are whose shape and datatype are read: the array that the scanner
 * took out, or the next bytes behind the header, `size` of them (its binary_data_size). name is the
 * tensor, for messages about name.data and name.parameters.binary_data_size. */
xn_status xn_request_take_text(const char *name, const xn_json *data, const xn_json_span *span,
                               xn_tensor_ref *ref, xn_error *error);
xn_status xn_request_take_bytes(const char *name, const xn_json *size, xn_request_values *values,
                                xn_tensor_ref *ref, xn_error *error);
/* size, of name.parameters.`member`, is the bytes of the tensor. */
xn_status xn_request_check_bytes(const char *name, const char *member, const xn_json *size,
                                 const xn_tensor_ref *ref, xn_error *error);

/* Behind a message about the number of bytes that a tensor of `needed` bytes has: what to do when
 * it is that of FP64. */
const char *xn_request_hint_bytes(xn_datatype datatype, uint64_t got, size_t needed);

#endif
