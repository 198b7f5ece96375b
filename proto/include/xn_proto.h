/* xn_proto.h: bytes to requests and results to bytes, in the wire forms of PROTOCOL.md: JSON, OIP
 * binary (Open Inference Protocol v2 with its binary tensor extension), safetensors, and raw.
 *
 * Decoding is in two steps, so that nothing large is allocated before everything is validated:
 *   1. parse: reads the small part (JSON header, shapes, parameters) and records where each
 *      tensor's values are: as bytes in the body or as a span of JSON text. Allocates only memory
 *      bounded by XN_PROTO_MAX_HEADER_BYTES, freed with the request.
 *   2. read: converts or copies one tensor's values into memory the caller provides.
 * The body stays the caller's and must outlive the parsed request. No function here prints or
 * touches sockets. All are reentrant. */
#ifndef XN_PROTO_H
#define XN_PROTO_H

#include "xn_conv.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define XN_PROTO_MAX_HEADER_BYTES 65536 /* everything of a request but its tensor values */
#define XN_PROTO_MAX_NESTING 8
#define XN_PROTO_MAX_VALUES 4096 /* of the JSON beside the data arrays; of "{[:,", to be exact */
#define XN_PROTO_MAX_NAME 128 /* characters of a weights name: [A-Za-z0-9._-]+, not "." or ".." */
#define XN_PROTO_MAX_ID 128   /* characters of a request id: printable ASCII without '"' and '\' */

/* The most that a parse takes beside the body, at a time and in all: one block for the header's
 * text, one for the tree made of it. Both are given back before parsing returns. */
#define XN_PROTO_PARSE_BYTES (4 << 20)

/* Gives the JSON parser its memory functions, which serve it from one block a parse, and seeds its
 * hash tables. It sets state of the whole process: a program calls it once, before it starts
 * threads; else the first parse does. */
void xn_proto_init(void);

/* A raw body is the input's bytes and nothing else, all else stands in the query. It has the media
 * type of OIP binary, application/octet-stream, and no Inference-Header-Content-Length. */
typedef enum {
    XN_FORM_JSON,
    XN_FORM_OIP_BINARY,
    XN_FORM_SAFETENSORS,
    XN_FORM_RAW,
    XN_FORM_COUNT
} xn_form;

/* The media type without parameters: "application/json". */
const char *xn_form_media_type(xn_form form);
/* Whether an answer in that form is text, whose length is only known once it is written. */
bool xn_form_is_text(xn_form form);
/* The media type that an unknown Content-Type was probably meant to be, or NULL. */
const char *xn_form_nearest(const char *content_type);
/* Whether a Content-Type header value is of that media type; parameters such as charset and the
 * case of letters mean nothing. */
bool xn_form_is_type(const char *content_type, const char *media_type);
/* From a Content-Type header value and whether there is an Inference-Header-Content-Length. */
bool xn_form_parse(const char *content_type, bool has_header_length, xn_form *out);
/* The answer's form: from an Accept header value by RFC 9110 (q-values, wildcards); NULL, "" and
 * "*" wildcards that match the request's form give the request's form. False if none is
 * acceptable. application/octet-stream means raw where the request is, else OIP binary. */
bool xn_form_negotiate(const char *accept, xn_form request_form, xn_form *out);

/* How much an Accept header value wants a media type, in thousandths: by the most specific range
 * that it is in; 0 where it is in none. */
int xn_form_weight(const char *accept, const char *media_type);

/* A tensor in a request, before its values are read. Exactly one of data and text is set. */
typedef struct xn_tensor_ref {
    bool present;
    xn_datatype datatype;
    xn_shape shape;
    int64_t elements; /* checked product, >= 1 */
    size_t bytes;     /* elements * datatype size */
    /* 0, or of UINT8 that are packed signs, ceil(C/8) in the last dimension: C. */
    int64_t packed_channels;
    const void *data; /* binary forms: in the body, `bytes` long, any alignment */
    const char *text; /* JSON: the array, from its '[' to its ']' */
    size_t text_length;
} xn_tensor_ref;

typedef struct xn_conv_request {
    xn_tensor_ref input, weights, scale, bias;
    char weights_name[XN_PROTO_MAX_NAME + 1]; /* "" when the weights are inline */
    xn_conv_params params;
    char backend[8];              /* "auto" (default), "cpu", "cuda", "ref" */
    int64_t timeout_ms;           /* -1 when not given; >= 1 */
    char id[XN_PROTO_MAX_ID + 1]; /* "" when not given */
} xn_conv_request;

/* The body as received. */
typedef struct xn_proto_body {
    xn_form form;
    const void *bytes;
    size_t length;
    bool has_header_length; /* OIP binary: Inference-Header-Content-Length was given */
    size_t header_length;
} xn_proto_body;

/* Query parameters, for the forms safetensors and raw (others refuse any). */
typedef struct xn_proto_query {
    const char *key, *value; /* percent-decoded */
} xn_proto_query;

/* Bytes in front of the tensors' values, or all of them where the values are text. */
size_t xn_proto_prefix_bytes(const xn_proto_body *body);

typedef struct xn_proto_limits {
    int64_t max_elements; /* of one tensor; XN_ERR_LIMIT "max-elements" */
} xn_proto_limits;

