/* BITS in the forms that have bytes, and the form raw. */
#include "proto_bodies.h"
#include "xn_test.h"

#include <stdio.h>
#include <string.h>

static const xn_proto_limits limits = {PROTO_TEST_MAX_ELEMENTS};

enum { MOST_QUERY = 8 };

/* Parses the body with the query "key=value&...". */
static xn_status parse(xn_form form, const proto_bytes *bytes, const char *query,
                       xn_conv_request *out, xn_error *error) {
    char text[400], *rest = NULL;
    xn_proto_query pairs[MOST_QUERY];
    size_t count = 0;
    xn_proto_body body = {.form = form, .bytes = bytes->bytes, .length = bytes->length};
    snprintf(text, sizeof text, "%s", query);
    for (char *pair = strtok_r(text, "&", &rest); pair; pair = strtok_r(NULL, "&", &rest)) {
        char *equal = strchr(pair, '=');
        ck_assert(equal && count < MOST_QUERY);
        *equal = 0;
        pairs[count++] = (xn_proto_query){pair, equal + 1};
    }
    return xn_proto_parse_conv(&body, pairs, count, &limits, out, error);
}

static xn_status parse_raw(const void *values, size_t length, const char *query, proto_bytes *copy,
                           xn_conv_request *out, xn_error *error) {
    *copy = proto_bytes_of(values, length);
    return parse(XN_FORM_RAW, copy, query, out, error);
}

/* ---- raw ---- */

START_TEST(raw_takes_all_from_the_query) {
    const float values[8] = {1, -2, 3, -4, 5, -6, 7, -8};
    proto_bytes copy;
    xn_conv_request r;
    xn_error error = {0};
    xn_status status =
        parse_raw(values, sizeof values, "weights=edge&shape=2,1,2,2&padding=1&scaling=alpha&id=a",
                  &copy, &r, &error);
    ck_assert_msg(!status, "%s", error.message);
    ck_assert(r.input.present && r.input.datatype == XN_FP32 && r.input.elements == 8);
    ck_assert(r.input.shape.rank == 4 && r.input.shape.dims[0] == 2 && r.input.shape.dims[3] == 2);
    ck_assert_ptr_eq(r.input.data, copy.bytes);
    ck_assert_str_eq(r.weights_name, "edge");
    ck_assert_str_eq(r.id, "a");
    ck_assert(r.params.scaling == XN_SCALING_ALPHA && r.params.padding[3] == 1);
    proto_bytes_free(&copy);
}
END_TEST

START_TEST(raw_is_refused) {
    static const struct {
        const char *query, *field, *fragment;
        size_t length;
    } cases[] = {
        {"weights=edge", "shape", "?shape=N,C,H,W&weights=NAME", 4},
        {"shape=1,1,1,1", "weights", "weights is missing", 4},
        {"shape=1,1,1,2&weights=edge", "shape",
         "the body has 4 bytes; shape [1, 1, 1, 2] of FP32 "
         "needs 8",
         4},
        {"shape=1,1,1,1&weights=edge", "shape", "the body has 8 bytes", 8},
        {"shape=1,1,1,1&weights=edge", "shape", "FP64, which is not taken", 8},
        {"shape=1,1,,1&weights=edge", "shape", "shape is \"1,1,,1\"", 4},
        {"shape=&weights=edge", "shape", "shape is \"\"", 4},
        {"shape=1,1,1,1,1,1,1,1,1&weights=edge", "shape", "shape is \"1,1,1,1,1,1,1,1,1\"", 4},
        {"shape=1,0,1,1&weights=edge", "input.shape", "at least 1", 4},
        {"shape=1,-1,1,1&weights=edge", "input.shape", "at least 1", 4},
        {"shape=1,1,1,1&shape=1,1,1,1&weights=edge", "shape", "given twice", 4},
        {"shape=1,1,1,1&datatype=FP64&weights=edge", "datatype", "convert the values to FP32", 4},
        {"shape=1,1,1,1&datatype=INT32&weights=edge", "datatype", "datatype is \"INT32\"", 4},
        {"shape=9999999,9999999,99,99&weights=edge", "input.shape", "more than", 4},
        {"shape=1,1,1,1&weights=edge&stryde=2", "stryde", "did you mean \"stride\"", 4},
        {"shape=1,1,1,1&weights=edge&channels=3", "channels", "unknown query parameter", 4},
        {"shape=1,1,1,1&weights=edge&datatipe=INT8", "datatipe", "did you mean \"datatype\"", 4},
        {"shape=1,1,1,1&weights=edge&color=red", "color", "accepted: shape, datatype, weights", 4},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        static const char zeros[16];
        proto_bytes copy;
        xn_conv_request r;
        xn_error error = {0};
        xn_status status = parse_raw(zeros, cases[i].length, cases[i].query, &copy, &r, &error);
        proto_expect_error(status, &error, cases[i].query, cases[i].field, cases[i].fragment);
        proto_bytes_free(&copy);
    }
}
END_TEST

