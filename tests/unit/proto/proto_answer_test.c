/* Answers and errors as bytes, and the worked examples of PROTOCOL.md, read from that file. */
#include "proto_bodies.h"
#include "xn_json_tree.h"
#include "xn_mem.h"
#include "xn_test.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const xn_timing example_timing = {12345, 2500, 3000, 0, 7250, 0, 1125, 3780, 30000};

static xn_answer example_answer(void) {
    return (xn_answer){.id = "example",
                       .backend = "cpu",
                       .batch_requests = 1,
                       .batch_images = 1,
                       .timing = example_timing,
                       .datatype = XN_FP32,
                       .shape = {4, {1, 1, 1, 1}},
                       .output_bytes = 4};
}

/* ---- PROTOCOL.md ---- */

static void check_example_request(const xn_conv_request *r) {
    static const float input[] = {1, -2, -3, 4}, weights[] = {0.5f, -0.5f, -0.5f, 0.5f};
    float values[4];
    xn_error error = {0};
    ck_assert_str_eq(r->id, "example");
    ck_assert_uint_eq(r->input.bytes, sizeof input);
    ck_assert_uint_eq(r->weights.bytes, sizeof weights);
    ck_assert_msg(!xn_proto_tensor_read(&r->input, "input", values, &error), "%s", error.message);
    ck_assert(!memcmp(values, input, sizeof input));
    ck_assert(!xn_proto_tensor_read(&r->weights, "weights", values, &error));
    ck_assert(!memcmp(values, weights, sizeof weights));
}

START_TEST(documented_requests_parse) {
    const xn_proto_limits limits = {1000};
    xn_conv_request r;
    xn_error error = {0};
    char *text = proto_document_block("json json-request");
    proto_bytes bytes;
    ck_assert_msg(!proto_parse_json(text, &bytes, &r, &error), "%s", error.message);
    check_example_request(&r);
    proto_bytes_free(&bytes);
    free(text);

    bytes = proto_document_bytes("bytes oip-request");
    xn_proto_body body = {XN_FORM_OIP_BINARY, bytes.bytes, bytes.length, true, 184};
    ck_assert_msg(!xn_proto_parse_conv(&body, NULL, 0, &limits, &r, &error), "%s", error.message);
    check_example_request(&r);
    proto_bytes_free(&bytes);

    bytes = proto_document_bytes("bytes safetensors-request");
    body =
        (xn_proto_body){.form = XN_FORM_SAFETENSORS, .bytes = bytes.bytes, .length = bytes.length};
    ck_assert_msg(!xn_proto_parse_conv(&body, NULL, 0, &limits, &r, &error), "%s", error.message);
    check_example_request(&r);
    proto_bytes_free(&bytes);
}
END_TEST

START_TEST(documented_answers_are_written) {
    static const struct {
        xn_form form;
        const char *block;
        size_t header;
    } cases[] = {{XN_FORM_OIP_BINARY, "bytes oip-answer", 336},
                 {XN_FORM_SAFETENSORS, "bytes safetensors-answer", 352}};
    xn_answer answer = example_answer();
    const float output = 5;
    for (size_t i = 0; i < 2; i++) {
        unsigned char room[XN_PROTO_HEADROOM_BYTES + sizeof output];
        unsigned char *tensor = room + XN_PROTO_HEADROOM_BYTES;
        memcpy(tensor, &output, sizeof output);
        size_t header = 0;
        unsigned char *body = xn_proto_write_binary_answer(cases[i].form, &answer, tensor, &header);
        proto_bytes expected = proto_document_bytes(cases[i].block);
        ck_assert_uint_eq(header, cases[i].header);
        ck_assert_ptr_eq(body, tensor - header);
        ck_assert_uint_eq(expected.length, header + sizeof output);
        ck_assert(!memcmp(body, expected.bytes, expected.length));
        proto_bytes_free(&expected);
    }
    char *expected = proto_document_block("json json-answer"), text[4096];
    size_t length = xn_proto_json_answer_begin(&answer, &output, text);
    length = xn_proto_json_answer_end(&answer, text, length);
    ck_assert_uint_eq(length, strlen(expected) + 1);
    ck_assert(!memcmp(text, expected, length - 1) && text[length - 1] == '\n');
    free(expected);
}
END_TEST

