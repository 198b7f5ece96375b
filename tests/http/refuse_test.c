/* Bad requests to /conv on a real daemon: each refused with the right status, a message that names
 * the field, and before memory is taken. */
#include "client/wire.h"

#include <stdio.h>
#include <string.h>

static xt_daemon *daemon_;

static void start(void) {
    daemon_ = xt_daemon_start_shared(XT_NO_FLAGS);
}

static void stop(void) {
    xt_daemon_stop_shared(daemon_);
}

#define JSON_TYPE "Content-Type: application/json\r\n"
#define IMAGE "{\"shape\": [1,1,2,2], \"datatype\": \"FP32\", \"data\": [1,2,3,4]}"
#define KERNEL "{\"shape\": [1,1,1,1], \"datatype\": \"FP32\", \"data\": [1]}"
#define WITH(rest) "{\"input\": " IMAGE ", \"weights\": " KERNEL rest "}"
#define INPUT(tensor) "{\"input\": " tensor ", \"weights\": " KERNEL "}"

typedef struct refusal {
    const char *body;
    int status;
    const char *field;   /* part of error.field, or NULL */
    const char *message; /* part of error.message, or NULL */
} refusal;

/* clang-format off */
static const refusal refusals[] = {
    /* syntax */
    {"", 400, NULL, NULL},
    {" ", 400, NULL, NULL},
    {"{", 400, NULL, NULL},
    {"null", 400, NULL, NULL},
    {"[]", 400, NULL, NULL},
    {"{}", 400, "input", NULL},
    {WITH("") "x", 400, NULL, NULL},
    {WITH(",}"), 400, NULL, NULL},
    {WITH(", \"stride\": 01"), 400, NULL, NULL},
    {WITH(", \"stride\": +1"), 400, NULL, NULL},
    {WITH(", 'stride': 1"), 400, NULL, NULL},
    {WITH(", \"id\": \"\\x41\""), 400, NULL, NULL},
    {WITH(", \"id\": \"\x01\""), 400, NULL, NULL},
    {WITH(", \"id\": \"\xff\xfe\""), 400, NULL, NULL},
    {WITH(", // comment\n \"stride\": 1"), 400, NULL, NULL},
    {"\xef\xbb\xbf" WITH(""), 400, NULL, NULL},
    /* keys */
    {WITH(", \"strides\": 1"), 400, "strides", NULL},
    {WITH(", \"stride\": 1, \"stride\": 2"), 400, "stride", NULL},
    {WITH(", \"str\\u0069de\": 1, \"stride\": 1"), 400, "stride", NULL},
    {"{\"input\": " IMAGE ", \"input\": " IMAGE ", \"weights\": " KERNEL "}", 400, "input", NULL},
    {INPUT("{\"shape\": [1,1,1,1], \"shape\": [1,1,1,1], \"datatype\": \"FP32\", \"data\": [1]}"),
     400, "shape", NULL},
    {INPUT("{\"shape\": [1,1,1,1], \"datatype\": \"FP32\", \"data\": [1], \"extra\": 1}"), 400,
     "input", "extra"},
    {INPUT("{\"datatype\": \"FP32\", \"data\": [1]}"), 400, "input", "shape"},
    {INPUT("{\"shape\": [1,1,1,1], \"data\": [1]}"), 400, "input", "datatype"},
    {INPUT("{\"shape\": [1,1,1,1], \"datatype\": \"FP32\"}"), 400, "input", "data"},
    {"{\"weights\": " KERNEL "}", 400, "input", NULL},
    {"{\"input\": " IMAGE "}", 400, "weights", NULL},
    /* types */
    {WITH(", \"stride\": \"1\""), 400, "stride", NULL},
    {WITH(", \"stride\": 1.5"), 400, "stride", NULL},
    {WITH(", \"stride\": true"), 400, "stride", NULL},
    {WITH(", \"stride\": null"), 400, "stride", NULL},
    {WITH(", \"stride\": {}"), 400, "stride", NULL},
    {WITH(", \"stride\": [1]"), 400, "stride", NULL},
    {WITH(", \"stride\": [1,1,1]"), 400, "stride", NULL},
    {WITH(", \"padding\": [1,1,1]"), 400, "padding", NULL},
    {WITH(", \"padding\": \"full\""), 400, "padding", "full"},
    {WITH(", \"mode\": \"XNOR\""), 400, "mode", "XNOR"},
    {WITH(", \"mode\": 1"), 400, "mode", NULL},
    {WITH(", \"precision\": \"half\""), 400, "precision", "half"},
    {WITH(", \"scaling\": \"beta\""), 400, "scaling", "beta"},
    {WITH(", \"output_datatype\": \"FP64\""), 400, "output_datatype", "FP64"},
    {WITH(", \"timeout_ms\": 0"), 400, "timeout_ms", "0"},
    {WITH(", \"timeout_ms\": -5"), 400, "timeout_ms", "-5"},
    {WITH(", \"timeout_ms\": 300001"), 400, "timeout_ms", "--max-timeout-ms"},
    {WITH(", \"id\": 7"), 400, "id", NULL},
    {WITH(", \"id\": \"a\\\"b\""), 400, "id", NULL},
    {"{\"input\": [1], \"weights\": " KERNEL "}", 400, "input", NULL},
    {"{\"input\": " IMAGE ", \"weights\": \"../../etc\"}", 400, "weights", NULL},
    {"{\"input\": " IMAGE ", \"weights\": \"\"}", 400, "weights", NULL},
    {"{\"input\": " IMAGE ", \"weights\": \"unknown-name\"}", 404, "weights", "unknown-name"},
    /* numbers */
    {INPUT("{\"shape\": [1,1,1,1], \"datatype\": \"FP32\", \"data\": [NaN]}"), 400, "input", NULL},
    {INPUT("{\"shape\": [1,1,1,1], \"datatype\": \"FP32\", \"data\": [Infinity]}"), 400, "input",
     NULL},
    {INPUT("{\"shape\": [1,1,1,1], \"datatype\": \"FP32\", \"data\": [1e39]}"), 400, "input", NULL},
    {INPUT("{\"shape\": [1,1,1,1], \"datatype\": \"FP16\", \"data\": [65520]}"), 400, "input",
     NULL},
    {INPUT("{\"shape\": [1,1,1,1], \"datatype\": \"INT8\", \"data\": [128]}"), 400, "input", NULL},
    {INPUT("{\"shape\": [1,1,1,1], \"datatype\": \"INT8\", \"data\": [1.5]}"), 400, "input", NULL},
    {"{\"mode\": \"bwn\", \"input\": {\"shape\": [1,1,1,1], \"datatype\": \"UINT8\", \"data\": [-1]}, "
     "\"weights\": " KERNEL "}", 400, "input", NULL},
    {INPUT("{\"shape\": [1,1,1,1], \"datatype\": \"FP32\", \"data\": [\"1\"]}"), 400, "input",
     NULL},
    {INPUT("{\"shape\": [1,1,1,1], \"datatype\": \"FP32\", \"data\": [null]}"), 400, "input", NULL},
    {INPUT("{\"shape\": [1,1,1,2], \"datatype\": \"FP32\", \"data\": [1]}"), 400, "input", NULL},
    {INPUT("{\"shape\": [1,1,1,1], \"datatype\": \"FP32\", \"data\": [1,2]}"), 400, "input", NULL},
    {INPUT("{\"shape\": [1,1,1,1], \"datatype\": \"FP32\", \"data\": [1,]}"), 400, "input", NULL},
    {INPUT("{\"shape\": [1,1,2,2], \"datatype\": \"FP32\", \"data\": [[1,2],[3,4]]}"), 400, "input",
     NULL},
    {INPUT("{\"shape\": [1,1,1,1], \"datatype\": \"FP32\", \"data\": 1}"), 400, "input", NULL},
    {INPUT("{\"shape\": [1,1,1,1], \"datatype\": \"FP32\", "
           "\"parameters\": {\"binary_data_size\": 4}}"), 400, "input", NULL},
    /* shapes */
    {INPUT("{\"shape\": [1,1,1,0], \"datatype\": \"FP32\", \"data\": []}"), 400, "input", "0"},
    {INPUT("{\"shape\": [1,1,1,-1], \"datatype\": \"FP32\", \"data\": [1]}"), 400, "input", "-1"},
    {INPUT("{\"shape\": [1,1,1,1.0e0], \"datatype\": \"FP32\", \"data\": [1]}"), 400, "input",
     NULL},
    {INPUT("{\"shape\": \"1\", \"datatype\": \"FP32\", \"data\": [1]}"), 400, "input", NULL},
    {INPUT("{\"shape\": [1,1,1,1,1,1,1,1,1], \"datatype\": \"FP32\", \"data\": [1]}"), 400, "input",
     NULL},
    {INPUT("{\"shape\": [4294967296,4294967296,4294967296,4], \"datatype\": \"FP32\", "
           "\"data\": [1]}"), 413, "input", "max-elements"},
    {INPUT("{\"shape\": [99999999999999999999,1,1,1], \"datatype\": \"FP32\", \"data\": [1]}"), 400,
     "input.shape", "input.shape is 99999999999999999999"},
    {INPUT("{\"shape\": [1,1,16384,16384], \"datatype\": \"FP32\", \"data\": [1]}"), 413, "input",
     "max-elements"},
    {INPUT("{\"shape\": [1,1,1,1], \"datatype\": \"fp32\", \"data\": [1]}"), 400, "input", "fp32"},
    {INPUT("{\"shape\": [1,1,1,1], \"datatype\": \"INT32\", \"data\": [1]}"), 400, "input",
     "INT32"},
    /* well-formed but impossible */
    {INPUT("{\"shape\": [1,1,1], \"datatype\": \"FP32\", \"data\": [1]}"), 422, "input.shape",
     NULL},
    {INPUT("{\"shape\": [1,2,1,1], \"datatype\": \"FP32\", \"data\": [1,2]}"), 422, "shape", "2"},
    {WITH(", \"groups\": 2"), 422, "groups", "2"},
    {INPUT("{\"shape\": [1,1,1,1], \"datatype\": \"UINT8\", \"data\": [1]}"), 422,
     "input.datatype", "send INT8 of 1 and -1, BOOL"},
    {"{\"input\": " IMAGE ", \"weights\": {\"shape\": [1,1,1,1], \"datatype\": \"UINT8\", "
     "\"data\": [1]}}", 422, "weights.datatype", "negative"},
    {WITH(", \"dilation\": 1, \"padding\": 0, \"bias\": {\"shape\": [2], \"datatype\": \"FP32\", "
          "\"data\": [1,2]}"), 422, "bias", NULL},
    {"{\"input\": " IMAGE ", \"weights\": {\"shape\": [1,1,3,3], \"datatype\": \"INT8\", \"data\": "
     "[1,1,1,1,1,1,1,1,1]}}", 422, NULL, NULL},
    /* parameters out of their range */
    {WITH(", \"stride\": 0"), 400, "stride", "0"},
    {WITH(", \"stride\": [1, -1]"), 400, "stride", "-1"},
    {WITH(", \"stride\": 99999999999999999999"), 400, NULL, "99999999999999999999"},
    {WITH(", \"dilation\": 0"), 400, "dilation", "0"},
    {WITH(", \"padding\": -1"), 400, "padding", "-1"},
    {WITH(", \"groups\": 0"), 400, "groups", "0"},
    {WITH(", \"pad_value\": 2"), 400, "pad_value", "2"},
    {WITH(", \"pad_value\": 0.5"), 400, "pad_value", NULL},
};
/* clang-format on */