START_TEST(raw_answers_say_what_they_are) {
    const xn_answer answer = {.id = "i",
                              .backend = "cpu",
                              .datatype = XN_FP16,
                              .shape = {4, {1, 64, 56, 57}},
                              .output_bytes = 4};
    unsigned char room[XN_PROTO_HEADROOM_BYTES + 4];
    xn_proto_header headers[XN_PROTO_HEADERS];
    size_t prefix = 99;
    unsigned char *tensor = room + XN_PROTO_HEADROOM_BYTES;
    ck_assert_ptr_eq(xn_proto_write_binary_answer(XN_FORM_RAW, &answer, tensor, &prefix), tensor);
    ck_assert_uint_eq(prefix, 0);
    ck_assert_int_eq(xn_proto_answer_headers(XN_FORM_RAW, &answer, prefix, headers), 2);
    ck_assert_str_eq(headers[0].name, "Output-Shape");
    ck_assert_str_eq(headers[0].value, "1,64,56,57");
    ck_assert_str_eq(headers[1].name, "Output-Datatype");
    ck_assert_str_eq(headers[1].value, "FP16");
    ck_assert_int_eq(xn_proto_answer_headers(XN_FORM_OIP_BINARY, &answer, 336, headers), 1);
    ck_assert_str_eq(headers[0].name, "Inference-Header-Content-Length");
    ck_assert_str_eq(headers[0].value, "336");
    ck_assert_int_eq(xn_proto_answer_headers(XN_FORM_SAFETENSORS, &answer, 336, headers), 0);
}
END_TEST

/* ---- BITS ---- */

/* The input that each form gives of two pixels of 11 channels, whose spare bits are set. */
static const unsigned char given[4] = {0x01, 0xff, 0x80, 0xfa}, cleared[4] = {0x01, 0x07, 0x80, 2};

static void expect_bits(const xn_conv_request *r) {
    unsigned char values[4] = {0};
    xn_error error = {0};
    ck_assert_int_eq(r->input.datatype, XN_BITS);
    ck_assert(r->input.elements == 22 && r->input.bytes == 4 && r->input.shape.rank == 4);
    ck_assert(r->input.shape.dims[0] == 1 && r->input.shape.dims[1] == 11 &&
              r->input.shape.dims[2] == 1 && r->input.shape.dims[3] == 2);
    ck_assert(!xn_proto_tensor_in_place(&r->input));
    ck_assert(!xn_proto_tensor_read(&r->input, "input", values, &error));
    ck_assert(!memcmp(values, cleared, 4));
}

#define BITS_FILE(channels)                                                                        \
    "{\"input\":{\"dtype\":\"U8\",\"shape\":[1,1,2,2],\"data_offsets\":[0,4]},"                    \
    "\"__metadata__\":{\"weights\":\"edge\"" channels "}}"

START_TEST(bits_are_read) {
    proto_bytes copy;
    xn_conv_request r;
    xn_error error = {0};
    ck_assert_msg(
        !parse_raw(given, 4, "shape=1,11,1,2&datatype=BITS&weights=edge", &copy, &r, &error), "%s",
        error.message);
    expect_bits(&r);
    proto_bytes_free(&copy);
    ck_assert_msg(!proto_parse_oip("{\"input\":{\"shape\":[1,11,1,2],\"datatype\":\"BITS\","
                                   "\"parameters\":{\"binary_data_size\":4}},\"weights\":\"edge\"}",
                                   given, 4, &copy, &r, &error),
                  "%s", error.message);
    expect_bits(&r);
    proto_bytes_free(&copy);
    copy = proto_safetensors(BITS_FILE(",\"channels\":\"11\""), given, 4);
    ck_assert_msg(!parse(XN_FORM_SAFETENSORS, &copy, "", &r, &error), "%s", error.message);
    expect_bits(&r);
    proto_bytes_free(&copy);
    copy = proto_safetensors(BITS_FILE(""), given, 4);
    ck_assert_msg(!parse(XN_FORM_SAFETENSORS, &copy, "channels=11", &r, &error), "%s",
                  error.message);
    expect_bits(&r);
    proto_bytes_free(&copy);
}
END_TEST

/* Whole bytes have no spare bits: they are used where they lie. */
START_TEST(whole_bytes_stay_in_place) {
    proto_bytes copy;
    xn_conv_request r;
    xn_error error = {0};
    ck_assert(!parse_raw(given, 4, "shape=1,16,1,2&datatype=BITS&weights=edge", &copy, &r, &error));
    ck_assert(xn_proto_tensor_in_place(&r.input));
    proto_bytes_free(&copy);
}
END_TEST

