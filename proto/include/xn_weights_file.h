/* xn_weights_file.h: registered weights as a file: one safetensors file with the tensors weights
 * and, where there are any, scale and bias, exactly as they were given. So any safetensors library
 * reads it, and it can be PUT as it is.
 *
 * What makes it ours is the value of "format", the first thing in the header:
 *     {"__metadata__":{"format":"xnord-weights-1 0123456789abcdef"},"weights":{...},...}
 * 1 is the version of this format. The sixteen digits are the CRC-64/XZ of all other bytes of the
 * file, in their order: a file that was cut, continued or changed anywhere is known as such. They
 * stand at a fixed place, so the first XN_WEIGHTS_FILE_MARK_BYTES tell which contents a file has.
 *
 * No function here touches files; all are reentrant. */
#ifndef XN_WEIGHTS_FILE_H
#define XN_WEIGHTS_FILE_H

#include "xn_proto.h"

#define XN_WEIGHTS_FILE_MARK_BYTES 68 /* up to the quotation mark after the digits */
#define XN_WEIGHTS_FILE_HEAD_BYTES 1024

/* What comes before the tensors' bytes. */
typedef struct xn_weights_file_head {
    unsigned char bytes[XN_WEIGHTS_FILE_HEAD_BYTES];
    size_t length; /* a multiple of 64, so that the values are aligned */
    uint64_t checksum;
} xn_weights_file_head;

/* The file is the head and then the bytes of weights, scale and bias. scale and bias may be NULL.
 * The tensors have been validated (xn_weights_create took them). */
void xn_weights_file_begin(const xn_tensor *weights, const xn_tensor *scale, const xn_tensor *bias,
                           xn_weights_file_head *out);

/* Whether a file that begins with these bytes is one of ours, of this version. *checksum: what it
 * says. Errors: XN_ERR_MALFORMED. */
xn_status xn_weights_file_mark(const void *bytes, size_t length, uint64_t *checksum,
                               xn_error *error);

/* A whole file: the mark, the checksum, then all that a PUT of it would be checked for. *out
 * borrows from bytes, as with xn_proto_parse_weights. */
xn_status xn_weights_file_parse(const void *bytes, size_t length, const xn_proto_limits *limits,
                                xn_weights_request *out, xn_error *error);

#endif
