/* proto_bodies.c: see proto_bodies.h. */
#include "proto_bodies.h"
#include "xn_test.h"

#include <stdio.h>
#include <string.h>

proto_bytes proto_bytes_join(const void *a, size_t a_length, const void *b, size_t b_length) {
    size_t length = a_length + b_length;
    proto_bytes out = {malloc(length ? length : 1), length};
    ck_assert_ptr_nonnull(out.bytes);
    if (a_length)
        memcpy(out.bytes, a, a_length);
    if (b_length)
        memcpy(out.bytes + a_length, b, b_length);
    return out;
}

proto_bytes proto_bytes_of(const void *bytes, size_t length) {
    return proto_bytes_join(bytes, length, NULL, 0);
}

static xn_status take(void *context, size_t bytes, void **out, xn_error *error) {
    void **last = context;
    (void)error;
    free(*last);
    *out = *last = malloc(bytes);
    ck_assert_ptr_nonnull(*out);
    memset(*out, 0xa5, bytes); /* what is not written is no zero by chance */
    return XN_OK;
}

static void *last_taken;
const xn_oip_memory proto_memory = {take, &last_taken};

void proto_bytes_free(proto_bytes *bytes) {
    free(bytes->bytes);
    bytes->bytes = NULL;
}

proto_bytes proto_safetensors(const char *header, const void *values, size_t values_length) {
    size_t length = strlen(header);
    unsigned char prefix[8];
    for (int i = 0; i < 8; i++)
        prefix[i] = (unsigned char)(length >> (8 * i));
    proto_bytes head = proto_bytes_join(prefix, 8, header, length);
    proto_bytes out = proto_bytes_join(head.bytes, head.length, values, values_length);
    proto_bytes_free(&head);
    return out;
}

static const xn_proto_limits limits = {PROTO_TEST_MAX_ELEMENTS};

xn_status proto_parse_json(const char *text, proto_bytes *copy, xn_conv_request *out,
                           xn_error *error) {
    *copy = proto_bytes_of(text, strlen(text));
    xn_proto_body body = {.form = XN_FORM_JSON, .bytes = copy->bytes, .length = copy->length};
    return xn_proto_parse_conv(&body, NULL, 0, &limits, out, error);
}

xn_status proto_parse_oip(const char *header, const void *values, size_t values_length,
                          proto_bytes *copy, xn_conv_request *out, xn_error *error) {
    *copy = proto_bytes_join(header, strlen(header), values, values_length);
    xn_proto_body body = {XN_FORM_OIP_BINARY, copy->bytes, copy->length, true, strlen(header)};
    return xn_proto_parse_conv(&body, NULL, 0, &limits, out, error);
}

void proto_expect_error(xn_status status, const xn_error *error, const char *what,
                        const char *field, const char *fragment) {
    ck_assert_msg(status == XN_ERR_MALFORMED || status == XN_ERR_LIMIT, "%.300s: status %s", what,
                  xn_status_name(status));
    ck_assert_msg(error->status == status, "%.300s: error.status differs", what);
    ck_assert_msg(!strcmp(error->field, field), "%.300s: field \"%s\", not \"%s\" (%s)", what,
                  error->field, field, error->message);
    ck_assert_msg(strstr(error->message, fragment), "%.300s: \"%s\" does not say \"%s\"", what,
                  error->message, fragment);
}

static proto_sample oip_sample(const char *name, const char *header, const void *values,
                               size_t length) {
    return (proto_sample){name, XN_FORM_OIP_BINARY,
                          proto_bytes_join(header, strlen(header), values, length), strlen(header)};
}

