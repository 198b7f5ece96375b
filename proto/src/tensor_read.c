/* tensor_read.c: a tensor's values into the memory they are computed from: a copy for the binary
 * forms, numbers from text for JSON.
 *
 * An array nested as the shape is a sequence of rows of the last dimension, and between two rows
 * stand as many ']' and '[' as there are dimensions that wrap there. A flat array is one row. So
 * the text is read in one pass without recursion, and every row by a loop made for its datatype. */
#include "xn_number.h"
#include "xn_proto.h"
#include "xn_text.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

typedef enum { VALUE_OK, VALUE_SYNTAX, VALUE_OVERFLOW, VALUE_RANGE } value_result;

typedef struct reader {
    const char *at, *end;
    const xn_tensor_ref *ref;
    const char *field; /* "input" */
    int levels;        /* brackets around a row: the rank, or 1 for a flat array */
    int64_t row;       /* values in a row */
    int64_t index;     /* of the value being read */
    xn_error *error;
} reader;

static inline const char *skip_space(const char *p, const char *end) {
    while (p < end && (*p == ' ' || *p == '\n' || *p == '\r' || *p == '\t'))
        p++;
    return p;
}

/* ---- errors ---- */

static xn_status fail_at(const reader *r, const char *text) {
    char field[64];
    snprintf(field, sizeof field, "%s.data", r->field);
    return xn_fail(r->error, XN_ERR_MALFORMED, field, "%s%s", field, text);
}

/* Something else stands where the shape needs that. */
static xn_status fail_structure(const reader *r, const char *expected) {
    char shape[160], text[300], got[16];
    xn_shape_format(&r->ref->shape, shape, sizeof shape);
    if (r->at < r->end)
        snprintf(got, sizeof got, "'%c'", *r->at >= ' ' && *r->at <= '~' ? *r->at : '?');
    else
        snprintf(got, sizeof got, "the end");
    snprintf(text, sizeof text,
             " has %s after %" PRId64 " values where %s was expected; it takes %" PRId64
             " values, flat or nested as shape %s",
             got, r->index, expected, r->ref->elements, shape);
    return fail_at(r, text);
}

/* The text at r->at is no value for this datatype. */
static xn_status fail_value(const reader *r, value_result result) {
    if (r->at == r->end || strchr(",[]", *r->at))
        return fail_structure(r, "a value");
    const char *p = r->at;
    while (p < r->end && !strchr(",[]{} \t\r\n", *p))
        p++;
    if (p == r->at)
        p++;
    char excerpt[XN_TEXT_EXCERPT], text[200];
    xn_text_excerpt(r->at, (size_t)(p - r->at), excerpt);
    const char *type = xn_datatype_name(r->ref->datatype);
    if (result == VALUE_OVERFLOW)
        snprintf(text, sizeof text, "[%" PRId64 "] is %s, which is out of the range of %s",
                 r->index, excerpt, type);
    else if (result == VALUE_RANGE)
        snprintf(text, sizeof text, "[%" PRId64 "] is %s; %s takes %s", r->index, excerpt, type,
                 xn_datatype_describe(r->ref->datatype)->values);
    else
        snprintf(text, sizeof text, "[%" PRId64 "] is \"%s\", which is no JSON number", r->index,
                 excerpt);
    return fail_at(r, text);
}

/* ---- values ---- */

static inline value_result read_fp32(const char **at, const char *end, void *destination) {
    xn_number number;
    if (!xn_number_scan(*at, end, &number))
        return VALUE_SYNTAX;
    float value = xn_number_to_float(&number);
    if (isinf(value))
        return VALUE_OVERFLOW;
    *at = number.end;
    *(float *)destination = value;
    return VALUE_OK;
}

/* Through double where that decides: rounding it to the format is right unless it comes within its
 * error of a midpoint (see xn_number.h), which the exact way settles. */