/* Parses a /conv request. Everything that can be refused without knowing the weights is refused
 * here: syntax, duplicate keys, unknown fields (named), nesting over 8, NaN/Infinity, shapes that
 * overflow, byte counts that do not match the shapes, trailing bytes. JSON number arrays are only
 * skipped over here; xn_proto_tensor_read finds errors inside them. Writes *out on success; it
 * needs no freeing (it only borrows from body). */
xn_status xn_proto_parse_conv(const xn_proto_body *body, const xn_proto_query *query,
                              size_t query_count, const xn_proto_limits *limits,
                              xn_conv_request *out, xn_error *error);

typedef struct xn_weights_request {
    xn_tensor_ref weights, scale, bias;
} xn_weights_request;

/* Parses a PUT /weights/{name} body: tensors weights, and optionally scale and bias. */
xn_status xn_proto_parse_weights(const xn_proto_body *body, const xn_proto_limits *limits,
                                 xn_weights_request *out, xn_error *error);

/* Whether a tensor's bytes in the body are its values as they lie: binary, aligned, with no spare
 * bits that must be cleared. */
bool xn_proto_tensor_in_place(const xn_tensor_ref *ref);

/* Reads the values into destination (ref->bytes long, aligned to the element size; it may be where
 * they lie). JSON: decodes
 * the numbers (correctly rounded; range-checked for integer datatypes; true/false for BOOL), flat
 * or nested as the shape says; the count must match. Spare bits of packed signs are cleared. field
 * is the tensor's name ("input"); messages speak of "input.data[17]". */
xn_status xn_proto_tensor_read(const xn_tensor_ref *ref, const char *field, void *destination,
                               xn_error *error);

bool xn_proto_name_valid(const char *name); /* a weights name */
bool xn_proto_id_valid(const char *id);

/* ---- answers ---- */

typedef struct xn_timing {
    /* nanoseconds; other = total - the sum of the rest: time no stage accounts for */
    int64_t receive_ns, decode_ns, queue_ns, upload_ns, compute_ns, download_ns, encode_ns,
        other_ns, total_ns;
} xn_timing;

typedef struct xn_answer {
    const char *id;         /* request id, never NULL */
    const char *backend;    /* "cuda:0", "cpu" */
    xn_precision precision; /* what products were computed from; fp32 for mode xnor */
    int64_t batch_requests, batch_images;
    bool cached; /* from the cache of answers: there was no launch */
    xn_timing timing;
    xn_datatype datatype;
    xn_shape shape; /* [N, O, OH, OW] */
    size_t output_bytes;
} xn_answer;

/* Binary forms: the header is written directly in front of the tensor's bytes, so that header and
 * tensor leave as one contiguous body without a copy. The caller keeps XN_PROTO_HEADROOM_BYTES
 * free before `tensor`. Returns where the body starts (tensor - header bytes); *header_length gets
 * the length of the prefix, which may be 0. Never fails: its size is bounded. form is none that is
 * text. */
#define XN_PROTO_HEADROOM_BYTES 2048
void *xn_proto_write_binary_answer(xn_form form, const xn_answer *answer, void *tensor,
                                   size_t *header_length);

/* The header fields that belong to an answer in that form, beside Content-Type: how many; at most
 * XN_PROTO_HEADERS. header_length is what the call above gave. */
#define XN_PROTO_HEADERS 2
typedef struct xn_proto_header {
    const char *name;
    char value[192];
} xn_proto_header;
int xn_proto_answer_headers(xn_form form, const xn_answer *answer, size_t header_length,
                            xn_proto_header out[XN_PROTO_HEADERS]);

/* JSON: the most bytes an answer can take (checked; false also for BITS, which JSON does not have),
 * and writing it. Floats are written so that they read back as the same float; NaN and infinities,
 * which JSON does not have, as null. text has room for the bound; returns the length. The caller
 * sets timing.encode_ns and total after the numbers are written: xn_proto_json_answer_begin writes
 * everything up to and including the output's data, xn_proto_json_answer_end the rest (backend,
 * precision, batch, timing, a newline).
 */
bool xn_proto_json_answer_bound(const xn_answer *answer, size_t *bytes);
size_t xn_proto_json_answer_begin(const xn_answer *answer, const void *tensor, char *text);
size_t xn_proto_json_answer_end(const xn_answer *answer, char *text, size_t length);

/* "receive;dur=0.012, decode;dur=..." (milliseconds), terminated; Server-Timing of W3C. */
void xn_proto_server_timing(const xn_timing *timing, char *text, size_t size);

/* {"error": {"code": "...", "message": "...", "field": "..."}} and a newline; always valid JSON and
 * terminated. code is one of the closed set in PROTOCOL.md. field may be "". Returns the length. */
size_t xn_proto_write_error(const char *code, const char *message, const char *field, char *text,
                            size_t size);

/* One float in the shortest of 6..9 significant digits that reads back as the same float; no
 * terminator; at most XN_FLOAT_CHARS bytes. Returns the length. "null" for NaN and infinities. */
#define XN_FLOAT_CHARS 16
size_t xn_float_write(float value, char *text);

/* The correctly rounded float of a JSON number at [*text, end). Advances *text past it. False if
 * there is no valid JSON number there. Overflow gives +-infinity (callers refuse it). */
bool xn_float_read(const char **text, const char *end, float *out);

#endif
