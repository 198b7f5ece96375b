/* Requests in JSON and OIP binary: what a valid one means, and every way to be refused. */
#include "fault/fault.h"
#include "proto_bodies.h"
#include "xn_mem.h"
#include "xn_test.h"

#include <stdio.h>
#include <string.h>

#define T "{\"shape\":[1,1,1,1],\"datatype\":\"FP32\",\"data\":[1]}"
#define INPUT "\"input\":" T
#define WEIGHTS "\"weights\":" T
#define BOTH INPUT "," WEIGHTS

START_TEST(parses_everything) {
    xn_error error = {0};
    xn_conv_request r;
    proto_sample sample = proto_sample_make(0);
    ck_assert_msg(!proto_sample_parse(&sample, sample.body.length, &r, &error), "%s",
                  error.message);
    ck_assert(r.input.present && r.weights.present && r.scale.present && r.bias.present);
    ck_assert_int_eq(r.input.datatype, XN_FP32);
    ck_assert_int_eq(r.input.shape.rank, 4);
    ck_assert_int_eq(r.input.shape.dims[3], 3);
    ck_assert_int_eq(r.input.elements, 6);
    ck_assert_uint_eq(r.input.bytes, 24);
    ck_assert_ptr_null(r.input.data);
    ck_assert_msg(!strncmp(r.input.text, "[1,-2.5,3e2,0,-0.0,6]", r.input.text_length), "%.30s",
                  r.input.text);
    ck_assert_int_eq(r.weights.datatype, XN_INT8);
    ck_assert_int_eq(r.scale.datatype, XN_FP16);
    ck_assert_int_eq(r.bias.datatype, XN_BF16);
    ck_assert_str_eq(r.weights_name, "");
    ck_assert(r.params.stride[0] == 1 && r.params.stride[1] == 2);
    ck_assert(r.params.dilation[0] == 2 && r.params.dilation[1] == 2);
    ck_assert_int_eq(r.params.padding_kind, XN_PADDING_EXPLICIT);
    for (int i = 0; i < 4; i++)
        ck_assert_int_eq(r.params.padding[i], i);
    ck_assert_int_eq(r.params.groups, 1);
    ck_assert_int_eq(r.params.pad_value, -1);
    ck_assert_int_eq(r.params.scaling, XN_SCALING_ALPHA);
    ck_assert_int_eq(r.params.output_datatype, XN_FP16);
    ck_assert_str_eq(r.backend, "cpu");
    ck_assert_str_eq(r.id, "r-1");
    ck_assert_int_eq(r.timeout_ms, 1000);
    proto_bytes_free(&sample.body);
}
END_TEST

START_TEST(parses_defaults_and_escapes) {
    xn_error error = {0};
    xn_conv_request r;
    xn_conv_params defaults;
    xn_conv_params_default(&defaults);
    proto_bytes copy;
    ck_assert(!proto_parse_json("{" BOTH "}", &copy, &r, &error));
    ck_assert(proto_params_equal(&r.params, &defaults));
    ck_assert_str_eq(r.backend, "auto");
    ck_assert_str_eq(r.id, "");
    ck_assert_int_eq(r.timeout_ms, -1);
    ck_assert(!r.scale.present && !r.bias.present);
    proto_bytes_free(&copy);

    proto_sample sample = proto_sample_make(1);
    ck_assert_msg(!proto_sample_parse(&sample, sample.body.length, &r, &error), "%s",
                  error.message);
    ck_assert_str_eq(r.weights_name, "edge");
    ck_assert_int_eq(r.params.padding_kind, XN_PADDING_SAME);
    unsigned char values[8];
    ck_assert_uint_eq(r.input.bytes, sizeof values);
    ck_assert_msg(!xn_proto_tensor_read(&r.input, "input", values, &error), "%s", error.message);
    ck_assert(!memcmp(values, "\1\0\1\0\0\0\1\1", 8));
    proto_bytes_free(&sample.body);
}
END_TEST

