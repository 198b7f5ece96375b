/* requests.c: /conv and PUT /weights bodies in every form, and query parameters. */
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

#define MAX_QUERY 32

static const xn_proto_limits limits = {XF_MAX_ELEMENTS};

static void run_conv(const xn_proto_body *body, const xn_proto_query *query, size_t count) {
    xn_conv_request request;
    xn_error error = {.status = XN_OK};
    xn_status status = xn_proto_parse_conv(body, query, count, &limits, &request, &error);
    if (status) {
        xf_check_error(status, &error);
        return;
    }
    xf_require(request.input.present, "no input");
    xf_require(request.weights.present != (request.weights_name[0] != 0), "weights");
    xf_require(!request.weights_name[0] || xn_proto_name_valid(request.weights_name), "name");
    xf_require(!request.id[0] || xn_proto_id_valid(request.id), "id");
    xf_require(request.timeout_ms == -1 || request.timeout_ms >= 1, "timeout_ms");
    xf_check_tensor(&request.input, "input", body);
    xf_check_tensor(&request.weights, "weights", body);
    xf_check_tensor(&request.scale, "scale", body);
    xf_check_tensor(&request.bias, "bias", body);
}

static void run_weights(const xn_proto_body *body) {
    xn_weights_request request;
    xn_error error = {.status = XN_OK};
    xn_status status = xn_proto_parse_weights(body, &limits, &request, &error);
    if (status) {
        xf_check_error(status, &error);
        return;
    }
    xf_require(request.weights.present, "no weights");
    xf_check_tensor(&request.weights, "weights", body);
    xf_check_tensor(&request.scale, "scale", body);
    xf_check_tensor(&request.bias, "bias", body);
}

/* The first line as text, and where the rest begins. free() it. */
static char *first_line(const uint8_t *data, size_t size, size_t *rest) {
    const uint8_t *end = size ? memchr(data, '\n', size) : NULL;
    size_t length = end ? (size_t)(end - data) : size;
    *rest = end ? length + 1 : size;
    return xf_text(data, length);
}

/* In memory of its own and exactly that size. */
static xn_proto_body copy_body(xn_form form, const uint8_t *data, size_t size) {
    void *bytes = xf_alloc(size);
    memcpy(bytes, data, size);
    return (xn_proto_body){.form = form, .bytes = bytes, .length = size};
}

static void free_body(const xn_proto_body *body) {
    free((void *)(uintptr_t)body->bytes);
}

void xf_conv_json(const uint8_t *data, size_t size) {
    xn_proto_body body = copy_body(XN_FORM_JSON, data, size);
    run_conv(&body, NULL, 0);
    free_body(&body);
}

void xf_conv_oip(const uint8_t *data, size_t size) {
    size_t at = 0;
    char *line = first_line(data, size, &at);
    xn_proto_body body = copy_body(XN_FORM_OIP_BINARY, data + at, size - at);
    body.has_header_length = line[0] != 0;
    body.header_length = strtoul(line, NULL, 10);
    run_conv(&body, NULL, 0);
    free_body(&body);
    free(line);
}

/* Splits text at the separator into key=value pairs, in place. */
static size_t split_query(char *text, const char *separator, xn_proto_query query[MAX_QUERY]) {
    size_t count = 0;
    char *rest = NULL;
    for (char *pair = strtok_r(text, separator, &rest); pair && count < MAX_QUERY;
         pair = strtok_r(NULL, separator, &rest)) {
        char *equal = strchr(pair, '=');
        query[count].key = pair;
        query[count].value = equal ? equal + 1 : NULL;
        if (equal)
            *equal = 0;
        count++;
    }
    return count;
}

static void run_with_query(xn_form form, const uint8_t *data, size_t size) {
    xn_proto_query query[MAX_QUERY];
    size_t at = 0;
    char *line = first_line(data, size, &at);
    size_t count = split_query(line, "&", query);
    xn_proto_body body = copy_body(form, data + at, size - at);
    run_conv(&body, query, count);
    free_body(&body);
    free(line);
}

void xf_conv_safetensors(const uint8_t *data, size_t size) {
    run_with_query(XN_FORM_SAFETENSORS, data, size);
}

void xf_conv_raw(const uint8_t *data, size_t size) {
    run_with_query(XN_FORM_RAW, data, size);
}

void xf_query(const uint8_t *data, size_t size) {
    static const char header[] = "{\"input\":{\"dtype\":\"I8\",\"shape\":[1,1,1,1],"
                                 "\"data_offsets\":[0,1]}}";
    xn_proto_query query[MAX_QUERY];
    uint8_t file[8 + sizeof header] = {sizeof header - 1};
    memcpy(file + 8, header, sizeof header - 1);
    const xn_proto_body body = {.form = XN_FORM_SAFETENSORS, .bytes = file, .length = sizeof file};
    char *text = xf_text(data, size);
    size_t count = split_query(text, "\n", query);
    run_conv(&body, query, count);
    free(text);
}

void xf_weights(const uint8_t *data, size_t size) {
    size_t at = 0;
    char *line = first_line(data, size, &at);
    xn_form form = line[0] == 'o'   ? XN_FORM_OIP_BINARY
                   : line[0] == 's' ? XN_FORM_SAFETENSORS
                                    : XN_FORM_JSON;
    xn_proto_body body = copy_body(form, data + at, size - at);
    const char *space = strchr(line, ' ');
    body.has_header_length = space != NULL;
    body.header_length = space ? strtoul(space + 1, NULL, 10) : 0;
    run_weights(&body);
    free_body(&body);
    free(line);
}
