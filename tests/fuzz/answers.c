/* answers.c: what is written, from arbitrary answers, read back by the parsers. */
#include "fuzz.h"
#include "xn_json_tree.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MOST_ELEMENTS 64

/* Takes values from the input; zeroes past its end. */
typedef struct source {
    const uint8_t *data;
    size_t size;
} source;

static void take(source *s, void *out, size_t size) {
    size_t there = size < s->size ? size : s->size;
    memset(out, 0, size);
    memcpy(out, s->data, there);
    s->data += there;
    s->size -= there;
}

static uint8_t take_byte(source *s) {
    uint8_t byte;
    take(s, &byte, 1);
    return byte;
}

static int64_t take_int(source *s) {
    int64_t value;
    take(s, &value, sizeof value);
    return value;
}

/* Terminated; up to 255 bytes. */
static char *take_text(source *s) {
    size_t length = take_byte(s);
    length = length < s->size ? length : s->size;
    char *text = xf_text(s->data, length);
    s->data += length;
    s->size -= length;
    return text;
}

typedef struct sample {
    xn_answer answer;
    char *id, *backend;
    uint8_t values[MOST_ELEMENTS * 4];
} sample;

static void take_sample(source *s, sample *out) {
    static const xn_datatype datatypes[] = {XN_FP32, XN_FP16, XN_INT32};
    memset(out, 0, sizeof *out);
    out->id = take_text(s);
    out->backend = take_text(s);
    out->answer = (xn_answer){.id = out->id,
                              .backend = out->backend,
                              .precision = take_byte(s) % 2 ? XN_PRECISION_FP32 : XN_PRECISION_TF32,
                              .batch_requests = take_int(s),
                              .batch_images = take_int(s),
                              .datatype = datatypes[take_byte(s) % 3]};
    take(s, &out->answer.timing, sizeof out->answer.timing);
    out->answer.shape.rank = 1 + take_byte(s) % XN_MAX_RANK;
    for (int i = 0; i < out->answer.shape.rank; i++)
        out->answer.shape.dims[i] = take_int(s);
    size_t elements = take_byte(s) % (MOST_ELEMENTS + 1);
    out->answer.output_bytes = elements * xn_datatype_bytes(out->answer.datatype);
    take(s, out->values, sizeof out->values);
}

static const xn_json *parse(const char *text, size_t length, xn_json_scan *scan) {
    const xn_json *root = NULL;
    xn_error error;
    xf_require(!xn_json_scan_text(text, length, false, scan, &error), "the scanner refuses it");
    xf_require(!xn_json_parse(scan, "an answer", &root, &error), "it is no JSON");
    xf_require(xn_json_kind_of(root) == XN_JSON_OBJECT, "it is no object");
    return root;
}

static const xn_json *member(const xn_json *object, const char *key, xn_json_kind kind) {
    const xn_json *value = xn_json_member(object, key);
    xf_require(value && xn_json_kind_of(value) == kind, key);
    return value;
}

/* A word as it must come back: itself where it is short and printable ASCII. */
static void check_word(const xn_json *object, const char *key, const char *word) {
    const char *back = xn_json_string(member(object, key, XN_JSON_STRING));
    size_t length = strlen(word);
    xf_require(strlen(back) <= XN_PROTO_MAX_ID, "a word that is too long");
    bool plain = length <= XN_PROTO_MAX_ID;
    for (size_t i = 0; i < length; i++)
        plain = plain && word[i] >= ' ' && word[i] <= '~' && word[i] != '"' && word[i] != '\\';
    xf_require(!plain || !strcmp(back, word), "a word that changed");
}

static void check_shape(const xn_json *object, const xn_answer *answer) {
    const xn_json *shape = member(object, "shape", XN_JSON_ARRAY);
    xf_require(xn_json_count(shape) == (size_t)answer->shape.rank, "rank");
    for (size_t i = 0; i < xn_json_count(shape); i++)
        xf_require(xn_json_integer(xn_json_element(shape, i)) == answer->shape.dims[i], "dims");
}

static void check_int(const xn_json *object, const char *key, int64_t value) {
    xf_require(xn_json_integer(member(object, key, XN_JSON_INTEGER)) == value, key);
}

static void check_values(const sample *s, const char *text, const xn_json *data) {
    size_t count = s->answer.output_bytes / xn_datatype_bytes(s->answer.datatype);
    xf_require(xn_json_count(data) == count, "values");
    const char *array = strstr(text, "\"data\":[");
    const char *at = array ? array + strlen("\"data\":[") : text, *end = text + strlen(text);
    for (size_t i = 0; i < count; i++) {
        const xn_json *element = xn_json_element(data, i);
        if (s->answer.datatype == XN_INT32) {
            int32_t value;
            memcpy(&value, s->values + i * 4, 4);
            xf_require(xn_json_kind_of(element) == XN_JSON_INTEGER &&
                           xn_json_integer(element) == value,
                       "an integer that changed");
            continue;
        }
        uint16_t half;
        float value, back;
        memcpy(&half, s->values + i * 2, 2);
        memcpy(&value, s->values + i * 4, 4);
        if (s->answer.datatype == XN_FP16)
            value = xn_fp16_to_fp32(half);
        if (!isfinite(value)) {
            xf_require(xn_json_kind_of(element) == XN_JSON_NULL, "not null");
            at += strlen("null,");
            continue;
        }
        xf_require(xn_float_read(&at, end, &back) && !memcmp(&back, &value, sizeof value),
                   "a number that changed");
        at++;
    }
}

