/* oip_parameters.c: the parameters of an inference request. Its own, those of /conv, and others,
 * which clients may send along and which mean nothing here. */
#include "xn_oip_parts.h"
#include "xn_text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define MOST_TIMEOUT_US INT64_C(2147483647000) /* what timeout_ms may be; longer is as long */

/* Microseconds, an integer or its text (64 bits are text in the JSON of protocol buffers); 0 is no
 * timeout. */
static xn_status read_timeout(const xn_json *value, int64_t *out, xn_error *error) {
    const xn_json_kind kind = xn_json_kind_of(value);
    int64_t timeout = -1;
    if (kind == XN_JSON_INTEGER)
        timeout = xn_json_integer(value);
    else if (kind == XN_JSON_STRING && xn_param_integers(xn_json_string(value), &timeout, 1) != 1)
        timeout = -1;
    if (timeout < 0)
        return xn_json_fail("parameters.timeout", value, "an integer, microseconds, at least 0",
                            error);
    *out = timeout == 0 ? -1 : timeout < MOST_TIMEOUT_US ? timeout : MOST_TIMEOUT_US;
    return XN_OK;
}

static xn_status fail_reserved(const char *key, xn_error *error) {
    char field[64], excerpt[XN_TEXT_EXCERPT];
    xn_text_excerpt(key, strlen(key), excerpt);
    snprintf(field, sizeof field, "parameters.%s", excerpt);
    return xn_fail(error, XN_ERR_MALFORMED, field,
                   "%s is reserved: no parameter may begin with \"triton_\"; leave it out", field);
}

/* A parameter of /conv: as it is there, or as text like "1,1", for clients whose parameters can be
 * no lists. NULL: it is none, or one that has another place here. */
static const xn_param *conv_param(const char *key) {
    return strcmp(key, "id") && strcmp(key, "weights") ? xn_param_find(key) : NULL;
}

static xn_status set_conv(const xn_param *param, const xn_json *value, xn_conv_request *conv,
                          xn_error *error) {
    if (xn_json_kind_of(value) == XN_JSON_STRING)
        return xn_param_set_text(param, xn_json_string(value), conv, error);
    return xn_param_set_json(param, value, conv, error);
}

static xn_status read_parameter(xn_infer_request *out, xn_conv_request *conv, const char *key,
                                const xn_json *value, xn_error *error) {
    const xn_param *param = conv_param(key);
    if (!strncmp(key, "triton_", strlen("triton_")))
        return fail_reserved(key, error);
    if (xn_json_kind_of(value) == XN_JSON_NULL)
        return XN_OK;
    if (!strcmp(key, "binary_data_output"))
        return xn_oip_bool(value, "parameters.binary_data_output", &out->binary, error);
    if (!strcmp(key, "timeout"))
        return read_timeout(value, &out->timeout_us, error);
    if (!param)
        return XN_OK;
    if (strcmp(key, "backend") && strcmp(key, "timeout_ms"))
        out->conv_given = true;
    return set_conv(param, value, conv, error);
}

xn_status xn_oip_read_parameters(xn_infer_request *out, const xn_json *parameters,
                                 xn_error *error) {
    xn_conv_request conv;
    void *iterator = NULL;
    const char *key;
    const xn_json *value;
    xn_status status = XN_OK;
    xn_params_default(&conv);
    if (parameters && xn_json_kind_of(parameters) != XN_JSON_OBJECT)
        return xn_json_fail("parameters", parameters, "an object", error);
    while (!status && parameters && xn_json_next(parameters, &iterator, &key, &value))
        status = read_parameter(out, &conv, key, value, error);
    if (status)
        return status;
    out->conv = conv.params;
    out->timeout_ms = conv.timeout_ms;
    memcpy(out->backend, conv.backend, sizeof out->backend);
    return XN_OK;
}
