/* Pictures to a real daemon: whole bodies and inputs of BYTES, in JSON and behind it, give what the
 * same file gives without a daemon (unit/proto/picture_test.c holds that against Pillow); answers
 * as labels; refusals and limits. The network's output is the mean of each channel, or its input.
 */
#include "http/client/client.h"
#include "xn_mem.h"
#include "xn_picture.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SIDE = 20, VALUES = SIDE * SIDE * 3 };

static xt_daemon *daemon_;
static char repository[] = "/tmp/xnord-pictures-XXXXXX";

static void write_file(const char *model, const char *name, const void *bytes, size_t length) {
    char path[160];
    snprintf(path, sizeof path, "%s/%s", repository, model);
    mkdir(path, 0755);
    snprintf(path, sizeof path, "%s/%s/%s", repository, model, name);
    FILE *out = fopen(path, "wb");
    ck_assert_ptr_nonnull(out);
    ck_assert_uint_eq(fwrite(bytes, 1, length, out), length);
    ck_assert_int_eq(fclose(out), 0);
}

/* affine by 1, and behind it `more`. */
static void write_model(const char *name, const char *input, const char *more) {
    static const char header[] =
        "{\"same.scale\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":"
        "[0,4]}}";
    const uint64_t length = sizeof header - 1;
    const float one = 1;
    unsigned char tensors[sizeof length + sizeof header - 1 + sizeof one];
    char config[600];
    snprintf(config, sizeof config,
             "{\"format\": \"xnord-network/1\", \"max_batch_size\": 4, \"input\": {%s}, "
             "\"layers\": [{\"op\": \"affine\", \"name\": \"same\"}%s}",
             input, more);
    memcpy(tensors, &length, sizeof length);
    memcpy(tensors + sizeof length, header, length);
    memcpy(tensors + sizeof length + length, &one, sizeof one);
    write_file(name, "config.json", config, strlen(config));
    write_file(name, "model.safetensors", tensors, sizeof tensors);
}

#define IMAGE "\"datatype\": \"UINT8\", \"shape\": [20, 20, 3], \"layout\": \"NHWC\""
#define RULE ", \"picture\": {\"resize\": 24, \"crop\": 20, \"filter\": \"bicubic\"}"
#define MEAN ", {\"op\": \"avg_pool\", \"name\": \"mean\", \"kernel\": \"global\"}]"

static void start(void) {
    ck_assert_ptr_nonnull(mkdtemp(repository));
    write_model("pixels", IMAGE RULE, "]");
    write_model("colours", IMAGE,
                MEAN ", \"output\": {\"name\": \"colour\", \"labels\": \"labels.txt\"}");
    write_file("colours", "labels.txt", "red\n\nlight blue\n", 16);
    write_model("vector", "\"datatype\": \"FP32\", \"shape\": [3]", "]");
    daemon_ = xt_daemon_start_shared(XT_FLAGS(
        "--model-repository", repository, "--max-picture-pixels", "3000", "--queue-bytes", "64M"));
}

static void stop(void) {
    static const char *const files[] = {"pixels/config.json",
                                        "pixels/model.safetensors",
                                        "pixels",
                                        "colours/config.json",
                                        "colours/model.safetensors",
                                        "colours/labels.txt",
                                        "colours",
                                        "vector/config.json",
                                        "vector/model.safetensors",
                                        "vector",
                                        ""};
    xt_daemon_stop_shared(daemon_);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char path[160];
        snprintf(path, sizeof path, "%s/%s", repository, files[i]);
        remove(path);
    }
}

/* ---- files ---- */

static xt_buffer picture_file(const char *name) {
    char path[160], block[4096];
    xt_buffer out = {0};
    size_t length;
    snprintf(path, sizeof path, "tests/pictures/%s", name);
    FILE *in = fopen(path, "rb");
    ck_assert_msg(in != NULL, "%s is missing", path);
    while ((length = fread(block, 1, sizeof block, in)) > 0)
        xt_append(&out, block, length);
    fclose(in);
    return out;
}

