/* encode.c: requests in all forms, put together byte by byte. */
#include "wire.h"

#include <stdio.h>
#include <string.h>

const char *xt_form_type(xt_form form) {
    static const char *const types[] = {"application/json", "application/octet-stream",
                                        "application/vnd.safetensors", "application/octet-stream"};
    return types[form];
}

/* ---- parameters ---- */

/* key and value of one parameter: value as JSON text; plain as in a query string. */
typedef void (*put_parameter)(xt_buffer *out, const char *key, const char *json, const char *plain);

static void put_json(xt_buffer *out, const char *key, const char *json, const char *plain) {
    (void)plain;
    xt_print(out, "%s\"%s\": %s", out->length > 1 ? ", " : "", key, json);
}

static void put_query(xt_buffer *out, const char *key, const char *json, const char *plain) {
    (void)json;
    xt_print(out, "%s%s=%s", out->length ? "&" : "?", key, plain);
}

static void put_metadata(xt_buffer *out, const char *key, const char *json, const char *plain) {
    (void)json;
    xt_print(out, "%s\"%s\": \"%s\"", out->length ? ", " : "", key, plain);
}

static void put_text(xt_buffer *out, put_parameter put, const char *key, const char *value) {
    char json[192];
    if (!value)
        return;
    snprintf(json, sizeof json, "\"%s\"", value);
    put(out, key, json, value);
}

static void put_list(xt_buffer *out, put_parameter put, const char *key, const int64_t *values,
                     int count) {
    char json[128] = "[", plain[128] = "", one[24];
    bool given = false, same = true;
    for (int i = 0; i < count; i++) {
        given = given || values[i];
        same = same && values[i] == values[0];
        snprintf(one, sizeof one, "%s%lld", i ? "," : "", (long long)values[i]);
        strcat(json, one);
        strcat(plain, one);
    }
    if (!given)
        return;
    strcat(json, "]");
    if (same) { /* the short form */
        snprintf(plain, sizeof plain, "%lld", (long long)values[0]);
        strcpy(json, plain);
    }
    put(out, key, json, plain);
}

static void put_integer(xt_buffer *out, put_parameter put, const char *key, int64_t value) {
    char text[24];
    snprintf(text, sizeof text, "%lld", (long long)value);
    if (value)
        put(out, key, text, text);
}

static void put_parameters(xt_buffer *out, put_parameter put, const xt_case *c,
                           const xt_options *options) {
    put_list(out, put, "stride", c->stride, 2);
    put_list(out, put, "dilation", c->dilation, 2);
    put_list(out, put, "padding", c->padding, 4);
    put_text(out, put, "padding", c->padding_name);
    put_integer(out, put, "groups", c->groups);
    put_integer(out, put, "pad_value", c->pad_value);
    put_text(out, put, "mode", c->mode);
    put_text(out, put, "precision", c->precision);
    put_text(out, put, "scaling", c->scaling);
    put_text(out, put, "output_datatype", c->output_datatype);
    put_text(out, put, "backend", options->backend);
    put_text(out, put, "id", options->id);
    put_integer(out, put, "timeout_ms", options->timeout_ms);
}

/* ---- JSON and OIP binary ---- */

static void put_shape(xt_buffer *out, const xt_tensor *tensor) {
    xt_print(out, "[");
    for (int i = 0; i < tensor->rank; i++)
        xt_print(out, "%s%lld", i ? ", " : "", (long long)tensor->dims[i]);
    xt_print(out, "]");
}

static void put_number(xt_buffer *out, const xt_tensor *tensor, int64_t i) {
    if (!strcmp(tensor->datatype, "BOOL"))
        xt_print(out, "%s", tensor->values[i] > 0 ? "true" : "false");
    else
        xt_print(out, "%.9g", tensor->values[i]);
}

