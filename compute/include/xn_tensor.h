/* xn_tensor.h: datatypes and tensor views. A view borrows its memory; it never owns it. */
#ifndef XN_TENSOR_H
#define XN_TENSOR_H

#include "xn_status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define XN_MAX_RANK 8

/* Names are those of the Open Inference Protocol; all little-endian, dense, row-major (the last
 * dimension varies fastest). BOOL is one byte, 0 = false and any other = true: a sign, -1 or +1, as
 * an input of mode xnor and as weights, the number 0 or 1 elsewhere. */
typedef enum {
    XN_FP32,
    XN_FP16, /* IEEE binary16 */
    XN_BF16,
    XN_INT8,
    XN_UINT8,
    XN_BOOL,
    XN_INT32, /* outputs only */
    XN_BITS,  /* signs, packed: [N][H][W][ceil(C/8)] bytes, channel c is bit c % 8, 1 = +1 */
    XN_DATATYPE_COUNT
} xn_datatype;

/* Everything that is known of a datatype: the one table of them. */
typedef struct xn_datatype_info {
    const char *name;        /* of the Open Inference Protocol: "FP32" */
    const char *safetensors; /* "F32"; NULL: a file has no name for it */
    size_t bytes;            /* of an element; 0 for BITS, which has several to a byte */
    bool input;              /* a request's input may have it, */
    bool weights;            /* its weights, scale and bias, */
    bool output;             /* its output */
    const char *values;      /* as numbers in text, where not any: "an integer from 0 to 255" */
} xn_datatype_info;

/* Never NULL: of what is no datatype, one that is called "unknown" and may stand nowhere. */
const xn_datatype_info *xn_datatype_describe(xn_datatype datatype);

/* The index of a name in a list that ends with NULL; -1: it is none of them. */
int xn_name_find(const char *name, const char *const *names);

size_t xn_datatype_bytes(xn_datatype datatype);             /* describe's */
const char *xn_datatype_name(xn_datatype datatype);         /* describe's */
bool xn_datatype_parse(const char *name, xn_datatype *out); /* exact, upper case */

/* Where a datatype may stand, for lists of names in messages. */
typedef enum { XN_AS_INPUT, XN_AS_WEIGHTS, XN_AS_OUTPUT } xn_datatype_use;
bool xn_datatype_may_be(xn_datatype datatype, xn_datatype_use use);

typedef enum {
    XN_NAMES_OIP,        /* "FP32" */
    XN_NAMES_SAFETENSORS /* "F32" */
} xn_datatype_naming;

/* The names of those that may stand somewhere, NULL at the end. Returns names. */
const char *const *xn_datatype_names(xn_datatype_use use, xn_datatype_naming naming,
                                     const char *names[XN_DATATYPE_COUNT + 1]);
/* The same in words, each name between two of `quote`: FP32, FP16 or INT32. Returns text. */
#define XN_DATATYPE_LIST 96
const char *xn_datatype_list(xn_datatype_use use, xn_datatype_naming naming, const char *quote,
                             char text[XN_DATATYPE_LIST]);

typedef struct xn_shape {
    int rank;                  /* 0..XN_MAX_RANK */
    int64_t dims[XN_MAX_RANK]; /* each >= 1 once validated; unused ones are 0 */
} xn_shape;

/* "[1, 3, 224, 224]" into text; always terminated. */
void xn_shape_format(const xn_shape *shape, char *text, size_t size);

/* Bytes of a pixel's channels in BITS. */
static inline int64_t xn_bits_pixel_bytes(int64_t channels) {
    return (channels - 1) / 8 + 1; /* channels >= 1 */
}

/* The number of elements and bytes of a shape; BITS needs rank 4, [N, C, H, W]. Fails with
 * XN_ERR_MALFORMED on a dimension < 1 and XN_ERR_LIMIT ("max-elements") when the product overflows
 * or exceeds max_elements. field is the tensor's name, "input"; errors name "input.shape". bytes
 * may be NULL. */
xn_status xn_shape_elements(const xn_shape *shape, xn_datatype datatype, int64_t max_elements,
                            const char *field, int64_t *elements, size_t *bytes, xn_error *error);

typedef struct xn_tensor {
    xn_datatype datatype;
    xn_shape shape;
    int64_t elements;
    size_t bytes;
    const void *data; /* borrowed, aligned to the datatype's size */
} xn_tensor;

/* Refuses a tensor of a datatype that weights may not have, or whose fields contradict each other:
 * a caller's bug that would read past its data. packed: it may also be BITS, of which [O, I] is
 * [O, I, 1, 1]. name: as in xn_shape_elements. */
xn_status xn_tensor_check(const xn_tensor *tensor, const char *name, bool packed,
                          int64_t max_elements, xn_error *error);

/* Converts element values to fp32, exactly: every input datatype but BITS is a subset of fp32, BOOL
 * is 0 and 1. src and dst do not overlap; count elements. */
void xn_tensor_to_fp32(xn_datatype datatype, const void *src, float *dst, int64_t count);

/* The same, but BOOL is a sign. */
void xn_tensor_to_signed_fp32(xn_datatype datatype, const void *src, float *dst, int64_t count);

/* fp32 to binary16 / bfloat16, round to nearest even, overflow to infinity, NaN stays NaN. */
uint16_t xn_fp32_to_fp16(float value);
float xn_fp16_to_fp32(uint16_t bits);
uint16_t xn_fp32_to_bf16(float value);
float xn_bf16_to_fp32(uint16_t bits);

#ifdef __cplusplus
}
#endif
#endif