proto_sample proto_sample_make(int index) {
    static const char flat[] =
        "{\"input\":{\"shape\":[1,1,2,3],\"datatype\":\"FP32\",\"data\":[1,-2.5,3e2,0,-0.0,6]},"
        "\"weights\":{\"datatype\":\"INT8\",\"data\":[1,-1],\"shape\":[1,1,1,2]},"
        "\"scale\":{\"shape\":[1],\"datatype\":\"FP16\",\"data\":[0.5]},"
        "\"bias\":{\"shape\":[1],\"datatype\":\"BF16\",\"data\":[-1]},"
        "\"stride\":[1,2],\"padding\":[0,1,2,3],\"dilation\":2,\"groups\":1,\"pad_value\":-1,"
        "\"scaling\":\"alpha\",\"mode\":\"xnor\",\"output_datatype\":\"FP16\",\"backend\":\"cpu\","
        "\"timeout_ms\":1000,\"id\":\"r-1\"}";
    static const char nested[] =
        " {\n \"we\\u0069ghts\" : \"edge\",\t\"input\" : { \"d\\u0061ta\" : [ [ [ [ 1 , 0 ] , "
        "[ true , false ] ] ] ,\r\n [ [ [ 0 , 0 ] , [ 1 , 1 ] ] ] ] , \"datatype\" : \"BOOL\" , "
        "\"shape\" : [ 2 , 1 , 2 , 2 ] , \"name\":\"input\" } , \"padding\" : \"same\" } ";
    static const char binary[] =
        "{\"weights\":{\"shape\":[1,1,1,2],\"datatype\":\"UINT8\",\"parameters\":"
        "{\"binary_data_size\":2}},\"input\":{\"shape\":[1,1,1,3],\"datatype\":\"FP16\","
        "\"parameters\":{\"binary_data_size\":6}},\"padding\":3}";
    static const char mixed[] =
        "{\"input\":{\"shape\":[1,1,1,3],\"datatype\":\"INT8\",\"parameters\":"
        "{\"binary_data_size\":3}},\"weights\":{\"shape\":[1,1,1,2],\"datatype\":\"FP32\","
        "\"data\":[0.5,-0.5]},\"stride\":1}";
    static const char safetensors[] =
        "{\"__metadata__\":{\"format\":\"pt\",\"stride\":\"1,2\",\"padding\":\"same\","
        "\"mode\":\"bwn\",\"id\":\"s-1\"},\"weights\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1],"
        "\"data_offsets\":[3,7]},\"input\":{\"dtype\":\"I8\",\"shape\":[1,1,1,3],"
        "\"data_offsets\":[0,3]}}   ";
    static const char named[] = "{\"input\":{\"dtype\":\"BF16\",\"shape\":[1,1,1,2],"
                                "\"data_offsets\":[0,4]},\"__metadata__\":{\"weights\":\"edge\"}}";
    switch (index) {
    case 0:
        return (proto_sample){"flat JSON", XN_FORM_JSON, proto_bytes_of(flat, sizeof flat - 1), 0};
    case 1:
        return (proto_sample){"nested JSON", XN_FORM_JSON,
                              proto_bytes_of(nested, sizeof nested - 1), 0};
    case 2:
        return oip_sample("OIP binary", binary, "\x01\x00\x00\x3c\x00\xbc\x00\x40", 8);
    case 3:
        return oip_sample("OIP mixed", mixed, "\x01\xff\x7f", 3);
    case 4:
        return (proto_sample){"safetensors", XN_FORM_SAFETENSORS,
                              proto_safetensors(safetensors, "\x01\xff\x7f\x00\x00\x80\x3f", 7), 0};
    default:
        return (proto_sample){"safetensors, named weights", XN_FORM_SAFETENSORS,
                              proto_safetensors(named, "\x80\x3f\x80\xbf", 4), 0};
    }
}

xn_status proto_sample_parse(const proto_sample *sample, size_t length, xn_conv_request *out,
                             xn_error *error) {
    xn_proto_body body = {.form = sample->form, .bytes = sample->body.bytes, .length = length};
    if (sample->form == XN_FORM_OIP_BINARY) {
        body.has_header_length = true;
        body.header_length = sample->header_length;
    }
    return xn_proto_parse_conv(&body, NULL, 0, &limits, out, error);
}

