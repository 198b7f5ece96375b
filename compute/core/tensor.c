/* tensor.c: datatypes, shapes and exact conversions between real formats. */
#include "xn_arith.h"
#include "xn_mem.h"
#include "xn_tensor.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* name, safetensors, bytes, input, weights, output, values */
static const xn_datatype_info datatypes[XN_DATATYPE_COUNT] = {
    [XN_FP32] = {"FP32", "F32", 4, true, true, true, NULL},
    [XN_FP16] = {"FP16", "F16", 2, true, true, true, NULL},
    [XN_BF16] = {"BF16", "BF16", 2, true, true, false, NULL},
    [XN_INT8] = {"INT8", "I8", 1, true, true, false, "an integer from -128 to 127"},
    [XN_UINT8] = {"UINT8", "U8", 1, true, true, false, "an integer from 0 to 255"},
    [XN_BOOL] = {"BOOL", "BOOL", 1, true, true, false, "true, false, 0 or 1"},
    [XN_INT32] = {"INT32", "I32", 4, false, false, true, NULL},
    [XN_BITS] = {"BITS", NULL, 0, true, false, true, NULL},
};
static const xn_datatype_info unknown = {"unknown", NULL, 0, false, false, false, NULL};

int xn_name_find(const char *name, const char *const *names) {
    for (int i = 0; names[i]; i++)
        if (!strcmp(name, names[i]))
            return i;
    return -1;
}

const xn_datatype_info *xn_datatype_describe(xn_datatype datatype) {
    return (unsigned)datatype < XN_DATATYPE_COUNT ? &datatypes[datatype] : &unknown;
}

bool xn_datatype_may_be(xn_datatype datatype, xn_datatype_use use) {
    const xn_datatype_info *info = xn_datatype_describe(datatype);
    return use == XN_AS_INPUT ? info->input : use == XN_AS_WEIGHTS ? info->weights : info->output;
}

const char *const *xn_datatype_names(xn_datatype_use use, xn_datatype_naming naming,
                                     const char *names[XN_DATATYPE_COUNT + 1]) {
    int count = 0;
    for (int d = 0; d < XN_DATATYPE_COUNT; d++) {
        const char *name = naming == XN_NAMES_OIP ? datatypes[d].name : datatypes[d].safetensors;
        if (name && xn_datatype_may_be((xn_datatype)d, use))
            names[count++] = name;
    }
    names[count] = NULL;
    return names;
}

const char *xn_datatype_list(xn_datatype_use use, xn_datatype_naming naming, const char *quote,
                             char text[XN_DATATYPE_LIST]) {
    const char *names[XN_DATATYPE_COUNT + 1];
    size_t used = 0;
    xn_datatype_names(use, naming, names);
    for (int i = 0; names[i] && used < XN_DATATYPE_LIST; i++)
        used += (size_t)snprintf(text + used, XN_DATATYPE_LIST - used, "%s%s%s%s",
                                 !i             ? ""
                                 : names[i + 1] ? ", "
                                                : " or ",
                                 quote, names[i], quote);
    return text;
}

size_t xn_datatype_bytes(xn_datatype datatype) {
    return xn_datatype_describe(datatype)->bytes;
}

const char *xn_datatype_name(xn_datatype datatype) {
    return xn_datatype_describe(datatype)->name;
}

bool xn_datatype_parse(const char *name, xn_datatype *out) {
    for (int i = 0; i < XN_DATATYPE_COUNT; i++) {
        if (!strcmp(name, datatypes[i].name)) {
            *out = (xn_datatype)i;
            return true;
        }
    }
    return false;
}

/* ---- shapes ---- */

void xn_shape_format(const xn_shape *shape, char *text, size_t size) {
    if (size == 0)
        return;
    size_t used = 0;
    for (int i = 0; i < shape->rank && used < size; i++) {
        int n = snprintf(text + used, size - used, "%s%" PRId64, i ? ", " : "[", shape->dims[i]);
        used += n > 0 ? (size_t)n : 0;
    }
    if (used < size)
        snprintf(text + used, size - used, shape->rank > 0 ? "]" : "[]");
}

