/* fuzz_proto.c: every parser of proto on arbitrary bytes. The first byte of an input chooses the
 * form and the message, the next two the header length of OIP binary; the rest is the body.
 *
 * With libFuzzer (clang -fsanitize=fuzzer -DXN_LIBFUZZER) it is an ordinary fuzz target. Without,
 * it is a program that mutates its own seeds:   fuzz_proto [rounds [seed]]
 * What it checks besides the sanitizers: a refusal has a message, an accepted tensor is consistent
 * and lies within the body, values read from text are finite and come back as they were when
 * written. */
#include "xn_proto.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_ELEMENTS 100000

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static unsigned long long accepted; /* messages */

static void require(bool condition, const char *what) {
    if (!condition) {
        fprintf(stderr, "fuzz_proto: %s\n", what);
        abort();
    }
}

static void check_error(xn_status status, const xn_error *error) {
    require(error->status == status, "the error has another status");
    require(error->message[0] != 0, "a refusal without a message");
    require(memchr(error->message, 0, sizeof error->message) != NULL, "message not terminated");
    char text[1024];
    size_t length =
        xn_proto_write_error("bad_request", error->message, error->field, text, sizeof text);
    require(length > 0 && length < sizeof text && !text[length], "error text");
}

/* Written as an answer and read again: the same values. */
static void round_trip(const xn_tensor_ref *ref, const float *values) {
    xn_answer answer = {.id = "fuzz",
                        .backend = "cpu",
                        .datatype = XN_FP32,
                        .shape = ref->shape,
                        .output_bytes = ref->bytes};
    size_t bound;
    require(xn_proto_json_answer_bound(&answer, &bound), "bound");
    char *text = malloc(bound);
    float *back = malloc(ref->bytes);
    if (!text || !back)
        abort();
    size_t length = xn_proto_json_answer_begin(&answer, values, text);
    require(length <= bound, "the answer is longer than its bound");
    text[length - 1] = 0;
    const char *array = strstr(text, "\"data\":");
    require(array != NULL, "no data");
    xn_tensor_ref again = *ref;
    again.data = NULL;
    again.text = array + 7;
    again.text_length = (size_t)(text + length - 1 - again.text);
    xn_error error;
    require(!xn_proto_tensor_read(&again, "output", back, &error), "the answer cannot be read");
    require(!memcmp(values, back, ref->bytes), "the answer reads back as other values");
    free(back);
    free(text);
}

static void check_tensor(const xn_tensor_ref *ref, const xn_proto_body *body) {
    if (!ref->present)
        return;
    const char *begin = body->bytes;
    require(ref->elements >= 1 && ref->elements <= MAX_ELEMENTS, "elements");
    require(ref->bytes == (size_t)ref->elements * xn_datatype_bytes(ref->datatype), "bytes");
    require((ref->data != NULL) != (ref->text != NULL), "data and text");
    const char *at = ref->data ? (const char *)ref->data : ref->text;
    size_t length = ref->data ? ref->bytes : ref->text_length;
    require(at >= begin && length <= body->length && (size_t)(at - begin) <= body->length - length,
            "a tensor outside the body");
    void *values = malloc(ref->bytes);
    require(values != NULL, "memory");
    xn_error error = {.status = XN_OK};
    xn_status status = xn_proto_tensor_read(ref, "input", values, &error);
    require(!status || ref->text, "a binary tensor cannot be read");
    if (status) {
        check_error(status, &error);
    } else if (ref->text && ref->datatype == XN_FP32) {
        for (int64_t i = 0; i < ref->elements; i++)
            require(isfinite(((float *)values)[i]), "a value from text is not finite");
        round_trip(ref, values);
    }
    free(values);
}

static void parse_conv(const xn_proto_body *body, const xn_proto_query *query, size_t count) {
    const xn_proto_limits limits = {MAX_ELEMENTS};
    xn_conv_request request;
    xn_error error = {.status = XN_OK};
    xn_status status = xn_proto_parse_conv(body, query, count, &limits, &request, &error);
    if (status) {
        check_error(status, &error);
        return;
    }
    accepted++;
    require(request.input.present, "no input");
    require(request.weights.present != (request.weights_name[0] != 0), "weights");
    check_tensor(&request.input, body);
    check_tensor(&request.weights, body);
    check_tensor(&request.scale, body);
    check_tensor(&request.bias, body);
}

static void parse_weights(const xn_proto_body *body) {
    const xn_proto_limits limits = {MAX_ELEMENTS};
    xn_weights_request request;
    xn_error error = {.status = XN_OK};
    xn_status status = xn_proto_parse_weights(body, &limits, &request, &error);
    if (status) {
        check_error(status, &error);
        return;
    }
    accepted++;
    check_tensor(&request.weights, body);
    check_tensor(&request.scale, body);
    check_tensor(&request.bias, body);
}

