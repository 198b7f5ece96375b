/* request_values.c: where the values of a request's tensor are, in its JSON or behind it; see
 * xn_request.h. */
#include "xn_request.h"

#include <inttypes.h>
#include <stdio.h>

xn_status xn_request_take_text(const char *name, const xn_json *data, const xn_json_span *span,
                               xn_tensor_ref *ref, xn_error *error) {
    char field[64], shape[200];
    snprintf(field, sizeof field, "%s.data", name);
    if (xn_json_kind_of(data) != XN_JSON_ARRAY || !span->text)
        return xn_json_fail(field, data, "an array of numbers, flat or nested as the shape", error);
    if (span->values != ref->elements) {
        xn_shape_format(&ref->shape, shape, sizeof shape);
        return xn_fail(error, XN_ERR_MALFORMED, field,
                       "%s has %" PRId64 " values; shape %s needs %" PRId64, field, span->values,
                       shape, ref->elements);
    }
    ref->text = span->text;
    ref->text_length = span->length;
    return XN_OK;
}

xn_status xn_request_check_bytes(const char *name, const char *member, const xn_json *size,
                                 const xn_tensor_ref *ref, xn_error *error) {
    char field[64], shape[200], got[XN_JSON_DESCRIPTION];
    const bool integer = xn_json_kind_of(size) == XN_JSON_INTEGER;
    const int64_t bytes = integer ? xn_json_integer(size) : -1;
    if (bytes >= 0 && (uint64_t)bytes == ref->bytes)
        return XN_OK;
    snprintf(field, sizeof field, "%s.parameters.%s", name, member);
    xn_shape_format(&ref->shape, shape, sizeof shape);
    return xn_fail(
        error, XN_ERR_MALFORMED, field, "%s is %s; shape %s of %s needs %zu%s", field,
        xn_json_describe(size, got), shape, xn_datatype_name(ref->datatype), ref->bytes,
        xn_request_hint_bytes(ref->datatype, bytes > 0 ? (uint64_t)bytes : 0, ref->bytes));
}

xn_status xn_request_take_bytes(const char *name, const xn_json *size, xn_request_values *values,
                                xn_tensor_ref *ref, xn_error *error) {
    char field[64];
    xn_status status = xn_request_check_bytes(name, "binary_data_size", size, ref, error);
    if (status)
        return status;
    snprintf(field, sizeof field, "%s.parameters.binary_data_size", name);
    if (ref->bytes > values->left)
        return xn_fail(error, XN_ERR_MALFORMED, field,
                       "%s is %zu, but only %zu bytes of the body are left for it", field,
                       ref->bytes, values->left);
    ref->data = values->at;
    values->at += ref->bytes;
    values->left -= ref->bytes;
    return XN_OK;
}