/* The model pixels' input. */
static void read_picture(const xt_buffer *from, uint8_t values[VALUES]) {
    const xn_shape shape = {3, {SIDE, SIDE, 3}};
    xn_picture_rule rule;
    xn_picture picture;
    xn_error error;
    xn_picture_rule_default(XN_UINT8, XN_IMAGE_NHWC, &shape, &rule);
    rule.resize = 24;
    rule.filter = XN_PICTURE_BICUBIC;
    ck_assert(!xn_picture_inspect(from->data, from->length, 1 << 20, "body", &picture, &error));
    ck_assert(!xn_picture_read(&picture, &rule, "body", NULL, values, &error));
}

static const char *const names[] = {"jpg/rgb420.jpg", "jpg/turned7.jpg", "jpg/cmyk.jpg",
                                    "png/rgba16.png", "png/palette.png", "png/interlaced.png"};
enum { NAMES = sizeof names / sizeof *names };

static const char *type_of(const char *name) {
    return strstr(name, ".jpg") ? "Content-Type: image/jpeg\r\n" : "Content-Type: image/png\r\n";
}

static void post(const char *target, const char *headers, const xt_buffer *body, int status,
                 xt_response *response) {
    xt_fetch(daemon_, "POST", target, headers, body->data, body->length, response);
    ck_assert_msg(response->status == status, "%s %s: %d %s", target, headers, response->status,
                  response->body);
}

/* Output same is FP32, channels first. */
static void check_pixels(const xt_response *response, size_t at, const uint8_t *wanted) {
    const char *length = XT_HEADER(response, "Inference-Header-Content-Length");
    ck_assert_ptr_nonnull(length);
    const char *values = response->body + atol(length) + at * VALUES * sizeof(float);
    ck_assert_uint_ge(response->length, (size_t)(values - response->body) + VALUES * sizeof(float));
    for (int i = 0; i < VALUES; i++) {
        float value;
        memcpy(&value, values + sizeof value * (size_t)i, sizeof value);
        const int channel = i / (SIDE * SIDE), pixel = i % (SIDE * SIDE);
        ck_assert_msg(value == wanted[pixel * 3 + channel], "value %d is %g, not %d", i,
                      (double)value, wanted[pixel * 3 + channel]);
    }
}

/* ---- whole bodies ---- */

START_TEST(a_body_is_a_picture) {
    static const char *const types[] = {"", "Content-Type: application/x-www-form-urlencoded\r\n",
                                        "Content-Type: application/octet-stream\r\n", NULL};
    uint8_t wanted[VALUES];
    char headers[200];
    xt_response response;
    xt_buffer body = picture_file(names[_i]);
    read_picture(&body, wanted);
    for (int i = 0; i < 4; i++) {
        snprintf(headers, sizeof headers, "%sAccept: application/octet-stream\r\n",
                 types[i] ? types[i] : type_of(names[_i]));
        post("/v2/models/pixels/infer", headers, &body, 200, &response);
        check_pixels(&response, 0, wanted);
        xt_response_free(&response);
    }
    post("/v2/models/pixels/infer", "Accept: */*\r\n", &body, 200, &response);
    ck_assert_str_eq(XT_HEADER(&response, "Content-Type"), "application/json");
    ck_assert_ptr_nonnull(strstr(response.body, "\"shape\":[1,3,20,20],\"data\":["));
    xt_response_free(&response);
    xt_buffer_free(&body);
}
END_TEST

/* ---- inputs of BYTES ---- */

static void append_base64(xt_buffer *out, const xt_buffer *file) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < file->length; i += 3) {
        unsigned bits = 0;
        const int bytes = file->length - i < 3 ? (int)(file->length - i) : 3;
        for (int b = 0; b < 3; b++)
            bits = bits << 8 | (b < bytes ? (unsigned char)file->data[i + (size_t)b] : 0);
        for (int d = 0; d < 4; d++) {
            const char digit = d <= bytes ? digits[bits >> (18 - 6 * d) & 63] : '=';
            if (digit == '/') /* as some encoders write it */
                xt_append(out, "\\", 1);
            xt_append(out, &digit, 1);
        }
    }
}