/* key=value&key=value into at most 4 pairs. */
static size_t split_query(char *text, xn_proto_query query[4]) {
    size_t count = 0;
    for (char *pair = strtok(text, "&"); pair && count < 4; pair = strtok(NULL, "&")) {
        char *equal = strchr(pair, '=');
        query[count].key = pair;
        query[count].value = equal ? equal + 1 : NULL;
        if (equal)
            *equal = 0;
        count++;
    }
    return count;
}

static void run_text(const char *bytes, size_t length) {
    char *text = malloc(length + 1);
    require(text != NULL, "memory");
    memcpy(text, bytes, length);
    text[length] = 0;
    xn_form form;
    (void)xn_form_parse(text, &form);
    for (int i = XN_FORM_JSON; i <= XN_FORM_SAFETENSORS; i++)
        (void)xn_form_negotiate(text, (xn_form)i, &form);
    (void)xn_proto_name_valid(text);
    (void)xn_proto_id_valid(text);
    free(text);
    char *exact = malloc(length ? length : 1);
    require(exact != NULL, "memory");
    memcpy(exact, bytes, length);
    const char *at = exact;
    float value;
    if (xn_float_read(&at, exact + length, &value)) {
        require(at > exact && at <= exact + length, "the reader left its text");
        char copy[64];
        size_t used = (size_t)(at - exact);
        if (used < sizeof copy) {
            memcpy(copy, exact, used);
            copy[used] = 0;
            float expected = strtof(copy, NULL);
            require(!memcmp(&value, &expected, sizeof value), "strtof reads another float");
        }
    }
    free(exact);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 3)
        return 0;
    uint8_t what = data[0];
    xn_proto_body body = {.form = (xn_form)(what % 3), .length = size - 3};
    uint8_t *copy = malloc(body.length ? body.length : 1); /* exactly: overreads are seen */
    require(copy != NULL, "memory");
    memcpy(copy, data + 3, body.length);
    body.bytes = copy;
    if (body.form == XN_FORM_OIP_BINARY) {
        body.has_header_length = true;
        body.header_length = (size_t)(data[1] | data[2] << 8);
    }
    if (what & 0x80) {
        run_text((const char *)copy, body.length);
    } else if (what & 0x40) {
        parse_weights(&body);
    } else {
        char text[64];
        xn_proto_query query[4];
        size_t count = 0, length = body.length < 40 ? body.length : 40;
        if (what & 0x20 && body.form == XN_FORM_SAFETENSORS) { /* its own end as the query */
            memcpy(text, copy + body.length - length, length);
            text[length] = 0;
            count = split_query(text, query);
        }
        parse_conv(&body, query, count);
    }
    free(copy);
    return 0;
}

#ifndef XN_LIBFUZZER

typedef struct seed {
    uint8_t what;
    uint16_t header_length;
    const char *bytes;
    size_t length;
} seed;

#define JSON_HEADER                                                                                \
    "{\"input\":{\"shape\":[1,1,1,2],\"datatype\":\"FP16\",\"parameters\":"                        \
    "{\"binary_data_size\":4}},\"weights\":{\"shape\":[1,1,1,1],\"datatype\":\"INT8\","            \
    "\"parameters\":{\"binary_data_size\":1}}}"
#define LITERAL(text) text, sizeof(text) - 1

static const seed seeds[] = {
    {0, 0,
     LITERAL("{\"input\":{\"shape\":[1,1,2,3],\"datatype\":\"FP32\",\"data\":[[[[1,-2.5,3e2],"
             "[0,-0.0,6.25e-7]]]]},\"weights\":{\"datatype\":\"INT8\",\"data\":[1,-1],\"shape\":"
             "[1,1,1,2]},\"stride\":[1,2],\"padding\":\"same\",\"dilation\":2,\"groups\":1,"
             "\"pad_value\":-1,\"scaling\":\"alpha\",\"mode\":\"bwn\",\"output_datatype\":"
             "\"FP16\",\"backend\":\"cpu\",\"timeout_ms\":1000,\"id\":\"r-1\"}")},
    {0, 0,
     LITERAL("{\"we\\u0069ghts\":\"edge\",\"input\":{\"d\\u0061ta\":[true,false,1,0],\"datatype\":"
             "\"BOOL\",\"shape\":[1,1,2,2],\"name\":\"input\"},\"scale\":{\"shape\":[1],"
             "\"datatype\":\"BF16\",\"data\":[3.3e38]},\"padding\":[1,2,3,4]}")},
    {0x42, 0,
     LITERAL(
         "{\"weights\":{\"shape\":[2,1,1,1],\"datatype\":\"UINT8\",\"data\":[[[[255]]],[[[0]]]]},"
         "\"bias\":{\"shape\":[2],\"datatype\":\"FP16\",\"data\":[0.1,-65504]}}")},
    {1, sizeof JSON_HEADER - 1, LITERAL(JSON_HEADER "\0\x3c\0\xbc\x7f")},
    {2, 0,
     LITERAL("\xa9\0\0\0\0\0\0\0{\"__metadata__\":{\"stride\":\"1,2\",\"id\":\"x\"},\"input\":"
             "{\"dtype\":\"I8\",\"shape\":[1,1,1,3],\"data_offsets\":[4,7]},\"weights\":{\"dtype\":"
             "\"F32\",\"shape\":[1,1,1,1],\"data_offsets\":[0,4]}}\0\0\x80\x3f\1\2\3")},
    {0x20, 0,
     LITERAL("\x3d\0\0\0\0\0\0\0{\"input\":{\"dtype\":\"BF16\",\"shape\":[20],\"data_offsets\":"
             "[0,40]}}weights=edge&padding=1,1,1,1&mode=float&")},
    {0x80, 0, LITERAL("application/json;q=0.5, application/vnd.safetensors;x=\"a,b\", */*;q=0")},
    {0x80, 0, LITERAL("-123456789.0123456789e-12")},
};
#define SEEDS (sizeof seeds / sizeof *seeds)
#define MAX_INPUT 2048