/* Combinations that are refused, whatever the status: 400 or 422. */
static const refusal contradictions[] = {
    {WITH(", \"output_datatype\": \"INT32\""), 0, "output_datatype", NULL},
    {WITH(", \"output_datatype\": \"INT32\", \"scaling\": \"none\", \"mode\": \"bwn\""), 0,
     "output_datatype", NULL},
    {WITH(", \"output_datatype\": \"INT32\", \"scaling\": \"none\", \"bias\": {\"shape\": [1], "
          "\"datatype\": \"FP32\", \"data\": [1]}"),
     0, NULL, NULL},
    {WITH(", \"scaling\": \"none\", \"scale\": {\"shape\": [1], \"datatype\": \"FP32\", \"data\": "
          "[1]}"),
     0, "scal", NULL},
};

static void post_text(const char *headers, const char *body, xt_response *response) {
    xt_fetch(daemon_, "POST", "/conv", headers, body, strlen(body), response);
}

START_TEST(json_refusals) {
    const refusal *r = &refusals[_i];
    xt_response response;
    post_text(JSON_TYPE, r->body, &response);
    xt_check_error(&response, r->status, r->field, r->message, r->body);
    xt_response_free(&response);
}
END_TEST

START_TEST(contradictory_parameters) {
    const refusal *r = &contradictions[_i];
    xt_response response;
    post_text(JSON_TYPE, r->body, &response);
    ck_assert_msg(response.status == 400 || response.status == 422, "%s: %d", r->body,
                  response.status);
    xt_check_error(&response, response.status, r->field, r->message, r->body);
    xt_response_free(&response);
}
END_TEST