/* The two descriptions name the same routes, error codes and parameters. */
START_TEST(openapi_agrees_with_protocol) {
    static const char names[] =
        "/conv /weights/{name} /v2/health/live /v2/health/ready /metrics /openapi.yaml bad_request "
        "unauthorized not_found method_not_allowed not_acceptable request_timeout length_required "
        "too_large unsupported_media_type expectation_failed unprocessable too_many_requests "
        "header_too_large internal not_implemented unavailable deadline_exceeded "
        "Inference-Header-Content-Length X-Request-Id Server-Timing Retry-After stride padding "
        "dilation groups pad_value scaling mode precision output_datatype backend timeout_ms "
        "application/vnd.safetensors";
    static const char *const files[] = {"proto/PROTOCOL.md", "proto/openapi.yaml"};
    for (size_t f = 0; f < 2; f++) {
        char *text = calloc(1, 200000);
        FILE *file = fopen(files[f], "rb");
        ck_assert_msg(file && text, "%s: run the tests from the repository's root", files[f]);
        ck_assert_uint_gt(fread(text, 1, 199999, file), 0);
        fclose(file);
        char words[sizeof names], *rest = NULL;
        strcpy(words, names);
        for (char *w = strtok_r(words, " ", &rest); w; w = strtok_r(NULL, " ", &rest))
            ck_assert_msg(strstr(text, w), "%s does not speak of %s", files[f], w);
        free(text);
    }
}
END_TEST

/* ---- answers ---- */

static const xn_json *parse_text(const char *text, size_t length, xn_json_scan *scan) {
    xn_error error = {0};
    const xn_json *root = NULL;
    xn_status status = xn_json_scan_text(text, length, false, scan, &error);
    if (!status)
        status = xn_json_parse(scan, "text", &root, &error);
    ck_assert_msg(!status, "%s: %.*s", error.message, (int)length, text);
    return root;
}

/* The longest answer there can be still fits its bounds, and its parts are where they should be. */
START_TEST(longest_answers_fit) {
    char id[XN_PROTO_MAX_ID + 1], backend[24];
    memset(id, 'i', sizeof id);
    id[XN_PROTO_MAX_ID] = 0;
    memset(backend, 'b', sizeof backend);
    backend[23] = 0;
    xn_answer answer = {.id = id,
                        .backend = backend,
                        .precision = XN_PRECISION_TF32,
                        .batch_requests = INT64_MAX,
                        .batch_images = INT64_MIN,
                        .datatype = XN_INT32,
                        .shape = {.rank = 8},
                        .output_bytes = 8};
    int64_t *stages = (int64_t *)&answer.timing;
    for (size_t i = 0; i < sizeof answer.timing / sizeof *stages; i++)
        stages[i] = INT64_MIN + (int64_t)i;
    for (int i = 0; i < 8; i++)
        answer.shape.dims[i] = INT64_MAX;
    const int32_t output[2] = {INT32_MIN, INT32_MAX};
    for (int form = XN_FORM_OIP_BINARY; form <= XN_FORM_SAFETENSORS; form++) {
        unsigned char room[XN_PROTO_HEADROOM_BYTES + sizeof output];
        size_t header = 0;
        unsigned char *tensor = room + XN_PROTO_HEADROOM_BYTES;
        unsigned char *body = xn_proto_write_binary_answer((xn_form)form, &answer, tensor, &header);
        ck_assert(body >= room && header % 8 == 0);
        size_t skip = form == XN_FORM_SAFETENSORS ? 8 : 0;
        xn_json_scan scan = {0};
        (void)parse_text((char *)body + skip, header - skip, &scan);
        xn_json_scan_free(&scan);
    }
    size_t bound = 0;
    ck_assert(xn_proto_json_answer_bound(&answer, &bound));
    char *text = malloc(bound);
    ck_assert_ptr_nonnull(text);
    size_t length = xn_proto_json_answer_begin(&answer, output, text);
    length = xn_proto_json_answer_end(&answer, text, length);
    ck_assert_uint_le(length, bound);
    ck_assert_ptr_nonnull(strstr(text, "\"data\":[-2147483648,2147483647]}"));
    xn_json_scan scan = {0};
    const xn_json *root = parse_text(text, length, &scan);
    ck_assert_str_eq(xn_json_string(xn_json_member(root, "id")), id);
    xn_json_scan_free(&scan);
    free(text);
    answer.output_bytes = SIZE_MAX / 4 * 4;
    ck_assert(!xn_proto_json_answer_bound(&answer, &bound));
}
END_TEST