static uint64_t state;
static uint64_t next_random(uint64_t below) { /* splitmix64 */
    uint64_t z = (state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (z ^ (z >> 31)) % below;
}

static size_t insert(uint8_t *data, size_t size, size_t at, const void *bytes, size_t length) {
    if (size + length > MAX_INPUT)
        return size;
    memmove(data + at + length, data + at, size - at);
    memcpy(data + at, bytes, length);
    return size + length;
}

static size_t mutate(uint8_t *data, size_t size) {
    static const char *const tokens[] = {"[",
                                         "]",
                                         "{",
                                         "}",
                                         ",",
                                         ":",
                                         "\"",
                                         "\\",
                                         "\\u0064",
                                         "null",
                                         "true",
                                         "1e999",
                                         "-0.0",
                                         "1e-45",
                                         "9223372036854775808",
                                         "\"data\":",
                                         "\"data\":[1]",
                                         "\"input\":",
                                         "[[[[[[[[",
                                         "\"parameters\":{\"binary_data_size\":0}",
                                         "0.1234567890123456789012345",
                                         "16777217",
                                         "\xff",
                                         "\xc3\xa9",
                                         "\"shape\":[4294967296,4294967296]",
                                         ",\"stride\":0",
                                         "65536",
                                         " "};
    size_t at = 3 + (size_t)next_random(size - 2);
    switch (next_random(7)) {
    case 0:
        if (at < size)
            data[at] ^= (uint8_t)(1u << next_random(8));
        return size;
    case 1:
        if (at < size)
            data[at] = (uint8_t)next_random(256);
        return size;
    case 2: { /* cut a piece out */
        size_t length = (size_t)next_random(16);
        length = length < size - at ? length : size - at;
        memmove(data + at, data + at + length, size - at - length);
        return size - length;
    }
    case 3:
        return at; /* cut the end off */
    case 4: {      /* copy a piece */
        uint8_t piece[64];
        size_t length = (size_t)next_random(sizeof piece), from = 3 + (size_t)next_random(size - 2);
        length = length < size - from ? length : size - from;
        memcpy(piece, data + from, length);
        return insert(data, size, at, piece, length);
    }
    default: {
        const char *token = tokens[next_random(sizeof tokens / sizeof *tokens)];
        return insert(data, size, at, token, strlen(token));
    }
    }
}

int main(int argc, char **argv) {
    unsigned long long rounds = argc > 1 ? strtoull(argv[1], NULL, 0) : 1000000;
    state = argc > 2 ? strtoull(argv[2], NULL, 0) : 20200728;
    printf("fuzz_proto: %llu rounds, seed %llu\n", rounds, (unsigned long long)state);
    fflush(stdout);
    for (unsigned long long i = 0; i < rounds; i++) {
        uint8_t data[MAX_INPUT];
        const seed *s = &seeds[i % SEEDS];
        data[0] = i < SEEDS || next_random(16) ? s->what : (uint8_t)next_random(256);
        data[1] = (uint8_t)s->header_length;
        data[2] = (uint8_t)(s->header_length >> 8);
        memcpy(data + 3, s->bytes, s->length);
        size_t size = s->length + 3;
        for (uint64_t n = i < SEEDS ? 0 : 1 + next_random(5); n > 0; n--)
            size = mutate(data, size);
        if (i >= SEEDS && s->header_length &&
            next_random(4)) { /* keep the values whole: same distance to end */
            size_t values = s->length - s->header_length;
            size_t header = size > 3 + values ? size - 3 - values : 0;
            data[1] = (uint8_t)header;
            data[2] = (uint8_t)(header >> 8);
        }
        LLVMFuzzerTestOneInput(data, size);
        require(i >= SEEDS || s->what & 0x80 || accepted == i + 1, "a seed was refused");
    }
    printf("fuzz_proto: nothing found; %llu messages accepted\n", accepted);
    return 0;
}

#endif