enum { PATH_BYTES = 64 };

/* Only what fails is worth a name. */
static const char *path_of(const char *field, char path[PATH_BYTES]) {
    snprintf(path, PATH_BYTES, "%s.shape", field);
    return path;
}

xn_status xn_shape_elements(const xn_shape *shape, xn_datatype datatype, int64_t max_elements,
                            const char *field, int64_t *elements, size_t *bytes, xn_error *error) {
    char path[PATH_BYTES], text[200];
    if (shape->rank < 0 || shape->rank > XN_MAX_RANK)
        return xn_fail(error, XN_ERR_MALFORMED, path_of(field, path),
                       "%s has %d dimensions; at most %d", path, shape->rank, XN_MAX_RANK);
    for (int i = 0; i < shape->rank; i++)
        if (shape->dims[i] < 1)
            return xn_fail(error, XN_ERR_MALFORMED, path_of(field, path),
                           "%s[%d] is %" PRId64 "; every dimension must be at least 1", path, i,
                           shape->dims[i]);
    if (datatype == XN_BITS && shape->rank != 4)
        return xn_fail(error, XN_ERR_MALFORMED, path_of(field, path),
                       "%s has %d dimensions; BITS takes 4: [N, C, H, W]", path, shape->rank);
    int64_t total = 1, total_bytes = 0;
    bool fits = true;
    for (int i = 0; i < shape->rank && fits; i++)
        fits = xn_mul_i64(total, shape->dims[i], &total);
    if (fits && datatype == XN_BITS) /* no more bytes than elements, so they fit too */
        total_bytes = total / shape->dims[1] * xn_bits_pixel_bytes(shape->dims[1]);
    else
        fits = fits && xn_mul_i64(total, (int64_t)xn_datatype_bytes(datatype), &total_bytes);
    if (!fits || total > max_elements) {
        xn_shape_format(shape, text, sizeof text);
        return xn_fail_limit(error, "max-elements", path_of(field, path),
                             "%s %s has more than %" PRId64
                             " elements; send a smaller tensor or raise --max-elements",
                             path, text, max_elements);
    }
    *elements = total;
    if (bytes)
        *bytes = (size_t)total_bytes;
    return XN_OK;
}

xn_status xn_tensor_check(const xn_tensor *tensor, const char *name, bool packed,
                          int64_t max_elements, xn_error *error) {
    int64_t elements;
    size_t bytes;
    char path[PATH_BYTES], list[XN_DATATYPE_LIST];
    const bool bits = packed && tensor->datatype == XN_BITS;
    xn_shape shape = tensor->shape;
    if (bits && shape.rank == 2)
        shape = (xn_shape){4, {shape.dims[0], shape.dims[1], 1, 1}};
    if (!bits && !xn_datatype_may_be(tensor->datatype, XN_AS_WEIGHTS)) {
        snprintf(path, sizeof path, "%s.datatype", name);
        return xn_fail(error, XN_ERR_MALFORMED, path, "%s is %s; expected %s", path,
                       xn_datatype_name(tensor->datatype),
                       xn_datatype_list(XN_AS_WEIGHTS, XN_NAMES_OIP, "", list));
    }
    xn_status status =
        xn_shape_elements(&shape, tensor->datatype, max_elements, name, &elements, &bytes, error);
    if (status || (elements == tensor->elements && bytes == tensor->bytes))
        return status;
    return xn_fail(error, XN_ERR_GEOMETRY, path_of(name, path),
                   "%s means %" PRId64 " elements of %zu bytes in all; the tensor holds %" PRId64
                   " of %zu bytes",
                   path, elements, bytes, tensor->elements, tensor->bytes);
}

/* ---- real formats ---- */