/* A JSON answer's output can be sent as an input, and comes back as the same floats; in a block of
 * exactly the bound. */
START_TEST(json_floats_round_trip) {
    enum { COUNT = 20000 };
    xn_rng rng = {xn_test_seed()};
    float *values = malloc(COUNT * sizeof *values), *back = malloc(COUNT * sizeof *back);
    ck_assert(values && back);
    for (int i = 0; i < COUNT; i++) {
        uint32_t bits = (uint32_t)xn_rng_next(&rng);
        if ((bits & 0x7f800000u) == 0x7f800000u)
            bits = i % 2 ? 0x80000000u : 0x807fffffu;
        if (i % 3 == 0)
            bits |= 0x80400001u & 0xbfffffffu; /* long texts: negative, many digits */
        if ((bits & 0x7f800000u) == 0x7f800000u)
            bits &= 0xbfffffffu;
        memcpy(&values[i], &bits, sizeof bits);
    }
    xn_answer answer = example_answer();
    answer.shape.dims[3] = COUNT;
    answer.output_bytes = COUNT * sizeof *values;
    size_t bound = 0;
    ck_assert(xn_proto_json_answer_bound(&answer, &bound));
    char *text = malloc(bound);
    ck_assert_ptr_nonnull(text);
    size_t length = xn_proto_json_answer_begin(&answer, values, text);
    char *data = strstr(text, "\"data\":");
    ck_assert_ptr_nonnull(data);
    data += 7;
    xn_tensor_ref ref = {.present = true,
                         .datatype = XN_FP32,
                         .shape = answer.shape,
                         .elements = COUNT,
                         .bytes = answer.output_bytes,
                         .text = data,
                         .text_length = length - (size_t)(data - text) - 1};
    xn_error error = {0};
    ck_assert_msg(!xn_proto_tensor_read(&ref, "output", back, &error), "%s", error.message);
    ck_assert_msg(!memcmp(values, back, answer.output_bytes), "seed %llu",
                  (unsigned long long)xn_test_seed());
    free(text);
    free(values);
    free(back);
}
END_TEST