START_TEST(nesting_is_bounded) {
    xt_buffer body = {0};
    xt_response response;
    xt_print(&body, "{\"input\": " IMAGE ", \"weights\": " KERNEL ", \"stride\": ");
    for (int i = 0; i < 100000; i++)
        xt_print(&body, "[");
    post_text(JSON_TYPE, body.data, &response);
    xt_check_error(&response, 400, NULL, NULL, "100000 open brackets");
    xt_response_free(&response);
    xt_buffer_free(&body);
    /* in the data too, where numbers are not read by the JSON library */
    xt_print(&body, "{\"weights\": " KERNEL ", \"input\": {\"shape\": [1,1,1,1], \"datatype\": "
                    "\"FP32\", \"data\": ");
    for (int i = 0; i < 100000; i++)
        xt_print(&body, "[");
    post_text(JSON_TYPE, body.data, &response);
    xt_check_error(&response, 400, NULL, NULL, "100000 open brackets of data");
    xt_response_free(&response);
    xt_buffer_free(&body);
}
END_TEST

/* ---- media types and sizes ---- */

START_TEST(media_types) {
    static const struct {
        const char *headers;
        int status;
        const char *field, *text;
    } table[] = {
        {"", 415, "Content-Type", "missing"},
        {"Content-Type: text/plain\r\n", 415, "Content-Type", "text/plain"},
        {"Content-Type: application/jsonx\r\n", 415, "Content-Type",
         "; did you mean application/json?"},
        {"Content-Type: application/x-www-form-urlencoded\r\n", 415, "Content-Type", NULL},
        {"Content-Type: multipart/form-data; boundary=x\r\n", 415, "Content-Type", NULL},
        {JSON_TYPE "Content-Encoding: br\r\n", 415, "Content-Encoding", "gzip or deflate"},
        {JSON_TYPE "Accept: text/html\r\n", 406, "Accept", NULL},
        {JSON_TYPE "Accept: application/json;q=0\r\n", 406, "Accept", NULL},
        {JSON_TYPE "Accept: image/*, text/*;q=0.5\r\n", 406, "Accept", NULL},
    };
    xt_response response;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        post_text(table[i].headers, WITH(""), &response);
        xt_check_error(&response, table[i].status, table[i].field, table[i].text, table[i].headers);
        xt_response_free(&response);
    }
    post_text("Content-Type: Application/JSON; charset=utf-8\r\nContent-Encoding: identity\r\n",
              WITH(""), &response);
    ck_assert_msg(response.status == 200, "%s", response.body);
    xt_response_free(&response);
}
END_TEST

