/* Requests as safetensors files. */
#include "proto_bodies.h"
#include "xn_test.h"

#include <string.h>

static const xn_proto_limits limits = {PROTO_TEST_MAX_ELEMENTS};

static xn_status parse(const proto_bytes *bytes, const xn_proto_query *query, size_t count,
                       xn_conv_request *out, xn_error *error) {
    xn_proto_body body = {
        .form = XN_FORM_SAFETENSORS, .bytes = bytes->bytes, .length = bytes->length};
    return xn_proto_parse_conv(&body, query, count, &limits, out, error);
}

START_TEST(parses) {
    xn_error error = {0};
    xn_conv_request r;
    proto_sample sample = proto_sample_make(4);
    ck_assert_msg(!parse(&sample.body, NULL, 0, &r, &error), "%s", error.message);
    ck_assert_int_eq(r.input.datatype, XN_INT8);
    ck_assert_int_eq(r.weights.datatype, XN_FP32);
    ck_assert(!memcmp(r.input.data, "\x01\xff\x7f", 3));
    float weight;
    ck_assert(!xn_proto_tensor_read(&r.weights, "weights", &weight, &error)); /* unaligned */
    ck_assert(weight == 1.0f);
    ck_assert(r.params.stride[0] == 1 && r.params.stride[1] == 2);
    ck_assert_int_eq(r.params.padding_kind, XN_PADDING_SAME);
    ck_assert_int_eq(r.params.mode, XN_MODE_BWN);
    ck_assert_str_eq(r.id, "s-1");
    proto_bytes_free(&sample.body);
}
END_TEST

#define IN "\"input\":{\"dtype\":\"I8\",\"shape\":[2],\"data_offsets\":[0,2]}"
#define META(members) "{" IN ",\"__metadata__\":{" members "}}"

START_TEST(takes_parameters_from_the_query) {
    static const xn_proto_query query[] = {
        {"weights", "edge"},  {"stride", "2"},     {"padding", "1,2,3,4"},
        {"dilation", "1,3"},  {"groups", "4"},     {"pad_value", "-1"},
        {"scaling", "none"},  {"mode", "xnor"},    {"output_datatype", "INT32"},
        {"backend", "ref"},   {"timeout_ms", "5"}, {"id", "q 1"},
        {"precision", "tf32"}};
    proto_bytes file = proto_safetensors("{" IN "}", "\1\2", 2);
    xn_conv_request r;
    xn_error error = {0};
    ck_assert_msg(!parse(&file, query, sizeof query / sizeof *query, &r, &error), "%s",
                  error.message);
    ck_assert_str_eq(r.weights_name, "edge");
    ck_assert(r.params.stride[0] == 2 && r.params.stride[1] == 2);
    ck_assert(r.params.dilation[0] == 1 && r.params.dilation[1] == 3);
    for (int i = 0; i < 4; i++)
        ck_assert_int_eq(r.params.padding[i], i + 1);
    ck_assert(r.params.groups == 4 && r.params.pad_value == -1 && r.timeout_ms == 5);
    ck_assert_int_eq(r.params.scaling, XN_SCALING_NONE);
    ck_assert_int_eq(r.params.output_datatype, XN_INT32);
    ck_assert_int_eq(r.params.precision, XN_PRECISION_TF32);
    ck_assert_str_eq(r.backend, "ref");
    ck_assert_str_eq(r.id, "q 1");
    proto_bytes_free(&file);
}
END_TEST

START_TEST(refuses_bad_queries) {
    static const struct {
        xn_proto_query query[2];
        size_t count;
        const char *field, *fragment;
    } cases[] = {
        {{{"strid", "1"}},
         1,
         "strid",
         "unknown query parameter \"strid\"; accepted: channels, weights"},
        {{{"strid", "1"}}, 1, "strid", "id; did you mean \"stride\"?"},
        {{{"mode", "folat"}}, 1, "mode", "\"float\"; did you mean \"float\"?"},
        {{{"input", "1"}}, 1, "input", "unknown query parameter"},
        {{{"stride", ""}}, 1, "stride", "stride is \"\"; it takes an integer"},
        {{{"stride", NULL}}, 1, "stride", "stride is \"\""},
        {{{"stride", "1,"}}, 1, "stride", "stride is \"1,\""},
        {{{"stride", ",1"}}, 1, "stride", "stride is \",1\""},
        {{{"stride", "1, 1"}}, 1, "stride", "stride is \"1, 1\""},
        {{{"stride", "1x"}}, 1, "stride", "stride is \"1x\""},
        {{{"stride", "+1"}}, 1, "stride", "stride is \"+1\""},
        {{{"stride", "01"}}, 1, "stride", "stride is \"01\""},
        {{{"stride", "1.0"}}, 1, "stride", "stride is \"1.0\""},
        {{{"stride", "-"}}, 1, "stride", "stride is \"-\""},
        {{{"stride", "0"}}, 1, "stride", "stride is 0; it must be between 1"},
        {{{"stride", "99999999999999999999"}}, 1, "stride", "stride is \"99999999999999999999\""},
        {{{"stride", "-9223372036854775808"}}, 1, "stride", "stride is -9223372036854775808"},
        {{{"stride", "-9223372036854775809"}}, 1, "stride", "stride is \"-922"},
        {{{"stride", "1,1,1"}}, 1, "stride", "a list of 3 numbers"},
        {{{"padding", "1,1,1,1,1"}}, 1, "padding", "padding is \"1,1,1,1,1\""},
        {{{"padding", "full"}}, 1, "padding", "padding is \"full\""},
        {{{"groups", "same"}}, 1, "groups", "groups is \"same\""},
        {{{"groups", "1,1"}}, 1, "groups", "a list of 2 numbers"},
        {{{"mode", "1"}}, 1, "mode", "mode is \"1\""},
        {{{"id", "a\tb"}}, 1, "id", "id is \"a?b\""},
        {{{"stride", "1"}, {"stride", "1"}}, 2, "stride", "given twice in the query"},
        {{{"weights", "a b"}}, 1, "weights", "weights is \"a b\""},
    };
    proto_bytes file = proto_safetensors("{" IN "}", "\1\2", 2);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        xn_conv_request r;
        xn_error error = {0};
        xn_status status = parse(&file, cases[i].query, cases[i].count, &r, &error);
        proto_expect_error(status, &error, cases[i].fragment, cases[i].field, cases[i].fragment);
    }
    proto_bytes_free(&file);
    file = proto_safetensors(META("\"weights\":\"a\",\"stride\":\"1\""), "\1\2", 2);
    const xn_proto_query query = {"stride", "1"};
    xn_conv_request r;
    xn_error error = {0};
    proto_expect_error(parse(&file, &query, 1, &r, &error), &error, "both", "stride",
                       "given twice: in the query and in __metadata__");
    proto_bytes_free(&file);
}
END_TEST