/* All files as one request: JSON, or JSON and bytes; *header gets the headers. */
static xt_buffer bytes_request(bool json, const char *shape, int count, char header[120]) {
    xt_buffer out = {0}, values = {0};
    for (int i = 0; i < count; i++) {
        xt_buffer file = picture_file(names[i]);
        const unsigned char length[4] = {(unsigned char)file.length,
                                         (unsigned char)(file.length >> 8)};
        if (json) {
            xt_print(&values, i ? ", \"" : "\"");
            append_base64(&values, &file);
            xt_print(&values, "\"");
        } else {
            xt_append(&values, length, sizeof length);
            xt_append(&values, file.data, file.length);
        }
        xt_buffer_free(&file);
    }
    xt_print(&out,
             "{\"parameters\": {\"binary_data_output\": true}, \"inputs\": [{\"name\": "
             "\"input\", \"datatype\": \"BYTES\", \"shape\": %s, ",
             shape);
    if (json)
        xt_print(&out, "\"data\": [%s]}]}", values.data);
    else
        xt_print(&out, "\"parameters\": {\"binary_data_size\": %zu}}]}", values.length);
    header[0] = 0;
    if (!json) {
        snprintf(header, 120, "Inference-Header-Content-Length: %zu\r\n", out.length);
        xt_append(&out, values.data, values.length);
    }
    xt_buffer_free(&values);
    return out;
}

START_TEST(several_pictures_are_a_batch) {
    uint8_t wanted[VALUES];
    char header[120];
    xt_response response;
    xt_buffer body = bytes_request(_i % 2, _i / 2 ? "[4, 1]" : "[4]", 4, header);
    for (int again = 0; again < 2; again++) { /* the second header may come from recent.c */
        post("/v2/models/pixels/infer", header, &body, 200, &response);
        for (int i = 0; i < 4; i++) {
            xt_buffer file = picture_file(names[i]);
            read_picture(&file, wanted);
            check_pixels(&response, (size_t)i, wanted);
            xt_buffer_free(&file);
        }
        xt_response_free(&response);
    }
    xt_buffer_free(&body);
}
END_TEST

/* ---- labels ---- */

static int count_lines(const char *text, char *first, size_t size) {
    int lines = 0;
    snprintf(first, size, "%.*s", (int)strcspn(text, "\n"), text);
    for (; *text; text++)
        lines += *text == '\n';
    return lines;
}

START_TEST(answers_are_labels) {
    static const struct {
        const char *query, *headers;
        const char *type, *has;
        int lines;
    } rows[] = {
        {"", "Accept: */*\r\n", "application/json", "\"datatype\":\"BYTES\",\"shape\":[1,3]", 1},
        {"?classes=2", "", "application/json", "\"shape\":[1,2]", 1},
        {"?classes=0", "", "application/json", "\"datatype\":\"FP32\"", 1},
        {"", "Accept: text/plain\r\n", "text/plain; charset=utf-8", " light blue\n", 3},
        {"", "Accept: text/*, application/json;q=0.5\r\n", "text/plain; charset=utf-8", " 1\n", 3},
        {"", "Accept: application/json, text/plain, */*\r\n", "application/json", "light blue", 1},
        {"?classes=1", "Accept: text/plain\r\n", "text/plain; charset=utf-8", ".", 1},
        {"?x=1&classes=0", "Accept: text/plain\r\n", "text/plain; charset=utf-8", " red\n", 3},
    };
    char target[80], first[200];
    xt_response response;
    xt_buffer body = picture_file("jpg/rgb420.jpg");
    snprintf(target, sizeof target, "/v2/models/colours/infer%s", rows[_i].query);
    post(target, rows[_i].headers, &body, 200, &response);
    ck_assert_str_eq(XT_HEADER(&response, "Content-Type"), rows[_i].type);
    ck_assert_msg(strstr(response.body, rows[_i].has) != NULL, "%s", response.body);
    ck_assert_int_eq(count_lines(response.body, first, sizeof first), rows[_i].lines);
    xt_response_free(&response);
    xt_buffer_free(&body);
}
END_TEST