static inline value_result read_half(const char **at, const char *end, xn_real_format format,
                                     float *out) {
    xn_number number;
    if (!xn_number_scan(*at, end, &number))
        return VALUE_SYNTAX;
    double d;
    bool done = false;
    if (number.significand == 0) {
        *out = number.negative ? -0.0f : 0.0f;
        done = true;
    } else if (xn_number_approximate(&number, &d) && d >= 0x1p-14 && d < 0x1p15) {
        /* Normal in both formats: keep format.bits of the 53. */
        uint64_t bits, unit = UINT64_C(1) << (53 - format.bits), half = unit / 2;
        memcpy(&bits, &d, sizeof bits);
        uint64_t low = bits & (unit - 1);
        if (low - (half - 8) > 16) {
            bits = bits - low + (low > half ? unit : 0); /* a carry moves on to the exponent */
            memcpy(&d, &bits, sizeof d);
            *out = (float)(number.negative ? -d : d);
            done = true;
        }
    }
    if (!done)
        *out = xn_number_round(&number, format);
    if (isinf(*out))
        return VALUE_OVERFLOW;
    *at = number.end;
    return VALUE_OK;
}

static inline value_result read_fp16(const char **at, const char *end, void *destination) {
    float value;
    value_result result = read_half(at, end, (xn_real_format){11, -14, 15}, &value);
    if (result == VALUE_OK)
        *(uint16_t *)destination = xn_fp32_to_fp16(value); /* exact */
    return result;
}

static inline value_result read_bf16(const char **at, const char *end, void *destination) {
    float value;
    value_result result = read_half(at, end, (xn_real_format){8, -126, 127}, &value);
    if (result == VALUE_OK)
        *(uint16_t *)destination = xn_fp32_to_bf16(value); /* exact */
    return result;
}

static inline value_result read_integer(const char **at, const char *end, int low, int high,
                                        int *out) {
    xn_number number;
    if (!xn_number_scan(*at, end, &number))
        return VALUE_SYNTAX;
    if (!number.integer || number.exponent != 0 || number.significand > 1000)
        return VALUE_RANGE;
    int value = number.negative ? -(int)number.significand : (int)number.significand;
    if (value < low || value > high)
        return VALUE_RANGE;
    *at = number.end;
    *out = value;
    return VALUE_OK;
}

static inline value_result read_int8(const char **at, const char *end, void *destination) {
    int value;
    value_result result = read_integer(at, end, -128, 127, &value);
    if (result == VALUE_OK)
        *(int8_t *)destination = (int8_t)value;
    return result;
}

static inline value_result read_uint8(const char **at, const char *end, void *destination) {
    int value;
    value_result result = read_integer(at, end, 0, 255, &value);
    if (result == VALUE_OK)
        *(uint8_t *)destination = (uint8_t)value;
    return result;
}

static inline value_result read_bool(const char **at, const char *end, void *destination) {
    int value;
    if (end - *at >= 4 && !memcmp(*at, "true", 4)) {
        *at += 4;
        *(uint8_t *)destination = 1;
        return VALUE_OK;
    }
    if (end - *at >= 5 && !memcmp(*at, "false", 5)) {
        *at += 5;
        *(uint8_t *)destination = 0;
        return VALUE_OK;
    }
    value_result result = read_integer(at, end, 0, 1, &value);
    if (result == VALUE_OK)
        *(uint8_t *)destination = (uint8_t)value;
    return result;
}

/* ---- rows ---- */

typedef value_result (*value_reader)(const char **, const char *, void *);

/* Inlined with a constant read_value, so that each datatype gets its own loop. */
static inline __attribute__((always_inline)) xn_status read_row(reader *r, value_reader read_value,
                                                                uint8_t *out, size_t size) {
    const char *p = r->at, *end = r->end;
    for (int64_t i = 0;; i++, out += size) {
        p = skip_space(p, end);
        value_result result = read_value(&p, end, out);
        if (result != VALUE_OK) {
            r->at = p;
            return fail_value(r, result);
        }
        r->index++;
        p = skip_space(p, end);
        if (i + 1 == r->row)
            break;
        if (p == end || *p != ',') {
            r->at = p;
            return fail_structure(r, "','");
        }
        p++;
    }
    r->at = p;
    return XN_OK;
}