START_TEST(json_writes_datatypes) {
    static const struct {
        xn_datatype datatype;
        const char *bytes;
        size_t length;
        const char *data;
    } cases[] = {
        {XN_FP32, "\0\0\0\x80\0\0\xc0\x7f\0\0\x80\xff\0\0\0\x3f", 16, "[-0.0,null,null,0.5]"},
        {XN_FP16, "\0\x3c\0\x80\xff\x7b\x01\0\0\x7c", 10, "[1,-0.0,65504,5.9604645e-8,null]"},
        {XN_INT32, "\0\0\0\0\xff\xff\xff\xff\x0a\0\0\0", 12, "[0,-1,10]"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int64_t aligned[4];
        char text[4096], expected[100];
        xn_answer answer = example_answer();
        memcpy(aligned, cases[i].bytes, cases[i].length);
        answer.datatype = cases[i].datatype;
        answer.output_bytes = cases[i].length;
        text[xn_proto_json_answer_begin(&answer, aligned, text)] = 0;
        snprintf(expected, sizeof expected, "\"data\":%s}", cases[i].data);
        ck_assert_msg(strstr(text, expected), "%s does not hold %s", text, expected);
        ck_assert_ptr_nonnull(strstr(text, xn_datatype_name(cases[i].datatype)));
    }
}
END_TEST

START_TEST(server_timing_is_whole) {
    static const char full[] = "receive;dur=0.012, decode;dur=0.003, queue;dur=0.003, "
                               "upload;dur=0.000, compute;dur=0.007, download;dur=0.000, "
                               "encode;dur=0.001, other;dur=0.004, total;dur=0.030";
    char text[400];
    xn_proto_server_timing(&example_timing, text, sizeof text);
    ck_assert_str_eq(text, full);
    for (size_t size = 1; size < sizeof full; size++) { /* cut between metrics */
        char *exact = malloc(size);
        ck_assert_ptr_nonnull(exact);
        xn_proto_server_timing(&example_timing, exact, size);
        size_t length = strlen(exact);
        ck_assert(length < size && !strncmp(exact, full, length));
        ck_assert(length == 0 || full[length] == ',' || full[length] == 0);
        free(exact);
    }
    const xn_timing negative = {.other_ns = -1234567};
    xn_proto_server_timing(&negative, text, sizeof text);
    ck_assert_ptr_nonnull(strstr(text, "other;dur=-1.235"));
    xn_proto_server_timing(&negative, text, 0);
}
END_TEST

/* ---- errors ---- */

START_TEST(errors_are_escaped) {
    static const struct {
        const char *message, *escaped;
    } cases[] = {
        {"plain", "plain"},
        {"a \"b\" \\ c", "a \\\"b\\\" \\\\ c"},
        {"\n\t\x01\x7f", "\\u000a\\u0009\\u0001\\u007f"},
        {"\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80", "\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80"},
        {"\xff", "\xef\xbf\xbd"},
        {"\xc3", "\xef\xbf\xbd"},
        {"\xc0\x80", "\xef\xbf\xbd\xef\xbf\xbd"},
        {"\xed\xa0\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
        {"\xe2\x82", "\xef\xbf\xbd\xef\xbf\xbd"},
        {"\xf4\x90\x80\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
        {"", ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[400], expected[400];
        size_t length =
            xn_proto_write_error("bad_request", cases[i].message, "input.data", text, sizeof text);
        ck_assert_uint_eq(length, strlen(text));
        snprintf(expected, sizeof expected,
                 "{\"error\":{\"code\":\"bad_request\",\"message\":\"%s\",\"field\":"
                 "\"input.data\"}}\n",
                 cases[i].escaped);
        ck_assert_str_eq(text, expected);
    }
}
END_TEST

/* Of both forms, at every size: the text is terminated and valid JSON, with a whole beginning of
 * the message. */
START_TEST(errors_fit_any_size) {
    static const char message[] = "caf\xc3\xa9 \"quoted\" \x01 \xe2\x82\xac \xf0\x9f\x98\x80 \xff";
    static const char whole[] =
        "caf\xc3\xa9 \"quoted\" \x01 \xe2\x82\xac \xf0\x9f\x98\x80 \xef\xbf\xbd";
    const bool is_oip = _i;
    for (size_t size = 1; size < 240; size++) {
        char *text = malloc(size);
        ck_assert_ptr_nonnull(text);
        size_t length = is_oip ? xn_oip_write_error(message, text, size)
                               : xn_proto_write_error("bad_request", message, "a\"b", text, size);
        ck_assert_uint_lt(length, size);
        ck_assert_uint_eq(text[length], 0);
        ck_assert(length || size <= 2);
        xn_json_scan scan = {0};
        const xn_json *error =
            length ? xn_json_member(parse_text(text, length, &scan), "error") : NULL;
        if (error) {
            const char *back = xn_json_string(is_oip ? error : xn_json_member(error, "message"));
            ck_assert(!strncmp(back, whole, strlen(back)));
            ck_assert(size < 160 || !strcmp(back, whole));
            ck_assert(is_oip || !strcmp(xn_json_string(xn_json_member(error, "field")), "a\"b"));
        } else {
            ck_assert(length == 0 || length == 2);
        }
        xn_json_scan_free(&scan);
        free(text);
    }
    ck_assert_uint_eq(xn_proto_write_error("internal", "m", "f", NULL, 0), 0);
}
END_TEST

XN_SUITE(proto_answer) {
    Suite *s = suite_create("proto_answer");
    TCase *t = xn_test_case(s, "answers", 60);
    tcase_add_test(t, documented_requests_parse);
    tcase_add_test(t, documented_answers_are_written);
    tcase_add_test(t, openapi_agrees_with_protocol);
    tcase_add_test(t, longest_answers_fit);
    tcase_add_test(t, json_floats_round_trip);
    tcase_add_test(t, json_writes_datatypes);
    tcase_add_test(t, server_timing_is_whole);
    tcase_add_test(t, errors_are_escaped);
    tcase_add_loop_test(t, errors_fit_any_size, 0, 2);
    return s;
}
