/* proto_bodies.h: bodies of the three forms for the tests of proto. Each is a block of exactly its
 * size, so that a sanitizer sees any byte read past its end. */
#ifndef PROTO_BODIES_H
#define PROTO_BODIES_H

#include "table.h"
#include "xn_oip.h"

typedef struct proto_bytes {
    unsigned char *bytes; /* owned; proto_bytes_free */
    size_t length;
} proto_bytes;

proto_bytes proto_bytes_of(const void *bytes, size_t length);
proto_bytes proto_bytes_join(const void *a, size_t a_length, const void *b, size_t b_length);
void proto_bytes_free(proto_bytes *bytes);

/* 8 bytes of length, the header, the values. */
proto_bytes proto_safetensors(const char *header, const void *values, size_t values_length);

/* Parses a /conv request without a query from an exact copy. The request's references point into
 * *copy, the caller's to free. */
xn_status proto_parse_json(const char *text, proto_bytes *copy, xn_conv_request *out,
                           xn_error *error);
xn_status proto_parse_oip(const char *header, const void *values, size_t values_length,
                          proto_bytes *copy, xn_conv_request *out, xn_error *error);

/* Of inference requests: a block of exactly the size, until the next one is taken. */
extern const xn_oip_memory proto_memory;

#define PROTO_TEST_MAX_ELEMENTS 1000000

/* The error is MALFORMED or LIMIT, with that field and that fragment in its message. */
void proto_expect_error(xn_status status, const xn_error *error, const char *what,
                        const char *field, const char *fragment);

/* Every row of a table in refusals/, "BODY | FIELD | SAYS", is refused so by that parser. */
void proto_refuse_all(const char *table,
                      xn_status (*parse)(const xn_table_row *row, xn_error *error));

/* Seeds: one valid message of each form, with everything in it. form, header length and query say
 * how to parse it. The caller frees body. */
typedef struct proto_sample {
    const char *name;
    xn_form form;
    proto_bytes body;
    size_t header_length; /* OIP binary */
} proto_sample;
#define PROTO_SAMPLES 6
proto_sample proto_sample_make(int index);
xn_status proto_sample_parse(const proto_sample *sample, size_t length, xn_conv_request *out,
                             xn_error *error);

/* Field by field: what lies between fields is the compiler's own. References into equal bodies. */
bool proto_params_equal(const xn_conv_params *a, const xn_conv_params *b);
bool proto_requests_equal(const xn_conv_request *a, const xn_conv_request *b);

/* The fenced block of PROTOCOL.md whose info string is that, without the fences; free() it. The
 * other: the bytes that a block says, in lines of text and of hexadecimal digits. */
char *proto_document_block(const char *info);
proto_bytes proto_document_bytes(const char *info);

#endif