static void check_json(const sample *s) {
    size_t bound = 0;
    xf_require(xn_proto_json_answer_bound(&s->answer, &bound), "bound");
    char *text = xf_alloc(bound + 1);
    size_t length = xn_proto_json_answer_begin(&s->answer, s->values, text);
    length = xn_proto_json_answer_end(&s->answer, text, length);
    xf_require(length <= bound, "longer than its bound");
    text[length] = 0;
    xn_json_scan scan = {0};
    const xn_json *root = parse(text, length, &scan);
    const xn_json *output = member(root, "output", XN_JSON_OBJECT);
    check_word(root, "id", s->id);
    check_word(root, "backend", s->backend);
    check_shape(output, &s->answer);
    const xn_json *batch = member(root, "batch", XN_JSON_OBJECT);
    check_int(batch, "requests", s->answer.batch_requests);
    check_int(batch, "images", s->answer.batch_images);
    member(member(root, "timing", XN_JSON_OBJECT), "total", XN_JSON_REAL);
    /* An id may look like the array; then only the tree is compared. */
    if (!strstr(s->id, "data"))
        check_values(s, text, member(output, "data", XN_JSON_ARRAY));
    xn_json_scan_free(&scan);
    free(text);
}

static void check_binary(const sample *s, xn_form form) {
    size_t tensor_bytes = s->answer.output_bytes, header = 0;
    unsigned char *room = xf_alloc(XN_PROTO_HEADROOM_BYTES + tensor_bytes);
    unsigned char *tensor = room + XN_PROTO_HEADROOM_BYTES;
    memcpy(tensor, s->values, tensor_bytes);
    unsigned char *body = xn_proto_write_binary_answer(form, &s->answer, tensor, &header);
    xf_require(body >= room && body + header == tensor && header % 8 == 0, "the header's place");
    xf_require(!memcmp(tensor, s->values, tensor_bytes), "the tensor was written over");
    bool safetensors = form == XN_FORM_SAFETENSORS;
    size_t skip = safetensors ? 8 : 0;
    uint64_t announced = 0;
    for (int i = 7; safetensors && i >= 0; i--)
        announced = announced << 8 | body[i];
    xf_require(!safetensors || announced == header - 8, "the header's length");
    xn_json_scan scan = {0};
    const xn_json *root = parse((char *)body + skip, header - skip, &scan);
    const xn_json *output = member(root, "output", XN_JSON_OBJECT);
    const xn_json *about = safetensors ? member(root, "__metadata__", XN_JSON_OBJECT) : root;
    check_word(about, "id", s->id);
    check_word(about, "backend", s->backend);
    check_shape(output, &s->answer);
    if (safetensors) {
        const xn_json *offsets = member(output, "data_offsets", XN_JSON_ARRAY);
        xf_require(xn_json_integer(xn_json_element(offsets, 1)) == (int64_t)tensor_bytes, "end");
    } else {
        check_int(member(output, "parameters", XN_JSON_OBJECT), "binary_data_size",
                  (int64_t)tensor_bytes);
    }
    xn_json_scan_free(&scan);
    free(room);
}

/* Arbitrary texts in room of arbitrary size. */
static void check_error_text(const char *code, const char *message, const char *field,
                             size_t size) {
    char *text = xf_alloc(size);
    size_t length = xn_proto_write_error(code, message, field, text, size);
    xf_require(size == 0 || (length < size && !text[length]), "an error longer than its room");
    if (length) {
        xn_json_scan scan = {0};
        parse(text, length, &scan);
        xn_json_scan_free(&scan);
    }
    free(text);
}

static void check_timing(const xn_timing *timing, size_t size) {
    char *text = xf_alloc(size);
    xn_proto_server_timing(timing, text, size);
    xf_require(size == 0 || memchr(text, 0, size) != NULL, "Server-Timing not terminated");
    free(text);
}

void xf_answer(const uint8_t *data, size_t size) {
    source from = {data, size};
    sample s;
    size_t room = (size_t)take_byte(&from) * 4;
    take_sample(&from, &s);
    check_json(&s);
    check_binary(&s, XN_FORM_OIP_BINARY);
    check_binary(&s, XN_FORM_SAFETENSORS);
    check_timing(&s.answer.timing, room);
    char *message = take_text(&from);
    check_error_text(s.backend, message, s.id, room);
    check_error_text("bad_request", message, s.id, 1024);
    free(message);
    free(s.id);
    free(s.backend);
}
