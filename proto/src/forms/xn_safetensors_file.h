/* xn_safetensors_file.h: what every safetensors file has in common, whatever it holds:
 *     8 bytes    N, little-endian
 *     N bytes    {"name": {"dtype": "F32", "shape": [...], "data_offsets": [begin, end]}, ...,
 *                 "__metadata__": {"key": "string", ...}}, begins with '{', may end in spaces
 *     the rest   the tensors' bytes; together they fill it without gaps and overlaps
 */
#ifndef XN_SAFETENSORS_FILE_H
#define XN_SAFETENSORS_FILE_H

#include "xn_json_tree.h"
#include "xn_tensor.h"

typedef struct xn_safetensors {
    const char *header;
    size_t header_length; /* as stated, its spaces at the end too */
    const uint8_t *values;
    size_t values_length;
} xn_safetensors;

/* The header's length as the first 8 bytes have it. */
uint64_t xn_safetensors_stated(const uint8_t bytes[8]);

/* Splits a file whose header may have most bytes; `what` names it in messages: "the body". */
xn_status xn_safetensors_split(const char *what, const void *bytes, size_t length, size_t most,
                               xn_safetensors *out, xn_error *error);

/* Of a tensor's object, which has these three members alone, all that is alike everywhere. name is
 * the tensor's, for messages about name.shape. */
xn_status xn_safetensors_members(const char *name, const xn_json *object, xn_error *error);
/* bytes: what datatype and shape need, which must be what lies between the offsets. */
xn_status xn_safetensors_offsets(const char *name, const xn_json *object, size_t values_length,
                                 xn_datatype datatype, const xn_shape *shape, size_t bytes,
                                 uint64_t *begin, xn_error *error);

#endif