/* Best first, as JSON has them; images apart by a blank line. Tensors are answered so too. */
START_TEST(lines_are_what_classes_are) {
    char header[120];
    xt_response lines, json;
    xt_buffer body = bytes_request(true, "[4]", 4, header), text = {0};
    post("/v2/models/colours/infer?classes=2", "Accept: text/plain\r\n", &body, 200, &lines);
    xt_buffer again = bytes_request(false, "[4]", 4, header);
    post("/v2/models/colours/infer?classes=2", header, &again, 200, &json);
    const char *values = json.body + atol(XT_HEADER(&json, "Inference-Header-Content-Length"));
    for (int i = 0; i < 8; i++) {
        unsigned length;
        char one[100];
        memcpy(&length, values, sizeof length);
        snprintf(one, sizeof one, "%.*s", (int)length, values + 4);
        values += 4 + length;
        char *index = strchr(one, ':'), *label = strchr(index + 1, ':');
        *index = 0;
        xt_print(&text, "%s%s %s\n", i && i % 2 == 0 ? "\n" : "", one,
                 label ? label + 1 : index + 1);
    }
    ck_assert_str_eq(lines.body, text.data);
    xt_response_free(&lines);
    xt_response_free(&json);
    xt_buffer_free(&body);
    xt_buffer_free(&again);
    xt_buffer_free(&text);
}
END_TEST

/* ---- refusals ---- */

/* A body of text, "@FILE", or "@FILE:BYTES", the beginning of one. */
static xt_buffer body_of(const char *text) {
    xt_buffer out = {0};
    char name[64];
    if (text[0] != '@') {
        xt_append(&out, text, strlen(text));
        return out;
    }
    snprintf(name, sizeof name, "%.*s", (int)strcspn(text + 1, ":"), text + 1);
    out = picture_file(name);
    if (strchr(text, ':'))
        out.length = (size_t)atol(strchr(text, ':') + 1);
    return out;
}

#define BYTES(rest) "{\"inputs\": [{\"name\": \"input\", \"datatype\": \"BYTES\", " rest "}]}"

START_TEST(what_is_refused) {
    static const struct {
        const char *model, *headers, *body;
        int status;
        const char *says;
    } rows[] = {
        {"pixels", "Content-Type: image/jpeg\r\n", "", 400, "the body is empty"},
        {"pixels", "Content-Type: image/jpeg\r\n", "GIF89a", 400, "neither JPEG nor PNG"},
        {"pixels", "Content-Type: image/jpeg\r\n", "{}", 400, "neither JPEG nor PNG"},
        {"pixels", "Content-Type: image/webp\r\n", "RIFF", 415, "image/jpeg or image/png"},
        {"pixels", "", "@jpg/rgb420.jpg:1500", 400, "body is a JPEG that ends before"},
        {"pixels", "", "@png/rgb.png:3000", 400, "body is a PNG that ends before"},
        {"pixels", "Content-Type: image/jpeg\r\nInference-Header-Content-Length: 4\r\n",
         "@jpg/rgb420.jpg", 400, "but Content-Type is image/jpeg"},
        {"pixels?classes=-1", "", "@jpg/rgb420.jpg", 400, "it takes a number of classes"},
        {"pixels?classes", "", "@jpg/rgb420.jpg", 400, "it takes a number of classes"},
        {"vector", "", "@jpg/rgb420.jpg", 400, "height, width and 1 or 3 channels"},
        {"pixels", "", BYTES("\"shape\": [5], \"data\": [\"a\", \"a\", \"a\", \"a\", \"a\"]"), 400,
         "batch of 5; the model takes at most 4"},
        {"pixels", "", BYTES("\"shape\": [1, 2], \"data\": [\"a\", \"a\"]"), 400, "it must be [n]"},
        {"pixels", "", BYTES("\"shape\": [1], \"data\": [\"abc\"]"), 400,
         "inputs[0].data[0] the base64 text has 3 characters"},
        {"pixels", "", BYTES("\"shape\": [2], \"data\": [1, \"abcd\"]"), 400,
         "inputs[0].data[0] is no string"},
        {"pixels", "", BYTES("\"shape\": [1], \"data\": [\"abcd\"]"), 400,
         "inputs[0].data[0] is neither JPEG nor PNG"},
        {"pixels", "", BYTES("\"shape\": [1], \"data\": [\"ab\\ud800cd\"]"), 400, "no JSON string"},
        {"pixels", "Inference-Header-Content-Length: 106\r\n",
         BYTES("\"shape\": [1], \"parameters\": {\"binary_data_size\":  6}"), 400,
         "inputs[0].data[0] is longer"},
        {"pixels", "",
         "{\"inputs\": [{\"name\": \"input\", \"datatype\": \"UINT8\", \"shape\": [1, "
         "20, 20, 3], \"data\": [\"a\"]}]}",
         400, "holds a string"},
    };
    char target[80];
    xt_response response;
    xt_buffer body = body_of(rows[_i].body);
    const char *query = strchr(rows[_i].model, '?');
    if (strstr(rows[_i].headers, "106")) { /* NULs end a literal */
        body.length = strlen(BYTES("\"shape\": [1], \"parameters\": {\"binary_data_size\":  6}"));
        xt_append(&body, "\xff\0\0\0ab", 6);
    }
    snprintf(target, sizeof target, "/v2/models/%.*s/infer%s", (int)strcspn(rows[_i].model, "?"),
             rows[_i].model, query ? query : "");
    post(target, rows[_i].headers, &body, rows[_i].status, &response);
    ck_assert_msg(strstr(response.body, rows[_i].says) != NULL, "%s", response.body);
    xt_response_free(&response);
    xt_buffer_free(&body);
}
END_TEST