START_TEST(parses_parameter_forms) {
    static const struct {
        const char *text;
        int64_t padding[4], stride[2];
    } cases[] = {
        {"\"padding\":3", {3, 3, 3, 3}, {1, 1}},
        {"\"padding\":[1,2]", {1, 2, 1, 2}, {1, 1}},
        {"\"padding\":[1,2,3,4],\"stride\":[2,1]", {1, 2, 3, 4}, {2, 1}},
        {"\"stride\":2147483647", {0, 0, 0, 0}, {2147483647, 2147483647}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[400];
        proto_bytes copy;
        xn_conv_request r;
        xn_error error = {0};
        snprintf(text, sizeof text, "{%s,%s}", BOTH, cases[i].text);
        ck_assert_msg(!proto_parse_json(text, &copy, &r, &error), "%s: %s", text, error.message);
        ck_assert(!memcmp(r.params.padding, cases[i].padding, sizeof r.params.padding));
        ck_assert(!memcmp(r.params.stride, cases[i].stride, sizeof r.params.stride));
        proto_bytes_free(&copy);
    }
}
END_TEST

static xn_status parse_row(const xn_table_row *row, xn_error *error) {
    proto_bytes copy;
    xn_conv_request r;
    const xn_status status = proto_parse_json(row->fields[0].text, &copy, &r, error);
    proto_bytes_free(&copy);
    return status;
}

/* A small text cannot claim a big tensor either: refused while parsing, before anyone allocates. */
START_TEST(refuses_what_is_wrong) {
    proto_refuse_all("conv.txt", parse_row);
}
END_TEST

/* Everything but the numbers is bounded, whatever it is made of. */
START_TEST(refuses_long_headers) {
    static const char *const fillers[] = {" ", "[1],", "\"a\":1,", "{", "\"", "1"};
    for (size_t i = 0; i < sizeof fillers / sizeof *fillers; i++) {
        size_t unit = strlen(fillers[i]), length = 0;
        size_t size = XN_PROTO_MAX_HEADER_BYTES + 100;
        char *text = malloc(size + 1);
        ck_assert_ptr_nonnull(text);
        memcpy(text, "{\"x\":", 5);
        for (length = 5; length + unit <= size; length += unit)
            memcpy(text + length, fillers[i], unit);
        text[length] = 0;
        proto_bytes copy;
        xn_conv_request r;
        xn_error error = {0};
        proto_expect_error(proto_parse_json(text, &copy, &r, &error), &error, fillers[i], "",
                           *fillers[i] == '{' ? "nested more than" : "more than 65536 bytes");
        proto_bytes_free(&copy);
        free(text);
    }
}
END_TEST

/* The bytes of the numbers do not count against the header's limit. */
START_TEST(takes_long_data) {
    enum { COUNT = 100000 };
    char *text = malloc(COUNT * 8 + 400);
    ck_assert_ptr_nonnull(text);
    size_t length = (size_t)sprintf(text,
                                    "{\"input\":{\"shape\":[1,1,1,%d],\"datatype\":\"FP32\","
                                    "\"data\":[",
                                    COUNT);
    for (int i = 0; i < COUNT; i++)
        length += (size_t)sprintf(text + length, "%s%d.5", i ? "," : "", i);
    strcpy(text + length, "]}," WEIGHTS "}");
    proto_bytes copy;
    xn_conv_request r;
    xn_error error = {0};
    ck_assert_msg(!proto_parse_json(text, &copy, &r, &error), "%s", error.message);
    float *values = malloc(r.input.bytes);
    ck_assert_ptr_nonnull(values);
    ck_assert_msg(!xn_proto_tensor_read(&r.input, "input", values, &error), "%s", error.message);
    for (int i = 0; i < COUNT; i++)
        ck_assert_msg(values[i] == (float)i + 0.5f, "[%d] is %a", i, (double)values[i]);
    free(values);
    proto_bytes_free(&copy);
    /* An error behind the array is reported where it is in the body. */
    size_t behind = length + strlen("]}," WEIGHTS);
    strcpy(text + behind, "?}");
    char expected[40];
    snprintf(expected, sizeof expected, "before byte %zu", behind + 1);
    xn_status status = proto_parse_json(text, &copy, &r, &error);
    proto_expect_error(status, &error, "tail", "", expected);
    proto_bytes_free(&copy);
    free(text);
}
END_TEST

/* ---- OIP binary ---- */

START_TEST(oip_orders_tensors_as_members) {
    xn_error error = {0};
    xn_conv_request r;
    proto_sample sample = proto_sample_make(2);
    ck_assert_msg(!proto_sample_parse(&sample, sample.body.length, &r, &error), "%s",
                  error.message);
    const unsigned char *values = sample.body.bytes + sample.header_length;
    ck_assert_ptr_eq(r.weights.data, values);
    ck_assert_ptr_eq(r.input.data, values + 2);
    ck_assert_ptr_null(r.input.text);
    uint16_t halves[3];
    ck_assert(!xn_proto_tensor_read(&r.input, "input", halves, &error));
    ck_assert(halves[0] == 0x3c00 && halves[1] == 0xbc00 && halves[2] == 0x4000);
    proto_bytes_free(&sample.body);

    sample = proto_sample_make(3); /* one tensor inline, one binary */
    ck_assert_msg(!proto_sample_parse(&sample, sample.body.length, &r, &error), "%s",
                  error.message);
    float weights[2];
    ck_assert(!xn_proto_tensor_read(&r.weights, "weights", weights, &error));
    ck_assert(weights[0] == 0.5f && weights[1] == -0.5f);
    ck_assert_ptr_eq(r.input.data, sample.body.bytes + sample.header_length);
    proto_bytes_free(&sample.body);
}
END_TEST

static xn_status parse_binary_row(const xn_table_row *row, xn_error *error) {
    proto_bytes copy;
    xn_conv_request r;
    const size_t bytes = (size_t)xn_table_number(row, 3);
    const xn_status status =
        proto_parse_oip(row->fields[0].text, "\0\0\0\0\0\0\0", bytes, &copy, &r, error);
    proto_bytes_free(&copy);
    return status;
}

START_TEST(oip_refuses) {
    proto_refuse_all("binary.txt", parse_binary_row);
}
END_TEST

START_TEST(refuses_wrong_envelopes) {
    static const char name[] = "Inference-Header-Content-Length";
    static const char text[] = "{" BOTH "}";
    const xn_proto_limits limits = {1000};
    const xn_proto_query query = {"stride", "1"};
    xn_proto_body body = {XN_FORM_OIP_BINARY, text, strlen(text), true, strlen(text) + 1};
    xn_conv_request r;
    xn_error error = {0};
    xn_status status = xn_proto_parse_conv(&body, NULL, 0, &limits, &r, &error);
    proto_expect_error(status, &error, "too long", name, "but the body has");
    body.header_length = SIZE_MAX;
    status = xn_proto_parse_conv(&body, NULL, 0, &limits, &r, &error);
    proto_expect_error(status, &error, "far too long", name, "but the body has");
    body.header_length = body.length; /* all inline: nothing binary follows */
    ck_assert(!xn_proto_parse_conv(&body, NULL, 0, &limits, &r, &error));
    status = xn_proto_parse_conv(&body, &query, 1, &limits, &r, &error);
    proto_expect_error(status, &error, "query", "stride", "take them in the query");
    body.form = XN_FORM_JSON;
    status = xn_proto_parse_conv(&body, NULL, 0, &limits, &r, &error);
    proto_expect_error(status, &error, "JSON", name, "but the body is application/json");
}
END_TEST

/* ---- weights ---- */

START_TEST(parses_weights) {
    static const struct {
        const char *text, *field, *fragment; /* fragment NULL: accepted */
    } cases[] = {
        {"{" WEIGHTS "}", "", NULL},
        {"{\"bias\":" T "," WEIGHTS ",\"scale\":" T "}", "", NULL},
        {"{}", "weights", "weights is missing"},
        {"{\"weights\":\"edge\"}", "weights", "the string \"edge\"; it takes a tensor"},
        {"{" BOTH "}", "input", "unknown field \"input\"; accepted: weights, scale, bias"},
        {"{" WEIGHTS ",\"stride\":1}", "stride", "unknown field \"stride\""},
        {"{\"weight\":" T "}", "weight", "; did you mean \"weights\"?"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        proto_bytes copy = proto_bytes_of(cases[i].text, strlen(cases[i].text));
        xn_proto_body body = {.form = XN_FORM_JSON, .bytes = copy.bytes, .length = copy.length};
        const xn_proto_limits limits = {1000};
        xn_weights_request r;
        xn_error error = {0};
        xn_status status = xn_proto_parse_weights(&body, &limits, &r, &error);
        if (cases[i].fragment) {
            proto_expect_error(status, &error, cases[i].text, cases[i].field, cases[i].fragment);
        } else {
            ck_assert_msg(!status, "%s", error.message);
            ck_assert(r.weights.present && r.scale.present == r.bias.present);
        }
        proto_bytes_free(&copy);
    }
}
END_TEST

/* ---- all forms ---- */

/* A message cut anywhere is refused, and nothing is read past the cut. */
START_TEST(refuses_every_truncation) {
    for (int i = 0; i < PROTO_SAMPLES; i++) {
        proto_sample sample = proto_sample_make(i);
        xn_conv_request r;
        xn_error error = {0};
        size_t end = sample.body.length;
        ck_assert_msg(!proto_sample_parse(&sample, end, &r, &error), "%s: %s", sample.name,
                      error.message);
        if (sample.form == XN_FORM_JSON) /* white space after the object means nothing */
            while (sample.body.bytes[end - 1] == ' ')
                end--;
        for (size_t n = 0; n < end; n++) {
            proto_sample cut = sample;
            cut.body = proto_bytes_of(sample.body.bytes, n);
            error.message[0] = 0;
            xn_status status = proto_sample_parse(&cut, n, &r, &error);
            ck_assert_msg(status == XN_ERR_MALFORMED, "%s cut at %zu: %s", sample.name, n,
                          xn_status_name(status));
            ck_assert_msg(error.message[0], "%s cut at %zu: no message", sample.name, n);
            proto_bytes_free(&cut.body);
        }
        proto_bytes_free(&sample.body);
    }
}
END_TEST

/* Each allocation failed in turn, alone or with all after it: NO_MEMORY, or (when the parse needed
 * fewer) the right result. */
START_TEST(survives_every_failed_allocation) {
    xn_proto_init();
    for (int i = 0; i < PROTO_SAMPLES; i++) {
        proto_sample sample = proto_sample_make(i);
        xn_conv_request expected, r;
        xn_error error = {0};
        ck_assert(!proto_sample_parse(&sample, sample.body.length, &expected, &error));
        for (int all = 0; all < 2; all++) {
            xn_status status = XN_ERR_NO_MEMORY;
            int n = 0;
            for (; status && n < 10000; n++) {
                static xt_fault fault;
                xn_mem_set_hook(xt_fault_hook, &fault);
                xt_fault_arm(&fault, n, all);
                status = proto_sample_parse(&sample, sample.body.length, &r, &error);
                xn_mem_set_hook(NULL, NULL);
                ck_assert_msg(status == XN_OK || status == XN_ERR_NO_MEMORY, "%s, %d: %s: %s",
                              sample.name, n, xn_status_name(status), error.message);
            }
            ck_assert_msg(n > 2 && !status, "%s: %d allocations", sample.name, n);
            ck_assert_msg(proto_requests_equal(&r, &expected), "%s: results differ", sample.name);
        }
        proto_bytes_free(&sample.body);
    }
}
END_TEST

XN_SUITE(proto_json) {
    Suite *s = suite_create("proto_json");
    TCase *t = xn_test_case(s, "requests", 120);
    tcase_add_test(t, parses_everything);
    tcase_add_test(t, parses_defaults_and_escapes);
    tcase_add_test(t, parses_parameter_forms);
    tcase_add_test(t, refuses_what_is_wrong);
    tcase_add_test(t, refuses_long_headers);
    tcase_add_test(t, takes_long_data);
    tcase_add_test(t, oip_orders_tensors_as_members);
    tcase_add_test(t, oip_refuses);
    tcase_add_test(t, refuses_wrong_envelopes);
    tcase_add_test(t, parses_weights);
    tcase_add_test(t, refuses_every_truncation);
    tcase_add_test(t, survives_every_failed_allocation);
    return s;
}