/* Flat, or nested as the shape says: a bracket opens or closes where an index wraps. */
static void put_data(xt_buffer *out, const xt_tensor *tensor, bool nested) {
    int depth = nested ? tensor->rank : 1;
    for (int64_t i = 0; i < tensor->count; i++) {
        int wraps = 0;
        for (int64_t block = 1; wraps < depth; wraps++) {
            block *= tensor->dims[tensor->rank - 1 - wraps];
            if (i % block)
                break;
        }
        if (!nested)
            wraps = i == 0;
        for (int w = 0; i && w < wraps; w++)
            xt_print(out, "]");
        if (i)
            xt_print(out, ",");
        for (int w = 0; w < wraps; w++)
            xt_print(out, "[");
        put_number(out, tensor, i);
    }
    for (int w = 0; w < depth; w++)
        xt_print(out, "]");
}

static void put_tensor(xt_buffer *json, xt_buffer *bytes, const char *name, const xt_tensor *tensor,
                       bool binary, bool nested) {
    if (!tensor->datatype)
        return;
    xt_print(json, "%s\"%s\": {\"shape\": ", json->length > 1 ? ", " : "", name);
    put_shape(json, tensor);
    xt_print(json, ", \"datatype\": \"%s\", ", tensor->datatype);
    if (binary) {
        xt_print(json, "\"parameters\": {\"binary_data_size\": %zu}}", tensor->bytes);
        xt_append(bytes, tensor->raw, tensor->bytes);
    } else {
        xt_print(json, "\"data\": ");
        put_data(json, tensor, nested);
        xt_print(json, "}");
    }
}

static void finish_json(xt_form form, xt_buffer *json, xt_buffer *bytes, xt_message *message) {
    if (form == XT_OIP)
        xt_print(&message->headers, "Inference-Header-Content-Length: %zu\r\n", json->length);
    xt_append(&message->body, json->data, json->length);
    xt_append(&message->body, bytes->data, bytes->length);
    xt_buffer_free(json);
    xt_buffer_free(bytes);
}

/* The tensors that go along, in their order; the others are NULL. */
typedef struct parts {
    const xt_tensor *tensor[4];
} parts;
static const char *const part_names[4] = {"input", "weights", "scale", "bias"};

static parts parts_of(const xt_problem *p, const xt_options *options) {
    bool named = options->weights_name != NULL;
    bool affine = !named || options->own_affine;
    return (parts){{&p->input, named ? NULL : &p->weights, affine ? &p->scale : NULL,
                    affine ? &p->bias : NULL}};
}

static void encode_json(const xt_problem *p, xt_form form, const xt_options *options,
                        xt_message *message) {
    const parts all = parts_of(p, options);
    xt_buffer json = {0}, bytes = {0};
    xt_print(&json, "{");
    for (int i = 0; i < 4; i++)
        if (all.tensor[i])
            put_tensor(&json, &bytes, part_names[i], all.tensor[i], form == XT_OIP,
                       options->nested);
    if (options->weights_name)
        xt_print(&json, "%s\"weights\": \"%s\"", json.length > 1 ? ", " : "",
                 options->weights_name);
    put_parameters(&json, put_json, &p->what, options);
    xt_print(&json, "}");
    finish_json(form, &json, &bytes, message);
}

/* ---- safetensors ---- */