START_TEST(binary_headers) {
    static const struct {
        const char *header;
        const char *body;
    } table[] = {
        {"", "{}"},
        {"Inference-Header-Content-Length: 3\r\n", "{}"},
        {"Inference-Header-Content-Length: -1\r\n", "{}"},
        {"Inference-Header-Content-Length: 0x2\r\n", "{}"},
        {"Inference-Header-Content-Length: 99999999999999999999999\r\n", "{}"},
        {"Inference-Header-Content-Length: 0\r\n", "{}"},
        {"Inference-Header-Content-Length:\r\n", "{}"},
        {"Inference-Header-Content-Length: 2\r\n", "{}"},
        {"Inference-Header-Content-Length: 1\r\n", "{}"},
        {"Inference-Header-Content-Length: 2\r\nInference-Header-Content-Length: 2\r\n", "{}"},
    };
    xt_response response;
    xt_buffer headers = {0};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        xt_print(&headers, "Content-Type: application/octet-stream\r\n%s", table[i].header);
        post_text(headers.data, table[i].body, &response);
        xt_check_error(&response, 400, NULL, NULL, table[i].header);
        xt_response_free(&response);
        xt_buffer_free(&headers);
    }
}
END_TEST

/* PROTOCOL.md section 10: OIP binary only, elsewhere refused; whatever its value. */
START_TEST(header_length_belongs_to_oip) {
    static const char *const types[] = {"application/json", "application/vnd.safetensors"};
    static const char *const values[] = {"2", "0", "none"};
    static const char curl[] = "application/x-www-form-urlencoded";
    xt_response response;
    xt_buffer headers = {0};
    for (int i = 0; i < 12; i++) {
        const char *body = WITH("");
        xt_print(&headers, "Content-Type: %s\r\nInference-Header-Content-Length: %s\r\n",
                 types[i % 2], values[i / 4]);
        xt_fetch(daemon_, i / 2 % 2 ? "PUT" : "POST", i / 2 % 2 ? "/weights/a" : "/conv",
                 headers.data, body, strlen(body), &response);
        xt_check_error(&response, 400, "Inference-Header-Content-Length", types[i % 2],
                       headers.data);
        xt_response_free(&response);
        xt_buffer_free(&headers);
    }
    xt_print(&headers, "Content-Type: %s\r\nInference-Header-Content-Length: 0\r\n", curl);
    xt_fetch(daemon_, "POST", "/conv?shape=1,1,1,1&weights=a", headers.data, "1234", 4, &response);
    xt_check_error(&response, 400, "Inference-Header-Content-Length", curl, "raw by curl");
    xt_response_free(&response);
    xt_buffer_free(&headers);
}
END_TEST