static uint32_t float_bits(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static float bits_float(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* binary16 has 5 bits of exponent (bias 15) and 10 of fraction, binary32 8 (bias 127) and 23.
 * Moved to binary32's place, the exponent is too small by 112: a multiplication by 2^112 puts it
 * right and normalises subnormals on the way, exactly. */
float xn_fp16_to_fp32(uint16_t half) {
    uint32_t sign = (uint32_t)(half & 0x8000u) << 16;
    uint32_t magnitude = (uint32_t)(half & 0x7fffu) << 13;
    uint32_t finite = float_bits(bits_float(magnitude) * 0x1p112f);
    uint32_t special = magnitude | 0x7f800000u;
    return bits_float(sign | ((half & 0x7c00u) == 0x7c00u ? special : finite));
}

uint16_t xn_fp32_to_fp16(float value) {
    uint32_t bits = float_bits(value);
    uint16_t sign = (uint16_t)(bits >> 16 & 0x8000u);
    uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) /* NaN: keep the upper fraction, force it quiet */
        return (uint16_t)(sign | 0x7e00u | (magnitude >> 13 & 0x3ffu));
    if (magnitude >= 0x477ff000u) /* 65520 and more round to infinity */
        return (uint16_t)(sign | 0x7c00u);
    if (magnitude < 0x33000000u) /* under 2^-25, half of the least subnormal */
        return sign;
    /* Below 2^-14 the result is a subnormal: drop as many more bits as the exponent is short. */
    uint32_t exponent = magnitude >> 23;
    uint32_t significand = (magnitude & 0x7fffffu) | 0x800000u;
    uint32_t drop = exponent < 113 ? 13 + (113 - exponent) : 13;
    uint32_t kept = significand >> drop;
    uint32_t rest = significand & ((1u << drop) - 1), half = 1u << (drop - 1);
    if (rest > half || (rest == half && (kept & 1)))
        kept++;
    /* A normal `kept` carries its leading 1 at bit 10: added to the exponent field less one, it
     * becomes the exponent; a carry out of rounding moves on to the next exponent by itself. */
    uint32_t base = exponent < 113 ? 0 : (exponent - 113) << 10;
    return (uint16_t)(sign | (base + kept));
}

uint16_t xn_fp32_to_bf16(float value) {
    uint32_t bits = float_bits(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)(bits >> 16 | 0x40u);
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}

float xn_bf16_to_fp32(uint16_t bits) {
    return bits_float((uint32_t)bits << 16);
}

void xn_tensor_to_fp32(xn_datatype datatype, const void *src, float *dst, int64_t count) {
    const uint16_t *words = src;
    const int8_t *ints = src;
    const uint8_t *bytes = src;
    switch (datatype) {
    case XN_FP32:
        memcpy(dst, src, (size_t)count * sizeof *dst);
        return;
    case XN_FP16:
        for (int64_t i = 0; i < count; i++)
            dst[i] = xn_fp16_to_fp32(words[i]);
        return;
    case XN_BF16:
        for (int64_t i = 0; i < count; i++)
            dst[i] = xn_bf16_to_fp32(words[i]);
        return;
    case XN_INT8:
        for (int64_t i = 0; i < count; i++)
            dst[i] = (float)ints[i];
        return;
    case XN_UINT8:
        for (int64_t i = 0; i < count; i++)
            dst[i] = (float)bytes[i];
        return;
    case XN_BOOL:
        for (int64_t i = 0; i < count; i++)
            dst[i] = bytes[i] ? 1.0f : 0.0f;
        return;
    case XN_INT32:
    case XN_BITS:
    case XN_DATATYPE_COUNT:
        break;
    }
    assert(!"an input datatype");
}

void xn_tensor_to_signed_fp32(xn_datatype datatype, const void *src, float *dst, int64_t count) {
    const uint8_t *bytes = src;
    if (datatype != XN_BOOL) {
        xn_tensor_to_fp32(datatype, src, dst, count);
        return;
    }
    for (int64_t i = 0; i < count; i++)
        dst[i] = xn_bool_sign(bytes[i]);
}