START_TEST(limits_are_named) {
    xt_response response;
    xt_buffer body = picture_file("jpg/rgb420.jpg"); /* 61 x 47 are below 3000 */
    char *frame = memmem(body.data, body.length, "\xff\xc0", 2);
    ck_assert_ptr_nonnull(frame);
    frame[6] = 50;
    post("/v2/models/pixels/infer", "", &body, 413, &response);
    ck_assert_ptr_nonnull(strstr(response.body, "61 x 50 pixels; at most 3000"));
    ck_assert_ptr_nonnull(strstr(response.body, "--max-picture-pixels"));
    xt_response_free(&response);
    xt_buffer_free(&body);
}
END_TEST

/* The memory that a header asks for is counted before it is taken. */
START_TEST(memory_is_counted) {
    xt_daemon *small =
        xt_daemon_start(XT_FLAGS("--model-repository", repository, "--queue-bytes", "32M"));
    xt_response response;
    xt_buffer body = picture_file("jpg/progressive.jpg");
    ck_assert_ptr_nonnull(body.data);
    char *frame = memmem(body.data, body.length, "\xff\xc2", 2);
    ck_assert_ptr_nonnull(frame);
    memcpy(frame + 5, "\x1f\x40\x1f\x40", 4); /* 8000 x 8000: 64 million pixels, 192 MB */
    const long before = xt_daemon_memory_kb(small, "VmHWM");
    xt_fetch(small, "POST", "/v2/models/pixels/infer", "", body.data, body.length, &response);
    ck_assert_msg(response.status == 413 || response.status == 429, "%d %s", response.status,
                  response.body);
    ck_assert_msg(strstr(response.body, "bytes") != NULL, "%s", response.body);
    ck_assert_int_lt(xt_daemon_memory_kb(small, "VmHWM") - before, 16 << 10);
    xt_response_free(&response);
    xt_buffer_free(&body);
    ck_assert_int_eq(xt_daemon_stop(small), 0);
}
END_TEST

XN_SUITE(http_picture) {
    Suite *s = suite_create("http_picture");
    TCase *t = tcase_create("shared");
    tcase_add_unchecked_fixture(t, start, stop);
    tcase_add_checked_fixture(t, NULL, xt_reap);
    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, a_body_is_a_picture, 0, NAMES);
    tcase_add_loop_test(t, several_pictures_are_a_batch, 0, 4);
    tcase_add_loop_test(t, answers_are_labels, 0, 8);
    tcase_add_test(t, lines_are_what_classes_are);
    tcase_add_loop_test(t, what_is_refused, 0, 18);
    tcase_add_test(t, limits_are_named);
    tcase_add_test(t, memory_is_counted);
    suite_add_tcase(s, t);
    xt_add_stopped_case(s);
    return s;
}