/* Byte counts that do not fit: each message changes one number of a good request. */
START_TEST(binary_sizes) {
    static const char *const tensors[] = {
        /* input's declared size, weights' declared size, bytes that follow */
        "16 4 19", "16 4 21", "16 4 0",
        "15 4 19", "17 4 21", "12 4 20",
        "0 4 4",   "-1 4 20", "18446744073709551615 4 20",
        "16 0 16", "16 8 24",
    };
    xt_response response;
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++) {
        char input[32], weights[32];
        int follow;
        ck_assert_int_eq(sscanf(tensors[i], "%31s %31s %d", input, weights, &follow), 3);
        xt_buffer body = {0}, headers = {0};
        xt_print(&body,
                 "{\"input\": {\"shape\": [1,1,2,2], \"datatype\": \"FP32\", \"parameters\": "
                 "{\"binary_data_size\": %s}}, \"weights\": {\"shape\": [1,1,1,1], \"datatype\": "
                 "\"FP32\", \"parameters\": {\"binary_data_size\": %s}}}",
                 input, weights);
        xt_print(&headers,
                 "Content-Type: application/octet-stream\r\nInference-Header-Content-Length: "
                 "%zu\r\n",
                 body.length);
        for (int b = 0; b < follow; b++)
            xt_append(&body, "", 1);
        xt_fetch(daemon_, "POST", "/conv", headers.data, body.data, body.length, &response);
        xt_check_error(&response, 400, NULL, NULL, tensors[i]);
        xt_response_free(&response);
        xt_buffer_free(&body);
        xt_buffer_free(&headers);
    }
}
END_TEST