static const char *safetensors_datatype(const char *datatype) {
    static const char *const names[][2] = {{"FP32", "F32"}, {"FP16", "F16"}, {"BF16", "BF16"},
                                           {"INT8", "I8"},  {"UINT8", "U8"}, {"BOOL", "BOOL"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(datatype, names[i][0]))
            return names[i][1];
    return datatype;
}

static void put_file_tensor(xt_buffer *header, xt_buffer *bytes, const char *name,
                            const xt_tensor *tensor) {
    if (!tensor->datatype)
        return;
    const bool bits = !strcmp(tensor->datatype, "BITS");
    const int64_t *d = tensor->dims;
    xt_tensor packed = {.rank = 4, .dims = {d[0], d[2], d[3], (d[1] + 7) / 8}};
    xt_print(header, "%s\"%s\": {\"dtype\": \"%s\", \"shape\": ", header->length > 1 ? ", " : "",
             name, bits ? "U8" : safetensors_datatype(tensor->datatype));
    put_shape(header, bits ? &packed : tensor);
    xt_print(header, ", \"data_offsets\": [%zu, %zu]}", bytes->length,
             bytes->length + tensor->bytes);
    xt_append(bytes, tensor->raw, tensor->bytes);
}

static void finish_file(xt_buffer *header, xt_buffer *bytes, xt_message *message) {
    xt_print(header, "}");
    while (header->length % 8)
        xt_print(header, " ");
    unsigned char length[8];
    for (int i = 0; i < 8; i++)
        length[i] = (unsigned char)((uint64_t)header->length >> 8 * i);
    xt_append(&message->body, length, 8);
    xt_append(&message->body, header->data, header->length);
    xt_append(&message->body, bytes->data, bytes->length);
    xt_buffer_free(header);
    xt_buffer_free(bytes);
}

static void encode_file(const xt_problem *p, const xt_options *options, xt_message *message) {
    const parts all = parts_of(p, options);
    xt_buffer header = {0}, bytes = {0}, parameters = {0};
    put_parameter put = options->in_file ? put_metadata : put_query;
    put_parameters(&parameters, put, &p->what, options);
    put_text(&parameters, put, "weights", options->weights_name);
    if (p->input.datatype && !strcmp(p->input.datatype, "BITS"))
        put_integer(&parameters, put, "channels", p->input.dims[1]);
    xt_print(&header, "{");
    if (options->in_file && parameters.length)
        xt_print(&header, "\"__metadata__\": {%s}", parameters.data);
    else if (parameters.length)
        xt_append(&message->target, parameters.data, parameters.length);
    for (int i = 0; i < 4; i++)
        if (all.tensor[i])
            put_file_tensor(&header, &bytes, part_names[i], all.tensor[i]);
    finish_file(&header, &bytes, message);
    xt_buffer_free(&parameters);
}

/* ---- raw ---- */

static void encode_raw(const xt_problem *p, const xt_options *options, xt_message *message) {
    xt_buffer query = {0};
    char shape[96] = "", one[24];
    for (int i = 0; i < p->input.rank; i++) {
        snprintf(one, sizeof one, "%s%lld", i ? "," : "", (long long)p->input.dims[i]);
        strcat(shape, one);
    }
    put_parameters(&query, put_query, &p->what, options);
    put_text(&query, put_query, "weights", options->weights_name);
    put_text(&query, put_query, "shape", shape);
    if (strcmp(p->input.datatype, "FP32") != 0)
        put_text(&query, put_query, "datatype", p->input.datatype);
    xt_append(&message->target, query.data, query.length);
    xt_append(&message->body, p->input.raw, p->input.bytes);
    xt_buffer_free(&query);
}

/* ---- messages ---- */

void xt_encode(const xt_problem *problem, xt_form form, const xt_options *options,
               xt_message *message) {
    *message = (xt_message){0};
    xt_print(&message->target, "/conv");
    xt_print(&message->headers, "Content-Type: %s\r\n", xt_form_type(form));
    if (options->accept)
        xt_print(&message->headers, "Accept: %s\r\n", options->accept);
    if (options->extra_headers)
        xt_print(&message->headers, "%s", options->extra_headers);
    if (form == XT_SAFETENSORS)
        encode_file(problem, options, message);
    else if (form == XT_RAW)
        encode_raw(problem, options, message);
    else
        encode_json(problem, form, options, message);
}

void xt_encode_weights(const xt_problem *problem, xt_form form, xt_message *message) {
    const xt_tensor *const tensors[] = {&problem->weights, &problem->scale, &problem->bias};
    xt_buffer text = {0}, bytes = {0};
    *message = (xt_message){0};
    xt_print(&message->headers, "Content-Type: %s\r\n", xt_form_type(form));
    xt_print(&text, "{");
    if (form == XT_SAFETENSORS) {
        for (int i = 0; i < 3; i++)
            put_file_tensor(&text, &bytes, part_names[i + 1], tensors[i]);
        finish_file(&text, &bytes, message);
        return;
    }
    for (int i = 0; i < 3; i++)
        put_tensor(&text, &bytes, part_names[i + 1], tensors[i], form == XT_OIP, false);
    xt_print(&text, "}");
    finish_json(form, &text, &bytes, message);
}

void xt_message_free(xt_message *message) {
    xt_buffer_free(&message->target);
    xt_buffer_free(&message->headers);
    xt_buffer_free(&message->body);
}

xt_result xt_post(xt_conn *conn, const xt_message *message, xt_response *response) {
    return xt_request(conn, "POST", message->target.data, message->headers.data, message->body.data,
                      message->body.length, response);
}

xt_result xt_post_chunked(xt_conn *conn, const xt_message *message, xn_rng *rng,
                          xt_response *response) {
    xt_buffer bytes = {0};
    xt_print(&bytes, "POST %s HTTP/1.1\r\nHost: a\r\n%sTransfer-Encoding: chunked\r\n\r\n",
             message->target.data, message->headers.data);
    for (size_t at = 0, piece; at < message->body.length; at += piece) {
        const size_t left = message->body.length - at;
        piece = 1 + (size_t)xn_rng_below(rng, xn_rng_below(rng, 2) ? 10 : 20000);
        piece = piece < left ? piece : left;
        xt_print(&bytes, "%zx\r\n", piece);
        xt_append(&bytes, message->body.data + at, piece);
        xt_print(&bytes, "\r\n");
    }
    xt_print(&bytes, "0\r\n\r\n");
    xt_send(conn, bytes.data, bytes.length); /* it may be refused before its end */
    xt_buffer_free(&bytes);
    return xt_receive(conn, false, false, response);
}

xt_result xt_put(xt_conn *conn, const char *target, const xt_message *message,
                 xt_response *response) {
    return xt_request(conn, "PUT", target, message->headers.data, message->body.data,
                      message->body.length, response);
}

/* ---- whole exchanges ---- */

void xt_conv(const xt_daemon *daemon, const xt_problem *problem, xt_form form,
             const xt_options *options, xt_response *response) {
    xt_message message;
    xt_encode(problem, form, options, &message);
    xt_fetch(daemon, "POST", message.target.data, message.headers.data, message.body.data,
             message.body.length, response);
    xt_message_free(&message);
}

void xt_conv_check(const xt_daemon *daemon, const xt_problem *problem, xt_form form, xt_form answer,
                   const xt_options *options) {
    xt_response response;
    char error[512] = "";
    xt_conv(daemon, problem, form, options, &response);
    bool ok = xt_response_matches(&response, answer, problem, options->id, error, sizeof error);
    ck_assert_msg(ok, "%s, %s to %s, seed %llu: %s", problem->what.name, xt_form_type(form),
                  xt_form_type(answer), (unsigned long long)xn_test_seed(), error);
    xt_response_free(&response);
}

bool xt_put_weights(const xt_daemon *daemon, const char *name, const xt_problem *problem,
                    xt_form form) {
    char target[64];
    xt_message message;
    xt_response response;
    snprintf(target, sizeof target, "/weights/%s", name);
    xt_encode_weights(problem, form, &message);
    xt_fetch(daemon, "PUT", target, message.headers.data, message.body.data, message.body.length,
             &response);
    const int status = response.status;
    ck_assert_msg(status == 200 || status == 201, "%s: %d %s", target, status, response.body);
    xt_response_free(&response);
    xt_message_free(&message);
    return status == 201;
}