bool proto_params_equal(const xn_conv_params *a, const xn_conv_params *b) {
    return !memcmp(a->stride, b->stride, sizeof a->stride) &&
           !memcmp(a->dilation, b->dilation, sizeof a->dilation) &&
           !memcmp(a->padding, b->padding, sizeof a->padding) &&
           a->padding_kind == b->padding_kind && a->groups == b->groups &&
           a->pad_value == b->pad_value && a->scaling == b->scaling && a->mode == b->mode &&
           a->output_datatype == b->output_datatype && a->precision == b->precision;
}

static bool refs_equal(const xn_tensor_ref *a, const xn_tensor_ref *b) {
    return a->present == b->present && a->datatype == b->datatype &&
           a->shape.rank == b->shape.rank &&
           !memcmp(a->shape.dims, b->shape.dims, sizeof a->shape.dims) &&
           a->elements == b->elements && a->bytes == b->bytes && a->data == b->data &&
           a->text == b->text && a->text_length == b->text_length;
}

bool proto_requests_equal(const xn_conv_request *a, const xn_conv_request *b) {
    return refs_equal(&a->input, &b->input) && refs_equal(&a->weights, &b->weights) &&
           refs_equal(&a->scale, &b->scale) && refs_equal(&a->bias, &b->bias) &&
           !strcmp(a->weights_name, b->weights_name) &&
           proto_params_equal(&a->params, &b->params) && !strcmp(a->backend, b->backend) &&
           a->timeout_ms == b->timeout_ms && !strcmp(a->id, b->id);
}

/* ---- PROTOCOL.md ---- */

void proto_refuse_all(const char *table,
                      xn_status (*parse)(const xn_table_row *row, xn_error *error)) {
    char path[80];
    snprintf(path, sizeof path, "unit/proto/refusals/%s", table);
    const xn_table *cases = xn_table_read(path);
    for (int i = 0; i < cases->count; i++) {
        const xn_table_row *row = &cases->rows[i];
        xn_error error = {0};
        ck_assert_msg(row->count >= 3, "%s:%d", path, row->line);
        proto_expect_error(parse(row, &error), &error, row->fields[0].text, row->fields[1].text,
                           row->fields[2].text);
    }
}

char *proto_document_block(const char *info) {
    FILE *file = fopen("proto/PROTOCOL.md", "rb");
    ck_assert_msg(file, "proto/PROTOCOL.md: run the tests from the repository's root");
    char *text = calloc(1, 200000), fence[64];
    ck_assert_ptr_nonnull(text);
    ck_assert_uint_gt(fread(text, 1, 199999, file), 0);
    fclose(file);
    snprintf(fence, sizeof fence, "```%s\n", info);
    char *begin = strstr(text, fence);
    ck_assert_msg(begin, "PROTOCOL.md has no block %s", info);
    begin += strlen(fence);
    char *end = strstr(begin, "\n```");
    ck_assert_ptr_nonnull(end);
    size_t length = (size_t)(end - begin);
    memmove(text, begin, length);
    text[length] = 0;
    return text;
}

/* A line that begins with a brace is text, every other one is pairs of digits. */
proto_bytes proto_document_bytes(const char *info) {
    char *text = proto_document_block(info);
    unsigned char *bytes = malloc(strlen(text));
    ck_assert_ptr_nonnull(bytes);
    size_t length = 0;
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
        unsigned value;
        int read = 0;
        if (*line == '{') {
            memcpy(bytes + length, line, strlen(line));
            length += strlen(line);
            continue;
        }
        for (; sscanf(line, "%2x%n", &value, &read) == 1; line += read)
            bytes[length++] = (unsigned char)value;
        ck_assert_msg(!*line, "%s: \"%s\"", info, line);
    }
    proto_bytes out = proto_bytes_of(bytes, length);
    free(bytes);
    free(text);
    return out;
}