#define W1(offsets) "\"weights\":{\"dtype\":\"I8\",\"shape\":[2],\"data_offsets\":" offsets "}"

static xn_status parse_row(const xn_table_row *row, xn_error *error) {
    const size_t bytes = (size_t)xn_table_number(row, 3);
    proto_bytes file = proto_safetensors(row->fields[0].text, "\0\0\0\0\0\0\0", bytes);
    xn_conv_request r;
    const xn_status status = parse(&file, NULL, 0, &r, error);
    proto_bytes_free(&file);
    return status;
}

START_TEST(refuses_bad_files) {
    proto_refuse_all("safetensors.txt", parse_row);
}
END_TEST

START_TEST(refuses_bad_lengths) {
    static const struct {
        const char *bytes;
        size_t length;
        const char *fragment;
    } cases[] = {
        {"", 0, "the body has 0 bytes"},
        {"\2\0\0\0\0\0\0", 7, "the body has 7 bytes"},
        {"\2\0\0\0\0\0\0\0", 8, "header length is 2, but only 0 bytes follow"},
        {"\3\0\0\0\0\0\0\0{}", 10, "header length is 3, but only 2 bytes follow"},
        {"\1\0\1\0\0\0\0\0{}", 10, "header length is 65537; the limit is 65536"},
        {"\377\377\377\377\377\377\377\377{}", 10, "header length is 18446744073709551615"},
        {"hello, world", 12, "the body is no safetensors file: as one, its header length is"},
        {"hello, world", 12, "; a file begins with the length of its JSON header in 8 bytes"},
        {"{\"input\": 1}", 12, "it looks like JSON, whose Content-Type is application/json"},
        {"\x93NUMPY\1\0v\0{", 11, "it looks like a NumPy array"},
        {"PK\3\4\24\0\0\0\10\0", 10, "it looks like a zip archive"},
        {"\x80\4\x95\0\0\0\0\1", 8, "it looks like a Python pickle"},
        {"\0\0\0\0\0\0\0\0", 8, "must be a JSON object"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        proto_bytes file = proto_bytes_of(cases[i].bytes, cases[i].length);
        xn_conv_request r;
        xn_error error = {0};
        xn_status status = parse(&file, NULL, 0, &r, &error);
        proto_expect_error(status, &error, cases[i].fragment, "", cases[i].fragment);
        proto_bytes_free(&file);
    }
}
END_TEST

START_TEST(parses_weights) {
    static const struct {
        const char *header, *field, *fragment; /* fragment NULL: accepted */
    } cases[] = {
        {"{" W1("[0,2]") "}", "", NULL},
        {"{" W1("[0,2]") ",\"__metadata__\":{\"format\":\"pt\"}}", "", NULL},
        {"{" IN "}", "input", "unknown tensor \"input\"; accepted: weights, scale, bias"},
        {"{" W1("[0,2]") ",\"__metadata__\":{\"stride\":\"1\"}}", "stride", "take no parameters"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        proto_bytes file = proto_safetensors(cases[i].header, "\1\2", 2);
        xn_proto_body body = {
            .form = XN_FORM_SAFETENSORS, .bytes = file.bytes, .length = file.length};
        xn_weights_request r;
        xn_error error = {0};
        xn_status status = xn_proto_parse_weights(&body, &limits, &r, &error);
        if (cases[i].fragment)
            proto_expect_error(status, &error, cases[i].header, cases[i].field, cases[i].fragment);
        else
            ck_assert_msg(!status && r.weights.present, "%s", error.message);
        proto_bytes_free(&file);
    }
}
END_TEST

XN_SUITE(proto_safetensors) {
    Suite *s = suite_create("proto_safetensors");
    TCase *t = xn_test_case(s, "files", 60);
    tcase_add_test(t, parses);
    tcase_add_test(t, takes_parameters_from_the_query);
    tcase_add_test(t, refuses_bad_queries);
    tcase_add_test(t, refuses_bad_files);
    tcase_add_test(t, refuses_bad_lengths);
    tcase_add_test(t, parses_weights);
    return s;
}
