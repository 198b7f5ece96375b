/* safetensors_file.c: see xn_safetensors_file.h. */
#include "xn_safetensors_file.h"

#include "xn_request.h"
#include "xn_text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- the file ---- */

uint64_t xn_safetensors_stated(const uint8_t bytes[8]) {
    uint64_t n = 0;
    for (int i = 7; i >= 0; i--)
        n = n << 8 | bytes[i];
    return n;
}

/* Something else altogether: its first 8 bytes are no length that a header could have. */
static xn_status fail_foreign(const char *what, const uint8_t *bytes, uint64_t length, size_t most,
                              xn_error *error) {
    static const struct {
        const char *begins, *is;
    } known[] = {
        {"{", "it looks like JSON, whose Content-Type is application/json"},
        {"[", "it looks like JSON, whose Content-Type is application/json"},
        {"\x93NUMPY", "it looks like a NumPy array; safetensors.numpy.save makes such a file"},
        {"PK\x03\x04", "it looks like a zip archive, as .npz and .pt files are"},
        {"\x80", "it looks like a Python pickle"},
        {"\x89HDF", "it looks like an HDF5 file"},
        {"\x1f\x8b", "it looks like gzip; send it as it was before"},
    };
    const char *is = "a file begins with the length of its JSON header in 8 bytes, little-endian";
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!memcmp(bytes, known[i].begins, strlen(known[i].begins)))
            is = known[i].is;
    return xn_fail(error, XN_ERR_MALFORMED, "",
                   "%s is no safetensors file: as one, its header length is %" PRIu64
                   "; the limit is %zu; %s",
                   what, length, most, is);
}

xn_status xn_safetensors_split(const char *what, const void *bytes, size_t length, size_t most,
                               xn_safetensors *out, xn_error *error) {
    const uint8_t *begin = bytes;
    if (length < 8)
        return xn_fail(error, XN_ERR_MALFORMED, "",
                       "%s has %zu bytes and is no safetensors file: one begins with 8 bytes of "
                       "header length",
                       what, length);
    const uint64_t n = xn_safetensors_stated(begin);
    if (n > most && n > length - 8)
        return fail_foreign(what, begin, n, most, error);
    if (n > most)
        return xn_fail(error, XN_ERR_MALFORMED, "",
                       "the safetensors header length is %" PRIu64 "; the limit is %zu", n, most);
    if (n > length - 8)
        return xn_fail(error, XN_ERR_MALFORMED, "",
                       "the safetensors header length is %" PRIu64 ", but only %zu bytes follow", n,
                       length - 8);
    if (n == 0 || begin[8] != '{')
        return xn_fail(error, XN_ERR_MALFORMED, "",
                       "the safetensors header must be a JSON object beginning with '{'");
    *out = (xn_safetensors){.header = (const char *)begin + 8,
                            .header_length = (size_t)n,
                            .values = begin + 8 + n,
                            .values_length = length - 8 - (size_t)n};
    return XN_OK;
}

/* ---- a tensor ---- */

xn_status xn_safetensors_members(const char *name, const xn_json *object, xn_error *error) {
    static const char *const names[] = {"dtype", "shape", "data_offsets", NULL};
    char path[64], of[64];
    if (xn_json_kind_of(object) != XN_JSON_OBJECT)
        return xn_json_fail(name, object, "an object with dtype, shape and data_offsets", error);
    snprintf(path, sizeof path, "%s.", name);
    snprintf(of, sizeof of, " in %s", name);
    return xn_json_members(object, "field", path, of, names, NULL, error);
}

static xn_status read_pair(const char *field, const xn_json *value, int64_t out[2],
                           xn_error *error) {
    static const char takes[] = "[begin, end], two integers";
    if (!value || xn_json_kind_of(value) != XN_JSON_ARRAY || xn_json_count(value) != 2)
        return xn_json_fail(field, value, takes, error);
    for (size_t i = 0; i < 2; i++) {
        const xn_json *element = xn_json_element(value, i);
        if (xn_json_kind_of(element) != XN_JSON_INTEGER)
            return xn_json_fail(field, element, takes, error);
        out[i] = xn_json_integer(element);
    }
    return XN_OK;
}

xn_status xn_safetensors_offsets(const char *name, const xn_json *object, size_t values_length,
                                 xn_datatype datatype, const xn_shape *shape, size_t bytes,
                                 uint64_t *begin, xn_error *error) {
    int64_t offsets[2] = {0};
    char field[64], text[200];
    snprintf(field, sizeof field, "%s.data_offsets", name);
    xn_status status = read_pair(field, xn_json_member(object, "data_offsets"), offsets, error);
    if (status)
        return status;
    if (offsets[0] < 0 || offsets[1] < offsets[0] || (uint64_t)offsets[1] > values_length)
        return xn_fail(error, XN_ERR_MALFORMED, field,
                       "%s is [%" PRId64 ", %" PRId64
                       "]; it must lie within the %zu bytes after the header",
                       field, offsets[0], offsets[1], values_length);
    const uint64_t span = (uint64_t)(offsets[1] - offsets[0]);
    *begin = (uint64_t)offsets[0];
    if (span == bytes)
        return XN_OK;
    xn_shape_format(shape, text, sizeof text);
    return xn_fail(error, XN_ERR_MALFORMED, field,
                   "%s spans %" PRIu64 " bytes; shape %s of %s needs %zu%s", field, span, text,
                   xn_datatype_name(datatype), bytes, xn_request_hint_bytes(datatype, span, bytes));
}