static void expect_file_error(const char *header, const char *query, const char *field,
                              const char *fragment) {
    proto_bytes copy = proto_safetensors(header, given, 4);
    xn_conv_request r;
    xn_error error = {0};
    xn_status status = parse(XN_FORM_SAFETENSORS, &copy, query, &r, &error);
    proto_expect_error(status, &error, header, field, fragment);
    proto_bytes_free(&copy);
}

START_TEST(bits_are_refused) {
    static const char json[] = "{\"input\":{\"shape\":[1,8,1,1],\"datatype\":\"BITS\","
                               "\"data\":[1,1,1,1,1,1,1,1]},\"weights\":\"edge\"}";
    proto_bytes copy;
    xn_conv_request r;
    xn_error error = {0};
    proto_expect_error(proto_parse_json(json, &copy, &r, &error), &error, "JSON", "input.datatype",
                       "packed bytes and no JSON");
    proto_bytes_free(&copy);
    proto_expect_error(proto_parse_oip(json, "", 0, &copy, &r, &error), &error, "data in OIP",
                       "input.datatype", "binary_data_size");
    proto_bytes_free(&copy);
    proto_expect_error(proto_parse_oip("{\"weights\":{\"shape\":[1,8,1,1],\"datatype\":\"BITS\","
                                       "\"parameters\":{\"binary_data_size\":1}}}",
                                       "", 0, &copy, &r, &error),
                       &error, "weights", "weights.datatype", "it takes \"FP32\"");
    proto_bytes_free(&copy);
    proto_expect_error(
        parse_raw(given, 4, "shape=1,8,4&datatype=BITS&weights=edge", &copy, &r, &error), &error,
        "rank 3", "input.shape", "BITS takes 4: [N, C, H, W]");
    proto_bytes_free(&copy);
    proto_expect_error(
        parse_raw(given, 4, "shape=1,17,1,2&datatype=BITS&weights=edge", &copy, &r, &error), &error,
        "too few bytes", "shape", "needs 6");
    proto_bytes_free(&copy);
    expect_file_error(BITS_FILE(",\"channels\":\"17\""), "", "input.shape",
                      "channels is 17, which is for packed bits: U8 of shape [N, H, W, 3]");
    expect_file_error(BITS_FILE(",\"channels\":\"0\""), "", "channels", "channels is \"0\"");
    expect_file_error(BITS_FILE(",\"channels\":\"1,2\""), "", "channels", "channels is \"1,2\"");
    expect_file_error(BITS_FILE(",\"channels\":\"11\""), "channels=11", "channels",
                      "given twice: in the query and in __metadata__");
    expect_file_error("{\"input\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1],\"data_offsets\":[0,4]},"
                      "\"__metadata__\":{\"weights\":\"edge\",\"channels\":\"8\"}}",
                      "", "input.shape", "input is FP32 of shape [1, 1, 1, 1], but channels is 8");
}
END_TEST

/* What numpy reads: U8 [N, H, W, ceil(C/8)], and the number of channels. */
START_TEST(bits_are_written_to_files) {
    const xn_answer answer = {.id = "i",
                              .backend = "cpu",
                              .datatype = XN_BITS,
                              .shape = {4, {2, 11, 3, 5}},
                              .output_bytes = 60};
    unsigned char room[XN_PROTO_HEADROOM_BYTES + 60];
    size_t prefix = 0;
    char *body = xn_proto_write_binary_answer(XN_FORM_SAFETENSORS, &answer,
                                              room + XN_PROTO_HEADROOM_BYTES, &prefix);
    body[prefix] = 0;
    ck_assert_ptr_nonnull(strstr(body + 8, "\"dtype\":\"U8\",\"shape\":[2,3,5,2],"
                                           "\"data_offsets\":[0,60]"));
    ck_assert_ptr_nonnull(strstr(body + 8, "\"channels\":\"11\""));
    body = xn_proto_write_binary_answer(XN_FORM_OIP_BINARY, &answer, room + XN_PROTO_HEADROOM_BYTES,
                                        &prefix);
    body[prefix] = 0;
    ck_assert_ptr_nonnull(strstr(body, "\"datatype\":\"BITS\",\"shape\":[2,11,3,5]"));
    ck_assert_ptr_nonnull(strstr(body, "\"binary_data_size\":60"));
    ck_assert(!xn_proto_json_answer_bound(&answer, &prefix));
}
END_TEST

XN_SUITE(proto_bits) {
    Suite *s = suite_create("proto_bits");
    TCase *t = xn_test_case(s, "proto_bits", 0);
    tcase_add_test(t, raw_takes_all_from_the_query);
    tcase_add_test(t, raw_is_refused);
    tcase_add_test(t, raw_answers_say_what_they_are);
    tcase_add_test(t, bits_are_read);
    tcase_add_test(t, whole_bytes_stay_in_place);
    tcase_add_test(t, bits_are_refused);
    tcase_add_test(t, bits_are_written_to_files);
    return s;
}