static xn_status read_row_of(reader *r, uint8_t *out) {
    switch (r->ref->datatype) {
    case XN_FP32:
        return read_row(r, read_fp32, out, 4);
    case XN_FP16:
        return read_row(r, read_fp16, out, 2);
    case XN_BF16:
        return read_row(r, read_bf16, out, 2);
    case XN_INT8:
        return read_row(r, read_int8, out, 1);
    case XN_UINT8:
        return read_row(r, read_uint8, out, 1);
    case XN_BOOL:
        return read_row(r, read_bool, out, 1);
    default:
        return fail_at(r, " has a datatype no request can have");
    }
}

static xn_status read_brackets(reader *r, char bracket, int count) {
    for (int i = 0; i < count; i++) {
        r->at = skip_space(r->at, r->end);
        if (r->at == r->end || *r->at != bracket)
            return fail_structure(r, bracket == '[' ? "'['" : "']'");
        r->at++;
    }
    return XN_OK;
}

/* How many arrays end, and begin anew, in front of row number `row` > 0. */
static int wraps(const reader *r, int64_t row) {
    int count = 1;
    for (int level = r->levels - 2; level > 0 && row % r->ref->shape.dims[level] == 0; level--) {
        row /= r->ref->shape.dims[level];
        count++;
    }
    return count;
}

static xn_status read_between_rows(reader *r, int64_t row) {
    int count = wraps(r, row);
    xn_status status = read_brackets(r, ']', count);
    if (status)
        return status;
    r->at = skip_space(r->at, r->end);
    if (r->at == r->end || *r->at != ',')
        return fail_structure(r, "','");
    r->at++;
    return read_brackets(r, '[', count);
}

static xn_status read_text(const xn_tensor_ref *ref, const char *field, uint8_t *out,
                           xn_error *error) {
    reader r = {.at = ref->text,
                .end = ref->text + ref->text_length,
                .ref = ref,
                .field = field,
                .levels = 1,
                .row = ref->elements,
                .error = error};
    if (ref->text_length == 0)
        return fail_structure(&r, "'['");
    const char *second = skip_space(r.at + 1, r.end);
    if (second < r.end && *second == '[') {
        r.levels = ref->shape.rank;
        r.row = ref->shape.dims[ref->shape.rank - 1];
    }
    size_t row_bytes = (size_t)r.row * xn_datatype_bytes(ref->datatype);
    int64_t rows = ref->elements / r.row;
    xn_status status = read_brackets(&r, '[', r.levels);
    for (int64_t row = 0; !status && row < rows; row++) {
        if (row > 0)
            status = read_between_rows(&r, row);
        if (!status)
            status = read_row_of(&r, out + (size_t)row * row_bytes);
    }
    if (!status)
        status = read_brackets(&r, ']', r.levels);
    if (!status && r.at != r.end)
        status = fail_at(&r, " goes on after its last value");
    return status;
}

/* Of each pixel of packed signs; else 0. */
static int64_t channels_of(const xn_tensor_ref *ref) {
    return ref->datatype == XN_BITS ? ref->shape.dims[1] : ref->packed_channels;
}

static int spare_bits(const xn_tensor_ref *ref) {
    return (int)(-channels_of(ref) & 7);
}

/* Those behind the channels of each pixel. */
static void clear_spare_bits(const xn_tensor_ref *ref, void *destination) {
    const size_t pixel = (size_t)xn_bits_pixel_bytes(channels_of(ref));
    const uint8_t mask = (uint8_t)(0xff >> spare_bits(ref));
    uint8_t *bytes = destination;
    for (size_t last = pixel - 1; last < ref->bytes; last += pixel)
        bytes[last] &= mask;
}

bool xn_proto_tensor_in_place(const xn_tensor_ref *ref) {
    const size_t element = xn_datatype_bytes(ref->datatype);
    return ref->data && !(element && (uintptr_t)ref->data % element) && !spare_bits(ref);
}

xn_status xn_proto_tensor_read(const xn_tensor_ref *ref, const char *field, void *destination,
                               xn_error *error) {
    xn_status status = XN_OK;
    if (!ref->data)
        status = read_text(ref, field, destination, error);
    else if (destination != ref->data)
        memcpy(destination, ref->data, ref->bytes);
    if (!status && spare_bits(ref))
        clear_spare_bits(ref, destination);
    return status;
}