static void post_file(const char *target, uint64_t header_length, const char *header,
                      size_t data_bytes, xt_response *response) {
    xt_buffer body = {0};
    for (int i = 0; i < 8; i++)
        xt_append(&body, &(char){(char)(header_length >> 8 * i)}, 1);
    xt_append(&body, header, strlen(header));
    for (size_t i = 0; i < data_bytes; i++)
        xt_append(&body, "", 1);
    xt_fetch(daemon_, "POST", target, "Content-Type: application/vnd.safetensors\r\n", body.data,
             body.length, response);
    xt_buffer_free(&body);
}

#define FILE_INPUT "\"input\": {\"dtype\": \"F32\", \"shape\": [1,1,2,2], \"data_offsets\": [0,16]}"
#define FILE_KERNEL                                                                                \
    "\"weights\": {\"dtype\": \"F32\", \"shape\": [1,1,1,1], \"data_offsets\": [16,20]}"
#define FILE_BOTH "{" FILE_INPUT ", " FILE_KERNEL "}"

START_TEST(safetensors_refusals) {
    static const struct {
        const char *target, *header;
        size_t data;
    } table[] = {
        {"/conv", "{" FILE_INPUT "}", 16},
        {"/conv", "{" FILE_KERNEL "}", 20},
        {"/conv", FILE_BOTH, 19},
        {"/conv", FILE_BOTH, 21},
        {"/conv", "{" FILE_INPUT ", " FILE_KERNEL ", " FILE_INPUT "}", 20},
        {"/conv", "{" FILE_INPUT ", " FILE_KERNEL ", \"x\": 1}", 20},
        {"/conv", "{\"__metadata__\": {\"strides\": \"1\"}, " FILE_INPUT ", " FILE_KERNEL "}", 20},
        {"/conv", "{\"__metadata__\": {\"stride\": 1}, " FILE_INPUT ", " FILE_KERNEL "}", 20},
        {"/conv",
         "{" FILE_INPUT ", \"weights\": {\"dtype\": \"F32\", \"shape\": [1,1,1,1], "
         "\"data_offsets\": [12,16]}}",
         16},
        {"/conv",
         "{" FILE_INPUT ", \"weights\": {\"dtype\": \"F32\", \"shape\": [1,1,1,1], "
         "\"data_offsets\": [20,16]}}",
         20},
        {"/conv",
         "{" FILE_INPUT ", \"weights\": {\"dtype\": \"F32\", \"shape\": [1,1,1,1], "
         "\"data_offsets\": [16,18446744073709551615]}}",
         20},
        {"/conv",
         "{" FILE_INPUT ", \"weights\": {\"dtype\": \"F64\", \"shape\": [1,1,1,1], "
         "\"data_offsets\": [16,24]}}",
         24},
        {"/conv?strides=1", FILE_BOTH, 20},
        {"/conv?stride=1&stride=1", FILE_BOTH, 20},
        {"/conv?stride=", FILE_BOTH, 20},
        {"/conv?stride", FILE_BOTH, 20},
        {"/conv?stride=1,,1", FILE_BOTH, 20},
        {"/conv?padding=1,1,1", FILE_BOTH, 20},
        {"/conv?weights=also-a-name", FILE_BOTH, 20},
        {"/conv?stride=%31%00", FILE_BOTH, 20},
    };
    static const uint64_t lengths[] = {0, 1, 1u << 20, UINT64_MAX, UINT64_MAX - 7, INT64_MAX};
    xt_response response;
    post_file("/conv?padding=0&stride=1,1", strlen(FILE_BOTH), FILE_BOTH, 20, &response);
    ck_assert_msg(response.status == 200, "%s", response.body);
    xt_response_free(&response);
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        post_file(table[i].target, strlen(table[i].header), table[i].header, table[i].data,
                  &response);
        xt_check_error(&response, 400, NULL, NULL, table[i].header);
        xt_response_free(&response);
    }
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        post_file("/conv", lengths[i], FILE_BOTH, 20, &response);
        xt_check_error(&response, 400, NULL, NULL, "the file's header length");
        xt_response_free(&response);
    }
    xt_fetch(daemon_, "POST", "/conv", "Content-Type: application/vnd.safetensors\r\n", "short", 5,
             &response);
    xt_check_error(&response, 400, NULL, NULL, "a file of 5 bytes");
    xt_response_free(&response);
}
END_TEST

START_TEST(query_belongs_to_safetensors) {
    xt_response response;
    xt_fetch(daemon_, "POST", "/conv?stride=1", JSON_TYPE, WITH(""), strlen(WITH("")), &response);
    xt_check_error(&response, 400, NULL, NULL, "a query with JSON");
    xt_response_free(&response);
}
END_TEST

/* ---- limits ---- */

/* Small requests for giant outputs: refused by their limit, and the memory stays. */
START_TEST(giant_outputs) {
    static const struct {
        const char *body;
        const char *limit;
    } table[] = {
        {WITH(", \"padding\": 200000"), "--max-"},
        {WITH(", \"padding\": [1000000000, 1000000000, 1000000000, 1000000000]"), NULL},
        {WITH(", \"padding\": 2147483647"), NULL},
        {WITH(", \"padding\": 9223372036854775807"), NULL},
        {WITH(", \"padding\": [0, 0, 40000000, 0]"), "--max-output-bytes"},
        {WITH(", \"padding\": [8000, 8000, 8000, 8000], \"output_datatype\": \"FP16\""), "--max-"},
    };
    xt_response response;
    long before = xt_daemon_memory_kb(daemon_, "VmHWM");
    ck_assert_int_gt(before, 0);
    for (int round = 0; round < 3; round++)
        for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
            post_text(JSON_TYPE, table[i].body, &response);
            ck_assert_msg(response.status == 413 || (!table[i].limit && (response.status == 422 ||
                                                                         response.status == 400)),
                          "%s: %d %s", table[i].body, response.status, response.body);
            xt_check_error(&response, response.status, NULL, table[i].limit, table[i].body);
            xt_response_free(&response);
        }
    long after = xt_daemon_memory_kb(daemon_, "VmHWM");
    ck_assert_msg(after - before < 64 * 1024, "the peak went from %ld to %ld kB", before, after);
    ck_assert(xt_metric_becomes(daemon_, "xnord_inflight_bytes", 0));
}
END_TEST

/* A header that promises much, and sends little: nothing is taken for what is not there. */
START_TEST(promised_tensors_take_no_memory) {
    const char *body = INPUT("{\"shape\": [1,1,8192,8192], \"datatype\": \"FP32\", \"data\": [1]}");
    xt_response response;
    long before = xt_daemon_memory_kb(daemon_, "VmHWM");
    post_text(JSON_TYPE, body, &response);
    xt_check_error(&response, 400, "input", NULL, body);
    xt_response_free(&response);
    long after = xt_daemon_memory_kb(daemon_, "VmHWM");
    ck_assert_msg(after - before < 64 * 1024, "the peak went from %ld to %ld kB", before, after);
}
END_TEST

START_TEST(each_limit_names_its_flag) {
    static const struct {
        const char *flag, *value, *body;
    } table[] = {
        {"--max-body-bytes", "100", WITH("")},
        {"--max-elements", "3", WITH("")},
        {"--max-output-bytes", "15", WITH("")},
        {"--max-operations", "3", WITH("")},
    };
    xt_response response;
    xt_daemon *d = xt_daemon_start(XT_FLAGS(table[_i].flag, table[_i].value));
    const char *body = table[_i].body;
    xt_fetch(d, "POST", "/conv", JSON_TYPE, body, strlen(body), &response);
    xt_check_error(&response, 413, NULL, table[_i].flag, table[_i].flag);
    xt_response_free(&response);
    ck_assert(xt_metric_becomes(d, "xnord_rejected_requests_total{reason=\"too_large\"}", 1));
    ck_assert(xt_metric_becomes(d, "xnord_inflight_bytes", 0));
    ck_assert_int_eq(xt_daemon_stop(d), 0);
}
END_TEST

/* ---- answers before the body ---- */

static void nap_ms(int64_t ms) {
    for (int64_t end = xt_now_ms() + ms; xt_now_ms() < end;)
        xt_nap();
}

/* The client goes on writing after the answer, at once or a while later: its bytes are taken. A
 * reset would tell it of a failure, and could take the answer with it. */
START_TEST(bytes_behind_an_early_answer_are_taken) {
    enum { PIECE = 20000, PIECES = 20, ROUNDS = 10 };
    static const char piece[PIECE];
    xt_conn conn;
    xt_response response;
    for (int round = 0; round < ROUNDS; round++) {
        ck_assert(xt_connect(&conn, daemon_));
        ck_assert(xt_send_text(&conn, "POST /conv HTTP/1.1\r\nHost: a\r\nContent-Type: text/plain"
                                      "\r\nContent-Length: 10000000\r\n\r\n"));
        ck_assert(xt_send(&conn, piece, PIECE));
        ck_assert_int_eq(xt_receive(&conn, false, false, &response), XT_GOT);
        ck_assert_int_eq(response.status, 415);
        xt_response_free(&response);
        nap_ms(round < ROUNDS - 2 ? 5 : 300);
        for (int i = 0; i < PIECES; i++, xt_nap())
            ck_assert_msg(xt_send(&conn, piece, PIECE), "round %d: reset at piece %d", round, i);
        xt_disconnect(&conn);
    }
}
END_TEST

XN_SUITE(http_refuse) {
    Suite *s = suite_create("http_refuse");
    TCase *t = tcase_create("refuse");
    tcase_set_timeout(t, 120);
    tcase_add_unchecked_fixture(t, start, stop);
    tcase_add_loop_test(t, json_refusals, 0, (int)(sizeof refusals / sizeof *refusals));
    tcase_add_loop_test(t, contradictory_parameters, 0,
                        (int)(sizeof contradictions / sizeof *contradictions));
    tcase_add_test(t, nesting_is_bounded);
    tcase_add_test(t, media_types);
    tcase_add_test(t, binary_headers);
    tcase_add_test(t, header_length_belongs_to_oip);
    tcase_add_test(t, binary_sizes);
    tcase_add_test(t, safetensors_refusals);
    tcase_add_test(t, query_belongs_to_safetensors);
    tcase_add_test(t, giant_outputs);
    tcase_add_test(t, promised_tensors_take_no_memory);
    tcase_add_test(t, bytes_behind_an_early_answer_are_taken);
    suite_add_tcase(s, t);
    xt_add_stopped_case(s);
    t = tcase_create("limits");
    tcase_set_timeout(t, 120);
    tcase_add_checked_fixture(t, NULL, xt_reap);
    tcase_add_loop_test(t, each_limit_names_its_flag, 0, 4);
    suite_add_tcase(s, t);
    return s;
}
